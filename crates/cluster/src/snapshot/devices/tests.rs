use std::sync::Arc;

use cloudprovider_kwok::catalogue;
use model::Interner;
use serde_json::{Value, json};

use super::*;
use decode::Context;
use decode::devices::{AdminNamespaces, may_want_devices, pod_devices};

fn object(kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "x", "namespace": "ns"}, "spec": spec})
}

/// What is wrong with an object that nobody has admitted.
#[track_caller]
fn refused(kind: DeviceKind, object: &Value, expected: &str) {
    let compat = Compat::fixed();
    let mut objects = DeviceObjects::default();
    let error = add_device_object(kind, object, Admitted::ByNobody(&compat, &AdminNamespaces::default()), &mut objects)
        .unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn what_is_wrong_with_an_object_is_told_with_its_name_and_field() {
    let class = object("DeviceClass", &json!({"selectors": [{"cel": {"expression": "device.driver =="}}]}));
    let compat = Compat::fixed();
    let error = device_class(&class, Admitted::ByNobody(&compat, &AdminNamespaces::default())).unwrap_err().to_string();
    assert!(error.starts_with("DeviceClass ns/x: spec.selectors[0].cel.expression: "), "{error}");
    refused(
        DeviceKind::ResourceClaim,
        &object("ResourceClaim", &json!({"devices": {"requests": 7}})),
        "ResourceClaim ns/x: spec.devices.requests: must be a list, but is a number",
    );
    refused(
        DeviceKind::DeviceTaintRule,
        &json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "r"},
            "spec": {"deviceSelector": {"sort": "x"}, "taint": {"key": "k", "effect": "NoSchedule"}}}),
        "DeviceTaintRule r: spec.deviceSelector.sort: is not understood",
    );
}

#[test]
fn an_object_from_a_server_is_not_held_to_rules_that_the_server_may_have_relaxed() {
    let slice = object("ResourceSlice", &json!({"driver": "NOT A NAME", "nodeName": "n", "pool": {"name": "p"}}));
    assert!(resource_slice(&slice, Admitted::ByServer).is_ok());
    let compat = Compat::fixed();
    assert!(resource_slice(&slice, Admitted::ByNobody(&compat, &AdminNamespaces::default())).is_err());
}

#[test]
fn only_pods_that_may_want_devices_are_kept_and_a_quick_look_tells_them() {
    let container = |resources: Value| json!({"name": "c", "resources": resources});
    let plain = container(json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1"}}));
    let claims = json!([{"name": "gpu", "resourceClaimName": "shared"}]);
    for (spec, wants_any) in [
        (json!({"containers": [plain]}), false),
        (json!({"containers": [plain], "initContainers": [], "resourceClaims": []}), false),
        (json!({"containers": [plain, container(json!({"requests": {"example.com/gpu": "1"}}))]}), true),
        (json!({"containers": [container(json!({"limits": {"example.com/gpu": "1"}}))]}), true),
        (json!({"containers": [plain], "initContainers": [container(json!({"limits": {"a/b": "1"}}))]}), true),
        (json!({"containers": [plain], "resourceClaims": claims}), true),
    ] {
        let pod = json!({"metadata": {"name": "p"}, "spec": spec});
        assert_eq!(pod_devices(&pod).unwrap().is_some(), wants_any, "{pod}");
        assert_eq!(may_want_devices(&pod), wants_any, "{pod}");
    }
    for odd in [json!(7), json!({"spec": {"containers": [7, {"resources": []}], "resourceClaims": {}}})] {
        assert!(!may_want_devices(&odd));
    }
}

/// A catalogue with one type, its templates as given, and what was wrong.
fn compiled(label: &str, resources: &Value) -> (scheduling::catalogue::Catalogue, Vec<String>) {
    let text = json!([{
        "name": "t", "architecture": "amd64", "operatingSystems": ["linux"],
        "resources": {"cpu": label, "memory": "1Gi"}, "dynamicResources": resources,
        "offerings": [{"Price": 1, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}],
    }]);
    let types = catalogue::parse(&text.to_string()).unwrap().instance_types;
    let mut interner = Interner::new();
    let (catalogue, errors) = crate::catalogue(&types, &mut Context::new(&mut interner));
    (catalogue, errors.iter().map(ToString::to_string).collect())
}

#[test]
fn templates_are_written_out_by_the_labels_of_the_type() {
    let cpus = "karpenter.kwok.sh/instance-cpu";
    let device = json!({"name": "d{index}", "replicasFromLabel": cpus, "attributes": {"place": {"int": "{index}"}}});
    let template = json!({"metadata": {"name": "gpus"}, "spec": {"driver": "gpu.example.com", "devices": [device]}});
    let (catalogue, errors) = compiled("3", &json!({"resourceSliceTemplates": [template]}));
    assert_eq!(errors, Vec::<String>::new());
    let templates = &catalogue.types.iter().next().unwrap().device_templates;
    let names: Vec<&str> = templates.own[0].devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["d0", "d1", "d2"]);
}

#[test]
fn a_type_whose_templates_make_no_sense_is_a_machine_without_devices() {
    let device = json!({"name": "d", "replicasFromLabel": "example.com/nowhere"});
    let template = json!({"metadata": {"name": "gpus"}, "spec": {"driver": "gpu.example.com", "devices": [device]}});
    let (catalogue, errors) = compiled("3", &json!({"resourceSliceTemplates": [template]}));
    assert_eq!(catalogue.types.len(), 1);
    assert!(catalogue.types.iter().next().unwrap().device_templates.is_empty());
    assert!(errors[0].starts_with("InstanceType t: dynamicResources: "), "{errors:?}");
}

#[test]
fn types_with_equal_templates_share_them() {
    let template =
        json!({"metadata": {"name": "gpus"}, "spec": {"driver": "g.example.com", "devices": [{"name": "d"}]}});
    let resources = serde_json::from_value(json!({"resourceSliceTemplates": [template]})).unwrap();
    let mut types = catalogue::default_instance_types();
    for instance_type in &mut types {
        instance_type.dynamic_resources = Clone::clone(&resources);
    }
    let mut interner = Interner::new();
    let (catalogue, _) = crate::catalogue(&types, &mut Context::new(&mut interner));
    let mut templates = catalogue.types.iter().map(|instance_type| &instance_type.device_templates);
    let first = templates.next().unwrap();
    assert!(!first.is_empty() && templates.all(|other| Arc::ptr_eq(first, other)));
}
