//! Why a class has no place: made after packing, for refused classes only. Rules are asked in a fixed order (taints,
//! labels by name, resources, devices, offerings, minValues, limits), and each node, pool or type counts at the first
//! it fails. What its claims ask for is told once more over all NodePools, by request and step of the allocator
//! (`claims`).

mod claims;
mod contradiction;
mod costs;
pub(crate) mod placed;
pub(crate) mod remedies;
mod tally;

use std::sync::Arc;

use model::{
    IdSet, Interner, KeyId, Requirement, SearchEnd, ValueId, ValueSet,
    requirement::{Incompatible, IncompatibleKind},
};

use self::costs::Footprint;
use self::tally::{Shortages, Troubles};
use crate::catalogue::{OfferingId, TypeId};
use crate::plan::Verdict;
use crate::plan::reason::{ExistingNodes, NoInstanceType, Reason};
use crate::simulation::compile::classes::{ClassId, PodClass};
use crate::simulation::compile::pools::{Alternative, PoolRank, PoolTable};
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::Packing;
use crate::simulation::packing::devices::{DeviceRequest, DeviceState, Spot, Trouble};
use crate::simulation::placing::{backtracking, fill};
use crate::simulation::topology::{Checking, Involvement, Kind, Place, Scope};
use crate::snapshot::NodeId;
use crate::snapshot::affinity;
use crate::snapshot::affinity::{Term, accepts_unknown};

/// All reasons of one class, against the state in which it was refused.
pub(crate) fn reasons<'s>(
    packing: &Packing<'s>,
    class: ClassId,
    verdict: Verdict,
    steps: u64,
    survey: &mut remedies::Survey<'s>,
) -> Arc<[Reason]> {
    let problem = packing.problem;
    let pods = &problem.classes[class];
    if let Some(obstacle) = &pods.refused {
        return obstacle.reason().into_iter().collect();
    }
    if let Some(why) = &pods.claim_fault {
        return Arc::from([Reason::Claim { why: Arc::clone(why) }]);
    }
    if pods.terms.is_empty() {
        let all = contradiction::contradictions(&pods.shape, &problem.snapshot.volumes, problem.names());
        return Arc::from([Reason::Contradiction(all)]);
    }
    let mut reasons = Vec::new();
    if verdict == Verdict::OutOfBudget {
        reasons.push(match devices_out_of_budget(packing, class) {
            Some(steps) => Reason::DevicesOutOfBudget { steps },
            None if backtracking::may_be_brought(problem, class) => Reason::OthersMayBringDevices { steps },
            None if backtracking::is_too_large(&backtracking::with_one_more(packing, class)) => {
                Reason::NotSearched { most: crate::tuning::MAX_SEARCHED }
            }
            None => Reason::OutOfBudget { steps },
        });
    }
    if !problem.snapshot.nodes.is_empty() {
        let mut rules = Vec::new();
        reasons.push(Reason::ExistingNodes(existing_nodes(packing, class, &mut rules)));
        if !rules.is_empty() {
            reasons.push(Reason::PodRules { node_pool: None, rules });
        }
    }
    if verdict == Verdict::OptedOut {
        reasons.push(Reason::OptedOut);
        return reasons.into();
    }
    if problem.snapshot.node_pools.is_empty() {
        reasons.push(Reason::NoNodePool);
    }
    let mut stages = Vec::new();
    let brought = if pods.devices.is_some() { survey.brought(packing) } else { None };
    for (rank, table) in problem.pools.iter_enumerated() {
        let (reason, stage) = pool((packing, brought), rank, table, class);
        reasons.extend(reason);
        stages.extend(stage);
    }
    if pods.devices.is_some() && !stages.is_empty() {
        let requests = claims::of_class(packing, class, &stages);
        if !requests.is_empty() {
            reasons.push(Reason::Devices(requests));
        }
    }
    let mut unusable: Vec<_> = problem
        .snapshot
        .node_pools
        .iter()
        .filter_map(|pool| Some((pool.name.clone(), Arc::clone(pool.usable.as_ref().err()?))))
        .collect();
    unusable.sort();
    reasons.extend(unusable.into_iter().map(|(node_pool, why)| Reason::NodePoolNotUsable { node_pool, why }));
    if verdict == Verdict::DoesNotFit {
        let given = |rank: PoolRank, table: &PoolTable<'_>| with_devices(packing, rank, table, class);
        reasons.extend(remedies::Asked { packing, class, reasons: &reasons }.remedies(given, survey));
    }
    reasons.into()
}

/// Steps that the allocation of devices took, if it could not finish for the class somewhere.
fn devices_out_of_budget(packing: &Packing<'_>, class: ClassId) -> Option<u64> {
    let problem = packing.problem;
    problem.classes[class].devices.as_ref()?;
    let mut end = SearchEnd::default();
    let mut ask = |spot: Spot, variant: usize| {
        packing.ways(DeviceRequest { spot, class, variant, copies: 1 }).part_of(&mut end);
    };
    for &node in problem.node_order.iter().filter(|&&node| problem.node_accepts(class, node)) {
        ask(Spot::Node(node), problem.variant_on(class, node));
    }
    for (pool, table) in problem.pools.iter_enumerated() {
        table.by_class[class].iter().for_each(|alternative| ask(Spot::New(pool), alternative.variant));
    }
    let taken = problem.snapshot.options.device_steps.saturating_sub(packing.run.devices().steps_left());
    end.is_out_of_budget().then_some(taken)
}

fn existing_nodes(packing: &Packing<'_>, class: ClassId, rules: &mut Vec<Arc<str>>) -> ExistingNodes {
    let problem = packing.problem;
    let names = problem.names();
    let pods = &problem.classes[class];
    let mut tally = ExistingNodes { nodes: problem.snapshot.nodes.len(), ..ExistingNodes::default() };
    let mut shortages = Shortages::default();
    let mut troubles = Troubles::default();
    for (id, node) in problem.snapshot.nodes.iter_enumerated() {
        if node.excluded.is_some() {
            tally.excluded += 1;
        } else if affinity::keeps_out(&node.taints, &pods.shape, names).is_some() {
            tally.by_taint += 1;
        } else if !pods.terms.iter().any(|term| term.accepts(node, names)) {
            tally.by_label += 1;
        } else if let Some(trouble) = without_devices(packing, class, id) {
            tally.by_devices += 1;
            troubles.add(&trouble, 1);
        } else {
            let footprint = Footprint::on_node(packing, class, id);
            if !pods.involved.is_empty() && footprint.fits_in(&packing.state.room[id]) {
                tally.by_rules += 1;
                closing(packing, pods, |mine, _| problem.topology.place_of_node(mine.group, id), rules);
            } else {
                tally.by_resources += 1;
                shortages.add(&footprint, &packing.state.room[id], Some(&node.allocatable));
            }
        }
    }
    tally.devices = troubles.nearest_first().into_iter().next().map(|(why, _)| why);
    tally.nearest = shortages.nearest(names);
    tally
}

/// Why a node with room gives the class no devices, if that is so.
fn without_devices(packing: &Packing<'_>, class: ClassId, node: NodeId) -> Option<Trouble> {
    let problem = packing.problem;
    let devices = packing.state.devices.as_ref().filter(|_| problem.classes[class].devices.is_some())?;
    if !packing.requests_on(node, class).fits_in(&packing.state.room[node]) {
        return None;
    }
    let variant = problem.variant_on(class, node);
    let ways = packing.ways(DeviceRequest { spot: Spot::Node(node), class, variant, copies: 1 }).so_far()?;
    if ways.most() > 0 {
        return None;
    }
    devices.refusals(packing.asking_alone(), Spot::Node(node), class, variant).into_iter().next()
}

/// Adds the rules by which a class may not be at a place.
pub(crate) fn closing(
    packing: &Packing<'_>,
    pods: &PodClass,
    place: impl Fn(&Involvement, usize) -> Place,
    rules: &mut Vec<Arc<str>>,
) {
    let problem = packing.problem;
    let mut add = |mine: &Involvement| {
        let rule: Arc<str> = problem.topology.groups[mine.group].describe(problem.names()).into();
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    };
    for (position, mine) in pods.involved.iter().enumerate() {
        let (group, counts) = (&problem.topology.groups[mine.group], &packing.state.counts[mine.group]);
        let at = place(mine, position);
        let is_near = || match at {
            Place::Domain(domain) => counts.matched(domain) > 0,
            Place::OwnHost | Place::Outside | Place::Unknown => false,
        };
        let is_far = mine.owner && group.kind == Kind::Affinity && !is_near();
        if is_far || group.room(counts, mine, at, Checking::Stepwise, 1) == 0 {
            add(mine);
        }
    }
}

/// Rules that close new machines in some ways to be on them.
pub(crate) fn closing_ways<'w>(
    packing: &Packing<'_>,
    pods: &PodClass,
    ways: impl IntoIterator<Item = &'w Alternative>,
) -> Vec<Arc<str>> {
    let mut rules = Vec::new();
    for way in ways {
        let place = |mine: &Involvement, position: usize| match way.places.get(position) {
            Some(Place::OwnHost) => {
                Place::Domain(packing.problem.topology.groups[mine.group].host_of(packing.state.bins.len()))
            }
            Some(place) => *place,
            None => Place::Outside,
        };
        closing(packing, pods, place, &mut rules);
    }
    rules
}

/// Rules that close the machines of a pool that would hold a copy of the class.
fn closed_machines(packing: &Packing<'_>, table: &PoolTable<'_>, class: ClassId) -> Vec<Arc<str>> {
    let problem = packing.problem;
    let pods = &problem.classes[class];
    let holds = |way: &&Alternative| {
        let requests = problem.requests_alone(class, way.variant);
        way.offerings.iter().any(|offering| requests.fits_in(table.net(offering)))
    };
    let mut rules = closing_ways(packing, pods, table.by_class[class].iter().filter(holds));
    if let Some(contrary) = fill::keeps_itself_out(packing, class) {
        let contrary: Arc<str> = problem.topology.groups[contrary].describe(problem.names()).into();
        if !rules.contains(&contrary) {
            rules.push(contrary);
        }
    }
    rules
}

/// Labels that rules of the class go by and that no machine of the pool will have, with the rule.
pub(crate) fn label_for_rule<'a>(
    problem: &'a Problem<'_>,
    table: &'a PoolTable<'_>,
    pods: &'a PodClass,
) -> impl Iterator<Item = (KeyId, Arc<str>)> + 'a {
    let names = problem.names();
    pods.involved.iter().filter(|mine| mine.owner).filter_map(move |mine| {
        let group = &problem.topology.groups[mine.group];
        let Scope::Label(key) = group.scope else { return None };
        let needs_label = group.kind != Kind::AntiAffinity;
        let is_missing = !table.mentions(key) && !table.can_have(None, key, &ValueSet::exists(), names);
        (needs_label && is_missing).then(|| (key, group.describe(names).into()))
    })
}

/// A NodePool whose taints and labels the class agrees with, by one of its terms.
struct PoolStage<'a, 's> {
    rank: PoolRank,
    table: &'a PoolTable<'s>,
    term: &'a Term,
    /// Offerings whose machines would give the class its devices.
    given: Option<IdSet<OfferingId>>,
}

fn pool<'p, 's>(
    (packing, brought): (&Packing<'p>, Option<&DeviceState>),
    rank: PoolRank,
    table: &'p PoolTable<'s>,
    class: ClassId,
) -> (Option<Reason>, Option<PoolStage<'p, 's>>) {
    let problem = packing.problem;
    let names = problem.names();
    let pods = &problem.classes[class];
    let node_pool = || table.pool.name.clone();
    if let Some(taint) = affinity::keeps_out(&table.pool.taints, &pods.shape, names) {
        return (Some(Reason::NodePoolTaint { node_pool: node_pool(), taint }), None);
    }
    // Of several terms the first one that gets as far as resources is told, else the first.
    let mut told: Option<Reason> = None;
    for term in &pods.terms {
        match label_conflict(table, term, names) {
            Some(reason) => told = told.or(Some(reason)),
            None => {
                let reason = machine((packing, brought), rank, table, class, term);
                let given = with_devices(packing, rank, table, class);
                return (Some(reason), Some(PoolStage { rank, table, term, given }));
            }
        }
    }
    (told, None)
}

/// The first label, by name, on which the pool and the term can't agree whatever the instance type.
fn label_conflict(table: &PoolTable<'_>, term: &Term, names: &Interner) -> Option<Reason> {
    let node_pool = || table.pool.name.clone();
    if term.node_name.as_ref().is_some_and(|wanted| !accepts_unknown(wanted)) {
        return Some(Reason::NodeName { node_pool: node_pool(), label: None, wanted: term.node_name.clone()? });
    }
    for wanted in term.requirements.iter_by_name(names) {
        let key = wanted.key;
        if names_node(table, wanted) {
            return Some(Reason::NodeName { node_pool: node_pool(), label: Some(key), wanted: wanted.values.clone() });
        }
        if let Some(pool) = table.pool.requirements.get(key) {
            if !pool.values.intersects(&wanted.values, names) {
                return Some(Reason::Requirement {
                    node_pool: node_pool(),
                    key,
                    wanted: wanted.values.clone(),
                    allowed: pool.values.clone(),
                });
            }
        } else if !table.mentions(key) && !table.can_have(None, key, &wanted.values, names) {
            return Some(Reason::LabelNotDefined {
                node_pool: node_pool(),
                key,
                wanted: wanted.values.clone(),
                typo_of: typo(table, key, names),
            });
        }
    }
    None
}

/// Whether a Node is asked for by its hostname, which nobody can give a machine to come.
pub(crate) fn names_node(table: &PoolTable<'_>, wanted: &Requirement) -> bool {
    table.is_hostname(wanted.key) && !accepts_unknown(&wanted.values)
}

/// A label that the pool or its offerings define and that was probably meant.
fn typo(table: &PoolTable<'_>, key: KeyId, names: &Interner) -> Option<KeyId> {
    let offered: IdSet<KeyId> = table
        .catalogue
        .offerings
        .iter()
        .flat_map(|offering| offering.requirements.iter().map(|requirement| requirement.key))
        .collect();
    let undefined = Incompatible { key, kind: IncompatibleKind::Undefined };
    undefined.hint(&table.pool.requirements, &offered, names)
}

/// Labels agree with the pool: what became of the instance types.
fn machine(
    (packing, brought): (&Packing<'_>, Option<&DeviceState>),
    rank: PoolRank,
    table: &PoolTable<'_>,
    class: ClassId,
    term: &Term,
) -> Reason {
    let problem = packing.problem;
    let pods = &problem.classes[class];
    let names = problem.names();
    if let Some(reason) = limits_or_min_values(packing, rank, table, class) {
        return reason;
    }
    if let Some((key, rule)) = label_for_rule(problem, table, pods).next() {
        return Reason::LabelForRule { node_pool: table.pool.name.clone(), key, rule };
    }
    if !pods.involved.is_empty() {
        let rules = closed_machines(packing, table, class);
        if !rules.is_empty() {
            return Reason::PodRules { node_pool: Some(table.pool.name.clone()), rules };
        }
    }
    let catalogue = table.catalogue;
    let given = with_devices(packing, rank, table, class);
    let mut rules = Rules::default();
    let mut shortages = Shortages::default();
    let (mut port, mut reservations) = (None, Vec::new());
    for instance_type in catalogue.types.ids() {
        let offerings: Vec<OfferingId> = catalogue.offerings_of(instance_type).collect();
        let asked = Asked { packing, class, rank, table, term, given: given.as_ref() };
        let fall = asked.furthest(&offerings, &mut shortages, names);
        let first_port = || offerings.iter().find_map(|&offering| table.port_of_daemon(offering, pods));
        match fall {
            Fall::HostPort => port = port.or_else(first_port),
            Fall::Reservation => reservations.extend(offerings.iter().filter_map(|&offering| asked.used_up(offering))),
            Fall::NodePool | Fall::Label(_) | Fall::Resources | Fall::Devices | Fall::Offering => {}
        }
        rules.count(instance_type, fall);
    }
    reservations.sort_by_key(|id| names.value_name(*id));
    reservations.dedup();
    let devices = troubles_of((packing, brought), rank, table, class, &rules.without_devices);
    let mut by_label: Vec<(KeyId, ValueSet, usize)> = rules
        .by_label
        .into_iter()
        .filter_map(|(key, count)| Some((key, term.requirements.get(key)?.values.clone(), count)))
        .collect();
    by_label.sort_by_key(|(key, _, _)| names.key_name(*key));
    Reason::NoInstanceType(Box::new(NoInstanceType {
        node_pool: table.pool.name.clone(),
        types: catalogue.types.len(),
        by_node_pool: rules.by_node_pool,
        by_label,
        by_resources: rules.by_resources,
        by_ports: rules.by_ports,
        port,
        by_devices: rules.without_devices.len(),
        devices,
        by_offering: rules.by_offering,
        by_reservation: rules.by_reservation,
        reservations,
        nearest: shortages.nearest(names),
    }))
}

/// The rule at which an offering falls, in the order in which they are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fall {
    NodePool,
    Label(KeyId),
    Resources,
    HostPort,
    Devices,
    Offering,
    Reservation,
}

#[derive(Default)]
struct Rules {
    by_node_pool: usize,
    by_label: Vec<(KeyId, usize)>,
    by_resources: usize,
    by_ports: usize,
    without_devices: Vec<TypeId>,
    by_offering: usize,
    by_reservation: usize,
}

impl Rules {
    fn count(&mut self, instance_type: TypeId, fall: Fall) {
        match fall {
            Fall::NodePool => self.by_node_pool += 1,
            Fall::Resources => self.by_resources += 1,
            Fall::Devices => self.without_devices.push(instance_type),
            Fall::HostPort => self.by_ports += 1,
            Fall::Offering => self.by_offering += 1,
            Fall::Reservation => self.by_reservation += 1,
            Fall::Label(key) => match self.by_label.iter_mut().find(|(other, _)| *other == key) {
                Some((_, count)) => *count += 1,
                None => self.by_label.push((key, 1)),
            },
        }
    }
}

/// The offerings whose machines would give the class its devices; `None` if it wants none anywhere.
pub(crate) fn with_devices(
    packing: &Packing<'_>,
    rank: PoolRank,
    table: &PoolTable<'_>,
    class: ClassId,
) -> Option<IdSet<OfferingId>> {
    packing.problem.classes[class].devices.as_ref()?;
    let mut given = IdSet::with_len(table.catalogue.offerings.len());
    for alternative in &table.by_class[class] {
        let request = DeviceRequest { spot: Spot::New(rank), class, variant: alternative.variant, copies: 1 };
        match packing.ways(request).so_far() {
            None => given.extend(alternative.offerings.iter()),
            Some(ways) => {
                for way in &ways.ways {
                    given.extend(way.offerings.iter().filter(|&offering| alternative.offerings.contains(offering)));
                }
            }
        }
    }
    Some(given)
}

/// What is the matter with the devices of some types.
fn troubles_of(
    (packing, brought): (&Packing<'_>, Option<&DeviceState>),
    rank: PoolRank,
    table: &PoolTable<'_>,
    class: ClassId,
    types: &[TypeId],
) -> Vec<(Arc<str>, usize)> {
    let problem = packing.problem;
    let devices = brought.or(packing.state.devices.as_ref());
    let (Some(devices), Some(of_snapshot)) = (devices, &problem.snapshot.devices) else {
        return Vec::new();
    };
    let mut troubles = Troubles::default();
    let mut variants: Vec<usize> = table.by_class[class].iter().map(|alternative| alternative.variant).collect();
    variants.sort_unstable();
    variants.dedup();
    for variant in variants {
        for trouble in devices.refusals(packing.asking_alone(), Spot::New(rank), class, variant) {
            let has_shape =
                |of: &&TypeId| of_snapshot.shape(table.id, **of).is_some_and(|shape| trouble.shapes.contains(shape));
            let count = types.iter().filter(has_shape).count();
            if count > 0 {
                troubles.add(&trouble, count);
            }
        }
    }
    troubles.nearest_first()
}

/// Offerings that are asked why they hold no pod of a class.
struct Asked<'a, 's> {
    packing: &'a Packing<'s>,
    class: ClassId,
    rank: PoolRank,
    table: &'a PoolTable<'s>,
    term: &'a Term,
    given: Option<&'a IdSet<OfferingId>>,
}

impl Asked<'_, '_> {
    /// The reservation that the machine would need and other machines of the plan use up.
    fn used_up(&self, offering: OfferingId) -> Option<ValueId> {
        let offering = &self.table.catalogue.offerings[offering];
        let reservation = offering.reservation.as_ref().filter(|_| offering.launchable())?;
        self.packing.state.uses_up(reservation.id).then_some(reservation.id)
    }

    fn is_closed_by_daemon(&self, offering: OfferingId) -> bool {
        self.table.daemon_takes_port(offering, &self.packing.problem.classes[self.class])
    }

    /// The latest rule that an offering of one type reaches before it falls.
    fn furthest(&self, offerings: &[OfferingId], shortages: &mut Shortages, names: &Interner) -> Fall {
        let table = self.table;
        let mut furthest = Fall::NodePool;
        let mut rank = 0;
        for &id in offerings {
            if !table.allows(id, names) {
                continue;
            }
            let mut wanted = self.term.requirements.iter_by_name(names);
            let conflict = wanted.position(|wanted| !table.can_have(Some(id), wanted.key, &wanted.values, names));
            let footprint = Footprint::on_machine(self.packing, (self.rank, table), self.class, id);
            let (fall, reached) = if let Some(position) = conflict {
                let key = self.term.requirements.iter_by_name(names).nth(position).map(|wanted| wanted.key);
                (key.map_or(Fall::NodePool, Fall::Label), 1 + position)
            } else if !footprint.fits_in(table.net(id)) {
                shortages.add(&footprint, table.net(id), None);
                (Fall::Resources, usize::MAX - 4)
            } else if self.is_closed_by_daemon(id) {
                (Fall::HostPort, usize::MAX - 3)
            } else if self.given.is_some_and(|given| table.members.contains(id) && !given.contains(id)) {
                (Fall::Devices, usize::MAX - 2)
            } else if self.used_up(id).is_none() {
                (Fall::Offering, usize::MAX - 1)
            } else {
                (Fall::Reservation, usize::MAX)
            };
            if reached > rank {
                (furthest, rank) = (fall, reached);
            }
        }
        furthest
    }
}

fn limits_or_min_values(
    packing: &Packing<'_>,
    rank: PoolRank,
    table: &PoolTable<'_>,
    class: ClassId,
) -> Option<Reason> {
    let mut holding: IdSet<OfferingId> = IdSet::with_len(table.catalogue.offerings.len());
    for alternative in &table.by_class[class] {
        let fits = |offering: &OfferingId| {
            Footprint::on_machine(packing, (rank, table), class, *offering).fits_in(table.net(*offering))
        };
        holding.extend(alternative.offerings.iter().filter(fits));
    }
    if let Some(given) = with_devices(packing, rank, table, class) {
        holding.intersect_with(&given);
    }
    if holding.is_empty() {
        return None;
    }
    if let Some(min) = table.min_values.iter().find(|min| min.left(&holding) < min.wanted) {
        return Some(Reason::MinValues {
            node_pool: table.pool.name.clone(),
            key: min.key,
            wanted: u32::try_from(min.wanted).unwrap_or(u32::MAX),
            left: u32::try_from(min.left(&holding)).unwrap_or(u32::MAX),
        });
    }
    let needed = if table.min_values.is_empty() {
        table.limits.bound(&holding)
    } else {
        table.limits.most(&table.limits.least_until(&holding, |kept| table.has_min_values(kept)))
    };
    let mut used = packing.state.charges(rank).clone();
    crate::simulation::compile::limits::add(&mut used, &needed);
    let entries = table.limits.entries().iter().zip(&needed).zip(packing.state.charges(rank));
    let (entry, needed, charged) = entries
        .map(|((entry, needed), charged)| (entry, *needed, *charged))
        .find(|(entry, needed, charged)| needed.saturating_add(*charged) > entry.remaining)?;
    Some(Reason::LimitExceeded {
        node_pool: table.pool.name.clone(),
        limit: entry.limit,
        total: entry.total,
        remaining: entry.remaining.saturating_sub(charged),
        needed,
    })
}
