//! Pods that are not planned: those that cannot be read, and those that opt out of NodePools. Two parts of the
//! controller count them, and one gauge shows their sum.

use std::sync::atomic::{AtomicI64, Ordering};

use prometheus_client::metrics::gauge::Gauge;

/// The two counts and the gauge.
#[derive(Debug, Default)]
pub struct IgnoredPods {
    unreadable: AtomicI64,
    left_to_others: AtomicI64,
    /// The sum.
    pub(super) gauge: Gauge,
}

impl IgnoredPods {
    /// So many cannot be read.
    pub fn set_unreadable(&self, pods: i64) {
        self.unreadable.store(pods, Ordering::Relaxed);
        self.show();
    }

    /// How many opt out of NodePools, or are excluded by options.
    pub fn set_left_to_others(&self, pods: i64) {
        self.left_to_others.store(pods, Ordering::Relaxed);
        self.show();
    }

    fn show(&self) {
        let (unreadable, left) = (self.unreadable.load(Ordering::Relaxed), self.left_to_others.load(Ordering::Relaxed));
        self.gauge.set(unreadable.saturating_add(left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gauge_shows_the_sum_of_both_counts() {
        let pods = IgnoredPods::default();
        pods.set_unreadable(2);
        pods.set_left_to_others(3);
        assert_eq!(pods.gauge.get(), 5);
        pods.set_unreadable(0);
        assert_eq!(pods.gauge.get(), 3);
    }
}
