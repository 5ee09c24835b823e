//! Placing classes, in order of priority and size.
//!
//! Each class first goes where an earlier plan put its pods, then onto existing nodes (those furthest along first), then
//! into machines opened for earlier classes, then into new machines of the most preferred pool that takes it. Copies go
//! as many at a time as fit, so the work follows classes and machines, not pods. Copies that are left over although the
//! class would fit somewhere by itself are given to the search in [`super::repair`] before the next class is placed, so
//! that no class of lower priority can stand in their way.

use model::{Budget, NodeClaimName, PriceNanoUsdPerHour, collections::NameMap};

use super::{
    classes::ClassId,
    pools::{Alternative, PoolRank},
    problem::Problem,
    repair,
    state::{BinId, Charging, State},
};
use crate::{
    plan::Verdict,
    snapshot::{NodeId, PodId},
};

/// All placements, and what could not be placed.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) state: State,
    /// Pods that stay where an earlier plan put them.
    pub(crate) kept: Vec<(PodId, NodeId)>,
    pub(crate) refused: Vec<(ClassId, u32, Verdict)>,
}

/// Places everything that can be placed.
pub(crate) fn fill(problem: &Problem<'_>, budget: &mut Budget) -> Filled {
    let mut state = State::new(problem, Charging::Least);
    let kept = keep_earlier_placements(problem, &mut state);
    let mut kept_by_class = vec![0_u32; problem.classes.len()];
    for &(class, _, _) in &kept {
        if let Some(count) = kept_by_class.get_mut(model::Id::index(class)) {
            *count += 1;
        }
    }
    let mut untouched = State::new(problem, Charging::Least);
    let mut refused = Vec::new();
    for (class, pods) in problem.classes.iter_enumerated() {
        let members = u32::try_from(pods.members.len()).unwrap_or(u32::MAX);
        let wanted = members - kept_by_class.get(model::Id::index(class)).copied().unwrap_or(0).min(members);
        if pods.refused.is_some() {
            refused.push((class, wanted, Verdict::Unsupported));
            continue;
        }
        let mut left = place(problem, &mut state, class, wanted);
        if left > 0 && fits_alone(problem, &mut untouched, class) {
            let repaired = repair::place_more(problem, state, class, left, budget);
            state = repaired.state;
            left = repaired.left;
            if left > 0 {
                refused.push((class, left, repaired.verdict));
            }
        } else if left > 0 {
            refused.push((class, left, Verdict::DoesNotFit));
        }
    }
    Filled { state, kept: kept.into_iter().map(|(_, pod, node)| (pod, node)).collect(), refused }
}

/// Puts pods where an earlier plan put them, as far as that still holds, oldest pods first.
fn keep_earlier_placements(problem: &Problem<'_>, state: &mut State) -> Vec<(ClassId, PodId, NodeId)> {
    let mut by_claim: NameMap<NodeClaimName, NodeId> = NameMap::default();
    for (id, node) in problem.snapshot.nodes.iter_enumerated() {
        if let Some(claim) = &node.node_claim {
            by_claim.insert(claim.clone(), id);
        }
    }
    let mut kept = Vec::new();
    for (class, pods) in problem.classes.iter_enumerated() {
        for &pod in &pods.members {
            let Some(claim) = &problem.snapshot.pods[pod].planned_on else { continue };
            let Some(&node) = by_claim.get(claim) else { continue };
            if state.copies_on_node(problem, node, class, 1) == 1 {
                state.place_on_node(problem, node, class, 1);
                kept.push((class, pod, node));
            }
        }
    }
    state.settle_start();
    kept
}

/// Places up to `wanted` copies and returns how many are left.
pub(crate) fn place(problem: &Problem<'_>, state: &mut State, class: ClassId, wanted: u32) -> u32 {
    let mut left = wanted;
    for &node in &problem.node_order {
        if left == 0 {
            return 0;
        }
        let copies = state.copies_on_node(problem, node, class, left);
        if copies > 0 {
            state.place_on_node(problem, node, class, copies);
            left -= copies;
        }
    }
    for bin in 0..state.bins.len() {
        if left == 0 {
            return 0;
        }
        left -= place_in_bin(problem, state, BinId(bin), class, left);
    }
    while left > 0 {
        let Some((pool, alternative, copies)) = best_new_bin(problem, state, class, left) else { break };
        state.open_bin(problem, pool, class, alternative, copies);
        left -= copies;
    }
    left
}

/// Places copies in an open machine, by the term that takes most of them.
fn place_in_bin(problem: &Problem<'_>, state: &mut State, bin: BinId, class: ClassId, wanted: u32) -> u32 {
    let Some(pool) = state.bins.get(bin.0).map(|bin| bin.pool) else { return 0 };
    let mut best: Option<(&Alternative, u32)> = None;
    for alternative in &problem.pools[pool].by_class[class] {
        let copies = state.copies_in_bin(problem, bin, class, alternative, wanted);
        if copies > best.map_or(0, |(_, most)| most) {
            best = Some((alternative, copies));
        }
    }
    let Some((alternative, copies)) = best else { return 0 };
    state.place_in_bin(problem, bin, class, alternative, copies);
    copies
}

/// The first pool that takes the class, and of its terms the one with the cheapest offering for a single copy; the
/// first of equals.
fn best_new_bin<'p>(
    problem: &'p Problem<'_>,
    state: &mut State,
    class: ClassId,
    wanted: u32,
) -> Option<(PoolRank, &'p Alternative, u32)> {
    for (pool, table) in problem.pools.iter_enumerated() {
        let mut best: Option<(PriceNanoUsdPerHour, &Alternative, u32)> = None;
        for alternative in &table.by_class[class] {
            let copies = state.copies_in_new_bin(problem, pool, class, alternative, wanted);
            if copies == 0 {
                continue;
            }
            let cheapest = cheapest(problem, pool, class, alternative);
            if best.is_none_or(|(price, _, _)| cheapest < price) {
                best = Some((cheapest, alternative, copies));
            }
        }
        if let Some((_, alternative, copies)) = best {
            return Some((pool, alternative, copies));
        }
    }
    None
}

/// The lowest price of an offering that holds one copy.
fn cheapest(problem: &Problem<'_>, pool: PoolRank, class: ClassId, alternative: &Alternative) -> PriceNanoUsdPerHour {
    let table = &problem.pools[pool];
    let requests = &problem.classes[class].shape.requests;
    alternative
        .offerings
        .iter()
        .filter(|&offering| requests.fits_in(&table.net[offering]))
        .map(|offering| table.catalogue.offerings[offering].price)
        .min()
        .unwrap_or(PriceNanoUsdPerHour(i64::MAX))
}

/// Whether one copy would have a place if nothing else were planned. If not, its refusal needs no search.
fn fits_alone(problem: &Problem<'_>, untouched: &mut State, class: ClassId) -> bool {
    problem.node_order.iter().any(|&node| untouched.copies_on_node(problem, node, class, 1) == 1)
        || problem.pools.iter_enumerated().any(|(pool, table)| {
            table.by_class[class]
                .iter()
                .any(|alternative| untouched.copies_in_new_bin(problem, pool, class, alternative, 1) == 1)
        })
}
