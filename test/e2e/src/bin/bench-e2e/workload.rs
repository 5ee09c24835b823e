//! Ten Deployments of different shapes, and what they need around them: the workload that Karpenter was measured with.

use serde_json::{Value, json};

use crate::{NAMESPACE, NODE_POOL};

/// What is special about a shape.
#[derive(Clone, Copy)]
enum Special {
    Nothing,
    /// Spread over all zones.
    Spread,
    Arm,
}

/// (milli-CPU, MiB, what else).
const SHAPES: [(u32, u32, Special); 10] = [
    (100, 128, Special::Nothing),
    (250, 512, Special::Nothing),
    (250, 2048, Special::Nothing),
    (500, 1024, Special::Nothing),
    (500, 4096, Special::Nothing),
    (1000, 2048, Special::Nothing),
    (1000, 8192, Special::Spread),
    (2000, 4096, Special::Spread),
    (2000, 16384, Special::Nothing),
    (4000, 8192, Special::Arm),
];

/// Namespace, node class and NodePool.
pub(crate) fn surroundings() -> Vec<Value> {
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
        json!({ "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": { "name": "bench" } }),
        node_pool(Disruption::Never),
    ]
}

/// What may become of the NodePool's machines.
#[derive(Clone, Copy)]
pub(crate) enum Disruption {
    /// They stay, while it is measured how pods get them.
    Never,
    /// They go as soon as that pays, as many at a time as the controller likes.
    AtOnce,
}

/// The NodePool.
pub(crate) fn node_pool(disruption: Disruption) -> Value {
    let requirement =
        |key: &str, operator: &str, value: &str| json!({ "key": key, "operator": operator, "values": [value] });
    let disruption = match disruption {
        Disruption::Never => json!({ "consolidateAfter": "Never" }),
        Disruption::AtOnce => json!({ "consolidateAfter": "0s", "budgets": [{ "nodes": "100%" }] }),
    };
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": { "name": NODE_POOL },
        "spec": { "disruption": disruption, "template": { "spec": {
            "requirements": [
                requirement("kubernetes.io/os", "In", "linux"),
                requirement("karpenter.sh/capacity-type", "In", "on-demand"),
                requirement("karpenter.kwok.sh/instance-cpu", "Lt", "33"),
            ],
            "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "bench" },
            "expireAfter": "Never",
        } } },
    })
}

/// The Deployments, of so many pods together.
pub(crate) fn deployments(pods: usize) -> Vec<Value> {
    let shapes = SHAPES.iter().enumerate();
    shapes.map(|(index, shape)| deployment(&format!("s{index}"), pods / SHAPES.len(), *shape)).collect()
}

fn deployment(name: &str, replicas: usize, (cpu, memory, special): (u32, u32, Special)) -> Value {
    let requests = json!({ "cpu": format!("{cpu}m"), "memory": format!("{memory}Mi") });
    let mut spec = json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{ "name": "c", "image": "x", "resources": { "requests": requests } }],
    });
    match special {
        Special::Nothing => {}
        Special::Spread => {
            spec["topologySpreadConstraints"] = json!([{
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": { "matchLabels": { "app": name } },
            }]);
        }
        Special::Arm => spec["nodeSelector"] = json!({ "kubernetes.io/arch": "arm64" }),
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": spec },
        },
    })
}
