//! How many more copies of a class a machine holds: nothing is changed, and nothing allocated unless the class asks for an
//! open label or for devices.

use model::{IdSet, Interner, ResourceId, ResourceVec};
use smallvec::SmallVec;

use super::{Bin, BinId, Charging, State};
use crate::{
    catalogue::OfferingId,
    provisioning::{
        classes::ClassId,
        devices::{Spot, Way, Ways, narrow},
        limits::{self, Amounts},
        pools::{Alternative, PoolRank, PoolTable},
        problem::Problem,
    },
};

impl State {
    /// Copies of the class that an open machine takes in the given way, at most `wanted`.
    pub(crate) fn copies_in_bin(
        &mut self,
        problem: &Problem<'_>,
        bin: BinId,
        class: ClassId,
        alternative: &Alternative,
        wanted: u32,
    ) -> u32 {
        let wanted = self.copies_allowed(problem, Some(bin), class, alternative, wanted);
        if wanted == 0 {
            return 0;
        }
        self.with_buffers(|state, candidates, trial| {
            let Some(held) = state.bins.get(bin.0) else { return 0 };
            let table = &problem.pools[held.pool];
            if held.is_elsewhere(table, alternative) || problem.is_avoided(table, class, alternative) {
                return 0;
            }
            candidates.clone_from(&held.offerings);
            candidates.intersect_with(&alternative.offerings);
            if !state.open_labels_agree(table, held, alternative, candidates, problem.names()) {
                return 0;
            }
            let most = Trial { problem, pool: held.pool, bin: Some((bin, held)), class, alternative, ways: None };
            state.most(most, candidates, trial, wanted)
        })
    }

    /// Copies of the class that a new machine of the pool takes in the given way, at most `wanted`.
    pub(crate) fn copies_in_new_bin(
        &mut self,
        problem: &Problem<'_>,
        pool: PoolRank,
        class: ClassId,
        alternative: &Alternative,
        wanted: u32,
    ) -> u32 {
        if problem.is_avoided(&problem.pools[pool], class, alternative) {
            return 0;
        }
        let wanted = self.copies_allowed(problem, None, class, alternative, wanted);
        if wanted == 0 {
            return 0;
        }
        self.with_buffers(|state, candidates, trial| {
            candidates.clone_from(&alternative.offerings);
            state.drop_exhausted_reservations(problem, pool, candidates);
            let most = Trial { problem, pool, bin: None, class, alternative, ways: None };
            state.most(most, candidates, trial, wanted)
        })
    }

    /// Whether a new machine of the pool would hold a copy if there were devices for it.
    pub(crate) fn new_bin_holds_beside_devices(
        &mut self,
        problem: &Problem<'_>,
        pool: PoolRank,
        class: ClassId,
        alternative: &Alternative,
    ) -> bool {
        let fitting = |state: &Self, candidates: &mut IdSet<OfferingId>, buffer: &mut IdSet<OfferingId>| {
            candidates.clone_from(&alternative.offerings);
            state.drop_exhausted_reservations(problem, pool, candidates);
            let trial = Trial { problem, pool, bin: None, class, alternative, ways: None };
            u32::from(state.fits(&trial, candidates, buffer, 1))
        };
        self.copies_allowed(problem, None, class, alternative, 1) == 1 && self.with_buffers(fitting) == 1
    }

    /// Runs a trial on the two buffers that all trials share.
    fn with_buffers(&mut self, run: impl FnOnce(&Self, &mut IdSet<OfferingId>, &mut IdSet<OfferingId>) -> u32) -> u32 {
        let mut candidates = std::mem::take(&mut self.candidates);
        let mut trial = std::mem::take(&mut self.trial);
        let copies = run(self, &mut candidates, &mut trial);
        (self.candidates, self.trial) = (candidates, trial);
        copies
    }

    /// The largest number of copies, at most `wanted`, that leaves an offering of `candidates`. What devices say is asked
    /// for no more copies than the rest allows.
    fn most(
        &self,
        trial: Trial<'_, '_>,
        candidates: &IdSet<OfferingId>,
        buffer: &mut IdSet<OfferingId>,
        wanted: u32,
    ) -> u32 {
        let most = at_most(wanted, |copies| self.fits(&trial, candidates, buffer, copies));
        if most == 0 || trial.problem.classes[trial.class].devices.is_none() {
            return most;
        }
        let Some(ways) = self.ways(trial.problem, trial.spot(), trial.class, trial.alternative.variant, most) else {
            return most;
        };
        let trial = Trial { ways: Some(&ways), ..trial };
        at_most(most.min(ways.most()), |copies| self.fits(&trial, candidates, buffer, copies))
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
        for (resource, amount) in trial.requests().iter() {
            let held = bin.map_or(0, |bin| bin.requests.get(resource));
            let Some(total) = amount.checked_mul(i64::from(copies)).and_then(|more| held.checked_add(more)) else {
                return false;
            };
            let Some(at_least) = table.at_least(resource, total) else { return false };
            buffer.intersect_with(at_least);
        }
        for (resource, amount) in trial.extra() {
            let held = bin.map_or(0, |bin| bin.requests.get(resource));
            let own = trial.requests().get(resource).saturating_mul(i64::from(copies));
            let total = held.saturating_add(own).saturating_add(amount);
            let Some(at_least) = table.at_least(resource, total) else { return false };
            buffer.intersect_with(at_least);
        }
        let holds = |open: &IdSet<OfferingId>| {
            !open.is_empty() && table.has_min_values(open) && self.within_limits(table, pool, bin, open)
        };
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
        ways.ways.iter().filter(|way| way.copies >= copies && self.is_allowed(way, is_new)).any(|way| {
            let mut open = buffer.clone();
            narrow(&mut open, table, &requests, bin, Some((way, copies)));
            holds(&open)
        })
    }

    /// Whether a way may be taken: at new machines those of a low score may be left out.
    pub(super) fn is_allowed(&self, way: &Way, is_new: bool) -> bool {
        !is_new || self.devices.as_ref().is_none_or(|devices| way.score >= devices.least_score)
    }

    pub(super) fn within_limits(
        &self,
        table: &PoolTable<'_>,
        pool: PoolRank,
        bin: Option<&Bin>,
        open: &IdSet<OfferingId>,
    ) -> bool {
        if table.limits.is_empty() || table.limits.have_room_for(1, &self.charges[pool]) {
            return true;
        }
        let mut used = self.charges[pool].clone();
        if let Some(bin) = bin {
            limits::sub(&mut used, &bin.charge);
        }
        limits::add(&mut used, &self.charge(table, open));
        table.limits.exceeded(&used).is_none()
    }

    pub(super) fn charge(&self, table: &PoolTable<'_>, open: &IdSet<OfferingId>) -> Amounts {
        match self.charging {
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

    pub(super) fn drop_exhausted_reservations(
        &self,
        problem: &Problem<'_>,
        pool: PoolRank,
        offerings: &mut IdSet<OfferingId>,
    ) {
        for (id, left) in &self.reservations {
            if *left <= 0 || !self.reserving.includes(*id) {
                offerings.difference_with(problem.reserved(pool, *id));
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

    fn spot(&self) -> Spot {
        self.bin.map_or(Spot::New(self.pool), |(id, _)| Spot::Bin(id))
    }
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
