//! What the engine needs to know of a held machine, read from one state of the store.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use api::taints;
use model::collections::{NameMap, NameSet};
use model::pod::{NodeInclusionPolicy, PodShape, PreemptionPolicy, SchedulingState, TopologySpreadConstraint};
use model::workload::DaemonSet;
use model::{
    Interner, KeyId, NodeClaimName, NodeName, Pod, ResourceId, ResourceVec, Taint, TaintEffect, TolerationOperator,
    Uid, ValueId,
};

use super::engine::{Attracts, Machine, PlannedPod, PodState, View};
use crate::options::HandOverMode;
use crate::world::assignments::{Assignments, AwaitedByPod};
use crate::world::hold::{self, is_held};
use crate::world::node_facts::is_registered;
use crate::world::node_room::{free_beside, holding_room};
use crate::world::store::{NodeRecord, State};
use crate::world::{claim, machine_devices};
use classes::{Awaited, Domains, Machines, Shape, SpreadingClass, WaitingClass};

/// The machines among those nodes that are to be handed over. Nodes that are leaving are not. Those of `closed`
/// are so until successors have come that are on their way.
pub(crate) fn build<'a>(
    state: &State,
    assignments: &Assignments,
    closed: NameSet<NodeClaimName>,
    nodes: impl IntoIterator<Item = &'a NodeName>,
    mode: HandOverMode,
) -> View {
    let AwaitedByPod { claims, promised } = assignments.awaited_by_pod();
    let stages = assignments.stages();
    let cluster = Cluster {
        state,
        assignments,
        claims,
        promised,
        stages,
        closed,
        mode,
        waiting: OnceCell::new(),
        spreading: OnceCell::new(),
        over_tolerated: OnceCell::new(),
    };
    let machines = nodes.into_iter().filter_map(|name| {
        let node = state.nodes.get(name).filter(|node| node.model.deletion_timestamp.is_none())?;
        Some((name.clone(), machine(&cluster, node)))
    });
    let mut view: View = machines.collect();
    let usable: NameSet<NodeName> =
        view.iter().filter(|(_, machine)| machine.lets_pods_in()).map(|(name, _)| name.clone()).collect();
    if mode == HandOverMode::Tolerate && !usable.is_empty() {
        for name in round::needs_no_patches(&cluster, &usable) {
            view.entry(name).and_modify(|machine| machine.needs_no_patches = true);
        }
    }
    view
}

struct Cluster<'a> {
    state: &'a State,
    assignments: &'a Assignments,
    /// The NodeClaim that each pod waits for.
    claims: Arc<NameMap<Uid, NodeClaimName>>,
    /// The machine that each pod gets whose NodeClaim is being created.
    promised: Arc<NameMap<Uid, usize>>,
    /// Of the pods that the plan wants bound after others.
    stages: Arc<NameMap<Uid, u32>>,
    /// The machines that are closed until successors of pods that are evicted have come.
    closed: NameSet<NodeClaimName>,
    mode: HandOverMode,
    waiting: OnceCell<NameMap<WaitingClass, Awaited>>,
    spreading: OnceCell<NameMap<SpreadingClass, Vec<Domains>>>,
    over_tolerated: OnceCell<Vec<(Arc<Pod>, NodeClaimName)>>,
}

impl Cluster<'_> {
    /// The pods that wait for a machine, and for which. Few machines ask for them.
    fn waiting(&self) -> &NameMap<WaitingClass, Awaited> {
        self.waiting.get_or_init(|| {
            let mut waiting = NameMap::default();
            let mut open: NameMap<&NodeClaimName, bool> = NameMap::default();
            for (pod, machine) in self.planned() {
                if pod.deletion_timestamp.is_some() {
                    continue;
                }
                let class = WaitingClass {
                    shape: Shape(Arc::clone(&pod.shape)),
                    preempts_below: preempts_below(pod),
                    wants_devices: self.state.device_pods.contains_key(&pod.uid),
                };
                let is_open = *open.entry(machine).or_insert_with(|| self.is_open(machine));
                let let_in = is_open || self.is_let_in(pod, machine);
                match waiting.entry(class) {
                    Entry::Vacant(entry) => {
                        entry.insert(Awaited { machines: Machines::One(machine.clone()), let_in });
                    }
                    Entry::Occupied(mut entry) => {
                        let awaited = entry.get_mut();
                        awaited.let_in &= let_in;
                        if awaited.machines.include_others_than(Some(machine)) {
                            awaited.machines = Machines::Several;
                        }
                    }
                }
            }
            waiting
        })
    }

    /// The pods that wait for their machines and must be spread, and where to, for each spread that they must keep.
    fn spreading(&self) -> &NameMap<SpreadingClass, Vec<Domains>> {
        self.spreading.get_or_init(|| {
            let planned = self.planned().filter(|(pod, _)| {
                pod.shape.hard_spread().next().is_some()
                    && pod.deletion_timestamp.is_none()
                    && pod.scheduling != SchedulingState::Gated
            });
            let mut machines: NameMap<SpreadingClass, NameSet<&NodeClaimName>> = NameMap::default();
            for (pod, machine) in planned {
                let shape = Shape(Arc::clone(&pod.shape));
                let class = SpreadingClass { shape, priority: pod.priority, stage: self.stage_of(pod) };
                machines.entry(class).or_default().insert(machine);
            }
            let with_domains = machines.into_iter().map(|(class, machines)| {
                let keys = class.shape.0.hard_spread().map(|spread| spread.topology_key);
                let domains = keys.map(|key| machines.iter().map(|machine| self.domain_of(machine, key)).collect());
                let domains = domains.collect();
                (class, domains)
            });
            with_domains.collect()
        })
    }

    /// The pods that wait for their machines and count only nodes that they tolerate in a spread that they must keep.
    fn spread_over_tolerated(&self) -> &[(Arc<Pod>, NodeClaimName)] {
        self.over_tolerated.get_or_init(|| {
            let concerned = self.planned().filter(|(pod, _)| pod.shape.hard_spread().any(is_over_tolerated));
            concerned.map(|(pod, machine)| (Arc::clone(pod), machine.clone())).collect()
        })
    }

    /// The label of a machine that may not have a node yet.
    fn domain_of(&self, machine: &NodeClaimName, key: KeyId) -> Option<ValueId> {
        let of_node = node_of(self.state, machine).and_then(|node| node.model.labels.get(key));
        of_node.or_else(|| {
            let labels = self.state.node_claims.get(machine)?.metadata.labels.as_ref()?;
            self.state.interner.find_value(labels.get(self.state.interner.key_name(key))?)
        })
    }

    /// The pods that are not bound and wait for a machine, with its NodeClaim.
    fn planned(&self) -> impl Iterator<Item = (&Arc<Pod>, &NodeClaimName)> {
        let found = self.claims.iter().filter_map(|(uid, machine)| Some((self.state.pod_by_uid(uid)?, machine)));
        found.filter(|(pod, _)| pod.node_name.is_none())
    }

    /// Whether pods wait whose spread counts this one on its node and that the plan places before it, or may have:
    /// those of an earlier stage; and, of the same stage, those of higher priority, and those whose spread stays as
    /// strict however evenly others are spread, if they come into a domain of this one: it could be too full for them
    /// after it. Into others they come the sooner the more are here. But who has to be near to this one waits for it,
    /// if no stage says otherwise.
    fn comes_after_others(&self, pod: &Pod, node: &NodeRecord) -> bool {
        let interner = &self.state.interner;
        let rank = |stage: u32, priority: i32, shape: &PodShape| (Reverse(stage), priority, stays_strict(shape));
        let stage = self.stage_of(pod);
        let own = rank(stage, pod.priority, &pod.shape);
        self.spreading().iter().any(|(class, domains)| {
            let is_planned_so = class.stage != stage;
            let may_be_too_full = |(spread, domains): (&TopologySpreadConstraint, &Domains)| {
                spread.counts(pod, interner)
                    && (is_planned_so || domains.may_include(node.model.labels.get(spread.topology_key)))
            };
            rank(class.stage, class.priority, &class.shape.0) > own
                && class.shape.0.hard_spread().zip(domains).any(may_be_too_full)
                && (is_planned_so || !class.has_to_be_near(pod, interner))
        })
    }

    /// Whether the pod tolerates that machine's taint.
    fn is_let_in(&self, pod: &Pod, machine: &NodeClaimName) -> bool {
        let uid = self.state.node_claims.get(machine).and_then(|it| it.metadata.uid.as_deref());
        uid.is_some_and(|uid| may_enter(pod, uid))
    }

    fn stage_of(&self, pod: &Pod) -> u32 {
        self.stages.get(&pod.uid).copied().unwrap_or(0)
    }

    /// Whether a machine lets everybody in.
    fn is_open(&self, machine: &NodeClaimName) -> bool {
        open_node(self.state, machine).is_some()
    }
}

/// The node of a machine that lets everybody in.
fn open_node<'a>(state: &'a State, machine: &NodeClaimName) -> Option<&'a Arc<NodeRecord>> {
    node_of(state, machine).filter(|node| is_registered(&node.object) && !is_held(&node.object))
}

/// The node of a machine, if it has one yet. News of it can come before news that its NodeClaim is registered.
fn node_of<'a>(state: &'a State, machine: &NodeClaimName) -> Option<&'a Arc<NodeRecord>> {
    let status = state.node_claims.get(machine)?.status.as_ref()?;
    state.nodes.get(&*status.node_name).or_else(|| state.nodes_of_machine(&status.provider_id).next())
}

/// Pods that were planned onto machines that are open by now and have not come, with the machines' nodes. None whose
/// devices or whose group the scheduler waits for: a nomination reserves room, and nothing else.
pub(crate) fn late(state: &State, assignments: &Assignments) -> Vec<(NodeName, PlannedPod)> {
    let mut late = Vec::new();
    for (machine, pods) in assignments.awaited() {
        let Some(node) = open_node(state, &machine).filter(|node| node.model.deletion_timestamp.is_none()) else {
            continue;
        };
        let pods = pods.iter().filter_map(|uid| state.pod_by_uid(uid));
        let pods = pods.filter(|pod| pod.shape.resource_claims.is_empty() && pod.shape.scheduling_group.is_none());
        late.extend(pods.map(|pod| {
            let pod_state = pod_state(pod, &node.model.name);
            let (uid, name) = (pod.uid.clone(), pod.name.clone());
            let crowds_out_alike = crowds_out_alike(pod, &state.interner);
            let planned =
                PlannedPod { uid, name, state: pod_state, may_enter: false, after_others: false, crowds_out_alike };
            (node.model.name.clone(), planned)
        }));
    }
    late
}

/// Whether a spread wants several domains: as long as fewer count, the least is 0.
fn stays_strict(shape: &PodShape) -> bool {
    shape.hard_spread().any(|it| it.min_domains.is_some_and(|wanted| wanted > 1))
}

fn machine(cluster: &Cluster<'_>, node: &NodeRecord) -> Machine {
    let state = cluster.state;
    let provider_id = node.model.provider_id.as_deref().unwrap_or_default();
    let object = state.node_claims_of_machine(provider_id).next();
    let node_claim = object.map(|node_claim| claim::name(node_claim));
    let planned: Arc<[Uid]> = node_claim.map(|name| cluster.assignments.pods_of(name)).unwrap_or_default();
    // Pods whose devices will not come have no reason to wait here: they are planned anew.
    let devices_failed = object.is_some_and(|claim| machine_devices::are_given_up(claim));
    let found: Vec<&Arc<Pod>> = planned
        .iter()
        .filter_map(|uid| state.pod_by_uid(uid))
        .filter(|pod| !devices_failed || pod.node_name.is_some() || pod.shape.resource_claims.is_empty())
        .collect();
    let waiting: Vec<&Arc<Pod>> = found.iter().copied().filter(|pod| pod.node_name.is_none()).collect();
    let interner = &state.interner;
    let foreign: Vec<Taint> = foreign_taints(&node.model.taints, interner);
    // Pods that wait for devices cannot come before their drivers; until then the room is kept for them.
    let awaits_devices = object.is_some_and(|claim| machine_devices::are_awaited(claim))
        && waiting.iter().any(|pod| !pod.shape.resource_claims.is_empty());
    let usable = node.model.ready
        && !awaits_devices
        && !node.model.unschedulable
        && waiting.iter().all(|pod| tolerates_all(&pod.shape, &foreign, interner));
    // Taints that its pods tolerate are not what they wait for: a kubelet or driver that is starting.
    let keeps_away = |taint: &Taint| waiting.iter().any(|pod| !tolerates_all(&pod.shape, &[*taint], interner));
    let entry_needed = !usable && foreign.iter().any(keeps_away) && is_entry_needed(state, node, &foreign);
    let kept_out = awaits_devices
        || (!waiting.is_empty() && waiting.iter().all(|pod| !tolerates_all(&pod.shape, &foreign, interner)));
    let (needs_entry, guarded) = match cluster.mode {
        HandOverMode::Off => (true, false),
        HandOverMode::Tolerate | HandOverMode::Nominate => (entry_needed, !entry_needed && kept_out),
    };
    let taint = hold::of_node(&node.object);
    let own_value = taint.and_then(|taint| taint.value.as_deref()).filter(|value| !value.is_empty());
    // As long as its own pods wait, nobody asks.
    let attracts = match taint.is_some() && waiting.is_empty() {
        true => attracted(cluster, node, node_claim),
        false => Attracts::Nobody,
    };
    Machine {
        held: taint.is_some(),
        usable,
        needs_entry,
        guarded,
        tolerable: own_value.is_some(),
        nominate: may_nominate(state, node, &waiting),
        attracts,
        needs_no_patches: false,
        waits_for_successors: node_claim.is_some_and(|name| cluster.closed.contains(name)),
        pods: found.iter().map(|pod| planned_pod(cluster, pod, node, own_value)).collect(),
        onlookers: onlookers(cluster, node, node_claim, own_value, &waiting),
    }
}

/// Pods that wait for other machines, and have to be spread over nodes that they tolerate in a way that counts pods
/// here: as long as they may not enter, they do not know of these. Not those with room here beside the pods that are to
/// come, nor while any of these is not like them; nor before they may enter their own machine: its domain has to count
/// for them too, or one that has enough already looks as if it had room.
fn onlookers(
    cluster: &Cluster<'_>,
    node: &NodeRecord,
    node_claim: Option<&str>,
    own_value: Option<&str>,
    waiting: &[&Arc<Pod>],
) -> Vec<PlannedPod> {
    let (state, Some(own_value)) = (cluster.state, own_value) else { return Vec::new() };
    let is_counted_here = |pod: &Pod| {
        let spreads = || pod.shape.hard_spread().filter(|spread| is_over_tolerated(spread));
        holding_room(state, node).any(|here| spreads().any(|spread| spread.counts(here, &state.interner)))
    };
    let has_room = |pod: &Pod| {
        let mut free = free_beside(state, node, |here| here.priority >= preempts_below(pod));
        waiting.iter().for_each(|planned| free.saturating_sub_assign(&planned.shape.requests));
        pod.shape.requests.fits_in(&free)
    };
    let looks_on = |(pod, machine): &&(Arc<Pod>, NodeClaimName)| {
        Some(&**machine) != node_claim
            && (cluster.is_let_in(pod, machine) || cluster.is_open(machine))
            && pod_state(pod, &node.model.name) == PodState::Waiting
            && !may_enter(pod, own_value)
            && waiting.iter().all(|planned| planned.is_alike(pod))
            && is_counted_here(pod)
            && !has_room(pod)
    };
    let found = cluster.spread_over_tolerated().iter().filter(looks_on);
    let mut onlookers: Vec<PlannedPod> =
        found.map(|(pod, _)| planned_pod(cluster, pod, node, Some(own_value))).collect();
    onlookers.sort_by(|one, other| one.name.cmp(&other.name));
    onlookers
}

/// Whether a spread counts only nodes whose taints the pod tolerates.
fn is_over_tolerated(spread: &TopologySpreadConstraint) -> bool {
    spread.node_taints_policy == NodeInclusionPolicy::Honor
}

fn planned_pod(cluster: &Cluster<'_>, pod: &Pod, node: &NodeRecord, own_value: Option<&str>) -> PlannedPod {
    let state = pod_state(pod, &node.model.name);
    let may_enter = own_value.is_some_and(|value| may_enter(pod, value));
    let after_others = !may_enter && state != PodState::Settled && cluster.comes_after_others(pod, node);
    let crowds_out_alike = crowds_out_alike(pod, &cluster.state.interner);
    PlannedPod { uid: pod.uid.clone(), name: pod.name.clone(), state, may_enter, after_others, crowds_out_alike }
}

/// Whether the pod tolerates our taint with that value, which is the uid of a machine's NodeClaim.
fn may_enter(pod: &Pod, value: &str) -> bool {
    pod.may_enter.iter().any(|machine| **machine == *value)
}

/// How far a planned pod is, and whether it may be nominated.
pub(crate) fn pod_state(pod: &Pod, node: &NodeName) -> PodState {
    if pod.node_name.is_some() || pod.deletion_timestamp.is_some() || pod.phase.is_terminal() {
        return PodState::Settled;
    }
    let gated = match pod.scheduling {
        SchedulingState::Gated => true,
        SchedulingState::NotTried | SchedulingState::Unschedulable | SchedulingState::Scheduled => false,
    };
    if gated {
        return PodState::HandsOff;
    }
    match &pod.nominated_node_name {
        None => PodState::Waiting,
        Some(nominated) if nominated == node => PodState::Nominated,
        // A preemptor's, or ours to a machine that it was planned on before; kube-scheduler clears it when it fails.
        Some(_) => PodState::HandsOff,
    }
}

/// Whether the pod, while it is nominated to a node, keeps others like it from that node for good: kube-scheduler
/// places a pod as if those that are nominated to a node and not of lower priority were there
/// (`pkg/scheduler/framework/runtime/framework.go`, `RunFilterPluginsWithNominatedPods`), so each of them finds the
/// others in its spread; and it clears a nomination that fails only of pods that may preempt.
fn crowds_out_alike(pod: &Pod, interner: &Interner) -> bool {
    pod.preemption_policy == PreemptionPolicy::Never
        && pod.shape.hard_spread().any(|spread| spread.counts(pod, interner))
}

/// Taints that keep pods away, but for our own.
fn foreign_taints(of_node: &[Taint], interner: &Interner) -> Vec<Taint> {
    of_node.iter().filter(|taint| taint.is_hard() && !is_ours(taint, interner)).copied().collect()
}

fn is_ours(taint: &Taint, interner: &Interner) -> bool {
    taint.effect == TaintEffect::NoSchedule && interner.key_name(taint.key) == taints::HELD
}

fn tolerates_all(shape: &PodShape, taints: &[Taint], interner: &Interner) -> bool {
    taints.iter().all(|taint| taint.is_tolerated_by(&shape.tolerations, interner))
}

/// Whether a DaemonSet's pod that our taint alone would keep out is missing on the node. It may be what makes the node
/// usable: a driver's pod tolerates the startup taint that it takes off in the end. The DaemonSet's controller does not
/// even make pods for nodes that they do not tolerate, so its template is looked at.
fn is_entry_needed(state: &State, node: &NodeRecord, foreign: &[Taint]) -> bool {
    let interner = &state.interner;
    let name = interner.find_value(&node.model.name);
    state.daemon_sets.values().any(|daemon_set| {
        let shape = &daemon_set.template.shape;
        !tolerates_holds(shape, interner)
            && tolerates_all(shape, foreign, interner)
            && shape.node_affinity_matches(&node.model.labels, name, interner)
            && !has_pod_of(state, &node.model.name, daemon_set)
    })
}

/// Whether pods of that shape may enter every held machine.
fn tolerates_holds(shape: &PodShape, interner: &Interner) -> bool {
    shape.tolerations.iter().any(|toleration| {
        toleration.operator == TolerationOperator::Exists
            && toleration.key.is_none_or(|key| interner.key_name(key) == taints::HELD)
            && toleration.effect.is_none_or(|effect| effect == TaintEffect::NoSchedule)
    })
}

fn has_pod_of(state: &State, node: &NodeName, daemon_set: &DaemonSet) -> bool {
    state.pods_on_node(node).any(|pod| pod.owner.as_ref().is_some_and(|owner| owner.uid == daemon_set.uid))
}

/// Whether a pod that waits for another machine would fit into what is free on the node, or what it can make free by
/// preemption, as far as resources and node affinity go. Taints of others are not looked at: those that are here may be
/// gone by now, for news of pods can come before news of their node.
fn attracted(cluster: &Cluster<'_>, node: &NodeRecord, node_claim: Option<&str>) -> Attracts {
    let state = cluster.state;
    let free = free_beside(state, node, |_| true);
    let least = holding_room(state, node).map(|pod| pod.priority).min();
    let name = state.interner.find_value(&node.model.name);
    let is_attracted = |class: &WaitingClass| {
        let requests = class.requests(node, &state.interner);
        let may_preempt = least.is_some_and(|least| least < class.preempts_below);
        let beside_others = || free_beside(state, node, |pod| pod.priority >= class.preempts_below);
        let fits = || requests.fits_in(&free) || (may_preempt && requests.fits_in(&beside_others()));
        fits() && class.shape.0.node_affinity_matches(&node.model.labels, name, &state.interner)
    };
    let mut attracts = Attracts::Nobody;
    for (class, awaited) in cluster.waiting() {
        if !awaited.machines.include_others_than(node_claim) || !is_attracted(class) {
            continue;
        }
        if !awaited.let_in {
            return Attracts::Others;
        }
        attracts = Attracts::LetIn;
    }
    attracts
}

/// The pod takes the room of bound pods whose priority is lower than this.
pub(crate) fn preempts_below(pod: &Pod) -> i32 {
    match pod.preemption_policy {
        PreemptionPolicy::PreemptLowerPriority => pod.priority,
        PreemptionPolicy::Never => i32::MIN,
    }
}

/// Whether nominations help the planned pods. A pod with ResourceClaims may be kept from its devices by a pod that was
/// nominated elsewhere and comes here first; nominations reserve room, not devices. So such pods are nominated only if
/// no other of them has room here beside the planned ones: then CPU keeps the devices too.
fn may_nominate(state: &State, node: &NodeRecord, waiting: &[&Arc<Pod>]) -> bool {
    let cpu = |shape: &PodShape| shape.requests.get(ResourceId::CPU);
    let claimers = waiting.iter().filter(|pod| !pod.shape.resource_claims.is_empty());
    let Some(smallest) = claimers.map(|pod| cpu(&pod.shape)).min() else { return true };
    let used: i64 = holding_room(state, node).chain(waiting.iter().copied()).map(|pod| cpu(&pod.shape)).sum();
    node.model.allocatable.get(ResourceId::CPU).saturating_sub(used) < smallest
}

mod classes;
mod round;
#[cfg(test)]
pub(super) mod tests;
