//! What is placed of classes with claims, in the order of placing, and found by its place.
//!
//! Most claims only take devices of their own machine. So whoever asks what competes at a place looks at what is there,
//! and at the few claims that may take something beyond their place.

use model::collections::FastMap;

use super::{orders::Place, ways::Costs};
use crate::simulation::compile::classes::ClassId;

/// Copies of a class with claims at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) place: Place,
    pub(super) class: ClassId,
    pub(super) variant: usize,
    pub(super) copies: u32,
    /// What each copy's devices cost of the place.
    pub(super) costs: Costs,
}

/// All of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Placements {
    all: Vec<Held>,
    /// By place: positions in `all`, ascending.
    at: FastMap<Place, Vec<usize>>,
    /// Positions of those that may take something beyond their place, ascending.
    beyond: Vec<usize>,
}

impl Placements {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn push(&mut self, held: Held, is_beyond_place: bool) {
        let position = self.all.len();
        self.at.entry(held.place).or_default().push(position);
        if is_beyond_place {
            self.beyond.push(position);
        }
        self.all.push(held);
    }

    /// Forgets all but the first.
    pub(super) fn truncate(&mut self, len: usize) {
        for held in self.all.drain(len.min(self.all.len())..) {
            if let Some(at) = self.at.get_mut(&held.place) {
                at.pop();
            }
        }
        self.beyond.truncate(self.beyond.partition_point(|position| *position < len));
    }

    pub(super) fn last(&self) -> Option<&Held> {
        self.all.last()
    }

    pub(super) fn get(&self, position: usize) -> Option<&Held> {
        self.all.get(position)
    }

    /// Positions of what is at a place.
    pub(super) fn at(&self, place: Place) -> &[usize] {
        self.at.get(&place).map_or(&[], Vec::as_slice)
    }

    /// Positions of what may take something beyond its place.
    pub(super) fn beyond_place(&self) -> &[usize] {
        &self.beyond
    }
}

/// The index follows from what is placed.
#[cfg(test)]
impl PartialEq for Placements {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all && self.beyond == other.beyond
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::Id;

    use super::*;

    #[test]
    fn what_is_taken_back_is_found_nowhere() {
        let node = |index: usize| Place::Node(Id::from_index(index));
        let held = |place: Place| Held { place, class: Id::from_index(0), variant: 0, copies: 1, costs: Arc::new([]) };
        let mut placements = Placements::default();
        for (place, is_beyond) in [(node(0), false), (node(1), true), (node(0), true), (node(0), false)] {
            placements.push(held(place), is_beyond);
        }
        let state = |placements: &Placements| {
            (placements.at(node(0)).to_vec(), placements.at(node(1)).to_vec(), placements.beyond_place().to_vec())
        };
        assert_eq!(state(&placements), (vec![0, 2, 3], vec![1], vec![1, 2]));
        placements.truncate(2);
        assert_eq!(state(&placements), (vec![0], vec![1], vec![1]));
        placements.push(held(node(1)), false);
        assert_eq!(state(&placements), (vec![0], vec![1, 2], vec![1]));
        placements.truncate(0);
        assert_eq!(state(&placements), (vec![], vec![], vec![]));
    }
}
