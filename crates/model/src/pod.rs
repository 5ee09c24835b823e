//! Pods as the planner sees them.
//!
//! A [`Pod`] is an individual; its [`PodShape`] is everything that decides where it may go. Pods with equal shapes are
//! one class. Labels are not part of the shape: they matter only where some selector reads them, which is for the
//! planner to know.

mod affinity;
mod host_port;
mod resizing;
mod shape;

use std::sync::Arc;

use crate::labels::Labels;
use crate::names::{NamespacedName, NodeName, ResourceClaimName, Uid};
use crate::time::{DurationMs, Timestamp};

pub use affinity::{NodeSelectorTerm, PodAffinity, PodAffinityTerm, UnusableTerm, Weighted};
pub use host_port::{HostPort, Protocol};
pub use resizing::Resizing;
pub use shape::{
    NodeInclusionPolicy, PodResourceClaim, PodResourceClaimSource, PodShape, SchedulingGroup, SpreadSource,
    TopologySpreadConstraint, VolumeRef, WhenUnsatisfiable,
};

/// The scheduler of pods that name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// One pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name.
    pub name: NamespacedName,
    /// The object's uid.
    pub uid: Uid,
    /// The labels.
    pub labels: Labels,
    /// When it was created.
    pub created_at: Timestamp,
    /// When the kubelet took it on.
    pub started_at: Option<Timestamp>,
    /// When its deletion ends, if it is being deleted (`metadata.deletionTimestamp`).
    pub deletion_timestamp: Option<Timestamp>,
    /// Its priority; 0 if none was set.
    pub priority: i32,
    /// Whether it may preempt other pods.
    pub preemption_policy: PreemptionPolicy,
    /// The controller that made it, or its first owner if none is a controller.
    pub owner: Option<Owner>,
    /// Whether a DaemonSet owns it.
    pub is_daemon: bool,
    /// Which of its DaemonSet's templates it was made from, if its labels say so.
    pub template_generation: Option<i64>,
    /// Whether it mirrors a static pod of a kubelet.
    pub is_mirror: bool,
    /// The node it is bound to.
    pub node_name: Option<NodeName>,
    /// The node that it is nominated to (`status.nominatedNodeName`).
    pub nominated_node_name: Option<NodeName>,
    /// Its phase.
    pub phase: PodPhase,
    /// Whether its kubelet says that it is not ready (condition `Ready` is false). Until the kubelet has said anything
    /// it does not count as unready.
    pub is_unready: bool,
    /// What kube-scheduler said about it.
    pub scheduling: SchedulingState,
    /// Which scheduler places it.
    pub scheduler_name: Arc<str>,
    /// Whether and how long it may not be disrupted (annotation).
    pub do_not_disrupt: DoNotDisrupt,
    /// What evicting it costs, by annotation `karpenter.sh/disruption-cost`.
    pub disruption_cost: Option<i32>,
    /// Annotation `controller.kubernetes.io/pod-deletion-cost`: a ReplicaSet that is scaled down deletes the pods with
    /// the lowest first.
    pub deletion_cost: Option<i32>,
    /// Its termination grace period.
    pub termination_grace_period_s: Option<i64>,
    /// The ResourceClaim that stands for each entry of `spec.resourceClaims` by the entry's name, where it is known:
    /// generated names differ from pod to pod, so they are not part of the shape.
    pub resource_claim_names: Vec<(ResourceClaimName, ResourceClaimName)>,
    /// Machines, by their NodeClaims' uids, that it may enter while they are held for their planned pods. Such a
    /// toleration is given to single pods, so it is not part of the shape.
    pub may_enter: Vec<Uid>,
    /// Names of plugin directories of its kubelet that it mounts, where it can register plugins (CSI, DRA); `None`
    /// where it can register none. No name is known where it mounts the directory of all plugins.
    pub kubelet_plugins: Option<Arc<[Arc<str>]>>,
    /// What its kubelet says of its resources where that is not what it asks for.
    pub resizing: Option<Arc<Resizing>>,
    /// Why its requests cannot be read, for a running pod; then its node counts as full.
    pub unreadable: Option<Arc<str>>,
    /// What decides where it may go.
    pub shape: Arc<PodShape>,
}

impl Pod {
    /// Whether the pods are equal in all that kube-scheduler looks at, so that they can change places.
    pub fn is_alike(&self, other: &Self) -> bool {
        self.name.namespace == other.name.namespace
            && self.labels == other.labels
            && self.priority == other.priority
            && self.preemption_policy == other.preemption_policy
            && self.scheduler_name == other.scheduler_name
            && self.shape == other.shape
    }
}

/// Who made an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The API group and version, such as `apps/v1`.
    pub api_version: Arc<str>,
    /// The kind, such as `ReplicaSet`.
    pub kind: Arc<str>,
    /// The name, in the object's own namespace if the kind has namespaces.
    pub name: Arc<str>,
    /// The uid.
    pub uid: Uid,
    /// Whether it is the managing controller.
    pub controller: bool,
}

/// How far a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PodPhase {
    /// Not all containers run yet.
    #[default]
    Pending,
    /// At least one container runs.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, at least one badly.
    Failed,
    /// The kubelet cannot be reached.
    Unknown,
}

impl PodPhase {
    /// Whether the pod has ended and holds nothing any more.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Succeeded | Self::Failed => true,
            Self::Pending | Self::Running | Self::Unknown => false,
        }
    }
}

/// What kube-scheduler said about a pod (condition `PodScheduled`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SchedulingState {
    /// Nothing yet.
    #[default]
    NotTried,
    /// No node would do.
    Unschedulable,
    /// Scheduling gates hold it back.
    Gated,
    /// It is bound.
    Scheduled,
}

/// Whether a pod may push others out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PreemptionPolicy {
    /// Those of lower priority.
    #[default]
    PreemptLowerPriority,
    /// None.
    Never,
}

/// What `karpenter.sh/do-not-disrupt` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DoNotDisrupt {
    /// Nothing: disruption is never forbidden.
    #[default]
    Never,
    /// Disruption is always forbidden.
    Always,
    /// Disruption is forbidden for so long after the start.
    For(DurationMs),
    /// A value that cannot be read: it does not forbid disruption, but an event names it.
    Invalid,
}
