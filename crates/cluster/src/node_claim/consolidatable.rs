//! Whether no pod has come to or left a machine for as long as its NodePool wants: condition `Consolidatable`.
//!
//! The rules are those of Karpenter's `pkg/controllers/nodeclaim/disruption/consolidation.go`.

use api::conditions::node_claim::INITIALIZED;
use api::{NodeClaim, NodePool};
use decode::Problem;
use model::Timestamp;

use super::{is_static, span, timestamp, true_since};

/// What time makes of condition `Consolidatable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consolidatable {
    /// It is true.
    Yes,
    /// It becomes true at that time, if no pod comes or goes until then.
    At(Timestamp),
    /// Time alone does not make it true: the NodePool consolidates nothing, or the machine is not initialized.
    No,
}

/// Whether the NodeClaim's machine has been quiet for `spec.disruption.consolidateAfter` of its NodePool. Counted from
/// `status.lastPodEventTime`, and from the initialization where no pod ever came.
///
/// # Errors
/// A `consolidateAfter` that is neither a duration nor `Never`.
pub fn decide(pool: &NodePool, claim: &NodeClaim, now: Timestamp) -> Result<Consolidatable, Problem> {
    let after = pool.spec.disruption.consolidate_after.parse();
    let Some(after) = span("spec.disruption.consolidateAfter", after)? else { return Ok(Consolidatable::No) };
    let Some(initialized) = true_since(claim, INITIALIZED).filter(|_| !is_static(pool)) else {
        return Ok(Consolidatable::No);
    };
    let last_event = claim.status.as_ref().and_then(|status| status.last_pod_event_time.as_ref()).map(timestamp);
    let at = last_event.unwrap_or(initialized).saturating_add(after);
    Ok(if at <= now { Consolidatable::Yes } else { Consolidatable::At(at) })
}
