//! What a pod takes of the node's own resources once its devices are counted in (KEP-5517).
//!
//! What devices cost comes on top of the pod's own requests. Where the pod as a whole says what it takes of a resource,
//! that stays as it is and must cover containers and devices together.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Quantity;

use crate::packing::{ClaimShare, NodeDemand};
use dra_types::{Lifetime, Pod, Resources, is_for_whole_pods};

/// Why a pod cannot have the node resources that its devices cost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeResourceFault {
    /// The pod's own total is less than containers and devices take.
    #[error("the pod asks for {pod} {resource} as a whole, but its containers and devices take {needed}")]
    PodRequest {
        /// The resource.
        resource: Arc<str>,
        /// What the pod asks for.
        pod: Quantity,
        /// What containers and devices take.
        needed: Quantity,
    },
    /// The pod's own limit is less than what is limited in it takes.
    #[error("the pod limits itself to {pod} {resource} as a whole, but {what} and devices may take {needed}")]
    PodLimit {
        /// The resource.
        resource: Arc<str>,
        /// The pod's limit.
        pod: Quantity,
        /// What is limited in it: a container, or its containers together.
        what: Arc<str>,
        /// What they may take with their devices.
        needed: Quantity,
    },
    /// The node has not enough left.
    #[error("with what the devices cost the pod takes {needed} {resource}, and {free} are free")]
    Insufficient {
        /// The resource.
        resource: Arc<str>,
        /// What the pod takes.
        needed: Quantity,
        /// What the node has left.
        free: Quantity,
    },
}

type Amounts = BTreeMap<Arc<str>, i128>;

fn is_huge_page(resource: &str) -> bool {
    resource.starts_with("hugepages-")
}

fn add(total: &mut Amounts, amounts: &Resources) {
    for (name, amount) in amounts {
        *total.entry(Arc::clone(name)).or_default() += amount.to_nano();
    }
}

fn nano(amounts: &Resources) -> Amounts {
    amounts.iter().map(|(name, amount)| (Arc::clone(name), amount.to_nano())).collect()
}

/// What the pod takes with what its devices cost.
pub fn total_demand(pod: &Pod, devices: &NodeDemand) -> NodeDemand {
    let mut total = nano(&pod.container_requests());
    for (name, amount) in &devices.0 {
        *total.entry(Arc::clone(name)).or_default() += amount;
    }
    for (name, amount) in pod.pod_requests.iter().filter(|(name, _)| is_for_whole_pods(name)) {
        total.insert(Arc::clone(name), amount.to_nano());
    }
    add(&mut total, &pod.overhead);
    NodeDemand(total)
}

/// Whether the pod can have what its devices cost on a node with so much left, in nano-units by name. Only pods whose
/// devices cost something are looked at; whether all else of a pod fits is the packer's business.
///
/// # Errors
/// The first resource, by name, that is short.
pub fn check_node_resources(pod: &Pod, devices: &NodeDemand, free: &NodeDemand) -> Result<(), NodeResourceFault> {
    if devices.0.is_empty() {
        return Ok(());
    }
    let containers = nano(&pod.container_requests());
    for (name, whole) in pod.pod_requests.iter().filter(|(name, _)| is_for_whole_pods(name)) {
        let of = |amounts: &Amounts| amounts.get(name).copied().unwrap_or(0);
        let needed = of(&containers) + of(&devices.0);
        if needed > whole.to_nano() {
            let needed = quantity(needed, *whole);
            return Err(NodeResourceFault::PodRequest { resource: Arc::clone(name), pod: *whole, needed });
        }
    }
    for (name, needed) in total_demand(pod, devices).0 {
        let is_checked = is_for_whole_pods(&name) || &*name == "ephemeral-storage";
        let left = free.0.get(&name).copied().unwrap_or(0);
        if is_checked && needed > 0 && needed > left {
            let like = if &*name == "cpu" { Quantity::default() } else { binary() };
            let (needed, free) = (quantity(needed, like), quantity(left, like));
            return Err(NodeResourceFault::Insufficient { resource: name, needed, free });
        }
    }
    Ok(())
}

/// Whether the pod's limits as a whole cover those of its containers with what their devices hand out and cost, in
/// Kubernetes from 1.37 on (`validatePodLevelResourcesCoverDRA` of its DynamicResources plugin). `entries` are the
/// pod's claims by their place.
///
/// # Errors
/// The first limit, by container and name, that does not.
pub fn check_pod_limits(
    pod: &Pod,
    devices: &NodeDemand,
    shares: &[ClaimShare],
    entries: &[Arc<str>],
) -> Result<(), NodeResourceFault> {
    if devices.0.is_empty() || pod.pod_limits.is_empty() {
        return Ok(());
    }
    let check = |resource: &Arc<str>, what: &str, needed: i128| match pod.pod_limits.get(resource) {
        Some(limit) if needed > limit.to_nano() => Err(NodeResourceFault::PodLimit {
            resource: Arc::clone(resource),
            pod: *limit,
            what: what.into(),
            needed: quantity(needed, *limit),
        }),
        Some(_) | None => Ok(()),
    };
    // Huge pages cannot be had beyond what is set aside, so that those of devices count without a limit too.
    let mut together = nano(&pod.container_limits());
    for (name, amount) in devices.0.iter().filter(|(name, _)| is_huge_page(name)) {
        *together.entry(Arc::clone(name)).or_default() += amount;
    }
    for (name, needed) in together.iter().filter(|(name, _)| is_huge_page(name)) {
        check(name, "its containers", *needed)?;
    }
    for container in pod.containers.iter().filter(|container| container.lifetime == Lifetime::Pod) {
        let of_claims = shares.iter().filter(|share| {
            let entry = entries.get(share.place);
            entry.is_some_and(|entry| container.claims.contains(entry))
        });
        let of_claims: Vec<&NodeDemand> = of_claims.map(|share| &share.of_container).collect();
        for (name, limit) in container.limits.iter().filter(|(name, _)| !is_huge_page(name)) {
            let of_devices = of_claims.iter().filter_map(|amounts| amounts.0.get(name)).sum::<i128>();
            check(name, &format!("container {}", container.name), limit.to_nano() + of_devices)?;
        }
    }
    Ok(())
}

fn binary() -> Quantity {
    Quantity::from_milli(0, model::quantity::Format::BinarySi)
}

fn quantity(nano: i128, like: Quantity) -> Quantity {
    Quantity::from_nano(nano, like.format()).unwrap_or(like)
}
