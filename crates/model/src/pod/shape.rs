//! What decides where a pod may go.

use std::sync::Arc;

use super::affinity::{NodeSelectorTerm, PodAffinity, Weighted};
use super::host_port::HostPort;
use crate::intern::{Interner, KeyId, ValueId};
use crate::labels::Labels;
use crate::names::{NamespacedName, ResourceClaimName};
use crate::requirement::Requirements;
use crate::resources::ResourceVec;
use crate::selector::LabelSelector;
use crate::taint::Toleration;
use crate::unsupported::Unsupported;

/// Everything about a pod that decides where it may go. Pods with equal shapes are one class.
///
/// References to objects carry the namespace, so that equal shapes mean the same objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PodShape {
    /// What it requests, including one of `pods`.
    pub requests: ResourceVec,
    /// `spec.nodeSelector`.
    pub node_selector: Requirements,
    /// The alternatives of the required node affinity. None at all means no requirement; an affinity that is present but
    /// matches nothing holds an unusable term.
    pub required_node_affinity: Vec<NodeSelectorTerm>,
    /// The preferred node affinity.
    pub preferred_node_affinity: Vec<Weighted<NodeSelectorTerm>>,
    /// The taints it puts up with.
    pub tolerations: Vec<Toleration>,
    /// How it wants to be spread.
    pub topology_spread: Vec<TopologySpreadConstraint>,
    /// Which pods it wants to be near to.
    pub pod_affinity: PodAffinity,
    /// Which pods it wants to be away from.
    pub pod_anti_affinity: PodAffinity,
    /// The ports it takes on its node.
    pub host_ports: Vec<HostPort>,
    /// The volumes that can restrict where it goes.
    pub volumes: Vec<VolumeRef>,
    /// The devices it claims.
    pub resource_claims: Vec<PodResourceClaim>,
    /// The group it is scheduled with.
    pub scheduling_group: Option<SchedulingGroup>,
    /// Constructs that were found and that nobody can take into account: the pod is refused for each.
    pub unsupported: Vec<Unsupported>,
}

impl PodShape {
    /// Whether node selector and required node affinity allow a node with these labels and this name, as kube-scheduler
    /// decides it. For `node_name` see [`NodeSelectorTerm::matches`].
    pub fn node_affinity_matches(&self, labels: &Labels, node_name: Option<ValueId>, interner: &Interner) -> bool {
        self.node_selector.matches_labels(labels, interner)
            && (self.required_node_affinity.is_empty()
                || self.required_node_affinity.iter().any(|term| term.matches(labels, node_name, interner)))
    }
}

/// How pods that a selector picks are to be spread over the values of a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TopologySpreadConstraint {
    /// How much more pods one value may have than the least.
    pub max_skew: u32,
    /// The label.
    pub topology_key: KeyId,
    /// What happens if it cannot be kept.
    pub when_unsatisfiable: WhenUnsatisfiable,
    /// Which pods count.
    pub selector: LabelSelector,
    /// The namespace they count in, which is the pod's own.
    pub namespace: Arc<str>,
    /// How many values there must be before the least is not zero.
    pub min_domains: Option<u32>,
    /// Whether only nodes count that the pod's node selector and affinity allow.
    pub node_affinity_policy: NodeInclusionPolicy,
    /// Whether only nodes count whose taints the pod tolerates.
    pub node_taints_policy: NodeInclusionPolicy,
    /// Keys whose values at the pod narrow the selector.
    pub match_label_keys: Vec<KeyId>,
}

/// What happens to a pod whose spread constraint cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WhenUnsatisfiable {
    /// It stays pending.
    DoNotSchedule,
    /// It is placed as well as possible.
    ScheduleAnyway,
}

/// Whether a property of nodes is looked at when topology values are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeInclusionPolicy {
    /// It is.
    Honor,
    /// It is not.
    Ignore,
}

/// A volume that can restrict where a pod goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum VolumeRef {
    /// A claim that exists by itself.
    Claim(NamespacedName),
    /// A claim that is made for this pod.
    Ephemeral {
        /// The volume's name in the pod.
        volume: Arc<str>,
        /// The storage class; `None` for the default one.
        storage_class: Option<Arc<str>>,
    },
}

/// One entry of `spec.resourceClaims`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodResourceClaim {
    /// The entry's name, which containers refer to.
    pub name: ResourceClaimName,
    /// Where the claim comes from.
    pub source: PodResourceClaimSource,
}

/// Where a ResourceClaim comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PodResourceClaimSource {
    /// It exists by itself and may be shared.
    Claim(NamespacedName),
    /// It is made for this pod from a ResourceClaimTemplate.
    Template(NamespacedName),
}

/// The group that a pod is scheduled with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SchedulingGroup {
    /// Its PodGroup.
    pub pod_group: NamespacedName,
}
