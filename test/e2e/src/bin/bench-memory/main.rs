//! The measurement behind `cargo xtask bench memory`: how much memory the controller takes to start in a large cluster.
//!
//! A server of our own stands for the API server: a real one would need several gigabytes for this cluster. It makes
//! the objects of each page while it sends them, and its watches are quiet. What is measured is the controller's
//! process only, from its start until `/readyz` says that everything was listed, and for a while after that.

mod objects;
mod server;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use e2e::bench::{self, Usage};
use e2e::controller::{self, Controller};
use e2e::eventually;
use e2e::exit;
use e2e::scratch::Scratch;

use objects::Size;
use server::Server;

/// How long the controller may take to be ready.
const GIVE_UP: Duration = Duration::from_secs(600);

#[derive(Parser)]
#[command(about = "Start the controller in a large cluster and print how much memory it took")]
struct Arguments {
    /// Pods, all of them bound
    #[arg(long, default_value_t = 150_000)]
    pods: usize,
    /// Bytes of annotations of each pod
    #[arg(long, default_value_t = 20_000)]
    annotations: usize,
    /// Deployments whose pods these are
    #[arg(long, default_value_t = 300, value_parser = at_least_one)]
    deployments: usize,
    /// Nodes
    #[arg(long, default_value_t = 3_000, value_parser = at_least_one)]
    nodes: usize,
    /// How long to look on once the controller is ready, in seconds
    #[arg(long, default_value_t = 20)]
    settle: u64,
    /// Fail if it took more than so many MiB
    #[arg(long, default_value_t = 400)]
    limit: u64,
    /// Show the controller's log too
    #[arg(long)]
    log: bool,
}

fn at_least_one(text: &str) -> Result<usize> {
    let number = text.parse()?;
    ensure!(number > 0, "must be at least 1");
    Ok(number)
}

#[tokio::main]
async fn main() -> ExitCode {
    exit::code(measure(&Arguments::parse()).await.map(|()| true))
}

async fn measure(arguments: &Arguments) -> Result<()> {
    let size = Size {
        pods: arguments.pods,
        annotation_bytes: arguments.annotations,
        deployments: arguments.deployments,
        nodes: arguments.nodes,
    };
    let scratch = Scratch::new("memory")?;
    let server = Server::start(size).await?;
    let options = controller::Options {
        name: "dovetail".to_owned(),
        binary: bench::dovetail()?,
        kubeconfig: server.kubeconfig(scratch.path())?,
        folder: scratch.path().to_owned(),
        arguments: Vec::new(),
        environment: [("LEADER_ELECTION_NAMESPACE".to_owned(), "kube-system".to_owned())].into(),
    };
    println!(
        "cluster    {} pods with {} bytes of annotations each (a pod has {} in all), {} nodes",
        size.pods,
        size.annotation_bytes,
        server.pod_bytes(),
        size.nodes
    );
    let started = Instant::now();
    let controller = Controller::start(&options)?;
    let ready = tokio::select! {
        ready = eventually("the controller is ready", GIVE_UP, async || controller.probe("/readyz")) => ready.map(drop),
        ended = controller.ended(GIVE_UP) => Err(anyhow!("dovetail ended with {}", ended?)),
    };
    if let Err(error) = ready {
        return Err(error.context(format!("its log:\n{}", controller.log()?)));
    }
    let took = started.elapsed();
    let at_start = Usage::of(controller.id())?;
    tokio::time::sleep(Duration::from_secs(arguments.settle)).await;
    let later = Usage::of(controller.id())?;
    if arguments.log {
        eprintln!("{}", controller.log()?);
    }
    let sent = server.sent();
    println!("read       {} pods in {} pages, {} MB", sent.pods, sent.pages, sent.bytes / 1_000_000);
    println!("ready      after {:.1} s and {:.1} CPU s", took.as_secs_f64(), at_start.cpu.as_secs_f64());
    println!(
        "memory     at most {} MiB until ready, {} MiB until {} s later",
        at_start.peak_rss_bytes >> 20,
        later.peak_rss_bytes >> 20,
        arguments.settle
    );
    ensure!(sent.pods == size.pods, "{} pods were sent, not {}", sent.pods, size.pods);
    let undecodable = controller.metric("dovetail_undecodable_objects")?;
    ensure!(undecodable == 0.0, "{undecodable} objects could not be read");
    let stopped = controller.terminate().await.context("stop the controller")?;
    ensure!(stopped.success(), "dovetail ended with {stopped}");
    let peak = later.peak_rss_bytes >> 20;
    ensure!(peak <= arguments.limit, "{peak} MiB are more than {} MiB", arguments.limit);
    Ok(())
}
