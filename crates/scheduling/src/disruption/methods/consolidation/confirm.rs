//! What is proposed, planned by provisioning beside what methods before have decided.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{PriceNanoUsdPerHour, Uid};

use super::eligible::Eligible;
use super::pay_back;
use super::replacement::Replacement;
use super::rules::{Rules, are_all_spot};
use crate::disruption::candidates::Context;
use crate::disruption::methods::{Outcome, drift};
use crate::disruption::plan::{Command, Simulated};
use crate::disruption::reason::Unconsolidatable;
use crate::disruption::search::{CouldGo, Known};
use crate::disruption::simulation::{Simulation, What, as_if};
use crate::disruption::split::split;
use crate::plan::{MachineId, Plan};
use crate::snapshot::fleet::{FleetNode, Reason, UnderWay};
use crate::snapshot::{NodeId, PodId, Snapshot};
use crate::tuning::{LARGE_FOR_A_COMMAND, SPOT_TO_SPOT_TYPES};

/// What is decided before consolidation, and what it asks.
pub(super) struct Ground<'c, 's> {
    context: &'c Context<'s>,
    /// Machines that go by methods before, and those of them that have drifted, in the order of their commands.
    gone: BTreeSet<NodeId>,
    drifted: Vec<&'s FleetNode>,
    /// Those of them whose pods stay in their domains.
    in_domains: BTreeSet<NodeId>,
    /// Nobody who moves goes to these.
    closed: BTreeSet<NodeId>,
    /// What wants a place and has none, by uid, and of each buffer how many pods.
    without_place: BTreeSet<Uid>,
    buffers_without_place: Vec<u32>,
    /// What machines cost that are launched in any case, in nano-dollars per hour.
    pub(super) cost: i128,
    /// The snapshot in which pods of machines that could go are known as pods that wait would be.
    pub(super) asked: Snapshot,
    pub(super) machines: Vec<CouldGo>,
    pub(super) settled: Vec<(NodeId, PodId)>,
    /// Pods for which nothing is launched that counts.
    pub(super) refused: BTreeSet<PodId>,
}

/// Commands that hold.
pub(super) struct Confirmed {
    /// Of drift and of consolidation.
    pub(super) commands: Vec<Command>,
    pub(super) simulated: Arc<Simulated>,
    /// What goes, as it was proposed.
    pub(super) sets: Vec<Vec<usize>>,
    saving: i128,
}

impl Confirmed {
    /// What is saved, in nano-dollars per hour, as nodes too.
    pub(super) fn saving(&self) -> i128 {
        self.saving
    }
}

/// What does not hold, and why.
#[derive(Debug, Default)]
pub(super) struct Rejected {
    /// These sets.
    pub(super) sets: BTreeMap<Vec<usize>, Unconsolidatable>,
    /// Machines of several sets, all together: what was launched for them is one command.
    pub(super) apart: BTreeMap<Vec<usize>, Unconsolidatable>,
    /// Machines without which a large set may hold: what was planned for them is a command that does not.
    parts: BTreeSet<usize>,
}

impl Rejected {
    /// Takes note of what else does not hold.
    pub(super) fn extend(&mut self, other: Self) {
        self.sets.extend(other.sets);
        self.apart.extend(other.apart);
    }

    /// Whether large sets fail by a few of their machines only, so that the rest needs no new search.
    pub(super) fn is_partial(&self) -> bool {
        !self.parts.is_empty()
    }

    /// As the search wants to know it.
    pub(super) fn known(&self) -> Known {
        Known { rejected: self.sets.keys().cloned().collect(), apart: self.apart.keys().cloned().collect() }
    }

    /// What may still hold of these: without those that do not, and without the last of those that have to be apart; of
    /// large ones without the machines that are to blame.
    pub(super) fn rest(&self, sets: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let without_parts = |set: &Vec<usize>| -> Vec<usize> {
            set.iter().copied().filter(|index| !self.parts.contains(index)).collect()
        };
        let holds = |set: &&Vec<usize>| !self.sets.contains_key(*set) || set.iter().any(|it| self.parts.contains(it));
        let mut rest: Vec<Vec<usize>> = sets.iter().filter(holds).map(without_parts).collect();
        rest.retain(|set| !set.is_empty());
        for apart in self.apart.keys().filter(|apart| !apart.iter().any(|index| self.parts.contains(index))) {
            if let Some(last) = rest.iter().rposition(|set| set.iter().any(|index| apart.contains(index))) {
                rest.remove(last);
            }
        }
        rest
    }

    /// Why a machine does not go alone, if that was tried.
    pub(super) fn alone(&self, index: usize) -> Option<&Unconsolidatable> {
        self.sets.get([index].as_slice())
    }
}

impl<'c, 's> Ground<'c, 's> {
    pub(super) fn new(context: &'c Context<'s>, before: &Outcome, eligible: &Eligible<'_>) -> Self {
        let simulated = before.simulated.as_deref();
        let base: Option<(&Snapshot, &Plan)> = match simulated {
            Some(simulated) => Some((&simulated.snapshot, &simulated.plan)),
            None => context.waiting.as_ref().map(|plan| (context.snapshot, plan)),
        };
        let gone: BTreeSet<NodeId> = before.commands.iter().flat_map(|command| &command.nodes).copied().collect();
        let drifted = before.commands.iter().filter(|command| command.reason != Reason::Empty);
        let machine = |node: &NodeId| context.fleet.nodes.iter().find(|machine| machine.node == *node);
        let drifted = drifted.flat_map(|command| &command.nodes).filter_map(machine).collect();
        // Who has got a place already keeps it, even where nobody else is to come.
        let used: BTreeSet<NodeId> = base.iter().flat_map(|(_, plan)| nodes_of(plan)).collect();
        let closed: BTreeSet<NodeId> = eligible.unquiet.difference(&used).copied().collect();
        let could_go: BTreeSet<NodeId> = eligible.machines.iter().map(|machine| machine.node).collect();
        let in_domains = &could_go | &before.in_domains;
        let what = What { leaving: gone.clone(), could_go, closed: closed.clone(), in_domains, ..What::default() };
        let (asked, movers) = as_if(context, &what);
        let machines = could_go_of(context, eligible, &movers);
        let (settled, mut refused) = base.map(|base| settled(base, &asked)).unwrap_or_default();
        // Pods of machines that commands under way have count where they are: so do these machines.
        let moved = asked.pods.ids().skip(context.snapshot.pods.len());
        refused.extend(moved.filter(|pod| !movers.contains_key(pod)));
        let without_place = base.map(|(snapshot, plan)| refused_uids(snapshot, plan)).unwrap_or_default();
        let buffers_without_place = base.map(|(_, plan)| plan.buffers.iter().map(|it| it.missing).collect());
        let cost = base.map_or(0, |(_, plan)| plan.cost());
        Self {
            context,
            gone,
            drifted,
            in_domains: before.in_domains.clone(),
            closed,
            without_place,
            buffers_without_place: buffers_without_place.unwrap_or_default(),
            cost,
            asked,
            machines,
            settled,
            refused,
        }
    }

    /// What the fleet costs at least, with what may not go as it is.
    /// `bound` is that of the machines that could go.
    pub(super) fn fleet_bound(&self, eligible: &Eligible<'_>, bound: i128) -> Option<PriceNanoUsdPerHour> {
        let waits_for_machines = self.context.waiting.as_ref().is_some_and(|plan| !plan.machines.is_empty());
        if waits_for_machines || self.context.snapshot.options.node_price != PriceNanoUsdPerHour::ZERO {
            return None;
        }
        let could_go: BTreeSet<NodeId> = eligible.machines.iter().map(|machine| machine.node).collect();
        let is_fixed = |machine: &&FleetNode| {
            let goes = machine.under_way == Some(UnderWay::Deletion) || self.gone.contains(&machine.node);
            !goes && !could_go.contains(&machine.node)
        };
        let fixed = self.context.fleet.nodes.iter().filter(is_fixed).filter_map(|machine| machine.machine.price());
        let bound = fixed.fold(bound, |sum, price| sum + i128::from(price.0));
        i64::try_from(bound).ok().map(PriceNanoUsdPerHour)
    }

    /// The machines of a command that stay so that the others of its set can go: of several that one of their own type
    /// would replace, the one that brings least.
    fn to_blame(&self, indices: &BTreeSet<usize>, why: &Unconsolidatable) -> BTreeSet<usize> {
        let profit = |index: &usize| self.machines.get(*index).map(|machine| machine.cost - machine.wanted);
        match why {
            Unconsolidatable::ReplacedByItself => indices.iter().copied().min_by_key(profit).into_iter().collect(),
            _ => indices.clone(),
        }
    }

    /// Whether nobody lost a place who has one if these machines stay.
    fn keeps_places(&self, simulation: &Simulation) -> bool {
        let Simulated { snapshot, plan } = &simulation.simulated;
        let others = plan.refusals.iter().filter(|refusal| !simulation.movers.contains_key(&refusal.pod));
        let mut uids = others.filter_map(|refusal| snapshot.pods.try_get(refusal.pod)).map(|pending| &pending.pod.uid);
        let missing = plan
            .buffers
            .iter()
            .enumerate()
            .all(|(index, buffer)| buffer.missing <= self.buffers_without_place.get(index).copied().unwrap_or(0));
        missing && uids.all(|uid| self.without_place.contains(uid))
    }
}

/// Nodes on which a plan places something.
fn nodes_of(plan: &Plan) -> impl Iterator<Item = NodeId> {
    let of_buffers = plan.buffers.iter().flat_map(|buffer| &buffer.on_nodes).map(|(node, _)| *node);
    plan.existing.iter().map(|placement| placement.node).chain(of_buffers)
}

fn refused_uids(snapshot: &Snapshot, plan: &Plan) -> BTreeSet<Uid> {
    let refused = plan.refusals.iter().filter_map(|refusal| snapshot.pods.try_get(refusal.pod));
    refused.map(|pending| pending.pod.uid.clone()).collect()
}

/// What a plan has placed on nodes, and what has no place, by the ids of another snapshot with the virtual pods of
/// buffers after its own.
fn settled((of_plan, plan): (&Snapshot, &Plan), asked: &Snapshot) -> (Vec<(NodeId, PodId)>, BTreeSet<PodId>) {
    let ids: BTreeMap<&Uid, PodId> = asked.pods.iter_enumerated().map(|(id, it)| (&it.pod.uid, id)).collect();
    let id = |pod: &PodId| ids.get(&of_plan.pods.try_get(*pod)?.pod.uid).copied();
    let on_nodes = plan.existing.iter().flat_map(|it| it.pods.iter().map(move |pod| (it.node, pod)));
    let mut settled: Vec<(NodeId, PodId)> = on_nodes.filter_map(|(node, pod)| Some((node, id(pod)?))).collect();
    let mut refused: BTreeSet<PodId> = plan.refusals.iter().filter_map(|refusal| id(&refusal.pod)).collect();
    let mut first = asked.pods.len();
    for (buffer, room) in asked.buffers.iter().zip(&plan.buffers) {
        let replicas = buffer.replicas as usize;
        let mut ids = (first..first + replicas).map(<PodId as model::Id>::from_index);
        for &(node, pods) in &room.on_nodes {
            settled.extend(ids.by_ref().take(pods as usize).map(|pod| (node, pod)));
        }
        refused.extend(ids.take(room.missing as usize));
        first += replicas;
    }
    (settled, refused)
}

fn could_go_of(context: &Context<'_>, eligible: &Eligible<'_>, movers: &BTreeMap<PodId, NodeId>) -> Vec<CouldGo> {
    let mut pods: BTreeMap<NodeId, Vec<PodId>> = BTreeMap::new();
    for (&pod, &node) in movers {
        pods.entry(node).or_default().push(pod);
    }
    let options = &context.snapshot.options;
    let machines = eligible.machines.iter().zip(&eligible.pool_at).zip(&eligible.kin);
    let could_go = machines.map(|((machine, &pool), &kin)| CouldGo {
        node: machine.node,
        cost: cost(context, machine),
        wanted: pay_back::wanted(&options.disruption, machine),
        pool,
        disruption_cost: machine.eviction_cost().0,
        kin,
        pods: pods.remove(&machine.node).unwrap_or_default(),
    });
    could_go.collect()
}

/// What a machine costs, as a node too.
fn cost(context: &Context<'_>, machine: &FleetNode) -> i128 {
    let price = machine.machine.price().unwrap_or_default();
    i128::from(price.0) + i128::from(context.snapshot.options.node_price.0)
}

/// Plans as if all of these went.
///
/// # Errors
/// The sets that do not hold; at least one.
pub(super) fn confirm(
    ground: &Ground<'_, '_>,
    eligible: &Eligible<'_>,
    rules: &Rules<'_>,
    sets: &[Vec<usize>],
) -> Result<Confirmed, Rejected> {
    let chosen: BTreeMap<NodeId, usize> =
        sets.iter().flatten().filter_map(|&index| Some((eligible.node(index)?, index))).collect();
    let leaving = ground.gone.iter().chain(chosen.keys()).copied().collect();
    let in_domains = ground.in_domains.iter().chain(chosen.keys()).copied().collect();
    let what = What { leaving, closed: ground.closed.clone(), in_domains, ..What::default() };
    let mut simulation = Simulation::new(ground.context, &what);
    let reject = |indices: &BTreeSet<usize>, why: &Unconsolidatable| -> Rejected {
        let concerned = sets.iter().filter(|set| set.iter().any(|index| indices.contains(index)));
        let concerned: Vec<Vec<usize>> = concerned.cloned().collect();
        let mut rejected = Rejected::default();
        if concerned.iter().map(Vec::len).sum::<usize>() >= indices.len().max(1) * LARGE_FOR_A_COMMAND {
            rejected.parts = ground.to_blame(indices, why);
        }
        match concerned.as_slice() {
            [] => {}
            [one] => drop(rejected.sets.insert(one.clone(), why.clone())),
            [..] => {
                let mut all = concerned.concat();
                all.sort_unstable();
                rejected.apart.insert(all, why.clone());
            }
        }
        rejected
    };
    // Whoever was taken last is to blame for what cannot be told of one.
    let reject_last = || {
        let last = sets.last().into_iter().flatten().copied().collect();
        reject(&last, &Unconsolidatable::NotConfirmed)
    };
    let stuck: BTreeSet<usize> = simulation.stuck().keys().filter_map(|node| chosen.get(node)).copied().collect();
    if !stuck.is_empty() {
        let mut rejected = Rejected::default();
        let concerned = sets.iter().filter(|set| set.iter().any(|index| stuck.contains(index)));
        rejected.sets.extend(concerned.map(|set| (set.clone(), Unconsolidatable::NotConfirmed)));
        return Err(rejected);
    }
    if !simulation.stuck().is_empty() || !ground.keeps_places(&simulation) {
        return Err(reject_last());
    }
    let going: Vec<&FleetNode> =
        ground.drifted.iter().copied().chain(sets.iter().flat_map(|set| eligible.of(set))).collect();
    let reason_of = |set: &[&FleetNode]| {
        let is_chosen = set.iter().any(|machine| chosen.contains_key(&machine.node));
        if is_chosen { Reason::Underutilized } else { drift::reason_of(ground.context, set) }
    };
    let mut commands = split(ground.context, &going, Some(&simulation), reason_of);
    let mut rejected = Rejected::default();
    for command in commands.iter().filter(|command| command.reason == Reason::Underutilized) {
        let indices: BTreeSet<usize> = command.nodes.iter().filter_map(|node| chosen.get(node)).copied().collect();
        if let Err(why) = hold(ground, eligible, rules, (command, &indices), &mut simulation) {
            let mut of_command = reject(&indices, &why);
            rejected.parts.append(&mut of_command.parts);
            rejected.extend(of_command);
        }
    }
    if !rejected.sets.is_empty() || !rejected.apart.is_empty() {
        return Err(rejected);
    }
    // Room that others lose who wait, or whom methods before have moved, costs something too.
    let machines = sets.iter().flat_map(|set| eligible.of(set));
    let (cost_before, wanted) = machines.fold((0, 0), |(cost_before, wanted), machine| {
        let of_machine = pay_back::wanted(&ground.context.snapshot.options.disruption, machine);
        (cost_before + cost(ground.context, machine), wanted + of_machine)
    });
    let saving = cost_before - (simulation.simulated.plan.cost() - ground.cost);
    if saving < wanted {
        return Err(reject_last());
    }
    let name = |command: &Command| command.nodes.first().map(|node| ground.context.display_name(*node));
    // Drift's keep their order.
    commands.sort_by_key(|command| match command.reason {
        Reason::Underutilized => (1, std::cmp::Reverse(command.saving), name(command)),
        Reason::Drifted | Reason::Expired | Reason::Empty | Reason::Unhealthy => {
            (0, std::cmp::Reverse(PriceNanoUsdPerHour::ZERO), None)
        }
    });
    Ok(Confirmed { commands, simulated: Arc::new(simulation.simulated), sets: sets.to_vec(), saving })
}

/// Whether a command pays and keeps the rules. Its replacements keep only what is cheaper.
fn hold(
    ground: &Ground<'_, '_>,
    eligible: &Eligible<'_>,
    rules: &Rules<'_>,
    (command, indices): (&Command, &BTreeSet<usize>),
    simulation: &mut Simulation,
) -> Result<(), Unconsolidatable> {
    // One that has drifted is replaced whatever that costs.
    if indices.len() != command.nodes.len() {
        return Err(Unconsolidatable::NotConfirmed);
    }
    let set: Vec<usize> = indices.iter().copied().collect();
    let machines = eligible.of(&set);
    let options = &ground.context.snapshot.options;
    let nodes = |count: usize| i128::from(options.node_price.0) * i128::try_from(count).unwrap_or(i128::MAX);
    let saving = i128::from(command.saving.0) + nodes(command.nodes.len()) - nodes(command.replacements.len());
    let wanted: i128 = machines.iter().map(|machine| pay_back::wanted(&options.disruption, machine)).sum();
    if saving < wanted {
        return Err(Unconsolidatable::NotConfirmed);
    }
    let Simulated { snapshot, plan } = &mut simulation.simulated;
    let before: i128 = machines.iter().map(|machine| cost(ground.context, machine)).sum();
    let mut launched = Vec::new();
    for &id in &command.replacements {
        let replacement = plan.machines.try_get_mut(id).and_then(|machine| Replacement::new(snapshot, machine));
        launched.extend(replacement.map(|replacement| replacement.as_new(before)));
    }
    if let Some(why) = rules.forbids(&set, saving, &launched) {
        return Err(why);
    }
    narrow(&machines, command, (snapshot, plan), saving - wanted)
}

/// Lets replacements keep the types with which the command still pays, whichever of them are launched. What may be lost
/// is shared out by their prices.
fn narrow(
    machines: &[&FleetNode],
    command: &Command,
    (snapshot, plan): (&Snapshot, &mut Plan),
    may_lose: i128,
) -> Result<(), Unconsolidatable> {
    let price = |plan: &Plan, id: MachineId| {
        plan.machines.try_get(id).map_or(0, |machine| i128::from(machine.launch.price.0.max(0)))
    };
    let sum: i128 = command.replacements.iter().map(|id| price(plan, *id)).sum();
    let is_one_spot = machines.len() == 1 && are_all_spot(machines);
    for &id in &command.replacements {
        let planned = price(plan, id);
        let share = may_lose * planned / sum.max(1);
        let share = if command.replacements.len() == 1 { may_lose } else { share };
        let Some(machine) = plan.machines.try_get_mut(id) else { continue };
        let Some(mut replacement) = Replacement::new(snapshot, machine) else { continue };
        replacement.keep_up_to(planned + share, is_one_spot.then_some(SPOT_TO_SPOT_TYPES))?;
        if machines.len() < 2 || command.replacements.len() != 1 {
            continue;
        }
        // Several that are replaced by one of them: the others could simply go (Karpenter's
        // `filterOutSameInstanceType`).
        let names: BTreeSet<_> = replacement.types().collect();
        let alike = machines.iter().filter(|it| it.machine.instance_type.as_ref().is_some_and(|it| names.contains(it)));
        if let Some(least) = alike.filter_map(|machine| machine.machine.price()).min() {
            let kept = replacement.keep_up_to((planned + share).min(i128::from(least.0) - 1), None);
            kept.map_err(|why| match why {
                Unconsolidatable::NotConfirmed => Unconsolidatable::ReplacedByItself,
                other => other,
            })?;
        }
    }
    Ok(())
}
