//! Objects that stand for or restrict groups of pods.

use std::sync::Arc;

use crate::labels::Labels;
use crate::names::{NamespacedName, Uid};
use crate::pod::PodShape;
use crate::selector::LabelSelector;
use crate::{KeyId, Unsupported};

/// A DaemonSet: its pods will run on each new machine that they may run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonSet {
    /// Namespace and name.
    pub name: NamespacedName,
    /// The object's uid.
    pub uid: Uid,
    /// What its pods look like.
    pub template: PodTemplate,
    /// Which of its templates this is. Pods of the same one say so in a label; see [`crate::Pod::template_generation`].
    pub template_generation: Option<i64>,
}

/// The pods that a workload will make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodTemplate {
    /// Their labels.
    pub labels: Labels,
    /// Their priority, where the template says it.
    pub priority: Option<i32>,
    /// The PriorityClass that decides it otherwise: admission completes pods, not templates. None for the cluster's
    /// default.
    pub priority_class: Option<Arc<str>>,
    /// What decides where they may go.
    pub shape: Arc<PodShape>,
}

/// A PodDisruptionBudget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodDisruptionBudget {
    /// Namespace and name.
    pub name: NamespacedName,
    /// Whose pods, in its own namespace.
    pub selector: LabelSelector,
    /// How many of them may be evicted now.
    pub disruptions_allowed: i32,
    /// Whether its spec never allows an eviction (`maxUnavailable` 0 or `minAvailable` 100 %).
    pub never_allows_disruption: bool,
    /// Which pods that are not ready may be evicted.
    pub unhealthy_pod_eviction_policy: UnhealthyPodEvictionPolicy,
}

/// When a PodDisruptionBudget allows the eviction of pods that are not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UnhealthyPodEvictionPolicy {
    /// If enough others are healthy.
    #[default]
    IfHealthyBudget,
    /// Always.
    AlwaysAllow,
}

/// A PodGroup: pods that are scheduled together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodGroup {
    /// Namespace and name.
    pub name: NamespacedName,
    /// How many must be placed at once; `None` if each may be placed by itself.
    pub min_count: Option<u32>,
    /// The label that must have the same value for the nodes of all its pods.
    pub topology_key: Option<KeyId>,
    /// Constructs in it that cannot be planned for.
    pub unsupported: Vec<Unsupported>,
}
