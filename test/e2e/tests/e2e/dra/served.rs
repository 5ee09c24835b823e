//! What the API server serves of a scenario's objects: it drops fields of features that it does not have.

use anyhow::Result;
use kube::Client;
use kube::api::PostParams;
use serde_json::Value;

use super::scenario::{Scenario, id_of};

/// What the server would refuse or drop, each as a text that names object and field; nothing is written. Nodes are
/// there.
pub(super) async fn not_served(client: &Client, scenario: &Scenario) -> Result<Vec<String>> {
    let mut reasons = Vec::new();
    for object in scenario.objects.iter().filter(|object| object["kind"] != "Node") {
        let id = id_of(object);
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        match super::stage::create(client, object, &dry_run).await {
            Ok(kept) => reasons.extend(dropped(object, &kept).into_iter().map(|field| format!("{id}: drops {field}"))),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let version = object["apiVersion"].as_str().unwrap_or_default();
                reasons.push(format!("{id}: {version} is not served"));
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
                let message = status.message.lines().next().unwrap_or_default().to_owned();
                reasons.push(format!("{id}: refuses: {message}"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(reasons)
}

/// Paths of fields that were sent and did not come back.
pub(super) fn dropped(sent: &Value, kept: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    collect(sent, kept, "", &mut paths);
    paths
}

fn collect(sent: &Value, kept: &Value, path: &str, paths: &mut Vec<String>) {
    match (sent, kept) {
        (Value::Object(sent), Value::Object(kept)) => {
            for (key, value) in sent {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match kept.get(key) {
                    Some(kept) => collect(value, kept, &path, paths),
                    None if is_empty(value) => {}
                    None => paths.push(path),
                }
            }
        }
        (Value::Array(sent), Value::Array(kept)) => {
            for (index, value) in sent.iter().enumerate() {
                let path = format!("{path}[{index}]");
                match kept.get(index) {
                    Some(kept) => collect(value, kept, &path, paths),
                    None => paths.push(path),
                }
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
