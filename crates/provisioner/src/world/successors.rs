//! Pods that will come in the place of others: a disruption command has planned where those go that it evicts, and
//! their controllers make new ones, which know nothing of that.
//!
//! A new pod of the same controller that asks for the same takes over the place of the first that is gone. It waits for
//! that machine then as if a plan had put it there, so the hand-over nominates it and no other plan gives its room
//! away. All of this is a wish, and forgotten after a while.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{DurationMs, NodeClaimName, Pod, Timestamp, Uid};
use parking_lot::Mutex;

use crate::runtime::clock::Clock;
use crate::world::assignments::Assignments;
use crate::world::store::ClusterStore;

/// How long successors are waited for: a drain may take long.
const EXPECTED_FOR: DurationMs = DurationMs::from_seconds(30 * 60);
/// Most pods whose successors are waited for.
const MOST: usize = 50_000;

/// Successors that are waited for.
#[derive(Debug, Default)]
pub(crate) struct Successors {
    /// By their controller, in the order in which they were planned.
    expected: Mutex<BTreeMap<Uid, Vec<Expected>>>,
}

#[derive(Debug)]
struct Expected {
    predecessor: Arc<Pod>,
    place: NodeClaimName,
    until: Timestamp,
}

impl Successors {
    /// Waits for the successors of pods that will be evicted. A pod without a controller has none.
    pub(crate) fn expect(&self, places: impl IntoIterator<Item = (Arc<Pod>, NodeClaimName)>, now: Timestamp) {
        let mut expected = self.expected.lock();
        expected.retain(|_, of_owner| {
            of_owner.retain(|it| it.until > now);
            !of_owner.is_empty()
        });
        let mut count: usize = expected.values().map(Vec::len).sum();
        for (predecessor, place) in places {
            let Some(owner) = predecessor.owner.as_ref().map(|owner| owner.uid.clone()) else { continue };
            if count == MOST {
                break;
            }
            let of_owner = expected.entry(owner).or_default();
            // A deletion that failed is tried again.
            if of_owner.iter().any(|it| it.predecessor.uid == predecessor.uid) {
                continue;
            }
            count += 1;
            of_owner.push(Expected { predecessor, place, until: now.saturating_add(EXPECTED_FOR) });
        }
    }

    /// The place of a new pod, if it is a successor. Each place is given once.
    pub(crate) fn take(&self, pod: &Pod, now: Timestamp) -> Option<NodeClaimName> {
        let owner = &pod.owner.as_ref()?.uid;
        let mut all = self.expected.lock();
        let of_owner = all.get_mut(owner)?;
        if of_owner.iter().any(|it| it.predecessor.uid == pod.uid) {
            return None;
        }
        let takes_over = |it: &Expected| {
            let before = &it.predecessor;
            // Labels are left out: a bound pod has some of its node's.
            it.until > now
                && before.name.namespace == pod.name.namespace
                && before.priority == pod.priority
                && before.scheduler_name == pod.scheduler_name
                && before.shape == pod.shape
        };
        let position = of_owner.iter().position(takes_over)?;
        let taken = of_owner.remove(position);
        if of_owner.is_empty() {
            all.remove(owner);
        }
        Some(taken.place)
    }
}

/// Gives new pods the places of those they succeed, from now on.
pub(crate) fn subscribe(
    store: &ClusterStore,
    successors: &Arc<Successors>,
    assignments: &Arc<Assignments>,
    clock: &Arc<dyn Clock>,
) {
    let (successors, assignments, clock) = (Arc::clone(successors), Arc::clone(assignments), Arc::clone(clock));
    store.on::<Pod>(move |delta, state| {
        let (None, Some(pod)) = (delta.before, delta.after) else { return };
        if pod.node_name.is_some() {
            return;
        }
        if let Some(place) = successors.take(pod, clock.now())
            && state.node_claims.get(&place).is_some_and(|claim| claim.metadata.deletion_timestamp.is_none())
        {
            assignments.extend(&place, [(pod.uid.clone(), None)]);
        }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, owner: &str, cpu: &str) -> Arc<Pod> {
        let pod = json!({
            "metadata": {"namespace": "shop", "name": name, "uid": name,
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true}]},
            "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]},
        });
        Arc::new(decode::pod(&pod, &mut decode::Context::new(&mut model::Interner::new())).unwrap())
    }

    #[test]
    fn a_new_pod_of_the_same_controller_and_shape_takes_a_place_and_each_is_given_once() {
        let successors = Successors::default();
        let now = Timestamp::from_seconds(100);
        let planned = [(pod("a", "web", "1"), "m1".into()), (pod("b", "web", "1"), "m2".into())];
        successors.expect(planned.clone(), now);
        successors.expect(planned, now);
        assert_eq!(successors.take(&pod("c", "db", "1"), now), None, "of another controller");
        assert_eq!(successors.take(&pod("d", "web", "2"), now), None, "asks for something else");
        assert_eq!(successors.take(&pod("a", "web", "1"), now), None, "that is the one that goes");
        assert_eq!(successors.take(&pod("e", "web", "1"), now), Some("m1".into()));
        assert_eq!(successors.take(&pod("f", "web", "1"), now), Some("m2".into()));
        assert_eq!(successors.take(&pod("g", "web", "1"), now), None);
    }

    #[test]
    fn a_place_is_not_kept_for_ever() {
        let successors = Successors::default();
        let now = Timestamp::from_seconds(100);
        successors.expect([(pod("a", "web", "1"), "m1".into())], now);
        let later = now.saturating_add(EXPECTED_FOR);
        assert_eq!(successors.take(&pod("b", "web", "1"), later), None);
        successors.expect([], later);
        assert!(successors.expected.lock().is_empty());
    }
}
