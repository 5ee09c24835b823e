//! How a broken Node is repaired, by the repair policies of its provider.
//!
//! Each condition of a Node that policies name is a [`Finding`] for each policy that matches it. A finding counts once
//! it has lasted for its policy's toleration. All findings that count give one [`Repair`]: the most disruptive action,
//! the shortest bound of the drain, and a score that orders the Nodes.
//!
//! The rules are those of Karpenter 1.15 (`pkg/controllers/node/health/policy.go`,
//! `pkg/controllers/disruption/{repair,repair_history}.go`). Scores are spans of time: a rank of priority is worth
//! half an hour of waiting.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::conditions::node_claim as conditions;
use api::{NodeClaim, annotations, labels};
use cloudprovider::{ConditionStatus, RepairAction, RepairPolicies, RepairPolicy};
use k8s_openapi::api::core::v1::Node;
use model::{DurationMs, Timestamp};
use scheduling::snapshot::fleet::{RepairHold, Unhealthy};

use crate::node_claim::timestamp;

/// If more Nodes of a NodePool than this, rounded up, are unhealthy, none is repaired: the cause is probably not in the
/// machines.
const MOST_UNHEALTHY_PERCENT: usize = 20;
/// How long a finding has to wait until it counts as much as a new one with a priority that is higher by one step.
const RANK: DurationMs = DurationMs::from_seconds(30 * 60);
/// A Node that was rebooted this many times within `REBOOT_WINDOW` is replaced.
const MOST_REBOOTS: usize = 2;
/// How long a reboot counts.
const REBOOT_WINDOW: DurationMs = DurationMs::from_seconds(24 * 60 * 60);

/// A policy that matches a condition of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding<'p> {
    /// The policy.
    pub policy: &'p RepairPolicy,
    /// The condition's reason.
    pub reason: String,
    /// When it has lasted for the policy's toleration.
    pub eligible_at: Timestamp,
}

/// The repair of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair<'p> {
    /// What decided about the action.
    pub because: Finding<'p>,
    /// What to do: that of the policy, unless reboots have not helped.
    pub action: RepairAction,
    /// Whether it is replaced because reboots have not helped.
    pub is_escalated: bool,
    /// How long its drain may take, by the policies; `None` leaves that to the NodeClaim.
    pub drain_bound: Option<DurationMs>,
    /// The higher, the earlier its turn.
    pub score: DurationMs,
}

impl Repair<'_> {
    /// `Ready=False (KubeletNotReady)`: the condition by which the Node is broken, and what has not helped.
    pub fn cause(&self) -> String {
        let condition = self.condition();
        if self.is_escalated { format!("{condition}, and reboots have not helped") } else { condition }
    }

    /// `Ready=False (KubeletNotReady)`: the condition by which the Node is broken.
    pub fn condition(&self) -> String {
        let RepairPolicy { condition_type, condition_status, .. } = self.because.policy;
        let because = if self.because.reason.is_empty() { "no reason" } else { &self.because.reason };
        format!("{condition_type}={} ({because})", condition_status.as_str())
    }
}

/// What the policies mean for a Node now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Diagnosis<'p> {
    /// No policy matches.
    Healthy,
    /// Some match, but their toleration is not over until then.
    Tolerated(Timestamp),
    /// It is to be repaired.
    Broken(Repair<'p>),
}

/// Whether policies name any condition of the Node as it is, whatever reason it has and however long it has lasted.
pub fn is_unhealthy(node: &Node, policies: &RepairPolicies) -> bool {
    symptoms(node).any(|(condition_type, status, ..)| policies.names(condition_type, status))
}

/// What the policies mean for a Node at that time. Tolerations count from the last reboot at the earliest.
pub fn diagnose<'p>(
    node: &Node,
    claim: Option<&NodeClaim>,
    policies: &'p RepairPolicies,
    now: Timestamp,
) -> Diagnosis<'p> {
    let all = findings(node, claim, policies);
    let (due, waiting): (Vec<_>, Vec<_>) = all.into_iter().partition(|finding| finding.eligible_at <= now);
    match merge(due, policies, now) {
        Some(repair) => Diagnosis::Broken(escalated(repair, claim, now)),
        None => match waiting.iter().map(|finding| finding.eligible_at).min() {
            Some(until) => Diagnosis::Tolerated(until),
            None => Diagnosis::Healthy,
        },
    }
}

/// A machine that was rebooted often enough is replaced.
fn escalated<'p>(repair: Repair<'p>, claim: Option<&NodeClaim>, now: Timestamp) -> Repair<'p> {
    let is_rebooted = || claim.is_some_and(|claim| reboots(claim, now).len() >= MOST_REBOOTS);
    if repair.action == RepairAction::RebootNode && is_rebooted() {
        Repair { action: RepairAction::ReplaceNode, is_escalated: true, ..repair }
    } else {
        repair
    }
}

/// How many Nodes of each NodePool are unhealthy, by their labels.
#[derive(Debug, Clone, Default)]
pub struct Health<'n> {
    /// Nodes, and how many of them are unhealthy; under "" those of the whole cluster.
    by_pool: BTreeMap<&'n str, (usize, usize)>,
}

impl<'n> Health<'n> {
    /// Counts these Nodes.
    pub fn new(nodes: impl IntoIterator<Item = &'n Node>, policies: &RepairPolicies) -> Self {
        let mut by_pool: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for node in nodes {
            let is_unhealthy = usize::from(is_unhealthy(node, policies));
            // A Node without NodePool is of the cluster only.
            for key in BTreeSet::from([pool_of(node), ""]) {
                let (nodes, unhealthy) = by_pool.entry(key).or_default();
                *nodes += 1;
                *unhealthy += is_unhealthy;
            }
        }
        Self { by_pool }
    }

    /// That so many Nodes of a NodePool are unhealthy that none is repaired; under "" of the whole cluster.
    pub fn hold(&self, node_pool: &str) -> Option<RepairHold> {
        let (nodes, unhealthy) = self.by_pool.get(node_pool).copied().unwrap_or_default();
        let is_too_many = unhealthy > (nodes * MOST_UNHEALTHY_PERCENT).div_ceil(100);
        is_too_many.then_some(RepairHold::TooMany { unhealthy, nodes })
    }
}

fn pool_of(node: &Node) -> &str {
    let of_node = node.metadata.labels.as_ref();
    of_node.and_then(|labels| labels.get(labels::NODEPOOL)).map_or("", String::as_str)
}

/// Whether a Node says that it is not to be repaired. Once there is a Node, only what it says counts.
pub fn is_vetoed(node: &Node) -> bool {
    let of_node = node.metadata.annotations.as_ref().and_then(|it| it.get(annotations::DO_NOT_REPAIR));
    of_node.is_some_and(|value| value == annotations::TRUE)
}

/// What says which machines are broken.
#[derive(Debug, Clone)]
pub struct RepairSources {
    /// The policies of the provider.
    pub policies: Arc<RepairPolicies>,
    /// Every Node.
    pub nodes: Vec<Arc<Node>>,
}

/// Looks which machines are to be replaced because they are broken.
#[derive(Debug)]
pub(crate) struct Repairs<'s> {
    policies: &'s RepairPolicies,
    /// Unhealthy Nodes, by name.
    unhealthy: BTreeMap<&'s str, &'s Node>,
    health: Health<'s>,
    now: Timestamp,
}

impl<'s> Repairs<'s> {
    pub(crate) fn new(sources: &'s RepairSources, now: Timestamp) -> Self {
        let RepairSources { policies, nodes } = sources;
        let nodes = || nodes.iter().map(AsRef::as_ref);
        let unhealthy = nodes().filter(|node| is_unhealthy(node, policies));
        let by_name = unhealthy.map(|node: &Node| (node.metadata.name.as_deref().unwrap_or_default(), node));
        Self { policies, unhealthy: by_name.collect(), health: Health::new(nodes(), policies), now }
    }

    /// That the machine of a NodeClaim with that Node is to be replaced. One that is to be rebooted is not.
    pub(crate) fn replaced(&self, node: &str, claim: &NodeClaim) -> Option<Unhealthy> {
        let node = self.unhealthy.get(node)?;
        let Diagnosis::Broken(repair) = diagnose(node, Some(claim), self.policies, self.now) else { return None };
        match repair.action {
            RepairAction::RebootNode => return None,
            RepairAction::ReplaceNode => {}
        }
        let vetoed = is_vetoed(node).then_some(RepairHold::DoNotRepair);
        Some(Unhealthy {
            condition: repair.cause().into(),
            since: repair.because.eligible_at,
            score: repair.score,
            drain_bound: repair.drain_bound,
            hold: vetoed.or_else(|| self.health.hold(pool_of(node))),
        })
    }
}

/// Type, status, reason and time of each condition.
fn symptoms(node: &Node) -> impl Iterator<Item = (&str, ConditionStatus, &str, Timestamp)> {
    let all = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    all.filter_map(|condition| {
        let since = condition.last_transition_time.as_ref().map(timestamp).unwrap_or_default();
        let reason = condition.reason.as_deref().unwrap_or_default();
        Some((condition.type_.as_str(), ConditionStatus::parse(&condition.status)?, reason, since))
    })
}

fn findings<'p>(node: &Node, claim: Option<&NodeClaim>, policies: &'p RepairPolicies) -> Vec<Finding<'p>> {
    let created_at = node.metadata.creation_timestamp.as_ref().map(timestamp).unwrap_or_default();
    let not_before = created_at.max(claim.and_then(last_reboot_ended_at).unwrap_or_default());
    let of_symptom = |(condition_type, status, reason, since): (&str, ConditionStatus, &str, Timestamp)| {
        let matching = policies.matching(condition_type, status, reason);
        let finding = |policy: &'p RepairPolicy| Finding {
            policy,
            reason: reason.to_owned(),
            eligible_at: since.max(not_before).saturating_add(policy.toleration),
        };
        matching.into_iter().map(finding).collect::<Vec<_>>()
    };
    symptoms(node).flat_map(of_symptom).collect()
}

/// One answer to all findings that count.
fn merge<'p>(due: Vec<Finding<'p>>, policies: &RepairPolicies, now: Timestamp) -> Option<Repair<'p>> {
    // A match that loses the action still bounds the drain: its policy knows for how long such a node can be drained.
    let drain_bound = due.iter().filter_map(|finding| finding.policy.termination_grace_period).min();
    let score = |finding: &Finding<'_>| {
        let rank = i64::try_from(policies.rank(finding.policy.priority)).unwrap_or(i64::MAX);
        let age = now.since(finding.eligible_at);
        DurationMs(rank.saturating_mul(RANK.0).saturating_add(age.0))
    };
    let score = due.iter().map(score).max()?;
    let because = due.into_iter().min_by(|a, b| order(a).cmp(&order(b)))?;
    Some(Repair { action: because.policy.action, because, is_escalated: false, drain_bound, score })
}

/// The most disruptive action first, then by priority, by time, by name.
fn order<'f>(finding: &'f Finding<'_>) -> impl Ord + use<'f> {
    let policy = finding.policy;
    (Reverse(policy.action), Reverse(policy.priority), finding.eligible_at, policy.condition_type.as_str())
}

/// When the last reboot of a machine ended, if one has, and it came up.
fn last_reboot_ended_at(claim: &NodeClaim) -> Option<Timestamp> {
    let of_claim = claim.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let rebooting = api::conditions::find(of_claim, conditions::REBOOTING)?;
    (rebooting.status == api::conditions::FALSE).then(|| timestamp(&rebooting.last_transition_time))
}

/// When a machine's reboots were asked for that still count, in order, by what is written on its NodeClaim.
///
/// Differs: `reboots-remembered`. Karpenter has them in memory.
///
/// A reboot is written down before it is asked for. So an entry that is later than the last change of condition
/// `Rebooting` is of one that was never asked for: the process died between the two.
pub fn reboots(claim: &NodeClaim, now: Timestamp) -> Vec<Timestamp> {
    let written = claim.metadata.annotations.as_ref().and_then(|it| it.get(annotations::REBOOTS));
    let of_claim = claim.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let Some(rebooting) = api::conditions::find(of_claim, conditions::REBOOTING) else { return Vec::new() };
    // The API keeps whole seconds.
    let last_change = timestamp(&rebooting.last_transition_time).saturating_add(DurationMs::from_seconds(1));
    let times = written.into_iter().flat_map(|text| text.split(',')).filter_map(|text| Timestamp::parse(text).ok());
    let counts = |time: &Timestamp| *time <= last_change && now.since(*time) < REBOOT_WINDOW;
    let mut times: Vec<Timestamp> = times.filter(counts).collect();
    times.sort_unstable();
    times
}

/// What is written on the NodeClaim of a machine that is about to be rebooted.
pub fn reboots_with(claim: &NodeClaim, now: Timestamp) -> String {
    let mut times = reboots(claim, now);
    times.push(now);
    let latest = times.split_off(times.len().saturating_sub(MOST_REBOOTS));
    latest.iter().map(Timestamp::to_string).collect::<Vec<_>>().join(",")
}

/// Whether condition Ready of the Node is true.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition.type_ == api::conditions::node::READY && condition.status == api::conditions::TRUE)
}

#[cfg(test)]
mod tests;
