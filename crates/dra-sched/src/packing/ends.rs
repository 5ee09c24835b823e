//! Errors on one node that end a pod's attempt on all nodes.
//!
//! Upstream asks the nodes that other rules allow for a pod, and a single error among their answers is the answer for
//! the pod: a selector that fails on a device of one node keeps the pod off every other node.

use model::{Budget, IdSet};

use super::Copies;
use crate::capacity;
use crate::compile::claims::{Alternative, ClaimClass};
use crate::compile::ids::ClaimClassId;
use crate::compile::selectors::Judgement;
use crate::faults::{Fault, Scope};
use crate::inventory::{ClaimUse, Inventory};
use crate::ledger::{BinLedger, ClusterLedger};
use crate::verdict::Refusal;
use dra_types::{NodeAllocatableMapping, NodeScope, compat::Gate};

/// Whether claims could meet such an error on any device at all; cheap, and mostly false. Left out are claims that
/// are wrong whatever the node is, and node selectors that the API server does not accept.
pub fn may_end(inventory: &Inventory, claims: &[ClaimUse]) -> bool {
    let new = claims.iter().filter_map(|claim| match *claim {
        ClaimUse::Fresh { class, .. } | ClaimUse::Extended { class } => Some(class),
        ClaimUse::Named { claim, .. } => (!inventory.stays_allocated(claim)).then(|| inventory.claims[claim].class),
    });
    let new: Vec<ClaimClassId> = new.collect();
    let is_wrong_itself = |class: &ClaimClassId| inventory.claim_classes[*class].fault.is_some();
    !new.is_empty()
        && !new.iter().any(is_wrong_itself)
        && (has_odd_devices(inventory) || new.into_iter().any(|class| class_may_end(inventory, class)))
}

/// Whether an allocation of some device could be one that upstream cannot write or count.
fn has_odd_devices(inventory: &Inventory) -> bool {
    let hands_out = inventory.compat.is_on(Gate::NodeAllocatableResources);
    inventory.devices.ids().map(|device| inventory.device(device)).any(|device| {
        let mut costs = device.node_allocatable.in_release(inventory.compat.kubernetes).values();
        let by_capacity = costs.any(|of| matches!(of.mapping, Some(NodeAllocatableMapping::Capacity { .. })));
        let terms = match &device.node_scope {
            Some(NodeScope::Selector(selector)) => selector.terms.len(),
            Some(NodeScope::Node(_) | NodeScope::AllNodes | NodeScope::PerDevice) | None => 1,
        };
        terms > 1 || hands_out && by_capacity
    })
}

fn class_may_end(inventory: &Inventory, class: ClaimClassId) -> bool {
    let ClaimClass { requests, .. } = &inventory.claim_classes[class];
    let mut alternatives = requests.iter().flat_map(|request| &request.alternatives);
    alternatives.any(|alternative| {
        alternative.count.is_none() || !alternative.derived.is_empty() || fails_on_a_device(inventory, alternative)
    })
}

/// Whether a selector fails on some device, or an amount of its capacity cannot be computed.
fn fails_on_a_device(inventory: &Inventory, alternative: &Alternative) -> bool {
    let is_on = |gate| inventory.compat.is_on(gate);
    let (consumable, fractional) = (is_on(Gate::ConsumableCapacity), is_on(Gate::FractionalCapacityRange));
    let selectors = || alternative.class_selectors.iter().chain(&alternative.selectors);
    inventory.shapes.iter_enumerated().any(|(shape, content)| {
        let first = selectors()
            .map(|selector| inventory.selectors.judge(*selector, shape, content))
            .find(|judgement| *judgement != Judgement::Yes);
        let amounts = || capacity::demand(&alternative.capacity, &content.device().capacity, fractional);
        match first {
            Some(Judgement::Error) => true,
            Some(_) => false,
            None => consumable && amounts().is_err(),
        }
    })
}

/// The error with which a node ends a pod's attempt on all nodes; `None` if there is none or the search is cut short.
pub fn ends_on(
    inventory: &Inventory,
    node: &BinLedger,
    claims: &[ClaimUse],
    cluster: &ClusterLedger,
    budget: &mut Budget,
) -> Option<Fault> {
    let offer = Copies { claims, copies: 1 }.try_add(inventory, node, &IdSet::default(), cluster, budget);
    offer.refused.into_iter().find_map(|refused| match refused.refusal {
        Refusal::Fault(fault) if fault.scope() == Scope::Pod => Some(fault),
        Refusal::Fault(_)
        | Refusal::Infeasible(_)
        | Refusal::Elsewhere { .. }
        | Refusal::Shared { .. }
        | Refusal::TooManyConsumers { .. }
        | Refusal::NotUsed { .. }
        | Refusal::NotRecorded { .. } => None,
    })
}
