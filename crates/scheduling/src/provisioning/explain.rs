//! Why a class has no place: made after packing, for refused classes only. Rules are asked in a fixed order (taints,
//! labels by name, resources, devices, offerings, minValues, limits), and each node, pool or type counts at the first it fails.
//! What its claims ask for is told once more over all NodePools, by request and step of the allocator (`claims`).

mod claims;
mod contradiction;

use std::sync::Arc;

use model::{
    IdSet, Interner, KeyId, Requirement, ResourceId, ResourceVec, ValueId, ValueSet,
    requirement::{Incompatible, IncompatibleKind},
};

use super::{
    affinity::{self, Term, accepts_unknown},
    classes::{ClassId, PodClass},
    devices::{Spot, Trouble},
    fill,
    pools::{Alternative, PoolRank, PoolTable},
    problem::Problem,
    remedies, repair,
    state::{BinId, State},
    topology::{Checking, Involvement, Kind, Place, Scope},
};
use crate::{
    catalogue::{OfferingId, TypeId},
    plan::Verdict,
    reason::{ExistingNodes, NoInstanceType, Reason, Shortage},
    snapshot::NodeId,
};

/// All reasons of one class, against the state in which it was refused.
pub(crate) fn reasons(
    problem: &Problem<'_>,
    state: &State,
    class: ClassId,
    verdict: Verdict,
    steps: u64,
    survey: &mut remedies::Survey,
) -> Arc<[Reason]> {
    let pods = &problem.classes[class];
    if let Some(obstacle) = &pods.refused {
        return Arc::from([obstacle.reason()]);
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
        reasons.push(match devices_undecided(problem, state, class) {
            Some(steps) => Reason::DevicesOutOfBudget { steps },
            None if repair::may_be_brought(problem, class) => Reason::OthersMayBringDevices { steps },
            None if repair::is_too_large(&repair::with_one_more(state, class)) => {
                Reason::NotSearched { most: repair::MAX_COPIES }
            }
            None => Reason::OutOfBudget { steps },
        });
    }
    if !problem.snapshot.nodes.is_empty() {
        let mut rules = Vec::new();
        reasons.push(Reason::ExistingNodes(existing_nodes(problem, state, class, &mut rules)));
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
    for (rank, table) in problem.pools.iter_enumerated() {
        let (reason, stage) = pool(problem, state, rank, table, class);
        reasons.extend(reason);
        stages.extend(stage);
    }
    if pods.devices.is_some() && !stages.is_empty() {
        let requests = claims::of_class(problem, state, class, &stages);
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
        let given = |rank: PoolRank, table: &PoolTable<'_>| with_devices(problem, state, rank, table, class);
        reasons.extend(remedies::Asked { problem, state, class, reasons: &reasons }.remedies(given, survey));
    }
    reasons.into()
}

/// Steps that the allocation of devices took, if it left the class undecided somewhere.
fn devices_undecided(problem: &Problem<'_>, state: &State, class: ClassId) -> Option<u64> {
    let devices = problem.devices.as_ref().filter(|_| problem.classes[class].devices.is_some())?;
    devices.take_undecided();
    for &node in problem.node_order.iter().filter(|&&node| problem.node_accepts(class, node)) {
        state.ways(problem, Spot::Node(node), class, problem.variant_on(class, node), 1);
    }
    for (pool, table) in problem.pools.iter_enumerated() {
        for alternative in &table.by_class[class] {
            state.ways(problem, Spot::New(pool), class, alternative.variant, 1);
        }
    }
    let taken = problem.snapshot.options.device_steps.saturating_sub(devices.steps_left());
    devices.take_undecided().then_some(taken)
}

fn existing_nodes(problem: &Problem<'_>, state: &State, class: ClassId, rules: &mut Vec<Arc<str>>) -> ExistingNodes {
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
        } else if let Some(trouble) = without_devices(problem, state, class, id) {
            tally.by_devices += 1;
            troubles.add(&trouble, 1);
        } else if !pods.involved.is_empty() && state.requests_on(problem, id, class).fits_in(&state.room[id]) {
            tally.by_rules += 1;
            closing(problem, state, pods, |mine, _| problem.topology.place_of_node(mine.group, id), rules);
        } else {
            tally.by_resources += 1;
            shortages.add(&state.requests_on(problem, id, class), &state.room[id]);
        }
    }
    tally.devices = troubles.nearest_first().into_iter().next().map(|(why, _)| why);
    tally.nearest = shortages.nearest(names);
    tally
}

/// Why a node with room gives the class no devices, if that is so.
fn without_devices(problem: &Problem<'_>, state: &State, class: ClassId, node: NodeId) -> Option<Trouble> {
    let devices = state.devices.as_ref().filter(|_| problem.classes[class].devices.is_some())?;
    if !state.requests_on(problem, node, class).fits_in(&state.room[node]) {
        return None;
    }
    let variant = problem.variant_on(class, node);
    let ways = state.ways(problem, Spot::Node(node), class, variant, 1)?;
    if ways.most() > 0 {
        return None;
    }
    devices.refusals(problem, Spot::Node(node), class, variant).into_iter().next()
}

/// Troubles with devices met on the way: why, how near, and how many candidates.
#[derive(Default)]
struct Troubles(Vec<(Arc<str>, u64, usize)>);

impl Troubles {
    fn add(&mut self, trouble: &Trouble, count: usize) {
        match self.0.iter_mut().find(|(known, ..)| *known == trouble.why) {
            Some((.., known)) => *known += count,
            None => self.0.push((Arc::clone(&trouble.why), trouble.usable, count)),
        }
    }

    /// Those with most devices to use first, then those of most candidates, then by text.
    fn nearest_first(mut self) -> Vec<(Arc<str>, usize)> {
        self.0.sort_by(|(a, near, many), (b, nearer, more)| (nearer, more, a).cmp(&(near, many, b)));
        self.0.into_iter().map(|(why, _, count)| (why, count)).collect()
    }
}

/// Adds the rules by which a class may not be at a place.
pub(super) fn closing(
    problem: &Problem<'_>,
    state: &State,
    pods: &PodClass,
    place: impl Fn(&Involvement, usize) -> Place,
    rules: &mut Vec<Arc<str>>,
) {
    let mut add = |mine: &Involvement| {
        let rule: Arc<str> = problem.topology.groups[mine.group].describe(problem.names()).into();
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    };
    for (position, mine) in pods.involved.iter().enumerate() {
        let (group, counts) = (&problem.topology.groups[mine.group], &state.counts[mine.group]);
        let at = place(mine, position);
        let is_near = || match at {
            Place::Domain(domain) => counts.matched(domain) > 0,
            Place::OwnHost | Place::Outside | Place::Unknown => false,
        };
        let is_far = mine.owner && group.kind == Kind::Affinity && !is_near();
        if is_far || group.room(counts, mine.owner, mine.matched, at, Checking::Stepwise, 1) == 0 {
            add(mine);
        }
    }
}

/// Rules that close new machines in some ways to be on them.
pub(super) fn closing_ways<'w>(
    problem: &Problem<'_>,
    state: &State,
    pods: &PodClass,
    ways: impl IntoIterator<Item = &'w Alternative>,
) -> Vec<Arc<str>> {
    let mut rules = Vec::new();
    for way in ways {
        let place = |mine: &Involvement, position: usize| match way.places.get(position) {
            Some(Place::OwnHost) => Place::Domain(problem.topology.groups[mine.group].host_of(BinId(state.bins.len()))),
            Some(place) => *place,
            None => Place::Outside,
        };
        closing(problem, state, pods, place, &mut rules);
    }
    rules
}

/// Rules that close the machines of a pool that would hold a copy of the class.
fn closed_machines(problem: &Problem<'_>, state: &State, table: &PoolTable<'_>, class: ClassId) -> Vec<Arc<str>> {
    let pods = &problem.classes[class];
    let holds = |way: &&Alternative| {
        let requests = problem.requests_alone(class, way.variant);
        way.offerings.iter().any(|offering| requests.fits_in(table.net(offering)))
    };
    let mut rules = closing_ways(problem, state, pods, table.by_class[class].iter().filter(holds));
    if let Some(contrary) = fill::keeps_itself_out(problem, state, class) {
        let contrary: Arc<str> = problem.topology.groups[contrary].describe(problem.names()).into();
        if !rules.contains(&contrary) {
            rules.push(contrary);
        }
    }
    rules
}

/// Labels that rules of the class go by and that no machine of the pool will have, with the rule.
pub(super) fn label_for_rule<'a>(
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
    problem: &'p Problem<'s>,
    state: &State,
    rank: PoolRank,
    table: &'p PoolTable<'s>,
    class: ClassId,
) -> (Option<Reason>, Option<PoolStage<'p, 's>>) {
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
                let reason = machine(problem, state, rank, table, pods, class, term);
                let given = with_devices(problem, state, rank, table, class);
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
pub(super) fn names_node(table: &PoolTable<'_>, wanted: &Requirement) -> bool {
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
    problem: &Problem<'_>,
    state: &State,
    rank: PoolRank,
    table: &PoolTable<'_>,
    pods: &PodClass,
    class: ClassId,
    term: &Term,
) -> Reason {
    let names = problem.names();
    if let Some(reason) = limits_or_min_values(problem, state, rank, table, class) {
        return reason;
    }
    if let Some((key, rule)) = label_for_rule(problem, table, pods).next() {
        return Reason::LabelForRule { node_pool: table.pool.name.clone(), key, rule };
    }
    if !pods.involved.is_empty() {
        let rules = closed_machines(problem, state, table, class);
        if !rules.is_empty() {
            return Reason::PodRules { node_pool: Some(table.pool.name.clone()), rules };
        }
    }
    let catalogue = table.catalogue;
    let given = with_devices(problem, state, rank, table, class);
    let mut rules = Rules::default();
    let mut shortages = Shortages::default();
    let (mut port, mut reservations) = (None, Vec::new());
    for instance_type in catalogue.types.ids() {
        let offerings: Vec<OfferingId> = catalogue.offerings_of(instance_type).collect();
        let asked = Asked { problem, state, class, table, term, given: given.as_ref() };
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
    let devices = troubles_of(problem, state, rank, table, class, &rules.without_devices);
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
pub(super) fn with_devices(
    problem: &Problem<'_>,
    state: &State,
    rank: PoolRank,
    table: &PoolTable<'_>,
    class: ClassId,
) -> Option<IdSet<OfferingId>> {
    problem.classes[class].devices.as_ref()?;
    let mut given = IdSet::with_len(table.catalogue.offerings.len());
    for alternative in &table.by_class[class] {
        match state.ways(problem, Spot::New(rank), class, alternative.variant, 1) {
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
    problem: &Problem<'_>,
    state: &State,
    rank: PoolRank,
    table: &PoolTable<'_>,
    class: ClassId,
    types: &[TypeId],
) -> Vec<(Arc<str>, usize)> {
    let (Some(devices), Some(of_snapshot)) = (&state.devices, &problem.snapshot.devices) else { return Vec::new() };
    let mut troubles = Troubles::default();
    let mut variants: Vec<usize> = table.by_class[class].iter().map(|alternative| alternative.variant).collect();
    variants.sort_unstable();
    variants.dedup();
    for variant in variants {
        for trouble in devices.refusals(problem, Spot::New(rank), class, variant) {
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
    problem: &'a Problem<'s>,
    state: &'a State,
    class: ClassId,
    table: &'a PoolTable<'s>,
    term: &'a Term,
    given: Option<&'a IdSet<OfferingId>>,
}

impl Asked<'_, '_> {
    /// The reservation that the machine would need and other machines of the plan use up.
    fn used_up(&self, offering: OfferingId) -> Option<ValueId> {
        let offering = &self.table.catalogue.offerings[offering];
        let reservation = offering.reservation.as_ref().filter(|_| offering.launchable())?;
        self.state.uses_up(reservation.id).then_some(reservation.id)
    }

    fn is_closed_by_daemon(&self, offering: OfferingId) -> bool {
        self.table.daemon_takes_port(offering, &self.problem.classes[self.class])
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
            let variant = self.problem.variant_at(self.class, &table.catalogue.offerings[id].allocatable);
            let requests = self.problem.requests_alone(self.class, variant);
            let (fall, reached) = if let Some(position) = conflict {
                let key = self.term.requirements.iter_by_name(names).nth(position).map(|wanted| wanted.key);
                (key.map_or(Fall::NodePool, Fall::Label), 1 + position)
            } else if !requests.fits_in(table.net(id)) {
                shortages.add(&requests, table.net(id));
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
    problem: &Problem<'_>,
    state: &State,
    rank: PoolRank,
    table: &PoolTable<'_>,
    class: ClassId,
) -> Option<Reason> {
    let mut holding: IdSet<OfferingId> = IdSet::with_len(table.catalogue.offerings.len());
    for alternative in &table.by_class[class] {
        let requests = problem.requests_alone(class, alternative.variant);
        let fits = |offering: &OfferingId| requests.fits_in(table.net(*offering));
        holding.extend(alternative.offerings.iter().filter(fits));
    }
    if let Some(given) = with_devices(problem, state, rank, table, class) {
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
    let mut used = state.charges(rank).clone();
    super::limits::add(&mut used, &needed);
    let entries = table.limits.entries().iter().zip(&needed).zip(state.charges(rank));
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

/// Shortages met on the way, to tell the smallest.
#[derive(Default)]
struct Shortages {
    met: Vec<(ResourceId, i64, i64, usize)>,
}

impl Shortages {
    fn add(&mut self, wanted: &ResourceVec, there: &ResourceVec) {
        for resource in wanted.exceeding(there) {
            let (amount, most) = (wanted.get(resource), there.get(resource));
            match self.met.iter_mut().find(|(other, ..)| *other == resource) {
                Some((_, _, best, count)) => {
                    *best = (*best).max(most);
                    *count += 1;
                }
                None => self.met.push((resource, amount, most, 1)),
            }
        }
    }

    /// The resource that most candidates lack; the first by name of several.
    fn nearest(&self, names: &Interner) -> Option<Shortage> {
        let mut met: Vec<_> = self.met.iter().collect();
        met.sort_by_key(|(resource, _, _, count)| (std::cmp::Reverse(*count), names.resource_name(*resource)));
        met.first().map(|(resource, wanted, most, _)| Shortage {
            resource: *resource,
            wanted: *wanted,
            most: (*most).max(0),
        })
    }
}
