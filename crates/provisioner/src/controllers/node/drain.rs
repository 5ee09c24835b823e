//! Which pods leave a draining node next.
//!
//! Pods leave in four tiers, the next one once the one before is gone: ordinary pods, ordinary DaemonSets' pods,
//! critical pods, critical DaemonSets' pods. A pod whose own grace period would not end before the node's deadline
//! leaves at once, whatever its tier.
//!
//! A pod of a DRA driver takes its turn only once the consumers of the driver's claims on the node have gone
//! ([`devices_in_use`](super::devices_in_use)). Until then it keeps no tier busy: consumers may be in any. Shortly
//! before the deadline it is a pod like any other.
//!
//! Within a tier the largest leaves first: kube-scheduler binds its successor before those of smaller ones, which are
//! more likely to fit into what is left then. Over all nodes that are drained it is the same for pods that move by a
//! plan, which the caller asks
//! ([`Successors::waits_for_others`](crate::world::successors::Successors::waits_for_others)).
//!
//! Differs: `critical-pods`. Critical is a priority of 2000000000 and more, which is what the two system priority
//! classes have; Karpenter goes by their names.

use std::collections::{BTreeMap, BTreeSet};

use model::pod::PodPhase;
use model::{DurationMs, Interner, Pod, ResourceId, Timestamp, Uid};
use scheduling::snapshot::eviction::tolerates_disruption;

use super::devices_in_use::{DevicesInUse, Use};

/// Lowest priority of pods that the cluster itself needs. User-defined classes end below it.
const SYSTEM_CRITICAL: i32 = 2_000_000_000;
/// A pod that should have been gone for this long never will be.
const STUCK_AFTER: DurationMs = DurationMs::from_seconds(60);

/// What is left of a machine's time for its drivers' pods, however much of it the consumers of their claims take.
const LAST_GRACE: DurationMs = DurationMs::from_seconds(5);

/// What the API server gives a pod that does not say how long its end may take.
const DEFAULT_GRACE_S: i64 = 30;

/// How far a drain is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Drain<'a> {
    /// Pods that must leave, or are leaving. The node is drained when there is none.
    pub remaining: usize,
    /// Those whose turn it is.
    pub next: Vec<&'a Pod>,
    /// What drivers' pods are needed for.
    pub claims: Claims<'a>,
}

/// Whether pods of DRA drivers are kept back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Claims<'a> {
    /// None is.
    #[default]
    Released,
    /// One at least, which comes with what it is needed for; the first of both by name.
    Awaited(&'a Pod, &'a Use),
    /// None, though one is needed: there is no time left.
    GivenUp(&'a Pod, &'a Use),
}

/// Looks at the pods of a node.
pub(crate) fn decide<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    in_use: &'a DevicesInUse,
    deadline: Option<Timestamp>,
    interner: &Interner,
    now: Timestamp,
) -> Drain<'a> {
    let mut remaining: Vec<&Pod> = pods.into_iter().filter(|pod| is_waiting(pod, interner, now)).collect();
    remaining.sort_by(|a, b| a.name.cmp(&b.name));
    let mut needed = needed(&remaining, in_use);
    let first = remaining.iter().find_map(|pod| Some((*pod, *needed.get(&pod.uid)?)));
    let is_too_late = deadline.is_some_and(|deadline| now > deadline.saturating_sub(LAST_GRACE));
    let claims = match first {
        None => Claims::Released,
        Some((pod, reason)) if is_too_late => Claims::GivenUp(pod, reason),
        Some((pod, reason)) => Claims::Awaited(pod, reason),
    };
    if is_too_late {
        needed.clear();
    }
    let free = remaining.iter().copied().filter(|pod| !needed.contains_key(&pod.uid));
    let (forced, others): (Vec<&Pod>, Vec<&Pod>) = free.partition(|pod| needs_force(pod, deadline, now));
    let first_tier = others.iter().map(|pod| tier(pod)).min();
    let next = others.into_iter().filter(|pod| Some(tier(pod)) == first_tier && pod.deletion_timestamp.is_none());
    let mut next: Vec<&Pod> = forced.into_iter().chain(next).collect();
    next.sort_by(|a, b| size(b).cmp(&size(a)).then_with(|| a.name.cmp(&b.name)));
    Drain { remaining: remaining.len(), next, claims }
}

/// Processors, then memory.
fn size(pod: &Pod) -> [i64; 2] {
    [ResourceId::CPU, ResourceId::MEMORY].map(|resource| pod.shape.requests.get(resource))
}

/// The drivers' pods that have not been asked to leave yet and are needed, by uid, with what for.
///
/// Drivers' pods may use devices themselves, even each other's. So a driver's pod is needed if somebody else uses a
/// claim of its driver, or a driver's pod that is needed itself.
fn needed<'a>(remaining: &[&'a Pod], in_use: &'a DevicesInUse) -> BTreeMap<Uid, &'a Use> {
    let asked = remaining.iter().filter(|pod| pod.deletion_timestamp.is_none());
    let uses: Vec<(&Pod, Vec<&Use>)> = asked
        .map(|pod| (*pod, in_use.needing(pod).collect()))
        .filter(|(_, uses): &(_, Vec<_>)| !uses.is_empty())
        .collect();
    let of_drivers: BTreeSet<&Uid> = uses.iter().map(|(pod, _)| &pod.uid).collect();
    let mut needed: BTreeMap<Uid, &Use> = BTreeMap::new();
    loop {
        let counts = |it: &&Use| !of_drivers.contains(&it.consumer) || needed.contains_key(&it.consumer);
        let more: Vec<(Uid, &Use)> = uses
            .iter()
            .filter(|(pod, _)| !needed.contains_key(&pod.uid))
            .filter_map(|(pod, uses)| Some((pod.uid.clone(), *uses.iter().find(|it| counts(it))?)))
            .collect();
        if more.is_empty() {
            return needed;
        }
        needed.extend(more);
    }
}

/// Whether a node cannot go while this pod is there.
fn is_waiting(pod: &Pod, interner: &Interner, now: Timestamp) -> bool {
    !pod.phase.is_terminal() && is_drainable(pod, interner, now)
}

/// Whether a drain has to do with the pod at all: not if it belongs to the node, tolerates the drain, or cannot end.
pub(crate) fn is_drainable(pod: &Pod, interner: &Interner, now: Timestamp) -> bool {
    let stuck = pod.deletion_timestamp.is_some_and(|gone_at| now > gone_at.saturating_add(STUCK_AFTER));
    !pod.is_mirror && !stuck && !tolerates_disruption(&pod.shape.tolerations, interner)
}

/// Whether waiting any longer would cut the pod's grace period short by more than it must be.
pub(crate) fn needs_force(pod: &Pod, deadline: Option<Timestamp>, now: Timestamp) -> bool {
    let (Some(deadline), Some(grace_s)) = (deadline, pod.termination_grace_period_s) else { return false };
    match pod.deletion_timestamp {
        Some(gone_at) => gone_at > deadline,
        None => now > deadline.saturating_sub(DurationMs::from_seconds(grace_s.max(0))),
    }
}

/// How long a drain takes if each pod takes as long as it may, one tier after the other. DaemonSets' pods end with
/// their machine, and nothing is lost if they are cut short.
pub(crate) fn longest<'a>(pods: impl IntoIterator<Item = &'a Pod>, interner: &Interner, now: Timestamp) -> DurationMs {
    let mut by_tier: BTreeMap<(bool, bool), i64> = BTreeMap::new();
    for pod in pods.into_iter().filter(|pod| !pod.is_daemon && is_waiting(pod, interner, now)) {
        let longest = by_tier.entry(tier(pod)).or_default();
        *longest = pod.termination_grace_period_s.unwrap_or(DEFAULT_GRACE_S).max(*longest);
    }
    DurationMs::from_seconds(by_tier.values().fold(0, |sum, grace| sum.saturating_add(*grace)))
}

fn tier(pod: &Pod) -> (bool, bool) {
    (pod.priority >= SYSTEM_CRITICAL, pod.is_daemon)
}

/// Whether a pod has ended.
pub(crate) fn has_ended(phase: PodPhase) -> bool {
    phase.is_terminal()
}

#[cfg(test)]
mod tests;
