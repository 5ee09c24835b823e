//! `cargo xtask fidelity`: seeded random scenarios on a real control plane; each must go exactly as planned.

mod devices;
mod disruption;

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;
use e2e::cluster::{Cluster, Corner};
use e2e::exit;
use e2e::fidelity::{self, Outcome, Scenario};
use e2e::{Controller, Gates, Kubernetes, Platform};
use indicatif::{ProgressBar, ProgressStyle};

#[derive(Parser)]
#[command(about = "Play random scenarios from plan to kube-scheduler")]
struct Arguments {
    /// How many scenarios.
    #[arg(long, default_value_t = 200)]
    scenarios: u64,
    /// The first scenario's seed; the next have the next.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Scenarios of devices: half with the default feature gates, half with all.
    #[arg(long)]
    dra: bool,
    /// Scenarios of fleets that change, whose machines go and are replaced.
    #[arg(long, conflicts_with_all = ["dra", "print"])]
    disruption: bool,
    /// Scenarios of devices: whose machines.
    #[arg(long, value_enum, default_value = "kwok", requires = "dra")]
    provider: devices::Provider,
    /// Scenarios of devices: only one half, with this set of feature gates.
    #[arg(long, value_enum, requires = "dra")]
    gates: Option<GateSet>,
    /// Scenarios of devices: the release of Kubernetes, 1.36 or 1.37.
    #[arg(long, default_value_t, requires = "dra")]
    kubernetes: Kubernetes,
    /// Print the objects of the first, as `dovetail plan` reads them, and play none; of scenarios of devices with
    /// --gates.
    #[arg(long)]
    print: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum GateSet {
    Default,
    All,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit::code(run(&Arguments::parse()).await)
}

async fn run(arguments: &Arguments) -> Result<bool> {
    if arguments.dra {
        let Arguments { provider, seed, scenarios, kubernetes, .. } = *arguments;
        let gates = arguments.gates.map(|gates| match gates {
            GateSet::Default => Gates::Default,
            GateSet::All => Gates::All,
        });
        if let Some(gates) = gates.filter(|_| arguments.print) {
            devices::print(provider, seed, Platform { kubernetes, gates })?;
            return Ok(true);
        }
        return devices::run(devices::Run { provider, seed, scenarios, kubernetes, gates }).await;
    }
    if arguments.disruption {
        return disruption::run(arguments.seed, arguments.scenarios).await;
    }
    if arguments.print {
        println!("{:#}", Scenario::random(arguments.seed).objects());
        return Ok(true);
    }
    let started = Instant::now();
    let cluster = Cluster::new("fidelity").await?;
    let client = cluster.client().await?;
    let options = fidelity::prepare(&cluster, &client).await?;
    let _provisioner = fidelity::Provisioner::start(client.clone());
    let controller = Controller::start_ready(&options).await?;
    let bar = ProgressBar::new(arguments.scenarios);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} scenarios, {eta} left, {msg}")?);
    let shown = stderr().is_terminal();
    let (mut total, mut passed, mut failed) = (Outcome::default(), 0, 0);
    for seed in arguments.seed..arguments.seed.saturating_add(arguments.scenarios) {
        let scenario = Scenario::random(seed);
        let corner = Corner::without_node_pool(client.clone(), &scenario.name).await?;
        let faults: Vec<String> = match scenario.play(&corner, &controller).await {
            Ok(outcome) => {
                let faults = outcome.faults().map(str::to_owned).collect();
                bar.suspend(|| outcome.remarks().for_each(|remark| println!("seed {seed}, no fault: {remark}")));
                total.add(outcome);
                faults
            }
            Err(error) => vec![format!("{error:#}")],
        };
        corner.abandon().await.with_context(|| format!("seed {seed}: clean up"))?;
        // Nodes that are on their way out are domains still, and a plan that counts them refuses what it would not
        // later.
        corner.emptied().await.with_context(|| format!("seed {seed}: clean up"))?;
        if faults.is_empty() {
            passed += 1
        } else {
            failed += 1
        }
        for fault in &faults {
            bar.suspend(|| println!("seed {seed}: {fault}"));
        }
        bar.inc(1);
        bar.set_message(format!("{failed} failed"));
        if !shown && (passed + failed) % 20 == 0 {
            eprintln!("{} of {} scenarios, {failed} failed", passed + failed, arguments.scenarios);
        }
    }
    bar.finish_and_clear();
    controller.terminate().await?;
    println!("Kubernetes {}, {:.0} s", cluster.control_plane.version(), started.elapsed().as_secs_f64());
    println!("{total}");
    println!("{passed} passed, {failed} failed of seeds {} and later", arguments.seed);
    Ok(failed == 0)
}
