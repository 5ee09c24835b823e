//! Takes what was offered, and gives it back.

use std::sync::Arc;

use super::offer::{Alternative, Named, Trial};
use crate::inventory::Inventory;
use crate::inventory::unit::BinId;
use crate::ledger::{BinLedger, ClusterLedger, Kind, Place, PlannedClaim, Usage, settle};
use dra_types::Allocation;

impl Alternative {
    /// Takes this alternative in the bin and ledger for which [`super::Copies::try_add`] offered it, or in another
    /// machine that holds equally little. It may have been narrowed to some of its shapes and to fewer copies.
    pub fn commit(&self, inventory: &Inventory, bin: &mut BinLedger, cluster: &mut ClusterLedger) {
        let place = match &bin.kind {
            Kind::Node(node) => Place::Node(node.facts.name.clone()),
            Kind::Machine { id, .. } => Place::Bin(*id),
        };
        let taken = self.copies as usize;
        // A packer may have dropped shapes and lowered the copies.
        let is_meant = |trial: &&Arc<Trial>| trial.shape.is_none_or(|shape| self.shapes.contains(shape));
        let meant = self.trials.iter().filter(is_meant);
        let copies = meant.flat_map(|trial| trial.copies.iter().take(taken).map(move |copy| (trial, copy)));
        for (trial, copy) in copies {
            copy.given_up.iter().for_each(|claim| cluster.release(inventory, *claim));
            for Named { claim, pinned, allocation } in &copy.named {
                let place = if *pinned || self.is_for_several_domains() {
                    place.clone()
                } else {
                    Place::Nodes(allocation.node_selector.clone())
                };
                // Where shapes disagree, the claim can only be used where all of them allow it.
                let known =
                    cluster.claim(*claim).is_some_and(|known| matches!(known.place, Place::Bin(_) | Place::Node(_)));
                if !known {
                    let allocation = match (&bin.kind, trial.bin) {
                        (Kind::Machine { id, .. }, Some(asked)) if asked != *id => {
                            Arc::new(moved(allocation, asked, *id))
                        }
                        _ => Arc::clone(allocation),
                    };
                    cluster.set_claim(*claim, PlannedClaim { place, allocation });
                }
            }
            for claim in &copy.exclusive {
                if let Some(allocation) = cluster.allocation(inventory, *claim) {
                    let place = Place::Nodes(allocation.node_selector.clone());
                    cluster.set_claim(*claim, PlannedClaim { place, allocation: Arc::new(allocation.clone()) });
                }
            }
        }
        // Every trial is of the same claims.
        for joining in self.trials.first().into_iter().flat_map(|trial| &trial.joining) {
            cluster.join(*joining, self.copies);
        }
        match &mut bin.kind {
            Kind::Node(_) => {
                for copy in self.trials.iter().flat_map(|trial| trial.copies.iter().take(taken)) {
                    let mut usage = copy.usage.clone();
                    // What devices in base draw is counted from the devices themselves.
                    usage.counters.clear();
                    cluster.charge(usage);
                }
            }
            Kind::Machine { id, domain, hypotheses } => {
                domain.0.extend(self.domain.0.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value))));
                hypotheses.retain(|hypothesis| self.shapes.contains(hypothesis.shape));
                for hypothesis in hypotheses.iter_mut() {
                    // If it could land in several domains, it takes the most that it would take in any.
                    let mut most = Usage::default();
                    for trial in self.trials.iter().filter(|trial| trial.shape == Some(hypothesis.shape)) {
                        let asked = trial.bin.filter(|asked| asked != id);
                        let mut usage = Usage::default();
                        for copy in trial.copies.iter().take(taken) {
                            match asked {
                                // Pools that the other machine would have brought are brought by this one.
                                Some(asked) => usage.add(&copy.usage.moved(asked, *id)),
                                None => usage.add(&copy.usage),
                            }
                        }
                        most.max(&usage);
                    }
                    hypothesis.usage.add(&most);
                }
                settle(inventory, cluster, *id, domain, hypotheses);
            }
        }
    }

    /// Gives back what one copy was given on a node that exists. It stays a consumer of claims that it shares; daemons,
    /// for whom this is, share none.
    pub fn refund(&self, cluster: &mut ClusterLedger) {
        for copy in self.trials.iter().flat_map(|trial| trial.copies.first()) {
            let mut usage = copy.usage.clone();
            // Refunded as it was charged.
            usage.counters.clear();
            cluster.refund(usage);
        }
    }
}

/// An allocation of one planned machine, rewritten for another in its place: the names of pools that the machine brings
/// contain its number.
fn moved(allocation: &Allocation, from: BinId, to: BinId) -> Allocation {
    let (from, to) = (from.pool_name(), to.pool_name());
    let mut allocation = allocation.clone();
    for result in &mut allocation.results {
        let rest = result.device.pool.as_str().strip_prefix(from.as_str());
        if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('-')) {
            result.device.pool = format!("{to}{rest}").as_str().into();
        }
    }
    allocation
}
