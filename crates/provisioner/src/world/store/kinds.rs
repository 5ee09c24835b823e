//! The table of the kinds that the store holds. A new one is a line here, a table in [`State`], a row of
//! [`decode::api_resources`] and a source in [`watch`](super::watch) with its decoder.

use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use api::{CapacityBuffer, NodeClaim, NodeOverlay, NodePool};
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

/// A type of which the store has a table.
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
    ($($kind:ident, $name:literal, $type:ty, $key:ty, $table:ident;)*) => {
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

// The kind, as manifests spell it, its type, the type of its name, its table.
kinds! {
    Pod, "Pod", Pod, NamespacedName, pods;
    Node, "Node", NodeRecord, NodeName, nodes;
    NodeClaim, "NodeClaim", NodeClaim, NodeClaimName, node_claims;
    NodePool, "NodePool", NodePool, NodePoolName, node_pools;
    NodeOverlay, "NodeOverlay", NodeOverlay, NodeOverlayName, node_overlays;
    NodeClass, "NodeClass", NodeClass, NodeClassKey, node_classes;
    Namespace, "Namespace", Namespace, Arc<str>, namespaces;
    DaemonSet, "DaemonSet", DaemonSet, NamespacedName, daemon_sets;
    PersistentVolumeClaim, "PersistentVolumeClaim", PersistentVolumeClaim, NamespacedName, persistent_volume_claims;
    PersistentVolume, "PersistentVolume", PersistentVolume, Arc<str>, persistent_volumes;
    StorageClass, "StorageClass", StorageClass, Arc<str>, storage_classes;
    CsiNode, "CSINode", CsiNode, NodeName, csi_nodes;
    VolumeAttachment, "VolumeAttachment", VolumeAttachment, Arc<str>, volume_attachments;
    PodDisruptionBudget, "PodDisruptionBudget", PodDisruptionBudget, NamespacedName, pod_disruption_budgets;
    DeviceClass, "DeviceClass", DeviceClass, Arc<str>, device_classes;
    ResourceSlice, "ResourceSlice", ResourceSlice, Arc<str>, resource_slices;
    ResourceClaim, "ResourceClaim", ResourceClaim, NamespacedName, resource_claims;
    ResourceClaimTemplate, "ResourceClaimTemplate", ClaimTemplate, NamespacedName, resource_claim_templates;
    DeviceTaintRule, "DeviceTaintRule", DeviceTaintRule, Arc<str>, device_taint_rules;
    PodGroup, "PodGroup", PodGroupRecord, NamespacedName, pod_groups;
    PriorityClass, "PriorityClass", PriorityClass, Arc<str>, priority_classes;
    ResourceQuota, "ResourceQuota", ResourceQuota, NamespacedName, resource_quotas;
    CapacityBuffer, "CapacityBuffer", CapacityBuffer, NamespacedName, capacity_buffers;
    BufferTemplate, "PodTemplate", BufferTemplate, TemplateKey, buffer_templates;
    PodSelector, "Service", PodSelector, SelectorKey, pod_selectors;
    LimitRange, "LimitRange", LimitRange, NamespacedName, limit_ranges;
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
