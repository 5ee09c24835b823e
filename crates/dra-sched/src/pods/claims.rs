//! Which claims stand behind the entries of a pod's `spec.resourceClaims`.
//!
//! An entry names a claim, or a template from which the claim controller makes a claim for the pod. With
//! DRAWorkloadResourceClaims (KEP-5729) an entry that the pod's PodGroup has too, written the same, is the group's: one
//! claim for all its pods, reserved for the group as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{NamespacedName, Uid};

use crate::faults::{MAX_CONSUMERS, too_many_consumers};
use crate::inventory::{InventoryBuilder, Reservation};
use dra_types::compat::{Compat, Gate};
use dra_types::{ClaimSource, ClaimTemplate, Consumer, OwnerReference, Pod, PodGroup, ResourceClaim};

/// Names the entry of a pod that a generated claim stands for.
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// Says `true` of a claim that kube-scheduler has made for extended resources.
const EXTENDED_RESOURCE_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";

/// Objects that entries refer to, by namespace and name.
#[derive(Debug, Clone, Copy)]
pub struct Claims<'a> {
    /// Claims that exist.
    pub claims: &'a BTreeMap<NamespacedName, Arc<ResourceClaim>>,
    /// Templates.
    pub templates: &'a BTreeMap<NamespacedName, Arc<ClaimTemplate>>,
    /// PodGroups.
    pub groups: &'a BTreeMap<NamespacedName, Arc<PodGroup>>,
}

/// A claim that a pod needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedClaim {
    /// One that exists.
    Existing {
        /// The pod's entry.
        entry: Arc<str>,
        /// The claim.
        claim: NamespacedName,
        /// For whom it is reserved when the pod is bound.
        reservation: Reservation<NamespacedName>,
    },
    /// One that will be made for this pod alone.
    Fresh {
        /// The pod's entry.
        entry: Arc<str>,
        /// From this template.
        template: NamespacedName,
    },
    /// One that will be made for all pods of a group.
    OfGroup {
        /// The pod's entry, which is also the group's.
        entry: Arc<str>,
        /// The group.
        group: NamespacedName,
        /// From this template.
        template: NamespacedName,
    },
}

impl WantedClaim {
    /// The pod's entry.
    pub fn entry(&self) -> &Arc<str> {
        match self {
            Self::Existing { entry, .. } | Self::Fresh { entry, .. } | Self::OfGroup { entry, .. } => entry,
        }
    }

    /// For whom the claim is reserved when the pod is bound.
    pub fn reservation(&self, builder: &mut InventoryBuilder) -> Reservation {
        match self {
            Self::OfGroup { group, .. } | Self::Existing { reservation: Reservation::NewGroup(group), .. } => {
                Reservation::NewGroup(builder.group(group))
            }
            Self::Fresh { .. } | Self::Existing { reservation: Reservation::NewPod, .. } => Reservation::NewPod,
            Self::Existing { reservation: Reservation::OfPod, .. } => Reservation::OfPod,
            Self::Existing { reservation: Reservation::OfGroup, .. } => Reservation::OfGroup,
        }
    }
}

/// Why a pod cannot be scheduled, whatever devices there are. Upstream waits until that changes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodFault {
    /// A claim is named that does not exist.
    #[error("resource claim {0} does not exist")]
    NoClaim(NamespacedName),
    /// A template is named that does not exist.
    #[error("resource claim template {0} does not exist")]
    NoTemplate(NamespacedName),
    /// The pod belongs to a group that does not exist.
    #[error("pod group {0} does not exist")]
    NoGroup(NamespacedName),
    /// The claim is being deleted.
    #[error("resource claim {0} is being deleted")]
    Deleting(NamespacedName),
    /// The claim was made for another pod.
    #[error("resource claim {0} was made for another pod")]
    OtherPod(NamespacedName),
    /// The claim has as many consumers as it can have.
    #[error("resource {}", too_many_consumers(.0))]
    TooManyConsumers(NamespacedName),
}

/// The claims that a pod needs, in the order of its entries.
///
/// # Errors
/// Something that an entry refers to is missing or cannot be used by this pod.
pub fn claims(pod: &Pod, objects: &Claims<'_>, compat: &Compat) -> Result<Vec<WantedClaim>, PodFault> {
    let group = match &pod.pod_group {
        Some(name) if compat.is_on(Gate::WorkloadResourceClaims) && !pod.claims.is_empty() => {
            let name = in_namespace(pod, name);
            Some(objects.groups.get(&name).ok_or(PodFault::NoGroup(name))?)
        }
        Some(_) | None => None,
    };
    let mut wanted = Vec::with_capacity(pod.claims.len());
    for claim in &pod.claims {
        let of_group = group.filter(|group| group.claims.contains(claim));
        let names = of_group.map_or(&pod.claim_names, |group| &group.claim_names);
        let made = match &claim.source {
            ClaimSource::Claim(name) => Some(Arc::clone(name)),
            ClaimSource::Template(_) => match names.get(&claim.name) {
                // The controller found that no claim is needed.
                Some(None) => continue,
                Some(Some(name)) => Some(Arc::clone(name)),
                None if of_group.is_some() => None,
                None => made_before(pod, objects, &claim.name),
            },
        };
        let entry = Arc::clone(&claim.name);
        wanted.push(match (made, &claim.source) {
            (Some(name), source) => {
                let name = in_namespace(pod, &name);
                let is_generated = matches!(source, ClaimSource::Template(_));
                let reservation = existing(pod, objects, &name, is_generated, of_group.map(|group| &**group))?;
                WantedClaim::Existing { entry, claim: name, reservation }
            }
            (None, ClaimSource::Template(template) | ClaimSource::Claim(template)) => {
                let template = in_namespace(pod, template);
                if !objects.templates.contains_key(&template) {
                    return Err(PodFault::NoTemplate(template));
                }
                match of_group {
                    Some(group) => WantedClaim::OfGroup { entry, group: group.meta.name.clone(), template },
                    None => WantedClaim::Fresh { entry, template },
                }
            }
        });
    }
    Ok(wanted)
}

fn in_namespace(pod: &Pod, name: &str) -> NamespacedName {
    NamespacedName::new(Arc::clone(&pod.meta.name.namespace), name)
}

/// A claim that was made for an entry of the pod and that the pod's status does not name yet.
fn made_before(pod: &Pod, objects: &Claims<'_>, entry: &Arc<str>) -> Option<Arc<str>> {
    let is_ours = |claim: &&Arc<ResourceClaim>| {
        claim.meta.name.namespace == pod.meta.name.namespace
            && claim.meta.annotations.get(POD_CLAIM_NAME) == Some(entry)
            && is_owned(claim, pod)
    };
    objects.claims.values().find(is_ours).map(|claim| Arc::clone(&claim.meta.name.name))
}

/// The pod, by its uid, for whose extended resources kube-scheduler has made a claim. It does so right before it binds
/// the pod, and the pod's status names the claim only afterwards.
pub fn served_extended_resources(claim: &ResourceClaim) -> Option<&Uid> {
    claim.meta.annotations.get(EXTENDED_RESOURCE_CLAIM).filter(|value| ***value == *"true")?;
    owning_pods(claim).map(|owner| &owner.uid).find(|uid| !uid.as_str().is_empty())
}

fn owning_pods(claim: &ResourceClaim) -> impl Iterator<Item = &OwnerReference> {
    claim.meta.owners.iter().filter(|owner| owner.controller && &*owner.kind == "Pod")
}

/// Whether the pod owns the claim. Manifests have no uids, so there the name decides.
fn is_owned(claim: &ResourceClaim, pod: &Pod) -> bool {
    owning_pods(claim).any(|owner| {
        owner.name == pod.meta.name.name && (owner.uid == pod.meta.uid || pod.meta.uid.as_str().is_empty())
    })
}

/// Checks that the pod may use a claim. How it stands to the claim's consumers.
fn existing(
    pod: &Pod,
    objects: &Claims<'_>,
    name: &NamespacedName,
    is_generated: bool,
    group: Option<&PodGroup>,
) -> Result<Reservation<NamespacedName>, PodFault> {
    let claim = objects.claims.get(name).ok_or_else(|| PodFault::NoClaim(name.clone()))?;
    if claim.meta.deletion_timestamp.is_some() {
        return Err(PodFault::Deleting(name.clone()));
    }
    if is_generated && group.is_none() && !is_owned(claim, pod) {
        return Err(PodFault::OtherPod(name.clone()));
    }
    let is_consumer = claim.reserved_for.iter().any(|consumer| match group {
        Some(group) => &*consumer.resource == "podgroups" && consumer.name == group.meta.name.name,
        None => {
            consumer.is_pod()
                && consumer.name == pod.meta.name.name
                && (consumer.uid == pod.meta.uid || pod.meta.uid.as_str().is_empty())
        }
    });
    if is_consumer {
        return Ok(if group.is_some() { Reservation::OfGroup } else { Reservation::OfPod });
    }
    if claim.reserved_for.len() >= MAX_CONSUMERS as usize {
        return Err(PodFault::TooManyConsumers(name.clone()));
    }
    Ok(group.map_or(Reservation::NewPod, |group| Reservation::NewGroup(group.meta.name.clone())))
}

/// Whether a claim is allocated and used by nobody, so that kube-scheduler may take the allocation back for a pod that
/// names it: `status.reservedFor` is empty, or has only a pod that waits.
///
/// Left out: claims that are reserved for a PodGroup. Whether one of its pods is about to be bound is not known.
pub fn is_idle(claim: &ResourceClaim, waits: impl Fn(&Consumer) -> bool) -> bool {
    let is_for_nobody = match claim.reserved_for.as_slice() {
        [] => true,
        [only] => only.is_pod() && waits(only),
        _ => false,
    };
    claim.allocation.is_some() && is_for_nobody
}
