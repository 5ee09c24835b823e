//! What `dovetail dra allocate` prints, as data.
//!
//! The JSON form is an interface: fields are added, never renamed, and `schemaVersion` counts what is not compatible.

use std::collections::BTreeMap;
use std::sync::Arc;

use dra_sched::explain::Explanation;
use serde::Serialize;
use serde_json::Value;

pub(super) const SCHEMA_VERSION: u32 = 1;

/// What is printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) schema_version: u32,
    pub(super) kubernetes: String,
    pub(super) gates: Vec<&'static str>,
    /// Pods that wait and need devices, in the order in which they were asked for.
    pub(super) pods: Vec<PodAnswer>,
    /// How many pods that wait need no devices.
    pub(super) without_devices: usize,
    #[serde(skip)]
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodAnswer {
    pub(super) pod: String,
    pub(super) priority: i32,
    /// Why it is asked about although it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) evicted_by: Option<String>,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all_fields = "camelCase")]
pub(super) enum Outcome {
    Allocated {
        node: String,
        /// kube-scheduler's score of firstAvailable choices.
        score: u32,
        claims: Vec<ClaimAnswer>,
        /// What the devices cost of the node's own resources.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        node_resources: BTreeMap<Arc<str>, String>,
        /// What they cost, claim after claim.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        costs_of_claims: Vec<CostOfClaim>,
    },
    /// No node gives it its devices.
    Refused { nodes: Vec<NodeRefusal> },
    /// The search was given up on some nodes, and no other gives it its devices.
    Undecided { nodes: Vec<String>, steps: u64, refused: Vec<NodeRefusal> },
    /// It cannot be scheduled at all.
    Invalid { reason: String },
}

/// What a claim's devices cost of one of the node's own resources.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CostOfClaim {
    pub(super) claim: String,
    pub(super) resource: Arc<str>,
    pub(super) devices: usize,
    pub(super) amount: String,
    /// What each of the devices costs, where all cost the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) each: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClaimAnswer {
    /// The claim that exists, or the entry of the pod that one is made for.
    pub(super) claim: String,
    pub(super) state: ClaimState,
    pub(super) devices: Vec<DeviceAnswer>,
    /// As in `status.allocation.devices.config` of the claim.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) config: Vec<Value>,
    /// As in `status.allocation.nodeSelector` of the claim; None for everywhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node_selector: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum ClaimState {
    /// Allocated for this pod.
    New,
    /// Allocated before, in the cluster or for a pod before this one.
    Shared,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeviceAnswer {
    pub(super) request: String,
    pub(super) driver: String,
    pub(super) pool: String,
    pub(super) device: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) admin_access: bool,
    /// Whether others may have a share of it too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) shared: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) consumed_capacity: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) binding_conditions: Vec<Arc<str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) binding_failure_conditions: Vec<Arc<str>>,
}

/// Why nodes give nothing. Nodes that say the same are together, with the devices' names of the first.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeRefusal {
    pub(super) nodes: Vec<String>,
    #[serde(flatten)]
    pub(super) why: Explanation,
}

impl Report {
    pub(super) fn all_allocated(&self) -> bool {
        self.pods.iter().all(|pod| matches!(pod.outcome, Outcome::Allocated { .. }))
    }
}
