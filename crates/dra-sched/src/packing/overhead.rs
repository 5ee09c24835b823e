//! What is taken of machines to be before any pod comes that is planned: the devices of their daemons.
//!
//! Only devices of the machine itself are taken. A daemon that is given devices which others can use as well takes these
//! when its pod comes; machines that are only planned keep none of them back.

use std::sync::Arc;

use model::collections::FastMap;
use model::{Budget, IdSet};

use super::{ClaimUse, NodeDemand};
use crate::inventory::{Inventory, ShapeId};
use crate::ledger::{BinLedger, ClusterLedger, Usage};

/// Devices that are taken of each new machine, by shape.
#[derive(Debug, Clone, Default)]
pub struct MachineOverhead {
    by_shape: FastMap<ShapeId, Arc<Usage>>,
}

/// What became of one pod that is on each machine of a shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OverheadVerdict {
    /// It has its devices, which cost this of the machine's own resources at most.
    Given(NodeDemand),
    /// The machine has not got them.
    Refused,
    /// The search was given up.
    Undecided,
}

impl MachineOverhead {
    pub(crate) fn of(&self, shape: ShapeId) -> Usage {
        self.by_shape.get(&shape).map(|usage| Usage::clone(usage)).unwrap_or_default()
    }
}

impl Inventory {
    /// Gives a pod its devices on every machine of a shape, besides what `overhead` holds there already; nothing is taken
    /// where it cannot have them. Where domains differ, what it would take in any of them is taken.
    pub fn add_overhead(
        &self,
        overhead: &mut MachineOverhead,
        shape: ShapeId,
        claims: &[ClaimUse],
        cluster: &mut ClusterLedger,
        budget: &mut Budget,
    ) -> OverheadVerdict {
        let only: IdSet<ShapeId> = [shape].into_iter().collect();
        let mark = cluster.mark();
        let machine = BinLedger::machine_with(&only, overhead, cluster);
        let offer = self.try_add(&machine, claims, 1, &only, cluster, budget);
        cluster.rollback(mark);
        if offer.alternatives.is_empty() {
            return if offer.undecided.is_empty() { OverheadVerdict::Refused } else { OverheadVerdict::Undecided };
        }
        let mut most = Usage::default();
        let mut costs = NodeDemand::default();
        for alternative in &offer.alternatives {
            costs.max(&alternative.demand(Some(shape)));
            for copy in alternative.trials.iter().flat_map(|trial| trial.copies.first()) {
                most.max(&copy.usage);
            }
        }
        most.dedicated.retain(|unit| self.is_planned(unit.key()));
        most.shares.retain(|unit, _| self.is_planned(unit.key()));
        most.counters.retain(|(pool, ..), _| self.is_planned_pool(*pool));
        Arc::make_mut(overhead.by_shape.entry(shape).or_default()).add(&most);
        OverheadVerdict::Given(costs)
    }
}
