//! Placing classes, in order of priority and size.
//!
//! Each class first goes where an earlier plan put its pods, then onto existing nodes (those furthest along first),
//! then into machines of this plan ([`super::choose`]). Copies go as many at a time as fit, so the work follows classes
//! and machines, not pods. Copies that are left over although the class would fit somewhere by itself are given to the
//! search in [`crate::simulation::placing::backtracking`] before the next class is placed, so that no class of lower
//! priority can stand in their way.

use std::collections::BTreeMap;

use model::{Answer, Budget, IdVec, NodeClaimName, SearchEnd, collections::NameMap};

use super::hosts::{place_with_hosts, retry_with_hosts};
use super::reservations;
use super::to_come::ToCome;
use crate::simulation::compile::classes::{ClassId, PodClass};
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::Packing;
use crate::simulation::packing::binding::rules_hold;
use crate::simulation::packing::devices::want_too_much;
use crate::simulation::packing::mode::Mode;
use crate::simulation::packing::plan_run::{Aim, PlanRun};
use crate::simulation::packing::state::{Charging, State};
use crate::simulation::placing::{backtracking, inter_pod};
use crate::simulation::topology::{Checking, GroupId, Kind};
use crate::{
    plan::{
        Verdict,
        rank::{Importance, PlanRank, WithoutPlace, refuses_no_more},
    },
    snapshot::{NodeId, PodId},
};

/// All placements, and what could not be placed.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) state: State,
    /// Pods that stay where an earlier plan put them.
    pub(crate) kept: Vec<(PodId, NodeId)>,
    pub(crate) refused: Vec<(ClassId, u32, Verdict)>,
    /// Set if the budget of the plan ended before it was known which domains there are: how many fills it took. Then
    /// more pods of classes that are spread over these could have a place.
    pub(crate) cut_short: Option<u32>,
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

    /// How good a plan it makes.
    pub(crate) fn rank(&self, problem: &Problem<'_>) -> PlanRank {
        let refused = self
            .refused
            .iter()
            .map(|&(class, count, _)| (Importance::Priority(problem.classes[class].priority), u64::from(count)));
        PlanRank { without_place: WithoutPlace::new(refused), cost: self.price() }
    }

    /// Whether no class has more copies without a place.
    pub(crate) fn refuses_no_more_than(&self, other: &Self) -> bool {
        let by_class = |filled: &Self| {
            let mut refused: BTreeMap<ClassId, u64> = BTreeMap::new();
            for &(class, count, _) in &filled.refused {
                *refused.entry(class).or_default() += u64::from(count);
            }
            refused
        };
        refuses_no_more(&by_class(self), &by_class(other))
    }
}

/// In which order places are looked for.
pub(crate) trait PlacingOrder {
    /// Places what the order has a way of its own for, of the waiting copies; all others go class by class. False if it
    /// is given up.
    fn begin(&self, packing: &mut Packing<'_>, waiting: &mut IdVec<ClassId, u32>) -> bool;

    /// The classes in the order of placing.
    fn sequence(&self, problem: &Problem<'_>) -> Vec<ClassId>;

    /// Whether the order exists to keep skews at every step, in whichever order pods are bound.
    fn keeps_skews(&self) -> bool;
}

/// Places everything that can be placed. What an order leaves over goes class by class. `None` if a limit of the aim is
/// exceeded, if the order exists to keep skews and a skew is broken for good, or if Karpenter's order takes too long.
pub(crate) fn fill(
    problem: &Problem<'_>,
    run: &PlanRun,
    aim: &Aim,
    budget: &mut Budget,
    order: &dyn PlacingOrder,
) -> Option<Filled> {
    let mut packing = Packing::new(problem, run, Charging::Least).with_aim(aim);
    // Pods stay where an earlier plan put them, so that a new plan does not move what machines were launched for.
    let kept = keep_earlier_placements(&mut packing);
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
    if !order.begin(&mut packing, &mut waiting) {
        return None;
    }
    // An empty packing tells whether a class would fit by itself; only such classes are worth a search.
    let at_the_end = Mode { checking: Checking::AtTheEnd, ..Mode::default() };
    let mut untouched = Packing::new(problem, run, Charging::Least).with_aim(aim).in_mode(at_the_end);
    let is_kept = order.keeps_skews() && run.ends_with_first_round(problem);
    let mut to_come = is_kept.then(|| ToCome::new(problem, &waiting));
    let mut refused = Vec::new();
    for class in order.sequence(problem) {
        let (pods, wanted) = (&problem.classes[class], waiting[class]);
        // A plan that is only made for comparison ends as soon as it cannot win.
        if aim.is_too_dear(packing.state.price()) || (pods.is_refused() && aim.is_too_many(class, wanted)) {
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
        let mut end = SearchEnd::default();
        let before = packing.state.assignments.len();
        let mut left = place(&mut packing, class, wanted).part_of(&mut end);
        if let Some(to_come) = &mut to_come
            && to_come.has_broken(
                problem,
                &packing.state,
                (class, wanted),
                packing.state.assignments.get(before..).unwrap_or_default(),
            )
        {
            return None;
        }
        // The search takes a step for each copy at least.
        if aim.is_too_many(class, left) && u64::from(left) > budget.remaining() {
            return None;
        }
        // Cheaper means come first: leaving reservations to this class, then moving other copies.
        left = reservations::make_room(&mut packing, class, left).part_of(&mut end);
        if left > 0 && keeps_itself_out(&packing, class).is_some() {
            refused.push((class, left, Verdict::DoesNotFit));
        } else if left > 0 && fits_alone(&mut untouched, class).part_of(&mut end) {
            let repaired = backtracking::place_more(packing, class, left, budget);
            packing = repaired.packing;
            left = repaired.left;
            if left > 0 {
                refused.push((class, left, repaired.why.verdict_after(end)));
            }
        } else if left > 0 {
            // The class does not even fit by itself. That is a proof, unless alternatives, steps or devices of other
            // machines were left out.
            let is_cut_off = problem.pools.iter().any(|table| table.cut_off.contains(class));
            let lacks_devices_of_others =
                backtracking::may_be_brought(problem, class) && fits_beside_devices(&mut untouched, class);
            let is_open = (is_cut_off || end.is_out_of_budget() || lacks_devices_of_others)
                && !want_too_much(&packing, &backtracking::with_one_more(&packing, class));
            let verdict = if is_open { Verdict::OutOfBudget } else { Verdict::DoesNotFit };
            refused.push((class, left, verdict));
        }
        if aim.is_too_many(class, left) {
            return None;
        }
    }
    let state = retry_with_hosts(packing, &mut refused, budget).state;
    let kept = kept.into_iter().map(|(_, pod, node)| (pod, node)).collect();
    (!aim.is_too_dear(state.price())).then_some(Filled { state, kept, refused, cut_short: None })
}

/// Puts pods where an earlier plan put them, as far as that still holds, oldest pods first. Pods that others have to
/// come before are tried again as long as some are kept; what was planned together may also be bound in an order of its
/// own. Nobody is refused here: who does not stay is placed with the others of its class.
fn keep_earlier_placements(packing: &mut Packing<'_>) -> Vec<(ClassId, PodId, NodeId)> {
    let problem = packing.problem;
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
    if waiting.is_empty() {
        packing.state.settle_start();
        return kept;
    }
    // The earlier plan may have spread the pods over domains that it opened, and these have nodes by now: see
    // `unopened`.
    packing.state.count_over(&problem.topology.domains_of_nodes());
    // `OwnOnly` is for pods that broke a skew which others keep: they may be where they are if they are bound first.
    for checking in [Checking::Stepwise, Checking::OwnOnly] {
        packing.checking(checking, |packing| {
            loop {
                let tried = waiting.len();
                waiting.retain(|&(class, pod, node)| {
                    let fits = packing.copies_on_node(node, class, 1).so_far() == 1;
                    if fits {
                        packing.place_on_node(node, class, 1);
                        kept.push((class, pod, node));
                    }
                    !fits
                });
                if waiting.is_empty() || waiting.len() == tried {
                    break;
                }
            }
        });
    }
    if !waiting.is_empty() {
        let mark = packing.mark();
        let all_fit = packing.checking(Checking::AtTheEnd, |packing| {
            waiting.iter().all(|&(class, _, node)| {
                let fits = packing.copies_on_node(node, class, 1).so_far() == 1;
                if fits {
                    packing.place_on_node(node, class, 1);
                }
                fits
            })
        });
        if all_fit && rules_hold(problem, &packing.state) {
            packing.commit(mark);
            kept.append(&mut waiting);
        } else {
            packing.rollback(mark);
        }
    }
    packing.state.settle_start();
    packing.state.learn(packing.run);
    kept
}

/// Places up to `wanted` copies and returns how many are left.
pub(crate) fn place(packing: &mut Packing<'_>, class: ClassId, wanted: u32) -> Answer<u32> {
    if wanted == 0 {
        return Answer::finished(0);
    }
    if packing.problem.classes[class].involved.is_empty() {
        return place_with_hosts(packing, class, wanted);
    }
    inter_pod::place(packing, class, wanted)
}

/// Places up to `wanted` copies on existing nodes and returns how many are left.
pub(crate) fn on_nodes(packing: &mut Packing<'_>, class: ClassId, wanted: u32) -> Answer<u32> {
    let mut end = SearchEnd::default();
    let mut left = wanted;
    let mut from = 0;
    while left > 0 {
        let Some((position, node)) = packing.next_node(from, class) else { break };
        from = position + 1;
        let copies = packing.copies_on_node(node, class, left).part_of(&mut end);
        if copies > 0 {
            packing.place_on_node(node, class, copies);
            left -= copies;
        }
    }
    Answer::new(left, end)
}

/// The anti-affinity rule that excludes the very pods which the class's affinity requires, if there are such pods. No
/// other arrangement helps.
pub(crate) fn keeps_itself_out(packing: &Packing<'_>, class: ClassId) -> Option<GroupId> {
    let problem = packing.problem;
    let groups = &problem.topology.groups;
    let own = || problem.classes[class].involved.iter().filter(|mine| mine.owner).map(|mine| mine.group);
    let mut near = own().filter(|&near| groups[near].kind == Kind::Affinity && packing.state.counts[near].total() > 0);
    near.find_map(|near| {
        let is_contrary = |away: &GroupId| {
            groups[*away].kind == Kind::AntiAffinity && groups[*away].concerns_the_same_as(&groups[near])
        };
        own().find(is_contrary)
    })
}

/// Whether one copy would have a place if nothing else were planned. If not, its refusal needs no search.
fn fits_alone(untouched: &mut Packing<'_>, class: ClassId) -> Answer<bool> {
    let problem = untouched.problem;
    let mut end = SearchEnd::default();
    let mut is_one = |copies: Answer<u32>| copies.part_of(&mut end) == 1;
    let fits = problem.node_order.iter().any(|&node| is_one(untouched.copies_on_node(node, class, 1)))
        || problem.pools.iter_enumerated().any(|(pool, table)| {
            let mut ways = table.by_class[class].iter();
            ways.any(|way| is_one(untouched.copies_in_new_bin(pool, class, way, 1)))
        });
    Answer::new(fits, end)
}

/// Whether one copy would have a place if nothing else were planned and there were devices for it.
fn fits_beside_devices(untouched: &mut Packing<'_>, class: ClassId) -> bool {
    let problem = untouched.problem;
    problem.node_order.iter().any(|&node| untouched.copies_beside_devices(node, class, 1) == 1)
        || problem.pools.iter_enumerated().any(|(pool, table)| {
            let mut ways = table.by_class[class].iter();
            ways.any(|alternative| untouched.new_bin_holds_beside_devices(pool, class, alternative))
        })
}
