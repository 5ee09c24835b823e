//! What could not be had, and for how long that keeps us from asking again.
//!
//! Each stock-out is a strike against what was asked for. Strikes halve every three minutes, which is how long
//! Karpenter remembers one. What has half a strike or more is not asked for. So a first stock-out counts for three
//! minutes, and one that comes back soon after counts for longer: four of them within a minute for about nine minutes.
//! A machine that was launched clears its offering.
//!
//! EC2 names what it had none of only if there were too few machines. Where it takes the first that it has in a known
//! order, those before the one that it took had none: a part of a strike, since it may have had other reasons.
//!
//! Time is a parameter: the same calls give the same answers. The memory is bounded and can be written down.
//!
//! Differs: `stock-outs-decay`. Karpenter forgets a stock-out after three minutes, however many came before it.

use std::collections::BTreeMap;

use cloudprovider::{CapacityType, OfferingKey};
use model::{DurationMs, Timestamp};
use serde::{Deserialize, Serialize};

/// In this time strikes halve.
const HALF_LIFE: DurationMs = DurationMs::from_seconds(3 * 60);
/// A strike, in thousandths.
const STRIKE: u32 = 1000;
/// What a look past something counts.
const PASSED_OVER: u32 = 300;
/// Most that counts, so that nothing is out for longer than a quarter of an hour.
const MOST: u32 = 16 * STRIKE;
/// What has so much is not asked for.
const LIMIT: u32 = STRIKE / 2;
/// How much is remembered at most.
pub const CAPACITY: usize = 20_000;
/// How much of it is written down at most: what counts longest.
pub const WRITTEN: usize = 4_000;

/// What can be out of stock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Subject {
    /// Machines of an offering.
    Offering(OfferingKey),
    /// Addresses of a subnet, by its id.
    Subnet(String),
    /// All that is spot.
    Spot,
}

/// What counts against something, at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Score {
    /// In thousandths of strikes.
    strikes: u32,
    at: Timestamp,
}

impl Score {
    /// What is left of it. Between two halvings it falls evenly.
    fn left(self, now: Timestamp) -> u32 {
        let passed = u64::try_from(now.since(self.at).0).unwrap_or(0);
        let half_life = HALF_LIFE.0.unsigned_abs();
        let halvings = u32::try_from(passed / half_life).unwrap_or(u32::MAX);
        let whole = self.strikes.checked_shr(halvings).unwrap_or(0);
        let falls = u64::from(whole - whole / 2) * (passed % half_life) / half_life;
        whole.saturating_sub(u32::try_from(falls).unwrap_or(u32::MAX))
    }

    /// When less than [`LIMIT`] is left; in the past if that is so already.
    fn until(self) -> Timestamp {
        let mut from = self.at;
        let mut whole = self.strikes;
        while whole / 2 >= LIMIT {
            from = from.saturating_add(HALF_LIFE);
            whole /= 2;
        }
        let falls = u64::from(whole - whole / 2).max(1);
        let above = u64::from(whole.saturating_sub(LIMIT) + u32::from(whole >= LIMIT));
        let wait = (above * HALF_LIFE.0.unsigned_abs()).div_ceil(falls);
        from.saturating_add(DurationMs(i64::try_from(wait).unwrap_or(i64::MAX)))
    }
}

/// An entry as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    subject: Subject,
    #[serde(flatten)]
    score: Score,
}

/// The memory.
#[derive(Debug, Clone)]
pub struct Ledger {
    capacity: usize,
    scores: BTreeMap<Subject, Score>,
    generation: u64,
    /// When the next answer changes by itself.
    next: Option<Timestamp>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new(CAPACITY)
    }
}

impl Ledger {
    /// An empty memory for so much, at least one thing.
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), scores: BTreeMap::new(), generation: 0, next: None }
    }

    /// Notes that there was none.
    pub fn out_of_stock(&mut self, subject: Subject, now: Timestamp) {
        self.strike(subject, STRIKE, now);
    }

    /// Notes that EC2 took something else, although it would have taken this first.
    pub fn passed_over(&mut self, offering: OfferingKey, now: Timestamp) {
        self.strike(Subject::Offering(offering), PASSED_OVER, now);
    }

    /// Notes that there was one.
    pub fn served(&mut self, subject: &Subject, now: Timestamp) {
        self.settle(now);
        if self.scores.get(subject).is_some_and(|score| score.left(now) >= LIMIT) {
            self.generation += 1;
        }
        self.scores.remove(subject);
        self.look_ahead(now);
    }

    fn strike(&mut self, subject: Subject, strikes: u32, now: Timestamp) {
        self.settle(now);
        let before = self.scores.get(&subject).map_or(0, |score| score.left(now));
        let after = (before + strikes).min(MOST);
        if before < LIMIT && after >= LIMIT {
            self.generation += 1;
        }
        if !self.scores.contains_key(&subject) && self.scores.len() >= self.capacity {
            self.forget_one(now);
        }
        self.scores.insert(subject, Score { strikes: after, at: now });
        self.look_ahead(now);
    }

    /// Forgets what counts least.
    fn forget_one(&mut self, now: Timestamp) {
        let least = self.scores.iter().min_by_key(|(subject, score)| (score.left(now), *subject));
        let Some((least, score)) = least.map(|(subject, score)| (subject.clone(), *score)) else { return };
        self.generation += u64::from(score.left(now) >= LIMIT);
        self.scores.remove(&least);
    }

    /// Whether an offering is not to be asked for.
    pub fn is_out(&self, offering: &OfferingKey, now: Timestamp) -> bool {
        self.counts(&Subject::Offering(offering.clone()), now)
            || (offering.capacity_type == CapacityType::Spot && self.counts(&Subject::Spot, now))
    }

    /// Whether machines are not to be put into a subnet.
    pub fn is_subnet_out(&self, id: &str, now: Timestamp) -> bool {
        self.counts(&Subject::Subnet(id.to_owned()), now)
    }

    fn counts(&self, subject: &Subject, now: Timestamp) -> bool {
        self.scores.get(subject).is_some_and(|score| score.left(now) >= LIMIT)
    }

    /// A number that is the same as long as the answers are.
    pub fn generation(&mut self, now: Timestamp) -> u64 {
        self.settle(now);
        self.generation
    }

    /// What is not to be asked for now, in order, with the time until when.
    pub fn iter(&self, now: Timestamp) -> impl Iterator<Item = (&Subject, Timestamp)> {
        self.scores.iter().filter(move |(_, score)| score.left(now) >= LIMIT).map(|(it, score)| (it, score.until()))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.generation += 1;
        self.scores.clear();
        self.next = None;
    }

    /// Counts what has come back by itself, and forgets what counts for nothing any more.
    fn settle(&mut self, now: Timestamp) {
        if self.next.is_some_and(|next| next <= now) {
            self.generation += 1;
            self.scores.retain(|_, score| score.left(now) > 0);
            self.look_ahead(now);
        }
    }

    fn look_ahead(&mut self, now: Timestamp) {
        self.next = self.iter(now).map(|(_, until)| until).min();
    }

    /// The memory as it is written down: what counts longest, in order.
    pub fn entries(&self, now: Timestamp) -> Vec<Entry> {
        let mut entries: Vec<_> = self
            .scores
            .iter()
            .map(|(subject, score)| (score.left(now), Entry { subject: subject.clone(), score: *score }))
            .filter(|(left, _)| *left > 0)
            .collect();
        entries.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.subject.cmp(&other.subject)));
        entries.truncate(WRITTEN);
        entries.into_iter().map(|(_, entry)| entry).collect()
    }

    /// Adds what was written down. What is known already stays; what comes from the future counts from now on.
    pub fn restore(&mut self, entries: Vec<Entry>, now: Timestamp) {
        for Entry { subject, score } in entries.into_iter().take(self.capacity) {
            let score = Score { strikes: score.strikes.min(MOST), at: score.at.min(now) };
            if score.left(now) > 0 && self.scores.len() < self.capacity {
                self.scores.entry(subject).or_insert(score);
            }
        }
        self.generation += 1;
        self.look_ahead(now);
    }
}

#[cfg(test)]
mod tests;
