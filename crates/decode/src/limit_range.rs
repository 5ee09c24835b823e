//! LimitRanges: what admission gives to containers that say nothing themselves.
//!
//! A template is not admitted, its pods are. So what a DaemonSet's pods will ask for is the template with the defaults
//! of its namespace's LimitRanges (the plugin `LimitRanger` of the API server). A limit in the template comes first:
//! the API server makes it the request before the plugin looks.
//!
//! Left out: minimum, maximum and ratio. A pod that breaks them is never made.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Interner, NamespacedName, Quantity, ResourceVec};
use serde_json::{Map, Value, json};

use crate::error::{ObjectError, Problem};
use crate::field::Field;
use crate::metadata::{Metadata, decode_object};
use crate::pod;

/// Default requests of containers by resource: as the object writes them, and as a number.
type Requests = BTreeMap<Arc<str>, (Arc<str>, Quantity)>;

/// A LimitRange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitRange {
    /// Namespace and name.
    pub name: NamespacedName,
    requests: Requests,
}

/// Reads a LimitRange.
///
/// # Errors
/// If a field has another type than the API gives it; the error names it.
pub fn limit_range(object: &Value) -> Result<LimitRange, ObjectError> {
    decode_object(object, "LimitRange", |root| {
        let mut requests = Requests::new();
        for item in root.field("spec")?.field("limits")?.items()? {
            if item.field("type")?.str_or_empty()? != "Container" {
                continue;
            }
            // The order in which the API server completes the object: a request that is not given is the limit, which
            // is the maximum if it is not given either; the minimum comes last.
            let mut of_item = Requests::new();
            for list in ["defaultRequest", "default", "max", "min"] {
                for (resource, amount) in item.field(list)?.entries()? {
                    let Some(quantity) = amount.quantity()? else { continue };
                    let entry = || (text_of(amount.value()), quantity);
                    of_item.entry(Arc::from(resource)).or_insert_with(entry);
                }
            }
            keep_largest(&mut requests, &of_item);
        }
        Ok(LimitRange { name: Metadata::decode(&root.field("metadata")?)?.name, requests })
    })
}

/// A quantity as it is written; the API server takes numbers too.
fn text_of(value: Option<&Value>) -> Arc<str> {
    match value {
        Some(Value::String(text)) => text.as_str().into(),
        Some(other) => other.to_string().into(),
        None => "0".into(),
    }
}

fn keep_largest(requests: &mut Requests, others: &Requests) {
    for (resource, other) in others {
        match requests.get_mut(resource) {
            Some(known) if known.1 >= other.1 => {}
            Some(known) => *known = other.clone(),
            None => drop(requests.insert(Arc::clone(resource), other.clone())),
        }
    }
}

/// What the LimitRanges of each namespace give to containers.
///
/// The API server takes several LimitRanges of a namespace in no fixed order, and the first decides. Here the largest
/// amount does, so that no machine is too small whatever the order.
#[derive(Debug, Clone, Default)]
pub struct ContainerDefaults(BTreeMap<Arc<str>, Requests>);

impl<'a> FromIterator<&'a LimitRange> for ContainerDefaults {
    fn from_iter<I: IntoIterator<Item = &'a LimitRange>>(ranges: I) -> Self {
        let mut defaults = Self::default();
        ranges.into_iter().for_each(|range| defaults.add(range));
        defaults
    }
}

impl ContainerDefaults {
    /// Adds a LimitRange.
    pub fn add(&mut self, range: &LimitRange) {
        if !range.requests.is_empty() {
            keep_largest(self.0.entry(Arc::clone(&range.name.namespace)).or_default(), &range.requests);
        }
    }

    /// Whether containers in this namespace are given anything.
    pub fn has(&self, namespace: &str) -> bool {
        self.0.contains_key(namespace)
    }

    /// Completes the containers of a PodSpec. Fields of the wrong type are left for decoding to complain about.
    pub fn apply_to_spec(&self, namespace: &str, spec: &mut Map<String, Value>) {
        let Some(requests) = self.0.get(namespace) else { return };
        for list in ["containers", "initContainers"] {
            let Some(Value::Array(containers)) = spec.get_mut(list) else { continue };
            containers.iter_mut().filter_map(Value::as_object_mut).for_each(|container| complete(container, requests));
        }
    }
}

fn complete(container: &mut Map<String, Value>, defaults: &Requests) {
    let resources = container.entry("resources").or_insert_with(|| json!({}));
    if resources.is_null() {
        *resources = json!({});
    }
    let Value::Object(resources) = resources else { return };
    let limits: Vec<String> = match resources.get("limits") {
        Some(Value::Object(limits)) => limits.keys().cloned().collect(),
        Some(_) | None => Vec::new(),
    };
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    if requests.is_null() {
        *requests = json!({});
    }
    let Value::Object(requests) = requests else { return };
    for (resource, (amount, _)) in defaults {
        if !limits.iter().any(|limit| **limit == **resource) {
            requests.entry(resource.to_string()).or_insert_with(|| json!(&**amount));
        }
    }
}

/// What of a template's spec says what its pods ask for, kept as it is written: LimitRanges come and go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateResources(Map<String, Value>);

impl TemplateResources {
    /// Of a DaemonSet; `None` if it has no such spec.
    pub fn of_daemon_set(object: &Value) -> Option<Self> {
        let spec = object.pointer("/spec/template/spec")?.as_object()?;
        let mut kept = Map::new();
        for (field, value) in spec {
            let value = match (field.as_str(), value) {
                ("containers" | "initContainers", Value::Array(containers)) => containers.iter().map(pruned).collect(),
                ("resources" | "overhead", value) => value.clone(),
                _ => continue,
            };
            kept.insert(field.clone(), value);
        }
        Some(Self(kept))
    }

    /// What pods of the template ask for once they are admitted to this namespace.
    pub fn requests(
        &self,
        namespace: &str,
        defaults: &ContainerDefaults,
        names: &mut Interner,
    ) -> Result<ResourceVec, Problem> {
        let mut spec = self.0.clone();
        defaults.apply_to_spec(namespace, &mut spec);
        let spec = Value::Object(spec);
        pod::template_requests(&Field::root(&spec), names)
    }
}

/// What of a container the sum of requests reads.
fn pruned(container: &Value) -> Value {
    let field = |name: &str| container.get(name).map(|value| (name.to_owned(), value.clone()));
    Value::Object(["name", "resources", "restartPolicy"].into_iter().filter_map(field).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(name: &str, limits: Value) -> LimitRange {
        limit_range(&json!({"metadata": {"namespace": "system", "name": name}, "spec": {"limits": limits}})).unwrap()
    }

    /// CPU and memory that a pod asks for whose containers have these resources.
    fn requests(ranges: &[LimitRange], containers: &[Value]) -> (i64, i64) {
        let containers: Vec<_> = containers.iter().map(|it| json!({"name": "c", "resources": it})).collect();
        let set = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        let defaults: ContainerDefaults = ranges.iter().collect();
        let requests = TemplateResources::of_daemon_set(&set).unwrap();
        let requests = requests.requests("system", &defaults, &mut Interner::new()).unwrap();
        (requests.get(model::ResourceId::CPU), requests.get(model::ResourceId::MEMORY))
    }

    #[test]
    fn a_default_is_given_to_each_container_that_says_nothing() {
        let ranges = [range("a", json!([{"type": "Container", "defaultRequest": {"cpu": "300m", "memory": "1Ki"}}]))];
        assert_eq!(requests(&ranges, &[json!({}), json!(null)]), (600, 2048));
        assert_eq!(requests(&ranges, &[json!({"requests": {"cpu": "100m"}})]), (100, 1024));
        assert_eq!(requests(&ranges, &[json!({"limits": {"cpu": "2"}})]), (2000, 1024), "a limit is a request first");
        assert_eq!(requests(&[], &[json!({})]), (0, 0));
    }

    #[test]
    fn a_request_that_a_range_does_not_name_is_its_limit_or_maximum_or_minimum() {
        let of = |limits: Value| requests(&[range("a", json!([limits]))], &[json!({})]).0;
        assert_eq!(of(json!({"type": "Container", "default": {"cpu": "2"}, "max": {"cpu": "4"}})), 2000);
        assert_eq!(of(json!({"type": "Container", "max": {"cpu": "4"}, "min": {"cpu": "1"}})), 4000);
        assert_eq!(of(json!({"type": "Container", "min": {"cpu": 1}})), 1000, "a number is a quantity too");
        assert_eq!(of(json!({"type": "Pod", "max": {"cpu": "4"}})), 0, "only containers have defaults");
    }

    #[test]
    fn of_several_ranges_the_largest_default_counts_whatever_their_order() {
        let ranges =
            ["200m", "1", "300m"].map(|cpu| range(cpu, json!([{"type": "Container", "defaultRequest": {"cpu": cpu}}])));
        assert_eq!(requests(&ranges, &[json!({})]).0, 1000);
        let elsewhere = LimitRange { name: NamespacedName::new("other", "a"), ..ranges[1].clone() };
        assert_eq!(requests(&[elsewhere], &[json!({})]).0, 0, "a range is for its own namespace");
    }

    #[test]
    fn a_range_that_cannot_be_read_names_the_field() {
        let error = limit_range(&json!({"metadata": {"name": "a"}, "spec": {"limits": [
            {"type": "Container", "default": {"cpu": "much"}}]}}))
        .unwrap_err();
        assert!(error.to_string().contains("spec.limits[0].default[cpu]"), "{error}");
    }
}
