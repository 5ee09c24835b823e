//! What is taken of machines to be before any pod comes that is planned: the devices of their daemons.
//!
//! Only devices of the machine itself are taken. A daemon that is given devices which others can use as well takes
//! these when its pod comes; machines that are only planned keep none of them back.

use std::sync::Arc;

use model::collections::FastMap;
use model::{Budget, IdSet, OutOfBudget};

use super::{Alternative, ClaimUse, NodeDemand, Offer};
use crate::inventory::{Inventory, ShapeId};
use crate::ledger::{BinLedger, ClusterLedger, Kind, Usage};

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
    /// Gives a pod its devices on every machine of a shape, besides what `overhead` holds there already; nothing is
    /// taken where it cannot have them. Where domains differ, what it would take in any of them is taken.
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
        let offer = self.try_add(&machine, crate::Copies { claims, copies: 1 }, &only, cluster, budget);
        cluster.rollback(mark);
        if offer.alternatives.is_empty() {
            return if offer.undecided.is_empty() { OverheadVerdict::Refused } else { OverheadVerdict::Undecided };
        }
        let (most, costs) = self.of_machine_alone(&offer, shape);
        Arc::make_mut(overhead.by_shape.entry(shape).or_default()).add(&most);
        OverheadVerdict::Given(costs)
    }

    /// Gives such a pod its devices on a machine that holds others already, or on a node, where it has them in time; in
    /// each of the shapes given by itself. A search that is given up takes nothing more.
    pub fn add_late_overhead(
        &self,
        bin: &mut BinLedger,
        shapes: &IdSet<ShapeId>,
        claims: &[ClaimUse],
        cluster: &mut ClusterLedger,
        budget: &mut Budget,
    ) -> Result<(), OutOfBudget> {
        let possible: Vec<ShapeId> =
            bin.shapes().into_iter().flatten().filter(|shape| shapes.contains(*shape)).collect();
        if let Kind::Node(_) = &bin.kind {
            let offer = self.try_add(bin, crate::Copies { claims, copies: 1 }, shapes, cluster, budget);
            if let Some(given) = offer.alternatives.first() {
                self.commit(bin, cluster, given);
            }
            return if offer.undecided.is_empty() { Ok(()) } else { Err(OutOfBudget) };
        }
        for shape in possible {
            let only: IdSet<ShapeId> = [shape].into_iter().collect();
            let offer = self.try_add(bin, crate::Copies { claims, copies: 1 }, &only, cluster, budget);
            if !offer.undecided.is_empty() {
                return Err(OutOfBudget);
            }
            let (most, _) = self.of_machine_alone(&offer, shape);
            if let Kind::Machine { hypotheses, .. } = &mut bin.kind {
                let of_shape = hypotheses.iter_mut().filter(|hypothesis| hypothesis.shape == shape);
                of_shape.for_each(|hypothesis| hypothesis.usage.add(&most));
            }
        }
        Ok(())
    }

    /// Gives back what one copy was given on a node that exists.
    pub fn refund(&self, cluster: &mut ClusterLedger, given: &Alternative) {
        for copy in given.trials.iter().flat_map(|trial| trial.copies.first()) {
            let mut usage = copy.usage.clone();
            // As it was charged.
            usage.counters.clear();
            cluster.refund(usage);
        }
    }

    /// What one copy would take, in whichever domain, of devices of the machine itself, and what it costs.
    fn of_machine_alone(&self, offer: &Offer, shape: ShapeId) -> (Usage, NodeDemand) {
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
        (most, costs)
    }
}
