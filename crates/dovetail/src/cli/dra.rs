//! `dovetail dra`: device allocation on files, with reasons.

mod answer;
mod api_form;
mod objects;
mod report;
mod table;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use super::input::Documents;
use super::release::ReleaseArgs;
use super::{Outcome, output};
use objects::Objects;
use report::Report;

/// Steps that the search may take for each pod and node.
const STEPS: u64 = 1_000_000;

/// Inspect device allocation (Dynamic Resource Allocation)
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Allocate(AllocateArgs),
}

/// Print which devices kube-scheduler would give to pods, and why it would give none
///
/// Reads Pods, workloads, ResourceClaims and their templates, DeviceClasses, ResourceSlices, DeviceTaintRules,
/// PodGroups and Nodes, as YAML or JSON, or a snapshot file. Allocates for the pending pods one after the other: by
/// priority, then by creation time, then in the order of the input. A pod goes to the node that gives it the best of
/// its firstAvailable choices, and of equal nodes to the first by name.
///
/// It considers devices only, and what they take of the node's own resources. `dovetail plan` considers taints,
/// affinity and all other resources.
///
/// Exit code: 0 if all pods get their devices, 3 if some do not, 1 on an error, 2 on wrong usage.
#[derive(Debug, clap::Args)]
#[command(
    group(clap::ArgGroup::new("where").required(true).args(["node", "all_nodes"])),
    after_help = "Examples:
  dovetail dra allocate -f manifests/ --all-nodes
  kubectl get nodes,pods,resourceslices,resourceclaims,deviceclasses -A -o json | dovetail dra allocate -f - --all-nodes
  dovetail dra allocate -f pod.yaml -f slices.yaml --node gpu-1 --each-alone
  dovetail dra allocate -f cluster/ --all-nodes --kubernetes 1.37 --gates DRAListTypeAttributes=true -o json"
)]
struct AllocateArgs {
    /// File or folder to read, - for standard input; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    filenames: Vec<PathBuf>,
    /// Allocate on this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Allocate on any node
    #[arg(long)]
    all_nodes: bool,
    /// Ask for each pod as if no other pod were pending
    #[arg(long)]
    each_alone: bool,
    /// Allocate for the pods that Deployments, ReplicaSets, StatefulSets and Jobs will make
    #[arg(long)]
    expand_workloads: bool,
    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    #[command(flatten)]
    release: ReleaseArgs,
    /// Steps that the search may take for each pod and node
    #[arg(long, value_name = "STEPS", default_value_t = STEPS)]
    budget: u64,
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// For programs
    Json,
}

/// Runs the command.
pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    match args.command {
        Command::Allocate(args) => allocate(&args),
    }
}

fn allocate(args: &AllocateArgs) -> anyhow::Result<Outcome> {
    let documents = Documents::read(&args.filenames)?;
    let compat = args.release.compat(documents.compat());
    let mut objects = Objects::read(documents, args.expand_workloads, &compat);
    objects.keep_node(args.node.as_deref())?;
    for problem in &objects.problems {
        output::problem(problem);
    }
    for note in &objects.notes {
        output::note(note);
    }
    let report = Report::new(&objects, &compat, args.each_alone, args.budget);
    for note in &report.notes {
        output::note(note);
    }
    let text = match args.output {
        Format::Table => table::render(&report),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&report)?),
    };
    output::stdout(text.as_bytes())?;
    Ok(if !objects.problems.is_empty() {
        Outcome::BadInput
    } else if report.all_allocated() {
        Outcome::Done
    } else {
        Outcome::NoPlace
    })
}
