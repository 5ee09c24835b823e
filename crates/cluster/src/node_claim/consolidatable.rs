//! Whether no pod has come to or left a machine for as long as its NodePool wants: condition `Consolidatable`.
//!
//! The rules are those of Karpenter's `pkg/controllers/nodeclaim/disruption/consolidation.go`.

use api::conditions::node_claim::INITIALIZED;
use api::{NodeClaim, NodePool};
use decode::Problem;
use model::Timestamp;

use super::{is_static, last_pod_event, span, true_since};

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
    let is_possible = !is_static(pool) && true_since(claim, INITIALIZED).is_some();
    let Some(last) = last_pod_event(claim).filter(|_| is_possible) else { return Ok(Consolidatable::No) };
    let at = last.saturating_add(after);
    Ok(if at <= now { Consolidatable::Yes } else { Consolidatable::At(at) })
}
