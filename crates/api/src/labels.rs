//! Label keys and values, and which of them users may set.
//!
//! What belongs to one cloud provider is a value of [`ProviderLabels`], handed in by the provider.
//! Differs: `provider-labels`. Karpenter keeps these sets in package variables that providers append to while the
//! program starts.

use std::collections::{BTreeMap, BTreeSet};

use crate::groups;

/// The NodePool that a NodeClaim or Node came from.
pub const NODEPOOL: &str = "karpenter.sh/nodepool";
/// On a NodeOverlay, `true`: it was generated from what a machine has published, and ranks below every other.
pub const GENERATED: &str = "dovetail.sh/generated";
/// On a Node that passed initialization, `"true"`.
pub const INITIALIZED: &str = "karpenter.sh/initialized";
/// On a Node whose NodeClaim was found and synced onto it, `"true"`.
pub const REGISTERED: &str = "karpenter.sh/registered";
/// On a Node that registers: leave its taints as they are, `"true"`.
pub const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";
/// How a machine is bought: one of [`CAPACITY_TYPES`].
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";

/// Value of [`CAPACITY_TYPE`]: spare capacity that can be taken back.
pub const CAPACITY_TYPE_SPOT: &str = "spot";
/// Value of [`CAPACITY_TYPE`]: paid by use.
pub const CAPACITY_TYPE_ON_DEMAND: &str = "on-demand";
/// Value of [`CAPACITY_TYPE`]: paid in advance.
pub const CAPACITY_TYPE_RESERVED: &str = "reserved";
/// All values of [`CAPACITY_TYPE`].
pub const CAPACITY_TYPES: [&str; 3] = [CAPACITY_TYPE_RESERVED, CAPACITY_TYPE_SPOT, CAPACITY_TYPE_ON_DEMAND];

/// `kubernetes.io/hostname`.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// `pod-template-hash`: which revision of a Deployment a pod is of.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";
/// `kubernetes.io/arch`.
pub const ARCH: &str = "kubernetes.io/arch";
/// `kubernetes.io/os`.
pub const OS: &str = "kubernetes.io/os";
/// `topology.kubernetes.io/zone`.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// `topology.kubernetes.io/region`.
pub const REGION: &str = "topology.kubernetes.io/region";
/// `node.kubernetes.io/instance-type`.
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
/// `node.kubernetes.io/windows-build`.
pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
/// Set on a Node that terminates, so that load balancers let go of it; the value is
/// [`EXCLUDE_FROM_LOAD_BALANCERS_VALUE`].
pub const EXCLUDE_FROM_LOAD_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Value of [`EXCLUDE_FROM_LOAD_BALANCERS`].
pub const EXCLUDE_FROM_LOAD_BALANCERS_VALUE: &str = "karpenter";

/// Value of [`ARCH`].
pub const ARCH_AMD64: &str = "amd64";
/// Value of [`ARCH`].
pub const ARCH_ARM64: &str = "arm64";
/// Value of [`OS`].
pub const OS_LINUX: &str = "linux";
/// Value of [`OS`].
pub const OS_WINDOWS: &str = "windows";
/// Value of a label that is a flag.
pub const TRUE: &str = "true";

/// Keys that NodePools may constrain although their domain is restricted, and that a pod may ask for before any
/// NodePool defines them.
pub const WELL_KNOWN: [&str; 8] = [NODEPOOL, ZONE, REGION, INSTANCE_TYPE, ARCH, OS, CAPACITY_TYPE, WINDOWS_BUILD];

/// Old spellings of label keys, and the key that each stands for.
pub const ALIASES: [(&str, &str); 5] = [
    ("beta.kubernetes.io/arch", ARCH),
    ("beta.kubernetes.io/instance-type", INSTANCE_TYPE),
    ("beta.kubernetes.io/os", OS),
    ("failure-domain.beta.kubernetes.io/region", REGION),
    ("failure-domain.beta.kubernetes.io/zone", ZONE),
];

/// Of [`ALIASES`], those that every Node carries beside the key that they stand for: kube-controller-manager's node
/// lifecycle controller writes them. The others are on a Node only if somebody put them there.
pub const ALIASES_ON_NODES: [(&str, &str); 2] = [("beta.kubernetes.io/arch", ARCH), ("beta.kubernetes.io/os", OS)];

/// Domains (and all below them) in which users may set no labels but the well-known ones.
pub const RESTRICTED_DOMAINS: [&str; 1] = [groups::KARPENTER];

/// Labels that users may never set.
pub const RESTRICTED: [&str; 1] = [HOSTNAME];

/// Labels that tell the offerings of one instance type apart, whatever the provider.
pub const OFFERING: [&str; 2] = [ZONE, CAPACITY_TYPE];

/// The label that carries the name of a node's node class: `<group>/<kind in lower case>`.
pub fn node_class(group: &str, kind: &str) -> String {
    format!("{group}/{}", kind.to_lowercase())
}

/// The domain of a label key: what stands before the first `/`, or nothing.
pub fn domain(key: &str) -> &str {
    key.split_once('/').map_or("", |(domain, _)| domain)
}

/// What a cloud provider adds to the label rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderLabels {
    /// Keys beside [`WELL_KNOWN`].
    pub well_known: BTreeSet<String>,
    /// Domains beside [`RESTRICTED_DOMAINS`].
    pub restricted_domains: BTreeSet<String>,
    /// Aliases beside [`ALIASES`].
    pub aliases: BTreeMap<String, String>,
    /// Other spellings of values, by key after aliasing: spelling to value.
    pub value_aliases: BTreeMap<String, BTreeMap<String, String>>,
    /// Values that a key can have, by key, beside the capacity types.
    pub known_values: BTreeMap<String, BTreeSet<String>>,
    /// Keys beside [`OFFERING`].
    pub offering: BTreeSet<String>,
    /// The key that names a reservation, if the provider has reservations.
    pub reservation_id: Option<String>,
    /// Further keys that only machines from a reservation have.
    pub reserved_capacity: BTreeSet<String>,
}

/// A domain of labels that belongs to a provider, with all labels that there are in it.
///
/// A NodePool, NodeClaim or NodeOverlay that names another label of the domain, or of a domain that ends so, is
/// refused: the name is misspelled, and nothing would ever match it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelDomain {
    /// The domain.
    pub domain: &'static str,
    /// The labels, with their domain.
    pub keys: &'static [&'static str],
    /// Those of them that a NodeOverlay cannot ask for, because no instance type has them.
    pub not_in_overlays: &'static [&'static str],
}

impl ProviderLabels {
    /// The key that `key` stands for: itself, unless it is an alias.
    pub fn normalize<'a>(&'a self, key: &'a str) -> &'a str {
        if let Some(to) = self.aliases.get(key) {
            return to;
        }
        ALIASES.iter().find(|(from, _)| *from == key).map_or(key, |(_, to)| to)
    }

    /// The value that `value` stands for under the normalized `key`.
    pub fn normalize_value<'a>(&'a self, key: &str, value: &'a str) -> &'a str {
        self.value_aliases.get(key).and_then(|values| values.get(value)).map_or(value, String::as_str)
    }

    /// The keys that no machine has that is not from a reservation.
    pub fn of_reservations(&self) -> impl Iterator<Item = &str> {
        self.reservation_id.iter().chain(&self.reserved_capacity).map(String::as_str)
    }

    /// Whether `key` is well-known to Kubernetes, Karpenter or this provider.
    pub fn is_well_known(&self, key: &str) -> bool {
        WELL_KNOWN.contains(&key) || self.well_known.contains(key)
    }

    /// Whether users may not ask for `key`: a restricted label, or one of a restricted domain that is not well-known.
    pub fn is_restricted(&self, key: &str) -> bool {
        if self.is_well_known(key) {
            return false;
        }
        RESTRICTED.contains(&key) || self.is_in_restricted_domain(key)
    }

    /// The values that `key` (after aliasing) can have, where they are known.
    pub fn known_values(&self, key: &str) -> Option<BTreeSet<&str>> {
        let builtin: &[&str] = if key == CAPACITY_TYPE { &CAPACITY_TYPES } else { &[] };
        let own = self.known_values.get(key).into_iter().flatten().map(String::as_str);
        Some(builtin.iter().copied().chain(own).collect()).filter(|values: &BTreeSet<&str>| !values.is_empty())
    }

    /// Domains in which users may set no labels but the well-known ones.
    pub fn restricted_domains(&self) -> impl Iterator<Item = &str> {
        RESTRICTED_DOMAINS.into_iter().chain(self.restricted_domains.iter().map(String::as_str))
    }

    fn is_in_restricted_domain(&self, key: &str) -> bool {
        let domain = domain(key);
        self.restricted_domains()
            .any(|restricted| domain == restricted || domain.strip_suffix(restricted).is_some_and(|d| d.ends_with('.')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdomains_of_karpenter_are_restricted_but_not_lookalikes() {
        let labels = ProviderLabels::default();
        assert!(labels.is_restricted("karpenter.sh/custom"));
        assert!(labels.is_restricted("team.karpenter.sh/custom"));
        assert!(labels.is_restricted(HOSTNAME));
        assert!(!labels.is_restricted(CAPACITY_TYPE));
        assert!(!labels.is_restricted("mykarpenter.sh/custom"));
        assert!(!labels.is_restricted("custom"));
        assert!(!labels.is_restricted("node-restriction.kubernetes.io/custom"));
    }

    #[test]
    fn a_provider_restricts_its_domain_but_not_its_own_labels() {
        let labels = ProviderLabels {
            well_known: BTreeSet::from(["cloud.example.com/instance-cpu".to_owned()]),
            restricted_domains: BTreeSet::from(["cloud.example.com".to_owned()]),
            ..ProviderLabels::default()
        };
        assert!(!labels.is_restricted("cloud.example.com/instance-cpu"));
        assert!(labels.is_restricted("cloud.example.com/other"));
    }

    #[test]
    fn old_spellings_are_normalized() {
        let labels = ProviderLabels {
            aliases: BTreeMap::from([("topology.ebs.csi.aws.com/zone".to_owned(), ZONE.to_owned())]),
            ..ProviderLabels::default()
        };
        assert_eq!(labels.normalize("failure-domain.beta.kubernetes.io/zone"), ZONE);
        assert_eq!(labels.normalize("topology.ebs.csi.aws.com/zone"), ZONE);
        assert_eq!(labels.normalize("custom"), "custom");
    }

    #[test]
    fn labels_that_nodes_carry_twice_are_aliases() {
        assert!(ALIASES_ON_NODES.iter().all(|alias| ALIASES.contains(alias)));
    }

    #[test]
    fn node_class_label_is_group_and_lower_case_kind() {
        assert_eq!(node_class("cloud.example.com", "CloudNodeClass"), "cloud.example.com/cloudnodeclass");
    }
}
