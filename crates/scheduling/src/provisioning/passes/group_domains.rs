//! PodGroups whose pods have to be in one domain of a label, a zone or a rack (`schedulingConstraints.topology`,
//! KEP-5732).
//!
//! kube-scheduler places such a group into one value of the label: the one that pods of it run in, or else one in which
//! the whole group, or at least its `minCount`, has room. So it is here: for each group, those of higher priority
//! first, then the older, a plan is made for each value that a node has or a machine can get, with the group's pods
//! held to it, the groups before it where they went, and those after it left out. The value with most of the group's
//! pods wins, then the plan with fewest refusals, then the cheapest, then the first by name. If none holds enough, the
//! group is refused, and the reason is that of the value which came nearest.
//!
//! A plan costs a plan for each such group and value: at most [`GROUP_DOMAIN_VALUES`] for a group, and
//! [`GROUP_DOMAIN_PLANS`] in all, as long as the budget of all passes
//! ([`PlanBudget`](crate::provisioning::orders::budget::PlanBudget)) lasts. A group that not all values were tried for
//! is refused as undecided, if none of those that were has room.
//!
//! Left out, and refused by name: hosts, since a machine to come has no name; groups whose pods are spread as well,
//! because the scheduler counts nodes outside of the domain that the plan cannot be held to.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{KeyId, NamespacedName, Timestamp, Unsupported, ValueId};

use super::gangs::group_of;
use super::{Pass, Rest};
use crate::plan::rank::{Importance, PlanRank};
use crate::plan::reason::{GroupDomain, Reason};
use crate::plan::{Plan, Refusal, Verdict};
use crate::simulation::compile::request::{Fate, LeftOut, Refused, Request, held_to};
use crate::snapshot::{Excluded, Node, NodeLabels, PodId, Snapshot};
use crate::tuning::{GROUP_DOMAIN_PLANS, GROUP_DOMAIN_VALUES};

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

/// What becomes of the pods of such groups.
type Fates = BTreeMap<PodId, Fate>;

/// Makes the plan in which each group that has to be in one domain is in one, or has no new place.
pub(crate) struct GroupDomains;

impl Pass for GroupDomains {
    fn plan(&self, request: &Request<'_>, rest: &mut Rest<'_>) -> Option<Plan> {
        let groups = groups(&request.snapshot);
        if groups.is_empty() { rest.plan(request) } else { in_one_domain(request, &groups, rest) }
    }
}

fn in_one_domain(request: &Request<'_>, groups: &[Group<'_>], rest: &mut Rest<'_>) -> Option<Plan> {
    let snapshot = &*request.snapshot;
    let mut fates = Fates::new();
    // Plans from which groups are left out whose turn comes later are thrown away, so nobody reads why.
    let later = Refused { verdict: Verdict::OutOfBudget, reasons: Arc::default() };
    groups.iter().for_each(|group| group.leave_out(&later, &mut fates));
    let mut plans = GROUP_DOMAIN_PLANS;
    for group in groups {
        match choose(request, group, &mut fates, &mut plans, rest) {
            Ok(value) => group.hold_to(value, snapshot, &mut fates),
            Err(refused) => group.leave_out(&refused, &mut fates),
        }
    }
    rest.plan(&request.with(fates))
}

impl Group<'_> {
    fn hold_to(&self, value: ValueId, snapshot: &Snapshot, fates: &mut Fates) {
        fates.extend(held_to(snapshot, &self.members, self.key, value));
    }

    fn leave_out(&self, refused: &Refused, fates: &mut Fates) {
        let fate = Fate::LeftOut(LeftOut::Refused(refused.clone()));
        fates.extend(self.members.iter().map(|&pod| (pod, fate.clone())));
    }

    fn reason(&self, tried: usize, left: usize, nearest: Option<ValueId>) -> Reason {
        let runs_in = self.runs_in.iter().copied().collect();
        Reason::GroupDomain(GroupDomain { name: self.name.clone(), key: self.key, runs_in, tried, left, nearest })
    }
}

/// The value of the label that the group goes to. `plans` may still be made.
fn choose(
    request: &Request<'_>,
    group: &Group<'_>,
    fates: &mut Fates,
    plans: &mut usize,
    rest: &mut Rest<'_>,
) -> Result<ValueId, Refused> {
    let snapshot = &*request.snapshot;
    if group.is_spread {
        let key = snapshot.interner.key_name(group.key);
        let construct = format!("spread of the pods of PodGroup {}, which have to be in one {key},", group.name);
        let reasons = [Reason::Unsupported(Unsupported::new(construct))].into();
        return Err(Refused { verdict: Verdict::Unsupported, reasons });
    }
    let all = values(snapshot, group);
    let mut best: Option<(PlanRank, ValueId)> = None;
    let mut nearest: Option<(usize, ValueId, Arc<[Reason]>)> = None;
    let allowed = all.len().min(GROUP_DOMAIN_VALUES).min(*plans);
    let mut tried = 0;
    for &value in all.iter().take(allowed) {
        if rest.planning.budget.is_short() {
            break;
        }
        *plans -= 1;
        group.hold_to(value, snapshot, fates);
        let Some(found) = rest.plan(&request.with(fates.clone()).compared()) else { break };
        tried += 1;
        let waiting: Vec<&Refusal> =
            found.refusals.iter().filter(|refusal| group.members.contains(&refusal.pod)).collect();
        let placed = group.members.len() - waiting.len();
        if placed > 0 {
            let is_asked = |pod: PodId| group.members.contains(&pod);
            let of = |pod| if is_asked(pod) { Importance::AskedAbout } else { Importance::Any };
            let rank = PlanRank::of(&found, of);
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
    let left = all.len() - tried;
    let own = group.reason(tried, left, nearest.as_ref().map(|(_, value, _)| *value));
    let of_nearest = nearest.iter().flat_map(|(.., reasons)| reasons.iter().cloned());
    let verdict = if left > 0 { Verdict::OutOfBudget } else { Verdict::DoesNotFit };
    Err(Refused { verdict, reasons: std::iter::once(own).chain(of_nearest).collect() })
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
    values_of(snapshot, group.key)
}

/// The values of a label that a node has or a machine can get, by name.
fn values_of(snapshot: &Snapshot, key: KeyId) -> Vec<ValueId> {
    let names = &snapshot.interner;
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
