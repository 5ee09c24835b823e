//! What the NodeClaim CRD demands.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use kube::CustomResourceExt;

use super::{
    complete, rules,
    schema::{Constrain, at},
};
use crate::NodeClaim;

pub(super) fn crd() -> CustomResourceDefinition {
    complete(
        NodeClaim::crd(),
        &[
            spec_is_immutable,
            requirements,
            node_class_taints_and_lifetime,
            status_times,
            rules::conditions_with_optional_reason,
        ],
    )
}

fn spec_is_immutable(root: &mut JSONSchemaProps) {
    at(root, "spec").rule("self == oldSelf", "spec is immutable");
}

fn requirements(root: &mut JSONSchemaProps) {
    let list = at(root, "spec.requirements");
    rules::requirements(list);
    rules::requirement_key_is_not_hostname(list);
    rules::requirements_with_min_values(list);
}

fn node_class_taints_and_lifetime(root: &mut JSONSchemaProps) {
    let spec = at(root, "spec");
    rules::node_class_ref(spec);
    rules::node_taints(spec);
    rules::node_lifetime(spec);
}

fn status_times(root: &mut JSONSchemaProps) {
    at(root, "status.lastPodEventTime").describe("When a pod last came to or left the node.");
}
