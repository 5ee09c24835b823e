//! Some of the machines that go are put back, and others go in their place, as long as that brings more.
//!
//! Room is filled in the order in which machines go, so that what a walk ends with leaves parts of it unused, and it
//! may be used by machines whose pods are worth less than those of others. Ruin and recreate (Schrimpf et al. 2000,
//! "Record breaking optimization results using the ruin and recreate principle") goes on from there: a few machines are
//! put back, then those that bring most beyond what their pods are worth go, one after the other, as long as all that
//! go then bring more together. All pods are placed anew in each trial, the large before the small, since room that was
//! filled one machine after the other is in pieces.
//!
//! Which are put back follows from the number of the repair, so the same question has the same answer.

use super::bounds::Openings;
use super::neighbourhoods::{End, Walk, sorted};
use super::trials::Trials;
use crate::tuning::{FAILURES_OF_REPAIR, LEAST_REPAIRED, REPAIR_TRIALS, REPAIRS, RUINED_MACHINES};

/// What repairs of one search may still cost, however often it looks.
#[derive(Debug)]
pub(super) struct Repairs {
    trials: usize,
}

impl Default for Repairs {
    fn default() -> Self {
        Self { trials: REPAIR_TRIALS }
    }
}

impl Repairs {
    /// What brings more than what a walk has ended with, or that.
    pub(super) fn repair(&mut self, trials: &mut Trials<'_, '_>, walk: &Walk<'_>, end: End) -> End {
        let mut best = end;
        for repair in 0..REPAIRS {
            let all = sorted(&best.sets.concat());
            if all.len() < LEAST_REPAIRED || self.trials == 0 {
                break;
            }
            let put_back = spread(&all, repair * RUINED_MACHINES);
            let end = self.recreate(trials, walk, &best, &put_back);
            if let Some(end) = end.filter(|end| end.net > best.net) {
                best = end;
            }
        }
        best
    }

    /// Without these, and with others as long as they bring more; then with these again, if nothing else has taken
    /// their place.
    fn recreate(&mut self, trials: &mut Trials<'_, '_>, walk: &Walk<'_>, end: &End, put_back: &[usize]) -> Option<End> {
        let mut sets = end.sets.clone();
        sets.iter_mut().for_each(|set| set.retain(|index| !put_back.contains(index)));
        sets.retain(|set| !set.is_empty());
        let mut all = sorted(&sets.concat());
        self.trials = self.trials.checked_sub(1)?;
        let mut net = trials.ask(&all).ok()?.net;
        for is_put_back in [false, true] {
            let mut openings: Option<Openings> = None;
            let mut failures = 0;
            for &index in walk.by_profit.iter().filter(|index| put_back.contains(index) == is_put_back) {
                if all.contains(&index) {
                    continue;
                }
                if failures == FAILURES_OF_REPAIR {
                    break;
                }
                let of_all = openings.get_or_insert_with(|| openings_without(trials, walk, &all));
                if !walk.could_pay(trials, Some(&*of_all), &[index]) {
                    continue;
                }
                let more = sorted(&[all.as_slice(), &[index]].concat());
                let is_open = trials.question.left.lets(trials.question.machines, &more)
                    && !trials.known.breaks_apart(|index| more.contains(&index));
                if !is_open {
                    continue;
                }
                self.trials = self.trials.checked_sub(1)?;
                let gain = trials.ask(&more).ok().filter(|gain| gain.net > net && trials.pays(&more, gain));
                let Some(gain) = gain else {
                    failures += 1;
                    continue;
                };
                net = gain.net;
                sets.push(vec![index]);
                (all, openings) = (more, None);
            }
        }
        Some(End { sets, net })
    }
}

/// Where pods of others may go once these are gone.
fn openings_without(trials: &mut Trials<'_, '_>, walk: &Walk<'_>, set: &[usize]) -> Openings {
    let mark = trials.packing.mark();
    // What does not hold any more leaves the room as it is, which is tried then.
    let _ = trials.accept(set);
    let openings = walk.bounds.openings_in(&trials.packing);
    trials.packing.rollback(mark);
    openings
}

/// [`RUINED_MACHINES`] of the set, far from each other: steps of the golden ratio go everywhere before they come back.
fn spread(set: &[usize], first: usize) -> Vec<usize> {
    const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    let position = |number: usize| {
        let part = (number as u64).wrapping_mul(GOLDEN_RATIO) >> 32;
        ((part * set.len() as u64) >> 32) as usize
    };
    let mut spread: Vec<usize> =
        (first..first + RUINED_MACHINES).filter_map(|number| set.get(position(number))).copied().collect();
    spread.sort_unstable();
    spread.dedup();
    spread
}
