//! `dovetail explain`: why one pod goes where, or nowhere; what is planned on a node, and why nothing is.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::bail;
use clap::Subcommand;
use cluster::device_prices::{self, Stranded};
use decode::manifests::Manifest;
use model::pod::SchedulingState;
use model::price::short;
use model::quantity::Rounding;
use model::{Interner, NamespacedName, Pod, ResourceId, ResourceVec};
use scheduling::disruption::plan_disruption;
use scheduling::disruption::reason::NodeReason;
use scheduling::plan::device_cost::PodDeviceCosts;
use scheduling::plan::{Machine, Plan};
use scheduling::snapshot::{Excluded, Node, NodeId, NodeState, PodId, Snapshot};

use super::input::{Documents, Input, InputArgs, scheduler_config};
use super::live::{self, LiveOptions};
use super::progress::Progress;
use super::report::{claim_name, next_best, plural};
use super::{Outcome, output};

/// Explain why a pod is placed where it is, or why it is unschedulable; or what fits on a node
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dovetail explain pod shop/checkout-7d9f
  dovetail explain pod shop/checkout-7d9f -f cluster.jsonl
  dovetail explain pod web-0 -f manifests/ --expand-workloads
  dovetail explain node general-x7k2p")]
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
        #[command(flatten)]
        source: Source,
    },
    /// A node, by its own name or its NodeClaim's
    #[command(visible_alias = "nodeclaim")]
    Node {
        /// The name
        name: String,
        #[command(flatten)]
        source: Source,
    },
}

/// Where to look.
#[derive(Debug, clap::Args)]
struct Source {
    /// Snapshot, manifests or folder to read, - for standard input [default: the live cluster]
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    filenames: Vec<PathBuf>,
    #[command(flatten)]
    input: InputArgs,
}

impl Source {
    /// Reads and plans.
    fn plan(&self) -> anyhow::Result<(Input, Plan)> {
        self.plan_by(|documents| Input::new(documents, &self.input))
    }

    /// Reads and plans, with what is known of our machines.
    fn plan_with_fleet(&self) -> anyhow::Result<(Input, Plan)> {
        self.plan_by(|documents| Input::with_fleet(documents, &self.input, None))
    }

    fn plan_by(&self, read: impl FnOnce(Documents) -> anyhow::Result<Input>) -> anyhow::Result<(Input, Plan)> {
        let progress = Progress::new("reading");
        let documents = if self.filenames.is_empty() {
            of_cluster(&LiveOptions {
                machines: self.input.machines.clone(),
                scheduler_config: self.input.scheduler_config.as_deref().map(scheduler_config).transpose()?,
                ..LiveOptions::default()
            })?
        } else {
            Documents::read(&self.filenames)?
        };
        let input = read(documents)?;
        input.tell_problems();
        progress.now("planning");
        let plan = scheduling::provisioning::plan(&input.snapshot);
        Ok((input, plan))
    }
}

/// Runs the command.
pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    let (text, outcome) = match args.what {
        What::Pod { name, source } => {
            let name = match name.split_once('/') {
                Some((namespace, name)) => NamespacedName::new(namespace, name),
                None => NamespacedName::new("default", name),
            };
            let (input, plan) = source.plan()?;
            explain(&name, &input, &plan)?
        }
        What::Node { name, source } => {
            let (input, plan) = source.plan_with_fleet()?;
            let text = of_node(&name, &input.snapshot, &plan)?;
            let snapshot = &input.snapshot;
            (text + &stranded_on(&name, snapshot) + &disruption_of(&name, snapshot), Outcome::Done)
        }
    };
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
        return Ok((format!("Pod {name} is not planned: it {why}\n"), Outcome::NoPlace));
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
                format!("is placed by {}, whose pods are not planned (--scheduler-names)", pod.scheduler_name)
            }
        }
    };
    format!("Pod {} {why}\n", pod.name)
}

fn of_pending(name: &NamespacedName, id: PodId, snapshot: &Snapshot, plan: &Plan) -> (String, Outcome) {
    if let Some(machine) = plan.machines.iter().find(|machine| machine.pods.contains(&id)) {
        let takes = footprint(id, &machine.device_costs, snapshot);
        return (on_machine(name, machine, snapshot) + &takes + &why_there(id, snapshot, plan), Outcome::Done);
    }
    if let Some(placement) = plan.existing.iter().find(|placement| placement.pods.contains(&id)) {
        let node = snapshot.nodes.try_get(placement.node).map(|node| node.display_name()).unwrap_or_default();
        let text = format!("Pod {name} fits on {node}, which exists; nothing is launched for it\n");
        let takes = footprint(id, &placement.device_costs, snapshot);
        return (text + &takes + &why_there(id, snapshot, plan), Outcome::Done);
    }
    let mut text = format!("Pod {name} is unschedulable:\n");
    let reasons = plan.refusals.iter().find(|refusal| refusal.pod == id).map(|refusal| &*refusal.reasons);
    for reason in reasons.unwrap_or_default() {
        let object = reason.object().map(|object| format!("{object}: ")).unwrap_or_default();
        let _ = writeln!(text, "  {object}{}", reason.message(&snapshot.interner));
    }
    (text, Outcome::NoPlace)
}

/// What the pod takes of its machine with what its devices cost.
fn footprint(id: PodId, costs: &[PodDeviceCosts], snapshot: &Snapshot) -> String {
    let names = &*snapshot.interner;
    let (Some(of_pod), Some(pending)) = (costs.iter().find(|of| of.pod == id), snapshot.pods.try_get(id)) else {
        return String::new();
    };
    let wanted = of_pod.wanted(&pending.pod.shape.requests, names);
    wanted.iter().map(|wanted| format!("  takes {}\n", wanted.message(names))).collect()
}

/// Which rule decided, and how other places fell.
fn why_there(id: PodId, snapshot: &Snapshot, plan: &Plan) -> String {
    let Some(why) = scheduling::provisioning::why_placed(snapshot, plan, id) else { return String::new() };
    let messages = why.messages(&snapshot.interner);
    let stage = plan.stages().find(|(pod, _)| *pod == id).map(|(_, stage)| match (stage, plan.later.len()) {
        (_, 1) => "  bound after the other pods of the plan\n".to_owned(),
        (stage, stages) => format!("  bound after the other pods of the plan, in stage {stage} of {stages}\n"),
    });
    let lines = messages.iter().enumerate().map(|(at, message)| match at {
        0 => format!("  decided by: {message}\n"),
        _ => format!("    {message}\n"),
    });
    stage.into_iter().chain(lines).collect()
}

fn on_machine(name: &NamespacedName, machine: &Machine, snapshot: &Snapshot) -> String {
    let names = &*snapshot.interner;
    let Some(pool) = snapshot.node_pools.try_get(machine.node_pool) else { return String::new() };
    let instance_type = pool.catalogue.types.try_get(machine.launch.instance_type);
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
        "  the cheapest of {} that hold its {}",
        plural(machine.choice.offerings, "offering", "offerings"),
        plural(machine.pods.len(), "pod", "pods")
    );
    if let Some((other, price)) = next_best(machine, &pool.catalogue) {
        let _ = write!(text, "; the next best type is {other} for {price}");
    }
    let _ = writeln!(text, "\n  requests with daemons: {}", machine.requests.display(names));
    if let Some(others) = machine.pods.len().checked_sub(1).filter(|&others| others > 0) {
        let _ = writeln!(text, "  shared with {}", plural(others, "other pod", "other pods"));
    }
    text
}

/// `cpu 6900m of 15900m, memory 1Gi of 16Gi`, by resource name.
fn of_all(free: &ResourceVec, all: &ResourceVec, names: &Interner) -> String {
    let mut resources: Vec<ResourceId> = all.iter().map(|(resource, _)| resource).collect();
    resources.sort_by_key(|resource| names.resource_name(*resource));
    let told = resources.into_iter().map(|resource| {
        let readable = |amounts: &ResourceVec| amounts.quantity(resource).readable(Rounding::Down);
        format!("{} {} of {}", names.resource_name(resource), readable(free), readable(all))
    });
    told.collect::<Vec<String>>().join(", ")
}

/// What of a node's devices no claim can get beside those that are allocated.
fn stranded_on(name: &str, snapshot: &Snapshot) -> String {
    let is_it = |id: NodeId| snapshot.nodes.try_get(id).is_some_and(|node| is_named(node, name));
    let stranded = device_prices::stranded(snapshot).into_iter().filter(|stranded| is_it(stranded.node));
    let told = stranded.map(|Stranded { driver, price, .. }| {
        format!(
            "  {} of it is stranded: partitions of {driver} that are free do not fit beside those in use\n",
            short(price)
        )
    });
    told.collect()
}

/// Whether a node is meant, by its own name or its NodeClaim's.
fn is_named(node: &Node, name: &str) -> bool {
    node.name.as_deref() == Some(name) || node.node_claim.as_deref() == Some(name)
}

/// Why a node with a NodeClaim is removed, or stays; empty for a node of others.
fn disruption_of(name: &str, snapshot: &Snapshot) -> String {
    let plan = plan_disruption(snapshot);
    let is_it = |id: &NodeId| snapshot.nodes.try_get(*id).is_some_and(|node| is_named(node, name));
    let Some((_, reason)) = plan.node_reasons.iter().find(|(id, _)| is_it(id)) else { return String::new() };
    let goes = match reason {
        NodeReason::Goes { command } => plan.commands.get(*command),
        _ => None,
    };
    match goes {
        Some(command) => {
            let together = match command.nodes.len() - 1 {
                0 => String::new(),
                others => format!(" together with {}", plural(others, "other node", "other nodes")),
            };
            let moves = plural(command.moves.len(), "pod moves", "pods move");
            let machines = plural(command.replacements.len(), "new machine", "new machines");
            let (reason, saving) = (command.reason, command.saving);
            if let Some(why) = command.terminate_first {
                let why = why.as_str();
                return format!("  is replaced ({reason}): it goes before its replacement is launched ({why})\n");
            }
            if let Some(pool) = &command.static_pool {
                return format!("  is replaced ({reason}): another node of static nodepool {pool} is launched first\n");
            }
            format!("  is removed{together} ({reason}): {moves}, {machines}, saves {saving}\n")
        }
        None => format!("  stays: it {}\n", reason.message(snapshot)),
    }
}

/// How far a node has come, what it has room for, and what is planned on it.
fn of_node(name: &str, snapshot: &Snapshot, plan: &Plan) -> anyhow::Result<String> {
    let names = &*snapshot.interner;
    let Some((id, node)) = snapshot.nodes.iter_enumerated().find(|(_, node)| is_named(node, name)) else {
        bail!("there is no Node and no NodeClaim {name} in the input");
    };
    let mut text = String::new();
    let _ = write!(text, "Node {}", node.display_name());
    if let Some(claim) = &node.node_claim {
        let _ = write!(text, " of NodeClaim {claim}");
    }
    if let Some(pool) = &node.node_pool {
        let _ = write!(text, ", NodePool {pool}");
    }
    let state = match node.state {
        NodeState::Initialized => "is in use",
        NodeState::Registered => "is registered and not initialized yet",
        NodeState::Launched => "is launched and not registered yet",
        NodeState::Launching => "is not launched yet",
    };
    let _ = writeln!(text, "\n  {state}");
    if let Some(excluded) = node.excluded {
        let _ = writeln!(
            text,
            "  no pod is planned onto it: it {}",
            match excluded {
                Excluded::Deleting => "is being deleted",
                Excluded::Cordoned => "is cordoned",
                Excluded::NotReady => "is not ready",
                Excluded::HoldsUnreadablePod => "holds a pod that cannot be read, so it counts as full",
            }
        );
    }
    for taint in &node.taints {
        let _ = writeln!(text, "  taint {}", taint.display(names));
    }
    let mut free = node.allocatable.clone();
    free.saturating_sub_assign(node.pods.requests());
    let _ = writeln!(text, "  can hold {}", node.allocatable.display(names));
    let _ = writeln!(
        text,
        "  runs {}, free without daemons to come: {}",
        plural(node.pods.len(), "pod", "pods"),
        of_all(&free, &node.allocatable, names)
    );
    let planned = plan.existing.iter().find(|placement| placement.node == id);
    for pod in planned.map(|placement| placement.pods.as_slice()).unwrap_or_default() {
        if let Some(pending) = snapshot.pods.try_get(*pod) {
            let _ = writeln!(text, "  planned onto it: {}", pending.pod.name);
        }
    }
    Ok(text)
}
