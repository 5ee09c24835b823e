//! Orders of placing: which class comes when, and which machine it opens.

pub(crate) mod budget;
pub(crate) mod karpenter;
mod order;
pub(crate) mod patterns;

use std::collections::BTreeSet;

use crate::bound;
use crate::bound::{Relaxed, Solved};
use crate::plan::{Plan, Verdict};
use crate::provisioning::assemble::assemble;
use crate::provisioning::orders::budget::PlanBudget;
use crate::provisioning::orders::order::Order;
use crate::simulation::compile::classes::{ClassId, PodClass};
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::Limit;
use crate::simulation::packing::Packing;
use crate::simulation::packing::binding::{late_on_open_nodes, rules_hold, skews_hold};
use crate::simulation::packing::outside::keep_outside;
use crate::simulation::packing::plan_run::{Aim, LimitByClass, PlanRun};
use crate::simulation::packing::unopened::unopened;
use crate::simulation::placing::fill;
use crate::simulation::placing::fill::Filled;
use crate::tuning::{CLOSE, COMPARED_STEPS, OUTSIDE_STEPS, WORTH_A_SECOND};
use model::{Budget, IdVec, PriceNanoUsdPerHour};

/// What the making of one plan shares among all requests that passes make of it.
#[derive(Debug, Default)]
pub(crate) struct Planning {
    /// How often all of them may be packed together.
    pub(crate) budget: PlanBudget,
    /// Relaxations that were solved for plans before.
    solved: Solved,
    /// What a copy of each class was worth in the last plan without a limit.
    pub(crate) worth: IdVec<ClassId, i64>,
}

#[cfg(test)]
impl Planning {
    /// With a budget of so many fills.
    pub(crate) fn within(fills: u32) -> Self {
        Self { budget: PlanBudget::new(fills), ..Self::default() }
    }
}

/// Plans in the order that comes out best. `None` only if the plan is compared, and keeps no limit or has no budget.
pub(crate) fn plan_in_best_order(problem: &Problem<'_>, planning: &mut Planning) -> Option<Plan> {
    match problem.request.limit() {
        None => whole(problem, planning),
        Some(limit) => within(problem, limit, planning),
    }
}

fn whole(problem: &Problem<'_>, planning: &mut Planning) -> Option<Plan> {
    let aim = Aim::of(problem.request.purpose());
    let mut run = PlanRun::new(problem);
    let first = fill_first(problem, &mut run, &aim, &mut planning.budget)?;
    let placed = first.0.placed(problem);
    let relaxed = bound::relax(problem, &run, &placed, &planning.solved);
    let bounds = Bounds { placed: &placed, relaxed: &relaxed, solved: &planning.solved };
    let plan = improved(problem, (run, first), &aim.compared(), bounds, &mut planning.budget);
    planning.worth = relaxed.worth;
    plan
}

fn within(problem: &Problem<'_>, limit: &Limit, planning: &mut Planning) -> Option<Plan> {
    let Planning { budget, solved, .. } = planning;
    let refused = |class: &PodClass| class.members.iter().filter(|pod| limit.refused.contains(pod)).count();
    let refused = problem.classes.map(|class| u32::try_from(refused(class)).unwrap_or(u32::MAX));
    let counts = problem.classes.iter().zip(&refused).map(|(class, refused)| class.count().saturating_sub(*refused));
    let placed: IdVec<ClassId, u32> = counts.collect();
    let mut run = PlanRun::new(problem);
    let relaxed = bound::relax(problem, &run, &placed, solved);
    if i128::from(relaxed.bound.0) > limit.cost {
        return None;
    }
    // By worth it may come out cheaper than in the plain order.
    let margin = if has_choice(problem, &placed) { limit.cost / CLOSE } else { 0 };
    let limit = LimitByClass { cost: limit.cost.saturating_add(margin), refused };
    let aim = Aim { limit: Some(limit), ..Aim::of(problem.request.purpose()) };
    let first = fill_first(problem, &mut run, &aim, budget)?;
    if first.0.placed(problem) != placed {
        return None;
    }
    let bounds = Bounds { placed: &placed, relaxed: &relaxed, solved };
    improved(problem, (run, first), &aim.compared(), bounds, budget)
}

/// What plans are measured against.
#[derive(Clone, Copy)]
pub(crate) struct Bounds<'a> {
    /// How many copies of each class have a place in the first of them.
    placed: &'a IdVec<ClassId, u32>,
    /// What these cost at least.
    relaxed: &'a Relaxed,
    /// Relaxations that were solved for plans before.
    solved: &'a Solved,
}

/// Whether the order matters to what is placed: what rules or devices couple goes in the plain order anyway.
pub(crate) fn has_choice(problem: &Problem<'_>, placed: &IdVec<ClassId, u32>) -> bool {
    problem.classes.ids().any(|class| placed[class] > 0 && problem.is_free(class))
}

/// The first plan, made in the plain order by that run, or a better one in another order. `None` if the aim has a
/// limit, and keeps it only with pods that come to open nodes before they should.
fn improved(
    problem: &Problem<'_>,
    (mut run, first): (PlanRun, (Filled, u64)),
    aim: &Aim,
    bounds: Bounds<'_>,
    budget: &mut PlanBudget,
) -> Option<Plan> {
    let Bounds { placed, relaxed, solved } = bounds;
    let mut best = first;
    let bound = i128::from(relaxed.bound.0);
    let has_choice = has_choice(problem, placed);
    // Karpenter takes any alternative of a claim on any machine.
    let is_comparable = !problem.classes.iter().any(PodClass::has_alternatives);
    let is_dearer = |best: &(Filled, u64)| best.0.price() > bound;
    // What is held to another plan's cost is not dearer than Karpenter's order if that plan is not.
    let is_limited = aim.limit.is_some();
    // Beyond that other orders only make the plan cheaper.
    let is_open = |best: &(Filled, u64)| best.0.refused.iter().any(|(_, _, verdict)| *verdict == Verdict::OutOfBudget);
    let cheaper = |run: &mut PlanRun, order: Order<'_>, best: &Filled, budget: &mut PlanBudget| {
        let other = fill_all(problem, run, &cheaper_than(best, problem, run, aim), order, budget)?;
        // The plain order sees to it that there is an order of binding; others may not.
        (other.0.rank(problem) < best.rank(problem) && rules_hold(problem, &other.0.state)).then_some(other)
    };
    // Where little can be gained a second plan is not worth its time.
    let by_worth = [(&relaxed.worth, bound), (&relaxed.other_worth, bound + bound / WORTH_A_SECOND)];
    for (worth, enough) in by_worth.into_iter().filter(|_| has_choice) {
        if best.0.price() > enough
            && let Some(other) = cheaper(&mut run, Order::ByWorth(worth), &best.0, budget)
        {
            best = other;
        }
    }
    // Karpenter's order is compared with what will be kept.
    let mut less_sure = None;
    // Plans that were made since may have shown more domains.
    best.0.state.learn(&run);
    if !skews_hold(problem, &best.0.state)
        && let Some(other) = surer(problem, &mut run, aim, &best.0, budget)
    {
        less_sure = Some(std::mem::replace(&mut best, other));
    }
    if is_comparable
        && ((is_dearer(&best) && !is_limited) || is_open(&best))
        && let Some(other) = cheaper(&mut run, Order::Karpenter { is_asked_for: false }, &best.0, budget)
    {
        let is_sure = skews_hold(problem, &other.0.state);
        best = match less_sure {
            // Neither is surer than the other.
            Some(before) if !is_sure && other.0.rank(problem) >= before.0.rank(problem) => before,
            _ => other,
        };
    }
    let bound_of = |run: &PlanRun, filled: &Filled| {
        let now_placed = filled.placed(problem);
        if now_placed == *placed { relaxed.bound } else { bound::relax(problem, run, &now_placed, solved).bound }
    };
    // By the problem in which all nodes may be used, so that it is one of every plan.
    let mut bound = bound_of(&run, &best.0);
    best.0.state.learn(&run);
    let baseline = Baseline { plan: &best.0, worth: &relaxed.worth };
    if let Some(other) = over_opened_domains(problem, &run, aim, baseline, budget) {
        (run, best) = other;
    }
    let off;
    let mut problem = problem;
    if let Some(other) = off_open_nodes(problem, &run, aim, &best.0, budget) {
        let filled = other.filled;
        if aim.is_too_dear(filled.0.price()) {
            return None;
        }
        if filled.0.placed(&other.problem) != best.0.placed(problem) {
            bound = bound_of(&run, &filled.0);
        }
        off = other.problem;
        (problem, run, best) = (&off, other.run, filled);
    }
    let kept_apart = price_of_keeping_apart(problem, &mut run, aim, &best.0, budget);
    let (filled, steps) = best;
    Some(Plan { kept_apart, ..assemble(problem, &run, filled, bound, steps) })
}

/// A plan, and what a copy of each class is worth in it.
#[derive(Clone, Copy)]
struct Baseline<'a> {
    plan: &'a Filled,
    worth: &'a IdVec<ClassId, i64>,
}

/// A plan that spreads pods over the domains which nodes and its machines have, and no others, so that it gives them
/// the room on nodes that kube-scheduler would (fidelity seeds 831032 and 831082). `None` if the plan leaves none, or
/// no such plan places as much for no more.
fn over_opened_domains(
    problem: &Problem<'_>,
    run: &PlanRun,
    aim: &Aim,
    baseline: Baseline<'_>,
    budget: &mut PlanBudget,
) -> Option<(PlanRun, (Filled, u64))> {
    let Baseline { plan, worth } = baseline;
    let refused = plan.refused.iter().map(|(class, _, _)| *class).collect();
    let unopened = unopened(problem, &plan.state, &refused);
    if unopened.is_empty() {
        return None;
    }
    let mut fewer = run.afresh().kept_out_as(problem, run);
    for (group, domains) in unopened {
        fewer.close(problem, group, domains);
    }
    let other = [Order::Plain, Order::ByWorth(worth)].into_iter().find_map(|order| {
        let other = fill_all(problem, &mut fewer, aim, order, budget)?;
        let is_as_good = other.0.placed(problem) == plan.placed(problem) && other.0.price() <= plan.price();
        (is_as_good && rules_hold(problem, &other.0.state)).then_some(other)
    })?;
    Some((fewer, other))
}

/// A plan of another problem, with the run that made it.
struct OffOpenNodes<'s> {
    problem: Problem<'s>,
    run: PlanRun,
    filled: (Filled, u64),
}

/// A plan without pods that have to be bound after others on nodes that are open: such a node lets them in as soon as
/// kube-scheduler likes, which may be too soon (fidelity seed 2036: pods that a spread counts came to an open node with
/// the first of those that keep it, and the next had no place). `None` if there are none, or no fewer of them without
/// others losing their places.
fn off_open_nodes<'s>(
    problem: &Problem<'s>,
    run: &PlanRun,
    aim: &Aim,
    plan: &Filled,
    budget: &mut PlanBudget,
) -> Option<OffOpenNodes<'s>> {
    let (classes, late) = late_on_open_nodes(problem, &plan.state);
    if classes.is_empty() {
        return None;
    }
    let off = problem.off_open_nodes(&classes);
    let mut off_run = PlanRun::new(&off).kept_out_as(&off, run);
    // What it costs is looked at by the caller.
    let limit = aim.limit.clone().map(|limit| LimitByClass { cost: i128::MAX, ..limit });
    let at_any_cost = Aim { limit, ..aim.clone() };
    let is_comparable = !problem.classes.iter().any(PodClass::has_alternatives);
    let karpenters = is_comparable.then_some(Order::Karpenter { is_asked_for: false });
    let filled = [Order::Plain, Order::CountedFirst].into_iter().chain(karpenters).find_map(|order| {
        let other = fill_all(&off, &mut off_run, &at_any_cost, order, budget)?;
        let (_, still_late) = late_on_open_nodes(&off, &other.0.state);
        let is_surer = still_late < late && other.0.refuses_no_more_than(plan) && rules_hold(&off, &other.0.state);
        is_surer.then_some(other)
    })?;
    Some(OffOpenNodes { problem: off, run: off_run, filled })
}

/// The aim to be cheaper than a plan with a place for each pod: another is given up as soon as it is known not to be.
fn cheaper_than(best: &Filled, problem: &Problem<'_>, run: &PlanRun, aim: &Aim) -> Aim {
    if !best.refused.is_empty() || !run.ends_with_first_round(problem) {
        return aim.clone();
    }
    let limit = LimitByClass { cost: best.price() - 1, refused: problem.classes.map(|_| 0) };
    Aim { limit: Some(limit), ..aim.clone() }
}

/// A plan that places as much and does not depend on which pods are bound first: machines come in any order.
fn surer(
    problem: &Problem<'_>,
    run: &mut PlanRun,
    aim: &Aim,
    plan: &Filled,
    budget: &mut PlanBudget,
) -> Option<(Filled, u64)> {
    let other = fill_all(problem, run, aim, Order::CountedFirst, budget)?;
    let places = |filled: &Filled| filled.rank(problem).without_place;
    (places(&other.0) <= places(plan) && skews_hold(problem, &other.0.state)).then_some(other)
}

/// What it costs that claims were kept apart so that they get their devices in every order; `None` if none were, or if
/// there is no budget to find out.
fn price_of_keeping_apart(
    problem: &Problem<'_>,
    run: &mut PlanRun,
    aim: &Aim,
    filled: &Filled,
    budget: &mut PlanBudget,
) -> Option<PriceNanoUsdPerHour> {
    if !run.devices().kept_apart {
        return None;
    }
    let own_order = Aim { in_its_own_order: true, ..aim.clone() };
    let (without, _) = fill_all(problem, run, &own_order, Order::Plain, budget)?;
    let price = filled.price().saturating_sub(without.price()).max(0);
    Some(PriceNanoUsdPerHour(i64::try_from(price).unwrap_or(i64::MAX)))
}

/// Places everything in the plain order. Where pods have no place and machines for others add domains to their spread,
/// these are kept out of such domains, if that gives more pods a place; else Karpenter's order may put them onto one
/// machine. Pods with claims that are refused without a proof come first if that gives them a place and takes none from
/// others.
fn fill_first(problem: &Problem<'_>, run: &mut PlanRun, aim: &Aim, budget: &mut PlanBudget) -> Option<(Filled, u64)> {
    let mut best = fill_all(problem, run, aim, Order::Plain, budget);
    let compared = aim.compared();
    for (keeps_outside, order) in [(true, Order::Plain), (false, Order::Karpenter { is_asked_for: false })] {
        let could_gain = match &best {
            Some((filled, _)) => {
                filled.refused.iter().any(|(class, _, _)| run.is_spread_over_added(&problem.classes[*class]))
            }
            None => problem.classes.iter().any(|class| run.is_spread_over_added(class)),
        };
        let is_comparable = keeps_outside || !problem.classes.iter().any(PodClass::has_alternatives);
        if !could_gain || !is_comparable {
            break;
        }
        let mut apart = run.afresh();
        apart.keeps_outside = keeps_outside;
        let Some(other) = fill_all(problem, &mut apart, &compared, order, budget) else { continue };
        let places = |filled: &Filled| filled.rank(problem).without_place;
        let is_better = |best: &(Filled, u64)| places(&other.0) < places(&best.0);
        if best.as_ref().is_none_or(is_better) && (keeps_outside || rules_hold(problem, &other.0.state)) {
            *run = apart;
            best = Some(other);
        }
    }
    let undecided = best.as_ref().and_then(|(plan, _)| undecided_first(problem, run, &compared, plan, budget));
    if let Some((other_run, other)) = undecided {
        *run = other_run;
        best = Some(other);
    }
    best
}

/// A plan that places classes with claims first of which a plan does not know that they have no place, where others
/// claim devices too: who could have taken devices of another zone may have taken those that they depend on (fidelity
/// seed 461135). `None` if there are no such classes, or if it gives them no place or takes one from others.
fn undecided_first(
    problem: &Problem<'_>,
    run: &PlanRun,
    aim: &Aim,
    plan: &Filled,
    budget: &mut PlanBudget,
) -> Option<(PlanRun, (Filled, u64))> {
    let has_claims = |class: ClassId| problem.classes[class].devices.is_some();
    let undecided =
        plan.refused.iter().filter(|(class, _, verdict)| *verdict == Verdict::OutOfBudget && has_claims(*class));
    let undecided: BTreeSet<ClassId> = undecided.map(|(class, _, _)| *class).collect();
    let is_other =
        |class: ClassId| has_claims(class) && !problem.classes[class].is_refused() && !undecided.contains(&class);
    if undecided.is_empty() || !problem.classes.ids().any(is_other) {
        return None;
    }
    let mut anew = run.afresh();
    anew.keeps_outside = run.keeps_outside;
    let other = fill_all(problem, &mut anew, aim, Order::First(&undecided), budget)?;
    let places_more = other.0.rank(problem).without_place < plan.rank(problem).without_place;
    let is_better = places_more && other.0.refuses_no_more_than(plan) && rules_hold(problem, &other.0.state);
    is_better.then_some((anew, other))
}

/// Places everything in one order; says how many steps the search for contended room took. `None` if the aim has a
/// limit that is not kept, or if the plan is to be compared and there is no budget for it.
fn fill_all(
    problem: &Problem<'_>,
    run: &mut PlanRun,
    aim: &Aim,
    order: Order<'_>,
    fills: &mut PlanBudget,
) -> Option<(Filled, u64)> {
    let options = &problem.snapshot.options;
    // What the plain order has to search for, others need not find as well, nor a plan that keeps preferences.
    let steps = match order {
        Order::Plain if run.keeps_outside => options.search_steps.min(OUTSIDE_STEPS),
        Order::Plain if problem.request.limit().is_none() => options.search_steps,
        Order::Plain | Order::CountedFirst | Order::First(_) | Order::ByWorth(_) | Order::Karpenter { .. } => {
            options.search_steps.min(COMPARED_STEPS)
        }
    };
    loop {
        let is_last_round = fills.is_short();
        if !fills.take(aim.purpose) {
            return None;
        }
        if is_last_round {
            // There will be no further round, so the plan has to hold with all domains that it could add.
            run.open_all(problem);
        }
        let mut budget = Budget::new(steps);
        run.devices().refill(options.device_steps);
        run.avoid_adding(problem);
        let mut filled = fill::fill(problem, run, aim, &mut budget, &order)?;
        // Nobody loses a place so that others have one. Ends, because classes are finitely many.
        if run.avoid_none(filled.refused.iter().map(|(class, _, _)| *class)) {
            continue;
        }
        if run.keeps_outside {
            let mut packing = Packing::of(problem, run, filled.state);
            keep_outside(&mut packing);
            filled.state = packing.state;
        }
        filled.cut_short = is_last_round.then(|| fills.taken());
        // Ends, because each round adds a domain and there are finitely many.
        if !run.open_planned(problem, &filled.state.bins) {
            return Some((filled, steps.saturating_sub(budget.remaining())));
        }
    }
}

/// Plans in Karpenter's order of packing alone.
pub(crate) fn plan_in_karpenters_order(problem: &Problem<'_>, planning: &mut Planning) -> Option<Plan> {
    let mut run = PlanRun::new(problem);
    let (order, aim) = (Order::Karpenter { is_asked_for: true }, Aim::of(problem.request.purpose()));
    let (filled, steps) = fill_all(problem, &mut run, &aim, order, &mut planning.budget)?;
    let bound = bound::relax(problem, &run, &filled.placed(problem), &planning.solved).bound;
    Some(assemble(problem, &run, filled, bound, steps))
}
