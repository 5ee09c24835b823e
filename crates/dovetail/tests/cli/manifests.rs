//! Objects that several tests write: as JSON, which is YAML too.

use serde_json::{Value, json};

/// A pod that asks for nothing, in no namespace of its own.
pub(crate) fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c"}]}})
}

/// A pod that asks for that much CPU.
pub(crate) fn pod_of_cpu(name: &str, cpu: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    pod
}

/// A NodePool of a node class, with these requirements.
pub(crate) fn node_pool(name: &str, node_class: &Value, requirements: &Value) -> Value {
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {"template": {"spec": {"nodeClassRef": node_class, "requirements": requirements}}}})
}

/// A List of objects.
pub(crate) fn list(items: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

/// A snapshot file: a header with these further fields, NodePool `p`, which is ready, and the lines.
pub(crate) fn snapshot(header: &Value, lines: &[Value]) -> String {
    let mut first = json!({"apiVersion": "snapshot.dovetail.sh/v1", "kind": "SnapshotHeader", "schemaVersion": 1,
        "time": "2026-11-21T09:00:00Z", "dovetailVersion": "0.1.0", "serverVersion": "v1.36.3"});
    first.as_object_mut().unwrap().extend(header.as_object().unwrap().clone());
    let mut pool = node_pool("p", &json!({"group": "g.example", "kind": "K", "name": "n"}), &json!([]));
    pool["status"] = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
        "lastTransitionTime": "2026-11-21T09:00:00Z"}]});
    [first, pool].iter().chain(lines).map(|line| format!("{line}\n")).collect()
}

/// The condition of a pod that kube-scheduler has called unschedulable.
pub(crate) fn unschedulable() -> Value {
    json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}])
}

/// An instance type of NodePool `p` in a snapshot file.
pub(crate) fn snapshot_instance_type(name: &str, cpu: &str, memory: &str, offerings: &Value) -> Value {
    json!({"apiVersion": "snapshot.dovetail.sh/v1", "kind": "SnapshotInstanceType", "nodePools": ["p"],
        "instanceType": {"name": name, "capacity": {"cpu": cpu, "memory": memory, "pods": "10"},
            "requirements": {"node.kubernetes.io/instance-type": [name]}, "offerings": offerings}})
}
