//! The residual-capacity index: a tree with the most that is free in each part, so that a class skips full places
//! without looking at them. Places are nodes in the order of trying, or open machines with the room that is paid for.

use model::{Id as _, ResourceId, ResourceVec};

/// What is free at each place, and the most of each resource in each part of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlackTree {
    /// A complete binary tree, the root at 1, the places in its second half; amounts by resource, side by side.
    most: Vec<i64>,
    /// How many places there are.
    leaves: usize,
    /// How many resources are told apart.
    resources: usize,
}

impl SlackTree {
    /// What is free at places 0, 1 and so on.
    pub(crate) fn new<'r>(free: impl ExactSizeIterator<Item = &'r ResourceVec> + Clone) -> Self {
        let mut tree = Self::default();
        tree.grow(free.len(), free.clone().map(resources).max().unwrap_or(0));
        for (place, free) in free.enumerate() {
            for resource in 0..tree.resources {
                tree.put(tree.leaves + place, resource, free.get(ResourceId::from_index(resource)).max(0));
            }
        }
        tree.sum_up();
        tree
    }

    /// Sets what is free at a place.
    pub(crate) fn set(&mut self, place: usize, free: &ResourceVec) {
        let resources = resources(free);
        if place >= self.leaves || resources > self.resources {
            self.grow((place + 1).max(self.leaves), resources.max(self.resources));
        }
        let mut node = self.leaves + place;
        for resource in 0..self.resources {
            // An overdrawn place has nothing free.
            self.put(node, resource, free.get(ResourceId::from_index(resource)).max(0));
        }
        while node > 1 {
            node /= 2;
            let mut changed = false;
            for resource in 0..self.resources {
                let most = self.at(2 * node, resource).max(self.at(2 * node + 1, resource));
                changed |= self.at(node, resource) != most;
                self.put(node, resource, most);
            }
            if !changed {
                break;
            }
        }
    }

    /// The first place from `from` on that has so much free.
    pub(crate) fn next(&self, from: usize, requests: &ResourceVec) -> Option<usize> {
        if from >= self.leaves {
            return None;
        }
        let wanted = requests.as_slice();
        let fits = |node: usize| {
            let first = node * self.resources;
            // Nothing is free of a resource that no place has.
            let most = self.most.get(first..first + wanted.len()).filter(|_| wanted.len() <= self.resources);
            most.is_some_and(|most| wanted.iter().zip(most).all(|(wanted, most)| wanted <= most))
        };
        let mut node = self.leaves + from;
        loop {
            if fits(node) {
                if node >= self.leaves {
                    return Some(node - self.leaves);
                }
                node *= 2;
                continue;
            }
            // On to the next part that begins behind this one.
            while node % 2 == 1 {
                node /= 2;
            }
            if node == 0 {
                return None;
            }
            node += 1;
        }
    }

    fn at(&self, node: usize, resource: usize) -> i64 {
        if resource >= self.resources {
            return 0;
        }
        self.most.get(node * self.resources + resource).copied().unwrap_or(0)
    }

    fn put(&mut self, node: usize, resource: usize, amount: i64) {
        if let Some(slot) = self.most.get_mut(node * self.resources + resource) {
            *slot = amount;
        }
    }

    fn grow(&mut self, places: usize, resources: usize) {
        let before = std::mem::take(self);
        self.leaves = places.next_power_of_two();
        self.resources = resources;
        self.most = vec![0; 2 * self.leaves * resources];
        for place in 0..before.leaves {
            for resource in 0..before.resources {
                self.put(self.leaves + place, resource, before.at(before.leaves + place, resource));
            }
        }
        self.sum_up();
    }

    fn sum_up(&mut self) {
        for node in (1..self.leaves).rev() {
            for resource in 0..self.resources {
                let most = self.at(2 * node, resource).max(self.at(2 * node + 1, resource));
                self.put(node, resource, most);
            }
        }
    }
}

fn resources(free: &ResourceVec) -> usize {
    free.iter().map(|(resource, _)| resource.index() + 1).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(cpu: i64, memory: i64) -> ResourceVec {
        [(ResourceId::CPU, cpu), (ResourceId::MEMORY, memory)].into_iter().collect()
    }

    #[test]
    fn the_next_place_with_room_is_found_as_by_looking_at_each() {
        let mut tree = SlackTree::default();
        let mut all: Vec<(i64, i64)> = Vec::new();
        let mut number = 7_u64;
        let mut below = |end: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from((number >> 33) % end).unwrap()
        };
        for round in 0..300 {
            let id = usize::try_from(below(round / 3 + 1)).unwrap();
            let free = (below(9) - 1, below(9) - 1);
            if id >= all.len() {
                all.resize(id + 1, (0, 0));
            }
            all[id] = free;
            tree.set(id, &amounts(free.0, free.1));
            let all_amounts: Vec<ResourceVec> = all.iter().map(|free| amounts(free.0, free.1)).collect();
            let anew = SlackTree::new(all_amounts.iter());
            let wanted = (below(9), 1 + below(8));
            let requests = amounts(wanted.0, wanted.1);
            let all_in = |tree: &SlackTree| -> Vec<usize> {
                let after = |place: &usize| tree.next(place + 1, &requests);
                std::iter::successors(tree.next(0, &requests), after).collect()
            };
            let fits = |free: &(i64, i64)| (wanted.0 == 0 || free.0 >= wanted.0) && free.1 >= wanted.1;
            let expected: Vec<usize> = (0..all.len()).filter(|&id| fits(&all[id])).collect();
            assert_eq!((all_in(&tree), all_in(&anew)), (expected.clone(), expected));
        }
    }
}
