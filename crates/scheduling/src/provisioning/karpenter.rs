//! Karpenter's order of packing, for comparison and as a plan that ours must never be dearer than.
//!
//! Pods go one by one, by CPU and then memory, largest first: onto an existing node, else into the open machine with
//! fewest pods that takes it, else into a new machine of the most preferred pool. A machine keeps every type that holds
//! its pods, and the cheapest of them is launched in the end. Pods without a place are tried again until nothing changes.
//!
//! Work grows with pods × machines, hence the bounds: on the machines that it will take at least before it is begun, and on
//! the steps while it goes.

use std::{cmp::Reverse, collections::BTreeMap};

use model::{IdVec, ResourceId};

use super::{
    classes::ClassId,
    fill::on_nodes,
    pools::PoolTable,
    problem::Problem,
    state::{BinId, State},
    topology::GroupId,
};

/// Most (pods × machines) for which the order is worth its time where nobody asked for it.
pub(crate) const MAX_WORK: u64 = 200_000;

/// The same where little can be saved.
pub(crate) const MAX_WORK_IF_CLOSE: u64 = 10_000;

/// Pods × machines for so many copies of each class, of which a plan took so many machines. In Karpenter's order it may be far
/// fewer: the largest, if nothing keeps pods apart.
pub(crate) fn work(problem: &Problem<'_>, placed: &IdVec<ClassId, u32>, machines: usize) -> u64 {
    let pods: u64 = placed.iter().map(|&copies| u64::from(copies)).sum();
    pods.saturating_mul(machines_at_least(problem, placed).min(machines as u64))
}

/// So many machines it takes for all pods, if existing nodes hold none of them: by room, and by pods that want a host each.
fn machines_at_least(problem: &Problem<'_>, placed: &IdVec<ClassId, u32>) -> u64 {
    let most_of = |resource: ResourceId| {
        let of_pool = |table: &PoolTable<'_>| table.members.iter().map(|id| table.net(id).get(resource)).max();
        problem.pools.iter().filter_map(of_pool).max().unwrap_or(0).max(1)
    };
    let by_room = [ResourceId::CPU, ResourceId::MEMORY, ResourceId::PODS].into_iter().map(|resource| {
        let requests = placed.iter_enumerated().map(|(class, &copies)| {
            i128::from(problem.classes[class].shape.requests.get(resource)) * i128::from(copies)
        });
        u64::try_from(requests.sum::<i128>() / i128::from(most_of(resource))).unwrap_or(u64::MAX)
    });
    let mut alone: BTreeMap<GroupId, u64> = BTreeMap::new();
    for (class, &copies) in placed.iter_enumerated() {
        for group in problem.topology.alone_on_host(&problem.classes[class]) {
            *alone.entry(group).or_default() += u64::from(copies);
        }
    }
    by_room.chain(alone.into_values()).max().unwrap_or(0).max(1)
}

/// Places what it can of the waiting copies; says whether it came to the end. Nobody waits for it but who asked for it.
pub(crate) fn place(
    problem: &Problem<'_>,
    state: &mut State,
    waiting: &mut IdVec<ClassId, u32>,
    is_asked_for: bool,
) -> bool {
    let mut steps = 0_u64;
    let mut order: Vec<ClassId> =
        waiting.ids().filter(|&class| waiting[class] > 0 && !problem.classes[class].is_refused()).collect();
    order.sort_by_key(|&class| {
        let requests = &problem.classes[class].shape.requests;
        (Reverse(requests.get(ResourceId::CPU)), Reverse(requests.get(ResourceId::MEMORY)), class)
    });
    loop {
        let before: u64 = waiting.iter().map(|&left| u64::from(left)).sum();
        for &class in &order {
            while waiting[class] > 0 && place_one(problem, state, class) {
                waiting[class] -= 1;
                steps += 1 + state.bins.len() as u64;
                if problem.is_too_dear(state.price()) || (steps > MAX_WORK && !is_asked_for) {
                    return false;
                }
            }
        }
        let after: u64 = waiting.iter().map(|&left| u64::from(left)).sum();
        if after == 0 || after == before {
            return true;
        }
    }
}

fn place_one(problem: &Problem<'_>, state: &mut State, class: ClassId) -> bool {
    on_nodes(problem, state, class, 1) == 0 || into_open(problem, state, class) || into_new(problem, state, class)
}

fn into_open(problem: &Problem<'_>, state: &mut State, class: ClassId) -> bool {
    let pods = |state: &State, id: BinId| -> u32 {
        state.bins.get(id.0).map_or(0, |bin| bin.contents.iter().map(|(_, _, copies)| copies).sum())
    };
    let mut open: Vec<(u32, BinId)> = (0..state.bins.len()).map(BinId).map(|id| (pods(state, id), id)).collect();
    open.sort_unstable();
    for (_, id) in open {
        let Some(pool) = state.bins.get(id.0).map(|bin| bin.pool) else { continue };
        for alternative in &problem.pools[pool].by_class[class] {
            if state.copies_in_bin(problem, id, class, alternative, 1) == 1 {
                state.place_in_bin(problem, id, class, alternative, 1);
                return true;
            }
        }
    }
    false
}

fn into_new(problem: &Problem<'_>, state: &mut State, class: ClassId) -> bool {
    for (pool, table) in problem.pools.iter_enumerated() {
        for alternative in &table.by_class[class] {
            if state.copies_in_new_bin(problem, pool, class, alternative, 1) == 1 {
                state.open_bin(problem, pool, class, alternative, 1);
                return true;
            }
        }
    }
    false
}
