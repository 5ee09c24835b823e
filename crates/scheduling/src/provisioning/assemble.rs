//! From what was placed to a plan: machines, placements, refusals with their reasons, notes.

use crate::explain;
use crate::explain::remedies;
use crate::plan::action::Action;
use crate::plan::reason::{Note, NoteKind, Reason};
use crate::plan::{ExistingPlacement, Machine, MachineId, Plan, Refusal, Verdict};
use crate::provisioning::device_costs::DeviceCosts;
use crate::provisioning::launch;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::supported;
use crate::simulation::compile::supported::Obstacle;
use crate::simulation::packing::binding::stages;
use crate::simulation::packing::devices::DeviceState;
use crate::simulation::packing::plan_run::PlanRun;
use crate::simulation::packing::state::Target;
use crate::simulation::packing::{Packing, state};
use crate::simulation::placing::fill::Filled;
use crate::snapshot::{NodeId, PodId};
use model::{IdVec, PriceNanoUsdPerHour};
use std::{collections::BTreeMap, sync::Arc};

pub(crate) fn assemble(
    problem: &Problem<'_>,
    run: &PlanRun,
    filled: Filled,
    lower_bound: PriceNanoUsdPerHour,
    search_steps: u64,
) -> Plan {
    let Filled { state, kept, refused, cut_short } = filled;
    let packing = Packing::of(problem, run, state);
    let mut dealt = Dealt::new(problem, &packing.state.bins, kept);
    let stages = stages(problem, &packing.state).unwrap_or_default();
    let mut comes_later: BTreeMap<usize, Vec<(usize, u32)>> = BTreeMap::new();
    for (stage, copies) in stages.iter().enumerate() {
        for &(assignment, copies) in copies {
            comes_later.entry(assignment).or_default().push((stage, copies));
        }
    }
    let mut later = vec![Vec::new(); stages.len()];
    for (index, assignment) in packing.state.assignments.iter().enumerate() {
        let pods = dealt.take(assignment.class, assignment.copies);
        let mut last = pods.iter().rev();
        for &(stage, copies) in comes_later.get(&index).into_iter().flatten().rev() {
            if let Some(later) = later.get_mut(stage) {
                later.extend(last.by_ref().take(copies as usize).copied());
            }
        }
        dealt.put(assignment.target, pods);
    }
    let device_costs = DeviceCosts::new(problem);
    let launch::Launched { machines, deferred } = launch::machines(&packing, &dealt.on_bins, &device_costs);
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
        if let Some(Obstacle::LeftOut) = problem.classes[class].refused {
            refusals.extend(dealt.take(class, count).into_iter().filter_map(|pod| problem.request.refusal(pod)));
            continue;
        }
        let verdict = if problem.classes[class].opts_out(problem.names()) { Verdict::OptedOut } else { verdict };
        let mut reasons = explain::reasons(&packing, class, verdict, search_steps, &mut survey);
        let mut verdict = verdict;
        if let Some(fills) = cut_short
            && verdict == Verdict::DoesNotFit
            && run.is_spread_over_added(&problem.classes[class])
        {
            verdict = Verdict::OutOfBudget;
            reasons = [Reason::PlanOutOfBudget { fills }].into_iter().chain(reasons.iter().cloned()).collect();
        }
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
        actions: Action::create_each(&machines),
        node_costs: node_costs(machines.len(), problem.snapshot.options.node_price),
        price: machines.iter().fold(PriceNanoUsdPerHour(0), |sum, machine| sum.saturating_add(machine.launch.price)),
        machines,
        existing: dealt.existing(problem, packing.state.devices.as_ref(), &device_costs),
        later,
        refusals,
        notes: notes(problem, |_, _| false),
        kept_apart: None,
        lower_bound,
        search_steps,
        device_steps: run.devices().steps_taken(),
        buffers: Vec::new(),
    }
}

/// What nodes cost besides their machines.
pub(crate) fn node_costs(machines: usize, each: PriceNanoUsdPerHour) -> PriceNanoUsdPerHour {
    let machines = i64::try_from(machines).ok();
    machines.and_then(|machines| each.checked_mul(machines)).unwrap_or(PriceNanoUsdPerHour(i64::MAX))
}

/// Deals the members of classes out to the places that copies were put in.
pub(crate) struct Dealt {
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

    fn existing(
        self,
        problem: &Problem<'_>,
        devices: Option<&DeviceState>,
        device_costs: &DeviceCosts,
    ) -> Vec<ExistingPlacement> {
        let nodes = &problem.snapshot.nodes;
        let mut existing: Vec<ExistingPlacement> = nodes
            .ids()
            .zip(self.on_nodes)
            .filter(|(_, pods)| !pods.is_empty())
            .map(|(node, mut pods)| {
                pods.sort_by_key(|&pod| &problem.snapshot.pods[pod].pod.name);
                let drivers = devices.into_iter().flat_map(|devices| devices.drivers_awaited_on(node));
                let costs = devices.into_iter().flat_map(|devices| devices.costs_on(node));
                let device_costs = device_costs.dealt(&pods, costs);
                ExistingPlacement { node, pods, drivers: drivers.cloned().collect(), device_costs }
            })
            .collect();
        existing.sort_by_key(|placement| nodes[placement.node].display_name());
        existing
    }
}

/// What is left out of planning, once per class, for classes that are not refused; of those pods for which it is not
/// kept.
pub(crate) fn notes(problem: &Problem<'_>, is_kept: impl Fn(PodId, NoteKind) -> bool) -> Vec<Note> {
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
