//! What the tables hold, and how each kind finds its table and indexes.

use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use api::{CapacityBuffer, NodeClaim, NodeClassReference, NodeOverlay, NodePool, labels};
use cluster::buffers::buffer_name;
use decode::capacity_buffer::{BufferTemplate, TemplateKey};
use decode::limit_range::LimitRange;
use decode::pod_selectors::{PodSelector, SelectorKey};
use decode::priority_class::PriorityClass;
use dra_types::{ClaimTemplate, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use model::quota::ResourceQuota;
use model::volume::{CsiNodeDriver, PersistentVolume, PersistentVolumeClaim, StorageClass};
use model::workload::{DaemonSet, PodDisruptionBudget, PodGroup};
use model::{Labels, NamespacedName, NodeClaimName, NodeName, NodeOverlayName, NodePoolName, Pod, ProviderId, Uid};

use super::kinds::Kept;
use super::state::State;

/// Which object of its name this is, and which state of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`. Kubernetes has since 1.35 promised that these compare as integers; one that is not
    /// an integer counts as 0.
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
    pub claims: Arc<dra_types::PodGroup>,
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

/// An object that the store holds.
pub trait Stored: Kept {
    /// The name of this object.
    fn key(&self) -> Self::Key;
    #[doc(hidden)]
    fn reindex(_state: &mut State, _before: Option<&Arc<Self>>, _after: Option<&Arc<Self>>) {}
}

impl Stored for Pod {
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
}

/// Forgets what devices read of an object that is not there any more.
fn forget_devices(state: &mut State, before: Option<&Uid>, after: Option<&Uid>) {
    if let Some(gone) = before.filter(|&gone| after != Some(gone) && state.device_pods.contains_key(gone)) {
        Arc::make_mut(&mut state.device_pods).remove(gone);
    }
}

impl Stored for NodeRecord {
    fn key(&self) -> NodeName {
        self.model.name.clone()
    }

    fn reindex(state: &mut State, before: Option<&Arc<Self>>, after: Option<&Arc<Self>>) {
        let by_provider_id = |node: &Arc<Self>| Some((node.model.provider_id.clone()?, node.model.name.clone()));
        state.nodes_by_provider_id.update(before.and_then(by_provider_id), after.and_then(by_provider_id));
    }
}

impl Stored for PodGroupRecord {
    fn key(&self) -> NamespacedName {
        self.model.name.clone()
    }
}

impl Stored for CapacityBuffer {
    fn key(&self) -> NamespacedName {
        buffer_name(self)
    }
}

impl Stored for BufferTemplate {
    fn key(&self) -> TemplateKey {
        self.key.clone()
    }
}

impl Stored for PodSelector {
    fn key(&self) -> SelectorKey {
        self.key.clone()
    }
}

impl Stored for NodeClaim {
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
}

impl Stored for NodePool {
    fn key(&self) -> NodePoolName {
        self.metadata.name.as_deref().unwrap_or_default().into()
    }
}

impl Stored for NodeOverlay {
    fn key(&self) -> NodeOverlayName {
        self.metadata.name.as_deref().unwrap_or_default().into()
    }
}

impl Stored for NodeClass {
    fn key(&self) -> NodeClassKey {
        self.key.clone()
    }
}

impl Stored for DaemonSet {
    fn key(&self) -> NamespacedName {
        self.name.clone()
    }

    fn reindex(state: &mut State, before: Option<&Arc<Self>>, after: Option<&Arc<Self>>) {
        forget_devices(state, before.map(|before| &before.uid), after.map(|after| &after.uid));
        if let Some(gone) = before.filter(|before| after.is_none_or(|after| after.uid != before.uid)) {
            Arc::make_mut(&mut state.template_resources).remove(&gone.uid);
        }
    }
}

impl Stored for PodDisruptionBudget {
    fn key(&self) -> NamespacedName {
        self.name.clone()
    }
}

impl Stored for VolumeAttachment {
    fn key(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn reindex(state: &mut State, before: Option<&Arc<Self>>, after: Option<&Arc<Self>>) {
        let by_node = |attachment: &Arc<Self>| (attachment.node_name.clone(), Arc::clone(&attachment.name));
        state.volume_attachments_by_node.update(before.map(by_node), after.map(by_node));
    }
}

macro_rules! stored_by_name {
    ($($type:ty, $key:ty;)*) => {$(
        impl Stored for $type {
            fn key(&self) -> $key {
                self.name.clone()
            }
        }
    )*};
}

macro_rules! stored_for_devices {
    ($($type:ty, $key:ty, $name:expr;)*) => {$(
        impl Stored for $type {
            fn key(&self) -> $key {
                $name(&self.meta.name)
            }
        }
    )*};
}

fn without_namespace(name: &NamespacedName) -> Arc<str> {
    Arc::clone(&name.name)
}

stored_for_devices! {
    DeviceClass, Arc<str>, without_namespace;
    ResourceSlice, Arc<str>, without_namespace;
    ResourceClaim, NamespacedName, NamespacedName::clone;
    ClaimTemplate, NamespacedName, NamespacedName::clone;
    DeviceTaintRule, Arc<str>, without_namespace;
}

stored_by_name! {
    Namespace, Arc<str>;
    PersistentVolumeClaim, NamespacedName;
    PersistentVolume, Arc<str>;
    StorageClass, Arc<str>;
    LimitRange, NamespacedName;
    PriorityClass, Arc<str>;
    ResourceQuota, NamespacedName;
    CsiNode, NodeName;
}
