//! The plugins' answer beside ours.

use std::collections::{BTreeMap, BTreeSet};

use dra_types::{Allocation, Compat, Gates, KubernetesMinor};
use model::Quantity;
use serde_json::{Value, json};

use crate::ours::{self, Answer, Given};
use crate::refusal::{self, Class, Refused};
use oracle_harness::counts::Unanswered;

/// What two answers are to each other.
pub(crate) enum Comparison {
    /// Equal; what it came to.
    Same(Vec<&'static str>),
    /// Different in a way that is deliberate.
    Known(KnownDifference),
    /// Different.
    Different(String),
    /// One of the two has no answer.
    Unanswered(Unanswered),
}

/// A difference from upstream that is deliberate: a `Differs:` in the code.
#[derive(Clone, Copy)]
pub(crate) enum KnownDifference {
    /// A class whose extended resource another class serves.
    ImplicitNameOfShadowedClass,
}

impl KnownDifference {
    /// All.
    pub(crate) const ALL: [Self; 1] = [Self::ImplicitNameOfShadowedClass];

    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ImplicitNameOfShadowedClass => "implicit name of a shadowed class",
        }
    }

    /// What differs.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::ImplicitNameOfShadowedClass => {
                "the scheduler forgets deviceclass.resource.kubernetes.io/<class> of a class that it hears of after a better \
                 one with the same extended resource; that depends on when it was started, so we serve the name"
            }
        }
    }
}

/// Compares upstream's answer with ours: what is given, or what a refusal means for the pod and what it is about.
pub(crate) fn compare(question: &Value, release: KubernetesMinor, answer: &Value) -> Comparison {
    let theirs = &answer["nodes"][0];
    if let Some(why) = answer["unanswered"].as_str() {
        let crashed = why.starts_with("crashed");
        return Comparison::Unanswered(if crashed { Unanswered::Crash } else { Unanswered::Theirs });
    }
    if theirs.is_null() {
        // Shrinking takes it away.
        return Comparison::Unanswered(Unanswered::Ours("the question has no node".to_owned()));
    }
    if refusal::is_out_of_time(theirs) {
        return Comparison::Unanswered(Unanswered::Theirs);
    }
    let gates = question["features"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let on = gates.filter_map(|name| name.parse().ok()).fold(Gates::NONE, |gates: Gates, gate| gates.with(gate, true));
    let ours = match ours::answer(question, &Compat::with_gates(release, on)) {
        Ok(ours) => ours,
        Err(why) => return Comparison::Unanswered(Unanswered::Ours(why)),
    };
    let differs = |what: &str, theirs: String, ours: String| {
        Comparison::Different(format!("{what}\nupstream {theirs}\nours     {ours}"))
    };
    if theirs["code"] == "Success" {
        return match ours {
            Answer::Given(given) => match (upstreams(theirs), form(&given)) {
                (Some(theirs), ours) if theirs == ours => Comparison::Same(vec![kind(&given)]),
                (theirs, ours) => differs("given", theirs.unwrap_or_default().to_string(), ours.to_string()),
            },
            Answer::Refused { refused, why } => differs("verdict", theirs.to_string(), format!("{refused}: {why}")),
        };
    }
    let refused = refusal::upstreams(theirs);
    if let Some(Class::Node(short)) = refused.as_ref().map(|refused| &refused.class)
        && is_short_of_shadowed_class_too(question, short, &ours)
    {
        return Comparison::Known(KnownDifference::ImplicitNameOfShadowedClass);
    }
    match (refused, ours) {
        (Some(theirs), Answer::Refused { refused, .. }) if theirs == refused => {
            Comparison::Same(vec![refused.class.name()])
        }
        // Upstream finds that out at the very end. We say it first, since nothing that changes on a node helps.
        (
            Some(Refused { class: Class::NodeWithDevices(_) | Class::Whole | Class::Elsewhere, .. }),
            Answer::Refused { refused: Refused { class: Class::NotRecorded, .. }, .. },
        ) => Comparison::Same(vec![Class::NotRecorded.name()]),
        (class, Answer::Refused { refused, why }) => {
            let classes = class.map_or("unknown", |class| class.class.name());
            let what = format!("refusal: {classes}, ours {}", refused.class.name());
            differs(&what, theirs.to_string(), format!("{refused}: {why}"))
        }
        (_, Answer::Given(given)) => differs("verdict", theirs.to_string(), form(&given).to_string()),
    }
}

fn kind(given: &Given) -> &'static str {
    match (&given.extended, given.demand.0.is_empty()) {
        (Some(_), true) => "with extended resources",
        (Some(_), false) => "with extended resources that cost",
        (None, false) => "with devices that cost",
        (None, true) => "with neither",
    }
}

/// Whether upstream finds the implicit names of shadowed classes short, and besides them what we find short of the
/// node. If it finds them alone short, it looks no further, so whatever we say is no difference.
fn is_short_of_shadowed_class_too(question: &Value, short: &BTreeSet<String>, ours: &Answer) -> bool {
    let classes = || question["classes"].as_array().into_iter().flatten();
    let is_shadowed = |name: &str| {
        let resource = classes()
            .find(|class| class["metadata"]["name"] == name)
            .map_or(&Value::Null, |class| &class["spec"]["extendedResourceName"]);
        !resource.is_null() && classes().filter(|class| class["spec"]["extendedResourceName"] == *resource).count() > 1
    };
    let of_class = |name: &String| name.strip_prefix("deviceclass.resource.kubernetes.io/").is_some_and(&is_shadowed);
    let others: BTreeSet<String> = short.iter().filter(|name| !of_class(name)).cloned().collect();
    others.len() < short.len()
        && (others.is_empty()
            || matches!(ours, Answer::Refused { refused: Refused { class: Class::Node(ours), .. }, .. } if *ours == others))
}

/// Upstream's answer in the form of ours.
fn upstreams(theirs: &Value) -> Option<Value> {
    let mappings = theirs["mappings"].as_array();
    let is_extended =
        |claim: &&Value| claim["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true";
    let claims = theirs["claims"].as_array().map_or(&[][..], Vec::as_slice);
    let extended = claims.iter().find(is_extended).map(|claim| {
        let requests = claim["spec"]["devices"]["requests"].as_array().into_iter().flatten().map(|request| {
            json!([request["name"], request["exactly"]["deviceClassName"], request["exactly"]["count"]])
        });
        requests.collect::<Vec<_>>()
    });
    let mut mapped: Vec<Value> = mappings
        .into_iter()
        .flatten()
        .map(|mapping| json!([mapping["containerName"], mapping["resourceName"], mapping["requestName"]]))
        .collect();
    mapped.sort_by_key(Value::to_string);
    let mut costs: BTreeMap<String, i128> = BTreeMap::new();
    for status in theirs["costs"].as_array().into_iter().flatten() {
        for (name, nano) in charged(status)? {
            *costs.entry(name).or_default() += nano;
        }
    }
    let allocations = claims
        .iter()
        .map(|claim| {
            let mut claim = claim.clone();
            claim["apiVersion"] = "resource.k8s.io/v1".into();
            claim["kind"] = "ResourceClaim".into();
            let claim = dra_types::ResourceClaim::from_json(&claim).ok()?;
            claim.allocation.as_ref().map(allocation)
        })
        .collect::<Option<Vec<Value>>>()?;
    Some(json!({
        "claims": allocations, "extended": extended, "mappings": mapped,
        "costs": costs.into_iter().filter(|(_, nano)| *nano != 0).map(|(name, nano)| (name, nano.to_string())).collect::<BTreeMap<_, _>>(),
    }))
}

/// What a claim is charged in a pod's status, in the words of 1.36 and of 1.37.
fn charged(status: &Value) -> Option<Vec<(String, i128)>> {
    let nano = |amount: &Value| match amount.as_str() {
        Some(text) => Quantity::parse(text).ok().map(Quantity::to_nano),
        None => Some(0),
    };
    let of_list = |field: &str| status[field].as_array().cloned().unwrap_or_default();
    let name = |entry: &Value| entry["name"].as_str().map(str::to_owned);
    let containers = of_list("containers").len() as i128;
    let mut charged = Vec::new();
    for (name, amount) in status["resources"].as_object().into_iter().flatten() {
        charged.push((name.clone(), nano(amount)?));
    }
    for entry in of_list("mapping") {
        charged.push((name(&entry)?, nano(&entry["quantity"])?));
    }
    for entry in of_list("overhead") {
        charged.push((name(&entry)?, nano(&entry["perPod"])? + nano(&entry["perContainer"])? * containers));
    }
    Some(charged)
}

fn form(given: &Given) -> Value {
    let mut mapped: Vec<Value> = given
        .extended
        .iter()
        .flat_map(|(_, mappings)| mappings)
        .map(|mapping| json!([&*mapping.container, &*mapping.resource, mapping.request.as_str()]))
        .collect();
    mapped.sort_by_key(Value::to_string);
    let extended = given.extended.as_ref().map(|(spec, _)| ours::requests(spec));
    let costs =
        given.demand.0.iter().filter(|(_, nano)| **nano != 0).map(|(name, nano)| (name.to_string(), nano.to_string()));
    json!({
        "claims": given.allocations.iter().map(allocation).collect::<Vec<_>>(), "extended": extended,
        "mappings": mapped, "costs": costs.collect::<BTreeMap<_, _>>(),
    })
}

fn allocation(allocation: &Allocation) -> Value {
    let result = |result: &dra_types::AllocationResult| {
        let consumed = result.consumed_capacity.iter();
        json!([
            result.request.as_str(),
            result.device.to_string(),
            consumed.map(|(name, amount)| format!("{name}={}n", amount.to_nano())).collect::<Vec<_>>(),
        ])
    };
    allocation.results.iter().map(result).collect()
}
