use expect_test::expect_file;

use super::*;

#[test]
fn files_in_crds_are_what_the_types_say() {
    // The providers depend on this crate as it is without tests, so their values are of another type.
    let domains = cloudprovider_aws::DECLARATION.label_domains.iter();
    let domains =
        domains.map(|it| LabelDomain { domain: it.domain, keys: it.keys, not_in_overlays: it.not_in_overlays });
    for crd in crds_with_label_domains(&domains.collect::<Vec<_>>()) {
        let path = format!("{}/../../crds/{}", env!("CARGO_MANIFEST_DIR"), file_name(&crd));
        expect_file![path].assert_eq(&yaml(&crd).unwrap());
    }
}

#[test]
fn yaml_reads_back_as_the_same_crd() {
    for crd in crds() {
        let read: CustomResourceDefinition = serde_saphyr::from_str(&yaml(&crd).unwrap()).unwrap();
        assert_eq!(read, crd);
    }
}

#[test]
fn texts_that_old_yaml_takes_for_booleans_are_quoted() {
    let stream = yaml_stream(&crds()).unwrap();
    assert!(stream.contains("- \"True\"") || stream.contains("- 'True'"), "{stream}");
    assert!(!stream.contains("- True\n") && !stream.contains("- False\n"));
}

#[test]
fn nothing_is_nullable_and_every_part_is_described() {
    fn walk(path: &str, schema: &JSONSchemaProps) {
        assert_eq!(schema.nullable, None, "{path}");
        for (name, field) in schema.properties.iter().flatten() {
            let path = format!("{path}.{name}");
            assert!(field.description.is_some(), "{path} has no description");
            walk(&path, field);
        }
        if let Some(
            k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray::Schema(items),
        ) = &schema.items
        {
            walk(&format!("{path}[]"), items);
        }
    }
    for crd in crds() {
        let version = &crd.spec.versions[0];
        walk(&crd.spec.names.kind, version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap());
    }
}

#[test]
fn columns_of_a_node_pool_are_karpenters() {
    let columns: Vec<_> = node_pool::crd().spec.versions[0]
        .additional_printer_columns
        .iter()
        .flatten()
        .map(|column| (column.name.clone(), column.priority.unwrap_or(0)))
        .collect();
    let expected = [("NodeClass", 0), ("Nodes", 0), ("Ready", 0), ("Age", 0), ("Weight", 1), ("CPU", 1), ("Memory", 1)];
    assert_eq!(columns, expected.map(|(name, priority)| (name.to_owned(), priority)));
}
