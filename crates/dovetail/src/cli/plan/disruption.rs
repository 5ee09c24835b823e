//! `dovetail plan --disruption`: which machines would go, what takes their place, and why each of the others stays.
//!
//! The JSON form is an interface: fields are added, never renamed, and `schemaVersion` counts what is not compatible.

mod compare;
mod policy;
mod table;

use std::collections::BTreeMap;

use model::{PriceNanoUsdPerHour, Timestamp};
use scheduling::disruption::plan::{Command as PlannedCommand, DisruptionPlan, Place, PoolAllowance, TerminateFirst};
use scheduling::disruption::plan_disruption;
use scheduling::disruption::reason::NodeReason;
use scheduling::snapshot::eviction::EvictionCost;
use scheduling::snapshot::fleet::{Fleet, FleetNode};
use scheduling::snapshot::{NodeId, Snapshot};
use serde::Serialize;

use super::table::Detail;
use super::{Args, Format};
use crate::cli::input::{Documents, Input};
use crate::cli::progress::Progress;
use crate::cli::report::{self, NodeClaim, claim_name};
use crate::cli::{Outcome, output};

const SCHEMA_VERSION: u32 = 1;

/// What `-o json` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    schema_version: u32,
    /// When it is planned for.
    time: Timestamp,
    commands: Vec<Command>,
    /// Every machine of ours, by name.
    nodes: Vec<Node>,
    /// By name.
    node_pools: Vec<NodePool>,
    fleet: FleetPrice,
    /// Nodes that no NodeClaim is there for.
    nodes_of_others: usize,
    /// Objects of the input that have no part in the plan, by kind.
    not_used: BTreeMap<String, usize>,
}

/// Machines that go together.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Command {
    reason: String,
    /// By name.
    nodes: Vec<String>,
    /// The machines that have to be there first.
    replacements: Vec<NodeClaim>,
    /// The static NodePool whose machines go, each for another of it, which has to be there first unless they terminate
    /// first; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    static_node_pool: Option<String>,
    /// Why the nodes go before anything is launched in their place: `no-reserved-capacity` or `static-at-limit`; absent
    /// for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    terminate_first: Option<&'static str>,
    /// Pods that are placed elsewhere, by name.
    moves: Vec<Move>,
    /// Below zero if the replacements cost more. A machine without a known price counts as free.
    saving_nano_usd_per_hour: PriceNanoUsdPerHour,
    /// What the evictions cost, and 1 for each command, in evictions of pods of priority 0 without a cost of their own.
    eviction_cost: f64,
}

impl Command {
    /// How many machines have to be there first.
    fn launches(&self) -> usize {
        match (&self.static_node_pool, self.terminate_first) {
            (_, Some(_)) => 0,
            (Some(_), None) => self.nodes.len(),
            (None, None) => self.replacements.len(),
        }
    }
}

#[derive(Debug, Serialize)]
struct Move {
    pod: String,
    from: String,
    /// A node, or one of the replacements.
    to: String,
}

/// A machine of ours.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    name: String,
    node_claim: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_pool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity_type: Option<String>,
    /// Absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    price_nano_usd_per_hour: Option<PriceNanoUsdPerHour>,
    /// How many of its pods would have to move.
    pods: usize,
    /// The reason of its condition `Drifted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    drifted: Option<String>,
    /// The condition by which it is broken, if it should be replaced for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    unhealthy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    /// The command that it goes with, by its position.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<usize>,
    reason: Reason,
}

#[derive(Debug, Serialize)]
struct Reason {
    code: String,
    message: String,
}

/// How many nodes of a NodePool may be disrupted.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodePool {
    name: String,
    /// Those that percentages are of.
    nodes: u32,
    /// Being disrupted already, or not ready.
    disrupted: u32,
    /// Taken by commands.
    taken: u32,
    /// At once, by reason; null if nothing limits them.
    allowed: BTreeMap<String, Option<u32>>,
    /// Budgets that cannot be read and let none go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    faults: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FleetPrice {
    price_nano_usd_per_hour: PriceNanoUsdPerHour,
    /// Once all commands are carried out.
    price_after_nano_usd_per_hour: PriceNanoUsdPerHour,
    /// No fleet with a place for all pods costs less, machines that may not go as they are; absent if that is not
    /// known.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound_nano_usd_per_hour: Option<PriceNanoUsdPerHour>,
    /// Machines without a known price, which count as free.
    without_price: usize,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if let Some([a, b]) = args.compare.as_deref() {
        return compare::run(args, [a, b]);
    }
    let mut input = Input::with_fleet(Documents::read(&args.filenames)?, &args.input, args.at)?;
    args.apply(&mut input.snapshot.options);
    let Planned { report, is_bad } = planned(&input, args.check);
    let text = match args.output {
        Format::Table => table::render(&report, Detail::Grouped),
        Format::Wide => table::render(&report, Detail::Everything),
        Format::Json => serde_json::to_string_pretty(&report)? + "\n",
        Format::Yaml => serde_saphyr::to_string(&report)?,
    };
    output::stdout(text.as_bytes())?;
    Ok(if is_bad { Outcome::BadInput } else { Outcome::Done })
}

/// A plan as it is told.
struct Planned {
    report: Report,
    /// Part of the input could not be used, or the plan is wrong.
    is_bad: bool,
}

/// Plans, says what is to be said beside the plan, and checks it if that is asked for.
fn planned(input: &Input, is_checked: bool) -> Planned {
    let fleet = input.snapshot.fleet.clone().unwrap_or_default();
    let progress = Progress::new("planning");
    progress.now(format!("looking at {} machines", fleet.nodes.len()));
    let plan = plan_disruption(&input.snapshot);
    let wrong = if is_checked { checker::check_disruption(&input.snapshot, &plan) } else { Vec::new() };
    drop(progress);
    for problem in &wrong {
        output::problem(format_args!("the plan is wrong: {problem}"));
    }
    let is_bad = input.tell();
    Planned { report: Report::new(input, &fleet, &plan), is_bad: is_bad || !wrong.is_empty() }
}

impl Report {
    fn new(input: &Input, fleet: &Fleet, plan: &DisruptionPlan) -> Self {
        let snapshot = &input.snapshot;
        let machines = plan.node_reasons.iter().filter_map(|(id, reason)| {
            let machine = fleet.nodes.iter().find(|machine| machine.node == *id)?;
            Some(node(snapshot, machine, reason))
        });
        Self {
            schema_version: SCHEMA_VERSION,
            time: snapshot.now,
            commands: plan.commands.iter().map(|it| command(snapshot, it, plan)).collect(),
            nodes: machines.collect(),
            node_pools: plan.pools.iter().map(node_pool).collect(),
            fleet: FleetPrice {
                price_nano_usd_per_hour: plan.fleet_price.before,
                price_after_nano_usd_per_hour: plan.fleet_price.after,
                bound_nano_usd_per_hour: plan.fleet_bound,
                without_price: plan.fleet_price.unknown,
            },
            nodes_of_others: snapshot.nodes.iter().filter(|node| node.node_claim.is_none()).count(),
            not_used: input.offline.not_used.clone(),
        }
    }
}

fn display_name(snapshot: &Snapshot, node: NodeId) -> String {
    snapshot.nodes.try_get(node).map(|node| node.display_name().to_owned()).unwrap_or_default()
}

fn command(snapshot: &Snapshot, command: &PlannedCommand, plan: &DisruptionPlan) -> Command {
    let simulated = plan.simulated.as_deref();
    let machine = |id| simulated.and_then(|simulated| simulated.plan.machines.try_get(id));
    let pod = |id| {
        let pending = simulated.and_then(|simulated| simulated.snapshot.pods.try_get(id));
        pending.map(|pending| pending.pod.name.to_string()).unwrap_or_default()
    };
    let place = |place: Place| match place {
        Place::Node(node) => Some(display_name(snapshot, node)),
        Place::Machine(id) => {
            let machine = machine(id)?;
            Some(claim_name(snapshot.node_pools.try_get(machine.node_pool)?, machine))
        }
    };
    let moves = command.moves.iter().map(|it| Move {
        pod: pod(it.pod),
        from: display_name(snapshot, it.from),
        to: place(it.to).unwrap_or_default(),
    });
    let replacements = command.replacements.iter().filter_map(|id| {
        let simulated = simulated?;
        report::node_claim(&simulated.snapshot, simulated.plan.machines.try_get(*id)?)
    });
    Command {
        reason: command.reason.to_string(),
        nodes: command.nodes.iter().map(|node| display_name(snapshot, *node)).collect(),
        replacements: replacements.collect(),
        static_node_pool: command.static_pool.as_ref().map(ToString::to_string),
        terminate_first: command.terminate_first.map(TerminateFirst::as_str),
        moves: moves.collect(),
        saving_nano_usd_per_hour: command.saving,
        eviction_cost: command.eviction_cost.0 as f64 / EvictionCost::ONE.0 as f64,
    }
}

fn node(snapshot: &Snapshot, machine: &FleetNode, reason: &NodeReason) -> Node {
    let there = snapshot.nodes.try_get(machine.node);
    Node {
        name: display_name(snapshot, machine.node),
        node_claim: there.and_then(|node| node.node_claim.as_ref()).map(ToString::to_string).unwrap_or_default(),
        node_pool: there.and_then(|node| node.node_pool.as_ref()).map(ToString::to_string),
        instance_type: machine.machine.instance_type.as_ref().map(ToString::to_string),
        zone: machine.machine.zone.as_ref().map(ToString::to_string),
        capacity_type: machine.machine.capacity_type.as_ref().map(ToString::to_string),
        price_nano_usd_per_hour: machine.machine.price(),
        pods: machine.movers().count(),
        drifted: machine.claim.drifted.as_ref().map(|drift| drift.cause.to_string()),
        unhealthy: machine.unhealthy.as_ref().map(|unhealthy| unhealthy.condition.to_string()),
        expires_at: machine.claim.expires_at,
        command: match reason {
            NodeReason::Goes { command } => Some(*command),
            _ => None,
        },
        reason: Reason { code: reason.code().to_owned(), message: reason.message(snapshot) },
    }
}

fn node_pool(pool: &PoolAllowance) -> NodePool {
    NodePool {
        name: pool.name.to_string(),
        nodes: pool.nodes,
        disrupted: pool.disrupted,
        taken: pool.taken,
        allowed: pool.allowed.iter().map(|(reason, allowed)| (reason.to_string(), *allowed)).collect(),
        faults: pool.faults.iter().map(|fault| format!("budgets[{}]: {}", fault.index, fault.problem)).collect(),
    }
}
