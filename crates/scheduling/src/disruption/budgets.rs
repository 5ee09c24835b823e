//! How many more nodes may be disrupted: budgets at the snapshot's moment, less what is being disrupted and what
//! commands of the plan have taken.
//!
//! The strictest active budget for a reason counts. What is under way counts against all of them, whatever for; so do
//! nodes that are not ready, but for the reason Unhealthy (Karpenter's `BuildDisruptionBudgetMapping`).

use std::collections::BTreeMap;
use std::sync::Arc;

use model::NodePoolName;

use super::plan::PoolAllowance;
use super::reason::BudgetLimit;
use crate::snapshot::fleet::{Budget, Fleet, FleetPool, Reason};

/// The reasons that allowances are reported for. Expired machines go by the budgets for Drifted.
const PLANNED_FOR: [Reason; 4] = [Reason::Underutilized, Reason::Empty, Reason::Drifted, Reason::Unhealthy];

/// What is left of each NodePool's budgets.
pub(super) struct Allowances<'f>(BTreeMap<&'f NodePoolName, OfPool<'f>>);

struct OfPool<'f> {
    pool: &'f FleetPool,
    taken: u32,
}

impl OfPool<'_> {
    fn strictest(&self, reason: Reason) -> Option<&Budget> {
        let of_reason = self.pool.budgets.iter().filter(|budget| budget.is_for(reason));
        of_reason.min_by_key(|budget| (budget.allowed, budget.index))
    }

    /// Nodes that are being disrupted, and those that commands have taken.
    fn disrupted(&self, reason: Reason) -> u32 {
        let unready = match reason {
            Reason::Underutilized | Reason::Empty | Reason::Drifted | Reason::Expired => self.pool.unready,
            Reason::Unhealthy => 0,
        };
        self.pool.going.saturating_add(unready).saturating_add(self.taken)
    }

    /// The limit that allows no more disruptions; `None` if more are allowed.
    fn limit(&self, reason: Reason) -> Option<BudgetLimit> {
        if let Some(fault) = self.pool.faults.first() {
            return Some(BudgetLimit::Fault { index: fault.index, problem: Arc::clone(&fault.problem) });
        }
        let strictest = self.strictest(reason)?;
        let disrupted = self.disrupted(reason);
        let Budget { index, allowed, until, .. } = *strictest;
        let limit = || BudgetLimit::Budget { index, text: Arc::clone(&strictest.text), allowed, disrupted, until };
        (disrupted >= allowed).then(limit)
    }
}

impl<'f> Allowances<'f> {
    pub(super) fn new(fleet: &'f Fleet) -> Self {
        Self(fleet.pools.iter().map(|(name, pool)| (name, OfPool { pool, taken: 0 })).collect())
    }

    /// The limit that keeps one more node of a NodePool from being disrupted; `None` if there is none.
    pub(super) fn limit(&self, pool: &NodePoolName, reason: Reason) -> Option<BudgetLimit> {
        self.0.get(pool)?.limit(reason)
    }

    /// How many more nodes of a NodePool may go; `None` if nothing limits them.
    pub(super) fn left(&self, pool: &NodePoolName, reason: Reason) -> Option<u32> {
        let of_pool = self.0.get(pool)?;
        if !of_pool.pool.faults.is_empty() {
            return Some(0);
        }
        Some(of_pool.strictest(reason)?.allowed.saturating_sub(of_pool.disrupted(reason)))
    }

    /// Counts one more node. Nothing is counted if the budgets allow no more.
    pub(super) fn take(&mut self, pool: &NodePoolName, reason: Reason) -> Result<(), BudgetLimit> {
        let Some(of_pool) = self.0.get_mut(pool) else { return Ok(()) };
        match of_pool.limit(reason) {
            Some(limit) => Err(limit),
            None => {
                of_pool.taken += 1;
                Ok(())
            }
        }
    }

    /// Returns the share of a node that stays after all.
    pub(super) fn give_back(&mut self, pool: &NodePoolName) {
        if let Some(of_pool) = self.0.get_mut(pool) {
            of_pool.taken = of_pool.taken.saturating_sub(1);
        }
    }

    /// The summary for each NodePool.
    pub(super) fn told(&self) -> Vec<PoolAllowance> {
        let told = |(name, of_pool): (&&NodePoolName, &OfPool<'_>)| {
            let allowed = |reason| match of_pool.pool.faults.is_empty() {
                true => of_pool.strictest(reason).map(|budget| budget.allowed),
                false => Some(0),
            };
            PoolAllowance {
                name: (*name).clone(),
                nodes: of_pool.pool.nodes,
                disrupted: of_pool.pool.going.saturating_add(of_pool.pool.unready),
                unready: of_pool.pool.unready,
                taken: of_pool.taken,
                allowed: PLANNED_FOR.into_iter().map(|reason| (reason, allowed(reason))).collect(),
                faults: of_pool.pool.faults.clone(),
            }
        };
        self.0.iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::snapshot::fleet::{BudgetFault, ConsolidationPolicy};

    fn budget(index: usize, reasons: &[Reason], allowed: u32) -> Budget {
        let reasons: BTreeSet<Reason> = reasons.iter().copied().collect();
        let reasons = (!reasons.is_empty()).then_some(reasons);
        Budget { index, reasons, allowed, text: "t".into(), until: None }
    }

    /// How many nodes each reason may take, each by itself, of a pool with these nodes going and not ready.
    fn left(going: u32, unready: u32, budgets: Vec<Budget>) -> [Option<u32>; 4] {
        let pool = FleetPool {
            policy: ConsolidationPolicy::WhenEmpty,
            consolidate_after: None,
            expiration: None,
            replicas: None,
            nodes: 10,
            going,
            unready,
            budgets,
            faults: Vec::new(),
        };
        let fleet = Fleet { pools: [("p".into(), pool)].into(), ..Fleet::default() };
        [Reason::Underutilized, Reason::Empty, Reason::Drifted, Reason::Unhealthy].map(|reason| {
            let mut allowances = Allowances::new(&fleet);
            let taken = (0..100).take_while(|_| allowances.take(&"p".into(), reason).is_ok()).count();
            (taken < 100).then(|| u32::try_from(taken).unwrap())
        })
    }

    #[test]
    fn the_strictest_budget_of_a_reason_less_what_is_disrupted_may_go() {
        use Reason::{Drifted, Empty, Unhealthy};
        type Case = (u32, u32, Vec<Budget>, [Option<u32>; 4]);
        let cases: &[Case] = &[
            (0, 0, vec![], [None; 4]),
            (0, 0, vec![budget(0, &[], 3)], [Some(3); 4]),
            (0, 0, vec![budget(0, &[], 3), budget(1, &[Empty], 5)], [Some(3); 4]),
            (0, 0, vec![budget(0, &[], 3), budget(1, &[Empty, Drifted], 1)], [Some(3), Some(1), Some(1), Some(3)]),
            (0, 0, vec![budget(0, &[Drifted], 0)], [None, None, Some(0), None]),
            (2, 0, vec![budget(0, &[], 3)], [Some(1); 4]),
            (4, 0, vec![budget(0, &[], 3)], [Some(0); 4]),
            (0, 2, vec![budget(0, &[], 3)], [Some(1), Some(1), Some(1), Some(3)]),
            (1, 1, vec![budget(0, &[Unhealthy], 2), budget(1, &[], 9)], [Some(7), Some(7), Some(7), Some(1)]),
        ];
        for (going, unready, budgets, expected) in cases {
            assert_eq!(left(*going, *unready, budgets.clone()), *expected, "{going} {unready} {budgets:?}");
        }
    }

    #[test]
    fn what_one_reason_takes_is_gone_for_the_others_and_comes_back() {
        let mut fleet = Fleet::default();
        let budgets = vec![budget(0, &[], 2), budget(1, &[Reason::Drifted], 1)];
        let pool = FleetPool {
            policy: ConsolidationPolicy::WhenEmpty,
            consolidate_after: None,
            expiration: None,
            replicas: None,
            nodes: 10,
            going: 0,
            unready: 0,
            budgets,
            faults: Vec::new(),
        };
        fleet.pools.insert("p".into(), pool.clone());
        let faults = vec![BudgetFault { index: 4, problem: "broken".into() }];
        fleet.pools.insert("q".into(), FleetPool { faults: faults.clone(), ..pool });
        let (p, q) = ("p".into(), "q".into());
        let mut allowances = Allowances::new(&fleet);
        assert_eq!(allowances.take(&p, Reason::Empty), Ok(()));
        let limit = BudgetLimit::Budget { index: 1, text: "t".into(), allowed: 1, disrupted: 1, until: None };
        assert_eq!(allowances.take(&p, Reason::Drifted), Err(limit));
        assert_eq!(allowances.take(&p, Reason::Empty), Ok(()));
        assert!(allowances.limit(&p, Reason::Empty).is_some());
        allowances.give_back(&p);
        allowances.give_back(&p);
        assert_eq!(allowances.take(&p, Reason::Drifted), Ok(()));
        // Fail closed: whatever the other budgets are for.
        let limit = BudgetLimit::Fault { index: 4, problem: "broken".into() };
        assert_eq!(allowances.take(&q, Reason::Empty), Err(limit));
        let told = allowances.told();
        let allowed = |pool: usize| told[pool].allowed.iter().map(|(_, allowed)| *allowed).collect::<Vec<_>>();
        assert_eq!(allowed(0), [Some(2), Some(2), Some(1), Some(2)]);
        assert_eq!((told[0].taken, told[1].taken, &told[1].faults), (1, 0, &faults));
        assert_eq!(allowed(1), [Some(0); 4]);
    }
}
