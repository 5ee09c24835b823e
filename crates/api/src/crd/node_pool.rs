//! What the NodePool CRD demands.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use kube::CustomResourceExt;
use serde_json::json;

use super::{
    complete, rules,
    schema::{Constrain, at, items},
};
use crate::{NodePool, disruption, labels};

const BUDGET_NODES: &str = "^((100|[0-9]{1,2})%|[0-9]+)$";
/// Hours and minutes only, since cron has no seconds; Go writes a duration with `0s` at its end.
const BUDGET_DURATION: &str = "^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$";
/// Not anchored on both sides, as in Karpenter; runtime parses the rest.
const BUDGET_SCHEDULE: &str =
    r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$";

pub(super) fn crd() -> CustomResourceDefinition {
    complete(
        NodePool::crd(),
        &[
            static_and_dynamic_do_not_mix,
            weight_and_replicas,
            disruption_defaults_and_forms,
            budgets,
            template_labels,
            template_annotations,
            template_requirements,
            template_node_class,
            template_taints_and_lifetime,
            status,
            rules::conditions,
        ],
    )
}

fn static_and_dynamic_do_not_mix(root: &mut JSONSchemaProps) {
    at(root, "spec")
        .rule(
            "has(self.replicas) == has(oldSelf.replicas)",
            "Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes",
        )
        .rule(
            "!has(self.replicas) || (!has(self.limits) || size(self.limits) == 0 || (size(self.limits) == 1 && 'nodes' in \
             self.limits))",
            "only 'limits.nodes' is supported on static NodePools",
        )
        .rule("!has(self.replicas) || !has(self.weight)", "'weight' is not supported on static NodePools");
}

fn weight_and_replicas(root: &mut JSONSchemaProps) {
    at(root, "spec.weight").range(Some(1.0), Some(100.0));
    at(root, "spec.replicas").range(Some(0.0), None);
}

fn disruption_defaults_and_forms(root: &mut JSONSchemaProps) {
    at(root, "spec.disruption").default_value(json!({ "consolidateAfter": disruption::CONSOLIDATE_AFTER }));
    at(root, "spec.disruption.consolidateAfter").pattern(rules::DURATION_OR_NEVER);
    at(root, "spec.disruption.consolidationPolicy").default_value(json!(disruption::CONSOLIDATION_POLICY));
}

fn budgets(root: &mut JSONSchemaProps) {
    let budgets = at(root, "spec.disruption.budgets");
    budgets
        .max_items(50)
        .list_type("atomic")
        .default_value(json!([{ "nodes": disruption::BUDGET_NODES }]))
        .rule("self.all(x, has(x.schedule) == has(x.duration))", "'schedule' must be set with 'duration'");
    let budget = items(budgets).require(&["nodes"]);
    at(budget, "nodes").pattern(BUDGET_NODES);
    at(budget, "schedule").pattern(BUDGET_SCHEDULE);
    at(budget, "duration").pattern(BUDGET_DURATION);
    at(budget, "reasons").max_items(50).list_type("set");
}

fn template_labels(root: &mut JSONSchemaProps) {
    let labels = at(root, "spec.template.metadata.labels").map_type("atomic");
    labels.max_properties = Some(100);
    labels
        .rule(
            r#"self.all(x, x in ["karpenter.sh/capacity-type", "karpenter.sh/nodepool"] || !x.find("^([^/]+)").endsWith("karpenter.sh"))"#,
            r#"label domain "karpenter.sh" is restricted"#,
        )
        .rule(r#"self.all(x, x != "karpenter.sh/nodepool")"#, r#"label "karpenter.sh/nodepool" is restricted"#)
        .rule(r#"self.all(x, x != "kubernetes.io/hostname")"#, r#"label "kubernetes.io/hostname" is restricted"#);
    at(root, "spec.template.metadata.labels{}").length(None, Some(rules::MAX_LABEL_VALUE)).pattern(rules::LABEL_VALUE);
}

fn template_annotations(root: &mut JSONSchemaProps) {
    at(root, "spec.template.metadata.annotations").map_type("granular");
}

fn template_requirements(root: &mut JSONSchemaProps) {
    let list = at(root, "spec.template.spec.requirements");
    rules::requirements(list);
    at(items(list), "key")
        .rule(&format!("self != \"{}\"", labels::NODEPOOL), &format!("label \"{}\" is restricted", labels::NODEPOOL));
    rules::requirement_key_is_not_hostname(list);
    rules::requirements_with_min_values(list);
}

fn template_node_class(root: &mut JSONSchemaProps) {
    let spec = at(root, "spec.template.spec");
    rules::node_class_ref(spec);
    at(spec, "nodeClassRef")
        .rule("self.group == oldSelf.group", "nodeClassRef.group is immutable")
        .rule("self.kind == oldSelf.kind", "nodeClassRef.kind is immutable");
}

fn template_taints_and_lifetime(root: &mut JSONSchemaProps) {
    let spec = at(root, "spec.template.spec");
    rules::node_taints(spec);
    rules::node_lifetime(spec);
}

fn status(root: &mut JSONSchemaProps) {
    at(root, "status.nodes").default_value(json!(0));
}
