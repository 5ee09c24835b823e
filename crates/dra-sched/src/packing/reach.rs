//! Which claims can compete for the same devices.

use std::collections::BTreeSet;

use crate::claims;
use crate::inventory::{ClaimClassId, ClaimId, DeviceEntry, DeviceShape, Inventory, SliceIndex};
use crate::packing::ClaimUse;
use crate::selectors::Judgement;
use crate::types::{DriverName, NodeScope};

/// The devices that claims could take, as far as it decides who competes with them: drivers, apart for devices of the
/// machine itself and for those that several can use. Nothing is left out; a device that could be taken may still never be.
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
    /// Claims that exist, which other pods may share.
    pub claims: BTreeSet<ClaimId>,
}

impl Reach {
    /// Whether what they take can matter to pods on other machines.
    pub fn is_beyond_machine(&self) -> bool {
        !self.shared.is_empty() || !self.claims.is_empty()
    }
}

impl Inventory {
    /// Drivers whose devices for several machines some of these claims would take more of if there were more.
    pub fn elastic(&self, claims: &[ClaimUse]) -> BTreeSet<DriverName> {
        let class = |claim: &ClaimUse| match *claim {
            ClaimUse::Fresh { class, .. } => class,
            ClaimUse::Named { claim, .. } => self.claims[claim].class,
        };
        let elastic = claims.iter().copied().filter(|claim| self.takes_more_of_more(class(claim)));
        self.reach(&elastic.collect::<Vec<_>>()).shared
    }

    /// What claims could take, on whichever node or machine.
    pub fn reach(&self, claims: &[ClaimUse]) -> Reach {
        let mut reach = Reach::default();
        for claim in claims {
            match *claim {
                ClaimUse::Fresh { class, .. } => self.extend(&mut reach, class),
                ClaimUse::Named { claim, .. } => {
                    reach.claims.insert(claim);
                    if self.allocation(claim).is_none() {
                        self.extend(&mut reach, self.claims[claim].class);
                    }
                }
            }
        }
        reach
    }

    fn extend(&self, reach: &mut Reach, class: ClaimClassId) {
        let brought = self.slices_for_domains();
        let is_own = |slice: SliceIndex| {
            let of_one_node = || matches!(self.slices[slice].slice.node_scope, Some(NodeScope::Node(_)));
            // Of what machines bring for others, the template does not say for whom.
            !brought.contains(&slice) && (self.slices[slice].template || of_one_node())
        };
        let requests = &self.claim_classes[class].requests;
        for alternative in requests.iter().flat_map(|request| &request.alternatives) {
            let matters = |device: &&DeviceEntry| !alternative.admin_access || self.keeps_administrators_out(device);
            for device in self.devices.iter().filter(matters) {
                let driver = &self.shapes[device.shape].driver;
                let drivers = if is_own(device.slice) { &mut reach.own } else { &mut reach.shared };
                let is_brought = brought.contains(&device.slice);
                let is_known = drivers.contains(driver) && (reach.grows || !is_brought);
                if !is_known && self.could_take(alternative, device.shape) {
                    drivers.insert(driver.clone());
                    reach.grows |= is_brought;
                }
            }
        }
    }

    /// The slices of templates of pools that machines bring for others.
    pub(super) fn slices_for_domains(&self) -> BTreeSet<SliceIndex> {
        self.shared_pools.iter().flat_map(|pool| pool.slices.iter().copied()).collect()
    }

    /// Whether others can take something of a device that administrators' access needs as well. It takes nothing from
    /// anybody, and a device that is given out is open to it; but not where its counters or its capacity are used up.
    fn keeps_administrators_out(&self, device: &DeviceEntry) -> bool {
        let shape = &self.shapes[device.shape];
        let of_shape = shape.slice.devices.get(shape.position);
        of_shape.is_some_and(|device| device.allow_multiple_allocations)
            || (!device.draws.is_empty() && self.quirks.admin_access_draws_counters)
    }

    /// Whether no selector says no. One that fails counts, since it depends on what others have taken whether it is asked.
    pub(super) fn could_take(&self, alternative: &claims::Alternative, shape: DeviceShape) -> bool {
        let selectors = alternative.class_selectors.iter().chain(&alternative.selectors);
        let judge = |selector| self.selectors.judge(selector, shape, &self.shapes[shape]);
        selectors.copied().all(|selector| judge(selector) != Judgement::No)
    }
}
