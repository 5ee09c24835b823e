//! What devices cost of the node's own resources (KEP-5517).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::faults::Fault;
use crate::inventory::Inventory;
use crate::inventory::view::View;
use crate::verdict::Refusal;
use dra_types::{Allocation, AllocationResult, Device, DeviceId, NodeAllocatableMapping, compat::Gate};

/// Amounts of node resources (`cpu`, `memory`, …) in nano-units, by resource name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeDemand(pub BTreeMap<Arc<str>, i128>);

impl NodeDemand {
    /// Raises each resource to the larger of both amounts.
    pub(crate) fn max(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let most = self.0.entry(Arc::clone(name)).or_default();
            *most = (*most).max(*amount);
        }
    }
}

/// An allocation that a pod pays for.
pub(super) struct Costs<'a> {
    /// The claim's name in reasons.
    pub(super) claim: Arc<str>,
    pub(super) allocation: &'a Allocation,
    /// How many containers use the claim.
    pub(super) containers: u32,
}

/// Whether a claim's devices hand out the node's own resources, so that only one pod may use it.
pub(super) fn hands_out(inventory: &Inventory, view: &View, allocation: &Allocation) -> bool {
    inventory.compat.is_on(Gate::NodeAllocatableResources)
        && allocation.results.iter().any(|result| {
            let device = device(inventory, view, &result.device);
            device.is_some_and(|device| device.node_allocatable.values().any(|costs| costs.mapping.is_some()))
        })
}

/// What the allocations of one pod cost. An error in any of them takes precedence over a claim that no container uses,
/// as upstream adds everything up before it looks at who uses it.
pub(super) fn of<'a>(
    inventory: &Inventory,
    view: &View,
    allocations: impl Iterator<Item = Costs<'a>>,
) -> Result<NodeDemand, Refusal> {
    let mut demand = NodeDemand::default();
    if !inventory.compat.is_on(Gate::NodeAllocatableResources) {
        return Ok(demand);
    }
    let mut not_used = None;
    for costs in allocations {
        if not_used.is_none() && costs.containers == 0 && hands_out(inventory, view, costs.allocation) {
            not_used = Some(Refusal::NotUsed { claim: Arc::clone(&costs.claim) });
        }
        for result in &costs.allocation.results {
            if let Some(device) = device(inventory, view, &result.device) {
                add(&mut demand, device, result, &costs)?;
            }
        }
    }
    not_used.map_or(Ok(demand), Err)
}

fn add(demand: &mut NodeDemand, device: &Device, result: &AllocationResult, of: &Costs<'_>) -> Result<(), Refusal> {
    for (resource, costs) in &device.node_allocatable {
        let mapped = match &costs.mapping {
            // Upstream does not record what a device given out whole takes of its capacities.
            Some(NodeAllocatableMapping::Capacity { key, .. }) if result.consumed_capacity.is_empty() => {
                return Err(Refusal::Fault(Fault::NodeResource {
                    claim: Arc::clone(&of.claim),
                    device: result.device.clone(),
                    resource: Arc::clone(resource),
                    capacity: key.clone(),
                }));
            }
            Some(NodeAllocatableMapping::Capacity { key, multiplier }) => {
                let consumed = result.consumed_capacity.get(key).map_or(0, |amount| amount.to_nano());
                times(consumed, multiplier.to_nano())
            }
            Some(NodeAllocatableMapping::Device { multiplier }) => multiplier.to_nano(),
            None => 0,
        };
        let overhead = costs.overhead.as_ref();
        let per_pod = overhead.and_then(|overhead| overhead.per_pod).map_or(0, |amount| amount.to_nano());
        let per_container = overhead.and_then(|overhead| overhead.per_container).map_or(0, |amount| amount.to_nano());
        let total = mapped + per_pod + per_container * i128::from(of.containers);
        *demand.0.entry(Arc::clone(resource)).or_default() += total;
    }
    Ok(())
}

/// The product of two amounts in nano-units.
fn times(a: i128, b: i128) -> i128 {
    const UNIT: i128 = 1_000_000_000;
    a.checked_mul(b).map_or_else(|| (a / UNIT).saturating_mul(b), |product| product / UNIT)
}

fn device<'i>(inventory: &'i Inventory, view: &View, id: &DeviceId) -> Option<&'i Device> {
    view.find(inventory, id).map(|device| inventory.device(device))
}
