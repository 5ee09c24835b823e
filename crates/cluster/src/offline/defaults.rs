//! What the API server and its admission plugins add to a pod: namespace, uid, priority, what its RuntimeClass says,
//! and the defaults of LimitRanges.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::OfflineNote;
use decode::ObjectError;
use decode::limit_range::{ContainerDefaults, LimitRange};
use decode::metadata::object_name;
use decode::priority_class::{PriorityClasses, priority_class};

const DEFAULT_NAMESPACE: &str = "default";

/// PriorityClasses and RuntimeClasses of the input, and what of them was asked for and is not there.
#[derive(Debug, Default)]
pub(super) struct Defaults {
    priorities: PriorityClasses,
    runtimes: BTreeMap<String, Value>,
    containers: ContainerDefaults,
    unknown_priorities: BTreeSet<String>,
    unknown_runtimes: BTreeSet<String>,
}

impl Defaults {
    pub(super) fn add_priority_class(&mut self, object: &Value) -> Result<(), ObjectError> {
        self.priorities.insert(priority_class(object)?);
        Ok(())
    }

    pub(super) fn add_runtime_class(&mut self, object: &Value) -> Result<(), ObjectError> {
        self.runtimes.insert(object_name(object, "RuntimeClass")?, object.clone());
        Ok(())
    }

    pub(super) fn add_limit_range(&mut self, range: &LimitRange) {
        self.containers.add(range);
    }

    /// What was asked for and is not there.
    pub(super) fn notes(&self) -> impl Iterator<Item = OfflineNote> + '_ {
        let priorities = self.unknown_priorities.iter().cloned().map(OfflineNote::UnknownPriorityClass);
        priorities.chain(self.unknown_runtimes.iter().cloned().map(OfflineNote::UnknownRuntimeClass))
    }

    /// Completes a PodSpec as admission to its namespace does. Fields of the wrong type are left for decoding to
    /// complain about.
    pub(super) fn apply_to_spec(&mut self, namespace: &str, spec: &mut Value) {
        if let Value::Object(spec) = spec {
            self.containers.apply_to_spec(namespace, spec);
        }
        self.apply_classes(spec);
    }

    /// Completes a PodSpec with what its PriorityClass and RuntimeClass say.
    pub(super) fn apply_classes(&mut self, spec: &mut Value) {
        let Value::Object(spec) = spec else { return };
        self.apply_priority(spec);
        self.apply_runtime(spec);
    }

    fn apply_priority(&mut self, spec: &mut Map<String, Value>) {
        if spec.get("priority").is_some_and(|priority| !priority.is_null()) {
            return;
        }
        let name = spec.get("priorityClassName").and_then(Value::as_str).filter(|name| !name.is_empty());
        let Some(class) = self.priorities.of(name) else {
            self.unknown_priorities.extend(name.map(str::to_owned));
            return;
        };
        spec.insert("priority".to_owned(), json!(class.value));
        if let Some(policy) = &class.preemption_policy {
            spec.entry("preemptionPolicy").or_insert_with(|| json!(policy));
        }
    }

    fn apply_runtime(&mut self, spec: &mut Map<String, Value>) {
        let Some(name) = spec.get("runtimeClassName").and_then(Value::as_str).filter(|name| !name.is_empty()) else {
            return;
        };
        let Some(class) = self.runtimes.get(name) else {
            self.unknown_runtimes.insert(name.to_owned());
            return;
        };
        if let Some(overhead) = class.pointer("/overhead/podFixed") {
            spec.entry("overhead").or_insert_with(|| overhead.clone());
        }
        if let Some(Value::Object(labels)) = class.pointer("/scheduling/nodeSelector") {
            let selector = spec.entry("nodeSelector").or_insert_with(|| json!({}));
            if let Value::Object(selector) = selector {
                for (key, value) in labels {
                    selector.entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
        }
        if let Some(Value::Array(tolerations)) = class.pointer("/scheduling/tolerations") {
            let mine = spec.entry("tolerations").or_insert_with(|| json!([]));
            if let Value::Array(mine) = mine {
                mine.extend(tolerations.iter().cloned());
            }
        }
    }
}

/// Puts an object that names no namespace into the default one, and gives an object without a uid one that its name
/// decides. `serial` numbers objects that have `generateName` only.
pub(super) fn apply_to_metadata(object: &mut Value, kind: &str, is_namespaced: bool, serial: usize) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return };
    let is_empty = |metadata: &Map<String, Value>, key: &str| {
        metadata.get(key).is_none_or(|value| value.is_null() || value.as_str() == Some(""))
    };
    if is_empty(metadata, "name")
        && let Some(prefix) = metadata.get("generateName").and_then(Value::as_str)
    {
        let name = format!("{prefix}{serial}");
        metadata.insert("name".to_owned(), Value::String(name));
    }
    if is_namespaced && is_empty(metadata, "namespace") {
        metadata.insert("namespace".to_owned(), Value::String(DEFAULT_NAMESPACE.to_owned()));
    }
    if is_empty(metadata, "uid") {
        let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
        let uid = format!("{kind}/{}/{}", text("namespace"), text("name"));
        metadata.insert("uid".to_owned(), Value::String(uid));
    }
}
