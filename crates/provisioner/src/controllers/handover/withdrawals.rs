//! Nominations that kube-scheduler will not follow, and when to withdraw them.
//!
//! A pod with a nomination counts as placed, so the planner plans nothing for it. kube-scheduler clears the field after
//! an attempt that failed, but not while it does not try the pod, and never for one whose `preemptionPolicy` is `Never`
//! (`pkg/scheduler/framework/preemption/preemption.go`).

use std::collections::BTreeMap;
use std::time::Duration;

use model::{NamespacedName, NodeName, Pod, Uid};
use tokio::time::Instant;

use super::view::preempts_below;
use crate::world::hold::is_held;
use crate::world::node_facts;
use crate::world::node_room::{free_beside, holding_room};
use crate::world::store::{NodeRecord, State};

/// How long a nomination is left alone whose node we do not know, or is full: our watch may be behind the scheduler's.
const STALE_GRACE: Duration = Duration::from_secs(2);
/// How long one is to a machine that is open and seems to have room: kube-scheduler has the pod in its queue, or sees a
/// rule against it that is not looked at here. It leaves a pod for up to ten seconds between two attempts.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(30);
/// How long one is of a pod that kube-scheduler may wait with before it binds it: it gives up after ten minutes at
/// most, unless configured otherwise (`bindTimeoutSeconds` of the plugin VolumeBinding).
const BOUND_WITHIN: Duration = Duration::from_mins(15);
/// How soon it is withdrawn again if that did not work.
const WITHDRAW_AGAIN: Duration = Duration::from_secs(5);

/// What is known of such nominations; bounded by the pods that are nominated.
#[derive(Debug, Default)]
pub(crate) struct Withdrawals {
    seen: BTreeMap<Uid, Seen>,
    next: Option<Instant>,
}

#[derive(Debug)]
struct Seen {
    node: NodeName,
    since: Instant,
    /// When it was withdrawn last.
    tried_at: Option<Instant>,
}

/// A nomination to be withdrawn, unless the pod has changed since.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Withdrawal {
    /// The pod.
    pub pod: NamespacedName,
    /// Its uid.
    pub uid: Uid,
    /// The state of it that was looked at.
    pub resource_version: u64,
}

impl Withdrawals {
    /// What is to be withdrawn now.
    pub(crate) fn take_due(&mut self, state: &State, now: Instant) -> Vec<Withdrawal> {
        let mut known = std::mem::take(&mut self.seen);
        self.next = None;
        let mut withdrawals = Vec::new();
        for pod in state.nominated_pods().filter(|pod| pod.deletion_timestamp.is_none()) {
            let Some(node) = &pod.nominated_node_name else { continue };
            let Some(grace) = grace(state, pod, node) else { continue };
            let before = known.remove(&pod.uid).filter(|seen| seen.node == *node);
            let mut seen = before.unwrap_or_else(|| Seen { node: node.clone(), since: now, tried_at: None });
            let due = |seen: &Seen| seen.tried_at.map_or(seen.since + grace, |at| at + WITHDRAW_AGAIN);
            let is_due = due(&seen) <= now;
            if is_due {
                seen.tried_at = Some(now);
            }
            self.next = self.next.into_iter().chain([due(&seen)]).min();
            self.seen.insert(pod.uid.clone(), seen);
            if let Some(revision) = state.pods.revision(&pod.name).filter(|_| is_due) {
                let resource_version = revision.resource_version;
                withdrawals.push(Withdrawal { pod: pod.name.clone(), uid: pod.uid.clone(), resource_version });
            }
        }
        withdrawals
    }

    /// When to look again.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }
}

/// How long the nomination may last; `None` is for as long as it is there.
fn grace(state: &State, pod: &Pod, node: &NodeName) -> Option<Duration> {
    let Some(node) = state.nodes.get(node) else { return Some(STALE_GRACE) };
    if !node_facts::is_registered(&node.object) {
        return None;
    }
    if node.model.deletion_timestamp.is_some() {
        return Some(Duration::ZERO);
    }
    let is_ours = node.model.provider_id.as_deref().is_some_and(|id| state.node_claims_of_machine(id).next().is_some());
    // A preemptor waits for its victims.
    let awaits_others = holding_room(state, node).any(|pod| pod.deletion_timestamp.is_some());
    if !is_ours || is_held(&node.object) || awaits_others {
        return None;
    }
    match has_room(state, pod, node) {
        false => Some(STALE_GRACE),
        true if may_bind_late(state, pod) => Some(BOUND_WITHIN),
        true => Some(FOLLOWED_WITHIN),
    }
}

/// Whether kube-scheduler may have a place for the pod and wait before it binds it: for volumes, for devices, for
/// others of its group. It nominates such a pod itself (KEP-5278).
fn may_bind_late(state: &State, pod: &Pod) -> bool {
    !pod.shape.volumes.is_empty() || pod.shape.scheduling_group.is_some() || state.device_pods.contains_key(&pod.uid)
}

/// Whether the pod fits beside those that it cannot preempt.
fn has_room(state: &State, pod: &Pod, node: &NodeRecord) -> bool {
    let below = preempts_below(pod);
    pod.shape.requests.fits_in(&free_beside(state, node, |other| other.priority >= below))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use model::pod::{PodShape, PreemptionPolicy, VolumeRef};
    use model::{ResourceId, ResourceVec, Timestamp};
    use serde_json::json;

    use super::super::view::tests::{add_machine, held, revision, waiting};
    use super::*;
    use crate::world::store::{ClusterStore, Revision};

    fn asking(name: &str, cores: i64) -> Pod {
        let mut requests = ResourceVec::new();
        requests.set(ResourceId::CPU, cores * 1000);
        Pod { shape: Arc::new(PodShape { requests, ..PodShape::default() }), ..waiting(name) }
    }

    /// Each state that is shown is newer than the ones before.
    fn show(store: &ClusterStore, pod: &Pod) {
        static SHOWN: AtomicU64 = AtomicU64::new(2);
        let resource_version = SHOWN.fetch_add(1, Ordering::Relaxed);
        store.apply(pod.clone(), Revision { resource_version, ..revision(&pod.uid) });
    }

    /// After how many seconds the nomination of `pod` to the node `n`, of four cores, is withdrawn; `None` is never.
    fn withdrawn_after(store: &ClusterStore, pod: &Pod) -> Option<u64> {
        show(store, &Pod { nominated_node_name: Some("n".into()), ..pod.clone() });
        let (mut withdrawals, start) = (Withdrawals::default(), Instant::now());
        let mut now = start;
        for _ in 0..10 {
            let due = withdrawals.take_due(&store.read(), now);
            if !due.is_empty() {
                assert_eq!(due.iter().map(|it| &it.pod).collect::<Vec<_>>(), [&pod.name]);
                return Some((now - start).as_secs());
            }
            now = withdrawals.next()?;
        }
        panic!("it never comes to an end");
    }

    fn with_volume(pod: &Pod) -> Pod {
        let volumes = vec![VolumeRef::Claim(NamespacedName::new("default", "data"))];
        Pod { shape: Arc::new(PodShape { volumes, ..PodShape::clone(&pod.shape) }), ..pod.clone() }
    }

    fn open_machine() -> ClusterStore {
        let store = ClusterStore::new();
        add_machine(&store, "c", "n", &json!([]), true);
        store
    }

    fn bound(name: &str, cores: i64, priority: i32) -> Pod {
        Pod { node_name: Some("n".into()), priority, ..asking(name, cores) }
    }

    #[test]
    fn a_nomination_is_left_alone_as_long_as_somebody_may_follow_it() {
        let pod = asking("p", 2);
        let alone = withdrawn_after(&open_machine(), &pod);
        assert_eq!(alone, Some(30), "the scheduler may be slow");

        let store = ClusterStore::new();
        add_machine(&store, "c", "n", &held(), true);
        assert_eq!(withdrawn_after(&store, &pod), None, "it is to be opened");

        let store = open_machine();
        let leaving = Pod { deletion_timestamp: Some(Timestamp::default()), ..bound("leaving", 4, 0) };
        show(&store, &leaving);
        assert_eq!(withdrawn_after(&store, &pod), None, "a victim is on its way out");

        assert_eq!(withdrawn_after(&ClusterStore::new(), &pod), Some(2), "no such node");
    }

    #[test]
    fn a_nomination_to_a_machine_that_others_have_filled_is_withdrawn_soon() {
        let (store, pod) = (open_machine(), asking("p", 2));
        show(&store, &bound("other", 2, 0));
        assert_eq!(withdrawn_after(&store, &pod), Some(30), "there is room for both");
        show(&store, &bound("another", 1, 0));
        assert_eq!(withdrawn_after(&store, &pod), Some(2));
        let preemptor = Pod { priority: 1, ..pod };
        assert_eq!(withdrawn_after(&store, &preemptor), Some(30), "it may preempt");
        assert_eq!(withdrawn_after(&store, &with_volume(&preemptor)), Some(900), "its volume may be on the way");
        let polite = Pod { preemption_policy: PreemptionPolicy::Never, ..preemptor };
        assert_eq!(withdrawn_after(&store, &polite), Some(2));
    }

    #[test]
    fn room_that_is_taken_later_cuts_the_time_short_and_a_new_nomination_has_its_own() {
        let (store, pod) = (open_machine(), asking("p", 2));
        add_machine(&store, "d", "m", &json!([]), true);
        let nominate = |node: &str| show(&store, &Pod { nominated_node_name: Some(node.into()), ..pod.clone() });
        nominate("n");
        let (mut withdrawals, start) = (Withdrawals::default(), Instant::now());
        let mut due_at = |seconds: u64| {
            let due = withdrawals.take_due(&store.read(), start + Duration::from_secs(seconds));
            (due.len(), withdrawals.next().map(|next| (next - start).as_secs()))
        };
        assert_eq!(due_at(0), (0, Some(30)));
        show(&store, &bound("other", 4, 0));
        assert_eq!(due_at(10), (1, Some(15)), "and again if that did not work");
        assert_eq!(due_at(14), (0, Some(15)));
        nominate("m");
        assert_eq!(due_at(15), (0, Some(45)));
        show(&store, &pod);
        assert_eq!(due_at(20), (0, None));
    }
}
