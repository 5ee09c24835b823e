//! Where the shell gets the time from.
//!
//! The core takes time as a parameter; everything in the shell that needs the time of day asks a [`Clock`], so that
//! tests can set it. Waiting is tokio's business (`tokio::time`), which tests pause.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model::Timestamp;

/// Tells the time of day.
pub trait Clock: Debug + Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The machine's own clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        // Before 1970 and after the year 292 million a machine has other worries than its autoscaler.
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct MockClock {
    now_ms: AtomicI64,
}

impl MockClock {
    /// A clock that shows `now`.
    pub fn at(now: Timestamp) -> Self {
        Self { now_ms: AtomicI64::new(now.0) }
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let by_ms = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.now_ms.fetch_add(by_ms, Ordering::Relaxed);
    }
}

impl Clock for MockClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now_ms.load(Ordering::Relaxed))
    }
}
