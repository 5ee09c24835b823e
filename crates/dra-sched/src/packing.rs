//! What a packer asks: how many copies of a pod's claims does that machine hold, and at which price in freedom.
//!
//! *Problem.* A planned machine is one of several shapes, in one of several domains. For each combination that matters
//! find the largest number of copies, allocated one after the other as the scheduler will, and report combinations that
//! agree together.
//!
//! *Cost.* One search for each copy and each distinct view of the shapes asked for. *Bounds.* The budget is divided
//! equally among the views; a machine has at most `MAX_DOMAINS` combinations of domain values.

mod attempt;
mod commit;
mod daemon;
mod demand;
mod ends;
mod offer;
mod reach;
mod sets;
mod supply;

use std::sync::Arc;

use model::{Budget, IdSet};

use crate::compile::ids::ShapeId;
use crate::inventory::{ClaimUse, Inventory};
use crate::ledger::{BinLedger, ClusterLedger, Kind};
use attempt::Attempt;

pub use daemon::{Daemon, OverheadVerdict};
pub use demand::{ClaimShare, CostOfDevices, NodeDemand, told_devices};
pub use ends::{ends_on, may_end};
pub use offer::{Alternative, Offer, Refused, Undecided};
pub use reach::Reach;
pub use sets::DeviceSets;
pub use supply::{Hosts, Wanting, want_too_much};

#[cfg(test)]
mod tests;

/// The question to a machine.
#[derive(Debug, Clone, Copy)]
pub struct Copies<'a> {
    /// The claims of one pod.
    pub claims: &'a [ClaimUse],
    /// The largest number of such pods that is asked for.
    pub copies: u32,
}

impl Copies<'_> {
    /// How many of these copies a machine takes, on the shapes given; nothing is taken.
    ///
    /// Copies are allocated one after the other, as kube-scheduler does with as many pods. `shapes` is not looked at
    /// for a node that exists.
    pub fn try_add(
        self,
        inventory: &Inventory,
        bin: &BinLedger,
        shapes: &IdSet<ShapeId>,
        cluster: &ClusterLedger,
        budget: &mut Budget,
    ) -> Offer {
        let attempt = Attempt { inventory, cluster, asked: self };
        let trials = match &bin.kind {
            Kind::Node(node) => vec![Arc::new(attempt.on_node(node, budget))],
            Kind::Machine { id, domain, hypotheses } => {
                let wanted = hypotheses.iter().filter(|hypothesis| shapes.contains(hypothesis.shape));
                attempt.on_machine(*id, domain, wanted, budget)
            }
        };
        offer::of(trials)
    }
}
