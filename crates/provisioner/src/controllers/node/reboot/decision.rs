//! What comes next in a machine's reboot. A pure function of its NodeClaim, its Node and the time.

use api::conditions::node_claim::{INITIALIZED, REBOOT_ISSUED, REBOOTING};
use api::{NodeClaim, annotations, conditions, taints};
use k8s_openapi::api::core::v1::Node;
use model::{DurationMs, Timestamp};

use crate::runtime::conditions::{find, to_timestamp};
use crate::world::claim;
use crate::world::node_facts::{has_taint, is_ready};

/// How long the provider may take to accept a reboot, counted from the first time that it is asked.
const ACCEPTANCE: DurationMs = DurationMs::from_seconds(5 * 60);
/// How long the machine may take to come back, counted from the acceptance.
const RECOVERY: DurationMs = DurationMs::from_seconds(20 * 60);
/// How long a reboot waits for a Node that is not there.
const MISSING: DurationMs = DurationMs::from_seconds(5 * 60);
/// A reboot is not begun sooner, so that pods that were bound meanwhile are seen.
const MIN_DRAIN: DurationMs = DurationMs::from_seconds(5);

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// No reboot was asked for, or the machine is on its way out.
    Nothing,
    /// Take away what is left of one that is over.
    Tidy,
    /// The Node is not there; it is waited for until then.
    AwaitNode(Timestamp),
    /// Keep new pods away.
    Fence,
    /// Ask pods to leave; no longer than until then, if there is a bound.
    Drain(Option<Timestamp>),
    /// Nothing is to be drained; pods that were bound meanwhile show until then.
    Settle(Timestamp),
    /// Write down which boot this is, and that the provider is asked from now on.
    NoteBoot(String),
    /// Ask the provider, by that id.
    Issue(String),
    /// Write down that the provider has accepted.
    NoteIssued,
    /// The machine is to show another boot by then.
    AwaitBoot(Timestamp),
    /// It does: let pods in again.
    LiftFence,
    /// Its Node is to be ready by then.
    AwaitReady(Timestamp),
    /// It is: the reboot is over.
    Succeed,
    /// The reboot has failed, and the machine goes.
    Fail(Failure, &'static str),
    /// What was asked for cannot be read. Nothing was done to the machine, so it stays.
    Refuse(String),
}

/// Why a reboot has failed, in the words of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The provider does not do it.
    Provider,
    /// The machine has not come back.
    Recovery,
}

impl Failure {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Provider => "provider_error",
            Self::Recovery => "recovery_timeout",
        }
    }
}

/// When the reboot was asked for. `None` if none was.
pub(super) fn requested_at(node_claim: &NodeClaim) -> Option<Timestamp> {
    let rebooting = find(claim::conditions(node_claim), REBOOTING)?;
    (rebooting.status == conditions::TRUE).then(|| to_timestamp(&rebooting.last_transition_time))
}

/// When the provider was asked. By a Karpenter that ran here before, that is when the machine was taken for
/// uninitialized.
///
/// Differs: `reboot-issued-at`. That is all that Karpenter goes by, so a machine that was never initialized has no time
/// to come back.
pub(super) fn issued_at(node_claim: &NodeClaim) -> Option<Timestamp> {
    let noted = annotation(node_claim, annotations::REBOOT_ISSUED_AT).and_then(|text| Timestamp::parse(text).ok());
    let initialized = find(claim::conditions(node_claim), INITIALIZED);
    noted.or_else(|| initialized.map(|condition| to_timestamp(&condition.last_transition_time)))
}

fn annotation<'c>(node_claim: &'c NodeClaim, key: &str) -> Option<&'c str> {
    node_claim.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Which boot the Node is of.
pub(super) fn boot_id(node: &Node) -> &str {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map_or("", |info| info.boot_id.as_str())
}

/// What the drain may take; `None` is any time.
pub(super) fn bound(node_claim: &NodeClaim) -> Result<Option<DurationMs>, String> {
    let key = annotations::REBOOT_TERMINATION_GRACE_PERIOD;
    let Some(text) = annotation(node_claim, key) else { return Ok(None) };
    match DurationMs::parse(text) {
        Ok(bound) if bound >= DurationMs::ZERO => Ok(Some(bound)),
        Ok(_) => Err(format!("annotation {key}: {text:?} is negative")),
        Err(problem) => Err(format!("annotation {key}: {problem}")),
    }
}

/// What comes next, given how many pods a drain would still wait for.
pub(super) fn decide(node_claim: &NodeClaim, node: Option<&Node>, remaining: usize, now: Timestamp) -> Step {
    let Some(requested_at) = requested_at(node_claim).filter(|_| !claim::is_deleting(node_claim)) else {
        return if has_leftovers(node_claim) { Step::Tidy } else { Step::Nothing };
    };
    let is_issued = find(claim::conditions(node_claim), REBOOTING).is_some_and(|it| it.reason == REBOOT_ISSUED);
    let back_by = issued_at(node_claim).unwrap_or(requested_at).saturating_add(RECOVERY);
    let Some(node) = node else {
        let until = if is_issued { back_by } else { requested_at.saturating_add(MISSING) };
        return match now < until {
            true => Step::AwaitNode(until),
            false => Step::Fail(Failure::Recovery, "its Node is gone"),
        };
    };
    if is_issued {
        return after_issue(node_claim, node, back_by, now);
    }
    let bound = match bound(node_claim) {
        Ok(bound) => bound,
        Err(problem) => return Step::Refuse(problem),
    };
    if !has_taint(node, &taints::rebooting()) {
        return Step::Fence;
    }
    let Some(before) = annotation(node_claim, annotations::REBOOT_PRE_BOOT_ID) else {
        return before_issue(node, bound.map(|bound| (requested_at, bound)), (remaining, requested_at), now);
    };
    if boot_id(node) != before {
        // It was accepted, and that could not be written down.
        return Step::NoteIssued;
    }
    if now >= issued_at(node_claim).unwrap_or(requested_at).saturating_add(ACCEPTANCE) {
        return Step::Fail(Failure::Provider, "the provider has not accepted it");
    }
    let uid = claim::uid(node_claim);
    Step::Issue(format!("{uid}-{}-{before}", i128::from(requested_at.0) * 1_000_000))
}

/// Whether annotations are left of a reboot that is over: the process may die before they are taken away. Of one that
/// is deleted they say how its drain is bounded.
pub(super) fn has_leftovers(node_claim: &NodeClaim) -> bool {
    // The bound of the drain alone may be the next reboot's, for which it is written before that is asked for.
    let is_left = [annotations::REBOOT_PRE_BOOT_ID, annotations::REBOOT_ISSUED_AT];
    requested_at(node_claim).is_none()
        && !claim::is_deleting(node_claim)
        && is_left.into_iter().any(|key| annotation(node_claim, key).is_some())
}

/// Before the provider is asked: the drain.
fn before_issue(
    node: &Node,
    bound: Option<(Timestamp, DurationMs)>,
    (remaining, requested_at): (usize, Timestamp),
    now: Timestamp,
) -> Step {
    let is_skipped = bound.is_some_and(|(_, bound)| bound == DurationMs::ZERO);
    let until = bound.map(|(since, bound)| since.saturating_add(bound.max(MIN_DRAIN)));
    if remaining > 0 && !is_skipped && until.is_none_or(|until| now < until) {
        return Step::Drain(until);
    }
    let settled_at = requested_at.saturating_add(MIN_DRAIN);
    if now < settled_at { Step::Settle(settled_at) } else { Step::NoteBoot(boot_id(node).to_owned()) }
}

/// Once the provider has accepted: the machine comes back.
fn after_issue(node_claim: &NodeClaim, node: &Node, back_by: Timestamp, now: Timestamp) -> Step {
    let before = annotation(node_claim, annotations::REBOOT_PRE_BOOT_ID).unwrap_or_default();
    let is_back = boot_id(node) != before;
    if is_back && has_taint(node, &taints::rebooting()) {
        return Step::LiftFence;
    }
    if is_back && is_ready(node) {
        return Step::Succeed;
    }
    match (now < back_by, is_back) {
        (true, false) => Step::AwaitBoot(back_by),
        (true, true) => Step::AwaitReady(back_by),
        (false, false) => Step::Fail(Failure::Recovery, "the machine has not booted again"),
        (false, true) => Step::Fail(Failure::Recovery, "its Node has not become ready"),
    }
}

#[cfg(test)]
mod tests;
