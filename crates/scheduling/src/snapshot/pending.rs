//! Which pods want a place, and which may leave the one they have.

use std::collections::BTreeMap;

use model::pod::{DEFAULT_SCHEDULER, SchedulingState};
use model::{Interner, Pod, Timestamp, Uid};

use super::Options;
use super::eviction::{Budgets, is_protected};

/// Whether kube-scheduler has given up on a pod for now, so that a machine may have to be launched for it.
///
/// Differs: `ended-pods`. Karpenter does not look at `deletionTimestamp` and the phase; a pod that is going away gets
/// no machine here.
pub fn is_provisionable(pod: &Pod) -> bool {
    pod.scheduling == SchedulingState::Unschedulable && pod.nominated_node_name.is_none() && is_waiting(pod)
}

/// Whether kube-scheduler has not come to the pod yet. It is planned if the scheduler has given up on a pod like it
/// that the same controller made: it will fare no better, and with thousands of pods it takes minutes until all were
/// tried.
///
/// Differs: `untried-pods`. Karpenter waits until each was tried.
pub fn is_untried(pod: &Pod) -> bool {
    pod.scheduling == SchedulingState::NotTried && pod.nominated_node_name.is_none() && is_waiting(pod)
}

/// Pods that kube-scheduler has given up on, by the controller that made them.
#[derive(Debug, Default)]
pub struct GivenUp<'a>(BTreeMap<&'a Uid, Vec<&'a Pod>>);

impl<'a> GivenUp<'a> {
    /// Of those pods.
    pub fn of(pods: impl IntoIterator<Item = &'a Pod>) -> Self {
        let mut all = Self::default();
        for pod in pods.into_iter().filter(|pod| is_provisionable(pod)) {
            let Some(owner) = &pod.owner else { continue };
            let known = all.0.entry(&owner.uid).or_default();
            if !known.iter().any(|other| other.is_alike(pod)) {
                known.push(pod);
            }
        }
        all
    }

    /// Whether a pod that was not tried yet is like one of them.
    pub fn includes_one_like(&self, pod: &Pod) -> bool {
        let siblings = pod.owner.as_ref().filter(|_| is_untried(pod)).and_then(|owner| self.0.get(&owner.uid));
        siblings.is_some_and(|siblings| siblings.iter().any(|other| other.is_alike(pod)))
    }
}

/// Whether a pod of a manifest has no node yet and nothing holds it back.
pub fn is_unbound(pod: &Pod) -> bool {
    pod.scheduling != SchedulingState::Gated && is_waiting(pod)
}

/// Whether the pod is of the scheduler that pods have which name none.
pub fn is_for_default_scheduler(pod: &Pod) -> bool {
    &*pod.scheduler_name == DEFAULT_SCHEDULER
}

/// Whether the pod's scheduler is one whose pods are planned: by kube-scheduler's rules, whichever it is.
pub fn is_of_planned_scheduler(pod: &Pod, options: &Options) -> bool {
    options.scheduler_names.include(&pod.scheduler_name)
}

/// Whether the user wants pods such as this one left to others.
pub fn is_ignored(pod: &Pod, options: &Options) -> bool {
    options.ignore_dra_requests && !pod.shape.resource_claims.is_empty()
}

fn is_waiting(pod: &Pod) -> bool {
    pod.node_name.is_none() && pod.deletion_timestamp.is_none() && is_of_workload(pod)
}

/// Whether it is a pod that has not ended, and none of the node's own: of a DaemonSet, or a mirror.
pub fn is_of_workload(pod: &Pod) -> bool {
    !pod.phase.is_terminal() && !pod.is_daemon && !pod.is_mirror
}

/// Whether a pod that leaves its node comes back somewhere else. One of a StatefulSet does even if it is already on its
/// way out, since the next one waits for it.
pub fn will_be_replaced(pod: &Pod) -> bool {
    let is_of_stateful_set = pod.owner.as_ref().is_some_and(|owner| &*owner.kind == "StatefulSet");
    let stays = pod.deletion_timestamp.is_none() || is_of_stateful_set;
    stays && is_of_workload(pod)
}

/// Whether nothing forbids for good to evict the pod.
pub fn may_leave(pod: &Pod, now: Timestamp, budgets: &Budgets<'_>, interner: &Interner) -> bool {
    !is_protected(pod, now) && !budgets.hold_for_good(pod, interner)
}
