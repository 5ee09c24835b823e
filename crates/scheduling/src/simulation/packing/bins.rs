//! Copies of a class on machines that the plan would create.

use model::{IdSet, PriceNanoUsdPerHour, Requirements, ValueId, collections::fast_hash};

use super::Packing;
use super::state::{Assignment, Bin, BinId, Target, Undo, place_in_bin};
use crate::catalogue::OfferingId;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::pools::{Alternative, PoolRank};
use crate::simulation::packing::devices::{DeviceRequest, Pick, Spot, narrow, pinned};

/// Copies of a class that go into one machine by one alternative.
#[derive(Clone, Copy)]
struct Batch<'a> {
    class: ClassId,
    alternative: &'a Alternative,
    copies: u32,
}

impl Packing<'_> {
    /// Puts copies into an open machine; the caller has asked [`Self::copies_in_bin`].
    pub(crate) fn place_in_bin(&mut self, id: BinId, class: ClassId, alternative: &Alternative, copies: u32) {
        let placed = self.try_place_in_bin(id, class, alternative, copies, Pick::Cheapest);
        debug_assert!(placed, "the caller has asked whether there is room");
    }

    /// Puts copies into an open machine, their devices picked in this way; false if they do not get their devices.
    pub(crate) fn try_place_in_bin(
        &mut self,
        id: BinId,
        class: ClassId,
        alternative: &Alternative,
        copies: u32,
        pick: Pick,
    ) -> bool {
        let problem = self.problem;
        let Some(slot) = self.state.bins.get_mut(id.0) else { return false };
        // The bin is cloned only where the journal, or the devices, need what it was before.
        let (mut bin, before) = if self.state.journal.is_recording() || self.state.devices.is_some() {
            (slot.clone(), Some(Box::new(slot.clone())))
        } else {
            let nothing = Bin::new(slot.pool, IdSet::default(), Requirements::default());
            (std::mem::replace(slot, nothing), None)
        };
        let table = &problem.pools[bin.pool];
        let taken = self.footprint(&bin);
        bin.offerings.intersect_with(&alternative.offerings);
        if !alternative.open.is_empty() {
            bin.open.intersect(&alternative.open, problem.names());
            let open = bin.open.clone();
            table.retain_open(&mut bin.offerings, &open, problem.names());
        }
        let is_filled = self.fill(&mut bin, Spot::Bin(id), Batch { class, alternative, copies }, pick);
        debug_assert!(is_filled || before.is_some(), "only devices can refuse");
        if !is_filled {
            return false;
        }
        self.account(id, Some(&taken), Some(&bin));
        if let Some(slot) = self.state.bins.get_mut(id.0) {
            *slot = bin;
        }
        if let Some(before) = before {
            self.state.journal.push(|| Undo::Changed(id, before));
        }
        self.count(class, |position, mine| place_in_bin(problem, id, alternative, position, mine), copies);
        self.assign(Assignment { class, target: Target::Bin(id), alternative: alternative.index, copies });
        true
    }

    /// Opens a machine with copies in it; the caller has asked [`Self::copies_in_new_bin`].
    pub(crate) fn open_bin(&mut self, pool: PoolRank, class: ClassId, alternative: &Alternative, copies: u32) {
        let opened = self.try_open_bin(pool, class, alternative, copies, Pick::Cheapest);
        debug_assert!(opened, "the caller has asked whether there is room");
    }

    /// Opens a machine with copies in it, their devices picked in this way; false if they do not get their devices.
    pub(crate) fn try_open_bin(
        &mut self,
        pool: PoolRank,
        class: ClassId,
        alternative: &Alternative,
        copies: u32,
        pick: Pick,
    ) -> bool {
        let mut offerings = IdSet::clone(&alternative.offerings);
        self.drop_exhausted_reservations(pool, &mut offerings);
        let mut bin = Bin::new(pool, offerings, alternative.open.clone());
        if !self.fill(&mut bin, Spot::New(pool), Batch { class, alternative, copies }, pick) {
            return false;
        }
        let id = BinId(self.state.bins.len());
        self.account(id, None, Some(&bin));
        self.state.bins.push(bin);
        self.state.journal.push(|| Undo::Opened);
        self.count(class, |position, mine| place_in_bin(self.problem, id, alternative, position, mine), copies);
        self.assign(Assignment { class, target: Target::Bin(id), alternative: alternative.index, copies });
        true
    }

    /// The rise in price if a machine stops drawing on the reservation; `None` if it does not draw on it, or has no
    /// other offering.
    pub(crate) fn price_without(&self, id: BinId, reservation: ValueId) -> Option<i128> {
        let bin = self.state.bins.get(id.0)?;
        let others = self.without_reservation(bin, reservation)?;
        Some(i128::from(others.price.0) - i128::from(bin.price.0))
    }

    /// Removes the reservation's offerings from a machine; the caller has asked [`Self::price_without`].
    pub(crate) fn leave_reservation(&mut self, id: BinId, reservation: ValueId) {
        let Some(slot) = self.state.bins.get(id.0) else { return };
        let Some(after) = self.without_reservation(slot, reservation) else { return };
        let before = Box::new(slot.clone());
        let taken = self.footprint(slot);
        self.account(id, Some(&taken), Some(&after));
        if let Some(slot) = self.state.bins.get_mut(id.0) {
            *slot = after;
        }
        self.state.journal.push(|| Undo::Changed(id, before));
    }

    /// The machine as it is without offerings of the reservation. Machines with devices keep what they have.
    fn without_reservation(&self, bin: &Bin, reservation: ValueId) -> Option<Bin> {
        let problem = self.problem;
        let (table, reserved) = (&problem.pools[bin.pool], problem.reserved(bin.pool, reservation));
        if bin.devices.is_some() || !reserved.intersects(&bin.offerings) {
            return None;
        }
        let mut after = bin.clone();
        after.offerings.difference_with(reserved);
        let is_possible = !after.offerings.is_empty()
            && table.has_min_values(&after.offerings)
            && self.within_limits(table, bin.pool, Some(bin), &after.offerings);
        is_possible.then(|| {
            after.charge = self.charge(table, &after.offerings);
            after.measure(table);
            after
        })
    }

    /// Adds copies to a machine that is not accounted for as it is now; false if there is no way to give them devices.
    fn fill(&mut self, bin: &mut Bin, spot: Spot, batch: Batch<'_>, pick: Pick) -> bool {
        let problem = self.problem;
        let Batch { class, alternative, copies } = batch;
        let table = &problem.pools[bin.pool];
        for (resource, amount) in problem.classes[class].requests(alternative.variant).iter() {
            bin.request(table, resource, amount.saturating_mul(i64::from(copies)));
        }
        if !problem.shared_volumes.of(class).is_empty() {
            for (resource, amount) in problem.shared_volumes.extra(class, &bin.attached) {
                bin.request(table, resource, amount);
            }
            problem.shared_volumes.attach(class, &mut bin.attached);
        }
        if self.state.devices.is_some()
            && !self.fill_devices(bin, DeviceRequest { spot, class, variant: alternative.variant, copies }, pick)
        {
            return false;
        }
        let key = (class, alternative.index);
        match bin.contents.iter_mut().find(|(held, held_index, _)| (*held, *held_index) == key) {
            Some((_, _, held)) => *held += copies,
            None => bin.contents.push((class, alternative.index, copies)),
        }
        bin.is_forced |= problem.classes[class].needs_host_alone;
        bin.kind = fast_hash(&(bin.pool, &bin.contents));
        bin.charge = self.charge(table, &bin.offerings);
        bin.measure(table);
        true
    }

    /// Gives the copies their devices and narrows the machine to the offerings that have them; false if none has.
    fn fill_devices(&mut self, bin: &mut Bin, request: DeviceRequest, pick: Pick) -> bool {
        let problem = self.problem;
        let DeviceRequest { spot, copies, .. } = request;
        let table = &problem.pools[bin.pool];
        let Some(ways) = self.ways(request).so_far() else {
            // Pods without claims on a machine whose devices cost something, or that has fewer shapes left.
            let mut offerings = std::mem::take(&mut bin.offerings);
            narrow(&mut offerings, table, &bin.requests, Some(bin), None);
            bin.offerings = offerings;
            if let Some(devices) = self.state.devices.as_mut().filter(|_| bin.devices.is_some()) {
                devices.release(problem, bin);
            }
            return true;
        };
        let is_new = matches!(spot, Spot::New(_));
        // Of the ways with enough copies, the cheapest machine wins, then the one with most offerings left.
        let mut best: Option<(PriceNanoUsdPerHour, std::cmp::Reverse<usize>, usize)> = None;
        for (index, way) in ways.ways.iter().enumerate() {
            let is_picked = match pick {
                Pick::Cheapest => self.is_allowed(way, is_new),
                Pick::Only(only, _) => index == only,
            };
            if way.copies < copies || !is_picked {
                continue;
            }
            let mut open = bin.offerings.clone();
            narrow(&mut open, table, &bin.requests, Some(bin), Some((way, copies)));
            if let Pick::Only(_, Some(shape)) = pick {
                table.shapes.keep(&mut open, shape);
            }
            let Some(&cheapest) = table.by_price.iter().find(|&&offering| open.contains(offering)) else { continue };
            // Limits and minValues can exclude what resources allow.
            let before = spot_bin(&self.state.bins, spot);
            if !table.has_min_values(&open) || !self.within_limits(table, bin.pool, before, &open) {
                continue;
            }
            let this = (table.price(cheapest), std::cmp::Reverse(open.count()), index);
            if best.is_none_or(|best| this < best) {
                best = Some(this);
            }
        }
        let way = best.and_then(|(_, _, index)| ways.ways.get(index));
        let (Some(way), Some(devices)) = (way, &mut self.state.devices) else { return false };
        let mut offerings = std::mem::take(&mut bin.offerings);
        narrow(&mut offerings, table, &bin.requests, Some(bin), Some((way, copies)));
        bin.offerings = offerings;
        let shape = match pick {
            Pick::Cheapest => None,
            Pick::Only(_, shape) => shape,
        };
        devices.take_in_bin(problem, bin, request, way, shape);
        devices.release(problem, bin);
        true
    }

    /// Takes copies of a class from an open machine. No rule may concern the class, the plan has no devices, and the
    /// machine has no volumes that pods share. Sizes that had become too small are possible again.
    pub(crate) fn take_from_bin(&mut self, id: BinId, (class, alternative): (ClassId, usize), copies: u32) {
        let problem = self.problem;
        let Some(before) = self.state.bins.get(id.0).cloned() else { return };
        let taken = self.footprint(&before);
        let table = &problem.pools[before.pool];
        let mut contents = before.contents.clone();
        if let Some((_, _, held)) = contents.iter_mut().find(|(held, by, _)| (*held, *by) == (class, alternative)) {
            *held -= copies.min(*held);
        }
        contents.retain(|(_, _, held)| *held > 0);
        let ways = || contents.iter().filter_map(|(class, by, _)| table.by_class[*class].get(*by));
        let mut bin = Bin::new(before.pool, table.members.clone(), Requirements::default());
        ways().for_each(|way| bin.offerings.intersect_with(&way.offerings));
        self.drop_exhausted_reservations(bin.pool, &mut bin.offerings);
        // A reservation that the machine draws on stays open to it.
        bin.offerings.union_with(&before.offerings);
        for way in ways().filter(|way| !way.open.is_empty()) {
            bin.open.intersect(&way.open, problem.names());
        }
        if !bin.open.is_empty() {
            let open = bin.open.clone();
            table.retain_open(&mut bin.offerings, &open, problem.names());
        }
        for &(class, by, copies) in &contents {
            let variant = table.by_class[class].get(by).map_or(0, |way| way.variant);
            for (resource, amount) in problem.classes[class].requests(variant).iter() {
                bin.request(table, resource, amount.saturating_mul(i64::from(copies)));
            }
        }
        bin.is_forced = contents.iter().any(|(class, ..)| problem.classes[*class].needs_host_alone);
        bin.kind = fast_hash(&(bin.pool, &contents));
        bin.contents = contents;
        bin.charge = self.charge(table, &bin.offerings);
        bin.measure(table);
        self.account(id, Some(&taken), Some(&bin));
        if let Some(slot) = self.state.bins.get_mut(id.0) {
            *slot = bin;
        }
        self.state.journal.push(|| Undo::Changed(id, Box::new(before)));
        self.unassign(class, Target::Bin(id), alternative, copies);
    }

    /// Pins labels of an open machine so that others can use what it brings; false if it cannot have these labels.
    pub(crate) fn pin_bin(&mut self, id: BinId, pins: &Requirements) -> bool {
        let Some(bin) = self.state.bins.get(id.0) else { return false };
        let offerings = pinned(self.problem, bin, pins);
        self.restrict(id, offerings, (pins, Decided::ForOthers))
    }

    /// Leaves an open machine those of its offerings, and decides labels of it; false if that is not possible.
    pub(crate) fn restrict_bin(&mut self, id: BinId, offerings: IdSet<OfferingId>, pins: &Requirements) -> bool {
        self.restrict(id, offerings, (pins, Decided::ForItself))
    }

    fn restrict(&mut self, id: BinId, offerings: IdSet<OfferingId>, (pins, decided): (&Requirements, Decided)) -> bool {
        let problem = self.problem;
        let Some(before) = self.state.bins.get(id.0).cloned() else { return false };
        let mut bin = before.clone();
        let table = &problem.pools[bin.pool];
        let taken = self.footprint(&before);
        bin.offerings = offerings;
        let is_possible = !bin.offerings.is_empty() && table.has_min_values(&bin.offerings);
        if !is_possible || !self.within_limits(table, bin.pool, Some(&before), &bin.offerings) {
            return false;
        }
        bin.open.intersect(pins, problem.names());
        if let Some(devices) = &mut self.state.devices {
            match decided {
                // What it brings is told by its ledger, which a machine without claims has not had so far.
                Decided::ForOthers => devices.begin_ledger(problem, &mut bin),
                Decided::ForItself => {}
            }
            devices.release(problem, &mut bin);
        }
        bin.charge = self.charge(table, &bin.offerings);
        bin.measure(table);
        self.account(id, Some(&taken), Some(&bin));
        if let Some(slot) = self.state.bins.get_mut(id.0) {
            *slot = bin;
        }
        self.state.journal.push(|| Undo::Changed(id, Box::new(before)));
        true
    }
}

/// For whom labels of a machine are decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decided {
    /// Others are to use what it brings for its domain.
    ForOthers,
    ForItself,
}

fn spot_bin(bins: &[Bin], spot: Spot) -> Option<&Bin> {
    match spot {
        Spot::Bin(id) => bins.get(id.0),
        Spot::Node(_) | Spot::New(_) => None,
    }
}
