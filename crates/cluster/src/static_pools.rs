//! Static NodePools: how their NodeClaims count, and how many there may be.

use api::conditions::node_claim::DISRUPTION_REASON;
use api::{NodeClaim, NodePool, resources};
use decode::{Problem, Reason};
use model::Quantity;

use crate::node_claim::true_condition;

/// The NodeClaims of a NodePool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Those that are to stay.
    pub active: i64,
    /// Those that a disruption command owns: it brings their replacements, and deletes them.
    pub pending_disruption: i64,
    /// Those that are being deleted. Their machines are there until they are gone.
    pub deleting: i64,
}

impl Count {
    /// Counts.
    pub fn of<'a>(claims: impl IntoIterator<Item = &'a NodeClaim>) -> Self {
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
pub enum Standing {
    /// It is to stay.
    Active,
    /// A disruption command owns it.
    PendingDisruption,
    /// It is being deleted.
    Deleting,
}

impl Standing {
    /// That of a NodeClaim.
    pub fn of(node_claim: &NodeClaim) -> Self {
        if node_claim.metadata.deletion_timestamp.is_some() {
            Self::Deleting
        } else if true_condition(node_claim, DISRUPTION_REASON).is_some() {
            Self::PendingDisruption
        } else {
            Self::Active
        }
    }
}

/// The most NodeClaims that a NodePool may have: whole ones.
///
/// # Errors
/// The limit is not a quantity; admission refuses that.
pub fn node_limit(node_pool: &NodePool) -> Result<Option<i64>, Problem> {
    let Some(text) = node_pool.spec.limits.as_ref().and_then(|limits| limits.get(resources::NODES)) else {
        return Ok(None);
    };
    let field = || format!("spec.limits[{}]", resources::NODES);
    let quantity = Quantity::parse(&text.0).map_err(|error| Problem { field: field(), reason: Reason::from(error) })?;
    Ok(Some(i64::try_from(quantity.to_nano() / 1_000_000_000).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
