//! Template devices that stand for allocated devices whose pool is not published.

use smallvec::SmallVec;

use super::Usage;
use crate::compile::ids::DeviceIndex;
use crate::compile::node_scope::is_same_selector;
use crate::inventory::Inventory;
use crate::inventory::shared::SharedPool;
use crate::inventory::unit::{Instance, Unit};
use dra_types::{AllocationResult, NodeScope, NodeSelector};

/// The devices that stand for an allocated one as long as its domain's pool is not published, or incomplete, and
/// templates describe it: for each description of the pool the device of its name, else the first of its kind of which
/// nothing is taken.
///
/// Left out: claims that are tied to one node by another of their devices, and pools of which each machine brings one.
pub(super) fn of(
    inventory: &Inventory,
    result: &AllocationResult,
    nodes: Option<&NodeSelector>,
    taken: &Usage,
) -> SmallVec<[Unit; 1]> {
    let device = &result.device;
    let is_for = |scope: &NodeScope| match (nodes, scope) {
        (None, scope) => *scope == NodeScope::AllNodes,
        (Some(nodes), NodeScope::Selector(selector)) => is_same_selector(nodes, selector),
        (Some(_), NodeScope::Node(_) | NodeScope::AllNodes | NodeScope::PerDevice) => false,
    };
    let described =
        inventory.pools_of_domains().filter(|(shared, ..)| shared.template.template.driver == device.driver);
    let described: Vec<(&SharedPool, Instance)> =
        described.filter(|(.., scope)| is_for(scope)).map(|(shared, instance, _)| (shared, instance)).collect();
    let named = |(shared, _): &(&SharedPool, Instance)| {
        shared.template.template.devices.iter().any(|other| other.name == device.device)
    };
    let Some(&(_, instance)) = described.iter().find(|pool| named(pool)).or(described.first()) else {
        return SmallVec::new();
    };
    let stand_in = |shared: &SharedPool| {
        let devices = || shared.slices.iter().flat_map(|slice| inventory.devices_of(*slice));
        let is_it = |index: &DeviceIndex| inventory.device(*index).name == device.device;
        let unit = |index: DeviceIndex| Unit::new(inventory.devices[index].key, instance);
        let is_free = |index: &DeviceIndex| {
            let unit = unit(*index);
            let is_shared = inventory.device(*index).allow_multiple_allocations;
            !taken.dedicated.contains(&unit)
                && !taken.shares.contains_key(&unit)
                && is_shared == result.share_id.is_some()
        };
        devices().find(is_it).or_else(|| devices().find(is_free)).map(unit)
    };
    let of_instance = described.iter().filter(|(_, of)| *of == instance);
    of_instance.filter_map(|(shared, _)| stand_in(shared)).collect()
}
