//! When EC2 may be asked for machines.

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::service::throttling::{Bucket, LAUNCH_CALLS};

/// The tokens for launches that the account has left, if nobody else launches in it. A call without one is refused, and
/// what is refused is asked for once more: twenty kinds of machines took 84 calls (`cargo xtask bench ec2`).
#[derive(Debug)]
pub(super) struct Pace {
    /// Whoever waits for a token keeps it, so that tokens go by the order of coming.
    bucket: Mutex<Bucket>,
    begun: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { bucket: Mutex::new(Bucket::full(LAUNCH_CALLS)), begun: Instant::now() }
    }

    /// Waits until a call may be made, and takes its token.
    pub(super) async fn turn(&self) {
        let mut bucket = self.bucket.lock().await;
        loop {
            let wait = bucket.wait(1, self.begun.elapsed());
            if wait.is_zero() {
                break;
            }
            sleep(wait).await;
        }
        bucket.take(1, self.begun.elapsed());
    }

    /// EC2 has said that there is no token: somebody else has taken some.
    pub(super) async fn is_spent(&self) {
        self.bucket.lock().await.take(LAUNCH_CALLS.most, self.begun.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
