//! What the planner decides, as the controller carries it out: a command begins once a plan fifteen seconds later still
//! asks for it, and what was asked for is looked at first. The controller searches anew where many pods have come or
//! gone meanwhile; here machines have been quiet for longer than that.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use model::{NodeClaimName, Timestamp};
use scheduling::Snapshot;
use scheduling::disruption::plan::{Command, DisruptionPlan, Place};
use scheduling::disruption::{Memory, plan_disruption_after};

use super::{Decision, Destination, Look, PROPOSED_FOR};
use crate::world::{MachineKey, World, claim_of, machine_of, pod_of, wanted};

/// What was asked for, since when.
#[derive(Debug, Default)]
pub struct Ours {
    proposed: BTreeMap<Vec<MachineKey>, Timestamp>,
}

impl Ours {
    pub(super) fn look(&mut self, world: &mut World, now: Timestamp) -> Result<Look> {
        let snapshot = world.snapshot(now, true)?;
        let mut before = std::mem::take(&mut self.proposed);
        let asked_for: Vec<Vec<NodeClaimName>> = before
            .keys()
            .filter_map(|going| going.iter().map(|machine| claim_of(&snapshot, *machine)).collect())
            .collect();
        let plan = plan_disruption_after(&snapshot, &asked_for, &mut Memory::default());
        let mut look = Look::default();
        for command in &plan.commands {
            let decision = decision(world, &snapshot, &plan, command)?;
            let since = before.remove(&decision.going).unwrap_or(now);
            let at = since.saturating_add(PROPOSED_FOR);
            if at <= now {
                look.due.push(decision);
            } else {
                look.again = Some(look.again.map_or(at, |again| again.min(at)));
                self.proposed.insert(decision.going, since);
            }
        }
        look.is_proposing = !self.proposed.is_empty();
        Ok(look)
    }
}

fn decision(world: &World, snapshot: &Snapshot, plan: &DisruptionPlan, command: &Command) -> Result<Decision> {
    let mut going: Vec<MachineKey> =
        command.nodes.iter().map(|node| machine_of(snapshot, *node)).collect::<Result<_>>()?;
    going.sort_unstable();
    let mut decision = Decision { going, launches: Vec::new(), moves: Vec::new(), evictions_nano_usd: 0 };
    let Some(simulated) = plan.simulated.as_deref().filter(|_| !command.moves.is_empty()) else { return Ok(decision) };
    for id in &command.replacements {
        let machine = simulated.plan.machines.try_get(*id).context("a replacement that is not planned")?;
        decision.launches.push(wanted(&simulated.snapshot, machine)?);
    }
    for planned in &command.moves {
        let to = match planned.to {
            Place::Node(node) => Destination::Machine(machine_of(&simulated.snapshot, node)?),
            Place::Machine(id) => {
                let position = command.replacements.iter().position(|other| *other == id);
                Destination::Launched(position.context("a machine of another command")?)
            }
        };
        decision.moves.push((pod_of(&simulated.snapshot, planned.pod)?, to));
    }
    // Nobody says anything about the cost of these pods.
    let evictions = i128::try_from(command.moves.len()).unwrap_or(i128::MAX);
    decision.evictions_nano_usd = evictions * i128::from(world.options.disruption.eviction_price_nano_usd);
    Ok(decision)
}
