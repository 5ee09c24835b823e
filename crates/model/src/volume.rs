//! Storage objects: the parts that restrict where pods go.

use std::sync::Arc;

use crate::names::{NamespacedName, Uid};
use crate::pod::NodeSelectorTerm;
use crate::requirement::Requirements;

/// A PersistentVolumeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistentVolumeClaim {
    /// Namespace and name.
    pub name: NamespacedName,
    /// The object's uid.
    pub uid: Uid,
    /// The volume it is or will be bound to.
    pub volume_name: Option<Arc<str>>,
    /// The storage class; `None` if the field is absent, `""` for explicitly none.
    pub storage_class: Option<Arc<str>>,
    /// How far it is.
    pub phase: ClaimPhase,
    /// How it may be used.
    pub access_modes: Vec<AccessMode>,
    /// Whether the volume binder has finished (annotation `pv.kubernetes.io/bind-completed`). A claim of a manifest,
    /// which has no status yet, counts as bound to the volume that it names.
    pub bind_completed: bool,
    /// Whether it is on its way out.
    pub is_being_deleted: bool,
}

/// How far a PersistentVolumeClaim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClaimPhase {
    /// Has no volume yet.
    Pending,
    /// Has one.
    Bound,
    /// Has lost it.
    Lost,
}

/// How a volume may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessMode {
    /// Written by one node.
    ReadWriteOnce,
    /// Read by many nodes.
    ReadOnlyMany,
    /// Written by many nodes.
    ReadWriteMany,
    /// Written by one pod.
    ReadWriteOncePod,
}

/// A PersistentVolume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistentVolume {
    /// The name.
    pub name: Arc<str>,
    /// Alternatives of nodes that reach it; none at all means every node does.
    pub node_affinity: Vec<NodeSelectorTerm>,
    /// The CSI driver (in-tree ones by the driver they were migrated to), if it counts against attachment limits.
    pub csi_driver: Option<Arc<str>>,
    /// What the driver calls it.
    pub csi_volume_handle: Option<Arc<str>>,
    /// The storage class.
    pub storage_class: Option<Arc<str>>,
    /// The claim it is bound to or kept for.
    pub claim: Option<NamespacedName>,
}

/// A StorageClass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageClass {
    /// The name.
    pub name: Arc<str>,
    /// Who makes its volumes.
    pub provisioner: Arc<str>,
    /// When volumes are bound.
    pub binding_mode: VolumeBindingMode,
    /// Alternatives of places where volumes may be made; none at all means everywhere.
    pub allowed_topologies: Vec<Requirements>,
    /// Whether claims without a class get this one.
    pub is_default: bool,
}

/// When a volume is bound to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VolumeBindingMode {
    /// At once.
    Immediate,
    /// Once a pod that uses it is placed.
    WaitForFirstConsumer,
}

/// A CSI driver as a CSINode lists it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CsiNodeDriver {
    /// The driver's name.
    pub name: Arc<str>,
    /// How many of its volumes can be attached; `None` for any number.
    pub attachable_volumes: Option<u32>,
}
