//! The demonstration behind `cargo xtask demo`: pods that no node can hold get machines, on a real kube-apiserver with
//! the real kube-scheduler; more pods fill the room that is left; most pods go, and machines that are not needed
//! follow them; pods that claim GPUs get machines that have some; in the end all of it is taken down.
//! `cargo xtask demo dra` shows the examples of devices only, but all of them; `cargo xtask demo aws` machines of EC2.
//!
//! It fails if the scheduler leaves a pod unbound, or allocates a claim otherwise than planned.

mod aws;
mod claims;
mod devices;
mod scale_down;
mod screen;
mod stage;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::NodeClaim;
use clap::{Parser, ValueEnum};
use e2e::control_plane::{self, ControlPlane};
use e2e::controller::{self, Controller};
use e2e::exit;
use e2e::fleet::{Fleet, Provider};
use e2e::{apply, eventually, install};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use devices::Example;
use screen::Screen;
use stage::Stage;
use waiting::{Awaited, until_bound};

const EXAMPLE: &str = "examples/web";
const NAMESPACE: &str = "shop";
const NODE_POOL: &str = "general";
/// The Deployment that grows, and to how many replicas.
const GROWS: (&str, u32) = ("web", 30);
const BIND_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Parser)]
#[command(about = "Watch pending pods get machines")]
struct Arguments {
    /// What to show, if not the usual.
    part: Option<Part>,
    /// Leave the cluster running at the end, until Ctrl-C.
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// All examples of devices.
    Dra,
    /// Machines of an EC2 in memory.
    Aws,
}

/// The last line, and whether all is well.
struct Ending(String, bool);

#[tokio::main]
async fn main() -> ExitCode {
    exit::code(run(&Arguments::parse()).await.map(|Ending(summary, is_complete)| {
        println!("{summary}");
        is_complete
    }))
}

async fn run(arguments: &Arguments) -> Result<Ending> {
    let started = Instant::now();
    let screen = Screen::new();
    let cluster =
        screen.step("boot etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok", boot()).await?;
    let client = cluster.client().await?;
    screen.note(&format!("Kubernetes {}, up in {:.1} s", cluster.version(), cluster.boot_time().as_secs_f64()));
    screen.step("install the CRDs and the chart's rights", install(&client, arguments.part)).await?;
    let mut options = controller(&cluster)?;
    let ec2 = match arguments.part {
        Some(Part::Aws) => {
            Some(screen.step("begin an EC2 in memory with all types of a region", aws::begin(&client)).await?)
        }
        Some(Part::Dra) | None => None,
    };
    let mut provider = Provider::Kwok;
    if let Some(ec2) = &ec2 {
        options = ec2.controller(options);
        provider = Provider::Ec2(ec2.cloud.clone());
    }
    let controller = screen.step("start dovetail with these rights", Controller::start_ready(&options)).await?;

    // The command line is a person's, who may read all that the controller may not.
    let person = controller::Options { kubeconfig: cluster.kubeconfig().to_owned(), ..options };
    let stage = Stage { screen: &screen, client: &client, provider, options: person };
    let (ending, shown) = match (&ec2, arguments.part) {
        (Some(ec2), _) => {
            let (summary, shown) = aws::show(&stage, ec2).await?;
            (Ending(summary.to_string(), summary.is_complete()), shown)
        }
        (None, Some(_)) => {
            let examples = devices::ALL.iter().map(|name| Example::read(name)).collect::<Result<Vec<_>>>()?;
            let summary = devices::show(&stage, &examples, BIND_TIMEOUT).await?;
            (Ending(summary.to_string(), summary.is_complete()), places(&examples))
        }
        (None, None) => usual(&stage).await?,
    };

    if arguments.keep {
        println!("\nexport KUBECONFIG={}\nCtrl-C ends it.", cluster.kubeconfig().display());
        tokio::signal::ctrl_c().await?;
    }
    screen.heading("take it down");
    let gone = screen.step("delete the NodePools, and with them each machine", tear_down(&stage, &shown));
    if let Err(error) = gone.await {
        bail!("{error:#}\nend of the controller's log:\n{}", tail(&controller.log()?));
    }
    let stopped = screen.step("stop dovetail", async { controller.terminate().await }).await?;
    ensure!(stopped.success(), "dovetail ended with {stopped}:\n{}", tail(&controller.log()?));
    screen
        .step("stop the control plane", async { Ok(tokio::task::spawn_blocking(move || drop(cluster)).await?) })
        .await?;
    screen.note(&format!("all in {:.0} s\n", started.elapsed().as_secs_f64()));
    Ok(ending)
}

/// The namespaces and NodePools of what was shown.
type Places = Vec<(String, String)>;

fn places(examples: &[Example]) -> Places {
    examples.iter().map(|example| (example.namespace.clone(), example.node_pool.clone())).collect()
}

/// A web shop that grows and shrinks, and pods with GPUs.
async fn usual(stage: &Stage<'_>) -> Result<(Ending, Places)> {
    let screen = stage.screen;
    let example = apply::read(&go_programs::repository().join(EXAMPLE))?;
    let wanted = pods_wanted(&example);
    screen.heading(&format!("kubectl apply -f {EXAMPLE}: {wanted} pods, no node"));
    let first = deploy(stage, example.clone(), wanted).await?;
    screen.machines(&first, &BTreeSet::new());

    let (name, replicas) = GROWS;
    let grown = scaled(&example, name, replicas)?;
    let wanted = pods_wanted(&grown);
    screen.heading(&format!("kubectl scale deployment {name} --replicas={replicas}: {wanted} pods"));
    let second = deploy(stage, grown, wanted).await?;
    screen.machines(&second, &first.machine_names());
    screen.note(&second.since(&first));

    // Before there are other machines: those with GPUs have room for what is left of the shop.
    let down = scale_down::show(stage, &example).await?;
    screen.note(&down.to_string());

    let gpus = devices::GPU.iter().map(|name| Example::read(name)).collect::<Result<Vec<_>>>()?;
    let of_gpus = devices::show(stage, &gpus, BIND_TIMEOUT).await?;
    screen.note(&of_gpus.to_string().replace("demo: ", ""));
    let mut shown = places(&gpus);
    shown.push((NAMESPACE.to_owned(), NODE_POOL.to_owned()));
    let summary = second.summary(wanted);
    let is_complete = summary.is_complete() && of_gpus.is_complete() && down.is_complete();
    Ok((Ending(summary.to_string(), is_complete), shown))
}

async fn boot() -> Result<ControlPlane> {
    ControlPlane::up(control_plane::Options {
        name: "demo".to_owned(),
        service_accounts: vec![install::SERVICE_ACCOUNT.to_owned()],
        ..control_plane::Options::default()
    })
    .await
}

async fn install(client: &Client, part: Option<Part>) -> Result<()> {
    install::crds(client).await?;
    match part {
        Some(Part::Aws) => install::rights_with(client, install::AWS).await,
        Some(Part::Dra) | None => install::rights(client).await,
    }
}

fn controller(cluster: &ControlPlane) -> Result<controller::Options> {
    let ours = std::env::current_exe()?;
    let binary = ours.with_file_name(format!("dovetail{}", std::env::consts::EXE_SUFFIX));
    ensure!(binary.exists(), "{} is not built; run `cargo xtask demo`", binary.display());
    let environment = BTreeMap::from([
        // It is the only one, and a busy computer must not end it.
        ("DISABLE_LEADER_ELECTION".to_owned(), "true".to_owned()),
        ("KWOK_INSTANCES_NAMESPACE".to_owned(), install::INSTANCES_NAMESPACE.to_owned()),
    ]);
    Ok(controller::Options {
        name: "dovetail".to_owned(),
        binary,
        kubeconfig: cluster.kubeconfig_of(install::RELEASE)?.to_owned(),
        folder: cluster.folder().to_owned(),
        arguments: Vec::new(),
        environment,
    })
}

/// Applies the example and waits until the scheduler has bound all its pods; shows how far it is meanwhile.
async fn deploy(stage: &Stage<'_>, objects: Vec<Value>, wanted: usize) -> Result<Fleet> {
    apply::apply(stage.client, objects).await?;
    let awaited = Awaited { namespace: NAMESPACE, node_pool: NODE_POOL, pods: wanted };
    let fleets = until_bound(stage, &[awaited], BIND_TIMEOUT).await?;
    fleets.into_iter().next().context("one fleet was asked for")
}

async fn tear_down(stage: &Stage<'_>, shown: &Places) -> Result<()> {
    let client = stage.client;
    for (namespace, node_pool) in shown {
        let pool = json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": node_pool } });
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        apply::delete(client, &namespace).await?;
        apply::delete(client, &pool).await?;
        // Its NodeClaims would follow, but the garbage collector takes up to half a minute to learn of new kinds.
        let of_pool = ListParams::default().labels(&format!("{}={node_pool}", api::labels::NODEPOOL));
        Api::<NodeClaim>::all(client.clone()).delete_collection(&DeleteParams::default(), &of_pool).await?;
    }
    eventually("every machine is gone", BIND_TIMEOUT, async || {
        for (namespace, node_pool) in shown {
            let fleet = stage.fleet(namespace, node_pool).await?;
            let (claims, nodes, instances) = (fleet.claims(), fleet.nodes(), fleet.instances());
            ensure!(
                claims + nodes + instances == 0,
                "{claims} NodeClaims, {nodes} Nodes, {instances} instances are left"
            );
        }
        Ok(())
    })
    .await
}

/// The replicas of all Deployments.
fn pods_wanted(objects: &[Value]) -> usize {
    let deployments = objects.iter().filter(|object| object["kind"] == "Deployment");
    deployments.filter_map(|object| usize::try_from(object["spec"]["replicas"].as_u64()?).ok()).sum()
}

/// The example with so many replicas of a Deployment.
fn scaled(objects: &[Value], name: &str, replicas: u32) -> Result<Vec<Value>> {
    let mut scaled = objects.to_vec();
    let deployment = scaled
        .iter_mut()
        .find(|object| object["kind"] == "Deployment" && object["metadata"]["name"] == name)
        .with_context(|| format!("{EXAMPLE} has no Deployment {name}"))?;
    deployment["spec"]["replicas"] = json!(replicas);
    Ok(scaled)
}

fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
