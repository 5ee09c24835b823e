//! All tables and indexes of one moment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use api::{CapacityBuffer, NodeClaim, NodeOverlay, NodePool};
use cluster::snapshot::BoundPods;
use decode::capacity_buffer::{BufferTemplate, TemplateKey};
use decode::limit_range::{LimitRange, TemplateResources};
use decode::pod_selectors::{PodSelector, SelectorKey};
use decode::priority_class::PriorityClass;
use dra_types::{ClaimTemplate, Compat, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use model::collections::NameMap;
use model::quota::ResourceQuota;
use model::volume::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use model::workload::{DaemonSet, PodDisruptionBudget};
use model::{Interner, NamespacedName, NodeClaimName, NodeName, NodeOverlayName, NodePoolName, Pod, ProviderId, Uid};

use super::object::{CsiNode, Namespace, NodeClass, NodeClassKey, NodeRecord, PodGroupRecord, VolumeAttachment};
use super::{Index, Kind, Table};

/// How many deletions are remembered, so that a late answer to a patch does not bring a deleted object back.
const BURIED_LIMIT: usize = 4096;

/// Everything the store holds. A clone costs a few dozen reference counts.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the tables are named after their kinds")]
pub struct State {
    /// Names of the labels, values and resources in the objects below.
    pub interner: Arc<Interner>,

    pub pods: Table<NamespacedName, Pod>,
    pub nodes: Table<NodeName, NodeRecord>,
    pub node_claims: Table<NodeClaimName, NodeClaim>,
    pub node_pools: Table<NodePoolName, NodePool>,
    pub node_overlays: Table<NodeOverlayName, NodeOverlay>,
    pub node_classes: Table<NodeClassKey, NodeClass>,
    pub namespaces: Table<Arc<str>, Namespace>,
    pub daemon_sets: Table<NamespacedName, DaemonSet>,
    pub persistent_volume_claims: Table<NamespacedName, PersistentVolumeClaim>,
    pub persistent_volumes: Table<Arc<str>, PersistentVolume>,
    pub storage_classes: Table<Arc<str>, StorageClass>,
    pub csi_nodes: Table<NodeName, CsiNode>,
    pub volume_attachments: Table<Arc<str>, VolumeAttachment>,
    pub pod_disruption_budgets: Table<NamespacedName, PodDisruptionBudget>,
    pub device_classes: Table<Arc<str>, DeviceClass>,
    pub resource_slices: Table<Arc<str>, ResourceSlice>,
    pub resource_claims: Table<NamespacedName, ResourceClaim>,
    pub resource_claim_templates: Table<NamespacedName, ClaimTemplate>,
    pub device_taint_rules: Table<Arc<str>, DeviceTaintRule>,
    pub pod_groups: Table<NamespacedName, PodGroupRecord>,
    pub priority_classes: Table<Arc<str>, PriorityClass>,
    pub resource_quotas: Table<NamespacedName, ResourceQuota>,
    /// Empty while nobody wants room to be kept free.
    pub capacity_buffers: Table<NamespacedName, CapacityBuffer>,
    /// PodTemplates and workloads, for the buffers that name them; empty as long.
    pub buffer_templates: Table<TemplateKey, BufferTemplate>,
    /// Services and controllers of pods; empty while the cluster has no default spread constraints.
    pub pod_selectors: Table<SelectorKey, PodSelector>,
    pub limit_ranges: Table<NamespacedName, LimitRange>,
    /// What the containers of DaemonSets' templates say of their resources: their pods get what LimitRanges add to it.
    pub template_resources: Arc<BTreeMap<Uid, Arc<TemplateResources>>>,
    /// What devices read of the pods that may want any, and of the DaemonSets whose pods may.
    pub device_pods: Arc<BTreeMap<Uid, Arc<dra_types::Pod>>>,
    /// The API server's release and gates, once it has told.
    pub kubernetes: Option<Compat>,

    /// Bound pods by their node, the ended ones included.
    pub bound_pods: BoundPods,
    pub pods_by_uid: Arc<NameMap<Uid, Arc<Pod>>>,
    /// Pods of a DaemonSet; see [`State::newest_pod_of_daemon_set`].
    pub pods_by_daemon_set: Index<NamespacedName, NamespacedName>,
    /// Pods that no scheduler has bound. Looked through so often that the pods themselves are here.
    pub pods_without_node: Arc<BTreeMap<NamespacedName, Arc<Pod>>>,
    /// Of these the ones that are nominated to a node.
    pub nominated_pods: Index<(), NamespacedName>,
    /// Pods on nodes that cannot be read.
    pub unreadable_pods: Index<(), NamespacedName>,
    /// More than one node where two registered for one machine.
    pub nodes_by_provider_id: Index<ProviderId, NodeName>,
    pub node_claims_by_provider_id: Index<ProviderId, NodeClaimName>,
    /// By the label `karpenter.sh/nodepool`.
    pub node_claims_by_pool: Index<NodePoolName, NodeClaimName>,
    pub volume_attachments_by_node: Index<NodeName, Arc<str>>,

    /// Objects that the API server has and that could not be decoded: by kind and name, what is wrong. A machine whose
    /// NodeClaim is among them is not an orphan.
    pub undecodable: BTreeMap<(Kind, String), String>,

    /// How often the store was built anew. Interned ids of different epochs mean different names.
    pub epoch: u64,
    /// How many names there were when it was.
    pub(super) names_when_built: usize,
    pub(super) synced: BTreeSet<Kind>,
    buried: Arc<Buried>,
}

impl State {
    /// The pods bound to a node, by name.
    pub fn pods_on_node<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Arc<Pod>> {
        self.bound_pods.on(node).iter()
    }

    /// The pods that no scheduler has bound, by name.
    pub fn unbound_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods_without_node.values()
    }

    /// How many these are.
    pub fn unbound_pods_count(&self) -> usize {
        self.pods_without_node.len()
    }

    /// The pods that no scheduler has bound and that are nominated to a node, by name.
    pub fn nominated_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.nominated_pods.get(&()).filter_map(|name| self.pods.get(name))
    }

    /// The pod with that uid.
    pub fn pod_by_uid(&self, uid: &Uid) -> Option<&Arc<Pod>> {
        self.pods_by_uid.get(uid)
    }

    /// The nodes that say they are that machine; one, if all is well.
    pub fn nodes_of_machine<'a>(&'a self, provider_id: &str) -> impl Iterator<Item = &'a Arc<NodeRecord>> {
        self.nodes_by_provider_id.get(provider_id).filter_map(|name| self.nodes.get(name))
    }

    /// The NodeClaims that say they are that machine; one, if all is well.
    pub fn node_claims_of_machine<'a>(&'a self, provider_id: &str) -> impl Iterator<Item = &'a Arc<NodeClaim>> {
        self.node_claims_by_provider_id.get(provider_id).filter_map(|name| self.node_claims.get(name))
    }

    /// The NodeClaims of a NodePool, by name.
    pub fn node_claims_of_pool<'a>(&'a self, node_pool: &str) -> impl Iterator<Item = &'a Arc<NodeClaim>> {
        self.node_claims_by_pool.get(node_pool).filter_map(|name| self.node_claims.get(name))
    }

    /// The pods on nodes that cannot be read, by name.
    pub fn unreadable_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.unreadable_pods.get(&()).filter_map(|name| self.pods.get(name))
    }

    /// The volumes attached to a node, or on the way.
    pub fn volume_attachments_of_node<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Arc<VolumeAttachment>> {
        self.volume_attachments_by_node.get(node).filter_map(|name| self.volume_attachments.get(name))
    }

    /// The pod that shows best what a DaemonSet's next pod will look like once admission has had its say: the one
    /// created last.
    pub fn newest_pod_of_daemon_set(&self, daemon_set: &NamespacedName) -> Option<&Arc<Pod>> {
        self.pods_by_daemon_set
            .get(daemon_set)
            .filter_map(|name| self.pods.get(name))
            .max_by(|a, b| a.created_at.cmp(&b.created_at).then_with(|| a.name.cmp(&b.name)))
    }

    /// Whether every kind's first list has been read.
    pub fn is_synced(&self) -> bool {
        self.synced.len() == Kind::ALL.len()
    }

    /// The kinds whose first list has not been read.
    pub fn unsynced(&self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| !self.synced.contains(kind))
    }

    pub(super) fn note_decodable(&mut self, kind: Kind, key: &impl ToString) {
        if !self.undecodable.is_empty() {
            self.undecodable.remove(&(kind, key.to_string()));
        }
    }

    pub(super) fn bury(&mut self, kind: Kind, uid: &Uid) {
        Arc::make_mut(&mut self.buried).insert(kind, uid);
    }

    /// Remembers the deletions that `other` remembers.
    pub(super) fn bury_all(&mut self, other: &Self) {
        for (kind, uid) in &other.buried.order {
            self.bury(*kind, uid);
        }
    }

    pub(super) fn is_buried(&self, kind: Kind, uid: &Uid) -> bool {
        self.buried.uids.contains(&(kind, uid.clone()))
    }
}

/// Uids of objects that were deleted lately.
#[derive(Debug, Clone, Default)]
struct Buried {
    uids: BTreeSet<(Kind, Uid)>,
    order: VecDeque<(Kind, Uid)>,
}

impl Buried {
    fn insert(&mut self, kind: Kind, uid: &Uid) {
        let entry = (kind, uid.clone());
        if uid.is_empty() || !self.uids.insert(entry.clone()) {
            return;
        }
        self.order.push_back(entry);
        if self.order.len() > BURIED_LIMIT
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }
}
