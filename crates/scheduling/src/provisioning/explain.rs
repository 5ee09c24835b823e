//! Why a class has no place: made after packing, for refused classes only. Rules are asked in a fixed order (taints,
//! labels by name, resources, offerings, minValues, limits), and each node, pool or type counts at the first it fails.

use std::sync::Arc;

use model::{
    IdSet, Interner, KeyId, ResourceId, ResourceVec, ValueSet,
    requirement::{Incompatible, IncompatibleKind},
};

use super::{
    affinity::{self, Term, accepts_unknown},
    classes::{ClassId, PodClass},
    pools::{PoolRank, PoolTable},
    problem::Problem,
    state::{BinId, State},
    topology::{Checking, Involvement, Kind, Place, Scope},
};
use crate::{
    catalogue::{OfferingId, TypeId},
    plan::Verdict,
    reason::{ExistingNodes, NoInstanceType, Reason, Shortage},
};

/// All reasons of one class, against the state in which it was refused.
pub(crate) fn reasons(
    problem: &Problem<'_>,
    state: &State,
    class: ClassId,
    verdict: Verdict,
    steps: u64,
) -> Arc<[Reason]> {
    let pods = &problem.classes[class];
    if let Some(unsupported) = &pods.refused {
        return Arc::from([Reason::Unsupported(unsupported.clone())]);
    }
    let mut reasons = Vec::new();
    if verdict == Verdict::OutOfBudget {
        reasons.push(Reason::OutOfBudget { steps });
    }
    if !problem.snapshot.nodes.is_empty() {
        let mut rules = Vec::new();
        reasons.push(Reason::ExistingNodes(existing_nodes(problem, state, class, &mut rules)));
        if !rules.is_empty() {
            reasons.push(Reason::PodRules { node_pool: None, rules });
        }
    }
    if problem.snapshot.node_pools.is_empty() {
        reasons.push(Reason::NoNodePool);
    }
    for (rank, table) in problem.pools.iter_enumerated() {
        reasons.extend(pool(problem, state, rank, table, class));
    }
    let mut unusable: Vec<_> = problem
        .snapshot
        .node_pools
        .iter()
        .filter_map(|pool| Some((pool.name.clone(), Arc::clone(pool.usable.as_ref().err()?))))
        .collect();
    unusable.sort();
    reasons.extend(unusable.into_iter().map(|(node_pool, why)| Reason::NodePoolNotUsable { node_pool, why }));
    reasons.into()
}

fn existing_nodes(problem: &Problem<'_>, state: &State, class: ClassId, rules: &mut Vec<Arc<str>>) -> ExistingNodes {
    let names = problem.names();
    let pods = &problem.classes[class];
    let mut tally = ExistingNodes { nodes: problem.snapshot.nodes.len(), ..ExistingNodes::default() };
    let mut shortages = Shortages::default();
    for (id, node) in problem.snapshot.nodes.iter_enumerated() {
        if node.excluded.is_some() {
            tally.excluded += 1;
        } else if affinity::untolerated(&node.taints, &pods.shape.tolerations, names).is_some() {
            tally.by_taint += 1;
        } else if !pods.terms.iter().any(|term| term.accepts(node, names)) {
            tally.by_label += 1;
        } else if !problem.node_accepts(class, id) {
            tally.by_volumes += 1;
        } else if !pods.involved.is_empty() && pods.shape.requests.fits_in(&state.room[id]) {
            tally.by_rules += 1;
            closing(problem, state, pods, |mine, _| problem.topology.place_of_node(mine.group, id), rules);
        } else {
            tally.by_resources += 1;
            shortages.add(&pods.shape.requests, &state.room[id]);
        }
    }
    tally.nearest = shortages.nearest(names);
    tally
}

/// Adds the rules by which a class may not be at a place.
fn closing(
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

/// Rules that close the machines of a pool that would hold a copy of the class.
fn closed_machines(problem: &Problem<'_>, state: &State, table: &PoolTable<'_>, class: ClassId) -> Vec<Arc<str>> {
    let pods = &problem.classes[class];
    let mut rules = Vec::new();
    for alternative in &table.by_class[class] {
        if alternative.offerings.iter().any(|offering| pods.shape.requests.fits_in(&table.net[offering])) {
            let place = |mine: &Involvement, position: usize| match alternative.places.get(position) {
                Some(Place::OwnHost) => {
                    Place::Domain(problem.topology.groups[mine.group].host_of(BinId(state.bins.len())))
                }
                Some(place) => *place,
                None => Place::Outside,
            };
            closing(problem, state, pods, place, &mut rules);
        }
    }
    if table.by_class[class].is_empty() {
        let needs_label = |mine: &&Involvement| {
            let group = &problem.topology.groups[mine.group];
            mine.owner && group.kind != Kind::AntiAffinity && group.scope != Scope::Host
        };
        rules.extend(
            pods.involved
                .iter()
                .filter(needs_label)
                .map(|mine| -> Arc<str> { problem.topology.groups[mine.group].describe(problem.names()).into() }),
        );
    }
    rules
}

fn pool(problem: &Problem<'_>, state: &State, rank: PoolRank, table: &PoolTable<'_>, class: ClassId) -> Option<Reason> {
    let names = problem.names();
    let pods = &problem.classes[class];
    let node_pool = || table.pool.name.clone();
    if let Some(taint) = affinity::untolerated(&table.pool.taints, &pods.shape.tolerations, names) {
        return Some(Reason::NodePoolTaint { node_pool: node_pool(), taint });
    }
    // Of several terms the first one that gets as far as resources is told, else the first.
    let mut told: Option<Reason> = None;
    for term in &pods.terms {
        match label_conflict(table, term, names) {
            Some(reason) => told = told.or(Some(reason)),
            None => return Some(machine(problem, state, rank, table, pods, class, term)),
        }
    }
    told.or_else(|| Some(no_term(table)))
}

/// A required affinity without any usable term.
fn no_term(table: &PoolTable<'_>) -> Reason {
    Reason::NoInstanceType(Box::new(NoInstanceType {
        node_pool: table.pool.name.clone(),
        types: table.catalogue.types.len(),
        by_node_pool: 0,
        by_label: Vec::new(),
        by_resources: 0,
        by_offering: 0,
        nearest: None,
    }))
}

/// The first label, by name, on which the pool and the term can't agree whatever the instance type.
fn label_conflict(table: &PoolTable<'_>, term: &Term, names: &Interner) -> Option<Reason> {
    let node_pool = || table.pool.name.clone();
    if term.node_name.as_ref().is_some_and(|wanted| !accepts_unknown(wanted)) {
        let key = names.find_key(api::labels::HOSTNAME)?;
        return Some(Reason::LabelNotDefined {
            node_pool: node_pool(),
            key,
            wanted: term.node_name.clone()?,
            typo_of: None,
        });
    }
    for wanted in term.requirements.iter_by_name(names) {
        let key = wanted.key;
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
    if !pods.involved.is_empty() {
        let rules = closed_machines(problem, state, table, class);
        if !rules.is_empty() {
            return Reason::PodRules { node_pool: Some(table.pool.name.clone()), rules };
        }
    }
    let catalogue = table.catalogue;
    let mut rules = Rules::default();
    let mut shortages = Shortages::default();
    for instance_type in catalogue.types.ids() {
        let offerings: Vec<OfferingId> = catalogue.offerings_of(instance_type).collect();
        rules.count(instance_type, furthest(table, pods, term, &offerings, &mut shortages, names));
    }
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
        by_offering: rules.by_offering,
        nearest: shortages.nearest(names),
    }))
}

/// The rule at which an offering falls, in the order in which they are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fall {
    NodePool,
    Label(KeyId),
    Resources,
    Offering,
}

#[derive(Default)]
struct Rules {
    by_node_pool: usize,
    by_label: Vec<(KeyId, usize)>,
    by_resources: usize,
    by_offering: usize,
}

impl Rules {
    fn count(&mut self, _instance_type: TypeId, fall: Fall) {
        match fall {
            Fall::NodePool => self.by_node_pool += 1,
            Fall::Resources => self.by_resources += 1,
            Fall::Offering => self.by_offering += 1,
            Fall::Label(key) => match self.by_label.iter_mut().find(|(other, _)| *other == key) {
                Some((_, count)) => *count += 1,
                None => self.by_label.push((key, 1)),
            },
        }
    }
}

/// The latest rule that an offering of one type reaches before it falls.
fn furthest(
    table: &PoolTable<'_>,
    pods: &PodClass,
    term: &Term,
    offerings: &[OfferingId],
    shortages: &mut Shortages,
    names: &Interner,
) -> Fall {
    let mut furthest = Fall::NodePool;
    let mut rank = 0;
    for &id in offerings {
        if !table.allows(id, names) {
            continue;
        }
        let conflict = term
            .requirements
            .iter_by_name(names)
            .position(|wanted| !table.can_have(Some(id), wanted.key, &wanted.values, names));
        let (fall, reached) = if let Some(position) = conflict {
            let key = term.requirements.iter_by_name(names).nth(position).map(|wanted| wanted.key);
            (key.map_or(Fall::NodePool, Fall::Label), 1 + position)
        } else if !pods.shape.requests.fits_in(&table.net[id]) {
            shortages.add(&pods.shape.requests, &table.net[id]);
            (Fall::Resources, usize::MAX - 1)
        } else {
            (Fall::Offering, usize::MAX)
        };
        if reached > rank {
            (furthest, rank) = (fall, reached);
        }
    }
    furthest
}

fn limits_or_min_values(
    problem: &Problem<'_>,
    state: &State,
    rank: PoolRank,
    table: &PoolTable<'_>,
    class: ClassId,
) -> Option<Reason> {
    let pods = &problem.classes[class];
    let mut holding: IdSet<OfferingId> = IdSet::with_len(table.catalogue.offerings.len());
    for alternative in &table.by_class[class] {
        let fits = |offering: &OfferingId| pods.shape.requests.fits_in(&table.net[*offering]);
        holding.extend(alternative.offerings.iter().filter(fits));
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
