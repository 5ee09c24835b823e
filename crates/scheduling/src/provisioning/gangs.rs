//! Gangs: pods of a PodGroup with `minCount`, which are placed together or not at all (KEP-4671), because kube-scheduler
//! binds none of them before so many can be bound at once.
//!
//! A plan is made. If gangs got fewer places than they need, one of them that holds some is taken out, and the plan is
//! made again: room that was taken for pods which would only wait goes to others that way. It is the gang of the highest
//! priority, since none of those that come after it keeps it from its places; of several the youngest, then the last by
//! name. Each plan takes at least one gang out, and after [`MAX_PLANS`] plans all that are short go at once, so it ends. A
//! gang that was taken out is not tried again in the same plan.
//!
//! Pods above the minimum are placed like any other pod. Pods that are bound count towards the minimum.

use std::{collections::BTreeMap, sync::Arc};

use model::{NamespacedName, Pod, PodShape, Timestamp, Unsupported, collections::FastMap};

use crate::{
    plan::{Plan, Refusal, Verdict},
    reason::{Gang, Reason},
    snapshot::{PodId, Snapshot},
};

/// Most plans after which a single gang is taken out.
const MAX_PLANS: usize = 10;

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

/// The plan in which each gang is whole or has no new place.
pub(super) fn whole(snapshot: &Snapshot, plan: impl Fn(&Snapshot) -> Plan) -> Plan {
    let mut gangs = waiting(snapshot);
    if gangs.is_empty() {
        return plan(snapshot);
    }
    let mut out: BTreeMap<PodId, (Verdict, Arc<[Reason]>)> = BTreeMap::new();
    // kube-scheduler does not try pods of a gang that lacks members.
    let (complete, incomplete): (Vec<_>, Vec<_>) =
        gangs.into_iter().partition(|gang| gang.bound as usize + gang.members.len() >= gang.wanted as usize);
    gangs = complete;
    for gang in incomplete {
        gang.take_out(None, 0, &mut out);
    }
    let mut plans = 0;
    loop {
        plans += 1;
        let mut found = if out.is_empty() { plan(snapshot) } else { plan(&without(snapshot, &out)) };
        let refused: FastMap<PodId, &Refusal> = found.refusals.iter().map(|refusal| (refusal.pod, refusal)).collect();
        let placed = |gang: &Waiting<'_>| gang.members.iter().filter(|pod| !refused.contains_key(pod)).count();
        let is_short = |gang: &Waiting<'_>| gang.bound as usize + placed(gang) < gang.wanted as usize;
        let mut short: Vec<usize> =
            gangs.iter().enumerate().filter(|(_, gang)| is_short(gang)).map(|(index, _)| index).collect();
        if short.is_empty() {
            for refusal in &mut found.refusals {
                if let Some((verdict, reasons)) = out.get(&refusal.pod) {
                    (refusal.verdict, refusal.reasons) = (*verdict, Arc::clone(reasons));
                }
            }
            return found;
        }
        if plans < MAX_PLANS && short.iter().any(|&index| gangs.get(index).is_some_and(|gang| placed(gang) > 0)) {
            let holds_places = |index: &usize| gangs.get(*index).filter(|gang| placed(gang) > 0);
            let first = |index: &usize| holds_places(index).map(|gang| (gang.priority, gang.created, gang.name));
            short = short.into_iter().max_by_key(first).into_iter().collect();
        }
        // From the back, so that indices stay.
        for index in short.into_iter().rev() {
            let gang = gangs.remove(index);
            let placed = placed(&gang);
            let first = gang.members.iter().find_map(|pod| refused.get(pod).copied());
            gang.take_out(first, placed, &mut out);
        }
    }
}

impl Waiting<'_> {
    /// Refuses all members. `first` is what became of the first that found no place, beside `placed` others.
    fn take_out(self, first: Option<&Refusal>, placed: usize, out: &mut BTreeMap<PodId, (Verdict, Arc<[Reason]>)>) {
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
        out.extend(self.members.into_iter().map(|pod| (pod, (verdict, Arc::clone(&reasons)))));
    }
}

/// The gangs with members that wait, by name.
fn waiting(snapshot: &Snapshot) -> Vec<Waiting<'_>> {
    let mut gangs: BTreeMap<&NamespacedName, Waiting<'_>> = BTreeMap::new();
    if snapshot.pod_groups.is_empty() {
        return Vec::new();
    }
    for (id, pending) in snapshot.pods.iter_enumerated() {
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
pub(super) fn group_of(shape: &PodShape) -> Option<&NamespacedName> {
    shape.scheduling_group.as_ref().map(|group| &group.pod_group)
}

/// The snapshot with those pods as such that cannot be planned for. Ids stay.
fn without(snapshot: &Snapshot, out: &BTreeMap<PodId, (Verdict, Arc<[Reason]>)>) -> Snapshot {
    let mut snapshot = snapshot.clone();
    let mut shapes: FastMap<Arc<PodShape>, Arc<PodShape>> = FastMap::default();
    for &id in out.keys() {
        let pod = &mut snapshot.pods[id].pod;
        let shape = shapes.entry(Arc::clone(&pod.shape)).or_insert_with(|| {
            let mut shape = (*pod.shape).clone();
            shape.unsupported.push(Unsupported::new("gang"));
            Arc::new(shape)
        });
        *pod = Arc::new(Pod { shape: Arc::clone(shape), ..(**pod).clone() });
    }
    snapshot
}
