//! Whether claims want more devices than there can be, wherever their pods go: a proof by counting.
//!
//! Each machine to be has devices of its own, so what can be had of these has no end. What is published, and the one
//! pool of each domain, is all that there is of it. Of pools that each machine brings for its domain there are as many
//! as there can be such machines ([`Hosts`]). Every test relaxes the problem: a request is a number of devices that it
//! could take, on whichever node, and no more than one rule holds at a time.
//!
//! * *One place*: what a node sees of pools that machines bring for their domains are those of one domain for each set
//!   of label keys. A request for more than any place sees cannot be served.
//! * *Devices*: a flow from requests through the devices that they could take. A device that several use serves as many
//!   shares as the smallest request leaves it.
//! * *Counters, capacity*: requests that can only be served from some pools must draw from these at least what the
//!   device that draws least does.
//!
//! Cost: requests × devices that are no machine's own, times the different sets of pools.

use std::collections::{BTreeMap, BTreeSet};

use crate::capacity::{self, Demand};
use crate::compile::claims::{Alternative, Request};
use crate::compile::ids::{CounterIndex, DeviceIndex, DeviceShape, PoolIndex, ShapeId, SharedPoolId, SliceIndex};
use crate::flow::{self, Wants};
use crate::inventory::unit::{BinId, Instance, Unit};
use crate::inventory::{ClaimUse, Domain, Inventory};
use crate::ledger::{ClusterLedger, Taken};
use crate::machine::PoolScope;
use dra_types::{CounterName, DriverName, NodeScope, QualifiedName, compat::Gate};
use model::{Id, IdSet};

/// Copies of a pod's claims that all want to be served.
pub struct Wanting<'w> {
    /// The claims of one copy.
    pub claims: &'w [ClaimUse],
    /// How many.
    pub copies: u32,
    /// Whether any of them could be on a node or machine of a scope.
    pub reaches: &'w dyn Fn(&NodeScope) -> bool,
}

/// Pods whose machines may bring pools for others, or a machine that is on its way.
pub struct Hosts<'w> {
    /// Shapes that these machines may have.
    pub shapes: IdSet<ShapeId>,
    /// The most machines of them that there can be: each has one of the pods at least.
    pub machines: u32,
    /// Whether any of them could be in a scope.
    pub reaches: &'w dyn Fn(&NodeScope) -> bool,
}

/// A pool of which there is only one, published or as one template describes the one of a domain; or one that each of
/// some machines brings.
struct Pool {
    index: PoolIndex,
    instance: Instance,
    /// The slices, with who can use them: those of any of these scopes.
    slices: Vec<(SliceIndex, Vec<NodeScope>)>,
    /// If machines bring it.
    brought: Option<Brought>,
}

/// Who brings a pool for which domain.
struct Brought {
    machines: u64,
    /// Each brings it for one of these.
    domains: Vec<(Domain, NodeScope)>,
}

impl Pool {
    fn of_one(index: PoolIndex, instance: Instance, slices: impl Iterator<Item = (SliceIndex, NodeScope)>) -> Self {
        let slices = slices.map(|(slice, scope)| (slice, vec![scope])).collect();
        Self { index, instance, slices, brought: None }
    }

    /// How many there are.
    fn times(&self) -> u64 {
        self.brought.as_ref().map_or(1, |brought| brought.machines)
    }
}

/// One request, made by many copies.
struct Wanted {
    devices: u64,
    /// Whether one copy wants more than any place sees.
    exceeds_every_place: bool,
    picks: BTreeMap<Unit, Pick>,
}

/// A device that a request could take.
struct Pick {
    /// The pool's position in the list of pools.
    pool: usize,
    /// How many times the device can serve the request.
    shares: u64,
    /// What each takes of something at least.
    draws: BTreeMap<Drawn, i128>,
}

/// What devices draw from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Drawn {
    Counter(DriverName, CounterName),
    Capacity(DriverName, QualifiedName),
}

/// How often a request could take a device, and what it takes each time.
enum Share {
    Never,
    Times(u64, BTreeMap<Drawn, i128>),
    WithoutEnd,
}

/// Whether these copies want more devices, counters or capacity than there can be, beside what is certainly taken. Then
/// no arrangement serves them. A false answer proves nothing. `hosts` are all who may bring pools for others; `None` if
/// that is not known, so that what they bring has no end.
pub fn want_too_much(
    inventory: &Inventory,
    wanting: &[Wanting<'_>],
    hosts: Option<&[Hosts<'_>]>,
    cluster: &ClusterLedger,
) -> bool {
    let supply = Supply::new(inventory, hosts, cluster);
    let wanted = supply.wanted(wanting);
    wanted.iter().any(|wanted| wanted.exceeds_every_place)
        || supply.has_too_few_devices(&wanted)
        || supply.has_too_little_to_draw_from(&wanted)
}

struct Supply<'a> {
    inventory: &'a Inventory,
    cluster: &'a ClusterLedger,
    pools: Vec<Pool>,
    /// Devices that come with each machine.
    endless: BTreeSet<DeviceShape>,
    /// Whether it is certain whose counters a device draws from.
    counts_counters: bool,
}

impl<'a> Supply<'a> {
    fn new(inventory: &'a Inventory, hosts: Option<&[Hosts<'_>]>, cluster: &'a ClusterLedger) -> Self {
        let for_domains = inventory.slices_for_domains();
        let mut pools = Vec::new();
        let mut endless: BTreeSet<SliceIndex> = BTreeSet::new();
        for (index, pool) in inventory.pools.iter_enumerated() {
            let mut slices = Vec::new();
            for &slice in pool.slices.iter().filter(|slice| !for_domains.contains(slice)) {
                let entry = &inventory.slices[slice];
                if entry.template {
                    endless.insert(slice);
                } else {
                    slices.push((slice, entry.slice.node_scope.clone().unwrap_or(NodeScope::AllNodes)));
                }
            }
            if !slices.is_empty() {
                pools.push(Pool::of_one(index, Instance::ONLY, slices.into_iter()));
            }
        }
        let of_machines = inventory.shared_pools.iter_enumerated();
        for (id, shared) in of_machines.filter(|(_, shared)| shared.template.scope == PoolScope::Machine) {
            match hosts.and_then(|hosts| brought_by(inventory, id, hosts, pools.len())) {
                Some(brought) => pools.extend(brought),
                None => endless.extend(&shared.slices),
            }
        }
        for (shared, instance, scope) in inventory.pools_of_domains() {
            let Some(first) = shared.slices.first() else { continue };
            let slices = shared.slices.iter().map(|slice| (*slice, scope.clone()));
            pools.push(Pool::of_one(inventory.slices[*first].pool, instance, slices));
        }
        let endless = endless.into_iter().flat_map(|slice| inventory.devices_of(slice));
        let endless = endless.map(|device| inventory.devices[device].shape).collect();
        let counts_counters = !counters_are_uncertain(inventory, &pools);
        Self { inventory, cluster, pools, endless, counts_counters }
    }

    /// The requests that only published devices, the single pools of domains and what some machines bring can serve.
    fn wanted(&self, wanting: &[Wanting<'_>]) -> Vec<Wanted> {
        let mut seen = BTreeSet::new();
        let mut wanted = Vec::new();
        for of in wanting {
            for claim in of.claims {
                let (class, copies) = match *claim {
                    ClaimUse::Fresh { class, .. } | ClaimUse::Extended { class } => (class, of.copies),
                    ClaimUse::Named { claim, .. } => {
                        if self.cluster.allocation(self.inventory, claim).is_some() || !seen.insert(claim) {
                            continue;
                        }
                        (self.inventory.claims[claim].class, 1)
                    }
                };
                for request in &self.inventory.claim_classes[class].requests {
                    wanted.extend(self.of_request(request, copies, of.reaches));
                }
            }
        }
        wanted
    }

    /// What copies of a request want; `None` if the supply is unlimited, or if they take nothing from others.
    fn of_request(&self, request: &Request, copies: u32, reaches: &dyn Fn(&NodeScope) -> bool) -> Option<Wanted> {
        let alternatives = &request.alternatives;
        // A request for all devices takes one at least.
        let each = alternatives.iter().map(|alternative| alternative.count.unwrap_or(1)).min()?;
        if alternatives.iter().any(|alternative| alternative.admin_access || self.is_endless(alternative)) {
            return None;
        }
        let mut picks: BTreeMap<Unit, Pick> = BTreeMap::new();
        for (position, pool) in self.pools.iter().enumerate() {
            for (slice, _) in pool.slices.iter().filter(|(_, scopes)| scopes.iter().any(reaches)) {
                for device in self.inventory.devices_of(*slice) {
                    let unit = Unit::new(self.inventory.devices[device].key, pool.instance);
                    for alternative in alternatives {
                        let (shares, draws) = match self.share(alternative, device, unit) {
                            Share::Never => continue,
                            Share::WithoutEnd => return None,
                            Share::Times(shares, draws) => (shares.saturating_mul(pool.times()), draws),
                        };
                        match picks.get_mut(&unit) {
                            Some(known) => {
                                known.shares = known.shares.max(shares);
                                known.draws = least(&known.draws, &draws);
                            }
                            None => drop(picks.insert(unit, Pick { pool: position, shares, draws })),
                        }
                    }
                }
            }
        }
        let exceeds_every_place = self.most_at_one_place(&picks, reaches) < each as u64;
        Some(Wanted { devices: u64::from(copies).saturating_mul(each as u64), exceeds_every_place, picks })
    }

    /// The most that a place sees of what a request could take.
    fn most_at_one_place(&self, picks: &BTreeMap<Unit, Pick>, reaches: &dyn Fn(&NodeScope) -> bool) -> u64 {
        let mut everywhere = 0_u64;
        let mut by_domain: BTreeMap<Vec<&str>, BTreeMap<&Domain, u64>> = BTreeMap::new();
        for pick in picks.values() {
            let Some(brought) = self.pools.get(pick.pool).and_then(|pool| pool.brought.as_ref()) else {
                everywhere = everywhere.saturating_add(pick.shares);
                continue;
            };
            for (domain, _) in brought.domains.iter().filter(|(_, scope)| reaches(scope)) {
                // Domains of the same keys exclude each other.
                let of_keys = by_domain.entry(domain.0.keys().map(|key| &**key).collect()).or_default();
                let known = of_keys.entry(domain).or_default();
                *known = known.saturating_add(pick.shares);
            }
        }
        let brought = by_domain.into_values().filter_map(|of_keys| of_keys.into_values().max());
        brought.fold(everywhere, u64::saturating_add)
    }

    /// Whether every machine brings a device that a request could take.
    fn is_endless(&self, request: &Alternative) -> bool {
        self.endless.iter().any(|shape| self.inventory.could_take(request, *shape))
    }

    fn share(&self, request: &Alternative, device: DeviceIndex, unit: Unit) -> Share {
        let inventory = self.inventory;
        let entry = &inventory.devices[device];
        let is_out =
            self.cluster.base.dedicated.contains(&unit) || request.untolerated(entry, &inventory.compat).is_some();
        if is_out || !inventory.could_take(request, entry.shape) {
            return Share::Never;
        }
        let driver = &inventory.shapes[entry.shape].driver;
        let content = inventory.device(device);
        if !(inventory.compat.is_on(Gate::ConsumableCapacity) && content.allow_multiple_allocations) {
            let mut draws: BTreeMap<Drawn, i128> = BTreeMap::new();
            let pool = &inventory.pools[inventory.slices[entry.slice].pool];
            for (counter, amount) in entry.draws.iter().flat_map(|draw| &draw.counters) {
                let name = pool.counters[*counter].1.clone();
                *draws.entry(Drawn::Counter(driver.clone(), name)).or_default() += amount;
            }
            return Share::Times(1, draws);
        }
        let fractional = inventory.compat.is_on(Gate::FractionalCapacityRange);
        let amounts = match capacity::demand(&request.capacity, &content.capacity, fractional) {
            Ok(Demand::Amounts(amounts)) => amounts,
            Ok(Demand::Unusable) => return Share::Never,
            // Counting does not look for errors of upstream's.
            Err(_) => return Share::WithoutEnd,
        };
        let mut times: Option<u64> = None;
        let mut draws = BTreeMap::new();
        for ((name, capacity), amount) in content.capacity.iter().zip(&amounts).filter(|(_, amount)| **amount > 0) {
            let left = (capacity.value.to_nano() - self.taken_of(unit, name)).max(0);
            let here = u64::try_from(left / amount).unwrap_or(u64::MAX);
            times = Some(times.map_or(here, |times| times.min(here)));
            draws.insert(Drawn::Capacity(driver.clone(), name.clone()), *amount);
        }
        match times {
            None => Share::WithoutEnd,
            Some(0) => Share::Never,
            Some(times) => Share::Times(times, draws),
        }
    }

    /// What shares that are certain take of a capacity.
    fn taken_of(&self, unit: Unit, capacity: &QualifiedName) -> i128 {
        let shares = self.cluster.base.shares.get(&unit);
        shares.and_then(|(_, amounts)| amounts.get(capacity)).copied().unwrap_or(0)
    }

    fn has_too_few_devices(&self, wanted: &[Wanted]) -> bool {
        // Devices that serve the same requests, by their pool and by the template that describes it.
        let mut takers: BTreeMap<Unit, (usize, u64, Vec<usize>)> = BTreeMap::new();
        for (index, wanted) in wanted.iter().enumerate() {
            for (unit, pick) in &wanted.picks {
                let (_, shares, takers) = takers.entry(*unit).or_insert((pick.pool, 0, Vec::new()));
                *shares = (*shares).max(pick.shares);
                takers.push(index);
            }
        }
        let mut described: BTreeMap<Instance, BTreeMap<usize, BTreeMap<Vec<usize>, u64>>> = BTreeMap::new();
        for (unit, (pool, shares, takers)) in takers {
            let pool = if unit.instance() == Instance::ONLY { 0 } else { pool };
            let of_pool = described.entry(unit.instance()).or_default().entry(pool).or_default();
            let together = of_pool.entry(takers).or_default();
            *together = together.saturating_add(shares);
        }
        let mut supplies: BTreeMap<Vec<usize>, u64> = BTreeMap::new();
        for descriptions in described.into_values() {
            let mut most: BTreeMap<Vec<usize>, u64> = BTreeMap::new();
            for (takers, shares) in descriptions.into_values().flatten() {
                let known = most.entry(takers).or_default();
                *known = (*known).max(shares);
            }
            for (takers, shares) in most {
                let known = supplies.entry(takers).or_default();
                *known = known.saturating_add(shares);
            }
        }
        let devices = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let offers = |index: usize| {
            let offering = supplies.iter().enumerate().filter(|(_, (takers, _))| takers.contains(&index));
            offering.map(|(supply, (_, shares))| (supply, devices(*shares))).collect()
        };
        let demands: Vec<Wants> = wanted
            .iter()
            .enumerate()
            .map(|(index, wanted)| Wants { wanted: devices(wanted.devices), offers: offers(index) })
            .collect();
        let free: Vec<Option<usize>> = supplies.values().map(|shares| Some(devices(*shares))).collect();
        // A request that wants more than there is by itself needs no flow.
        let is_short = |demand: &Wants| {
            let most = demand.offers.iter().fold(0_usize, |sum, (_, most)| sum.saturating_add(*most));
            most < demand.wanted
        };
        demands.iter().any(is_short) || !flow::serves(&demands, &free)
    }

    fn has_too_little_to_draw_from(&self, wanted: &[Wanted]) -> bool {
        let must: Vec<(BTreeSet<usize>, BTreeMap<Drawn, i128>)> = wanted
            .iter()
            .map(|wanted| {
                let pools = wanted.picks.values().map(|pick| pick.pool).collect();
                let each = wanted.picks.values().map(|pick| pick.draws.clone()).reduce(|a, b| least(&a, &b));
                let all = each.unwrap_or_default().into_iter();
                (pools, all.map(|(drawn, each)| (drawn, each.saturating_mul(i128::from(wanted.devices)))).collect())
            })
            .collect();
        let regions: BTreeSet<&BTreeSet<usize>> = must.iter().map(|(pools, _)| pools).collect();
        regions.into_iter().any(|region| {
            let mut totals: BTreeMap<&Drawn, i128> = BTreeMap::new();
            for (drawn, amount) in must.iter().filter(|(pools, _)| pools.is_subset(region)).flat_map(|(_, all)| all) {
                let total = totals.entry(drawn).or_default();
                *total = total.saturating_add(*amount);
            }
            totals.into_iter().any(|(drawn, total)| total > self.left(drawn, region))
        })
    }

    /// What some pools have left.
    fn left(&self, drawn: &Drawn, pools: &BTreeSet<usize>) -> i128 {
        let mut by_instance: BTreeMap<Instance, i128> = BTreeMap::new();
        for pool in pools.iter().filter_map(|pool| self.pools.get(*pool)) {
            let here = match drawn {
                Drawn::Counter(driver, name) => self.left_of_counter(pool, driver, name),
                Drawn::Capacity(driver, name) => self.left_of_capacity(pool, driver, name),
            };
            let here = here.saturating_mul(i128::from(pool.times()));
            let known = by_instance.entry(pool.instance).or_default();
            *known = if pool.instance == Instance::ONLY { known.saturating_add(here) } else { (*known).max(here) };
        }
        by_instance.into_values().fold(0, i128::saturating_add)
    }

    fn left_of_counter(&self, pool: &Pool, driver: &DriverName, name: &CounterName) -> i128 {
        let inventory = self.inventory;
        let of = &inventory.pools[pool.index];
        if of.id.driver != *driver {
            return 0;
        }
        if !self.counts_counters {
            return i128::MAX;
        }
        let is_it = |(_, (_, counter)): &(CounterIndex, &(_, CounterName))| counter == name;
        of.counters.iter_enumerated().filter(is_it).fold(0, |sum: i128, (counter, (set, _))| {
            let sets = pool.slices.iter().flat_map(|(slice, _)| &inventory.slices[*slice].slice.shared_counters);
            let totals = sets.filter(|defined| defined.name == of.sets[*set]);
            let total = totals.filter_map(|defined| defined.counters.get(name)).map(|total| total.to_nano()).max();
            sum.saturating_add(total.unwrap_or(0).saturating_sub(self.drawn(pool, counter)))
        })
    }

    /// What devices that are certainly given out draw. It is nothing for a pool with several generations, since a node
    /// may see any of them.
    fn drawn(&self, pool: &Pool, counter: CounterIndex) -> i128 {
        let inventory = self.inventory;
        let generations: BTreeSet<i64> =
            pool.slices.iter().map(|(slice, _)| inventory.slices[*slice].slice.pool.generation).collect();
        if generations.len() > 1 {
            return 0;
        }
        let taken = Taken { cluster: self.cluster, own: None };
        let devices = pool.slices.iter().flat_map(|(slice, _)| inventory.devices_of(*slice));
        let out = devices.map(|device| &inventory.devices[device]);
        let out = out.filter(|device| taken.in_base(Unit::new(device.key, pool.instance)));
        let draws = out.flat_map(|device| device.draws.iter().flat_map(|draw| &draw.counters));
        draws.filter(|(of, _)| *of == counter).map(|(_, amount)| amount).sum()
    }

    fn left_of_capacity(&self, pool: &Pool, driver: &DriverName, name: &QualifiedName) -> i128 {
        let inventory = self.inventory;
        let mut left: BTreeMap<Unit, i128> = BTreeMap::new();
        for device in pool.slices.iter().flat_map(|(slice, _)| inventory.devices_of(*slice)) {
            let entry = &inventory.devices[device];
            let unit = Unit::new(entry.key, pool.instance);
            let content = inventory.device(device);
            let is_open = content.allow_multiple_allocations && !self.cluster.base.dedicated.contains(&unit);
            if let Some(capacity) = content.capacity.get(name).filter(|_| is_open)
                && inventory.shapes[entry.shape].driver == *driver
            {
                let here = (capacity.value.to_nano() - self.taken_of(unit, name)).max(0);
                let known = left.entry(unit).or_default();
                *known = (*known).max(here);
            }
        }
        left.into_values().fold(0, i128::saturating_add)
    }
}

/// A pool of a template, once for those machines of each kind of hosts that bring it; `None` if a template has more
/// domains than are looked at. `number` is that of the first pool.
fn brought_by(inventory: &Inventory, id: SharedPoolId, hosts: &[Hosts<'_>], number: usize) -> Option<Vec<Pool>> {
    let shared = &inventory.shared_pools[id];
    let mut pools = Vec::new();
    let Some(first) = shared.slices.first() else { return Some(pools) };
    for of in hosts {
        let domains = inventory.domains_of_machines(id, &of.shapes)?.into_iter();
        let domains = domains.map(|domain| (shared.template.nodes.scope(&domain.0), domain));
        let domains = domains.filter(|(scope, _)| (of.reaches)(scope)).map(|(scope, domain)| (domain, scope));
        let domains: Vec<(Domain, NodeScope)> = domains.collect();
        if domains.is_empty() {
            continue;
        }
        let scopes: Vec<NodeScope> = domains.iter().map(|(_, scope)| scope.clone()).collect();
        pools.push(Pool {
            index: inventory.slices[*first].pool,
            // Any numbers that no two pools share.
            instance: Instance::of_bin(BinId::from_index(number + pools.len())),
            slices: shared.slices.iter().map(|slice| (*slice, scopes.clone())).collect(),
            brought: Some(Brought { machines: u64::from(of.machines), domains }),
        });
    }
    Some(pools)
}

/// The smaller amount of each.
fn least(a: &BTreeMap<Drawn, i128>, b: &BTreeMap<Drawn, i128>) -> BTreeMap<Drawn, i128> {
    a.iter().filter_map(|(drawn, amount)| Some((drawn.clone(), *amount.min(b.get(drawn)?)))).collect()
}

/// Whether devices may draw from counters of a pool that is not theirs, as in old releases, or give something back.
fn counters_are_uncertain(inventory: &Inventory, pools: &[Pool]) -> bool {
    let has_negative = |pool: &Pool| {
        let mut devices = pool.slices.iter().flat_map(|(slice, _)| inventory.devices_of(*slice));
        devices.any(|device| {
            let mut draws = inventory.devices[device].draws.iter().flat_map(|draw| &draw.counters);
            draws.any(|(_, amount)| *amount < 0)
        })
    };
    let mut drivers: BTreeMap<(&str, Instance), &DriverName> = BTreeMap::new();
    let is_mixed_up = |pool: &Pool| {
        let of = &inventory.pools[pool.index];
        let known = drivers.entry((of.id.pool.as_str(), pool.instance)).or_insert(&of.id.driver);
        inventory.quirks.counters_are_keyed_by_pool_name && **known != of.id.driver
    };
    pools.iter().any(has_negative) || {
        let with_counters = pools.iter().filter(|pool| !inventory.pools[pool.index].counters.is_empty());
        with_counters.collect::<Vec<_>>().into_iter().any(is_mixed_up)
    }
}
