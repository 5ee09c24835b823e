//! Nodes without pods that would have to move, after they have been so for `consolidateAfter` (condition
//! `Consolidatable`). Each goes by itself, so that a pod which comes to one of them keeps none of the others.
//!
//! Where budgets are short the dearest go first.

use std::cmp::Reverse;

use model::PriceNanoUsdPerHour;

use super::Outcome;
use crate::disruption::budgets::Allowances;
use crate::disruption::candidates::{Candidates, Context};
use crate::disruption::plan::Command;
use crate::disruption::reason::NodeReason;
use crate::snapshot::fleet::{FleetNode, Reason};

pub(crate) fn commands(context: &Context<'_>, candidates: &Candidates, allowances: &mut Allowances<'_>) -> Outcome {
    let is_broken = |machine: &FleetNode| context.outdated(machine).is_some_and(|(why, _)| why == Reason::Unhealthy);
    // Broken ones do not wait until they have been quiet.
    let is_candidate = |machine: &&FleetNode| {
        machine.is_empty() && candidates.block(machine, Reason::Empty).is_none() && !is_broken(machine)
    };
    let mut machines: Vec<&FleetNode> = context.fleet.nodes.iter().filter(is_candidate).collect();
    machines.sort_by_key(|machine| (Reverse(price(machine)), context.display_name(machine.node)));
    let mut outcome = Outcome::default();
    for machine in machines {
        match why_it_stays(context, machine, allowances) {
            Some(reason) => drop(outcome.stays.insert(machine.node, reason)),
            None => outcome.commands.push(Command {
                reason: Reason::Empty,
                nodes: vec![machine.node],
                replacements: Vec::new(),
                static_pool: None,
                terminate_first: None,
                moves: Vec::new(),
                saving: price(machine),
                eviction_cost: machine.eviction_cost(),
            }),
        }
    }
    let first = |command: &Command| command.nodes.first().map(|node| context.display_name(*node));
    outcome.commands.sort_by_key(first);
    outcome
}

/// Takes the machine's part of the budgets if it goes.
fn why_it_stays(context: &Context<'_>, machine: &FleetNode, allowances: &mut Allowances<'_>) -> Option<NodeReason> {
    let (name, pool) = context.pool_of(machine)?;
    let Some(wanted) = pool.consolidate_after else {
        return Some(NodeReason::ConsolidationOff { reason: Reason::Empty, node_pool: name.clone() });
    };
    if machine.claim.consolidatable.is_none() {
        let last_pod_event = machine.claim.last_pod_event;
        return Some(NodeReason::NotQuiet { reason: Reason::Empty, wanted, last_pod_event });
    }
    if let Some(buffer) = context.buffer_on(machine.node) {
        return Some(NodeReason::HoldsBuffer { reason: Reason::Empty, buffer: buffer.clone() });
    }
    let limit = allowances.take(name, Reason::Empty).err()?;
    Some(NodeReason::Budget { reason: Reason::Empty, node_pool: name.clone(), limit })
}

fn price(machine: &FleetNode) -> PriceNanoUsdPerHour {
    machine.machine.price().unwrap_or_default()
}
