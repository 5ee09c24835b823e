use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::verify::verify;
use dra_templates::Expansion;
use dra_templates::layout::{Host, slices};
use dra_types::{NodeFacts, NodeScope};

const NODE: &str = "worker-1";

fn slice(name: &str, spec: Value) -> ResourceSlice {
    let object = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec,
    });
    ResourceSlice::from_json(&object).unwrap()
}

fn local(driver: &str, devices: Value) -> ResourceSlice {
    let pool = json!({"name": NODE, "generation": 1, "resourceSliceCount": 1});
    slice(driver, json!({"driver": driver, "nodeName": NODE, "pool": pool, "devices": devices}))
}

fn node_labels() -> BTreeMap<String, String> {
    let labels = [
        (labels::INSTANCE_TYPE, "m-8x-amd64-linux"),
        (labels::HOSTNAME, NODE),
        (labels::ZONE, "test-zone-a"),
        ("example.com/gpu-count", "2"),
        ("example.com/cpu-count", "2"),
    ];
    labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn captured_with(slices: &[ResourceSlice], labels: &BTreeMap<String, String>, of_type: &[&str]) -> Captured {
    let slices: Vec<&ResourceSlice> = slices.iter().collect();
    let label_of_type = |key: &str| labels.get(key).filter(|_| of_type.contains(&key)).cloned();
    let source =
        Source { node_name: NODE, labels, slices: &slices, label_of_type: &label_of_type, driver: None, without: &[] };
    capture(&source).unwrap()
}

fn captured(slices: &[ResourceSlice]) -> Captured {
    captured_with(slices, &node_labels(), &[labels::INSTANCE_TYPE])
}

fn spec(captured: &Captured) -> Value {
    serde_json::to_value(&captured.overlay.spec).unwrap()
}

#[test]
fn numbered_devices_become_replicas_and_shared_roots_one_binding() {
    let gpu = |index: usize| {
        json!({"name": format!("gpu-{index}"), "capacity": {"memory": {"value": "80Gi"}}, "attributes": {
            "model": {"string": "x1"}, "index": {"int": index}, "path": {"string": format!("/dev/gpu{index}")},
            "uuid": {"string": format!("GPU-5d1d46ee-c7f8-fb08-137a-026f11ab6dd{index}")},
            "resource.kubernetes.io/pcieRoot": {"string": format!("pci000{index}:00")}}})
    };
    let nic = |index: usize| {
        json!({"name": format!("nic-{index}"), "attributes": {
            "resource.kubernetes.io/pcieRoot": {"string": format!("pci000{index}:00")}}})
    };
    // In no order, as they come from a map.
    let gpus = local("gpu.example.com", json!([gpu(2), gpu(0), gpu(3), gpu(1)]));
    let nics = local("nic.example.com", json!([nic(0), nic(1), nic(2), nic(3)]));
    let captured = captured(&[gpus, nics]);
    assert_eq!(captured.overlay.metadata.name.as_deref(), Some("m-8x-amd64-linux-devices"));
    let expected = json!({
        "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m-8x-amd64-linux"]}],
        "dynamicResources": {
            "resourceSliceTemplates": [
                {"metadata": {"name": "gpu"}, "spec": {"driver": "gpu.example.com", "devices": [{
                    "name": "gpu-{index}", "replicas": 4, "capacity": {"memory": {"value": "80Gi"}},
                    "attributes": {"model": {"string": "x1"}, "index": {"int": "{index}"}, "path": {"string": "/dev/gpu{index}"}},
                }]}},
                {"metadata": {"name": "nic"}, "spec": {"driver": "nic.example.com", "devices": [
                    {"name": "nic-{index}", "replicas": 4}]}},
            ],
            "attributeBindings": [{
                "attributes": ["resource.kubernetes.io/pcieRoot"], "distinctGroups": true, "deviceSelectors": [
                    {"resourceSliceTemplate": "gpu", "device": "gpu-{index}"},
                    {"resourceSliceTemplate": "nic", "device": "nic-{index}"}],
            }],
        },
    });
    assert_eq!(spec(&captured), expected);
    assert_eq!(captured.notes, ["gpu.example.com: left out, as only this machine has it: uuid"]);
}

#[test]
fn what_devices_cost_of_the_node_keeps_the_shape_of_its_release() {
    let older = json!({"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}});
    let newer = json!({"nodeAllocatableResources": {"cpu": {
        "mapping": {"deviceMultiplier": "2"}, "overhead": {"perPod": "100m", "perContainer": "50m"}}}});
    for shape in [older, newer] {
        let device = |index: usize| {
            let mut device = shape.clone();
            device["name"] = json!(format!("gpu-{index}"));
            device
        };
        let captured = captured(&[local("gpu.example.com", json!([device(0), device(1)]))]);
        let mut expected = shape.clone();
        expected["name"] = json!("gpu-{index}");
        expected["replicas"] = json!(2);
        assert_eq!(
            spec(&captured)["dynamicResources"]["resourceSliceTemplates"][0]["spec"]["devices"],
            json!([expected])
        );
    }
}

#[test]
fn two_devices_on_a_root_are_bound_by_name_and_what_differs_is_written_out() {
    let device = |name: &str, root: &str, model: &str| json!({"name": name, "attributes": {"model": {"string": model}, "resource.kubernetes.io/pcieRoot": {"string": root}}});
    let devices = json!([
        device("gpu-0", "pci0000:00", "x1"),
        device("gpu-1", "pci0000:00", "x1"),
        device("gpu-2", "pci0000:10", "x2")
    ]);
    let spec = spec(&captured(&[local("gpu.example.com", devices)]));
    let names: Vec<&str> = spec["dynamicResources"]["resourceSliceTemplates"][0]["spec"]["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|device| device["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["gpu-0", "gpu-1", "gpu-2"], "gpu-2 is another, so none is one of several");
    let bindings = &spec["dynamicResources"]["attributeBindings"];
    let devices = |binding: usize| bindings[binding]["deviceSelectors"].as_array().unwrap().len();
    assert_eq!((devices(0), devices(1)), (2, 1));
}

#[test]
fn counts_come_from_a_label_only_if_all_machines_of_the_type_have_it_and_it_is_about_the_device() {
    let devices = json!([{"name": "gpu-0"}, {"name": "gpu-1"}]);
    let slices = [local("gpu.example.com", devices)];
    let device = |of_type: &[&str]| {
        let spec = spec(&captured_with(&slices, &node_labels(), of_type));
        spec["dynamicResources"]["resourceSliceTemplates"][0]["spec"]["devices"][0].clone()
    };
    assert_eq!(device(&[]), json!({"name": "gpu-{index}", "replicas": 2}));
    assert_eq!(device(&["example.com/cpu-count"]), json!({"name": "gpu-{index}", "replicas": 2}));
    let both = device(&["example.com/cpu-count", "example.com/gpu-count"]);
    assert_eq!(both, json!({"name": "gpu-{index}", "replicasFromLabel": "example.com/gpu-count"}));
}

#[test]
fn selectors_ask_for_the_machines_own_place_and_keep_what_is_of_its_type() {
    let pool = |name: &str| json!({"name": name, "generation": 1, "resourceSliceCount": 1});
    let requirement = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [
        requirement(labels::ZONE, "test-zone-a"), requirement(labels::INSTANCE_TYPE, "m-8x-amd64-linux")]}]});
    let zonal = |name: &str| {
        let spec = json!({"driver": name, "nodeSelector": selector, "pool": pool(name), "devices": [{"name": "nic"}]});
        slice(name, spec)
    };
    let of_machine = slice(
        "of-machine",
        json!({"driver": "of-machine", "nodeSelector": selector, "pool": pool("worker-1/nics"), "devices": [{"name": "nic"}]}),
    );
    let captured = captured(&[zonal("zonal.example.com"), of_machine]);
    let templates = &spec(&captured)["dynamicResources"]["resourceSliceTemplates"];
    let expected = json!({"nodeSelectorTerms": [{
        "matchLabelKeys": [labels::ZONE], "matchExpressions": [requirement(labels::INSTANCE_TYPE, "m-8x-amd64-linux")]}]});
    assert_eq!(templates[0]["spec"]["nodeSelector"], expected);
    assert_eq!(templates[0]["spec"]["scope"], Value::Null, "its name is the machine's");
    assert_eq!(templates[1]["spec"]["nodeSelector"], expected);
    assert_eq!(templates[1]["spec"]["scope"], "Domain");
    assert!(
        captured.notes[0]
            .starts_with("pool zonal.example.com of zonal.example.com is taken for one that its domain has once")
    );
}

#[test]
fn without_an_instance_type_there_is_a_placeholder() {
    let slices = [local("gpu.example.com", json!([{"name": "gpu"}]))];
    let captured = captured_with(&slices, &BTreeMap::new(), &[]);
    assert_eq!(captured.overlay.spec.requirements[0].values, [PLACEHOLDER_INSTANCE_TYPE]);
    assert_eq!(captured.overlay.metadata.name.as_deref(), Some("worker-1-devices"));
}

#[test]
fn names_of_this_machine_become_numbers_and_pools_of_one_driver_keep_apart() {
    let device = |name: &str| json!([{"name": name}]);
    let of_pool = |name: &str, device: Value| {
        let pool = json!({"name": format!("worker-1-{name}"), "generation": 1, "resourceSliceCount": 1});
        slice(name, json!({"driver": "gpu.example.com", "nodeName": NODE, "pool": pool, "devices": device}))
    };
    let slices = [of_pool("a", device("gpu-0a1b2c3d4e")), of_pool("b", device("gpu-1a1b2c3d4e"))];
    let spec = spec(&captured(&slices));
    let templates = spec["dynamicResources"]["resourceSliceTemplates"].as_array().unwrap();
    let shown: Vec<_> =
        templates.iter().map(|it| (&it["spec"]["poolSuffix"], &it["spec"]["devices"][0]["name"])).collect();
    assert_eq!(shown, [(&json!("a"), &json!("gpu-0")), (&json!("b"), &json!("gpu-0"))]);
}

#[test]
fn there_is_a_reason_where_nothing_can_be_captured() {
    let labels = node_labels();
    let mut incomplete = local("gpu.example.com", json!([{"name": "gpu"}]));
    incomplete.pool.resource_slice_count = 2;
    let ask = |slices: &[&ResourceSlice], driver: Option<&str>| {
        let source =
            Source { node_name: NODE, labels: &labels, slices, label_of_type: &|_| None, driver, without: &[] };
        capture(&source).unwrap_err().to_string()
    };
    assert_eq!(
        ask(&[&incomplete], None),
        "node worker-1: no driver has published a complete pool of devices there (pool worker-1 of gpu.example.com is left \
         out: slices are missing)"
    );
    let whole = local("gpu.example.com", json!([{"name": "gpu"}]));
    assert_eq!(
        ask(&[&whole], Some("nic.example.com")),
        "node worker-1: no driver nic.example.com has published a complete pool of devices there"
    );
}

/// A device of few shapes, so that some are alike and share things.
fn any_device() -> impl Strategy<Value = Value> {
    let model = prop_oneof![Just("x1"), Just("x2"), Just("worker-1"), Just("SN{}001")];
    let root = prop::option::of(0..3_u8);
    (model, root, any::<bool>(), 0..3_i64, prop::option::of(1..3_u8), any::<bool>(), any::<bool>()).prop_map(
        |(model, root, uuid, number, memory, draws, list)| {
            let mut attributes = json!({"model": {"string": model}, "number": {"int": number}});
            if let Some(root) = root {
                let name = "resource.kubernetes.io/pcieRoot";
                attributes[name] = if list && root == 2 {
                    json!({"strings": ["pci0000:00", "pci0000:01"]})
                } else {
                    json!({"string": format!("pci0000:0{root}")})
                };
            }
            if uuid {
                attributes["uuid"] = json!({"string": format!("5d1d46ee-c7f8-fb08-137a-026f11ab6dd{number}")});
            }
            let mut device = json!({"attributes": attributes});
            if let Some(memory) = memory {
                device["capacity"] = json!({"memory": {"value": format!("{memory}Gi")}});
            }
            if draws {
                device["consumesCounters"] =
                    json!([{"counterSet": format!("set-{number}"), "counters": {"c": {"value": "1"}}}]);
            }
            device
        },
    )
}

fn any_slices() -> impl Strategy<Value = Vec<ResourceSlice>> {
    let named = (prop::collection::vec(any_device(), 1..12), any::<bool>(), any::<bool>(), 0..3_usize);
    let of_driver = (named, 0..4_u8);
    prop::collection::vec(of_driver, 1..3).prop_map(|drivers| {
        let mut slices = Vec::new();
        for (place, ((mut devices, reversed, odd, first), scope)) in drivers.into_iter().enumerate() {
            let count = devices.len();
            for (number, device) in devices.iter_mut().enumerate() {
                let number = first + if reversed { count - number } else { number };
                let own = if odd && number % 3 == 0 { "-0123456789ab" } else { "" };
                device["name"] = json!(format!("gpu-{number}{own}"));
            }
            let driver = format!("d{place}.example.com");
            let pool = json!({"name": NODE, "generation": 3, "resourceSliceCount": 2});
            let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [
                {"key": labels::ZONE, "operator": "In", "values": ["test-zone-a"]}]}]});
            let (field, value) = match scope {
                0 => ("nodeSelector", selector),
                1 => ("allNodes", json!(true)),
                _ => ("nodeName", json!(NODE)),
            };
            let sets: Vec<Value> =
                (0..3).map(|set| json!({"name": format!("set-{set}"), "counters": {"c": {"value": "4"}}})).collect();
            for (name, content, list) in [("a", "sharedCounters", json!(sets)), ("b", "devices", json!(devices))] {
                let mut spec = json!({"driver": driver, "pool": pool});
                spec[field] = value.clone();
                spec[content] = list;
                slices.push(slice(&format!("{driver}-{name}"), spec));
            }
        }
        slices
    })
}

proptest! {
    #[test]
    fn whatever_was_captured_expands_to_what_was_published(published in any_slices()) {
        let labels = node_labels();
        let captured = captured(&published);
        let resources = captured.overlay.spec.dynamic_resources.unwrap();
        let expansion = Expansion::new(&resources, &|key| labels.get(key).cloned()).unwrap();
        let facts = NodeFacts {
            name: Some(NODE.into()),
            labels: labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
            ..NodeFacts::default()
        };
        let is_here = |scope: &NodeScope| facts.is_in(scope).unwrap();
        let slices_of: Vec<&ResourceSlice> = published.iter().collect();
        prop_assert_eq!(verify(&expansion, &slices_of, &is_here), []);
        let devices: usize = published.iter().map(|slice| slice.devices.len()).sum();
        prop_assert_eq!(expansion.device_counts().values().sum::<usize>(), devices);
        // And so does what a driver would publish of it: nothing gets lost on the way back.
        let host = Host { node_name: NODE, labels: &labels };
        let valued = expansion.clone().with_values(|group| format!("value-{group}"));
        let again: Vec<ResourceSlice> = valued
            .pools
            .iter()
            .flat_map(|pool| slices(pool, host).unwrap())
            .map(|slice| ResourceSlice::from_json(&slice).unwrap())
            .collect();
        let again: Vec<&ResourceSlice> = again.iter().collect();
        prop_assert_eq!(verify(&expansion, &again, &is_here), []);
    }
}
