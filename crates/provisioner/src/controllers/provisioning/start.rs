//! The first window after a start.
//!
//! A window is open for pods that come together. Those that were there long before we started wait for nobody, so the
//! first window closes as soon as it is known which NodePools may be used, after its idle time at the latest.

use std::time::Duration;

use model::Timestamp;
use tokio::time::Instant;

use crate::runtime::clock::Clock;
use crate::world::store::{ClusterStore, State};
use cluster::node_pool::is_judged;

/// How soon the store is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(25);
/// Times of creation are whole seconds.
const PRECISION: Duration = Duration::from_secs(1);

/// Waits until the first window closes.
pub(super) async fn window(store: &ClusterStore, clock: &dyn Clock, idle: Duration) {
    let until = Instant::now() + idle;
    while Instant::now() < until && !is_over(&store.read(), clock.now(), idle) {
        tokio::time::sleep_until(until.min(Instant::now() + LOOK_AGAIN)).await;
    }
}

fn is_over(state: &State, now: Timestamp, idle: Duration) -> bool {
    let newest = state.unbound_pods().map(|pod| pod.created_at).max();
    let waited = newest.map(|newest| u128::try_from(now.since(newest).0).unwrap_or_default());
    waited.is_none_or(|waited| waited >= (idle + PRECISION).as_millis())
        && state.node_pools.values().all(|pool| is_judged(pool))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::runtime::clock::MockClock;
    use crate::world::store::test_objects::condition;

    fn pod(store: &ClusterStore, created_at: &str) {
        store.show_pod(json!({"metadata": {"name": created_at, "creationTimestamp": created_at}}));
    }

    fn pool(store: &ClusterStore, conditions: &[Value]) {
        store.show_node_pool(json!({"metadata": {"name": "general"}, "status": {"conditions": conditions}}));
    }

    /// For how many milliseconds the window is open, if the NodePool is judged after 130.
    async fn open_for(created_at: &[&str]) -> u128 {
        let store = ClusterStore::new();
        let noon: jiff::Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let noon = MockClock::at(Timestamp(noon.as_millisecond()));
        created_at.iter().for_each(|created_at| pod(&store, created_at));
        pool(&store, &[]);
        let start = Instant::now();
        let judged = async {
            tokio::time::sleep(Duration::from_millis(130)).await;
            pool(&store, &[condition("Ready", "False", "2026-01-01T00:00:00Z")]);
        };
        let open = async {
            window(&store, &noon, Duration::from_secs(1)).await;
            start.elapsed().as_millis()
        };
        tokio::join!(open, judged).0
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_have_waited_for_long_wait_for_node_pools_only() {
        assert_eq!(open_for(&["2026-01-01T11:59:58Z", "2026-01-01T11:00:00Z"]).await, 150);
        assert_eq!(open_for(&[]).await, 150);
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_have_just_come_wait_for_others() {
        assert_eq!(open_for(&["2026-01-01T11:59:59Z", "2026-01-01T11:00:00Z"]).await, 1_000);
    }
}
