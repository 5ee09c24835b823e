//! A set of devices of a view.

use model::Id;
use smallvec::SmallVec;

use crate::inventory::view::Position;

/// Devices of a view, one bit each; as many as a slice may have need no allocation.
#[derive(Debug, Clone, Default)]
pub(super) struct Positions(SmallVec<[u64; 2]>);

impl Positions {
    pub(super) fn has(&self, position: Position) -> bool {
        let (word, bit) = place(position);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    pub(super) fn add(&mut self, position: Position) {
        let (word, bit) = place(position);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }
}

fn place(position: Position) -> (usize, u64) {
    let index = position.index();
    (index / 64, 1 << (index % 64))
}
