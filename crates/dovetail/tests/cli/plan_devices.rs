//! `dovetail plan` for pods that claim devices: nothing exists yet but the catalogue.

use expect_test::expect;
use serde_json::{Value, json};

use crate::manifests::{list, pod_of_cpu};
use crate::scratch::Scratch;

const ROOT: &str = "resource.kubernetes.io/pcieRoot";

/// Machines with some GPUs, as many under one PCIe root as told, and with a NIC beside each root.
fn catalogue() -> String {
    let offering = |price: f64| {
        json!({"Price": price, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]}]})
    };
    let machine = |name: &str, cpu: &str, price: f64, gpus: usize, under_one_root: usize| {
        let device = json!({"name": "gpu-{index}", "replicas": gpus, "attributes": {"model": {"string": "x1"}}});
        let template =
            json!({"metadata": {"name": "gpus"}, "spec": {"driver": "gpu.example.com", "devices": [device]}});
        let selector = |index: usize| json!({"resourceSliceTemplate": "gpus", "device": format!("gpu-{index}")});
        let root = |first: usize| {
            let selectors: Vec<Value> = (first..first + under_one_root).map(selector).collect();
            json!({"attributes": [ROOT], "deviceSelectors": selectors})
        };
        let bindings: Vec<Value> = (0..gpus).step_by(under_one_root.max(1)).map(root).collect();
        let templates = if gpus == 0 {
            json!({})
        } else {
            json!({"resourceSliceTemplates": [template], "attributeBindings": bindings})
        };
        json!({"name": name, "architecture": "amd64", "operatingSystems": ["linux"],
            "resources": {"cpu": cpu, "memory": "64Gi"}, "offerings": [offering(price)], "dynamicResources": templates})
    };
    json!([
        machine("plain", "16", 0.5, 0, 0),
        machine("gpu-2-apart", "16", 1.0, 2, 1),
        machine("gpu-4-pairs", "32", 3.0, 4, 2),
        machine("gpu-8-fours", "64", 9.0, 8, 4),
    ])
    .to_string()
}

const CLAIMS: &str = r#"
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: pair, namespace: ml}
spec:
  spec:
    devices:
      requests: [{name: gpus, exactly: {deviceClassName: gpu, count: 2}}]
      constraints: [{matchAttribute: resource.kubernetes.io/pcieRoot}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: nine, namespace: ml}
spec: {spec: {devices: {requests: [{name: gpus, exactly: {deviceClassName: gpu, count: 9}}]}}}
"#;

fn pod(name: &str, template: &str) -> String {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml"}, "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpus"}]}}],
        "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": template}]}});
    format!("\n---\n{pod}")
}

fn scratch(pods: &[(&str, &str)]) -> Scratch {
    let scratch = Scratch::new();
    scratch.write("types.json", &catalogue());
    let pods: String = pods.iter().map(|(name, template)| pod(name, template)).collect();
    scratch.write("pods.yaml", &format!("{CLAIMS}{pods}"));
    scratch
}

const ARGS: [&str; 6] = ["plan", "-f", "pods.yaml", "--instance-types", "types.json", "--check"];

#[test]
fn two_gpus_on_one_pcie_root_get_the_cheapest_right_machine_from_an_empty_cluster() {
    let ran = scratch(&[("train", "pair")]).run(&ARGS);
    expect![[r#"
        note: no NodePool given, planning with a built-in one: default (kubernetes.io/os In [linux])
        exit 0
        New machines
          COUNT   NODEPOOL   INSTANCE TYPE   ZONE          CAPACITY    PRICE       TOTAL       DEVICES                PODS
              1   default    gpu-4-pairs     test-zone-a   on-demand   $3.0000/h   $3.0000/h   2 of gpu.example.com      1

        1 pod: 1 on 1 new machine for $3.0000/h (lower bound $3.0000/h)
    "#]].assert_eq(&ran.transcript());
}

#[test]
fn machines_are_filled_by_devices_and_what_no_machine_has_is_refused_by_request() {
    let pods = [("train-0", "pair"), ("train-1", "pair"), ("train-2", "pair"), ("huge", "nine"), ("lost", "gone")];
    let ran = scratch(&pods).run(&ARGS);
    expect![[r#"
        note: no NodePool given, planning with a built-in one: default (kubernetes.io/os In [linux])
        exit 3
        New machines
          COUNT   NODEPOOL   INSTANCE TYPE   ZONE          CAPACITY    PRICE       TOTAL       DEVICES                PODS
              2   default    gpu-4-pairs     test-zone-a   on-demand   $3.0000/h   $6.0000/h   6 of gpu.example.com      3

        Unschedulable
          ml/huge
            nodepool/default: none of 4 instance types fits: 4 without the devices it claims (claim gpus, request gpus: 8 of 8 devices are usable, 9 wanted; or claim gpus, request gpus: 4 of 4 devices are usable, 9 wanted; or claim gpus, request gpus: 2 of 2 devices are usable, 9 wanted)
            needs 9 of gpu (claim gpus, request gpus); 3 of 4 instance types have a template for it; 3 have too few of them
          ml/lost
            resource claim template ml/gone does not exist

        5 pods: 3 on 2 new machines for $6.0000/h (lower bound $4.5000/h), 2 unschedulable
    "#]].assert_eq(&ran.transcript());
}

/// A pod that asks for a device as an extended resource, and a NodePool whose machines have one.
const EXTENDED: &str = r#"
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: p}
spec: {template: {spec: {nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}, requirements: []}}}
status: {conditions: [{type: Ready, status: "True", reason: Ready, lastTransitionTime: "2026-11-21T09:30:00Z", message: ""}]}
---
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: gpus}
spec:
  requirements: [{key: karpenter.sh/nodepool, operator: In, values: [p]}]
  dynamicResources:
    resourceSliceTemplates: [{metadata: {name: gpu}, spec: {driver: gpu.example.com, devices: [{name: gpu-0}]}}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {extendedResourceName: example.com/gpu, selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: asks, namespace: ml}
spec: {containers: [{name: c, image: x, resources: {requests: {cpu: "1"}, limits: {example.com/gpu: "1"}}}]}
status: {conditions: [{type: PodScheduled, status: "False", reason: Unschedulable}]}
"#;

#[test]
fn gates_of_a_snapshot_decide_and_flags_decide_before_them() {
    let header = |gates: Value| {
        json!({"apiVersion": "snapshot.dovetail.sh/v1", "kind": "SnapshotHeader", "schemaVersion": 1,
            "time": "2026-11-21T09:30:00Z", "dovetailVersion": "0", "serverVersion": "v1.36.3",
            "kubernetesFeatureGates": gates})
    };
    let machine = json!({"apiVersion": "snapshot.dovetail.sh/v1", "kind": "SnapshotInstanceType", "nodePools": ["p"],
        "instanceType": {"name": "one-gpu", "capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"},
            "requirements": {"node.kubernetes.io/instance-type": ["one-gpu"]},
            "offerings": [{"zone": "z", "capacityType": "on-demand", "price": 1_000_000_000, "available": true}]}});
    let (told_off, untold) = (header(json!({"DRAExtendedResource": false})), header(json!({})));
    for (header, flags, has_place) in [
        (&untold, &[][..], true),
        (&told_off, &[], false),
        (&told_off, &["--gates", "DRAExtendedResource=true"], true),
        (&told_off, &["--kubernetes", "1.37"], true),
        (&untold, &["--gates", "DRAExtendedResource=false"], false),
        (&untold, &["--kubernetes", "1.35"], false),
        (&untold, &["--kubernetes", "1.35", "--gates", "all"], true),
    ] {
        let scratch = Scratch::new();
        scratch.write("snapshot.jsonl", &format!("{header}\n{machine}\n"));
        scratch.write("pods.yaml", EXTENDED);
        let files = ["-f", "snapshot.jsonl", "-f", "pods.yaml"];
        let ran = scratch.run(&[&["plan"], &files[..], flags].concat());
        assert_eq!(ran.code, if has_place { 0 } else { 3 }, "{header} {flags:?}: {}", ran.transcript());
        let explained = scratch.run(&[&["explain", "pod", "ml/asks"], &files[..], flags].concat());
        assert_eq!(explained.stdout.contains("goes on a new machine"), has_place, "{}", explained.transcript());
    }
    let scratch = Scratch::new();
    scratch.write("pods.yaml", EXTENDED);
    let ran = scratch.run(&["plan", "-f", "pods.yaml", "--kubernetes", "1.36", "--gates", "DRADerivedAttributes"]);
    assert!(ran.stderr.contains("Kubernetes 1.36 does not know DRADerivedAttributes; it stays off"), "{}", ran.stderr);
}

#[test]
fn programs_read_how_many_devices_of_which_driver_a_machine_gives() {
    let ran = scratch(&[("train", "pair")]).run(&[&ARGS[..], &["-o", "json"]].concat());
    let plan: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(plan["nodeClaims"][0]["devices"], json!({"gpu.example.com": 2}));
    assert_eq!(plan["nodeClaims"][0]["instanceTypes"], json!(["gpu-4-pairs", "gpu-8-fours"]));
}

#[test]
fn a_broken_object_is_named_and_leaves_the_others_alone() {
    let scratch = scratch(&[("train", "pair")]);
    scratch.write(
        "broken.yaml",
        "{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: s}, spec: {driver: 7}}",
    );
    let ran = scratch.run(&[&ARGS[..], &["-f", "broken.yaml"]].concat());
    expect![[r#"
        problem: broken.yaml, document 1: ResourceSlice s: spec.driver: must be a string, but is a number
        note: no NodePool given, planning with a built-in one: default (kubernetes.io/os In [linux])
        exit 1
        New machines
          COUNT   NODEPOOL   INSTANCE TYPE   ZONE          CAPACITY    PRICE       TOTAL       DEVICES                PODS
              1   default    gpu-4-pairs     test-zone-a   on-demand   $3.0000/h   $3.0000/h   2 of gpu.example.com      1

        1 pod: 1 on 1 new machine for $3.0000/h (lower bound $3.0000/h)
    "#]].assert_eq(&ran.transcript());
}

#[test]
fn daemons_take_their_devices_on_each_new_machine_and_leave_the_others_as_they_are() {
    let scratch = scratch(&[("train-0", "pair"), ("train-1", "pair")]);
    let daemons = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "monitor", "namespace": "ml"},
        "spec": {"template": {"spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "16"}, "claims": [{"name": "gpus"}]}}],
            "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "pair"}]}}}});
    scratch.write("daemons.json", &daemons.to_string());
    scratch.write("web.json", &pod_of_cpu("web", "12").to_string());
    let ran = scratch.run(&[&ARGS[..], &["-f", "daemons.json", "-f", "web.json"]].concat());
    expect![[r#"
        note: no NodePool given, planning with a built-in one: default (kubernetes.io/os In [linux])
        exit 0
        New machines
          COUNT   NODEPOOL   INSTANCE TYPE   ZONE          CAPACITY    PRICE       TOTAL       DEVICES                PODS
              2   default    gpu-4-pairs     test-zone-a   on-demand   $3.0000/h   $6.0000/h   4 of gpu.example.com      3

        3 pods: 3 on 2 new machines for $6.0000/h (lower bound $5.9999/h)
    "#]].assert_eq(&ran.transcript());
}

#[test]
fn a_driver_with_devices_for_different_nodes_has_a_pool_for_each() {
    let scratch = Scratch::new();
    let zone = json!({"nodeSelectorTerms": [{"matchLabelKeys": ["topology.kubernetes.io/zone"]}]});
    let template = |name: &str, nodes: Value| {
        let mut spec = json!({"driver": "gpu.example.com", "devices": [{"name": name}]});
        spec.as_object_mut().unwrap().extend(nodes.as_object().unwrap().clone());
        json!({"metadata": {"name": name}, "spec": spec})
    };
    let templates = [template("a", json!({"nodeSelector": zone})), template("b", json!({"allNodes": true}))];
    let overlay = json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "o"},
        "spec": {
            "requirements": [{"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["16"]}],
            "dynamicResources": {"resourceSliceTemplates": templates},
        },
    });
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "one", "namespace": "ml"},
        "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}},
    });
    let pod = |name: String| {
        let container = json!({"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}});
        let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "one"}]);
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ml"},
            "spec": {"containers": [container], "resourceClaims": claims}})
    };
    let mut items = vec![overlay, claim];
    items.extend((0..3).map(|index| pod(format!("p{index}"))));
    scratch.write("objects.json", &list(&items));
    scratch.write("claims.yaml", CLAIMS);
    let ran = scratch.run(&["plan", "-f", "objects.json", "-f", "claims.yaml", "--check"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("3 pods: 3 on 2 new machines"), "{}", ran.stdout);
}
