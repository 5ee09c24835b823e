//! Objects from files become what the planner needs, without a cluster: what the API server, admission and the workload
//! controllers would have done to them is done here.
//!
//! An object that cannot be used is reported with its origin; the others are used. Kinds that planning does not read
//! are counted. The input may be manifests that nobody has applied, or a snapshot file, or both.

mod defaults;
mod node_classes;
mod reader;
mod release;
mod role;
mod unknown_fields;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use api::NodePool;
use api::crd::CustomResourceDefinition;
use api::labels::ProviderLabels;
use cloudprovider::{InstanceType, RepairPolicies};
use model::{Interner, NamespacedName};

use crate::driver_daemons::DriverPods;
use crate::snapshot::Cluster;
use crate::snapshot_file::Header;
use decode::ObjectError;
use decode::manifests::{DocumentError, Manifest, Origin};
use decode::scheduler_config::SchedulerConfig;

pub use node_classes::{NodeClassTypes, Types};
pub use release::{GateSetting, Release};
pub use unknown_fields::{UnknownField, unknown_fields};

/// How to read.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    /// Make the pods of workloads.
    pub expand_workloads: bool,
    /// The NodePool to plan with where the input has none, not even one that is refused.
    pub default_node_pool: Option<&'a NodePool>,
    /// What NodePools can launch, unless a snapshot in the input says otherwise.
    pub instance_types: &'a [Arc<InstanceType>],
    /// What node classes of the input make of them; `None` where node classes change nothing of machines.
    pub node_class_types: Option<&'a NodeClassTypes>,
    /// The label rules of the provider whose instance types those are.
    pub labels: &'a ProviderLabels,
    /// The node classes of that provider: (group, kind).
    pub node_classes: &'a [(&'a str, &'a str)],
    /// The CRDs that providers bring, this one or another: objects of their groups are held to them.
    pub provider_crds: &'a [CustomResourceDefinition],
    /// Which release of Kubernetes decides about devices, in place of what the input says.
    pub release: Release<'a>,
    /// How kube-scheduler is configured, in place of what the input says.
    pub scheduler_config: Option<&'a SchedulerConfig>,
    /// When that provider considers a Node broken, for snapshots of clusters where such are repaired.
    pub repair_policies: Option<&'a Arc<RepairPolicies>>,
}

impl<'a> Settings<'a> {
    /// Reads the input and adds nothing: no pods of workloads, no built-in NodePool, no CRDs, no release and no
    /// configuration.
    pub fn new(
        instance_types: &'a [Arc<InstanceType>],
        labels: &'a ProviderLabels,
        node_classes: &'a [(&'a str, &'a str)],
    ) -> Self {
        Self {
            expand_workloads: false,
            default_node_pool: None,
            instance_types,
            node_class_types: None,
            labels,
            node_classes,
            provider_crds: &[],
            release: Release::default(),
            scheduler_config: None,
            repair_policies: None,
        }
    }
}

/// What was read.
#[derive(Debug, Clone)]
pub struct Offline {
    /// For [`crate::snapshot()`].
    pub cluster: Cluster,
    /// Has given out the ids in `cluster`.
    pub interner: Arc<Interner>,
    /// The header, if the input held a snapshot.
    pub header: Option<Header>,
    /// What could not be used.
    pub problems: Vec<InputProblem>,
    /// Pending pods that are not planned, by name.
    pub not_planned: Vec<(NamespacedName, NotPlanned)>,
    /// How many objects of each kind the plan does not use.
    pub not_used: BTreeMap<String, usize>,
    /// Notes for users, in the order in which they came up.
    pub notes: Vec<OfflineNote>,
}

/// Why a pending pod is not planned.
#[derive(Debug, Clone)]
pub enum NotPlanned {
    /// It could not be read; the problem is among [`Offline::problems`] too.
    Unreadable(Arc<ObjectError>),
    /// Another scheduler places it.
    OtherScheduler(Arc<str>),
    /// Scheduling gates hold it back.
    Gated,
    /// It has resource claims, and `--ignore-dra-requests` excludes such pods.
    ResourceClaimsIgnored,
}

impl NotPlanned {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "InvalidObject",
            Self::OtherScheduler(_) => "OtherScheduler",
            Self::Gated => "SchedulingGated",
            Self::ResourceClaimsIgnored => "ResourceClaimsIgnored",
        }
    }
}

impl fmt::Display for NotPlanned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => error.problem.fmt(f),
            Self::OtherScheduler(name) => {
                write!(f, "is placed by {name}, whose pods are not planned (--scheduler-names)")
            }
            Self::Gated => f.write_str("is held back by its schedulingGates"),
            Self::ResourceClaimsIgnored => {
                f.write_str("has resource claims, which --ignore-dra-requests leaves to others")
            }
        }
    }
}

/// Something in the input that could not be used.
#[derive(Debug, Clone)]
pub enum InputProblem {
    /// A document that is not an object.
    Document(DocumentError),
    /// An object that cannot be used.
    Object {
        /// Where it was written.
        origin: Origin,
        /// What is wrong with it.
        error: Arc<ObjectError>,
    },
}

impl fmt::Display for InputProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document(error) => error.fmt(f),
            Self::Object { origin, error } => write!(f, "{origin}: {error}"),
        }
    }
}

/// A note for users; it does not prevent the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OfflineNote {
    /// There was no NodePool, so the built-in one was used.
    DefaultNodePool(String),
    /// A NodePool names a node class of another provider than the one whose instance types are planned with.
    ForeignNodeClass {
        /// The NodePool.
        node_pool: String,
        /// `<kind>.<group>`.
        node_class: String,
    },
    /// NodePools name a node class that is not in the input, so what it would change of machines is not known.
    MissingNodeClass {
        /// Its kind and name.
        node_class: String,
        /// The NodePools.
        node_pools: BTreeSet<String>,
    },
    /// Workloads were counted and not expanded.
    NotExpanded(usize),
    /// Objects were given more than once; the last one counts, as when the files are applied in order.
    GivenTwice(BTreeSet<String>),
    /// Pods name a PriorityClass that is not in the input; their priority counts as 0.
    UnknownPriorityClass(String),
    /// Pods name a RuntimeClass that is not in the input; its overhead and node selector are not known.
    UnknownRuntimeClass(String),
    /// A NodeOverlay has a field that the API server would drop.
    UnknownField {
        /// Its name.
        overlay: String,
        /// The field.
        field: UnknownField,
    },
    /// Machines of a NodeOverlay would have no pod of a driver whose DaemonSet it names.
    NoDriverPods(DriverPods),
    /// Pods are bound to nodes that are not in the input.
    BoundElsewhere(usize),
    /// A snapshot without what selects pods is planned with defaults for their spread.
    NothingSelects,
    /// A CapacityBuffer names something that is not in the input.
    NoRoomKept {
        /// Namespace and name.
        buffer: String,
        /// What is missing.
        why: String,
    },
}

impl fmt::Display for OfflineNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DefaultNodePool(what) => write!(f, "no NodePool given, planning with a built-in one: {what}"),
            Self::ForeignNodeClass { node_pool, node_class } => write!(
                f,
                "NodePool {node_pool} launches through {node_class}; planned with the instance types given here, not with \
                 those of that cloud"
            ),
            Self::MissingNodeClass { node_class, node_pools } => write!(
                f,
                "{node_class} is not in the input; {} {} {} planned with the provider's defaults for it",
                if node_pools.len() == 1 { "NodePool" } else { "NodePools" },
                node_pools.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
                if node_pools.len() == 1 { "is" } else { "are" },
            ),
            Self::NotExpanded(count) => write!(
                f,
                "{count} {} not expanded; --expand-workloads plans their pods",
                if *count == 1 { "workload was" } else { "workloads were" }
            ),
            Self::GivenTwice(objects) => match (objects.first(), objects.len()) {
                (Some(object), 1) => write!(f, "{object} is given more than once; the last one counts"),
                (_, count) => write!(f, "{count} objects are given more than once; the last one counts; -v lists them"),
            },
            Self::UnknownPriorityClass(class) => {
                write!(f, "PriorityClass {class} is not in the input; priority 0 is assumed")
            }
            Self::UnknownRuntimeClass(class) => {
                write!(f, "RuntimeClass {class} is not in the input; its overhead and node selector are left out")
            }
            Self::NoDriverPods(driver_pods) => driver_pods.fmt(f),
            Self::UnknownField { overlay, field } => write!(f, "nodeoverlay/{overlay}: {field}"),
            Self::NoRoomKept { buffer, why } => write!(f, "CapacityBuffer {buffer} keeps no room free: {why}"),
            Self::NothingSelects => f.write_str(
                "the snapshot was taken without default spread constraints, so it has no Services and controllers to deduce \
                 their selectors from: no pod gets any; take it with --scheduler-config",
            ),
            Self::BoundElsewhere(count) => {
                write!(f, "{count} pods are bound to nodes that are not in the input and were left out")
            }
        }
    }
}

/// Reads objects. `documents` are the texts' documents that were none.
pub fn read(manifests: Vec<Manifest>, documents: Vec<DocumentError>, settings: &Settings<'_>) -> Offline {
    reader::Reader::new(settings).read(manifests, documents)
}
