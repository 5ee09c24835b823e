//! Domains of labels that belong to a cloud provider: its CRDs refuse what is misspelled in them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};

use super::schema::{Constrain, at};
use crate::labels::LabelDomain;

/// Where a kind names labels.
struct Place {
    kind: &'static str,
    path: &'static str,
    form: Form,
}

enum Form {
    /// A text: the key.
    Key,
    /// A map by key.
    Map,
}

const PLACES: [Place; 4] = [
    Place { kind: "NodePool", path: "spec.template.metadata.labels", form: Form::Map },
    Place { kind: "NodePool", path: "spec.template.spec.requirements[].key", form: Form::Key },
    Place { kind: "NodeClaim", path: "spec.requirements[].key", form: Form::Key },
    Place { kind: OVERLAY, path: "spec.requirements[].key", form: Form::Key },
];
const OVERLAY: &str = "NodeOverlay";

/// Adds to CRDs of ours that labels in these domains are ones that the provider knows.
pub(super) fn restrict(crds: &mut [CustomResourceDefinition], domains: &[LabelDomain]) {
    for crd in crds {
        let places = PLACES.iter().filter(|place| place.kind == crd.spec.names.kind);
        let places: Vec<_> = places.collect();
        for version in &mut crd.spec.versions {
            let root = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
            let Some(root) = root else { continue };
            for place in &places {
                for domain in domains {
                    add_rule(root, place, domain);
                }
            }
        }
    }
}

fn add_rule(root: &mut JSONSchemaProps, place: &Place, domain: &LabelDomain) {
    let known = domain.keys.iter().filter(|key| place.kind != OVERLAY || !domain.not_in_overlays.contains(key));
    let known = known.map(|key| format!("\"{key}\"")).collect::<Vec<_>>().join(", ");
    let allows = |key: &str| format!(r#"{key} in [{known}] || !{key}.find("^([^/]+)").endsWith("{}")"#, domain.domain);
    let rule = match place.form {
        Form::Key => allows("self"),
        Form::Map => format!("self.all(x, {})", allows("x")),
    };
    at(root, place.path).rule(&rule, &format!("label domain \"{}\" is restricted", domain.domain));
}
