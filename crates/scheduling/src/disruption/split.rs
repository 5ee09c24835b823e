//! From one simulation to commands: one for each set of machines whose pods share a replacement or a PodGroup.

use std::collections::{BTreeMap, BTreeSet};

use model::{NamespacedName, PriceNanoUsdPerHour};

use super::candidates::Context;
use super::plan::{Command, Move, Place};
use super::simulation::Simulation;
use crate::plan::MachineId;
use crate::snapshot::NodeId;
use crate::snapshot::eviction::EvictionCost;
use crate::snapshot::fleet::{FleetNode, Reason};

/// Commands for machines that all go, in the order of these. `reason_of` says why a set of them goes.
pub(super) fn split(
    context: &Context<'_>,
    going: &[&FleetNode],
    simulation: Option<&Simulation>,
    reason_of: impl Fn(&[&FleetNode]) -> Reason,
) -> Vec<Command> {
    let moves = simulation.map(moves).unwrap_or_default();
    let sets = sets(going, &moves);
    let mut by_machine: BTreeMap<NodeId, Vec<(usize, Move)>> = BTreeMap::new();
    for (position, it) in moves.iter().enumerate() {
        by_machine.entry(it.from).or_default().push((position, *it));
    }
    let command = |set: Vec<&FleetNode>| {
        let mut moves: Vec<(usize, Move)> =
            set.iter().filter_map(|machine| by_machine.get(&machine.node)).flatten().copied().collect();
        moves.sort_by_key(|(position, _)| *position);
        let moves = moves.into_iter().map(|(_, it)| it).collect();
        command(context, reason_of(&set), &set, moves, simulation)
    };
    sets.into_iter().map(command).collect()
}

/// Machines that have to go together.
fn sets<'f>(going: &[&'f FleetNode], moves: &[Move]) -> Vec<Vec<&'f FleetNode>> {
    // By machine the first of those that it goes with.
    let mut leads: BTreeMap<NodeId, NodeId> = going.iter().map(|machine| (machine.node, machine.node)).collect();
    let mut join = |a: NodeId, b: NodeId| {
        let (Some(&into), Some(&from)) = (leads.get(&a), leads.get(&b)) else { return };
        leads.values_mut().filter(|lead| **lead == from).for_each(|lead| *lead = into);
    };
    let mut on_machine: BTreeMap<MachineId, NodeId> = BTreeMap::new();
    for it in moves {
        if let Place::Machine(machine) = it.to {
            join(*on_machine.entry(machine).or_insert(it.from), it.from);
        }
    }
    let mut in_group: BTreeMap<&NamespacedName, NodeId> = BTreeMap::new();
    for (machine, pod) in going.iter().flat_map(|machine| machine.movers().map(move |pod| (machine, pod))) {
        if let Some(group) = &pod.pod.shape.scheduling_group {
            join(*in_group.entry(&group.pod_group).or_insert(machine.node), machine.node);
        }
    }
    let mut sets: Vec<(NodeId, Vec<&FleetNode>)> = Vec::new();
    for &machine in going {
        let Some(&lead) = leads.get(&machine.node) else { continue };
        match sets.iter_mut().find(|(other, _)| *other == lead) {
            Some((_, set)) => set.push(machine),
            None => sets.push((lead, vec![machine])),
        }
    }
    sets.into_iter().map(|(_, set)| set).collect()
}

fn command(
    context: &Context<'_>,
    reason: Reason,
    set: &[&FleetNode],
    moves: Vec<Move>,
    simulation: Option<&Simulation>,
) -> Command {
    let mut nodes: Vec<NodeId> = set.iter().map(|machine| machine.node).collect();
    nodes.sort_by_key(|node| context.display_name(*node));
    let replacements: BTreeSet<MachineId> = moves
        .iter()
        .filter_map(|it| match it.to {
            Place::Machine(machine) => Some(machine),
            Place::Node(_) => None,
        })
        .collect();
    let sum = |prices: &mut dyn Iterator<Item = PriceNanoUsdPerHour>| {
        prices.fold(PriceNanoUsdPerHour::ZERO, PriceNanoUsdPerHour::saturating_add)
    };
    let before = sum(&mut set.iter().filter_map(|machine| machine.machine.price()));
    let machines = simulation.map(|simulation| &simulation.simulated.plan.machines);
    let launched = replacements.iter().filter_map(|machine| machines?.try_get(*machine));
    let after = sum(&mut launched.map(|machine| machine.launch.price));
    Command {
        reason,
        nodes,
        replacements: replacements.into_iter().collect(),
        static_pool: None,
        terminate_first: None,
        moves,
        saving: PriceNanoUsdPerHour(before.0.saturating_sub(after.0)),
        eviction_cost: EvictionCost::of_node(set.iter().flat_map(|machine| machine.movers()).map(|pod| pod.cost)),
    }
}

/// Where each pod goes that moves, by name.
fn moves(simulation: &Simulation) -> Vec<Move> {
    let plan = &simulation.simulated.plan;
    let on_machines = plan.machines.iter_enumerated().map(|(id, machine)| (Place::Machine(id), &machine.pods));
    let on_nodes = plan.existing.iter().map(|placement| (Place::Node(placement.node), &placement.pods));
    let of_place = |(to, pods)| {
        let pods: &Vec<_> = pods;
        pods.iter().filter_map(move |&pod| Some(Move { pod, from: *simulation.movers.get(&pod)?, to }))
    };
    let mut moves: Vec<Move> = on_machines.chain(on_nodes).flat_map(of_place).collect();
    moves.sort_by_key(|it| simulation.pod_name(it.pod));
    moves
}
