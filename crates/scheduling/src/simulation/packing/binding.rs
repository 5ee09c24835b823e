//! In which order what is placed can be bound.
//!
//! Where all skews hold once everything is bound, every order comes to its end: the domain with least can always be
//! filled up. Where they do not, some domain has more pods than an owner there may find, and those too many have to
//! come after it. They are taken out from the end ([`stages`]): of the pods that a spread only counts, as many as its
//! domain has too many, then once more with what is left, until all skews hold. What was taken out last is bound first.
//! For one spread this finds an order if there is one; for several that count each other's pods it is a heuristic,
//! whose result is replayed.

use std::collections::BTreeSet;

use model::IdSet;

use super::state::{Assignment, Mark, State, Target};
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::problem::Problem;
use crate::simulation::topology::{AllCounts, Checking, DomainId, GroupId, Involvement, Place};
use crate::tuning::{MAX_STAGES, PLACEMENTS_PER_STEP};

/// Whether what is placed keeps the rules that are not checked with each step while [`Checking::AtTheEnd`].
pub(crate) fn rules_hold(problem: &Problem<'_>, state: &State) -> bool {
    can_bind(problem, state, skews_hold(problem, state), |_| true)
}

/// Whether all spreads hold once everything is bound. If not, there are pods that would not come where they are planned
/// if others were there first.
pub(crate) fn skews_hold(problem: &Problem<'_>, state: &State) -> bool {
    problem.topology.groups.iter().zip(state.counts.iter()).all(|(group, counts)| group.skew_holds(counts))
}

/// Whether rules hold for what was placed since the mark, if what was placed before keeps them: only domains that got
/// pods can have too many, and an order of binding has to be looked for only if these have to do with affinity, and
/// only for classes that have to do with what was placed.
pub(crate) fn rules_hold_since(problem: &Problem<'_>, state: &State, mark: &Mark) -> bool {
    let skews_hold = state
        .counted_since(mark)
        .all(|(group, domain)| problem.topology.groups[group].skew_holds_in(&state.counts[group], domain));
    let topology = &problem.topology;
    let parts: IdSet<GroupId> = state.counted_since(mark).map(|(group, _)| topology.part(group)).collect();
    let concerns_affinity = || parts.iter().any(|part| topology.has_affinity(part));
    if !skews_hold || (state.has_affinity() && concerns_affinity()) {
        can_bind(problem, state, skews_hold, |part| parts.contains(part))
    } else {
        true
    }
}

/// What [`rules_hold`] takes, in steps of the search: an eighth of the placements that it may go through, about as much
/// as an attempt to place one costs.
pub(crate) fn replay_steps(problem: &Problem<'_>, state: &State) -> u64 {
    let involved = state.assignments.iter().filter(|entry| !problem.classes[entry.class].involved.is_empty());
    let (mut entries, mut orders) = (0_u64, 1_u64);
    for entry in involved {
        entries += 1;
        orders += u64::from(problem.classes[entry.class].waits_for_others());
    }
    entries * orders / PLACEMENTS_PER_STEP
}

/// Copies that have to be bound after others: by position among the assignments.
pub(crate) type Stage = Vec<(usize, u32)>;

/// Which copies have to be bound after the rest, stage by stage; none if any order will do. `None` if no such order is
/// found.
pub(crate) fn stages(problem: &Problem<'_>, state: &State) -> Option<Vec<Stage>> {
    let groups = &problem.topology.groups;
    if skews_hold(problem, state) {
        return Some(Vec::new());
    }
    let mut counts = state.counts.clone();
    let mut left: Vec<u32> = state.assignments.iter().map(|entry| entry.copies).collect();
    let mut stages: Vec<Stage> = Vec::new();
    loop {
        let too_full: BTreeSet<(GroupId, DomainId)> = groups
            .iter_enumerated()
            .flat_map(|(id, group)| group.too_full(&counts[id]).map(move |domain| (id, domain)))
            .collect();
        if too_full.is_empty() {
            break;
        }
        let mut stage = Stage::new();
        for ((index, entry), left) in state.assignments.iter().enumerate().zip(&mut left).rev() {
            let class = &problem.classes[entry.class];
            let places = || {
                class.involved.iter().enumerate().filter_map(|(position, mine)| {
                    match state.place_of(problem, entry, position) {
                        Place::Domain(domain) => Some((mine, domain)),
                        Place::OwnHost | Place::Outside | Place::Unknown => None,
                    }
                })
            };
            // A pod cannot come last if it finds its own domain too full.
            let is_too_late =
                |(mine, domain): (&Involvement, DomainId)| mine.owner && too_full.contains(&(mine.group, domain));
            if *left == 0 || places().any(is_too_late) {
                continue;
            }
            let counted = places().filter(|(mine, domain)| mine.matched && too_full.contains(&(mine.group, *domain)));
            let excess = counted.map(|(mine, domain)| groups[mine.group].excess(&counts[mine.group], domain)).max();
            let copies = excess.unwrap_or(0).min(*left);
            if copies == 0 {
                continue;
            }
            let count = |counts: bool| if counts { copies } else { 0 };
            for (mine, domain) in places() {
                counts[mine.group].remove(domain, count(mine.matched), count(mine.owner));
            }
            *left -= copies;
            stage.push((index, copies));
        }
        if stage.is_empty() {
            // Pods that stay where an earlier plan put them are bound in its order.
            let is_ours = |(id, domain): &(GroupId, DomainId)| {
                counts[*id].owners(*domain) > state.counts_at_start()[*id].owners(*domain)
            };
            if too_full.iter().any(is_ours) {
                return None;
            }
            break;
        }
        if stages.len() == MAX_STAGES {
            return None;
        }
        stages.push(stage);
    }
    stages.reverse();
    Some(stages)
}

/// Classes with copies that have to be bound after others and are on open nodes, and the number of these copies: nobody
/// can keep pods from an open node until others are bound.
pub(crate) fn late_on_open_nodes(problem: &Problem<'_>, state: &State) -> (BTreeSet<ClassId>, u32) {
    let stages = stages(problem, state).unwrap_or_default();
    let late = stages.iter().flatten().filter_map(|(index, copies)| Some((state.assignments.get(*index)?, *copies)));
    let on_open = late.filter(|(entry, _)| match entry.target {
        Target::Node(node) => problem.is_open_node(node),
        Target::Bin(_) => false,
    });
    on_open.fold((BTreeSet::new(), 0), |(mut classes, count), (entry, copies)| {
        classes.insert(entry.class);
        (classes, count + copies)
    })
}

/// Copies to bind, those of each stage after all before.
type Queue<'s> = Vec<(usize, &'s Assignment, u32)>;

/// Whether what is placed can be bound in some order, each pod where it is planned. Without affinity there is one if
/// the skews hold at the end. Otherwise this looks for one: stage by stage, and within a stage in the order of placing,
/// except that pods with required affinity come last, since kube-scheduler does not wait with the others. Of pods that
/// have to be together each is tried as the first. Only classes of the wanted parts are looked at.
fn can_bind(problem: &Problem<'_>, state: &State, skews_hold: bool, is_wanted: impl Fn(GroupId) -> bool) -> bool {
    let has_affinity = |class: ClassId| problem.classes[class].waits_for_others();
    let stages = if skews_hold { Some(Vec::new()) } else { stages(problem, state) };
    let Some(stages) = stages else { return false };
    let mut first: Vec<u32> = state.assignments.iter().map(|entry| entry.copies).collect();
    let mut queue: Queue<'_> = Vec::new();
    for (stage, copies) in stages.iter().enumerate() {
        for &(index, copies) in copies {
            let (Some(entry), Some(first)) = (state.assignments.get(index), first.get_mut(index)) else { continue };
            *first -= copies;
            queue.push((stage + 1, entry, copies));
        }
    }
    queue.extend(
        state.assignments.iter().zip(first).filter(|(_, copies)| *copies > 0).map(|(entry, copies)| (0, entry, copies)),
    );
    queue.retain(|(_, entry, _)| problem.topology.part_of(&problem.classes[entry.class]).is_some_and(&is_wanted));
    queue.sort_by_key(|(stage, entry, _)| (*stage, has_affinity(entry.class)));
    let mut begins = queue.iter().enumerate().filter(|(_, (_, entry, _))| has_affinity(entry.class)).peekable();
    if begins.peek().is_none() {
        return skews_hold || binds_in_order(problem, state, &queue);
    }
    begins.any(|(begins, (stage, _, _))| {
        let first = queue.partition_point(|(of, entry, _)| (*of, has_affinity(entry.class)) < (*stage, true));
        let mut order = queue.clone();
        if let Some(slice) = order.get_mut(first..=begins) {
            slice.rotate_right(1);
        }
        binds_in_order(problem, state, &order)
    })
}

/// Binds pods as long as one of them can be bound, stage by stage.
fn binds_in_order(problem: &Problem<'_>, state: &State, queue: &Queue<'_>) -> bool {
    let mut counts = state.counts_at_start().clone();
    queue.chunk_by(|(one, _, _), (other, _, _)| one == other).all(|stage| {
        let waiting = stage.iter().map(|&(_, entry, copies)| (entry, copies)).collect();
        binds(problem, state, &mut counts, waiting)
    })
}

fn binds(problem: &Problem<'_>, state: &State, counts: &mut AllCounts, mut waiting: Vec<(&Assignment, u32)>) -> bool {
    loop {
        let mut changed = false;
        for (entry, left) in &mut waiting {
            let class = &problem.classes[entry.class];
            let place = |position: usize, _: &Involvement| state.place_of(problem, entry, position);
            let known = |position: usize, mine: &Involvement| Some(place(position, mine));
            let copies = problem.topology.room(counts, Checking::OwnOnly, class, known, *left);
            if copies == 0 {
                continue;
            }
            for (position, mine) in class.involved.iter().enumerate() {
                if let Place::Domain(domain) = place(position, mine) {
                    let count = |counts: bool| if counts { copies } else { 0 };
                    counts[mine.group].add(domain, count(mine.matched), count(mine.owner));
                }
            }
            *left -= copies;
            changed = true;
        }
        waiting.retain(|(_, left)| *left > 0);
        if waiting.is_empty() {
            return true;
        }
        if !changed {
            return false;
        }
    }
}
