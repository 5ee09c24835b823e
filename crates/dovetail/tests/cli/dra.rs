//! `dovetail dra allocate` and `dovetail support` as scripts see them: exit codes, streams, JSON.

use std::path::Path;

use crate::scratch::{Ran, Scratch};

fn example(file: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/devices").join(file).display().to_string()
}

fn allocate(arguments: &[&str]) -> Ran {
    let (cluster, pods) = (example("cluster.yaml"), example("pods.yaml"));
    let all = [&["dra", "allocate", "-f", &cluster, "-f", &pods], arguments].concat();
    Scratch::new().run(&all)
}

#[test]
fn the_exit_code_tells_whether_all_pods_get_their_devices() {
    assert_eq!(allocate(&["--all-nodes"]).code, 3);
    let cluster = example("cluster.yaml");
    assert_eq!(Scratch::new().run(&["dra", "allocate", "-f", &cluster, "--all-nodes"]).code, 0);
    assert_eq!(allocate(&["--node", "absent"]).code, 1);
    assert_eq!(allocate(&[]).code, 2, "neither --node nor --all-nodes");
    assert_eq!(allocate(&["--all-nodes", "--kubernetes", "1.20"]).code, 2);
    assert_eq!(allocate(&["--all-nodes", "--gates", "DRANope=true"]).code, 2);
}

#[test]
fn json_holds_devices_and_reasons() {
    let ran = allocate(&["--all-nodes", "-o", "json"]);
    let report = ran.json();
    let outcomes: Vec<(&str, &str)> = report["pods"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| (pod["pod"].as_str().unwrap(), pod["outcome"].as_str().unwrap()))
        .collect();
    let expected = [
        ("default/trainer-0", "Allocated"),
        ("default/trainer-1", "Refused"),
        ("default/notebook", "Allocated"),
        ("default/server", "Refused"),
    ];
    assert_eq!(outcomes, expected);
    // The part that the notebook has leaves too little memory for the whole.
    let nodes = report["pods"][3]["nodes"].as_array().unwrap();
    let on_second = nodes.iter().find(|node| node["nodes"][0] == "gpu-2").unwrap();
    let fell = on_second["requests"][0]["fell"].as_array().unwrap();
    let counter = fell.iter().find(|fell| fell["rule"] == "Counter").unwrap();
    assert_eq!(
        (counter["amount"]["needed"].as_str(), counter["amount"]["left"].as_str()),
        (Some("40Gi"), Some("30Gi"))
    );
    assert_eq!(counter["heldBy"][0]["device"], "gpu-0-part-0");
}

#[test]
fn releases_differ_as_their_gates_do() {
    // 1.35 does not read counters unless it is told to.
    let devices = |arguments: &[&str]| {
        let report = allocate(arguments).json();
        report["pods"].as_array().unwrap().iter().filter(|pod| pod["outcome"] == "Allocated").count()
    };
    assert_eq!(devices(&["--all-nodes", "-o", "json", "--kubernetes", "1.35"]), 1);
    let gate = "DRAPartitionableDevices=true";
    assert_eq!(devices(&["--all-nodes", "-o", "json", "--kubernetes", "1.35", "--gates", gate]), 2);
}

#[test]
fn a_broken_object_stops_no_other_and_is_told() {
    let scratch = Scratch::new();
    scratch.write(
        "bad.yaml",
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: x}\nspec: {selectors: 1}\n",
    );
    let (cluster, pods) = (example("cluster.yaml"), example("pods.yaml"));
    let ran = scratch.run(&["dra", "allocate", "-f", &cluster, "-f", &pods, "-f", "bad.yaml", "--all-nodes"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("DeviceClass x: spec.selectors"), "{}", ran.stderr);
    assert!(ran.stdout.contains("default/trainer-0"), "{}", ran.stdout);
}

#[test]
fn the_matrix_is_printed_as_markdown() {
    let ran = Scratch::new().run(&["support"]);
    assert_eq!(ran.code, 0);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/dra-support.md");
    assert_eq!(ran.stdout, std::fs::read_to_string(page).unwrap(), "run `cargo xtask codegen`");
}
