//! How long all NodeOverlays against all instance types of all NodePools take: CPU time of one thread.
//!
//! The types are the kwok provider's 144, as often as it takes, a third of them with a label that counts GPUs. Overlays
//! come in five kinds (price of a family, price in a zone, capacity, devices of a family, devices by the label that
//! counts them), and some are for one NodePool only; NodePools have labels that overlays ask for. Overlays of one kind
//! describe the same devices. Weights differ, so that overlays cover each other. The controller does this when an
//! overlay, a NodePool or the provider's answer changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use api::NodeOverlay;
use clap::Parser;
use cloudprovider::InstanceType;
use cloudprovider_kwok::catalogue::default_instance_types;
use model::NodePoolName;
use overlay::Overlay;
use overlay::evaluate::{Corrected, Pool, evaluate};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// Evaluates NodeOverlays against instance types and prints the time.
#[derive(Parser)]
struct Arguments {
    /// Instance types.
    #[arg(long, default_value_t = 1000)]
    types: usize,
    /// NodeOverlays.
    #[arg(long, default_value_t = 50)]
    overlays: usize,
    /// NodePools.
    #[arg(long, default_value_t = 20)]
    pools: usize,
    /// Measured runs; the median counts.
    #[arg(long, default_value_t = 21)]
    runs: usize,
    /// Fail if the median takes longer, in milliseconds.
    #[arg(long)]
    at_most_ms: Option<u64>,
}

/// Labels that the benchmark's provider sets.
const GPU_COUNT: &str = "example.com/gpu-count";
const TEAM: &str = "example.com/team";
const FAMILIES: [&str; 3] = ["c", "m", "s"];

fn types(count: usize) -> Vec<Arc<InstanceType>> {
    let defaults = default_instance_types();
    let numbered = defaults.iter().cycle().take(count).enumerate();
    let made = numbered.map(|(number, of_provider)| {
        let mut made = of_provider.clone();
        made.name = format!("{}-{}", of_provider.name, number / defaults.len()).as_str().into();
        made.requirements.insert(api::labels::INSTANCE_TYPE.to_owned(), [made.name.to_string()].into());
        if number % 3 == 0 {
            made.requirements.insert(GPU_COUNT.to_owned(), [(1 + number % 8).to_string()].into());
        }
        Arc::new(made)
    });
    made.collect()
}

fn templates(driver: &str, counted: bool) -> Value {
    let count = if counted { ("replicasFromLabel", json!(GPU_COUNT)) } else { ("replicas", json!(8)) };
    let mut gpu = json!({
        "name": "gpu-{index}", "capacity": {"memory": {"value": "80Gi"}, "cores": {"value": "132"}},
        "attributes": {"model": {"string": "x1"}, "index": {"int": "{index}"}, "version": {"version": "1.2.3"},
                       "brand": {"string": "example"}, "architecture": {"string": "x"}},
        "consumesCounters": [{"counterSet": "set-{index}", "counters": {"slices": {"value": "7"}}}],
    });
    gpu[count.0] = count.1.clone();
    let mut set = json!({"name": "set-{index}", "counters": {"slices": {"value": "7"}}});
    set[count.0] = count.1;
    let nic = json!({"name": "nic-{index}", "replicas": 4, "attributes": {"rdma": {"bool": true}}});
    json!({
        "resourceSliceTemplates": [
            {"metadata": {"name": "gpus"}, "spec": {"driver": format!("gpu.{driver}"), "devices": [gpu], "sharedCounters": [set]}},
            {"metadata": {"name": "nics"}, "spec": {"driver": format!("nic.{driver}"), "devices": [nic]}},
        ],
        "attributeBindings": [{"attributes": ["resource.kubernetes.io/pcieRoot"], "deviceSelectors": [
            {"resourceSliceTemplate": "gpus", "device": "gpu-{index}"}, {"resourceSliceTemplate": "nics", "device": "nic-{index}"}]}],
    })
}

fn node_overlay(number: usize) -> Result<Overlay> {
    let requirement = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    let family = requirement("karpenter.kwok.sh/instance-family", FAMILIES[number % FAMILIES.len()]);
    let mut spec = match number % 5 {
        0 => json!({"requirements": [family], "priceAdjustment": "-10%"}),
        1 => json!({"requirements": [family, requirement(api::labels::ZONE, "test-zone-b")], "price": "0.5"}),
        2 => json!({"requirements": [family], "capacity": {format!("example.com/r{number}"): "2"}}),
        3 => json!({"requirements": [family], "dynamicResources": templates("example.com", false)}),
        _ => json!({
            "requirements": [{"key": GPU_COUNT, "operator": "Exists"}],
            "dynamicResources": templates("counted.example.com", true),
        }),
    };
    spec["weight"] = json!(1 + number);
    if let (true, Some(requirements)) = (number.is_multiple_of(10), spec["requirements"].as_array_mut()) {
        requirements.push(requirement(TEAM, &format!("team-{}", number / 10)));
    }
    let object = json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": format!("o{number}")},
        "spec": spec,
    });
    let object: NodeOverlay = serde_json::from_value(object)?;
    Ok(Overlay::new(&object, &Default::default())?)
}

/// What this thread has computed so far; other processes on a busy computer have no part in it.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let types = types(arguments.types);
    let overlays = (0..arguments.overlays).map(node_overlay).collect::<Result<Vec<_>>>()?;
    let named: Vec<(NodePoolName, BTreeMap<String, String>)> = (0..arguments.pools)
        .map(|number| {
            let labels = BTreeMap::from([(TEAM.to_owned(), format!("team-{number}"))]);
            (format!("pool-{number}").as_str().into(), labels)
        })
        .collect();
    let pools: Vec<Pool<'_>> =
        named.iter().map(|(name, template_labels)| Pool { name, template_labels, types: &types }).collect();
    let mut times: Vec<Duration> = Vec::with_capacity(arguments.runs.max(1));
    let mut corrected = (0, 0, 0);
    for _ in 0..arguments.runs.max(1) {
        let begun = cpu_time();
        let evaluation = evaluate(&overlays, &pools);
        times.push(cpu_time() - begun);
        ensure!(evaluation.rejected.is_empty(), "{:?}", evaluation.rejected);
        let sum = |count: fn(&Corrected) -> usize| -> usize { evaluation.pools.iter().map(|pool| count(pool)).sum() };
        corrected = (sum(|it| it.with_price.len()), sum(|it| it.with_capacity.len()), sum(|it| it.with_devices.len()));
    }
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let median = times[times.len() / 2];
    println!(
        "{} instance types, {} overlays, {} NodePools, CPU time of one thread",
        arguments.types, arguments.overlays, arguments.pools
    );
    println!(
        "evaluate {:>8.2} ms  median of {} ({:.2} to {:.2})",
        ms(median),
        times.len(),
        ms(times[0]),
        ms(times[times.len() - 1])
    );
    let (prices, capacities, devices) = corrected;
    println!("result   types of NodePools with another price: {prices}, capacity: {capacities}, devices: {devices}");
    ensure!(prices > 0 && capacities > 0 && devices > 0, "every kind of overlay must change something");
    if let Some(at_most_ms) = arguments.at_most_ms {
        ensure!(median <= Duration::from_millis(at_most_ms), "the median is over {at_most_ms} ms");
    }
    Ok(())
}
