//! Which devices, shares and counters are taken, by claims that are allocated and by what a plan has put where.
//!
//! Two kinds of taking. *Base*: certain, by allocated claims and by placements on existing nodes. *Withheld*: by a
//! planned machine that is still one of several shapes; what any of its shapes would need is kept from all others, a
//! device whole, capacity and counters by the most that one shape needs.
//!
//! All changes go through a journal, so that a packer can go back to a mark; nothing is undone by hand.

mod bin;
mod consumers;
mod offered;
mod overhead;
mod released;
mod snapshot;
mod stand_ins;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::collections::{FastMap, FastSet};
use smallvec::SmallVec;

use crate::compile::ids::{ClaimId, DeviceKey};
use crate::faults::Fault;
use crate::inventory::shared::Brought;
use crate::inventory::unit::{BinId, CounterKey, Instance, Unit};
use crate::inventory::{Inventory, PoolOrder};
use dra_types::{Allocation, AllocationResult, DeviceId, NodeFacts, NodeSelector, QualifiedName};

pub use bin::BinLedger;
pub(crate) use bin::{ExistingNode, Hypothesis, Kind, Place, settle};
use consumers::Consumers;
pub(crate) use consumers::Joining;
use offered::Offered;
pub use offered::PoolUsers;
pub use overhead::MachineOverhead;
pub(crate) use snapshot::Snapshot;

/// Nano-units taken of each capacity of a device.
pub(crate) type Amounts = BTreeMap<QualifiedName, i128>;

/// What is taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Devices given out whole.
    pub(crate) dedicated: FastSet<Unit>,
    /// Devices given out in shares: how many, and what they take together.
    pub(crate) shares: FastMap<Unit, (u32, Amounts)>,
    /// Nano-units drawn from counters of pools.
    pub(crate) counters: FastMap<CounterKey, i128>,
}

impl Usage {
    pub(crate) fn add_share(&mut self, key: Unit, count: u32, amounts: &Amounts) {
        let (shares, taken) = self.shares.entry(key).or_default();
        *shares += count;
        for (name, amount) in amounts {
            *taken.entry(name.clone()).or_default() += amount;
        }
    }

    /// Adds what a result holds of units.
    fn add_result(&mut self, result: &AllocationResult, units: impl IntoIterator<Item = Unit>) {
        for unit in units {
            match &result.share_id {
                Some(_) => {
                    let taken = result.consumed_capacity.iter();
                    let amounts = taken.map(|(name, amount)| (name.clone(), amount.to_nano())).collect();
                    self.add_share(unit, 1, &amounts);
                }
                None => {
                    self.dedicated.insert(unit);
                }
            }
        }
    }

    fn remove_share(&mut self, key: Unit, count: u32, amounts: &Amounts) {
        let Some((shares, taken)) = self.shares.get_mut(&key) else { return };
        *shares = shares.saturating_sub(count);
        for (name, amount) in amounts {
            if let Some(taken) = taken.get_mut(name) {
                *taken -= amount;
            }
        }
        if *shares == 0 {
            self.shares.remove(&key);
        }
    }

    /// The usage with the devices of the pool that one planned machine brings replaced by those that another brings.
    pub(crate) fn moved(&self, from: BinId, to: BinId) -> Self {
        let (from, to) = (Instance::of_bin(from), Instance::of_bin(to));
        let counter =
            |(pool, instance, counter): CounterKey| (pool, if instance == from { to } else { instance }, counter);
        Self {
            dedicated: self.dedicated.iter().map(|unit| unit.moved(from, to)).collect(),
            shares: self.shares.iter().map(|(unit, share)| (unit.moved(from, to), share.clone())).collect(),
            counters: self.counters.iter().map(|(key, amount)| (counter(*key), *amount)).collect(),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.dedicated.extend(&other.dedicated);
        for (&key, (count, amounts)) in &other.shares {
            self.add_share(key, *count, amounts);
        }
        for (&counter, amount) in &other.counters {
            *self.counters.entry(counter).or_default() += amount;
        }
    }

    fn remove(&mut self, other: &Self) {
        for key in &other.dedicated {
            self.dedicated.remove(key);
        }
        for (&key, (count, amounts)) in &other.shares {
            self.remove_share(key, *count, amounts);
        }
        for (&counter, amount) in &other.counters {
            *self.counters.entry(counter).or_default() -= amount;
        }
    }

    /// The larger of both, for each device, share and counter.
    pub(crate) fn max(&mut self, other: &Self) {
        self.dedicated.extend(&other.dedicated);
        for (&key, (count, amounts)) in &other.shares {
            let (shares, taken) = self.shares.entry(key).or_default();
            *shares = (*shares).max(*count);
            for (name, amount) in amounts {
                let taken = taken.entry(name.clone()).or_default();
                *taken = (*taken).max(*amount);
            }
        }
        for (&counter, amount) in &other.counters {
            let taken = self.counters.entry(counter).or_default();
            *taken = (*taken).max(*amount);
        }
    }
}

/// A claim that the plan has allocated.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlannedClaim {
    /// Where it can be used.
    pub(crate) place: Place,
    /// What it was given.
    pub(crate) allocation: Arc<Allocation>,
}

#[derive(Debug, Clone)]
enum Undo {
    /// Base gained this.
    Charged(Arc<Usage>),
    /// Base lost this.
    Refunded(Arc<Usage>),
    /// A bin's withholding was this before.
    Withheld(BinId, Arc<Usage>),
    /// What a bin brought was this before.
    Brought(BinId, Arc<[Brought]>),
    /// A bin was opened.
    Opened,
    /// A claim was this before.
    Claim(ClaimId, Option<PlannedClaim>),
    /// The plan gave a claim these consumers before.
    Consumers(ClaimId, Option<Consumers>),
    /// A claim held this.
    Released(ClaimId, Arc<Usage>),
}

/// A state of a [`ClusterLedger`] to go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Mark(usize);

/// What all nodes and planned machines share: what is taken, withheld, and brought.
#[derive(Debug, Clone, Default)]
pub struct ClusterLedger {
    pub(crate) base: Usage,
    bins: Vec<Arc<Usage>>,
    /// The bin that withholds a device whole; one at most.
    whole: FastMap<Unit, BinId>,
    /// The bins that withhold shares of a device.
    shared: FastMap<Unit, SmallVec<[BinId; 2]>>,
    /// The sum of what bins withhold of counters.
    counters: FastMap<CounterKey, i128>,
    /// Pools that bins bring for their domains.
    offered: Offered,
    claims: FastMap<ClaimId, PlannedClaim>,
    consumers: FastMap<ClaimId, Consumers>,
    /// Allocated claims that were released.
    released: BTreeSet<ClaimId>,
    pool_order: PoolOrder,
    journal: Vec<Undo>,
    marks: usize,
}

impl ClusterLedger {
    /// A ledger that holds what the inventory's allocated claims hold. Results with adminAccess hold nothing.
    pub fn new(inventory: &Inventory) -> Self {
        Self::without(inventory, &BTreeSet::new())
    }

    /// The ledger without what the given claims hold: claims whose consumers all go.
    pub fn without(inventory: &Inventory, released: &BTreeSet<ClaimId>) -> Self {
        let mut ledger = Self::default();
        let held = inventory.claims.iter_enumerated().filter(|(id, _)| !released.contains(id));
        for claim in held.map(|(_, claim)| claim) {
            for (result, key) in claim.results() {
                ledger.hold_result(inventory, result, Some(key), claim.nodes());
            }
        }
        ledger
    }

    /// Counts an allocation that is not among the inventory's claims.
    pub fn hold(&mut self, inventory: &Inventory, allocation: &Allocation) {
        for result in &allocation.results {
            let key = inventory.device_key(&result.device);
            self.hold_result(inventory, result, key, allocation.node_selector.as_deref());
        }
    }

    fn hold_result(
        &mut self,
        inventory: &Inventory,
        result: &AllocationResult,
        key: Option<DeviceKey>,
        nodes: Option<&NodeSelector>,
    ) {
        if !result.admin_access {
            let mut units: SmallVec<[Unit; 2]> = key.map(Unit::from).into_iter().collect();
            units.extend(stand_ins::of(inventory, result, nodes, &self.base));
            self.base.add_result(result, units);
        }
    }

    /// Counts a device that is given out whole.
    pub fn hold_device(&mut self, inventory: &Inventory, device: &DeviceId) {
        if let Some(key) = inventory.device_key(device) {
            self.base.dedicated.insert(key.into());
        }
    }

    /// Counts shares of a device, with what they take together.
    pub fn hold_shares(
        &mut self,
        inventory: &Inventory,
        device: &DeviceId,
        shares: u32,
        taken: &BTreeMap<QualifiedName, model::Quantity>,
    ) {
        if let Some(key) = inventory.device_key(device) {
            let amounts = taken.iter().map(|(name, amount)| (name.clone(), amount.to_nano())).collect();
            self.base.add_share(key.into(), shares, &amounts);
        }
    }

    /// Begins a part that may be undone.
    pub fn mark(&mut self) -> Mark {
        self.marks += 1;
        Mark(self.journal.len())
    }

    /// Keeps everything since the mark.
    pub fn keep(&mut self, _mark: Mark) {
        self.marks = self.marks.saturating_sub(1);
        if self.marks == 0 {
            self.journal.clear();
        }
    }

    /// Undoes everything since the mark. Bins opened since then must not be used again, and bins changed since then
    /// have to be put back to what they were by whoever keeps them.
    pub fn rollback(&mut self, mark: Mark) {
        self.marks = self.marks.saturating_sub(1);
        while self.journal.len() > mark.0 {
            match self.journal.pop() {
                Some(Undo::Charged(usage)) => self.base.remove(&usage),
                Some(Undo::Refunded(usage)) => self.base.add(&usage),
                Some(Undo::Released(claim, usage)) => self.hold_again(claim, &usage),
                Some(Undo::Withheld(bin, before)) => {
                    self.replace(bin, before);
                }
                Some(Undo::Brought(bin, before)) => {
                    self.offered.replace(bin, before);
                }
                Some(Undo::Opened) => {
                    self.bins.pop();
                    self.offered.close();
                }
                Some(Undo::Claim(claim, before)) => {
                    match before {
                        Some(planned) => self.claims.insert(claim, planned),
                        None => self.claims.remove(&claim),
                    };
                }
                Some(Undo::Consumers(claim, before)) => {
                    match before {
                        Some(consumers) => self.consumers.insert(claim, consumers),
                        None => self.consumers.remove(&claim),
                    };
                }
                None => break,
            }
        }
    }

    fn record(&mut self, undo: impl FnOnce() -> Undo) {
        if self.marks > 0 {
            self.journal.push(undo());
        }
    }

    /// Sets the assumed order of pools that are still to be published. A rollback does not undo this.
    pub fn assume_order_of_pools(&mut self, order: PoolOrder) {
        self.pool_order = order;
    }

    pub(crate) fn pool_order(&self) -> PoolOrder {
        self.pool_order
    }

    pub(crate) fn open(&mut self) -> BinId {
        let bin = model::Id::from_index(self.bins.len());
        self.bins.push(Arc::default());
        self.offered.open();
        self.record(|| Undo::Opened);
        bin
    }

    pub(crate) fn charge(&mut self, usage: Usage) {
        self.base.add(&usage);
        self.record(|| Undo::Charged(Arc::new(usage)));
    }

    pub(crate) fn refund(&mut self, usage: Usage) {
        self.base.remove(&usage);
        self.record(|| Undo::Refunded(Arc::new(usage)));
    }

    pub(crate) fn withhold(&mut self, bin: BinId, usage: Usage) {
        let before = self.replace(bin, Arc::new(usage));
        self.record(|| Undo::Withheld(bin, before));
    }

    /// Sets what a bin brings for its domain.
    pub(crate) fn bring(&mut self, bin: BinId, pools: Vec<Brought>) {
        if self.offered.of(bin) == pools.as_slice() {
            return;
        }
        let before = self.offered.replace(bin, pools.into());
        self.record(|| Undo::Brought(bin, before));
    }

    /// The pools of planned machines that a node can use.
    pub(crate) fn brought_to(&self, inventory: &Inventory, facts: &NodeFacts) -> Result<Vec<Brought>, Fault> {
        self.offered.reaching(facts).map_err(|(pool, error)| inventory.shared_fault(pool, error))
    }

    pub(crate) fn set_claim(&mut self, claim: ClaimId, planned: PlannedClaim) {
        let before = self.claims.insert(claim, planned);
        self.record(|| Undo::Claim(claim, before));
    }

    pub(crate) fn claim(&self, claim: ClaimId) -> Option<&PlannedClaim> {
        self.claims.get(&claim)
    }

    fn replace(&mut self, bin: BinId, usage: Arc<Usage>) -> Arc<Usage> {
        let Some(slot) = self.bins.get_mut(model::Id::index(bin)) else { return usage };
        let before = std::mem::replace(slot, Arc::clone(&usage));
        for key in &before.dedicated {
            self.whole.remove(key);
        }
        for key in before.shares.keys() {
            if let Some(bins) = self.shared.get_mut(key) {
                bins.retain(|other| *other != bin);
            }
        }
        for (counter, amount) in &before.counters {
            *self.counters.entry(*counter).or_default() -= amount;
        }
        for key in &usage.dedicated {
            self.whole.insert(*key, bin);
        }
        for key in usage.shares.keys() {
            self.shared.entry(*key).or_default().push(bin);
        }
        for (counter, amount) in &usage.counters {
            *self.counters.entry(*counter).or_default() += amount;
        }
        before
    }
}

/// What is taken from the perspective of one hypothesis of one bin: base, what other bins withhold, and what the
/// hypothesis itself takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken<'a> {
    pub(crate) cluster: &'a ClusterLedger,
    pub(crate) own: Option<(BinId, &'a Usage)>,
}

impl Taken<'_> {
    /// Whether a device is given out whole.
    pub(crate) fn is_dedicated(&self, key: Unit) -> bool {
        self.cluster.base.dedicated.contains(&key)
            || self.own.is_some_and(|(_, own)| own.dedicated.contains(&key))
            || self.cluster.whole.get(&key).is_some_and(|bin| self.own.is_none_or(|(own, _)| own != *bin))
    }

    /// What the shares of a device take; None if there are none.
    pub(crate) fn shares(&self, key: Unit) -> Option<Amounts> {
        let mut total = self.withheld_shares(key);
        add_shares(&mut total, &self.cluster.base, key);
        total
    }

    /// What the shares of a device take that are not in base.
    fn withheld_shares(&self, key: Unit) -> Option<Amounts> {
        let mut total: Option<Amounts> = None;
        for bin in self.cluster.shared.get(&key).into_iter().flatten() {
            let others = self.own.is_none_or(|(own, _)| own != *bin);
            if let Some(usage) = self.cluster.bins.get(model::Id::index(*bin)).filter(|_| others) {
                add_shares(&mut total, usage, key);
            }
        }
        if let Some((_, own)) = self.own {
            add_shares(&mut total, own, key);
        }
        total
    }

    /// Whether a device is given out, whole or in shares, by base: then its draws count.
    pub(crate) fn in_base(&self, key: Unit) -> bool {
        self.cluster.base.dedicated.contains(&key) || self.cluster.base.shares.contains_key(&key)
    }

    /// What bins and the hypothesis draw of a counter, over what devices in base draw.
    pub(crate) fn drawn(&self, key: CounterKey) -> i128 {
        let of = |counters: &FastMap<_, i128>| counters.get(&key).copied().unwrap_or(0);
        let withheld_by_own = self.own.and_then(|(bin, _)| self.cluster.bins.get(model::Id::index(bin)));
        of(&self.cluster.counters) - withheld_by_own.map_or(0, |usage| of(&usage.counters))
            + self.own.map_or(0, |(_, usage)| of(&usage.counters))
    }
}

fn add_shares(total: &mut Option<Amounts>, usage: &Usage, key: Unit) {
    if let Some((_, amounts)) = usage.shares.get(&key) {
        let total = total.get_or_insert_default();
        for (name, amount) in amounts {
            *total.entry(name.clone()).or_default() += amount;
        }
    }
}
