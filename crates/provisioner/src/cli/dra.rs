//! `dovetail dra`: device allocation on files, with reasons.

mod answer;
mod api_form;
mod objects;
mod table;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use dra_sched::{Compat, Gate, Gates, KubernetesMinor};

use super::input::Documents;
use super::{Outcome, output};
use answer::Report;
use objects::Objects;

/// Steps that the search may take for each pod and node.
const STEPS: u64 = 1_000_000;

/// Look at devices (Dynamic Resource Allocation)
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Allocate(AllocateArgs),
}

/// Say which devices kube-scheduler would give to pods, and why it would give none
///
/// Reads any mix of Pods, workloads, ResourceClaims and their templates, DeviceClasses, ResourceSlices, DeviceTaintRules,
/// PodGroups and Nodes, as YAML or JSON, or a snapshot file, and allocates for the pods that wait: by priority, then
/// creation time, then the order in which they were written, each with what those before it left. A pod goes to the
/// node that gives it the best of its firstAvailable choices, of equals to the first by name.
///
/// Only devices are looked at, and what they cost of the node's own resources; taints, affinity and all other resources
/// are the business of `dovetail plan`.
///
/// Exit code: 0 all pods get their devices, 3 some do not, 1 a fault, 2 wrong usage.
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
    /// Ask for each pod as if it were the only one that waits
    #[arg(long)]
    each_alone: bool,
    /// Allocate for the pods that Deployments, ReplicaSets, StatefulSets and Jobs will make
    #[arg(long)]
    expand_workloads: bool,
    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// The release of the cluster's scheduler: 1.34 to 1.37
    #[arg(long, value_name = "VERSION", default_value = "1.37", value_parser = kubernetes)]
    kubernetes: KubernetesMinor,
    /// Feature gates that differ from the release's defaults, as NAME=true or NAME=false; `all` turns every one on
    #[arg(long, value_name = "GATES", value_delimiter = ',', value_parser = gate)]
    gates: Vec<Setting>,
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

/// A change to the gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setting {
    All,
    One(Gate, bool),
}

fn kubernetes(text: &str) -> Result<KubernetesMinor, String> {
    let known = KubernetesMinor::ALL.into_iter().find(|release| release.to_string() == text.trim_start_matches('v'));
    known.ok_or_else(|| {
        let names = KubernetesMinor::ALL.map(|release| release.to_string());
        format!("known releases are {}", names.join(", "))
    })
}

fn gate(text: &str) -> Result<Setting, String> {
    if text == "all" {
        return Ok(Setting::All);
    }
    let (name, value) = text.split_once('=').unwrap_or((text, "true"));
    let gate = name.parse::<Gate>().map_err(|error| error.to_string())?;
    match value {
        "true" => Ok(Setting::One(gate, true)),
        "false" => Ok(Setting::One(gate, false)),
        other => Err(format!("{other:?} is neither true nor false")),
    }
}

fn compat(kubernetes: KubernetesMinor, settings: &[Setting]) -> Compat {
    let gates = settings.iter().fold(Gates::defaults(kubernetes), |gates, setting| match setting {
        Setting::All => Gates::all(kubernetes),
        Setting::One(gate, on) => gates.with(*gate, *on),
    });
    Compat::with_gates(kubernetes, gates)
}

/// Runs the command.
pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    match args.command {
        Command::Allocate(args) => allocate(&args),
    }
}

fn allocate(args: &AllocateArgs) -> anyhow::Result<Outcome> {
    let compat = compat(args.kubernetes, &args.gates);
    for setting in &args.gates {
        if let Setting::One(gate, true) = setting
            && !compat.is_on(*gate)
        {
            output::note(format_args!("Kubernetes {} does not know {}; it stays off", args.kubernetes, gate.name()));
        }
    }
    let documents = Documents::read(&args.filenames)?;
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
