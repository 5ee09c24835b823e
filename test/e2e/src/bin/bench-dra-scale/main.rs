//! The measurement behind `cargo xtask bench dra-scale`: the scale test of Kubernetes' good practices for DRA, on a
//! real control plane and from an empty cluster.
//!
//! A cluster of so many machines with eight devices is filled to nine tenths with pods that stay, each with a claim
//! from a template; then the last tenth is filled and emptied, wave by wave. Pods are of Jobs, created at a fixed rate,
//! and the controller manager is held to the request rate that these good practices name. Times of the filling and of
//! each wave count from their first Job.

mod workload;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use e2e::bench::{self, Asked, Pods, Requests, Usage};
use e2e::controller::Controller;
use e2e::exit;
use e2e::fleet::{Fleet, dollars};
use e2e::{apply, eventually};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};

use workload::{DEVICES, PART};

const NAMESPACE: &str = "bench";
const NODE_POOL: &str = "bench";
const GIVE_UP: Duration = Duration::from_secs(900);
/// What the controller manager may ask a second, and at once.
const CONTROLLER_MANAGER: [&str; 4] =
    ["--arg", "controller-manager=--kube-api-qps=75", "--arg", "controller-manager=--kube-api-burst=150"];

#[derive(Parser)]
#[command(about = "Fill machines with pods that claim devices, then churn a tenth of them, on a real control plane")]
struct Arguments {
    /// Machines when all devices are taken; a multiple of ten
    #[arg(long, default_value_t = 100)]
    nodes: usize,
    /// How often the last tenth is filled and emptied
    #[arg(long, default_value_t = 10)]
    waves: usize,
    /// Jobs created a second
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// How the controller hands pods over
    #[arg(long, default_value = "tolerate")]
    hand_over: String,
    /// Show the end of the controller's log too
    #[arg(long)]
    log: bool,
}

/// A wave of pods.
struct Wave {
    bound: Duration,
    /// From the deletion of its Jobs until its pods and claims are gone.
    emptied: Duration,
    machines: usize,
    requests: u64,
}

/// What is measured, and where.
struct Bench {
    client: Client,
    controller: Controller,
    rate: u32,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit::code(measure(&Arguments::parse()).await.map(|()| true))
}

async fn measure(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.nodes > 0 && arguments.nodes.is_multiple_of(10), "--nodes must be a multiple of ten");
    let devices = arguments.nodes * DEVICES;
    let churned = devices / 10;
    let staying = devices - churned;
    eprintln!("booting a control plane");
    let extra: Vec<&str> = CONTROLLER_MANAGER.into_iter().chain(["--keep-jobs-running"]).collect();
    let (cluster, client) = bench::boot("dra-scale", &extra).await?;
    apply::apply(&client, workload::surroundings(arguments.nodes)).await?;
    let controller = bench::start(&cluster, &arguments.hand_over)?;
    eventually("the controller is ready", Duration::from_secs(60), async || {
        ensure!(controller.is_ready(), "not ready");
        Ok(())
    })
    .await?;
    let bench = Bench { client, controller, rate: arguments.rate };
    println!("cluster    Kubernetes {}, {} machines of {DEVICES} devices", cluster.version(), arguments.nodes);
    let idle = Requests::of(&bench.controller)?;
    bench.fill(staying).await?;
    let filled = Requests::of(&bench.controller)?;
    let mut waves = Vec::new();
    for number in 1..=arguments.waves {
        waves.push(bench.wave(number, churned, staying).await?);
    }
    let end = Requests::of(&bench.controller)?;
    show_waves(&waves);
    let usage = Usage::of(bench.controller.id())?;
    println!("controller {:.1} CPU s in all, at most {} MiB", usage.cpu.as_secs_f64(), usage.peak_rss_bytes >> 20);
    println!("{}", requests_table(&[("start", &idle), ("fill", &filled.since(&idle)), ("waves", &end.since(&filled))]));
    if arguments.log {
        println!("{}", bench.controller.log()?);
    }
    let stopped = bench.controller.terminate().await?;
    ensure!(stopped.success(), "dovetail ended with {stopped}");
    Ok(tokio::task::spawn_blocking(move || drop(cluster)).await?)
}

impl Bench {
    /// Brings the pods that stay.
    async fn fill(&self, staying: usize) -> Result<()> {
        let part = "stays";
        let took = self.until_bound(part, staying).await;
        let fleet = Fleet::read(&self.client, NAMESPACE, NODE_POOL).await?;
        let took = took.with_context(|| format!("{} machines", fleet.claims()))?;
        let claims = self.claims().await?;
        let allocated = claims.iter().filter(|claim| claim.status.as_ref().is_some_and(|it| it.allocation.is_some()));
        let allocated = allocated.count();
        ensure!(allocated == staying, "{allocated} of {} claims are allocated, and {staying} pods bound", claims.len());
        let (planned, usage) = (fleet.as_planned(), Usage::of(self.controller.id())?);
        println!(
            "filled     {staying} pods after {:.1} s, of which it took {:.1} s to create their Jobs",
            took.as_secs_f64(),
            staying as f64 / f64::from(self.rate)
        );
        println!("machines   {}, ${}/h", fleet.claims(), dollars(fleet.price_nano_usd_per_hour()));
        println!(
            "as planned {} pods exactly, {} exchanged, {} machines empty",
            planned.exact, planned.exchanged, planned.empty
        );
        println!("controller {:.1} CPU s so far, at most {} MiB", usage.cpu.as_secs_f64(), usage.peak_rss_bytes >> 20);
        Ok(())
    }

    /// Fills what is left, and empties it again.
    async fn wave(&self, number: usize, churned: usize, staying: usize) -> Result<Wave> {
        let part = format!("wave-{number}");
        let before = Requests::of(&self.controller)?;
        let bound = self.until_bound(&part, churned).await.with_context(|| part.clone())?;
        let started = Instant::now();
        let of_part = ListParams::default().labels(&format!("{PART}={part}"));
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), NAMESPACE);
        jobs.delete_collection(&DeleteParams::background(), &of_part).await?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        eventually(&format!("the pods and claims of {part} are gone"), GIVE_UP, async || {
            let left = pods.list_metadata(&of_part).await?.items.len();
            ensure!(left == 0, "{left} pods");
            let claims = self.claims().await?.len();
            ensure!(claims == staying, "{claims} claims, not {staying}");
            Ok(())
        })
        .await?;
        let emptied = started.elapsed();
        let machines = Fleet::read(&self.client, NAMESPACE, NODE_POOL).await?.claims();
        let requests = Requests::of(&self.controller)?.since(&before).total();
        eprintln!("wave {number}: bound after {:.1} s, gone after {:.1} s", bound.as_secs_f64(), emptied.as_secs_f64());
        Ok(Wave { bound, emptied, machines, requests })
    }

    /// Creates so many Jobs at the rate, and gives the time from the first until their pods were bound.
    async fn until_bound(&self, part: &str, count: usize) -> Result<Duration> {
        let started = Instant::now();
        let selector = format!("{PART}={part}");
        let pods = Pods { namespace: NAMESPACE, selector: &selector, wanted: count, give_up: GIVE_UP };
        let (created, took) = tokio::join!(self.create(part, count), pods.until_bound(&self.client, started));
        created.and(took)
    }

    async fn create(&self, part: &str, count: usize) -> Result<()> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut turns = tokio::time::interval(Duration::from_secs(1) / self.rate);
        for index in 0..count {
            turns.tick().await;
            jobs.create(&PostParams::default(), &workload::job(part, index)?).await?;
        }
        Ok(())
    }

    async fn claims(&self) -> Result<Vec<ResourceClaim>> {
        Ok(Api::namespaced(self.client.clone(), NAMESPACE).list(&ListParams::default()).await?.items)
    }
}

fn show_waves(waves: &[Wave]) {
    if waves.is_empty() {
        return;
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["wave", "bound after", "gone after", "machines", "requests"]);
    for (number, wave) in (1..).zip(waves) {
        table.add_row([
            format!("{number}"),
            format!("{:.1} s", wave.bound.as_secs_f64()),
            format!("{:.1} s", wave.emptied.as_secs_f64()),
            wave.machines.to_string(),
            wave.requests.to_string(),
        ]);
    }
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    println!("{table}");
}

/// What the controller asked of the API server: a row for each verb and resource, a column for each part of the time.
fn requests_table(parts: &[(&str, &Requests)]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["verb", "resource"].into_iter().chain(parts.iter().map(|(name, _)| *name)));
    let cell = |Asked { requests, failed }: Asked| match failed {
        0 => requests.to_string(),
        _ => format!("{requests} ({failed} failed)"),
    };
    let mut keys: Vec<&(String, String)> = parts.iter().flat_map(|(_, requests)| requests.0.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let counts = parts.iter().map(|(_, requests)| cell(requests.0.get(key).copied().unwrap_or_default()));
        table.add_row([key.0.clone(), key.1.clone()].into_iter().chain(counts));
    }
    let totals = parts.iter().map(|(_, requests)| requests.total().to_string());
    table.add_row(["all".to_owned(), String::new()].into_iter().chain(totals));
    table.column_iter_mut().skip(2).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}
