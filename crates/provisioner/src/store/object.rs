//! What the tables hold, and how each kind finds its table and indexes.

use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use api::{CapacityBuffer, NodeClaim, NodeClassReference, NodeOverlay, NodePool, labels};
use decode::capacity_buffer::{BufferTemplate, TemplateKey, buffer_name};
use decode::default_spread::{PodSelector, SelectorKey};
use decode::limit_range::LimitRange;
use decode::priority_class::PriorityClass;
use dra_sched::types::{ClaimTemplate, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use model::quota::ResourceQuota;
use model::volume::{CsiNodeDriver, PersistentVolume, PersistentVolumeClaim, StorageClass};
use model::workload::{DaemonSet, PodDisruptionBudget, PodGroup};
use model::{Labels, NamespacedName, NodeClaimName, NodeName, NodeOverlayName, NodePoolName, Pod, ProviderId, Uid};

use super::change::{Change, Delta};
use super::state::State;
use super::{Kind, Table};

/// Which object of its name this is, and which state of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`. Kubernetes has since 1.35 promised that these compare as integers; one that is not an
    /// integer counts as 0.
    pub resource_version: u64,
}

impl Revision {
    /// The revision that an object's metadata names.
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            resource_version: metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0),
        }
    }

    /// Whether an object of this revision replaces a stored one of `known`: another object of that name, or a later
    /// state of the same one. Where the API server's versions cannot be compared, the last to come wins.
    pub(super) fn supersedes(&self, known: &Self) -> bool {
        self.uid != known.uid || self.resource_version == 0 || self.resource_version > known.resource_version
    }
}

/// A Node in both forms that are needed: the planner's, and the API's, which its lifecycle patches.
#[derive(Debug, Clone)]
pub struct NodeRecord {
    /// As the planner sees it.
    pub model: Arc<model::Node>,
    /// As the API server has it, without managed fields and images.
    pub object: Arc<core::Node>,
}

/// A PodGroup in both forms that are needed: how many pods must be placed at once, and the claims that they share.
#[derive(Debug, Clone)]
pub struct PodGroupRecord {
    /// As the planner sees it.
    pub model: Arc<PodGroup>,
    /// As the allocator of devices sees it.
    pub claims: Arc<dra_sched::types::PodGroup>,
}

/// The name of a node class: its kind and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeClassKey(pub NodeClassReference);

impl Display for NodeClassKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}/{}", self.0.kind, self.0.group, self.0.name)
    }
}

/// A node class of one of the provider's kinds, which only the provider understands.
#[derive(Debug, Clone)]
pub struct NodeClass {
    /// Its name.
    pub key: NodeClassKey,
    /// `metadata.generation`.
    pub generation: i64,
    /// The whole object, without managed fields.
    pub object: DynamicObject,
}

/// A volume on its way to, at, or on its way from a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeAttachment {
    /// The object's name.
    pub name: Arc<str>,
    /// The node.
    pub node_name: NodeName,
    /// The PersistentVolume; absent for an inline volume.
    pub persistent_volume: Option<Arc<str>>,
    /// Whether the volume is attached now.
    pub attached: bool,
}

/// A namespace: its labels, which selectors of pod affinity terms read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// The name.
    pub name: Arc<str>,
    /// The labels.
    pub labels: Labels,
}

/// The CSI drivers on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiNode {
    /// The node's name.
    pub name: NodeName,
    /// Its drivers, sorted by name.
    pub drivers: Vec<CsiNodeDriver>,
}

/// A kind that the store holds.
pub trait Stored: Debug + Send + Sync + Sized + 'static {
    /// The object's name.
    type Key: Clone + Debug + Display + Ord + Send + Sync;
    /// Its kind.
    const KIND: Kind;

    /// The name of this object.
    fn key(&self) -> Self::Key;
    /// Its kind's table.
    fn table(state: &State) -> &Table<Self::Key, Self>;
    #[doc(hidden)]
    fn table_mut(state: &mut State) -> &mut Table<Self::Key, Self>;
    #[doc(hidden)]
    fn reindex(_state: &mut State, _before: Option<&Arc<Self>>, _after: Option<&Arc<Self>>) {}
    #[doc(hidden)]
    fn change<'a>(delta: Delta<'a, Self::Key, Self>) -> Change<'a>;
}

macro_rules! stored_in {
    ($table:ident) => {
        fn table(state: &State) -> &Table<Self::Key, Self> {
            &state.$table
        }

        fn table_mut(state: &mut State) -> &mut Table<Self::Key, Self> {
            &mut state.$table
        }
    };
}

impl Stored for Pod {
    type Key = NamespacedName;
    const KIND: Kind = Kind::Pod;
    stored_in!(pods);

    fn key(&self) -> NamespacedName {
        self.name.clone()
    }

    fn reindex(state: &mut State, before: Option<&Arc<Self>>, after: Option<&Arc<Self>>) {
        if let Some(before) = before.filter(|before| after.is_none_or(|after| after.node_name != before.node_name)) {
            state.bound_pods.remove(before);
        }
        if let Some(after) = after {
            state.bound_pods.insert(after);
        }
        if let Some(gone) = before.filter(|before| after.is_none_or(|after| after.uid != before.uid)) {
            Arc::make_mut(&mut state.pods_by_uid).remove(&gone.uid);
        }
        if let Some(pod) = after {
            Arc::make_mut(&mut state.pods_by_uid).insert(pod.uid.clone(), Arc::clone(pod));
        }
        let by_daemon_set = |pod: &Arc<Self>| {
            let owner = pod.owner.as_ref().filter(|_| pod.is_daemon)?;
            Some((NamespacedName::new(Arc::clone(&pod.name.namespace), Arc::clone(&owner.name)), pod.name.clone()))
        };
        state.pods_by_daemon_set.update(before.and_then(by_daemon_set), after.and_then(by_daemon_set));
        let waits = |pod: &&Arc<Self>| pod.node_name.is_none();
        if let Some(pod) = after.filter(waits) {
            Arc::make_mut(&mut state.pods_without_node).insert(pod.name.clone(), Arc::clone(pod));
        } else if let Some(before) = before.filter(waits) {
            Arc::make_mut(&mut state.pods_without_node).remove(&before.name);
        }
        let is_nominated = |pod: &Self| pod.node_name.is_none() && pod.nominated_node_name.is_some();
        let nominated = |pod: &Arc<Self>| is_nominated(pod).then(|| ((), pod.name.clone()));
        state.nominated_pods.update(before.and_then(nominated), after.and_then(nominated));
        forget_devices(state, before.map(|before| &before.uid), after.map(|after| &after.uid));
        let unreadable = |pod: &Arc<Self>| pod.unreadable.as_ref().map(|_| ((), pod.name.clone()));
        state.unreadable_pods.update(before.and_then(unreadable), after.and_then(unreadable));
    }

    fn change<'a>(delta: Delta<'a, Self::Key, Self>) -> Change<'a> {
        Change::Pod(delta)
    }
}

/// Forgets what devices read of an object that is not there any more.
fn forget_devices(state: &mut State, before: Option<&Uid>, after: Option<&Uid>) {
    if let Some(gone) = before.filter(|&gone| after != Some(gone) && state.device_pods.contains_key(gone)) {
        Arc::make_mut(&mut state.device_pods).remove(gone);
    }
}

impl Stored for NodeRecord {
    type Key = NodeName;
    const KIND: Kind = Kind::Node;
    stored_in!(nodes);

    fn key(&self) -> NodeName {
        self.model.name.clone()
    }

    fn reindex(state: &mut State, before: Option<&Arc<Self>>, after: Option<&Arc<Self>>) {
        let by_provider_id = |node: &Arc<Self>| Some((node.model.provider_id.clone()?, node.model.name.clone()));
        state.nodes_by_provider_id.update(before.and_then(by_provider_id), after.and_then(by_provider_id));
    }

    fn change<'a>(delta: Delta<'a, Self::Key, Self>) -> Change<'a> {
        Change::Node(delta)
    }
}

impl Stored for PodGroupRecord {
    type Key = NamespacedName;
    const KIND: Kind = Kind::PodGroup;
    stored_in!(pod_groups);

    fn key(&self) -> NamespacedName {
        self.model.name.clone()
    }

    fn change<'a>(_: Delta<'a, Self::Key, Self>) -> Change<'a> {
        Change::Other(Self::KIND)
    }
}

impl Stored for CapacityBuffer {
    type Key = NamespacedName;
    const KIND: Kind = Kind::CapacityBuffer;
    stored_in!(capacity_buffers);

    fn key(&self) -> NamespacedName {
        buffer_name(self)
    }

    fn change<'a>(delta: Delta<'a, Self::Key, Self>) -> Change<'a> {
        Change::CapacityBuffer(delta)
    }
}

impl Stored for BufferTemplate {
    type Key = TemplateKey;
    const KIND: Kind = Kind::BufferTemplate;
    stored_in!(buffer_templates);

    fn key(&self) -> TemplateKey {
        self.key.clone()
    }

    fn change<'a>(delta: Delta<'a, Self::Key, Self>) -> Change<'a> {
        Change::BufferTemplate(delta)
    }
}

impl Stored for PodSelector {
    type Key = SelectorKey;
    const KIND: Kind = Kind::PodSelector;
    stored_in!(pod_selectors);

    fn key(&self) -> SelectorKey {
        self.key.clone()
    }

    fn change<'a>(delta: Delta<'a, Self::Key, Self>) -> Change<'a> {
        Change::PodSelector(delta)
    }
}

impl Stored for NodeClaim {
    type Key = NodeClaimName;
    const KIND: Kind = Kind::NodeClaim;
    stored_in!(node_claims);

    fn key(&self) -> NodeClaimName {
        self.metadata.name.as_deref().unwrap_or_default().into()
    }

    fn reindex(state: &mut State, before: Option<&Arc<Self>>, after: Option<&Arc<Self>>) {
        let by_provider_id = |claim: &Arc<Self>| {
            let provider_id = claim.status.as_ref().map(|status| status.provider_id.as_str())?;
            (!provider_id.is_empty()).then(|| (ProviderId::from(provider_id), claim.key()))
        };
        state.node_claims_by_provider_id.update(before.and_then(by_provider_id), after.and_then(by_provider_id));
        let by_pool = |claim: &Arc<Self>| {
            let pool = claim.metadata.labels.as_ref()?.get(labels::NODEPOOL)?;
            Some((NodePoolName::from(pool.as_str()), claim.key()))
        };
        state.node_claims_by_pool.update(before.and_then(by_pool), after.and_then(by_pool));
    }

    fn change<'a>(delta: Delta<'a, Self::Key, Self>) -> Change<'a> {
        Change::NodeClaim(delta)
    }
}

impl Stored for NodePool {
    type Key = NodePoolName;
    const KIND: Kind = Kind::NodePool;
    stored_in!(node_pools);

    fn key(&self) -> NodePoolName {
        self.metadata.name.as_deref().unwrap_or_default().into()
    }

    fn change<'a>(delta: Delta<'a, Self::Key, Self>) -> Change<'a> {
        Change::NodePool(delta)
    }
}

impl Stored for NodeOverlay {
    type Key = NodeOverlayName;
    const KIND: Kind = Kind::NodeOverlay;
    stored_in!(node_overlays);

    fn key(&self) -> NodeOverlayName {
        self.metadata.name.as_deref().unwrap_or_default().into()
    }

    fn change<'a>(delta: Delta<'a, Self::Key, Self>) -> Change<'a> {
        Change::NodeOverlay(delta)
    }
}

impl Stored for NodeClass {
    type Key = NodeClassKey;
    const KIND: Kind = Kind::NodeClass;
    stored_in!(node_classes);

    fn key(&self) -> NodeClassKey {
        self.key.clone()
    }

    fn change<'a>(delta: Delta<'a, Self::Key, Self>) -> Change<'a> {
        Change::NodeClass(delta)
    }
}

impl Stored for DaemonSet {
    type Key = NamespacedName;
    const KIND: Kind = Kind::DaemonSet;
    stored_in!(daemon_sets);

    fn key(&self) -> NamespacedName {
        self.name.clone()
    }

    fn reindex(state: &mut State, before: Option<&Arc<Self>>, after: Option<&Arc<Self>>) {
        forget_devices(state, before.map(|before| &before.uid), after.map(|after| &after.uid));
        if let Some(gone) = before.filter(|before| after.is_none_or(|after| after.uid != before.uid)) {
            Arc::make_mut(&mut state.template_resources).remove(&gone.uid);
        }
    }

    fn change<'a>(delta: Delta<'a, Self::Key, Self>) -> Change<'a> {
        Change::DaemonSet(delta)
    }
}

impl Stored for PodDisruptionBudget {
    type Key = NamespacedName;
    const KIND: Kind = Kind::PodDisruptionBudget;
    stored_in!(pod_disruption_budgets);

    fn key(&self) -> NamespacedName {
        self.name.clone()
    }

    fn change<'a>(delta: Delta<'a, Self::Key, Self>) -> Change<'a> {
        Change::PodDisruptionBudget(delta)
    }
}

impl Stored for VolumeAttachment {
    type Key = Arc<str>;
    const KIND: Kind = Kind::VolumeAttachment;
    stored_in!(volume_attachments);

    fn key(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn reindex(state: &mut State, before: Option<&Arc<Self>>, after: Option<&Arc<Self>>) {
        let by_node = |attachment: &Arc<Self>| (attachment.node_name.clone(), Arc::clone(&attachment.name));
        state.volume_attachments_by_node.update(before.map(by_node), after.map(by_node));
    }

    fn change<'a>(_: Delta<'a, Self::Key, Self>) -> Change<'a> {
        Change::Other(Self::KIND)
    }
}

macro_rules! stored_without_details {
    ($($type:ty, $kind:expr, $key:ty, $table:ident;)*) => {$(
        impl Stored for $type {
            type Key = $key;
            const KIND: Kind = $kind;
            stored_in!($table);

            fn key(&self) -> $key {
                self.name.clone()
            }

            fn change<'a>(_: Delta<'a, Self::Key, Self>) -> Change<'a> {
                Change::Other(Self::KIND)
            }
        }
    )*};
}

macro_rules! stored_for_devices {
    ($($type:ty, $kind:expr, $key:ty, $table:ident, $name:expr;)*) => {$(
        impl Stored for $type {
            type Key = $key;
            const KIND: Kind = $kind;
            stored_in!($table);

            fn key(&self) -> $key {
                $name(&self.meta.name)
            }

            fn change<'a>(_: Delta<'a, Self::Key, Self>) -> Change<'a> {
                Change::Other(Self::KIND)
            }
        }
    )*};
}

fn without_namespace(name: &NamespacedName) -> Arc<str> {
    Arc::clone(&name.name)
}

stored_for_devices! {
    DeviceClass, Kind::DeviceClass, Arc<str>, device_classes, without_namespace;
    ResourceSlice, Kind::ResourceSlice, Arc<str>, resource_slices, without_namespace;
    ResourceClaim, Kind::ResourceClaim, NamespacedName, resource_claims, NamespacedName::clone;
    ClaimTemplate, Kind::ResourceClaimTemplate, NamespacedName, resource_claim_templates, NamespacedName::clone;
    DeviceTaintRule, Kind::DeviceTaintRule, Arc<str>, device_taint_rules, without_namespace;
}

stored_without_details! {
    Namespace, Kind::Namespace, Arc<str>, namespaces;
    PersistentVolumeClaim, Kind::PersistentVolumeClaim, NamespacedName, persistent_volume_claims;
    PersistentVolume, Kind::PersistentVolume, Arc<str>, persistent_volumes;
    StorageClass, Kind::StorageClass, Arc<str>, storage_classes;
    LimitRange, Kind::LimitRange, NamespacedName, limit_ranges;
    PriorityClass, Kind::PriorityClass, Arc<str>, priority_classes;
    ResourceQuota, Kind::ResourceQuota, NamespacedName, resource_quotas;
    CsiNode, Kind::CsiNode, NodeName, csi_nodes;
}
