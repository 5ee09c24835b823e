//! Gangs: pods of a PodGroup with `minCount`, which are placed together or not at all (KEP-4671), because
//! kube-scheduler binds none of them before so many can be bound at once.
//!
//! A plan is made. If gangs got fewer places than they need, one of them that holds some is taken out, and the plan is
//! made again: room that was taken for pods which would only wait goes to others that way. It is the gang of the
//! highest priority, since none of those that come after it keeps it from its places; of several the youngest, then the
//! last by name. Each plan takes at least one gang out, and after [`GANG_PLANS`] plans all that are short go at once,
//! so it ends; when the budget of all plans ends, so do all gangs that are left. A gang that was taken out is not tried
//! again in the same plan.
//!
//! Pods above the minimum are placed like any other pod. Pods that are bound count towards the minimum.

use std::{collections::BTreeMap, sync::Arc};

use model::{NamespacedName, PodShape, Timestamp, collections::FastMap};

use super::{Pass, Rest};
use crate::plan::reason::{Gang, Reason};
use crate::plan::{Plan, Refusal, Verdict};
use crate::simulation::compile::request::{Fate, LeftOut, Refused, Request};
use crate::snapshot::PodId;
use crate::tuning::GANG_PLANS;

/// The members of gangs that were taken out.
type Out = BTreeMap<PodId, Fate>;

/// A gang with members that wait.
struct Waiting<'s> {
    name: &'s NamespacedName,
    wanted: u32,
    bound: u32,
    members: Vec<PodId>,
    /// The highest of its members.
    priority: i32,
    /// Of its oldest member.
    created: Timestamp,
}

/// Makes the plan in which each gang is whole or has no new place.
pub(crate) struct Gangs;

impl Pass for Gangs {
    fn plan(&self, request: &Request<'_>, rest: &mut Rest<'_>) -> Option<Plan> {
        let gangs = waiting(request);
        if gangs.is_empty() { rest.plan(request) } else { whole(request, gangs, rest) }
    }
}

fn whole(request: &Request<'_>, gangs: Vec<Waiting<'_>>, rest: &mut Rest<'_>) -> Option<Plan> {
    let mut out = Out::new();
    // kube-scheduler does not try pods of a gang that lacks members.
    let (mut gangs, incomplete): (Vec<_>, Vec<_>) =
        gangs.into_iter().partition(|gang| gang.bound as usize + gang.members.len() >= gang.wanted as usize);
    for gang in incomplete {
        gang.take_out(None, 0, &mut out);
    }
    let mut plans = 0;
    loop {
        plans += 1;
        let found = if out.is_empty() { rest.plan(request) } else { rest.plan(&request.with(out.clone())) }?;
        let refused: FastMap<PodId, &Refusal> = found.refusals.iter().map(|refusal| (refusal.pod, refusal)).collect();
        let placed = |gang: &Waiting<'_>| gang.members.iter().filter(|pod| !refused.contains_key(pod)).count();
        let is_short = |gang: &Waiting<'_>| gang.bound as usize + placed(gang) < gang.wanted as usize;
        let mut short: Vec<usize> =
            gangs.iter().enumerate().filter(|(_, gang)| is_short(gang)).map(|(index, _)| index).collect();
        if short.is_empty() {
            return Some(found);
        }
        let budget = &rest.planning.budget;
        if budget.is_last() {
            // Without gangs the next plan is whole, and there is none after it.
            let reasons = [Reason::PlanOutOfBudget { fills: budget.taken() }].into();
            let undecided = Refused { verdict: Verdict::OutOfBudget, reasons };
            for gang in std::mem::take(&mut gangs) {
                let placed = placed(&gang);
                gang.take_out(Some(&undecided), placed, &mut out);
            }
            continue;
        }
        if plans < GANG_PLANS
            && !budget.is_short()
            && short.iter().any(|&index| gangs.get(index).is_some_and(|gang| placed(gang) > 0))
        {
            let holds_places = |index: &usize| gangs.get(*index).filter(|gang| placed(gang) > 0);
            let first = |index: &usize| holds_places(index).map(|gang| (gang.priority, gang.created, gang.name));
            short = short.into_iter().max_by_key(first).into_iter().collect();
        }
        // From the back, so that indices stay.
        for index in short.into_iter().rev() {
            let gang = gangs.remove(index);
            let placed = placed(&gang);
            let first = gang.members.iter().find_map(|pod| refused.get(pod));
            let first = first.map(|of| Refused { verdict: of.verdict, reasons: Arc::clone(&of.reasons) });
            gang.take_out(first.as_ref(), placed, &mut out);
        }
    }
}

impl Waiting<'_> {
    /// Refuses all members. `first` is why the first of them has none, beside `placed` others that would have one.
    fn take_out(self, first: Option<&Refused>, placed: usize, out: &mut Out) {
        let gang = Reason::Gang(Gang {
            name: self.name.clone(),
            wanted: self.wanted,
            bound: self.bound,
            waiting: self.members.len(),
            placed,
        });
        let of_first = first.iter().flat_map(|refusal| refusal.reasons.iter().cloned());
        let reasons: Arc<[Reason]> = std::iter::once(gang).chain(of_first).collect();
        let verdict = first.map_or(Verdict::DoesNotFit, |refusal| refusal.verdict);
        let refused = Fate::LeftOut(LeftOut::Refused(Refused { verdict, reasons }));
        out.extend(self.members.into_iter().map(|pod| (pod, refused.clone())));
    }
}

/// The gangs with members that wait, by name. A gang that an earlier pass left out needs no further reason.
fn waiting<'r>(request: &'r Request<'_>) -> Vec<Waiting<'r>> {
    let snapshot = &*request.snapshot;
    let mut gangs: BTreeMap<&NamespacedName, Waiting<'_>> = BTreeMap::new();
    if snapshot.pod_groups.is_empty() {
        return Vec::new();
    }
    for (id, pending) in snapshot.pods.iter_enumerated().filter(|(id, _)| !request.is_left_out(*id)) {
        let pod = &pending.pod;
        let Some(group) = group_of(&pod.shape).and_then(|name| snapshot.pod_groups.get(name)) else { continue };
        let Some(wanted) = group.min_count.filter(|_| group.unsupported.is_empty()) else { continue };
        let gang = gangs.entry(&group.name).or_insert_with(|| Waiting {
            name: &group.name,
            wanted,
            bound: 0,
            members: Vec::new(),
            priority: pod.priority,
            created: pod.created_at,
        });
        gang.members.push(id);
        gang.priority = gang.priority.max(pod.priority);
        gang.created = gang.created.min(pod.created_at);
    }
    for pod in snapshot.nodes.iter().flat_map(|node| &node.pods) {
        if let Some(gang) = group_of(&pod.shape).and_then(|name| gangs.get_mut(name)) {
            gang.bound += 1;
        }
    }
    gangs.into_values().collect()
}

/// The PodGroup that a pod is of.
pub(crate) fn group_of(shape: &PodShape) -> Option<&NamespacedName> {
    shape.scheduling_group.as_ref().map(|group| &group.pod_group)
}
