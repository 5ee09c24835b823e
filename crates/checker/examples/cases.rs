//! Writes the random clusters of the tests as files, for `dovetail plan` to read.
//!
//! `cases FOLDER SEEDS` writes the clusters of the seeds from 0 on: for each generator and seed a YAML file of
//! manifests, and beside it a file of the same name without the extension, which holds the instance types.

#[path = "../tests/random/clusters.rs"]
mod clusters;
#[path = "../tests/claims/random_clusters.rs"]
mod random_clusters;
#[path = "../tests/claims/random_pools.rs"]
mod random_pools;

use std::error::Error;
use std::fs;
use std::path::Path;

use self::clusters::Size;
use seeded_random::Random;
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(folder), Some(seeds)) = (arguments.next(), arguments.next()) else {
        return Err("usage: cases FOLDER SEEDS".into());
    };
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    let write = |name: &str, seed: u64, types: &str, manifests: &str| {
        fs::write(folder.join(format!("{name}-{seed}")), types)?;
        fs::write(folder.join(format!("{name}-{seed}.yaml")), manifests)
    };
    let few_types = few_types().to_string();
    for seed in 0..seeds.to_string_lossy().parse()? {
        for (name, size) in [("rules", Size::Any), ("rules-of-few-pods", Size::Small)] {
            write(name, seed, &few_types, &clusters::manifests(&mut Random::new(seed), size))?;
        }
        let random = &mut Random::new(seed);
        let types = random_clusters::instance_types(random);
        write("claims", seed, &types, &random_clusters::manifests(random))?;
        let random = &mut Random::new(seed);
        let types = random_pools::instance_types(random);
        write("claims-of-pools", seed, &types, &random_pools::manifests(random))?;
    }
    Ok(())
}

/// Three types of several sizes, so that room is short.
fn few_types() -> Value {
    let offering = |price: f64, capacity_type: &str, zone: &str| {
        json!({"Price": price, "Available": true, "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]})
    };
    let types = [("c-1x-amd64-linux", 1, 2), ("c-4x-amd64-linux", 4, 8), ("s-2x-amd64-linux", 2, 8)].map(
        |(name, cpus, memory_gib)| {
            let price = 0.02 * f64::from(cpus) + 0.003 * f64::from(memory_gib);
            let offerings: Vec<Value> = ["test-zone-a", "test-zone-b", "test-zone-c"]
                .into_iter()
                .flat_map(|zone| [offering(price, "on-demand", zone), offering(price * 0.7, "spot", zone)])
                .collect();
            json!({"name": name, "architecture": "amd64", "operatingSystems": ["linux"],
                "resources": {"cpu": cpus.to_string(), "memory": format!("{memory_gib}Gi")}, "offerings": offerings})
        },
    );
    json!(types)
}
