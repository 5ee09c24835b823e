//! Memory that machines were seen to have.
//!
//! What a hypervisor keeps is an estimate. Once a machine of a type with certain images has registered, the least that
//! any of them had is the type's memory, for as long as such machines keep coming.

use std::collections::BTreeMap;

use model::{DurationMs, InstanceTypeName, Quantity, Timestamp};

/// How long an observation counts: 60 days, as in `pkg/cache/cache.go`.
const LIFETIME: DurationMs = DurationMs(60 * 24 * 60 * 60 * 1000);

/// What was seen, by type and images.
#[derive(Debug, Clone, Default)]
pub struct LearnedMemory(BTreeMap<Machine, Observation>);

/// What machines are alike in memory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Machine {
    instance_type: InstanceTypeName,
    images: String,
}

#[derive(Debug, Clone, Copy)]
struct Observation {
    memory: Quantity,
    until: Timestamp,
}

impl LearnedMemory {
    /// Notes a machine's memory. `images` names the set of images that the node class selects now; the machine must
    /// have been launched with one of them.
    pub fn observe(&mut self, instance_type: &InstanceTypeName, images: &str, memory: Quantity, now: Timestamp) {
        if memory.sign() <= 0 {
            return;
        }
        self.0.retain(|_, seen| seen.until > now);
        let machine = Machine { instance_type: instance_type.clone(), images: images.to_owned() };
        let seen = Observation { memory, until: now.saturating_add(LIFETIME) };
        let least = self.0.entry(machine).or_insert(seen);
        if memory <= least.memory {
            *least = seen;
        }
    }

    /// The least memory that such machines were seen to have.
    pub fn get(&self, instance_type: &InstanceTypeName, images: &str, now: Timestamp) -> Option<Quantity> {
        let machine = Machine { instance_type: instance_type.clone(), images: images.to_owned() };
        self.0.get(&machine).filter(|seen| seen.until > now).map(|seen| seen.memory)
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
    fn the_least_memory_of_a_type_and_its_images_counts_for_sixty_days_after_it_was_last_seen() {
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
    fn a_node_that_has_not_said_its_memory_teaches_nothing() {
        let large = InstanceTypeName::from("m5.large");
        let mut learned = LearnedMemory::default();
        learned.observe(&large, "ami-1", Quantity::ZERO, Timestamp(0));
        assert_eq!(learned.get(&large, "ami-1", Timestamp(1)), None);
    }
}
