//! Labels of an object, interned.

use std::fmt;

use smallvec::SmallVec;

use crate::intern::{Interner, KeyId, ValueId};

/// The labels of one object: each key at most once, sorted by id so that lookups are a binary search and equal labels
/// compare equal. The order of ids means nothing; [`Labels::display`] sorts by name.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Labels {
    pairs: SmallVec<[(KeyId, ValueId); 4]>,
}

impl Labels {
    /// No labels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Interns text labels. The last of equal keys wins.
    pub fn intern<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>, interner: &mut Interner) -> Self {
        pairs.into_iter().map(|(key, value)| (interner.key(key), interner.value(value))).collect()
    }

    /// The value of `key`.
    pub fn get(&self, key: KeyId) -> Option<ValueId> {
        let index = self.pairs.binary_search_by_key(&key, |&(key, _)| key).ok()?;
        self.pairs.get(index).map(|&(_, value)| value)
    }

    /// Whether the key is present.
    pub fn contains_key(&self, key: KeyId) -> bool {
        self.get(key).is_some()
    }

    /// Sets `key` to `value` and returns what it was.
    pub fn insert(&mut self, key: KeyId, value: ValueId) -> Option<ValueId> {
        match self.pairs.binary_search_by_key(&key, |&(key, _)| key) {
            Ok(index) => self.pairs.get_mut(index).map(|pair| std::mem::replace(&mut pair.1, value)),
            Err(index) => {
                self.pairs.insert(index, (key, value));
                None
            }
        }
    }

    /// Removes `key` and returns what it was.
    pub fn remove(&mut self, key: KeyId) -> Option<ValueId> {
        let index = self.pairs.binary_search_by_key(&key, |&(key, _)| key).ok()?;
        Some(self.pairs.remove(index).1)
    }

    /// The pairs in the order of key ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (KeyId, ValueId)> + '_ {
        self.pairs.iter().copied()
    }

    /// How many labels there are.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there is no label.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Prints `key=value` pairs, sorted by the key's name.
    pub fn display<'a>(&'a self, interner: &'a Interner) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            let mut pairs: Vec<_> =
                self.iter().map(|(key, value)| (interner.key_name(key), interner.value_name(value))).collect();
            pairs.sort_unstable();
            for (index, (key, value)) in pairs.into_iter().enumerate() {
                let separator = if index == 0 { "" } else { "," };
                write!(f, "{separator}{key}={value}")?;
            }
            Ok(())
        })
    }
}

impl FromIterator<(KeyId, ValueId)> for Labels {
    fn from_iter<T: IntoIterator<Item = (KeyId, ValueId)>>(pairs: T) -> Self {
        let mut labels = Self::new();
        labels.extend(pairs);
        labels
    }
}

impl Extend<(KeyId, ValueId)> for Labels {
    fn extend<T: IntoIterator<Item = (KeyId, ValueId)>>(&mut self, pairs: T) {
        for (key, value) in pairs {
            self.insert(key, value);
        }
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_key_wins() {
        let mut interner = Interner::new();
        let labels = Labels::intern([("b", "1"), ("a", "2"), ("b", "3")], &mut interner);
        assert_eq!(labels.len(), 2);
        assert_eq!(labels.get(interner.key("b")), Some(interner.value("3")));
        assert_eq!(labels.get(interner.key("c")), None);
    }

    #[test]
    fn equal_whatever_the_order_of_insertion() {
        let mut interner = Interner::new();
        let one = Labels::intern([("a", "1"), ("b", "2")], &mut interner);
        let two = Labels::intern([("b", "2"), ("a", "1")], &mut interner);
        assert_eq!(one, two);
    }

    #[test]
    fn printed_by_name_not_by_id() {
        let mut interner = Interner::new();
        let labels = Labels::intern([("zone", "a"), ("arch", "arm64")], &mut interner);
        assert_eq!(labels.display(&interner).to_string(), "arch=arm64,zone=a");
    }

    #[test]
    fn removed_keys_are_gone() {
        let mut interner = Interner::new();
        let mut labels = Labels::intern([("a", "1"), ("b", "2")], &mut interner);
        let (a, one) = (interner.key("a"), interner.value("1"));
        assert_eq!(labels.remove(a), Some(one));
        assert_eq!(labels.remove(a), None);
        assert!(!labels.contains_key(a));
        assert_eq!(labels.len(), 1);
    }
}
