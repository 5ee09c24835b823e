//! What a claim asks for, and at which step of the allocator each instance type ends.

use std::{fmt::Write as _, sync::Arc};

use dra_sched::explain::Step;
use dra_sched::verdict::Rule;

use crate::tuning::TOLD_STEPS;

/// One request of a pod's claims, over the instance types of all NodePools that its labels and taints agree with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedDevices {
    /// The claim.
    pub claim: Arc<str>,
    /// `request`, or `request/subrequest`.
    pub request: Arc<str>,
    /// The DeviceClass.
    pub class: Arc<str>,
    /// How many devices; `None` for all there are.
    pub wanted: Option<u64>,
    /// Instance types that were looked at.
    pub types: usize,
    /// Those with a template of which the class admits devices.
    pub with_template: usize,
    /// Where these end, in the order in which the allocator and the planner ask.
    pub ends: Vec<EndingTypes>,
    /// What is the matter with the device that comes furthest, on a type that comes furthest.
    pub nearest: Option<Arc<str>>,
}

/// Instance types that end at one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndingTypes {
    /// How many.
    pub types: usize,
    /// A stable word for programs.
    pub code: &'static str,
    /// The step, as `3 types …`.
    pub what: Arc<str>,
}

/// Where a type ends, in the order in which that is asked. What is known of devices comes first: it holds whatever else
/// would be changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EndOfType {
    Step(Step),
    /// The refusal is not about single devices.
    Refused(Arc<str>),
    /// The search was given up.
    Undecided,
    /// Another request of the pod.
    OtherRequest,
    NodePool,
    Label(Arc<str>),
    Resources,
    /// It would give them, and the plan did not come to that: out of budget, or other claims come first.
    NotSettled,
    /// Devices are there and room is, but nothing to be had; with the zones that would do.
    Offering(Vec<Arc<str>>),
}

impl EndingTypes {
    pub(crate) fn new(types: usize, end: &EndOfType, request: &str) -> Self {
        Self { types, code: end.code(), what: end.message(request).into() }
    }
}

impl ClaimedDevices {
    /// One sentence.
    pub(super) fn message(&self) -> String {
        let Self { claim, request, class, types, with_template, .. } = self;
        let count = match self.wanted {
            Some(1) => String::new(),
            Some(wanted) => format!("{wanted} of "),
            None => "all of ".to_owned(),
        };
        let mut text = format!("needs {count}{class} (claim {claim}, request {request}); ");
        let _ = match with_template {
            0 => write!(
                text,
                "none of {types} instance types has a template for it; a NodeOverlay can say what its driver will publish"
            ),
            1 => write!(text, "1 of {types} instance types has a template for it"),
            _ => write!(text, "{with_template} of {types} instance types have a template for it"),
        };
        for end in self.ends.iter().take(TOLD_STEPS) {
            let _ = write!(text, "; {} {}", end.types, agreeing(&end.what, end.types));
        }
        let more: usize = self.ends.iter().skip(TOLD_STEPS).map(|end| end.types).sum();
        if more > 0 {
            let _ = write!(text, "; {more} end at other steps");
        }
        if let Some(nearest) = &self.nearest {
            let _ = write!(text, "; nearest: {nearest}");
        }
        text
    }
}

/// What is said of several types, of so many.
fn agreeing(what: &str, types: usize) -> String {
    let (verb, rest) = what.split_once(' ').unwrap_or((what, ""));
    let verb = match verb {
        "have" if types == 1 => "has",
        "are" if types == 1 => "is",
        "were" if types == 1 => "was",
        "do" if types == 1 => "does",
        "fail" if types == 1 => "fails",
        "lack" if types == 1 => "lacks",
        verb => verb,
    };
    format!("{verb} {rest}")
}

/// Zones in words, the first few.
fn zones(mut zones: Vec<Arc<str>>) -> String {
    zones.sort();
    zones.dedup();
    let more = zones.len().saturating_sub(TOLD_STEPS);
    let named: Vec<&str> = zones.iter().take(TOLD_STEPS).map(|zone| &**zone).collect();
    let word = if zones.len() == 1 { "zone" } else { "zones" };
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{word} {}{more}", named.join(", "))
}

impl EndOfType {
    fn code(&self) -> &'static str {
        match self {
            Self::Step(step) => step.code(),
            Self::Refused(_) => "Refused",
            Self::Undecided => "OutOfBudget",
            Self::OtherRequest => "OtherRequest",
            Self::NodePool => "NodePool",
            Self::Label(_) => "Label",
            Self::Resources => "Resources",
            Self::NotSettled => "NotSettled",
            Self::Offering(_) => "Offering",
        }
    }

    /// As `3 types …`.
    fn message(&self, request: &str) -> String {
        match self {
            Self::Step(step) => step_message(step, request),
            Self::Refused(why) => format!("fail: {why}"),
            Self::Undecided => "were not decided within the budget".to_owned(),
            Self::OtherRequest => "fail another request".to_owned(),
            Self::NodePool => "are excluded by the NodePool's requirements".to_owned(),
            Self::Label(key) => format!("do not match label {key}"),
            Self::Resources => "are too small".to_owned(),
            Self::NotSettled => "have them, but the plan did not choose them".to_owned(),
            Self::Offering(of) => format!("have no capacity in {}", zones(of.clone())),
        }
    }
}

/// A step of the allocator, as `3 types …`.
fn step_message(step: &Step, request: &str) -> String {
    match step {
        Step::NoDevices => "have no such devices".to_owned(),
        Step::Rule(Rule::ClassSelector { text, .. }) => format!("do not match selector {text} of the class"),
        Step::Rule(Rule::RequestSelector { text, .. }) => format!("do not match selector {text} of request {request}"),
        Step::Rule(Rule::InUse) => "have too few that are not taken".to_owned(),
        Step::Rule(Rule::Taint { taint }) => format!("have device taint {taint}, which is not tolerated"),
        Step::Rule(Rule::Capacity { name }) => format!("have too little capacity {name} for request {request}"),
        Step::Rule(Rule::Counter { set, counter }) => format!("have too little left of counter {set}/{counter}"),
        Step::Rule(Rule::NoAttribute { attribute }) => {
            format!("lack attribute {attribute}, which a constraint compares")
        }
        Step::Rule(rule) => format!("have devices that {rule}"),
        Step::TooFew => "have too few of them".to_owned(),
        Step::Together => "have too few for all requests together".to_owned(),
        Step::Constraint { distinct: false, attribute } => format!("do not satisfy matchAttribute {attribute}"),
        Step::Constraint { distinct: true, attribute } => format!("do not satisfy distinctAttribute {attribute}"),
        Step::Combination => "have no combination that satisfies all requests".to_owned(),
    }
}
