//! What devices cost of the node's own resources (KEP-5517).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::compat::Gate;
use crate::inventory::Inventory;
use crate::types::{Allocation, Device, DeviceId, NodeAllocatableMapping};
use crate::view::View;

/// Amounts of node resources (`cpu`, `memory`, …) in nano-units, by resource name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeDemand(pub BTreeMap<Arc<str>, i128>);

impl NodeDemand {
    /// The most of each resource.
    pub(crate) fn max(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let most = self.0.entry(Arc::clone(name)).or_default();
            *most = (*most).max(*amount);
        }
    }
}

/// What the allocations of one pod cost, each with the number of containers that refer to its claim.
pub(super) fn of<'a>(
    inventory: &Inventory,
    view: &View,
    allocations: impl Iterator<Item = (&'a Allocation, u32)>,
) -> NodeDemand {
    let mut demand = NodeDemand::default();
    if !inventory.compat.is_on(Gate::NodeAllocatableResources) {
        return demand;
    }
    for (allocation, containers) in allocations {
        for result in &allocation.results {
            let Some(device) = device(inventory, view, &result.device) else { continue };
            for (resource, costs) in &device.node_allocatable {
                let mapped = match &costs.mapping {
                    Some(NodeAllocatableMapping::Capacity { key, multiplier }) => {
                        let consumed = result.consumed_capacity.get(key).map(|amount| amount.to_nano());
                        let whole = device.capacity.get(key).map(|capacity| capacity.value.to_nano());
                        times(consumed.or(whole).unwrap_or(0), multiplier.to_nano())
                    }
                    Some(NodeAllocatableMapping::Device { multiplier }) => multiplier.to_nano(),
                    None => 0,
                };
                let overhead = costs.overhead.as_ref();
                let per_pod = overhead.and_then(|overhead| overhead.per_pod).map_or(0, |amount| amount.to_nano());
                let per_container =
                    overhead.and_then(|overhead| overhead.per_container).map_or(0, |amount| amount.to_nano());
                let total = mapped + per_pod + per_container * i128::from(containers);
                *demand.0.entry(Arc::clone(resource)).or_default() += total;
            }
        }
    }
    demand
}

/// The product of two amounts in nano-units.
fn times(a: i128, b: i128) -> i128 {
    const UNIT: i128 = 1_000_000_000;
    a.checked_mul(b).map_or_else(|| (a / UNIT).saturating_mul(b), |product| product / UNIT)
}

fn device<'i>(inventory: &'i Inventory, view: &View, id: &DeviceId) -> Option<&'i Device> {
    let found = view.devices.iter().find(|device| inventory.keys[inventory.devices[device.device].key] == *id);
    found.map(|device| inventory.device(device.device))
}
