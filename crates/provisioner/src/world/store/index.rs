//! From a property of objects to the objects that have it.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Keys of objects by some property; several objects may share a value. A clone shares everything until it changes.
#[derive(Debug)]
pub struct Index<P, K> {
    entries: Arc<BTreeMap<P, BTreeSet<K>>>,
}

impl<P, K> Clone for Index<P, K> {
    fn clone(&self) -> Self {
        Self { entries: Arc::clone(&self.entries) }
    }
}

impl<P, K> Default for Index<P, K> {
    fn default() -> Self {
        Self { entries: Arc::new(BTreeMap::new()) }
    }
}

impl<P: Clone + Ord, K: Clone + Ord> Index<P, K> {
    /// The keys of the objects with that property, in order.
    pub fn get<Q: Ord + ?Sized>(&self, property: &Q) -> impl DoubleEndedIterator<Item = &K>
    where
        P: Borrow<Q>,
    {
        self.entries.get(property).into_iter().flatten()
    }

    /// Moves a key from what its object had to what it has.
    pub(super) fn update(&mut self, before: Option<(P, K)>, after: Option<(P, K)>) {
        if before == after {
            return;
        }
        let entries = Arc::make_mut(&mut self.entries);
        if let Some((property, key)) = before
            && let Some(keys) = entries.get_mut(&property)
        {
            keys.remove(&key);
            if keys.is_empty() {
                entries.remove(&property);
            }
        }
        if let Some((property, key)) = after {
            entries.entry(property).or_default().insert(key);
        }
    }
}
