//! Snapshot files on the command line. How they are written from a cluster is tested with a cluster.

use serde_json::{Value, json};

use crate::manifests;
use crate::scratch::Scratch;

/// A snapshot of a cluster with one pool of two types, a pod that waits and one that kube-scheduler has not tried.
fn snapshot() -> String {
    let pod = |name: &str, conditions: Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns", "uid": name},
               "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
               "status": {"conditions": conditions}})
    };
    let instance_type = |name: &str, price: i64, available: bool| {
        let offering = json!({"zone": "z", "capacityType": "spot", "price": price, "available": available});
        manifests::snapshot_instance_type(name, "2", "4Gi", &json!([offering]))
    };
    let lines = [
        pod("waits", manifests::unschedulable()),
        pod("not-tried", json!([])),
        instance_type("cheap", 1_000_000, false),
        instance_type("dear", 3_000_000, true),
    ];
    manifests::snapshot(&json!({}), &lines)
}

#[test]
fn a_snapshot_is_planned_with_its_own_machines_and_the_controllers_rule_for_pods() {
    let ran = Scratch::new().run_with_input(&["plan", "-f", "-", "-o", "json"], &snapshot());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let plan = ran.json();
    let claim = &plan["nodeClaims"][0];
    // The cheap type has run out; it stays on the list of what may be launched later.
    assert_eq!(
        claim["launch"],
        json!({"instanceType": "dear", "zone": "z", "capacityType": "spot", "priceNanoUsdPerHour": 3_000_000})
    );
    assert_eq!(claim["pods"], json!(["ns/waits"]));
    assert_eq!(plan["unschedulable"], json!([]));
}

/// The snapshot with more in its header and another pod and type.
fn snapshot_of(header: &Value, more: &[Value]) -> String {
    let text = snapshot();
    let (first, rest) = text.split_once('\n').unwrap();
    let mut first: Value = serde_json::from_str(first).unwrap();
    first.as_object_mut().unwrap().extend(header.as_object().unwrap().clone());
    let more: String = more.iter().map(|line| format!("{line}\n")).collect();
    format!("{first}\n{rest}{more}")
}

#[test]
fn options_and_gates_of_the_controller_are_those_of_the_plan() {
    let claims = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "claims", "namespace": "ns", "uid": "claims"},
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}], "containers": [{"name": "c"}]},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
    let reserved = json!({"apiVersion": "snapshot.dovetail.sh/v1", "kind": "SnapshotInstanceType", "nodePools": ["p"],
        "instanceType": {"name": "reserved", "capacity": {"cpu": "2", "memory": "4Gi", "pods": "10"},
            "requirements": {"node.kubernetes.io/instance-type": ["reserved"]},
            "offerings": [{"zone": "z", "capacityType": "reserved", "price": 1, "available": true,
                "reservation": {"id": "r", "remaining": 5}}]}});
    for (header, launched, code) in [
        (json!({}), "reserved", "ResourceClaim"),
        (json!({"featureGates": {"ReservedCapacity": false}}), "dear", "ResourceClaim"),
        (json!({"options": {"ignoreDraRequests": true}}), "reserved", "ResourceClaimsIgnored"),
    ] {
        let text = snapshot_of(&header, &[claims.clone(), reserved.clone()]);
        let ran = Scratch::new().run_with_input(&["plan", "-f", "-", "-o", "json"], &text);
        let plan = ran.json();
        assert_eq!(plan["nodeClaims"][0]["launch"]["instanceType"], launched, "{header}: {plan}");
        assert_eq!(plan["unschedulable"][0]["reasons"][0]["code"], code, "{header}: {plan}");
        assert_eq!(ran.code, 3);
    }
}

#[test]
fn pods_of_a_snapshot_are_explained_by_their_state() {
    let scratch = Scratch::new();
    scratch.write("snapshot.jsonl", &snapshot());
    let explain = |pod: &str| scratch.run(&["explain", "pod", pod, "-f", "snapshot.jsonl"]);
    assert_eq!(explain("ns/not-tried").stdout, "Pod ns/not-tried has not been tried by kube-scheduler yet\n");
    assert!(
        explain("ns/waits")
            .stdout
            .starts_with("Pod ns/waits goes on a new machine, p-0:\n  dear in z, spot, $0.003/h\n")
    );
    assert_eq!(explain("ns/absent").code, 1);
}

#[test]
fn without_a_cluster_snapshot_says_what_is_missing() {
    let ran = Scratch::new().run(&["snapshot"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    assert!(ran.stdout.is_empty());
}
