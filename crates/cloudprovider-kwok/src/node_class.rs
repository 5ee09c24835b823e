//! KWOKNodeClass `karpenter.kwok.sh/v1alpha1`, the only kind of node class, and its CRD.

mod schema;

use std::borrow::Cow;

use api::DurationString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::{CustomResource, Resource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct};

pub(crate) use self::schema::crd;

/// How fake nodes behave.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.kwok.sh",
    version = "v1alpha1",
    kind = "KWOKNodeClass",
    root = "KWOKNodeClassDefinition",
    plural = "kwoknodeclasses",
    status = "KWOKNodeClassStatus",
    doc = "Configuration of fake nodes.",
    shortname = "kwoknc",
    shortname = "kwokncs",
    category = "karpenter"
)]
#[serde(rename_all = "camelCase")]
pub struct KWOKNodeClassSpec {
    /// How long after its launch a machine gets its Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_registration_delay: Option<DurationString>,
}

/// Whether a KWOKNodeClass can be used; it always can.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KWOKNodeClassStatus {
    /// `Ready` is true from the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Configuration of fake nodes.
///
/// Written by hand, because the derived type (which only gives the CRD) cannot be read without a `spec`, and users
/// leave it out.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct KWOKNodeClass {
    /// Name, labels and so on.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// How the nodes behave.
    #[serde(default)]
    pub spec: KWOKNodeClassSpec,
    /// Whether it can be used.
    #[serde(default)]
    pub status: Option<KWOKNodeClassStatus>,
}

impl Serialize for KWOKNodeClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("KWOKNodeClass", 5)?;
        object.serialize_field("apiVersion", &Self::api_version(&()))?;
        object.serialize_field("kind", &Self::kind(&()))?;
        object.serialize_field("metadata", &self.metadata)?;
        object.serialize_field("spec", &self.spec)?;
        match &self.status {
            Some(status) => object.serialize_field("status", status)?,
            None => object.skip_field("status")?,
        }
        object.end()
    }
}

impl Resource for KWOKNodeClass {
    type DynamicType = ();
    type Scope = <KWOKNodeClassDefinition as Resource>::Scope;

    fn kind(_: &()) -> Cow<'_, str> {
        KWOKNodeClassDefinition::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        KWOKNodeClassDefinition::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        KWOKNodeClassDefinition::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        KWOKNodeClassDefinition::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;

    use super::*;
    use crate::declaration::DECLARATION;

    #[test]
    fn the_file_in_crds_is_what_the_type_says() {
        let crd = crd();
        let path = format!("{}/../../crds/{}", env!("CARGO_MANIFEST_DIR"), api::crd::file_name(&crd));
        expect_file![path].assert_eq(&api::crd::yaml(&crd).unwrap());
    }

    #[test]
    fn the_crd_is_of_the_declared_kind() {
        let [kind] = DECLARATION.node_class_kinds else { panic!("one kind") };
        let spec = crd().spec;
        assert_eq!((&*spec.group, &*spec.names.kind, &*spec.names.plural), (kind.group, kind.kind, kind.plural));
        assert_eq!(spec.versions[0].name, kind.version);
    }

    #[test]
    fn a_kwok_node_class_without_spec_is_read() {
        let json =
            r#"{"apiVersion":"karpenter.kwok.sh/v1alpha1","kind":"KWOKNodeClass","metadata":{"name":"default"}}"#;
        let class: KWOKNodeClass = serde_json::from_str(json).unwrap();
        assert_eq!(class.spec, KWOKNodeClassSpec::default());
        let written = serde_json::to_value(&class).unwrap();
        assert_eq!(written["apiVersion"], "karpenter.kwok.sh/v1alpha1");
        assert_eq!(written["kind"], "KWOKNodeClass");
    }
}
