//! What a NodePool's rules mean for a NodeClaim: whether it may be consolidated, has drifted, or has expired.
//!
//! Each question is a function of objects and a point in time. The controller writes the answers as conditions; offline
//! commands call the functions directly. All durations and times are as Karpenter 1.15 counts them.

use api::{NodeClaim, NodePool, conditions, duration};
use decode::{Problem, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use model::{DurationMs, Timestamp};

pub mod command;
pub mod consolidatable;
pub mod drift;
pub mod expiration;

/// The label of a NodeClaim under that key, spelled exactly so; empty where it has none.
pub(crate) fn label<'a>(claim: &'a NodeClaim, key: &str) -> &'a str {
    claim.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map_or("", String::as_str)
}

/// The condition of the NodeClaim, if it is true.
pub(crate) fn true_condition<'c>(claim: &'c NodeClaim, condition_type: &str) -> Option<&'c Condition> {
    let conditions = claim.status.as_ref().map_or(&[][..], |status| &status.conditions);
    conditions::find(conditions, condition_type).filter(|condition| condition.status == conditions::TRUE)
}

/// Since when a condition of the NodeClaim is true; `None` if it is not.
pub(crate) fn true_since(claim: &NodeClaim, condition_type: &str) -> Option<Timestamp> {
    true_condition(claim, condition_type).map(|condition| timestamp(&condition.last_transition_time))
}

/// When a pod last came or went; the time of initialization if none has.
pub(crate) fn last_pod_event(claim: &NodeClaim) -> Option<Timestamp> {
    let written = claim.status.as_ref().and_then(|status| status.last_pod_event_time.as_ref()).map(timestamp);
    written.or_else(|| true_since(claim, conditions::node_claim::INITIALIZED))
}

pub(crate) fn timestamp(time: &Time) -> Timestamp {
    Timestamp(time.0.as_millisecond())
}

pub(crate) fn milliseconds(span: std::time::Duration) -> DurationMs {
    DurationMs(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
}

/// A duration of a field, or what is wrong with that field.
pub(crate) fn span(
    field: &str,
    parsed: Result<Option<std::time::Duration>, duration::Error>,
) -> Result<Option<DurationMs>, Problem> {
    match parsed {
        Ok(span) => Ok(span.map(milliseconds)),
        Err(error) => Err(Problem { field: field.to_owned(), reason: Reason::Invalid(error.to_string()) }),
    }
}

/// Whether the NodePool keeps a fixed number of machines, of which none is consolidated.
fn is_static(pool: &NodePool) -> bool {
    pool.spec.replicas.is_some()
}

#[cfg(test)]
mod tests;
