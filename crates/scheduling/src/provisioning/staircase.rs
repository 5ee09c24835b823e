//! How many copies of a class a new machine holds, at which price: worked out once, asked for any number.

use model::{PriceNanoUsdPerHour, ResourceVec};

use super::pools::PoolTable;
use crate::catalogue::OfferingId;

/// What holds more costs more; whatever does not was left out.
#[derive(Debug)]
pub(crate) struct Staircase {
    /// (copies, the least price of an offering that holds as many), both rising.
    steps: Vec<(u32, PriceNanoUsdPerHour)>,
}

impl Staircase {
    /// From the offerings of one pool.
    pub(crate) fn new(
        table: &PoolTable<'_>,
        offerings: impl Iterator<Item = OfferingId>,
        requests: &ResourceVec,
    ) -> Self {
        let mut all: Vec<(u32, PriceNanoUsdPerHour)> = offerings
            .map(|offering| (requests.times_in(table.net(offering), u32::MAX), table.price(offering)))
            .filter(|(copies, _)| *copies > 0)
            .collect();
        // Cheapest first, and of equal prices the one that holds most.
        all.sort_unstable_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)));
        let mut steps: Vec<(u32, PriceNanoUsdPerHour)> = Vec::new();
        for (copies, price) in all {
            if steps.last().is_none_or(|(most, _)| copies > *most) {
                steps.push((copies, price));
            }
        }
        Self { steps }
    }

    /// The copies, `wanted` at most, that cost least each, and the price of their machine; more of them where that is equal.
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
