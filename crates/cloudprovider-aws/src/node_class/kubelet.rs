//! Settings of the kubelet in an EC2NodeClass: what is wrong with them, and what machines are told.
//!
//! They have the form of the kubelet's own configuration file (`KubeletConfiguration` `kubelet.config.k8s.io/v1beta1`),
//! and the CRD lets everything through. The checks are those of `pkg/controllers/nodeclass/validation.go` of
//! karpenter-provider-aws 1.15, in its order: the form of each field, what an image of the family can be told, and
//! whether expressions are allowed.
//!
//! Left out: what is in the fields whose values are objects (`authentication`, `logging`, …) is the kubelet's to check.

pub mod expressions;
mod fields;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use api::duration;
use api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};
use k8s_cel::NumberExpression;
use model::Quantity;
use serde_json::{Map, Value, json};

use self::expressions::{Computed, ComputedReserved};
use super::spec::AmiFamily;

const MAX_PODS: &str = "maxPods";
const KUBE_RESERVED: &str = "kubeReserved";
const SYSTEM_RESERVED: &str = "systemReserved";

/// Settings that were checked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kubelet {
    /// Addresses of the cluster's DNS servers; that of the service `kube-dns` where empty.
    pub cluster_dns: Vec<String>,
    /// Most pods, in place of what the instance type allows.
    pub max_pods: Option<u32>,
    /// Most pods for each processor; no limit where 0.
    pub pods_per_core: Option<u32>,
    /// What is kept for the kubelet and the container runtime.
    pub kube_reserved: BTreeMap<String, Quantity>,
    /// What is kept for the system.
    pub system_reserved: BTreeMap<String, Quantity>,
    /// At what is left, by signal, pods are killed at once.
    pub eviction_hard: BTreeMap<String, String>,
    /// At what is left, by signal, pods are asked to go.
    pub eviction_soft: BTreeMap<String, String>,
    /// How long a signal of `eviction_soft` must last, as a Go duration.
    pub eviction_soft_grace_period: BTreeMap<String, String>,
    /// Most seconds that a pod which is asked to go has.
    pub eviction_max_pod_grace_period: Option<u32>,
    /// Percentage of the disk at which images are removed.
    pub image_gc_high_threshold_percent: Option<u32>,
    /// Percentage of the disk down to which images are removed.
    pub image_gc_low_threshold_percent: Option<u32>,
    /// Whether CPU limits are enforced by quotas.
    pub cpu_cfs_quota: Option<bool>,
    /// What is computed for each instance type: `max_pods`, `kube_reserved` and `system_reserved` do not have it.
    pub computed: Computed,
    /// All settings as they are written.
    pub written: Map<String, Value>,
}

/// Why settings cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("spec.kubelet.{field}: {message}")]
pub struct Problem {
    /// The reason of condition `ValidationSucceeded`.
    pub reason: ProblemKind,
    /// The field below `spec.kubelet`.
    pub field: String,
    /// What is wrong.
    pub message: String,
}

/// Kinds of problems, each the reason of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// `InvalidKubeletConfiguration`: no kubelet takes it.
    Invalid,
    /// `KubeletExpressionsDisabled`: an expression, and the gate `NodeClassCEL` is off.
    ExpressionsDisabled,
    /// `KubeletExpressionInvalid`: an expression that cannot be used.
    ExpressionInvalid,
    /// `UnsupportedKubeletConfiguration`: the images of this family cannot be told.
    Unsupported,
}

impl ProblemKind {
    /// The reason as the condition spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "InvalidKubeletConfiguration",
            Self::ExpressionsDisabled => "KubeletExpressionsDisabled",
            Self::ExpressionInvalid => "KubeletExpressionInvalid",
            Self::Unsupported => "UnsupportedKubeletConfiguration",
        }
    }
}

/// Whether the gate `NodeClassCEL` is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expressions {
    /// It is.
    Allowed,
    /// It is not.
    Disabled,
}

/// Signals of eviction thresholds.
const SIGNALS: [&str; 6] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];
/// What can be reserved.
const RESERVED: [&str; 4] = [CPU, MEMORY, EPHEMERAL_STORAGE, "pid"];

/// Fields that every family's images can be told of.
const SUPPORTED_BY_ALL: [&str; 12] = [
    "clusterDNS",
    MAX_PODS,
    "podsPerCore",
    SYSTEM_RESERVED,
    KUBE_RESERVED,
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMaxPodGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "cpuCFSQuota",
];

impl Kubelet {
    /// Checks settings and reads them.
    ///
    /// # Errors
    /// With everything that is wrong, in the order of the fields.
    pub fn read(
        written: &Map<String, Value>,
        family: AmiFamily,
        expressions: Expressions,
    ) -> Result<Self, Vec<Problem>> {
        let mut reader = Reader { written, expressions, problems: Vec::new() };
        reader.check_forms();
        if !reader.problems.is_empty() {
            return Err(reader.problems);
        }
        let kubelet = reader.settings();
        reader.check_relations(&kubelet);
        reader.check_family(family, &kubelet);
        if reader.problems.is_empty() { Ok(kubelet) } else { Err(reader.problems) }
    }

    /// The settings with what is reserved by expressions on a machine. `maxPods` is told besides.
    pub fn with(&self, reserved: &ComputedReserved) -> Cow<'_, Self> {
        if self.computed.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut kubelet = Self { computed: Computed::default(), ..self.clone() };
        for (field, amounts, computed, of) in [
            (KUBE_RESERVED, &mut kubelet.kube_reserved, &self.computed.kube_reserved, &reserved.kube),
            (SYSTEM_RESERVED, &mut kubelet.system_reserved, &self.computed.system_reserved, &reserved.system),
        ] {
            for resource in computed.keys() {
                let amount = of.get(resource).and_then(|text| Some((text, Quantity::parse(text).ok()?)));
                let Some(written) = kubelet.written.get_mut(field).and_then(Value::as_object_mut) else { continue };
                match amount {
                    Some((text, amount)) => {
                        written.insert(resource.clone(), json!(text));
                        amounts.insert(resource.clone(), amount);
                    }
                    None => drop(written.remove(resource)),
                }
            }
        }
        Cow::Owned(kubelet)
    }
}

struct Reader<'a> {
    written: &'a Map<String, Value>,
    expressions: Expressions,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn problem(&mut self, reason: ProblemKind, field: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem { reason, field: field.into(), message: message.into() });
    }

    fn invalid(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.problem(ProblemKind::Invalid, field, message);
    }

    /// Whether each field is one of the kubelet's and of the right type. A null is as good as absent.
    fn check_forms(&mut self) {
        for (field, value) in self.written {
            if value.is_null() {
                continue;
            }
            if field == "registerWithTaints" {
                self.invalid(field, "taints are those of the NodePool");
                continue;
            }
            let Some(kind) = fields::kind(field) else {
                self.invalid(field, "the kubelet has no such setting");
                continue;
            };
            // An expression stands where a number does.
            let may_be_text = field == MAX_PODS && value.is_string();
            if !may_be_text && !kind.allows(value) {
                self.invalid(field, format!("is not {}", kind.name()));
            }
        }
    }

    fn settings(&mut self) -> Kubelet {
        let mut computed = Computed::default();
        Kubelet {
            cluster_dns: self.cluster_dns(),
            max_pods: self.max_pods(&mut computed.max_pods),
            pods_per_core: self.count("podsPerCore"),
            kube_reserved: self.reserved(KUBE_RESERVED, &mut computed.kube_reserved),
            system_reserved: self.reserved(SYSTEM_RESERVED, &mut computed.system_reserved),
            eviction_hard: self.thresholds("evictionHard"),
            eviction_soft: self.thresholds("evictionSoft"),
            eviction_soft_grace_period: self.grace_periods("evictionSoftGracePeriod"),
            eviction_max_pod_grace_period: self.count("evictionMaxPodGracePeriod"),
            image_gc_high_threshold_percent: self.percent("imageGCHighThresholdPercent"),
            image_gc_low_threshold_percent: self.percent("imageGCLowThresholdPercent"),
            cpu_cfs_quota: self.written.get("cpuCFSQuota").and_then(Value::as_bool),
            computed,
            written: self.written.clone(),
        }
    }

    fn cluster_dns(&mut self) -> Vec<String> {
        let list = self.written.get("clusterDNS").and_then(Value::as_array).into_iter().flatten();
        let addresses: Vec<String> = list.filter_map(Value::as_str).map(str::to_owned).collect();
        for (index, address) in addresses.iter().enumerate() {
            if address.parse::<IpAddr>().is_err() {
                self.invalid(format!("clusterDNS[{index}]"), format!("{address:?} is not an IP address"));
            }
        }
        addresses
    }

    fn max_pods(&mut self, computed: &mut Option<NumberExpression>) -> Option<u32> {
        match self.written.get(MAX_PODS) {
            Some(Value::String(text)) => {
                *computed = self.expression(MAX_PODS, text);
                None
            }
            _ => self.count(MAX_PODS),
        }
    }

    /// What stands where a text is no value.
    fn expression(&mut self, field: &str, text: &str) -> Option<NumberExpression> {
        if self.expressions == Expressions::Disabled {
            let message = format!("{text:?} is an expression, and the gate NodeClassCEL is off");
            self.problem(ProblemKind::ExpressionsDisabled, field, message);
            return None;
        }
        match expressions::compile(text) {
            Ok(expression) => Some(expression),
            Err(error) => {
                self.problem(ProblemKind::ExpressionInvalid, field, format!("{text:?}: {error}"));
                None
            }
        }
    }

    fn count(&mut self, field: &str) -> Option<u32> {
        let value = self.written.get(field)?.as_i64()?;
        let count = u32::try_from(value).ok();
        if count.is_none() {
            self.invalid(field, format!("{value} is negative"));
        }
        count
    }

    fn percent(&mut self, field: &str) -> Option<u32> {
        let value = self.written.get(field)?.as_i64()?;
        let percent = u32::try_from(value).ok().filter(|percent| *percent <= 100);
        if percent.is_none() {
            self.invalid(field, format!("{value} is not a percentage from 0 to 100"));
        }
        percent
    }

    /// The entries of a map of texts.
    fn entries(&self, field: &str) -> Vec<(String, String)> {
        let map = self.written.get(field).and_then(Value::as_object).into_iter().flatten();
        map.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    }

    fn reserved(
        &mut self,
        field: &str,
        computed: &mut BTreeMap<String, NumberExpression>,
    ) -> BTreeMap<String, Quantity> {
        let mut reserved = BTreeMap::new();
        for (resource, text) in self.entries(field) {
            let at = format!("{field}[{resource}]");
            if !RESERVED.contains(&resource.as_str()) {
                self.invalid(at, format!("only {} can be reserved", RESERVED.join(", ")));
                continue;
            }
            match Quantity::parse(&text) {
                Ok(amount) if amount.sign() < 0 || text.starts_with('-') => {
                    self.invalid(at, format!("{text:?} is negative"));
                }
                Ok(amount) => drop(reserved.insert(resource, amount)),
                Err(_) if text.starts_with('-') => self.invalid(at, format!("{text:?} is negative")),
                Err(_) => {
                    let expression = self.expression(&at, &text);
                    computed.extend(expression.map(|expression| (resource, expression)));
                }
            }
        }
        reserved
    }

    fn thresholds(&mut self, field: &str) -> BTreeMap<String, String> {
        for (signal, text) in self.entries(field) {
            let at = format!("{field}[{signal}]");
            if !SIGNALS.contains(&signal.as_str()) {
                self.invalid(at, format!("there is no such signal; they are {}", SIGNALS.join(", ")));
            } else if let Err(message) = check_threshold(&text) {
                self.invalid(at, message);
            }
        }
        self.entries(field).into_iter().collect()
    }

    fn grace_periods(&mut self, field: &str) -> BTreeMap<String, String> {
        for (signal, text) in self.entries(field) {
            let at = format!("{field}[{signal}]");
            if !SIGNALS.contains(&signal.as_str()) {
                self.invalid(at, format!("there is no such signal; they are {}", SIGNALS.join(", ")));
            } else if duration::parse(&text).is_err() {
                self.invalid(at, format!("{text:?} is not a duration, 0 or more"));
            }
        }
        self.entries(field).into_iter().collect()
    }

    fn check_relations(&mut self, kubelet: &Kubelet) {
        // Read for its checks only: what is reclaimed does not change what pods can use.
        self.thresholds("evictionMinimumReclaim");
        let missing = |there: &BTreeMap<String, String>, other: &BTreeMap<String, String>| {
            there.keys().find(|signal| !other.contains_key(*signal)).cloned()
        };
        if let Some(signal) = missing(&kubelet.eviction_soft, &kubelet.eviction_soft_grace_period) {
            self.invalid(format!("evictionSoft[{signal}]"), "has no counterpart in evictionSoftGracePeriod");
        }
        if let Some(signal) = missing(&kubelet.eviction_soft_grace_period, &kubelet.eviction_soft) {
            self.invalid(format!("evictionSoftGracePeriod[{signal}]"), "has no counterpart in evictionSoft");
        }
        if let (Some(high), Some(low)) =
            (kubelet.image_gc_high_threshold_percent, kubelet.image_gc_low_threshold_percent)
            && high <= low
        {
            self.invalid(
                "imageGCHighThresholdPercent",
                format!("{high} is not above imageGCLowThresholdPercent, {low}"),
            );
        }
    }

    /// Amazon Linux 2023 takes the whole configuration, and what a custom image takes is the user's business.
    fn check_family(&mut self, family: AmiFamily, kubelet: &Kubelet) {
        let is_bottlerocket = match family {
            AmiFamily::Al2023 | AmiFamily::Custom => return,
            AmiFamily::Bottlerocket => true,
            AmiFamily::Al2 | AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => false,
        };
        for (field, value) in self.written {
            let is_supported =
                SUPPORTED_BY_ALL.contains(&field.as_str()) && !(is_bottlerocket && field == "podsPerCore");
            if !is_supported && !value.is_null() {
                let message = format!("images of family {family} cannot be told");
                self.problem(ProblemKind::Unsupported, field, message);
            }
        }
        if kubelet.cluster_dns.len() > 1 {
            let message = format!("images of family {family} can be told of one address only");
            self.problem(ProblemKind::Unsupported, "clusterDNS", message);
        }
    }
}

/// Whether a text is a percentage from 0 to 100, or an amount that is not negative.
fn check_threshold(text: &str) -> Result<(), String> {
    let is_good = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().is_ok_and(|percent| (0.0..=100.0).contains(&percent)),
        None => Quantity::parse(text).is_ok_and(|amount| amount.sign() >= 0),
    };
    if is_good {
        Ok(())
    } else {
        Err(format!("{text:?} is neither a percentage from 0 to 100 nor an amount, 0 or more"))
    }
}

#[cfg(test)]
mod tests;
