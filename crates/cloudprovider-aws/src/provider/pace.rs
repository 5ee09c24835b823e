//! When EC2 may be asked for machines.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::service::ec2::LAUNCH_CALLS;

/// The tokens for launches that the account has left, if nobody else launches in it. A call without one is refused, and
/// what is refused is asked for once more: twenty kinds of machines took 84 calls (`cargo xtask bench ec2`).
#[derive(Debug)]
pub(super) struct Pace {
    /// Whoever waits for a token keeps it, so that tokens go by the order of coming.
    level: Mutex<Level>,
}

#[derive(Debug, Clone, Copy)]
struct Level {
    thousandths: u64,
    /// When that was so.
    at: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { level: Mutex::new(Level { thousandths: u64::from(LAUNCH_CALLS.most) * 1000, at: Instant::now() }) }
    }

    /// Waits until a call may be made, and takes its token.
    pub(super) async fn turn(&self) {
        let mut level = self.level.lock().await;
        level.refill();
        while let Some(missing) = 1000_u64.checked_sub(level.thousandths).filter(|missing| *missing > 0) {
            sleep(Duration::from_millis(missing.div_ceil(u64::from(LAUNCH_CALLS.each_second)))).await;
            level.refill();
        }
        level.thousandths -= 1000;
    }

    /// EC2 has said that there is no token: somebody else has taken some.
    pub(super) async fn is_spent(&self) {
        let mut level = self.level.lock().await;
        level.refill();
        level.thousandths = 0;
    }
}

impl Level {
    fn refill(&mut self) {
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.at);
        let more =
            u64::try_from(passed.as_millis()).unwrap_or(u64::MAX).saturating_mul(LAUNCH_CALLS.each_second.into());
        self.thousandths = self.thousandths.saturating_add(more).min(u64::from(LAUNCH_CALLS.most) * 1000);
        // What is less than a millisecond counts the next time.
        self.at += Duration::from_millis(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In milliseconds, when each of several that come at once may call.
    async fn turns(pace: &Pace, count: usize) -> Vec<u128> {
        let begun = Instant::now();
        let turn = async || {
            pace.turn().await;
            begun.elapsed().as_millis()
        };
        futures::future::join_all((0..count).map(|_| turn())).await
    }

    #[tokio::test(start_paused = true)]
    async fn calls_wait_for_their_tokens_in_the_order_of_coming() {
        let pace = Pace::new();
        assert_eq!(turns(&pace, 8).await, [0, 0, 0, 0, 0, 500, 1000, 1500]);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(turns(&pace, 6).await, [0, 0, 0, 0, 0, 500], "no more are saved up than the account has");
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_refusal_there_are_none() {
        let pace = Pace::new();
        pace.is_spent().await;
        assert_eq!(turns(&pace, 2).await, [500, 1000]);
    }
}
