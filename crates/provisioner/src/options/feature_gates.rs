//! Feature gates in Karpenter's form, `Name=true,Other=false`.

use std::collections::BTreeMap;
use std::fmt;

use super::{Error, parse::go_bool};

/// Behaviour that can be switched.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "gates are what these are")]
pub struct FeatureGates {
    /// Broken nodes are replaced.
    pub node_repair: bool,
    /// Reserved offerings are used.
    pub reserved_capacity: bool,
    /// Spot machines are replaced by cheaper spot machines.
    pub spot_to_spot_consolidation: bool,
    /// NodeOverlays are read. Differs: `default-options`. It is on by default.
    pub node_overlay: bool,
    /// NodePools with `replicas` are served.
    pub static_capacity: bool,
    /// CapacityBuffers are served.
    pub capacity_buffer: bool,
    /// A drifted machine is deleted before its replacement is launched, if there is no room for both.
    pub terminate_first_drift: bool,
    /// A broken machine is deleted before its replacement is launched, if there is no room for both.
    pub terminate_first_repair: bool,
    /// Pods are told which of them ReplicaSets are to delete first.
    pub pod_deletion_cost_management: bool,
    /// Gates that we do not know. A provider of Karpenter may have had its own, so they are no error.
    pub unknown: Vec<String>,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            node_repair: false,
            reserved_capacity: true,
            spot_to_spot_consolidation: false,
            node_overlay: true,
            static_capacity: false,
            capacity_buffer: false,
            terminate_first_drift: false,
            terminate_first_repair: false,
            pod_deletion_cost_management: false,
            unknown: Vec::new(),
        }
    }
}

impl FeatureGates {
    /// Every known gate by name.
    pub fn by_name(&self) -> BTreeMap<String, bool> {
        [
            ("NodeRepair", self.node_repair),
            ("ReservedCapacity", self.reserved_capacity),
            ("SpotToSpotConsolidation", self.spot_to_spot_consolidation),
            ("NodeOverlay", self.node_overlay),
            ("StaticCapacity", self.static_capacity),
            ("CapacityBuffer", self.capacity_buffer),
            ("TerminateFirstDrift", self.terminate_first_drift),
            ("TerminateFirstRepair", self.terminate_first_repair),
            ("PodDeletionCostManagement", self.pod_deletion_cost_management),
        ]
        .map(|(name, is_on)| (name.to_owned(), is_on))
        .into()
    }

    /// The defaults with what `text` changes; of two mentions the later counts.
    ///
    /// # Errors
    /// If an entry is not `Name=bool`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut gates = Self::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let malformed =
                |reason: &str| Error { flag: "feature-gates", value: entry.to_owned(), reason: reason.to_owned() };
            let (name, value) = entry.split_once('=').ok_or_else(|| malformed("must have the form Name=true"))?;
            let value = go_bool(value.trim()).map_err(|reason| malformed(&reason))?;
            match name.trim() {
                "NodeRepair" => gates.node_repair = value,
                "ReservedCapacity" => gates.reserved_capacity = value,
                "SpotToSpotConsolidation" => gates.spot_to_spot_consolidation = value,
                "NodeOverlay" => gates.node_overlay = value,
                "StaticCapacity" => gates.static_capacity = value,
                "CapacityBuffer" => gates.capacity_buffer = value,
                "TerminateFirstDrift" => gates.terminate_first_drift = value,
                "TerminateFirstRepair" => gates.terminate_first_repair = value,
                "PodDeletionCostManagement" => gates.pod_deletion_cost_management = value,
                other => gates.unknown.push(other.to_owned()),
            }
        }
        Ok(gates)
    }
}

/// As [`FeatureGates::parse`] reads them, in the order of their names.
impl fmt::Display for FeatureGates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gates: Vec<String> = self.by_name().iter().map(|(name, is_on)| format!("{name}={is_on}")).collect();
        f.write_str(&gates.join(","))
    }
}
