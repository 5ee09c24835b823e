//! `dovetail explain`: why one pod goes where, or nowhere.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::bail;
use clap::Subcommand;
use decode::manifests::Manifest;
use model::pod::SchedulingState;
use model::{NamespacedName, Pod};
use scheduling::plan::{Machine, Plan};
use scheduling::snapshot::{PodId, Snapshot};

use super::input::{Documents, Input, InputArgs};
use super::live::{self, LiveOptions};
use super::progress::Progress;
use super::report::{claim_name, next_best};
use super::{Outcome, output};

/// Say why a pod is placed where it is, or nowhere
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dovetail explain pod shop/checkout-7d9f
  dovetail explain pod shop/checkout-7d9f -f cluster.jsonl
  dovetail explain pod web-0 -f manifests/ --expand-workloads")]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// A pod
    Pod {
        /// NAMESPACE/NAME, or NAME in namespace default
        #[arg(value_name = "NAMESPACE/NAME")]
        name: String,
        /// Snapshot, manifests or folder to read, - for standard input [default: the live cluster]
        #[arg(short = 'f', long = "filename", value_name = "PATH")]
        filenames: Vec<PathBuf>,
        #[command(flatten)]
        input: InputArgs,
    },
}

/// Runs the command.
pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let What::Pod { name, filenames, input: input_args } = args.what;
    let name = match name.split_once('/') {
        Some((namespace, name)) => NamespacedName::new(namespace, name),
        None => NamespacedName::new("default", name),
    };
    let progress = Progress::new("reading");
    let documents = if filenames.is_empty() {
        of_cluster(&LiveOptions { instance_types: input_args.instance_types.clone(), ..LiveOptions::default() })?
    } else {
        Documents::read(&filenames)?
    };
    let input = Input::new(documents, &input_args)?;
    progress.now("planning");
    let plan = scheduling::provisioning::plan(&input.snapshot);
    drop(progress);

    let (text, outcome) = explain(&name, &input, &plan)?;
    output::stdout(text.as_bytes())?;
    Ok(outcome)
}

fn of_cluster(options: &LiveOptions) -> anyhow::Result<Documents> {
    let lines = live::read(options)?;
    let mut documents = Documents::default();
    for (index, line) in lines.into_iter().enumerate() {
        documents.manifests.extend(Manifest::new("the cluster", index + 1, line));
    }
    Ok(documents)
}

fn explain(name: &NamespacedName, input: &Input, plan: &Plan) -> anyhow::Result<(String, Outcome)> {
    let snapshot = &input.snapshot;
    if let Some((id, _)) = snapshot.pods.iter_enumerated().find(|(_, pending)| pending.pod.name == *name) {
        return Ok(of_pending(name, id, snapshot, plan));
    }
    if let Some((_, why)) = input.offline.not_planned.iter().find(|(pod, _)| pod == name) {
        return Ok((format!("Pod {name} has no place: it {why}\n"), Outcome::NoPlace));
    }
    match input.offline.cluster.pods.iter().find(|pod| pod.name == *name) {
        Some(pod) => Ok((of_other(pod), Outcome::Done)),
        None => bail!("there is no Pod {name} in the input"),
    }
}

/// A pod that the planner is not asked about.
fn of_other(pod: &Pod) -> String {
    let why = if let Some(node) = &pod.node_name {
        format!("is bound to node {node}")
    } else if let Some(node) = &pod.nominated_node_name {
        format!("is promised to node {node} and waits to be bound")
    } else if pod.deletion_timestamp.is_some() || pod.phase.is_terminal() {
        "has ended or is being deleted".to_owned()
    } else {
        match pod.scheduling {
            SchedulingState::Gated => "is held back by its schedulingGates".to_owned(),
            SchedulingState::NotTried => "has not been tried by kube-scheduler yet".to_owned(),
            SchedulingState::Scheduled | SchedulingState::Unschedulable => {
                format!("is placed by {}, not by the scheduler that is planned for", pod.scheduler_name)
            }
        }
    };
    format!("Pod {} {why}\n", pod.name)
}

fn of_pending(name: &NamespacedName, id: PodId, snapshot: &Snapshot, plan: &Plan) -> (String, Outcome) {
    if let Some(machine) = plan.machines.iter().find(|machine| machine.pods.contains(&id)) {
        return (on_machine(name, machine, snapshot), Outcome::Done);
    }
    if let Some(placement) = plan.existing.iter().find(|placement| placement.pods.contains(&id)) {
        let node = snapshot.nodes.get(placement.node).map(|node| node.display_name()).unwrap_or_default();
        return (format!("Pod {name} fits on {node}, which exists; nothing is launched for it\n"), Outcome::Done);
    }
    let mut text = format!("Pod {name} has no place:\n");
    let reasons = plan.refusals.iter().find(|refusal| refusal.pod == id).map(|refusal| &*refusal.reasons);
    for reason in reasons.unwrap_or_default() {
        let object = reason.object().map(|object| format!("{object}: ")).unwrap_or_default();
        let _ = writeln!(text, "  {object}{}", reason.message(&snapshot.interner));
    }
    (text, Outcome::NoPlace)
}

fn on_machine(name: &NamespacedName, machine: &Machine, snapshot: &Snapshot) -> String {
    let names = &*snapshot.interner;
    let Some(pool) = snapshot.node_pools.get(machine.node_pool) else { return String::new() };
    let instance_type = pool.catalogue.types.get(machine.launch.instance_type);
    let instance_type = instance_type.map(|instance_type| instance_type.name.as_str()).unwrap_or_default();
    let mut text = format!(
        "Pod {name} goes on a new machine, {}:\n  {instance_type} in {}, {}, {}\n",
        claim_name(pool, machine),
        names.value_name(machine.launch.zone),
        machine.launch.capacity_type,
        machine.launch.price
    );
    let _ = write!(
        text,
        "  the cheapest of {} offerings that hold its {} pods",
        machine.choice.offerings,
        machine.pods.len()
    );
    if let Some((other, price)) = next_best(machine, &pool.catalogue) {
        let _ = write!(text, "; the next best type is {other} for {price}");
    }
    let _ = writeln!(text, "\n  requests with daemons: {}", machine.requests.display(names));
    if let Some(pending) = machine.pods.len().checked_sub(1).filter(|&others| others > 0) {
        let _ = writeln!(text, "  shared with {pending} other pods");
    }
    text
}
