//! What groups count of the pods that run.
//!
//! Most of them are told apart by nothing that a rule reads, so each kind is judged once.

use std::sync::Arc;

use api::labels;
use model::{
    IdVec, NodeName, Pod, PodShape, Requirements, Uid,
    collections::{FastMap, FastSet, NameMap, NameSet},
    pod::PodAffinityTerm,
};

use super::build::{Builder, GroupKey, Signature, is_over};
use super::{DomainId, Group, GroupId, Kind, Place, Rule, Scope, Topology};
use crate::simulation::compile::daemons;
use crate::snapshot::pending::{is_ignored, is_of_planned_scheduler, will_be_replaced};
use crate::snapshot::{Excluded, NodeId, PendingPod, RunningKind, RunningPods, Snapshot};

/// The groups that count a pod that runs.
struct Counting {
    /// Groups whose rule matches the pod.
    matched: Vec<GroupId>,
    /// Groups whose rule the pod owns.
    owned: Vec<GroupId>,
}

impl Counting {
    /// Finds the groups that count pods of a kind; `own` finds the group of one of the pods' own terms.
    fn new(
        kind: &RunningKind,
        groups: &IdVec<GroupId, Group>,
        snapshot: &Snapshot,
        own: impl Fn(&PodAffinityTerm) -> Option<GroupId>,
    ) -> Self {
        // A spread does not count pods that are going; the other rules do.
        let counts = |group: &Group| !(kind.is_going && matches!(group.kind, Kind::Spread { .. }));
        let RunningKind { namespace, labels, shape, .. } = kind;
        let matches = |rule: &Rule| rule.matches(namespace, labels, shape, &snapshot.namespaces, &snapshot.interner);
        let matched = groups.iter_enumerated().filter(|(_, group)| counts(group) && matches(&group.rule));
        let owned = shape.pod_anti_affinity.required.iter().filter_map(own);
        Self { matched: matched.map(|(id, _)| id).collect(), owned: owned.collect() }
    }

    /// The groups with how many of so many pods they count as matched, and how many as owners.
    fn of(&self, pods: u32) -> impl Iterator<Item = (GroupId, u32, u32)> {
        let matched = self.matched.iter().map(move |&group| (group, pods, 0));
        matched.chain(self.owned.iter().map(move |&group| (group, 0, pods)))
    }

    /// Without groups that do not count what others of them do.
    fn without(&self, is_out: impl Fn(GroupId) -> bool) -> Self {
        let matched = self.matched.iter().copied().filter(|&group| !is_out(group));
        Self { matched: matched.collect(), owned: self.owned.clone() }
    }

    /// Only groups over the domains in which pods stay.
    fn over(&self, within: &Requirements, groups: &IdVec<GroupId, Group>) -> Self {
        let over = |of: &[GroupId]| of.iter().copied().filter(|&group| is_over(groups[group].scope, within)).collect();
        Self { matched: over(&self.matched), owned: over(&self.owned) }
    }

    /// Counts so many pods on a node.
    fn count(&self, node: NodeId, pods: u32, groups: &mut IdVec<GroupId, Group>) {
        for (group, matched, owners) in self.of(pods) {
            let group = &mut groups[group];
            if let Some(&Place::Domain(domain)) = group.placing.places.try_get(node) {
                group.start.add(domain, matched, owners);
            }
        }
    }
}

/// What counts pods that run, by what rules read of them: their shape, their signature, and whether they are going.
#[derive(Default)]
struct Alike(FastMap<Rules, Option<Arc<Counting>>>);

type Rules = (*const PodShape, Option<Signature>, bool);

impl Alike {
    /// What counts pods of a kind, which the snapshot keeps alive; `None` for most.
    fn counting(
        &mut self,
        builder: &Builder<'_>,
        kind: &RunningKind,
        groups: &IdVec<GroupId, Group>,
    ) -> Option<Arc<Counting>> {
        let key = (Arc::as_ptr(&kind.shape), builder.signature_of(&kind.namespace, &kind.labels), kind.is_going);
        let counting = self.0.entry(key).or_insert_with(|| {
            let counting = Counting::new(kind, groups, builder.snapshot, |term| {
                let (scope, rule) = (builder.scope(term.topology_key), Rule::Terms(vec![term.clone()]));
                builder.by_key.get(&GroupKey { kind: Kind::AntiAffinity, scope, rule, filter: None }).copied()
            });
            (!counting.matched.is_empty() || !counting.owned.is_empty()).then(|| Arc::new(counting))
        });
        counting.clone()
    }
}

/// The kinds of pods that run, in the order of first sight.
pub(super) fn running_kinds(snapshot: &Snapshot) -> Vec<&RunningKind> {
    let mut seen: FastSet<*const RunningKind> = FastSet::default();
    let kinds = snapshot.nodes.iter().flat_map(|node| node.pods.kinds());
    kinds.filter(|(kind, _)| seen.insert(Arc::as_ptr(kind))).map(|(kind, _)| &**kind).collect()
}

impl Builder<'_> {
    /// Counts pods that run. Those that are planned anew, because their node is going, are counted where they go.
    pub(super) fn count_running(&self, groups: &mut IdVec<GroupId, Group>) {
        let snapshot = self.snapshot;
        if snapshot.nodes.is_empty() {
            return;
        }
        let (planned, left): (NameSet<&Uid>, NameSet<&NodeName>) = moving(snapshot).unzip();
        let staying = staying(snapshot);
        let mut alike = Alike::default();
        // Most kinds of a large cluster are on many nodes.
        let mut known: FastMap<*const RunningKind, Option<Arc<Counting>>> = FastMap::default();
        for (id, node) in snapshot.nodes.iter_enumerated() {
            let is_going = node.excluded == Some(Excluded::Deleting);
            if is_going || node.name.as_ref().is_some_and(|name| left.contains(name)) {
                let stay = node.pods.iter().filter(|pod| !planned.contains(&pod.uid)).map(Arc::clone);
                let (ending, held): (Vec<_>, Vec<_>) = stay.partition(|pod| is_going && !self.is_held(pod));
                for (kind, pods) in RunningPods::from(held).kinds() {
                    if let Some(counting) = alike.counting(self, kind, groups) {
                        counting.count(id, pods, groups);
                    }
                }
                for (within, pods) in node.name.iter().flat_map(|name| staying.get(name)).flatten() {
                    let there = node.pods.iter().filter(|pod| pods.contains(&pod.uid)).map(Arc::clone);
                    for (kind, pods) in RunningPods::from(there.collect::<Vec<_>>()).kinds() {
                        if let Some(counting) = alike.counting(self, kind, groups) {
                            counting.over(within, groups).count(id, pods, groups);
                        }
                    }
                }
                for (kind, pods) in RunningPods::from(ending).kinds() {
                    if let Some(counting) = alike.counting(self, kind, groups) {
                        counting.without(|group| self.outlasts(group, groups)).count(id, pods, groups);
                    }
                }
            } else {
                for (kind, pods) in node.pods.kinds() {
                    let counting = known.entry(Arc::as_ptr(kind));
                    if let Some(counting) = counting.or_insert_with(|| alike.counting(self, kind, groups)) {
                        counting.count(id, pods, groups);
                    }
                }
            }
            if groups.iter().any(Group::is_port) {
                for shape in daemons::missing_shapes(id, snapshot) {
                    for group in groups.iter_mut().filter(|group| group.is_port()) {
                        let Rule::Port(port) = &group.rule else { continue };
                        if let Some(&Place::Domain(domain)) = group.placing.places.try_get(id)
                            && shape.host_ports.iter().any(|other| other.conflicts_with(port))
                        {
                            group.start.add(domain, 1, 0);
                        }
                    }
                }
            }
        }
    }
}

impl Builder<'_> {
    /// Whether a pod on a node that is going, for which no successor is planned, stays there until something releases
    /// it. Otherwise its successor would be planned.
    fn is_held(&self, pod: &Pod) -> bool {
        let options = &self.snapshot.options;
        will_be_replaced(pod) && is_of_planned_scheduler(pod, options) && !is_ignored(pod, options)
    }

    /// Whether a group ignores pods that end with their node. A pod that has to be near them would lose them, and could
    /// then go nowhere. If the rule matches its own pods, they count: its pods have to be near them as long as they are
    /// there, and may be anywhere after that.
    ///
    /// Differs: `near-leaving-pods`. Karpenter counts them for all.
    fn outlasts(&self, group: GroupId, groups: &IdVec<GroupId, Group>) -> bool {
        let Group { kind: Kind::Affinity, rule: Rule::Terms(terms), .. } = &groups[group] else { return false };
        let rule = &groups[group].rule;
        let is_of_rule = |pod: &Pod| {
            let names = (&self.snapshot.namespaces, &self.snapshot.interner);
            pod.shape.pod_affinity.required == *terms
                && rule.matches(&pod.name.namespace, &pod.labels, &pod.shape, names.0, names.1)
        };
        !self.snapshot.pods.iter().any(|pending| is_of_rule(&pending.pod))
    }
}

/// Pods that are planned anew, and the nodes that they leave for it.
fn moving(snapshot: &Snapshot) -> impl Iterator<Item = (&Uid, &NodeName)> {
    let pods = snapshot.pods.iter().map(|pending| &pending.pod);
    pods.filter_map(|pod| Some((&pod.uid, pod.node_name.as_ref().or(pod.nominated_node_name.as_ref())?)))
}

/// By node, by the domains in which they stay: pods that leave the node and do not leave these.
fn staying(snapshot: &Snapshot) -> NameMap<&NodeName, Vec<(&Requirements, NameSet<&Uid>)>> {
    let mut staying: NameMap<&NodeName, Vec<(&Requirements, NameSet<&Uid>)>> = NameMap::default();
    for PendingPod { pod, stays_within, .. } in &snapshot.pods {
        let (Some(within), Some(node)) = (stays_within, &pod.node_name) else { continue };
        let of_node = staying.entry(node).or_default();
        match of_node.iter_mut().find(|(known, _)| *known == &**within) {
            Some((_, pods)) => drop(pods.insert(&pod.uid)),
            None => of_node.push((within, [&pod.uid].into_iter().collect())),
        }
    }
    staying
}

/// By node: the pods that leave it and are planned anew.
pub(super) fn by_node(snapshot: &Snapshot) -> NameMap<NodeName, NameSet<Uid>> {
    let mut by_node: NameMap<NodeName, NameSet<Uid>> = NameMap::default();
    for (pod, node) in moving(snapshot) {
        by_node.entry(node.clone()).or_default().insert(pod.clone());
    }
    by_node
}

impl Topology {
    /// What groups count of the pods that run on a node, of those that are wanted: by domain, as matched and as owners.
    pub(crate) fn counted_on(
        &self,
        node: NodeId,
        snapshot: &Snapshot,
        is_wanted: impl Fn(&Pod) -> bool,
    ) -> Vec<(GroupId, DomainId, u32, u32)> {
        if self.groups.is_empty() {
            return Vec::new();
        }
        let there = &snapshot.nodes[node];
        let planned = there.name.as_ref().and_then(|name| self.moving.get(name));
        let is_planned = |pod: &Pod| planned.is_some_and(|planned| planned.contains(&pod.uid));
        let pods = there.pods.iter().filter(|pod| is_wanted(pod) && !is_planned(pod));
        let pods = RunningPods::from(pods.map(Arc::clone).collect::<Vec<_>>());
        let hostname = snapshot.interner.find_key(labels::HOSTNAME);
        let own = |term: &PodAffinityTerm| {
            let is_of_term = |group: &Group| {
                let is_over_hosts = group.scope == Scope::Host && Some(term.topology_key) == hostname;
                let is_over_label = group.scope == Scope::Label(term.topology_key);
                group.kind == Kind::AntiAffinity
                    && (is_over_hosts || is_over_label)
                    && matches!(&group.rule, Rule::Terms(terms) if terms.as_slice() == std::slice::from_ref(term))
            };
            self.groups.iter_enumerated().find(|(_, group)| is_of_term(group)).map(|(id, _)| id)
        };
        let mut counted = Vec::new();
        for (kind, pods) in pods.kinds() {
            for (group, matched, owners) in Counting::new(kind, &self.groups, snapshot, own).of(pods) {
                if let Place::Domain(domain) = self.place_of_node(group, node) {
                    counted.push((group, domain, matched, owners));
                }
            }
        }
        counted
    }
}
