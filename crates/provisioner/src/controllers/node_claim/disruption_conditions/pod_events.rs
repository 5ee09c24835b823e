//! When a pod last came to a machine or left it: `status.lastPodEventTime` of its NodeClaim.
//!
//! By Karpenter's rules (`pkg/controllers/nodeclaim/podevents/controller.go`) an event is that a pod is bound to the
//! Node, ends, or begins to go; pods of DaemonSets have none. What comes within ten seconds of the event that is
//! written down is not written, so a NodeClaim is written at most every ten seconds, however many pods come and go.
//!
//! Differs: `pod-events-restart`. After a restart Karpenter takes every bound pod for one that has just come, so no
//! machine is consolidated until the time has passed anew. Here a pod counts that was made after the event that is
//! written down: it was bound while nobody looked.
//!
//! Differs: `pod-events-gone`. A pod that is deleted without a grace period goes at once; Karpenter looks for one that
//! begins to go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::NodeClaim;
use api::conditions::node_claim::INITIALIZED;
use model::{DurationMs, NodeClaimName, NodeName, Pod, Timestamp};
use parking_lot::Mutex;

use crate::runtime::clock::Clock;
use crate::runtime::conditions::{find, to_timestamp};
use crate::runtime::queue::WorkQueue;
use crate::world::claim;
use crate::world::store::{ClusterStore, State};

/// Events this soon after the one that is written down are not written.
const INTERVAL: DurationMs = DurationMs::from_seconds(10);
/// Pods mostly come together, and with other news of their NodeClaim: one patch for all.
const COLLECT: Duration = Duration::from_secs(1);

/// Events that are not written down yet, the last of each NodeClaim.
#[derive(Debug, Default)]
pub(super) struct PodEvents(Mutex<BTreeMap<NodeClaimName, Timestamp>>);

/// Notes events from now on, and queues the NodeClaims that are to be written.
pub(super) fn subscribe(
    store: &ClusterStore,
    clock: Arc<dyn Clock>,
    queue: &Arc<WorkQueue<NodeClaimName>>,
    events: &Arc<PodEvents>,
) {
    let (queue, events) = (Arc::clone(queue), Arc::clone(events));
    store.on::<Pod>(move |delta, state| {
        let now = clock.now();
        let nodes = nodes_of_event(delta.before.map(AsRef::as_ref), delta.after.map(AsRef::as_ref));
        for node_claim in nodes.flat_map(|node| node_claims_of(state, node)) {
            if is_to_be_written(last_event(node_claim), now, now) {
                let name = NodeClaimName::from(claim::name(node_claim));
                events.note(&name, now);
                queue.add_after(name, COLLECT);
            }
        }
    });
}

impl PodEvents {
    /// Notes what happened while no controller ran.
    pub(super) fn catch_up(&self, state: &State, now: Timestamp) {
        for (name, node_claim) in state.node_claims.iter() {
            let Some(pod) = newest_pod(state, node_claim) else { continue };
            let initialized = find(claim::conditions(node_claim), INITIALIZED);
            let initialized = initialized.map(|condition| to_timestamp(&condition.last_transition_time));
            let known = last_event(node_claim).or(initialized.filter(|_| claim::is(node_claim, INITIALIZED)));
            if known.is_some() && is_to_be_written(known, pod, now) {
                self.note(name, pod);
            }
        }
    }

    /// The time to write down for a NodeClaim, if there is anything to write.
    pub(super) fn to_write(&self, name: &NodeClaimName, node_claim: &NodeClaim, now: Timestamp) -> Option<Timestamp> {
        let known = last_event(node_claim);
        // Differs: `pod-events-future`. A clock was wrong, and the machine would not be quiet for as long.
        if known.is_some_and(|known| known.since(now) >= INTERVAL) {
            return Some(now);
        }
        let noted = self.0.lock().get(name).copied();
        noted.filter(|event| is_to_be_written(known, *event, now))
    }

    /// What was noted up to that event is written, or need not be.
    pub(super) fn settle(&self, name: &NodeClaimName, written: Option<Timestamp>) {
        let mut noted = self.0.lock();
        if written.is_none_or(|written| noted.get(name).is_none_or(|event| *event <= written)) {
            noted.remove(name);
        }
    }

    /// Nothing of that NodeClaim will be written any more.
    pub(super) fn forget(&self, name: &NodeClaimName) {
        self.0.lock().remove(name);
    }

    fn note(&self, name: &NodeClaimName, event: Timestamp) {
        let mut noted = self.0.lock();
        let last = noted.entry(name.clone()).or_insert(event);
        *last = event.max(*last);
    }
}

/// The nodes for which a change of a pod is an event: the node that it leaves, and the node that it is bound to.
fn nodes_of_event<'a>(before: Option<&'a Pod>, after: Option<&'a Pod>) -> impl Iterator<Item = &'a NodeName> {
    let bound = |pod: &'a Pod| pod.node_name.as_ref().filter(|_| !pod.is_daemon);
    let stays = |pod: &Pod| !pod.phase.is_terminal() && pod.deletion_timestamp.is_none();
    // A pod of that name that is another one has come, and the one before has gone.
    let same = before.zip(after).filter(|(before, after)| before.uid == after.uid);
    let left = before.filter(|before| match same {
        None => stays(before),
        Some((_, after)) => {
            (stays(before) && !stays(after)) || (!before.phase.is_terminal() && after.phase.is_terminal())
        }
    });
    let came = after.filter(|_| same.is_none_or(|(before, _)| before.node_name.is_none()));
    left.and_then(bound).into_iter().chain(came.and_then(bound))
}

/// Whether an event is written down beside the last one that is. A last one that has yet to come is wrong.
fn is_to_be_written(last: Option<Timestamp>, event: Timestamp, now: Timestamp) -> bool {
    last.is_none_or(|last| last > now || event.since(last) >= INTERVAL)
}

fn last_event(node_claim: &NodeClaim) -> Option<Timestamp> {
    node_claim.status.as_ref()?.last_pod_event_time.as_ref().map(to_timestamp)
}

/// When the newest pod on a NodeClaim's Node was made.
fn newest_pod(state: &State, node_claim: &NodeClaim) -> Option<Timestamp> {
    let nodes = state.nodes_of_machine(claim::provider_id(node_claim)?);
    let pods = nodes.flat_map(|node| state.pods_on_node(&node.model.name));
    pods.filter(|pod| !pod.is_daemon).map(|pod| pod.created_at).max()
}

fn node_claims_of<'a>(state: &'a State, node: &NodeName) -> impl Iterator<Item = &'a Arc<NodeClaim>> {
    let provider_id = state.nodes.get(node).and_then(|node| node.model.provider_id.as_ref());
    provider_id.into_iter().flat_map(|id| state.node_claims_of_machine(id))
}

#[cfg(test)]
mod tests;
