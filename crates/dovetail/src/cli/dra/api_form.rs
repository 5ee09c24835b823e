//! Parts of an allocation as the API server keeps them.

use dra_types::{ConfigSource, NodeSelector, NodeSelectorRequirement, ResultConfig};
use serde_json::{Map, Value, json};

/// An entry of `status.allocation.devices.config`.
pub(super) fn config(config: &ResultConfig) -> Value {
    let mut entry = Map::new();
    let source = match &config.source {
        ConfigSource::Class => "FromClass",
        ConfigSource::Claim => "FromClaim",
        ConfigSource::Other(text) => text,
    };
    entry.insert("source".to_owned(), source.into());
    if !config.config.requests.is_empty() {
        let requests = config.config.requests.iter().map(|name| name.as_str().into()).collect();
        entry.insert("requests".to_owned(), Value::Array(requests));
    }
    if let Some(opaque) = &config.config.opaque {
        let form = json!({"driver": opaque.driver.as_str(), "parameters": &*opaque.parameters});
        entry.insert("opaque".to_owned(), form);
    }
    Value::Object(entry)
}

/// `status.allocation.nodeSelector`.
pub(super) fn node_selector(selector: &NodeSelector) -> Value {
    let terms = selector.terms.iter().map(|term| {
        let mut form = Map::new();
        for (field, requirements) in
            [("matchExpressions", &term.match_expressions), ("matchFields", &term.match_fields)]
        {
            if !requirements.is_empty() {
                form.insert(field.to_owned(), requirements.iter().map(requirement).collect());
            }
        }
        Value::Object(form)
    });
    json!({"nodeSelectorTerms": terms.collect::<Vec<_>>()})
}

fn requirement(requirement: &NodeSelectorRequirement) -> Value {
    let (key, operator) = (&*requirement.key, requirement.operator.as_str());
    if requirement.values.is_empty() {
        return json!({"key": key, "operator": operator});
    }
    let values: Vec<&str> = requirement.values.iter().map(|value| &**value).collect();
    json!({"key": key, "operator": operator, "values": values})
}
