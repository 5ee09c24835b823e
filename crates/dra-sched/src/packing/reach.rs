//! Which claims can compete for the same devices.

use std::collections::{BTreeMap, BTreeSet};

use crate::claims;
use crate::inventory::{
    ClaimClassId, ClaimId, DeviceEntry, DeviceShape, Inventory, SharedPool, SharedPoolId, SliceIndex,
};
use crate::ledger::PoolKinds;
use crate::machine::PoolScope;
use crate::packing::ClaimUse;
use crate::selectors::Judgement;
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

    /// Whether a pod's claims take the first devices that match and nothing else decides which: more devices never
    /// leave anybody fewer of the others then.
    pub fn takes_first_that_match(&self, claims: &[ClaimUse]) -> bool {
        let classes = claims.iter().map(|claim| match *claim {
            ClaimUse::Fresh { class, .. } => &self.claim_classes[class],
            ClaimUse::Named { claim, .. } => &self.claim_classes[self.claims[claim].class],
        });
        let mut requests = 0;
        let are_plain = classes.into_iter().all(|class| {
            requests += class.requests.len();
            let is_exact = |request: &claims::Request| {
                request.alternatives.len() == 1 && request.alternatives.iter().all(|it| it.count.is_some())
            };
            class.spec.constraints.is_empty() && class.requests.iter().all(is_exact)
        });
        are_plain && requests <= 1
    }

    /// What claims could take, on whichever node or machine.
    pub fn reach(&self, claims: &[ClaimUse]) -> Reach {
        self.reach_of_new(claims, |claim| self.allocation(claim).is_none())
    }

    /// What claims could take if none of them were allocated.
    pub fn reach_anew(&self, claims: &[ClaimUse]) -> Reach {
        self.reach_of_new(claims, |_| true)
    }

    fn reach_of_new(&self, claims: &[ClaimUse], is_new: impl Fn(ClaimId) -> bool) -> Reach {
        let mut reach = Reach::default();
        for claim in claims {
            match *claim {
                ClaimUse::Fresh { class, .. } => self.extend(&mut reach, class),
                ClaimUse::Named { claim, .. } => {
                    reach.claims.insert(claim);
                    if is_new(claim) {
                        self.extend(&mut reach, self.claims[claim].class);
                    }
                }
            }
        }
        reach
    }

    fn extend(&self, reach: &mut Reach, class: ClaimClassId) {
        let scopes = self.scopes_for_domains();
        let is_of_one_node =
            |slice: SliceIndex| matches!(self.slices[slice].slice.node_scope, Some(NodeScope::Node(_)));
        let unusable = self.slices_for_nobody();
        let kind = |slice: SliceIndex| match scopes.get(&slice) {
            // Of what machines bring for others, the template does not say for whom.
            Some(PoolScope::Machine) => PoolKinds { hosts: true, ..PoolKinds::default() },
            Some(PoolScope::Domain) => PoolKinds { domains: true, ..PoolKinds::default() },
            None if self.slices[slice].template => PoolKinds { own: true, planned: true, ..PoolKinds::default() },
            None if is_of_one_node(slice) => PoolKinds { own: true, ..PoolKinds::default() },
            None => PoolKinds { published: true, ..PoolKinds::default() },
        };
        let requests = &self.claim_classes[class].requests;
        for alternative in requests.iter().flat_map(|request| &request.alternatives) {
            let matters = |device: &&DeviceEntry| !alternative.admin_access || self.keeps_administrators_out(device);
            for device in self.devices.iter().filter(matters).filter(|device| !unusable.contains(&device.slice)) {
                let driver = &self.shapes[device.shape].driver;
                let kind = kind(device.slice);
                let known = reach.pools.get(driver).copied().unwrap_or_default();
                let mut more = known;
                more.extend(kind);
                if more == known || !self.could_take(alternative, device.shape) {
                    continue;
                }
                reach.pools.insert(driver.clone(), more);
                let drivers = if kind.own { &mut reach.own } else { &mut reach.shared };
                drivers.insert(driver.clone());
                reach.grows |= kind.hosts || kind.domains;
            }
        }
    }

    /// The slices of templates of pools that no machine brings, since each lacks a label that says for whom.
    fn slices_for_nobody(&self) -> BTreeSet<SliceIndex> {
        let is_brought = |id: SharedPoolId, pool: &SharedPool| {
            let mut keys = pool.template.nodes.match_label_keys.iter();
            let shapes = || self.machines.iter().filter(|machine| machine.pools.contains(&id));
            keys.all(|key| shapes().any(|machine| machine.labels.contains_key(key)))
        };
        let for_nobody = self.shared_pools.iter_enumerated().filter(|(id, pool)| !is_brought(*id, pool));
        for_nobody.flat_map(|(_, pool)| pool.slices.iter().copied()).collect()
    }

    /// The slices of templates of pools that machines bring for others, and how many of the pool there are.
    fn scopes_for_domains(&self) -> BTreeMap<SliceIndex, PoolScope> {
        let of_pool = |pool: &SharedPool| {
            let scope = pool.template.scope;
            pool.slices.iter().map(move |slice| (*slice, scope)).collect::<Vec<_>>()
        };
        self.shared_pools.iter().flat_map(of_pool).collect()
    }

    /// The slices of templates of pools that machines bring for others.
    pub(super) fn slices_for_domains(&self) -> BTreeSet<SliceIndex> {
        self.scopes_for_domains().into_keys().collect()
    }

    /// Whether others can take something of a device that administrators' access needs as well. It takes nothing from
    /// anybody, and a device that is given out is open to it; but not where its counters or its capacity are used up.
    fn keeps_administrators_out(&self, device: &DeviceEntry) -> bool {
        let shape = &self.shapes[device.shape];
        let of_shape = shape.slice.devices.get(shape.position);
        of_shape.is_some_and(|device| device.allow_multiple_allocations)
            || (!device.draws.is_empty() && self.quirks.admin_access_draws_counters)
    }

    /// Whether no selector says no. One that fails counts, since it depends on what others have taken whether it is
    /// asked.
    pub(super) fn could_take(&self, alternative: &claims::Alternative, shape: DeviceShape) -> bool {
        let selectors = alternative.class_selectors.iter().chain(&alternative.selectors);
        let judge = |selector| self.selectors.judge(selector, shape, &self.shapes[shape]);
        selectors.copied().all(|selector| judge(selector) != Judgement::No)
    }
}
