use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use dra_templates::layout::{Host, slices};

const NODE: &str = "n1";

/// Two GPUs with counters and two NICs, pair by pair on one PCIe root each.
fn expansion() -> Expansion {
    let gpu = json!({
        "name": "gpu-{index}", "replicas": 2,
        "attributes": {"model": {"string": "x1"}}, "capacity": {"memory": {"value": "80Gi"}},
        "consumesCounters": [{"counterSet": "c", "counters": {"units": {"value": "1"}}}],
    });
    let resources = json!({
        "resourceSliceTemplates": [
            {"metadata": {"name": "gpus"}, "spec": {"driver": "gpu.example.com", "devices": [gpu],
                "sharedCounters": [{"name": "c", "counters": {"units": {"value": "2"}}}]}},
            {"metadata": {"name": "nics"}, "spec": {"driver": "nic.example.com",
                "devices": [{"name": "nic-{index}", "replicas": 2}]}},
        ],
        "attributeBindings": [{"attributes": ["resource.kubernetes.io/pcieRoot"], "distinctGroups": true,
            "deviceSelectors": [
                {"resourceSliceTemplate": "gpus", "device": "gpu-{index}"},
                {"resourceSliceTemplate": "nics", "device": "nic-{index}"}]}],
    });
    Expansion::new(&serde_json::from_value(resources).unwrap(), &|_| None).unwrap()
}

/// What a driver publishes that finds exactly that.
fn published() -> Vec<Value> {
    let labels = BTreeMap::new();
    let host = Host { node_name: NODE, labels: &labels };
    let found_out = expansion().with_values(|group| format!("root-{group}"));
    found_out.pools.iter().flat_map(|pool| slices(pool, host).unwrap()).collect()
}

fn read(json: &[Value]) -> Vec<ResourceSlice> {
    json.iter().map(|slice| ResourceSlice::from_json(slice).unwrap()).collect()
}

fn is_here(scope: &NodeScope) -> bool {
    matches!(scope, NodeScope::Node(name) if name == NODE)
}

/// The differences after a change of what is published; slice 0 has the counters, 1 the GPUs, 2 the NICs.
fn differences(change: impl FnOnce(&mut Vec<Value>)) -> Vec<String> {
    let mut json = published();
    change(&mut json);
    let slices = read(&json);
    let found = verify(&expansion(), &slices.iter().collect::<Vec<_>>(), &is_here);
    found.iter().map(ToString::to_string).collect()
}

fn devices(slice: &mut Value) -> &mut Vec<Value> {
    slice["spec"]["devices"].as_array_mut().unwrap()
}

#[test]
fn what_was_expected_is_no_difference_and_neither_is_more_than_that_or_another_name() {
    assert_eq!(differences(|_| {}), [] as [&str; 0]);
    let more = |slices: &mut Vec<Value>| {
        let gpu = &mut devices(&mut slices[1])[0];
        gpu["attributes"]["uuid"] = json!({"string": "gpu-7f3a"});
        gpu["capacity"]["cores"] = json!({"value": "132"});
        gpu["name"] = json!("gpu-7f3a");
    };
    assert_eq!(differences(more), [] as [&str; 0]);
    let with_domain = |slices: &mut Vec<Value>| {
        let gpu = &mut devices(&mut slices[1])[0];
        gpu["attributes"]["gpu.example.com/model"] = gpu["attributes"]["model"].take();
        gpu["capacity"]["gpu.example.com/memory"] = gpu["capacity"]["memory"].take();
        for field in ["attributes", "capacity"] {
            gpu[field].as_object_mut().unwrap().retain(|_, value| !value.is_null());
        }
    };
    assert_eq!(differences(with_domain), [] as [&str; 0]);
}

#[test]
fn every_difference_is_told_with_driver_device_and_both_values() {
    let changed = |pointer: &str, value: Value| {
        let (pointer, value) = (pointer.to_owned(), value);
        differences(move |slices| *slices[1].pointer_mut(&pointer).unwrap() = value)
    };
    assert_eq!(
        changed("/spec/devices/0/attributes/model/string", json!("x2")),
        ["gpu.example.com: device gpu-0 has \"x2\" for attribute model, not \"x1\""]
    );
    assert_eq!(
        changed("/spec/devices/1/capacity/memory/value", json!("40Gi")),
        ["gpu.example.com: device gpu-1 has 40Gi of memory, not 80Gi"]
    );
    assert_eq!(
        changed("/spec/devices/0/consumesCounters/0/counters/units/value", json!("2")),
        ["gpu.example.com: device gpu-0 has another consumesCounters"]
    );
    assert_eq!(
        changed("/spec/devices/0/capacity", json!({})),
        ["gpu.example.com: device gpu-0 has nothing of memory, not 80Gi"]
    );
    assert_eq!(
        differences(|slices| slices[0]["spec"]["sharedCounters"][0]["counters"]["units"]["value"] = json!("1")),
        ["gpu.example.com: counter set c is missing or another"]
    );
    assert_eq!(
        differences(|slices| {
            devices(&mut slices[2]).pop();
        }),
        ["nic.example.com: device nic-1 was not published"]
    );
    assert_eq!(
        differences(|slices| devices(&mut slices[2]).push(json!({"name": "nic-2"}))),
        ["nic.example.com: device nic-2 is in no template"]
    );
}

#[test]
fn groups_are_held_against_their_real_values() {
    let root = |slice: usize, device: usize, value: &str| {
        let value = value.to_owned();
        move |slices: &mut Vec<Value>| {
            devices(&mut slices[slice])[device]["attributes"]["resource.kubernetes.io/pcieRoot"]["string"] =
                json!(value);
        }
    };
    assert_eq!(
        differences(root(2, 1, "elsewhere")),
        [
            "gpu.example.com: devices were bound to one resource.kubernetes.io/pcieRoot, but have gpu-1 \"root-1\", nic-1 \
          \"elsewhere\""
        ]
    );
    let both = differences(|slices| {
        root(1, 1, "root-0")(slices);
        root(2, 1, "root-0")(slices);
    });
    assert_eq!(
        both,
        ["gpu.example.com: gpu-0 and gpu-1 were said to differ in resource.kubernetes.io/pcieRoot, but both have \
          \"root-0\""]
    );
}

#[test]
fn a_driver_has_published_when_every_pool_is_complete() {
    let state = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut json = published();
        change(&mut json);
        let slices = read(&json);
        publication(&expansion(), &"gpu.example.com".into(), &slices.iter().collect::<Vec<_>>(), &is_here)
    };
    assert_eq!(state(&|_| {}), Publication::Complete);
    assert_eq!(state(&|slices| drop(slices.remove(1))), Publication::Incomplete);
    assert_eq!(
        state(&|slices| slices.retain(|slice| slice["spec"]["driver"] != "gpu.example.com")),
        Publication::Nothing
    );
    assert_eq!(
        state(&|slices| slices.iter_mut().for_each(|slice| slice["spec"]["nodeName"] = json!("other"))),
        Publication::Nothing
    );
    let newer = |slices: &mut Vec<Value>| slices[1]["spec"]["pool"]["generation"] = json!(2);
    assert_eq!(state(&newer), Publication::Incomplete, "slices of an older generation do not count");
}

#[test]
fn groups_of_different_bindings_that_were_said_to_differ_do() {
    let binding = |device: &str| {
        json!({"attributes": ["root"], "distinctGroups": true,
            "deviceSelectors": [{"resourceSliceTemplate": "gpus", "device": device}]})
    };
    let resources = json!({
        "resourceSliceTemplates": [{"metadata": {"name": "gpus"}, "spec": {"driver": "gpu.example.com",
            "devices": [{"name": "gpu-{index}", "replicas": 2}]}}],
        "attributeBindings": [binding("gpu-0"), binding("gpu-1")],
    });
    let expansion = Expansion::new(&serde_json::from_value(resources).unwrap(), &|_| None).unwrap();
    let labels = BTreeMap::new();
    let host = Host { node_name: NODE, labels: &labels };
    let one_root = expansion.clone().with_values(|_| "root".to_owned());
    let slices = read(&slices(&one_root.pools[0], host).unwrap());
    let found = verify(&expansion, &slices.iter().collect::<Vec<_>>(), &is_here);
    assert_eq!(
        found.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["gpu.example.com: gpu-0 and gpu-1 were said to differ in root, but both have \"root\""]
    );
}
