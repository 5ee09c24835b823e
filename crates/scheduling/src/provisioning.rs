//! The provisioning planner: which pods go where, and which machines to create for the rest.
//!
//! 1. `problem`: the snapshot is compiled. Pods of one shape become a class (`classes`); each usable NodePool gets a
//!    table of its offerings with daemon overhead subtracted (`pools`, `daemons`, `fit_index`); label requirements become
//!    bitsets of offerings and of nodes (`affinity`).
//! 2. `fill`: classes are placed by priority and size, on existing nodes first, then by price (`choose`); `state` journals what is taken, `limits`
//!    counts it against the pools' limits, `repair` searches for room where it is contended.
//! 3. `relaxation`: what these pods must cost at least, and what a copy of each class is worth. If the plan costs more, it
//!    is made once more with machines filled by worth (`patterns`), and the better one is kept.
//! 4. `preferences`: the same once more with preferences as requirements, which are kept where they cost nothing.
//! 5. `gangs`: the same once more without the PodGroups that did not get the places they need. `group_domains`: the same for each
//!    domain that a PodGroup could be in, if it has to be in one. Around it all `buffers` makes pods of the room that is to be kept
//!    free, and takes them out of the plan again.
//! 6. `launch`: open machines become NodeClaims; `explain` gives reasons for what has no place.
//!
//! `placed` says afterwards, of a finished plan and for one pod, which rule decided where it goes.
//!
//! Work grows with classes × (nodes + machines) and classes × offerings / 64, not with pods.

mod affinity;
mod alike;
mod attachments;
mod bare;
mod buffers;
mod catalogue_index;
mod choose;
mod classes;
mod coupled;
pub(crate) mod daemons;
mod devices;
mod exchange;
mod explain;
mod fill;
mod fit_index;
mod gangs;
mod group_domains;
mod growth;
mod host_rooms;
mod karpenter;
mod launch;
mod limits;
mod patterns;
mod placed;
mod pools;
mod preferences;
mod problem;
mod relaxation;
mod remedies;
mod repair;
mod reservations;
mod slack;
mod staircase;
mod state;
mod supported;
mod together;
mod topology;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{Budget, IdVec, PriceNanoUsdPerHour};

pub use self::{
    bare::{Obstacle, bare_room, obstacle},
    buffers::with_virtual_pods,
    placed::why_placed,
};
use self::{
    classes::{ClassId, PodClass},
    devices::ProblemDevices,
    fill::{Filled, Order},
    problem::{LimitByClass, Problem},
    relaxation::{Relaxed, Solved},
    state::Target,
    topology::{rules_hold, skews_hold},
};
use crate::{
    plan::{ExistingPlacement, Machine, MachineId, Plan, Refusal, Verdict},
    reason::{Note, NoteKind, Reason},
    snapshot::{NodeId, PodId, Snapshot},
};

/// A plan that is dearer than its lower bound by less than one part in so many needs no further comparison.
const CLOSE: i128 = 20;

/// Above the bound by one part in so many, a plan that goes by worth is made with other prices too.
const WORTH_A_SECOND: i128 = 100;

/// Steps that the search for contended room may take in a plan that is only made to be compared.
pub(crate) const COMPARED_STEPS: u64 = 2_000;

/// The same where machines are kept out of domains: what more has a place then seldom has to be searched for.
const OUTSIDE_STEPS: u64 = 250;

/// Plans every pending pod of the snapshot. Never fails: what can't be placed is refused with reasons, and what can't be
/// decided within `Options::search_steps` is refused as undecided.
pub fn plan(snapshot: &Snapshot) -> Plan {
    with_everything(snapshot, |snapshot| {
        let solved = Solved::default();
        let within = |snapshot: &Snapshot, limit: &Limit| plan_within(snapshot, limit, &solved);
        gangs::whole(snapshot, |snapshot| preferences::keep(snapshot, plan_requirements(snapshot, &solved), within))
    })
}

/// The same in Karpenter's order of packing and by what pods require alone, to compare with.
pub fn plan_in_karpenters_order(snapshot: &Snapshot) -> Plan {
    with_everything(snapshot, |snapshot| gangs::whole(snapshot, pack_in_karpenters_order))
}

/// Plans with the pods of buffers among the others, and with volumes as a resource.
fn with_everything(snapshot: &Snapshot, plan: impl Fn(&Snapshot) -> Plan) -> Plan {
    let plan = |snapshot: &Snapshot| group_domains::in_one_domain(snapshot, &plan);
    let Some(with) = buffers::as_pods(snapshot) else { return with_attachments(snapshot, plan) };
    buffers::set_aside(with_attachments(&with, plan), snapshot)
}

/// Plans with volumes as a resource, where some are limited.
fn with_attachments(snapshot: &Snapshot, plan: impl Fn(&Snapshot) -> Plan) -> Plan {
    let Some(with) = attachments::as_resources(snapshot) else { return plan(snapshot) };
    let mut plan = plan(&with);
    attachments::forget(&mut plan, snapshot);
    plan
}

fn pack_in_karpenters_order(snapshot: &Snapshot) -> Plan {
    let mut problem = Problem::new(snapshot);
    let (filled, steps) = fill_all(&mut problem, Order::Karpenter { is_asked_for: true }).expect(WITHOUT_LIMIT);
    let bound = relaxation::relax(&problem, &filled.placed(&problem), &Solved::default()).bound;
    assemble(&problem, filled, bound, steps)
}

const WITHOUT_LIMIT: &str = "only a plan with a limit is given up";

/// What a plan may cost that is only made to be compared with another, and which pods it may leave without a place.
#[derive(Debug, Clone)]
pub(crate) struct Limit {
    /// Of machines and nodes.
    cost: i128,
    refused: BTreeSet<PodId>,
}

/// Plans by what pods require alone.
fn plan_requirements(snapshot: &Snapshot, solved: &Solved) -> Plan {
    let problem = Problem::new(snapshot);
    let mut together = together::groups(&problem);
    if together.is_empty() {
        return plan_alone(problem, solved).0;
    }
    let classes = class_of_each(&problem);
    let (mut plan, worth) = plan_alone(problem, solved);
    let worth_of = |pod: PodId| classes[pod].map_or(0, |class| worth[class]);
    if plan.refusals.is_empty() && !together::is_worth_trying(&together, &plan, worth_of) {
        return plan;
    }
    // A group for which no machine is large enough is better planned pod by pod, so the others are tried without it.
    for _ in 0..2 {
        let Some(uncoupled) = together::uncouple(snapshot, &together, Some(&plan)) else { break };
        let other = uncoupled.expand(plan_alone(Problem::new(&uncoupled.snapshot), solved).0, snapshot);
        let before = together.len();
        together::keep_placed(&mut together, &other);
        plan = better(plan, other, &classes);
        if together.len() == before {
            break;
        }
    }
    plan
}

/// The plan, and what a copy of each class is worth.
fn plan_alone(mut problem: Problem<'_>, solved: &Solved) -> (Plan, IdVec<ClassId, i64>) {
    let first = fill_first(&mut problem).expect(WITHOUT_LIMIT);
    let placed = first.0.placed(&problem);
    let relaxed = relaxation::relax(&problem, &placed, solved);
    (improved(problem, first, &placed, &relaxed, solved).expect(WITHOUT_LIMIT), relaxed.worth)
}

/// By pod: its class.
type ClassOf = IdVec<PodId, Option<ClassId>>;

fn class_of_each(problem: &Problem<'_>) -> ClassOf {
    let mut class_of = IdVec::filled(None, problem.snapshot.pods.len());
    for (id, class) in problem.classes.iter_enumerated() {
        class.members.iter().for_each(|&pod| class_of[pod] = Some(id));
    }
    class_of
}

/// Of two plans the one that refuses fewer pods, if it refuses no more of any class, or the cheaper one if both refuse the same:
/// then what bounds one bounds the other. Reasons and notes are those of the first.
fn better(plan: Plan, other: Plan, class_of: &ClassOf) -> Plan {
    let by_class = |plan: &Plan| {
        let mut refused: BTreeMap<Option<ClassId>, usize> = BTreeMap::new();
        plan.refusals.iter().for_each(|it| *refused.entry(class_of[it.pod]).or_default() += 1);
        refused
    };
    let (before, after) = (by_class(&plan), by_class(&other));
    let device_steps = plan.device_steps.saturating_add(other.device_steps);
    if after.iter().any(|(class, count)| before.get(class).is_none_or(|before| before < count)) {
        return Plan { device_steps, ..plan };
    }
    let has_more = after != before;
    let lower_bound = if has_more { other.lower_bound } else { plan.lower_bound.max(other.lower_bound) };
    if !has_more && other.cost() >= plan.cost() {
        return Plan { lower_bound, device_steps, ..plan };
    }
    let mut known: BTreeMap<PodId, &Refusal> = BTreeMap::new();
    let mut alike: BTreeMap<Option<ClassId>, &Refusal> = BTreeMap::new();
    for refusal in &plan.refusals {
        known.insert(refusal.pod, refusal);
        alike.entry(class_of[refusal.pod]).or_insert(refusal);
    }
    let reason = |refused: Refusal| {
        let same = known.get(&refused.pod).or_else(|| alike.get(&class_of[refused.pod])).copied();
        same.map_or(refused.clone(), |known| Refusal { pod: refused.pod, ..known.clone() })
    };
    let refusals = other.refusals.into_iter().map(reason).collect();
    let search_steps = plan.search_steps.max(other.search_steps);
    Plan { notes: plan.notes, refusals, search_steps, lower_bound, device_steps, ..other }
}

/// The same as long as the limit is kept; `None` as soon as it is known that it is not.
fn plan_within(snapshot: &Snapshot, limit: &Limit, solved: &Solved) -> Option<Plan> {
    let problem = Problem::new(snapshot);
    let together = together::groups(&problem);
    let found = plan_alone_within(problem, limit, solved);
    if found.is_some() || together.is_empty() {
        return found;
    }
    let uncoupled = together::uncouple(snapshot, &together, None)?;
    let refused = limit.refused.iter().copied().chain(uncoupled.out()).collect();
    let limit = Limit { refused, ..limit.clone() };
    let found = plan_alone_within(Problem::new(&uncoupled.snapshot), &limit, solved)?;
    Some(uncoupled.expand(found, snapshot))
}

fn plan_alone_within(mut problem: Problem<'_>, limit: &Limit, solved: &Solved) -> Option<Plan> {
    let refused = |class: &PodClass| class.members.iter().filter(|pod| limit.refused.contains(pod)).count();
    let refused = problem.classes.map(|class| u32::try_from(refused(class)).unwrap_or(u32::MAX));
    let counts = problem.classes.iter().zip(&refused).map(|(class, refused)| class.count().saturating_sub(*refused));
    let placed: IdVec<ClassId, u32> = counts.collect();
    let relaxed = relaxation::relax(&problem, &placed, solved);
    if i128::from(relaxed.bound.0) > limit.cost {
        return None;
    }
    // By worth it may come out cheaper than in the plain order.
    let margin = if has_choice(&problem, &placed) { limit.cost / CLOSE } else { 0 };
    problem.limit = Some(LimitByClass { cost: limit.cost.saturating_add(margin), refused });
    let first = fill_first(&mut problem)?;
    if first.0.placed(&problem) != placed {
        return None;
    }
    improved(problem, first, &placed, &relaxed, solved)
}

/// Whether the order matters to what is placed: what rules or devices couple goes in the plain order anyway.
fn has_choice(problem: &Problem<'_>, placed: &IdVec<ClassId, u32>) -> bool {
    problem.classes.ids().any(|class| placed[class] > 0 && patterns::is_free(problem, class))
}

/// The plan in the plain order, or a better one in another order. `None` if the problem has a limit, and keeps it only with pods
/// that come to open nodes before they should.
fn improved(
    mut problem: Problem<'_>,
    first: (Filled, u64),
    placed: &IdVec<ClassId, u32>,
    relaxed: &Relaxed,
    solved: &Solved,
) -> Option<Plan> {
    let mut best = first;
    let bound = i128::from(relaxed.bound.0);
    let has_choice = has_choice(&problem, placed);
    // Karpenter takes any alternative of a claim on any machine.
    let is_comparable = !problem.classes.iter().any(PodClass::has_alternatives);
    let is_dearer = |best: &(Filled, u64)| best.0.price() > bound;
    // What is held to another plan's cost is not dearer than Karpenter's order if that plan is not.
    let is_limited = problem.limit.is_some();
    // Beyond that other orders only make the plan cheaper.
    let is_open = |best: &(Filled, u64)| best.0.refused.iter().any(|(_, _, verdict)| *verdict == Verdict::OutOfBudget);
    let cheaper = |problem: &mut Problem<'_>, order: Order<'_>, best: &Filled| {
        let other = fill_cheaper(problem, order, best)?;
        // The plain order sees to it that there is an order of binding; others may not.
        (other.0.is_better_than(best, problem) && rules_hold(problem, &other.0.state)).then_some(other)
    };
    // Where little can be gained a second plan is not worth its time.
    let by_worth = [(&relaxed.worth, bound), (&relaxed.other_worth, bound + bound / WORTH_A_SECOND)];
    for (worth, enough) in by_worth.into_iter().filter(|_| has_choice) {
        if best.0.price() > enough
            && let Some(other) = cheaper(&mut problem, Order::ByWorth(worth), &best.0)
        {
            best = other;
        }
    }
    // Karpenter's order is compared with what will be kept.
    let mut less_sure = None;
    if !skews_hold(&problem, &best.0.state)
        && let Some(other) = surer(&mut problem, &best.0)
    {
        less_sure = Some(std::mem::replace(&mut best, other));
    }
    if is_comparable
        && ((is_dearer(&best) && !is_limited) || is_open(&best))
        && let Some(other) = cheaper(&mut problem, Order::Karpenter { is_asked_for: false }, &best.0)
    {
        let is_sure = skews_hold(&problem, &other.0.state);
        best = match less_sure {
            // Neither is surer than the other.
            Some(before) if !is_sure && !other.0.is_better_than(&before.0, &problem) => before,
            _ => other,
        };
    }
    let bound_of = |problem: &Problem<'_>, filled: &Filled| {
        let now_placed = filled.placed(problem);
        if now_placed == *placed { relaxed.bound } else { relaxation::relax(problem, &now_placed, solved).bound }
    };
    // By the problem in which all nodes may be used, so that it is one of every plan.
    let mut bound = bound_of(&problem, &best.0);
    if let Some((other, filled)) = off_open_nodes(&problem, &best.0) {
        if other.is_too_dear(filled.0.price()) {
            return None;
        }
        if filled.0.placed(&other) != best.0.placed(&problem) {
            bound = bound_of(&problem, &filled.0);
        }
        (problem, best) = (other, filled);
    }
    let kept_apart = price_of_keeping_apart(&mut problem, &best.0);
    let (filled, steps) = best;
    Some(Plan { kept_apart, ..assemble(&problem, filled, bound, steps) })
}

/// The same without pods that have to be bound after others on nodes that are open: such a node lets them in as soon as
/// kube-scheduler likes, which may be too soon (fidelity seed 2036: pods that a spread counts came to an open node with the first
/// of those that keep it, and the next had no place). `None` if there are none, or no fewer of them without others losing their
/// places.
fn off_open_nodes<'s>(problem: &Problem<'s>, plan: &Filled) -> Option<(Problem<'s>, (Filled, u64))> {
    let (classes, late) = topology::late_on_open_nodes(problem, &plan.state);
    if classes.is_empty() {
        return None;
    }
    let mut off = Problem::new(problem.snapshot);
    off.keeps_outside = problem.keeps_outside;
    off.limit = problem.limit.clone();
    off.kept_off_open_nodes = classes;
    // What it costs is looked at by the caller.
    let cost = off.limit.as_mut().map(|limit| std::mem::replace(&mut limit.cost, i128::MAX));
    let is_comparable = !problem.classes.iter().any(PodClass::has_alternatives);
    let karpenters = is_comparable.then_some(Order::Karpenter { is_asked_for: false });
    let other = [Order::Plain, Order::CountedFirst].into_iter().chain(karpenters).find_map(|order| {
        let other = fill_all(&mut off, order)?;
        let (_, still_late) = topology::late_on_open_nodes(&off, &other.0.state);
        let is_surer = still_late < late && other.0.refuses_no_more_than(plan) && rules_hold(&off, &other.0.state);
        is_surer.then_some(other)
    })?;
    if let (Some(limit), Some(cost)) = (&mut off.limit, cost) {
        limit.cost = cost;
    }
    Some((off, other))
}

/// Places everything in another order; `None` as soon as it is known to be no better than a plan with a place for each pod.
fn fill_cheaper(problem: &mut Problem<'_>, order: Order<'_>, best: &Filled) -> Option<(Filled, u64)> {
    if !best.refused.is_empty() || !problem.ends_with_first_round() {
        return fill_all(problem, order);
    }
    let limit = LimitByClass { cost: best.price() - 1, refused: problem.classes.map(|_| 0) };
    let before = problem.limit.replace(limit);
    let other = fill_all(problem, order);
    problem.limit = before;
    other
}

/// A plan that places as much and does not depend on which pods are bound first: machines come in any order.
fn surer(problem: &mut Problem<'_>, plan: &Filled) -> Option<(Filled, u64)> {
    let other = fill_all(problem, Order::CountedFirst)?;
    (other.0.compare_refused(plan, problem).is_le() && skews_hold(problem, &other.0.state)).then_some(other)
}

/// What it costs that claims were kept apart so that they get their devices in every order; `None` if none were.
fn price_of_keeping_apart(problem: &mut Problem<'_>, filled: &Filled) -> Option<PriceNanoUsdPerHour> {
    let set = |problem: &Problem<'_>, any_order: bool| {
        if let Some(devices) = &problem.devices {
            devices.any_order.set(any_order);
        }
    };
    if !problem.devices.as_ref()?.kept_apart.get() {
        return None;
    }
    set(problem, true);
    let without = fill_all(problem, Order::Plain);
    set(problem, false);
    let (without, _) = without?;
    let price = filled.price().saturating_sub(without.price()).max(0);
    Some(PriceNanoUsdPerHour(i64::try_from(price).unwrap_or(i64::MAX)))
}

/// Places everything in the plain order. Where pods have no place and machines for others add domains to their spread, these
/// are kept out of such domains, if that gives more pods a place; else Karpenter's order may put them onto one machine.
fn fill_first(problem: &mut Problem<'_>) -> Option<(Filled, u64)> {
    let mut best = fill_all(problem, Order::Plain);
    for (keeps_outside, order) in [(true, Order::Plain), (false, Order::Karpenter { is_asked_for: false })] {
        let could_gain = match &best {
            Some((filled, _)) => filled.refused.iter().any(|(class, _, _)| problem.is_spread_over_added(*class)),
            None => problem.classes.ids().any(|class| problem.is_spread_over_added(class)),
        };
        let is_comparable = keeps_outside || !problem.classes.iter().any(PodClass::has_alternatives);
        if !could_gain || !is_comparable {
            break;
        }
        let mut apart = Problem::new(problem.snapshot);
        apart.keeps_outside = keeps_outside;
        apart.limit = problem.limit.clone();
        let Some(other) = fill_all(&mut apart, order) else { continue };
        let is_better = |best: &(Filled, u64)| other.0.compare_refused(&best.0, problem).is_lt();
        if best.as_ref().is_none_or(is_better) && (keeps_outside || rules_hold(&apart, &other.0.state)) {
            *problem = apart;
            best = Some(other);
        }
    }
    best
}

/// Places everything in one order; says how many steps the search for contended room took. `None` if the problem has a
/// limit that is not kept.
fn fill_all(problem: &mut Problem<'_>, order: Order<'_>) -> Option<(Filled, u64)> {
    let options = &problem.snapshot.options;
    // What the plain order has to search for, others need not find as well.
    let steps = match order {
        Order::Plain if problem.keeps_outside => options.search_steps.min(OUTSIDE_STEPS),
        Order::Plain => options.search_steps,
        Order::CountedFirst | Order::ByWorth(_) | Order::Karpenter { .. } => options.search_steps.min(COMPARED_STEPS),
    };
    loop {
        let mut budget = Budget::new(steps);
        if let Some(devices) = &problem.devices {
            devices.refill(options.device_steps);
        }
        problem.avoid_adding();
        let mut filled = fill::fill(problem, &mut budget, order)?;
        // Nobody loses a place so that others have one. Ends, because classes are finitely many.
        if problem.avoid_none(filled.refused.iter().map(|(class, _, _)| *class)) {
            continue;
        }
        if problem.keeps_outside {
            topology::keep_outside(problem, &mut filled.state);
        }
        // Ends, because each round adds a domain and there are finitely many.
        if !problem.topology.open_planned(&problem.pools, &filled.state.bins, &problem.snapshot.interner) {
            return Some((filled, steps.saturating_sub(budget.remaining())));
        }
    }
}

fn assemble(problem: &Problem<'_>, filled: Filled, lower_bound: PriceNanoUsdPerHour, search_steps: u64) -> Plan {
    let Filled { state, kept, refused } = filled;
    let mut dealt = Dealt::new(problem, &state.bins, kept);
    let stages = topology::stages(problem, &state).unwrap_or_default();
    let mut comes_later: BTreeMap<usize, Vec<(usize, u32)>> = BTreeMap::new();
    for (stage, copies) in stages.iter().enumerate() {
        for &(assignment, copies) in copies {
            comes_later.entry(assignment).or_default().push((stage, copies));
        }
    }
    let mut later = vec![Vec::new(); stages.len()];
    for (index, assignment) in state.assignments.iter().enumerate() {
        let pods = dealt.take(assignment.class, assignment.copies);
        let mut last = pods.iter().rev();
        for &(stage, copies) in comes_later.get(&index).into_iter().flatten().rev() {
            if let Some(later) = later.get_mut(stage) {
                later.extend(last.by_ref().take(copies as usize).copied());
            }
        }
        dealt.put(assignment.target, pods);
    }
    let launch::Launched { machines, deferred } = launch::machines(problem, &state, &dealt.on_bins);
    let machines: IdVec<MachineId, Machine> = machines.into();
    let mut refusals = Vec::new();
    // The bound is of what has a place.
    let lower_bound = if deferred.is_empty() { lower_bound } else { PriceNanoUsdPerHour::ZERO };
    for (pods, reservation) in deferred {
        let reservation = problem.names().value_name(reservation);
        let what = format!("reservation {reservation} is used up by other machines of this plan").into();
        let reasons: Arc<[Reason]> = [Reason::WaitsFor { what }].into();
        later.iter_mut().for_each(|later: &mut Vec<PodId>| later.retain(|pod| !pods.contains(pod)));
        let refusal = |pod| Refusal { pod, verdict: Verdict::Waits, reasons: Arc::clone(&reasons) };
        refusals.extend(pods.into_iter().map(refusal));
    }
    let mut survey = remedies::Survey::default();
    for (class, count, verdict) in refused {
        let verdict = if problem.classes[class].opts_out(problem.names()) { Verdict::OptedOut } else { verdict };
        let reasons = explain::reasons(problem, &state, class, verdict, search_steps, &mut survey);
        refusals.extend(dealt.take(class, count).into_iter().map(|pod| Refusal {
            pod,
            verdict,
            reasons: Arc::clone(&reasons),
        }));
    }
    let name = |pod: PodId| &problem.snapshot.pods[pod].pod.name;
    refusals.sort_by_key(|refusal| name(refusal.pod));
    later.iter_mut().for_each(|pods| pods.sort_by_key(|&pod| name(pod)));
    Plan {
        node_costs: node_costs(machines.len(), problem.snapshot.options.node_price),
        price: machines.iter().fold(PriceNanoUsdPerHour(0), |sum, machine| sum.saturating_add(machine.launch.price)),
        machines,
        existing: dealt.existing(problem),
        later,
        refusals,
        notes: notes(problem, |_, _| false),
        kept_apart: None,
        lower_bound,
        search_steps,
        device_steps: problem.devices.as_ref().map_or(0, ProblemDevices::steps_taken),
        buffers: Vec::new(),
    }
}

/// What nodes cost besides their machines.
fn node_costs(machines: usize, each: PriceNanoUsdPerHour) -> PriceNanoUsdPerHour {
    let machines = i64::try_from(machines).ok();
    machines.and_then(|machines| each.checked_mul(machines)).unwrap_or(PriceNanoUsdPerHour(i64::MAX))
}

/// Deals the members of classes out to the places that copies were put in.
struct Dealt {
    /// Members of each class that have no place yet, in order.
    waiting: IdVec<ClassId, std::vec::IntoIter<PodId>>,
    on_nodes: IdVec<NodeId, Vec<PodId>>,
    on_bins: Vec<Vec<PodId>>,
}

impl Dealt {
    fn new(problem: &Problem<'_>, bins: &[state::Bin], kept: Vec<(PodId, NodeId)>) -> Self {
        let mut stays = model::IdSet::with_len(problem.snapshot.pods.len());
        let mut on_nodes: IdVec<NodeId, Vec<PodId>> = IdVec::filled(Vec::new(), problem.snapshot.nodes.len());
        for (pod, node) in kept {
            stays.insert(pod);
            on_nodes[node].push(pod);
        }
        let waiting = problem.classes.iter().map(|class| {
            let members: Vec<PodId> = class.members.iter().copied().filter(|&pod| !stays.contains(pod)).collect();
            members.into_iter()
        });
        Self { waiting: waiting.collect(), on_nodes, on_bins: vec![Vec::new(); bins.len()] }
    }

    fn take(&mut self, class: ClassId, copies: u32) -> Vec<PodId> {
        self.waiting[class].by_ref().take(copies as usize).collect()
    }

    fn put(&mut self, target: Target, pods: Vec<PodId>) {
        match target {
            Target::Node(node) => self.on_nodes[node].extend(pods),
            Target::Bin(bin) => {
                if let Some(bin) = self.on_bins.get_mut(bin.0) {
                    bin.extend(pods);
                }
            }
        }
    }

    fn existing(self, problem: &Problem<'_>) -> Vec<ExistingPlacement> {
        let nodes = &problem.snapshot.nodes;
        let mut existing: Vec<ExistingPlacement> = nodes
            .ids()
            .zip(self.on_nodes)
            .filter(|(_, pods)| !pods.is_empty())
            .map(|(node, mut pods)| {
                pods.sort_by_key(|&pod| &problem.snapshot.pods[pod].pod.name);
                ExistingPlacement { node, pods }
            })
            .collect();
        existing.sort_by_key(|placement| nodes[placement.node].display_name());
        existing
    }
}

/// What is left out of planning, once per class, for classes that are not refused; of those pods for which it is not kept.
fn notes(problem: &Problem<'_>, is_kept: impl Fn(PodId, NoteKind) -> bool) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    for class in problem.classes.iter().filter(|class| class.refused.is_none()) {
        for kind in supported::left_out(&class.shape) {
            let pods = class.members.iter().copied().filter(|&pod| !is_kept(pod, kind));
            let names = pods.map(|pod| &problem.snapshot.pods[pod].pod.name);
            let Some(example) = names.clone().min() else { continue };
            notes.push(Note { example: example.clone(), pods: names.count(), kind });
        }
    }
    notes.sort_by(|a, b| a.order().cmp(&b.order()));
    notes
}
