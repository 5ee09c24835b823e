//! Answers in a form that can be compared.

use std::fmt;

use dra_sched::{Refusal, Verdict, faults::Scope};
use dra_types::{Allocation, ConfigSource, NodeSelector, ResourceClaim};
use serde_json::{Value, json};

/// An answer.
pub(super) struct Shown {
    /// What is compared: the verdict and, of an allocation, all that upstream decides.
    pub answer: Value,
    /// Why.
    pub why: String,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.answer)?;
        if self.why.is_empty() { Ok(()) } else { write!(f, " ({})", self.why) }
    }
}

/// Our answer.
pub(super) fn verdict(verdict: &Verdict) -> Shown {
    match verdict {
        Verdict::Allocated { allocations, .. } if allocations.is_empty() => {
            Shown { answer: json!("nothing"), why: String::new() }
        }
        Verdict::Allocated { allocations, .. } => {
            Shown { answer: allocations.iter().map(allocation).collect(), why: String::new() }
        }
        Verdict::Refused(refusal @ Refusal::Fault(_)) => Shown { answer: json!("error"), why: refusal.to_string() },
        Verdict::Refused(refusal) => Shown { answer: json!("nothing"), why: refusal.to_string() },
        Verdict::OutOfBudget(progress) => {
            Shown { answer: json!("out of budget"), why: format!("{} steps", progress.steps) }
        }
    }
}

/// For whom an error is one: `node`, after which other nodes are tried, or `pod`, whose attempt ends.
pub(super) fn scope(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Refused(Refusal::Fault(fault)) if fault.scope() == Scope::Node => "node",
        Verdict::Refused(_) | Verdict::Allocated { .. } | Verdict::OutOfBudget(_) => "pod",
    }
}

/// The answer of a record.
pub(super) fn recorded(record: &Value) -> Result<Shown, String> {
    if let Some(error) = record["error"].as_str().filter(|error| !error.is_empty()) {
        return Ok(Shown { answer: json!("error"), why: error.to_owned() });
    }
    let mut allocations = Vec::new();
    for result in record["results"].as_array().into_iter().flatten() {
        // The reader of claims reads results too.
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "recorded"},
            "spec": {}, "status": {"allocation": result},
        });
        let claim = ResourceClaim::from_json(&claim).map_err(|error| error.to_string())?;
        allocations.push(allocation(&claim.allocation.ok_or("a result without allocation")?));
    }
    let answer = if allocations.is_empty() { json!("nothing") } else { Value::Array(allocations) };
    Ok(Shown { answer, why: String::new() })
}

fn allocation(allocation: &Allocation) -> Value {
    let devices: Vec<Value> = allocation
        .results
        .iter()
        .map(|result| {
            let consumed = result.consumed_capacity.iter();
            json!({
                "request": result.request.as_str(),
                "device": result.device.to_string(),
                "adminAccess": result.admin_access,
                "share": result.share_id.is_some(),
                "consumed": consumed.map(|(name, amount)| format!("{name}={}n", amount.to_nano())).collect::<Vec<_>>(),
                "bindingConditions": result.binding_conditions.iter().map(|name| &**name).collect::<Vec<_>>(),
                "bindingFailureConditions":
                    result.binding_failure_conditions.iter().map(|name| &**name).collect::<Vec<_>>(),
                "tolerations": result.tolerations.len(),
            })
        })
        .collect();
    let config: Vec<Value> = allocation
        .config
        .iter()
        .map(|config| {
            let source = match &config.source {
                ConfigSource::Class => "class",
                ConfigSource::Claim => "claim",
                ConfigSource::Other(text) => text,
            };
            let requests: Vec<&str> = config.config.requests.iter().map(|name| name.as_str()).collect();
            let opaque = config.config.opaque.as_ref();
            json!([source, requests, opaque.map(|opaque| json!([opaque.driver.as_str(), &*opaque.parameters]))])
        })
        .collect();
    json!({"devices": devices, "config": config, "nodeSelector": allocation.node_selector.as_deref().map(node_selector)})
}

fn node_selector(selector: &NodeSelector) -> Value {
    let requirements = |requirements: &[dra_types::NodeSelectorRequirement]| {
        let show = |requirement: &dra_types::NodeSelectorRequirement| {
            let values: Vec<&str> = requirement.values.iter().map(|value| &**value).collect();
            json!([&*requirement.key, requirement.operator.as_str(), values])
        };
        requirements.iter().map(show).collect::<Vec<Value>>()
    };
    selector
        .terms
        .iter()
        .map(|term| json!([requirements(&term.match_expressions), requirements(&term.match_fields)]))
        .collect()
}
