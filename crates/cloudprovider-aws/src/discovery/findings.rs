//! What becomes of answers in the status of an EC2NodeClass: what is written down, and which conditions hold.
//!
//! Follows `pkg/controllers/nodeclass` of karpenter-provider-aws 1.15. Machines are launched with the status, so a
//! condition that is false keeps a NodePool from launching anything.

use std::cmp::Reverse;

use api::conditions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff;
use model::{DurationMs, Timestamp};

use crate::node_class::decode::{ImageSelection, PlacementGroupTerm};
use crate::node_class::kubelet::Problem;
use crate::node_class::spec::AmiFamily;
use crate::node_class::status::{Ami, CapacityReservation, ReservationState, ReservationType, SecurityGroup, Subnet};
use crate::service::ec2;

/// Condition: there are images to boot from.
pub const AMIS_READY: &str = "AMIsReady";
/// Condition: there are subnets to put machines into.
pub const SUBNETS_READY: &str = "SubnetsReady";
/// Condition: there are security groups for machines.
pub const SECURITY_GROUPS_READY: &str = "SecurityGroupsReady";
/// Condition: there is an instance profile for machines.
pub const INSTANCE_PROFILE_READY: &str = "InstanceProfileReady";
/// Condition: what is asked for can be launched, as far as that is known before.
pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
/// Condition: the placement group is there, or none is asked for.
pub const PLACEMENT_GROUP_READY: &str = "PlacementGroupReady";
/// Condition: the capacity reservations are known.
pub const CAPACITY_RESERVATIONS_READY: &str = "CapacityReservationsReady";

/// A capacity block is about to end when it has no more than this. EC2 begins to stop machines half an hour before.
const EXPIRES_WITHIN: DurationMs = DurationMs::from_seconds(40 * 60);

/// The conditions that must hold for `Ready`. Reservations count if the gate `ReservedCapacity` is on.
pub fn required_conditions(reserved_capacity: bool) -> impl Iterator<Item = &'static str> {
    let always = [
        AMIS_READY,
        SUBNETS_READY,
        SECURITY_GROUPS_READY,
        INSTANCE_PROFILE_READY,
        VALIDATION_SUCCEEDED,
        PLACEMENT_GROUP_READY,
    ];
    always.into_iter().chain(reserved_capacity.then_some(CAPACITY_RESERVATIONS_READY))
}

/// Whether a condition holds, and why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The condition's type.
    pub condition: &'static str,
    /// Why it does not hold: the reason and the message. None says that it does.
    pub fault: Option<(&'static str, String)>,
}

impl Finding {
    const fn good(condition: &'static str) -> Self {
        Self { condition, fault: None }
    }

    fn bad(condition: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { condition, fault: Some((reason, message.into())) }
    }

    /// The condition's status.
    pub const fn status(&self) -> &'static str {
        if self.fault.is_none() { conditions::TRUE } else { conditions::FALSE }
    }
}

/// Whether there are images. An alias that AWS does not publish for this version of Kubernetes is told as such: no
/// image of it will ever come.
pub fn images(selection: &ImageSelection, found: &[Ami], kubernetes: MinorVersion) -> Finding {
    if let ImageSelection::Alias(alias) = selection {
        let MinorVersion(minor) = kubernetes;
        let unsupported = match alias.family {
            AmiFamily::Al2 if minor >= 33 => Some("1.33 and later"),
            AmiFamily::Windows2025 if minor < 35 => Some("versions before 1.35"),
            _ => None,
        };
        if let Some(versions) = unsupported {
            let message = format!("{alias}: AWS publishes no such images for Kubernetes {versions}; this is 1.{minor}");
            return Finding::bad(AMIS_READY, "UnsupportedAlias", message);
        }
    }
    match (found, selection) {
        ([], ImageSelection::Alias(alias)) => {
            let message = format!("amiSelectorTerms select no image: AWS publishes none as {alias}");
            Finding::bad(AMIS_READY, "AMINotFound", message)
        }
        ([], ImageSelection::Terms(_)) => Finding::bad(AMIS_READY, "AMINotFound", "amiSelectorTerms select no image"),
        ([_, ..], _) => Finding::good(AMIS_READY),
    }
}

/// The minor version of Kubernetes 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MinorVersion(pub u32);

impl MinorVersion {
    /// Reads `1.33`, or what servers say of themselves, such as `v1.33.1-eks-abc` and `33+`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let minor = text.strip_prefix("1.").unwrap_or(text);
        let digits = minor.find(|it: char| !it.is_ascii_digit()).map_or(minor, |end| minor.split_at(end).0);
        digits.parse().ok().map(Self)
    }
}

/// The subnets as they are written down, those with the most free addresses first; each once.
pub fn subnets(found: Vec<ec2::Subnet>) -> (Vec<Subnet>, Finding) {
    let mut found = found;
    found.sort_by(|a, b| (Reverse(a.free_addresses), &a.id).cmp(&(Reverse(b.free_addresses), &b.id)));
    found.dedup_by(|a, b| a.id == b.id);
    let finding = match &found[..] {
        [] => Finding::bad(SUBNETS_READY, "SubnetsNotFound", "subnetSelectorTerms select no subnet"),
        [_, ..] => Finding::good(SUBNETS_READY),
    };
    let subnet = |it: ec2::Subnet| Subnet { id: it.id, zone: it.zone, zone_id: Some(it.zone_id) };
    (found.into_iter().map(subnet).collect(), finding)
}

/// The security groups as they are written down, by id; each once.
pub fn security_groups(found: Vec<ec2::SecurityGroup>) -> (Vec<SecurityGroup>, Finding) {
    let mut found = found;
    found.sort_by(|a, b| a.id.cmp(&b.id));
    found.dedup_by(|a, b| a.id == b.id);
    let finding = match &found[..] {
        [] => Finding::bad(
            SECURITY_GROUPS_READY,
            "SecurityGroupsNotFound",
            "securityGroupSelectorTerms select no security group",
        ),
        [_, ..] => Finding::good(SECURITY_GROUPS_READY),
    };
    let group = |it: ec2::SecurityGroup| SecurityGroup { id: it.id, name: Some(it.name) };
    (found.into_iter().map(group).collect(), finding)
}

/// Whether the placement group that is asked for is there.
pub fn placement_group(asked: Option<&PlacementGroupTerm>, found: Option<&ec2::PlacementGroup>) -> Finding {
    match (asked, found) {
        (Some(term), None) => {
            let which = match term {
                PlacementGroupTerm::Id(id) => format!("id {id}"),
                PlacementGroupTerm::Name(name) => format!("name {name}"),
            };
            let message = format!("there is no placement group with {which}");
            Finding::bad(PLACEMENT_GROUP_READY, "PlacementGroupNotFound", message)
        }
        (Some(_), Some(_)) | (None, _) => Finding::good(PLACEMENT_GROUP_READY),
    }
}

/// The capacity reservations as they are written down, by id; each once, those that have ended left out. With them,
/// when the next of them changes: it ends, or is about to.
pub fn capacity_reservations(
    found: Vec<ec2::CapacityReservation>,
    now: Timestamp,
) -> (Vec<CapacityReservation>, Option<Timestamp>) {
    let mut found = found;
    found.retain(|it| it.ends_at.is_none_or(|end| end > now));
    found.sort_by(|a, b| a.id.cmp(&b.id));
    found.dedup_by(|a, b| a.id == b.id);
    let begins_to_expire = |it: &ec2::CapacityReservation| match it.reservation_type {
        ReservationType::Default => None,
        ReservationType::CapacityBlock => it.ends_at.map(|end| end.saturating_sub(EXPIRES_WITHIN)),
    };
    let next = found.iter().flat_map(|it| [begins_to_expire(it), it.ends_at]).flatten().filter(|at| *at > now).min();
    let reservation = |it: ec2::CapacityReservation| CapacityReservation {
        state: match begins_to_expire(&it) {
            Some(at) if at <= now => ReservationState::Expiring,
            Some(_) | None => ReservationState::Active,
        },
        availability_zone: it.zone,
        end_time: it.ends_at.and_then(time),
        id: it.id,
        instance_match_criteria: it.match_criteria,
        instance_type: it.instance_type,
        interruptible: it.interruptible.then_some(true),
        owner_id: it.owner_id,
        reservation_type: it.reservation_type,
    };
    (found.into_iter().map(reservation).collect(), next)
}

fn time(at: Timestamp) -> Option<Time> {
    jiff::Timestamp::from_millisecond(at.0).ok().map(Time)
}

/// Whether the settings of the kubelet can be used; the first problem's reason stands for all.
pub fn kubelet(problems: &[Problem]) -> Finding {
    let Some(first) = problems.first() else { return Finding::good(VALIDATION_SUCCEEDED) };
    let message = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    Finding::bad(VALIDATION_SUCCEEDED, first.reason.as_str(), message)
}

#[cfg(test)]
mod tests;
