//! Pools that planned machines bring for the nodes of their domain.
//!
//! A machine brings a pool to others as soon as that is certain: all shapes that it may still have bring an equal one,
//! and the labels that the pool's node selector takes from it are known. A pool of the machine comes and goes with it;
//! a pool of a domain is there as long as one machine brings it. Where machines describe a domain's one pool
//! differently, the first description holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Id;

use super::{BinLedger, ClusterLedger, Kind, Usage};
use crate::compile::ids::SharedPoolId;
use crate::inventory::shared::Brought;
use crate::inventory::unit::{BinId, Instance};
use dra_types::{NodeFacts, SelectorError};

/// The pools that machines bring.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Offered {
    /// By the bin's number.
    by_bin: Vec<Arc<[Brought]>>,
    /// The pool, how many machines bring it, and a number that orders descriptions by age.
    pools: BTreeMap<(SharedPoolId, Instance), (Brought, u32, u64)>,
}

impl Offered {
    pub(super) fn open(&mut self) {
        self.by_bin.push(Arc::default());
    }

    /// Forgets the bin opened last, which no longer brings anything.
    pub(super) fn close(&mut self) {
        self.by_bin.pop();
    }

    pub(super) fn of(&self, bin: BinId) -> &[Brought] {
        self.by_bin.get(bin.index()).map_or(&[], |pools| pools)
    }

    pub(super) fn replace(&mut self, bin: BinId, pools: Arc<[Brought]>) -> Arc<[Brought]> {
        let Some(slot) = self.by_bin.get_mut(bin.index()) else { return pools };
        let before = std::mem::replace(slot, Arc::clone(&pools));
        for brought in &*before {
            if let Some((_, machines, _)) = self.pools.get_mut(&brought.key()) {
                *machines -= 1;
                if *machines == 0 {
                    self.pools.remove(&brought.key());
                }
            }
        }
        let next = self.pools.values().map(|(.., since)| since + 1).max().unwrap_or(0);
        for (since, brought) in (next..).zip(&*pools) {
            self.pools.entry(brought.key()).or_insert_with(|| (brought.clone(), 0, since)).1 += 1;
        }
        before
    }

    /// The pools that a node can use.
    pub(crate) fn reaching(&self, facts: &NodeFacts) -> Result<Vec<Brought>, (SharedPoolId, SelectorError)> {
        let mut reaching = Vec::new();
        for (brought, _, since) in self.pools.values() {
            if !self.is_shadowed(brought, *since)
                && facts.is_in(&brought.scope).map_err(|error| (brought.pool, error))?
            {
                reaching.push(brought.clone());
            }
        }
        Ok(reaching)
    }

    /// Whether an earlier template describes the same pool of a domain.
    fn is_shadowed(&self, brought: &Brought, since: u64) -> bool {
        brought.instance.is_of_domain()
            && self.pools.values().any(|(other, _, of)| other.instance == brought.instance && *of < since)
    }
}

/// Who holds devices of pools that only one machine brings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolUsers {
    /// Other planned machines.
    pub bins: Vec<BinId>,
    /// Whether pods on existing nodes do.
    pub nodes: bool,
}

impl PoolUsers {
    /// Whether nobody loses devices if the machine goes.
    pub fn is_empty(&self) -> bool {
        self.bins.is_empty() && !self.nodes
    }
}

impl ClusterLedger {
    /// How many pools a machine brings for its domain, as far as that is certain.
    pub fn pools_brought_by(&self, bin: &BinLedger) -> usize {
        bin.id().map_or(0, |bin| self.offered.of(bin).len())
    }

    /// Who would lose devices if a machine went: others that hold devices of pools that only it brings. A packer drops
    /// them together with the machine, or keeps the machine.
    pub fn users_of_pools(&self, bin: &BinLedger) -> PoolUsers {
        let Kind::Machine { id, .. } = &bin.kind else { return PoolUsers::default() };
        let alone =
            |brought: &&Brought| self.offered.pools.get(&brought.key()).is_some_and(|(_, count, _)| *count == 1);
        let instances: Vec<Instance> =
            self.offered.of(*id).iter().filter(alone).map(|brought| brought.instance).collect();
        let uses = |usage: &Usage| {
            let mut units = usage.dedicated.iter().chain(usage.shares.keys());
            units.any(|unit| instances.contains(&unit.instance()))
        };
        let others = self.bins.iter().enumerate().map(|(index, usage)| (BinId::from_index(index), usage));
        PoolUsers {
            bins: others.filter(|(other, usage)| other != id && uses(usage)).map(|(other, _)| other).collect(),
            nodes: uses(&self.base),
        }
    }
}
