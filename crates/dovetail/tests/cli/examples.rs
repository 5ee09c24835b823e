//! Each example of devices plans all of its pods from an empty cluster, and its overlays have no mistakes.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::scratch::Scratch;

/// The folders of `examples/` with machines and pods.
fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut found: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.join("machines.yaml").is_file() && path.join("pods.yaml").is_file());
    found.sort();
    found
}

fn expected(example: &Path) -> Vec<(String, u64, usize)> {
    let machines = |count: u64, instance_type: &str, pods: usize| (instance_type.to_owned(), count, pods);
    match example.file_name().unwrap().to_str().unwrap() {
        "extended-resource" => vec![machines(2, "s-16x-amd64-linux", 3)],
        "gpu-from-zero" => vec![machines(1, "m-64x-amd64-linux", 4), machines(2, "m-8x-amd64-linux", 2)],
        "mig" => vec![machines(2, "c-32x-amd64-linux", 7)],
        "shared-claim" => vec![machines(1, "c-16x-amd64-linux", 3)],
        "zonal-network" => vec![machines(1, "c-8x-amd64-linux", 2), machines(1, "s-8x-amd64-linux", 2)],
        other => panic!("examples/{other} has no expectation here"),
    }
}

#[test]
fn every_example_of_devices_plans_all_its_pods_on_the_machines_that_its_readme_speaks_of() {
    let scratch = Scratch::new();
    let examples = examples();
    assert_eq!(examples.len(), 5, "{examples:?}");
    for example in examples {
        assert!(example.join("README.md").is_file(), "{}", example.display());
        let folder = example.to_str().unwrap();
        let ran = scratch.run(&["plan", "-f", folder, "--expand-workloads", "--check", "-o", "json"]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{folder}");
        let plan: Value = ran.json();
        assert_eq!(plan["unschedulable"], serde_json::json!([]), "{folder}");
        let mut found: Vec<(String, u64, usize)> = Vec::new();
        for claim in plan["nodeClaims"].as_array().unwrap() {
            let (name, pods) =
                (claim["launch"]["instanceType"].as_str().unwrap(), claim["pods"].as_array().unwrap().len());
            match found.iter_mut().find(|(known, ..)| known == name) {
                Some((_, count, all)) => (*count, *all) = (*count + 1, *all + pods),
                None => found.push((name.to_owned(), 1, pods)),
            }
        }
        found.sort();
        assert_eq!(found, expected(&example), "{folder}");
        let linted = scratch.run(&["overlay", "lint", "-f", folder]);
        assert_eq!(linted.code, 0, "{folder}: {}", linted.stdout);
    }
}
