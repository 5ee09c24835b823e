//! `dovetail plan --provider aws`: real types of EC2 with their devices, without credentials.

use serde_json::json;

use crate::scratch::Scratch;

/// Classes as the drivers' charts install them. The claim is for two GPUs of one kind, and for an Elastic Fabric
/// Adapter on the PCIe root of each.
const CLAIMS: &str = r#"
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: efa.networking.k8s.aws}
spec:
  selectors:
  - cel: {expression: "device.driver == 'dra.net' && device.attributes['dra.net'].pciDevice == 'Elastic Fabric Adapter (EFA)'"}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: pair, namespace: ml}
spec:
  spec:
    devices:
      requests:
      - {name: gpu-a, exactly: {deviceClassName: gpu.nvidia.com, selectors: [{cel: {expression: "SELECTOR"}}]}}
      - {name: efa-a, exactly: {deviceClassName: efa.networking.k8s.aws}}
      - {name: gpu-b, exactly: {deviceClassName: gpu.nvidia.com, selectors: [{cel: {expression: "SELECTOR"}}]}}
      - {name: efa-b, exactly: {deviceClassName: efa.networking.k8s.aws}}
      constraints:
      - {requests: [gpu-a, efa-a], matchAttribute: resource.kubernetes.io/pcieRoot}
      - {requests: [gpu-b, efa-b], matchAttribute: resource.kubernetes.io/pcieRoot}
      - {requests: [gpu-a, gpu-b], matchAttribute: gpu.nvidia.com/driverVersion}
"#;

fn scratch(product: &str) -> Scratch {
    let scratch = Scratch::new();
    let selector = format!("device.attributes['gpu.nvidia.com'].productName == '{product}'");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train", "namespace": "ml"}, "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "devices"}]}}],
        "resourceClaims": [{"name": "devices", "resourceClaimTemplateName": "pair"}]}});
    scratch.write("pods.yaml", &format!("{}---\n{pod}", CLAIMS.replace("SELECTOR", &selector)));
    scratch
}

const ARGS: [&str; 8] = ["plan", "--provider", "aws", "-f", "pods.yaml", "--check", "-o", "json"];

#[test]
fn two_h100s_and_the_fabric_adapters_beside_them_get_the_cheapest_right_machine() {
    let ran = scratch("NVIDIA H100 80GB HBM3").run(&ARGS);
    assert_eq!(ran.code, 0, "{ran:?}");
    let plan = ran.json();
    let [claim] = plan["nodeClaims"].as_array().unwrap().as_slice() else { panic!("{plan}") };
    assert_eq!(claim["devices"], json!({"dra.net": 2, "gpu.nvidia.com": 2}));
    // A p5.4xlarge is cheaper and has one H100.
    assert_eq!(claim["instanceTypes"], json!(["p5.48xlarge"]));
    assert_eq!(claim["launch"]["priceNanoUsdPerHour"], 55_040_000_000_i64);
    assert_eq!(claim["launch"]["zone"], "us-east-1a");
}

#[test]
fn gpus_that_share_no_root_with_an_adapter_are_refused_with_that_reason() {
    let ran = scratch("NVIDIA L40S").run(&["plan", "--provider", "aws", "-f", "pods.yaml"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    // g6e.24xlarge and g6e.48xlarge have two of each.
    let reason = "; 2 do not satisfy matchAttribute resource.kubernetes.io/pcieRoot;";
    assert!(ran.stdout.contains(reason), "{}", ran.stdout);
}

/// NodePools that people have published, and that name an EC2NodeClass. Some are templates whose placeholders a server
/// stores, since the schema has no pattern for values; they are refused when they are read, as Karpenter refuses them.
#[test]
fn published_node_pools_for_ec2_are_read() {
    const NAME: &str = "dovetail plan --provider aws, published NodePools";
    let Some(folder) = corpus::open(NAME, "corpus/nodepools/accept") else { return };
    let scratch = Scratch::new();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    scratch.write("pods.yaml", &pod.to_string());
    let (mut read, mut refused) = (0, 0);
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        if !text.contains("kind: NodePool") || !text.contains("kind: EC2NodeClass") {
            continue;
        }
        let ran =
            scratch.run(&["plan", "--provider", "aws", "-f", "pods.yaml", "-f", file.to_str().unwrap(), "-o", "json"]);
        let problems: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with("problem: ")).collect();
        for problem in &problems {
            let of_a_value =
                problem.contains(": spec.template.spec.requirements[") && problem.contains("a valid label must");
            assert!(of_a_value, "{}: {problem}", file.display());
        }
        if problems.is_empty() {
            assert!([0, 3].contains(&ran.code), "{}: {ran:?}", file.display());
            read += 1;
        } else {
            assert_eq!(ran.code, 1, "{}: {ran:?}", file.display());
            refused += 1;
        }
    }
    assert!(read + refused > 30 && refused < read / 10, "{read} read, {refused} refused");
    corpus::note(NAME, &format_args!("{read} NodePools were read, {refused} refused for a value that is no label's"));
}
