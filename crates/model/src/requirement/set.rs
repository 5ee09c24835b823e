//! Conjunctions of requirements, each key at most once.

use std::{fmt, sync::Arc};

use super::operator::{ExpressionError, Operator};
use super::value_set::ValueSet;
use crate::intern::{Interner, KeyId, ValueId};
use crate::labels::Labels;

/// What the label `key` may be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// The key.
    pub key: KeyId,
    /// Its values.
    pub values: ValueSet,
    /// How many different values the machines offered to the provider must leave open; NodePools only.
    pub min_values: Option<u32>,
}

impl Requirement {
    /// A requirement without `minValues`.
    pub fn new(key: KeyId, values: ValueSet) -> Self {
        Self { key, values, min_values: None }
    }

    /// Interns an expression as Kubernetes writes it.
    pub fn parse<'a>(
        key: &str,
        operator: Operator,
        values: impl IntoIterator<Item = &'a str>,
        interner: &mut Interner,
    ) -> Result<Self, ExpressionError> {
        let values: Vec<ValueId> = values.into_iter().map(|value| interner.value(value)).collect();
        let values = ValueSet::of(operator, &values, interner).map_err(|problem| ExpressionError::Values {
            key: key.to_owned(),
            operator,
            problem,
        })?;
        Ok(Self::new(interner.key(key), values))
    }

    /// Prints the requirement in Karpenter's style: `key In [a b]`, `key Exists >=3`.
    pub fn display<'a>(&'a self, interner: &'a Interner) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| self.write(f, interner))
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, interner: &Interner) -> fmt::Result {
        write!(f, "{} {}", interner.key_name(self.key), self.values.display(interner))?;
        match self.min_values {
            Some(min_values) => write!(f, " minValues {min_values}"),
            None => Ok(()),
        }
    }
}

/// Requirements that must all hold. A key that is not listed is not restricted.
///
/// Sorted by key id, so that equal conjunctions compare and hash equal. The order of ids means nothing; anything that
/// is shown goes through [`Requirements::iter_by_name`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Requirements {
    /// Shared with the conjunctions that this one was made of: a cloud sells its types in tens of thousands of ways,
    /// and those of a type differ in two labels of twenty.
    by_key: Vec<Arc<Requirement>>,
}

/// The requirements of a conjunction, in the order of key ids.
#[derive(Debug, Clone)]
pub struct Iter<'a>(std::slice::Iter<'a, Arc<Requirement>>);

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Requirement;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|requirement| &**requirement)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl Requirements {
    /// No requirement: everything satisfies it.
    pub const fn new() -> Self {
        Self { by_key: Vec::new() }
    }

    /// Each label as a requirement for exactly its value.
    pub fn from_labels(labels: &Labels) -> Self {
        let of_label = |(key, value)| Arc::new(Requirement::new(key, ValueSet::one(value)));
        Self { by_key: labels.iter().map(of_label).collect() }
    }

    /// The conjunction of all of these.
    pub fn from_requirements(requirements: impl IntoIterator<Item = Requirement>, interner: &Interner) -> Self {
        let mut all = Self::new();
        for requirement in requirements {
            all.insert_intersect(requirement, interner);
        }
        all
    }

    /// The requirement on `key`.
    pub fn get(&self, key: KeyId) -> Option<&Requirement> {
        self.by_key.get(self.position(key).ok()?).map(|requirement| &**requirement)
    }

    /// The requirement on `key`, as [`Self::get`] finds it. For one after the other of conjunctions that are much alike
    /// it is quicker: it looks first where the key was in the one before.
    pub fn get_near(&self, key: KeyId, position: &mut usize) -> Option<&Requirement> {
        let there = self.by_key.get(*position).filter(|requirement| requirement.key == key);
        let found = match there {
            Some(found) => found,
            None => {
                *position = self.position(key).ok()?;
                self.by_key.get(*position)?
            }
        };
        Some(&**found)
    }

    /// Whether `key` is restricted.
    pub fn contains_key(&self, key: KeyId) -> bool {
        self.position(key).is_ok()
    }

    /// Adds a requirement; one on the same key is narrowed to what both allow, and the greater `minValues` stays.
    pub fn insert_intersect(&mut self, requirement: Requirement, interner: &Interner) {
        match self.position(requirement.key) {
            Err(index) => self.by_key.insert(index, Arc::new(requirement)),
            Ok(index) => self.narrow(index, &requirement, interner),
        }
    }

    /// Adds all requirements of `other`.
    pub fn intersect(&mut self, other: &Self, interner: &Interner) {
        for requirement in &other.by_key {
            match self.position(requirement.key) {
                Err(index) => self.by_key.insert(index, Arc::clone(requirement)),
                Ok(index) => self.narrow(index, requirement, interner),
            }
        }
    }

    /// Narrows the requirement at a position by another one on its key. It stays shared where that changes nothing.
    fn narrow(&mut self, index: usize, by: &Requirement, interner: &Interner) {
        let Some(mine) = self.by_key.get_mut(index) else { return };
        let values = mine.values.intersect(&by.values, interner);
        let min_values = mine.min_values.max(by.min_values);
        if values != mine.values || min_values != mine.min_values {
            *mine = Arc::new(Requirement { key: mine.key, values, min_values });
        }
    }

    /// Sets the requirement on its key, whatever was there.
    pub fn replace(&mut self, requirement: Requirement) {
        match self.position(requirement.key) {
            Err(index) => self.by_key.insert(index, Arc::new(requirement)),
            Ok(index) => {
                if let Some(mine) = self.by_key.get_mut(index) {
                    *mine = Arc::new(requirement);
                }
            }
        }
    }

    /// Lifts the requirement on `key` and returns it.
    pub fn remove(&mut self, key: KeyId) -> Option<Requirement> {
        self.position(key).ok().map(|index| Arc::unwrap_or_clone(self.by_key.remove(index)))
    }

    /// Whether each key that both restrict has a value (or absence) that both allow; else the first such key by name
    /// that has none.
    pub fn intersects(&self, other: &Self, interner: &Interner) -> Result<(), KeyId> {
        let conflicts = self.common(other).filter(|(mine, theirs)| !mine.values.intersects(&theirs.values, interner));
        first_by_name(conflicts.map(|(mine, _)| mine.key), interner).map_or(Ok(()), Err)
    }

    /// Whether an object with exactly these labels satisfies every requirement, as kube-scheduler decides it.
    pub fn matches_labels(&self, labels: &Labels, interner: &Interner) -> bool {
        self.by_key.iter().all(|requirement| requirement.values.contains(labels.get(requirement.key), interner))
    }

    /// The first key by name whose requirement these labels do not satisfy.
    pub fn first_mismatch(&self, labels: &Labels, interner: &Interner) -> Option<KeyId> {
        let failing = self
            .by_key
            .iter()
            .filter(|requirement| !requirement.values.contains(labels.get(requirement.key), interner));
        first_by_name(failing.map(|requirement| requirement.key), interner)
    }

    /// Whether everything that satisfies this satisfies `other` too.
    pub fn is_subset(&self, other: &Self, interner: &Interner) -> bool {
        self.first_empty(interner).is_some()
            || other.by_key.iter().all(|theirs| match self.get(theirs.key) {
                Some(mine) => mine.values.is_subset(&theirs.values, interner),
                None => theirs.values.is_any(),
            })
    }

    /// The first key by name that nothing can satisfy.
    pub fn first_empty(&self, interner: &Interner) -> Option<KeyId> {
        let empty = self.by_key.iter().filter(|requirement| requirement.values.is_empty());
        first_by_name(empty.map(|requirement| requirement.key), interner)
    }

    /// The requirements in the order of key ids.
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.by_key.iter())
    }

    /// The requirements sorted by the key's name.
    pub fn iter_by_name<'a>(&'a self, interner: &Interner) -> impl ExactSizeIterator<Item = &'a Requirement> + use<'a> {
        let mut requirements: Vec<_> = self.iter().collect();
        requirements.sort_by_key(|requirement| interner.key_name(requirement.key));
        requirements.into_iter()
    }

    /// How many keys are restricted.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether no key is restricted.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Prints all requirements in Karpenter's style, sorted by the key's name.
    pub fn display<'a>(&'a self, interner: &'a Interner) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            for (index, requirement) in self.iter_by_name(interner).enumerate() {
                let separator = if index == 0 { "" } else { ", " };
                write!(f, "{separator}{}", requirement.display(interner))?;
            }
            Ok(())
        })
    }

    fn position(&self, key: KeyId) -> Result<usize, usize> {
        self.by_key.binary_search_by_key(&key, |requirement| requirement.key)
    }

    /// The pairs of requirements on the same key.
    fn common<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (&'a Requirement, &'a Requirement)> {
        // Walk the shorter one.
        let swapped = self.by_key.len() > other.by_key.len();
        let (short, long) = if swapped { (other, self) } else { (self, other) };
        short.iter().filter_map(move |requirement| {
            let found = long.get(requirement.key)?;
            Some(if swapped { (found, requirement) } else { (requirement, found) })
        })
    }
}

impl<'a> IntoIterator for &'a Requirements {
    type Item = &'a Requirement;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

pub(super) fn first_by_name(keys: impl Iterator<Item = KeyId>, interner: &Interner) -> Option<KeyId> {
    keys.min_by_key(|&key| interner.key_name(key))
}
