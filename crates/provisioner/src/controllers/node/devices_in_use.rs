//! Which DRA drivers' pods a draining node still needs.
//!
//! A kubelet asks a driver to take its devices back (`NodeUnprepareResources`) when a pod that uses them ends. If the
//! driver's pod has gone before, the kubelet asks in vain and the pod stays in Terminating. So a driver's pod leaves
//! after the consumers of its claims on the node.
//!
//! The API does not say which pod serves which driver. What is known:
//!
//! * A driver's pod is a DaemonSet's, and mounts where its kubelet looks for plugins; see
//!   [`model::Pod::kubelet_plugins`].
//! * Many name their driver, or their CSI driver, by the directory of the plugin. One that names a DRA driver of the
//!   node serves that one, and one that names a CSI driver of the node serves no devices. Any other may serve every
//!   driver of the node: to keep a pod too long costs some seconds at the end of a drain, to let it go too early leaves
//!   pods behind.
//!
//! A claim is in use as long as its `status.reservedFor` names a consumer that the drain waits for: a pod of this node,
//! or of a PodGroup with pods of this node. Pods that tolerate the drain go down with the machine, and nobody waits for
//! them. A consumer that is gone or of an unknown kind counts if the claim has a device of the node's own pools.
//!
//! Differs: `claim-aware-drain`. Karpenter does not look at claims when it drains.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use dra_types::{Consumer, DriverName, PoolId, ResourceClaim, ResourceSlice, SkipNodeOperation};
use model::{Interner, NamespacedName, NodeName, Pod, Timestamp, Uid};

use super::drain::is_drainable;
use crate::world::store::State;

/// A claim, and a consumer that has not gone yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Use {
    /// The claim.
    pub claim: NamespacedName,
    /// Who has to let go of its devices.
    pub drivers: BTreeSet<DriverName>,
    /// The consumer's uid; for one of a PodGroup, the pod's.
    pub consumer: Uid,
    /// What the consumer is called, with its kind.
    pub consumer_name: String,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceClaim {} is in use by {}", self.claim, self.consumer_name)
    }
}

/// The claims in use on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DevicesInUse {
    /// By claim, then in the order of its consumers.
    uses: Vec<Use>,
    /// Names of the drivers of devices and volumes on the node, by which pods may tell whose they are.
    drivers: BTreeSet<Arc<str>>,
}

/// What is known of a node.
struct Seen<'a> {
    pods: Vec<&'a Pod>,
    /// The pools whose devices are the node's alone.
    pools: BTreeSet<PoolId>,
    interner: &'a Interner,
    now: Timestamp,
}

impl DevicesInUse {
    /// Looks at a node.
    pub(crate) fn on(state: &State, node: &NodeName, now: Timestamp) -> Self {
        let pods: Vec<&Pod> = state.pods_on_node(node).map(AsRef::as_ref).collect();
        // Most drivers' pods tolerate the drain.
        if !pods.iter().any(|pod| may_be_of_a_driver(pod) && is_drainable(pod, &state.interner, now)) {
            return Self::default();
        }
        let pools = state.resource_slices.values().filter(|slice| is_of_node(slice, node)).map(|slice| pool(slice));
        let seen = Seen { pods, pools: pools.collect(), interner: &state.interner, now };
        let known = |uid: &Uid| state.pod_by_uid(uid).is_some();
        let uses: Vec<Use> = state.resource_claims.values().flat_map(|claim| seen.uses_of(claim, &known)).collect();
        let of_devices = seen.pools.iter().map(|pool| &pool.driver).chain(uses.iter().flat_map(|it| &it.drivers));
        let of_volumes = state.csi_nodes.get(node).into_iter().flat_map(|csi_node| &csi_node.drivers);
        let drivers = of_devices
            .map(|driver| Arc::from(driver.as_str()))
            .chain(of_volumes.map(|driver| Arc::clone(&driver.name)))
            .collect();
        Self { uses, drivers }
    }

    /// The uses that a pod has to outlast, if it is a driver's.
    pub(crate) fn needing<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a Use> {
        let names = pod.kubelet_plugins.as_ref().filter(|_| may_be_of_a_driver(pod));
        let named: Option<BTreeSet<&str>> = names.map(|names| {
            let of_node = names.iter().filter(|name| self.drivers.contains(*name));
            of_node.map(AsRef::as_ref).collect()
        });
        self.uses.iter().filter(move |it| {
            let serves = named.as_ref().is_some_and(|named| {
                named.is_empty() || it.drivers.iter().any(|driver| named.contains(driver.as_str()))
            });
            serves && it.consumer != pod.uid
        })
    }
}

fn may_be_of_a_driver(pod: &Pod) -> bool {
    pod.is_daemon && pod.kubelet_plugins.is_some()
}

fn is_of_node(slice: &ResourceSlice, node: &NodeName) -> bool {
    slice.node_scope.as_ref().is_some_and(|scope| matches!(scope, dra_types::NodeScope::Node(name) if name == node))
}

fn pool(slice: &ResourceSlice) -> PoolId {
    PoolId { driver: slice.driver.clone(), pool: slice.pool.name.clone() }
}

impl Seen<'_> {
    fn uses_of(&self, claim: &ResourceClaim, is_known: &dyn Fn(&Uid) -> bool) -> Vec<Use> {
        let Some(allocation) = claim.allocation.as_ref().filter(|_| !claim.reserved_for.is_empty()) else {
            return Vec::new();
        };
        let prepared = allocation.results.iter().filter(|result| {
            let skipped = [SkipNodeOperation::Unprepare, SkipNodeOperation::All];
            !result.skip_node_operations.iter().any(|operation| skipped.contains(operation))
        });
        let drivers: BTreeSet<DriverName> = prepared.map(|result| result.device.driver.clone()).collect();
        if drivers.is_empty() {
            return Vec::new();
        }
        let is_local = allocation.results.iter().any(|result| {
            let (driver, pool) = (result.device.driver.clone(), result.device.pool.clone());
            self.pools.contains(&PoolId { driver, pool })
        });
        let consumers = claim.reserved_for.iter().flat_map(|consumer| {
            let is_elsewhere = is_pod_group(consumer) || consumer.is_pod() && is_known(&consumer.uid);
            match self.waited_for(claim, consumer) {
                Some(pods) => pods,
                None if is_elsewhere || !is_local => Vec::new(),
                None => vec![(consumer.uid.clone(), described(claim, consumer))],
            }
        });
        let claim_name = &claim.meta.name;
        consumers
            .map(|(consumer, consumer_name)| Use {
                claim: claim_name.clone(),
                drivers: drivers.clone(),
                consumer,
                consumer_name,
            })
            .collect()
    }

    /// The pods of the node that a consumer stands for and that the drain waits for; `None` if it stands for none of
    /// the node.
    fn waited_for(&self, claim: &ResourceClaim, consumer: &Consumer) -> Option<Vec<(Uid, String)>> {
        let group = NamespacedName::new(Arc::clone(&claim.meta.name.namespace), Arc::clone(&consumer.name));
        let is_meant = |pod: &&&Pod| {
            let of_group = pod.shape.scheduling_group.as_ref().is_some_and(|it| it.pod_group == group);
            consumer.is_pod() && pod.uid == consumer.uid || is_pod_group(consumer) && of_group
        };
        let meant: Vec<&Pod> = self.pods.iter().filter(is_meant).copied().collect();
        if meant.is_empty() {
            return None;
        }
        let waited_for = meant.into_iter().filter(|pod| is_drainable(pod, self.interner, self.now));
        Some(waited_for.map(|pod| (pod.uid.clone(), format!("pod {}", pod.name))).collect())
    }
}

fn is_pod_group(consumer: &Consumer) -> bool {
    &*consumer.api_group == "scheduling.k8s.io" && &*consumer.resource == "podgroups"
}

fn described(claim: &ResourceClaim, consumer: &Consumer) -> String {
    let name = NamespacedName::new(Arc::clone(&claim.meta.name.namespace), Arc::clone(&consumer.name));
    if consumer.is_pod() {
        return format!("pod {name}");
    }
    let dot = if consumer.api_group.is_empty() { "" } else { "." };
    format!("{}{dot}{} {name}", consumer.resource, consumer.api_group)
}

#[cfg(test)]
mod tests;
