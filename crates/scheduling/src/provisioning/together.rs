//! Pods that have to be together, planned as what that amounts to.
//!
//! Required pod affinity among pods that all ask for it, of which none runs yet, has one outcome: over hosts all of them share one
//! machine, over a label one domain. Class by class such pods are packed badly, since those that come first fill machines on which
//! the others have to have room later. So the plan is made once more with each group that shares a host as one pod, which requests what
//! they request together, and with each group that shares a domain held to the one where the plan has it; neither is coupled by
//! affinity then, and goes by worth like pods that nothing couples. That plan is kept if it refuses fewer pods, or the same and is
//! cheaper.
//!
//! No plan can do without one machine for all pods of a host, so the bound of the second plan holds for the first as well.
//!
//! Left alone are groups that count other pods too, pods that other rules concern (over a label: that are spread), and pods with
//! volumes or claims.

use std::{collections::BTreeSet, sync::Arc};

use model::{
    Id as _, KeyId, Labels, Pod, PodShape, Requirement, Requirements, ResourceVec, Unsupported, ValueId, ValueSet,
    collections::{FastMap, FastSet},
};

use super::{
    classes::{ClassId, PodClass},
    problem::Problem,
    topology::{GroupId, Kind, Scope},
};
use crate::{
    plan::Plan,
    snapshot::{NodeLabels, PodId, Snapshot},
};

/// Pods that have to be together.
#[derive(Debug)]
pub(super) struct Group {
    /// The label that they share a value of; `None` if they share a host.
    key: Option<KeyId>,
    /// The oldest first, then by name.
    members: Vec<PodId>,
}

/// A snapshot in which pods that have to be together are not coupled by affinity.
pub(super) struct Uncoupled {
    pub(super) snapshot: Snapshot,
    /// The pod that stands for others, and these.
    hosts: Vec<(PodId, Vec<PodId>)>,
}

/// The groups whose pods can be planned as one pod, or as pods of one domain.
pub(super) fn groups(problem: &Problem<'_>) -> Vec<Group> {
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
    let group = |id: GroupId| {
        let classes = by_group.get(&id)?;
        let key = match topology.groups[id].scope {
            Scope::Host => None,
            Scope::Label(key) => Some(key),
            Scope::Cluster => return None,
        };
        let is_closed = start[id].total() == 0
            && classes.iter().all(|&class| {
                let class = &problem.classes[class];
                class.involved.iter().any(|mine| mine.group == id && mine.owner && mine.matched)
                    && is_simple(problem, class, key)
            });
        let first = &problem.classes[*classes.first()?];
        let are_alike = || {
            let others = classes.iter().map(|&class| &problem.classes[class]);
            let wanted = without_requests(&first.shape);
            others.into_iter().all(|class| class.priority == first.priority && without_requests(&class.shape) == wanted)
        };
        if !is_closed || (key.is_none() && !are_alike()) {
            return None;
        }
        let mut members: Vec<PodId> =
            classes.iter().flat_map(|&class| problem.classes[class].members.iter().copied()).collect();
        members.sort_by_key(|&id| {
            let pod = &problem.snapshot.pods[id].pod;
            (pod.created_at, &pod.name)
        });
        (members.len() > 1).then_some(Group { key, members })
    };
    found.into_iter().filter_map(group).collect()
}

/// A plan with groups of a label held to their domains is made if it could save this part of the price. It takes as long as the
/// first, and mostly saves a part of that.
const WORTH_TRYING: i128 = 25;

/// Whether planning the groups otherwise is likely to make a plan cheaper. What is dear about a host is that the machines of some
/// pods have no room for the rest; for groups that share a domain, what their pods cost beyond their worth is the most to be had.
pub(super) fn is_worth_trying(groups: &[Group], plan: &Plan, worth: impl Fn(PodId) -> i64) -> bool {
    if plan.cost() <= i128::from(plan.lower_bound.0) {
        return false;
    }
    if groups.iter().any(|group| group.key.is_none()) {
        return true;
    }
    let members: FastSet<PodId> = groups.iter().flat_map(|group| group.members.iter().copied()).collect();
    let mut saved = 0;
    for machine in &plan.machines {
        let sum = |pods: &mut dyn Iterator<Item = &PodId>| pods.map(|&pod| i128::from(worth(pod))).sum::<i128>();
        let theirs = sum(&mut machine.pods.iter().filter(|pod| members.contains(pod)));
        let all = sum(&mut machine.pods.iter());
        if theirs > 0 {
            saved += (i128::from(machine.launch.price.0) * theirs / all - theirs).max(0);
        }
    }
    saved * WORTH_TRYING >= plan.cost()
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

/// The snapshot with one pod for those of each host, and with pods that share a domain held to where the plan has them. Ids stay.
/// `None` if there is no such group; of those that share a domain only the ones for which the plan, if there is one, has room count.
pub(super) fn uncouple(snapshot: &Snapshot, groups: &[Group], plan: Option<&Plan>) -> Option<Uncoupled> {
    let refused: BTreeSet<PodId> = plan.iter().flat_map(|plan| &plan.refusals).map(|refusal| refusal.pod).collect();
    let places = plan.map(|plan| places(snapshot, plan)).unwrap_or_default();
    let mut with = snapshot.clone();
    let mut hosts = Vec::new();
    let mut changed = false;
    let out =
        Arc::new(PodShape { unsupported: vec![Unsupported::new("pod of another's host")], ..PodShape::default() });
    let has_place = |group: &&Group| group.key.is_none() || !group.members.iter().any(|pod| refused.contains(pod));
    for group in groups.iter().filter(has_place) {
        let Some((&first, others)) = group.members.split_first() else { continue };
        let Some(key) = group.key else {
            let mut shape = without_requests(&snapshot.pods[first].pod.shape);
            for &pod in &group.members {
                shape.requests.saturating_add_assign(&snapshot.pods[pod].pod.shape.requests);
            }
            set_shape(&mut with, first, Arc::new(shape));
            others.iter().for_each(|&pod| set_shape(&mut with, pod, Arc::clone(&out)));
            hosts.push((first, others.to_vec()));
            changed = true;
            continue;
        };
        let Some(value) = places.get(&first).and_then(|place| place.value(key)) else { continue };
        let mut held: FastMap<*const PodShape, Arc<PodShape>> = FastMap::default();
        for &pod in &group.members {
            let shape = &snapshot.pods[pod].pod.shape;
            let shape = held.entry(Arc::as_ptr(shape)).or_insert_with(|| {
                let mut shape = PodShape::clone(shape);
                shape.pod_affinity.required.clear();
                shape.node_selector.insert_intersect(Requirement::new(key, ValueSet::one(value)), &snapshot.interner);
                Arc::new(shape)
            });
            set_shape(&mut with, pod, Arc::clone(shape));
        }
        changed = true;
    }
    changed.then_some(Uncoupled { snapshot: with, hosts })
}

/// Leaves the groups of which the plan has every pod.
pub(super) fn keep_placed(groups: &mut Vec<Group>, plan: &Plan) {
    let refused: BTreeSet<PodId> = plan.refusals.iter().map(|refusal| refusal.pod).collect();
    groups.retain(|group| !group.members.iter().any(|pod| refused.contains(pod)));
}

fn set_shape(snapshot: &mut Snapshot, pod: PodId, shape: Arc<PodShape>) {
    let pod = &mut snapshot.pods[pod].pod;
    *pod = Arc::new(Pod { shape, ..(**pod).clone() });
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

impl Uncoupled {
    /// Pods that have no place of their own in plans of this snapshot.
    pub(super) fn out(&self) -> impl Iterator<Item = PodId> + '_ {
        self.hosts.iter().flat_map(|(_, others)| others.iter().copied())
    }

    /// The plan with all pods of a host where the one is that stands for them; refused if that is. Its notes and reasons are for
    /// the caller.
    pub(super) fn expand(&self, mut plan: Plan, snapshot: &Snapshot) -> Plan {
        let mut others: Vec<Option<&[PodId]>> = vec![None; snapshot.pods.len()];
        for (first, of_host) in &self.hosts {
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
        let refused: BTreeSet<PodId> = plan.refusals.iter().map(|refusal| refusal.pod).collect();
        let placed = self.hosts.iter().filter(|(first, _)| !refused.contains(first));
        let out: BTreeSet<PodId> = placed.flat_map(|(_, others)| others.iter().copied()).collect();
        plan.refusals.retain(|refusal| !out.contains(&refusal.pod));
        plan
    }
}
