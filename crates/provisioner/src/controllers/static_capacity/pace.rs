//! How soon machines of a static NodePool are launched again where launches fail.
//!
//! A NodeClaim whose launch fails finally is deleted at once, and so is missing at once. Without a pause the next would
//! follow a second later, for as long as the provider has no room. The pause doubles from failure to failure and ends
//! with the first machine that is launched.
//!
//! Differs: `static-launch-pace`. Karpenter launches again at once.

use std::collections::{BTreeMap, BTreeSet};

use model::{DurationMs, NodeClaimName, NodePoolName, Timestamp};
use parking_lot::Mutex;

/// The pause after one failure.
const SHORTEST: DurationMs = DurationMs::from_seconds(5);
/// The longest pause.
const LONGEST: DurationMs = DurationMs::from_seconds(300);

/// The pace of all static NodePools.
#[derive(Debug, Default)]
pub(crate) struct Paces(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    by_pool: BTreeMap<NodePoolName, Pace>,
    /// NodeClaims that we delete ourselves: that they were not launched says nothing.
    surplus: BTreeSet<NodeClaimName>,
}

/// That of one NodePool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Pace {
    failures: u32,
    not_before: Timestamp,
}

impl Paces {
    /// Notes that a NodeClaim was deleted before its machine was launched. Failures during the pause after another are
    /// of the same attempt.
    pub(crate) fn failed(&self, pool: &NodePoolName, claim: &NodeClaimName, now: Timestamp) {
        let mut inner = self.0.lock();
        if inner.surplus.remove(claim) {
            return;
        }
        let pace = inner.by_pool.entry(pool.clone()).or_default();
        if now < pace.not_before {
            return;
        }
        let doubled = SHORTEST.0.saturating_mul(1_i64.checked_shl(pace.failures.min(32)).unwrap_or(i64::MAX));
        pace.failures = pace.failures.saturating_add(1);
        pace.not_before = now.saturating_add(DurationMs(doubled.min(LONGEST.0)));
    }

    /// Notes that a machine was launched.
    pub(crate) fn launched(&self, pool: &NodePoolName) {
        self.0.lock().by_pool.remove(pool);
    }

    /// Launches nothing before that time.
    pub(crate) fn hold(&self, pool: &NodePoolName, until: Timestamp) {
        let mut inner = self.0.lock();
        let pace = inner.by_pool.entry(pool.clone()).or_default();
        pace.not_before = pace.not_before.max(until);
    }

    /// Notes that we delete a NodeClaim.
    pub(crate) fn expect_deletion(&self, claim: &NodeClaimName) {
        self.0.lock().surplus.insert(claim.clone());
    }

    /// Notes that a NodeClaim is gone, or that we did not delete it after all.
    pub(crate) fn forget_claim(&self, claim: &NodeClaimName) {
        self.0.lock().surplus.remove(claim);
    }

    /// Notes that a NodePool is gone.
    pub(crate) fn forget(&self, pool: &NodePoolName) {
        self.0.lock().by_pool.remove(pool);
    }

    /// How long to wait yet.
    pub(crate) fn wait(&self, pool: &NodePoolName, now: Timestamp) -> Option<DurationMs> {
        let not_before = self.0.lock().by_pool.get(pool)?.not_before;
        Some(not_before.since(now)).filter(|left| *left > DurationMs::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(1_000_000 + seconds)
    }

    #[test]
    fn the_pause_doubles_up_to_a_bound_and_ends_with_a_launch() {
        let (paces, pool) = (Paces::default(), NodePoolName::from("p"));
        let mut now = at(0);
        let mut pauses = Vec::new();
        for number in 0..9 {
            // All of one attempt fail within it.
            for _ in 0..3 {
                paces.failed(&pool, &format!("c-{number}").as_str().into(), now);
            }
            let pause = paces.wait(&pool, now).unwrap();
            pauses.push(pause.as_seconds());
            now = now.saturating_add(pause);
            assert_eq!(paces.wait(&pool, now), None);
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        paces.failed(&pool, &"c".into(), now);
        paces.launched(&pool);
        assert_eq!(paces.wait(&pool, now), None);
        paces.failed(&pool, &"c".into(), now);
        assert_eq!(paces.wait(&pool, now), Some(SHORTEST));
        assert_eq!(paces.wait(&"other".into(), now), None);
    }

    #[test]
    fn what_we_delete_ourselves_has_not_failed() {
        let (paces, pool, claim) = (Paces::default(), NodePoolName::from("p"), NodeClaimName::from("c"));
        paces.expect_deletion(&claim);
        paces.failed(&pool, &claim, at(0));
        assert_eq!(paces.wait(&pool, at(0)), None);
        paces.failed(&pool, &claim, at(0));
        assert_eq!(paces.wait(&pool, at(0)), Some(SHORTEST), "it was expected once");
    }

    #[test]
    fn nothing_is_launched_while_it_is_held() {
        let (paces, pool) = (Paces::default(), NodePoolName::from("p"));
        paces.hold(&pool, at(90));
        paces.hold(&pool, at(30));
        assert_eq!(paces.wait(&pool, at(0)), Some(DurationMs::from_seconds(90)));
        paces.forget(&pool);
        assert_eq!(paces.wait(&pool, at(0)), None);
    }
}
