//! What devices cost of the node's own resources (KEP-5517).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::faults::Fault;
use crate::inventory::Inventory;
use crate::inventory::view::View;
use crate::verdict::Refusal;
use dra_types::compat::Gate;
use dra_types::{Allocation, AllocationResult, Device, DeviceId, NodeAllocatable, NodeAllocatableMapping};

/// Amounts of node resources (`cpu`, `memory`, …) in nano-units, by resource name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeDemand(pub BTreeMap<Arc<str>, i128>);

impl NodeDemand {
    fn add(&mut self, resource: &Arc<str>, amount: i128) {
        let total = self.0.entry(Arc::clone(resource)).or_default();
        *total = total.saturating_add(amount);
    }

    /// Raises each resource to the larger of both amounts.
    pub(crate) fn max(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let most = self.0.entry(Arc::clone(name)).or_default();
            *most = (*most).max(*amount);
        }
    }
}

/// What one claim of a pod costs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimShare {
    /// The claim's place among those that were asked for.
    pub place: usize,
    /// What its devices cost the pod, all its containers together, by resource name.
    pub of_pod: BTreeMap<Arc<str>, CostOfDevices>,
    /// What they cost each container that uses the claim: what it hands out, and its costs of a pod and of a container.
    /// As `GetContainerDRAAllocations` of `k8s.io/component-helpers` v0.37.
    pub of_container: NodeDemand,
}

impl ClaimShare {
    /// Raises each amount to the larger of both.
    pub(super) fn max(&mut self, other: &Self) {
        for (name, cost) in &other.of_pod {
            let most = self.of_pod.entry(Arc::clone(name)).or_default();
            if cost.amount > most.amount {
                *most = *cost;
            }
        }
        self.of_container.max(&other.of_container);
    }
}

/// What devices cost of one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CostOfDevices {
    /// How many of them cost something.
    pub devices: usize,
    /// Together, in nano-units.
    pub amount: i128,
    /// Each of them, in nano-units, where all cost the same.
    pub each: Option<i128>,
}

/// How many devices cost something, and how much each where all cost the same: `2 devices × 8`.
pub fn told_devices(devices: usize, each: Option<String>) -> String {
    match (devices, each) {
        (1, _) => "1 device".to_owned(),
        (devices, Some(each)) => format!("{devices} devices × {each}"),
        (devices, None) => format!("{devices} devices"),
    }
}

impl CostOfDevices {
    fn add(&mut self, amount: i128) {
        let is_first = self.devices == 0;
        self.devices += 1;
        self.amount = self.amount.saturating_add(amount);
        self.each = (is_first || self.each == Some(amount)).then_some(amount);
    }
}

/// Who uses a claim of a pod.
#[derive(Debug, Clone, Copy)]
pub(super) struct Users {
    /// The claim's place among those that were asked for.
    pub(super) place: usize,
    /// How many containers refer to it; none can where it is the claim for extended resources.
    pub(super) containers: Option<u32>,
}

/// An allocation that a pod pays for.
pub(super) struct Costs<'a> {
    /// The claim's name in reasons.
    pub(super) claim: Arc<str>,
    pub(super) allocation: &'a Allocation,
    pub(super) users: Users,
}

/// What a device hands out and costs in the inventory's release.
fn node_allocatable<'i>(inventory: &Inventory, device: &'i Device) -> &'i BTreeMap<Arc<str>, NodeAllocatable> {
    device.node_allocatable.in_release(inventory.compat.kubernetes)
}

/// Whether a claim's devices hand out the node's own resources, so that only one pod may use it.
pub(super) fn hands_out(inventory: &Inventory, view: &View, allocation: &Allocation) -> bool {
    inventory.compat.is_on(Gate::NodeAllocatableResources)
        && allocation.results.iter().filter_map(|result| device(inventory, view, &result.device)).any(|device| {
            let mut resources = node_allocatable(inventory, device).values();
            resources.any(|resource| resource.mapping.is_some())
        })
}

/// What the allocations of one pod cost, and what each of them costs a container. An error in any of them takes
/// precedence over a claim whose costs the release does not take, as upstream adds everything up before it looks at who
/// uses it.
pub(super) fn of<'a>(
    inventory: &Inventory,
    view: &View,
    allocations: impl Iterator<Item = Costs<'a>>,
) -> Result<(NodeDemand, Vec<ClaimShare>), Refusal> {
    let (mut demand, mut shares) = (NodeDemand::default(), Vec::new());
    if !inventory.compat.is_on(Gate::NodeAllocatableResources) {
        return Ok((demand, shares));
    }
    let mut not_taken = None;
    for costs in allocations {
        if not_taken.is_none() {
            not_taken = refusal(inventory, view, &costs);
        }
        let mut share = ClaimShare { place: costs.users.place, ..ClaimShare::default() };
        for result in &costs.allocation.results {
            if let Some(device) = device(inventory, view, &result.device) {
                let resources = node_allocatable(inventory, device);
                add(&mut share, resources, result, &costs)?;
            }
        }
        if !share.of_container.0.is_empty() {
            share.of_pod.iter().for_each(|(resource, cost)| demand.add(resource, cost.amount));
            shares.push(share);
        }
    }
    not_taken.map_or(Ok((demand, shares)), Err)
}

/// Whether the release takes no pod with such a claim.
fn refusal(inventory: &Inventory, view: &View, costs: &Costs<'_>) -> Option<Refusal> {
    let claim = || Arc::clone(&costs.claim);
    if inventory.quirks.claims_that_hand_out_must_be_used {
        let is_unused = costs.users.containers.unwrap_or(0) == 0 && hands_out(inventory, view, costs.allocation);
        return is_unused.then(|| Refusal::NotUsed { claim: claim() });
    }
    let cannot_be_written =
        inventory.quirks.costs_of_extended_resources_are_not_written && costs.users.containers.is_none();
    let has_costs = |result: &AllocationResult| {
        let device = device(inventory, view, &result.device);
        device.is_some_and(|device| !node_allocatable(inventory, device).is_empty())
    };
    let is_lost = cannot_be_written && costs.allocation.results.iter().any(has_costs);
    is_lost.then(|| Refusal::NotRecorded { claim: claim() })
}

/// Adds what a device costs.
fn add(
    share: &mut ClaimShare,
    resources: &BTreeMap<Arc<str>, NodeAllocatable>,
    result: &AllocationResult,
    of: &Costs<'_>,
) -> Result<(), Refusal> {
    for (resource, costs) in resources {
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
        let once = mapped.saturating_add(per_pod);
        let containers = i128::from(of.users.containers.unwrap_or(0));
        let of_pod = once.saturating_add(per_container.saturating_mul(containers));
        share.of_pod.entry(Arc::clone(resource)).or_default().add(of_pod);
        share.of_container.add(resource, once.saturating_add(per_container));
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
