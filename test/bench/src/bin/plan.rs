//! How long one plan takes: mixed pods on the kwok provider's 144 instance types, nothing there yet, one thread.
//!
//! The ten shapes are those of the cluster benchmark (plain, memory-heavy, zonal by node selector, arm64). Reading the
//! manifests is measured apart from planning, because a controller reads each object once and plans many times.

use std::{
    fmt::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use api::labels::ProviderLabels;
use clap::Parser;
use cloudprovider_kwok::catalogue::default_instance_types;
use cluster::offline::{self, Settings};
use scheduling::{Plan, Snapshot, provisioning};

/// Plans mixed pods on 144 instance types and prints the time.
#[derive(Parser)]
struct Arguments {
    /// Pods to plan.
    #[arg(long, default_value_t = 1000)]
    pods: usize,
    /// Measured runs; the median counts.
    #[arg(long, default_value_t = 21)]
    runs: usize,
    /// Fail if the median plan takes longer, in milliseconds.
    #[arg(long)]
    at_most_ms: Option<u64>,
}

/// (milli-CPU, MiB, further lines of the pod's spec)
const SHAPES: [(u32, u32, &str); 10] = [
    (100, 128, ""),
    (250, 512, ""),
    (250, 2048, ""),
    (500, 1024, ""),
    (500, 4096, ""),
    (1000, 2048, ""),
    (1000, 8192, "  nodeSelector: {topology.kubernetes.io/zone: test-zone-b}\n"),
    (2000, 4096, "  nodeSelector: {topology.kubernetes.io/zone: test-zone-c}\n"),
    (2000, 16384, ""),
    (4000, 8192, "  nodeSelector: {kubernetes.io/arch: arm64}\n"),
];

const NODE_POOL: &str = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: bench}
spec:
  template:
    spec:
      requirements:
      - {key: kubernetes.io/os, operator: In, values: [linux]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: bench}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: kube-system}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers: [{name: c, image: x, resources: {requests: {cpu: 50m, memory: 64Mi}}}]
";

fn manifests(pods: usize) -> String {
    let mut text = NODE_POOL.to_owned();
    for (index, (cpu, memory, extra)) in SHAPES.iter().cycle().take(pods).enumerate() {
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p{index}, namespace: bench}}\nspec:\n{extra}  containers: \
             [{{name: c, image: x, resources: {{requests: {{cpu: {cpu}m, memory: {memory}Mi}}}}}}]\n"
        );
    }
    text
}

fn snapshot(text: &str) -> Result<Snapshot> {
    let instance_types: Vec<_> = default_instance_types().into_iter().map(Arc::new).collect();
    let labels = ProviderLabels::default();
    let parsed = decode::manifests::parse("bench", text);
    let settings = Settings::new(&instance_types, &labels, &[("karpenter.kwok.sh", "KWOKNodeClass")]);
    let input = offline::read(parsed.manifests, parsed.errors, &settings);
    ensure!(input.problems.is_empty(), "{}", input.problems[0]);
    let (snapshot, errors) = cluster::snapshot(input.cluster, input.interner, &labels);
    ensure!(errors.is_empty(), "{}", errors[0]);
    Ok(snapshot)
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let text = manifests(arguments.pods);
    let begun = Instant::now();
    let snapshot = snapshot(&text)?;
    let read = begun.elapsed();
    let mut times: Vec<Duration> = Vec::with_capacity(arguments.runs.max(1));
    let mut plan = Plan::default();
    for _ in 0..arguments.runs.max(1) {
        let begun = Instant::now();
        plan = provisioning::plan(&snapshot);
        times.push(begun.elapsed());
    }
    times.sort();
    let median = times[times.len() / 2];
    let types = snapshot.node_pools.iter().map(|pool| pool.catalogue.types.len()).max().unwrap_or(0);
    println!("pods {}, instance types {types}, one thread", arguments.pods);
    println!("read    {:>9.2} ms  (manifests to snapshot, once)", read.as_secs_f64() * 1000.0);
    println!(
        "plan    {:>9.2} ms  median of {} ({:.2} to {:.2})",
        median.as_secs_f64() * 1000.0,
        times.len(),
        times[0].as_secs_f64() * 1000.0,
        times[times.len() - 1].as_secs_f64() * 1000.0
    );
    println!("result  {} machines, {} pods without a place, {}", plan.machines.len(), plan.refusals.len(), plan.price);
    ensure!(plan.refusals.is_empty(), "every pod of this benchmark fits");
    if let Some(at_most_ms) = arguments.at_most_ms {
        ensure!(median <= Duration::from_millis(at_most_ms), "the median is over {at_most_ms} ms");
    }
    Ok(())
}
