//! The plan's linear relaxation: a lower bound of its price, and the dual price of each class.
//!
//! Let machines and copies be divisible: buy `x_o` of each offering at its price so that the copies `y_{k,o}` on it
//! need no more than `x_o` times what it holds. A plan is one such solution, so the least price of all of them is a
//! lower bound of every plan's. By duality it is the most that
//!
//! ```text
//! Σ_k copies_k · w_k   with w_k ≤ π_o · requests_k for each o that takes k,  π_o ≥ 0,   π_o · allocatable_o ≤ price_o
//! ```
//!
//! can be, and *any* such π gives a valid bound (Farley 1990, "A note on bounding a class of linear programming
//! problems"). So π may be found roughly, in floats; it is rounded down and the bound is summed in integers. `w` is the
//! dual price of a replica: what other pods would save without it. It steers the fill
//! ([`crate::provisioning::orders::patterns`]).
//!
//! * Classes with equal requests and equal offerings are one *kind*. Pods that exclude each other from a host need a
//!   slot that each machine has one of; pods with claims take devices of sets that they compete for ([`devices`]).
//! * Of what a machine has, only what its pods can use counts ([`usable`]).
//! * Offerings that hold less per dollar than another which takes the same kinds can't matter and are dropped (their π
//!   is that of the better one), so a catalogue of hundreds of types comes down to a few *sites*.
//! * Machines are bought whole, which counts where pods need less than one (`whole`).
//! * Pods are not divisible either: for fleets, dual prices over whole patterns of pods make a second bound
//!   (`patterns`), and the higher one counts.
//! * Existing nodes and reservations hold at most so many copies: what that room is worth at most is subtracted; of
//!   nodes that could go, what it is worth beyond their price.
//!
//! Left out, which makes the bound lower but never wrong: limits, weights, spread, affinity, minValues,
//! and of devices that classes compete for what their number does not tell: constraints, counters, shares.

mod devices;
mod patterns;
mod solve;
mod usable;
mod whole;
mod worth;

use std::{cell::RefCell, sync::Arc};

use model::{
    IdSet, IdVec, PriceNanoUsdPerHour, ResourceId, ResourceVec, ValueId,
    collections::{FastMap, FastSet},
    define_id,
};

use self::{
    devices::{Devices, Supply},
    patterns::Patterns,
    solve::Solution,
    usable::Usable,
    whole::WholeMachines,
    worth::{Rooms, WholeRooms},
};
use crate::catalogue::OfferingId;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::pools::{PoolRank, PoolTable};
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::plan_run::PlanRun;
use crate::simulation::topology::GroupId;
use crate::snapshot::NodeId;
use crate::tuning::{ABOUT_COPIES, BOUND_MERGES, BOUND_ROUNDS, BOUND_SLOTS, KEPT_RELAXATIONS, MERGED_MACHINES};

define_id! {
    /// Classes that the relaxation cannot tell apart: their copies request the same, and the same offerings take them.
    struct KindId;
}

/// The result of the relaxation for some pods.
#[derive(Debug)]
pub(crate) struct Relaxed {
    /// A lower bound of the price of every plan for these pods.
    pub(crate) bound: PriceNanoUsdPerHour,
    /// By class: the dual price of a replica in nano-dollars per hour, rounded down; 0 for classes that were not asked
    /// about.
    pub(crate) worth: IdVec<ClassId, i64>,
    /// Other dual prices that are nearly as good. Which of the two gives the cheaper plan is not known beforehand.
    pub(crate) other_worth: IdVec<ClassId, i64>,
    /// Dual prices over whole patterns of pods, if they were looked for and found.
    pub(crate) whole_worth: Option<IdVec<ClassId, i64>>,
    /// By each of these dual prices: what the room that is free on nodes is worth at most; of a fleet only.
    pub(crate) free: Vec<i128>,
}

/// What a relaxation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sought {
    /// Machines of a plan. There are many plans, and a machine mostly holds many pods.
    Plan,
    /// A whole fleet: patterns of pods are looked at too.
    Fleet,
}

/// Relaxations that were solved before: for other plans of a snapshot, which mostly share one if they only differ in
/// preferences, or for earlier snapshots. What is kept is a function of what it is kept with, so no result depends on
/// what was solved before.
#[derive(Debug, Default)]
pub(crate) struct Solved {
    /// The last one used is last.
    solved: RefCell<Vec<(Relaxation, Arc<Solution>)>>,
    patterns: RefCell<Vec<(Patterns, OfPatterns)>>,
    #[cfg(test)]
    solved_anew: std::cell::Cell<usize>,
}

/// What comes of patterns.
#[derive(Debug, Clone, Default)]
struct OfPatterns {
    /// Dual prices by kind, if there are some.
    worth: Option<Vec<i64>>,
    /// What rooms are worth by them.
    rooms: Rooms,
}

/// The value that is kept with a key, or a new one; it becomes the last used, and the first is forgotten if there are
/// too many.
fn kept<K: Clone, V: Clone>(
    kept: &RefCell<Vec<(K, V)>>,
    key: &K,
    is_it: impl Fn(&K) -> bool,
    new: impl FnOnce() -> V,
) -> V {
    let known = kept.borrow().iter().position(|(known, _)| is_it(known));
    let entry = match known {
        Some(position) => kept.borrow_mut().remove(position),
        None => (key.clone(), new()),
    };
    let value = entry.1.clone();
    let mut kept = kept.borrow_mut();
    if kept.len() >= KEPT_RELAXATIONS {
        kept.remove(0);
    }
    kept.push(entry);
    value
}

#[cfg(test)]
impl Solved {
    /// How many relaxations are kept.
    pub(crate) fn kept(&self) -> usize {
        self.solved.borrow().len()
    }

    /// How many were solved in all.
    pub(crate) fn solved_anew(&self) -> usize {
        self.solved_anew.get()
    }
}

impl Solved {
    fn prices(&self, relaxation: &Relaxation) -> Arc<Solution> {
        let new = || {
            #[cfg(test)]
            self.solved_anew.set(self.solved_anew.get() + 1);
            Arc::new(relaxation.resource_prices())
        };
        kept(&self.solved, relaxation, |known| known.is_alike(relaxation), new)
    }

    fn of_patterns(&self, patterns: &Patterns) -> OfPatterns {
        let new = || OfPatterns { worth: patterns.worth(), rooms: Rooms::default() };
        kept(&self.patterns, patterns, |known| known == patterns, new)
    }

    /// Keeps what was found out of rooms, with the patterns that were asked for last.
    fn keep_rooms(&self, rooms: Rooms) {
        if let Some((_, of_patterns)) = self.patterns.borrow_mut().last_mut() {
            of_patterns.rooms = rooms;
        }
    }
}

/// A node that may be removed, if the relaxation finds it not worth its price.
#[derive(Debug)]
pub(crate) struct CouldGo {
    pub(crate) node: NodeId,
    /// What it has free once its pods are gone.
    pub(crate) room: ResourceVec,
    /// These pods: how many of which class.
    pub(crate) pods: Vec<(ClassId, u32)>,
    /// What it costs, in nano-dollars per hour.
    pub(crate) price: i128,
}

/// Solves the relaxation for a number of replicas of each class: the bound and the dual prices.
pub(crate) fn relax(problem: &Problem<'_>, run: &PlanRun, copies: &IdVec<ClassId, u32>, solved: &Solved) -> Relaxed {
    relax_fleet(problem, run, copies, &[], solved)
}

/// Solves the relaxation for a fleet from which the nodes `could_go` may be removed; `copies` includes all their pods.
/// The result bounds the price of new machines and of those nodes of `could_go` that stay.
///
/// For the dual prices of [`relax`], the pods on a node that stays are worth at most what room like that is worth. So
/// the nodes that stay and the machines together cost at least what all copies are worth, less what is free on other
/// nodes and less what each node could be worth beyond its price.
pub(crate) fn relax_fleet(
    problem: &Problem<'_>,
    run: &PlanRun,
    copies: &IdVec<ClassId, u32>,
    could_go: &[CouldGo],
    solved: &Solved,
) -> Relaxed {
    let sought = if could_go.is_empty() { Sought::Plan } else { Sought::Fleet };
    let devices = Devices::new(problem, run, copies);
    let relaxation =
        Relaxation::new(problem, &devices, copies, sought, |pool, class| taking(problem, pool, class, &devices));
    let solution = solved.prices(&relaxation);
    let (worth, other_worth) = (relaxation.worth(&solution.tight), relaxation.worth(&solution.amid));
    // The room of nodes is mostly worth as much by either.
    let nodes = Nodes { problem, devices: &devices, could_go };
    let mut bound = if relaxation.worth_of_all(&other_worth) > relaxation.worth_of_all(&worth) {
        relaxation.bound(nodes, &solution.amid, &other_worth, None)
    } else {
        relaxation.bound(nodes, &solution.tight, &worth, None)
    };
    let free_rooms = (sought == Sought::Fleet).then(|| relaxation.free_rooms(nodes));
    let free_worth = |prices, worth: &[i64]| Some(relaxation.free_worth(free_rooms.as_ref()?, prices, worth));
    let of_divisible = [free_worth(&solution.tight, &worth), free_worth(&solution.amid, &other_worth)];
    let mut free: Vec<i128> = of_divisible.into_iter().flatten().collect();
    let mut whole_worth = None;
    if let Some(patterns) = &relaxation.patterns
        && let OfPatterns { worth: Some(worth), rooms } = solved.of_patterns(patterns)
    {
        let mut rooms = WholeRooms::new(patterns, rooms);
        bound = bound.max(relaxation.bound(nodes, &solution.tight, &worth, Some(&mut rooms)));
        solved.keep_rooms(rooms.known());
        free.extend(free_worth(&solution.tight, &worth));
        whole_worth = Some(worth);
    }
    Relaxed {
        bound,
        worth: relaxation.by_class(&worth),
        other_worth: relaxation.by_class(&other_worth),
        whole_worth: whole_worth.map(|worth| relaxation.by_class(&worth)),
        free,
    }
}

/// Dual prices as those of [`relax`], if nothing is for sale but some offerings of each pool; for each such choice.
pub(crate) fn worth_among<'c>(
    problem: &Problem<'_>,
    run: &PlanRun,
    copies: &IdVec<ClassId, u32>,
    choices: impl Iterator<Item = &'c IdVec<PoolRank, IdSet<OfferingId>>>,
) -> Vec<IdVec<ClassId, i64>> {
    let devices = Devices::new(problem, run, copies);
    let asked = copies.iter_enumerated().filter(|(_, copies)| **copies > 0).map(|(class, _)| class);
    let of_class = |class| problem.pools.ids().map(|pool| taking(problem, pool, class, &devices)).collect();
    let of_classes: FastMap<ClassId, IdVec<PoolRank, IdSet<OfferingId>>> =
        asked.map(|class| (class, of_class(class))).collect();
    let solved = Solved::default();
    let worth = |choice: &IdVec<PoolRank, IdSet<OfferingId>>| {
        let taking = |pool: PoolRank, class: ClassId| {
            let mut taking = of_classes.get(&class).map(|of_class| of_class[pool].clone()).unwrap_or_default();
            taking.intersect_with(&choice[pool]);
            taking
        };
        let relaxation = Relaxation::new(problem, &devices, copies, Sought::Plan, taking);
        relaxation.by_class(&relaxation.worth(&solved.prices(&relaxation).tight))
    };
    choices.map(worth).collect()
}

/// Nodes that have room, and those of them that could go.
#[derive(Clone, Copy)]
struct Nodes<'n> {
    problem: &'n Problem<'n>,
    devices: &'n Devices<'n>,
    could_go: &'n [CouldGo],
}

/// One plan's relaxation. All vectors of amounts are over the same `dimensions`.
#[derive(Debug, Clone)]
struct Relaxation {
    dimensions: Vec<Dimension>,
    kinds: IdVec<KindId, Kind>,
    /// The kinds with the copies for which prices are looked for: of a plan all of them, of a fleet [`about`] as many.
    /// Any prices are those of a bound for any number of copies, and where one pod of a fleet comes or goes, those of
    /// the plan before do.
    weighed: IdVec<KindId, Kind>,
    kind_of: IdVec<ClassId, Option<KindId>>,
    /// Offerings that matter, without limit.
    sites: Vec<Site>,
    /// The dimensions that can be full first on a site; the others need no price.
    binding: Vec<usize>,
    /// Offerings of reservations.
    reserved: Vec<Reserved>,
    whole: WholeMachines,
    patterns: Option<Patterns>,
}

/// A dimension: something that a machine has a limited amount of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dimension {
    Resource(ResourceId),
    /// A machine takes one pod of the group.
    Slot(GroupId),
    /// A machine has devices for so many pods that want this of them: the position among what is counted.
    Served(usize),
    /// A machine has so many devices of a set.
    Devices(usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Kind {
    requests: Vec<i64>,
    copies: u64,
}

/// An offering, as what it holds for its price.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Site {
    price: PriceNanoUsdPerHour,
    /// As far as pods can use it.
    holds: Vec<i64>,
    takes: IdSet<KindId>,
}

/// A reservation: a few machines at a price that no other has.
#[derive(Debug, Clone)]
struct Reserved {
    id: ValueId,
    remaining: i64,
    site: Site,
}

/// The key of a kind: classes with equal keys form one kind.
#[derive(PartialEq, Eq, Hash)]
struct KindKey {
    requests: Vec<i64>,
    /// By pool: the offerings that take a copy.
    offerings: Vec<IdSet<OfferingId>>,
}

impl Relaxation {
    /// `taking` says which of a pool's offerings hold a copy of a class.
    fn new(
        problem: &Problem<'_>,
        devices: &Devices<'_>,
        copies: &IdVec<ClassId, u32>,
        sought: Sought,
        taking: impl Fn(PoolRank, ClassId) -> IdSet<OfferingId>,
    ) -> Self {
        let dimensions = dimensions(problem, copies, devices);
        let mut by_key: FastMap<KindKey, KindId> = FastMap::default();
        let mut kinds: IdVec<KindId, Kind> = IdVec::default();
        let mut offerings: Vec<Vec<IdSet<OfferingId>>> = Vec::new();
        let mut kind_of = IdVec::filled(None, problem.classes.len());
        for (class, &copies) in copies.iter_enumerated().filter(|(_, copies)| **copies > 0) {
            let key = KindKey {
                requests: requests(problem, class, &dimensions, devices),
                offerings: problem.pools.ids().map(|pool| taking(pool, class)).collect(),
            };
            let of_key = by_key.get(&key).copied().unwrap_or_else(|| {
                let kind = kinds.push(Kind { requests: key.requests.clone(), copies: 0 });
                offerings.push(key.offerings.clone());
                by_key.insert(key, kind);
                kind
            });
            kinds[of_key].copies += u64::from(copies);
            kind_of[class] = Some(of_key);
        }
        let weighed = match sought {
            Sought::Plan => kinds.clone(),
            Sought::Fleet => kinds.iter().map(|kind| Kind { copies: about(kind.copies), ..kind.clone() }).collect(),
        };
        let whole = WholeMachines::new(kinds.len());
        let usable = Usable::new(&kinds, dimensions.len());
        let (reserved, binding) = (Vec::new(), Vec::new());
        let mut relaxation =
            Self { dimensions, kinds, weighed, kind_of, sites: Vec::new(), binding, reserved, whole, patterns: None };
        let mut sites = Vec::new();
        for (pool, table) in problem.pools.iter_enumerated() {
            let index = model::Id::index(pool);
            let of_pool: Vec<Option<&IdSet<OfferingId>>> = offerings.iter().map(|pools| pools.get(index)).collect();
            sites.extend(relaxation.add_sites((pool, table), &of_pool, devices, &usable));
        }
        relaxation.binding = usable.binding(&sites);
        if sought == Sought::Fleet {
            relaxation.patterns = Patterns::new(&relaxation.weighed, &sites, &relaxation.binding);
        }
        relaxation.sites = without_dominated(sites, &relaxation.total());
        for share in BOUND_MERGES {
            if relaxation.rounds() >= BOUND_ROUNDS.1 {
                break;
            }
            relaxation.sites = merged(std::mem::take(&mut relaxation.sites), share);
        }
        relaxation
    }

    /// What is known of kinds, by class.
    fn by_class(&self, worth: &[i64]) -> IdVec<ClassId, i64> {
        let of_class =
            |kind: &Option<KindId>| kind.and_then(|kind| worth.get(model::Id::index(kind))).copied().unwrap_or(0);
        self.kind_of.iter().map(of_class).collect()
    }

    /// Whether resource prices for one are valid for the other.
    fn is_alike(&self, other: &Self) -> bool {
        self.dimensions.len() == other.dimensions.len()
            && self.weighed.as_slice() == other.weighed.as_slice()
            && self.sites == other.sites
            && self.binding == other.binding
    }

    /// Adds the pool's offerings, grouped by the kinds that they take. Offerings of reservations go to `reserved`.
    fn add_sites(
        &mut self,
        (pool, table): (PoolRank, &PoolTable<'_>),
        by_kind: &[Option<&IdSet<OfferingId>>],
        devices: &Devices<'_>,
        usable: &Usable,
    ) -> Vec<Site> {
        // A pool mostly takes few of the kinds, so only these get a set.
        let mut takes: IdVec<OfferingId, IdSet<KindId>> = IdVec::filled(IdSet::new(), table.catalogue.offerings.len());
        for (kind, offerings) in self.kinds.ids().zip(by_kind) {
            for offering in offerings.iter().flat_map(|offerings| offerings.iter()) {
                let takes = &mut takes[offering];
                if takes.is_empty() {
                    *takes = IdSet::with_len(self.kinds.len());
                }
                takes.insert(kind);
            }
        }
        let mut sites = Vec::new();
        let mut seen: FastSet<(IdSet<KindId>, Vec<i64>)> = FastSet::default();
        for &offering in &table.by_price {
            if takes[offering].is_empty() {
                continue;
            }
            let holds = self.amounts(table.net(offering), &devices.on_machine(pool, table, offering));
            let takes = std::mem::take(&mut takes[offering]);
            let reservation = table.catalogue.offerings[offering].reservation.as_ref();
            // The first of the others is the cheapest.
            if reservation.is_none() && !seen.insert((takes.clone(), holds.clone())) {
                continue;
            }
            let site = Site { price: table.price(offering), holds: usable.of(&holds), takes };
            self.whole.add(&site.takes, site.price, reservation.is_some());
            match reservation {
                Some(reservation) => self.reserved.push(Reserved {
                    id: reservation.id,
                    remaining: i64::from(reservation.remaining),
                    site,
                }),
                None => sites.push(site),
            }
        }
        sites
    }

    /// What a machine or node has of each dimension.
    fn amounts(&self, total: &ResourceVec, devices: &Supply) -> Vec<i64> {
        self.dimensions.iter().map(|dimension| dimension.amount(total, |_| true, devices)).collect()
    }

    /// What all copies need of each binding dimension, for so many as prices are looked for.
    fn total(&self) -> Vec<(usize, f64)> {
        let needs = |dimension: usize, kind: &Kind| {
            kind.requests.get(dimension).copied().unwrap_or(0) as f64 * kind.copies as f64
        };
        let total = |&dimension: &usize| (dimension, self.weighed.iter().map(|kind| needs(dimension, kind)).sum());
        self.binding.iter().map(total).collect()
    }
}

impl Dimension {
    /// How much of it somebody has or wants: of resources, of slots of groups, of devices.
    fn amount(&self, resources: &ResourceVec, slot: impl Fn(GroupId) -> bool, devices: &Supply) -> i64 {
        match *self {
            Self::Resource(resource) => resources.get(resource).max(0),
            Self::Slot(group) => i64::from(slot(group)),
            Self::Served(position) => devices.served.get(position).copied().unwrap_or(0),
            Self::Devices(set) => devices.sets.get(set).copied().unwrap_or(0),
        }
    }
}

/// No fewer, and at most so many that one in [`ABOUT_COPIES`] is one too many.
fn about(copies: u64) -> u64 {
    let step = 1 << (copies / ABOUT_COPIES).max(1).ilog2();
    copies.checked_next_multiple_of(step).unwrap_or(copies)
}

/// Resources that some class asks for, slots for pods that exclude each other, and devices.
fn dimensions(problem: &Problem<'_>, copies: &IdVec<ClassId, u32>, devices: &Devices<'_>) -> Vec<Dimension> {
    let mut resources: FastSet<ResourceId> = FastSet::default();
    let mut slots: FastMap<GroupId, u64> = FastMap::default();
    for (class, &copies) in copies.iter_enumerated().filter(|(_, copies)| **copies > 0) {
        resources.extend(problem.classes[class].shape.requests.iter().map(|(resource, _)| resource));
        for group in problem.topology.alone_on_host(&problem.classes[class]) {
            *slots.entry(group).or_default() += u64::from(copies);
        }
    }
    let mut resources: Vec<ResourceId> = resources.into_iter().collect();
    resources.sort_by_key(|resource| problem.names().resource_name(*resource));
    let mut slots: Vec<(GroupId, u64)> = slots.into_iter().filter(|(_, copies)| *copies > 1).collect();
    slots.sort_by(|(a, many), (b, more)| more.cmp(many).then(a.cmp(b)));
    slots.truncate(BOUND_SLOTS);
    let resources = resources.into_iter().map(Dimension::Resource);
    let slots = slots.into_iter().map(|(group, _)| Dimension::Slot(group));
    let (served, sets) = devices.dimensions();
    let devices = (0..served).map(Dimension::Served).chain((0..sets).map(Dimension::Devices));
    resources.chain(slots).chain(devices).collect()
}

/// What a copy needs at least of each dimension.
fn requests(problem: &Problem<'_>, class: ClassId, dimensions: &[Dimension], devices: &Devices<'_>) -> Vec<i64> {
    let pods = &problem.classes[class];
    let (least, devices) = (pods.least_requests(), devices.taken(class));
    let alone: FastSet<GroupId> = problem.topology.alone_on_host(pods).collect();
    let amount = |dimension: &Dimension| dimension.amount(&least, |group| alone.contains(&group), &devices);
    dimensions.iter().map(amount).collect()
}

/// The pool's offerings that hold a copy.
fn taking(problem: &Problem<'_>, pool: PoolRank, class: ClassId, devices: &Devices<'_>) -> IdSet<OfferingId> {
    let table = &problem.pools[pool];
    let mut taking = IdSet::new();
    for alternative in &table.by_class[class] {
        let mut here = IdSet::clone(&alternative.offerings);
        for (resource, amount) in problem.classes[class].requests(alternative.variant).iter().filter(|(_, it)| *it > 0)
        {
            match table.at_least(resource, amount) {
                Some(at_least) => here.intersect_with(at_least),
                None => here.clear(),
            }
        }
        taking.union_with(&here);
    }
    devices.keep_serving(class, pool, &mut taking);
    taking
}

/// The sites that no other beats: one that takes at least the same kinds and holds at least as much of everything per
/// dollar. `total` names the dimensions and weighs them against each other.
fn without_dominated(mut sites: Vec<Site>, total: &[(usize, f64)]) -> Vec<Site> {
    // Whoever beats a site has no less per dollar in sum, so that it comes first.
    let per_dollar = |site: &Site| -> f64 {
        let shares = total.iter().filter(|(_, total)| *total > 0.0);
        let sum: f64 = shares.map(|&(dimension, total)| site.has(dimension) as f64 / total).sum();
        sum / site.price.0.max(0) as f64
    };
    sites.sort_by_cached_key(|site| {
        let share = per_dollar(site);
        // Not negative, so the bits are ordered as the numbers are.
        (std::cmp::Reverse(share.to_bits()), std::cmp::Reverse(site.takes.count()), site.price)
    });
    let mut kept: Vec<Site> = Vec::new();
    for site in sites {
        if !kept.iter().any(|other| other.beats(&site, total)) {
            kept.push(site);
        }
    }
    kept
}

/// Sites that differ by less than a share of the most that any has per dollar become one, which has the most of each of
/// them: the bound is lower for it, by about that share, but never wrong.
fn merged(sites: Vec<Site>, share: f64) -> Vec<Site> {
    let per_dollar = |site: &Site| -> Vec<f64> {
        site.holds.iter().map(|&holds| holds as f64 / site.price.0.max(1) as f64).collect()
    };
    let mut most: Vec<f64> = Vec::new();
    for site in &sites {
        let has = per_dollar(site);
        most.resize(has.len(), 0.0);
        most.iter_mut().zip(has).for_each(|(most, has)| *most = most.max(has));
    }
    let mut groups: Vec<(Vec<f64>, Vec<Site>)> = Vec::new();
    for site in sites {
        let has = per_dollar(&site);
        let is_alike = |(first, members): &&mut (Vec<f64>, Vec<Site>)| {
            let is_near = |((a, b), most): ((&f64, &f64), &f64)| (a - b).abs() <= share * most;
            members.first().is_some_and(|other| other.takes == site.takes && other.price.0 > 0)
                && first.iter().zip(&has).zip(&most).all(is_near)
        };
        match groups.iter_mut().find(is_alike).filter(|_| site.price.0 > 0) {
            Some((_, members)) => members.push(site),
            None => groups.push((has, vec![site])),
        }
    }
    groups.into_iter().flat_map(|(_, members)| most_of(&members).map_or(members, |one| vec![one])).collect()
}

/// A site that holds per dollar what any of several does; `None` for one alone, and where numbers are too large.
fn most_of(members: &[Site]) -> Option<Site> {
    let first = members.first().filter(|_| members.len() > 1)?;
    // So many machines that rounding up to a whole unit matters little.
    let price = members.iter().map(|site| site.price.0).max()?.checked_mul(MERGED_MACHINES)?;
    let holds = |dimension: usize| {
        let of_site = |site: &Site| {
            let all = i128::from(*site.holds.get(dimension)?) * i128::from(price);
            i64::try_from(all.div_euclid(i128::from(site.price.0)) + 1).ok()
        };
        members.iter().try_fold(0, |most, site| Some(of_site(site)?.max(most)))
    };
    let holds = (0..first.holds.len()).map(holds).collect::<Option<Vec<i64>>>()?;
    Some(Site { price: PriceNanoUsdPerHour(price), holds, takes: first.takes.clone() })
}

impl Site {
    fn has(&self, dimension: usize) -> i64 {
        self.holds.get(dimension).copied().unwrap_or(0)
    }

    fn beats(&self, other: &Self, dimensions: &[(usize, f64)]) -> bool {
        let (price, others) = (i128::from(self.price.0.max(0)), i128::from(other.price.0.max(0)));
        let holds_more = |&(dimension, _): &(usize, f64)| {
            i128::from(self.has(dimension)) * others >= i128::from(other.has(dimension)) * price
        };
        dimensions.iter().all(holds_more) && other.takes.is_subset(&self.takes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::about;

    #[test]
    fn one_copy_more_or_less_of_many_is_about_as_many() {
        let different = |copies: std::ops::Range<u64>| copies.filter(|&it| about(it) != about(it + 1)).count();
        assert_eq!((different(900..1000), different(1..32)), (3, 31));
    }

    proptest! {
        #[test]
        fn about_as_many_are_never_too_few_and_a_sixteenth_too_many_at_most(copies in 0..u64::MAX) {
            for copies in [copies, copies >> 40, copies >> 56] {
                prop_assert!((copies..=copies.saturating_add(copies / 16)).contains(&about(copies)));
            }
        }
    }
}
