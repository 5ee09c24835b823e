//! `spec.limits` of a NodePool against machines whose type is not settled.
//!
//! A planned machine keeps several instance types open, so what it takes of a limit is not one number. While packing,
//! it is charged the least it could take; when the plan is made up, types are dropped until what the *largest*
//! remaining type would take fits too ([`settle`]), so that no launch from the plan can exceed a limit.
//!
//! Differs: `limits-while-planning`. Karpenter charges the largest type at once, which refuses pods that a smaller
//! machine would hold.

use model::{IdSet, IdVec};
use smallvec::SmallVec;

use crate::{
    catalogue::{Catalogue, OfferingId},
    snapshot::{Limit, LimitRemaining},
};

/// Amounts in the order of a pool's limits.
pub(crate) type Amounts = SmallVec<[i64; 4]>;

/// The limits of one NodePool.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    entries: Vec<LimitRemaining>,
    /// What one machine from an offering takes of each limit.
    taken: IdVec<OfferingId, Amounts>,
    /// What a machine takes of each limit at most.
    largest: Amounts,
    /// Offerings by what they take of all limits together, least first, after them those that a limit has no room for;
    /// then by price, then by name.
    least_first: Vec<OfferingId>,
    /// Per limit, offerings by what they take of it, least first.
    least_first_by_limit: Vec<Vec<OfferingId>>,
}

impl Limits {
    pub(crate) fn new(mut entries: Vec<LimitRemaining>, catalogue: &Catalogue, members: &IdSet<OfferingId>) -> Self {
        entries.sort_by_key(|entry| entry.limit);
        if entries.is_empty() {
            return Self::default();
        }
        let taken: IdVec<OfferingId, Amounts> = catalogue
            .offerings
            .iter()
            .map(|offering| {
                let amount = |entry: &LimitRemaining| match entry.limit {
                    Limit::Nodes => 1,
                    Limit::Resource(resource) => offering.capacity.get(resource),
                };
                entries.iter().map(amount).collect()
            })
            .collect();
        // Amounts of different resources are compared as shares of what is left, in parts of 2³².
        let weight = |offering: OfferingId| -> i128 {
            let share = |(amount, entry): (&i64, &LimitRemaining)| {
                (i128::from(*amount) << 32) / i128::from(entry.remaining.max(1))
            };
            taken[offering].iter().zip(&entries).map(share).sum()
        };
        let mut least_first: Vec<OfferingId> = members.iter().collect();
        // An offering that alone exceeds a limit is never the least of a machine that can keep it.
        let too_large = |offering: OfferingId| {
            taken[offering].iter().zip(&entries).any(|(amount, entry)| *amount > entry.remaining)
        };
        least_first.sort_by_cached_key(|&offering| {
            (too_large(offering), weight(offering), catalogue.offerings[offering].price, offering)
        });
        let least_first_by_limit = (0..entries.len())
            .map(|limit| {
                let mut order: Vec<OfferingId> = members.iter().collect();
                order.sort_by_cached_key(|&offering| (taken[offering].get(limit).copied(), offering));
                order
            })
            .collect();
        // With it `have_room_for` can mostly say that all limits hold, without looking at machines.
        let mut largest: Amounts = SmallVec::from_elem(0, entries.len());
        for offering in members.iter() {
            for (largest, taken) in largest.iter_mut().zip(&taken[offering]) {
                *largest = (*largest).max(*taken);
            }
        }
        Self { entries, taken, largest, least_first, least_first_by_limit }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn entries(&self) -> &[LimitRemaining] {
        &self.entries
    }

    /// Nothing taken.
    pub(crate) fn zero(&self) -> Amounts {
        SmallVec::from_elem(0, self.entries.len())
    }

    /// What one machine from the offering takes.
    pub(crate) fn taken(&self, offering: OfferingId) -> &[i64] {
        self.taken.try_get(offering).map_or(&[], |amounts| amounts)
    }

    /// What a machine with these offerings open takes at least, under one choice of offering.
    pub(crate) fn least(&self, open: &IdSet<OfferingId>) -> Amounts {
        let first = self.least_first.iter().find(|&&offering| open.contains(offering));
        first.map_or_else(|| self.zero(), |&offering| self.taken[offering].clone())
    }

    /// The least of each limit on its own: never more than any one choice takes, so a bound for the exact search.
    pub(crate) fn bound(&self, open: &IdSet<OfferingId>) -> Amounts {
        let least = |(limit, order): (usize, &Vec<OfferingId>)| {
            let first = order.iter().find(|&&offering| open.contains(offering));
            first.and_then(|&offering| self.taken[offering].get(limit).copied()).unwrap_or(0)
        };
        self.least_first_by_limit.iter().enumerate().map(least).collect()
    }

    /// The first limit that `used` exceeds.
    pub(crate) fn exceeded(&self, used: &[i64]) -> Option<&LimitRemaining> {
        self.entries.iter().zip(used).find(|(entry, used)| **used > entry.remaining).map(|(entry, _)| entry)
    }

    /// Whether so many machines more, whichever they are, keep all limits; most of the time they do.
    pub(crate) fn have_room_for(&self, machines: usize, used: &[i64]) -> bool {
        let machines = i64::try_from(machines).unwrap_or(i64::MAX);
        let mut limits = self.entries.iter().zip(&self.largest).zip(used);
        limits.all(|((entry, largest), used)| used.saturating_add(largest.saturating_mul(machines)) <= entry.remaining)
    }

    /// The offerings that take least, as many as it takes until `enough` says so; all of them if it never does.
    pub(crate) fn least_until(
        &self,
        open: &IdSet<OfferingId>,
        enough: impl Fn(&IdSet<OfferingId>) -> bool,
    ) -> IdSet<OfferingId> {
        let mut kept = IdSet::default();
        for &offering in self.least_first.iter().filter(|&&offering| open.contains(offering)) {
            kept.insert(offering);
            if enough(&kept) {
                break;
            }
        }
        kept
    }

    /// What the largest of the offerings takes of each limit.
    pub(crate) fn most(&self, offerings: &IdSet<OfferingId>) -> Amounts {
        let mut most = self.zero();
        for offering in offerings.iter() {
            for (most, taken) in most.iter_mut().zip(self.taken(offering)) {
                *most = (*most).max(*taken);
            }
        }
        most
    }

    /// One offering for each of `machines` such that their sum keeps all limits; `None` if there is none or the steps
    /// run out. Greedy first, then an exact search over the choices that are not dominated.
    pub(crate) fn choose(&self, machines: &[&IdSet<OfferingId>], steps: u64) -> Option<Vec<OfferingId>> {
        let greedy: Option<Vec<OfferingId>> = machines
            .iter()
            .map(|open| self.least_first.iter().copied().find(|&offering| open.contains(offering)))
            .collect();
        let greedy = greedy?;
        let mut used = self.zero();
        for &offering in &greedy {
            add(&mut used, self.taken(offering));
        }
        if self.exceeded(&used).is_none() {
            return Some(greedy);
        }
        if self.entries.len() < 2 {
            return None;
        }
        let choices: Vec<Vec<OfferingId>> = machines.iter().map(|open| self.undominated(open)).collect();
        let mut chosen = Vec::with_capacity(machines.len());
        let mut steps = steps;
        self.search(&choices, &mut self.zero(), &mut chosen, &mut steps).then_some(chosen)
    }

    fn search(
        &self,
        choices: &[Vec<OfferingId>],
        used: &mut Amounts,
        chosen: &mut Vec<OfferingId>,
        steps: &mut u64,
    ) -> bool {
        let Some(options) = choices.get(chosen.len()) else { return true };
        for &offering in options {
            let Some(left) = steps.checked_sub(1) else { return false };
            *steps = left;
            add(used, self.taken(offering));
            if self.exceeded(used).is_none() {
                chosen.push(offering);
                if self.search(choices, used, chosen, steps) {
                    return true;
                }
                chosen.pop();
            }
            sub(used, self.taken(offering));
        }
        false
    }

    /// Offerings of which no other takes as little of every limit and less of one; one of each equal group.
    fn undominated(&self, open: &IdSet<OfferingId>) -> Vec<OfferingId> {
        let mut kept: Vec<OfferingId> = Vec::new();
        for &offering in self.least_first.iter().filter(|&&offering| open.contains(offering)) {
            let taken = self.taken(offering);
            let covered = kept.iter().any(|&other| self.taken(other).iter().zip(taken).all(|(a, b)| a <= b));
            if !covered {
                kept.push(offering);
            }
        }
        kept
    }
}

/// Element-wise sum.
pub(crate) fn add(used: &mut [i64], amounts: &[i64]) {
    for (used, amount) in used.iter_mut().zip(amounts) {
        *used = used.saturating_add(*amount);
    }
}

/// Element-wise difference.
pub(crate) fn sub(used: &mut [i64], amounts: &[i64]) {
    for (used, amount) in used.iter_mut().zip(amounts) {
        *used = used.saturating_sub(*amount);
    }
}
