//! Answers of a cloud, kept for a while.
//!
//! Only for answers whose age changes no plan by itself, such as a catalogue that is refreshed anyway: the cache reads
//! its own clock. What decides about plans takes time as a parameter ([`crate::UnavailableOfferings`]).

use std::hash::Hash;
use std::time::Duration;

use moka::sync::Cache;

/// A bounded map whose entries vanish. Clones share it.
#[derive(Debug, Clone)]
pub struct ResponseCache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    entries: Cache<K, V>,
}

impl<K, V> ResponseCache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Holds at most `capacity` answers, each for `ttl`.
    pub fn new(ttl: Duration, capacity: u64) -> Self {
        Self { entries: Cache::builder().time_to_live(ttl).max_capacity(capacity).build() }
    }

    /// The answer, if it is still kept.
    pub fn get(&self, key: &K) -> Option<V> {
        self.entries.get(key)
    }

    /// Keeps an answer in place of any earlier one.
    pub fn insert(&self, key: K, value: V) {
        self.entries.insert(key, value);
    }

    /// Drops one answer.
    pub fn invalidate(&self, key: &K) {
        self.entries.invalidate(key);
    }

    /// Drops every answer.
    pub fn invalidate_all(&self) {
        self.entries.invalidate_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_until_it_is_dropped() {
        let cache = ResponseCache::new(Duration::from_secs(3600), 10);
        cache.insert("a", 1);
        cache.insert("b", 2);
        cache.insert("a", 3);
        assert_eq!((cache.get(&"a"), cache.get(&"b")), (Some(3), Some(2)));
        cache.invalidate(&"a");
        assert_eq!((cache.get(&"a"), cache.clone().get(&"b")), (None, Some(2)));
        cache.invalidate_all();
        assert_eq!(cache.get(&"b"), None);
    }

    #[test]
    fn an_answer_that_is_too_old_is_not_given() {
        let cache = ResponseCache::new(Duration::ZERO, 10);
        cache.insert("a", 1);
        assert_eq!(cache.get(&"a"), None);
    }

    #[test]
    fn no_more_answers_are_kept_than_there_is_room_for() {
        let cache = ResponseCache::new(Duration::from_secs(3600), 10);
        for key in 0..1000 {
            cache.insert(key, ());
        }
        cache.entries.run_pending_tasks();
        assert!(cache.entries.entry_count() <= 10, "{} answers", cache.entries.entry_count());
    }
}
