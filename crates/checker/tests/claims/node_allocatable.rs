//! What devices cost of the node (KEP-5517): a plan is checked where they cost nothing, and where they cost too much.

use dra_types::{Compat, Gates, KubernetesMinor};
use scheduling::{Plan, Snapshot, provisioning};

use super::input::{read_as, render};

/// There is a type; nothing can launch it.
const TYPES: &str = r#"[{"name": "small", "architecture": "amd64", "operatingSystems": ["linux"],
    "resources": {"cpu": "1", "memory": "1Gi"}, "offerings": [{"Price": 1, "Available": true, "Requirements": [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}]}]"#;

/// A node of 4 CPUs with a device that costs so many, and a pod of 1 CPU with `resources` as a whole that claims it.
fn snapshot(release: KubernetesMinor, costs: Option<u32>, resources: &str) -> Snapshot {
    let device = match costs {
        None => String::new(),
        Some(costs) if release < KubernetesMinor::V1_37 => {
            format!(", nodeAllocatableResourceMappings: {{cpu: {{allocationMultiplier: '{costs}'}}}}")
        }
        Some(costs) => {
            let each = costs - 1;
            let cost =
                format!("mapping: {{deviceMultiplier: '{each}'}}, overhead: {{perPod: 400m, perContainer: 600m}}");
            format!(", nodeAllocatableResources: {{cpu: {{{cost}}}}}")
        }
    };
    let text = format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: node, labels: {{kubernetes.io/hostname: node}}}}, status: {{allocatable: \
         {{cpu: '4', memory: 8Gi, pods: '10'}}, conditions: [{{type: Ready, status: 'True'}}]}}}}\n---\n\
         {{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {{name: gpu}}}}\n---\n\
         {{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {{name: s}}, spec: {{driver: gpu.test, nodeName: node, \
         pool: {{name: node, generation: 1, resourceSliceCount: 1}}, devices: [{{name: d{device}}}]}}}}\n---\n\
         {{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {{name: one}}, spec: {{spec: {{devices: \
         {{requests: [{{name: r, exactly: {{deviceClassName: gpu}}}}]}}}}}}}}\n---\n\
         {{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{resources: {{{resources}}}, resourceClaims: \
         [{{name: c, resourceClaimTemplateName: one}}], containers: [{{name: main, resources: {{requests: {{cpu: '1'}}, \
         claims: [{{name: c}}]}}}}]}}}}\n"
    );
    read_as(TYPES, &text, |cluster| cluster.devices.compat = Compat::with_gates(release, Gates::all(release)))
}

fn has_place(plan: &Plan) -> bool {
    plan.existing.iter().any(|placement| !placement.pods.is_empty())
}

#[test]
fn what_devices_cost_must_be_there_on_the_node_and_in_what_the_pod_asks_for_as_a_whole() {
    let too_little = "the pod as a whole asks for too little cpu";
    let cases = [
        ("", 3, None),
        ("", 4, Some("cpu is short for devices")),
        ("requests: {cpu: '4'}", 3, None),
        ("requests: {cpu: '3'}", 3, Some(too_little)),
        // The limit covers them, and what the API server makes of it asks for what the container does.
        ("limits: {cpu: '20'}", 2, Some(too_little)),
        ("limits: {cpu: '20'}, requests: {cpu: '4'}", 3, None),
    ];
    for release in [KubernetesMinor::V1_36, KubernetesMinor::V1_37] {
        for (resources, costs, expected) in cases {
            let case = format!("{release}: {resources} {costs}");
            let free = snapshot(release, None, resources);
            let plan = provisioning::plan(&free);
            assert!(has_place(&plan), "{case}: {}", render(&free, &plan));
            assert_eq!(checker::check(&free, &plan), [""; 0], "{case}");
            let costly = snapshot(release, Some(costs), resources);
            let problems = checker::check(&costly, &plan).join("\n");
            match expected {
                None => assert_eq!(problems, "", "{case}"),
                Some(expected) => assert!(problems.contains(expected), "{case}: {problems}"),
            }
            let plan = provisioning::plan(&costly);
            assert_eq!(has_place(&plan), expected.is_none(), "{case}: {}", render(&costly, &plan));
            assert_eq!(checker::check(&costly, &plan), [""; 0], "{case}");
        }
    }
}
