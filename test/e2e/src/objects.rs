//! Objects that tests make, in the words of a user: JSON, with what a test does not care about filled in.

use serde_json::{Map, Value, json};

/// The name of the node class that NodePools of tests refer to.
pub const NODE_CLASS: &str = "default";

/// A node class of the kwok provider.
#[must_use]
pub fn node_class(name: &str) -> Value {
    json!({ "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": { "name": name } })
}

/// A namespace.
#[must_use]
pub fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

/// A NodePool that only the pods of one test use: its machines have a taint, and a label, with the test's name. They
/// stay until the test asks for something else, whatever becomes of their pods and of the NodePool.
#[must_use]
pub fn node_pool(name: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": { "name": name },
        "spec": {
            "disruption": { "consolidateAfter": "Never", "budgets": [{ "nodes": "0" }] },
            "template": {
                "metadata": { "labels": { TEST_KEY: name } },
                "spec": {
                    "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": NODE_CLASS },
                    "requirements": [],
                    "taints": [{ "key": TEST_KEY, "value": name, "effect": "NoSchedule" }],
                },
            },
        },
    })
}

/// Key of the label and taint that keep the tests on one cluster apart.
pub const TEST_KEY: &str = "e2e.dovetail.test/name";

/// The pod spec of a test: it runs on the machines of that test's NodePool only.
#[must_use]
pub fn pod_spec(test: &str, requests: &Value) -> Value {
    json!({
        "nodeSelector": { TEST_KEY: test },
        "tolerations": [{ "key": TEST_KEY, "operator": "Equal", "value": test, "effect": "NoSchedule" }],
        "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "main", "image": "example.org/main", "resources": { "requests": requests } }],
    })
}

/// A pod of a test, in the namespace of that name.
#[must_use]
pub fn pod(test: &str, name: &str, requests: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": test, "labels": { "app": name } },
        "spec": pod_spec(test, requests),
    })
}

/// A Deployment of a test, in the namespace of that name.
#[must_use]
pub fn deployment(test: &str, name: &str, replicas: u32, requests: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "namespace": test },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": pod_spec(test, requests) },
        },
    })
}

/// `object` with `changes` merged in, as a JSON merge patch: objects by key, all else replaced, null removes.
#[must_use]
pub fn with(mut object: Value, changes: Value) -> Value {
    merge(&mut object, changes);
    object
}

fn merge(target: &mut Value, changes: Value) {
    let Value::Object(changes) = changes else {
        *target = changes;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (key, change) in changes {
        if change.is_null() {
            fields.remove(&key);
        } else {
            merge(fields.entry(key).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_merged_by_key_and_null_removes() {
        let merged =
            with(json!({"a": {"b": 1, "c": 2}, "d": [1]}), json!({"a": {"b": null, "x": {"y": 3}}, "d": [2, 3]}));
        assert_eq!(merged, json!({"a": {"c": 2, "x": {"y": 3}}, "d": [2, 3]}));
    }
}
