//! Device allocation, ours and upstream's, side by side in one run, on one thread.
//!
//! Upstream is the program of `test/oracle/allocator`, which runs kube-scheduler's own allocator. Both get the same
//! objects; reading them is not counted. Counted is CPU time, upstream's with its garbage collection. *Warm* means that
//! selectors were compiled and the same allocation was made before; ours also remembers then what selectors say about a
//! device, which upstream finds out again for each node. Runs alternate, and the best of each side counts. The large
//! cluster is allocated in a process of its own on each side, so that the memory printed is that of the objects and the
//! allocator.

mod cases;
mod clock;
mod cluster;
mod ours;
mod report;
mod selectors;
mod types;
mod upstream;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use report::Report;
use upstream::Upstream;

/// As in `dovetail`, so that what is measured is what is run.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Allocates devices with our engine and with kube-scheduler's, and prints both times.
#[derive(Parser)]
struct Arguments {
    /// The program built from test/oracle/allocator.
    #[arg(long, required_unless_present = "cluster_from_stdin")]
    oracle: Option<PathBuf>,
    /// Give upstream up after this many seconds; larger cases of the same family are then not asked.
    #[arg(long, default_value_t = 10)]
    limit_seconds: u64,
    /// Runs of each side; the best counts.
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// Nodes of the cluster with allocated claims.
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// Measure only the cases whose name has this, and nothing else.
    #[arg(long)]
    only: Option<String>,
    /// Allocate the cluster whose objects come line by line, and print what it took.
    #[arg(long, hide = true)]
    cluster_from_stdin: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.cluster_from_stdin {
        return cluster::from_stdin();
    }
    let oracle = arguments.oracle.context("--oracle is missing")?;
    let runs = arguments.runs.max(1);
    let mut report = Report::default();
    report.begin();
    let mut upstream = Upstream::start(&oracle, arguments.limit_seconds)?;
    let is_wanted = |name: &str| arguments.only.as_deref().is_none_or(|only| name.contains(only));
    for family in cases::families() {
        report.family(family.title);
        let mut upstream_finishes = true;
        for case in family.cases.into_iter().filter(|case| is_wanted(&case.name)) {
            let finished = report.compare(&case, upstream_finishes.then_some(&mut upstream), runs)?;
            upstream_finishes &= finished;
        }
    }
    if arguments.only.is_none() {
        selectors::measure(&mut report, runs)?;
        types::measure(&mut report, &mut upstream, runs)?;
        drop(upstream);
        // In a process of its own, so that its memory is its own.
        let mut upstream = Upstream::start(&oracle, 600)?;
        cluster::measure(&mut report, &mut upstream, arguments.nodes)?;
    }
    report.end();
    ensure!(report.over_the_step_limit == 0, "{} refusals took too many steps", report.over_the_step_limit);
    Ok(())
}
