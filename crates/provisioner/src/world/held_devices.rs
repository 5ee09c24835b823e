//! What drivers had published on nodes before they were replaced or restarted ([`cluster::held_slices`]), and until
//! when that counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::held_slices::{HeldDriver, HeldSlices};
use dra_types::{NodeScope, ResourceSlice};
use model::{DurationMs, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::runtime::clock::Clock;
use crate::runtime::metrics::Metrics;
use crate::world::store::{ClusterStore, NodeRecord};

/// Longest sleep between two looks, so that a clock that was set is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// The devices that count although their drivers do not publish them at the moment.
#[derive(Debug)]
pub(crate) struct HeldDevices {
    slices: Mutex<HeldSlices>,
    /// Something is held that was not.
    changed: Notify,
}

impl HeldDevices {
    /// Lost devices are held for that long.
    pub(crate) fn new(timeout: DurationMs) -> Self {
        Self { slices: Mutex::new(HeldSlices::new(timeout)), changed: Notify::new() }
    }

    /// Follows the store. To be called before anybody else hears of slices.
    pub(crate) fn observe(self: &Arc<Self>, store: &ClusterStore, clock: &Arc<dyn Clock>) {
        let (held, clock) = (Arc::clone(self), Arc::clone(clock));
        store.on::<ResourceSlice>(move |delta, state| {
            let mut slices = held.slices.lock();
            slices.change(delta.before, delta.after, clock.now());
            // What is taken away with its node does not come back.
            if delta.after.is_none()
                && let Some(NodeScope::Node(node)) = delta.before.and_then(|slice| slice.node_scope.as_ref())
                && !state.nodes.contains(node)
            {
                slices.forget(node);
            }
            drop(slices);
            held.changed.notify_one();
        });
        let held = Arc::clone(self);
        store.on::<NodeRecord>(move |delta, _| {
            if delta.after.is_none() {
                held.slices.lock().forget(delta.key);
            }
        });
    }

    /// Puts what is held in the place of what is published.
    pub(crate) fn hold(&self, slices: &mut BTreeMap<Arc<str>, Arc<ResourceSlice>>, now: Timestamp) {
        self.slices.lock().hold(slices, now);
    }

    /// The drivers whose devices on a node are held.
    pub(crate) fn of_node(&self, node: &str, now: Timestamp) -> Vec<HeldDriver> {
        self.slices.lock().held(now).into_iter().filter(|held| held.node.as_str() == node).collect()
    }

    /// Tells whenever devices do not count any longer, and shows how many drivers are held. Never ends by itself.
    pub(crate) async fn watch(&self, clock: &dyn Clock, metrics: &Metrics, tell: impl Fn()) {
        let mut before: Vec<HeldDriver> = Vec::new();
        loop {
            let now = clock.now();
            let held = self.slices.lock().held(now);
            metrics.held_device_drivers.set(i64::try_from(held.len()).unwrap_or(i64::MAX));
            // Who published again has changed slices, of which others hear themselves.
            if before.iter().any(|driver| driver.until <= now) {
                tell();
            }
            let next = held.iter().map(|driver| driver.until.since(now)).min();
            let sleep = next.map_or(LONGEST_SLEEP, |left| {
                Duration::from_millis(u64::try_from(left.0).unwrap_or_default()).min(LONGEST_SLEEP)
            });
            before = held;
            tokio::select! {
                () = tokio::time::sleep(sleep) => {}
                () = self.changed.notified() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;
    use crate::runtime::clock::MockClock;
    use crate::world::store::Revision;

    fn slice() -> ResourceSlice {
        let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
            "spec": {"driver": "gpu.example.com", "nodeName": "n1", "devices": [{"name": "gpu-0"}],
                "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1}}});
        ResourceSlice::from_json(&object).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn lost_devices_count_until_their_time_is_over_and_that_is_told() {
        let clock = Arc::new(MockClock::at(Timestamp(0)));
        let store = ClusterStore::new();
        let held = Arc::new(HeldDevices::new(DurationMs::from_seconds(300)));
        held.observe(&store, &(Arc::clone(&clock) as Arc<dyn Clock>));
        store.show_node(json!({"metadata": {"name": "n1"}}));
        store.apply(slice(), Revision { uid: "s".into(), resource_version: 1 });
        store.delete::<ResourceSlice>(&"s".into(), &"s".into());
        let count = || {
            let mut slices = BTreeMap::new();
            held.hold(&mut slices, clock.now());
            slices.len()
        };
        assert_eq!((count(), held.of_node("n1", clock.now()).len()), (1, 1));

        let (metrics, told) = (Metrics::new(), AtomicUsize::new(0));
        let watching = held.watch(&*clock, &metrics, || {
            told.fetch_add(1, Ordering::Relaxed);
        });
        let passing = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!((told.load(Ordering::Relaxed), metrics.held_device_drivers.get()), (0, 1));
            clock.advance(Duration::from_secs(300));
            // Time stands still for tokio until all wait: so long the watch sleeps at most.
            tokio::time::sleep(LONGEST_SLEEP).await;
        };
        tokio::select! {
            () = watching => panic!("the watch ended"),
            () = passing => {}
        }
        assert_eq!((told.load(Ordering::Relaxed), metrics.held_device_drivers.get()), (1, 0));
        assert_eq!((count(), held.of_node("n1", clock.now()).len()), (0, 0));
    }
}
