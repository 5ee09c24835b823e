//! Sets of dense ids as bitsets.
//!
//! A set grows when an id beyond its length is inserted; two sets are equal if they hold the same ids, whatever room
//! they have. Iteration is in id order, which is input order for tables filled from input and *meaningless* for
//! interned names.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use fixedbitset::FixedBitSet;

use crate::id::Id;

/// A set of ids of one table.
pub struct IdSet<I> {
    bits: FixedBitSet,
    ids: PhantomData<fn(I) -> I>,
}

impl<I: Id> IdSet<I> {
    /// An empty set without room.
    pub const fn new() -> Self {
        Self { bits: FixedBitSet::new(), ids: PhantomData }
    }

    /// An empty set with room for the ids `0..len`.
    pub fn with_len(len: usize) -> Self {
        Self { bits: FixedBitSet::with_capacity(len), ids: PhantomData }
    }

    /// The ids `0..len`.
    pub fn full(len: usize) -> Self {
        let mut set = Self::with_len(len);
        set.bits.insert_range(..);
        set
    }

    /// Adds `id`; says whether it was missing.
    pub fn insert(&mut self, id: I) -> bool {
        let index = id.index();
        if index >= self.bits.len() {
            self.bits.grow(index + 1);
        }
        !self.bits.put(index)
    }

    /// Removes `id`; says whether it was there.
    pub fn remove(&mut self, id: I) -> bool {
        let was_there = self.contains(id);
        if was_there {
            self.bits.remove(id.index());
        }
        was_there
    }

    /// Whether `id` is in the set. Ids beyond its room are not.
    pub fn contains(&self, id: I) -> bool {
        self.bits.contains(id.index())
    }

    /// Removes every id, keeping the room.
    pub fn clear(&mut self) {
        self.bits.clear();
    }

    /// Keeps the ids that `other` has too.
    pub fn intersect_with(&mut self, other: &Self) {
        self.bits.intersect_with(&other.bits);
    }

    /// Adds the ids of `other`.
    pub fn union_with(&mut self, other: &Self) {
        self.bits.union_with(&other.bits);
    }

    /// Removes the ids of `other`.
    pub fn difference_with(&mut self, other: &Self) {
        self.bits.difference_with(&other.bits);
    }

    /// Whether the sets have no id in common.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.bits.is_disjoint(&other.bits)
    }

    /// Whether the sets have an id in common.
    pub fn intersects(&self, other: &Self) -> bool {
        !self.is_disjoint(other)
    }

    /// Whether each id is in `other` too.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.bits.is_subset(&other.bits)
    }

    /// Whether no id is in the set.
    pub fn is_empty(&self) -> bool {
        self.bits.is_clear()
    }

    /// How many ids are in the set.
    pub fn count(&self) -> usize {
        self.bits.count_ones(..)
    }

    /// How many ids both sets have in common, without building their intersection.
    pub fn intersection_count(&self, other: &Self) -> usize {
        self.bits.intersection_count(&other.bits)
    }

    /// The ids in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = I> + '_ {
        self.bits.ones().map(I::from_index)
    }

    /// The lowest id.
    pub fn first(&self) -> Option<I> {
        self.bits.minimum().map(I::from_index)
    }

    /// The blocks up to the last one that holds an id, so that room does not count.
    fn significant_blocks(&self) -> &[fixedbitset::Block] {
        let blocks = self.bits.as_slice();
        let len = blocks.iter().rposition(|&block| block != 0).map_or(0, |last| last + 1);
        blocks.get(..len).unwrap_or(blocks)
    }
}

impl<I> Clone for IdSet<I> {
    fn clone(&self) -> Self {
        Self { bits: self.bits.clone(), ids: PhantomData }
    }

    fn clone_from(&mut self, source: &Self) {
        self.bits.clone_from(&source.bits);
    }
}

impl<I: Id> Default for IdSet<I> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I: Id> PartialEq for IdSet<I> {
    fn eq(&self, other: &Self) -> bool {
        self.significant_blocks() == other.significant_blocks()
    }
}

impl<I: Id> Eq for IdSet<I> {}

impl<I: Id> Hash for IdSet<I> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.significant_blocks().hash(state);
    }
}

impl<I: Id> FromIterator<I> for IdSet<I> {
    fn from_iter<T: IntoIterator<Item = I>>(ids: T) -> Self {
        let mut set = Self::new();
        set.extend(ids);
        set
    }
}

impl<I: Id> Extend<I> for IdSet<I> {
    fn extend<T: IntoIterator<Item = I>>(&mut self, ids: T) {
        for id in ids {
            self.insert(id);
        }
    }
}

impl<I: Id> fmt::Debug for IdSet<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
