//! A large cluster with allocated claims and pending pods, the whole round: gathering what is allocated, and each pod
//! on the first node that has devices, beginning after the node of the pod before, as kube-scheduler does.

use anyhow::{Result, ensure};
use dra_sched::Verdict;
use serde_json::{Value, json};

use crate::cases::{GPU, claim, classes, features, gpu, node, request, slice};
use crate::clock::{Stopwatch, peak_kib};
use crate::ours::Objects;
use crate::report::{Report, time};
use crate::upstream::Upstream;

const DEVICES_PER_NODE: usize = 8;
const PENDING_PER_NODES: usize = 10;

/// Measures and prints.
pub fn measure(report: &mut Report, upstream: &mut Upstream, nodes: usize) -> Result<()> {
    let names: Vec<String> = (0..nodes).map(|index| format!("node-{index:05}")).collect();
    let devices: Vec<Value> = (0..DEVICES_PER_NODE).map(|index| gpu(index, index / 2)).collect();
    // Half of the nodes are full, spread over the cluster.
    let full = |index: usize| index.is_multiple_of(2);
    let allocated: Vec<Value> = (0..nodes)
        .filter(|index| full(*index))
        .flat_map(|node| (0..DEVICES_PER_NODE).map(move |device| (node, device)))
        .map(|(node, device)| allocated_claim(&names[node], device))
        .collect();
    let pending = nodes / PENDING_PER_NODES;
    let pods: Vec<Value> =
        (0..pending).map(|index| json!([claim(index, &[request("gpu", GPU, 1 + index % 4)], &[])])).collect();
    let mut question = json!({
        "name": "cluster", "features": features(), "classes": classes(&[GPU]),
        "slices": names.iter().map(|name| slice(GPU, name, &devices)).collect::<Vec<_>>(),
        "nodes": names.iter().map(|name| node(name)).collect::<Vec<_>>(), "pods": pods,
    });
    report.family(&format!(
        "cluster: {nodes} nodes, {} devices, {} allocated claims, {pending} pending pods; the whole round, cold",
        nodes * DEVICES_PER_NODE,
        allocated.len()
    ));

    let objects = Objects::read(&question, &allocated)?;
    let (ours_ns, placed, attempts) = ours(&objects);
    drop(objects);
    println!("  {:<50} {:>10}   {placed} placed, {attempts} attempts", "ours", time(ours_ns as f64));
    if let Some(peak) = peak_kib() {
        println!("  {:<50} {:>6.0} MiB   (objects as JSON included)", "ours, peak memory so far", peak as f64 / 1024.0);
    }
    question["bench"] = Value::Null;
    for (gather, title) in [
        ("incremental", "upstream, state kept by events and copied"),
        ("relist", "upstream, state read from all claims each time"),
    ] {
        let measured = upstream.measure(&question, &json!({"gather": gather, "allocatedClaims": allocated}))?;
        ensure!(measured.placed == placed, "upstream placed {}, ours {placed}", measured.placed);
        let ratio = measured.cpu_nanos as f64 / ours_ns as f64;
        println!(
            "  {title:<50} {:>10}   {ratio:.1} times ours, {} attempts, peak {:.0} MiB",
            time(measured.cpu_nanos as f64),
            measured.allocations,
            measured.peak_kib as f64 / 1024.0
        );
    }
    Ok(())
}

fn ours(objects: &Objects) -> (u64, u64, u64) {
    let watch = Stopwatch::start();
    let mut prepared = objects.prepare();
    let (mut placed, mut attempts, mut next) = (0, 0, 0);
    for pod in 0..prepared.pods.len() {
        for _ in 0..objects.nodes.len() {
            let node = &objects.nodes[next % objects.nodes.len()];
            next += 1;
            attempts += 1;
            if let (Verdict::Allocated { allocations, .. }, _) = prepared.allocate(pod, node) {
                placed += 1;
                allocations.iter().for_each(|allocation| prepared.ledger.hold(&prepared.inventory, allocation));
                break;
            }
        }
    }
    (watch.elapsed_ns(), placed, attempts)
}

fn allocated_claim(node: &str, device: usize) -> Value {
    let mut claim = claim(0, &[request("gpu", GPU, 1)], &[]);
    claim["metadata"]["name"] = format!("{node}-{device}").into();
    claim["metadata"]["uid"] = format!("{node}-{device}").into();
    let result = json!({"request": "gpu", "driver": GPU, "pool": node, "device": format!("gpu-{device}")});
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    claim["status"] = json!({
        "allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}},
    });
    claim
}
