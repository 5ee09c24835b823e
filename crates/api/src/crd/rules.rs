//! Rules that more than one kind has.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;

use super::schema::{Constrain, at, items};
use crate::{conditions, labels, taints};

/// A qualified name: an optional DNS subdomain and `/`, then a name.
pub(super) const QUALIFIED_NAME: &str = concat!(
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?",
    r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
);
/// The value of a label.
pub(super) const LABEL_VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// A duration of seconds, minutes and hours.
pub const DURATION: &str = "^([0-9]+(s|m|h))+$";
/// A duration of seconds, minutes and hours, or none at all.
pub(super) const DURATION_OR_NEVER: &str = "^(([0-9]+(s|m|h))+|Never)$";

const CONDITION_TYPE: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const CONDITION_REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
const CONDITION_REASON_OR_EMPTY: &str = "^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$";

/// How many requirements an object may have.
const MAX_REQUIREMENTS: i64 = 100;
/// Length of a label key: 253 for the domain and 63 for the name.
const MAX_LABEL_KEY: i64 = 316;
/// Length of a label value.
pub(super) const MAX_LABEL_VALUE: i64 = 63;

/// Bounds and order of `requirements`, and the form of their keys. The CEL rules differ by kind.
pub(super) fn requirements(list: &mut JSONSchemaProps) {
    list.max_items(MAX_REQUIREMENTS).list_type("atomic");
    let key = at(items(list), "key");
    key.pattern(QUALIFIED_NAME).length(None, Some(MAX_LABEL_KEY));
    key.rule(
        r#"self in ["karpenter.sh/capacity-type", "karpenter.sh/nodepool"] || !self.find("^([^/]+)").endsWith("karpenter.sh")"#,
        r#"label domain "karpenter.sh" is restricted"#,
    );
    // Karpenter's CRDs put the length and the pattern of a value on the list, where both mean nothing; so values are
    // as free here, and runtime validation looks at them.
    at(items(list), "values").list_type("atomic");
}

/// Nobody asks for one node by name.
pub(super) fn requirement_key_is_not_hostname(list: &mut JSONSchemaProps) {
    at(items(list), "key")
        .rule(&format!("self != \"{}\"", labels::HOSTNAME), &format!("label \"{}\" is restricted", labels::HOSTNAME));
}

/// Every `In` has values.
pub(super) fn in_has_values(list: &mut JSONSchemaProps) {
    list.rule(
        "self.all(x, x.operator == 'In' ? x.values.size() != 0 : true)",
        "requirements with operator 'In' must have a value defined",
    );
}

/// Every comparison has one integer; the message is the kind's.
pub(super) fn comparison_has_one_integer(list: &mut JSONSchemaProps, message: &str) {
    // Karpenter joins the last two steps by `&&`. With `?` an absent list is reported as such by every CEL engine.
    list.rule(
        "self.all(x, x.operator in ['Gt', 'Lt', 'Gte', 'Lte'] ? (x.values.size() == 1 ? int(x.values[0]) >= 0 : false) : \
         true)",
        message,
    );
}

/// Rules of requirements with `minValues`: NodePools and NodeClaims have them.
pub(super) fn requirements_with_min_values(list: &mut JSONSchemaProps) {
    in_has_values(list);
    comparison_has_one_integer(
        list,
        "requirements operator 'Gt', 'Lt', 'Gte', or 'Lte' must have a single positive integer value",
    );
    list.rule(
        "self.all(x, (x.operator == 'In' && has(x.minValues)) ? x.values.size() >= x.minValues : true)",
        "requirements with 'minValues' must have at least that many values specified in the 'values' field",
    );
    let min_values = at(items(list), "minValues");
    min_values.range(Some(1.0), Some(50.0));
    min_values.format = None;
}

/// Rules of `taints` and `startupTaints`, with our words for what Kubernetes' type describes.
pub(super) fn node_taints(spec: &mut JSONSchemaProps) {
    for field in ["taints", "startupTaints"] {
        let list = at(spec, field).list_type("atomic");
        let taint =
            items(list).describe("Keeps pods off the node that do not tolerate it.").require(&["effect", "key"]);
        at(taint, "key").describe("The taint's key.").length(Some(1), None).pattern(QUALIFIED_NAME);
        at(taint, "value").describe("The taint's value.").pattern(QUALIFIED_NAME);
        at(taint, "effect").describe("What happens to pods that do not tolerate the taint.").one_of(&[
            taints::NO_SCHEDULE,
            taints::PREFER_NO_SCHEDULE,
            taints::NO_EXECUTE,
        ]);
        at(taint, "timeAdded").describe("When the taint was added.");
    }
}

/// Rules of a node class reference.
pub(super) fn node_class_ref(spec: &mut JSONSchemaProps) {
    let reference = at(spec, "nodeClassRef");
    at(reference, "group").pattern("^[^/]*$");
    for field in ["group", "kind", "name"] {
        at(reference, field).rule("self != ''", &format!("{field} may not be empty"));
    }
}

/// `expireAfter` and `terminationGracePeriod`.
pub(super) fn node_lifetime(spec: &mut JSONSchemaProps) {
    at(spec, "expireAfter").pattern(DURATION_OR_NEVER);
    at(spec, "terminationGracePeriod").pattern(DURATION);
}

/// `status.conditions`, one of each type.
pub(super) fn conditions(root: &mut JSONSchemaProps) {
    let list = at(root, "status.conditions").list_type("map");
    list.x_kubernetes_list_map_keys = Some(vec!["type".to_owned()]);
    condition(list);
}

/// `status.conditions` where nothing keeps two of one type apart.
pub fn conditions_without_key(root: &mut JSONSchemaProps) {
    condition(at(root, "status.conditions"));
}

/// Conditions of which earlier versions wrote some without reason and message.
pub(super) fn conditions_with_optional_reason(root: &mut JSONSchemaProps) {
    conditions(root);
    let condition = at(root, "status.conditions[]").require(&["lastTransitionTime", "status", "type"]);
    at(condition, "reason").length(None, Some(1024)).pattern(CONDITION_REASON_OR_EMPTY);
}

fn condition(list: &mut JSONSchemaProps) {
    let condition = items(list).describe("One thing that is so, is not so, or is not known.");
    condition.require(&["lastTransitionTime", "message", "reason", "status", "type"]);
    at(condition, "type").describe("What it is about.").length(None, Some(316)).pattern(CONDITION_TYPE);
    at(condition, "status").describe("Whether it is so.").one_of(&[
        conditions::TRUE,
        conditions::FALSE,
        conditions::UNKNOWN,
    ]);
    at(condition, "reason").describe("Why, in one word.").length(Some(1), Some(1024)).pattern(CONDITION_REASON);
    at(condition, "message").describe("Why, for people.").length(None, Some(32768));
    at(condition, "lastTransitionTime").describe("When the status last changed.");
    at(condition, "observedGeneration")
        .describe("The generation of the object that this was found for.")
        .range(Some(0.0), None);
}
