//! From open machines to NodeClaims: which instance types stay on the claim, what its requirements say, what it costs.
//!
//! A NodeClaim can only say a conjunction of label requirements and a list of instance types; the provider may launch
//! any offering that agrees with both. So types are kept only if *every* offering of theirs that the claim's requirements
//! allow holds the planned pods, whether or not it is available now ([`Settled::new`]). Of those the cheapest are kept,
//! up to the configured number, with care for minValues and limits.

use std::sync::Arc;

use api::labels;
use model::{IdSet, Interner, KeyId, PriceNanoUsdPerHour, Requirement, Requirements, ResourceVec, ValueId, ValueSet};

use super::{
    classes::ClassId,
    devices::narrow,
    limits::Amounts,
    pools::{Alternative, PoolTable},
    problem::Problem,
    state::{Bin, State},
    topology::{Involvement, Place, Scope},
};
use crate::{
    catalogue::{OfferingId, TypeId},
    plan::{Choice, Launch, Machine},
    snapshot::PodId,
};

/// Steps that the exact choice under several limits may take.
const LIMIT_STEPS: u64 = 20_000;

/// Turns the open machines into NodeClaims, pool by pool in order of preference. `pods[i]` are the pods of bin `i`.
pub(crate) fn machines(problem: &Problem<'_>, state: &State, pods: &[Vec<PodId>]) -> Vec<Machine> {
    let mut machines = Vec::with_capacity(state.bins.len());
    for (rank, table) in problem.pools.iter_enumerated() {
        let bins: Vec<(usize, &Bin)> = state.bins.iter().enumerate().filter(|(_, bin)| bin.pool == rank).collect();
        let narrowed = within_limits(table, &bins);
        for (index_in_pool, ((bin_index, bin), offerings)) in bins.into_iter().zip(narrowed).enumerate() {
            let settled = Settled::new(problem, table, bin, &offerings);
            let mut pods = pods.get(bin_index).cloned().unwrap_or_default();
            pods.sort_by_key(|&pod| &problem.snapshot.pods[pod].pod.name);
            machines.push(settled.machine(problem, index_in_pool, bin, pods));
        }
    }
    machines
}

/// Narrows each machine's offerings so that even the largest launches together keep the pool's limits.
fn within_limits(table: &PoolTable<'_>, bins: &[(usize, &Bin)]) -> Vec<IdSet<OfferingId>> {
    let all = || bins.iter().map(|(_, bin)| bin.offerings.clone()).collect();
    if table.limits.is_empty() {
        return all();
    }
    let machines: Vec<&IdSet<OfferingId>> = bins.iter().map(|(_, bin)| &bin.offerings).collect();
    let Some(chosen) = least(table, &machines) else { return all() };
    let mut slack: Amounts = table.limits.entries().iter().map(|entry| entry.remaining).collect();
    for amounts in &chosen {
        super::limits::sub(&mut slack, amounts);
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
        let chosen = table.limits.choose(machines, LIMIT_STEPS)?;
        return Some(
            chosen.into_iter().map(|offering| table.limits.taken(offering).iter().copied().collect()).collect(),
        );
    }
    let kept = |open: &&IdSet<OfferingId>| table.limits.least_until(open, |kept| table.has_min_values(kept));
    Some(machines.iter().map(|open| table.limits.most(&kept(open))).collect())
}

/// Offerings, cheapest first; equal prices by instance type, zone and capacity type.
fn by_price(table: &PoolTable<'_>, offerings: &IdSet<OfferingId>) -> Vec<OfferingId> {
    table.by_price.iter().copied().filter(|&offering| offerings.contains(offering)).collect()
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
    bin.requests.fits_in(&table.net[offering])
        && suits_rules(problem, table, bin, offering)
        && !only.is_empty()
        && bin.devices.as_ref().is_none_or(|devices| devices.allow(table, offering, problem.names()))
        && held(table, bin).all(is_served_so)
}

/// A machine whose choices are made.
struct Settled<'t, 's> {
    table: &'t PoolTable<'s>,
    offerings: IdSet<OfferingId>,
    requirements: Requirements,
}

impl<'t, 's> Settled<'t, 's> {
    fn new(problem: &Problem<'_>, table: &'t PoolTable<'s>, bin: &Bin, offerings: &IdSet<OfferingId>) -> Self {
        let names = problem.names();
        let mut asked = table.pool.requirements.clone();
        for (class, alternative) in held(table, bin) {
            if let Some(term) = problem.classes[class].terms.get(alternative.term) {
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
        let mut settled = Self { table, offerings: offerings.clone(), requirements: asked };
        settled.narrow(names);
        settled.pin(problem, bin);
        settled.drop_unsafe_types(problem, bin);
        settled
    }

    /// Lets the claim say the domain of every rule that counts a pod of the machine.
    fn pin(&mut self, problem: &Problem<'_>, bin: &Bin) {
        for (class, alternative) in held(self.table, bin) {
            for (mine, place) in problem.classes[class].involved.iter().zip(&alternative.places) {
                let group = &problem.topology.groups[mine.group];
                if let (Scope::Label(key), Place::Domain(domain)) = (group.scope, *place)
                    && let Some(&value) = group.values.try_get(domain)
                {
                    let pinned = Requirement::new(key, ValueSet::one(value));
                    self.requirements.insert_intersect(pinned, problem.names());
                }
            }
        }
    }

    /// Lets zone, capacity type and every other key that offerings decide say what the remaining offerings have.
    fn narrow(&mut self, names: &Interner) {
        for key in [labels::ZONE, labels::CAPACITY_TYPE].into_iter().filter_map(|key| names.find_key(key)) {
            let mut values: Vec<ValueId> = self
                .offerings
                .iter()
                .filter_map(|offering| self.table.catalogue.offerings[offering].requirements.get(key))
                .filter_map(|requirement| requirement.values.finite_values())
                .flatten()
                .copied()
                .collect();
            values.sort_unstable();
            values.dedup();
            if values.is_empty() {
                continue;
            }
            let min_values = self.requirements.get(key).and_then(|requirement| requirement.min_values);
            self.requirements
                .insert_intersect(Requirement { min_values, ..Requirement::new(key, ValueSet::among(values)) }, names);
        }
    }

    /// Drops types of which the claim would allow an offering that does not hold the pods. If none is left, the claim is
    /// pinned to zone and capacity type of its cheapest offering first.
    fn drop_unsafe_types(&mut self, problem: &Problem<'_>, bin: &Bin) {
        let safe = self.safe_offerings(problem, bin);
        if !safe.is_empty() {
            self.offerings = safe;
            return;
        }
        let Some(cheapest) = by_price(self.table, &self.offerings).first().copied() else { return };
        let cheapest = &self.table.catalogue.offerings[cheapest];
        let pinned: Vec<OfferingId> = self
            .offerings
            .iter()
            .filter(|&offering| {
                let offering = &self.table.catalogue.offerings[offering];
                (offering.zone, offering.capacity_type) == (cheapest.zone, cheapest.capacity_type)
            })
            .collect();
        self.offerings.clear();
        self.offerings.extend(pinned);
        self.narrow(problem.names());
        let safe = self.safe_offerings(problem, bin);
        if !safe.is_empty() {
            self.offerings = safe;
        }
    }

    fn safe_offerings(&self, problem: &Problem<'_>, bin: &Bin) -> IdSet<OfferingId> {
        let (catalogue, names) = (self.table.catalogue, problem.names());
        // Most others are in another zone, which is told at once.
        let zones = names.find_key(labels::ZONE).and_then(|key| self.requirements.get(key));
        let mut unsafe_types: IdSet<TypeId> = IdSet::with_len(catalogue.types.len());
        let considered: IdSet<TypeId> =
            self.offerings.iter().map(|offering| catalogue.offerings[offering].instance_type).collect();
        for instance_type in considered.iter() {
            let in_zone = |id: &OfferingId| {
                zones.is_none_or(|zones| zones.values.contains(Some(catalogue.offerings[*id].zone), names))
            };
            let others = catalogue.offerings_of(instance_type).filter(|&id| !self.offerings.contains(id));
            let misfit = others.filter(in_zone).any(|id| {
                let allowed = self.requirements.intersects(&catalogue.offerings[id].requirements, names).is_ok();
                allowed && !suits(problem, self.table, bin, id)
            });
            if misfit {
                unsafe_types.insert(instance_type);
            }
        }
        let mut safe = self.offerings.clone();
        for offering in self.offerings.iter() {
            if unsafe_types.contains(catalogue.offerings[offering].instance_type) {
                safe.remove(offering);
            }
        }
        safe
    }

    /// A value for each label that the claim has to give because no remaining offering decides it.
    fn labels(&self, names: &Interner) -> Vec<(KeyId, Arc<str>)> {
        let decided = |key: KeyId| {
            self.offerings
                .iter()
                .any(|offering| self.table.catalogue.offerings[offering].requirements.contains_key(key))
        };
        let undecided: Vec<&Requirement> =
            self.requirements.iter_by_name(names).filter(|requirement| !decided(requirement.key)).collect();
        let mut scratch = names.clone();
        undecided
            .into_iter()
            .filter_map(|requirement| {
                let value = requirement.values.any_value(&mut scratch)?;
                Some((requirement.key, scratch.value_arc(value)))
            })
            .collect()
    }

    /// Types, cheapest first, at most as many as configured. Types that a minValues needs come before cheaper ones.
    fn instance_types(&self, most: usize) -> Vec<(TypeId, OfferingId)> {
        let mut all: Vec<(TypeId, OfferingId)> = Vec::new();
        let mut seen: IdSet<TypeId> = IdSet::with_len(self.table.catalogue.types.len());
        for offering in by_price(self.table, &self.offerings) {
            let instance_type = self.table.catalogue.offerings[offering].instance_type;
            if seen.insert(instance_type) {
                all.push((instance_type, offering));
            }
        }
        if all.len() <= most {
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
                let has = |offerings: &IdSet<OfferingId>| {
                    let mut of_type = self.table.catalogue.offerings_of(instance_type);
                    of_type.any(|offering| self.offerings.contains(offering) && offerings.contains(offering))
                };
                let new = min.by_value.iter().filter(|(value, offerings)| !found.contains(value) && has(offerings));
                let new: Vec<ValueId> = new.map(|(value, _)| *value).collect();
                if !new.is_empty() {
                    found.extend(new);
                    needed.insert(instance_type);
                }
            }
        }
        needed
    }

    fn machine(&self, problem: &Problem<'_>, index_in_pool: usize, bin: &Bin, pods: Vec<PodId>) -> Machine {
        let catalogue = self.table.catalogue;
        let types = self.instance_types(problem.snapshot.options.max_instance_types);
        let (instance_type, cheapest) =
            types.first().copied().expect("a machine is opened with an offering and never narrowed to none");
        let offering = &catalogue.offerings[cheapest];
        let mut kept: IdSet<TypeId> = IdSet::with_len(catalogue.types.len());
        kept.extend(types.iter().map(|(instance_type, _)| *instance_type));
        let mut daemons: Option<ResourceVec> = None;
        let mut offerings = IdSet::with_len(catalogue.offerings.len());
        for id in self.offerings.iter().filter(|&id| kept.contains(catalogue.offerings[id].instance_type)) {
            offerings.insert(id);
            match &mut daemons {
                None => daemons = Some(self.table.daemons[id].clone()),
                Some(least) => least.min_assign(&self.table.daemons[id]),
            }
        }
        let mut requests = bin.requests.clone();
        requests.saturating_add_assign(&daemons.unwrap_or_default());
        let next_best: Option<(TypeId, PriceNanoUsdPerHour)> =
            types.get(1).map(|(id, offering)| (*id, catalogue.offerings[*offering].price));
        Machine {
            node_pool: self.table.id,
            index_in_pool,
            instance_types: types.into_iter().map(|(id, _)| id).collect(),
            launch: Launch {
                offering: cheapest,
                instance_type,
                zone: offering.zone,
                capacity_type: offering.capacity_type,
                price: offering.price,
            },
            requirements: self.requirements.clone(),
            labels: self.labels(problem.names()),
            requests,
            pods,
            devices: bin
                .devices
                .as_ref()
                .and_then(|devices| devices.planned(self.table.shapes.shape_of(cheapest)))
                .map(|drivers| drivers.iter().map(|(driver, count)| (Arc::clone(driver), *count)).collect())
                .unwrap_or_default(),
            min_values_relaxed: self.table.all_min_values.iter().any(|min| min.left(&offerings) < min.wanted),
            choice: Choice { offerings: offerings.count(), next_best },
        }
    }
}
