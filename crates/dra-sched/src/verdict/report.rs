//! The reports of a refusal: for each request how many devices it saw, and how many of them fail which rule.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{Infeasible, Proof};
use crate::compile::attributes::UNKNOWN_VALUE;
use crate::compile::ids::DeviceIndex;
use dra_types::{CounterName, CounterSetName, DeviceClassName, QualifiedName, RequestName};

/// What one request, or alternative of a request, found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestReport {
    /// The claim's index.
    pub claim: usize,
    /// The claim's name.
    pub claim_name: Arc<str>,
    /// `request`, or `request/subrequest`.
    pub request: RequestName,
    /// The class that it asks for.
    pub class: DeviceClassName,
    /// How many devices it wants; None for all.
    pub wanted: Option<u64>,
    /// Devices that the node can reach in usable pools.
    pub seen: u64,
    /// Devices that pass every rule by themselves.
    pub usable: u64,
    /// Devices that fail a rule, by the first rule that they fail, most first.
    pub falls: Vec<Fall>,
}

/// Devices that fail one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fall {
    /// The rule.
    pub rule: Rule,
    /// How many devices.
    pub devices: u64,
    /// The first of them.
    pub example: Arc<str>,
    /// Some of them, as different from each other as possible.
    pub(crate) sample: Vec<DeviceIndex>,
    /// If the rule is about an amount: how much the device that comes nearest lacks.
    pub shortage: Option<Shortage>,
}

/// An amount that is too small, in nano-units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// What a device needs.
    pub needed: i128,
    /// What is left.
    pub left: i128,
}

/// The values of devices under the attribute of a constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConstraintReport {
    /// The claim's index.
    pub claim: usize,
    /// The constraint's index.
    pub constraint: usize,
    /// The attribute.
    pub attribute: QualifiedName,
    /// Whether the values must differ, instead of being equal.
    pub distinct: bool,
    /// Usable devices of each request that it covers, by value.
    pub requests: Vec<(RequestName, BTreeMap<Arc<str>, u64>)>,
}

/// A rule that excludes a device. Of several, the first in this order counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// It waits for conditions before binding, and that feature is off.
    BindingConditionsOff,
    /// A selector of the class, by position.
    ClassSelector {
        /// Its position.
        index: usize,
        /// Its text.
        text: Arc<str>,
    },
    /// A selector of the request.
    RequestSelector {
        /// Its position.
        index: usize,
        /// Its text.
        text: Arc<str>,
    },
    /// A selector failed to evaluate.
    SelectorError {
        /// What happened.
        error: Arc<str>,
    },
    /// The device is on other nodes.
    OtherNode,
    /// Allocated already.
    InUse,
    /// A taint that the request does not tolerate.
    Taint {
        /// `key=value:effect`.
        taint: Arc<str>,
    },
    /// The device lacks a capacity that is asked for, or its policy forbids the amount.
    CapacityPolicy,
    /// Less capacity is left than asked for.
    Capacity {
        /// The first capacity that is short.
        name: QualifiedName,
    },
    /// A counter that the device draws from is short.
    Counter {
        /// The counter set.
        set: CounterSetName,
        /// The counter.
        counter: CounterName,
    },
    /// Devices that consume counters need a feature that is off.
    CountersOff,
    /// Devices drawing from the same counters are of other compatibility groups.
    CompatibilityGroups,
    /// The node does not declare a feature that the device's driver needs.
    NodeOperations,
    /// A constraint needs an attribute that the device lacks.
    NoAttribute {
        /// The attribute.
        attribute: QualifiedName,
    },
    /// The expression of a derived attribute fails.
    DerivedError {
        /// The attribute.
        attribute: QualifiedName,
        /// What happened.
        error: Arc<str>,
    },
}

impl Rule {
    /// A stable identifier for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::BindingConditionsOff => "BindingConditionsOff",
            Self::ClassSelector { .. } => "ClassSelector",
            Self::RequestSelector { .. } => "RequestSelector",
            Self::SelectorError { .. } => "SelectorError",
            Self::OtherNode => "OtherNode",
            Self::InUse => "InUse",
            Self::Taint { .. } => "Taint",
            Self::CapacityPolicy => "CapacityPolicy",
            Self::Capacity { .. } => "Capacity",
            Self::Counter { .. } => "Counter",
            Self::CountersOff => "CountersOff",
            Self::CompatibilityGroups => "CompatibilityGroups",
            Self::NodeOperations => "NodeOperations",
            Self::NoAttribute { .. } => "NoAttribute",
            Self::DerivedError { .. } => "DerivedError",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BindingConditionsOff => f.write_str("wait for binding conditions, a feature that is off"),
            Self::ClassSelector { index, text } => write!(f, "do not match selector #{index} of the class: {text}"),
            Self::RequestSelector { index, text } => write!(f, "do not match selector #{index}: {text}"),
            Self::SelectorError { error } => write!(f, "cannot be judged by a selector: {error}"),
            Self::OtherNode => f.write_str("are on other nodes"),
            Self::InUse => f.write_str("are allocated"),
            Self::Taint { taint } => write!(f, "have taint {taint}"),
            Self::CapacityPolicy => f.write_str("cannot give the capacity in that amount"),
            Self::Capacity { name } => write!(f, "have too little {name} left"),
            Self::Counter { set, counter } => write!(f, "need more of counter {set}/{counter} than is left"),
            Self::CountersOff => f.write_str("consume counters, a feature that is off"),
            Self::CompatibilityGroups => f.write_str("are of other compatibility groups than what is allocated"),
            Self::NodeOperations => f.write_str("need a node that can skip node operations"),
            Self::NoAttribute { attribute } => write!(f, "lack attribute {attribute}"),
            Self::DerivedError { attribute, error } => write!(f, "have no derived attribute {attribute}: {error}"),
        }
    }
}

impl Fall {
    /// The rule as text that fits the number of devices.
    pub fn message(&self) -> String {
        let text = self.rule.to_string();
        if self.devices != 1 {
            return text;
        }
        let (verb, rest) = text.split_once(' ').unwrap_or((&text, ""));
        let verb = match verb {
            "are" => "is",
            "have" => "has",
            "do" => "does",
            "lack" => "lacks",
            "need" => "needs",
            "wait" => "waits",
            "consume" => "consumes",
            other => other,
        };
        format!("{verb} {rest}")
    }
}

impl fmt::Display for RequestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "claim {}, request {}: ", self.claim_name, self.request)?;
        match self.wanted {
            Some(wanted) => write!(f, "{} of {} devices are usable, {wanted} wanted", self.usable, self.seen)?,
            None => write!(f, "all of {} devices wanted, {} are usable", self.seen, self.usable)?,
        }
        for (index, fall) in self.falls.iter().enumerate() {
            write!(f, "{} {} {}", if index == 0 { ";" } else { "," }, fall.devices, fall.message())?;
        }
        Ok(())
    }
}

impl Infeasible {
    /// One line, with what the requests found.
    pub(crate) fn message(&self, reports: &[RequestReport], constraints: &[ConstraintReport]) -> String {
        if let Some(constraint) = self.constraint(constraints) {
            let claim = reports.iter().find(|report| report.claim == constraint.claim);
            let claim = claim.map(|report| format!("claim {}, ", report.claim_name)).unwrap_or_default();
            let pools = self.pools.iter().map(|(pool, trouble)| format!("; pool {pool} is {trouble}"));
            return format!("{claim}{constraint}{}", pools.collect::<String>());
        }
        let short = |report: &&RequestReport| report.wanted.is_some_and(|wanted| report.usable < wanted);
        let reports: Vec<String> = reports.iter().filter(short).map(ToString::to_string).collect();
        match &self.proof {
            Proof::TooFew { .. } if !reports.is_empty() => {
                let pools = self.pools.iter().map(|(pool, trouble)| format!("; pool {pool} is {trouble}"));
                reports.join("; ") + &pools.collect::<String>()
            }
            _ => self.to_string(),
        }
    }

    /// The constraint that cannot be met, if it is one.
    fn constraint<'c>(&self, constraints: &'c [ConstraintReport]) -> Option<&'c ConstraintReport> {
        let (Proof::NoCommonValue { claim, constraint } | Proof::TooFewValues { claim, constraint }) = &self.proof
        else {
            return None;
        };
        constraints.iter().find(|report| (report.claim, report.constraint) == (*claim, *constraint))
    }
}

/// Why the constraint cannot be met.
impl fmt::Display for ConstraintReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.distinct {
            return write!(f, "matchAttribute {}: no value is shared by as many devices as wanted", self.attribute);
        }
        write!(f, "distinctAttribute {}: fewer different values than devices wanted", self.attribute)?;
        if self.requests.iter().any(|(_, values)| values.keys().any(|value| value.starts_with(UNKNOWN_VALUE))) {
            f.write_str("; unknown values differ where their attributeBindings say distinctGroups")?;
        }
        Ok(())
    }
}

/// The text that needs no reports.
impl fmt::Display for Infeasible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.proof {
            Proof::TooFew { claim, request, wanted, usable } => {
                write!(f, "claim #{claim}, request {request}: {usable} devices are usable, {wanted} wanted")?;
            }
            Proof::Together { wanted, usable } => {
                write!(f, "the requests together want {wanted} devices and can use {usable}")?;
            }
            Proof::NoCommonValue { claim, constraint } => {
                write!(f, "claim #{claim}, constraint #{constraint}: no value is shared by as many devices as wanted")?;
            }
            Proof::TooFewValues { claim, constraint } => {
                write!(f, "claim #{claim}, constraint #{constraint}: fewer different values than devices wanted")?;
            }
            Proof::Exhausted => f.write_str("no combination of the usable devices satisfies all requests")?,
        }
        for (pool, trouble) in &self.pools {
            write!(f, "; pool {pool} is {trouble}")?;
        }
        Ok(())
    }
}
