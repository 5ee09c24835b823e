//! When a NodeClaim is past its time.
//!
//! The rule is that of Karpenter's `pkg/controllers/nodeclaim/expiration/controller.go`.

use api::NodeClaim;
use decode::Problem;
use model::Timestamp;

use super::{span, timestamp};

/// When the NodeClaim is `spec.expireAfter` old; `None` if that is `Never`, or if nobody knows how old it is.
///
/// # Errors
/// An `expireAfter` that is neither a duration nor `Never`.
pub fn expires_at(claim: &NodeClaim) -> Result<Option<Timestamp>, Problem> {
    let after = span("spec.expireAfter", claim.spec.expire_after.parse())?;
    let created = claim.metadata.creation_timestamp.as_ref().map(timestamp);
    Ok(created.zip(after).map(|(created, after)| created.saturating_add(after)))
}
