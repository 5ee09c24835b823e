//! What forbids to evict a pod, and what its eviction costs.

use model::pod::DoNotDisrupt;
use model::{Pod, Timestamp};

/// Whether the pod's annotation forbids its disruption now. A pod that has not started has all of its time before it.
pub fn is_protected(pod: &Pod, now: Timestamp) -> bool {
    match pod.do_not_disrupt {
        DoNotDisrupt::Never | DoNotDisrupt::Invalid => false,
        DoNotDisrupt::Always => true,
        DoNotDisrupt::For(span) => pod.started_at.is_none_or(|started| now < started.saturating_add(span)),
    }
}

/// What an eviction costs, in units of 2⁻²⁷ of that of a pod of priority 0 about which nobody says anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct EvictionCost(pub i64);

impl EvictionCost {
    /// That of a pod about which nobody says anything.
    pub const ONE: Self = Self(1 << 27);
    /// A pod costs at most so many times as much, and at least as many times less than nothing.
    const MOST: i64 = 10;

    /// That of a pod: 1 and its deletion cost by 2²⁷ and its priority by 2²⁵, between -10 and 10 (Karpenter's
    /// `disruption.EvictionCost`).
    pub fn of(pod: &Pod) -> Self {
        let cost = Self::ONE.0 + i64::from(pod.deletion_cost) + 4 * i64::from(pod.priority);
        Self(cost.clamp(-Self::MOST * Self::ONE.0, Self::MOST * Self::ONE.0))
    }
}
