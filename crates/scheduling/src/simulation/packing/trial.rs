//! How many more copies of a class a machine holds: nothing is changed, and nothing allocated unless the class asks for
//! an open label or for devices.

use model::{Answer, IdSet, Interner, ResourceId, ResourceVec};
use smallvec::SmallVec;

use super::Packing;
use super::state::{Bin, BinId, Charging};
use crate::catalogue::OfferingId;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::limits;
use crate::simulation::compile::limits::Amounts;
use crate::simulation::compile::pools::{Alternative, PoolRank, PoolTable};
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::devices::{DeviceRequest, Spot, Way, Ways, narrow};

impl Packing<'_> {
    /// Copies of the class that an open machine takes in the given way, at most `wanted`.
    pub(crate) fn copies_in_bin(
        &mut self,
        bin: BinId,
        class: ClassId,
        alternative: &Alternative,
        wanted: u32,
    ) -> Answer<u32> {
        let problem = self.problem;
        let wanted = self.copies_allowed(Some(bin), class, alternative, wanted);
        if wanted == 0 {
            return Answer::finished(0);
        }
        self.with_buffers(|packing, candidates, trial| {
            let Some(held) = packing.state.bins.get(bin.0) else { return Answer::finished(0) };
            let table = &problem.pools[held.pool];
            if held.is_elsewhere(table, alternative) || self.run.is_avoided(table, class, alternative) {
                return Answer::finished(0);
            }
            candidates.clone_from(&held.offerings);
            candidates.intersect_with(&alternative.offerings);
            if !packing.open_labels_agree(table, held, alternative, candidates, problem.names()) {
                return Answer::finished(0);
            }
            let most = Trial { problem, pool: held.pool, bin: Some((bin, held)), class, alternative, ways: None };
            packing.most(most, candidates, trial, wanted)
        })
    }

    /// Copies of the class that a new machine of the pool takes in the given way, at most `wanted`.
    pub(crate) fn copies_in_new_bin(
        &mut self,
        pool: PoolRank,
        class: ClassId,
        alternative: &Alternative,
        wanted: u32,
    ) -> Answer<u32> {
        let problem = self.problem;
        if self.run.is_avoided(&problem.pools[pool], class, alternative) {
            return Answer::finished(0);
        }
        let wanted = self.copies_allowed(None, class, alternative, wanted);
        if wanted == 0 {
            return Answer::finished(0);
        }
        self.with_buffers(|packing, candidates, trial| {
            candidates.clone_from(&alternative.offerings);
            packing.drop_exhausted_reservations(pool, candidates);
            let most = Trial { problem, pool, bin: None, class, alternative, ways: None };
            packing.most(most, candidates, trial, wanted)
        })
    }

    /// Whether a new machine of the pool would hold a copy if there were devices for it.
    pub(crate) fn new_bin_holds_beside_devices(
        &mut self,
        pool: PoolRank,
        class: ClassId,
        alternative: &Alternative,
    ) -> bool {
        let problem = self.problem;
        let fitting = |packing: &Self, candidates: &mut IdSet<OfferingId>, buffer: &mut IdSet<OfferingId>| {
            candidates.clone_from(&alternative.offerings);
            packing.drop_exhausted_reservations(pool, candidates);
            let trial = Trial { problem, pool, bin: None, class, alternative, ways: None };
            packing.fits(&trial, candidates, buffer, 1)
        };
        self.copies_allowed(None, class, alternative, 1) == 1 && self.with_buffers(fitting)
    }

    /// Runs a trial on the two buffers that all trials share.
    fn with_buffers<T>(&mut self, run: impl FnOnce(&Self, &mut IdSet<OfferingId>, &mut IdSet<OfferingId>) -> T) -> T {
        let mut candidates = std::mem::take(&mut self.state.candidates);
        let mut trial = std::mem::take(&mut self.state.trial);
        let found = run(self, &mut candidates, &mut trial);
        (self.state.candidates, self.state.trial) = (candidates, trial);
        found
    }

    /// The largest number of copies, at most `wanted`, that leaves an offering of `candidates`. What devices say is
    /// asked for no more copies than the rest allows.
    fn most(
        &self,
        trial: Trial<'_, '_>,
        candidates: &IdSet<OfferingId>,
        buffer: &mut IdSet<OfferingId>,
        wanted: u32,
    ) -> Answer<u32> {
        let most = at_most(wanted, |copies| self.fits(&trial, candidates, buffer, copies));
        if most == 0 || trial.problem.classes[trial.class].devices.is_none() {
            return Answer::finished(most);
        }
        self.ways(trial.request(most)).map(|ways| {
            let Some(ways) = ways else { return most };
            let trial = Trial { ways: Some(&ways), ..trial };
            at_most(most.min(ways.most()), |copies| self.fits(&trial, candidates, buffer, copies))
        })
    }

    fn fits(
        &self,
        trial: &Trial<'_, '_>,
        candidates: &IdSet<OfferingId>,
        buffer: &mut IdSet<OfferingId>,
        copies: u32,
    ) -> bool {
        let (problem, pool) = (trial.problem, trial.pool);
        let table = &problem.pools[pool];
        let bin = trial.bin.map(|(_, bin)| bin);
        buffer.clone_from(candidates);
        // One lookup and one intersection per resource, however many offerings there are (see `FitIndex`).
        for (resource, amount) in trial.requests().iter() {
            let held = bin.map_or(0, |bin| bin.requests.get(resource));
            let Some(total) = amount.checked_mul(i64::from(copies)).and_then(|more| held.checked_add(more)) else {
                return false;
            };
            let Some(at_least) = table.at_least(resource, total) else { return false };
            buffer.intersect_with(at_least);
        }
        // A shared volume takes one attachment however many copies use it, so it does not grow with the copies.
        for (resource, amount) in trial.extra() {
            let held = bin.map_or(0, |bin| bin.requests.get(resource));
            let own = trial.requests().get(resource).saturating_mul(i64::from(copies));
            let total = held.saturating_add(own).saturating_add(amount);
            let Some(at_least) = table.at_least(resource, total) else { return false };
            buffer.intersect_with(at_least);
        }
        // minValues and limits are looked at last, since they need the offerings that everything else leaves.
        let holds = |open: &IdSet<OfferingId>| {
            !open.is_empty() && table.has_min_values(open) && self.within_limits(table, pool, bin, open)
        };
        // Devices can cost resources of the machine (KEP-5517), so a machine that holds some is narrowed by shape even
        // for pods without claims.
        let costs = bin.is_some_and(|bin| bin.devices.is_some());
        if trial.ways.is_none() && !costs {
            return holds(buffer);
        }
        let requests = trial.requests_with(copies);
        let Some(ways) = trial.ways else {
            narrow(buffer, table, &requests, bin, None);
            return holds(buffer);
        };
        let is_new = trial.bin.is_none();
        // Each way leaves other offerings; one that holds the copies is enough.
        ways.ways.iter().filter(|way| way.copies >= copies && self.is_allowed(way, is_new)).any(|way| {
            let mut open = buffer.clone();
            narrow(&mut open, table, &requests, bin, Some((way, copies)));
            holds(&open)
        })
    }

    /// Whether a way may be taken: at new machines those of a low score may be left out.
    pub(super) fn is_allowed(&self, way: &Way, is_new: bool) -> bool {
        !is_new || way.score >= self.mode.least_score
    }

    pub(super) fn within_limits(
        &self,
        table: &PoolTable<'_>,
        pool: PoolRank,
        bin: Option<&Bin>,
        open: &IdSet<OfferingId>,
    ) -> bool {
        if table.limits.is_empty() || table.limits.have_room_for(1, &self.state.charges[pool]) {
            return true;
        }
        let mut used = self.state.charges[pool].clone();
        if let Some(bin) = bin {
            limits::sub(&mut used, &bin.charge);
        }
        limits::add(&mut used, &self.charge(table, open));
        table.limits.exceeded(&used).is_none()
    }

    pub(super) fn charge(&self, table: &PoolTable<'_>, open: &IdSet<OfferingId>) -> Amounts {
        match self.state.charging {
            _ if table.limits.is_empty() => Amounts::new(),
            // All types that a minValues needs stay on the claim, so the largest of them counts.
            _ if !table.min_values.is_empty() => {
                table.limits.most(&table.limits.least_until(open, |kept| table.has_min_values(kept)))
            }
            Charging::Least => table.limits.least(open),
            Charging::Bound => table.limits.bound(open),
        }
    }

    /// Narrows `offerings` by what bin and class ask of open labels; false if nothing can satisfy both.
    fn open_labels_agree(
        &self,
        table: &PoolTable<'_>,
        bin: &Bin,
        alternative: &Alternative,
        offerings: &mut IdSet<OfferingId>,
        names: &Interner,
    ) -> bool {
        if alternative.open.is_empty() {
            return true;
        }
        let mut open = bin.open.clone();
        open.intersect(&alternative.open, names);
        if open.first_empty(names).is_some() {
            return false;
        }
        table.retain_open(offerings, &open, names);
        !offerings.is_empty()
    }

    pub(super) fn drop_exhausted_reservations(&self, pool: PoolRank, offerings: &mut IdSet<OfferingId>) {
        for (id, left) in &self.state.reservations {
            if *left <= 0 || !self.mode.reserving.includes(*id) {
                offerings.difference_with(self.problem.reserved(pool, *id));
            }
        }
    }
}

/// A question about one machine: how many copies of a class, in which way.
#[derive(Clone, Copy)]
struct Trial<'a, 's> {
    problem: &'a Problem<'s>,
    pool: PoolRank,
    /// An open machine; `None` for a new one.
    bin: Option<(BinId, &'a Bin)>,
    class: ClassId,
    alternative: &'a Alternative,
    /// How the copies can have their devices, once that is asked.
    ways: Option<&'a Ways>,
}

impl<'a> Trial<'a, '_> {
    fn requests(&self) -> &'a ResourceVec {
        self.problem.classes[self.class].requests(self.alternative.variant)
    }

    /// What the machine's pods request together with more copies.
    fn requests_with(&self, copies: u32) -> ResourceVec {
        let mut total = self.bin.map(|(_, bin)| bin.requests.clone()).unwrap_or_default();
        for (resource, amount) in self.requests().iter() {
            let more = amount.saturating_mul(i64::from(copies));
            total.set(resource, total.get(resource).saturating_add(more));
        }
        for (resource, amount) in self.extra() {
            total.set(resource, total.get(resource).saturating_add(amount));
        }
        total
    }

    /// What volumes take that are shared with others and not attached yet.
    fn extra(&self) -> SmallVec<[(ResourceId, i64); 2]> {
        let attached = self.bin.map_or(&[][..], |(_, bin)| &bin.attached);
        self.problem.shared_volumes.extra(self.class, attached)
    }

    /// What so many copies ask for of devices.
    fn request(&self, copies: u32) -> DeviceRequest {
        let spot = self.bin.map_or(Spot::New(self.pool), |(id, _)| Spot::Bin(id));
        DeviceRequest { spot, class: self.class, variant: self.alternative.variant, copies }
    }
}

/// Copies that fit on top of what is held.
pub(crate) fn more_copies(requests: &ResourceVec, held: &ResourceVec, total: &ResourceVec, wanted: u32) -> u32 {
    requests.iter().filter(|(_, amount)| *amount > 0).fold(wanted, |copies, (resource, amount)| {
        let free = total.get(resource).saturating_sub(held.get(resource)).max(0);
        // A division costs more than all else here, and most of the time there is room.
        if copies == 0 || amount.checked_mul(i64::from(copies)).is_some_and(|all| all <= free) {
            return copies;
        }
        copies.min(u32::try_from(free / amount).unwrap_or(u32::MAX))
    })
}

/// The largest number up to `wanted` for which something holds that holds for all smaller ones.
fn at_most(wanted: u32, mut holds: impl FnMut(u32) -> bool) -> u32 {
    // Mostly there is room for all.
    if wanted == 0 || holds(wanted) {
        return wanted;
    }
    if wanted == 1 || !holds(1) {
        return 0;
    }
    let (mut most, mut too_many) = (1, wanted);
    while too_many - most > 1 {
        let middle = most + (too_many - most) / 2;
        if holds(middle) { most = middle } else { too_many = middle }
    }
    most
}
