//! What a list has shown, and how long a failed watch waits.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::ClusterStore;
use super::super::object::Stored;
use super::Source;

/// How long a failed watch waits: from half a second, doubling, to five. kube's own goes up to half a minute, which is
/// how long a pod would wait after the API server was away for that long.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetryDelay {
    next: Duration,
}

impl RetryDelay {
    const MIN: Duration = Duration::from_millis(500);
    const MAX: Duration = Duration::from_secs(5);

    pub(super) fn next(&mut self) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(Self::MAX);
        delay
    }
}

impl Default for RetryDelay {
    fn default() -> Self {
        Self { next: Self::MIN }
    }
}

/// What a list has shown so far, to find what is gone.
pub(super) struct Listing<T: Stored> {
    /// Keys that were in the store when the list began. What is stored later was created later, and the list need not
    /// have it.
    pub(super) before: BTreeSet<T::Key>,
    pub(super) seen: BTreeSet<T::Key>,
    /// Whether a list was ever completed.
    pub(super) listed: bool,
}

impl<T: Stored> Default for Listing<T> {
    fn default() -> Self {
        Self { before: BTreeSet::new(), seen: BTreeSet::new(), listed: false }
    }
}

impl<T: Stored> Listing<T> {
    pub(super) fn begin(&mut self, store: &ClusterStore, source: &Source<T>) {
        self.seen.clear();
        self.before = T::table(&store.read()).keys().filter(|key| (source.owns)(key)).cloned().collect();
    }

    /// Removes what was there and is not in the list.
    pub(super) fn end(&mut self, store: &ClusterStore, source: &Source<T>) {
        let (before, seen) = (std::mem::take(&mut self.before), std::mem::take(&mut self.seen));
        for gone in before.iter().filter(|key| !seen.contains(key)) {
            store.forget::<T>(gone);
        }
        // A kind that several lists fill keeps its bad objects until they are seen again.
        if source.is_alone {
            let seen: BTreeSet<String> = seen.iter().map(ToString::to_string).collect();
            store.retain_undecodable(T::KIND, |key| seen.contains(key));
        }
    }
}
