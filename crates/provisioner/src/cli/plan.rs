//! `dovetail plan`: the controller's planner on files.

mod table;

use std::path::PathBuf;

use clap::ValueEnum;

use super::input::{Documents, Input, InputArgs};
use super::progress::Progress;
use super::report::Report;
use super::{Outcome, output};

/// Plan machines for the pods in manifests or in a snapshot
///
/// Reads any mix of YAML and JSON manifests, Lists and snapshot files, from files, folders (with all below them) or
/// standard input, and says which machines `dovetail run` would launch, which pods go where, what it costs, and why pods
/// have no place. Needs no cluster and no cloud.
///
/// Exit code: 0 all pods have a place, 3 some have none, 1 a fault, 2 wrong usage.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dovetail plan -f manifests/ --expand-workloads
  helm template my-chart | dovetail plan -f - --expand-workloads
  dovetail plan -f pods.yaml -f nodepools.yaml -o json
  dovetail snapshot > cluster.jsonl && dovetail plan -f cluster.jsonl -o wide")]
pub(super) struct Args {
    /// File or folder to read, - for standard input; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    filenames: Vec<PathBuf>,
    #[command(flatten)]
    input: InputArgs,
    /// How to print the plan
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Play the plan pod by pod by kube-scheduler's rules, written down a second time; exit 1 if a pod would not get in
    #[arg(long)]
    check: bool,
    /// Steps that the search for room may take where room is short [default: 200000, or the snapshot's]
    #[arg(long, value_name = "STEPS")]
    budget: Option<u64>,
}

/// How a plan is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people, machines that are alike in one line
    Table,
    /// For people, a line for each machine and its pods by name
    Wide,
    /// For programs
    Json,
    /// For programs, as YAML
    Yaml,
}

/// Runs the command.
pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let progress = Progress::new("reading");
    let mut input = Input::new(Documents::read(&args.filenames)?, &args.input)?;
    if let Some(steps) = args.budget {
        input.snapshot.options.search_steps = steps;
    }
    progress.now(format!("planning {} pods", input.snapshot.pods.len()));
    let plan = scheduling::provisioning::plan(&input.snapshot);
    let wrong = if args.check { checker::check(&input.snapshot, &plan) } else { Vec::new() };
    drop(progress);
    for problem in &wrong {
        output::problem(format_args!("the plan is wrong: {problem}"));
    }

    let is_bad = input.tell();
    let report = Report::new(&input, &plan);
    for note in report.notes() {
        output::note(note);
    }
    let text = match args.output {
        Format::Table => table::render(&report, table::Detail::Grouped),
        Format::Wide => table::render(&report, table::Detail::Everything),
        Format::Json => report.to_json()?,
        Format::Yaml => report.to_yaml()?,
    };
    output::stdout(text.as_bytes())?;
    Ok(if is_bad || !wrong.is_empty() {
        Outcome::BadInput
    } else if report.has_unschedulable() {
        Outcome::NoPlace
    } else {
        Outcome::Done
    })
}
