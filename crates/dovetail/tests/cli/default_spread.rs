//! Default spread constraints of the cluster: `--scheduler-config` and what snapshots say of them.

use expect_test::expect;
use serde_json::{Value, json};

use crate::manifests;
use crate::scratch::Scratch;

const ZONES: &str = "
podTopologySpread:
  defaultConstraints:
  - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}
";

/// Four replicas without constraints; a pod that nothing selects; one that a Service selects and no zone has room for.
const SHOP: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, resources: {requests: {cpu: 900m}}}]}
---
{apiVersion: v1, kind: Pod, metadata: {name: alone, namespace: shop}, spec: {containers: [{name: c, resources: {requests: {cpu: 100m}}}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: till, namespace: shop}, spec: {selector: {app: till}}}
---
apiVersion: v1
kind: Pod
metadata: {name: till-1, namespace: shop, labels: {app: till}}
spec: {nodeName: old, containers: [{name: c}]}
---
apiVersion: v1
kind: Pod
metadata: {name: till-2, namespace: shop, labels: {app: till}}
spec: {nodeSelector: {topology.kubernetes.io/zone: test-zone-a}, containers: [{name: c, resources: {requests: {cpu: 100m}}}]}
---
apiVersion: v1
kind: Node
metadata: {name: old, labels: {topology.kubernetes.io/zone: test-zone-a, kubernetes.io/os: linux}}
status: {allocatable: {cpu: 50m, memory: 8Gi, pods: 20}}
";

fn shop() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("shop.yaml", SHOP);
    scratch.write("scheduler.yaml", ZONES);
    scratch
}

const ARGS: [&str; 5] = ["plan", "-f", "shop.yaml", "--expand-workloads", "--check"];

#[test]
fn pods_without_constraints_are_spread_as_the_cluster_does_it() {
    let scratch = shop();
    let ran = scratch.run(&[&ARGS[..], &["--scheduler-config", "scheduler.yaml"]].concat());
    expect![[r#"
        note: no NodePool given, planning with a built-in one: default (kubernetes.io/os In [linux])
        exit 0
        New machines
          COUNT   NODEPOOL   INSTANCE TYPE      ZONE          CAPACITY   PRICE       TOTAL       PODS
              1   default    c-2x-amd64-linux   test-zone-a   spot       $0.0380/h   $0.0380/h      3
              1   default    c-1x-amd64-linux   test-zone-b   spot       $0.0190/h   $0.0190/h      1
              1   default    c-1x-amd64-linux   test-zone-c   spot       $0.0190/h   $0.0190/h      1
              1   default    c-1x-amd64-linux   test-zone-d   spot       $0.0190/h   $0.0190/h      1

        6 pods: 6 on 4 new machines for $0.0950/h (lower bound $0.0722/h)
    "#]]
    .assert_eq(&ran.transcript());
    let ran = scratch.run(&ARGS);
    expect![[r#"
        note: no NodePool given, planning with a built-in one: default (kubernetes.io/os In [linux])
        exit 0
        New machines
          COUNT   NODEPOOL   INSTANCE TYPE      ZONE          CAPACITY   PRICE       TOTAL       PODS
              1   default    c-4x-amd64-linux   test-zone-a   spot       $0.0760/h   $0.0760/h      6

        6 pods: 6 on 1 new machine for $0.0760/h (lower bound $0.0722/h)
        Ignored: 1 Service
    "#]]
    .assert_eq(&ran.transcript());
}

#[test]
fn what_closes_a_zone_is_called_the_clusters_default() {
    let strict = ZONES.replace("topology.kubernetes.io/zone", "example.com/rack");
    let scratch = shop();
    scratch.write("scheduler.yaml", &strict);
    let ran =
        scratch.run(&["explain", "pod", "shop/till-2", "-f", "shop.yaml", "--scheduler-config", "scheduler.yaml"]);
    expect![[r#"
        exit 3
        Pod shop/till-2 is unschedulable:
          none of 1 existing nodes fits: 1 has too little room (cpu 100m wanted, the most free is 50m of 50m)
          nodepool/default: required topology spread over example.com/rack (maxSkew 1, the cluster's default) needs the label example.com/rack, which its machines will not have; add it to the NodePool's labels or requirements
    "#]].assert_eq(&ran.transcript());
}

#[test]
fn a_config_that_is_not_understood_is_refused_by_field() {
    let scratch = shop();
    scratch.write("scheduler.yaml", &ZONES.replace("maxSkew: 1", "maxSkew: 0"));
    for command in [&["plan"][..], &["explain", "pod", "shop/alone"]] {
        let ran = scratch.run(&[command, &["-f", "shop.yaml", "--scheduler-config", "scheduler.yaml"]].concat());
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(
            ran.stderr.contains(
                "--scheduler-config scheduler.yaml\n  because podTopologySpread.defaultConstraints[0].maxSkew: 0 is not between 1 and"
            ),
            "{}",
            ran.stderr
        );
    }
    let ran = scratch.run(&["plan", "-f", "shop.yaml", "--scheduler-config", "gone.yaml"]);
    assert!(ran.code == 1 && ran.stderr.contains("--scheduler-config gone.yaml"), "{ran:?}");
}

/// A snapshot of two pods of a ReplicaSet that wait, and machines in two zones.
fn snapshot(header: &Value) -> String {
    let pod = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": "web", "pod-template-hash": "1"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "r", "controller": true}]},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"conditions": manifests::unschedulable()}})
    };
    let offering =
        |zone: &str| json!({"zone": zone, "capacityType": "on-demand", "price": 1_000_000, "available": true});
    let lines = [
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web-1", "namespace": "shop", "uid": "r"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web", "pod-template-hash": "1"}}}}),
        pod("web-1-a"),
        pod("web-1-b"),
        manifests::snapshot_instance_type("four", "4", "8Gi", &json!([offering("a"), offering("b")])),
    ];
    manifests::snapshot(header, &lines)
}

#[test]
fn a_snapshot_is_planned_with_the_defaults_of_its_cluster_unless_a_file_says_otherwise() {
    let zones = json!({"schedulerConfig": {"podTopologySpread": {"defaultConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]}}});
    let without = json!({});
    for (header, file, machines, is_noted) in [
        (&zones, None, 2, false),
        (&without, None, 1, false),
        (&zones, Some(""), 1, false),
        (&without, Some(ZONES), 2, true),
    ] {
        let scratch = Scratch::new();
        scratch.write("cluster.jsonl", &snapshot(header));
        let mut arguments = vec!["plan", "-f", "cluster.jsonl", "-o", "json", "--check"];
        if let Some(file) = file {
            scratch.write("scheduler.yaml", file);
            arguments.extend(["--scheduler-config", "scheduler.yaml"]);
        }
        let ran = scratch.run(&arguments);
        assert_eq!(ran.json()["nodeClaims"].as_array().unwrap().len(), machines, "{header} {file:?}: {ran:?}");
        assert_eq!(ran.stderr.contains("take it with --scheduler-config"), is_noted, "{}", ran.stderr);
    }
    let broken = json!({"schedulerConfig": {"podTopologySpread": {"defaultConstraints": [{"topologyKey": "zone"}]}}});
    let scratch = Scratch::new();
    scratch.write("cluster.jsonl", &snapshot(&broken));
    let ran = scratch.run(&["plan", "-f", "cluster.jsonl"]);
    assert!(ran.stderr.contains("podTopologySpread.defaultConstraints[0].whenUnsatisfiable: is missing"), "{ran:?}");
}
