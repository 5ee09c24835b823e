//! What a refusal is about, and what it means for the pod: as kube-scheduler's status says it, and as we do.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

/// What a status means for the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// The node could do once pods have left it.
    Unschedulable,
    /// The node cannot do as long as it is what it is.
    Unresolvable,
    /// The pod's attempt ends on all nodes.
    Error,
}

/// What a refusal is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Class {
    /// A claim that the pod names is not there, is being deleted, or cannot be the pod's.
    Claims,
    /// A class that a claim names is not there.
    DeviceClassMissing,
    /// Resources of the node, whatever devices cost; these. An extended resource that nobody offers is one of them.
    Node(BTreeSet<String>),
    /// An allocated claim that cannot be used on the node.
    Elsewhere,
    /// A claim that another pod has for itself.
    Shared,
    /// No devices.
    Devices,
    /// No devices, and a pool of the node is invalid.
    Pools,
    /// Something is wrong with a claim, a selector or a device.
    Fault,
    /// A claim that hands out the node's resources, and no container uses it.
    NotUsed,
    /// The pod as a whole asks for less than its parts.
    Whole,
    /// Resources of the node with what devices cost; these.
    NodeWithDevices(BTreeSet<String>),
    /// An extended resource of a device plugin beside claims.
    Stranded,
    /// What devices of extended resources cost, which the API server does not let the scheduler write down.
    NotRecorded,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    /// What it means for the pod.
    pub code: Code,
    /// What it is about.
    pub class: Class,
}

impl Class {
    /// What it is counted as.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Claims => "claim unusable",
            Self::DeviceClassMissing => "class missing",
            Self::Node(_) => "too large for the node",
            Self::Elsewhere => "allocated elsewhere",
            Self::Shared => "not shared",
            Self::Devices => "without devices",
            Self::Pools => "pool invalid",
            Self::Fault => "error",
            Self::NotUsed => "claim not used",
            Self::Whole => "too large for the pod",
            Self::NodeWithDevices(_) => "too large with devices",
            Self::Stranded => "stranded",
            Self::NotRecorded => "costs not recorded",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.code, self.class)
    }
}

/// Resources that a status finds short.
fn short(reasons: &[&str]) -> Option<BTreeSet<String>> {
    let names = reasons.iter().map(|reason| reason.strip_prefix("Insufficient ").map(str::to_owned));
    names.collect::<Option<BTreeSet<String>>>().filter(|names| !names.is_empty())
}

/// Whether a status says that the scheduler's search for devices was not done in its time: it found out nothing then.
pub(crate) fn is_out_of_time(status: &Value) -> bool {
    let mut reasons = status["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str);
    status["plugin"] == "DynamicResources"
        && status["code"] == "Error"
        && reasons.any(|reason| reason.contains("timed out trying to allocate devices"))
}

/// The refusal that kube-scheduler's status is; none if it is of a kind that is not known here.
pub(crate) fn upstreams(status: &Value) -> Option<Refused> {
    let code = match status["code"].as_str()? {
        "Unschedulable" => Code::Unschedulable,
        "UnschedulableAndUnresolvable" => Code::Unresolvable,
        "Error" => Code::Error,
        _ => return None,
    };
    let reasons: Vec<&str> = status["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let says = |text: &str| reasons.iter().any(|reason| reason.contains(text));
    let class = match (status["plugin"].as_str()?, status["stage"].as_str()?) {
        ("NodeResourcesFit", "Filter") => Class::Node(short(&reasons)?),
        ("DynamicResources", "PreFilter") if says("device class") => Class::DeviceClassMissing,
        ("DynamicResources", "PreFilter") => Class::Claims,
        ("DynamicResources", "Filter") if code == Code::Error => Class::Fault,
        ("DynamicResources", "Filter") if says("resourceclaim not available on the node") => Class::Elsewhere,
        ("DynamicResources", "Filter")
            if says("shared by multiple pods")
                || says("already used by another pod")
                || says("cannot be shared across pods") =>
        {
            Class::Shared
        }
        ("DynamicResources", "Filter") if says("cannot allocate all claims") => Class::Devices,
        ("DynamicResources", "Filter") if says("invalid resource pools") => Class::Pools,
        ("DynamicResources", "Filter") if says("not referenced by any container") => Class::NotUsed,
        ("DynamicResources", "Filter") if says("pod level request") || says("pod level limit") => Class::Whole,
        ("DynamicResources", "Filter") => Class::NodeWithDevices(short(&reasons)?),
        ("kube-apiserver", "PreBind") if says("no mapping found in pod reference") => Class::NotRecorded,
        ("DynamicResources", "PreBind") if code == Code::Error => Class::Stranded,
        _ => return None,
    };
    Some(Refused { code, class })
}
