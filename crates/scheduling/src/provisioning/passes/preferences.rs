//! Preferences are preferences: kube-scheduler binds a pod whether they hold or not, so no pod waits and no machine is
//! paid for because of one. A plan keeps those that cost nothing, or no more than they are worth.
//!
//! The plan is made without preferences first. Then it is made again with preferences as if they were required, all of
//! them if possible; if that is dearer, or a pod loses its place, with fewer: the list, most important first, is halved
//! until the halves can be kept or a bound on the number of plans is reached. A preference of weight w is worth `w ×
//! Options::preference_price` for each pod, which is nothing by default. The order is: preferred node affinity and
//! preferred pod affinity and anti-affinity by weight, `ScheduleAnyway` spreads as if they weighed 100; then in this
//! order of kinds; then by the name of the first pod. `PreferNoSchedule` taints have no weight either, weigh 100, and
//! come first.
//!
//! Preferred node affinity is left alone where a spread that must hold counts only nodes that fit the pod's own
//! affinity (`nodeAffinityPolicy: Honor`): as a requirement it would change which nodes those are.
//!
//! What cannot be kept for all pods of a shape is then tried for some of them, the oldest first: for one, and from
//! there as many as a binary search finds before a second bound on plans is reached.
//!
//! Pods that an earlier plan has given a machine stay as they are.
//!
//! Differs: `preferences`, `prefer-no-schedule`. Karpenter treats preferences, `PreferNoSchedule` among them, as
//! required until a pod finds no place, so that it launches machines for them.

use std::{collections::BTreeSet, sync::Arc};

use model::{
    IdVec, NamespacedName, PodShape, Taint,
    collections::FastSet,
    pod::{NodeInclusionPolicy, NodeSelectorTerm, SpreadSource, TopologySpreadConstraint, WhenUnsatisfiable},
};

use super::{Pass, Rest};
use crate::plan::Plan;
use crate::plan::reason::{Note, NoteKind};
use crate::provisioning::assemble::notes;
use crate::simulation::compile::classes::Shapes;
use crate::simulation::compile::problem::Problem;
use crate::simulation::compile::request::{Fate, Limit, Request};
use crate::snapshot::affinity::would_keep_out;
use crate::snapshot::{NodeState, PendingPod, PodId, PreferencePolicy, Snapshot};
use crate::tuning::{PREFERENCE_PLANS, PREFERENCE_PLANS_FOR_SOME};

/// What `ScheduleAnyway` spreads and `PreferNoSchedule` taints weigh, which have no weight of their own: as much as the
/// strongest preference.
const MOST_WEIGHT: i32 = 100;

/// One preference of one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    SoftTaints,
    NodeAffinity(usize),
    PodAffinity(usize),
    PodAntiAffinity(usize),
    Spread(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Preference<'s> {
    shape: usize,
    kind: Kind,
    weight: i32,
    pods: usize,
    first: &'s NamespacedName,
}

impl Preference<'_> {
    /// Whether it can be made a requirement that changes nothing but what the pods want.
    fn can_be_required(&self, shapes: &[Preferring<'_>]) -> bool {
        let is_narrowed = |spread: &TopologySpreadConstraint| spread.node_affinity_policy == NodeInclusionPolicy::Honor;
        let narrows = |shape: &Preferring<'_>| shape.shape.hard_spread().any(is_narrowed);
        match self.kind {
            Kind::NodeAffinity(_) => !shapes.get(self.shape).is_some_and(narrows),
            Kind::SoftTaints | Kind::PodAffinity(_) | Kind::PodAntiAffinity(_) | Kind::Spread(_) => true,
        }
    }

    /// What a note calls it.
    fn note_kind(&self, shapes: &[Preferring<'_>]) -> NoteKind {
        match self.kind {
            Kind::SoftTaints => NoteKind::PreferNoScheduleTaint,
            Kind::NodeAffinity(_) => NoteKind::PreferredNodeAffinity,
            Kind::PodAffinity(_) | Kind::PodAntiAffinity(_) => NoteKind::PreferredPodAffinity,
            Kind::Spread(at) => {
                let spread = shapes.get(self.shape).and_then(|shape| shape.shape.topology_spread.get(at));
                match spread.map(|spread| spread.source) {
                    Some(SpreadSource::ClusterDefault) => NoteKind::DefaultScheduleAnywaySpread,
                    Some(SpreadSource::Pod) | None => NoteKind::ScheduleAnywaySpread,
                }
            }
        }
    }
}

/// A preference with how many pods of its shape it is kept for.
type Kept<'p, 's> = (&'p Preference<'s>, usize);

/// Pods of one shape that have preferences and no place yet.
struct Preferring<'s> {
    shape: &'s Arc<PodShape>,
    /// The oldest first, then by name.
    pods: Vec<PodId>,
    first: &'s NamespacedName,
    /// Whether there are `PreferNoSchedule` taints that they do not tolerate.
    avoids_soft_taints: bool,
}

/// Makes a plan, and then one that keeps preferences and costs no more than they are worth, if there is one. What is
/// not kept is noted.
pub(crate) struct Preferences;

impl Pass for Preferences {
    fn plan(&self, request: &Request<'_>, rest: &mut Rest<'_>) -> Option<Plan> {
        let without = rest.plan(request)?;
        Some(keep(request, without, rest))
    }
}

fn keep(request: &Request<'_>, without: Plan, rest: &mut Rest<'_>) -> Plan {
    let snapshot = &*request.snapshot;
    let mut kept = match snapshot.options.preference_policy {
        PreferencePolicy::Ignore => without,
        PreferencePolicy::Respect => keep_most(request, without, rest),
    };
    kept.notes.extend(soft_taint_notes(snapshot, &kept));
    kept.notes.sort_by(|a, b| a.order().cmp(&b.order()));
    kept
}

fn keep_most(request: &Request<'_>, without: Plan, rest: &mut Rest<'_>) -> Plan {
    let snapshot = &*request.snapshot;
    let shapes = preferring(snapshot, &without);
    if shapes.is_empty() {
        return without;
    }
    let preferences = in_order(&shapes);
    let refused = without.refusals.iter().map(|refusal| refusal.pod).collect();
    let (place_of, plans_left) = (places(snapshot, &shapes), PREFERENCE_PLANS);
    let mut search =
        Search { request, shapes: &shapes, place_of: &place_of, rest, without: &without, refused, plans_left };
    let can_be_kept: Vec<Preference<'_>> =
        preferences.iter().filter(|it| it.can_be_required(&shapes)).copied().collect();
    let (mut kept, mut best, failed) = search.for_all_pods(&can_be_kept);
    search.plans_left = PREFERENCE_PLANS_FOR_SOME;
    for preference in failed {
        if let Some((pods, found)) = search.for_some_pods(preference, &kept) {
            kept.push((preference, pods));
            best = Some(found);
        }
    }
    let Some(mut best) = best else { return without };
    let kept_for =
        |preference: &Preference<'_>| kept.iter().find(|(it, _)| *it == preference).map_or(0, |(_, pods)| *pods);
    let is_kept = |(shape, position): (usize, usize), kind: NoteKind| {
        let mut of_kind = preferences.iter().filter(|it| it.shape == shape && it.note_kind(&shapes) == kind);
        of_kind.all(|preference| position < kept_for(preference))
    };
    best.notes = if kept.iter().all(|(preference, pods)| *pods == preference.pods) {
        let is_left_out = |note: &&Note| {
            let holds =
                |shape: &Preferring<'_>| shape.pods.iter().any(|&id| snapshot.pods[id].pod.name == note.example);
            !shapes.iter().position(holds).is_some_and(|shape| is_kept((shape, 0), note.kind))
        };
        without.notes.iter().filter(is_left_out).cloned().collect()
    } else {
        notes(&Problem::new(request), |pod, kind| place_of[pod].is_some_and(|place| is_kept(place, kind)))
    };
    best.refusals = without.refusals;
    best.lower_bound = without.lower_bound;
    best.search_steps = best.search_steps.max(without.search_steps);
    best
}

/// The pods of a plan that are where a `PreferNoSchedule` taint would rather not have them.
fn on_soft_taints<'s>(snapshot: &'s Snapshot, plan: &'s Plan) -> impl Iterator<Item = PodId> + 's {
    let on_nodes = plan.existing.iter().map(|it| (&snapshot.nodes[it.node].taints, &it.pods));
    let on_machines = plan.machines.iter().map(|it| (&snapshot.node_pools[it.node_pool].taints, &it.pods));
    let has_soft = |(taints, _): &(&'s Vec<Taint>, _)| taints.iter().any(|taint| !taint.is_hard());
    on_nodes.chain(on_machines).filter(has_soft).flat_map(|(taints, pods)| {
        let is_unwanted =
            |pod: &PodId| would_keep_out(taints, &snapshot.pods[*pod].pod.shape, &snapshot.interner).is_some();
        pods.iter().copied().filter(is_unwanted)
    })
}

/// A note for the pods of each shape.
fn soft_taint_notes(snapshot: &Snapshot, plan: &Plan) -> Vec<Note> {
    let mut numbers = Shapes::default();
    let mut notes: Vec<Note> = Vec::new();
    for id in on_soft_taints(snapshot, plan) {
        let pod = &snapshot.pods[id].pod;
        match notes.get_mut(numbers.number(&pod.shape)) {
            Some(note) => {
                note.pods += 1;
                if pod.name < note.example {
                    note.example = pod.name.clone();
                }
            }
            None => notes.push(Note { example: pod.name.clone(), pods: 1, kind: NoteKind::PreferNoScheduleTaint }),
        }
    }
    notes
}

/// The taints that shapes would have to avoid, if any plan is to be made for preferences: who is moved for another's
/// must not come onto one either.
fn soft_taints(snapshot: &Snapshot, without: &Plan) -> Vec<Taint> {
    let wants_others = |pending: &PendingPod| pending.planned_on.is_none() && has_preferences(&pending.pod.shape);
    let nodes = snapshot.nodes.iter().filter(|node| node.excluded.is_none()).flat_map(|node| &node.taints);
    let pools = snapshot.node_pools.iter().flat_map(|pool| &pool.taints);
    let soft: FastSet<Taint> = nodes.chain(pools).filter(|taint| !taint.is_hard()).copied().collect();
    if !soft.is_empty() && on_soft_taints(snapshot, without).next().is_none() && !snapshot.pods.iter().any(wants_others)
    {
        return Vec::new();
    }
    soft.into_iter().collect()
}

/// The shapes with preferences, in the order of their first pods by name.
fn preferring<'s>(snapshot: &'s Snapshot, without: &Plan) -> Vec<Preferring<'s>> {
    let soft_taints = soft_taints(snapshot, without);
    let mut numbers = Shapes::default();
    let mut shapes: Vec<Preferring<'_>> = Vec::new();
    for (id, pending) in snapshot.pods.iter_enumerated() {
        let shape = &pending.pod.shape;
        let avoids_soft_taints = would_keep_out(&soft_taints, shape, &snapshot.interner).is_some();
        if pending.planned_on.is_some() || !(has_preferences(shape) || avoids_soft_taints) {
            continue;
        }
        let index = numbers.number(shape);
        match shapes.get_mut(index) {
            Some(known) => {
                known.pods.push(id);
                known.first = known.first.min(&pending.pod.name);
            }
            None => {
                shapes.push(Preferring { shape, pods: vec![id], first: &pending.pod.name, avoids_soft_taints });
            }
        }
    }
    for shape in &mut shapes {
        shape.pods.sort_by_key(|&id| (snapshot.pods[id].pod.created_at, &snapshot.pods[id].pod.name));
    }
    shapes.sort_by_key(|shape| shape.first);
    shapes
}

/// Of each pod with preferences its shape, and which of the shape's pods it is.
fn places(snapshot: &Snapshot, shapes: &[Preferring<'_>]) -> IdVec<PodId, Option<(usize, usize)>> {
    let mut place_of = IdVec::filled(None, snapshot.pods.len());
    for (shape, of) in shapes.iter().enumerate() {
        for (position, &pod) in of.pods.iter().enumerate() {
            place_of[pod] = Some((shape, position));
        }
    }
    place_of
}

fn has_preferences(shape: &PodShape) -> bool {
    !shape.preferred_node_affinity.is_empty()
        || !shape.pod_affinity.preferred.is_empty()
        || !shape.pod_anti_affinity.preferred.is_empty()
        || shape.topology_spread.iter().any(|it| it.when_unsatisfiable == WhenUnsatisfiable::ScheduleAnyway)
}

/// All preferences, the most important first.
fn in_order<'s>(shapes: &[Preferring<'s>]) -> Vec<Preference<'s>> {
    let mut preferences = Vec::new();
    for (index, Preferring { shape, pods, first, avoids_soft_taints }) in shapes.iter().enumerate() {
        let nodes = shape.preferred_node_affinity.iter().map(|it| it.weight).enumerate();
        let near = shape.pod_affinity.preferred.iter().map(|it| it.weight).enumerate();
        let away = shape.pod_anti_affinity.preferred.iter().map(|it| it.weight).enumerate();
        let spread = shape.topology_spread.iter().enumerate();
        let spread = spread.filter(|(_, it)| it.when_unsatisfiable == WhenUnsatisfiable::ScheduleAnyway);
        let kinds = avoids_soft_taints
            .then_some((Kind::SoftTaints, MOST_WEIGHT))
            .into_iter()
            .chain(nodes.map(|(at, weight)| (Kind::NodeAffinity(at), weight)))
            .chain(near.map(|(at, weight)| (Kind::PodAffinity(at), weight)))
            .chain(away.map(|(at, weight)| (Kind::PodAntiAffinity(at), weight)))
            .chain(spread.map(|(at, _)| (Kind::Spread(at), MOST_WEIGHT)));
        preferences.extend(
            // A weight below zero would be a wish not to have it; the API server admits 1 to 100.
            kinds.filter(|(_, weight)| *weight > 0).map(|(kind, weight)| Preference {
                shape: index,
                kind,
                weight,
                pods: pods.len(),
                first,
            }),
        );
    }
    preferences.sort_by(|a, b| b.weight.cmp(&a.weight).then(a.kind.cmp(&b.kind)).then(a.first.cmp(b.first)));
    preferences
}

struct Search<'a, 'r, 's> {
    request: &'a Request<'a>,
    shapes: &'a [Preferring<'s>],
    place_of: &'a IdVec<PodId, Option<(usize, usize)>>,
    rest: &'a mut Rest<'r>,
    without: &'a Plan,
    refused: BTreeSet<PodId>,
    plans_left: usize,
}

impl<'s> Search<'_, '_, 's> {
    /// What can be kept for all pods of its shape, with the best plan, and what was found not to be, the most important
    /// first.
    fn for_all_pods<'p>(
        &mut self,
        preferences: &'p [Preference<'s>],
    ) -> (Vec<Kept<'p, 's>>, Option<Plan>, Vec<&'p Preference<'s>>) {
        let mut kept: Vec<Kept<'p, 's>> = Vec::new();
        let mut best: Option<Plan> = None;
        let mut open: Vec<&'p [Preference<'s>]> = vec![preferences];
        let mut failed: Vec<Vec<Kept<'p, 's>>> = Vec::new();
        let mut alone = Vec::new();
        while let Some(part) = open.pop() {
            if self.plans_left == 0 {
                break;
            }
            let more: Vec<Kept<'p, 's>> = kept.iter().copied().chain(part.iter().map(|it| (it, it.pods))).collect();
            self.plans_left -= 1;
            // Where all of the first half can be kept, both halves are what has failed before.
            let found = if failed.contains(&more) { None } else { self.with(&more) };
            if let Some(found) = found {
                (kept, best) = (more, Some(found));
                continue;
            }
            failed.push(more);
            match part {
                [] => {}
                [preference] => alone.push(preference),
                [_, _, ..] => {
                    let (first, second) = part.split_at(part.len() / 2);
                    open.extend([second, first]);
                }
            }
        }
        (kept, best, alone)
    }

    /// For how many pods a preference can be kept that can't be for all, beside others, and the plan.
    fn for_some_pods(&mut self, preference: &Preference<'s>, kept: &[Kept<'_, 's>]) -> Option<(usize, Plan)> {
        let mut best: Option<(usize, Plan)> = None;
        let (mut most, mut too_many) = (0, preference.pods);
        // What can't be kept at all can't be for one pod; mostly that is so.
        let mut pods = 1;
        while pods > most && pods < too_many && self.plans_left > 0 {
            self.plans_left -= 1;
            let more: Vec<Kept<'_, 's>> = kept.iter().copied().chain([(preference, pods)]).collect();
            match self.with(&more) {
                Some(found) => {
                    most = pods;
                    best = Some((pods, found));
                }
                None if most == 0 => return None,
                None => too_many = pods,
            }
            pods = most + (too_many - most) / 2;
        }
        best
    }

    /// The plan with these as requirements, if it refuses the same pods, the difference in price is worth it, and no
    /// pod is kept from a node that is open: kube-scheduler does not wait for a machine that the pod would like better.
    fn with(&mut self, preferences: &[Kept<'_, 's>]) -> Option<Plan> {
        let worth = preferences.iter().map(|(preference, pods)| {
            let pods = i128::try_from(*pods).unwrap_or(i128::MAX);
            i128::from(self.request.snapshot.options.preference_price.0) * i128::from(preference.weight) * pods
        });
        let limit = Limit { cost: self.without.cost() + worth.sum::<i128>(), refused: self.refused.clone() };
        let cost = limit.cost;
        let plan = self.rest.plan(&self.required(preferences).within(limit))?;
        let refused = plan.refusals.iter().map(|refusal| refusal.pod).collect::<BTreeSet<PodId>>();
        let (with, without) = (self.on_open_nodes(&plan), self.on_open_nodes(self.without));
        let uses_open_nodes = with.iter().zip(&without).all(|(with, without)| with >= without);
        (refused == self.refused && uses_open_nodes && plan.cost() <= cost).then_some(plan)
    }

    /// How many pods of each shape a plan puts on nodes that everybody may enter.
    fn on_open_nodes(&self, plan: &Plan) -> Vec<usize> {
        let mut counts = vec![0; self.shapes.len()];
        let open =
            plan.existing.iter().filter(|it| self.request.snapshot.nodes[it.node].state == NodeState::Initialized);
        for (shape, _) in open.flat_map(|it| &it.pods).filter_map(|&pod| self.place_of[pod]) {
            if let Some(count) = counts.get_mut(shape) {
                *count += 1;
            }
        }
        counts
    }

    /// The request with preferences turned into requirements.
    fn required(&self, preferences: &[Kept<'_, 's>]) -> Request<'static> {
        let snapshot = &*self.request.snapshot;
        let mut fates: Vec<(PodId, Fate)> = Vec::new();
        for (index, shape) in self.shapes.iter().enumerate() {
            let of_shape = || preferences.iter().filter(|(preference, _)| preference.shape == index);
            // Pods up to one of these numbers keep the same preferences.
            let mut ends: Vec<usize> = of_shape().map(|(_, pods)| *pods).collect();
            ends.sort_unstable();
            ends.dedup();
            let mut first = 0;
            for end in ends {
                let kinds: Vec<Kind> = of_shape().filter(|(_, pods)| *pods >= end).map(|(it, _)| it.kind).collect();
                let required = Arc::new(required(shape.shape, &kinds, snapshot));
                let pods = shape.pods.get(first..end).unwrap_or_default();
                fates.extend(pods.iter().map(|&pod| (pod, Fate::With(Arc::clone(&required)))));
                first = end;
            }
        }
        self.request.with(fates)
    }
}

fn required(shape: &PodShape, kinds: &[Kind], snapshot: &Snapshot) -> PodShape {
    let mut required = shape.clone();
    for &kind in kinds {
        match kind {
            Kind::SoftTaints => required.avoids_soft_taints = true,
            Kind::NodeAffinity(at) => {
                if let Some(preferred) = shape.preferred_node_affinity.get(at) {
                    required.required_node_affinity = both(&required.required_node_affinity, &preferred.term, snapshot);
                }
            }
            Kind::PodAffinity(at) => {
                required.pod_affinity.required.extend(shape.pod_affinity.preferred.get(at).map(|it| it.term.clone()));
            }
            Kind::PodAntiAffinity(at) => {
                let preferred = shape.pod_anti_affinity.preferred.get(at).map(|it| it.term.clone());
                required.pod_anti_affinity.required.extend(preferred);
            }
            Kind::Spread(at) => {
                if let Some(spread) = required.topology_spread.get_mut(at) {
                    spread.when_unsatisfiable = WhenUnsatisfiable::DoNotSchedule;
                }
            }
        }
    }
    required
}

/// Each alternative, with a further term that must hold.
fn both(alternatives: &[NodeSelectorTerm], also: &NodeSelectorTerm, snapshot: &Snapshot) -> Vec<NodeSelectorTerm> {
    if alternatives.is_empty() {
        return vec![also.clone()];
    }
    let names = &*snapshot.interner;
    let merged = alternatives.iter().map(|alternative| {
        let mut merged = alternative.clone();
        merged.expressions.intersect(&also.expressions, names);
        merged.node_name = match (&alternative.node_name, &also.node_name) {
            (Some(a), Some(b)) => Some(a.intersect(b, names)),
            (a, b) => a.clone().or_else(|| b.clone()),
        };
        merged.unusable = alternative.unusable.clone().or_else(|| also.unusable.clone());
        merged
    });
    merged.collect()
}
