use serde_json::{Value, json};

use super::*;
use crate::world::node_facts::taints_of;

fn claim() -> NodeClaim {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": "default-x", "uid": "u1",
            "labels": {"karpenter.sh/nodepool": "default", "team": "a"},
            "annotations": {"karpenter.sh/nodepool-hash": "1", "dovetail.sh/planned-pods": "p1,p2"},
        },
        "spec": {
            "nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": [],
            "taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}],
            "startupTaints": [{"key": "gpu", "effect": "NoExecute"}],
        },
    }))
    .unwrap()
}

fn node(metadata: Value, taints: Value) -> Node {
    let mut metadata = metadata;
    metadata["name"] = "n1".into();
    serde_json::from_value(json!({"metadata": metadata, "spec": {"taints": taints}})).unwrap()
}

fn fresh() -> Node {
    node(
        json!({"labels": {"team": "other", "zone": "z"}}),
        json!([{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}, {"key": "x", "effect": "NoSchedule"}]),
    )
}

fn register(node: &Node, hold: Hold) -> (Node, bool) {
    match decide(&[node]) {
        Registration::Register { taint_missing } => (registered(&claim(), node, hold), taint_missing),
        other => panic!("{other:?}"),
    }
}

fn keys(node: &Node) -> Vec<String> {
    taints_of(node).iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect()
}

#[test]
fn a_node_becomes_its_claims_in_one_step() {
    let (node, taint_missing) = register(&fresh(), Hold::UntilHandedOver);
    assert!(!taint_missing);
    assert_eq!(keys(&node), ["x:NoSchedule", "dedicated:NoSchedule", "gpu:NoExecute", "dovetail.sh/held:NoSchedule"]);
    let metadata = serde_json::to_value(&node.metadata).unwrap();
    assert_eq!(
        metadata["labels"],
        json!({"karpenter.sh/nodepool": "default", "karpenter.sh/registered": "true", "team": "a", "zone": "z"})
    );
    assert_eq!(metadata["annotations"], json!({"karpenter.sh/nodepool-hash": "1"}));
    assert_eq!(metadata["finalizers"], json!(["karpenter.sh/termination"]));
    assert_eq!(
        metadata["ownerReferences"],
        json!([{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "default-x", "uid": "u1",
                "blockOwnerDeletion": true}])
    );
}

#[test]
fn registering_twice_changes_nothing_and_does_not_hold_again() {
    let (once, _) = register(&fresh(), Hold::No);
    let (twice, taint_missing) = register(&once, Hold::UntilHandedOver);
    assert_eq!(twice, once);
    assert!(!taint_missing, "the taint was removed by us");
}

#[test]
fn taints_are_left_alone_where_the_label_says_so() {
    let node = node(
        json!({"labels": {"karpenter.sh/do-not-sync-taints": "true"}}),
        json!([{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}, {"key": "x", "effect": "NoSchedule"}]),
    );
    let (node, _) = register(&node, Hold::No);
    assert_eq!(keys(&node), ["x:NoSchedule"]);
}

#[test]
fn a_taint_that_the_node_has_keeps_its_value() {
    let node = node(json!({}), json!([{"key": "dedicated", "value": "kept", "effect": "NoSchedule"}]));
    let (node, taint_missing) = register(&node, Hold::No);
    assert_eq!(taints_of(&node)[0].value.as_deref(), Some("kept"));
    assert_eq!(keys(&node).len(), 2);
    assert!(taint_missing);
}

#[test]
fn no_node_and_two_nodes_are_told_apart() {
    let (a, b) = (fresh(), fresh());
    let reason = |nodes: &[&Node]| decide(nodes).waiting_for().map(|(reason, _)| reason);
    assert_eq!(reason(&[]), Some("NodeNotFound"));
    assert_eq!(reason(&[&a, &b]), Some("MultipleNodesFound"));
    assert_eq!(reason(&[&a]), None);
}
