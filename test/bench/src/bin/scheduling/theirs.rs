//! Karpenter's scheduler, in a process of its own for each case.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// What the program of `test/bench/karpenter` prints.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Answer {
    pub read_nanos: u64,
    /// Of a whole round: copying nodes, topology, scheduler, solution.
    pub cpu_nanos: u64,
    pub wall_nanos: u64,
    /// Of the solution alone.
    pub solve_cpu_nanos: u64,
    pub peak_kib: u64,
    /// It was stopped; what it had decided by then is here.
    pub timed_out: bool,
    pub claims: Vec<Claim>,
    pub existing: Vec<Placement>,
    pub unplaced: Vec<String>,
    pub first_error: String,
}

/// A NodeClaim that it would create.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Claim {
    pub node_pool: String,
    pub instance_types: Vec<String>,
    pub requirements: Vec<ClaimRequirement>,
    pub pods: Vec<String>,
}

/// What it asks of a label.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimRequirement {
    pub key: String,
    pub operator: String,
    pub values: Vec<String>,
}

/// Pods on a node that is there.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Placement {
    pub node: String,
    pub pods: Vec<String>,
}

/// The arguments with which the program plans a case.
pub(crate) fn arguments(case: &Path, limit_seconds: u64, workers: usize) -> Vec<String> {
    vec![format!("-case={}", case.display()), format!("-limit={limit_seconds}s"), format!("-workers={workers}")]
}
