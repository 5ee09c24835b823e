//! What the engine needs to know of a held machine, read from one state of the store.

use std::sync::Arc;

use api::taints;
use decode::snapshot::DEFAULT_SCHEDULER;
use k8s_openapi::api::core::v1::Node;
use model::pod::{PodShape, SchedulingState};
use model::{Interner, NodeName, Pod, ResourceId, Taint, TaintEffect, Uid};

use super::engine::{Machine, PlannedPod, PodState, View};
use crate::assignments::Assignments;
use crate::lifecycle::claim;
use crate::lifecycle::registration::has_taint;
use crate::store::{NodeRecord, State};

/// Whether machines are held, or opened as soon as they are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Held until handed over.
    HandOver,
    /// Opened at once: hand-over was switched off while machines were held.
    OpenAll,
}

/// Whether the node carries our taint.
pub fn is_held(node: &Node) -> bool {
    has_taint(node, &taints::held())
}

/// The machines among those nodes that are to be handed over. Nodes that are leaving are not.
pub fn build<'a>(
    state: &State,
    assignments: &Assignments,
    nodes: impl IntoIterator<Item = &'a NodeName>,
    mode: Mode,
) -> View {
    let daemons: Vec<&Arc<Pod>> =
        state.unbound_pods().filter(|pod| pod.is_daemon && pod.deletion_timestamp.is_none()).collect();
    let machines = nodes.into_iter().filter_map(|name| {
        let node = state.nodes.get(name).filter(|node| node.model.deletion_timestamp.is_none())?;
        Some((name.clone(), machine(state, assignments, node, &daemons, mode)))
    });
    machines.collect()
}

fn machine(state: &State, assignments: &Assignments, node: &NodeRecord, daemons: &[&Arc<Pod>], mode: Mode) -> Machine {
    let provider_id = node.model.provider_id.as_deref().unwrap_or_default();
    let planned: Arc<[Uid]> = state
        .node_claims_of_machine(provider_id)
        .next()
        .map(|node_claim| assignments.pods_of(claim::name(node_claim)))
        .unwrap_or_default();
    let found: Vec<&Arc<Pod>> = planned.iter().filter_map(|uid| state.pod_by_uid(uid)).collect();
    let waiting: Vec<&Arc<Pod>> = found.iter().copied().filter(|pod| pod.node_name.is_none()).collect();
    let interner = &state.interner;
    let foreign: Vec<Taint> = foreign_taints(&node.model.taints, interner);
    let usable = node.model.ready
        && !node.model.unschedulable
        && waiting.iter().all(|pod| tolerates_all(&pod.shape, &foreign, interner));
    let needs_entry = match mode {
        Mode::OpenAll => true,
        Mode::HandOver => !usable && daemons.iter().any(|pod| is_kept_out(pod, node, &foreign, interner)),
    };
    Machine {
        held: is_held(&node.object),
        usable,
        needs_entry,
        nominate: may_nominate(state, node, &waiting),
        pods: found.iter().map(|pod| planned_pod(pod, &node.model.name)).collect(),
    }
}

fn planned_pod(pod: &Pod, node: &NodeName) -> PlannedPod {
    PlannedPod { uid: pod.uid.clone(), name: pod.name.clone(), state: pod_state(pod, node) }
}

/// How far a planned pod is, and whether it may be nominated.
pub fn pod_state(pod: &Pod, node: &NodeName) -> PodState {
    if pod.node_name.is_some() || pod.deletion_timestamp.is_some() || pod.phase.is_terminal() {
        return PodState::Settled;
    }
    let gated = match pod.scheduling {
        SchedulingState::Gated => true,
        SchedulingState::NotTried | SchedulingState::Unschedulable | SchedulingState::Scheduled => false,
    };
    if gated || &*pod.scheduler_name != DEFAULT_SCHEDULER {
        return PodState::HandsOff;
    }
    match &pod.nominated_node_name {
        None => PodState::Waiting,
        Some(nominated) if nominated == node => PodState::Nominated,
        // A preemptor's, or ours to a machine that it was planned on before; kube-scheduler clears it when it fails.
        Some(_) => PodState::HandsOff,
    }
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

/// Whether nothing but our taint keeps a DaemonSet's pod from that node. Such a pod may be what makes the node usable.
fn is_kept_out(pod: &Pod, node: &NodeRecord, foreign: &[Taint], interner: &Interner) -> bool {
    let ours = node.model.taints.iter().find(|taint| is_ours(taint, interner));
    let name = interner.find_value(&node.model.name);
    ours.is_some_and(|ours| !ours.is_tolerated_by(&pod.shape.tolerations, interner))
        && tolerates_all(&pod.shape, foreign, interner)
        && pod.shape.node_affinity_matches(&node.model.labels, name, interner)
}

/// Whether nominations help the planned pods. A pod with ResourceClaims may be kept from its devices by a pod that was
/// nominated elsewhere and comes here first; nominations reserve room, not devices. So such pods are nominated only if
/// no other of them has room here beside the planned ones: then CPU keeps the devices too.
fn may_nominate(state: &State, node: &NodeRecord, waiting: &[&Arc<Pod>]) -> bool {
    let cpu = |shape: &PodShape| shape.requests.get(ResourceId::CPU);
    let claimers = waiting.iter().filter(|pod| !pod.shape.resource_claims.is_empty());
    let Some(smallest) = claimers.map(|pod| cpu(&pod.shape)).min() else { return true };
    let bound = state.pods_on_node(&node.model.name).filter(|pod| !pod.phase.is_terminal());
    let used: i64 = bound.chain(waiting.iter().copied()).map(|pod| cpu(&pod.shape)).sum();
    node.model.allocatable.get(ResourceId::CPU).saturating_sub(used) < smallest
}

#[cfg(test)]
mod tests;
