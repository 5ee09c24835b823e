//! What a claim asks for, and at which step of the allocator each instance type ends.

use crate::tuning::TOLD_STEPS;
use std::{fmt::Write as _, sync::Arc};

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
        "fall" if types == 1 => "falls",
        verb => verb,
    };
    format!("{verb} {rest}")
}

/// Zones in words, the first few.
pub(crate) fn zones(mut zones: Vec<Arc<str>>) -> String {
    zones.sort();
    zones.dedup();
    let more = zones.len().saturating_sub(TOLD_STEPS);
    let named: Vec<&str> = zones.iter().take(TOLD_STEPS).map(|zone| &**zone).collect();
    let word = if zones.len() == 1 { "zone" } else { "zones" };
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{word} {}{more}", named.join(", "))
}
