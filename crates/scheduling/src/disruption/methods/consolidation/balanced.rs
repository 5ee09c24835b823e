//! The policy `Balanced`: what a command saves, as a part of what its NodePool costs, against what it disrupts, as a
//! part of what disrupting all of it would cost. Half of the latter is enough (Karpenter's score with k = 2).
//!
//! A command of several NodePools is shared out by the prices of the nodes that go, and each NodePool with the policy
//! has to approve.

use std::collections::BTreeMap;

use model::NodePoolName;

use crate::disruption::candidates::Context;
use crate::disruption::reason::Unconsolidatable;
use crate::snapshot::fleet::{ConsolidationPolicy, FleetNode};

/// How many times a saving may be smaller than the disruption, both as parts of their NodePools.
const K: i128 = 2;

/// What each NodePool with the policy costs in all.
#[derive(Debug, Default)]
pub(in crate::disruption) struct Balanced<'f>(BTreeMap<&'f NodePoolName, Totals>);

#[derive(Debug, Default, Clone, Copy)]
struct Totals {
    price: i128,
    disruption_cost: i128,
}

impl Totals {
    fn add(&mut self, machine: &FleetNode) {
        self.price += machine.machine.price().map_or(0, |price| i128::from(price.0));
        self.disruption_cost += i128::from(machine.eviction_cost().0);
    }
}

impl<'f> Balanced<'f> {
    pub(in crate::disruption) fn new(context: &Context<'f>) -> Self {
        let mut totals: BTreeMap<&NodePoolName, Totals> = BTreeMap::new();
        for machine in &context.fleet.nodes {
            if let Some((name, pool)) = context.pool_of(machine)
                && pool.policy == ConsolidationPolicy::Balanced
            {
                totals.entry(name).or_default().add(machine);
            }
        }
        Self(totals)
    }

    /// Whether no NodePool has the policy.
    pub(in crate::disruption) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first NodePool by name to which a command for these machines is not worth its disruption.
    pub(super) fn disapproves(
        &self,
        context: &Context<'f>,
        machines: &[&FleetNode],
        saving: i128,
    ) -> Option<Unconsolidatable> {
        let disapproving = self.scores(context, machines, saving).into_iter().find(|(_, score)| !score.is_enough());
        disapproving.map(|(name, score)| Unconsolidatable::Balanced {
            node_pool: name.clone(),
            score_permille: score.permille(),
        })
    }

    /// How each NodePool with the policy scores a command for these machines that saves so much, by name.
    pub(in crate::disruption) fn scores(
        &self,
        context: &Context<'f>,
        machines: &[&FleetNode],
        saving: i128,
    ) -> Vec<(&'f NodePoolName, Score)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let mut all = Totals::default();
        let mut by_pool: BTreeMap<&NodePoolName, Totals> = BTreeMap::new();
        for &machine in machines {
            all.add(machine);
            if let Some((name, _)) = context.pool_of(machine).filter(|(name, _)| self.0.contains_key(name)) {
                by_pool.entry(name).or_default().add(machine);
            }
        }
        let score = |(name, of_command): (&'f NodePoolName, Totals)| {
            let total = self.0.get(name)?;
            let saving = shared_out(saving.max(0), of_command.price, all.price)?;
            Some((name, Score::new(saving, of_command, *total)))
        };
        by_pool.into_iter().filter_map(score).collect()
    }
}

/// The part of a saving that belongs to machines that cost `price` of `whole`, down to a nano-dollar; `None` if nothing
/// costs anything.
fn shared_out(saving: i128, price: i128, whole: i128) -> Option<i128> {
    // Prices of fleets are sums of `i64`s, and a saving is no more than one: what may not be multiplied costs more than
    // all machines of the world.
    if price == whole { (whole != 0).then_some(saving) } else { saving.saturating_mul(price).checked_div(whole) }
}

/// What a command saves against what it disrupts, both as parts of a NodePool and on one scale.
#[derive(Debug, Clone, Copy)]
pub(in crate::disruption) struct Score {
    gain: i128,
    pain: i128,
}

impl Score {
    /// A saving and a disruption as parts of `total`.
    fn new(saving: i128, of_command: Totals, total: Totals) -> Self {
        // saving / total price against disruption / total disruption, without fractions.
        Self {
            gain: saving.saturating_mul(total.disruption_cost),
            pain: of_command.disruption_cost.saturating_mul(total.price),
        }
    }

    fn is_enough(self) -> bool {
        self.pain == 0 || self.gain.saturating_mul(K) >= self.pain
    }

    /// The quotient in thousandths.
    pub(in crate::disruption) fn permille(self) -> i64 {
        i64::try_from(self.gain.saturating_mul(1000) / self.pain.max(1)).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::eviction::EvictionCost;

    #[test]
    fn scores_of_the_largest_fleets_are_what_they_are_of_small_ones() {
        const DOLLAR: i128 = 1_000_000_000;
        let eviction = i128::from(10 * EvictionCost::ONE.0);
        // Machines that cost $100 per hour, each with 100 pods that are as dear to evict as a pod can be.
        let machines = |count: i128| Totals { price: count * 100 * DOLLAR, disruption_cost: count * 100 * eviction };
        for times in [1, 10, 1_000, 100_000] {
            let (all, total) = (machines(2 * times), machines(10 * times));
            // Two of ten go, and half of their price or a twentieth of it is saved.
            for (part, permille, is_enough) in [(2, 500, true), (20, 50, false)] {
                let half = shared_out(all.price / part, all.price / 2, all.price).unwrap();
                assert_eq!(half, all.price / part / 2, "{times}");
                let score = Score::new(all.price / part, all, total);
                assert_eq!((score.permille(), score.is_enough()), (permille, is_enough), "{times}");
            }
        }
    }

    #[test]
    fn what_costs_nothing_has_no_share_and_what_disrupts_nothing_is_approved() {
        assert_eq!(shared_out(5, 0, 0), None);
        assert_eq!(shared_out(5, 0, 7), Some(0));
        assert_eq!(shared_out(5, 7, 7), Some(5));
        assert!(Score::new(0, Totals::default(), Totals { price: 7, disruption_cost: 7 }).is_enough());
        assert!(
            !Score::new(0, Totals { price: 7, disruption_cost: 7 }, Totals { price: 7, disruption_cost: 7 })
                .is_enough()
        );
    }
}
