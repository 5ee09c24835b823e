//! Which domain of a label pods go to that have to be in one.
//!
//! A plan puts the whole group where its first pod finds room or the cheapest machine, and that may be where machines
//! for the others are dear, or what devices they want is. So where groups cost much more than their worth, the linear
//! relaxation is solved once for each value of the label, with nothing but the groups, held to it. Each group is held
//! to the value for which the worth of its pods is least, and it is planned once more.
//!
//! Left out are pods that are spread as well: which domains count for that depends on what they are held to.

use std::collections::BTreeSet;

use model::{IdVec, KeyId, ValueId, collections::FastSet};

use super::{Closed, Group, class_of_each, places};
use crate::bound::{Solved, relax};
use crate::plan::Plan;
use crate::provisioning::passes::group_domains::values_of;
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::{Fate, LeftOut, Request, held_to};
use crate::simulation::packing::plan_run::PlanRun;
use crate::snapshot::PodId;
use crate::tuning::DOMAINS_COMPARED;

/// The groups that may be held to a value of their label.
pub(super) fn movable(problem: &Problem<'_>, closed: &[Closed]) -> Vec<Group> {
    let may_be_held = |closed: &&Closed| {
        closed.key.is_some()
            && closed.classes.iter().map(|&class| &problem.classes[class]).all(|class| {
                class.shape.scheduling_group.is_none()
                    && class.shape.hard_spread().next().is_none()
                    && class.members.iter().all(|&pod| problem.snapshot.pods[pod].planned_on.is_none())
            })
    };
    let mut held: FastSet<PodId> = FastSet::default();
    let groups = closed.iter().filter(may_be_held).filter_map(|closed| closed.group(problem));
    // Of the groups that share pods the first: two could be held to values that exclude each other.
    let is_apart = |group: &Group| {
        let is_apart = !group.members.iter().any(|pod| held.contains(pod));
        held.extend(&group.members);
        is_apart
    };
    groups.filter(is_apart).collect()
}

/// The request with each group held to where it costs least. `None` if that is where the plan has all of them, or if it
/// is not known.
pub(super) fn cheaper(
    request: &Request<'_>,
    groups: &[Group],
    plan: &Plan,
    worth: impl Fn(PodId) -> i64,
) -> Option<Request<'static>> {
    let snapshot = &*request.snapshot;
    let places = places(snapshot, plan);
    let keys: BTreeSet<KeyId> = groups.iter().filter_map(|group| group.key).collect();
    let mut fates: Vec<(PodId, Fate)> = Vec::new();
    for key in keys {
        let groups: Vec<&Group> = groups.iter().filter(|group| group.key == Some(key)).collect();
        let values = values_of(snapshot, key);
        if values.len() > DOMAINS_COMPARED {
            continue;
        }
        let prices: Vec<(ValueId, Vec<Option<i128>>)> =
            values.into_iter().map(|value| (value, prices(request, &groups, key, value, &worth))).collect();
        for (index, group) in groups.iter().enumerate() {
            let of_group =
                |(value, prices): &(ValueId, Vec<Option<i128>>)| Some((prices.get(index).copied()??, *value));
            let first = group.members.first().and_then(|pod| places.get(pod));
            let now = first.and_then(|place| place.value(key));
            // Of several that cost the same the one where the plan has it, or else the first.
            let cheapest =
                prices.iter().filter_map(of_group).min_by_key(|(price, value)| (*price, Some(*value) != now));
            let Some((_, value)) = cheapest else { continue };
            if Some(value) != now {
                fates.extend(held_to(snapshot, &group.members, key, value));
            }
        }
    }
    (!fates.is_empty()).then(|| request.with(fates))
}

/// By group: what its pods are worth if nothing but such groups is planned, each held to a value of their label. `None`
/// for a group that has no place there.
fn prices(
    request: &Request<'_>,
    groups: &[&Group],
    key: KeyId,
    value: ValueId,
    anywhere: impl Fn(PodId) -> i64,
) -> Vec<Option<i128>> {
    let snapshot = &*request.snapshot;
    let members: FastSet<PodId> = groups.iter().flat_map(|group| group.members.iter().copied()).collect();
    let others = snapshot.pods.ids().filter(|pod| !members.contains(pod));
    let others = others.map(|pod| (pod, Fate::LeftOut(LeftOut::PartOfAnother)));
    let held = groups.iter().flat_map(|group| held_to(snapshot, &group.members, key, value));
    let held = request.with(others.chain(held)).compared();
    let problem = Problem::new(&held);
    let copies: IdVec<_, u32> =
        problem.classes.iter().map(|class| if class.is_refused() { 0 } else { class.count() }).collect();
    let worth = relax(&problem, &PlanRun::new(&problem), &copies, &Solved::default()).worth;
    let class_of = class_of_each(&problem);
    let of_pod = |pod: &PodId| {
        let here = class_of[*pod].and_then(|class| worth.try_get(class).copied()).unwrap_or(0);
        // What is worth something elsewhere, and nothing here, no machine takes here.
        (here > 0 || anywhere(*pod) == 0).then_some(i128::from(here))
    };
    groups.iter().map(|group| group.members.iter().map(of_pod).sum()).collect()
}
