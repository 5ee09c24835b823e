//! Hash maps without a per-process random seed.
//!
//! The standard library's default hasher is seeded anew in every process, so iteration order would differ from run to
//! run. These hashers are fixed. Even so, **iterating one of these maps must never reach an output or a decision**:
//! the order still depends on insertion history. Use a `BTreeMap`, an `IndexMap` or a sort where order matters.

use std::sync::Arc;

use foldhash::fast::FixedState;
use rustc_hash::FxBuildHasher;

/// A map keyed by ids or other small integers.
#[allow(clippy::disallowed_types, reason = "the hasher is fixed")]
pub type FastMap<K, V> = std::collections::HashMap<K, V, FxBuildHasher>;

/// A set of ids or other small integers.
#[allow(clippy::disallowed_types, reason = "the hasher is fixed")]
pub type FastSet<K> = std::collections::HashSet<K, FxBuildHasher>;

/// A map keyed by names or other values of any length, which a hostile object may have chosen.
#[allow(clippy::disallowed_types, reason = "the hasher is fixed")]
pub type NameMap<K, V> = std::collections::HashMap<K, V, FixedState>;

/// A set of names or other values of any length, which a hostile object may have chosen.
#[allow(clippy::disallowed_types, reason = "the hasher is fixed")]
pub type NameSet<K> = std::collections::HashSet<K, FixedState>;

/// A number that equal values share and others mostly don't; the same on every run.
pub fn fast_hash(value: &impl std::hash::Hash) -> u64 {
    std::hash::BuildHasher::hash_one(&FxBuildHasher, value)
}

/// Results by the shared object that each was made of, for those who make them again and again. As nobody changes such
/// an object in place, a look at its address tells whether the result is still good; the object is kept, so that no
/// other gets its address.
///
/// A round of making begins with [`begin`](Self::begin) and ends with [`end`](Self::end), which forgets what it did not
/// use.
#[derive(Debug)]
pub struct Remembered<T, R> {
    /// With the last round that used it.
    results: FastMap<usize, (Arc<T>, R, u64)>,
    round: u64,
}

impl<T, R> Default for Remembered<T, R> {
    fn default() -> Self {
        Self { results: FastMap::default(), round: 0 }
    }
}

impl<T, R> Remembered<T, R> {
    /// Begins a round.
    pub fn begin(&mut self) {
        self.round += 1;
    }

    /// Ends it: what it did not use is forgotten.
    pub fn end(&mut self) {
        self.results.retain(|_, (_, _, last_used)| *last_used == self.round);
    }

    /// What this very object came to when last seen.
    pub fn get(&mut self, object: &Arc<T>) -> Option<&R> {
        let (_, result, last_used) = self.results.get_mut(&Arc::as_ptr(object).addr())?;
        *last_used = self.round;
        Some(result)
    }

    /// Remembers what an object comes to.
    pub fn keep(&mut self, object: &Arc<T>, result: R) {
        self.results.insert(Arc::as_ptr(object).addr(), (Arc::clone(object), result, self.round));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_round_does_not_use_is_forgotten() {
        let (used, unused) = (Arc::new(1), Arc::new(1));
        let mut remembered = Remembered::default();
        remembered.begin();
        remembered.keep(&used, "used");
        remembered.keep(&unused, "unused");
        remembered.end();
        remembered.begin();
        assert_eq!(remembered.get(&used), Some(&"used"));
        assert_eq!(remembered.get(&Arc::new(1)), None, "it is equal, and another object");
        remembered.end();
        assert_eq!((remembered.get(&used), Arc::strong_count(&used)), (Some(&"used"), 2));
        assert_eq!((remembered.get(&unused), Arc::strong_count(&unused)), (None, 1));
    }
}
