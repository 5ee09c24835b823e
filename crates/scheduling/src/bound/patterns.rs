//! What whole machines cost at least: pods are not divisible, so a machine holds one of finitely many *patterns*.
//!
//! For dual prices `w ≥ 0` by which no pattern that an offering can hold is worth more than the offering costs, all
//! copies together cost at least what they are worth (Gilmore and Gomory 1961, "A linear programming approach to the
//! cutting-stock problem"). Where two to ten pods fill a machine, that is some percent above the relaxation that lets
//! pods be divided. The prices are those of a linear program over patterns ([`master`]) to which the most valuable
//! pattern of each offering is added until none is worth more than it costs. They are rounded down, and scaled down by
//! the most that a pattern is too valuable (Farley 1990), so the bound holds whenever the search ends.
//!
//! The most valuable pattern is found by branch and bound over kinds, the largest first, in integers. Its bound is a
//! surrogate: one mix of resources in place of all of them, for a few mixes. A search that takes too long gives the
//! bound instead, which is never too low.
//!
//! Only for fleets with up to [`PATTERN_KINDS`] kinds and [`PATTERN_SITES`] offerings that matter.

mod master;

use model::{IdSet, IdVec};

use self::master::{Column, Master};
use super::{Kind, KindId, Site};
use crate::tuning::{PATTERN_KINDS, PATTERN_PIVOTS, PATTERN_ROUNDS, PATTERN_SITES, PATTERN_STEPS};

/// Shares of a room are in parts of 2²⁰.
const SHIFT: u32 = 20;
/// A mix of two resources has so many parts.
const PARTS: i64 = 4;
/// A pattern that is worth so many times what it costs is not reckoned with, so that products fit.
const MOST_TIMES_PRICE: i128 = 1000;
/// The dearest machine that patterns are looked at for, in nano-dollars per hour: a million dollars.
const DEAREST: i64 = 1_000_000_000_000_000;
/// Enough: no further pattern makes it better by more than this part.
const NEAR: f64 = 1e-4;

/// The kinds, with so many copies as prices are looked for, and the offerings of which none does what another does for
/// less. The dual prices are those of a bound for any number of copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Patterns {
    kinds: IdVec<KindId, Kind>,
    sites: Vec<Site>,
    binding: Vec<usize>,
}

/// A kind as an item of which copies are put into a room.
struct Item {
    kind: KindId,
    worth: i128,
    requests: Vec<i64>,
    copies: u64,
    /// What a copy takes, by mix.
    shares: Vec<i64>,
    /// The most that it or a later item is worth for a part of a mix, by mix; `None` if that has no end.
    densities: Vec<Option<i128>>,
}

/// What is left of a room while it is filled, and the best so far.
struct Filling {
    room: Vec<i64>,
    left: Vec<i64>,
    taken: Vec<u64>,
    best: i128,
    pattern: Vec<u64>,
    steps: u64,
}

/// The most that a room can be worth.
pub(super) struct Most {
    /// Never too low.
    pub(super) worth: i128,
    pattern: Vec<(KindId, u64)>,
}

impl Patterns {
    /// `None` if there are too many kinds or offerings, or one is too dear.
    pub(super) fn new(kinds: &IdVec<KindId, Kind>, sites: &[Site], binding: &[usize]) -> Option<Self> {
        if kinds.is_empty() || kinds.len() > PATTERN_KINDS {
            return None;
        }
        let mut by_price: Vec<&Site> = sites.iter().collect();
        by_price.sort_by_key(|site| site.price);
        let mut kept: Vec<Site> = Vec::new();
        for site in by_price {
            let does_as_much = |other: &Site| {
                let holds = other.holds.iter().zip(&site.holds).all(|(other, holds)| other >= holds);
                holds && site.takes.is_subset(&other.takes)
            };
            if !kept.iter().any(does_as_much) {
                kept.push(site.clone());
            }
        }
        let is_small = kept.len() <= PATTERN_SITES && kept.iter().all(|site| site.price.0 <= DEAREST);
        is_small.then(|| Self { kinds: kinds.clone(), sites: kept, binding: binding.to_vec() })
    }

    /// By kind: dual prices in nano-dollars per hour by which no pattern is worth more than its offering costs. `None`
    /// if a kind has no offering.
    pub(super) fn worth(&self) -> Option<Vec<i64>> {
        let alone: Vec<Column> = self.kinds.ids().map(|kind| self.alone(kind)).collect::<Option<_>>()?;
        let wanted: Vec<f64> = self.kinds.iter().map(|kind| kind.copies as f64).collect();
        let mut master = Master::new(alone, &wanted);
        let mut steps = PATTERN_STEPS;
        let mut best: Option<(i128, Vec<i64>)> = None;
        for _ in 0..PATTERN_ROUNDS {
            master.solve(PATTERN_PIVOTS);
            let worth: Vec<i64> = master.worth().into_iter().map(rounded).collect();
            let (mut is_new, mut too_much) = (false, None);
            for site in &self.sites {
                let most = self.most(&site.takes, &site.holds, &worth, &mut steps);
                let price = i128::from(site.price.0.max(0));
                if most.worth <= price {
                    continue;
                }
                if most.worth > MOST_TIMES_PRICE * price.max(1) {
                    // Dual prices that say nothing.
                    return best.map(|(_, worth)| worth);
                }
                let ratio = (most.worth, price);
                let is_more = |(worth, price): (i128, i128)| most.worth * price > worth * ratio.1;
                if too_much.is_none_or(is_more) {
                    too_much = Some(ratio);
                }
                if steps > 0 && most.worth - price > price / 1_000_000 {
                    master.add(self.column(&most, site));
                    is_new = true;
                }
            }
            let worth = scaled_down(worth, too_much);
            let bound = self.worth_of_all(&worth);
            if best.as_ref().is_none_or(|(known, _)| bound > *known) {
                best = Some((bound, worth));
            }
            let reached = best.as_ref().map_or(0.0, |(bound, _)| *bound as f64);
            if !is_new || steps == 0 || reached >= master.price() * (1.0 - NEAR) {
                break;
            }
        }
        best.map(|(_, worth)| worth)
    }

    /// What all copies are worth.
    fn worth_of_all(&self, worth: &[i64]) -> i128 {
        self.kinds.iter().zip(worth).map(|(kind, &worth)| i128::from(worth) * i128::from(kind.copies)).sum()
    }

    /// As many copies of one kind as a machine holds, where that costs least for each.
    fn alone(&self, kind: KindId) -> Option<Column> {
        let requests = &self.kinds[kind].requests;
        let copies = |site: &Site| {
            let times = requests.iter().zip(&site.holds).filter(|(amount, _)| **amount > 0);
            let times = times.map(|(amount, holds)| holds / amount).min().unwrap_or(1);
            times.min(i64::try_from(self.kinds[kind].copies).unwrap_or(i64::MAX))
        };
        let taking = self.sites.iter().filter(|site| site.takes.contains(kind)).map(|site| (site, copies(site)));
        let each = |site: &Site, copies: i64| site.price.0 as f64 / copies as f64;
        let (site, copies) = taking
            .filter(|(_, copies)| *copies > 0)
            .min_by(|(a, of_a), (b, of_b)| each(a, *of_a).total_cmp(&each(b, *of_b)))?;
        let copies = self.kinds.ids().map(|other| if other == kind { copies as f64 } else { 0.0 }).collect();
        Some(Column { copies, price: site.price.0 as f64 })
    }

    fn column(&self, most: &Most, site: &Site) -> Column {
        let of = |kind: KindId| most.pattern.iter().find(|(known, _)| *known == kind).map_or(0.0, |(_, it)| *it as f64);
        Column { copies: self.kinds.ids().map(of).collect(), price: site.price.0 as f64 }
    }

    /// The most that copies of these kinds in a room can be worth. Takes from `steps`; where these are used up, the
    /// answer may be too high.
    pub(super) fn most(&self, takes: &IdSet<KindId>, room: &[i64], worth: &[i64], steps: &mut u64) -> Most {
        let items = self.items(takes, room, worth);
        let mixes = items.first().map_or(0, |item| item.shares.len());
        let whole: Vec<i64> = self.mixes(room).iter().take(mixes).map(|mix| mix.iter().sum::<i64>() << SHIFT).collect();
        let mut filling = Filling {
            room: room.to_vec(),
            left: whole,
            taken: Vec::new(),
            best: 0,
            pattern: Vec::new(),
            steps: *steps,
        };
        let all = items.iter().map(|item| item.worth * i128::from(item.copies)).sum();
        let at_most = filling.at_most(&items).min(all);
        let is_whole = filling.fill(&items, 0);
        *steps = filling.steps;
        let pattern = items.iter().zip(&filling.pattern).filter(|(_, copies)| **copies > 0);
        let pattern = pattern.map(|(item, copies)| (item.kind, *copies)).collect();
        Most { worth: if is_whole { filling.best } else { at_most }, pattern }
    }

    /// The kinds that are worth something and fit, the largest first.
    fn items(&self, takes: &IdSet<KindId>, room: &[i64], worth: &[i64]) -> Vec<Item> {
        let mixes = self.mixes(room);
        let share = |dimension: usize, requests: &[i64]| {
            let (has, wants) =
                (room.get(dimension).copied().unwrap_or(0), requests.get(dimension).copied().unwrap_or(0));
            // Rounded down, so that what is left is never too little.
            i64::try_from((i128::from(wants) << SHIFT) / i128::from(has.max(1))).unwrap_or(i64::MAX)
        };
        let item = |kind: KindId| {
            let of_kind = &self.kinds[kind];
            let worth = i128::from(worth.get(model::Id::index(kind)).copied().unwrap_or(0));
            let fits = of_kind.requests.iter().zip(room).all(|(amount, room)| amount <= room);
            let of_mix = |mix: &Vec<i64>| {
                let parts = mix.iter().zip(&self.binding);
                parts.map(|(part, dimension)| part.saturating_mul(share(*dimension, &of_kind.requests))).sum()
            };
            (worth > 0 && fits).then(|| Item {
                kind,
                worth,
                requests: of_kind.requests.clone(),
                copies: of_kind.copies,
                shares: mixes.iter().map(of_mix).collect(),
                densities: Vec::new(),
            })
        };
        let mut items: Vec<Item> = takes.iter().filter_map(item).collect();
        items.sort_by_key(|item| std::cmp::Reverse(item.shares.iter().copied().max()));
        let mut after = vec![Some(0); mixes.len()];
        for item in items.iter_mut().rev() {
            for (most, share) in after.iter_mut().zip(&item.shares) {
                let own = (*share > 0).then(|| ((item.worth << SHIFT) + i128::from(*share) - 1) / i128::from(*share));
                *most = most.zip(own).map(|(most, own)| most.max(own));
            }
            item.densities.clone_from(&after);
        }
        items
    }

    /// By mix: the part of each binding dimension. Each alone, and each two in some proportions.
    fn mixes(&self, room: &[i64]) -> Vec<Vec<i64>> {
        let there: Vec<usize> = (0..self.binding.len())
            .filter(|at| self.binding.get(*at).and_then(|dimension| room.get(*dimension)).is_some_and(|has| *has > 0))
            .collect();
        let mix = |parts: &[(usize, i64)]| {
            let part = |at: usize| parts.iter().find(|(known, _)| *known == at).map_or(0, |(_, part)| *part);
            (0..self.binding.len()).map(part).collect::<Vec<i64>>()
        };
        let mut mixes: Vec<Vec<i64>> = there.iter().map(|&at| mix(&[(at, 1)])).collect();
        for (position, &one) in there.iter().enumerate() {
            for &other in there.iter().skip(position + 1) {
                mixes.extend((1..PARTS).map(|part| mix(&[(one, part), (other, PARTS - part)])));
            }
        }
        mixes
    }
}

impl Filling {
    /// What the items can add at most.
    fn at_most(&self, items: &[Item]) -> i128 {
        let Some(first) = items.first() else { return 0 };
        let by_mix = first.densities.iter().zip(&self.left).filter_map(|(density, left)| {
            // One more for what rounding has lost.
            Some((density.as_ref()?.saturating_mul(i128::from((*left).max(0))) >> SHIFT) + 1)
        });
        by_mix.min().unwrap_or(i128::MAX / 4)
    }

    /// Tries all numbers of copies of the items, beside what is worth so much; false if the steps ran out.
    fn fill(&mut self, items: &[Item], worth: i128) -> bool {
        let Some(left) = self.steps.checked_sub(1) else { return false };
        self.steps = left;
        if worth > self.best {
            self.best = worth;
            self.pattern.clone_from(&self.taken);
        }
        let Some((item, rest)) = items.split_first() else { return true };
        if worth.saturating_add(self.at_most(items)) <= self.best {
            return true;
        }
        let times = item.requests.iter().zip(&self.room).filter(|(amount, _)| **amount > 0);
        let fits = times.map(|(amount, room)| u64::try_from(room / amount).unwrap_or(0)).min();
        let most = fits.unwrap_or(item.copies).min(item.copies);
        for copies in (0..=most).rev() {
            self.take(item, i64::try_from(copies).unwrap_or(i64::MAX));
            self.taken.push(copies);
            let is_whole = self.fill(rest, worth + item.worth * i128::from(copies));
            self.taken.pop();
            self.take(item, -i64::try_from(copies).unwrap_or(i64::MAX));
            if !is_whole {
                return false;
            }
        }
        true
    }

    fn take(&mut self, item: &Item, copies: i64) {
        self.room.iter_mut().zip(&item.requests).for_each(|(room, amount)| *room -= amount * copies);
        self.left.iter_mut().zip(&item.shares).for_each(|(left, share)| *left -= share * copies);
    }
}

/// Down to a whole nano-dollar; nothing is worth less than nothing.
fn rounded(worth: f64) -> i64 {
    worth.clamp(0.0, i64::MAX as f64) as i64
}

/// So that a pattern which is worth so much is worth no more than that price.
fn scaled_down(worth: Vec<i64>, too_much: Option<(i128, i128)>) -> Vec<i64> {
    let Some((value, price)) = too_much else { return worth };
    let scaled = |worth: i64| i64::try_from(i128::from(worth) * price / value.max(1)).unwrap_or(0);
    worth.into_iter().map(scaled).collect()
}

#[cfg(test)]
mod tests {
    use model::PriceNanoUsdPerHour;
    use proptest::prelude::*;

    use super::*;

    fn patterns(kinds: &[(Vec<i64>, u64)], sites: &[(i64, Vec<i64>)]) -> Option<Patterns> {
        let kinds: IdVec<KindId, Kind> =
            kinds.iter().map(|(requests, copies)| Kind { requests: requests.clone(), copies: *copies }).collect();
        let takes: IdSet<KindId> = kinds.ids().collect();
        let site = |(price, holds): &(i64, Vec<i64>)| Site {
            price: PriceNanoUsdPerHour(*price),
            holds: holds.clone(),
            takes: takes.clone(),
        };
        let sites: Vec<Site> = sites.iter().map(site).collect();
        Patterns::new(&kinds, &sites, &[0, 1])
    }

    #[test]
    fn pods_that_share_no_machine_cost_a_machine_each() {
        // Divisible, two machines would hold the three of them.
        let patterns = patterns(&[(vec![6, 1], 30)], &[(1000, vec![10, 10])]).unwrap();
        assert_eq!(patterns.worth(), Some(vec![1000]));
    }

    /// All patterns of a room, by brute force.
    fn brute(kinds: &[(Vec<i64>, u64)], room: &[i64], worth: &[i64]) -> i128 {
        let Some(((requests, copies), rest)) = kinds.split_first() else { return 0 };
        let mut best = 0;
        for taken in 0..=i64::try_from(*copies).unwrap() {
            let left: Vec<i64> = room.iter().zip(requests).map(|(room, amount)| room - amount * taken).collect();
            if left.iter().any(|left| *left < 0) {
                break;
            }
            best = best.max(i128::from(worth[0] * taken) + brute(rest, &left, &worth[1..]));
        }
        best
    }

    proptest! {
        #[test]
        fn the_most_valuable_pattern_is_found_and_no_search_that_ends_early_is_too_low(
            kinds in prop::collection::vec((prop::collection::vec(0..8i64, 2), 1..5u64), 1..5),
            room in prop::collection::vec(0..25i64, 2),
            worth in prop::collection::vec(0..1000i64, 5),
            few in 1..30u64,
        ) {
            let patterns = patterns(&kinds, &[(1, room.clone())]).unwrap();
            let takes: IdSet<KindId> = patterns.kinds.ids().collect();
            let exact = patterns.most(&takes, &room, &worth, &mut 1_000_000);
            prop_assert_eq!(exact.worth, brute(&kinds, &room, &worth));
            let early = patterns.most(&takes, &room, &worth, &mut few.clone());
            prop_assert!(early.worth >= exact.worth, "{} of {}", early.worth, exact.worth);
        }

        /// No pattern of any offering is worth more than it costs, and all copies together are worth no more than one
        /// machine for each of them would cost.
        #[test]
        fn dual_prices_are_those_of_a_bound(
            kinds in prop::collection::vec((prop::collection::vec(1..8i64, 2), 1..5u64), 1..5),
            sites in prop::collection::vec((100..1000i64, prop::collection::vec(8..25i64, 2)), 1..4),
        ) {
            let patterns = patterns(&kinds, &sites).unwrap();
            let worth = patterns.worth().unwrap();
            for (price, holds) in &sites {
                prop_assert!(brute(&kinds, holds, &worth) <= i128::from(*price), "{:?}", worth);
            }
            let total: i64 = kinds.iter().zip(&worth).map(|((_, copies), worth)| worth * *copies as i64).sum();
            let cheapest = sites.iter().map(|(price, _)| *price).min().unwrap();
            let pods: u64 = kinds.iter().map(|(_, copies)| *copies).sum();
            prop_assert!(total > 0 && total <= cheapest * pods as i64);
        }
    }
}
