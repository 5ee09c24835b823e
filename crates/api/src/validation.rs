//! What the CRDs cannot check: rules that depend on the cloud provider, or on more than one list.
//!
//! The controller runs these on every NodePool and NodeOverlay and writes what they find into the condition
//! `ValidationSucceeded`; offline commands print the same. They hold for stored objects, which an older CRD may have
//! let in, so they repeat some of what today's CRDs check.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::core::v1::Taint;

use crate::{
    NodeOverlay, NodePool, NodeSelectorRequirement, NodeSelectorRequirementWithMinValues, Operator, conditions,
    labels::{self, ProviderLabels},
    names::{label_value_error, qualified_name_error},
    resources, taints,
};

/// One thing that is wrong, or worth a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path of the field, as in `spec.template.spec.taints[0]`.
    pub field: String,
    /// What is wrong there.
    pub reason: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

/// What validation found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Each makes the object unusable.
    pub errors: Vec<Finding>,
    /// Each is worth a look, but the object is used.
    pub warnings: Vec<Finding>,
}

impl Findings {
    /// Whether the object can be used.
    pub fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// All errors as one message, for a condition.
    pub fn message(&self) -> String {
        self.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    fn error(&mut self, field: impl Into<String>, reason: String) {
        self.errors.push(Finding { field: field.into(), reason });
    }
}

/// Reason of a NodePool's `ValidationSucceeded` where [`node_pool`] finds errors.
pub const NODE_POOL_REASON: &str = conditions::node_pool::NODE_POOL_VALIDATION_FAILED;
/// Reason of a NodeOverlay's `ValidationSucceeded` where [`node_overlay`] finds errors.
pub const NODE_OVERLAY_REASON: &str = conditions::node_overlay::RUNTIME_VALIDATION;

/// Checks a NodePool's template.
pub fn node_pool(node_pool: &NodePool, provider: &ProviderLabels) -> Findings {
    let mut findings = Findings::default();
    let template = &node_pool.spec.template;
    for (key, value) in &template.metadata.labels {
        template_label(key, value, provider, &mut findings);
    }
    let mut seen = BTreeSet::new();
    node_taints("spec.template.spec.taints", &template.spec.taints, &mut seen, &mut findings);
    node_taints("spec.template.spec.startupTaints", &template.spec.startup_taints, &mut seen, &mut findings);
    for (index, requirement) in template.spec.requirements.iter().enumerate() {
        let field = format!("spec.template.spec.requirements[{index}]");
        if requirement.key == labels::NODEPOOL {
            findings.error(&field, format!("key {:?} is set by the NodePool itself", requirement.key));
        }
        check_requirement(&field, requirement, provider, &mut findings);
    }
    findings
}

/// Checks a NodeOverlay.
pub fn node_overlay(overlay: &NodeOverlay, provider: &ProviderLabels) -> Findings {
    let mut findings = Findings::default();
    for (index, NodeSelectorRequirement { key, operator, values }) in overlay.spec.requirements.iter().enumerate() {
        let field = format!("spec.requirements[{index}]");
        let requirement = NodeSelectorRequirementWithMinValues {
            key: key.clone(),
            operator: operator.clone(),
            values: values.clone(),
            min_values: None,
        };
        check_requirement(&field, &requirement, provider, &mut findings);
        if *operator == Operator::NotIn && values.is_empty() {
            findings.error(field, format!("key {key:?} with operator NotIn needs a value"));
        }
    }
    for name in overlay.spec.capacity.iter().flat_map(|capacity| capacity.keys()) {
        if resources::WELL_KNOWN.contains(&name.as_str()) {
            findings.error(format!("spec.capacity[{name}]"), "is the cloud provider's to state".to_owned());
        }
    }
    findings
}

fn template_label(key: &str, value: &str, provider: &ProviderLabels, findings: &mut Findings) {
    let field = format!("spec.template.metadata.labels[{key}]");
    if key == labels::NODEPOOL {
        findings.error(&field, "is set by the NodePool itself".to_owned());
    }
    if let Some(reason) = qualified_name_error(key) {
        findings.error(&field, format!("key {key:?}: {reason}"));
    }
    if let Some(reason) = label_value_error(value) {
        findings.error(&field, format!("value {value:?}: {reason}"));
    }
    if provider.is_restricted(key) {
        findings.error(field, restricted(key, provider));
    }
}

fn node_taints(list_field: &str, list: &[Taint], seen: &mut BTreeSet<(String, String)>, findings: &mut Findings) {
    for (index, taint) in list.iter().enumerate() {
        let field = format!("{list_field}[{index}]");
        if let Some(reason) = qualified_name_error(&taint.key) {
            findings.error(&field, format!("key {:?}: {reason}", taint.key));
        }
        // Kubernetes asks less of a taint's value; Karpenter wants a qualified name.
        let value = taint.value.as_deref().unwrap_or_default();
        if let Some(reason) = qualified_name_error(value).filter(|_| !value.is_empty()) {
            findings.error(&field, format!("value {value:?} of key {:?}: {reason}", taint.key));
        }
        let effects = [taints::NO_SCHEDULE, taints::PREFER_NO_SCHEDULE, taints::NO_EXECUTE, ""];
        if !effects.contains(&taint.effect.as_str()) {
            findings.error(&field, format!("effect {:?} of key {:?} is unknown", taint.effect, taint.key));
        }
        if !seen.insert((taint.key.clone(), taint.effect.clone())) {
            findings.error(
                field,
                format!(
                    "key {:?} with effect {:?} is there twice in taints and startupTaints",
                    taint.key, taint.effect
                ),
            );
        }
    }
}

fn check_requirement(
    field: &str,
    requirement: &NodeSelectorRequirementWithMinValues,
    provider: &ProviderLabels,
    findings: &mut Findings,
) {
    let NodeSelectorRequirementWithMinValues { operator, values, min_values, .. } = requirement;
    let key = provider.normalize(&requirement.key);
    let mut error = |message: String| findings.error(field, message);
    if provider.is_restricted(key) {
        error(restricted(key, provider));
    }
    if let Some(reason) = qualified_name_error(key) {
        error(format!("key {key:?}: {reason}"));
    }
    for value in values {
        if let Some(reason) = label_value_error(value) {
            error(format!("value {value:?} of key {key:?}: {reason}"));
        }
    }
    match operator {
        Operator::Unknown(operator) => error(format!(
            "key {key:?} has the unknown operator {operator:?}; known are {}",
            Operator::KNOWN.join(", ")
        )),
        Operator::In => {
            if values.is_empty() {
                error(format!("key {key:?} with operator In needs a value"));
            }
            if let Some(min_values) = min_values.filter(|min| len(values) < *min) {
                error(format!("key {key:?} has {} values, fewer than its minValues {min_values}", values.len()));
            }
            known_values(field, key, values, *min_values, provider, findings);
        }
        Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => {
            let integer = match values.as_slice() {
                [value] => value.parse::<i64>().ok().filter(|integer| *integer >= 0),
                _ => None,
            };
            if integer.is_none() {
                error(format!("key {key:?} with operator {operator} needs one integer that is not negative"));
            }
        }
        Operator::NotIn | Operator::Exists | Operator::DoesNotExist => {}
    }
}

/// A key whose values are all known must keep enough of them after those that are not known are left out.
fn known_values(
    field: &str,
    key: &str,
    values: &[String],
    min_values: Option<i64>,
    provider: &ProviderLabels,
    findings: &mut Findings,
) {
    let Some(known) = provider.known_values(key).filter(|_| provider.is_well_known(key)) else { return };
    let (good, bad): (Vec<_>, Vec<_>) = values.iter().cloned().partition(|value| known.contains(value.as_str()));
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    if good.is_empty() {
        findings.error(field, format!("key {key:?} has no known value; known are {known}"));
    } else if let Some(min_values) = min_values.filter(|min| len(&good) < *min) {
        findings.error(
            field,
            format!(
                "key {key:?} has {} known values, fewer than its minValues {min_values}; known are {known}",
                good.len()
            ),
        );
    } else if !bad.is_empty() {
        let bad = bad.join(", ");
        let reason = format!("key {key:?} has the unknown values {bad}; known are {known}");
        findings.warnings.push(Finding { field: field.to_owned(), reason });
    }
}

fn restricted(key: &str, provider: &ProviderLabels) -> String {
    let well_known: BTreeSet<&str> =
        labels::WELL_KNOWN.into_iter().chain(provider.well_known.iter().map(String::as_str)).collect();
    format!(
        "key {key:?} is restricted; use a well-known label ({}) or a key outside of the domains {}",
        well_known.into_iter().collect::<Vec<_>>().join(", "),
        provider.restricted_domains().collect::<Vec<_>>().join(", ")
    )
}

fn len(values: &[String]) -> i64 {
    i64::try_from(values.len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(template: serde_json::Value) -> NodePool {
        let mut pool = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
            "spec": {"template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [],
            }}},
        });
        if let Some(metadata) = template.get("metadata") {
            pool["spec"]["template"]["metadata"] = metadata.clone();
        }
        for (field, value) in template["spec"].as_object().into_iter().flatten() {
            pool["spec"]["template"]["spec"][field] = value.clone();
        }
        serde_json::from_value(pool).unwrap()
    }

    fn findings_of_requirement(requirement: serde_json::Value) -> Findings {
        node_pool(&pool(json!({"spec": {"requirements": [requirement]}})), &ProviderLabels::default())
    }

    /// The template is refused with exactly one error, which contains `expected`.
    fn check(template: serde_json::Value, expected: &str) {
        let findings = node_pool(&pool(template), &ProviderLabels::default());
        assert_eq!(findings.errors.len(), 1, "{expected}: {findings:?}");
        assert!(findings.errors[0].to_string().contains(expected), "{expected}: {findings:?}");
    }

    #[test]
    fn a_plain_node_pool_is_valid() {
        let template = json!({
            "metadata": {"labels": {"team": "a", "karpenter.sh/capacity-type": "spot"}},
            "spec": {
                "taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}],
                "startupTaints": [{"key": "team", "value": "a", "effect": "NoExecute"}],
                "requirements": [
                    {"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["arm64"]},
                    {"key": "example.com/cores", "operator": "Gte", "values": ["4"]},
                ],
            },
        });
        let findings = node_pool(&pool(template), &ProviderLabels::default());
        assert_eq!(findings, Findings::default());
    }

    #[test]
    fn labels_must_be_the_users_own() {
        check(json!({"metadata": {"labels": {"karpenter.sh/nodepool": "x"}}}), "set by the NodePool itself");
        check(json!({"metadata": {"labels": {"team.karpenter.sh/x": "y"}}}), "is restricted");
        check(json!({"metadata": {"labels": {"kubernetes.io/hostname": "y"}}}), "is restricted");
        check(json!({"metadata": {"labels": {"a//b": "y"}}}), "a//b");
        check(json!({"metadata": {"labels": {"a": "not a value"}}}), "not a value");
    }

    #[test]
    fn taints_are_told_apart_across_both_lists() {
        let taint = json!({"key": "a", "effect": "NoSchedule"});
        check(json!({"spec": {"taints": [taint], "startupTaints": [taint]}}), "twice");
        check(json!({"spec": {"taints": [{"key": "a", "effect": "Sometimes"}]}}), "Sometimes");
        check(json!({"spec": {"taints": [{"key": "a b", "effect": "NoExecute"}]}}), "a b");
        check(json!({"spec": {"taints": [{"key": "a", "value": "-", "effect": "NoExecute"}]}}), "\"-\"");
    }

    #[test]
    fn requirements_need_sensible_operators_and_values() {
        let cases = [
            (json!({"key": "a", "operator": "Near"}), "unknown operator \"Near\""),
            (json!({"key": "a", "operator": "In"}), "needs a value"),
            (json!({"key": "a", "operator": "In", "values": ["b"], "minValues": 2}), "minValues 2"),
            (json!({"key": "a", "operator": "Gt", "values": ["many"]}), "needs one integer"),
            (json!({"key": "a", "operator": "Lte", "values": ["1", "2"]}), "needs one integer"),
            (json!({"key": "a", "operator": "In", "values": ["b c"]}), "b c"),
            (json!({"key": "karpenter.sh/x", "operator": "Exists"}), "is restricted"),
            (json!({"key": "karpenter.sh/nodepool", "operator": "Exists"}), "set by the NodePool itself"),
        ];
        for (requirement, expected) in cases {
            check(json!({"spec": {"requirements": [requirement]}}), expected);
        }
    }

    #[test]
    fn unknown_capacity_types_are_errors_only_where_too_few_known_ones_are_left() {
        let of = |values: &[&str], min_values: Option<i64>| {
            let mut requirement = json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": values});
            if let Some(min_values) = min_values {
                requirement["minValues"] = json!(min_values);
            }
            findings_of_requirement(requirement)
        };
        assert!(!of(&["sport"], None).is_valid());
        assert!(!of(&["spot", "sport"], Some(2)).is_valid());
        let warned = of(&["spot", "sport"], None);
        assert!(warned.is_valid() && warned.warnings[0].reason.contains("sport"), "{warned:?}");
        assert_eq!(of(&["spot", "reserved"], Some(2)), Findings::default());
    }

    #[test]
    fn an_overlay_may_not_exclude_nothing_nor_state_what_the_provider_states() {
        let overlay: NodeOverlay = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "a"},
            "spec": {
                "requirements": [{"key": "karpenter.sh/nodepool", "operator": "NotIn"}],
                "capacity": {"cpu": "1", "example.com/gpu": 1},
            },
        }))
        .unwrap();
        let findings = node_overlay(&overlay, &ProviderLabels::default());
        assert_eq!(
            findings.message(),
            "spec.requirements[0]: key \"karpenter.sh/nodepool\" with operator NotIn needs a value; spec.capacity[cpu]: is the \
             cloud provider's to state"
        );
    }
}
