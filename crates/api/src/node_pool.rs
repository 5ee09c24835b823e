//! NodePool `karpenter.sh/v1`.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::apis::meta::v1::Condition};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    DurationString, NillableDuration, NodeClassReference, NodeSelectorRequirementWithMinValues, ResourceList,
    disruption::Disruption, node_claim::default_expire_after,
};

/// What kind of nodes may be launched for pods that have no place, and when they may be disrupted. A NodePool can
/// launch nodes of many sizes; each node's properties come from the NodePool together with the pods it is for.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodePool",
    plural = "nodepools",
    status = "NodePoolStatus",
    derive = "PartialEq",
    doc = "A set of rules by which nodes are launched, disrupted and limited.",
    category = "karpenter",
    scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.nodes"),
    printcolumn(name = "NodeClass", type_ = "string", json_path = ".spec.template.spec.nodeClassRef.name"),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.nodes"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Weight", type_ = "integer", json_path = ".spec.weight", priority = 1),
    printcolumn(name = "CPU", type_ = "string", json_path = ".status.resources.cpu", priority = 1),
    printcolumn(name = "Memory", type_ = "string", json_path = ".status.resources.memory", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSpec {
    /// What NodeClaims of this NodePool look like before pods narrow them.
    pub template: NodeClaimTemplate,
    /// When and how fast this NodePool's nodes may be disrupted voluntarily.
    #[serde(default)]
    pub disruption: Disruption,
    /// Most that all nodes of this NodePool may add up to, by resource; `nodes` counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceList>,
    /// Among NodePools that would do, the one with the highest weight is tried first; none is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// Alpha. Keeps this many nodes whether pods need them or not, and makes the NodePool static.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
}

/// What NodeClaims of a NodePool look like before pods narrow them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplate {
    /// Labels and annotations of the NodeClaims and their nodes.
    #[serde(default, skip_serializing_if = "NodeClaimTemplateMetadata::is_empty")]
    pub metadata: NodeClaimTemplateMetadata,
    /// The rest of the NodeClaims.
    pub spec: NodeClaimTemplateSpec,
}

/// Labels and annotations that a NodePool gives to its NodeClaims and their nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplateMetadata {
    /// Labels of the nodes; pods may select them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl NodeClaimTemplateMetadata {
    /// Whether there is neither a label nor an annotation.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

/// What a NodePool asks of its NodeClaims.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplateSpec {
    /// Taints of the nodes, for as long as they live.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Taints that the nodes start with and that something else removes; pods are planned as if they were gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub startup_taints: Vec<Taint>,
    /// Labels that the nodes must have, and with them the instance types, zones and so on that are allowed.
    pub requirements: Vec<NodeSelectorRequirementWithMinValues>,
    /// The provider's own configuration of the nodes.
    pub node_class_ref: NodeClassReference,
    /// How long a deleted node may be drained before its pods are removed by force; no bound where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<DurationString>,
    /// Age at which a node is deleted, or `Never`.
    #[serde(default = "default_expire_after")]
    pub expire_after: NillableDuration,
}

/// What is known about a NodePool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// Sum of the capacity of the NodePool's nodes, and their number as `nodes`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: ResourceList,
    /// Number of the NodePool's nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i64>,
    /// Generation of the node class for which registration health was last counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_class_observed_generation: Option<i64>,
    /// What works and what does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
