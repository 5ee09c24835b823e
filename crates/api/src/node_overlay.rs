//! NodeOverlay `karpenter.sh/v1alpha1`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{DynamicResources, NodeSelectorRequirement, ResourceList};

/// Which instance types to correct, and how.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1alpha1",
    kind = "NodeOverlay",
    plural = "nodeoverlays",
    status = "NodeOverlayStatus",
    derive = "PartialEq",
    doc = "A correction of what the cloud provider says about instance types.",
    shortname = "overlays",
    category = "karpenter",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Weight", type_ = "integer", json_path = ".spec.weight", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct NodeOverlaySpec {
    /// Labels of the instance types and offerings that are corrected; all of them where the list is empty.
    pub requirements: Vec<NodeSelectorRequirement>,
    /// Change of the price: a signed amount (`+0.5`) or a signed percentage (`-10%`). Not together with `price`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_adjustment: Option<String>,
    /// The price, in place of the provider's. Not together with `priceAdjustment`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// Resources that the machines have beside those the provider knows of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<ResourceList>,
    /// What DRA drivers will publish on the machines. For each driver, the overlay of the highest weight gives all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_resources: Option<DynamicResources>,
    /// Where overlays correct the same thing, the highest weight wins; none is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

/// Whether a NodeOverlay is in effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeOverlayStatus {
    /// Whether the overlay is valid and conflicts with no other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
