//! How large pods are that move, which says in what order they go.
//!
//! What counts is the resource of which the places have least for them: four CPUs of fifty that are free are more than
//! 16 GiB of 400. Were both to go at a time, successors of the latter would come to the few nodes that have four CPUs
//! in one piece.

use std::collections::BTreeSet;

use model::{NodeClaimName, ResourceVec};

use crate::world::claim;
use crate::world::node_room::free_beside;
use crate::world::store::State;

/// A size is the largest share that a pod requests of what is free of anything, in so many parts.
const PARTS: i128 = 1_000_000_000_000;

/// By so much one is larger: pods of about one size go at a time.
const LARGER: (i128, i128) = (5, 4);

/// What is free, of each resource on all places together.
#[derive(Debug, Default)]
pub(super) struct Room(ResourceVec);

/// How large a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Size(i128);

impl Room {
    /// On the Nodes of NodeClaims; what has none yet is not counted.
    pub(super) fn of(state: &State, places: &BTreeSet<&NodeClaimName>) -> Self {
        let claims = places.iter().filter_map(|place| state.node_claims.get(*place));
        let machines = claims.filter_map(|claim| claim::provider_id(claim));
        let mut room = ResourceVec::new();
        for node in machines.flat_map(|id| state.nodes_of_machine(id)) {
            let mut free = free_beside(state, node, |_| true);
            // What one lacks the others do not make up for.
            free.max_assign(&ResourceVec::new());
            room.saturating_add_assign(&free);
        }
        Self(room)
    }

    /// What nothing is free of makes nobody larger.
    pub(super) fn size(&self, requests: &ResourceVec) -> Size {
        let share = |(resource, amount): (_, i64)| {
            let free = self.0.get(resource);
            (amount > 0 && free > 0).then(|| i128::from(amount) * PARTS / i128::from(free))
        };
        Size(requests.iter().filter_map(share).max().unwrap_or(0))
    }
}

impl Size {
    pub(super) fn is_larger_than(self, other: Self) -> bool {
        let (more, than) = LARGER;
        self > other && self.0 * than >= other.0 * more
    }
}

#[cfg(test)]
mod tests {
    use model::ResourceId;

    use super::*;

    fn amounts(cpu: i64, memory: i64) -> ResourceVec {
        let mut amounts = ResourceVec::new();
        amounts.set(ResourceId::CPU, cpu);
        amounts.set(ResourceId::MEMORY, memory);
        amounts
    }

    #[test]
    fn a_pod_is_larger_by_what_it_takes_of_what_is_short() {
        // (CPU, memory) that are free, and of two pods; whether the first is larger.
        let cases = [
            ((50, 400), (4, 8), (2, 16), true, "8 % of the CPUs, and 4 % of the memory"),
            ((50, 100), (4, 8), (2, 16), false, "memory is short"),
            ((50, 100), (2, 16), (4, 8), true, "the other way around"),
            ((50, 400), (5, 0), (4, 0), true, "a quarter more"),
            ((50, 400), (9, 0), (8, 0), false, "about the same"),
            ((0, 400), (4, 1), (0, 2), false, "no CPU is free"),
            ((0, 0), (4, 1), (0, 0), false, "nothing is free"),
            ((50, 400), (1, 0), (0, 0), true, "the other asks for nothing"),
            ((i64::MAX, 1), (i64::MAX, i64::MAX), (1, 1), true, "as much as can be"),
        ];
        for ((cpu, memory), one, other, expected, why) in cases {
            let room = Room(amounts(cpu, memory));
            let size = |(cpu, memory)| room.size(&amounts(cpu, memory));
            assert_eq!(size(one).is_larger_than(size(other)), expected, "{why}");
        }
    }
}
