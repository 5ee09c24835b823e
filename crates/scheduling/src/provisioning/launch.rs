//! From open machines to NodeClaims: which instance types stay on the claim, what its requirements say, what it costs.
//!
//! A NodeClaim can only say a conjunction of label requirements and a list of instance types; the provider may launch
//! any offering that agrees with both. So types are kept only if *every* offering of theirs that the claim's
//! requirements allow holds the planned pods, whether or not it is available now ([`Settled::new`]). Of those the
//! cheapest are kept, up to the configured number, with care for minValues and limits.

use std::{rc::Rc, sync::Arc};

use api::labels;
use model::{
    IdSet, Interner, KeyId, PriceNanoUsdPerHour, Requirement, Requirements, ResourceVec, ValueId, ValueSet,
    collections::FastMap,
};

use crate::provisioning::device_costs::DeviceCosts;
use crate::simulation::compile::catalogue_index::Lookups;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::limits::Amounts;
use crate::simulation::compile::pools::{Alternative, PoolTable, WithValues};
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::Packing;
use crate::simulation::packing::devices::narrow;
use crate::simulation::packing::state::Bin;
use crate::simulation::topology::{Involvement, Place, Scope};
use crate::tuning::LAUNCH_LIMIT_STEPS;
use crate::{
    catalogue::{OfferingId, TypeId},
    plan::{Choice, Launch, Machine},
    snapshot::{PodId, ReservedCapacityMode},
};

/// The NodeClaims of the open machines.
pub(crate) struct Launched {
    pub(crate) machines: Vec<Machine>,
    /// Pods of machines that wait for a reservation instead of being launched elsewhere, and which.
    pub(crate) deferred: Vec<(Vec<PodId>, ValueId)>,
}

/// Turns the open machines into NodeClaims, pool by pool in order of preference. `pods[i]` are the pods of bin `i`.
pub(crate) fn machines(packing: &Packing<'_>, pods: &[Vec<PodId>], device_costs: &DeviceCosts) -> Launched {
    let (problem, state) = (packing.problem, &packing.state);
    let mut machines = Vec::with_capacity(state.bins.len());
    let mut deferred = Vec::new();
    for (rank, table) in problem.pools.iter_enumerated() {
        let bins: Vec<(usize, &Bin)> = state.bins.iter().enumerate().filter(|(_, bin)| bin.pool == rank).collect();
        let narrowed = within_limits(table, &bins);
        let mut known = Known::default();
        let mut index_in_pool = 0;
        for ((bin_index, bin), mut offerings) in bins.into_iter().zip(narrowed) {
            let mut pods = pods.get(bin_index).cloned().unwrap_or_default();
            pods.sort_by_key(|&pod| &problem.snapshot.pods[pod].pod.name);
            if let Some(reservation) = waits_for(problem, table, bin) {
                deferred.push((pods, reservation));
                continue;
            }
            // Asking each offering of each machine costs time, and most clusters reserve nothing.
            if !problem.reservations.is_empty() {
                reserve_or_leave(table, &mut offerings);
            }
            let settled = Settled::new(problem, table, bin, offerings, &mut known);
            let mut machine = settled.machine(problem, index_in_pool, bin, pods, &mut known);
            add_device_costs(packing, table, bin, &settled.offerings, device_costs, &mut machine);
            machines.push(machine);
            index_in_pool += 1;
        }
    }
    Launched { machines, deferred }
}

/// Adds what the pods' devices cost of the machine: to the requests the least of any shape that it may have.
fn add_device_costs(
    packing: &Packing<'_>,
    table: &PoolTable<'_>,
    bin: &Bin,
    offerings: &IdSet<OfferingId>,
    device_costs: &DeviceCosts,
    machine: &mut Machine,
) {
    let (Some(devices), Some(held)) = (&packing.state.devices, &bin.devices) else { return };
    let shapes = table.shapes.shapes(offerings);
    let mut extra = shapes.iter().map(|shape| held.extra(shape).cloned().unwrap_or_default());
    let Some(first) = extra.next() else { return };
    let least = extra.fold(first, |mut least, extra| {
        least.min_assign(&extra);
        least
    });
    machine.requests.saturating_add_assign(&least);
    let costs = devices.costs_in(bin, table.shapes.shape_of(machine.launch.offering));
    machine.device_costs = device_costs.dealt(&machine.pods, costs);
}

/// Lets the claim be either for reservations or for none, whichever its cheapest offering is: only then does the launch
/// draw on what the plan counts it against, and on nothing that the plan leaves to others. Where minValues needs both,
/// both stay.
fn reserve_or_leave(table: &PoolTable<'_>, offerings: &mut IdSet<OfferingId>) {
    let is_reserved = |offering: OfferingId| table.catalogue.offerings[offering].reservation.is_some();
    let Some(cheapest) = cheapest(table, offerings) else { return };
    let wanted = is_reserved(cheapest);
    let others: Vec<OfferingId> = offerings.iter().filter(|&offering| is_reserved(offering) != wanted).collect();
    if others.is_empty() {
        return;
    }
    let mut kept = offerings.clone();
    for offering in others {
        kept.remove(offering);
    }
    if table.has_min_values(&kept) {
        *offerings = kept;
    }
}

/// In the strict mode: the reservation that a machine could draw on if others of the plan did not use it up.
fn waits_for(problem: &Problem<'_>, table: &PoolTable<'_>, bin: &Bin) -> Option<ValueId> {
    match problem.snapshot.options.reserved_capacity {
        ReservedCapacityMode::Fallback => return None,
        ReservedCapacityMode::Strict => {}
    }
    let reserved = problem.reservations.iter().map(|(id, _)| (*id, problem.reserved(bin.pool, *id)));
    let mut used_up = None;
    for (id, offerings) in reserved {
        if offerings.intersects(&bin.offerings) {
            return None;
        }
        let suits = |offering: OfferingId| {
            table.catalogue.offerings[offering].launchable() && suits(problem, table, bin, offering)
        };
        if used_up.is_none() && offerings.iter().any(suits) {
            used_up = Some(id);
        }
    }
    used_up
}

/// What was worked out for machines of one pool.
#[derive(Default)]
struct Known {
    by_offerings: FastMap<IdSet<OfferingId>, KnownOfOfferings>,
    /// Offerings by what zone and capacity type they have.
    by_values: FastMap<KeyId, Rc<[WithValues]>>,
    lookups: Lookups,
}

/// What holds for all machines with the same offerings, or also the same requirements.
#[derive(Default)]
struct KnownOfOfferings {
    /// The zones and capacity types that the offerings have.
    decided: Option<Rc<[(KeyId, ValueSet)]>>,
    /// Offerings of the same types that the requirements allow as well.
    others: FastMap<Requirements, Rc<[OfferingId]>>,
    types: Option<Rc<Types>>,
}

impl Known {
    fn of(&self, offerings: &IdSet<OfferingId>) -> Option<&KnownOfOfferings> {
        self.by_offerings.get(offerings)
    }

    fn of_mut(&mut self, offerings: &IdSet<OfferingId>) -> &mut KnownOfOfferings {
        if !self.by_offerings.contains_key(offerings) {
            self.by_offerings.insert(offerings.clone(), KnownOfOfferings::default());
        }
        self.by_offerings.get_mut(offerings).expect("it was put there where it was missing")
    }

    fn by_values(&mut self, table: &PoolTable<'_>, key: KeyId) -> Rc<[WithValues]> {
        Rc::clone(self.by_values.entry(key).or_insert_with(|| table.by_values(key).into()))
    }
}

/// What a claim says of instance types, and what follows from them.
struct Types {
    /// Cheapest first, each with its cheapest offering.
    by_price: Vec<(TypeId, OfferingId)>,
    ids: Vec<TypeId>,
    /// Offerings of these.
    offerings: usize,
    /// What daemons take on any of them.
    daemons: ResourceVec,
    /// The keys of which they have fewer values than minValues wants, with the number that they have.
    relaxed: Vec<(KeyId, u32)>,
}

/// Narrows each machine's offerings so that even the largest launches together keep the pool's limits.
fn within_limits(table: &PoolTable<'_>, bins: &[(usize, &Bin)]) -> Vec<IdSet<OfferingId>> {
    let all = || bins.iter().map(|(_, bin)| bin.offerings.clone()).collect();
    if table.limits.is_empty() || table.limits.have_room_for(bins.len(), &table.limits.zero()) {
        return all();
    }
    let machines: Vec<&IdSet<OfferingId>> = bins.iter().map(|(_, bin)| &bin.offerings).collect();
    let Some(chosen) = least(table, &machines) else { return all() };
    let mut slack: Amounts = table.limits.entries().iter().map(|entry| entry.remaining).collect();
    for amounts in &chosen {
        crate::simulation::compile::limits::sub(&mut slack, amounts);
    }
    machines
        .into_iter()
        .zip(chosen)
        .map(|(open, mut most)| {
            let mut kept = IdSet::with_len(table.catalogue.offerings.len());
            for offering in by_price(table, open) {
                let mut larger = most.clone();
                for (larger, taken) in larger.iter_mut().zip(table.limits.taken(offering)) {
                    *larger = (*larger).max(*taken);
                }
                let fits = larger.iter().zip(&most).zip(&slack).all(|((larger, most), slack)| larger - most <= *slack);
                if fits {
                    for ((larger, most), slack) in larger.iter().zip(&most).zip(slack.iter_mut()) {
                        *slack -= larger - most;
                    }
                    most = larger;
                    kept.insert(offering);
                }
            }
            kept
        })
        .collect()
}

/// What each machine has to take at least, so that all of them keep the limits. Placing has established that there is
/// such a choice.
fn least(table: &PoolTable<'_>, machines: &[&IdSet<OfferingId>]) -> Option<Vec<Amounts>> {
    if table.min_values.is_empty() {
        let chosen = table.limits.choose(machines, LAUNCH_LIMIT_STEPS)?;
        return Some(
            chosen.into_iter().map(|offering| table.limits.taken(offering).iter().copied().collect()).collect(),
        );
    }
    let kept = |open: &&IdSet<OfferingId>| table.limits.least_until(open, |kept| table.has_min_values(kept));
    Some(machines.iter().map(|open| table.limits.most(&kept(open))).collect())
}

/// Offerings, cheapest first; equal prices by instance type, zone and capacity type.
fn by_price(table: &PoolTable<'_>, offerings: &IdSet<OfferingId>) -> impl Iterator<Item = OfferingId> {
    table.by_price.iter().copied().filter(|&offering| offerings.contains(offering))
}

/// The first of [`by_price`].
fn cheapest(table: &PoolTable<'_>, offerings: &IdSet<OfferingId>) -> Option<OfferingId> {
    by_price(table, offerings).next()
}

/// The classes in a machine, each with the alternative by which it is there.
fn held<'t>(table: &'t PoolTable<'_>, bin: &Bin) -> impl Iterator<Item = (ClassId, &'t Alternative)> {
    bin.contents.iter().filter_map(|&(class, index, _)| Some((class, table.by_class[class].get(index)?)))
}

/// Whether a machine from the offering would be where its pods were counted, and leaves them their ports.
fn suits_rules(problem: &Problem<'_>, table: &PoolTable<'_>, bin: &Bin, offering: OfferingId) -> bool {
    held(table, bin).all(|(id, alternative)| {
        let class = &problem.classes[id];
        let is_in_place = |(mine, place): (&Involvement, &Place)| {
            problem.topology.groups[mine.group].is_in_place(table, offering, *place, mine.owner, problem.names())
        };
        class.involved.iter().zip(&alternative.places).all(is_in_place)
            && (class.shape.host_ports.is_empty() || !table.daemon_takes_port(offering, class))
    })
}

/// Whether a machine from the offering would hold all pods of a planned one, by resources, rules and devices.
fn suits(problem: &Problem<'_>, table: &PoolTable<'_>, bin: &Bin, offering: OfferingId) -> bool {
    let mut only: IdSet<OfferingId> = [offering].into_iter().collect();
    narrow(&mut only, table, &bin.requests, Some(bin), None);
    let is_served_so = |(id, alternative): (ClassId, &Alternative)| {
        problem.variant_at(id, &table.catalogue.offerings[offering].allocatable) == alternative.variant
    };
    bin.requests.fits_in(table.net(offering))
        && suits_rules(problem, table, bin, offering)
        && !only.is_empty()
        && bin.devices.as_ref().is_none_or(|devices| devices.allow(table, offering, problem.names()))
        && held(table, bin).all(is_served_so)
}

/// A machine whose choices are made.
#[derive(Clone)]
struct Settled<'t, 's> {
    table: &'t PoolTable<'s>,
    offerings: IdSet<OfferingId>,
    requirements: Requirements,
}

impl<'t, 's> Settled<'t, 's> {
    fn new(
        problem: &Problem<'_>,
        table: &'t PoolTable<'s>,
        bin: &Bin,
        offerings: IdSet<OfferingId>,
        known: &mut Known,
    ) -> Self {
        let names = problem.names();
        let mut asked = table.pool.requirements.clone();
        for (class, alternative) in held(table, bin) {
            let term = problem.classes[class].terms.get(alternative.term);
            if let Some(term) = term.filter(|term| !term.requirements.is_empty()) {
                asked.intersect(&term.requirements, names);
            }
        }
        // Labels that are open say what the pods made of them, and where the machine was pinned.
        asked.intersect(&bin.open, names);
        for key in &table.pool.planning_only {
            asked.remove(*key);
        }
        if let Some(hostname) = names.find_key(labels::HOSTNAME) {
            asked.remove(hostname);
        }
        let mut settled = Self { table, offerings, requirements: asked };
        settled.narrow(names, known);
        settled.pin(problem, bin);
        settled.drop_unsafe_types(problem, bin, known);
        settled
    }

    /// Lets the claim say the domain of every rule that counts a pod of the machine.
    fn pin(&mut self, problem: &Problem<'_>, bin: &Bin) {
        for (class, alternative) in held(self.table, bin) {
            for (mine, place) in problem.classes[class].involved.iter().zip(&alternative.places) {
                let group = &problem.topology.groups[mine.group];
                if let (Scope::Label(key), Place::Domain(domain)) = (group.scope, *place)
                    && let Some(&value) = group.values().try_get(domain)
                {
                    let pinned = Requirement::new(key, ValueSet::one(value));
                    self.requirements.insert_intersect(pinned, problem.names());
                }
            }
        }
    }

    /// Lets zone and capacity type say what the remaining offerings have.
    fn narrow(&mut self, names: &Interner, known: &mut Known) {
        let decided = match known.of(&self.offerings).and_then(|known| known.decided.as_ref()) {
            Some(decided) => Rc::clone(decided),
            None => {
                let decided: Rc<[(KeyId, ValueSet)]> = self.decided(names, known).into();
                known.of_mut(&self.offerings).decided = Some(Rc::clone(&decided));
                decided
            }
        };
        for (key, values) in decided.iter() {
            let min_values = self.requirements.get(*key).and_then(|requirement| requirement.min_values);
            let narrowed = Requirement { min_values, ..Requirement::new(*key, values.clone()) };
            self.requirements.insert_intersect(narrowed, names);
        }
    }

    /// The zones and capacity types of the offerings, and their reservations if all are reserved.
    fn decided(&self, names: &Interner, known: &mut Known) -> Vec<(KeyId, ValueSet)> {
        let (catalogue, own) = (self.table.catalogue, &self.offerings);
        let offerings = || own.iter().map(move |offering| &catalogue.offerings[offering]);
        let mut reserved = offerings().map(|offering| offering.reservation.and_then(|reservation| reservation.label));
        let reservation = reserved.next().flatten().filter(|label| reserved.all(|other| other == Some(*label)));
        let mut decided: Vec<(KeyId, Vec<ValueId>)> = Vec::new();
        for key in [labels::ZONE, labels::CAPACITY_TYPE].into_iter().filter_map(|key| names.find_key(key)) {
            let groups = known.by_values(self.table, key);
            let here = groups.iter().filter(|group| group.offerings.intersects(own));
            decided.push((key, here.flat_map(|group| &group.values).copied().collect()));
        }
        // Reservations are as many as offerings that have one, so these are looked at one by one.
        if let Some(key) = reservation {
            let of_key = offerings().filter_map(|offering| offering.requirements.get(key)?.values.finite_values());
            decided.push((key, of_key.flatten().copied().collect()));
        }
        decided.retain(|(_, values)| !values.is_empty());
        decided.into_iter().map(|(key, values)| (key, ValueSet::among(values))).collect()
    }

    /// Drops types of which the claim would allow an offering that does not hold the pods. If the cheapest would be
    /// among them, the claim leaves out the zones where it does not hold them, or is pinned to its zone and capacity
    /// type.
    fn drop_unsafe_types(&mut self, problem: &Problem<'_>, bin: &Bin, known: &mut Known) {
        let unsafe_others = self.unsafe_others(problem, bin, known);
        if unsafe_others.is_empty() {
            return;
        }
        let Some(cheapest) = cheapest(self.table, &self.offerings) else { return };
        let catalogue = self.table.catalogue;
        let of_cheapest = &catalogue.offerings[cheapest];
        let is_elsewhere = |offering: OfferingId| {
            let zone = catalogue.offerings[offering].zone;
            let of_its_type =
                |other: &&OfferingId| catalogue.offerings[**other].instance_type == of_cheapest.instance_type;
            !unsafe_others.iter().filter(of_its_type).any(|other| catalogue.offerings[*other].zone == zone)
        };
        let is_like_it = |offering: OfferingId| {
            let offering = &catalogue.offerings[offering];
            (offering.zone, offering.capacity_type) == (of_cheapest.zone, of_cheapest.capacity_type)
        };
        let mut best: Option<(PriceNanoUsdPerHour, Self)> = None;
        let among: [&dyn Fn(OfferingId) -> bool; 3] = [&|_| true, &is_elsewhere, &is_like_it];
        for is_left in among {
            let mut tried = self.clone();
            tried.offerings.clear();
            tried.offerings.extend(self.offerings.iter().filter(|&offering| is_left(offering)));
            if tried.offerings == self.offerings {
                tried.drop_types_of(&unsafe_others);
            } else {
                tried.narrow(problem.names(), known);
                let unsafe_others = tried.unsafe_others(problem, bin, known);
                tried.drop_types_of(&unsafe_others);
            }
            let Some(first) = self::cheapest(self.table, &tried.offerings) else { continue };
            let price = self.table.price(first);
            // What is known of the first holds in any case; the others must not lose a minValues that it keeps.
            let keeps_min_values = || self.table.has_min_values(&tried.offerings);
            if best.as_ref().is_none_or(|(least, _)| price < *least && keeps_min_values()) {
                best = Some((price, tried));
            }
            if price == self.table.price(cheapest) {
                break;
            }
        }
        if let Some((_, best)) = best {
            *self = best;
        }
    }

    fn drop_types_of(&mut self, offerings: &[OfferingId]) {
        let catalogue = self.table.catalogue;
        let types: IdSet<TypeId> = offerings.iter().map(|id| catalogue.offerings[*id].instance_type).collect();
        for offering in types.iter().flat_map(|instance_type| catalogue.offerings_of(instance_type)) {
            self.offerings.remove(offering);
        }
    }

    /// What the claim would allow of the machine's types that does not hold the pods.
    fn unsafe_others(&self, problem: &Problem<'_>, bin: &Bin, known: &mut Known) -> Vec<OfferingId> {
        let others = self.others(problem.names(), known);
        others.iter().copied().filter(|&other| !suits(problem, self.table, bin, other)).collect()
    }

    /// Offerings of the machine's types that are not among its own and that the claim would allow.
    fn others(&self, names: &Interner, known: &mut Known) -> Rc<[OfferingId]> {
        if let Some(others) = known.of(&self.offerings).and_then(|known| known.others.get(&self.requirements)) {
            return Rc::clone(others);
        }
        let type_of = |offering: OfferingId| self.table.catalogue.offerings[offering].instance_type;
        let considered: IdSet<TypeId> = self.offerings.iter().map(type_of).collect();
        let mut allowed = self.table.agreeing_with(&mut known.lookups, &self.requirements, names);
        allowed.difference_with(&self.offerings);
        let others: Rc<[OfferingId]> = allowed.iter().filter(|&id| considered.contains(type_of(id))).collect();
        known.of_mut(&self.offerings).others.insert(self.requirements.clone(), Rc::clone(&others));
        others
    }

    /// A value for each label that the claim has to give because no remaining offering decides it.
    fn labels(&self, names: &Interner) -> Vec<(KeyId, Arc<str>)> {
        let decided = |key: KeyId| self.table.is_mentioned_by(&self.offerings, key);
        let undecided = self.requirements.iter_by_name(names).filter(|requirement| !decided(requirement.key));
        undecided.filter_map(|requirement| Some((requirement.key, requirement.values.any_value(names)?))).collect()
    }

    /// Types, cheapest first, at most as many as configured. Types that a minValues needs come before cheaper ones.
    fn instance_types(&self, most: usize) -> Vec<(TypeId, OfferingId)> {
        let mut all: Vec<(TypeId, OfferingId)> = Vec::new();
        let mut seen: IdSet<TypeId> = IdSet::with_len(self.table.catalogue.types.len());
        // Without minValues what is dearer can only be left out.
        let is_cheapest_enough = self.table.all_min_values.is_empty();
        for offering in by_price(self.table, &self.offerings) {
            let instance_type = self.table.catalogue.offerings[offering].instance_type;
            if seen.insert(instance_type) {
                if is_cheapest_enough && all.len() == most {
                    break;
                }
                all.push((instance_type, offering));
            }
        }
        if is_cheapest_enough || all.len() <= most {
            return all;
        }
        let needed = self.types_for_min_values(&all);
        let mut room = most.saturating_sub(needed.count());
        all.retain(|(instance_type, _)| {
            if needed.contains(*instance_type) {
                return true;
            }
            let kept = room > 0;
            room = room.saturating_sub(1);
            kept
        });
        all.truncate(most);
        all
    }

    /// The cheapest types that together have enough values for each minValues.
    fn types_for_min_values(&self, by_price: &[(TypeId, OfferingId)]) -> IdSet<TypeId> {
        let mut needed: IdSet<TypeId> = IdSet::with_len(self.table.catalogue.types.len());
        for min in &self.table.all_min_values {
            let mut found: Vec<ValueId> = Vec::new();
            for &(instance_type, _) in by_price {
                if found.len() >= min.wanted {
                    break;
                }
                let of_type = self.table.catalogue.offerings_of(instance_type);
                let left = of_type.filter(|&offering| self.offerings.contains(offering));
                let before = found.len();
                for value in left.flat_map(|offering| min.values_of(offering)) {
                    if !found.contains(&value) {
                        found.push(value);
                    }
                }
                if found.len() > before {
                    needed.insert(instance_type);
                }
            }
        }
        needed
    }

    /// What the claim says of types.
    fn types(&self, most: usize, known: &mut Known) -> Rc<Types> {
        if let Some(types) = known.of(&self.offerings).and_then(|known| known.types.as_ref()) {
            return Rc::clone(types);
        }
        let catalogue = self.table.catalogue;
        let by_price = self.instance_types(most);
        let kept: IdSet<TypeId> = by_price.iter().map(|(instance_type, _)| *instance_type).collect();
        let mut daemons: Option<ResourceVec> = None;
        let mut offerings = IdSet::with_len(catalogue.offerings.len());
        for id in self.offerings.iter().filter(|&id| kept.contains(catalogue.offerings[id].instance_type)) {
            offerings.insert(id);
            match &mut daemons {
                None => daemons = Some(self.table.holds.daemons[id].clone()),
                Some(least) => least.min_assign(&self.table.holds.daemons[id]),
            }
        }
        let types = Rc::new(Types {
            ids: by_price.iter().map(|(id, _)| *id).collect(),
            by_price,
            offerings: offerings.count(),
            daemons: daemons.unwrap_or_default(),
            relaxed: self.relaxed(&offerings),
        });
        known.of_mut(&self.offerings).types = Some(Rc::clone(&types));
        types
    }

    /// The minValues that these offerings do not meet, with the number of values that they have.
    fn relaxed(&self, offerings: &IdSet<OfferingId>) -> Vec<(KeyId, u32)> {
        let left = self.table.all_min_values.iter().map(|min| (min, min.left(offerings)));
        let short = left.filter(|(min, left)| *left < min.wanted);
        short.map(|(min, left)| (min.key, u32::try_from(left).unwrap_or(u32::MAX))).collect()
    }

    /// What the claim asks of labels, with each minValues lowered to what its types have: the API server and the
    /// provider hold a claim to its own minValues, whatever the NodePool says. A minimum of no value is none.
    fn claim_requirements(&self, relaxed: &[(KeyId, u32)]) -> Requirements {
        let mut requirements = self.requirements.clone();
        for &(key, left) in relaxed {
            if let Some(requirement) = requirements.get(key) {
                let min_values = (left > 0).then_some(left);
                requirements.replace(Requirement { min_values, ..requirement.clone() });
            }
        }
        requirements
    }

    fn machine(
        &self,
        problem: &Problem<'_>,
        index_in_pool: usize,
        bin: &Bin,
        pods: Vec<PodId>,
        known: &mut Known,
    ) -> Machine {
        let catalogue = self.table.catalogue;
        let types = self.types(problem.snapshot.options.max_instance_types, known);
        let (instance_type, cheapest) =
            types.by_price.first().copied().expect("a machine is opened with an offering and never narrowed to none");
        let offering = &catalogue.offerings[cheapest];
        let mut requests = bin.requests.clone();
        requests.saturating_add_assign(&types.daemons);
        let next_best: Option<(TypeId, PriceNanoUsdPerHour)> =
            types.by_price.get(1).map(|(id, offering)| (*id, catalogue.offerings[*offering].price));
        Machine {
            node_pool: self.table.id,
            index_in_pool,
            instance_types: types.ids.clone(),
            launch: Launch {
                offering: cheapest,
                instance_type,
                zone: offering.zone,
                capacity_type: offering.capacity_type,
                price: offering.price,
            },
            requirements: self.claim_requirements(&types.relaxed),
            labels: self.labels(problem.names()),
            requests,
            pods,
            devices: bin
                .devices
                .as_ref()
                .and_then(|devices| devices.planned(self.table.shapes.shape_of(cheapest)))
                .map(|drivers| drivers.iter().map(|(driver, count)| (Arc::clone(driver), *count)).collect())
                .unwrap_or_default(),
            device_costs: Vec::new(),
            min_values_relaxed: !types.relaxed.is_empty(),
            choice: Choice { offerings: types.offerings, next_best },
        }
    }
}
