//! What forbids to evict a pod, and what its eviction costs.
//!
//! The rules are those of drains, of disruption and of provisioning, which plans for pods that will have to leave. A
//! drain asks the API server in the end; who plans has to know beforehand.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::taints;
use model::pod::DoNotDisrupt;
use model::workload::{PodDisruptionBudget, UnhealthyPodEvictionPolicy};
use model::{Interner, Pod, TaintEffect, Timestamp, Toleration, TolerationOperator, ValueId};

/// Why nobody may evict a pod now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forbidden {
    /// Its annotation `karpenter.sh/do-not-disrupt`, until then or for good.
    DoNotDisrupt(Option<Timestamp>),
    /// A PodDisruptionBudget that allows no disruption now.
    Budget(Arc<str>),
    /// Several PodDisruptionBudgets select it, by name: the eviction API then refuses, whatever they allow.
    SeveralBudgets(Vec<Arc<str>>),
}

/// Whether the pod's annotation forbids its disruption now. A pod that has not started has all of its time before it.
pub fn is_protected(pod: &Pod, now: Timestamp) -> bool {
    protected_until(pod, now).is_some()
}

/// Until when the annotation forbids the pod's disruption, the inner `None` being for good; the outer if it does not.
fn protected_until(pod: &Pod, now: Timestamp) -> Option<Option<Timestamp>> {
    match pod.do_not_disrupt {
        DoNotDisrupt::Never | DoNotDisrupt::Invalid => None,
        DoNotDisrupt::Always => Some(None),
        DoNotDisrupt::For(span) => {
            let until = pod.started_at.map(|started| started.saturating_add(span));
            until.is_none_or(|until| now < until).then_some(until)
        }
    }
}

/// Whether tolerations cover the taint of a disrupted node: such pods stay on it until it ends.
pub fn tolerates_disruption(tolerations: &[Toleration], interner: &Interner) -> bool {
    tolerations.iter().any(|toleration| {
        let key = match toleration.key {
            Some(key) => interner.key_name(key) == taints::DISRUPTED,
            None => true,
        };
        let value = match toleration.operator {
            TolerationOperator::Exists => true,
            TolerationOperator::Equal => toleration.key.is_some() && toleration.value == ValueId::EMPTY,
            TolerationOperator::Lt | TolerationOperator::Gt => false,
        };
        let effect = toleration.effect.is_none_or(|effect| effect == TaintEffect::NoSchedule);
        key && value && effect
    })
}

/// PodDisruptionBudgets by namespace.
#[derive(Debug, Default)]
pub struct Budgets<'a>(BTreeMap<&'a str, Vec<&'a PodDisruptionBudget>>);

impl<'a> Budgets<'a> {
    /// Of these.
    pub fn new(budgets: impl IntoIterator<Item = &'a PodDisruptionBudget>) -> Self {
        let mut by_namespace: BTreeMap<&str, Vec<&PodDisruptionBudget>> = BTreeMap::new();
        for budget in budgets {
            by_namespace.entry(&budget.name.namespace).or_default().push(budget);
        }
        by_namespace.values_mut().for_each(|budgets| budgets.sort_by(|a, b| a.name.cmp(&b.name)));
        Self(by_namespace)
    }

    /// Those that select a pod, by name.
    fn of(&self, pod: &'a Pod, interner: &'a Interner) -> impl Iterator<Item = &'a PodDisruptionBudget> {
        let of_namespace = self.0.get(&*pod.name.namespace).into_iter().flatten().copied();
        of_namespace.filter(|budget| budget.selector.matches(&pod.labels, interner))
    }

    /// Whether one that selects the pod never allows a disruption, whatever becomes of the others.
    pub fn hold_for_good(&self, pod: &'a Pod, interner: &'a Interner) -> bool {
        self.of(pod, interner).any(|budget| budget.never_allows_disruption)
    }

    /// Why the pod may not be evicted now (Karpenter's `pdb.Limits` and `pod.IsDisruptable`). The annotation counts for
    /// pods of DaemonSets and static pods too, though nobody evicts these; budgets count for what a drain would evict.
    pub fn forbid(&self, pod: &'a Pod, now: Timestamp, interner: &'a Interner) -> Option<Forbidden> {
        let has_ended = pod.phase.is_terminal();
        if !has_ended
            && pod.deletion_timestamp.is_none()
            && let Some(until) = protected_until(pod, now)
        {
            return Some(Forbidden::DoNotDisrupt(until));
        }
        if has_ended
            || pod.deletion_timestamp.is_some()
            || pod.is_mirror
            || tolerates_disruption(&pod.shape.tolerations, interner)
        {
            return None;
        }
        let selecting: Vec<&PodDisruptionBudget> = self.of(pod, interner).collect();
        if let [_, _, ..] = selecting.as_slice() {
            let names = selecting.iter().map(|budget| Arc::clone(&budget.name.name));
            return Some(Forbidden::SeveralBudgets(names.collect()));
        }
        let holds = |budget: &&&PodDisruptionBudget| {
            let lets_unready_go = budget.unhealthy_pod_eviction_policy == UnhealthyPodEvictionPolicy::AlwaysAllow;
            budget.disruptions_allowed <= 0 && !(lets_unready_go && pod.is_unready)
        };
        selecting.iter().find(holds).map(|budget| Forbidden::Budget(Arc::clone(&budget.name.name)))
    }
}

/// What an eviction costs, or those of a node, in units of 2⁻²⁷ of that of a pod of priority 0 about which nobody
/// says anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct EvictionCost(pub i64);

/// Who writes the annotation `controller.kubernetes.io/pod-deletion-cost` of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeletionCosts {
    /// Users: it says what an eviction costs them.
    #[default]
    OfUsers,
    /// The controller (feature gate PodDeletionCostManagement): it says which nodes are removed first, and nothing
    /// about evictions.
    Ours,
}

impl EvictionCost {
    /// That of a pod about which nobody says anything.
    pub const ONE: Self = Self(1 << 27);
    /// A pod costs at most so many times as much, and at least as many times less than nothing.
    const MOST: i64 = 10;

    /// The cost of one pod: 1, plus annotation `karpenter.sh/disruption-cost`, else `pod-deletion-cost` if users write
    /// it, divided by 2²⁷, plus the priority divided by 2²⁵; between -10 and 10 (Karpenter's
    /// `disruption.EvictionCost`).
    pub fn of(pod: &Pod, costs: DeletionCosts) -> Self {
        let of_deletion = match costs {
            DeletionCosts::OfUsers => pod.deletion_cost,
            DeletionCosts::Ours => None,
        };
        let own = pod.disruption_cost.or(of_deletion).unwrap_or(0);
        let cost = Self::ONE.0 + i64::from(own) + 4 * i64::from(pod.priority);
        Self(cost.clamp(-Self::MOST * Self::ONE.0, Self::MOST * Self::ONE.0))
    }

    /// That of a node: 1 and what those of its pods cost that have to be placed elsewhere; a pod that costs less than
    /// nothing costs nothing (Karpenter's `RescheduleDisruptionCost`).
    pub fn of_node(pods: impl Iterator<Item = Self>) -> Self {
        Self(pods.fold(Self::ONE.0, |sum, pod| sum.saturating_add(pod.0.max(0))))
    }
}

#[cfg(test)]
mod tests;
