//! The disruption planner: which of our machines go, what takes their place, and why each of the others stays.
//!
//! One pure function, [`plan_disruption`], from a snapshot with a [fleet](crate::snapshot::fleet) to a
//! [`DisruptionPlan`].
//!
//! 1. Pods that wait, and buffers, are planned first, as provisioning does it: a node that one of them is to come to is
//!    not taken away under it.
//! 2. `candidates`: for each machine whether it may go, or what blocks it.
//! 3. `budgets`: how many more nodes of a NodePool may be disrupted for a reason. What a command takes is gone for the
//!    commands after it.
//! 4. `methods`, one after the other: each takes candidates and budgets and gives commands. `emptiness` removes nodes
//!    without pods; `drift` replaces what is broken or not as it should be; `consolidation` removes and replaces what
//!    costs more than its pods need, of which `search` finds what could go; `terminate_first` removes machines whose
//!    replacement has no room beside them; `static_drift` replaces machines of static NodePools, about which pods do
//!    not decide.
//! 5. `simulation`: the snapshot as if nodes were being deleted, planned by provisioning itself. So pods that move go
//!    where pods that wait would, by every rule that these keep; some of them stay in their zones (`homes`, beside the
//!    rules between pods).
//!
//! All commands of a plan come from one simulation, but for those that terminate first, so they are disjoint in the
//! nodes that they take and in the room that they use, and any number of them may be under way at once.

mod budgets;
mod candidates;
pub mod deletion_order;
mod methods;
pub mod plan;
pub mod reason;
mod search;
mod simulation;
mod split;

use std::collections::BTreeMap;

use model::{NodeClaimName, NodePoolName, PriceNanoUsdPerHour};

use self::budgets::Allowances;
use self::candidates::{Candidates, Context};
use self::methods::consolidation::balanced::{Balanced, Score};
use self::methods::consolidation::{Consolidated, Earlier};
use self::methods::{Outcome, consolidation, drift, emptiness, static_drift, terminate_first};
use self::plan::{Command, CommandScore, DisruptionPlan, FleetPrice};
use self::reason::NodeReason;
use crate::snapshot::fleet::{Fleet, FleetNode, Reason, UnderWay};
use crate::snapshot::{NodeId, Snapshot};

/// What a plan leaves for the next ones of the same cluster: relaxations that were solved, with what they are of. A
/// plan finds what it would find without it, sooner. Its size is bounded.
#[derive(Debug, Default)]
pub struct Memory {
    solved: search::Memory,
}

/// Plans which machines go. A snapshot without a fleet has none.
pub fn plan_disruption(snapshot: &Snapshot) -> DisruptionPlan {
    plan_disruption_with(snapshot, &mut Memory::default())
}

/// [`plan_disruption`] with what earlier plans have left, of whatever snapshots; the plan is the same byte for byte.
pub fn plan_disruption_with(snapshot: &Snapshot, memory: &mut Memory) -> DisruptionPlan {
    plan_disruption_after(snapshot, &[], memory)
}

/// [`plan_disruption_with`], where sets of machines, by their NodeClaims, were asked for a moment ago to save money. As
/// long as some of these can still go, no others are looked for: a search that is made anew while the cluster changes
/// finds other sets each time, and none would be asked for twice.
pub fn plan_disruption_after(
    snapshot: &Snapshot,
    asked_for: &[Vec<NodeClaimName>],
    memory: &mut Memory,
) -> DisruptionPlan {
    let Some(fleet) = snapshot.fleet.as_deref() else { return DisruptionPlan::default() };
    let context = Context::new(snapshot, fleet);
    let candidates = Candidates::new(&context);
    let mut allowances = Allowances::new(fleet);
    let mut outcome = emptiness::commands(&context, &candidates, &mut allowances);
    outcome.extend(drift::commands(&context, &candidates, &mut allowances, &outcome));
    let earlier = Earlier { asked_for, solved: &memory.solved };
    let Consolidated { mut outcome, bound, is_asked_for } =
        consolidation::extend(&context, &candidates, &mut allowances, outcome, earlier);
    outcome.extend(terminate_first::commands(&context, &mut allowances, &outcome));
    outcome.extend(static_drift::commands(&context, &candidates, &mut allowances));
    DisruptionPlan { fleet_bound: bound, is_asked_for, ..finish(&context, &candidates, &allowances, outcome) }
}

fn finish(
    context: &Context<'_>,
    candidates: &Candidates,
    allowances: &Allowances<'_>,
    outcome: Outcome,
) -> DisruptionPlan {
    let Outcome { commands, stays, simulated, .. } = outcome;
    let mut reasons: BTreeMap<NodeId, NodeReason> = stays;
    for (index, command) in commands.iter().enumerate() {
        reasons.extend(command.nodes.iter().map(|&node| (node, NodeReason::Goes { command: index })));
    }
    for machine in &context.fleet.nodes {
        reasons.entry(machine.node).or_insert_with(|| candidates.why_it_stays(machine));
    }
    let mut node_reasons: Vec<(NodeId, NodeReason)> = reasons.into_iter().collect();
    node_reasons.sort_by_key(|(node, _)| context.display_name(*node));
    let before = fleet_price(context.fleet);
    let saving = commands.iter().fold(PriceNanoUsdPerHour::ZERO, |sum, command| sum.saturating_add(command.saving));
    DisruptionPlan {
        fleet_price: FleetPrice { after: PriceNanoUsdPerHour(before.before.0.saturating_sub(saving.0)), ..before },
        pools: allowances.told(),
        fleet_bound: None,
        is_asked_for: false,
        scores: scores(context, &commands),
        commands,
        node_reasons,
        simulated,
    }
}

/// How NodePools with the policy `Balanced` score what consolidation does.
fn scores(context: &Context<'_>, commands: &[Command]) -> Vec<CommandScore> {
    let balanced = Balanced::new(context);
    if balanced.is_empty() {
        return Vec::new();
    }
    let machines: BTreeMap<NodeId, &FleetNode> = context.fleet.nodes.iter().map(|it| (it.node, it)).collect();
    let of_command = |(index, command): (usize, &Command)| {
        let going: Vec<&FleetNode> = command.nodes.iter().filter_map(|node| machines.get(node).copied()).collect();
        let of_pools = balanced.scores(context, &going, i128::from(command.saving.0));
        let of_pool = move |(node_pool, score): (&NodePoolName, Score)| CommandScore {
            command: index,
            node_pool: node_pool.clone(),
            score_permille: score.permille(),
        };
        of_pools.into_iter().map(of_pool).collect::<Vec<_>>()
    };
    let commands = commands.iter().enumerate().filter(|(_, command)| command.reason == Reason::Underutilized);
    commands.flat_map(of_command).collect()
}

/// What the machines cost that are not being deleted already.
fn fleet_price(fleet: &Fleet) -> FleetPrice {
    let mut price = FleetPrice::default();
    for machine in fleet.nodes.iter().filter(|machine| machine.under_way != Some(UnderWay::Deletion)) {
        price.nodes += 1;
        match machine.machine.price() {
            Some(of_machine) => price.before = price.before.saturating_add(of_machine),
            None => price.unknown += 1,
        }
    }
    price
}

#[cfg(test)]
mod tests;
