//! Hash maps without a per-process random seed.
//!
//! The standard library's default hasher is seeded anew in every process, so iteration order would differ from run to
//! run. These hashers are fixed. Even so, **iterating one of these maps must never reach an output or a decision**:
//! the order still depends on insertion history. Use a `BTreeMap`, an `IndexMap` or a sort where order matters.

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
