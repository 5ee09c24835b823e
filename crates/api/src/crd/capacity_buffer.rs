//! What the CapacityBuffer CRD demands.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use kube::CustomResourceExt;
use serde_json::json;

use super::{
    complete, rules,
    schema::{Constrain, at},
};
use crate::{CapacityBuffer, capacity_buffer::ACTIVE_CAPACITY};

pub(super) fn crd() -> CustomResourceDefinition {
    complete(CapacityBuffer::crd(), &[what_to_keep_room_for, how_much, references, rules::conditions])
}

fn what_to_keep_room_for(root: &mut JSONSchemaProps) {
    at(root, "spec")
        .rule(
            "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
            "If podTemplateRef is set, replicas or limits must also be set",
        )
        .rule(
            "!(has(self.podTemplateRef) && has(self.scalableRef))",
            "You must define either PodTemplateRef or ScalableRef, but not both",
        );
    at(root, "spec.provisioningStrategy").default_value(json!(ACTIVE_CAPACITY));
}

fn how_much(root: &mut JSONSchemaProps) {
    at(root, "spec.replicas").range(Some(0.0), None);
    at(root, "spec.percentage").range(Some(0.0), None);
}

fn references(root: &mut JSONSchemaProps) {
    for name in
        ["spec.podTemplateRef.name", "spec.scalableRef.kind", "spec.scalableRef.name", "status.podTemplateRef.name"]
    {
        at(root, name).length(Some(1), None);
    }
}
