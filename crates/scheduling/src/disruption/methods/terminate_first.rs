//! Machines whose pods have no place elsewhere because the reservation that would hold them is full of these very
//! machines: they go first, and what they give back is launched for their pods afterwards (Karpenter 1.15, gates
//! `TerminateFirstDrift` and `TerminateFirstRepair`).
//!
//! Each is simulated by itself, beside all that goes already, with its place in the reservation free. Commands are of
//! one machine each, and say nothing of where pods go: nothing can be launched or kept for them as long as the machine
//! is there.

use std::collections::{BTreeMap, BTreeSet};

use model::PriceNanoUsdPerHour;

use super::Outcome;
use crate::disruption::budgets::Allowances;
use crate::disruption::candidates::Context;
use crate::disruption::plan::{Command, TerminateFirst};
use crate::disruption::reason::NodeReason;
use crate::disruption::simulation::{Simulation, What, reserved_offering};
use crate::snapshot::NodeId;
use crate::snapshot::fleet::{FleetNode, Reason};
use crate::tuning::TERMINATE_FIRST_SIMULATIONS;

pub(crate) fn commands(context: &Context<'_>, allowances: &mut Allowances<'_>, before: &Outcome) -> Outcome {
    let mut outcome = Outcome::default();
    let mut leaving: BTreeSet<NodeId> = before.commands.iter().flat_map(|command| &command.nodes).copied().collect();
    let mut credited = BTreeSet::new();
    for (machine, reason) in stuck(context, before).into_iter().take(TERMINATE_FIRST_SIMULATIONS) {
        let Some((pool, _)) = context.pool_of(machine) else { continue };
        let mut what = What { leaving: leaving.clone(), credited: credited.clone(), ..What::default() };
        what.leaving.insert(machine.node);
        what.credited.insert(machine.node);
        // Those before must keep their places too.
        if !Simulation::new(context, &what).stuck().is_empty() {
            continue;
        }
        // One that was never initialized needs no budget.
        if context.is_initialized(machine)
            && let Err(limit) = allowances.take(pool, reason)
        {
            outcome.stays.insert(machine.node, NodeReason::Budget { reason, node_pool: pool.clone(), limit });
            continue;
        }
        What { leaving, credited, .. } = what;
        outcome.commands.push(Command {
            reason,
            nodes: vec![machine.node],
            replacements: Vec::new(),
            static_pool: None,
            terminate_first: Some(TerminateFirst::NoReservedCapacity),
            moves: Vec::new(),
            // What is launched afterwards has its place, at its price.
            saving: PriceNanoUsdPerHour::ZERO,
            eviction_cost: machine.eviction_cost(),
        });
    }
    outcome
}

/// Machines that stay only because a pod has no place, whose gate lets them go first, and that hold a place in a
/// reservation; by name.
fn stuck<'s>(context: &Context<'s>, before: &Outcome) -> Vec<(&'s FleetNode, Reason)> {
    let machines: BTreeMap<NodeId, &FleetNode> = context.fleet.nodes.iter().map(|it| (it.node, it)).collect();
    let of_stay = |(node, why): (&NodeId, &NodeReason)| {
        let NodeReason::NoPlace { reason, .. } = why else { return None };
        let machine = *machines.get(node)?;
        let (offering, _) = reserved_offering(context.snapshot, machine)?;
        let may_go = context.snapshot.options.disruption.may_terminate_first(*reason) && offering.available;
        may_go.then_some((machine, *reason))
    };
    let mut stuck: Vec<_> = before.stays.iter().filter_map(of_stay).collect();
    stuck.sort_by_key(|(machine, _)| context.display_name(machine.node));
    stuck
}
