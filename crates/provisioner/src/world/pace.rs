//! How often the provider is asked to end a machine.
//!
//! Node and NodeClaim of a machine are looked at whenever something changes, by controllers of their own; a cloud would
//! throttle as many calls. So each machine's end is asked for once in a while, whoever looks.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use model::ProviderId;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Karpenter's own time between two calls.
pub(crate) const INSTANCE_POLL: Duration = Duration::from_secs(5);

/// When each machine's end was asked for last.
#[derive(Debug, Default)]
pub struct Pace {
    asked: Mutex<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    at: BTreeMap<ProviderId, Instant>,
    /// In the order of time, so that what says nothing any more is found at the front.
    order: VecDeque<(Instant, ProviderId)>,
}

impl Pace {
    /// Notes that the end of that machine is asked for now.
    ///
    /// # Errors
    /// How long it is too early for that.
    pub fn ask(&self, id: &ProviderId) -> Result<(), Duration> {
        let now = Instant::now();
        let mut asked = self.asked.lock();
        asked.drop_past(now);
        match asked.at.get(id) {
            Some(at) => Err(INSTANCE_POLL.saturating_sub(now.duration_since(*at))),
            None => {
                asked.at.insert(id.clone(), now);
                asked.order.push_back((now, id.clone()));
                Ok(())
            }
        }
    }

    /// The machine is gone, or the call failed and the caller has a pace of its own.
    pub fn forget(&self, id: &ProviderId) {
        self.asked.lock().at.remove(id);
    }
}

impl Asked {
    fn drop_past(&mut self, now: Instant) {
        while let Some((at, id)) = self.order.pop_front_if(|(at, _)| now.duration_since(*at) >= INSTANCE_POLL) {
            if self.at.get(&id) == Some(&at) {
                self.at.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_machine_is_asked_for_every_five_seconds_whoever_looks() {
        let pace = Pace::default();
        let (a, b) = (ProviderId::from("a"), ProviderId::from("b"));
        let mut calls = 0;
        for _ in 0..100 {
            calls += u32::from(pace.ask(&a).is_ok());
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(calls, 2, "in ten seconds");
        assert_eq!(pace.ask(&b), Ok(()));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(pace.ask(&b), Err(Duration::from_secs(3)));
        pace.forget(&b);
        assert_eq!(pace.ask(&b), Ok(()));
        tokio::time::advance(INSTANCE_POLL).await;
        assert_eq!(pace.ask(&a), Ok(()));
        let asked = pace.asked.lock();
        assert_eq!((asked.at.len(), asked.order.len()), (1, 1), "only what holds a call back is remembered");
    }
}
