//! Offerings that were found to be out of machines, remembered for a while.
//!
//! Plans depend on this, so time is a parameter: the same calls give the same answers. The memory is bounded; when it
//! is full, the entry that would be forgotten soonest makes room, which at worst repeats one failed launch.

use std::collections::BTreeMap;

use model::{DurationMs, Timestamp};

use crate::OfferingKey;

/// Karpenter's providers forget after 3 minutes.
pub const DEFAULT_TTL: DurationMs = DurationMs::from_seconds(3 * 60);

/// How many offerings are remembered at most.
pub const DEFAULT_CAPACITY: usize = 20_000;

/// The memory.
#[derive(Debug, Clone)]
pub struct UnavailableOfferings {
    ttl: DurationMs,
    capacity: usize,
    expires_at: BTreeMap<OfferingKey, Timestamp>,
    generation: u64,
}

impl Default for UnavailableOfferings {
    fn default() -> Self {
        Self::new(DEFAULT_TTL, DEFAULT_CAPACITY)
    }
}

impl UnavailableOfferings {
    /// An empty memory that forgets after `ttl` and holds at most `capacity` offerings (at least one).
    pub fn new(ttl: DurationMs, capacity: usize) -> Self {
        Self { ttl, capacity: capacity.max(1), expires_at: BTreeMap::new(), generation: 0 }
    }

    /// Remembers that an offering had no machine at `now`.
    pub fn insert(&mut self, key: OfferingKey, now: Timestamp) {
        self.forget_expired(now);
        if !self.expires_at.contains_key(&key) {
            self.generation += 1;
            if self.expires_at.len() >= self.capacity {
                let soonest = self.expires_at.iter().min_by_key(|(key, at)| (**at, *key)).map(|(key, _)| key.clone());
                soonest.map(|soonest| self.expires_at.remove(&soonest));
            }
        }
        self.expires_at.insert(key, now.saturating_add(self.ttl));
    }

    /// Whether the offering was found to be out of machines less than the time to live before `now`.
    pub fn is_unavailable(&self, key: &OfferingKey, now: Timestamp) -> bool {
        self.expires_at.get(key).is_some_and(|expires_at| now < *expires_at)
    }

    /// Forgets one offering, for instance because a launch from it succeeded.
    pub fn remove(&mut self, key: &OfferingKey) {
        if self.expires_at.remove(key).is_some() {
            self.generation += 1;
        }
    }

    /// Drops what has expired by `now`, and tells a number that is the same as long as the answers are.
    pub fn generation(&mut self, now: Timestamp) -> u64 {
        self.forget_expired(now);
        self.generation
    }

    /// What is unavailable at `now`, in order, with the time it is forgotten.
    pub fn iter(&self, now: Timestamp) -> impl Iterator<Item = (&OfferingKey, Timestamp)> {
        self.expires_at.iter().map(|(key, at)| (key, *at)).filter(move |(_, at)| now < *at)
    }

    fn forget_expired(&mut self, now: Timestamp) {
        let before = self.expires_at.len();
        self.expires_at.retain(|_, expires_at| now < *expires_at);
        if self.expires_at.len() != before {
            self.generation += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CapacityType;

    fn key(zone: &str) -> OfferingKey {
        OfferingKey {
            instance_type: "m".into(),
            zone: zone.to_owned(),
            capacity_type: CapacityType::Spot,
            reservation_id: None,
        }
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp(millis)
    }

    fn memory(capacity: usize) -> UnavailableOfferings {
        UnavailableOfferings::new(DurationMs(100), capacity)
    }

    #[test]
    fn an_offering_is_unavailable_until_its_time_is_over() {
        let mut memory = memory(10);
        memory.insert(key("a"), at(0));
        assert!(memory.is_unavailable(&key("a"), at(99)));
        assert!(!memory.is_unavailable(&key("a"), at(100)));
        assert!(!memory.is_unavailable(&key("b"), at(0)));
        memory.insert(key("a"), at(50));
        assert!(memory.is_unavailable(&key("a"), at(149)));
        memory.remove(&key("a"));
        assert!(!memory.is_unavailable(&key("a"), at(51)));
    }

    #[test]
    fn a_full_memory_forgets_what_would_be_forgotten_soonest() {
        let mut memory = memory(2);
        memory.insert(key("a"), at(1));
        memory.insert(key("b"), at(0));
        memory.insert(key("c"), at(2));
        let zones: Vec<_> = memory.iter(at(3)).map(|(key, _)| key.zone.clone()).collect();
        assert_eq!(zones, ["a", "c"]);
    }

    #[test]
    fn the_generation_changes_exactly_with_the_answers() {
        let mut memory = memory(10);
        let empty = memory.generation(at(0));
        memory.insert(key("a"), at(0));
        let one = memory.generation(at(0));
        assert_ne!(one, empty);
        memory.insert(key("a"), at(10));
        assert_eq!(memory.generation(at(109)), one, "the same offering again changes nothing");
        assert_ne!(memory.generation(at(110)), one, "it has been forgotten");
    }
}
