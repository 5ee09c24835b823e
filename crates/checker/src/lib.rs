//! Whether a plan is right, found out the slow way.
//!
//! It shares nothing with the planner but its input and output. A plan is played: the nodes that are there, and a node
//! for each planned machine, get their pods one by one, each only where [`filter`] lets it in as kube-scheduler would
//! at that moment. A plan is right if all of its pods get in, whatever the provider launches from the NodeClaims; if
//! each pod is in it once; if no launch exceeds a limit; and if its price is what its machines cost.
//!
//! Whether a refusal was due is for [`room_for`] to say, on small inputs.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::disallowed_methods,
        clippy::disallowed_types
    )
)]

mod devices;
mod disruption;
mod filter;
mod launches;
mod room;
mod world;

use std::collections::BTreeSet;

use model::{NamespacedName, Pod, PodShape};
use scheduling::{
    Plan, Snapshot,
    plan::action::{Action, Precondition},
    snapshot::{Limit, PodId},
};

use self::{
    devices::PoolNames,
    world::{Choice, Planned, World},
};

pub use self::disruption::check_disruption;
pub use self::room::{Room, room_for};

/// What is wrong with the plan; nothing for a right one.
pub fn check(snapshot: &Snapshot, plan: &Plan) -> Vec<String> {
    // Room that is kept free must be as good as pods that take it.
    match scheduling::plan::with_virtual_pods(snapshot, plan) {
        Some((snapshot, plan)) => check_pods(&snapshot, &plan),
        None => check_pods(snapshot, plan),
    }
}

fn check_pods(snapshot: &Snapshot, plan: &Plan) -> Vec<String> {
    let mut problems = each_pod_once(snapshot, plan);
    problems.extend(each_machine_once(plan));
    problems.extend(prices(snapshot, plan));
    problems.extend(limits(snapshot, plan));
    problems.extend(ended(snapshot, plan));
    if !problems.is_empty() {
        return problems;
    }
    // What the provider launches is its choice, so several choices are played: each machine by its dearest, its
    // cheapest and others in between, neighbours differently.
    let most = plan.machines.iter().map(|machine| launches::allowed(snapshot, machine).len()).max().unwrap_or(1);
    let choices = (0..most.clamp(1, 8))
        .flat_map(|launches| PoolNames::of(snapshot).into_iter().map(move |pools| Choice { launches, pools }));
    for choice in choices {
        problems.extend(play_in_some_order(snapshot, plan, choice));
        problems.extend(play_in_every_order_of_claims(snapshot, plan, choice));
        if !problems.is_empty() {
            break;
        }
    }
    problems
}

/// Machines that no action creates, or more than one, and that somebody would create though nobody wants them any more.
fn each_machine_once(plan: &Plan) -> Vec<String> {
    let mut problems = Vec::new();
    for (id, machine) in plan.machines.iter_enumerated() {
        let is_of_machine = |action: &&Action| match action {
            Action::Create { machine, .. } => *machine == id,
            Action::Delete { .. } => false,
        };
        let creating: Vec<&Action> = plan.actions.iter().filter(is_of_machine).collect();
        if creating.len() != 1 {
            problems.push(format!("{} actions create machine {id:?}", creating.len()));
        }
        for wanted in [Precondition::PoolUnchanged(machine.node_pool), Precondition::StillWanted(id)] {
            if creating.iter().any(|action| !action.preconditions().contains(&wanted)) {
                problems.push(format!("machine {id:?} is created without {wanted:?}"));
            }
        }
    }
    problems
}

/// Pods that are placed though a node keeps them from all nodes.
fn ended(snapshot: &Snapshot, plan: &Plan) -> Vec<String> {
    let on_machines = plan.machines.iter().flat_map(|machine| &machine.pods);
    let placed = on_machines.chain(plan.existing.iter().flat_map(|placement| &placement.pods));
    let pods = placed.map(|&pod| &snapshot.pods[pod].pod);
    pods.filter_map(|pod| Some(format!("{} is placed: {}", pod.name, filter::ended(snapshot, pod)?))).collect()
}

/// Pods that want to be near to each other can depend on which of them begins, so each may. Pods that a spread counts
/// and that are not spread themselves can come too early, so they may come last. Those that the plan wants to come
/// later do, in any case.
fn play_in_some_order(snapshot: &Snapshot, plan: &Plan, choice: Choice) -> Vec<String> {
    let mut stuck = Vec::new();
    for order in [Order::AsPlanned, Order::SpreadFirst] {
        stuck = play(World::new(snapshot, plan, choice), choice, None, order);
        if stuck.is_empty() {
            return stuck;
        }
    }
    for order in orders_of_claims(snapshot, plan) {
        if play_with_claims(World::new(snapshot, plan, choice), choice, &order).is_empty() {
            return Vec::new();
        }
    }
    let pods = snapshot.pods.iter().filter(|pending| !pending.pod.shape.pod_affinity.required.is_empty());
    let begins = pods.map(|pending| &*pending.pod);
    let mut orders =
        begins.map(|first| play(World::new(snapshot, plan, choice), choice, Some(first), Order::SpreadFirst));
    orders.find(Vec::is_empty).unwrap_or(stuck)
}

/// Nobody says in which order the scheduler comes to pods with claims, so none may leave one of them without devices,
/// and of one kind the last may come first.
fn play_in_every_order_of_claims(snapshot: &Snapshot, plan: &Plan, choice: Choice) -> Vec<String> {
    let of_devices = |problem: &String| problem.contains(devices::NO_DEVICES);
    let mut stuck = Vec::new();
    for order in orders_of_claims(snapshot, plan) {
        for is_last_first in [false, true] {
            let mut world = World::new(snapshot, plan, choice);
            if is_last_first {
                world.planned.reverse();
            }
            stuck = play_with_claims(world, choice, &order);
            stuck.retain(of_devices);
            if !stuck.is_empty() {
                return stuck;
            }
        }
    }
    stuck
}

/// Lets the planned pods in as long as one of them gets in, those without affinity first, then `first`.
fn play(mut world: World<'_>, choice: Choice, first: Option<&Pod>, order: Order) -> Vec<String> {
    let waiting = std::mem::take(&mut world.planned);
    let groups: BTreeSet<&NamespacedName> = waiting.iter().filter_map(|planned| group_of(planned.pod)).collect();
    let stuck = let_in(&mut world, waiting, first, order);
    if stuck.is_empty() {
        return groups.into_iter().filter_map(|group| scattered(&world, group)).collect();
    }
    let why_not = |planned: &Planned<'_>| {
        let why = filter::filter(&world, planned.pod, planned.node).err()?;
        Some(format!("{} is not let onto {} ({choice:?}): {why}", planned.pod.name, world.name(planned.node)))
    };
    stuck.iter().filter_map(why_not).collect()
}

fn group_of(pod: &Pod) -> Option<&NamespacedName> {
    pod.shape.scheduling_group.as_ref().map(|group| &group.pod_group)
}

/// Whether a PodGroup that has to be in one domain of a label is not, with its pods that ran before.
fn scattered(world: &World<'_>, group: &NamespacedName) -> Option<String> {
    let key = world.snapshot.pod_groups.get(group)?.topology_key?;
    let nodes = world.nodes.iter().filter(|node| node.pods.iter().any(|pod| group_of(pod) == Some(group)));
    let domains: BTreeSet<_> = nodes.map(|node| node.label(key)).collect();
    let is_one = domains.len() == 1 && !domains.contains(&None);
    (!is_one).then(|| format!("PodGroup {group} is in {} domains of {}", domains.len(), world.names.key_name(key)))
}

/// Most kinds of pods with claims whose orders are all tried.
const MAX_KINDS: usize = 5;

/// Which devices a claim is given depends on who came before, so each order of the kinds of pods with claims may be the
/// one: pods of one kind have equal shapes.
fn orders_of_claims<'s>(snapshot: &'s Snapshot, plan: &Plan) -> Vec<Vec<&'s PodShape>> {
    let on_machines = plan.machines.iter().flat_map(|machine| &machine.pods);
    let placed = on_machines.chain(plan.existing.iter().flat_map(|placement| &placement.pods));
    let pods = placed.map(|&pod| &snapshot.pods[pod].pod);
    orders_of(pods.filter(|pod| devices::concern(snapshot, pod)).map(|pod| &*pod.shape))
}

/// All orders of some kinds; none if there are too many.
pub(crate) fn orders_of<'s>(pods: impl Iterator<Item = &'s PodShape>) -> Vec<Vec<&'s PodShape>> {
    let mut kinds: Vec<&PodShape> = Vec::new();
    for kind in pods {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    if kinds.is_empty() || kinds.len() > MAX_KINDS {
        return Vec::new();
    }
    let mut orders = vec![Vec::new()];
    for kind in kinds {
        orders = orders
            .iter()
            .flat_map(|order: &Vec<&PodShape>| {
                (0..=order.len()).map(move |at| {
                    let mut order = order.clone();
                    order.insert(at, kind);
                    order
                })
            })
            .collect();
    }
    orders
}

fn play_with_claims(mut world: World<'_>, choice: Choice, order: &[&PodShape]) -> Vec<String> {
    let mut waiting = std::mem::take(&mut world.planned);
    waiting.sort_by_key(|planned| order.iter().position(|kind| **kind == *planned.pod.shape));
    world.planned = waiting;
    play(world, choice, None, Order::AsPlanned)
}

/// Who is let in first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    AsPlanned,
    SpreadFirst,
}

/// Binds pods as long as one of them gets in, stage by stage, within a stage those without affinity first, then
/// `first`; who is early in this order is asked again before each that is late. Those left do not get in.
fn let_in<'s>(
    world: &mut World<'s>,
    mut waiting: Vec<Planned<'s>>,
    first: Option<&Pod>,
    order: Order,
) -> Vec<Planned<'s>> {
    waiting.sort_by_key(|planned| {
        let is_first = first.is_some_and(|first| first.uid == planned.pod.uid);
        let is_late = order == Order::SpreadFirst && planned.pod.shape.topology_spread.is_empty();
        (planned.stage, !planned.pod.shape.pod_affinity.required.is_empty(), !is_first, is_late)
    });
    while let Some(stage) = waiting.first().map(|planned| planned.stage) {
        let is_due = |planned: &&Planned<'_>| planned.stage == stage;
        let mut due = waiting.iter().take_while(is_due);
        let Some(next) = due.position(|planned| filter::filter(world, planned.pod, planned.node).is_ok()) else {
            break;
        };
        let next = waiting.remove(next);
        world.bind(next.pod, next.node);
    }
    waiting
}

fn each_pod_once(snapshot: &Snapshot, plan: &Plan) -> Vec<String> {
    let mut seen: BTreeSet<PodId> = BTreeSet::new();
    let on_machines = plan.machines.iter().flat_map(|machine| &machine.pods);
    let placed = on_machines.chain(plan.existing.iter().flat_map(|placement| &placement.pods)).copied();
    let mut problems = Vec::new();
    for pod in placed.chain(plan.refusals.iter().map(|refusal| refusal.pod)) {
        if !seen.insert(pod) {
            problems.push(format!("{} is in the plan twice", snapshot.pods[pod].pod.name));
        }
    }
    let missing = snapshot.pods.ids().filter(|pod| !seen.contains(pod));
    problems.extend(missing.map(|pod| format!("{} is not in the plan", snapshot.pods[pod].pod.name)));
    problems
}

fn prices(snapshot: &Snapshot, plan: &Plan) -> Vec<String> {
    let mut problems = Vec::new();
    let mut sum: i128 = 0;
    for machine in &plan.machines {
        let pool = &snapshot.node_pools[machine.node_pool];
        let name = format!("{}-{}", pool.name, machine.index_in_pool);
        let launchable = launches::allowed(snapshot, machine).into_iter().filter(|&offering| {
            let offering = &pool.catalogue.offerings[offering];
            offering.available && offering.reservation.is_none_or(|reservation| reservation.remaining > 0)
        });
        let cheapest = launchable.map(|offering| pool.catalogue.offerings[offering].price).min();
        if cheapest != Some(machine.launch.price) {
            problems.push(format!("{name} is said to cost {}, and costs {cheapest:?}", machine.launch.price));
        }
        if machine.pods.is_empty() {
            problems.push(format!("{name} has no pods"));
        }
        sum += i128::from(machine.launch.price.0);
    }
    if sum != i128::from(plan.price.0) {
        problems.push(format!("the plan is said to cost {}, its machines cost {sum} n$/h", plan.price));
    }
    problems
}

fn limits(snapshot: &Snapshot, plan: &Plan) -> Vec<String> {
    let mut problems = Vec::new();
    for (id, pool) in snapshot.node_pools.iter_enumerated() {
        for entry in &pool.remaining {
            let taken = |offering| match entry.limit {
                Limit::Nodes => 1,
                Limit::Resource(resource) => pool.catalogue.offerings[offering].capacity.get(resource),
            };
            let machines = plan.machines.iter().filter(|machine| machine.node_pool == id);
            let most: i64 = machines
                .map(|machine| launches::allowed(snapshot, machine).into_iter().map(taken).max().unwrap_or(0))
                .sum();
            if most > 0 && most > entry.remaining {
                problems.push(format!(
                    "{} could take {most} of {:?}, {} are left",
                    pool.name, entry.limit, entry.remaining
                ));
            }
        }
    }
    problems
}
