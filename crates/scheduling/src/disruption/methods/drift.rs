//! Machines that are broken, that are not what their NodePool or node class asks for any more (condition `Drifted`),
//! or that are past their time and expire the graceful way.
//!
//! Of each NodePool as many go at once as its budgets let: broken ones first, by score, then empty ones, then those
//! that drifted first or whose time was over first. They are planned in one simulation, so what their pods need is
//! launched once for all of them; machines whose pods share a replacement go in one command. A machine whose pods have
//! no place elsewhere holds back no other: it is left out, the next of its NodePool takes its part of the budgets, and
//! the simulation is made again, up to a bound.
//!
//! Differs: `drift-at-once`, `repair-many`. Karpenter replaces one node at a time, and goes on with the next when it
//! has begun.
//! Differs: `drift-blocked-pods`. With a `terminationGracePeriod` Karpenter looks for no place for pods that a
//! PodDisruptionBudget holds; they leave by force all the same, so here they get one beforehand.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{DurationMs, NamespacedName};

use super::Outcome;
use crate::disruption::budgets::Allowances;
use crate::disruption::candidates::{Candidates, Context};
use crate::disruption::reason::NodeReason;
use crate::disruption::simulation::{Simulation, Stuck, What};
use crate::disruption::split::split;
use crate::snapshot::NodeId;
use crate::snapshot::eviction::EvictionCost;
use crate::snapshot::fleet::{FleetNode, Reason};
use crate::tuning::{DRIFT_REFILLS, DRIFT_SIMULATIONS};

pub(crate) fn commands(
    context: &Context<'_>,
    candidates: &Candidates,
    allowances: &mut Allowances<'_>,
    before: &Outcome,
) -> Outcome {
    let gone: BTreeSet<NodeId> = before.commands.iter().flat_map(|command| &command.nodes).copied().collect();
    let is_candidate = |machine: &&FleetNode| {
        let outdated = context.outdated(machine);
        outdated.is_some_and(|(reason, _)| candidates.block(machine, reason).is_none()) && !gone.contains(&machine.node)
    };
    let mut queue: Vec<&FleetNode> = context.fleet.nodes.iter().filter(is_candidate).collect();
    queue.sort_by_key(|machine| (turn(context, machine), context.display_name(machine.node)));
    // Broken ones that cannot be replaced are told of even where consolidation finds out something else about them.
    let is_told = |machine: &&FleetNode| machine.unhealthy.is_some() && !is_candidate(machine);
    let blocked = context.fleet.nodes.iter().filter(is_told).filter_map(|machine| {
        Some((machine.node, NodeReason::Blocked(candidates.block(machine, Reason::Unhealthy)?.clone())))
    });
    let stays = blocked.collect();
    let (chosen, anywhere) = Default::default();
    let mut selection = Selection { context, queue, gone, chosen, anywhere, stays };
    let simulation = selection.settle(allowances);
    selection.tell_the_rest(allowances);
    let Selection { queue, chosen, anywhere, stays, .. } = selection;
    let going: Vec<&FleetNode> = queue.into_iter().filter(|machine| chosen.contains(&machine.node)).collect();
    let commands = split(context, &going, simulation.as_ref(), |set| reason_of(context, set));
    let simulated = simulation.map(|simulation| Arc::new(simulation.simulated));
    Outcome { commands, stays, simulated, in_domains: &chosen - &anywhere }
}

/// In which order turns come: broken ones by score and what their evictions cost, then the others.
fn turn(context: &Context<'_>, machine: &FleetNode) -> impl Ord + use<> {
    let outdated = context.outdated(machine);
    match machine.unhealthy.as_ref().filter(|_| outdated.is_some_and(|(why, _)| why == Reason::Unhealthy)) {
        Some(unhealthy) => (false, Reverse(unhealthy.score), machine.eviction_cost(), false, None),
        None => {
            let since = outdated.map(|(_, since)| since);
            (true, Reverse(DurationMs::ZERO), EvictionCost::default(), !machine.is_empty(), since)
        }
    }
}

/// Which of the machines that have to be replaced go.
struct Selection<'c, 's> {
    context: &'c Context<'s>,
    /// In the order in which their turn comes.
    queue: Vec<&'s FleetNode>,
    /// Machines that go by methods before.
    gone: BTreeSet<NodeId>,
    chosen: BTreeSet<NodeId>,
    /// Those whose pods have no place in their [domains](crate::simulation::homes). They have to go all the same, so
    /// these may go to others.
    anywhere: BTreeSet<NodeId>,
    /// Those that were looked at and stay.
    stays: BTreeMap<NodeId, NodeReason>,
}

impl Selection<'_, '_> {
    /// Chooses machines whose pods all have a place when all of them go. No simulation if none of them has any.
    fn settle(&mut self, allowances: &mut Allowances<'_>) -> Option<Simulation> {
        for round in 0..DRIFT_SIMULATIONS {
            if round <= DRIFT_REFILLS {
                self.fill_up(allowances);
            }
            let is_chosen = |machine: &&&FleetNode| self.chosen.contains(&machine.node);
            if self.queue.iter().filter(is_chosen).all(|machine| machine.is_empty()) {
                return None;
            }
            let leaving = &self.chosen | &self.gone;
            let in_domains = &self.chosen - &self.anywhere;
            let simulation = Simulation::new(self.context, &What { leaving, in_domains, ..What::default() });
            let stuck = simulation.stuck();
            if stuck.is_empty() {
                return Some(simulation);
            }
            for (node, why) in stuck {
                if simulation.is_held_in_domains(node) {
                    self.anywhere.insert(node);
                    continue;
                }
                let reason = reason_of_node(self.context, node);
                self.leave(node, told(self.context, (&simulation, reason), why), allowances);
            }
        }
        // Those without pods need no simulation.
        let is_undecided = |it: &&&FleetNode| !it.is_empty() && self.chosen.contains(&it.node);
        let undecided: Vec<&FleetNode> = self.queue.iter().filter(is_undecided).copied().collect();
        for machine in undecided {
            let reason = reason_of(self.context, &[machine]);
            self.leave(machine.node, NodeReason::Undecided { reason }, allowances);
        }
        None
    }

    /// Chooses as many more as budgets let.
    fn fill_up(&mut self, allowances: &mut Allowances<'_>) {
        for machine in &self.queue {
            let is_open = !self.chosen.contains(&machine.node) && !self.stays.contains_key(&machine.node);
            let Some((pool, _)) = self.context.pool_of(machine).filter(|_| is_open) else { continue };
            // One that was never initialized is no part of what budgets count.
            let is_counted = self.context.is_initialized(machine);
            if !is_counted || allowances.take(pool, reason_of(self.context, &[machine])).is_ok() {
                self.chosen.insert(machine.node);
            }
        }
    }

    fn leave(&mut self, node: NodeId, why: NodeReason, allowances: &mut Allowances<'_>) {
        let machine = self.queue.iter().find(|machine| machine.node == node);
        let counted = machine.filter(|machine| self.context.is_initialized(machine));
        if self.chosen.remove(&node)
            && let Some((pool, _)) = counted.and_then(|machine| self.context.pool_of(machine))
        {
            allowances.give_back(pool);
        }
        self.stays.insert(node, why);
    }

    /// Says of machines whose turn has not come what held them back.
    fn tell_the_rest(&mut self, allowances: &Allowances<'_>) {
        for machine in &self.queue {
            if self.chosen.contains(&machine.node) || self.stays.contains_key(&machine.node) {
                continue;
            }
            let Some((pool, _)) = self.context.pool_of(machine) else { continue };
            let reason = reason_of(self.context, &[machine]);
            let why = match allowances.limit(pool, reason) {
                Some(limit) => NodeReason::Budget { reason, node_pool: pool.clone(), limit },
                None => NodeReason::Undecided { reason },
            };
            self.stays.insert(machine.node, why);
        }
    }
}

/// Why machines go that are replaced together: some of them are broken, all are past their time, or some have drifted.
pub(crate) fn reason_of(context: &Context<'_>, set: &[&FleetNode]) -> Reason {
    let is = |machine: &FleetNode, reason| context.outdated(machine).is_some_and(|(why, _)| why == reason);
    if set.iter().any(|machine| is(machine, Reason::Unhealthy)) {
        Reason::Unhealthy
    } else if set.iter().all(|machine| is(machine, Reason::Expired)) {
        Reason::Expired
    } else {
        Reason::Drifted
    }
}

fn reason_of_node(context: &Context<'_>, node: NodeId) -> Reason {
    let machine = context.fleet.nodes.iter().find(|machine| machine.node == node);
    machine.map_or(Reason::Drifted, |machine| reason_of(context, &[machine]))
}

fn told(context: &Context<'_>, (simulation, reason): (&Simulation, Reason), why: Stuck) -> NodeReason {
    let pod = |pod| simulation.pod_name(pod).cloned().unwrap_or_else(|| NamespacedName::new("", ""));
    match why {
        Stuck::Refused(refusal) => {
            NodeReason::NoPlace { reason, pod: pod(refusal.pod), verdict: refusal.verdict, reasons: refusal.reasons }
        }
        Stuck::NotReady(id, node) => {
            NodeReason::PlaceNotReady { reason, pod: pod(id), node: context.display_name(node).into() }
        }
    }
}
