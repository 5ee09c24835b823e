//! Pods that have to be together, planned as what that amounts to.
//!
//! Required pod affinity among pods that all ask for it, of which none runs yet, has one outcome: over hosts all of
//! them share one machine, over a label one domain. Class by class such pods are packed badly, since those that come
//! first fill machines on which the others have to have room later. So the plan is made once more with each group that
//! shares a host as one pod, which requests what they request together, and with each group that shares a domain held
//! to the one where the plan has it; neither is coupled by affinity then, and goes by worth like pods that nothing
//! couples. That plan is kept if it refuses fewer pods, or the same and is cheaper.
//!
//! No plan can do without one machine for all pods of a host, so the bound of the second plan holds for the first as
//! well.
//!
//! Left alone are groups that count other pods too, pods that other rules concern (over a label: that are spread), and
//! pods with volumes or claims. Which domain groups over a label go to is looked at before, of these too ([`domains`]).

mod domains;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{
    Id as _, IdVec, KeyId, Labels, PodShape, Requirements, ResourceVec, ValueId,
    collections::{FastMap, FastSet},
};

use self::domains::Domains;
use super::{Pass, Rest};
use crate::simulation::compile::classes::{ClassId, PodClass};
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::{Fate, LeftOut, Limit, Request, hold_to, reshaped};
use crate::simulation::topology::{GroupId, Kind, Scope};
use crate::tuning::COLOCATION_WORTH_TRYING;
use crate::{
    plan::{
        Plan, Refusal,
        rank::{Importance, PlanRank, refuses_no_more},
    },
    snapshot::{NodeLabels, PodId, Snapshot},
};

/// Makes a plan, and one or two in which groups are planned as what they amount to, and takes the best.
pub(crate) struct Colocation;

impl Pass for Colocation {
    fn plan(&self, request: &Request<'_>, rest: &mut Rest<'_>) -> Option<Plan> {
        // Mostly no pod has to be near to others, and then it need not be compiled which ones these are.
        if request.snapshot.pods.iter().all(|pending| pending.pod.shape.pod_affinity.required.is_empty()) {
            return rest.plan(request);
        }
        let mut problem = Problem::new(request);
        let closed = closed(&problem);
        if closed.is_empty() {
            return rest.plan_compiled(&problem);
        }
        let (domains, simple) = (Domains::compare(&problem, &closed), simple(&problem, &closed));
        problem.kept_out = domains.dear(&problem);
        match request.limit() {
            None => best(problem, &domains, simple, rest),
            Some(limit) => within(problem, &simple, limit, rest),
        }
    }
}

fn best(mut problem: Problem<'_>, domains: &Domains, mut groups: Vec<Group>, rest: &mut Rest<'_>) -> Option<Plan> {
    let (request, class_of) = (problem.request, problem.class_of_pods());
    let mut plan = rest.plan_compiled(&problem)?;
    let is_asked = |pod: PodId| class_of[pod].is_some_and(|class| !problem.classes[class].is_refused());
    if !problem.kept_out.is_empty() && plan.refusals.iter().any(|refusal| is_asked(refusal.pod)) {
        problem.kept_out.clear();
        plan = better(rest.plan_compiled(&problem)?, plan, Bounds::OfBoth, &class_of, &request.snapshot);
    }
    // With many instance types each problem takes some ten MiB, and plans for others follow.
    drop(problem);
    let worth = std::mem::take(&mut rest.planning.worth);
    let worth_of = |pod: PodId| class_of[pod].and_then(|class| worth.try_get(class).copied()).unwrap_or(0);
    if is_worth_trying(domains.groups(), &plan, worth_of)
        && let Some(elsewhere) = domains.cheaper(request, &plan)
        && let Some(other) = rest.plan(&elsewhere.compared())
    {
        plan = better(plan, other, Bounds::OfTheFirst, &class_of, &request.snapshot);
    }
    if plan.refusals.is_empty() && !is_worth_trying(groups.iter(), &plan, worth_of) {
        return Some(plan);
    }
    // A group for which no machine is large enough is better planned pod by pod, so the others are tried without it.
    for _ in 0..2 {
        // A label's value is one of several.
        let bounds = if groups.iter().any(|group| group.key.is_some()) { Bounds::OfTheFirst } else { Bounds::OfBoth };
        let Some((uncoupled, hosts)) = uncouple(request, &groups, Some(&plan)) else { break };
        let Some(other) = rest.plan(&uncoupled.compared()) else { break };
        let other = hosts.expand(other, &request.snapshot);
        let before = groups.len();
        keep_placed(&mut groups, &other);
        plan = better(plan, other, bounds, &class_of, &request.snapshot);
        if groups.len() == before {
            break;
        }
    }
    Some(plan)
}

/// Whether a saving is worth another plan.
fn is_much(saved: i128, of: i128) -> bool {
    saved * COLOCATION_WORTH_TRYING >= of
}

/// A plan that keeps a limit, with machines in dear domains, and with the groups planned as what they amount to, only
/// if there is none without.
fn within(mut problem: Problem<'_>, groups: &[Group], limit: &Limit, rest: &mut Rest<'_>) -> Option<Plan> {
    if let Some(found) = rest.plan_compiled(&problem) {
        return Some(found);
    }
    if !problem.kept_out.is_empty() {
        problem.kept_out.clear();
        if let Some(found) = rest.plan_compiled(&problem) {
            return Some(found);
        }
    }
    let request = problem.request;
    let (uncoupled, hosts) = uncouple(request, groups, None)?;
    let refused = limit.refused.iter().copied().chain(hosts.out()).collect();
    let found = rest.plan(&uncoupled.within(Limit { refused, ..limit.clone() }))?;
    Some(hosts.expand(found, &request.snapshot))
}

/// Pods that have to be together.
#[derive(Debug)]
pub(crate) struct Group {
    /// The label that they share a value of; `None` if they share a host.
    key: Option<KeyId>,
    /// The oldest first, then by name.
    members: Vec<PodId>,
}

/// Pods that stand for others of their host in a request, each with these.
struct Hosts(Vec<(PodId, Vec<PodId>)>);

/// Pods that have to be together and depend on no other pod for that: none runs yet, and each asks for all of them.
struct Closed {
    rule: GroupId,
    /// As [`Group::key`].
    key: Option<KeyId>,
    classes: Vec<ClassId>,
}

impl Closed {
    fn group(&self, problem: &Problem<'_>) -> Option<Group> {
        let mut members: Vec<PodId> =
            self.classes.iter().flat_map(|&class| problem.classes[class].members.iter().copied()).collect();
        members.sort_by_key(|&id| {
            let pod = &problem.snapshot.pods[id].pod;
            (pod.created_at, &pod.name)
        });
        (members.len() > 1).then_some(Group { key: self.key, members })
    }
}

fn closed(problem: &Problem<'_>) -> Vec<Closed> {
    let topology = &problem.topology;
    let is_affinity = |group: GroupId| topology.groups[group].kind == Kind::Affinity;
    let mut by_group: FastMap<GroupId, Vec<ClassId>> = FastMap::default();
    let mut found: Vec<GroupId> = Vec::new();
    for (id, class) in problem.classes.iter_enumerated().filter(|(_, class)| !class.is_refused()) {
        for mine in class.involved.iter().filter(|mine| is_affinity(mine.group)) {
            let classes = by_group.entry(mine.group).or_default();
            if classes.is_empty() {
                found.push(mine.group);
            }
            classes.push(id);
        }
    }
    if found.is_empty() {
        return Vec::new();
    }
    let start = topology.start();
    let closed = |group: GroupId| {
        let classes = by_group.remove(&group)?;
        let key = match topology.groups[group].scope {
            Scope::Host => None,
            Scope::Label(key) => Some(key),
            Scope::Cluster => return None,
        };
        let asks_for_all = |class: &ClassId| {
            let mut involved = problem.classes[*class].involved.iter();
            involved.any(|mine| mine.group == group && mine.owner && mine.matched)
        };
        let is_closed = start[group].total() == 0 && classes.iter().all(asks_for_all);
        is_closed.then_some(Closed { rule: group, key, classes })
    };
    found.into_iter().filter_map(closed).collect()
}

/// The groups whose pods can be planned as one pod, or as pods of one domain.
#[cfg(test)]
pub(crate) fn groups(problem: &Problem<'_>) -> Vec<Group> {
    simple(problem, &closed(problem))
}

fn simple(problem: &Problem<'_>, closed: &[Closed]) -> Vec<Group> {
    let is_one = |closed: &&Closed| {
        let mut classes = closed.classes.iter().map(|&class| &problem.classes[class]);
        if !classes.clone().all(|class| is_simple(problem, class, closed.key)) {
            return false;
        }
        let Some(first) = classes.next().filter(|_| closed.key.is_none()) else { return true };
        let wanted = without_requests(&first.shape);
        classes.all(|class| class.priority == first.priority && without_requests(&class.shape) == wanted)
    };
    closed.iter().filter(is_one).filter_map(|closed| closed.group(problem)).collect()
}

/// Whether planning the groups otherwise is likely to make a plan cheaper. What is dear about a host is that the
/// machines of some pods have no room for the rest; for groups that share a domain, what their pods cost beyond their
/// worth is the most to be had.
fn is_worth_trying<'g>(
    groups: impl Iterator<Item = &'g Group> + Clone,
    plan: &Plan,
    worth: impl Fn(PodId) -> i64,
) -> bool {
    if plan.cost() <= i128::from(plan.lower_bound.0) {
        return false;
    }
    if groups.clone().any(|group| group.key.is_none()) {
        return true;
    }
    let members: FastSet<PodId> = groups.flat_map(|group| group.members.iter().copied()).collect();
    let mut saved = 0;
    for machine in &plan.machines {
        let sum = |pods: &mut dyn Iterator<Item = &PodId>| pods.map(|&pod| i128::from(worth(pod))).sum::<i128>();
        let theirs = sum(&mut machine.pods.iter().filter(|pod| members.contains(pod)));
        let all = sum(&mut machine.pods.iter());
        if theirs > 0 {
            saved += (i128::from(machine.launch.price.0) * theirs / all - theirs).max(0);
        }
    }
    is_much(saved, plan.cost())
}

/// Whether nothing but its affinity keeps the class from being planned so.
fn is_simple(problem: &Problem<'_>, class: &PodClass, key: Option<KeyId>) -> bool {
    let shape = &class.shape;
    class.devices.is_none()
        && shape.volumes.is_empty()
        && shape.scheduling_group.is_none()
        && shape.pod_affinity.required.len() == 1
        && class.affinity_sets.len() == 1
        && (if key.is_some() { shape.hard_spread().next().is_none() } else { class.involved.len() == 1 })
        && class.members.iter().all(|&pod| problem.snapshot.pods[pod].planned_on.is_none())
}

/// What pods of one host have to agree in, with their affinity left out. Preferences are as well.
fn without_requests(shape: &PodShape) -> PodShape {
    let mut other = PodShape { requests: ResourceVec::default(), preferred_node_affinity: Vec::new(), ..shape.clone() };
    other.topology_spread.clear();
    other.pod_affinity.required.clear();
    other.pod_affinity.preferred.clear();
    other.pod_anti_affinity.preferred.clear();
    other
}

/// The request with one pod for those of each host, and with pods that share a domain held to where the plan has them.
/// `None` if there is no such group; of those that share a domain only the ones for which the plan, if there
/// is one, has room count.
fn uncouple(request: &Request<'_>, groups: &[Group], plan: Option<&Plan>) -> Option<(Request<'static>, Hosts)> {
    let snapshot = &*request.snapshot;
    let refused: BTreeSet<PodId> = plan.iter().flat_map(|plan| &plan.refusals).map(|refusal| refusal.pod).collect();
    let places = plan.map(|plan| places(snapshot, plan)).unwrap_or_default();
    let mut fates: Vec<(PodId, Fate)> = Vec::new();
    let mut hosts = Vec::new();
    let has_place = |group: &&Group| group.key.is_none() || !group.members.iter().any(|pod| refused.contains(pod));
    for group in groups.iter().filter(has_place) {
        let Some((&first, others)) = group.members.split_first() else { continue };
        let Some(key) = group.key else {
            let mut shape = without_requests(&snapshot.pods[first].pod.shape);
            for &pod in &group.members {
                shape.requests.saturating_add_assign(&snapshot.pods[pod].pod.shape.requests);
            }
            fates.push((first, Fate::With(Arc::new(shape))));
            fates.extend(others.iter().map(|&pod| (pod, Fate::LeftOut(LeftOut::PartOfAnother))));
            hosts.push((first, others.to_vec()));
            continue;
        };
        let Some(value) = places.get(&first).and_then(|place| place.value(key)) else { continue };
        fates.extend(reshaped(snapshot, &group.members, |shape| {
            shape.pod_affinity.required.clear();
            hold_to(shape, key, value, &snapshot.interner);
        }));
    }
    (!fates.is_empty()).then(|| (request.with(fates), Hosts(hosts)))
}

/// Leaves the groups of which the plan has every pod.
fn keep_placed(groups: &mut Vec<Group>, plan: &Plan) {
    let refused: BTreeSet<PodId> = plan.refusals.iter().map(|refusal| refusal.pod).collect();
    groups.retain(|group| !group.members.iter().any(|pod| refused.contains(pod)));
}

/// What is known of the labels of the place where a plan has a pod.
#[derive(Clone, Copy)]
enum At<'p> {
    Known(&'p Labels),
    Promised(&'p Requirements),
}

impl At<'_> {
    fn value(self, key: KeyId) -> Option<ValueId> {
        match self {
            At::Known(labels) => labels.get(key),
            At::Promised(requirements) => requirements.get(key)?.values.single_value(),
        }
    }
}

fn places<'p>(snapshot: &'p Snapshot, plan: &'p Plan) -> FastMap<PodId, At<'p>> {
    let on_machines = plan.machines.iter().map(|machine| (At::Promised(&machine.requirements), &machine.pods));
    let on_nodes = plan.existing.iter().map(|placement| {
        let at = match &snapshot.nodes[placement.node].labels {
            NodeLabels::Known(labels) => At::Known(labels),
            NodeLabels::Promised(requirements) => At::Promised(requirements),
        };
        (at, &placement.pods)
    });
    on_machines.chain(on_nodes).flat_map(|(at, pods)| pods.iter().map(move |&pod| (pod, at))).collect()
}

impl Hosts {
    /// Pods that have no place of their own in plans of the request.
    fn out(&self) -> impl Iterator<Item = PodId> + '_ {
        self.0.iter().flat_map(|(_, others)| others.iter().copied())
    }

    /// The plan with all pods of a host where the one is that stands for them; refused if that is. Its notes are for
    /// the caller.
    fn expand(&self, mut plan: Plan, snapshot: &Snapshot) -> Plan {
        let mut others: Vec<Option<&[PodId]>> = vec![None; snapshot.pods.len()];
        for (first, of_host) in &self.0 {
            if let Some(slot) = others.get_mut(first.index()) {
                *slot = Some(of_host);
            }
        }
        let machines = plan.machines.iter_mut().map(|machine| &mut machine.pods);
        for pods in machines.chain(plan.existing.iter_mut().map(|placement| &mut placement.pods)) {
            let more: Vec<PodId> = pods.iter().filter_map(|pod| *others.get(pod.index())?).flatten().copied().collect();
            if !more.is_empty() {
                pods.extend(more);
                pods.sort_by_key(|&pod| &snapshot.pods[pod].pod.name);
            }
        }
        let of_first = |refusal: &Refusal| *others.get(refusal.pod.index())?;
        let like = |refusal: &Refusal| {
            let others = of_first(refusal).unwrap_or_default().iter();
            others.map(|&pod| Refusal { pod, ..refusal.clone() }).collect::<Vec<Refusal>>()
        };
        let more: Vec<Refusal> = plan.refusals.iter().flat_map(like).collect();
        if !more.is_empty() {
            plan.refusals.extend(more);
            plan.refusals.sort_by_key(|refusal| &snapshot.pods[refusal.pod].pod.name);
        }
        plan
    }
}

/// By pod: its class.
type ClassOf = IdVec<PodId, Option<ClassId>>;

/// Whose bounds hold for every plan of the request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bounds {
    OfBoth,
    /// The other is of pods that are held to what they need not be.
    OfTheFirst,
}

/// Of two plans the one that refuses fewer pods, if it refuses no more of any class, or the cheaper one if both refuse
/// the same. Reasons and notes are those of the first.
fn better(plan: Plan, other: Plan, bounds: Bounds, class_of: &ClassOf, snapshot: &Snapshot) -> Plan {
    let by_class = |plan: &Plan| {
        let mut refused: BTreeMap<Option<ClassId>, u64> = BTreeMap::new();
        plan.refusals.iter().for_each(|it| *refused.entry(class_of[it.pod]).or_default() += 1);
        refused
    };
    let (before, after) = (by_class(&plan), by_class(&other));
    let device_steps = plan.device_steps.saturating_add(other.device_steps);
    if !refuses_no_more(&after, &before) {
        return Plan { device_steps, ..plan };
    }
    let has_more = after != before;
    let lower_bound = match bounds {
        Bounds::OfTheFirst => plan.lower_bound,
        Bounds::OfBoth if has_more => other.lower_bound,
        Bounds::OfBoth => plan.lower_bound.max(other.lower_bound),
    };
    let rank = |plan: &Plan| PlanRank::of(plan, |pod| Importance::Priority(snapshot.pods[pod].pod.priority));
    if rank(&other) >= rank(&plan) {
        return Plan { lower_bound, device_steps, ..plan };
    }
    let mut known: BTreeMap<PodId, &Refusal> = BTreeMap::new();
    let mut alike: BTreeMap<Option<ClassId>, &Refusal> = BTreeMap::new();
    for refusal in &plan.refusals {
        known.insert(refusal.pod, refusal);
        alike.entry(class_of[refusal.pod]).or_insert(refusal);
    }
    let reason = |refused: Refusal| {
        let same = known.get(&refused.pod).or_else(|| alike.get(&class_of[refused.pod])).copied();
        same.map_or(refused.clone(), |known| Refusal { pod: refused.pod, ..known.clone() })
    };
    let refusals = other.refusals.into_iter().map(reason).collect();
    let search_steps = plan.search_steps.max(other.search_steps);
    Plan { notes: plan.notes, refusals, search_steps, lower_bound, device_steps, ..other }
}
