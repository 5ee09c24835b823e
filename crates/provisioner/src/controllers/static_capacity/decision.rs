//! How many machines a static NodePool is to get or to lose.

use api::conditions::node_claim::DISRUPTION_REASON;
use api::{NodeClaim, NodePool, resources};
use model::Quantity;

use crate::world::claim;

/// The NodeClaims of a NodePool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Count {
    /// Those that are to stay.
    pub active: i64,
    /// Those that a disruption command owns: it brings their replacements, and deletes them.
    pub pending_disruption: i64,
    /// Those that are being deleted. Their machines are there until they are gone.
    pub deleting: i64,
}

impl Count {
    /// Counts.
    pub(crate) fn of<'a>(claims: impl IntoIterator<Item = &'a NodeClaim>) -> Self {
        let mut count = Self::default();
        for claim in claims {
            let of_its_kind = match Standing::of(claim) {
                Standing::Active => &mut count.active,
                Standing::PendingDisruption => &mut count.pending_disruption,
                Standing::Deleting => &mut count.deleting,
            };
            *of_its_kind += 1;
        }
        count
    }
}

/// How one NodeClaim counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is to stay.
    Active,
    /// A disruption command owns it.
    PendingDisruption,
    /// It is being deleted.
    Deleting,
}

impl Standing {
    /// That of a NodeClaim.
    pub(crate) fn of(node_claim: &NodeClaim) -> Self {
        if claim::is_deleting(node_claim) {
            Self::Deleting
        } else if claim::is(node_claim, DISRUPTION_REASON) {
            Self::PendingDisruption
        } else {
            Self::Active
        }
    }
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Enough,
    /// Create so many NodeClaims.
    Launch(i64),
    /// There are too few, and `limits.nodes` allows no more.
    LimitReached,
    /// Delete so many that are to stay.
    Deprovision(i64),
}

/// Decides, as Karpenter's `static.provisioning` and `static.deprovisioning` do together. `limit` is that of nodes.
///
/// Differs: `static-pending-disruption`. Karpenter launches in place of the NodeClaims that a command owns as well,
/// though the command brings their replacements, and takes the surplus away afterwards.
pub(crate) fn decide(count: Count, replicas: i64, limit: Option<i64>) -> Step {
    let missing = replicas.saturating_sub(count.active + count.pending_disruption);
    if count.active > replicas {
        return Step::Deprovision(count.active - replicas);
    }
    if missing <= 0 {
        return Step::Enough;
    }
    let all = count.active + count.pending_disruption + count.deleting;
    match limit.map_or(missing, |limit| missing.min(limit.saturating_sub(all))) {
        room @ 1.. => Step::Launch(room),
        _ => Step::LimitReached,
    }
}

/// The most NodeClaims that a NodePool may have: whole ones.
///
/// # Errors
/// The limit is no quantity, which admission refuses.
pub(crate) fn node_limit(node_pool: &NodePool) -> anyhow::Result<Option<i64>> {
    let Some(text) = node_pool.spec.limits.as_ref().and_then(|limits| limits.get(resources::NODES)) else {
        return Ok(None);
    };
    let quantity = Quantity::parse(&text.0).map_err(|error| anyhow::anyhow!("spec.limits[nodes]: {error}"))?;
    Ok(Some(i64::try_from(quantity.to_nano() / 1_000_000_000).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn machines_are_launched_up_to_replicas_within_the_limit_and_surplus_goes() {
        let cases = [
            // active, pending disruption, deleting; replicas, limit
            ((0, 0, 0), 0, None, Step::Enough),
            ((0, 0, 0), 3, None, Step::Launch(3)),
            ((2, 0, 0), 3, None, Step::Launch(1)),
            ((3, 0, 0), 3, None, Step::Enough),
            ((5, 0, 0), 3, None, Step::Deprovision(2)),
            ((5, 0, 0), 0, Some(1), Step::Deprovision(5)),
            ((0, 0, 0), 10, Some(4), Step::Launch(4)),
            ((4, 0, 0), 10, Some(4), Step::LimitReached),
            ((0, 0, 0), 1, Some(0), Step::LimitReached),
            ((4, 0, 0), 4, Some(2), Step::Enough),
            // What goes has its machine yet, and takes room under the limit.
            ((2, 0, 2), 3, None, Step::Launch(1)),
            ((2, 0, 2), 4, Some(5), Step::Launch(1)),
            ((2, 0, 2), 4, Some(4), Step::LimitReached),
            // A command replaces what it owns, and its replacement is no surplus.
            ((2, 1, 0), 3, None, Step::Enough),
            ((3, 1, 0), 3, None, Step::Enough),
            ((1, 1, 0), 3, None, Step::Launch(1)),
            ((4, 1, 0), 3, None, Step::Deprovision(1)),
            ((1, 1, 1), 4, Some(4), Step::Launch(1)),
            ((0, 0, 0), i64::MAX, None, Step::Launch(i64::MAX)),
        ];
        for ((active, pending_disruption, deleting), replicas, limit, expected) in cases {
            let count = Count { active, pending_disruption, deleting };
            assert_eq!(decide(count, replicas, limit), expected, "{count:?}, {replicas} replicas, limit {limit:?}");
        }
    }

    #[test]
    fn one_look_after_the_other_ends_with_the_replicas_and_never_beyond_the_limit() {
        for replicas in 0..6 {
            for limit in [None, Some(0), Some(3), Some(9)] {
                for start in 0..6 {
                    let mut count = Count { active: start, ..Count::default() };
                    let most = limit.map_or(i64::MAX, |limit: i64| limit.max(start));
                    for _ in 0..10 {
                        match decide(count, replicas, limit) {
                            Step::Enough | Step::LimitReached => {}
                            Step::Launch(number) => count.active += number,
                            Step::Deprovision(number) => {
                                count.active -= number;
                                count.deleting += number;
                            }
                        }
                        assert!(count.active + count.deleting <= most, "{count:?}, limit {limit:?}");
                        // The machine of one is gone.
                        count.deleting -= 1.min(count.deleting);
                    }
                    let wanted = limit.map_or(replicas, |limit| replicas.min(limit.max(start)));
                    assert_eq!(count.active, wanted, "from {start} to {replicas}, limit {limit:?}");
                }
            }
        }
    }

    fn node_claim(deleting: bool, disrupted: &str) -> NodeClaim {
        let condition = json!({"type": "DisruptionReason", "status": disrupted, "reason": "Drifted", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let deleted_at = if deleting { json!("2026-01-01T00:00:00Z") } else { Value::Null };
        serde_json::from_value(json!({
            "metadata": {"name": "a", "deletionTimestamp": deleted_at},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "K", "name": "n"}},
            "status": {"conditions": [condition]},
        }))
        .unwrap()
    }

    #[test]
    fn a_nodeclaim_counts_once() {
        let claims = [(false, "False"), (false, "True"), (true, "False"), (true, "True")];
        let claims = claims.map(|(deleting, disrupted)| node_claim(deleting, disrupted));
        assert_eq!(Count::of(&claims), Count { active: 1, pending_disruption: 1, deleting: 2 });
    }

    #[test]
    fn the_limit_is_that_of_whole_nodes() {
        let limit = |limits: Value| {
            let pool = json!({
                "metadata": {"name": "a"},
                "spec": {"limits": limits, "template": {"spec": {"requirements": [],
                    "nodeClassRef": {"group": "g", "kind": "K", "name": "n"}}}},
            });
            node_limit(&serde_json::from_value(pool).unwrap()).map_err(|error| error.to_string())
        };
        assert_eq!(limit(Value::Null), Ok(None));
        assert_eq!(limit(json!({"nodes": "5"})), Ok(Some(5)));
        assert_eq!(limit(json!({"nodes": "2500m"})), Ok(Some(2)));
        assert!(limit(json!({"nodes": "many"})).is_err_and(|error| error.starts_with("spec.limits[nodes]: ")));
    }
}
