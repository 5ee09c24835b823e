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
            // saving · share / total price against disruption / total disruption, without fractions.
            let gain = saving.max(0) * of_command.price * total.disruption_cost;
            let pain = of_command.disruption_cost * all.price * total.price;
            Some((name, Score { gain, pain }))
        };
        by_pool.into_iter().filter_map(score).collect()
    }
}

/// What a command saves against what it disrupts, both as parts of a NodePool and on one scale.
#[derive(Debug, Clone, Copy)]
pub(in crate::disruption) struct Score {
    gain: i128,
    pain: i128,
}

impl Score {
    fn is_enough(self) -> bool {
        self.pain == 0 || self.gain * K >= self.pain
    }

    /// The quotient in thousandths.
    pub(in crate::disruption) fn permille(self) -> i64 {
        i64::try_from(self.gain.saturating_mul(1000) / self.pain.max(1)).unwrap_or(i64::MAX)
    }
}
