//! PodGroups whose pods have to be in one domain of a label, a zone or a rack (`schedulingConstraints.topology`, KEP-5732).
//!
//! kube-scheduler places such a group into one value of the label: the one that pods of it run in, or else one in which the
//! whole group, or at least its `minCount`, has room. So it is here: for each group, those of higher priority first, then the
//! older, a plan is made for each value that a node has or a machine can get, with the group's pods held to it, the groups
//! before it where they went, and those after it left out. The value with most of the group's pods wins, then the plan with
//! fewest refusals, then the cheapest, then the first by name. If none holds enough, the group is refused, and the reason is
//! that of the value which came nearest.
//!
//! A plan costs a plan for each such group and value: at most [`MAX_VALUES`] for a group, and [`MAX_PLANS`] in all. A group that
//! not all values were tried for is refused as undecided, if none of those that were has room.
//!
//! Left out, and refused by name: hosts, since a machine to come has no name; groups whose pods are spread as well, because the
//! scheduler counts nodes outside of the domain that the plan cannot be held to.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{
    KeyId, NamespacedName, Pod, PodShape, PriceNanoUsdPerHour, Requirement, Timestamp, Unsupported, ValueId, ValueSet,
    collections::FastMap,
};

use super::gangs::group_of;
use crate::{
    plan::{Plan, Refusal, Verdict},
    reason::{GroupDomain, Reason},
    snapshot::{Excluded, Node, NodeLabels, PodId, Snapshot},
};

/// Most values that are tried for a group.
const MAX_VALUES: usize = 32;
/// Most plans that are made to compare values.
const MAX_PLANS: usize = 96;

/// A group that has to be in one domain, with pods that wait.
struct Group<'s> {
    name: &'s NamespacedName,
    key: KeyId,
    members: Vec<PodId>,
    /// How many pods there have to be at once, and how many run.
    wanted: usize,
    running: usize,
    /// Of its members the highest.
    priority: i32,
    /// Of its oldest member.
    created: Timestamp,
    /// Its pods are spread too.
    is_spread: bool,
    /// The values of the nodes that its pods run on; `None` for a node without the label.
    runs_in: BTreeSet<Option<ValueId>>,
}

/// What becomes of a pod of such a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Fate {
    /// It goes to this value of the label.
    In(KeyId, ValueId),
    /// It is not planned for.
    Out,
}

type Fates = BTreeMap<PodId, Fate>;

/// How good a value is, the least being the best: most of the group's pods, then fewest refusals, then the price.
type Rank = (Reverse<usize>, usize, PriceNanoUsdPerHour);

/// Why a group has no place.
type Refused = BTreeMap<PodId, (Verdict, Arc<[Reason]>)>;

/// The plan in which each group that has to be in one domain is in one, or has no new place.
pub(super) fn in_one_domain(snapshot: &Snapshot, plan: impl Fn(&Snapshot) -> Plan) -> Plan {
    let groups = groups(snapshot);
    if groups.is_empty() {
        return plan(snapshot);
    }
    let mut fates: Fates = groups.iter().flat_map(|group| &group.members).map(|&pod| (pod, Fate::Out)).collect();
    let mut refused = Refused::new();
    let mut plans = MAX_PLANS;
    for group in &groups {
        match choose(snapshot, group, &mut fates, &mut plans, &plan) {
            Ok(value) => group.hold_to(value, &mut fates),
            Err((verdict, reasons)) => {
                group.leave_out(&mut fates);
                refused.extend(group.members.iter().map(|&pod| (pod, (verdict, Arc::clone(&reasons)))));
            }
        }
    }
    let mut found = plan(&with(snapshot, &fates));
    for refusal in &mut found.refusals {
        if let Some((verdict, reasons)) = refused.get(&refusal.pod) {
            (refusal.verdict, refusal.reasons) = (*verdict, Arc::clone(reasons));
        }
    }
    found
}

impl Group<'_> {
    fn hold_to(&self, value: ValueId, fates: &mut Fates) {
        fates.extend(self.members.iter().map(|&pod| (pod, Fate::In(self.key, value))));
    }

    fn leave_out(&self, fates: &mut Fates) {
        fates.extend(self.members.iter().map(|&pod| (pod, Fate::Out)));
    }

    fn reason(&self, tried: usize, left: usize, nearest: Option<ValueId>) -> Reason {
        let runs_in = self.runs_in.iter().copied().collect();
        Reason::GroupDomain(GroupDomain { name: self.name.clone(), key: self.key, runs_in, tried, left, nearest })
    }
}

/// The value of the label that the group goes to. `plans` may still be made.
fn choose(
    snapshot: &Snapshot,
    group: &Group<'_>,
    fates: &mut Fates,
    plans: &mut usize,
    plan: &impl Fn(&Snapshot) -> Plan,
) -> Result<ValueId, (Verdict, Arc<[Reason]>)> {
    if group.is_spread {
        let key = snapshot.interner.key_name(group.key);
        let construct = format!("spread of the pods of PodGroup {}, which have to be in one {key},", group.name);
        return Err((Verdict::Unsupported, [Reason::Unsupported(Unsupported::new(construct))].into()));
    }
    let all = values(snapshot, group);
    let mut best: Option<(Rank, ValueId)> = None;
    let mut nearest: Option<(usize, ValueId, Arc<[Reason]>)> = None;
    let allowed = all.len().min(MAX_VALUES).min(*plans);
    for &value in all.iter().take(allowed) {
        *plans -= 1;
        group.hold_to(value, fates);
        let found = plan(&with(snapshot, fates));
        let waiting: Vec<&Refusal> =
            found.refusals.iter().filter(|refusal| group.members.contains(&refusal.pod)).collect();
        let placed = group.members.len() - waiting.len();
        if placed > 0 {
            let rank: Rank = (Reverse(placed), found.refusals.len(), found.price);
            if best.as_ref().is_none_or(|(known, _)| rank < *known) {
                best = Some((rank, value));
            }
        } else if let Some(first) = waiting.first() {
            let held = |reason: &Reason| if let Reason::Gang(gang) = reason { Some(gang.placed) } else { None };
            let held = first.reasons.iter().find_map(held).unwrap_or(0);
            if nearest.as_ref().is_none_or(|(known, ..)| held > *known) {
                nearest = Some((held, value, Arc::clone(&first.reasons)));
            }
        }
    }
    if let Some((_, value)) = best {
        return Ok(value);
    }
    let left = all.len() - allowed;
    let own = group.reason(allowed, left, nearest.as_ref().map(|(_, value, _)| *value));
    let of_nearest = nearest.iter().flat_map(|(.., reasons)| reasons.iter().cloned());
    let verdict = if left > 0 { Verdict::OutOfBudget } else { Verdict::DoesNotFit };
    Err((verdict, std::iter::once(own).chain(of_nearest).collect()))
}

/// The groups with members that wait, the more important first.
fn groups(snapshot: &Snapshot) -> Vec<Group<'_>> {
    let mut groups: BTreeMap<&NamespacedName, Group<'_>> = BTreeMap::new();
    if snapshot.pod_groups.values().all(|group| group.topology_key.is_none()) {
        return Vec::new();
    }
    for (id, pending) in snapshot.pods.iter_enumerated() {
        let pod = &pending.pod;
        let Some(group) = group_of(&pod.shape).and_then(|name| snapshot.pod_groups.get(name)) else { continue };
        let Some(key) = group.topology_key.filter(|_| group.unsupported.is_empty()) else { continue };
        let known = groups.entry(&group.name).or_insert_with(|| Group {
            name: &group.name,
            key,
            members: Vec::new(),
            wanted: group.min_count.map_or(0, |count| count as usize),
            running: 0,
            priority: pod.priority,
            created: pod.created_at,
            is_spread: false,
            runs_in: BTreeSet::new(),
        });
        known.members.push(id);
        known.priority = known.priority.max(pod.priority);
        known.created = known.created.min(pod.created_at);
        known.is_spread |= pod.shape.hard_spread().next().is_some();
    }
    for node in staying(snapshot) {
        for pod in &node.pods {
            if let Some(group) = group_of(&pod.shape).and_then(|name| groups.get_mut(name)) {
                group.running += 1;
                group.runs_in.insert(value_of(&node.labels, group.key));
            }
        }
    }
    // A gang that lacks pods has no place anywhere; that is for `gangs` to say.
    let is_there = |group: &Group<'_>| group.running + group.members.len() >= group.wanted;
    let mut groups: Vec<Group<'_>> = groups.into_values().filter(is_there).collect();
    groups.sort_by_key(|group| (Reverse(group.priority), group.created, group.name));
    groups
}

/// The nodes but those whose pods have to leave, and are among those that wait.
fn staying(snapshot: &Snapshot) -> impl Iterator<Item = &Node> {
    snapshot.nodes.iter().map(AsRef::as_ref).filter(|node| node.excluded != Some(Excluded::Deleting))
}

/// The value of a node's label, if that is certain.
fn value_of(labels: &NodeLabels, key: KeyId) -> Option<ValueId> {
    match labels {
        NodeLabels::Known(labels) => labels.get(key),
        NodeLabels::Promised(requirements) => requirements.get(key).and_then(|known| known.values.single_value()),
    }
}

/// The values that the group could go to, by name. Where pods of it run in one, that; where they run in several, none.
fn values(snapshot: &Snapshot, group: &Group<'_>) -> Vec<ValueId> {
    if let Some(first) = group.runs_in.first() {
        return first.filter(|_| group.runs_in.len() == 1).into_iter().collect();
    }
    let (key, names) = (group.key, &snapshot.interner);
    let mut found: BTreeSet<ValueId> = BTreeSet::new();
    for node in staying(snapshot) {
        match &node.labels {
            NodeLabels::Known(labels) => found.extend(labels.get(key)),
            NodeLabels::Promised(promised) => {
                let values = promised.get(key).and_then(|known| known.values.finite_values());
                found.extend(values.into_iter().flatten());
            }
        }
    }
    for pool in &snapshot.node_pools {
        let of_pool = pool.requirements.get(key);
        let allowed = |value: &ValueId| of_pool.is_none_or(|of_pool| of_pool.values.contains(Some(*value), names));
        let offered = pool.catalogue.offerings.iter().filter_map(|offering| offering.requirements.get(key));
        let offered = offered.filter_map(|known| known.values.finite_values()).flatten();
        found.extend(offered.copied().filter(allowed));
        found.extend(of_pool.and_then(|of_pool| of_pool.values.finite_values()).into_iter().flatten());
    }
    let mut values: Vec<ValueId> = found.into_iter().collect();
    values.sort_by_key(|value| names.value_name(*value));
    values
}

/// The snapshot with pods held to values, or left out. Ids stay.
fn with(snapshot: &Snapshot, fates: &Fates) -> Snapshot {
    let mut snapshot = snapshot.clone();
    let mut shapes: FastMap<(Arc<PodShape>, Fate), Arc<PodShape>> = FastMap::default();
    let names = Arc::clone(&snapshot.interner);
    for (&id, &fate) in fates {
        let pod = &mut snapshot.pods[id].pod;
        let shape = shapes.entry((Arc::clone(&pod.shape), fate)).or_insert_with(|| {
            let mut shape = (*pod.shape).clone();
            match fate {
                Fate::In(key, value) => {
                    let held = Requirement::new(key, ValueSet::one(value));
                    shape.node_selector.insert_intersect(held, &names);
                }
                Fate::Out => shape.unsupported.push(Unsupported::new("group in one domain")),
            }
            Arc::new(shape)
        });
        *pod = Arc::new(Pod { shape: Arc::clone(shape), ..(**pod).clone() });
    }
    snapshot
}
