//! From decoded objects to the planner's [`Snapshot`]. The controller and the offline commands both use it, so `plan`
//! gives the controller's answer for a snapshot file.

mod bound;
mod cache;
mod daemons;
mod devices;
mod ending;
pub(crate) mod fleet;
mod nodes;
mod pending;
mod quota;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::labels::ProviderLabels;
use api::{NodeClaim, NodePool};
use model::quota::ResourceQuota;
use model::workload::{DaemonSet, PodDisruptionBudget, PodGroup};
use model::{IdVec, Interner, Labels, NamespacedName, Node, NodeClaimName, Pod, Timestamp, Uid};
use scheduling::Devices;
use scheduling::catalogue::Catalogue;
use scheduling::devices::{DaemonPod, NominatedPod, PodsBefore, SnapshotParts};
use scheduling::snapshot::fleet::{DeviceSources, FleetNode};
use scheduling::snapshot::{
    Buffer, Node as PlannedNode, NodeId, Options, PendingPod, PodId, PodsToPlace, Snapshot, Volumes, attach_resource,
};

use crate::default_spread::{self, DefaultSpread};
use crate::node_pool::{node_pool, refused};
use crate::node_repair::RepairSources;
use decode::Context;
use decode::limit_range::{LimitRange, TemplateResources};
use decode::priority_class::PriorityClasses;
use decode::{ObjectError, ObjectRef};

pub use bound::BoundPods;
pub use cache::Cache;
pub use devices::ClusterDevices;
pub(crate) use devices::add_device_object;

/// The input of a snapshot.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// The time of the snapshot.
    pub now: Timestamp,
    /// How to plan.
    pub options: Options,
    /// The NodePools, each with what it can launch.
    pub node_pools: Vec<LaunchableNodePool>,
    /// Every Node.
    pub nodes: Vec<Arc<Node>>,
    /// Every NodeClaim.
    pub node_claims: Vec<Arc<NodeClaim>>,
    /// Every pod that is not among `bound`, those that have ended included.
    pub pods: Vec<Arc<Pod>>,
    /// Bound pods that the caller keeps by node.
    pub bound: BoundPods,
    /// Objects of the input that cannot be used, with what is wrong: pods wait for those that they name.
    pub unusable: BTreeMap<ObjectRef, Arc<ObjectError>>,
    /// Which pods want a place.
    pub pending: PendingRule,
    /// The NodeClaims that pods were planned onto before, by the pod's uid.
    pub planned_on: BTreeMap<Uid, NodeClaimName>,
    /// Pending pods that must not be planned now.
    pub left_out: BTreeSet<Uid>,
    /// Every DaemonSet.
    pub daemon_sets: Vec<Arc<DaemonSet>>,
    /// The resources of the containers of DaemonSets' templates, by the DaemonSet's uid.
    pub template_resources: BTreeMap<Uid, Arc<TemplateResources>>,
    /// Every LimitRange.
    pub limit_ranges: Vec<Arc<LimitRange>>,
    /// Every PriorityClass.
    pub priority_classes: PriorityClasses,
    /// Every PodGroup.
    pub pod_groups: BTreeMap<NamespacedName, Arc<PodGroup>>,
    /// Every PodDisruptionBudget.
    pub pod_disruption_budgets: Vec<Arc<PodDisruptionBudget>>,
    /// Every ResourceQuota.
    pub resource_quotas: Vec<Arc<ResourceQuota>>,
    /// Storage objects.
    pub volumes: Volumes,
    /// Labels of each namespace, by name.
    pub namespaces: BTreeMap<Arc<str>, Labels>,
    /// What decides about devices.
    pub devices: ClusterDevices,
    /// CapacityBuffers, by name.
    pub buffers: Vec<Buffer>,
    /// Default topology spread for pods without constraints.
    pub default_spread: DefaultSpread,
    /// What says which machines are broken; `None` if none is to be repaired (gate NodeRepair).
    pub repair: Option<RepairSources>,
    /// Whether to fill [`Snapshot::fleet`]. Then `devices` must also contain what running pods want.
    pub wants_fleet: bool,
}

/// A NodePool and what it can launch.
#[derive(Debug, Clone)]
pub struct LaunchableNodePool {
    /// The object.
    pub object: Arc<NodePool>,
    /// Whether it may launch now; if not, why.
    pub usable: Result<(), Arc<str>>,
    /// Its instance types.
    pub catalogue: Arc<Catalogue>,
}

/// Which pods want a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PendingRule {
    /// Pods that kube-scheduler could not place, similar pods that it has not tried yet, and pods that will have to
    /// leave a node that is being deleted.
    #[default]
    Unschedulable,
    /// All pods without a node: manifests have no scheduler.
    Unbound,
}

/// Puts a snapshot together. What cannot be used is reported: a NodeClaim is left out, a NodePool may not launch.
///
/// New names are added to `interner`, which must have given out all ids in `cluster`.
pub fn snapshot(cluster: Cluster, interner: Arc<Interner>, labels: &ProviderLabels) -> (Snapshot, Vec<ObjectError>) {
    snapshot_with(cluster, interner, labels, &mut Cache::default())
}

/// Makes a snapshot, and uses again what has not changed since the last one.
pub fn snapshot_with(
    cluster: Cluster,
    mut interner: Arc<Interner>,
    labels: &ProviderLabels,
    cache: &mut Cache,
) -> (Snapshot, Vec<ObjectError>) {
    let mut errors = Vec::new();
    let context = &mut Context::with_labels(Arc::make_mut(&mut interner), labels);
    cache.begin();
    let (nodes, usage) = nodes::nodes(&cluster, context, cache, &mut errors);
    cache.end();
    let daemon_sets = daemons::daemon_sets(&cluster, &nodes, context.interner, &mut errors);
    let mut pods = pending::pending_pods(&cluster, &nodes, context.interner);
    let ending = ending::ending(&cluster, &nodes);
    let mut fleet = cluster.wants_fleet.then(|| fleet::fleet(&cluster, &nodes, context.interner, &mut errors));
    let mut buffers = cluster.buffers;
    let moving = fleet.iter_mut().flat_map(|fleet| &mut fleet.nodes).flat_map(FleetNode::moving_mut);
    let to_place = pods.iter_mut().chain(moving);
    default_spread::apply(cluster.default_spread, to_place, &mut buffers, context.interner);
    let types = cluster.node_pools.iter().flat_map(|pool| &pool.catalogue.types);
    let limits = types.flat_map(|instance_type| &instance_type.volume_attachment_limits);
    let limits = limits.chain(nodes.iter().flat_map(|node| &node.attach_limits));
    let mut drivers: Vec<&Arc<str>> = Vec::new();
    for (driver, _) in limits {
        // There are few, and most often it is the last one again.
        if drivers.last() != Some(&driver) && !drivers.contains(&driver) {
            drivers.push(driver);
        }
    }
    for driver in drivers {
        context.interner.resource(&attach_resource(driver));
    }
    let ClusterDevices { compat, objects, pods: with_devices } = cluster.devices;
    let mut node_pools = IdVec::new();
    for pool in &cluster.node_pools {
        let name = pool.object.metadata.name.as_deref().unwrap_or_default();
        let usage = usage.get(name).cloned().unwrap_or_default();
        match node_pool(&pool.object, pool.usable.clone(), &usage, Arc::clone(&pool.catalogue), context) {
            Ok(pool) => {
                node_pools.push(pool);
            }
            Err(error) => {
                node_pools.push(refused(&pool.object, &error));
                errors.push(error);
            }
        }
    }
    let ignores_claims = cluster.options.ignore_dra_requests;
    let pod_of = |set: &Arc<DaemonSet>| Some((Arc::clone(set), with_devices.get(&set.uid).cloned()?));
    let daemons: Vec<DaemonPod> = daemon_sets.iter().filter_map(pod_of).collect();
    // Who leaves claims to others leaves extended resources that come from DRA to them too.
    let devices = if ignores_claims {
        None
    } else {
        let to_place = PodsToPlace { pods: &pods, buffers: &buffers };
        let nominated = nominated_pods(&nodes, &pods, &with_devices);
        let before = PodsBefore { daemon_sets: &daemons, nominated: &nominated, ending: &ending };
        let parts = SnapshotParts { pools: &node_pools, nodes: &nodes, pods: to_place, before, names: &interner };
        let devices = Devices::new(Arc::clone(&objects), compat, parts);
        if let Some(fleet) = &mut fleet {
            fleet.devices = Some(DeviceSources { objects, compat, daemon_sets: daemons, nominated, ending });
        }
        devices
    };
    let snapshot = Snapshot {
        interner,
        now: cluster.now,
        options: cluster.options,
        node_pools,
        nodes,
        pods,
        daemon_sets: daemon_sets
            .into_iter()
            .filter(|daemon_set| !ignores_claims || daemon_set.template.shape.resource_claims.is_empty())
            .collect(),
        pod_groups: cluster.pod_groups,
        volumes: cluster.volumes,
        namespaces: cluster.namespaces,
        devices: devices.map(Arc::new),
        buffers,
        fleet: fleet.map(Arc::new),
    };
    (snapshot, errors)
}

/// Pods that may want devices of the node that the scheduler has promised them.
fn nominated_pods(
    nodes: &IdVec<NodeId, Arc<PlannedNode>>,
    pending: &IdVec<PodId, PendingPod>,
    with_devices: &BTreeMap<Uid, Arc<dra_types::Pod>>,
) -> Vec<NominatedPod> {
    let is_pending = |pod: &Pod| pending.iter().any(|other| other.pod.uid == pod.uid);
    let on_node = |(id, node): (NodeId, &Arc<PlannedNode>)| {
        let nominated = node.pods.iter().filter(|pod| pod.nominated_node_name.is_some() && !is_pending(pod));
        nominated.filter_map(|pod| Some((id, Arc::clone(with_devices.get(&pod.uid)?)))).collect::<Vec<_>>()
    };
    if with_devices.is_empty() { Vec::new() } else { nodes.iter_enumerated().flat_map(on_node).collect() }
}
