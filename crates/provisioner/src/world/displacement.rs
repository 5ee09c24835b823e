//! What it costs that pods which were moved do not come to their places.
//!
//! Commands save what they were planned to save if every pod that they evict is succeeded by one on the place that was
//! planned for it. kube-scheduler may bind a successor elsewhere before it is told of that place, where it takes the
//! room of another, and in the end machines are launched for those without any. How much that is depends on the rules
//! between the cluster's pods, and is learned: what was launched for successors that had a place, for each pod that
//! was evicted within the same time. Planners count it beside the price of evictions.

use std::collections::VecDeque;

use model::collections::NameMap;
use model::{DurationMs, PriceNanoUsdPerHour, Timestamp, Uid};

/// How long what happened counts.
const COUNTS_FOR: DurationMs = DurationMs::from_seconds(30 * 60);
/// What happens within such a time is one.
const SPAN: DurationMs = DurationMs::from_seconds(60);
/// Of fewer evictions nobody can tell how many go wrong.
const LEAST_EVICTIONS: u32 = 20;
/// Most successors that are remembered.
const MOST: usize = 50_000;

/// What has happened of late.
#[derive(Debug, Default)]
pub(crate) struct Displacement {
    /// The oldest first.
    spans: VecDeque<Span>,
    /// Successors that were given places, and since when.
    placed: NameMap<Uid, Timestamp>,
}

#[derive(Debug)]
struct Span {
    since: Timestamp,
    evictions: u32,
    /// In nano-dollars per hour.
    launched: i64,
}

impl Displacement {
    /// So many pods are evicted from now on.
    pub(crate) fn evicts(&mut self, pods: usize, now: Timestamp) {
        let pods = u32::try_from(pods).unwrap_or(u32::MAX);
        self.note(now, |span| span.evictions = span.evictions.saturating_add(pods));
    }

    /// A successor was given a place.
    pub(crate) fn places(&mut self, pod: &Uid, now: Timestamp) {
        if self.placed.len() < MOST {
            self.placed.insert(pod.clone(), now);
        }
    }

    /// A machine was launched for these: successors that had a place did not come there.
    pub(crate) fn launches<'p>(
        &mut self,
        price: PriceNanoUsdPerHour,
        pods: impl Iterator<Item = &'p Uid>,
        now: Timestamp,
    ) {
        let (mut all, mut displaced) = (0_i64, 0_i64);
        for pod in pods {
            all += 1;
            displaced += i64::from(self.placed.contains_key(pod));
        }
        if displaced > 0 {
            let part = price.0.max(0).saturating_mul(displaced) / all;
            self.note(now, |span| span.launched = span.launched.saturating_add(part));
        }
    }

    /// What was launched, for each pod that was evicted.
    pub(crate) fn price(&self, now: Timestamp) -> PriceNanoUsdPerHour {
        let of_late = || self.spans.iter().filter(|span| counts(span.since, now));
        let launched = of_late().fold(0_i64, |sum, span| sum.saturating_add(span.launched));
        let evictions = of_late().fold(0_u32, |sum, span| sum.saturating_add(span.evictions));
        PriceNanoUsdPerHour(launched / i64::from(evictions.max(LEAST_EVICTIONS)))
    }

    /// Notes what happens now, and forgets what counts no more.
    fn note(&mut self, now: Timestamp, change: impl FnOnce(&mut Span)) {
        self.spans.retain(|span| counts(span.since, now));
        self.placed.retain(|_, since| counts(*since, now));
        let mut span = match self.spans.pop_back() {
            Some(last) if now.since(last.since) < SPAN => last,
            last => {
                self.spans.extend(last);
                Span { since: now, evictions: 0, launched: 0 }
            }
        };
        change(&mut span);
        self.spans.push_back(span);
    }
}

/// Whether what happened then counts. A clock that was set back lets nothing count for longer.
fn counts(then: Timestamp, now: Timestamp) -> bool {
    now.since(then) < COUNTS_FOR && then.since(now) <= SPAN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(10_000 + seconds)
    }

    #[test]
    fn what_was_launched_for_successors_with_a_place_is_shared_out_over_evictions_for_half_an_hour() {
        let mut displacement = Displacement::default();
        let (known, other) = (Uid::from("known"), Uid::from("other"));
        displacement.evicts(40, at(0));
        displacement.places(&known, at(5));
        displacement.launches(PriceNanoUsdPerHour(1_000), [&other].into_iter(), at(10));
        assert_eq!(displacement.price(at(10)).0, 0, "for a pod that has nothing to do with it");
        displacement.launches(PriceNanoUsdPerHour(1_000), [&other, &known].into_iter(), at(10));
        assert_eq!(displacement.price(at(10)).0, 12, "half of the machine, over 40 evictions");
        displacement.evicts(60, at(600));
        assert_eq!(displacement.price(at(600)).0, 5);
        assert_eq!(displacement.price(at(1_799)).0, 5);
        assert_eq!(displacement.price(at(1_800)).0, 0);
    }

    #[test]
    fn few_evictions_say_little_and_a_clock_that_is_set_back_keeps_nothing() {
        let mut displacement = Displacement::default();
        let pod = Uid::from("pod");
        displacement.evicts(1, at(0));
        displacement.places(&pod, at(0));
        displacement.launches(PriceNanoUsdPerHour(1_000), [&pod].into_iter(), at(0));
        assert_eq!(displacement.price(at(0)).0, 50);
        assert_eq!(displacement.price(at(-3_600)).0, 0);
        displacement.evicts(1, at(-3_600));
        displacement.launches(PriceNanoUsdPerHour(1_000), [&pod].into_iter(), at(-3_600));
        assert_eq!(displacement.price(at(-3_600)).0, 0, "it was given a place in what is the future now");
        assert_eq!(displacement.spans.len(), 1);
    }

    #[test]
    fn a_day_of_it_takes_no_more_room_than_half_an_hour() {
        let mut displacement = Displacement::default();
        for second in 0..24 * 3_600 {
            displacement.evicts(1, at(second));
            displacement.places(&format!("{second}").as_str().into(), at(second));
        }
        assert!(displacement.spans.len() <= 31 && displacement.placed.len() <= 1_860, "{}", displacement.placed.len());
    }
}
