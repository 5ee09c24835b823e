//! The end of machines: two finalizers that wait for each other.
//!
//! Deleting a NodeClaim deletes its Node, and deleting a Node deletes its NodeClaim. The Node's finalizer then stays
//! until the Node is tainted, its pods are evicted, its volumes detached and its machine gone; the NodeClaim's until
//! the Node and the machine are gone. So neither object vanishes before the machine, and a restart goes on where it
//! was.
//!
//! [`node_claim`] and [`node`] are the two sides, each a pure decision and what carries it out; [`drain`] says which
//! pods leave next, [`eviction`] makes one pod leave, [`volumes`] says which attachments are waited for, [`pace`] how
//! often the provider is asked.
//!
//! Failpoints, in order: `terminate.before-node-deletion`, `terminate.before-taint`, `terminate.after-taint`,
//! `terminate.before-eviction`, `terminate.after-eviction`, `terminate.before-instance`, `terminate.after-instance`,
//! `terminate.before-node-finalizer`, `terminate.after-node-finalizer`, `terminate.before-claim-finalizer`.

use std::collections::BTreeMap;

use api::NodeClaim;
use api::annotations::NODECLAIM_TERMINATION_TIMESTAMP;
use model::{DurationMs, Timestamp};

use crate::runtime::conditions::to_timestamp;

/// When draining stops waiting for anything, as an object's annotations have it. A text that is no time counts as none.
pub(crate) fn deadline(annotations: Option<&BTreeMap<String, String>>) -> Option<Timestamp> {
    let text = annotations?.get(NODECLAIM_TERMINATION_TIMESTAMP)?;
    Timestamp::parse(text).ok()
}

/// The NodeClaim with that deadline, unless it has an earlier one.
pub(crate) fn tightened(claim: &NodeClaim, deadline: Timestamp) -> NodeClaim {
    let mut tightened = claim.clone();
    let written = self::deadline(claim.metadata.annotations.as_ref());
    if written.is_none_or(|written| deadline < written) {
        let annotations = tightened.metadata.annotations.get_or_insert_default();
        annotations.insert(NODECLAIM_TERMINATION_TIMESTAMP.to_owned(), deadline.to_string());
    }
    tightened
}

/// When draining a deleted NodeClaim's Node ends at the latest: what is written, else what will be.
pub(crate) fn deadline_of_claim(claim: &NodeClaim) -> Option<Timestamp> {
    let written = deadline(claim.metadata.annotations.as_ref());
    let deleted_at = claim.metadata.deletion_timestamp.as_ref().map(to_timestamp);
    written.or_else(|| due(claim, deleted_at?))
}

/// When draining ends at the latest: `terminationGracePeriod` after the deletion.
pub(crate) fn due(claim: &NodeClaim, deleted_at: Timestamp) -> Option<Timestamp> {
    Some(deleted_at.saturating_add(grace_period(claim)?))
}

/// `spec.terminationGracePeriod`. What is no duration, which admission refuses, counts as none.
pub(crate) fn grace_period(claim: &NodeClaim) -> Option<DurationMs> {
    let period = claim.spec.termination_grace_period.as_ref()?.parse().ok()?;
    Some(DurationMs(i64::try_from(period.as_millis()).unwrap_or(i64::MAX)))
}

/// How long a drain may take: the shorter of what a repair policy and the NodeClaim say; `None` is no bound.
pub(crate) fn drain_bound(of_policy: Option<DurationMs>, claim: &NodeClaim) -> Option<DurationMs> {
    [of_policy, grace_period(claim)].into_iter().flatten().min()
}

/// How the pods of a deleted NodeClaim end, in the words of metrics: sooner or later by force, or never.
pub(crate) fn mode(node_claim: &NodeClaim) -> &'static str {
    if node_claim.spec.termination_grace_period.is_some() { "eventual" } else { "graceful" }
}

/// How the pods of a Node end whose drain may take so long, in the words of metrics.
pub(crate) fn mode_of(bound: Option<DurationMs>) -> &'static str {
    match bound {
        None => "graceful",
        Some(DurationMs::ZERO) => "forceful",
        Some(_) => "eventual",
    }
}
