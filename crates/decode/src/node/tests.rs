use model::Interner;
use serde_json::json;

use super::*;

fn decoded(object: &Value) -> (Result<Node, ObjectError>, Interner) {
    let mut interner = Interner::new();
    let node = node(object, &mut Context::new(&mut interner));
    (node, interner)
}

fn object() -> Value {
    serde_saphyr::from_str(
        r"
        metadata:
          name: n1
          uid: u
          creationTimestamp: 2026-11-21T09:00:00Z
          annotations: {karpenter.sh/do-not-disrupt: 'true'}
          labels: {beta.kubernetes.io/arch: old, kubernetes.io/arch: new, beta.kubernetes.io/os: linux, team: a}
        spec:
          providerID: kwok://n1
          unschedulable: true
          taints: [{key: t, value: v, effect: NoSchedule}]
        status:
          capacity: {cpu: 4, memory: 8Gi, pods: 110}
          allocatable: {cpu: 3900m, memory: 7Gi, pods: 110}
          conditions: [{type: Ready, status: 'True'}, {type: DiskPressure, status: Unknown}]
        ",
    )
    .unwrap()
}

#[test]
fn a_node_is_read_whole_and_keeps_its_labels_as_they_are() {
    let (node, interner) = decoded(&object());
    let node = node.unwrap();
    assert_eq!(
        node.labels.display(&interner).to_string(),
        "beta.kubernetes.io/arch=old,beta.kubernetes.io/os=linux,kubernetes.io/arch=new,team=a"
    );
    assert_eq!(node.allocatable.display(&interner).to_string(), "cpu: 3900m, memory: 7Gi, pods: 110");
    assert_eq!(node.taints[0].display(&interner).to_string(), "t=v:NoSchedule");
    assert!(node.ready && node.unschedulable);
    assert_eq!(node.annotations.do_not_disrupt, DoNotDisrupt::Always);
    let conditions: Vec<_> = node.conditions.iter().map(|it| (&*it.condition_type, it.status)).collect();
    assert_eq!(conditions, [("DiskPressure", ConditionStatus::Unknown), ("Ready", ConditionStatus::True)]);
}

#[test]
fn a_node_that_says_only_its_capacity_can_use_all_of_it() {
    let mut object = object();
    object["status"].as_object_mut().unwrap().remove("allocatable");
    let node = decoded(&object).0.unwrap();
    assert_eq!(node.allocatable, node.capacity);
}

#[test]
fn bad_nodes_are_named() {
    let check = |pointer: &str, value: Value, expected: &str| {
        let mut object = object();
        *object.pointer_mut(pointer).unwrap() = value;
        assert_eq!(decoded(&object).0.unwrap_err().to_string(), expected);
    };
    check("/spec/taints/0/effect", json!("Never"), "Node n1: spec.taints[0].effect: unknown taint effect \"Never\"");
    check("/status/capacity/memory", json!("-1Gi"), "Node n1: status.capacity[memory]: quantity \"-1Gi\" is negative");
    check("/metadata/labels/team", json!(3), "Node n1: metadata.labels[team]: is a number, not a string");
    check("/metadata/creationTimestamp", json!("now"), "Node n1: metadata.creationTimestamp: \"now\" is not a time");
    check(
        "/status/conditions/0/status",
        json!("Yes"),
        "Node n1: status.conditions[0].status: unknown condition status \"Yes\"",
    );
}

#[test]
fn csi_drivers_are_sorted_and_may_be_without_a_limit() {
    let object = json!({"metadata": {"name": "n1"}, "spec": {"drivers": [
        {"name": "z", "nodeID": "i"}, {"name": "a", "allocatable": {"count": 25}}]}});
    let (name, drivers) = csi_node(&object).unwrap();
    assert_eq!(name, "n1");
    let drivers: Vec<_> = drivers.iter().map(|driver| (&*driver.name, driver.attachable_volumes)).collect();
    assert_eq!(drivers, [("a", Some(25)), ("z", None)]);
}
