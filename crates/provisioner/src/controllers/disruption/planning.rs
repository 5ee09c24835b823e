//! A plan of disruption, and when one is worth making.

use api::NodeClaim;
use api::conditions::node_claim as conditions;
use cluster::node_claim::command::has_note;
use cluster::node_claim::expiration;
use model::Timestamp;
use scheduling::disruption::plan::DisruptionPlan;
use scheduling::snapshot::expiration::{Expiration, ExpirationRules};

use crate::world::claim;
use crate::world::fleet_looks::Looked;
use crate::world::store::State;

/// A plan, and what it was made from.
pub(crate) type Planned = Looked<DisruptionPlan>;

/// Whether any machine could go for what its NodeClaim says of itself.
pub(crate) fn has_work(state: &State, rules: ExpirationRules, now: Timestamp) -> bool {
    state.node_claims.values().any(|claim| is_eligible(state, claim, rules, now))
}

/// Whether a NodeClaim says that it could go.
pub(crate) fn is_eligible(state: &State, claim: &NodeClaim, rules: ExpirationRules, now: Timestamp) -> bool {
    if claim::is_deleting(claim) || has_note(claim) {
        return false;
    }
    let is_expired = || {
        let pool = state.node_pools.get(claim::node_pool(claim)).map(AsRef::as_ref);
        matches!(expiration::decide(claim, pool, rules, now), Ok(Some(Expiration::Graceful { .. })))
    };
    claim::is(claim, conditions::DRIFTED) || claim::is(claim, conditions::CONSOLIDATABLE) || is_expired()
}
