//! Gives daemons' pods their devices on planned machines, before any planned pod comes.
//!
//! Only devices of the machine itself are taken. A daemon may also be given devices that other nodes can use; it takes
//! these when its pod comes, and planned machines withhold none of them.

use model::{Budget, IdSet, OutOfBudget};

use super::{ClaimUse, Copies, NodeDemand, Offer};
use crate::compile::ids::ShapeId;
use crate::inventory::Inventory;
use crate::ledger::{BinLedger, ClusterLedger, Kind, MachineOverhead, Usage};

/// The result for one pod that runs on each machine of a shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OverheadVerdict {
    /// It has its devices, which cost this of the machine's own resources at most.
    Given(NodeDemand),
    /// The machine does not have them.
    Refused,
    /// The search was given up.
    Undecided,
}

/// The pod that a daemon has on each machine.
#[derive(Debug, Clone, Copy)]
pub struct Daemon<'a> {
    /// Its claims.
    pub claims: &'a [ClaimUse],
}

impl Daemon<'_> {
    fn copies(&self) -> Copies<'_> {
        Copies { claims: self.claims, copies: 1 }
    }

    /// Gives the pod its devices on every machine of a shape, besides what `overhead` holds there already; nothing is
    /// taken where it cannot have them. Where domains differ, what it would take in any of them is taken.
    pub fn add_to(
        self,
        inventory: &Inventory,
        overhead: &mut MachineOverhead,
        shape: ShapeId,
        cluster: &mut ClusterLedger,
        budget: &mut Budget,
    ) -> OverheadVerdict {
        let only: IdSet<ShapeId> = [shape].into_iter().collect();
        let mark = cluster.mark();
        let machine = BinLedger::machine_with(&only, overhead, cluster);
        let offer = self.copies().try_add(inventory, &machine, &only, cluster, budget);
        cluster.rollback(mark);
        if offer.alternatives.is_empty() {
            return if offer.undecided.is_empty() { OverheadVerdict::Refused } else { OverheadVerdict::Undecided };
        }
        let (most, costs) = of_machine_alone(inventory, &offer, shape);
        overhead.add(shape, &most);
        OverheadVerdict::Given(costs)
    }

    /// Gives the pod its devices on a machine that already holds others, or on a node, where the devices may appear
    /// late; in each of the given shapes separately. A search that is given up takes nothing more.
    ///
    /// # Errors
    /// The budget ran out.
    pub fn add_late(
        self,
        inventory: &Inventory,
        bin: &mut BinLedger,
        shapes: &IdSet<ShapeId>,
        cluster: &mut ClusterLedger,
        budget: &mut Budget,
    ) -> Result<(), OutOfBudget> {
        let possible: Vec<ShapeId> =
            bin.shapes().into_iter().flatten().filter(|shape| shapes.contains(*shape)).collect();
        if let Kind::Node(_) = &bin.kind {
            let offer = self.copies().try_add(inventory, bin, shapes, cluster, budget);
            if let Some(given) = offer.alternatives.first() {
                given.commit(inventory, bin, cluster);
            }
            return if offer.undecided.is_empty() { Ok(()) } else { Err(OutOfBudget) };
        }
        for shape in possible {
            let only: IdSet<ShapeId> = [shape].into_iter().collect();
            let offer = self.copies().try_add(inventory, bin, &only, cluster, budget);
            if !offer.undecided.is_empty() {
                return Err(OutOfBudget);
            }
            let (most, _) = of_machine_alone(inventory, &offer, shape);
            if let Kind::Machine { hypotheses, .. } = &mut bin.kind {
                let of_shape = hypotheses.iter_mut().filter(|hypothesis| hypothesis.shape == shape);
                of_shape.for_each(|hypothesis| hypothesis.usage.add(&most));
            }
        }
        Ok(())
    }
}

/// What one copy takes of the machine's own devices, at most over all domains, and what it costs.
fn of_machine_alone(inventory: &Inventory, offer: &Offer, shape: ShapeId) -> (Usage, NodeDemand) {
    let mut most = Usage::default();
    let mut costs = NodeDemand::default();
    for alternative in &offer.alternatives {
        costs.max(&alternative.demand(Some(shape)));
        for copy in alternative.trials.iter().flat_map(|trial| trial.copies.first()) {
            most.max(&copy.usage);
        }
    }
    most.dedicated.retain(|unit| inventory.is_planned(unit.key()));
    most.shares.retain(|unit, _| inventory.is_planned(unit.key()));
    most.counters.retain(|(pool, ..), _| inventory.is_planned_pool(*pool));
    (most, costs)
}
