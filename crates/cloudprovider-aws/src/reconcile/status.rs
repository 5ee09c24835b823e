//! What becomes of findings: the status, and which conditions hold. Calls nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use model::{DurationMs, Timestamp};
use serde_json::{Value, json};

use super::is_temporary;
use super::look::Found;
use super::profile::NoProfile;
use crate::discovery::findings::{
    self, AMIS_READY, CAPACITY_RESERVATIONS_READY, Finding, INSTANCE_PROFILE_READY, MinorVersion,
    PLACEMENT_GROUP_READY, SECURITY_GROUPS_READY, SUBNETS_READY, required_conditions,
};
use crate::node_class::NodeClass;
use crate::node_class::conditions::{Verdict, judge};
use crate::node_class::status::EC2NodeClassStatus;
use crate::service::{Error, Kind};

/// How soon a node class is looked at again at which something changes from minute to minute.
const SOON: DurationMs = DurationMs::from_seconds(60);

/// What conditions depend on beside the findings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) kubernetes: MinorVersion,
}

/// What is to be written, but for the conditions.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) status: EC2NodeClassStatus,
    pub(super) verdicts: Vec<(&'static str, Verdict)>,
    pub(super) again_in: DurationMs,
    /// What failed and is worth trying again.
    pub(super) errors: Vec<String>,
}

/// Decides, in Karpenter's order. What could not be looked at stays as it was, so that no machine drifts because of it.
pub(super) fn decide(class: &NodeClass, found: Found, rules: &Rules, now: Timestamp) -> Decided {
    let before = &class.status;
    let mut decided = Decided { status: before.clone(), verdicts: Vec::new(), again_in: SOON, errors: Vec::new() };
    match found.images {
        Ok(images) => {
            decided.judge(&findings::images(&class.spec.images, &images, rules.kubernetes));
            decided.status.amis = images;
        }
        Err(error) => decided.failed(AMIS_READY, &error),
    }
    match found.reservations {
        Ok(found) => {
            let (reservations, changes) = findings::capacity_reservations(found, now);
            decided.status.capacity_reservations = reservations;
            decided.verdicts.push((CAPACITY_RESERVATIONS_READY, Verdict::Holds));
            decided.again_in = changes.map_or(SOON, |at| SOON.min(at.since(now)));
        }
        Err(error) => decided.failed(CAPACITY_RESERVATIONS_READY, &error),
    }
    match found.placement_group {
        Ok(group) => decided.judge(&findings::placement_group(class.spec.placement_group.as_ref(), group.as_ref())),
        Err(error) => decided.failed_because(PLACEMENT_GROUP_READY, "PlacementGroupResolutionFailed", &error),
    }
    match found.subnets {
        Ok(found) => {
            let (subnets, finding) = findings::subnets(found);
            decided.status.subnets = subnets;
            decided.judge(&finding);
        }
        Err(error) => decided.failed(SUBNETS_READY, &error),
    }
    match found.security_groups {
        Ok(found) => {
            let (groups, finding) = findings::security_groups(found);
            decided.status.security_groups = groups;
            decided.judge(&finding);
        }
        Err(error) => decided.failed(SECURITY_GROUPS_READY, &error),
    }
    match found.profile {
        Ok(name) => {
            decided.status.instance_profile = Some(name);
            decided.verdicts.push((INSTANCE_PROFILE_READY, Verdict::Holds));
        }
        Err(NoProfile::Failed(error)) => decided.failed(INSTANCE_PROFILE_READY, &error),
        Err(NoProfile::Refused { reason, message }) => {
            let verdict = Verdict::Fails { reason: reason.to_owned(), message };
            decided.verdicts.push((INSTANCE_PROFILE_READY, verdict));
        }
    }
    decided
}

impl Decided {
    fn judge(&mut self, finding: &Finding) {
        self.verdicts.push((finding.condition, verdict(finding)));
    }

    fn failed(&mut self, condition: &'static str, error: &Error) {
        let reason = if error.kind == Kind::Unauthorized { "Unauthorized" } else { "ResolutionFailed" };
        self.failed_because(condition, reason, error);
    }

    /// A call that may work out later leaves a condition as it was; one that is refused is named.
    fn failed_because(&mut self, condition: &'static str, reason: &str, error: &Error) {
        let message = error.to_string();
        self.errors.push(message.clone());
        let verdict = if is_temporary(error) {
            Verdict::AsBefore { message }
        } else {
            Verdict::Fails { reason: reason.to_owned(), message }
        };
        self.verdicts.push((condition, verdict));
    }
}

/// A finding as a verdict.
pub(super) fn verdict(finding: &Finding) -> Verdict {
    match &finding.fault {
        None => Verdict::Holds,
        Some((reason, message)) => Verdict::Fails { reason: (*reason).to_owned(), message: message.clone() },
    }
}

/// The conditions of a node class, those that are required, in their order.
pub(super) fn conditions(
    class: &NodeClass,
    verdicts: &[(&'static str, Verdict)],
    reserved_capacity: bool,
    now: Timestamp,
) -> Vec<Condition> {
    let of = |name: &'static str| {
        let verdict = verdicts.iter().find(|(other, _)| *other == name).map(|(_, verdict)| verdict.clone());
        (name, verdict.unwrap_or(Verdict::AsBefore { message: String::new() }))
    };
    let required: Vec<_> = required_conditions(reserved_capacity).map(of).collect();
    judge(&class.status.conditions, &required, class.generation, now)
}

/// The patch that makes a status this one.
pub(super) fn patch(status: &EC2NodeClassStatus) -> Value {
    let EC2NodeClassStatus { subnets, security_groups, capacity_reservations, amis, instance_profile, conditions } =
        status;
    json!({ "status": {
        "subnets": subnets,
        "securityGroups": security_groups,
        "capacityReservations": capacity_reservations,
        "amis": amis,
        "instanceProfile": instance_profile,
        "conditions": conditions,
    } })
}
