//! Larger sizes of open machines, against the best offer so far ([`crate::simulation::packing::upsizing`]).

use std::cmp::Ordering;

use model::{PriceNanoUsdPerHour, SearchEnd};
use smallvec::SmallVec;

use super::{Allowed, Offer, Size, cost_cmp, keep_best};
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::pools::{Alternative, PoolRank, PoolTable};
use crate::simulation::packing::Packing;
use crate::simulation::packing::devices::Spot;
use crate::simulation::packing::state::{Bin, BinId};
use crate::simulation::packing::upsizing::{RowIndex, Some64};

/// Looks among the open machines of a pool for a larger size that takes copies of a class for less than the best offer.
pub(super) struct LargerSizes<'o, 'p> {
    pub(super) packing: &'o mut Packing<'p>,
    pub(super) pool: PoolRank,
    pub(super) table: &'p PoolTable<'p>,
    pub(super) class: ClassId,
    pub(super) best: Option<Offer<'p>>,
    /// How the searches for it ended.
    pub(super) end: SearchEnd,
}

impl<'p> LargerSizes<'_, 'p> {
    /// Offers larger sizes of open machines to a class without claims. What one copy more adds tells which machines to
    /// look at: above `most` for all of the copies a machine is beaten, as [`Self::of`] would find.
    pub(super) fn of_plain(&mut self, bins: &[Some64<'_>], open: &[Allowed<'p>]) {
        let Self { table, pool, class, .. } = *self;
        let state = &mut self.packing.state;
        let rows = state.growths.rows(pool, open.iter().map(|allowed| allowed.alternative.fit), state.bins.len());
        // What is added at most for as many copies as may come, and whether there is nothing left to compare at exactly
        // that.
        let limits = |best: &Option<Offer<'_>>| -> SmallVec<[(i64, bool); 4]> {
            let limit = |allowed: &Allowed<'_>| {
                let Some(best) = best else { return (i64::MAX, false) };
                let (all, each) = (i128::from(best.added) * i128::from(allowed.copies), i128::from(best.copies.max(1)));
                let most = i64::try_from(all.div_euclid(each)).unwrap_or(i64::MAX);
                (most, all.rem_euclid(each) == 0 && best.copies >= allowed.copies)
            };
            open.iter().map(limit).collect()
        };
        let mut most = limits(&self.best);
        // Of machines that can become the same the first is the best.
        let mut asked: SmallVec<[Asked; 16]> = SmallVec::new();
        for bins in bins {
            let state = &self.packing.state;
            let within = |((&row, &(most, _)), allowed): ((&RowIndex, &(i64, bool)), &Allowed<'_>)| {
                let full = allowed.host.map_or(0, |row| state.host_rooms.full(row, bins));
                state.growths.within(row, bins, most) & !full
            };
            let mut within: SmallVec<[u64; 4]> = rows.iter().zip(&most).zip(open).map(within).collect();
            while let Some(first) = within.iter().map(|of_row| of_row.trailing_zeros() as usize).min() {
                let Some(id) = bins.get(first) else { break };
                for (index, of_row) in within.iter_mut().enumerate() {
                    let bit = 1 << first;
                    let is_within = *of_row & bit != 0;
                    *of_row &= !bit;
                    let (true, Some(allowed), Some(&row), Some(&(most_added, is_exact))) =
                        (is_within, open.get(index), rows.get(index), most.get(index))
                    else {
                        continue;
                    };
                    let state = &mut self.packing.state;
                    let Some(added) = state.growths.added(row, id, &state.bins, table, allowed.alternative) else {
                        continue;
                    };
                    if added > most_added || (added == most_added && is_exact && !self.is_more_forced(id)) {
                        continue;
                    }
                    let Some(wanted) = allowed.on_host(self.packing, id, class) else { continue };
                    let Some(bin) = self.packing.state.bins.get(id.0) else { continue };
                    if let Some(shape) = bin.shape() {
                        let this = Asked { shape, way: index, wanted, is_forced: bin.is_forced };
                        if asked.contains(&this) {
                            continue;
                        }
                        asked.push(this);
                    }
                    if self.larger_step(id, allowed.alternative, wanted) {
                        most = limits(&self.best);
                    }
                }
            }
        }
    }

    /// Whether a machine has to be there anyway and that of the best offer has not.
    fn is_more_forced(&self, id: BinId) -> bool {
        self.best.is_some_and(|best| !best.is_forced)
            && self.packing.state.bins.get(id.0).is_some_and(|bin| bin.is_forced)
    }

    /// Offers the larger size of an open machine that adds least per copy, if it beats the best so far.
    pub(super) fn of(&mut self, id: BinId, allowed: &Allowed<'p>) {
        let Self { table, class, .. } = *self;
        let pods = &self.packing.problem.classes[class];
        let state = &mut self.packing.state;
        let alternative = allowed.alternative;
        let Some(bin) = state.bins.get(id.0) else { return };
        let wants_devices = pods.devices.is_some();
        let least = if wants_devices {
            table.least_price_with(pods.requests(alternative.variant), &bin.requests)
        } else {
            state.growths.of(id, bin, table, alternative).least()
        };
        let Some(least) = least else { return };
        let is_beaten = |offer: &Offer<'_>, wanted: u32| match against(offer, bin, least, wanted) {
            Ordering::Greater => true,
            Ordering::Equal => offer.copies >= wanted && (offer.is_forced || !bin.is_forced),
            Ordering::Less => false,
        };
        if self.best.as_ref().is_some_and(|best| is_beaten(best, allowed.copies)) {
            return;
        }
        let Some(wanted) = allowed.on_host(self.packing, id, class) else { return };
        if !wants_devices {
            self.larger_step(id, alternative, wanted);
            return;
        }
        let Some(bin) = self.packing.state.bins.get(id.0) else { return };
        let size = Size::new(self.packing, Spot::Bin(id), class, alternative, wanted).part_of(&mut self.end);
        let mut found: Option<Offer<'p>> = None;
        for &offering in size.at_least_at_price(table, least.max(bin.price)) {
            let price = table.price(offering);
            // Cheapest first: what is dearer adds more, for `wanted` copies at most.
            let is_too_dear = |offer: &Offer<'_>| against(offer, bin, price, wanted) == Ordering::Greater;
            if self.best.iter().chain(&found).any(is_too_dear) {
                break;
            }
            if !bin.offerings.contains(offering) || !alternative.offerings.contains(offering) {
                continue;
            }
            let copies = size.copies(table, offering, &bin.requests, wanted);
            if copies > 0 {
                keep_best(&mut found, grown(id, bin, alternative, copies, price));
            }
        }
        if let Some(found) = found {
            self.keep_if_possible(id, found);
        }
    }

    /// Offers the larger size for `wanted` copies without claims, by what is known of the machine's larger sizes;
    /// whether it is the best offer now.
    fn larger_step(&mut self, id: BinId, alternative: &'p Alternative, wanted: u32) -> bool {
        let found = self.best_step(id, alternative, wanted);
        found.is_some_and(|found| self.keep_if_possible(id, found))
    }

    /// The larger size of an open machine that adds least per copy, if it beats the best so far.
    fn best_step(&mut self, id: BinId, alternative: &'p Alternative, wanted: u32) -> Option<Offer<'p>> {
        let (table, state) = (self.table, &mut self.packing.state);
        let bin = state.bins.get(id.0)?;
        let growth = state.growths.of(id, bin, table, alternative);
        let mut to_beat = self.best;
        let mut found = None;
        let mut index = 0;
        // Cheapest first: what is dearer adds more, for `wanted` copies at most.
        let is_too_dear = |to_beat: &Option<Offer<'_>>, price: PriceNanoUsdPerHour| {
            to_beat.as_ref().is_some_and(|offer| against(offer, bin, price, wanted) == Ordering::Greater)
        };
        while let Some((copies, price)) = growth.step(index, bin, table, |price| is_too_dear(&to_beat, price)) {
            let offer = grown(id, bin, alternative, copies.min(wanted), price);
            if to_beat.as_ref().is_none_or(|to_beat| offer.cmp(to_beat) == Ordering::Less) {
                (to_beat, found) = (Some(offer), Some(offer));
            }
            if copies >= wanted {
                break;
            }
            index += 1;
        }
        found
    }

    /// Keeps an offer of an open machine if it beats the best so far, and if limits, minValues and open labels let it
    /// be.
    fn keep_if_possible(&mut self, id: BinId, offer: Offer<'p>) -> bool {
        if self.best.as_ref().is_some_and(|best| offer.cmp(best) != Ordering::Less) {
            return false;
        }
        let possible = self.packing.copies_in_bin(id, self.class, offer.alternative, offer.copies);
        let is_possible = possible.part_of(&mut self.end) == offer.copies;
        if is_possible {
            self.best = Some(offer);
        }
        is_possible
    }
}

/// What was asked of a machine: of others that can become the same, no more can come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    shape: (PoolRank, u64),
    way: usize,
    wanted: u32,
    is_forced: bool,
}

/// Copies in an open machine that becomes one of that price.
fn grown<'p>(id: BinId, bin: &Bin, alternative: &'p Alternative, copies: u32, price: PriceNanoUsdPerHour) -> Offer<'p> {
    let added = price.0.saturating_sub(bin.price.0);
    Offer { bin: Some(id), pool: bin.pool, alternative, copies, added, is_forced: bin.is_forced }
}

/// So many copies in a larger size of a machine at that price, against an offer.
fn against(offer: &Offer<'_>, bin: &Bin, price: PriceNanoUsdPerHour, copies: u32) -> Ordering {
    cost_cmp((price.0.saturating_sub(bin.price.0), copies), (offer.added, offer.copies))
}
