//! Machines with eight devices each, and Jobs of one pod that claims one of them.

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use crate::{NAMESPACE, NODE_POOL};

/// Devices of a machine.
pub(crate) const DEVICES: usize = 8;
/// The label that tells long-lived pods and each wave's apart.
pub(crate) const PART: &str = "part";

const DRIVER: &str = "gpu.example.com";
const CLASS: &str = "gpu";

/// Namespace, NodePool of so many machines at most, and what says that they have devices.
pub(crate) fn surroundings(machines: usize) -> Vec<Value> {
    let requirement = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
    let requirements = [
        requirement("kubernetes.io/os", "linux"),
        requirement("kubernetes.io/arch", "amd64"),
        requirement("karpenter.sh/capacity-type", "on-demand"),
        json!({ "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["8", "16"] }),
    ];
    let devices = json!([{
        "name": "gpu-{index}",
        "replicas": DEVICES,
        "attributes": { "model": { "string": "x1" }, "index": { "int": "{index}" } },
        "capacity": { "memory": { "value": "80Gi" } },
    }]);
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
        json!({ "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": { "name": "bench" } }),
        json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": { "name": NODE_POOL },
            "spec": {
                "limits": { "nodes": machines.to_string() },
                "template": { "spec": {
                    "requirements": requirements,
                    "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "bench" },
                    "expireAfter": "Never",
                } },
            },
        }),
        json!({
            "apiVersion": "karpenter.sh/v1alpha1",
            "kind": "NodeOverlay",
            "metadata": { "name": "gpus" },
            "spec": {
                "requirements": [requirement("karpenter.sh/nodepool", NODE_POOL)],
                "dynamicResources": { "resourceSliceTemplates": [
                    { "metadata": { "name": "gpus" }, "spec": { "driver": DRIVER, "devices": devices } },
                ] },
            },
        }),
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": { "name": CLASS },
            "spec": { "selectors": [{ "cel": { "expression": format!("device.driver == '{DRIVER}'") } }] },
        }),
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": { "name": "one", "namespace": NAMESPACE },
            "spec": { "spec": { "devices": { "requests": [
                { "name": "gpu", "exactly": { "deviceClassName": CLASS } },
            ] } } },
        }),
    ]
}

/// A Job of one pod.
pub(crate) fn job(part: &str, index: usize) -> serde_json::Result<Job> {
    serde_json::from_value(json!({
        "metadata": { "name": format!("{part}-{index}"), "namespace": NAMESPACE, "labels": { PART: part } },
        "spec": { "template": {
            "metadata": { "labels": { PART: part, "app": part } },
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "resourceClaims": [{ "name": "gpu", "resourceClaimTemplateName": "one" }],
                "containers": [{
                    "name": "c",
                    "image": "x",
                    "resources": { "requests": { "cpu": "500m", "memory": "256Mi" }, "claims": [{ "name": "gpu" }] },
                }],
            },
        } },
    }))
}
