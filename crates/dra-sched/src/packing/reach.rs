//! Which claims can compete for the same devices.

use std::collections::{BTreeMap, BTreeSet};

use crate::compile::device::DeviceEntry;
use crate::compile::ids::{ClaimClassId, ClaimId, SliceIndex};
use crate::inventory::{ClaimUse, Inventory, PoolKinds};
use crate::machine::PoolScope;
use dra_types::{DriverName, NodeScope};

/// The devices that claims could take, as far as it decides who competes with them: drivers, apart for devices of the
/// machine itself and for those that several can use. Nothing is left out; a device that could be taken may still never
/// be.
///
/// Counters are of one pool and so of one driver: what no two claims reach in common, neither takes from the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reach {
    /// Drivers of which they could take devices that are the machine's own.
    pub own: BTreeSet<DriverName>,
    /// Drivers of which they could take devices that other machines can use as well.
    pub shared: BTreeSet<DriverName>,
    /// Some of these come with machines that bring pools for others: then more machines may mean more to take.
    pub grows: bool,
    /// The pools that these devices are of, by driver.
    pub pools: BTreeMap<DriverName, PoolKinds>,
    /// Claims that exist, which other pods may share.
    pub claims: BTreeSet<ClaimId>,
}

impl Reach {
    /// Drivers whose devices for several machines some of these claims would take more of if there were more.
    pub fn elastic(inventory: &Inventory, claims: &[ClaimUse]) -> BTreeSet<DriverName> {
        let elastic = claims.iter().copied().filter(|claim| inventory.takes_more_of_more(claim.class(inventory)));
        Self::of(inventory, &elastic.collect::<Vec<_>>()).shared
    }

    /// What claims could take, on whichever node or machine.
    pub fn of(inventory: &Inventory, claims: &[ClaimUse]) -> Self {
        Self::of_new(inventory, claims, |claim| inventory.allocation(claim).is_none())
    }

    /// What claims could take if none of them were allocated.
    pub fn anew(inventory: &Inventory, claims: &[ClaimUse]) -> Self {
        Self::of_new(inventory, claims, |_| true)
    }

    /// Whether what they take can matter to pods on other machines.
    pub fn is_beyond_machine(&self) -> bool {
        !self.shared.is_empty() || !self.claims.is_empty()
    }

    /// What pools of one driver it is up to, which names these will have, which devices are given.
    pub fn unordered(&self) -> PoolKinds {
        let mut all = PoolKinds::default();
        self.pools.values().filter(|kinds| kinds.is_unordered()).for_each(|kinds| all.extend(*kinds));
        all
    }

    fn of_new(inventory: &Inventory, claims: &[ClaimUse], is_new: impl Fn(ClaimId) -> bool) -> Self {
        let mut reach = Self::default();
        for claim in claims {
            match *claim {
                ClaimUse::Fresh { class, .. } => reach.extend(inventory, class),
                ClaimUse::Named { claim, .. } => {
                    reach.claims.insert(claim);
                    if is_new(claim) {
                        reach.extend(inventory, inventory.claims[claim].class);
                    }
                }
            }
        }
        reach
    }

    fn extend(&mut self, inventory: &Inventory, class: ClaimClassId) {
        let scopes = inventory.scopes_for_domains();
        let is_of_one_node =
            |slice: SliceIndex| matches!(inventory.slices[slice].slice.node_scope, Some(NodeScope::Node(_)));
        let unusable = inventory.slices_for_nobody();
        let kind = |slice: SliceIndex| match scopes.get(&slice) {
            // Of what machines bring for others, the template does not say for whom.
            Some(PoolScope::Machine) => PoolKinds { hosts: true, ..PoolKinds::default() },
            Some(PoolScope::Domain) => PoolKinds { domains: true, ..PoolKinds::default() },
            None if inventory.slices[slice].template => PoolKinds { own: true, planned: true, ..PoolKinds::default() },
            None if is_of_one_node(slice) => PoolKinds { own: true, ..PoolKinds::default() },
            None => PoolKinds { published: true, ..PoolKinds::default() },
        };
        let requests = &inventory.claim_classes[class].requests;
        for alternative in requests.iter().flat_map(|request| &request.alternatives) {
            let matters =
                |device: &&DeviceEntry| !alternative.admin_access || keeps_administrators_out(inventory, device);
            for device in inventory.devices.iter().filter(matters).filter(|device| !unusable.contains(&device.slice)) {
                let driver = &inventory.shapes[device.shape].driver;
                let kind = kind(device.slice);
                let known = self.pools.get(driver).copied().unwrap_or_default();
                let mut more = known;
                more.extend(kind);
                if more == known || !inventory.could_take(alternative, device.shape) {
                    continue;
                }
                self.pools.insert(driver.clone(), more);
                let drivers = if kind.own { &mut self.own } else { &mut self.shared };
                drivers.insert(driver.clone());
                self.grows |= kind.hosts || kind.domains;
            }
        }
    }
}

/// Whether others can take something of a device that administrators' access needs as well. It takes nothing from
/// anybody, and a device that is given out is open to it; but not where its counters or its capacity are used up.
fn keeps_administrators_out(inventory: &Inventory, device: &DeviceEntry) -> bool {
    let shape = &inventory.shapes[device.shape];
    let of_shape = shape.slice.devices.get(shape.position);
    of_shape.is_some_and(|device| device.allow_multiple_allocations)
        || (!device.draws.is_empty() && inventory.quirks.admin_access_draws_counters)
}
