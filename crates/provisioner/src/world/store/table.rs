//! One kind's objects by name.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::Uid;

use super::object::Revision;

/// Objects by key, in the keys' order. A clone shares everything until one of the two changes.
#[derive(Debug)]
pub struct Table<K, V> {
    rows: Arc<BTreeMap<K, Row<V>>>,
}

#[derive(Debug)]
struct Row<V> {
    object: Arc<V>,
    revision: Revision,
}

impl<V> Clone for Row<V> {
    fn clone(&self) -> Self {
        Self { object: Arc::clone(&self.object), revision: self.revision.clone() }
    }
}

impl<K, V> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Self { rows: Arc::clone(&self.rows) }
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { rows: Arc::new(BTreeMap::new()) }
    }
}

impl<K: Clone + Ord, V> Table<K, V> {
    /// The object of that name.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&Arc<V>>
    where
        K: Borrow<Q>,
    {
        self.rows.get(key).map(|row| &row.object)
    }

    /// Which revision of the object is stored.
    pub fn revision<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&Revision>
    where
        K: Borrow<Q>,
    {
        self.rows.get(key).map(|row| &row.revision)
    }

    /// A key as it is stored, which shares its text with the object.
    pub(super) fn stored_key(&self, key: &K) -> Option<&K> {
        self.rows.get_key_value(key).map(|(key, _)| key)
    }

    /// Whether there is an object of that name.
    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.rows.contains_key(key)
    }

    /// Everything, in the keys' order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &Arc<V>)> + ExactSizeIterator {
        self.rows.iter().map(|(key, row)| (key, &row.object))
    }

    /// All keys, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + ExactSizeIterator {
        self.rows.keys()
    }

    /// All objects, in the keys' order.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Arc<V>> + ExactSizeIterator {
        self.rows.values().map(|row| &row.object)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Puts an object in and gives back the one it replaces. `None`: a newer or equal revision of the same object is
    /// there, and it stays.
    pub(super) fn insert(&mut self, key: K, object: Arc<V>, revision: Revision) -> Option<Option<Arc<V>>> {
        if self.rows.get(&key).is_some_and(|row| !revision.supersedes(&row.revision)) {
            return None;
        }
        let rows = Arc::make_mut(&mut self.rows);
        Some(rows.insert(key, Row { object, revision }).map(|row| row.object))
    }

    /// Takes an object out, if it has that uid.
    pub(super) fn remove(&mut self, key: &K, uid: Option<&Uid>) -> Option<Arc<V>> {
        let row = self.rows.get(key)?;
        if uid.is_some_and(|uid| row.revision.uid != *uid) {
            return None;
        }
        Arc::make_mut(&mut self.rows).remove(key).map(|row| row.object)
    }
}
