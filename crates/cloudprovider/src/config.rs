//! What differs between clouds besides their machines: label rules, default grace period, time-outs.
//!
//! Differs: `provider-labels`. Karpenter keeps these in package variables that providers append to while the program
//! starts. Here they are one value that the provider hands out, and whoever needs a rule is given it.

use std::collections::BTreeSet;

use api::labels::ProviderLabels;
use model::DurationMs;

/// What a provider declares about itself. The default is a cloud without any peculiarity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderConfig {
    /// Its labels: well-known and restricted ones, aliases, the one that names a reservation.
    pub labels: ProviderLabels,
    /// Topology keys that say nothing about this cloud's machines: pods with a volume that goes by one are refused by
    /// name.
    pub unsupported_topology_keys: BTreeSet<String>,
    /// Storage provisioners, and CSI drivers, whose volumes this cloud's machines cannot use: pods with one are refused
    /// by name.
    pub unsupported_provisioners: BTreeSet<String>,
    /// `terminationGracePeriod` of NodeClaims whose NodePool gives none.
    pub default_termination_grace_period: Option<DurationMs>,
    /// How long after its creation a NodeClaim may go without a launched machine.
    pub launch_timeout: DurationMs,
}

impl ProviderConfig {
    /// Karpenter's launch time-out: 5 minutes.
    pub const DEFAULT_LAUNCH_TIMEOUT: DurationMs = DurationMs::from_seconds(5 * 60);
}

impl Default for ProviderConfig {
    fn default() -> Self {
        Self {
            labels: ProviderLabels::default(),
            unsupported_topology_keys: BTreeSet::new(),
            unsupported_provisioners: BTreeSet::new(),
            default_termination_grace_period: None,
            launch_timeout: Self::DEFAULT_LAUNCH_TIMEOUT,
        }
    }
}
