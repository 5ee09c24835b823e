//! What the KWOKNodeClass CRD demands.

use api::conditions;
use api::crd::schema::{Constrain, at};
use api::crd::{CustomResourceDefinition, complete, rules};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube::CustomResourceExt;
use serde_json::json;

use super::KWOKNodeClassDefinition;

/// The CRD of KWOKNodeClass.
pub(crate) fn crd() -> CustomResourceDefinition {
    complete(
        KWOKNodeClassDefinition::crd(),
        &[spec_is_optional, registration_delay, ready_from_the_start, rules::conditions_without_key],
    )
}

fn spec_is_optional(root: &mut JSONSchemaProps) {
    root.optional(&["spec"]);
}

fn registration_delay(root: &mut JSONSchemaProps) {
    at(root, "spec.nodeRegistrationDelay").pattern(rules::DURATION);
}

/// Nothing reconciles a KWOKNodeClass, so it is born with the condition that a NodePool waits for.
fn ready_from_the_start(root: &mut JSONSchemaProps) {
    at(root, "status").default_value(json!({
        "conditions": [{
            "type": conditions::READY,
            "status": conditions::TRUE,
            "reason": conditions::READY,
            "message": "",
            "lastTransitionTime": "2024-01-01T01:01:01Z",
        }],
    }));
}
