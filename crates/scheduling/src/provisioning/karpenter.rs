//! Karpenter's order of packing, for comparison and as a plan that ours must never be dearer than.
//!
//! Pods go one by one, by CPU and then memory, largest first: onto an existing node, else into the open machine with
//! fewest pods that takes it, else into a new machine of the most preferred pool. A machine keeps every type that holds
//! its pods, and the cheapest of them is launched in the end. Pods without a place are tried again until nothing changes.
//!
//! Work grows with pods × machines, hence the bound.

use std::cmp::Reverse;

use model::{IdVec, ResourceId};

use super::{
    classes::ClassId,
    fill::on_nodes,
    problem::Problem,
    state::{BinId, State},
};

/// Most (pods × machines of the plan so far) for which the order is worth its time where nobody asked for it.
pub(crate) const MAX_WORK: u64 = 200_000;

/// Places what it can of the waiting copies.
pub(crate) fn place(problem: &Problem<'_>, state: &mut State, waiting: &mut IdVec<ClassId, u32>) {
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
                if problem.is_too_dear(state.price()) {
                    return;
                }
            }
        }
        let after: u64 = waiting.iter().map(|&left| u64::from(left)).sum();
        if after == 0 || after == before {
            return;
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
