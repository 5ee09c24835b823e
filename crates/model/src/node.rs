//! Nodes as the planner sees them.

use std::sync::Arc;

use crate::labels::Labels;
use crate::names::{NodeName, ProviderId, Uid};
use crate::pod::DoNotDisrupt;
use crate::resources::ResourceVec;
use crate::taint::Taint;
use crate::time::Timestamp;
use crate::volume::CsiNodeDriver;

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The name.
    pub name: NodeName,
    /// The object's uid.
    pub uid: Uid,
    /// What the cloud provider calls the machine.
    pub provider_id: Option<ProviderId>,
    /// The labels.
    pub labels: Labels,
    /// The annotations that matter.
    pub annotations: NodeAnnotations,
    /// The taints.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// All that the machine has.
    pub capacity: ResourceVec,
    /// What is there for pods.
    pub allocatable: ResourceVec,
    /// Whether condition `Ready` is true.
    pub ready: bool,
    /// All conditions, sorted by type.
    pub conditions: Vec<NodeCondition>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its deletion was requested (`metadata.deletionTimestamp`).
    pub deletion_timestamp: Option<Timestamp>,
    /// The CSI drivers on it, sorted by name; `None` until its CSINode is known.
    pub csi_drivers: Option<Vec<CsiNodeDriver>>,
}

/// Annotations of a node that the planner reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeAnnotations {
    /// Whether the node may not be disrupted.
    pub do_not_disrupt: DoNotDisrupt,
}

/// A condition of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCondition {
    /// Its type, such as `Ready`.
    pub condition_type: Arc<str>,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Since when.
    pub last_transition: Timestamp,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// Nobody knows.
    Unknown,
}
