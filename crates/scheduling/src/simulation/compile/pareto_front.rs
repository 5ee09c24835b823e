//! How many copies of a class a new machine holds at which price. It is computed once per pool and fit, and answers for
//! any number of copies.

use model::PriceNanoUsdPerHour;

use super::pools::{Fit, PoolTable};

/// The Pareto front of (copies, price): dominated offerings are dropped.
#[derive(Debug)]
pub(crate) struct Staircase {
    /// (copies, the least price of an offering that holds as many), both rising.
    steps: Vec<(u32, PriceNanoUsdPerHour)>,
}

impl Staircase {
    /// The front of the offerings of a pool that a fit allows.
    pub(crate) fn new(table: &PoolTable<'_>, fit: &Fit) -> Self {
        let mut steps: Vec<(u32, PriceNanoUsdPerHour)> = Vec::new();
        let mut times = table.times(&fit.requests, fit.by_price.iter().map(|(_, offering)| *offering));
        for of_price in fit.by_price.chunk_by(|(one, _), (other, _)| one == other) {
            // Of equal prices the one that holds most.
            let holds = times.by_ref().take(of_price.len()).max();
            let most = steps.last().map_or(0, |(most, _)| *most);
            if let (Some(copies), Some((price, _))) = (holds.filter(|copies| *copies > most), of_price.first()) {
                steps.push((copies, *price));
            }
        }
        Self { steps }
    }

    /// The step with at most `wanted` copies that costs least per copy, as copies and the price of the machine; of
    /// equal ones the one with more copies.
    pub(crate) fn best(&self, wanted: u32) -> Option<(u32, PriceNanoUsdPerHour)> {
        let mut best: Option<(u32, PriceNanoUsdPerHour)> = None;
        for &(holds, price) in &self.steps {
            let copies = holds.min(wanted);
            let is_better = |(most, least): (u32, PriceNanoUsdPerHour)| {
                let (mine, others) = (i128::from(price.0) * i128::from(most), i128::from(least.0) * i128::from(copies));
                (mine, std::cmp::Reverse(copies)) < (others, std::cmp::Reverse(most))
            };
            if best.is_none_or(is_better) {
                best = Some((copies, price));
            }
            if holds >= wanted {
                break;
            }
        }
        best
    }
}
