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
    let (mut read, mut refused, mut with_class) = (0, 0, 0);
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
            // A file that has only the NodePool is planned with what is known without its class, and says so.
            let has_class = text.lines().any(|line| line == "kind: EC2NodeClass");
            let is_noted = ran.stderr.contains(" is not in the input; NodePool");
            assert_ne!(has_class, is_noted, "{}: {ran:?}", file.display());
            with_class += usize::from(has_class);
            read += 1;
        } else {
            assert_eq!(ran.code, 1, "{}: {ran:?}", file.display());
            refused += 1;
        }
    }
    assert!(read + refused > 30 && refused < read / 10, "{read} read, {refused} refused");
    corpus::note(
        NAME,
        &format_args!(
            "{read} NodePools were read, {with_class} with their EC2NodeClass, {refused} refused for a value that is no \
             label's"
        ),
    );
}

/// A NodePool of one type and capacity type, and pods that are so small that only their number counts.
fn small_pods(instance_type: &str, capacity_type: &str, count: usize) -> String {
    let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "pool"},
    "spec": {"template": {"spec": {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "small"},
        "requirements": [
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [instance_type]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]},
        ]}}}});
    let pods = (0..count).map(|index| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{index}")},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1m"}}}]}})
    });
    pods.fold(pool.to_string(), |text, pod| format!("{text}\n---\n{pod}"))
}

/// An EC2NodeClass that a server would store.
fn node_class(more: serde_json::Value) -> serde_json::Value {
    let mut class = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "small"},
    "spec": {
        "amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "node",
        "subnetSelectorTerms": [{"tags": {"cluster": "c"}}], "securityGroupSelectorTerms": [{"tags": {"cluster": "c"}}],
    }});
    for (field, value) in more.as_object().unwrap() {
        match (class.get_mut(field), value) {
            (Some(known), serde_json::Value::Object(more)) => known.as_object_mut().unwrap().extend(more.clone()),
            _ => class[field] = value.clone(),
        }
    }
    class
}

fn machines(ran: &crate::scratch::Ran) -> Vec<(String, usize, i64)> {
    let plan = ran.json();
    let claims = plan["nodeClaims"].as_array().unwrap().iter();
    claims
        .map(|claim| {
            let launch = &claim["launch"];
            let zone = launch["zone"].as_str().unwrap().to_owned();
            (zone, claim["pods"].as_array().unwrap().len(), launch["priceNanoUsdPerHour"].as_i64().unwrap())
        })
        .collect()
}

#[test]
fn a_plan_for_another_region_takes_its_prices_from_a_file() {
    let scratch = Scratch::new();
    scratch.write("pods.yaml", &small_pods("m5.large", "on-demand", 1));
    scratch.write("prices.yaml", "onDemand: {m5.large: 0.115}");
    let plan = ["plan", "--provider", "aws", "-f", "pods.yaml", "-o", "json", "--region", "eu-central-1"];
    let ran = scratch.run(&[&plan[..], &["--prices", "prices.yaml"]].concat());
    assert_eq!(machines(&ran), [("eu-central-1a".to_owned(), 1, 115_000_000)], "{ran:?}");

    let refused = scratch.run(&plan);
    assert_eq!((refused.code, &*refused.stdout), (1, ""), "{refused:?}");
    let reason =
        "no prices are built in for eu-central-1, only those of us-east-1; give a file of its prices with --prices";
    assert!(refused.stderr.contains(reason), "{refused:?}");

    let missing = scratch.run(&[&plan[..], &["--prices", "none.yaml"]].concat());
    assert_eq!(missing.code, 1, "{missing:?}");
    assert!(missing.stderr.contains("error: cannot read --prices none.yaml"), "{missing:?}");
    scratch.write("wrong.yaml", "onDemand: {m5.large: -1}");
    let wrong = scratch.run(&[&plan[..], &["--prices", "wrong.yaml"]].concat());
    assert!(wrong.stderr.contains("prices: onDemand.m5.large: -1 is not above zero"), "{wrong:?}");
}

#[test]
fn options_of_a_region_are_the_ec2_providers_own() {
    let scratch = Scratch::new();
    scratch.write("pods.yaml", &small_pods("m5.large", "on-demand", 1));
    let ran = scratch.run(&["plan", "-f", "pods.yaml", "--region", "eu-central-1"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("--region is of provider aws, not kwok"), "{ran:?}");
}

#[test]
fn a_spot_price_of_a_file_decides_the_zone_and_what_a_machine_costs() {
    let scratch = Scratch::new();
    scratch.write("pods.yaml", &small_pods("m5.large", "spot", 1));
    let plan = ["plan", "--provider", "aws", "-f", "pods.yaml", "-o", "json"];
    // Nobody has said what spot machines cost: at most the price on demand.
    assert_eq!(machines(&scratch.run(&plan)), [("us-east-1a".to_owned(), 1, 96_000_000)]);
    scratch.write("prices.yaml", "spot: {m5.large: {us-east-1a: 0.041, us-east-1c: 0.0389}}");
    let ran = scratch.run(&[&plan[..], &["--prices", "prices.yaml"]].concat());
    assert_eq!(machines(&ran), [("us-east-1c".to_owned(), 1, 38_900_000)], "{ran:?}");
}

#[test]
fn a_node_class_of_the_input_decides_what_its_machines_hold() {
    let scratch = Scratch::new();
    scratch.write("pods.yaml", &small_pods("m5.large", "on-demand", 20));
    let plan = |class: serde_json::Value| {
        scratch.write("class.yaml", &class.to_string());
        scratch.run(&["plan", "--provider", "aws", "-f", "pods.yaml", "-f", "class.yaml", "-o", "json", "--check"])
    };
    let pods = |ran: &crate::scratch::Ran| machines(ran).into_iter().map(|(_, pods, _)| pods).collect::<Vec<_>>();
    let plain = plan(node_class(json!({})));
    assert_eq!((pods(&plain), &*plain.stderr), (vec![20], ""));
    assert_eq!(plain.json()["notUsed"], json!({}), "a node class is used");
    let few = plan(node_class(json!({"spec": {"kubelet": {"maxPods": 8}}})));
    assert_eq!(pods(&few), [8, 8, 4], "{few:?}");
    // Subnets that were found say where machines can be.
    let subnets = json!([{"id": "subnet-1", "zone": "us-east-1d", "zoneID": "use1-az6"}]);
    let there = plan(node_class(json!({"status": {"subnets": subnets}})));
    assert_eq!(machines(&there), [("us-east-1d".to_owned(), 20, 96_000_000)], "{there:?}");
}

#[test]
fn node_pools_of_different_node_classes_are_planned_each_with_its_own() {
    let scratch = Scratch::new();
    let one = small_pods("m5.large", "on-demand", 16);
    let other = one.lines().next().unwrap().replace(r#""name":"pool""#, r#""name":"other""#);
    let other = other.replace(r#""name":"small""#, r#""name":"big""#).replace("m5.large", "m5.xlarge");
    let selector = r#""spec":{"nodeSelector":{"node.kubernetes.io/instance-type":"m5.xlarge"},"containers""#;
    let selected = one.replacen(r#""spec":{"containers""#, selector, 8);
    scratch.write("pods.yaml", &format!("{selected}\n---\n{other}"));
    let big = node_class(json!({"metadata": {"name": "big"}, "spec": {"kubelet": {"maxPods": 4}}}));
    let small = node_class(json!({"spec": {"kubelet": {"maxPods": 8}}}));
    scratch.write("classes.yaml", &format!("{small}\n---\n{big}"));
    let ran = scratch.run(&["plan", "--provider", "aws", "-f", "pods.yaml", "-f", "classes.yaml", "-o", "json"]);
    let found: Vec<_> = machines(&ran).into_iter().map(|(_, pods, price)| (pods, price)).collect();
    assert_eq!(found, [(8, 96_000_000), (4, 192_000_000), (4, 192_000_000)], "{ran:?}");
}

#[test]
fn a_node_class_that_is_missing_is_told_of_and_one_that_cannot_be_used_launches_nothing() {
    let scratch = Scratch::new();
    scratch.write("pods.yaml", &small_pods("m5.large", "on-demand", 1));
    let plan = ["plan", "--provider", "aws", "-f", "pods.yaml", "-o", "json"];
    let missing = scratch.run(&plan);
    assert_eq!(machines(&missing).len(), 1);
    let note =
        "note: EC2NodeClass small is not in the input; NodePool pool is planned with the provider's defaults for it";
    assert_eq!(missing.stderr.trim_end(), note);

    let with_class = [&plan[..], &["-f", "class.yaml"]].concat();
    for (class, reason) in [
        (json!({"spec": {"kubelet": {"maxPods": -1}}}), "spec.kubelet.maxPods: "),
        (
            json!({"metadata": {"annotations": {"dovetail.sh/nvidia-mig": "yes"}}}),
            "dovetail.sh/nvidia-mig]: \"yes\" is neither",
        ),
        (
            json!({"status": {"subnets": [{"id": "subnet-1", "zone": "eu-west-1a"}]}}),
            "status.subnets: they are in eu-west-1a, not in us-east-1; --region says the region",
        ),
        (json!({"spec": {"role": ""}}), "spec.role"),
    ] {
        scratch.write("class.yaml", &node_class(class.clone()).to_string());
        let ran = scratch.run(&with_class);
        assert_eq!((ran.code, machines(&ran).len()), (1, 0), "{class}: {ran:?}");
        let problems: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with("problem: ")).collect();
        let [problem] = problems.as_slice() else { panic!("{class}: {ran:?}") };
        assert!(problem.contains("EC2NodeClass small: ") && problem.contains(reason), "{class}: {problem}");
        let refusal = ran.json()["unschedulable"][0]["reasons"][0]["message"].to_string();
        assert!(refusal.contains("its EC2NodeClass small is refused: "), "{class}: {refusal}");
    }
}
