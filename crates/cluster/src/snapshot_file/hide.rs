//! Hiding names: each name becomes a number.
//!
//! Numbers are given out in the order of the names, so that ties that the planner breaks by name are broken the same
//! way and the plan of the hidden snapshot is the plan of the open one with other names. (A hash would shuffle them.)
//! The numbers cannot be turned back into names, and mean nothing outside of the file.
//!
//! Names of objects, namespaces, volumes, owners, devices and requests are hidden, uids and provider ids, the names in
//! notes of disruption commands, and the values of labels, except of labels that come from Kubernetes or the cloud
//! provider and of values that are numbers or booleans. Label keys, names of resources, drivers and instance types
//! stay.

use std::collections::{BTreeMap, BTreeSet};

use api::{groups, labels};
use serde_json::Value;

/// Fields that hold a name wherever they occur.
const NAME_FIELDS: [&str; 23] = [
    "claimName",
    "containerName",
    "counterSet",
    "device",
    "deviceClassName",
    "diskURI",
    "generateName",
    "name",
    "namespace",
    "nodeName",
    "nominatedNodeName",
    "pdName",
    "podGroupName",
    "pool",
    "priorityClassName",
    "providerID",
    "resourceClaimName",
    "resourceClaimTemplateName",
    "storageClassName",
    "uid",
    "volumeHandle",
    "volumeID",
    "volumeName",
];

/// Fields that hold maps of labels.
const LABEL_FIELDS: [&str; 3] = ["labels", "matchLabels", "nodeSelector"];

/// Lists of names; those of `containers` in what devices cost a pod.
const NAME_LISTS: [&str; 3] = ["containers", "namespaces", "nodePools"];

/// Lists of amounts by the name of a resource.
const RESOURCE_LISTS: [&str; 2] = ["mapping", "overhead"];

/// Maps of amounts in a ResourceQuota.
const QUOTA_FIELDS: [&str; 2] = ["hard", "used"];

/// What follows the name of a DeviceClass in their keys.
const DEVICES_OF_CLASS: &str = ".deviceclass.resource.k8s.io/";

/// A request of a claim, or `request/subrequest`; lists of them are `requests`.
const REQUEST: &str = "request";
const REQUESTS: &str = "requests";

/// Replaces the names in the lines of a snapshot. `provider_labels` are keys whose values come from the provider.
pub fn hide_names(lines: &mut [Value], provider_labels: &BTreeSet<String>) {
    let mut names = BTreeSet::new();
    let rule = Rule { provider_labels };
    for line in lines.iter_mut() {
        rule.visit(line, &mut |name| {
            names.insert(name.clone());
        });
    }
    let width = names.len().to_string().len();
    let numbers: BTreeMap<_, _> =
        names.into_iter().enumerate().map(|(index, name)| (name, format!("n{index:0width$}"))).collect();
    for line in lines {
        rule.visit(line, &mut |name| {
            if let Some(number) = numbers.get(name) {
                name.clone_from(number);
            }
        });
    }
}

/// A reference to a request by its name, or to an alternative of one by both names.
fn visit_request(text: &mut String, found: &mut dyn FnMut(&mut String)) {
    let mut names: Vec<_> = text.split('/').map(str::to_owned).collect();
    names.iter_mut().for_each(found);
    *text = names.join("/");
}

/// The note of a disruption command. What is none may hold any name.
fn visit_command(text: &mut String, found: &mut dyn FnMut(&mut String)) {
    let Ok(mut note) = serde_json::from_str::<Value>(text) else {
        text.clear();
        return;
    };
    if let Some(Value::Array(names)) = note.get_mut("nodeClaims") {
        for name in names {
            if let Value::String(name) = name {
                found(name);
            }
        }
    }
    if let Some(Value::Object(bounds)) = note.get_mut("drainBounds") {
        let hidden = std::mem::take(bounds).into_iter().map(|(mut name, bound)| {
            found(&mut name);
            (name, bound)
        });
        *bounds = hidden.collect();
    }
    *text = note.to_string();
}

/// Entries of a quota whose key begins with the name of a DeviceClass.
fn visit_quota(amounts: &mut serde_json::Map<String, Value>, found: &mut dyn FnMut(&mut String)) {
    let entries = std::mem::take(amounts);
    let visited = entries.into_iter().map(|(key, amount)| match key.split_once(DEVICES_OF_CLASS) {
        Some((class, rest)) => {
            let mut class = class.to_owned();
            found(&mut class);
            (format!("{class}{DEVICES_OF_CLASS}{rest}"), amount)
        }
        None => (key, amount),
    });
    amounts.extend(visited);
}

/// Services and ReplicationControllers select by a map of labels; the `selector` of other kinds has fields.
fn is_plain_selector(field: &str, value: &serde_json::Map<String, Value>) -> bool {
    field == "selector" && value.values().all(Value::is_string)
}

struct Rule<'a> {
    provider_labels: &'a BTreeSet<String>,
}

impl Rule<'_> {
    fn visit(&self, value: &mut Value, found: &mut dyn FnMut(&mut String)) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.visit(item, found)),
            Value::Object(fields) => {
                self.visit_expression(fields, found);
                for (field, value) in fields {
                    self.visit_field(field, value, found);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn visit_field(&self, field: &str, value: &mut Value, found: &mut dyn FnMut(&mut String)) {
        match value {
            Value::String(text) if NAME_FIELDS.contains(&field) && !text.is_empty() => found(text),
            Value::String(text) if field == REQUEST => visit_request(text, found),
            Value::Array(items) if field == REQUESTS => {
                for item in items {
                    match item {
                        Value::String(text) => visit_request(text, found),
                        other => self.visit(other, found),
                    }
                }
            }
            Value::String(text) if field == api::annotations::PLANNED_PODS => {
                let hidden = api::annotations::planned_pods(text).map(|(uid, stage)| {
                    let mut uid = uid.to_owned();
                    found(&mut uid);
                    stage.map_or_else(|| uid.clone(), |stage| format!("{uid}:{stage}"))
                });
                *text = hidden.collect::<Vec<_>>().join(",");
            }
            Value::String(text) if field == api::annotations::DISRUPTION_COMMAND => visit_command(text, found),
            Value::Object(labels) if LABEL_FIELDS.contains(&field) || is_plain_selector(field, labels) => {
                for (key, value) in labels {
                    match value {
                        Value::String(value) => self.visit_label(key, value, found),
                        // A `nodeSelector` of slices and allocations has terms.
                        other => self.visit(other, found),
                    }
                }
            }
            Value::Array(items) if NAME_LISTS.contains(&field) => {
                for item in items {
                    match item {
                        Value::String(name) => found(name),
                        other => self.visit(other, found),
                    }
                }
            }
            // What devices cost of the node, in a pod's status: the names are those of resources.
            Value::Array(_) if RESOURCE_LISTS.contains(&field) => {}
            Value::Object(amounts) if QUOTA_FIELDS.contains(&field) => visit_quota(amounts, found),
            // Names of CSI drivers, and instance types as the provider describes them.
            Value::Array(_) | Value::Object(_) if field == "drivers" || field == "instanceType" => {}
            _ => self.visit(value, found),
        }
    }

    /// An expression, a taint or a toleration: something with a label-like key and values.
    fn visit_expression(&self, fields: &mut serde_json::Map<String, Value>, found: &mut dyn FnMut(&mut String)) {
        let Some(key) = fields.get("key").and_then(Value::as_str).map(str::to_owned) else { return };
        if let Some(Value::Array(values)) = fields.get_mut("values") {
            for value in values {
                if let Value::String(value) = value {
                    self.visit_label(&key, value, found);
                }
            }
        }
        if let Some(Value::String(value)) = fields.get_mut("value") {
            self.visit_label(&key, value, found);
        }
    }

    fn visit_label(&self, key: &str, value: &mut String, found: &mut dyn FnMut(&mut String)) {
        let is_word = !value.is_empty() && value.parse::<i64>().is_err() && value != "true" && value != "false";
        if is_word && !self.stays(key) {
            found(value);
        }
    }

    fn stays(&self, key: &str) -> bool {
        let is_node_pool = key == labels::NODEPOOL;
        let is_class = labels::domain(key) != groups::KARPENTER && self.provider_labels.contains(key);
        let is_well_known = labels::WELL_KNOWN.contains(&key) || labels::ALIASES.iter().any(|(alias, _)| *alias == key);
        !is_node_pool && (is_well_known || is_class)
    }
}
