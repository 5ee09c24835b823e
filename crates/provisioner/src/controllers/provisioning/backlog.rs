//! Pods that kube-scheduler is about to come to.
//!
//! It tries a few hundred pods a second. When many come at once, the window of those that it has given up on can close
//! while it is still busy with them, and others that came with them have not been tried. A plan for half of them is a
//! dear one: small pods fill what large ones leave. So a plan waits until the scheduler has come to what was there when
//! the window closed, or to one like it, but no longer than a window may be open, and once for each pod: one that
//! another rule keeps in the queue is not tried at all.

use std::collections::BTreeSet;
use std::time::Duration;

use model::{NamespacedName, Pod};
use parking_lot::Mutex;
use scheduling::snapshot::pending::{GivenUp, is_for_default_scheduler, is_untried};
use tokio::time::Instant;

use crate::world::store::{ClusterStore, State};

/// How soon the store is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What was waited for in vain; bounded by the pods that are there.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    given_up: Mutex<BTreeSet<NamespacedName>>,
}

impl Backlog {
    /// Waits until the scheduler has come to the pods that are there now.
    pub(super) async fn tried(&self, store: &ClusterStore, until: Instant) {
        let mut awaited = untried(&store.read());
        awaited.retain(|pod| !self.given_up.lock().contains(pod));
        while !awaited.is_empty() && Instant::now() < until {
            tokio::time::sleep(LOOK_AGAIN).await;
            let left = untried(&store.read());
            awaited.retain(|pod| left.contains(pod));
        }
        let mut given_up = self.given_up.lock();
        if !(awaited.is_empty() && given_up.is_empty()) {
            let left = untried(&store.read());
            given_up.extend(awaited);
            given_up.retain(|pod| left.contains(pod));
        }
    }
}

/// Pods of which nobody knows how they will fare.
fn untried(state: &State) -> BTreeSet<NamespacedName> {
    let mut untried = state.unbound_pods().filter(|pod| is_untried(pod) && is_for_default_scheduler(pod)).peekable();
    if untried.peek().is_none() {
        return BTreeSet::new();
    }
    let given_up = GivenUp::of(state.unbound_pods().map(AsRef::<Pod>::as_ref));
    untried.filter(|pod| !given_up.includes_one_like(pod)).map(|pod| pod.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::world::store::test_objects::controlled_by;

    struct Setup {
        store: ClusterStore,
        backlog: Backlog,
    }

    impl Setup {
        fn pod(&self, name: &str, owner: &str, reason: &str) {
            self.store.show_pod(json!({
                "metadata": {"name": name, "ownerReferences": controlled_by("ReplicaSet", owner)},
                "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": reason}]},
            }));
        }

        /// How long a plan waits, in milliseconds, while `name`, if that is somebody, is given up on after nearly 2 s.
        async fn waits(&self, name: Option<&str>) -> u128 {
            let start = Instant::now();
            let tried = async {
                let Some(name) = name else { return };
                tokio::time::sleep(Duration::from_millis(1_950)).await;
                self.pod(name, "web", "Unschedulable");
            };
            let waits = async {
                self.backlog.tried(&self.store, start + Duration::from_secs(10)).await;
                start.elapsed().as_millis()
            };
            tokio::join!(waits, tried).0
        }
    }

    fn setup() -> Setup {
        let setup = Setup { store: ClusterStore::new(), backlog: Backlog::default() };
        setup.pod("given-up", "db", "Unschedulable");
        setup
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_waited_for_that_was_tried_or_is_like_what_was() {
        let setup = setup();
        setup.pod("gated", "web", "SchedulingGated");
        setup.pod("sibling", "db", "");
        assert_eq!(setup.waits(None).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_tried_is_waited_for_until_it_or_one_like_it_was() {
        for (tried, expected) in [("first", 2_000), ("second", 2_000)] {
            let setup = setup();
            setup.pod("first", "web", "");
            setup.pod("second", "web", "");
            assert_eq!(setup.waits(Some(tried)).await, expected, "{tried}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_tried_in_time_is_waited_for_once() {
        let setup = setup();
        setup.pod("stuck", "web", "");
        assert_eq!(setup.waits(None).await, 10_000);
        assert_eq!(setup.waits(None).await, 0);
        setup.pod("another", "queue", "");
        assert_eq!(setup.waits(None).await, 10_000);
    }
}
