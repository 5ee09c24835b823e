//! Placing classes, in order of priority and size.
//!
//! Each class first goes where an earlier plan put its pods, then onto existing nodes (those furthest along first), then
//! into machines of this plan ([`super::choose`]). Copies go as many at a time as fit, so the work follows classes and
//! machines, not pods. Copies that are left over although the
//! class would fit somewhere by itself are given to the search in [`super::repair`] before the next class is placed, so
//! that no class of lower priority can stand in their way.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeMap, BTreeSet},
};

use model::{Budget, IdVec, NodeClaimName, collections::NameMap};

use super::{
    choose,
    classes::{ClassId, PodClass},
    coupled,
    devices::{ProblemDevices, place_with_hosts, retry_with_hosts, want_too_much},
    karpenter, patterns,
    problem::Problem,
    repair, reservations,
    state::{Charging, State},
    topology::{Checking, GroupId, Kind, Scope, ToCome, rules_hold},
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

impl Filled {
    /// Copies of each class that have a place.
    pub(crate) fn placed(&self, problem: &Problem<'_>) -> IdVec<ClassId, u32> {
        let mut placed: IdVec<ClassId, u32> = problem.classes.iter().map(PodClass::count).collect();
        for &(class, count, _) in &self.refused {
            placed[class] = placed[class].saturating_sub(count);
        }
        placed
    }

    /// What the machines cost.
    pub(crate) fn price(&self) -> i128 {
        self.state.price()
    }

    /// Whether more important pods have places, or as many for less money.
    pub(crate) fn is_better_than(&self, other: &Self, problem: &Problem<'_>) -> bool {
        self.compare_refused(other, problem).then(self.price().cmp(&other.price())).is_lt()
    }

    /// Whether no class has more copies without a place.
    pub(crate) fn refuses_no_more_than(&self, other: &Self) -> bool {
        let of = |filled: &Self, class: ClassId| -> u64 {
            let refused = filled.refused.iter().filter(|(refused, _, _)| *refused == class);
            refused.map(|(_, count, _)| u64::from(*count)).sum()
        };
        self.refused.iter().all(|&(class, _, _)| of(self, class) <= of(other, class))
    }

    /// Fewer pods without a place are less, the more important ones first.
    pub(crate) fn compare_refused(&self, other: &Self, problem: &Problem<'_>) -> Ordering {
        let refused = |filled: &Self| {
            let mut by_priority: BTreeMap<Reverse<i32>, u64> = BTreeMap::new();
            for &(class, count, _) in &filled.refused {
                *by_priority.entry(Reverse(problem.classes[class].priority)).or_default() += u64::from(count);
            }
            by_priority
        };
        let (mine, others) = (refused(self), refused(other));
        let priorities: BTreeSet<Reverse<i32>> = mine.keys().chain(others.keys()).copied().collect();
        let counts = |of: &BTreeMap<Reverse<i32>, u64>| -> Vec<u64> {
            priorities.iter().map(|priority| of.get(priority).copied().unwrap_or(0)).collect()
        };
        counts(&mine).cmp(&counts(&others))
    }
}

/// In which order places are looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order<'w> {
    /// Class by class.
    Plain,
    /// The same, but first those that spreads of others count and that do not keep these themselves: whenever they are
    /// bound, the spreads are planned with them.
    CountedFirst,
    /// Classes that nothing couples get their machines pattern by pattern, by what a copy is worth.
    ByWorth(&'w IdVec<ClassId, i64>),
    /// Pod by pod, as Karpenter does it.
    Karpenter {
        /// Else it is given up where it takes too long.
        is_asked_for: bool,
    },
}

/// Places everything that can be placed. What an order leaves over goes class by class. `None` if the problem has a limit
/// that is not kept, if a skew is broken for good in the order that is there to keep them, and if Karpenter's order takes too
/// long.
pub(crate) fn fill(problem: &Problem<'_>, budget: &mut Budget, order: Order<'_>) -> Option<Filled> {
    let mut state = State::new(problem, Charging::Least);
    let kept = keep_earlier_placements(problem, &mut state);
    let mut kept_by_class = vec![0_u32; problem.classes.len()];
    for &(class, _, _) in &kept {
        if let Some(count) = kept_by_class.get_mut(model::Id::index(class)) {
            *count += 1;
        }
    }
    let members = problem.classes.iter_enumerated().map(|(class, pods)| {
        let members = pods.count();
        members - kept_by_class.get(model::Id::index(class)).copied().unwrap_or(0).min(members)
    });
    let mut waiting: IdVec<ClassId, u32> = members.collect();
    match order {
        Order::Plain | Order::CountedFirst => {}
        Order::ByWorth(worth) => by_worth(problem, &mut state, &mut waiting, worth),
        Order::Karpenter { is_asked_for } => {
            if !karpenter::place(problem, &mut state, &mut waiting, is_asked_for) {
                return None;
            }
        }
    }
    let mut untouched = State::new(problem, Charging::Least);
    untouched.checking = Checking::AtTheEnd;
    let keeps_skews = matches!(order, Order::CountedFirst) && problem.ends_with_first_round();
    let mut to_come = keeps_skews.then(|| ToCome::new(problem, &waiting));
    let mut refused = Vec::new();
    for class in sequence(problem, order) {
        let (pods, wanted) = (&problem.classes[class], waiting[class]);
        if problem.is_too_dear(state.price()) || (pods.is_refused() && problem.is_too_many(class, wanted)) {
            return None;
        }
        if let Some(obstacle) = &pods.refused {
            refused.push((class, wanted, obstacle.verdict()));
            continue;
        }
        if pods.claim_fault.is_some() {
            refused.push((class, wanted, Verdict::DoesNotFit));
            continue;
        }
        take_undecided(problem);
        let before = state.assignments.len();
        let mut left = place(problem, &mut state, class, wanted);
        if let Some(to_come) = &mut to_come
            && to_come.has_broken(problem, &state, (class, wanted), state.assignments.get(before..).unwrap_or_default())
        {
            return None;
        }
        // The search takes a step for each copy at least.
        if problem.is_too_many(class, left) && u64::from(left) > budget.remaining() {
            return None;
        }
        left = reservations::make_room(problem, &mut state, class, left);
        if left > 0 && keeps_itself_out(problem, &state, class).is_some() {
            refused.push((class, left, Verdict::DoesNotFit));
        } else if left > 0 && fits_alone(problem, &mut untouched, class) {
            let repaired = repair::place_more(problem, state, class, left, budget);
            state = repaired.state;
            left = repaired.left;
            if left > 0 {
                let is_open = take_undecided(problem) && !repaired.is_counted;
                let verdict = if is_open { Verdict::OutOfBudget } else { repaired.verdict };
                refused.push((class, left, verdict));
            }
        } else if left > 0 {
            let is_cut_off = problem.pools.iter().any(|table| table.cut_off.contains(class));
            let lacks_devices_of_others =
                repair::may_be_brought(problem, class) && fits_beside_devices(problem, &mut untouched, class);
            let is_open = (is_cut_off || take_undecided(problem) || lacks_devices_of_others)
                && !want_too_much(problem, &repair::with_one_more(&state, class));
            let verdict = if is_open { Verdict::OutOfBudget } else { Verdict::DoesNotFit };
            refused.push((class, left, verdict));
        }
        if problem.is_too_many(class, left) {
            return None;
        }
    }
    let state = retry_with_hosts(problem, state, &mut refused, budget);
    let kept = kept.into_iter().map(|(_, pod, node)| (pod, node)).collect();
    (!problem.is_too_dear(state.price())).then_some(Filled { state, kept, refused })
}

/// The classes in the order of placing.
fn sequence(problem: &Problem<'_>, order: Order<'_>) -> Vec<ClassId> {
    let classes = problem.classes.ids();
    match order {
        Order::Plain | Order::ByWorth(_) | Order::Karpenter { .. } => classes.collect(),
        Order::CountedFirst => counted_first(problem, classes.collect()),
    }
}

/// Each class after those that its spreads count and that do not keep them themselves, and after others that it wants to be
/// near to; where classes wait for each other, and otherwise, the order stays.
fn counted_first(problem: &Problem<'_>, mut left: Vec<ClassId>) -> Vec<ClassId> {
    // By group: classes to come that it counts, and those of them that have not to keep it.
    let mut counted: IdVec<GroupId, (usize, usize)> = problem.topology.groups.map(|_| (0, 0));
    for mine in problem.classes.iter().flat_map(|class| &class.involved).filter(|mine| mine.matched) {
        let (all, only_counted) = &mut counted[mine.group];
        *all += 1;
        *only_counted += usize::from(!mine.owner);
    }
    let is_ready = |class: ClassId, counted: &IdVec<GroupId, (usize, usize)>| {
        problem.classes[class].involved.iter().filter(|mine| mine.owner).all(|mine| {
            let (all, only_counted) = counted[mine.group];
            let group = &problem.topology.groups[mine.group];
            match group.kind {
                // There are always more hosts.
                Kind::Spread { .. } => only_counted == 0 || group.scope == Scope::Host,
                // Who is near to nobody but its own kind can begin; if others count as well and come first, it can't.
                Kind::Affinity => all == usize::from(mine.matched),
                Kind::AntiAffinity => true,
            }
        })
    };
    let mut sequence = Vec::with_capacity(left.len());
    // Those before were not ready, and nothing has changed for them since.
    let mut from = 0;
    while !left.is_empty() {
        let next = left.iter().skip(from).position(|&class| is_ready(class, &counted));
        let next = next.map_or(0, |next| from + next);
        let class = left.remove(next);
        from = next;
        for mine in problem.classes[class].involved.iter().filter(|mine| mine.matched) {
            let (all, only_counted) = &mut counted[mine.group];
            *all -= 1;
            *only_counted -= usize::from(!mine.owner);
            if *all <= 1 || *only_counted == 0 {
                from = 0;
            }
        }
        sequence.push(class);
    }
    sequence
}

/// Whether the allocation of devices left anything open since this was asked last.
fn take_undecided(problem: &Problem<'_>) -> bool {
    problem.devices.as_ref().is_some_and(ProblemDevices::take_undecided)
}

/// Puts pods where an earlier plan put them, as far as that still holds, oldest pods first. Pods that others have to come
/// before are tried again as long as some are kept; what was planned together may also be bound in an order of its own.
fn keep_earlier_placements(problem: &Problem<'_>, state: &mut State) -> Vec<(ClassId, PodId, NodeId)> {
    let mut by_claim: NameMap<NodeClaimName, NodeId> = NameMap::default();
    for (id, node) in problem.snapshot.nodes.iter_enumerated() {
        if let Some(claim) = &node.node_claim {
            by_claim.insert(claim.clone(), id);
        }
    }
    let mut waiting: Vec<(ClassId, PodId, NodeId)> = Vec::new();
    for (class, pods) in problem.classes.iter_enumerated() {
        let planned = |&pod: &PodId| {
            let claim = problem.snapshot.pods[pod].planned_on.as_ref()?;
            Some((class, pod, *by_claim.get(claim)?))
        };
        waiting.extend(pods.members.iter().filter_map(planned));
    }
    let mut kept = Vec::new();
    let before = state.checking;
    // `OwnOnly` as where they were planned: they may break a skew that others keep, if these are bound first.
    for checking in [Checking::Stepwise, Checking::OwnOnly] {
        state.checking = checking;
        loop {
            let tried = waiting.len();
            waiting.retain(|&(class, pod, node)| {
                let fits = state.copies_on_node(problem, node, class, 1) == 1;
                if fits {
                    state.place_on_node(problem, node, class, 1);
                    kept.push((class, pod, node));
                }
                !fits
            });
            if waiting.is_empty() || waiting.len() == tried {
                break;
            }
        }
    }
    if !waiting.is_empty() {
        state.checking = Checking::AtTheEnd;
        let mark = state.mark();
        let all_fit = waiting.iter().all(|&(class, _, node)| {
            let fits = state.copies_on_node(problem, node, class, 1) == 1;
            if fits {
                state.place_on_node(problem, node, class, 1);
            }
            fits
        });
        if all_fit && rules_hold(problem, state) {
            state.commit(mark);
            kept.append(&mut waiting);
        } else {
            state.rollback(problem, mark);
        }
    }
    state.checking = before;
    state.settle_start();
    kept
}

/// Places what goes by worth: what is coupled first, then whatever fits into room that is paid for, then patterns.
fn by_worth(problem: &Problem<'_>, state: &mut State, waiting: &mut IdVec<ClassId, u32>, worth: &IdVec<ClassId, i64>) {
    for class in problem.classes.ids().filter(|&class| !problem.classes[class].is_refused()) {
        let wanted = waiting[class];
        waiting[class] = if patterns::is_free(problem, class) {
            on_nodes(problem, state, class, wanted)
        } else {
            place(problem, state, class, wanted)
        };
    }
    for class in problem.classes.ids().filter(|&class| patterns::is_free(problem, class)) {
        waiting[class] = choose::into_paid_room(problem, state, class, waiting[class]);
    }
    patterns::place(problem, state, waiting, worth);
}

/// Places up to `wanted` copies and returns how many are left.
pub(crate) fn place(problem: &Problem<'_>, state: &mut State, class: ClassId, wanted: u32) -> u32 {
    if wanted == 0 {
        return 0;
    }
    if problem.classes[class].involved.is_empty() {
        return place_with_hosts(problem, state, class, wanted);
    }
    coupled::place(problem, state, class, wanted)
}

/// Places up to `wanted` copies on existing nodes and returns how many are left.
pub(crate) fn on_nodes(problem: &Problem<'_>, state: &mut State, class: ClassId, wanted: u32) -> u32 {
    let mut left = wanted;
    let mut from = 0;
    while left > 0 {
        let Some((position, node)) = state.next_node(problem, from, class) else { break };
        from = position + 1;
        let copies = state.copies_on_node(problem, node, class, left);
        if copies > 0 {
            state.place_on_node(problem, node, class, copies);
            left -= copies;
        }
    }
    left
}

/// The rule by which the class has to be away from the very pods to which it has to be near, if there is one of these: another
/// arrangement has them too.
pub(crate) fn keeps_itself_out(problem: &Problem<'_>, state: &State, class: ClassId) -> Option<GroupId> {
    let groups = &problem.topology.groups;
    let own = || problem.classes[class].involved.iter().filter(|mine| mine.owner).map(|mine| mine.group);
    let mut near = own().filter(|&near| groups[near].kind == Kind::Affinity && state.counts[near].total() > 0);
    near.find_map(|near| {
        let is_contrary = |away: &GroupId| {
            groups[*away].kind == Kind::AntiAffinity && groups[*away].concerns_the_same_as(&groups[near])
        };
        own().find(is_contrary)
    })
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

/// Whether one copy would have a place if nothing else were planned and there were devices for it.
fn fits_beside_devices(problem: &Problem<'_>, untouched: &mut State, class: ClassId) -> bool {
    problem.node_order.iter().any(|&node| untouched.copies_beside_devices(problem, node, class, 1) == 1)
        || problem.pools.iter_enumerated().any(|(pool, table)| {
            let mut ways = table.by_class[class].iter();
            ways.any(|alternative| untouched.new_bin_holds_beside_devices(problem, pool, class, alternative))
        })
}
