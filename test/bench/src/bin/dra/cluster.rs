//! A large cluster with allocated claims and pending pods, the whole round: gathering what is allocated, and each pod
//! on the first node that has devices, beginning after the node of the pod before, as kube-scheduler does.

use std::io::{BufRead, BufWriter, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use dra_sched::Verdict;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cases::{GPU, claim, classes, features, gpu, node, request, slice};
use crate::clock::{Stopwatch, peak_kib};
use crate::ours::{LISTS, Objects};
use crate::report::{Report, time};
use crate::upstream::Upstream;

const DEVICES_PER_NODE: usize = 8;
const PENDING_PER_NODES: usize = 10;

/// Measures and prints.
pub(crate) fn measure(report: &mut Report, upstream: &mut Upstream, nodes: usize) -> Result<()> {
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

    let Ours { cpu_nanos: ours_ns, placed, attempts, peak_kib } = in_a_process_of_its_own(&question, &allocated)?;
    println!(
        "  {:<50} {:>10}   {placed} placed, {attempts} attempts, peak {:.0} MiB",
        "ours",
        time(ours_ns as f64),
        peak_kib as f64 / 1024.0
    );
    question["bench"] = Value::Null;
    for (gather, title) in [
        ("incremental", "upstream, state kept by events and copied"),
        ("relist", "upstream, state read from all claims each time"),
    ] {
        let measured = upstream.measure(&question, &json!({"gather": gather, "allocatedClaims": allocated}))?;
        ensure!(measured.placed == placed, "upstream placed {}, ours {placed}", measured.placed);
        let ratio = report.rate(title, &[measured.cpu_nanos as f64], &[ours_ns as f64]).unwrap_or(0.0);
        println!(
            "  {title:<50} {:>10}   {ratio:.1} times ours, {} attempts, peak {:.0} MiB",
            time(measured.cpu_nanos as f64),
            measured.allocations,
            measured.peak_kib as f64 / 1024.0
        );
    }
    Ok(())
}

/// What our side took.
#[derive(Serialize, Deserialize)]
struct Ours {
    cpu_nanos: u64,
    placed: u64,
    attempts: u64,
    peak_kib: u64,
}

/// This program again, which gets one object a line as a watch would give them.
fn in_a_process_of_its_own(question: &Value, allocated: &[Value]) -> Result<Ours> {
    let program = std::env::current_exe()?;
    let mut process = Command::new(program)
        .arg("--cluster-from-stdin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("run this program again")?;
    let mut lines = BufWriter::new(process.stdin.take().context("it has no input")?);
    for (list, kind) in LISTS {
        for object in question[list].as_array().into_iter().flatten() {
            writeln!(lines, "{}", json!([kind, object]))?;
        }
    }
    for claim in allocated {
        writeln!(lines, "{}", json!(["ResourceClaim", claim]))?;
    }
    lines.flush()?;
    drop(lines);
    let output = process.wait_with_output()?;
    ensure!(output.status.success(), "our side of the cluster failed");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Our side, in that process.
pub(crate) fn from_stdin() -> Result<()> {
    let mut objects = Objects::default();
    for line in std::io::stdin().lock().lines() {
        let line: Value = serde_json::from_str(&line?)?;
        objects.add(line[0].as_str().context("a line begins with a kind")?, &line[1])?;
    }
    let (cpu_nanos, placed, attempts) = ours(&objects);
    let ours = Ours { cpu_nanos, placed, attempts, peak_kib: peak_kib().unwrap_or(0) };
    println!("{}", serde_json::to_string(&ours)?);
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
