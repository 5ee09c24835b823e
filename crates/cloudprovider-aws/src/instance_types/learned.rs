//! Memory that machines were seen to have.
//!
//! What a hypervisor keeps is an estimate. Once a machine of a type has registered, the least that any such machine
//! with its image had is the type's memory, for as long as such machines keep coming.
//!
//! Differs: `memory-by-image`. Karpenter forgets what it has learnt when any image of the node class changes.

use std::collections::BTreeMap;

use model::{DurationMs, InstanceTypeName, Quantity, Timestamp};

/// How long an observation counts: 60 days, as in `pkg/cache/cache.go`.
const LIFETIME: DurationMs = DurationMs(60 * 24 * 60 * 60 * 1000);

/// What was seen, by type and image.
#[derive(Debug, Clone, Default)]
pub struct LearnedMemory {
    seen: BTreeMap<Machine, Observation>,
    /// Counts changes of what is known.
    generation: u64,
}

/// What machines are alike in memory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Machine {
    instance_type: InstanceTypeName,
    image: String,
}

#[derive(Debug, Clone, Copy)]
struct Observation {
    memory: Quantity,
    until: Timestamp,
}

impl LearnedMemory {
    /// Notes the memory of a machine that was launched with that image.
    pub fn observe(&mut self, instance_type: &InstanceTypeName, image: &str, memory: Quantity, now: Timestamp) {
        if memory.sign() <= 0 {
            return;
        }
        self.forget(now);
        let machine = Machine { instance_type: instance_type.clone(), image: image.to_owned() };
        let seen = Observation { memory, until: now.saturating_add(LIFETIME) };
        let before = self.seen.get(&machine).map(|before| before.memory);
        if before.is_none_or(|before| memory <= before) {
            self.seen.insert(machine, seen);
            self.generation += u64::from(before != Some(memory));
        }
    }

    /// The least memory that such machines were seen to have.
    pub fn get(&self, instance_type: &InstanceTypeName, image: &str, now: Timestamp) -> Option<Quantity> {
        let machine = Machine { instance_type: instance_type.clone(), image: image.to_owned() };
        self.seen.get(&machine).filter(|seen| seen.until > now).map(|seen| seen.memory)
    }

    /// A number that is another one when [`Self::get`] may give another answer.
    pub fn generation(&mut self, now: Timestamp) -> u64 {
        self.forget(now);
        self.generation
    }

    /// Forgets what has not been seen for too long.
    fn forget(&mut self, now: Timestamp) {
        let before = self.seen.len();
        self.seen.retain(|_, seen| seen.until > now);
        self.generation += u64::from(self.seen.len() != before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: i64 = 24 * 60 * 60 * 1000;

    fn memory(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    #[test]
    fn the_least_memory_of_a_type_and_its_image_counts_for_sixty_days_after_it_was_last_seen() {
        let large = InstanceTypeName::from("m5.large");
        let day = |day: i64| Timestamp(day * DAY_MS);
        let mut learned = LearnedMemory::default();
        learned.observe(&large, "ami-1", memory("7600Mi"), day(0));
        learned.observe(&large, "ami-1", memory("7700Mi"), day(1));
        learned.observe(&large, "ami-1", memory("7500Mi"), day(2));
        assert_eq!(learned.get(&large, "ami-1", day(61)), Some(memory("7500Mi")));
        assert_eq!(learned.get(&large, "ami-1", day(62)), None);
        assert_eq!(learned.get(&large, "ami-2", day(2)), None);
        assert_eq!(learned.get(&InstanceTypeName::from("m5.xlarge"), "ami-1", day(2)), None);
        learned.observe(&large, "ami-1", memory("7500Mi"), day(50));
        assert_eq!(learned.get(&large, "ami-1", day(100)), Some(memory("7500Mi")));
    }

    #[test]
    fn the_generation_changes_with_what_is_known_and_only_then() {
        let large = InstanceTypeName::from("m5.large");
        let day = |day: i64| Timestamp(day * DAY_MS);
        let mut learned = LearnedMemory::default();
        let generation = |learned: &mut LearnedMemory, at| learned.generation(day(at));
        let nothing = generation(&mut learned, 0);
        learned.observe(&large, "ami-1", memory("7600Mi"), day(0));
        let first = generation(&mut learned, 0);
        assert_ne!(first, nothing);
        for seen in ["7600Mi", "7700Mi"] {
            learned.observe(&large, "ami-1", memory(seen), day(1));
            assert_eq!(generation(&mut learned, 1), first, "{seen}");
        }
        learned.observe(&large, "ami-1", memory("7500Mi"), day(2));
        let least = generation(&mut learned, 61);
        assert_ne!(least, first);
        assert_ne!(generation(&mut learned, 62), least, "it is forgotten");
    }

    #[test]
    fn a_node_that_has_not_said_its_memory_teaches_nothing() {
        let large = InstanceTypeName::from("m5.large");
        let mut learned = LearnedMemory::default();
        learned.observe(&large, "ami-1", Quantity::ZERO, Timestamp(0));
        assert_eq!(learned.get(&large, "ami-1", Timestamp(1)), None);
    }
}
