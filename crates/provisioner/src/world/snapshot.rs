//! From the store to the planner's input.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::labels::ProviderLabels;
use cloudprovider::RepairPolicies;
use cluster::default_spread::DefaultSpread;
use cluster::node_repair::RepairSources;
use cluster::snapshot::{Cache, Cluster, ClusterDevices, LaunchableNodePool, PendingRule};
use decode::scheduler_config::SchedulerConfig;
use dra_types::{Compat, KubernetesMinor};
use model::collections::{NameMap, Remembered};
use model::workload::DaemonSet;
use model::{Node, NodeClaimName, Pod, Timestamp, Uid};
use scheduling::devices::DeviceObjects;
use scheduling::snapshot::pending::{is_provisionable, is_untried};
use scheduling::snapshot::{Buffer, Options, SchedulerNames, Snapshot, Volumes};

use crate::world::buffers;
use crate::world::held_devices::HeldDevices;
use crate::world::leaving;
use crate::world::store::{ClusterStore, CsiNode, NodeRecord, State};
use crate::world::successors::Succession;

/// Whether a pod waits for a machine from us.
pub(crate) fn is_ours(pod: &Pod, schedulers: &SchedulerNames) -> bool {
    is_provisionable(pod) && schedulers.include(&pod.scheduler_name)
}

/// Who plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// Machines for pods that wait.
    Provisioning,
    /// Machines that go: what is known of ours is told as well, and what pods want of devices that run.
    Disruption,
}

/// What was decided before a snapshot is taken.
pub(crate) struct Before<'a> {
    /// The NodeClaims that pods were planned onto.
    pub planned: &'a NameMap<Uid, NodeClaimName>,
    /// The places of pods that leave their nodes, of what was planned for them.
    pub succession: &'a Succession,
    /// Pods that are not to be planned.
    pub left_out: BTreeSet<Uid>,
}

/// What goes into a snapshot besides the cluster.
#[derive(Debug)]
pub(crate) struct Settings<'a> {
    /// What it is for.
    pub whom: For,
    /// When the state was taken.
    pub now: Timestamp,
    /// How to plan.
    pub options: Options,
    /// Default spread.
    pub scheduler_config: &'a SchedulerConfig,
    /// What the provider says of labels.
    pub labels: &'a ProviderLabels,
    /// Devices that count although they are not published at the moment.
    pub held_devices: &'a HeldDevices,
    /// When a machine is to be replaced because it is broken; `None` where that is not asked, or none is.
    pub repair: Option<&'a Arc<RepairPolicies>>,
}

/// What is left of the last snapshot, so that the next one costs what has changed since. The snapshot is the same
/// without it.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Of the store's names, which all that is remembered speaks of.
    epoch: u64,
    cache: Cache,
    joined: JoinedNodes,
}

impl Memory {
    /// For a state of the store: its names may be others than those of the last one.
    fn renew(&mut self, state: &State) {
        if self.epoch != state.epoch {
            *self = Self { epoch: state.epoch, ..Self::default() };
        }
    }
}

/// Everything the planner may know, from one state of the store and what was planned before it was taken.
///
/// A pod that was nominated to a node and is not bound yet counts as bound there: kube-scheduler reserves its room too.
/// So does one that has gone by a disruption command, where its successor is expected.
/// Pods of schedulers that are not planned for are left out until they are bound. NodePools that are not in
/// `node_pools` any more, or are another object by now, are the commit's business.
pub(crate) fn build(
    state: &State,
    node_pools: Vec<LaunchableNodePool>,
    before: Before<'_>,
    settings: Settings<'_>,
    memory: &mut Memory,
) -> (Snapshot, Vec<decode::ObjectError>) {
    let Before { planned, succession, left_out } = before;
    memory.renew(state);
    let mut planned_on = leaving::places(state, succession);
    let mut pods = leaving::kept(state, succession);
    for pod in state.unbound_pods() {
        if let Some(nominated) = pod.nominated_node_name.as_ref().filter(|node| state.nodes.contains(*node)) {
            pods.push(Arc::new(Pod { node_name: Some(nominated.clone()), ..Pod::clone(pod) }));
        } else if pod.is_daemon {
            // It is not planned; it shows what its DaemonSet's pods ask for.
            pods.push(Arc::clone(pod));
        } else if is_ours(pod, &settings.options.scheduler_names) || is_untried(pod) {
            planned_on.extend(planned.get(&pod.uid).map(|claim| (pod.uid.clone(), claim.clone())));
            pods.push(Arc::clone(pod));
        }
    }
    let buffers = buffers::room(&buffers::asked(state));
    let devices = devices(state, &buffers, &settings);
    let cluster = Cluster {
        now: settings.now,
        options: settings.options,
        node_pools,
        nodes: memory.joined.nodes(state),
        node_claims: state.node_claims.values().cloned().collect(),
        pods,
        bound: state.bound_pods.clone(),
        unusable: BTreeMap::new(),
        pending: PendingRule::Unschedulable,
        planned_on,
        left_out,
        daemon_sets: state.daemon_sets.values().cloned().collect(),
        template_resources: (*state.template_resources).clone(),
        limit_ranges: state.limit_ranges.values().cloned().collect(),
        priority_classes: state.priority_classes.values().cloned().collect(),
        pod_groups: state.pod_groups.iter().map(|(name, it)| (name.clone(), Arc::clone(&it.model))).collect(),
        pod_disruption_budgets: state.pod_disruption_budgets.values().cloned().collect(),
        resource_quotas: state.resource_quotas.values().cloned().collect(),
        volumes: Volumes {
            claims: state.persistent_volume_claims.iter().map(|(name, it)| (name.clone(), Arc::clone(it))).collect(),
            volumes: state.persistent_volumes.iter().map(|(name, it)| (Arc::clone(name), Arc::clone(it))).collect(),
            classes: state.storage_classes.iter().map(|(name, it)| (Arc::clone(name), Arc::clone(it))).collect(),
        },
        namespaces: state.namespaces.iter().map(|(name, it)| (Arc::clone(name), it.labels.clone())).collect(),
        devices,
        buffers,
        default_spread: DefaultSpread {
            config: settings.scheduler_config.clone(),
            selectors: state.pod_selectors.values().cloned().collect(),
        },
        repair: settings.repair.map(|policies| RepairSources {
            policies: Arc::clone(policies),
            nodes: state.nodes.values().map(|record| Arc::clone(&record.object)).collect(),
        }),
        wants_fleet: settings.whom == For::Disruption,
    };
    cluster::snapshot_with(cluster, Arc::clone(&state.interner), settings.labels, &mut memory.cache)
}

/// Lets the store know the names that a snapshot has added, so that what was made with them can be remembered for the
/// next one.
pub(crate) fn share_names(store: &ClusterStore, state: &State, snapshot: &Snapshot) {
    if snapshot.interner.has_more_than(&state.interner) {
        store.intern(|names| names.learn(&snapshot.interner, &state.interner));
    }
}

/// What decides about devices; nothing of it is gathered while no pod that waits or may have to move, no daemon and no
/// buffer's pod may want one.
fn devices(state: &State, buffers: &[Buffer], settings: &Settings<'_>) -> ClusterDevices {
    let compat = state.kubernetes.unwrap_or_else(|| Compat::new(KubernetesMinor::NEWEST));
    let wants = |pod: &Arc<Pod>| state.device_pods.contains_key(&pod.uid);
    let is_going = |node: &NodeRecord| node.model.deletion_timestamp.is_some();
    let wanting_daemon = |set: &Arc<DaemonSet>| state.device_pods.contains_key(&set.uid);
    let of_pods = !state.device_pods.is_empty()
        && (settings.whom == For::Disruption
            || state.unbound_pods().any(wants)
            || state.daemon_sets.values().any(wanting_daemon)
            || state.nodes.values().any(|node| is_going(node))
            || !leaving::nodes_of_commands(state).is_empty());
    let nobody = !of_pods && buffers.iter().all(|buffer| buffer.devices.is_none());
    if nobody {
        return ClusterDevices { compat, ..ClusterDevices::default() };
    }
    let mut slices = state.resource_slices.iter().map(|(name, it)| (Arc::clone(name), Arc::clone(it))).collect();
    settings.held_devices.hold(&mut slices, settings.now);
    let objects = DeviceObjects {
        classes: state.device_classes.iter().map(|(name, it)| (Arc::clone(name), Arc::clone(it))).collect(),
        slices,
        taint_rules: state.device_taint_rules.iter().map(|(name, it)| (Arc::clone(name), Arc::clone(it))).collect(),
        claims: state.resource_claims.iter().map(|(name, it)| (name.clone(), Arc::clone(it))).collect(),
        claim_templates: state
            .resource_claim_templates
            .iter()
            .map(|(name, it)| (name.clone(), Arc::clone(it)))
            .collect(),
        pod_groups: state.pod_groups.iter().map(|(name, it)| (name.clone(), Arc::clone(&it.claims))).collect(),
    };
    ClusterDevices { compat, objects: Arc::new(objects), pods: (*state.device_pods).clone() }
}

/// Nodes with what their CSINodes say, by the Node; the two are watched apart.
#[derive(Debug, Default)]
struct JoinedNodes(Remembered<Node, (Arc<CsiNode>, Arc<Node>)>);

impl JoinedNodes {
    /// All nodes, by name; the same objects as last time where neither has changed.
    fn nodes(&mut self, state: &State) -> Vec<Arc<Node>> {
        let Self(joined) = self;
        joined.begin();
        let nodes = state.nodes.values().map(|record| {
            let node = &record.model;
            let Some(csi_node) = state.csi_nodes.get(&node.name) else { return Arc::clone(node) };
            if let Some((_, both)) = joined.get(node).filter(|(known, _)| Arc::ptr_eq(known, csi_node)) {
                return Arc::clone(both);
            }
            let both = Arc::new(Node { csi_drivers: Some(csi_node.drivers.clone()), ..Node::clone(node) });
            joined.keep(node, (Arc::clone(csi_node), Arc::clone(&both)));
            both
        });
        let nodes = nodes.collect();
        joined.end();
        nodes
    }
}

/// Whether there is anything to plan: a pod of ours without a place, a machine that goes and may leave some, or room to
/// be kept free.
pub(crate) fn has_work(state: &State, schedulers: &SchedulerNames) -> bool {
    let going: BTreeSet<&str> = state
        .nodes
        .values()
        .filter(|node| node.model.deletion_timestamp.is_some())
        .map(|node| node.model.name.as_str())
        .collect();
    !state.capacity_buffers.is_empty()
        || state.unbound_pods().any(|pod| is_ours(pod, schedulers))
        || going.iter().any(|node| state.pods_on_node(node).next().is_some())
}
