//! The table of the kinds that the store holds. A new one is a line here, a table in [`State`], a row of
//! [`decode::api_resources`] and a source in [`watch`](super::watch) with its decoder.

use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use api::{CapacityBuffer, NodeClaim, NodeOverlay, NodePool};
use decode::api_resources::{
    CAPACITY_BUFFER, CSI_NODE, DAEMON_SET, DEVICE_CLASS, DEVICE_TAINT_RULE, LIMIT_RANGE, NAMESPACE, NODE, NODE_CLAIM,
    NODE_OVERLAY, NODE_POOL, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD, POD_DISRUPTION_BUDGET, POD_GROUP,
    POD_TEMPLATE, PRIORITY_CLASS, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, RESOURCE_QUOTA, RESOURCE_SLICE, SERVICE,
    STORAGE_CLASS, VOLUME_ATTACHMENT,
};
use decode::capacity_buffer::{BufferTemplate, TemplateKey};
use decode::limit_range::LimitRange;
use decode::pod_selectors::{PodSelector, SelectorKey};
use decode::priority_class::PriorityClass;
use dra_types::{ClaimTemplate, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use model::quota::ResourceQuota;
use model::volume::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use model::workload::{DaemonSet, PodDisruptionBudget};
use model::{NamespacedName, NodeClaimName, NodeName, NodeOverlayName, NodePoolName, Pod};

use super::object::{CsiNode, Namespace, NodeClass, NodeClassKey, NodeRecord, PodGroupRecord, VolumeAttachment};
use super::state::State;
use super::{ClusterStore, Table};

/// A type that the store has a table of.
pub trait Kept: Debug + Send + Sync + Sized + 'static {
    /// The object's name.
    type Key: Clone + Debug + Display + Ord + Send + Sync;
    /// Its kind.
    const KIND: Kind;

    /// Its kind's table.
    fn table(state: &State) -> &Table<Self::Key, Self>;
    #[doc(hidden)]
    fn table_mut(state: &mut State) -> &mut Table<Self::Key, Self>;
}

macro_rules! kinds {
    ($($kind:ident, $name:expr, $type:ty, $key:ty, $table:ident;)*) => {
        /// The kinds that the store watches.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "the names are the kinds' own")]
        pub enum Kind {
            $($kind,)*
        }

        impl Kind {
            /// All kinds, in the order in which they are declared.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// The kind as manifests spell it.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }

        $(
            impl Kept for $type {
                type Key = $key;
                const KIND: Kind = Kind::$kind;

                fn table(state: &State) -> &Table<$key, Self> {
                    &state.$table
                }

                fn table_mut(state: &mut State) -> &mut Table<$key, Self> {
                    &mut state.$table
                }
            }
        )*

        impl ClusterStore {
            /// Tells subscribers of whatever differs, kind by kind.
            pub(super) fn tell_differences(&self, before: &State, after: &State) {
                $(self.tell_difference::<$type>(before, after);)*
            }
        }
    };
}

// The kind, as manifests spell it, its type, the type of its name, its table. What is read from several resources has
// the name of the first. Which node classes there are is for the provider to say.
kinds! {
    Pod, POD.kind, Pod, NamespacedName, pods;
    Node, NODE.kind, NodeRecord, NodeName, nodes;
    NodeClaim, NODE_CLAIM.kind, NodeClaim, NodeClaimName, node_claims;
    NodePool, NODE_POOL.kind, NodePool, NodePoolName, node_pools;
    NodeOverlay, NODE_OVERLAY.kind, NodeOverlay, NodeOverlayName, node_overlays;
    NodeClass, "NodeClass", NodeClass, NodeClassKey, node_classes;
    Namespace, NAMESPACE.kind, Namespace, Arc<str>, namespaces;
    DaemonSet, DAEMON_SET.kind, DaemonSet, NamespacedName, daemon_sets;
    PersistentVolumeClaim, PERSISTENT_VOLUME_CLAIM.kind, PersistentVolumeClaim, NamespacedName,
        persistent_volume_claims;
    PersistentVolume, PERSISTENT_VOLUME.kind, PersistentVolume, Arc<str>, persistent_volumes;
    StorageClass, STORAGE_CLASS.kind, StorageClass, Arc<str>, storage_classes;
    CsiNode, CSI_NODE.kind, CsiNode, NodeName, csi_nodes;
    VolumeAttachment, VOLUME_ATTACHMENT.kind, VolumeAttachment, Arc<str>, volume_attachments;
    PodDisruptionBudget, POD_DISRUPTION_BUDGET.kind, PodDisruptionBudget, NamespacedName, pod_disruption_budgets;
    DeviceClass, DEVICE_CLASS.kind, DeviceClass, Arc<str>, device_classes;
    ResourceSlice, RESOURCE_SLICE.kind, ResourceSlice, Arc<str>, resource_slices;
    ResourceClaim, RESOURCE_CLAIM.kind, ResourceClaim, NamespacedName, resource_claims;
    ResourceClaimTemplate, RESOURCE_CLAIM_TEMPLATE.kind, ClaimTemplate, NamespacedName, resource_claim_templates;
    DeviceTaintRule, DEVICE_TAINT_RULE.kind, DeviceTaintRule, Arc<str>, device_taint_rules;
    PodGroup, POD_GROUP.kind, PodGroupRecord, NamespacedName, pod_groups;
    PriorityClass, PRIORITY_CLASS.kind, PriorityClass, Arc<str>, priority_classes;
    ResourceQuota, RESOURCE_QUOTA.kind, ResourceQuota, NamespacedName, resource_quotas;
    CapacityBuffer, CAPACITY_BUFFER.kind, CapacityBuffer, NamespacedName, capacity_buffers;
    BufferTemplate, POD_TEMPLATE.kind, BufferTemplate, TemplateKey, buffer_templates;
    PodSelector, SERVICE.kind, PodSelector, SelectorKey, pod_selectors;
    LimitRange, LIMIT_RANGE.kind, LimitRange, NamespacedName, limit_ranges;
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
