//! What the API server and its admission plugins add to a pod: namespace, uid, priority, and what its RuntimeClass says.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::OfflineNote;
use crate::error::ObjectError;
use crate::metadata::decode_object;

/// Every cluster has these.
const SYSTEM_PRIORITIES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

const DEFAULT_NAMESPACE: &str = "default";

/// PriorityClasses and RuntimeClasses of the input, and what of them was asked for and is not there.
#[derive(Debug, Default)]
pub(super) struct Defaults {
    priorities: BTreeMap<String, Priority>,
    default_priority: Option<Priority>,
    runtimes: BTreeMap<String, Value>,
    unknown_priorities: BTreeSet<String>,
    unknown_runtimes: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct Priority {
    value: i64,
    preemption_policy: Option<String>,
}

impl Defaults {
    pub(super) fn add_priority_class(&mut self, object: &Value) -> Result<(), ObjectError> {
        decode_object(object, "PriorityClass", |root| {
            let metadata = root.field("metadata")?;
            let name = metadata.field("name")?.required_str()?.to_owned();
            let priority = Priority {
                value: i64::from(root.field("value")?.int32()?.unwrap_or(0)),
                preemption_policy: root.field("preemptionPolicy")?.str()?.map(str::to_owned),
            };
            if root.field("globalDefault")?.bool()? {
                self.default_priority = Some(priority.clone());
            }
            self.priorities.insert(name, priority);
            Ok(())
        })
    }

    pub(super) fn add_runtime_class(&mut self, object: &Value) -> Result<(), ObjectError> {
        decode_object(object, "RuntimeClass", |root| {
            let metadata = root.field("metadata")?;
            self.runtimes.insert(metadata.field("name")?.required_str()?.to_owned(), object.clone());
            Ok(())
        })
    }

    /// What was asked for and is not there.
    pub(super) fn notes(&self) -> impl Iterator<Item = OfflineNote> + '_ {
        let priorities = self.unknown_priorities.iter().cloned().map(OfflineNote::UnknownPriorityClass);
        priorities.chain(self.unknown_runtimes.iter().cloned().map(OfflineNote::UnknownRuntimeClass))
    }

    /// Completes a PodSpec. Fields of the wrong type are left for decoding to complain about.
    pub(super) fn apply_to_spec(&mut self, spec: &mut Value) {
        let Value::Object(spec) = spec else { return };
        self.apply_priority(spec);
        self.apply_runtime(spec);
    }

    fn apply_priority(&mut self, spec: &mut Map<String, Value>) {
        if spec.get("priority").is_some_and(|priority| !priority.is_null()) {
            return;
        }
        let name = spec.get("priorityClassName").and_then(Value::as_str).filter(|name| !name.is_empty());
        let found = match name {
            None => self.default_priority.clone(),
            Some(name) => {
                let system = SYSTEM_PRIORITIES.into_iter().find(|(system, _)| *system == name);
                let system = system.map(|(_, value)| Priority { value, preemption_policy: None });
                let found = self.priorities.get(name).cloned().or(system);
                if found.is_none() {
                    self.unknown_priorities.insert(name.to_owned());
                }
                found
            }
        };
        let Some(Priority { value, preemption_policy }) = found else { return };
        spec.insert("priority".to_owned(), json!(value));
        if let Some(policy) = preemption_policy {
            spec.entry("preemptionPolicy").or_insert(Value::String(policy));
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
