//! A refusal in full: for each request how many devices fail which rule, the values in play, and what would make it
//! fit.
//!
//! It is only made when somebody prints it. In its serialised form it is an interface: fields are added, never renamed.

mod steps;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Quantity;
use serde::Serialize;

use crate::allocator::report;
use crate::compile::ids::DeviceIndex;
use crate::faults::{PoolTrouble, Scope};
use crate::inventory::Inventory;
use crate::tuning::NAMED_VALUES;
use crate::verdict::{ConstraintReport, Fall, Infeasible, Proof, Refusal, RequestReport, Rule, Shortage};
use dra_types::{DeviceId, RequestName};

pub use steps::{RequestStep, Step};

/// A refusal, explained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// A stable identifier for programs.
    pub code: &'static str,
    /// In one line.
    pub message: String,
    /// Whether no other node could help.
    pub everywhere: bool,
    /// What each request found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestExplanation>,
    /// Values in play under constraints that no devices satisfy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<ValueInPlay>,
    /// Pools that are seen but not used, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
    /// What would make it fit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
}

/// What one request, or one alternative of it, found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestExplanation {
    /// The claim.
    pub claim: String,
    /// `request`, or `request/subrequest`.
    pub request: String,
    /// How many devices it wants; None for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<u64>,
    /// Devices that the node can reach.
    pub seen: u64,
    /// Devices that pass every rule by themselves.
    pub usable: u64,
    /// How many of the others fail which rule, most first.
    pub fell: Vec<FallExplanation>,
}

/// Devices that fail one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FallExplanation {
    /// How many.
    pub devices: u64,
    /// A stable identifier of the rule.
    pub rule: &'static str,
    /// The rule in words, as `… devices <message>`.
    pub message: String,
    /// The first of them.
    pub example: String,
    /// The values that a selector found in what it reads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub met: Vec<Met>,
    /// What is short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<Amount>,
    /// Who has what is missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<Holder>,
}

/// Values of one attribute or capacity among devices that fell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Met {
    /// The attribute or capacity, or `driver`.
    pub name: String,
    /// The values.
    pub values: Vec<String>,
}

/// An amount that is not enough.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Amount {
    /// What the device that is nearest to fitting needs.
    pub needed: String,
    /// What is left.
    pub left: String,
}

/// Who has a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// The device.
    pub device: String,
    /// The claim, and the pod if it is known.
    pub holder: String,
}

/// What usable devices of one request have under the attribute of a constraint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ValueInPlay {
    /// `matchAttribute` or `distinctAttribute`.
    pub constraint: &'static str,
    /// The attribute.
    pub attribute: String,
    /// The request.
    pub request: String,
    /// Devices by value.
    pub devices: BTreeMap<Arc<str>, u64>,
}

impl Explanation {
    /// An explanation without details, for refusals that look at no device.
    pub fn new(code: &'static str, message: String) -> Self {
        Self {
            code,
            message,
            everywhere: false,
            requests: Vec::new(),
            values: Vec::new(),
            pools: Vec::new(),
            hints: Vec::new(),
        }
    }

    /// Explains a refusal. `holder` names who has a device, if that is known.
    pub fn of(inventory: &Inventory, refusal: &Refusal, holder: &dyn Fn(&DeviceId) -> Option<String>) -> Self {
        let plain = |code, everywhere| Self { everywhere, ..Self::new(code, refusal.to_string()) };
        match refusal {
            Refusal::Elsewhere { .. } => plain("AllocatedElsewhere", false),
            Refusal::Shared { .. } => plain("ClaimOfAnotherPod", false),
            Refusal::TooManyConsumers { .. } => plain("TooManyConsumers", true),
            Refusal::NotUsed { .. } => plain("ClaimNotUsed", false),
            Refusal::NotRecorded { .. } => plain("CostsNotRecorded", false),
            Refusal::Fault(fault) => plain("Fault", fault.scope() == Scope::Pod),
            Refusal::Infeasible(infeasible) => {
                let infeasible = &*infeasible.reasoned(inventory);
                let (requests, constraints) =
                    report::of(inventory, &infeasible.scene, &infeasible.proof).unwrap_or_default();
                let explainer = Explainer { inventory, holder };
                Self {
                    message: infeasible.message(&requests, &constraints),
                    requests: relevant(&requests).map(|request| explainer.request(request)).collect(),
                    values: constraints.iter().flat_map(values_in_play).collect(),
                    pools: infeasible.pools.iter().map(|(pool, trouble)| format!("{pool} is {trouble}")).collect(),
                    hints: hints(infeasible, &requests, &constraints),
                    ..plain(code(&infeasible.proof), false)
                }
            }
        }
    }

    /// Renames claims. The allocator treats claims with equal specs as one, under the name of the first
    /// ([`Inventory::claim_name`]); a caller that asked about another one puts its name in here.
    pub fn rename_claims(&mut self, names: &[(&str, &str)]) {
        for (from, to) in names.iter().filter(|(from, to)| from != to) {
            for request in self.requests.iter_mut().filter(|request| request.claim == *from) {
                (*to).clone_into(&mut request.claim);
            }
            for end in [",", ":"] {
                self.message = self.message.replace(&format!("claim {from}{end}"), &format!("claim {to}{end}"));
            }
        }
    }
}

/// The context in which a refusal is explained.
struct Explainer<'a> {
    inventory: &'a Inventory,
    /// Who has a device, if that is known.
    holder: &'a dyn Fn(&DeviceId) -> Option<String>,
}

impl Explainer<'_> {
    fn request(&self, request: &RequestReport) -> RequestExplanation {
        RequestExplanation {
            claim: request.claim_name.to_string(),
            request: request.request.to_string(),
            wanted: request.wanted,
            seen: request.seen,
            usable: request.usable,
            fell: request.falls.iter().map(|fall| self.fall(fall)).collect(),
        }
    }

    fn fall(&self, fall: &Fall) -> FallExplanation {
        let met = match &fall.rule {
            Rule::ClassSelector { text, .. } | Rule::RequestSelector { text, .. } => self.met(text, &fall.sample),
            _ => Vec::new(),
        };
        let holds = |device: DeviceId| {
            (self.holder)(&device).map(|holder| Holder { device: device.device.to_string(), holder })
        };
        let named = |device: &DeviceIndex| self.inventory.keys[self.inventory.devices[*device].key].clone();
        let held_by = match &fall.rule {
            Rule::InUse | Rule::Capacity { .. } => fall.sample.iter().map(named).filter_map(holds).collect(),
            Rule::Counter { set, counter } => {
                let drawing = self.drawing(fall, set.as_str(), counter.as_str());
                drawing.map(|device| named(&device)).filter_map(holds).take(NAMED_VALUES).collect()
            }
            _ => Vec::new(),
        };
        FallExplanation {
            devices: fall.devices,
            rule: fall.rule.code(),
            message: fall.message(),
            example: fall.example.to_string(),
            met,
            amount: fall.shortage.map(amount),
            held_by,
        }
    }

    /// All devices that draw from a counter of the pool whose devices failed.
    fn drawing<'i>(&'i self, fall: &Fall, set: &'i str, counter: &'i str) -> impl Iterator<Item = DeviceIndex> + 'i {
        let pool = fall.sample.first().map(|device| self.inventory.slices[self.inventory.devices[*device].slice].pool);
        let pool = pool.map(|pool| &self.inventory.pools[pool]);
        let draws = move |device: &DeviceIndex| {
            pool.is_some_and(|pool| {
                self.inventory.devices[*device].draws.iter().any(|draw| {
                    pool.sets[draw.set].as_str() == set
                        && draw.counters.iter().any(|(drawn, _)| pool.counters[*drawn].1.as_str() == counter)
                })
            })
        };
        let slices = pool.into_iter().flat_map(|pool| &pool.slices);
        slices.flat_map(|slice| self.inventory.devices_of(*slice)).filter(draws)
    }

    /// The values that some devices have in the attributes and capacities named in a selector's text.
    fn met(&self, text: &str, sample: &[DeviceIndex]) -> Vec<Met> {
        let mut met: Vec<Met> = Vec::new();
        let mut add = |name: &str, value: String| match met.iter_mut().find(|known| known.name == name) {
            Some(known) if known.values.contains(&value) => {}
            Some(known) => known.values.push(value),
            None => met.push(Met { name: name.to_owned(), values: vec![value] }),
        };
        for shape in sample.iter().map(|device| &self.inventory.shapes[self.inventory.devices[*device].shape]) {
            let device = shape.device();
            if text.contains("device.driver") {
                add("driver", format!("\"{}\"", shape.driver));
            }
            for (name, value) in device.attributes.iter().filter(|(name, _)| mentions(text, name.id())) {
                add(name.as_str(), value.to_string());
            }
            for (name, capacity) in device.capacity.iter().filter(|(name, _)| mentions(text, name.id())) {
                add(name.as_str(), capacity.value.to_string());
            }
        }
        met
    }
}

/// Whether a text contains an identifier.
fn mentions(text: &str, identifier: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(identifier).any(|(at, _)| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let after = text.get(at + identifier.len()..).and_then(|after| after.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

fn amount(shortage: Shortage) -> Amount {
    let text = |nano: i128| {
        let binary = nano % (1024 * 1_000_000_000) == 0;
        let format = if binary { model::quantity::Format::BinarySi } else { model::quantity::Format::DecimalSi };
        Quantity::from_nano(nano, format).map_or_else(|_| "too much".to_owned(), |quantity| quantity.to_string())
    };
    Amount { needed: text(shortage.needed), left: text(shortage.left) }
}

/// The requests that the proof is about: those with too few devices, if there are any.
fn relevant(reports: &[RequestReport]) -> impl Iterator<Item = &RequestReport> {
    let short = |report: &RequestReport| match report.wanted {
        Some(wanted) => report.usable < wanted,
        None => report.usable < report.seen || report.seen == 0,
    };
    let any = reports.iter().any(short);
    reports.iter().filter(move |report| !any || short(report))
}

fn values_in_play(report: &ConstraintReport) -> impl Iterator<Item = ValueInPlay> + '_ {
    report.requests.iter().map(|(request, devices)| ValueInPlay {
        constraint: if report.distinct { "distinctAttribute" } else { "matchAttribute" },
        attribute: report.attribute.to_string(),
        request: request.to_string(),
        devices: devices.clone(),
    })
}

fn code(proof: &Proof) -> &'static str {
    match proof {
        Proof::TooFew { .. } => "TooFewDevices",
        Proof::Together { .. } => "TooFewDevicesTogether",
        Proof::NoCommonValue { .. } => "NoCommonValue",
        Proof::TooFewValues { .. } => "TooFewValues",
        Proof::Exhausted => "NoCombination",
    }
}

/// Single changes that would make it fit.
fn hints(infeasible: &Infeasible, requests: &[RequestReport], constraints: &[ConstraintReport]) -> Vec<String> {
    let mut hints = Vec::new();
    for report in relevant(requests) {
        let Some(wanted) = report.wanted else { continue };
        let missing = wanted.saturating_sub(report.usable);
        if missing > 0 {
            hints.extend(hints_for(report, missing));
        }
    }
    for report in constraints {
        hints.extend(disjoint(report));
    }
    for (pool, trouble) in &infeasible.pools {
        hints.push(match trouble {
            PoolTrouble::Incomplete { .. } => format!("the driver publishes the missing slices of pool {pool}"),
            _ => format!("the driver corrects pool {pool}"),
        });
    }
    hints.dedup();
    hints
}

/// Single changes that give a request its missing devices, the easiest first.
fn hints_for(report: &RequestReport, missing: u64) -> Vec<String> {
    let request = &report.request;
    let mut changes: Vec<(u8, String)> = Vec::new();
    for fall in report.falls.iter().filter(|fall| fall.devices >= missing) {
        changes.extend(match &fall.rule {
            Rule::InUse if missing == 1 => Some((0, format!("1 device for request {request} is given back"))),
            Rule::InUse => Some((0, format!("{missing} devices for request {request} are given back"))),
            Rule::Counter { set, counter } => {
                Some((1, format!("what is drawn from counter {set}/{counter} is given back, for request {request}")))
            }
            Rule::Capacity { name } => {
                Some((2, format!("request {request} asks for less {name}, or some is given back")))
            }
            Rule::Taint { taint } => Some((3, format!("request {request} tolerates {taint}"))),
            Rule::RequestSelector { text, .. } => {
                Some((5, format!("request {request} does without its selector {text}")))
            }
            _ => None,
        });
    }
    if report.usable > 0 {
        changes.push((4, format!("request {request} wants {} or fewer", report.usable)));
    }
    changes.sort();
    changes.into_iter().map(|(_, change)| change).collect()
}

/// Two requests of a matchAttribute constraint whose devices have no value in common.
fn disjoint(report: &ConstraintReport) -> Option<String> {
    if report.distinct {
        return None;
    }
    let named = |(request, values): &(RequestName, BTreeMap<Arc<str>, u64>)| {
        let mut texts: Vec<&str> = values.keys().map(|value| &**value).collect();
        let more = texts.len().saturating_sub(NAMED_VALUES);
        texts.truncate(NAMED_VALUES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{request} has {}{more}", texts.join(", "))
    };
    for (index, first) in report.requests.iter().enumerate() {
        for second in report.requests.iter().skip(index + 1) {
            let is_apart = !first.1.is_empty()
                && !second.1.is_empty()
                && !first.1.keys().any(|value| second.1.contains_key(value));
            if is_apart {
                let (attribute, first, second) = (&report.attribute, named(first), named(second));
                return Some(format!("devices shared {attribute}, but {first}; {second}"));
            }
        }
    }
    None
}
