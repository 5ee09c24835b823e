//! Whether a machine would be launched differently today. Pure. `pkg/cloudprovider/drift.go` of karpenter-provider-aws
//! 1.15, and in its order: the first difference gives the reason.

use std::collections::BTreeSet;

use api::NodeClaim;
use cloudprovider::{DriftReason, InstanceType};

use crate::launch::resolve::image_of;
use crate::node_class::{NodeClass, NodeClassSpec, hash};
use crate::service::ec2::Machine;
use crate::{labels, names};

/// What a machine is compared with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Today<'a> {
    /// The node class.
    pub(super) class: &'a NodeClass,
    /// The machine's type, if it is sold still.
    pub(super) instance_type: Option<&'a InstanceType>,
    /// The placement group that the node class selects.
    pub(super) placement_group: Option<&'a str>,
}

/// Why a NodeClaim's machine has drifted, if it has.
pub(super) fn drifted(claim: &NodeClaim, machine: &Machine, today: Today<'_>) -> Option<DriftReason> {
    let status = &today.class.status;
    let reason = if static_drift(claim, today.class) {
        "NodeClassDrift"
    } else if image_drift(claim, machine, today) {
        "AMIDrift"
    } else if differs(&machine.security_group_ids, status.security_groups.iter().map(|group| &group.id)) {
        "SecurityGroupDrift"
    } else if is_elsewhere(machine.subnet_id.as_ref(), status.subnets.iter().map(|subnet| &subnet.id)) {
        "SubnetDrift"
    } else if is_elsewhere(
        machine.capacity_reservation_id.as_ref().filter(|_| is_reserved(claim)),
        status.capacity_reservations.iter().map(|it| &it.id),
    ) {
        "CapacityReservationDrift"
    } else if machine.placement_group_id.as_deref() != today.placement_group {
        "PlacementGroupDrift"
    } else {
        return None;
    };
    Some(DriftReason(reason.to_owned()))
}

/// Whether the hashes differ. They say so only if both are there and were made the same way.
fn static_drift(claim: &NodeClaim, class: &NodeClass) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    let of_claim = |key: &str| annotations.and_then(|it| it.get(key));
    let of_class = |key: &str| class.annotations.get(key);
    let version = (of_claim(names::NODE_CLASS_HASH_VERSION), of_class(names::NODE_CLASS_HASH_VERSION));
    let hash = (of_claim(names::NODE_CLASS_HASH), of_class(names::NODE_CLASS_HASH));
    match (version, hash) {
        ((Some(one), Some(other)), (Some(before), Some(now))) => one == other && before != now,
        _ => false,
    }
}

/// Nothing is said where no image fits the type: then nothing could be launched in its place.
fn image_drift(claim: &NodeClaim, machine: &Machine, today: Today<'_>) -> bool {
    let of_claim = claim.status.as_ref().map(|status| status.image_id.as_str()).filter(|id| !id.is_empty());
    let runs = of_claim.unwrap_or(&machine.image_id);
    let image = today.instance_type.and_then(|it| image_of(&today.class.status.amis, it));
    image.is_some_and(|image| image.id != runs)
}

/// A status without any was not filled in.
fn differs<'a>(has: &[String], wanted: impl Iterator<Item = &'a String>) -> bool {
    let wanted: BTreeSet<_> = wanted.collect();
    !wanted.is_empty() && has.iter().collect::<BTreeSet<_>>() != wanted
}

fn is_elsewhere<'a>(is_in: Option<&String>, mut wanted: impl Iterator<Item = &'a String>) -> bool {
    is_in.is_some_and(|id| !wanted.any(|other| other == id))
}

/// A machine that has been moved to on demand keeps its reservation in EC2 until that is seen.
fn is_reserved(claim: &NodeClaim) -> bool {
    let of_claim = claim.metadata.labels.as_ref();
    of_claim.is_some_and(|it| it.contains_key(labels::CAPACITY_RESERVATION_ID))
}

/// The hash of a node class and how it was made, as annotations.
pub(crate) fn hash_annotations(spec: &NodeClassSpec, ca_bundle: &str) -> [(&'static str, String); 2] {
    [(names::NODE_CLASS_HASH, hash::hash(spec, ca_bundle)), (names::NODE_CLASS_HASH_VERSION, hash::VERSION.to_owned())]
}

#[cfg(test)]
mod tests;
