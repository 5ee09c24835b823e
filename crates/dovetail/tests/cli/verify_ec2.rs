//! `dovetail overlay verify --provider aws`: slices that drivers have published on machines of EC2, against what the
//! built-in catalogue says of their types.

use expect_test::expect;
use serde_json::{Value, json};

use crate::scratch::Scratch;

const NAME: &str = "dovetail overlay verify --provider aws, published slices";
/// Slices of each node, and its type.
const NODES: [(&str, &str, &[&str]); 5] = [
    (
        "ip-192-168-153-160.ec2.internal",
        "p4d.24xlarge",
        &[
            "nvidia-gpu/slice-gpu-efa.resourceslice-gpu-ip-192-168-153-160.ec2.internal-gpu.nvidia.com-xz4s4.yaml",
            "dranet/slice-gpu-efa.resourceslice-dranet-ip-192-168-153-160.ec2.internal-dra.net-zskw8.yaml",
        ],
    ),
    (
        "gpu-node-1",
        "p5.48xlarge",
        &[
            "nvidia-gpu/slice-evidence.secure-accelerator-access-gpu-node-1-gpu.nvidia.com-7cbz2.yaml",
            "nvidia-computedomain/slice-evidence.secure-accelerator-access-gpu-node-1-compute-domain.nvidia.com-q9xqc.yaml",
        ],
    ),
    (
        "gpu-node-2",
        "p5.48xlarge",
        &[
            "nvidia-gpu/slice-evidence.secure-accelerator-access-gpu-node-2-gpu.nvidia.com-79gvw.yaml",
            "nvidia-computedomain/slice-evidence.secure-accelerator-access-gpu-node-2-compute-domain.nvidia.com-2n2cq.yaml",
        ],
    ),
    (
        "node-a.example.internal",
        "p5.48xlarge",
        &["nvidia-gpu/slice-evidence.secure-accelerator-access-node-a.example.internal-gpu.nvidia.com-sgw47.yaml"],
    ),
    (
        "ip-100-64-171-120.ec2.internal",
        "p5.48xlarge",
        &[
            "nvidia-gpu/slice-evidence.secure-accelerator-access-ip-100-64-171-120.ec2.internal-gpu.nvidia.com-7npv2.yaml",
        ],
    ),
];

fn node(name: &str, instance_type: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
        "karpenter.sh/nodepool": "default", "node.kubernetes.io/instance-type": instance_type}}})
}

/// Each difference has its reason. The three devices of the p4d are its ordinary network adapters: plain DRANET
/// publishes them too, AWS' chart for it does not, and nobody claims one. What has not published was not installed
/// there.
#[test]
fn published_slices_of_ec2_nodes_are_as_the_catalogue_says_but_for_what_is_explained() {
    let Some(folder) = corpus::open(NAME, "corpus/dra") else { return };
    let scratch = Scratch::new();
    let mut args: Vec<String> =
        ["overlay", "verify", "--provider", "aws", "-f", "nodes.json"].map(str::to_owned).into();
    for (_, _, slices) in NODES {
        for slice in slices {
            args.extend(["-f".to_owned(), folder.join(slice).to_str().unwrap().to_owned()]);
        }
    }
    let nodes: Vec<Value> = NODES.iter().map(|(name, instance_type, _)| node(name, instance_type)).collect();
    scratch.write("nodes.json", &json!({"apiVersion": "v1", "kind": "List", "items": nodes}).to_string());
    let ran = scratch.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    expect![[r#"
        exit 1
        NODE                              INSTANCE TYPE   DRIVER                      STATE
        ip-192-168-153-160.ec2.internal   p4d.24xlarge    compute-domain.nvidia.com   has not published
                                                          dra.net                     3 differences
                                                          gpu.nvidia.com              as described
        gpu-node-1                        p5.48xlarge     compute-domain.nvidia.com   as described
                                                          dra.net                     has not published
                                                          gpu.nvidia.com              as described
        gpu-node-2                        p5.48xlarge     compute-domain.nvidia.com   as described
                                                          dra.net                     has not published
                                                          gpu.nvidia.com              as described
        node-a.example.internal           p5.48xlarge     compute-domain.nvidia.com   has not published
                                                          dra.net                     has not published
                                                          gpu.nvidia.com              as described
        ip-100-64-171-120.ec2.internal    p5.48xlarge     compute-domain.nvidia.com   has not published
                                                          dra.net                     has not published
                                                          gpu.nvidia.com              as described

        ip-192-168-153-160.ec2.internal
          dra.net: device pci-0000-20-01-0 is in no template
          dra.net: device pci-0000-90-01-0 is in no template
          dra.net: device pci-0000-a0-01-0 is in no template
    "#]]
    .assert_eq(&ran.transcript());
    corpus::note(NAME, &format_args!("{} nodes are as the catalogue says", NODES.len()));
}
