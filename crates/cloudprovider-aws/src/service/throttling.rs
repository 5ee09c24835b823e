//! How EC2 throttles: an account has buckets of tokens, for kinds of calls and of resources, that fill up again by the
//! second. A call is refused if a bucket of its kind holds less than it takes.
//!
//! Sizes are those of "Request throttling for the Amazon EC2 API" in EC2's developer guide, where AWS has not raised
//! them.

use std::time::Duration;

/// The size of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tokens {
    /// How many there are at most.
    pub most: u32,
    /// How many come each second.
    pub each_second: u32,
}

/// Calls that launch machines.
pub const LAUNCH_CALLS: Tokens = Tokens { most: 5, each_second: 2 };

/// Machines that are launched.
pub const LAUNCHED_MACHINES: Tokens = Tokens { most: 1000, each_second: 2 };

impl Tokens {
    /// The least time in which a full bucket gives so many.
    pub fn time_for(self, wanted: u64) -> Duration {
        let missing = wanted.saturating_sub(self.most.into());
        Duration::from_millis(missing.saturating_mul(1000) / u64::from(self.each_second))
    }
}

/// What is left of some tokens. It reads no clock: times are what has passed since any beginning, the same for all.
#[derive(Debug)]
pub struct Bucket {
    size: Tokens,
    thousandths: u64,
    /// When that was so.
    at: Duration,
}

impl Bucket {
    /// A bucket that is full at the beginning.
    pub fn full(size: Tokens) -> Self {
        Self { size, thousandths: u64::from(size.most) * 1000, at: Duration::ZERO }
    }

    /// How long to wait until there are so many; zero if there are.
    pub fn wait(&mut self, wanted: u32, now: Duration) -> Duration {
        self.refill(now);
        let missing = (u64::from(wanted) * 1000).saturating_sub(self.thousandths);
        Duration::from_millis(missing.div_ceil(self.size.each_second.into()))
    }

    /// Takes so many, or all that there are.
    pub fn take(&mut self, tokens: u32, now: Duration) {
        self.refill(now);
        self.thousandths = self.thousandths.saturating_sub(u64::from(tokens) * 1000);
    }

    fn refill(&mut self, now: Duration) {
        let most = u64::from(self.size.most) * 1000;
        let passed_ms = u64::try_from(now.saturating_sub(self.at).as_millis()).unwrap_or(u64::MAX);
        let more = passed_ms.saturating_mul(self.size.each_second.into());
        self.thousandths = self.thousandths.saturating_add(more).min(most);
        // What is less than a millisecond counts the next time.
        self.at += Duration::from_millis(passed_ms);
    }
}
