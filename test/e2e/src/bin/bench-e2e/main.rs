//! The measurement behind `cargo xtask bench e2e`: a workload of ten shapes gets its machines on a real control plane.
//!
//! Case one: all pods exist and wait, then the controller starts; time counts from its start. Case two: the controller
//! runs, and the pods arrive; time counts from the first. A round is a planning pass that creates NodeClaims. CPU time
//! and memory are the controller's own.

mod usage;
mod workload;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use e2e::control_plane::{self, ControlPlane};
use e2e::controller::{self, Controller};
use e2e::fleet::{Fleet, dollars};
use e2e::{apply, eventually, install};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt};

use usage::Usage;

const NAMESPACE: &str = "bench";
const NODE_POOL: &str = "bench";
/// What the log says when a planning pass has created NodeClaims.
const ROUND: &str = "computed new nodeclaim(s) to fit pod(s)";
const GIVE_UP: Duration = Duration::from_secs(600);

#[derive(Parser)]
#[command(about = "Time a workload from waiting pods to bound pods on a real control plane")]
struct Arguments {
    /// Pods; a multiple of ten
    #[arg(long, default_value_t = 1000)]
    pods: usize,
    /// Which case; both if not given
    #[arg(long, value_enum)]
    case: Option<Case>,
    /// How the controller hands pods over
    #[arg(long, default_value = "tolerate")]
    hand_over: String,
    /// Pods that must be spread over zones, as in the reference workload, in place of pods with a zone
    #[arg(long)]
    spread: bool,
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
    let arguments = Arguments::parse();
    let cases = arguments.case.map_or_else(|| vec![Case::One, Case::Two], |case| vec![case]);
    for case in cases {
        if let Err(error) = measure(&arguments, case).await {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

async fn measure(arguments: &Arguments, case: Case) -> Result<()> {
    ensure!(arguments.pods > 0 && arguments.pods.is_multiple_of(10), "--pods must be a multiple of ten");
    eprintln!("booting a control plane");
    let cluster = ControlPlane::up(control_plane::Options {
        name: "bench".to_owned(),
        service_accounts: vec![install::SERVICE_ACCOUNT.to_owned()],
        ..control_plane::Options::default()
    })
    .await?;
    let client = cluster.client().await?;
    install::crds(&client).await?;
    install::rights(&client).await?;
    apply::apply(&client, workload::surroundings()).await?;
    let deployments = workload::deployments(arguments.pods, arguments.spread);
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
            let controller = start(&cluster, &arguments.hand_over)?;
            let took = until_bound(&client, arguments.pods, started).await;
            (controller, started, took)
        }
        Case::Two => {
            let controller = start(&cluster, &arguments.hand_over)?;
            eventually("the controller is ready", Duration::from_secs(60), async || {
                ensure!(controller.is_ready(), "not ready");
                Ok(())
            })
            .await?;
            let started = Instant::now();
            let (applied, took) =
                tokio::join!(apply::apply(&client, deployments), until_bound(&client, arguments.pods, started));
            applied?;
            (controller, started, took)
        }
    };
    let usage = Usage::of(controller.id())?;
    let fleet = Fleet::read(&client, NAMESPACE, NODE_POOL).await?;
    let took = took.with_context(|| format!("{} of {} pods are bound", fleet.bound(), arguments.pods))?;
    let log = controller.log()?;
    let planned = fleet.as_planned();
    let name = match case {
        Case::One => "one: all pods wait when the controller starts",
        Case::Two => "two: pods arrive while the controller runs",
    };
    println!("case       {name}");
    println!("bound      {} of {} pods after {:.1} s", fleet.bound(), arguments.pods, took.as_secs_f64());
    println!("rounds     {}", log.lines().filter(|line| line.contains(ROUND)).count());
    println!("machines   {}, ${}/h", fleet.claims(), dollars(fleet.price_nano_usd_per_hour()));
    println!(
        "as planned {} pods exactly, {} exchanged within their workload, {} machines empty",
        planned.exact, planned.exchanged, planned.empty
    );
    println!("controller {:.1} CPU s, at most {} MiB", usage.cpu.as_secs_f64(), usage.peak_rss_bytes >> 20);
    println!("           {:.1} s in all\n", started.elapsed().as_secs_f64());
    let stopped = controller.terminate().await?;
    ensure!(stopped.success(), "dovetail ended with {stopped}");
    Ok(tokio::task::spawn_blocking(move || drop(cluster)).await?)
}

fn start(cluster: &ControlPlane, hand_over: &str) -> Result<Controller> {
    let binary = std::env::current_exe()?.with_file_name(format!("dovetail{}", std::env::consts::EXE_SUFFIX));
    ensure!(binary.exists(), "{} is not built; run `cargo xtask bench e2e`", binary.display());
    let environment = [
        ("LEADER_ELECTION_NAMESPACE", install::NAMESPACE),
        ("KWOK_INSTANCES_NAMESPACE", install::NAMESPACE),
        ("HAND_OVER", hand_over),
    ];
    Controller::start(&controller::Options {
        name: "dovetail".to_owned(),
        binary,
        kubeconfig: cluster.kubeconfig_of(install::RELEASE)?.to_owned(),
        folder: cluster.folder().to_owned(),
        arguments: Vec::new(),
        environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect(),
    })
}

/// How long after `started` so many pods were bound.
async fn until_bound(client: &Client, wanted: usize, started: Instant) -> Result<Duration> {
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let mut events = Box::pin(watcher(pods, watcher::Config::default()));
    let mut bound = BTreeSet::new();
    let mut shown = Instant::now();
    let end = tokio::time::sleep(GIVE_UP);
    tokio::pin!(end);
    while bound.len() < wanted {
        let event = tokio::select! {
            event = events.next() => event.context("the watch ended")?,
            () = &mut end => bail!("gave up after {} s", GIVE_UP.as_secs()),
        };
        match event? {
            Event::Apply(pod) | Event::InitApply(pod) => {
                if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
                    bound.insert(pod.name_any());
                }
            }
            Event::Delete(pod) => {
                bound.remove(&pod.name_any());
            }
            Event::Init | Event::InitDone => {}
        }
        if shown.elapsed() > Duration::from_secs(2) {
            eprintln!("{} of {wanted} pods bound, {:.0} s", bound.len(), started.elapsed().as_secs_f64());
            shown = Instant::now();
        }
    }
    Ok(started.elapsed())
}

fn is_unschedulable(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.reason.as_deref() == Some("Unschedulable"))
}
