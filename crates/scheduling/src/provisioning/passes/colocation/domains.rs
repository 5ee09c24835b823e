//! Which domain of a label pods go to that have to be in one.
//!
//! A plan puts the whole group where its first pod finds room or the cheapest machine, and that may be where machines
//! for the others are dear, or what devices they want is. So the linear relaxation is asked for each value of the label
//! what the groups are worth if only the offerings with that value are for sale. Plans open no machines for them in
//! domains that are dear to them, unless a node there has room for a pod of theirs. Where they still cost much more
//! than their worth, each is held to the value where it is worth least, and it is planned once more.
//!
//! Left out are pods that are spread as well: which domains count for that depends on what they are held to.

use std::collections::{BTreeMap, BTreeSet};

use model::{IdSet, IdVec, KeyId, ValueId, ValueSet, collections::FastSet};

use super::{Closed, Group, places};
use crate::bound::worth_among;
use crate::catalogue::OfferingId;
use crate::plan::Plan;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::pools::PoolRank;
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::{Fate, Request, held_to};
use crate::simulation::packing::plan_run::PlanRun;
use crate::simulation::topology::{DomainId, GroupId};
use crate::snapshot::{NodeLabels, PodId};
use crate::tuning::{DEAR_DOMAIN, DOMAINS_COMPARED};

/// Groups that may be held to values of their label, with what they cost at each.
#[derive(Default)]
pub(super) struct Domains(Vec<Movable>);

struct Movable {
    group: Group,
    key: KeyId,
    /// The affinity.
    rule: GroupId,
    classes: Vec<ClassId>,
    /// What its pods are worth at each value of the label, in nano-dollars per hour; `None` where one has no place.
    prices: Vec<(ValueId, Option<i128>)>,
}

/// The offerings for sale, by pool.
type Offers = IdVec<PoolRank, IdSet<OfferingId>>;

impl Domains {
    pub(super) fn compare(problem: &Problem<'_>, closed: &[Closed]) -> Self {
        let mut movable = movable(problem, closed);
        let keys: BTreeSet<KeyId> = movable.iter().map(|movable| movable.key).collect();
        for key in keys {
            let mut of_key: Vec<&mut Movable> = movable.iter_mut().filter(|movable| movable.key == key).collect();
            let offers = offers(problem, key);
            if offers.len() <= DOMAINS_COMPARED {
                add_prices(problem, &mut of_key, &offers);
            }
        }
        movable.retain(|movable| !movable.prices.is_empty());
        Self(movable)
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &Group> + Clone {
        self.0.iter().map(|movable| &movable.group)
    }

    /// The domains that are dear to groups, and have no room for a pod of theirs.
    pub(super) fn dear(&self, problem: &Problem<'_>) -> Vec<(GroupId, IdSet<DomainId>)> {
        let of_group = |movable: &Movable| {
            let cheapest = movable.prices.iter().filter_map(|(_, price)| *price).min()?;
            let most = cheapest + cheapest / DEAR_DOMAIN;
            let is_dear = |value: ValueId| {
                let mut of_value = movable.prices.iter().filter(|(known, _)| *known == value);
                of_value.all(|(_, price)| price.is_none_or(|price| price > most)) && !movable.has_room(problem, value)
            };
            let values = problem.topology.groups[movable.rule].values();
            let dear: IdSet<DomainId> =
                values.iter_enumerated().filter(|(_, it)| is_dear(**it)).map(|it| it.0).collect();
            (!dear.is_empty()).then_some((movable.rule, dear))
        };
        self.0.iter().filter_map(of_group).collect()
    }

    /// The request with each group held to where it costs least. `None` if that is where the plan has all of them, or
    /// if it is not known.
    pub(super) fn cheaper(&self, request: &Request<'_>, plan: &Plan) -> Option<Request<'static>> {
        let snapshot = &*request.snapshot;
        let places = places(snapshot, plan);
        let mut fates: Vec<(PodId, Fate)> = Vec::new();
        for Movable { group, key, prices, .. } in &self.0 {
            let first = group.members.first().and_then(|pod| places.get(pod));
            let now = first.and_then(|place| place.value(*key));
            // Of several that cost the same the one where the plan has it, or else the first.
            let priced = prices.iter().filter_map(|(value, price)| Some(((*price)?, *value)));
            let Some((_, value)) = priced.min_by_key(|(price, value)| (*price, Some(*value) != now)) else { continue };
            if Some(value) != now {
                fates.extend(held_to(snapshot, &group.members, *key, value));
            }
        }
        (!fates.is_empty()).then(|| request.with(fates))
    }
}

impl Movable {
    /// Whether a node that has the value, or may have it, has room for one of the pods.
    fn has_room(&self, problem: &Problem<'_>, value: ValueId) -> bool {
        let has_value = |labels: &NodeLabels| match labels {
            NodeLabels::Known(labels) => labels.get(self.key) == Some(value),
            NodeLabels::Promised(promised) => {
                promised.get(self.key).is_none_or(|known| known.values.contains(Some(value), problem.names()))
            }
        };
        let nodes =
            || problem.node_order.iter().copied().filter(|&node| has_value(&problem.snapshot.nodes[node].labels));
        self.classes.iter().any(|&class| {
            let least = problem.classes[class].least_requests();
            nodes().any(|node| problem.node_accepts(class, node) && least.fits_in(&problem.room[node]))
        })
    }
}

/// The groups over labels whose pods no other rule couples, and that share no pods.
fn movable(problem: &Problem<'_>, closed: &[Closed]) -> Vec<Movable> {
    let is_free = |class: ClassId| {
        let class = &problem.classes[class];
        class.shape.scheduling_group.is_none()
            && class.shape.hard_spread().next().is_none()
            && class.members.iter().all(|&pod| problem.snapshot.pods[pod].planned_on.is_none())
    };
    let mut held: FastSet<ClassId> = FastSet::default();
    let movable = |closed: &Closed| {
        let key = closed.key.filter(|_| closed.classes.iter().all(|&class| is_free(class)))?;
        let group = closed.group(problem)?;
        // Of the groups that share pods the first: two could be held to values that exclude each other.
        let is_apart = !closed.classes.iter().any(|class| held.contains(class));
        held.extend(&closed.classes);
        is_apart.then(|| Movable { group, key, rule: closed.rule, classes: closed.classes.clone(), prices: Vec::new() })
    };
    closed.iter().filter_map(movable).collect()
}

/// What is for sale with each value of a label, which is the offerings' own, or the pool's where they have none; by the
/// value's name.
fn offers(problem: &Problem<'_>, key: KeyId) -> Vec<(ValueId, Offers)> {
    let mut offers: BTreeMap<ValueId, Offers> = BTreeMap::new();
    for (pool, table) in problem.pools.iter_enumerated() {
        let of_pool = table.pool.requirements.get(key).map(|of_pool| &of_pool.values);
        let mut add = |value: ValueId, offerings: &IdSet<OfferingId>| {
            if of_pool.is_none_or(|of_pool| of_pool.contains(Some(value), problem.names())) {
                let offers = offers.entry(value).or_insert_with(|| problem.pools.map(|_| IdSet::new()));
                offers[pool].union_with(offerings);
            }
        };
        let mut others = table.members.clone();
        for with_values in table.by_values(key) {
            with_values.values.iter().for_each(|&value| add(value, &with_values.offerings));
            others.difference_with(&with_values.offerings);
        }
        let of_others = of_pool.and_then(ValueSet::finite_values).filter(|_| !others.is_empty());
        of_others.into_iter().flatten().for_each(|&value| add(value, &others));
    }
    let mut offers: Vec<(ValueId, Offers)> = offers.into_iter().collect();
    offers.sort_by_key(|(value, _)| problem.names().value_name(*value));
    offers
}

/// Adds what the groups of a label cost at each value of it, unless the same is for sale at all of them.
fn add_prices(problem: &Problem<'_>, groups: &mut [&mut Movable], offers: &[(ValueId, Offers)]) {
    let classes = || groups.iter().flat_map(|group| group.classes.iter().copied());
    // Devices may be shared by a domain.
    let has_devices = classes().any(|class| problem.classes[class].devices.is_some());
    if !has_devices && offers.windows(2).all(|two| matches!(two, [(_, a), (_, b)] if are_alike(problem, a, b))) {
        return;
    }
    let mut copies: IdVec<ClassId, u32> = IdVec::filled(0, problem.classes.len());
    classes().for_each(|class| copies[class] = problem.classes[class].count());
    let worth = worth_among(problem, &PlanRun::before_machines(problem), &copies, offers.iter().map(|it| &it.1));
    let is_known_anywhere = |class: ClassId| worth.iter().any(|worth| worth[class] > 0);
    for group in groups {
        let at = |worth: &IdVec<ClassId, i64>| {
            let of_class = |&class: &ClassId| {
                // What is worth something elsewhere, and nothing here, no machine takes here.
                let has_place = worth[class] > 0 || !is_known_anywhere(class);
                has_place.then(|| i128::from(worth[class]) * i128::from(copies[class]))
            };
            group.classes.iter().map(of_class).sum()
        };
        group.prices = offers.iter().map(|it| it.0).zip(worth.iter().map(at)).collect();
    }
}

/// Whether as much is for sale at the same prices.
fn are_alike(problem: &Problem<'_>, a: &Offers, b: &Offers) -> bool {
    problem.pools.iter_enumerated().all(|(pool, table)| {
        let of = |offers: &Offers| {
            let offers = offers[pool].clone();
            table.by_price.iter().copied().filter(move |&offering| offers.contains(offering)).map(|offering| {
                let sold = &table.catalogue.offerings[offering];
                (sold.instance_type, sold.capacity_type, table.price(offering), &sold.allocatable, &sold.reservation)
            })
        };
        of(a).eq(of(b))
    })
}
