//! A machine that the cloud takes back is drained once the machines that take its pods are ready, as long as time
//! allows.
//!
//! Provisioning launches for pods of Nodes that are being deleted as for pods that wait, so their machines come while
//! the pods still run. What is waited for is what disruption commands wait for
//! ([`replacement`](crate::world::replacement)). The wait ends early enough for a drain in which every pod takes as
//! long as it may, so it never costs a pod of its time. All that it goes by is on the NodeClaim or comes with the next
//! plan, so a restart goes on with it.
//!
//! Differs: `interruption-replaces-first`. Karpenter drains at once.

use std::collections::BTreeSet;

use api::annotations::INTERRUPTION_TIME;
use api::{NodeClaim, conditions};
use model::{DurationMs, NodeClaimName, Timestamp};

use crate::runtime::conditions::find;
use crate::world::claim;
use crate::world::replacement::{Readiness, readiness};
use crate::world::store::State;

/// For the requests of a drain, and for PodDisruptionBudgets that let pods go one after the other.
const SPARE: DurationMs = DurationMs::from_seconds(10);

/// What bounds the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// When the cloud takes the machine.
    pub interrupted_at: Timestamp,
    /// When its pods are deleted by force, if they ever are.
    pub deadline: Option<Timestamp>,
    /// When its NodeClaim was deleted.
    pub deleted_at: Timestamp,
    /// How long replacements may take at all.
    pub patience: DurationMs,
    /// How long the drain may take.
    pub drain: DurationMs,
}

impl Bounds {
    /// When the drain begins at the latest.
    pub(crate) fn latest(self) -> Timestamp {
        let ends = self.deadline.map_or(self.interrupted_at, |deadline| deadline.min(self.interrupted_at));
        let in_time = ends.saturating_sub(self.drain).saturating_sub(SPARE);
        in_time.min(self.deleted_at.saturating_add(self.patience))
    }
}

/// When the cloud takes a NodeClaim's machine, if it has said so. A text that is no time counts as none.
pub(crate) fn interrupted_at(node_claim: &NodeClaim) -> Option<Timestamp> {
    let text = node_claim.metadata.annotations.as_ref()?.get(INTERRUPTION_TIME)?;
    Timestamp::parse(text).ok()
}

/// Whether the drain has begun: nothing is waited for any more.
pub(crate) fn has_begun(node_claim: &NodeClaim) -> bool {
    use conditions::node_claim::{AWAITING_REPLACEMENTS, DRAINED};
    find(claim::conditions(node_claim), DRAINED).is_some_and(|condition| condition.reason != AWAITING_REPLACEMENTS)
}

/// The NodeClaims that are still waited for, of those that take pods, by name. One that is gone is replaced by the next
/// plan.
pub(crate) fn awaited<'n>(
    state: &State,
    places: impl IntoIterator<Item = &'n NodeClaimName>,
) -> BTreeSet<&'n NodeClaimName> {
    let is_awaited = |name: &&NodeClaimName| {
        let claim = state.node_claims.get(*name).filter(|claim| !claim::is_deleting(claim));
        claim.is_none_or(|claim| match readiness(claim) {
            Readiness::Coming => true,
            Readiness::Ready | Readiness::WithoutDevices => false,
        })
    };
    places.into_iter().filter(is_awaited).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::world::replacement::tests::claim;
    use crate::world::store::{ClusterStore, Revision};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    #[test]
    fn the_drain_begins_early_enough_to_end_before_the_machine_does() {
        let s = DurationMs::from_seconds;
        // When the machine is taken, when pods are deleted by force, how long replacements and the drain may take, and
        // when the drain begins. The NodeClaim was deleted at 1000.
        let cases = [
            (1120, None, s(600), s(30), 1080),
            (1120, None, s(600), s(0), 1110),
            // Nobody waits for days.
            (90_000, None, s(600), s(30), 1600),
            (1120, Some(1060), s(600), s(30), 1020),
            (1120, Some(9000), s(600), s(30), 1080),
            // There is no time.
            (1120, None, s(600), s(600), 510),
            (900, None, s(600), s(30), 860),
        ];
        for (interrupted_at, deadline, patience, drain, expected) in cases {
            let deadline = deadline.map(at);
            let bounds = Bounds { interrupted_at: at(interrupted_at), deadline, deleted_at: at(1000), patience, drain };
            assert_eq!(bounds.latest(), at(expected), "{bounds:?}");
        }
    }

    #[test]
    fn machines_are_waited_for_until_they_are_initialized_and_lost_ones_until_the_next_plan() {
        let store = ClusterStore::new();
        let mut going = claim("going", &json!({}), &[("Initialized", "True", "Initialized")]);
        going.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-25T21:00:00Z")).unwrap();
        for claim in [
            claim("coming", &json!({}), &[("Initialized", "Unknown", "NodeNotReady")]),
            claim("ready", &json!({}), &[("Initialized", "True", "Initialized")]),
            claim("failed", &json!({}), &[("DevicesPublished", "False", "Timeout")]),
            going,
        ] {
            let revision = Revision::of(&claim.metadata);
            store.apply(claim, revision);
        }
        let names = ["coming", "ready", "failed", "going", "gone"].map(NodeClaimName::from);
        let state = store.read();
        let awaited: Vec<_> = awaited(&state, &names).into_iter().map(|name| name.as_str()).collect();
        assert_eq!(awaited, ["coming", "going", "gone"]);
    }

    #[test]
    fn a_nodeclaim_says_when_its_machine_is_taken_and_whether_its_drain_has_begun() {
        let time = |text: &str| interrupted_at(&claim("a", &json!({ (INTERRUPTION_TIME): text }), &[]));
        assert_eq!((time("1970-01-01T00:00:09Z"), time("soon")), (Some(at(9)), None));
        assert_eq!(interrupted_at(&claim("a", &json!({}), &[])), None);
        let begun = |conditions: &[(&str, &str, &str)]| has_begun(&claim("a", &json!({}), conditions));
        assert!(!begun(&[]) && !begun(&[("Drained", "Unknown", "AwaitingReplacements")]));
        assert!(begun(&[("Drained", "Unknown", "Draining")]) && begun(&[("Drained", "True", "Drained")]));
    }
}
