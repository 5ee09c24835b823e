//! The measurement behind `cargo xtask bench e2e`: a workload of ten shapes gets its machines on a real control plane.
//!
//! Case one: all pods exist and wait, then the controller starts; time counts from its start. Case two: the controller
//! runs, and the pods arrive; time counts from the first. A round is a planning pass that creates NodeClaims. CPU time
//! and memory are the controller's own. The bound is that of `dovetail plan` for all pods and no machine.
//!
//! With `--scale-down` most of the pods go again, and it is measured how the machines follow.

mod goals;
mod scale_down;
mod workload;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use cloudprovider_kwok::catalogue::default_instance_types;
use e2e::bench::{self, Pods, Requests, Usage};
use e2e::control_plane::ControlPlane;
use e2e::controller::Controller;
use e2e::exit;
use e2e::fleet::{Fleet, Machine, dollars};
use e2e::scratch::Scratch;
use e2e::{apply, eventually};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;

const NAMESPACE: &str = "bench";
const NODE_POOL: &str = "bench";
/// What the log says when a planning pass has created NodeClaims.
const ROUND: &str = "computed new nodeclaim(s) to fit pod(s)";
const GIVE_UP: Duration = Duration::from_secs(600);
/// How many kinds of requests are shown.
const SHOWN_REQUESTS: usize = 10;

#[derive(Parser)]
#[command(about = "Time a workload from waiting pods to bound pods on a real control plane")]
struct Arguments {
    /// Pods; a multiple of ten
    #[arg(long, default_value_t = 1000)]
    pods: usize,
    /// Which case; both if not given
    #[arg(long, value_enum)]
    case: Option<Case>,
    /// Measure how machines go when seven of ten pods do, in place of the cases
    #[arg(long, conflicts_with = "case")]
    scale_down: bool,
    /// How the controller hands pods over
    #[arg(long, default_value = "tolerate")]
    hand_over: String,
    /// Karpenter's controller, to be measured right before ours; `cargo xtask bench e2e --beside-karpenter` builds it
    #[arg(long)]
    karpenter: Option<PathBuf>,
}

/// Whose controller is measured.
#[derive(Clone, Copy)]
enum Side<'a> {
    Ours,
    Karpenter(&'a Path),
}

impl Side<'_> {
    fn name(self) -> &'static str {
        match self {
            Side::Ours => "Dovetail",
            Side::Karpenter(_) => "Karpenter",
        }
    }

    fn start(self, cluster: &ControlPlane, arguments: &Arguments) -> Result<Controller> {
        match self {
            Side::Ours => bench::start(cluster, &arguments.hand_over),
            Side::Karpenter(binary) => bench::start_karpenter(cluster, binary),
        }
    }

    async fn start_and_wait(self, cluster: &ControlPlane, arguments: &Arguments) -> Result<Controller> {
        let controller = self.start(cluster, arguments)?;
        eventually("the controller is ready", Duration::from_secs(60), async || {
            ensure!(controller.is_ready(), "not ready");
            Ok(())
        })
        .await?;
        Ok(controller)
    }

    async fn end(self, controller: Controller, cluster: ControlPlane) -> Result<()> {
        let stopped = controller.terminate().await?;
        match self {
            Side::Ours => ensure!(stopped.success(), "dovetail ended with {stopped}"),
            // Ends by the signal.
            Side::Karpenter(_) => {}
        }
        tokio::task::spawn_blocking(move || drop(cluster)).await?;
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Case {
    /// All pods wait when the controller starts
    One,
    /// Pods arrive while the controller runs
    Two,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit::code(run(&Arguments::parse()).await.map(|()| true))
}

/// What one case took.
struct Measured {
    case: Case,
    /// Until all pods were bound.
    took: Duration,
    rounds: usize,
    machines: usize,
    price_nano_usd_per_hour: i64,
    bound_nano_usd_per_hour: i64,
    usage: Usage,
    /// Of ours; Karpenter's controller does not count them.
    requests: Option<Requests>,
}

impl Measured {
    /// How far the fleet's price is above the bound, as a share of the bound.
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    fn above_bound(&self) -> f64 {
        self.price_nano_usd_per_hour as f64 / self.bound_nano_usd_per_hour.max(1) as f64 - 1.0
    }

    fn print(&self, pods: usize, side: Side<'_>, fleet: &Fleet) {
        let case = match self.case {
            Case::One => "one: all pods wait when the controller starts",
            Case::Two => "two: pods arrive while the controller runs",
        };
        println!("case       {case}");
        println!("controller {}", side.name());
        println!("bound      {} of {pods} pods after {:.1} s", fleet.bound(), self.took.as_secs_f64());
        println!("rounds     {}", self.rounds);
        println!(
            "machines   {}, ${}/h, {:.1} % above the bound of ${}/h",
            self.machines,
            dollars(self.price_nano_usd_per_hour),
            100.0 * self.above_bound(),
            dollars(self.bound_nano_usd_per_hour)
        );
        match side {
            Side::Ours => {
                let planned = fleet.as_planned();
                println!(
                    "as planned {} pods exactly, {} exchanged within their workload, {} machines empty",
                    planned.exact, planned.exchanged, planned.empty
                );
            }
            // It does not note which pods a machine is for.
            Side::Karpenter(_) => {}
        }
        if let Some(requests) = &self.requests {
            println!("asked      {}", most_frequent(requests));
        }
        println!("used       {:.2} CPU s, at most {} MB\n", self.usage.cpu.as_secs_f64(), self.megabytes());
    }

    fn megabytes(&self) -> u64 {
        self.usage.peak_rss_bytes / 1_000_000
    }
}

async fn run(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.pods > 0 && arguments.pods.is_multiple_of(10), "--pods must be a multiple of ten");
    if arguments.scale_down {
        return scale_down::run(arguments).await;
    }
    let bound = lower_bound(arguments.pods).context("the bound of the price")?;
    let cases = arguments.case.map_or_else(|| vec![Case::One, Case::Two], |case| vec![case]);
    let (mut ours, mut karpenter) = (Vec::new(), Vec::new());
    for case in cases {
        if let Some(binary) = &arguments.karpenter {
            karpenter.push(measure(arguments, Side::Karpenter(binary), case, bound).await?);
        }
        ours.push(measure(arguments, Side::Ours, case, bound).await?);
    }
    goals::print(arguments.pods, &ours, &karpenter);
    Ok(())
}

/// What no plan for the whole workload can cost less than, as `dovetail plan` prints it.
fn lower_bound(pods: usize) -> Result<i64> {
    #[derive(serde::Deserialize)]
    struct Plan {
        cost: Cost,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cost {
        lower_bound_nano_usd_per_hour: i64,
    }
    let scratch = Scratch::new("bench-e2e")?;
    let file = scratch.path().join("workload.json");
    let items: Vec<_> = workload::surroundings().into_iter().chain(workload::deployments(pods)).collect();
    let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": items });
    std::fs::write(&file, serde_json::to_vec(&list)?)?;
    let output = Command::new(bench::dovetail()?)
        .args(["plan", "--expand-workloads", "-o", "json", "-f"])
        .arg(&file)
        .output()
        .context("run dovetail")?;
    ensure!(output.status.success(), "dovetail plan: {}", String::from_utf8_lossy(&output.stderr).trim());
    let plan: Plan = serde_json::from_slice(&output.stdout).context("read its plan")?;
    Ok(plan.cost.lower_bound_nano_usd_per_hour)
}

async fn measure(arguments: &Arguments, side: Side<'_>, case: Case, bound_nano_usd_per_hour: i64) -> Result<Measured> {
    eprintln!("booting a control plane");
    let (cluster, client) = bench::boot("bench", &[]).await?;
    apply::apply(&client, workload::surroundings()).await?;
    let deployments = workload::deployments(arguments.pods);
    let pods = Pods { namespace: NAMESPACE, selector: "", wanted: arguments.pods, give_up: GIVE_UP };
    let (controller, started, took) = match case {
        Case::One => {
            apply::apply(&client, deployments).await?;
            eprintln!("waiting until {} pods wait", arguments.pods);
            eventually("every pod was tried", GIVE_UP, async || {
                let tried = Api::<Pod>::namespaced(client.clone(), NAMESPACE).list(&Default::default()).await?;
                let tried = tried.iter().filter(|pod| is_unschedulable(pod)).count();
                ensure!(tried == arguments.pods, "{tried} of {}", arguments.pods);
                Ok(())
            })
            .await?;
            let started = Instant::now();
            let controller = side.start(&cluster, arguments)?;
            let took = pods.until_bound(&client, started).await;
            (controller, started, took)
        }
        Case::Two => {
            let controller = side.start_and_wait(&cluster, arguments).await?;
            let started = Instant::now();
            let (applied, took) = tokio::join!(apply::apply(&client, deployments), pods.until_bound(&client, started));
            applied?;
            (controller, started, took)
        }
    };
    let usage = Usage::of(controller.id())?;
    let requests = match side {
        Side::Ours => Some(Requests::of(&controller)?),
        Side::Karpenter(_) => None,
    };
    let fleet = Fleet::read(&client, NAMESPACE, NODE_POOL).await?;
    let took = took.with_context(|| format!("{} of {} pods are bound", fleet.bound(), arguments.pods))?;
    let log = controller.log()?;
    let measured = Measured {
        case,
        took,
        rounds: log.lines().filter(|line| line.contains(ROUND)).count(),
        machines: fleet.claims(),
        price_nano_usd_per_hour: price(&fleet)?,
        bound_nano_usd_per_hour,
        usage,
        requests,
    };
    measured.print(arguments.pods, side, &fleet);
    eprintln!("{:.1} s in all", started.elapsed().as_secs_f64());
    side.end(controller, cluster).await?;
    Ok(measured)
}

/// How many requests there were, and of which verb and resource most of them.
fn most_frequent(requests: &Requests) -> String {
    let mut by_count: Vec<_> = requests.0.iter().collect();
    by_count.sort_by_key(|(_, asked)| std::cmp::Reverse(asked.requests));
    let most = by_count.iter().take(SHOWN_REQUESTS).map(|((verb, resource), asked)| match asked.failed {
        0 => format!("{} {verb} {resource}", asked.requests),
        failed => format!("{} {verb} {resource} ({failed} failed)", asked.requests),
    });
    format!("{} requests: {}", requests.total(), most.collect::<Vec<_>>().join(", "))
}

/// What the machines cost, by the catalogue that both providers have: only ours notes prices.
///
/// # Errors
/// If the catalogue has no such machine, or a machine's labels do not say yet which it is.
fn price(fleet: &Fleet) -> Result<i64> {
    let types = default_instance_types();
    let price_of = |machine: Machine| {
        let Machine { name, instance_type, zone, capacity_type, .. } = machine;
        let of_type = types.iter().find(|it| it.name.as_str() == instance_type);
        let mut offerings = of_type.into_iter().flat_map(|it| it.offerings.iter());
        let offering = offerings.find(|it| it.zone == zone && it.capacity_type.as_str() == capacity_type);
        offering.map(|offering| offering.price.0).with_context(|| {
            format!(
                "machine {name}: the catalogue has no price of type {instance_type:?} in {zone:?} as {capacity_type:?}"
            )
        })
    };
    fleet.machines().into_iter().map(price_of).sum()
}

fn is_unschedulable(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.reason.as_deref() == Some("Unschedulable"))
}
