use serde_json::json;

use super::*;
use crate::node_class::alias::AliasVersion;

/// The smallest EC2NodeClass, with other fields of its spec.
fn object(fields: Value) -> Value {
    let mut spec = json!({
        "role": "nodes",
        "amiSelectorTerms": [{ "alias": "al2023@latest" }],
        "subnetSelectorTerms": [{ "tags": { "a": "*" } }],
        "securityGroupSelectorTerms": [{ "name": "n" }],
    });
    for (field, value) in fields.as_object().unwrap() {
        spec[field] = value.clone();
    }
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": { "name": "gpu", "uid": "u-1", "generation": 3, "annotations": { "a": "b" } },
        "spec": spec,
    })
}

fn spec(fields: Value) -> NodeClassSpec {
    decode(&object(fields)).unwrap().spec
}

fn refusal(fields: Value) -> String {
    decode(&object(fields)).unwrap_err().to_string()
}

#[test]
fn absent_fields_have_the_defaults_of_the_crd() {
    let class = decode(&object(json!({}))).unwrap();
    assert_eq!((&*class.name, class.uid.as_str(), class.generation), ("gpu", "u-1", 3));
    assert_eq!(class.annotations["a"], "b");
    assert_eq!(class.spec.metadata_options, MetadataOptions::default());
    assert_eq!(class.spec.ami_family, AmiFamily::Al2023);
    assert_eq!(class.spec.rights, Rights::Role("nodes".to_owned()));
    let alias = Alias { family: AmiFamily::Al2023, version: AliasVersion::Latest };
    assert_eq!(class.spec.images, ImageSelection::Alias(alias));
    assert_eq!(class.spec.subnets, [SubnetTerm::Tags([("a".to_owned(), "*".to_owned())].into())]);
    assert_eq!(class.spec.security_groups, [SecurityGroupTerm::Name("n".to_owned())]);
    assert!(class.spec.disks.is_empty() && !class.spec.enclaves && class.spec.nested_virtualization.is_none());
    assert_eq!(class.status, EC2NodeClassStatus::default());
}

#[test]
fn a_part_of_metadata_options_is_filled_up() {
    let options = spec(json!({ "metadataOptions": { "httpPutResponseHopLimit": 2 } })).metadata_options;
    assert_eq!(options, MetadataOptions { http_put_response_hop_limit: 2, ..MetadataOptions::default() });
}

#[test]
fn the_family_is_that_of_the_object_before_that_of_the_alias() {
    assert_eq!(spec(json!({ "amiFamily": "Custom" })).ami_family, AmiFamily::Custom);
    let terms = json!([{ "id": "ami-1" }, { "ssmParameter": "/p" }, { "name": "n*", "owner": "self" }]);
    let by_terms = spec(json!({ "amiFamily": "Bottlerocket", "amiSelectorTerms": terms }));
    assert_eq!(by_terms.ami_family, AmiFamily::Bottlerocket);
    let named =
        ImageTerm::Properties { name: Some("n*".to_owned()), owner: Some("self".to_owned()), tags: Tags::new() };
    let expected = [ImageTerm::Id("ami-1".to_owned()), ImageTerm::Parameter("/p".to_owned()), named];
    assert_eq!(by_terms.images, ImageSelection::Terms(expected.to_vec()));
}

#[test]
fn an_id_counts_alone_where_the_crd_lets_more_pass() {
    let terms = json!([{ "id": "sg-1", "name": "n" }, { "tags": { "a": "b" } }]);
    let groups = spec(json!({ "securityGroupSelectorTerms": terms })).security_groups;
    let tags = SecurityGroupTerm::Tags([("a".to_owned(), "b".to_owned())].into());
    assert_eq!(groups, [SecurityGroupTerm::Id("sg-1".to_owned()), tags]);
}

#[test]
fn sizes_of_volumes_are_quantities() {
    let mappings = json!([
        { "deviceName": "/dev/xvda", "rootVolume": true, "ebs": { "volumeSize": "20Gi", "volumeType": "gp3" } },
        { "ebs": { "snapshotID": "snap-1", "volumeInitializationRate": 200 } },
        { "deviceName": "/dev/sdb" },
    ]);
    let disks = spec(json!({ "blockDeviceMappings": mappings })).disks;
    let [root, restored, empty] = &disks[..] else { panic!("three disks") };
    assert!(root.is_root && !restored.is_root);
    assert_eq!(root.volume.as_ref().unwrap().size, Some(Quantity::parse("20Gi").unwrap()));
    assert_eq!(root.volume.as_ref().unwrap().volume_type, Some(VolumeType::Gp3));
    assert_eq!(restored.volume.as_ref().unwrap().volume_initialization_rate, Some(200));
    assert_eq!(empty.volume, None);
}

#[test]
fn what_cannot_be_used_is_named_with_object_field_and_reason() {
    for (fields, expected) in [
        (json!({ "role": "" }), "EC2NodeClass gpu: spec.role: Invalid value: role cannot be empty"),
        (
            json!({ "instanceProfile": "p" }),
            "EC2NodeClass gpu: spec: Invalid value: must specify exactly one of ['role', 'instanceProfile']",
        ),
        (
            json!({ "blockDeviceMappings": [{ "ebs": { "volumeSize": "Ti" } }] }),
            "EC2NodeClass gpu: spec.blockDeviceMappings[0].ebs.volumeSize: \"Ti\" is no size",
        ),
    ] {
        assert_eq!(refusal(fields), expected);
    }
    let many = refusal(json!({ "metadataOptions": { "httpTokens": "maybe" }, "ipPrefixCount": -1 }));
    for part in ["EC2NodeClass gpu: ", "spec.metadataOptions.httpTokens: ", "spec.ipPrefixCount: "] {
        assert!(many.contains(part), "{many}");
    }
}

#[test]
fn an_object_without_a_spec_says_so() {
    let mut without = object(json!({}));
    without.as_object_mut().unwrap().remove("spec");
    assert_eq!(decode(&without).unwrap_err().to_string(), "EC2NodeClass gpu: spec: Required value");
    let other = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" } });
    assert!(decode(&other).unwrap_err().to_string().starts_with("EC2NodeClass p: kind: "));
}
