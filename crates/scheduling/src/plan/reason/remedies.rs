//! Which rules exclude every machine, and what would change that.

use std::sync::Arc;

use model::{Interner, KeyId, NodePoolName, ResourceId, Taint, ValueSet, pod::HostPort, quantity::Rounding};

use super::{amount, expression};
use crate::snapshot::Limit;

/// Why no machine that could be launched would do, and what would change that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedies {
    /// Together these exclude every offering of every NodePool that may launch, and none can be left out.
    pub excluded_by: Vec<Excluding>,
    /// The smallest changes, each by itself enough: the fewest first, then in the order of the NodePools.
    pub remedies: Vec<Remedy>,
}

/// A rule that excludes machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Excluding {
    /// Taints of NodePools.
    Taints,
    /// What the pod wants of a label.
    Label {
        /// Which label.
        key: KeyId,
        /// What it wants.
        wanted: ValueSet,
    },
    /// That it goes by the name of a Node.
    NodeName,
    /// What the NodePools require of machines.
    NodePools,
    /// How much it takes of a resource.
    Resource {
        /// Which resource.
        resource: ResourceId,
        /// Asked for, daemons included.
        wanted: i64,
    },
    /// What DaemonSets take.
    Daemons,
    /// A host port that it wants and a DaemonSet has.
    HostPort(HostPort),
    /// The devices that it claims.
    Devices,
    /// Nothing to be had.
    Availability,
    /// Limits of NodePools.
    Limits,
    /// `minValues` of NodePools.
    MinValues,
    /// Rules that couple it with other pods.
    PodRules,
}

/// Changes after which a machine of a NodePool would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// Which NodePool.
    pub node_pool: NodePoolName,
    /// All of them are needed.
    pub needs: Vec<Need>,
    /// Whether rules that couple the pod with others could keep it from there all the same: they were not asked.
    pub rules_may_close: bool,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// The pod tolerates a taint.
    Tolerate(Taint),
    /// The pod does not ask that of a label.
    NotWanted {
        /// Which label.
        key: KeyId,
        /// What it asks.
        wanted: ValueSet,
    },
    /// The pod does not go by the name of a Node.
    AnyNode,
    /// The NodePool allows these values of a label.
    Allowed {
        /// Which label.
        key: KeyId,
        /// Which values.
        values: ValueSet,
    },
    /// The NodePool allows machines that several of its requirements exclude.
    OtherTypes {
        /// What an instance type that would do has of these labels, by key.
        labels: Vec<(KeyId, ValueSet)>,
        /// That instance type.
        like: Arc<str>,
    },
    /// The pod asks for less.
    Less {
        /// Of which resource.
        resource: ResourceId,
        /// How much less.
        by: i64,
        /// The most there is.
        most: i64,
    },
    /// DaemonSets leave something.
    Daemons,
    /// The pod does not want a host port that a DaemonSet has.
    OtherPort(HostPort),
    /// The machine brings other devices.
    Devices,
    /// The provider has one.
    Available,
    /// A limit is higher.
    Limit {
        /// Which limit.
        limit: Limit,
        /// How much higher, at least.
        by: i64,
    },
    /// A `minValues` is lower.
    MinValues {
        /// Which label.
        key: KeyId,
        /// How many values are left.
        left: u32,
    },
    /// Rules between pods let it in.
    PodRules,
}

impl Remedies {
    pub(super) fn message(&self, names: &Interner) -> String {
        let rules: Vec<String> = self.excluded_by.iter().map(|rule| rule.message(names)).collect();
        let remedies: Vec<String> = self.remedies.iter().map(|remedy| remedy.message(names)).collect();
        let remedies = remedies.join(", or ");
        match (rules.as_slice(), remedies.is_empty()) {
            (rules, true) => format!("every machine is excluded by {}", rules.join(" or ")),
            ([_], false) => format!("it would fit a new machine {remedies}"),
            (rules, false) => {
                format!("every machine is excluded by {}; it would fit one {remedies}", rules.join(" or "))
            }
        }
    }
}

impl Excluding {
    fn message(&self, names: &Interner) -> String {
        match self {
            Self::Taints => "taints".to_owned(),
            Self::Label { key, wanted } => expression(*key, wanted, names),
            Self::NodeName => "the name of a Node".to_owned(),
            Self::NodePools => "what NodePools require".to_owned(),
            Self::Resource { resource, wanted } => {
                format!("{} {}", names.resource_name(*resource), amount(*resource, *wanted, Rounding::Up, names))
            }
            Self::Daemons => "what DaemonSets take".to_owned(),
            Self::HostPort(port) => format!("host port {port}, which a DaemonSet takes"),
            Self::Devices => "the devices it claims".to_owned(),
            Self::Availability => "what can be launched now".to_owned(),
            Self::Limits => "limits".to_owned(),
            Self::MinValues => "minValues".to_owned(),
            Self::PodRules => "rules between pods".to_owned(),
        }
    }
}

impl Remedy {
    fn message(&self, names: &Interner) -> String {
        let pool = &self.node_pool;
        let needs: Vec<String> = self.needs.iter().map(|need| need.message(pool, names)).collect();
        let names_pool = self.needs.iter().any(Need::names_pool);
        let suffix = match (names_pool, self.rules_may_close) {
            (true, false) => String::new(),
            (false, false) => format!(" (nodepool/{pool})"),
            (true, true) => " (if rules between pods let it in there)".to_owned(),
            (false, true) => format!(" (nodepool/{pool}, if rules between pods let it in there)"),
        };
        format!("{}{suffix}", needs.join(" and "))
    }
}

impl Need {
    fn names_pool(&self) -> bool {
        matches!(self, Self::Allowed { .. } | Self::OtherTypes { .. } | Self::Limit { .. } | Self::MinValues { .. })
    }

    fn message(&self, pool: &NodePoolName, names: &Interner) -> String {
        match self {
            Self::Tolerate(taint) => format!("if it tolerated {}", taint.display(names)),
            Self::NotWanted { key, wanted } => format!("if it did not want {}", expression(*key, wanted, names)),
            Self::AnyNode => "if it did not ask for a Node by its name".to_owned(),
            Self::Allowed { key, values } if *values == ValueSet::exists() => {
                format!("if nodepool/{pool} had the label {}", names.key_name(*key))
            }
            Self::Allowed { key, values } => format!("if nodepool/{pool} had {}", expression(*key, values, names)),
            Self::OtherTypes { labels, like } => {
                let labels: Vec<String> = labels.iter().map(|(key, values)| expression(*key, values, names)).collect();
                format!("if nodepool/{pool} allowed {}, as of {like}", labels.join(" and "))
            }
            Self::Less { resource, most: 0, .. } => format!("without {}", names.resource_name(*resource)),
            Self::Less { resource, by, .. } => {
                format!("with {} less {}", amount(*resource, *by, Rounding::Up, names), names.resource_name(*resource))
            }
            Self::Daemons => "if DaemonSets took less".to_owned(),
            Self::OtherPort(port) => format!("if it did not want host port {port}"),
            Self::Devices => "with other devices".to_owned(),
            Self::Available => "if the provider had one".to_owned(),
            Self::Limit { limit, by } => match limit {
                Limit::Nodes => format!("with {by} more in limits.nodes of nodepool/{pool}"),
                Limit::Resource(resource) => format!(
                    "with {} more in limits.{} of nodepool/{pool}",
                    amount(*resource, *by, Rounding::Up, names),
                    names.resource_name(*resource)
                ),
            },
            Self::MinValues { key, left } => {
                format!("with minValues of {left} for {} in nodepool/{pool}", names.key_name(*key))
            }
            Self::PodRules => "if rules between pods let it in".to_owned(),
        }
    }
}
