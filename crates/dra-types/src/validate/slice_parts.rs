//! Rules about what stands inside of slices, devices and requests: who can use them, taints and tolerations, counters,
//! conditions, and amounts that can be asked for.

use model::Quantity;

use super::{MAX_COUNTERS, Problems};
use crate::device::{Device, DeviceCapacity, RequestPolicy};
use crate::json::Reason;
use crate::names::CounterName;
use crate::taint::{DeviceTaint, DeviceToleration, TaintEffect, TolerationOperator};
use crate::{NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm};

const MAX_VALID_VALUES: usize = 10;
/// Conditions of a device, and as many of failure.
const MAX_CONDITIONS: usize = 4;

pub(super) fn term(problems: &mut Problems, field: &str, term: &NodeSelectorTerm) {
    for (place, requirement) in term.match_expressions.iter().enumerate() {
        let field = format!("{field}.matchExpressions[{place}]");
        label_key(problems, &format!("{field}.key"), &requirement.key);
        let expected = match &requirement.operator {
            NodeSelectorOperator::In | NodeSelectorOperator::NotIn => {
                (requirement.values.is_empty(), "at least one value")
            }
            NodeSelectorOperator::Exists | NodeSelectorOperator::DoesNotExist => {
                (!requirement.values.is_empty(), "no values")
            }
            NodeSelectorOperator::Gt | NodeSelectorOperator::Lt => (requirement.values.len() != 1, "exactly one value"),
            NodeSelectorOperator::Other(_) => {
                unknown_operator(problems, &field, requirement);
                continue;
            }
        };
        count(problems, &field, requirement, expected);
        for value in requirement.values.iter().filter(|value| !is_label_value(value)) {
            problems.invalid(&format!("{field}.values"), &format!("{value:?} is not the value of a label"));
        }
        // The API server takes it; the scheduler then fails on every node.
        if matches!(requirement.operator, NodeSelectorOperator::Gt | NodeSelectorOperator::Lt) {
            for value in requirement.values.iter().filter(|value| value.parse::<i64>().is_err()) {
                problems.invalid(&format!("{field}.values"), &format!("{value:?} is not an integer"));
            }
        }
    }
    for (place, requirement) in term.match_fields.iter().enumerate() {
        let field = format!("{field}.matchFields[{place}]");
        if &*requirement.key != "metadata.name" {
            let reason = format!("{:?} is not a field that nodes are selected by; metadata.name is", requirement.key);
            problems.invalid(&format!("{field}.key"), &reason);
        }
        match requirement.operator {
            NodeSelectorOperator::In | NodeSelectorOperator::NotIn => {
                count(problems, &field, requirement, (requirement.values.len() != 1, "exactly one value"));
            }
            NodeSelectorOperator::Exists
            | NodeSelectorOperator::DoesNotExist
            | NodeSelectorOperator::Gt
            | NodeSelectorOperator::Lt
            | NodeSelectorOperator::Other(_) => unknown_operator(problems, &field, requirement),
        }
    }
}

fn count(problems: &mut Problems, field: &str, requirement: &NodeSelectorRequirement, expected: (bool, &str)) {
    if let (true, expected) = expected {
        let (operator, found) = (requirement.operator.as_str(), requirement.values.len());
        problems.invalid(&format!("{field}.values"), &format!("{operator} takes {expected}, not {found}"));
    }
}

fn unknown_operator(problems: &mut Problems, field: &str, requirement: &NodeSelectorRequirement) {
    let reason = format!("{:?} is not an operator here", requirement.operator.as_str());
    problems.invalid(&format!("{field}.operator"), &reason);
}

pub(super) fn taint(problems: &mut Problems, field: &str, taint: &DeviceTaint) {
    label_key(problems, &format!("{field}.key"), &taint.key);
    label_value(problems, &format!("{field}.value"), &taint.value);
    match &taint.effect {
        TaintEffect::Other(none) if none.is_empty() => problems.add(&format!("{field}.effect"), Reason::Required),
        found => effect(problems, field, found),
    }
}

pub(super) fn toleration(problems: &mut Problems, field: &str, toleration: &DeviceToleration) {
    if let Some(key) = &toleration.key {
        label_key(problems, &format!("{field}.key"), key);
    }
    let value = format!("{field}.value");
    match &toleration.operator {
        TolerationOperator::Equal => label_value(problems, &value, &toleration.value),
        TolerationOperator::Exists if toleration.value.is_empty() => {}
        TolerationOperator::Exists => problems.invalid(&value, "must be empty with operator Exists"),
        TolerationOperator::Other(operator) => {
            problems.invalid(&format!("{field}.operator"), &format!("{operator:?} is not one of Equal, Exists"));
        }
    }
    if let Some(found) = &toleration.effect {
        effect(problems, field, found);
    }
}

fn effect(problems: &mut Problems, field: &str, effect: &TaintEffect) {
    match effect {
        TaintEffect::None | TaintEffect::NoSchedule | TaintEffect::NoExecute => {}
        TaintEffect::Other(effect) => problems
            .invalid(&format!("{field}.effect"), &format!("{effect:?} is not one of None, NoSchedule, NoExecute")),
    }
}

pub(super) fn counters<'n>(
    problems: &mut Problems,
    field: &str,
    names: impl ExactSizeIterator<Item = &'n CounterName>,
) {
    if names.len() == 0 {
        problems.add(field, Reason::Required);
    }
    problems.at_most(field, names.len(), MAX_COUNTERS);
    for name in names {
        problems.label(&format!("{field}[{name}]"), name.as_str());
    }
}

/// Either kind of conditions needs the other, and none is of both.
pub(super) fn binding_conditions(problems: &mut Problems, field: &str, device: &Device) {
    let lists = [
        (format!("{field}.bindingConditions"), &device.binding_conditions),
        (format!("{field}.bindingFailureConditions"), &device.binding_failure_conditions),
    ];
    for (field, conditions) in &lists {
        problems.at_most(field, conditions.len(), MAX_CONDITIONS);
        problems.unique(field, conditions.iter().map(|condition| &**condition));
        for (place, condition) in conditions.iter().enumerate() {
            label_key(problems, &format!("{field}[{place}]"), condition);
        }
    }
    let [(of_success, success), (of_failure, failure)] = &lists;
    if let Some(both) = failure.iter().find(|condition| success.contains(condition)) {
        problems.invalid(of_failure, &format!("{both:?} is one of bindingConditions too"));
    }
    match (success.is_empty(), failure.is_empty()) {
        (true, false) => problems.add(of_success, Reason::Required),
        (false, true) => problems.add(of_failure, Reason::Required),
        (true, true) | (false, false) => {}
    }
}

pub(super) fn label_value(problems: &mut Problems, field: &str, value: &str) {
    if !is_label_value(value) {
        problems.invalid(field, &format!("{value:?} is not the value of a label"));
    }
}

pub(super) fn label_key(problems: &mut Problems, field: &str, key: &str) {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if let Some(prefix) = prefix {
        problems.subdomain(field, prefix, 253);
    }
    if name.is_empty() || !is_label_value(name) {
        problems.invalid(field, &format!("{key:?} is not the key of a label"));
    }
}

fn is_label_value(text: &str) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric();
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_none_or(plain)
        && bytes.last().is_none_or(plain)
        && bytes.iter().all(|byte| plain(byte) || b"-_.".contains(byte))
}

pub(super) fn capacity(problems: &mut Problems, field: &str, capacity: &DeviceCapacity) {
    if let Some(policy) = &capacity.request_policy {
        request_policy(problems, &format!("{field}.requestPolicy"), policy, capacity.value);
    }
}

/// What can be asked for must be there.
fn request_policy(problems: &mut Problems, field: &str, policy: &RequestPolicy, most: Quantity) {
    let values = policy.valid_values.as_slice();
    if values.is_empty() && policy.valid_range.is_none() {
        return;
    }
    if !values.is_empty() && policy.valid_range.is_some() {
        problems.invalid(field, "only one of `validValues` and `validRange` is allowed");
        return;
    }
    let Some(default) = policy.default else {
        problems.add(&format!("{field}.default"), Reason::Required);
        return;
    };
    let Some(range) = &policy.valid_range else {
        let field = format!("{field}.validValues");
        problems.at_most(&field, values.len(), MAX_VALID_VALUES);
        if !values.is_sorted_by(|one, next| one < next) {
            problems.invalid(&field, "must be in ascending order, each once");
        }
        if values.iter().any(|value| *value > most) {
            problems.invalid(&field, &format!("must not be more than the capacity, {most}"));
        }
        if !values.contains(&default) {
            problems.invalid(&field, &format!("must contain the default, {default}"));
        }
        return;
    };
    let field = format!("{field}.validRange");
    let Some(min) = range.min else {
        problems.add(&format!("{field}.min"), Reason::Required);
        return;
    };
    let max = range.max.unwrap_or(most);
    if min > most || max > most {
        problems.invalid(&field, &format!("must not be more than the capacity, {most}"));
    }
    if default < min || default > max {
        problems.invalid(&field, &format!("must contain the default, {default}"));
    }
    let Some(step) = range.step.map(Quantity::to_nano) else { return };
    if step <= 0 {
        problems.invalid(&format!("{field}.step"), "must be greater than zero");
        return;
    }
    if min.to_nano().saturating_add(step) > most.to_nano() {
        problems.invalid(&format!("{field}.step"), &format!("one step above min is more than the capacity, {most}"));
    }
    let is_off = |value: Quantity| value.to_nano().saturating_sub(min.to_nano()) % step != 0;
    let ends = [("default", Some(default)), ("max", range.max)];
    for (name, _) in ends.into_iter().filter(|(_, value)| value.is_some_and(is_off)) {
        problems.invalid(&format!("{field}.step"), &format!("{name} is not min plus a multiple of it"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{ResourceSlice, validate};

    fn problems(fields: Value, device: Value) -> Vec<String> {
        let mut spec = json!({
            "driver": "gpu.example.com", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d"}],
        });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        spec["devices"][0].as_object_mut().unwrap().extend(device.as_object().unwrap().clone());
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec,
        });
        let slice = ResourceSlice::from_json(&slice).unwrap();
        let errors = validate::slice(&slice).err().unwrap_or_default();
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn node_selectors_are_held_against_the_rules_of_requirements() {
        let of = |what: &str, requirement: Value| {
            let selector = json!({"nodeSelectorTerms": [{what: [requirement]}]});
            problems(json!({"nodeSelector": selector}), json!({})).concat()
        };
        let cases = [
            ("matchExpressions", json!({"key": "a", "operator": "In", "values": ["x"]}), ""),
            ("matchExpressions", json!({"key": "example.com/a", "operator": "Gt", "values": ["8"]}), ""),
            ("matchExpressions", json!({"key": "a", "operator": "In"}), "In takes at least one value, not 0"),
            (
                "matchExpressions",
                json!({"key": "a", "operator": "Exists", "values": ["x"]}),
                "Exists takes no values, not 1",
            ),
            ("matchExpressions", json!({"key": "a", "operator": "Lt", "values": ["x"]}), "\"x\" is not an integer"),
            (
                "matchExpressions",
                json!({"key": "a", "operator": "In", "values": ["!"]}),
                "\"!\" is not the value of a label",
            ),
            ("matchExpressions", json!({"key": "a b", "operator": "Exists"}), "\"a b\" is not the key of a label"),
            ("matchFields", json!({"key": "metadata.name", "operator": "In", "values": ["n"]}), ""),
            ("matchFields", json!({"key": "spec.x", "operator": "In", "values": ["n"]}), "metadata.name is"),
            (
                "matchFields",
                json!({"key": "metadata.name", "operator": "Exists"}),
                "\"Exists\" is not an operator here",
            ),
        ];
        for (what, requirement, expected) in cases {
            let found = of(what, requirement.clone());
            assert!(found.ends_with(expected) && found.is_empty() == expected.is_empty(), "{requirement}: {found}");
        }
    }

    #[test]
    fn amounts_that_can_be_asked_for_are_there() {
        let of = |policy: Value| {
            let capacity = json!({"memory": {"value": "10", "requestPolicy": policy}});
            let device = json!({"allowMultipleAllocations": true, "capacity": capacity});
            problems(json!({"nodeName": "n"}), device).concat()
        };
        let cases = [
            (json!({"default": "1"}), ""),
            (json!({"default": "2", "validValues": ["1", "2"]}), ""),
            (json!({"default": "2", "validRange": {"min": "1", "max": "9", "step": "1"}}), ""),
            (json!({"validValues": ["1"]}), "default: is required"),
            (json!({"default": "1", "validValues": ["1", "11"]}), "must not be more than the capacity, 10"),
            (json!({"default": "3", "validValues": ["1", "2"]}), "must contain the default, 3"),
            (json!({"default": "1", "validValues": ["2", "1"]}), "must be in ascending order, each once"),
            (json!({"default": "1", "validRange": {}}), "validRange.min: is required"),
            (json!({"default": "20", "validRange": {"min": "1"}}), "must contain the default, 20"),
            (
                json!({"default": "1", "validRange": {"min": "1", "max": "11"}}),
                "must not be more than the capacity, 10",
            ),
            (
                json!({"default": "2", "validRange": {"min": "1", "step": "2"}}),
                "default is not min plus a multiple of it",
            ),
        ];
        for (policy, expected) in cases {
            let found = of(policy.clone());
            assert!(found.ends_with(expected) && found.is_empty() == expected.is_empty(), "{policy}: {found}");
        }
    }

    #[test]
    fn counters_are_there_and_have_the_names_of_labels() {
        let of = |draw: Value| problems(json!({"nodeName": "n"}), json!({"consumesCounters": [draw]})).concat();
        let counters = |name: &str| json!({name: {"value": "1"}});
        assert_eq!(of(json!({"counterSet": "s", "counters": counters("c")})), "");
        assert!(of(json!({"counterSet": "s"})).ends_with("consumesCounters[0].counters: is required"));
        assert!(of(json!({"counterSet": "S", "counters": counters("c")})).contains("consumesCounters[0].counterSet: "));
        assert!(
            of(json!({"counterSet": "s", "counters": counters("C")})).contains("consumesCounters[0].counters[C]: ")
        );
        let in_groups =
            |groups: Value| of(json!({"counterSet": "s", "counters": counters("c"), "compatibilityGroups": groups}));
        assert_eq!(in_groups(json!(["a", "b"])), "");
        assert!(in_groups(json!(["a", "b", "c"])).contains("consumesCounters[0].compatibilityGroups: "));
        assert!(in_groups(json!(["a", "a"])).contains("consumesCounters[0].compatibilityGroups[1]: "));
        assert!(in_groups(json!(["A"])).contains("consumesCounters[0].compatibilityGroups[0]: "));
    }

    #[test]
    fn conditions_of_success_and_of_failure_need_each_other_and_are_different() {
        let of = |success: Value, failure: Value| {
            let device = json!({"bindingConditions": success, "bindingFailureConditions": failure});
            problems(json!({"nodeName": "n"}), device).join("; ")
        };
        assert_eq!(of(json!(["example.com/a", "b"]), json!(["c"])), "");
        assert!(of(json!(["a"]), json!([])).ends_with(".bindingFailureConditions: is required"));
        assert!(of(json!([]), json!(["a"])).ends_with(".bindingConditions: is required"));
        assert!(of(json!(["a"]), json!(["a"])).ends_with("\"a\" is one of bindingConditions too"));
        assert!(of(json!(["a", "a"]), json!(["b"])).ends_with(".bindingConditions[1]: \"a\" appears more than once"));
        assert!(of(json!(["a b"]), json!(["c"])).ends_with("\"a b\" is not the key of a label"));
        assert!(of(json!(["a", "b", "c", "d", "e"]), json!(["f"])).ends_with("5 entries, at most 4 are allowed"));
    }

    #[test]
    fn taints_have_the_keys_and_values_of_labels() {
        let of = |taint: Value| problems(json!({"nodeName": "n"}), json!({"taints": [taint]})).concat();
        assert_eq!(of(json!({"key": "example.com/a", "value": "b", "effect": "NoSchedule"})), "");
        assert!(of(json!({"key": "a b", "effect": "None"})).ends_with("\"a b\" is not the key of a label"));
        assert!(of(json!({"key": "a", "value": "b c", "effect": "None"})).ends_with("is not the value of a label"));
        assert!(of(json!({"key": "a", "effect": "Never"})).ends_with("is not one of None, NoSchedule, NoExecute"));
    }
}
