//! The CRDs of our API types, as objects and as YAML.
//!
//! The types give fields, descriptions, names, columns and subresources; the files below say what else holds for each
//! kind, one function a rule. Karpenter 1.15 is the model: what its CRDs accept, ours accept, what they refuse, ours
//! refuse, and a message of a CEL rule reads the same. A provider makes the CRDs of its node classes with the same
//! means.

mod capacity_buffer;
mod dynamic_resources;
mod label_domains;
mod node_claim;
mod node_overlay;
mod node_pool;
pub mod rules;
pub mod schema;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;

pub use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::json;
use crate::labels::LabelDomain;

/// The CRDs of the kinds that are not one provider's, in the order in which they are listed everywhere.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![node_pool::crd(), node_claim::crd(), node_overlay::crd(), capacity_buffer::crd()]
}

/// [`crds`], with what providers say of the labels in their own domains.
pub fn crds_with_label_domains(domains: &[LabelDomain]) -> Vec<CustomResourceDefinition> {
    let mut crds = crds();
    label_domains::restrict(&mut crds, domains);
    crds
}

/// The name of a CRD's file: `<group>_<plural>.yaml`.
pub fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}

/// A CRD as YAML, the same for the same CRD always.
pub fn yaml(crd: &CustomResourceDefinition) -> Result<String, YamlError> {
    let error = |reason: String| YamlError { name: crd.metadata.name.clone().unwrap_or_default(), reason };
    let mut json = serde_json::to_value(crd).map_err(|e| error(e.to_string()))?;
    // Bounds are floats in the type, but nobody writes `minimum: 1.0`.
    json::write_whole_numbers_without_fraction(&mut json);
    serde_saphyr::to_string(&json).map_err(|e| error(e.to_string()))
}

/// CRDs as one YAML stream.
pub fn yaml_stream<'a>(crds: impl IntoIterator<Item = &'a CustomResourceDefinition>) -> Result<String, YamlError> {
    crds.into_iter().map(|crd| Ok(format!("---\n{}", yaml(crd)?))).collect()
}

/// A CRD that cannot be written as YAML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("CustomResourceDefinition {name} as YAML: {reason}")]
pub struct YamlError {
    name: String,
    reason: String,
}

/// Hands the schema of a CRD's only version to the functions that complete it.
pub fn complete(mut crd: CustomResourceDefinition, rules: &[fn(&mut JSONSchemaProps)]) -> CustomResourceDefinition {
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    for version in &mut crd.spec.versions {
        if let Some(root) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            schema::make_kubernetes_like(root);
            for rule in rules {
                rule(root);
            }
        }
    }
    crd
}

#[cfg(test)]
mod tests;
