//! Consolidation: fleets that may cost more than their pods need, changed by our planner and by Karpenter's methods
//! until neither has anything left to do.
//!
//! Both sides get the same fleet from one file, in a process of their own, and play the same game: what is decided is
//! carried out at once (replacements come, pods move to where the command has places for them, nodes go), and the next
//! round decides about what is left. No round waits: Karpenter's fifteen seconds between computing a command and
//! validating it are left out, as is ours. CPU time is that of deciding and, on Karpenter's side, of bringing its
//! cluster state up to date; on ours it includes the snapshot of each round.
//!
//! Left out: the API server, budgets (all nodes may go at once), what evictions cost the user.

mod fleets;
mod gpus;
mod ours;
mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use model::PriceNanoUsdPerHour;
use serde::{Deserialize, Serialize};

use self::report::{Report, Row};
use crate::process::{self, Outcome};
use crate::{Folder, is_asked_for};

/// Consolidates the same fleets with our planner and with Karpenter's methods.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these: a group such as C2 or a name such as C2-300; may be given several times.
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// Leave out fleets of more than 300 nodes.
    #[arg(long)]
    quick: bool,
    /// Do not run Karpenter's methods.
    #[arg(long)]
    only_ours: bool,
    /// What our planner counts for an eviction, in dollars; Karpenter's methods know no such price. [default: the
    /// controller's]
    #[arg(long, value_parser = PriceNanoUsdPerHour::parse, value_name = "USD")]
    eviction_price: Option<PriceNanoUsdPerHour>,
    /// Stop either side after so many seconds; what it has done by then counts.
    #[arg(long, default_value_t = 600)]
    limit_seconds: u64,
    /// Write everything that was measured into this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Leave the fleets in this folder.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Print the names of the fleets and end.
    #[arg(long)]
    list: bool,
    /// The program of test/bench/karpenter; `cargo xtask bench consolidation` builds it.
    #[arg(long, hide = true)]
    karpenter: Option<PathBuf>,
    /// In a process of its own: consolidate this fleet and print what it took.
    #[arg(long, hide = true)]
    measure: Option<PathBuf>,
}

/// What consolidating a fleet took and left, on either side.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Consolidated {
    /// Of reading the fleet.
    pub read_nanos: u64,
    /// CPU time of the first round.
    pub first_cpu_nanos: u64,
    /// CPU and wall time of all rounds.
    pub cpu_nanos: u64,
    pub wall_nanos: u64,
    pub peak_kib: u64,
    /// Nodes that consolidation might take in the first round.
    pub candidates: usize,
    pub rounds: usize,
    pub commands: usize,
    pub evictions: usize,
    /// It was stopped; what it had done by then is here.
    pub timed_out: bool,
    /// What is left.
    pub nodes: usize,
    pub price_nano_usd_per_hour: i64,
    /// CPU time of each further plan of what is left after one of its nodes has changed, the shortest first; ours only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again_cpu_nanos: Vec<u64>,
    /// No fleet for the pods costs less; ours only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_nano_usd_per_hour: Option<i64>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let limit = Duration::from_secs(arguments.limit_seconds);
    if let Some(fleet) = &arguments.measure {
        println!("{}", serde_json::to_string(&ours::consolidate(fleet, arguments.eviction_price, limit)?)?);
        return Ok(());
    }
    let is_wanted =
        |fleet: &fleets::Named| is_asked_for(&fleet.name, &arguments.cases) && (!arguments.quick || fleet.nodes <= 300);
    let fleets: Vec<fleets::Named> = fleets::all().into_iter().filter(is_wanted).collect();
    ensure!(!fleets.is_empty(), "no fleet has such a name; --list prints them");
    if arguments.list {
        fleets.iter().for_each(|fleet| println!("{}", fleet.name));
        return Ok(());
    }
    let karpenter = arguments.karpenter.as_deref().filter(|_| !arguments.only_ours);
    ensure!(
        karpenter.is_some() || arguments.only_ours,
        "run `cargo xtask bench consolidation`, which builds Karpenter's side"
    );
    let folder = Folder::new(arguments.keep.as_deref())?;
    let mut report = Report::begin(karpenter.map(process::versions).transpose()?);
    for fleet in &fleets {
        report.add(measure(fleet, arguments, &folder.path, karpenter)?);
    }
    report.end();
    if let Some(path) = &arguments.json {
        fs::write(path, report.json()?).with_context(|| format!("write {}", path.display()))?;
    }
    let dearer: Vec<&str> = report.rows.iter().filter(|row| row.is_dearer()).map(|row| row.name.as_str()).collect();
    ensure!(dearer.is_empty(), "Karpenter's methods left a cheaper fleet: {}", dearer.join(", "));
    Ok(())
}

/// How long a side may take to stop once its time is over.
const GRACE: Duration = Duration::from_secs(120);

fn measure(fleet: &fleets::Named, options: &Arguments, folder: &Path, karpenter: Option<&Path>) -> Result<Row> {
    let limit = Duration::from_secs(options.limit_seconds);
    let say = |what: &str| eprintln!("{}: {what}", fleet.name);
    say("making the fleet");
    let path = folder.join(format!("{}.jsonl", fleet.name));
    let price_before = fleet.make()?.write_to(&path)?;
    let seconds = limit.as_secs();
    say("ours");
    let mut arguments =
        ["consolidation", "--measure", &path.display().to_string(), &format!("--limit-seconds={seconds}")]
            .map(str::to_owned)
            .to_vec();
    arguments.extend(options.eviction_price.map(|price| format!("--eviction-price={}e-9", price.0)));
    let ours = match process::ourselves(&arguments, limit + GRACE)? {
        Outcome::Output(text) => serde_json::from_str(&text)?,
        Outcome::TimedOut => anyhow::bail!("our side of {} did not end in time", fleet.name),
    };
    let mut theirs = None;
    if let Some(karpenter) = karpenter.filter(|_| fleet.is_for_both) {
        say(&format!("Karpenter's methods, at most {seconds} s"));
        let arguments = [format!("-case={}", path.display()), format!("-limit={seconds}s"), "-consolidate".to_owned()];
        // A round that is being computed is not stopped.
        if let Outcome::Output(text) = process::run(karpenter, &arguments, limit + 3 * GRACE)? {
            theirs = Some(serde_json::from_str(&text)?);
        }
    }
    Ok(Row {
        group: fleet.group.to_owned(),
        name: fleet.name.clone(),
        nodes: fleet.nodes,
        price_before_nano_usd_per_hour: price_before,
        sha256: process::sha256(&path)?,
        ours,
        theirs,
    })
}
