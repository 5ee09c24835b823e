//! Which claims can compete for the same devices.

use std::collections::{BTreeMap, BTreeSet};

use crate::compile::device::DeviceEntry;
use crate::compile::ids::{ClaimClassId, ClaimId, SliceIndex};
use crate::inventory::{ClaimUse, Inventory, PoolKinds};
use crate::machine::PoolScope;
use dra_types::{DriverName, NodeScope};

/// The devices that claims could take, as far as that decides who competes with them: drivers, separately for devices
/// of the machine itself and for devices that several nodes can use. It is complete: claims never take a device outside
/// of it, though they may not take every device inside.
///
/// Counters belong to one pool and so to one driver: two claims whose drivers are disjoint take nothing from each
/// other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reach {
    /// Drivers of which they could take devices that are the machine's own.
    pub own: BTreeSet<DriverName>,
    /// Drivers of which they could take devices that other machines can use as well.
    pub shared: BTreeSet<DriverName>,
    /// Some of these devices come with machines that bring pools for others, so that with more machines there may be
    /// more to take.
    pub grows: bool,
    /// The pools that these devices are of, by driver.
    pub pools: BTreeMap<DriverName, PoolKinds>,
    /// Claims that exist, which other pods may share.
    pub claims: BTreeSet<ClaimId>,
}

impl Reach {
    /// Drivers with devices for several machines of which some of these claims would take more if there were more.
    pub fn elastic(inventory: &Inventory, claims: &[ClaimUse]) -> BTreeSet<DriverName> {
        let elastic = claims.iter().copied().filter(|claim| inventory.takes_more_of_more(claim.class(inventory)));
        Self::of(inventory, &elastic.collect::<Vec<_>>()).shared
    }

    /// What claims could take, on whichever node or machine.
    pub fn of(inventory: &Inventory, claims: &[ClaimUse]) -> Self {
        Self::of_new(inventory, claims, |claim| !inventory.stays_allocated(claim))
    }

    /// What claims could take if none of them were allocated.
    pub fn anew(inventory: &Inventory, claims: &[ClaimUse]) -> Self {
        Self::of_new(inventory, claims, |_| true)
    }

    /// Whether what they take can matter to pods on other machines.
    pub fn is_beyond_machine(&self) -> bool {
        !self.shared.is_empty() || !self.claims.is_empty()
    }

    /// The kinds of a driver's pools whose names, not known yet, decide which devices are given.
    pub fn unordered(&self) -> PoolKinds {
        let mut all = PoolKinds::default();
        self.pools.values().filter(|kinds| kinds.is_unordered()).for_each(|kinds| all.extend(*kinds));
        all
    }

    fn of_new(inventory: &Inventory, claims: &[ClaimUse], is_new: impl Fn(ClaimId) -> bool) -> Self {
        let mut reach = Self::default();
        for claim in claims {
            match *claim {
                ClaimUse::Fresh { class, .. } | ClaimUse::Extended { class } => reach.extend(inventory, class),
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
            // A template does not say for whom machines bring its devices.
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

/// Whether others can take something of a device that access as administrator needs too. Such access takes nothing, and
/// may use a device that is given out; but not one whose counters or capacity are used up.
fn keeps_administrators_out(inventory: &Inventory, device: &DeviceEntry) -> bool {
    let shape = &inventory.shapes[device.shape];
    let of_shape = shape.slice.devices.get(shape.position);
    of_shape.is_some_and(|device| device.allow_multiple_allocations)
        || (!device.draws.is_empty() && inventory.quirks.admin_access_draws_counters)
}
