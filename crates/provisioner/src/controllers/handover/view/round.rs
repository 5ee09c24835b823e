//! The pods that wait and the machines they wait for, as [`economy`](super::super::economy) looks at them.
//!
//! Only what is cheap is read of all pods. What costs a look at every pod and every node of the cluster is left for the
//! classes whose machines could open without patches otherwise.

use std::collections::hash_map::Entry as Known;
use std::collections::{BTreeMap, BTreeSet};

use model::Labels;
use model::pod::{DEFAULT_SCHEDULER, PodAffinityTerm};

use super::super::economy::{Class, Entry, Machine, Round, Stage};
use super::classes::term_counts;
use super::*;

/// Classes times machines that are looked at. With more, all pods are patched: a round so mixed would rarely do
/// without.
const MOST_PAIRS: usize = 20_000;

/// The machines that may open with none of their pods patched, of those `usable`.
pub(super) fn needs_no_patches(cluster: &Cluster<'_>, usable: &NameSet<NodeName>) -> NameSet<NodeName> {
    let reader = Reader::new(cluster);
    if reader.classes.len().saturating_mul(reader.planned.len()) > MOST_PAIRS {
        return NameSet::default();
    }
    let (mut round, nodes) = reader.round(usable);
    let holding = |round: &Round| -> Vec<usize> {
        let holds = round.needs_no_patches().into_iter().enumerate();
        holds.filter(|(_, holds)| *holds).map(|(index, _)| index).collect()
    };
    let candidates = holding(&round);
    if candidates.is_empty() {
        return NameSet::default();
    }
    reader.look_around(&mut round, &candidates);
    holding(&round).into_iter().filter_map(|index| Some(nodes.get(index)?.as_ref()?.model.name.clone())).collect()
}

/// What tells classes of waiting pods apart; see [`Pod::is_alike`].
#[derive(PartialEq, Eq, Hash)]
struct Likeness<'a> {
    shape: Shape,
    namespace: &'a str,
    labels: &'a Labels,
    priority: i32,
    preemption_policy: PreemptionPolicy,
    scheduler_name: &'a str,
}

/// A class, and one of its pods for all.
struct Waiting<'a> {
    class: Class,
    pod: &'a Pod,
    wants_devices: bool,
}

struct Reader<'a> {
    cluster: &'a Cluster<'a>,
    classes: Vec<Waiting<'a>>,
    /// How many pods of each class are planned onto each machine.
    planned: BTreeMap<Destination<'a>, Vec<u32>>,
}

/// A machine that pods wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Destination<'a> {
    Claim(&'a NodeClaimName),
    /// Its NodeClaim is being created.
    Promised(usize),
}

impl<'a> Destination<'a> {
    fn claim(self) -> Option<&'a NodeClaimName> {
        match self {
            Self::Claim(claim) => Some(claim),
            Self::Promised(_) => None,
        }
    }
}

impl<'a> Reader<'a> {
    fn new(cluster: &'a Cluster<'a>) -> Self {
        let mut reader = Self { cluster, classes: Vec::new(), planned: BTreeMap::new() };
        let mut known: NameMap<Likeness<'a>, usize> = NameMap::default();
        // Room for DaemonSets' pods is reserved, whether they are there to wait for it or not.
        let state = cluster.state;
        for pod in state.unbound_pods().filter(|pod| !pod.is_daemon && !pod.phase.is_terminal()) {
            let likeness = Likeness {
                shape: Shape(Arc::clone(&pod.shape)),
                namespace: &pod.name.namespace,
                labels: &pod.labels,
                priority: pod.priority,
                preemption_policy: pod.preemption_policy,
                scheduler_name: &pod.scheduler_name,
            };
            let index = match known.entry(likeness) {
                Known::Occupied(index) => *index.get(),
                Known::Vacant(entry) => *entry.insert(reader.add_class(pod)),
            };
            reader.add_pod(index, pod);
        }
        let rules = reader.rules();
        for waiting in reader.classes.iter_mut().filter(|waiting| waiting.class.is_plain) {
            waiting.class.is_plain = !rules.iter().any(|rule| rule.counts(waiting.pod, &state.interner));
        }
        reader
    }

    fn add_class(&mut self, pod: &'a Pod) -> usize {
        let class = Class {
            requests: pod.shape.requests.clone(),
            priority: pod.priority,
            is_plain: *pod.scheduler_name == *DEFAULT_SCHEDULER && is_plain(&pod.shape, &self.cluster.state.interner),
            unplanned: 0,
            has_room_elsewhere: false,
        };
        self.classes.push(Waiting { class, pod, wants_devices: false });
        self.classes.len() - 1
    }

    fn add_pod(&mut self, index: usize, pod: &Pod) {
        let (cluster, classes) = (self.cluster, self.classes.len());
        let Some(waiting) = self.classes.get_mut(index) else { return };
        let claim = cluster.claims.get(&pod.uid);
        let machine = claim.filter(|machine| stays(cluster.state, machine));
        // A pod gets its NodeClaim a moment before the store has that.
        let is_to_come = |claim: &NodeClaimName| cluster.state.node_claims.get(claim).is_none();
        let promised = || cluster.promised.get(&pod.uid).filter(|_| claim.is_none_or(is_to_come)).copied();
        let wants_devices = cluster.state.device_pods.contains_key(&pod.uid);
        let is_free = pod.scheduling != SchedulingState::Gated
            && pod.nominated_node_name.is_none()
            && pod.deletion_timestamp.is_none();
        waiting.wants_devices |= wants_devices;
        waiting.class.is_plain &=
            is_free && !wants_devices && !may_enter_another(cluster.state, pod, machine) && cluster.stage_of(pod) == 0;
        match machine.map(Destination::Claim).or_else(|| promised().map(Destination::Promised)) {
            None => waiting.class.unplanned += 1,
            Some(destination) => {
                let planned = self.planned.entry(destination).or_default();
                planned.resize(classes.max(planned.len()), 0);
                planned.get_mut(index).into_iter().for_each(|count| *count += 1);
            }
        }
    }

    /// What of waiting pods' rules counts other pods.
    fn rules(&self) -> Vec<Rule<'a>> {
        let mut seen = NameSet::default();
        let shapes = self.classes.iter().map(|waiting| &waiting.pod.shape);
        shapes.filter(|shape| seen.insert(Arc::as_ptr(shape))).flat_map(|shape| Rule::of(shape)).collect()
    }

    /// The round, and the node of each of its machines that has one.
    fn round(&self, usable: &NameSet<NodeName>) -> (Round, Vec<Option<&'a Arc<NodeRecord>>>) {
        let state = self.cluster.state;
        let classes = self.classes.iter().map(|waiting| waiting.class.clone()).collect();
        let mut round = Round { classes, machines: Vec::new() };
        let mut nodes = Vec::new();
        for (destination, planned) in &self.planned {
            let claim = destination.claim();
            let node = claim.and_then(|claim| node_of(state, claim));
            let is_usable = |node: &&Arc<NodeRecord>| usable.contains(&node.model.name);
            let (stage, known) = match (node.filter(is_usable), claim.and_then(|claim| open_node(state, claim))) {
                (Some(node), _) => (Stage::Usable, Some((node, permanent_taints(state, claim, node)))),
                (None, Some(node)) => (Stage::Open, Some((node, hard_taints(node)))),
                (None, None) => (Stage::Coming, None),
            };
            let machine = match known {
                Some((node, taints)) => self.machine(node, &taints, stage, planned),
                None => Machine {
                    stage,
                    free: ResourceVec::new(),
                    reserved: ResourceVec::new(),
                    entries: Vec::new(),
                    planned: planned.clone(),
                },
            };
            round.machines.push(machine);
            nodes.push(node);
        }
        (round, nodes)
    }

    fn machine(&self, node: &NodeRecord, taints: &[Taint], stage: Stage, planned: &[u32]) -> Machine {
        let state = self.cluster.state;
        let site = Site::new(state, node, taints);
        let is_planned = |class: usize| planned.get(class).is_some_and(|count| *count > 0);
        let entries = self.classes.iter().enumerate();
        Machine {
            stage,
            reserved: reserved(state, node, taints),
            entries: entries.map(|(class, waiting)| site.entry(waiting, is_planned(class))).collect(),
            planned: planned.to_vec(),
            free: site.free,
        }
    }

    /// Reads what takes a look at all nodes and pods, for the classes of those machines.
    fn look_around(&self, round: &mut Round, machines: &[usize]) {
        let state = self.cluster.state;
        let concerned: BTreeSet<usize> = machines
            .iter()
            .filter_map(|index| round.machines.get(*index))
            .flat_map(|machine| machine.planned.iter().enumerate())
            .filter(|(_, count)| **count > 0)
            .map(|(class, _)| class)
            .collect();
        let claims = self.planned.keys().filter_map(|destination| destination.claim());
        let awaited: NameSet<&NodeName> = claims.filter_map(|claim| Some(&node_of(state, claim)?.model.name)).collect();
        let mut seen = NameSet::default();
        let bound = state.pods.values().filter(|pod| pod.node_name.is_some() && !pod.phase.is_terminal());
        let shapes = bound.map(|pod| &pod.shape).filter(|shape| !shape.pod_anti_affinity.required.is_empty());
        let keep_away: Vec<Rule<'_>> = shapes
            .filter(|shape| seen.insert(Arc::as_ptr(shape)))
            .flat_map(|shape| Rule::keeping_away(shape))
            .collect();
        let others = || state.nodes.values().filter(|node| !awaited.contains(&node.model.name) && lets_in(node));
        for class in concerned {
            let (Some(waiting), Some(of_round)) = (self.classes.get(class), round.classes.get_mut(class)) else {
                continue;
            };
            of_round.is_plain &= !keep_away.iter().any(|rule| rule.counts(waiting.pod, &state.interner));
            of_round.has_room_elsewhere = others().any(|node| has_room(state, node, waiting));
        }
    }
}

/// Whether a machine is there to stay.
fn stays(state: &State, machine: &NodeClaimName) -> bool {
    let claim = state.node_claims.get(machine);
    claim.is_some_and(|claim| claim.metadata.deletion_timestamp.is_none())
        && node_of(state, machine).is_none_or(|node| node.model.deletion_timestamp.is_none())
}

/// Whether the pod tolerates the taint of a machine that it does not wait for. Few have tolerations of machines at all.
fn may_enter_another(state: &State, pod: &Pod, machine: Option<&NodeClaimName>) -> bool {
    let of_others = state.node_claims.iter().filter(|(name, _)| Some(*name) != machine);
    let mut uids = of_others.filter_map(|(_, claim)| claim.metadata.uid.as_deref());
    !pod.may_enter.is_empty() && uids.any(|uid| may_enter(pod, uid))
}

/// Whether only labels, taints and resources decide where pods of that shape go, and no machine is open to them that is
/// closed to others.
fn is_plain(shape: &PodShape, interner: &Interner) -> bool {
    Rule::of(shape).next().is_none()
        && shape.host_ports.is_empty()
        && shape.volumes.is_empty()
        && shape.resource_claims.is_empty()
        && shape.scheduling_group.is_none()
        && shape.unsupported.is_empty()
        && !tolerates_holds(shape, interner)
}

/// A rule of a pod that counts other pods, so that it matters who is bound first.
enum Rule<'a> {
    Spread(&'a TopologySpreadConstraint),
    Affinity(&'a PodAffinityTerm),
}

impl<'a> Rule<'a> {
    fn of(shape: &'a PodShape) -> impl Iterator<Item = Self> {
        let near = shape.pod_affinity.required.iter().map(Self::Affinity);
        shape.hard_spread().map(Self::Spread).chain(near).chain(Self::keeping_away(shape))
    }

    /// Those that hold for pods that come later, too.
    fn keeping_away(shape: &'a PodShape) -> impl Iterator<Item = Self> {
        shape.pod_anti_affinity.required.iter().map(Self::Affinity)
    }

    fn counts(&self, pod: &Pod, interner: &Interner) -> bool {
        match self {
            Self::Spread(spread) => spread.counts(pod, interner),
            Self::Affinity(term) => term_counts(term, pod, interner),
        }
    }
}

/// What keeps pods from a node for good.
fn permanent_taints(state: &State, claim: Option<&NodeClaimName>, node: &NodeRecord) -> Vec<Taint> {
    let interner = &state.interner;
    // Others, such as startup taints, may be gone by the time the machine is open.
    let wanted = claim.and_then(|claim| state.node_claims.get(claim));
    let wanted = wanted.map(|claim| claim.spec.taints.as_slice()).unwrap_or_default();
    let is_wanted = |taint: &Taint| {
        let effect = taint.effect.to_string();
        wanted.iter().any(|wanted| wanted.key == *interner.key_name(taint.key) && wanted.effect == effect)
    };
    foreign_taints(&node.model.taints, interner).into_iter().filter(is_wanted).collect()
}

fn hard_taints(node: &NodeRecord) -> Vec<Taint> {
    node.model.taints.iter().filter(|taint| taint.is_hard()).copied().collect()
}

/// Whether pods that waited for no machine of ours could come to that node.
fn lets_in(node: &NodeRecord) -> bool {
    !is_held(&node.object) && !node.model.unschedulable && node.model.deletion_timestamp.is_none()
}

fn has_room(state: &State, node: &NodeRecord, waiting: &Waiting<'_>) -> bool {
    waiting.class.requests.fits_in(&node.model.allocatable)
        && match Site::new(state, node, &hard_taints(node)).entry(waiting, true) {
            Entry::Barred => false,
            Entry::ByPreemption => true,
            Entry::IfFree => waiting.class.requests.fits_in(&free_beside(state, node, |_| true)),
        }
}

/// What the pods of DaemonSets take that are not on the node yet, as far as its taints let them come.
fn reserved(state: &State, node: &NodeRecord, taints: &[Taint]) -> ResourceVec {
    let interner = &state.interner;
    let name = interner.find_value(&node.model.name);
    let mut reserved = ResourceVec::new();
    for daemon_set in state.daemon_sets.values().filter(|it| !has_pod_of(state, &node.model.name, it)) {
        let newest = state.newest_pod_of_daemon_set(&daemon_set.name).map(|pod| &pod.shape.requests);
        let shape = &daemon_set.template.shape;
        if tolerates_all(shape, taints, interner) && shape.node_affinity_matches(&node.model.labels, name, interner) {
            let mut requests = shape.requests.clone();
            // Admission may give pods more than the template says.
            newest.into_iter().for_each(|newest| requests.max_assign(newest));
            reserved.saturating_add_assign(&requests);
        }
    }
    reserved
}

/// A node, as pods look at it that might come.
struct Site<'a> {
    state: &'a State,
    node: &'a NodeRecord,
    name: Option<ValueId>,
    taints: &'a [Taint],
    free: ResourceVec,
    /// The lowest priority of its pods.
    least: Option<i32>,
}

impl<'a> Site<'a> {
    fn new(state: &'a State, node: &'a NodeRecord, taints: &'a [Taint]) -> Self {
        Self {
            state,
            node,
            name: state.interner.find_value(&node.model.name),
            taints,
            free: free_beside(state, node, |_| true),
            least: holding_room(state, node).map(|pod| pod.priority).min(),
        }
    }

    fn entry(&self, waiting: &Waiting<'_>, is_planned: bool) -> Entry {
        let (shape, interner) = (&waiting.pod.shape, &self.state.interner);
        let is_barred = self.node.model.unschedulable
            || !tolerates_all(shape, self.taints, interner)
            || !shape.node_affinity_matches(&self.node.model.labels, self.name, interner);
        if is_barred {
            return Entry::Barred;
        }
        let below = preempts_below(waiting.pod);
        let preempts = self.least.is_some_and(|least| least < below);
        let makes_room = || {
            let requests = &waiting.class.requests;
            requests.fits_in(&free_beside(self.state, self.node, |pod| pod.priority >= below))
        };
        // What devices serve of its requests is not among what the node has, and is not looked at here.
        if waiting.wants_devices || (preempts && (is_planned || makes_room())) {
            return Entry::ByPreemption;
        }
        Entry::IfFree
    }
}

#[cfg(test)]
mod tests;
