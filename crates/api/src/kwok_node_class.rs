//! KWOKNodeClass `karpenter.kwok.sh/v1alpha1`, the node class of the provider for fake nodes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::DurationString;

/// How fake nodes behave.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.kwok.sh",
    version = "v1alpha1",
    kind = "KWOKNodeClass",
    plural = "kwoknodeclasses",
    status = "KWOKNodeClassStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Configuration of fake nodes.",
    shortname = "kwoknc",
    shortname = "kwokncs",
    category = "karpenter"
)]
#[serde(rename_all = "camelCase")]
pub struct KWOKNodeClassSpec {
    /// How long after its launch a machine gets its Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_registration_delay: Option<DurationString>,
}

/// Whether a KWOKNodeClass can be used; it always can.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KWOKNodeClassStatus {
    /// `Ready` is true from the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
