//! `dovetail catalogue`: types of every provider, with prices and devices.

use serde_json::{Value, json};

use crate::scratch::{Ran, Scratch};

fn run(arguments: &[&str]) -> Ran {
    Scratch::new().run(&[&["catalogue"], arguments].concat())
}

/// The only type of an answer.
fn only(ran: &Ran) -> Value {
    assert_eq!((ran.code, &*ran.stderr), (0, ""), "{ran:?}");
    let document = ran.json();
    assert_eq!(document["schemaVersion"], 1);
    let [it] = document["instanceTypes"].as_array().unwrap().as_slice() else { panic!("{document}") };
    it.clone()
}

#[test]
fn a_type_is_told_with_capacity_offerings_and_what_each_of_its_devices_costs() {
    let p5 = only(&run(&["--provider", "aws", "--type", "p5.48xlarge", "-o", "json"]));
    assert_eq!(p5["name"], "p5.48xlarge");
    assert_eq!((&p5["capacity"]["cpu"], &p5["allocatable"]["cpu"]), (&json!("192"), &json!("191450m")));
    assert_eq!(p5["capacity"]["nvidia.com/gpu"], "8");
    assert_eq!(p5["labels"]["karpenter.k8s.aws/instance-gpu-name"], json!(["h100"]));
    let offering = &p5["offerings"][1];
    assert_eq!((&offering["zone"], &offering["capacityType"]), (&json!("us-east-1a"), &json!("on-demand")));
    assert_eq!((&offering["launchable"], &offering["priceNanoUsdPerHour"]), (&json!(true), &json!(55_040_000_000_i64)));
    let of = |driver: &str| p5["devices"].as_array().unwrap().iter().find(|it| it["driver"] == driver).unwrap().clone();
    let gpus = of("gpu.nvidia.com");
    assert_eq!((&gpus["count"], &gpus["priceNanoUsdPerHourEach"]), (&json!(8), &json!(6_880_000_000_i64)));
    let [kind] = gpus["kinds"].as_array().unwrap().as_slice() else { panic!("{gpus}") };
    assert_eq!(kind["attributes"]["productName"]["string"], "NVIDIA H100 80GB HBM3");
    assert_eq!(kind["differIn"], json!({"resource.kubernetes.io/pcieRoot": 8}));
    assert_eq!(of("dra.net")["count"], 32);
}

#[test]
fn a_type_without_a_price_is_there_and_has_none_for_its_devices() {
    let scratch = Scratch::new();
    scratch.write("prices.yaml", "onDemand: {m5.large: 0.096}");
    let there = ["catalogue", "--provider", "aws", "--region", "us-east-2", "--prices", "prices.yaml", "-o", "json"];
    let trn2 = only(&scratch.run(&[&there[..], &["--type", "trn2.48xlarge"]].concat()));
    let offerings = trn2["offerings"].as_array().unwrap();
    assert!(!offerings.is_empty() && offerings.iter().all(|it| it["launchable"] == false), "{trn2}");
    assert_eq!(trn2["devices"][1]["count"], 16);
    assert!(trn2["devices"][1].get("priceNanoUsdPerHourEach").is_none(), "{trn2}");
}

#[test]
fn partitions_of_a_device_count_as_one() {
    let scratch = Scratch::new();
    scratch.write(
        "class.yaml",
        r#"
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: mig, annotations: {dovetail.sh/nvidia-mig: dynamic}}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: node
  subnetSelectorTerms: [{tags: {cluster: c}}]
  securityGroupSelectorTerms: [{tags: {cluster: c}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: mig}
spec: {template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: mig}, requirements: []}}}
"#,
    );
    let ran =
        scratch.run(&["catalogue", "--provider", "aws", "-f", "class.yaml", "--type", "p5.48xlarge", "-o", "json"]);
    let p5 = only(&ran);
    assert_eq!(p5["nodePool"], "mig");
    let gpus = p5["devices"].as_array().unwrap().iter().find(|it| it["driver"] == "gpu.nvidia.com").unwrap();
    assert_eq!((&gpus["count"], &gpus["priceNanoUsdPerHourEach"]), (&json!(8), &json!(6_880_000_000_i64)));
    let counts: Vec<_> = gpus["kinds"].as_array().unwrap().iter().map(|kind| kind["count"].as_i64().unwrap()).collect();
    // Whole ones, then the places of each profile.
    assert_eq!(counts, [8, 56, 56, 32, 24, 16, 8, 8]);
    let prices = gpus["kinds"].as_array().unwrap().iter().map(|it| it["priceNanoUsdPerHourEach"].as_i64().unwrap());
    let prices: Vec<i64> = prices.collect();
    let whole = 6_880_000_000_i64;
    assert_eq!(prices[0], whole);
    assert!(prices[1..].iter().all(|price| *price >= whole / 10 && *price <= whole), "{prices:?}");
    assert!(prices[1] < whole / 4, "{prices:?}");

    let ran =
        scratch.run(&["catalogue", "--provider", "aws", "-f", "class.yaml", "--type", "p5.48xlarge", "--devices"]);
    assert_eq!((ran.code, &*ran.stderr), (0, ""));
    let of_gpus: Vec<&str> = ran.stdout.lines().filter(|line| line.contains("gpu.nvidia.com")).collect();
    assert_eq!(of_gpus.len(), 8, "{}", ran.stdout);
    let words: Vec<&str> = of_gpus[0].split_whitespace().take(5).collect();
    assert_eq!(words, ["mig", "p5.48xlarge", "gpu.nvidia.com", "8", "$6.8800/h"]);
}

#[test]
fn types_without_devices_have_no_line_among_devices() {
    let ran = run(&["--devices"]);
    assert_eq!((ran.code, &*ran.stdout), (0, "No instance type has devices.\n"));
}

#[test]
fn all_types_of_a_provider_are_listed_a_line_each() {
    let ran = run(&[]);
    assert_eq!((ran.code, &*ran.stderr), (0, ""));
    assert_eq!(ran.stdout.lines().count(), 1 + 144);
    let mut lines = ran.stdout.lines();
    let heading: Vec<_> = lines.next().unwrap().split("  ").map(str::trim).filter(|it| !it.is_empty()).collect();
    assert_eq!(heading, ["INSTANCE TYPE", "CPU", "MEMORY", "PODS", "ON-DEMAND", "SPOT", "ZONES", "DEVICES"]);
    let ec2 = run(&["--provider", "aws"]);
    let p5 = ec2.stdout.lines().find(|line| line.starts_with("p5.48xlarge ")).unwrap();
    assert!(p5.ends_with("32 of dra.net ($1.7200/h each), 8 of gpu.nvidia.com ($6.8800/h each)"), "{p5}");
}

#[test]
fn overlays_of_the_input_change_what_is_listed() {
    let scratch = Scratch::new();
    let overlay = json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "half"},
        "spec": {"requirements": [], "priceAdjustment": "-50%"}});
    scratch.write("overlay.json", &overlay.to_string());
    let ran =
        scratch.run(&["catalogue", "--provider", "aws", "-f", "overlay.json", "--type", "m5.large", "-o", "json"]);
    assert_eq!(only(&ran)["offerings"][0]["priceNanoUsdPerHour"], 48_000_000);
}

#[test]
fn a_type_that_is_not_there_is_a_fault_that_names_it() {
    let ran = run(&["--provider", "aws", "--type", "p5.huge"]);
    assert_eq!((ran.code, &*ran.stdout), (1, ""));
    assert_eq!(ran.stderr, "error: provider aws has no instance type p5.huge there\n");
}
