//! Collects pods for a while, so that those that come together are planned together.
//!
//! The window opens with the first trigger. It closes when nothing new has triggered for the idle time, at the latest
//! after the maximum. A pod that triggers twice in one window does not keep it open.

use std::collections::HashSet;
use std::time::Duration;

use model::Uid;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What makes a plan necessary.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Trigger {
    /// A pod that has no place.
    Pod(Uid),
    /// Anything else that may change the answer: a NodePool, a machine that goes, time.
    Cluster,
}

/// Waits for triggers. See the [module](self).
#[derive(Debug)]
pub(crate) struct Batcher {
    idle: Duration,
    max: Duration,
    window: Mutex<HashSet<Trigger>>,
    triggered: Notify,
}

impl Batcher {
    /// A batcher with those spans.
    pub(crate) fn new(idle: Duration, max: Duration) -> Self {
        Self { idle, max, window: Mutex::default(), triggered: Notify::new() }
    }

    /// Asks for a plan.
    pub(crate) fn trigger(&self, trigger: Trigger) {
        if self.window.lock().insert(trigger) {
            self.triggered.notify_one();
        }
    }

    /// Waits for a window to open and to close, and says how long it could have been open.
    pub(crate) async fn wait(&self) -> Instant {
        while self.window.lock().is_empty() {
            self.triggered.notified().await;
        }
        let ends_at = Instant::now() + self.max;
        let mut known = self.window.lock().len();
        loop {
            let idle_until = Instant::now() + self.idle;
            let until = idle_until.min(ends_at);
            let more = async {
                while self.window.lock().len() == known {
                    self.triggered.notified().await;
                }
            };
            if tokio::time::timeout_at(until, more).await.is_err() || Instant::now() >= ends_at {
                break;
            }
            known = self.window.lock().len();
        }
        self.window.lock().clear();
        ends_at
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Triggers pods at the given times and says after how many milliseconds each window closed.
    async fn windows(triggers: &'static [(u64, &'static str)], count: usize) -> Vec<u128> {
        let start = Instant::now();
        let batcher = Arc::new(Batcher::new(Duration::from_secs(1), Duration::from_secs(10)));
        let triggering = tokio::spawn({
            let batcher = Arc::clone(&batcher);
            async move {
                for (at_ms, pod) in triggers {
                    tokio::time::sleep_until(start + Duration::from_millis(*at_ms)).await;
                    batcher.trigger(Trigger::Pod((*pod).into()));
                }
            }
        });
        let mut closed_at = Vec::new();
        for _ in 0..count {
            batcher.wait().await;
            closed_at.push(start.elapsed().as_millis());
        }
        triggering.await.unwrap();
        closed_at
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_pod_waits_for_the_idle_time() {
        assert_eq!(windows(&[(500, "a")], 1).await, [1500]);
    }

    #[tokio::test(start_paused = true)]
    async fn each_new_pod_keeps_the_window_open() {
        assert_eq!(windows(&[(0, "a"), (900, "b"), (1800, "c")], 1).await, [2800]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_is_there_already_does_not() {
        assert_eq!(windows(&[(0, "a"), (900, "a")], 1).await, [1000]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_window_closes_at_the_maximum_though_pods_keep_coming() {
        const PODS: &[(u64, &str)] = &[
            (0, "a"),
            (900, "b"),
            (1800, "c"),
            (2700, "d"),
            (3600, "e"),
            (4500, "f"),
            (5400, "g"),
            (6300, "h"),
            (7200, "i"),
            (8100, "j"),
            (9000, "k"),
            (9900, "l"),
            (10800, "m"),
        ];
        assert_eq!(windows(PODS, 2).await, [10_000, 11_800]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_after_a_window_opens_the_next() {
        assert_eq!(windows(&[(0, "a"), (5000, "a")], 2).await, [1000, 6000]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trigger_while_nobody_waits_is_not_lost() {
        let batcher = Batcher::new(Duration::from_secs(1), Duration::from_secs(10));
        batcher.trigger(Trigger::Cluster);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let start = Instant::now();
        batcher.wait().await;
        assert_eq!(start.elapsed().as_millis(), 1000);
    }
}
