//! EC2NodeClass `karpenter.k8s.aws/v1`: its fields, its rules and its CRD.
//!
//! [`spec`] and [`status`] are the object as it is written; `schema` makes the CRD. Behaviour comes from
//! `pkg/apis/v1/ec2nodeclass.go` and `pkg/apis/v1/ec2nodeclass_status.go` of karpenter-provider-aws 1.15.

pub mod alias;
pub mod conditions;
pub mod decode;
pub mod hash;
pub mod kubelet;
mod schema;
pub mod spec;
pub mod status;
pub mod tags;

pub use self::decode::{DecodeError, NodeClass, NodeClassSpec, decode};
pub(crate) use self::schema::crd;
pub use self::spec::{AmiFamily, EC2NodeClassSpec};
pub use self::status::EC2NodeClassStatus;

#[cfg(test)]
mod tests {
    use expect_test::expect_file;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSONSchemaProps, JSONSchemaPropsOrArray};

    use super::crd;

    #[test]
    fn the_file_in_crds_is_what_the_type_says() {
        let crd = crd();
        let path = format!("{}/../../crds/{}", env!("CARGO_MANIFEST_DIR"), api::crd::file_name(&crd));
        expect_file![path].assert_eq(&api::crd::yaml(&crd).unwrap());
    }

    #[test]
    fn every_part_is_described() {
        fn walk(path: &str, schema: &JSONSchemaProps) {
            for (name, field) in schema.properties.iter().flatten() {
                let path = format!("{path}.{name}");
                assert!(field.description.is_some(), "{path} has no description");
                walk(&path, field);
            }
            if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
                walk(&format!("{path}[]"), items);
            }
        }
        let crd = crd();
        walk("EC2NodeClass", crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap());
    }
}
