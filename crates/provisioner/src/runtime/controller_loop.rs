//! The loop of a controller that looks at everything at once: now and then, and soon after a change.
//!
//! A controller of single objects has a [`WorkQueue`](crate::runtime::queue::WorkQueue) instead.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};
use tokio_util::sync::CancellationToken;

use crate::runtime::beats::{Beat, Beats};

/// When a controller looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rhythm {
    /// Before its first look.
    pub first: Duration,
    /// From the begin of one look to the next, if nothing changes.
    pub period: Duration,
    /// Changes that come within this time are looked at together.
    pub collect: Duration,
    /// Longest from one sign of life to the next while it looks.
    pub bound: Duration,
}

/// The looks of one controller.
#[derive(Debug)]
pub(crate) struct Looks {
    rhythm: Rhythm,
    ticks: Interval,
    changed: Arc<Notify>,
    beat: Beat,
    stop: CancellationToken,
}

impl Looks {
    /// Of the controller of that name, until it is stopped.
    pub(crate) fn new(name: &'static str, rhythm: Rhythm, beats: &Beats, stop: &CancellationToken) -> Self {
        let mut ticks = interval_at(Instant::now() + rhythm.first, rhythm.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let beat = beats.beat(name, rhythm.bound);
        Self { rhythm, ticks, changed: Arc::default(), beat, stop: stop.clone() }
    }

    /// Looks after each notification as well.
    #[must_use]
    pub(crate) fn after(mut self, changed: Arc<Notify>) -> Self {
        self.changed = changed;
        self
    }

    /// Where it tells, during a long look, that it gets on.
    pub(crate) fn beat(&self) -> &Beat {
        &self.beat
    }

    /// Waits until it is time to look; false once the controller is stopped.
    pub(crate) async fn next(&mut self) -> bool {
        self.beat.due_in(self.rhythm.first.max(self.rhythm.period));
        tokio::select! {
            () = self.stop.cancelled() => return false,
            _ = self.ticks.tick() => {}
            () = self.changed.notified() => {
                sleep(self.rhythm.collect).await;
                self.ticks.reset();
            }
        }
        self.beat.busy();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RHYTHM: Rhythm = Rhythm {
        first: Duration::from_secs(10),
        period: Duration::from_secs(60),
        collect: Duration::from_secs(1),
        bound: Duration::from_secs(5),
    };

    #[tokio::test(start_paused = true)]
    async fn it_looks_first_then_once_a_period_and_soon_after_changes_that_come_together() {
        let (beats, stop, changed) = (Beats::default(), CancellationToken::new(), Arc::new(Notify::new()));
        let started = Instant::now();
        let mut looks = Looks::new("test", RHYTHM, &beats, &stop).after(Arc::clone(&changed));
        let mut at = Vec::new();
        for notified in [false, false, true, false] {
            if notified {
                changed.notify_one();
                changed.notify_one();
            }
            assert!(looks.next().await);
            at.push(started.elapsed().as_secs());
        }
        assert_eq!(at, [10, 70, 71, 131], "the period begins anew with a look");
        stop.cancel();
        assert!(!looks.next().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_takes_too_long_hangs_and_waiting_does_not() {
        let (beats, stop) = (Beats::default(), CancellationToken::new());
        let mut looks = Looks::new("test", RHYTHM, &beats, &stop);
        assert!(looks.next().await);
        assert!(beats.hanging().is_empty());
        sleep(RHYTHM.bound + Duration::from_secs(1)).await;
        assert_eq!(beats.hanging().len(), 1);
        assert!(looks.next().await, "it looks again, though late");
        assert!(beats.hanging().is_empty());
    }
}
