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
pub(super) struct Balanced<'f>(BTreeMap<&'f NodePoolName, Totals>);

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
    pub(super) fn new(context: &Context<'f>) -> Self {
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

    /// The first NodePool by name to which a command for these machines is not worth its disruption.
    pub(super) fn disapproves(
        &self,
        context: &Context<'_>,
        machines: &[&FleetNode],
        saving: i128,
    ) -> Option<Unconsolidatable> {
        if self.0.is_empty() {
            return None;
        }
        let mut all = Totals::default();
        let mut by_pool: BTreeMap<&NodePoolName, Totals> = BTreeMap::new();
        for &machine in machines {
            all.add(machine);
            if let Some((name, _)) = context.pool_of(machine).filter(|(name, _)| self.0.contains_key(name)) {
                by_pool.entry(name).or_default().add(machine);
            }
        }
        by_pool.into_iter().find_map(|(name, of_command)| {
            let total = self.0.get(name)?;
            // saving · share / total price against disruption / total disruption, without fractions.
            let gain = saving.max(0) * of_command.price * total.disruption_cost;
            let pain = of_command.disruption_cost * all.price * total.price;
            let is_enough = pain == 0 || gain * K >= pain;
            let score = || i64::try_from(gain.saturating_mul(1000) / pain.max(1)).unwrap_or(i64::MAX);
            let disapproved = || Unconsolidatable::Balanced { node_pool: name.clone(), score_permille: score() };
            (!is_enough).then(disapproved)
        })
    }
}
