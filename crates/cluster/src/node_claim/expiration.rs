//! When a NodeClaim is past its time.
//!
//! When that is follows Karpenter's `pkg/controllers/nodeclaim/expiration/controller.go`; what becomes of it then is in
//! [`scheduling::snapshot::expiration`].

use api::{NodeClaim, NodePool, annotations};
use decode::{Problem, Reason};
use model::Timestamp;
use scheduling::snapshot::expiration::{Expiration, ExpirationPolicy, ExpirationRules};

use super::{span, timestamp};

/// What becomes of the NodeClaim, of that NodePool if there is one; `None` if it never expires. A policy of the
/// NodePool that cannot be read counts as [`policy`] says.
///
/// # Errors
/// An `expireAfter` that is neither a duration nor `Never`.
pub fn decide(
    claim: &NodeClaim,
    pool: Option<&NodePool>,
    rules: ExpirationRules,
    now: Timestamp,
) -> Result<Option<Expiration>, Problem> {
    let of_pool = pool.and_then(|pool| policy(pool).unwrap_or(Some(ExpirationPolicy::Graceful)));
    Ok(expires_at(claim)?.map(|at| rules.decide(at, of_pool, now)))
}

/// The policy that the NodePool has of its own.
///
/// # Errors
/// An annotation that names none. It counts as `Graceful`, which disrupts less.
pub fn policy(pool: &NodePool) -> Result<Option<ExpirationPolicy>, Problem> {
    let key = annotations::EXPIRATION_POLICY;
    let Some(text) = pool.metadata.annotations.as_ref().and_then(|all| all.get(key)) else { return Ok(None) };
    let policy = ExpirationPolicy::parse(text).ok_or_else(|| Problem {
        field: format!("metadata.annotations[{key}]"),
        reason: Reason::Unknown { what: "expiration policy", text: text.clone() },
    });
    policy.map(Some)
}

/// When the NodeClaim is `spec.expireAfter` old; `None` if that is `Never`, or if nobody knows how old it is.
///
/// # Errors
/// An `expireAfter` that is neither a duration nor `Never`.
pub fn expires_at(claim: &NodeClaim) -> Result<Option<Timestamp>, Problem> {
    let after = span("spec.expireAfter", claim.spec.expire_after.parse())?;
    let created = claim.metadata.creation_timestamp.as_ref().map(timestamp);
    Ok(created.zip(after).map(|(created, after)| created.saturating_add(after)))
}
