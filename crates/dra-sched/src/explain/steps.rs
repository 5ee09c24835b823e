//! The step of the allocator at which each request of a refused set of claims ends; such steps can be counted over many
//! machines.
//!
//! Devices are removed rule by rule, in the order of [`Rule`], and the request ends at the rule that leaves fewer than
//! it wants. If every request has enough by itself, the rule about their combination is the step.

use std::sync::Arc;

use crate::allocator::report;
use crate::inventory::Inventory;
use crate::verdict::{ConstraintReport, Fall, Infeasible, Proof, Refusal, RequestReport, Rule};
use dra_types::DeviceClassName;

/// Where one request ends on one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestStep {
    /// The claim's name.
    pub claim: Arc<str>,
    /// `request`, or `request/subrequest`.
    pub request: Arc<str>,
    /// The class that it asks for.
    pub class: DeviceClassName,
    /// How many devices it wants; None for all.
    pub wanted: Option<u64>,
    /// Devices that the class admits.
    pub of_class: u64,
    /// The step at which it ends; None if it has enough devices by itself.
    pub step: Option<Step>,
    /// Devices that pass every rule by themselves.
    pub usable: u64,
    /// What is wrong with the device that passes most rules.
    pub nearest: Option<Arc<str>>,
}

/// A step of the allocator, in the order of the checks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The class admits no device.
    NoDevices,
    /// Devices fail this rule.
    Rule(Rule),
    /// There are fewer devices than the request wants, and none fails a rule.
    TooFew,
    /// All requests together want more than there are.
    Together,
    /// A constraint among devices.
    Constraint {
        /// Whether the values must differ, instead of being equal.
        distinct: bool,
        /// The attribute.
        attribute: Arc<str>,
    },
    /// No combination of devices satisfies all rules.
    Combination,
}

impl Step {
    /// A stable identifier for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoDevices => "NoDevices",
            Self::Rule(rule) => rule.code(),
            Self::TooFew => "TooFewDevices",
            Self::Together => "TooFewDevicesTogether",
            Self::Constraint { distinct: false, .. } => "NoCommonValue",
            Self::Constraint { distinct: true, .. } => "TooFewValues",
            Self::Combination => "NoCombination",
        }
    }
}

/// Whether a device that fails the rule is not of the request's class.
fn is_of_class(rule: &Rule) -> bool {
    matches!(rule, Rule::BindingConditionsOff | Rule::ClassSelector { .. })
}

impl RequestStep {
    /// The steps of all requests, in the order of the claims; None if the refusal is not about devices.
    pub fn all_of(inventory: &Inventory, refusal: &Refusal) -> Option<Vec<Self>> {
        let Refusal::Infeasible(infeasible) = refusal else { return None };
        let infeasible = &*infeasible.reasoned(inventory);
        let (requests, constraints) = report::of(inventory, &infeasible.scene, &infeasible.proof)?;
        let mut steps: Vec<Self> = requests.iter().map(step_of).collect();
        if steps.iter().all(|step| step.step.is_none()) {
            blame(infeasible, &constraints, &requests, &mut steps);
        }
        Some(steps)
    }
}

fn step_of(report: &RequestReport) -> RequestStep {
    let mut falls: Vec<&Fall> = report.falls.iter().collect();
    falls.sort_by(|a, b| a.rule.cmp(&b.rule));
    let fallen_at_class: u64 = falls.iter().filter(|fall| is_of_class(&fall.rule)).map(|fall| fall.devices).sum();
    let of_class = report.seen.saturating_sub(fallen_at_class);
    // A request for all devices needs each device of the class to be usable.
    let needed = report.wanted.unwrap_or(of_class.max(1));
    let mut left = of_class;
    let mut step = None;
    if of_class == 0 && needed > 0 {
        step = Some(Step::NoDevices);
    } else if of_class < needed {
        step = Some(Step::TooFew);
    } else {
        for fall in falls.iter().filter(|fall| !is_of_class(&fall.rule)) {
            left = left.saturating_sub(fall.devices);
            if left < needed {
                step = Some(Step::Rule(fall.rule.clone()));
                break;
            }
        }
    }
    let furthest = falls.iter().rev().find(|fall| !is_of_class(&fall.rule)).filter(|_| step.is_some());
    RequestStep {
        claim: Arc::clone(&report.claim_name),
        request: report.request.as_str().into(),
        class: report.class.clone(),
        wanted: report.wanted,
        of_class,
        step,
        usable: report.usable,
        nearest: furthest.map(|fall| miss(fall).into()),
    }
}

/// The first device that fails, and what it lacks.
fn miss(fall: &Fall) -> String {
    let one = Fall { devices: 1, ..fall.clone() };
    // The only pool of a planned machine has no name yet.
    let device = fall.example.replace("//", "/");
    match fall.shortage.map(super::amount) {
        Some(amount) => format!("{device} {}: {} of {}", one.message(), amount.left, amount.needed),
        None => format!("{device} {}", one.message()),
    }
}

/// Every request has enough devices by itself: the rule about their combination ends those that it concerns.
fn blame(
    infeasible: &Infeasible,
    constraints: &[ConstraintReport],
    requests: &[RequestReport],
    steps: &mut [RequestStep],
) {
    let (step, about) = match &infeasible.proof {
        Proof::TooFew { .. } | Proof::Exhausted => (Step::Combination, None),
        Proof::Together { .. } => (Step::Together, None),
        Proof::NoCommonValue { claim, constraint } | Proof::TooFewValues { claim, constraint } => {
            let blamed = constraints.iter().find(|report| (report.claim, report.constraint) == (*claim, *constraint));
            match blamed {
                Some(report) => {
                    let attribute = report.attribute.as_str().into();
                    (Step::Constraint { distinct: report.distinct, attribute }, Some(report))
                }
                None => (Step::Combination, None),
            }
        }
    };
    for (report, of) in requests.iter().zip(steps) {
        let is_meant = about.is_none_or(|about| {
            about.claim == report.claim && about.requests.iter().any(|(request, _)| *request == report.request)
        });
        if is_meant {
            of.step = Some(step.clone());
        }
    }
}
