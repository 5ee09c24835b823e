//! Which larger sizes an open machine could have for more copies of a class, and at which price.
//!
//! A class asks the machines opened last for every few copies, and classes that ask the same come one after the other,
//! while most machines stay as they are. So the answer for a machine is kept until it changes, and it is worked out
//! only as far as somebody would still pay for. What the first larger size adds is kept of all machines side by side,
//! since that is enough to pass over most of them.

use std::ops::Range;

use model::PriceNanoUsdPerHour;
use smallvec::SmallVec;

use super::state::{Bin, BinId};
use crate::simulation::compile::pools::{Alternative, FitId, PoolRank, PoolTable};
use crate::simulation::packing::trial::more_copies;
use crate::tuning::{KEPT_SIZES, SIZE_ROWS};

/// Machines that are compared at once, 64 at most.
#[derive(Debug)]
pub(crate) enum Some64<'b> {
    /// Those opened one after the other, the last first.
    Last(Range<usize>),
    These(&'b [BinId]),
}

impl Some64<'_> {
    /// The machine at a position.
    pub(crate) fn get(&self, position: usize) -> Option<BinId> {
        match self {
            Self::Last(bins) => bins.clone().rev().nth(position).map(BinId),
            Self::These(bins) => bins.get(position).copied(),
        }
    }

    /// The machines for which `is_so` holds of their entry in `of_all`, as bits, the first machine lowest. A missing
    /// entry sets no bit.
    pub(crate) fn that<T>(&self, of_all: &[T], is_so: impl Fn(&T) -> bool) -> u64 {
        let bit = |(position, entry): (usize, &T)| u64::from(is_so(entry)) << position;
        match self {
            Self::Last(bins) => {
                let entries = of_all.get(bins.clone()).unwrap_or_default();
                entries.iter().rev().enumerate().map(bit).fold(0, |bits, bit| bits | bit)
            }
            Self::These(bins) => {
                let entries = bins.iter().enumerate().filter_map(|(position, id)| Some((position, of_all.get(id.0)?)));
                entries.map(bit).fold(0, |bits, bit| bits | bit)
            }
        }
    }
}

/// Not computed yet.
const UNKNOWN: i64 = i64::MIN;

/// Above any price: the machine cannot hold another copy.
const NEVER: i64 = i64::MAX;

/// What is known of open machines.
#[derive(Debug, Default)]
pub(crate) struct Growths {
    by_bin: Vec<Vec<Growth>>,
    rows: Vec<Row>,
}

/// What copies of one fit add to each machine.
#[derive(Debug)]
struct Row {
    pool: PoolRank,
    fit: FitId,
    /// By machine: nano-dollars per hour for one copy more, at least.
    added: Vec<i64>,
}

/// Where the additions for copies of one fit are; as long as no others are asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowIndex(usize);

/// The larger sizes of one machine for copies of one fit.
#[derive(Debug)]
pub(crate) struct Growth {
    fit: FitId,
    /// The least price of the machine with one more copy; `None` if no size holds it.
    least: Option<PriceNanoUsdPerHour>,
    /// (more copies, price), cheapest first; each holds more than those before.
    steps: Vec<(u32, PriceNanoUsdPerHour)>,
    /// How many of the fit's offerings were looked at or cost too little.
    seen: usize,
}

impl Growths {
    /// Forgets a machine, because it changed.
    pub(crate) fn forget(&mut self, id: BinId) {
        if let Some(kept) = self.by_bin.get_mut(id.0) {
            kept.clear();
        }
        for row in &mut self.rows {
            if let Some(added) = row.added.get_mut(id.0) {
                *added = UNKNOWN;
            }
        }
    }

    /// Where additions are for copies of these fits of a pool, at most [`SIZE_ROWS`]; there are so many machines.
    pub(crate) fn rows(
        &mut self,
        pool: PoolRank,
        fits: impl Iterator<Item = FitId> + Clone,
        bins: usize,
    ) -> SmallVec<[RowIndex; 4]> {
        let position = |rows: &[Row], fit: FitId| rows.iter().position(|row| row.fit == fit && row.pool == pool);
        let missing = fits.clone().filter(|&fit| position(&self.rows, fit).is_none()).count();
        if self.rows.len() + missing > SIZE_ROWS {
            self.rows.clear();
        }
        let index = |fit: FitId| {
            let index = position(&self.rows, fit).unwrap_or_else(|| {
                self.rows.push(Row { pool, fit, added: Vec::new() });
                self.rows.len() - 1
            });
            if let Some(row) = self.rows.get_mut(index).filter(|row| row.added.len() < bins) {
                row.added.resize(bins, UNKNOWN);
            }
            RowIndex(index)
        };
        fits.map(index).collect()
    }

    /// The machines to which one more copy adds at most that, as far as is known, as bits.
    pub(crate) fn within(&self, row: RowIndex, bins: &Some64<'_>, most: i64) -> u64 {
        let most = most.min(NEVER - 1);
        self.rows.get(row.0).map_or(0, |row| bins.that(&row.added, |added| *added <= most))
    }

    /// What one copy more adds to a machine's price at least, by an alternative of that row; `None` if it holds none.
    pub(crate) fn added(
        &mut self,
        row: RowIndex,
        id: BinId,
        bins: &[Bin],
        table: &PoolTable<'_>,
        alternative: &Alternative,
    ) -> Option<i64> {
        let known = |rows: &[Row]| rows.get(row.0).and_then(|row| row.added.get(id.0)).copied();
        let added = match known(&self.rows) {
            Some(UNKNOWN) | None => {
                let pool = self.rows.get(row.0).map(|row| row.pool);
                let bin = bins.get(id.0).filter(|bin| Some(bin.pool) == pool);
                let least = bin.and_then(|bin| Some((self.of(id, bin, table, alternative).least()?, bin.price)));
                let added = least.map_or(NEVER, |(least, price)| least.0.saturating_sub(price.0).min(NEVER - 1));
                if let Some(slot) = self.rows.get_mut(row.0).and_then(|row| row.added.get_mut(id.0)) {
                    *slot = added;
                }
                added
            }
            Some(known) => known,
        };
        (added != NEVER).then_some(added)
    }

    /// What is known of one machine for copies by an alternative.
    pub(crate) fn of(&mut self, id: BinId, bin: &Bin, table: &PoolTable<'_>, alternative: &Alternative) -> &mut Growth {
        if self.by_bin.len() <= id.0 {
            self.by_bin.resize_with(id.0 + 1, Vec::new);
        }
        let kept = self.by_bin.get_mut(id.0).expect("there is room for the machine");
        let position = kept.iter().position(|growth| growth.fit == alternative.fit).unwrap_or_else(|| {
            if kept.len() >= KEPT_SIZES {
                kept.clear();
            }
            kept.push(Growth::new(bin, table, alternative));
            kept.len() - 1
        });
        kept.get_mut(position).expect("it was found there")
    }
}

impl Growth {
    fn new(bin: &Bin, table: &PoolTable<'_>, alternative: &Alternative) -> Self {
        let fit = &table.fits[alternative.fit];
        let is_possible = !bin.is_elsewhere(table, alternative);
        let least = if is_possible { table.least_price_with(&fit.requests, &bin.requests) } else { None };
        let least = least.map(|least| least.max(bin.price));
        let seen = least.map_or(0, |least| fit.by_price.partition_point(|(price, _)| *price < least));
        Self { fit: alternative.fit, least, steps: Vec::new(), seen }
    }

    /// The least price of the machine with one more copy; `None` if no size holds it.
    pub(crate) fn least(&self) -> Option<PriceNanoUsdPerHour> {
        self.least
    }

    /// The step at a position, cheapest first, if it costs no more than `most`.
    #[inline]
    pub(crate) fn step(
        &mut self,
        index: usize,
        bin: &Bin,
        table: &PoolTable<'_>,
        is_too_dear: impl Fn(PriceNanoUsdPerHour) -> bool,
    ) -> Option<(u32, PriceNanoUsdPerHour)> {
        if let Some(&known) = self.steps.get(index) {
            return (!is_too_dear(known.1)).then_some(known);
        }
        self.next_step(bin, table, is_too_dear)
    }

    /// The first step that is not known.
    fn next_step(
        &mut self,
        bin: &Bin,
        table: &PoolTable<'_>,
        is_too_dear: impl Fn(PriceNanoUsdPerHour) -> bool,
    ) -> Option<(u32, PriceNanoUsdPerHour)> {
        let fit = &table.fits[self.fit];
        while let Some(&(price, offering)) = fit.by_price.get(self.seen) {
            if is_too_dear(price) {
                return None;
            }
            self.seen += 1;
            if !bin.offerings.contains(offering) {
                continue;
            }
            let copies = more_copies(&fit.requests, &bin.requests, table.net(offering), u32::MAX);
            if copies > self.steps.last().map_or(0, |(most, _)| *most) {
                self.steps.push((copies, price));
                return Some((copies, price));
            }
        }
        None
    }
}
