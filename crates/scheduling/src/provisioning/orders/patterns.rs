//! Machines for classes that nothing couples, pattern by pattern.
//!
//! A pattern is what one machine of some offering would hold: so many copies of each class. Each class has a worth (the
//! duals of [`crate::bound`]), and the pattern with most worth per dollar is bought as often as there are copies for
//! it; then the next. Worth per dollar falls as classes run out, so a pattern is only worked out again when it comes to
//! the front and can't be had any more.
//!
//! A machine is filled greedily: the copy next that has most worth for what it takes of what is scarce by then, so that
//! the rest stays balanced (Toyoda 1975). How much large copies are preferred to small ones is tried in three ways.
//!
//! Only what [`Packing`] agrees with is placed, so limits, minValues and open labels hold; what does not go stays with
//! the caller.

use std::collections::BinaryHeap;

use model::{Id, IdSet, IdVec, PriceNanoUsdPerHour, ResourceId, ResourceVec, collections::FastSet};

use crate::catalogue::OfferingId;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::pools::{Alternative, PoolRank, PoolTable};
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::Packing;
use crate::simulation::packing::state::BinId;
use crate::tuning::PREFERENCES;

/// Opens machines for what is left of the classes, each in the most preferred pool that takes it.
pub(crate) fn place(packing: &mut Packing<'_>, left: &mut IdVec<ClassId, u32>, worth: &IdVec<ClassId, i64>) {
    let problem = packing.problem;
    let mut unplaced: Vec<ClassId> = left.ids().filter(|&class| left[class] > 0 && problem.is_free(class)).collect();
    for pool in problem.pools.ids() {
        let here: Vec<ClassId> = unplaced.iter().copied().filter(|&class| opens(packing, pool, class)).collect();
        unplaced.retain(|class| !here.contains(class));
        if !here.is_empty() {
            Patterns::new(problem, pool, &here, left, worth).buy(packing, left);
        }
    }
}

fn opens(packing: &mut Packing<'_>, pool: PoolRank, class: ClassId) -> bool {
    let alternatives = &packing.problem.pools[pool].by_class[class];
    alternatives.iter().any(|alternative| packing.copies_in_new_bin(pool, class, alternative, 1).so_far() == 1)
}

/// The classes of one pool and the offerings that they could be on.
struct Patterns {
    pool: PoolRank,
    items: Vec<Item>,
    /// What each item requests, by item and resource.
    requests: Vec<i64>,
    sites: Vec<Site>,
}

struct Item {
    class: ClassId,
    worth: i64,
}

/// Copies of an item that could be on a machine.
#[derive(Clone, Copy)]
struct Candidate<'p> {
    index: usize,
    count: u32,
    worth: i64,
    /// Its worth with large copies preferred.
    power: f64,
    requests: &'p [i64],
}

struct Site {
    offering: OfferingId,
    price: PriceNanoUsdPerHour,
    holds: Vec<i64>,
    /// By position among the items.
    takes: IdSet<ItemId>,
}

model::define_id! {
    /// A position among the items.
    struct ItemId;
}

/// What one machine holds: items and copies.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    site: usize,
    copies: Vec<(usize, u32)>,
    worth: i128,
    price: PriceNanoUsdPerHour,
}

impl Ord for Pattern {
    /// More worth per dollar is greater, then more worth, then the earlier site.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let mine = self.worth * i128::from(other.price.0.max(1));
        let theirs = other.worth * i128::from(self.price.0.max(1));
        mine.cmp(&theirs).then(self.worth.cmp(&other.worth)).then(other.site.cmp(&self.site))
    }
}

impl PartialOrd for Pattern {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Patterns {
    fn new(
        problem: &Problem<'_>,
        pool: PoolRank,
        classes: &[ClassId],
        left: &IdVec<ClassId, u32>,
        worth: &IdVec<ClassId, i64>,
    ) -> Self {
        let requests = |class: ClassId| &problem.classes[class].shape.requests;
        let mut seen: FastSet<ResourceId> = FastSet::default();
        let asked = classes.iter().flat_map(|&class| requests(class).iter()).filter(|(_, amount)| *amount > 0);
        let mut resources: Vec<ResourceId> =
            asked.map(|(resource, _)| resource).filter(|&resource| seen.insert(resource)).collect();
        resources.sort_by_key(|resource| problem.names().resource_name(*resource));
        let amounts =
            |of: &ResourceVec| -> Vec<i64> { resources.iter().map(|resource| of.get(*resource).max(0)).collect() };
        let items: Vec<Item> = classes
            .iter()
            .filter(|&&class| left[class] > 0)
            .map(|&class| Item { class, worth: worth[class].max(1) })
            .collect();
        let table = &problem.pools[pool];
        let requests = items.iter().flat_map(|item| amounts(requests(item.class))).collect();
        Self { pool, requests, sites: sites(table, &items, amounts), items }
    }

    /// Buys patterns while there are any.
    fn buy(&self, packing: &mut Packing<'_>, left: &mut IdVec<ClassId, u32>) {
        let mut counts: Vec<u32> = self.items.iter().map(|item| left[item.class]).collect();
        let mut best: BinaryHeap<Pattern> =
            (0..self.sites.len()).filter_map(|site| self.pattern(site, &counts)).collect();
        while let Some(pattern) = best.pop() {
            let times = self.times(&pattern, &counts);
            if times > 0 {
                let mut bought = 0;
                while bought < times && self.open(packing, &pattern, &mut counts) {
                    bought += 1;
                }
                if bought < times {
                    // Limits are used up; the caller finds out what still goes.
                    break;
                }
            }
            best.extend(self.pattern(pattern.site, &counts));
        }
        for (item, count) in self.items.iter().zip(counts) {
            left[item.class] = count;
        }
    }

    fn times(&self, pattern: &Pattern, counts: &[u32]) -> u32 {
        let times = pattern.copies.iter().map(|&(item, copies)| counts.get(item).map_or(0, |count| count / copies));
        times.min().unwrap_or(0)
    }

    /// The most worth that a machine of the site was found to hold.
    fn pattern(&self, index: usize, counts: &[u32]) -> Option<Pattern> {
        let site = self.sites.get(index)?;
        let stride = site.holds.len();
        let waiting = |id: ItemId| {
            let (item, count) = (self.items.get(id.index())?, *counts.get(id.index())?);
            let requests = self.requests.get(id.index() * stride..(id.index() + 1) * stride)?;
            (count > 0).then_some(Candidate { index: id.index(), count, worth: item.worth, power: 0.0, requests })
        };
        let waiting: Vec<Candidate<'_>> = site.takes.iter().filter_map(waiting).collect();
        let mut candidates = Vec::with_capacity(waiting.len());
        let fills = PREFERENCES.iter().map(|&preference| {
            candidates.clear();
            candidates.extend(waiting.iter().map(|of| Candidate { power: preference(of.worth as f64), ..*of }));
            fill(site, &mut candidates)
        });
        let (worth, copies) = fills.max_by(|(a, _), (b, _)| a.cmp(b)).filter(|(worth, _)| *worth > 0)?;
        Some(Pattern { site: index, copies, worth, price: site.price })
    }

    /// Opens one machine with the pattern; false if not even the first class found room.
    fn open(&self, packing: &mut Packing<'_>, pattern: &Pattern, counts: &mut [u32]) -> bool {
        let Some(site) = self.sites.get(pattern.site) else { return false };
        let table = &packing.problem.pools[self.pool];
        let mut bin: Option<BinId> = None;
        for &(index, copies) in &pattern.copies {
            let (Some(item), Some(count)) = (self.items.get(index), counts.get_mut(index)) else { continue };
            let Some(way) = alternative_at(table, item.class, site.offering) else { continue };
            let placed = match bin {
                Some(id) => {
                    let placed = packing.copies_in_bin(id, item.class, way, copies).so_far();
                    if placed > 0 {
                        packing.place_in_bin(id, item.class, way, placed);
                    }
                    placed
                }
                None => {
                    let placed = packing.copies_in_new_bin(self.pool, item.class, way, copies).so_far();
                    if placed > 0 {
                        bin = Some(BinId(packing.state.bins.len()));
                        packing.open_bin(self.pool, item.class, way, placed);
                    }
                    placed
                }
            };
            *count -= placed.min(*count);
        }
        bin.is_some()
    }
}

/// What a machine of the site would hold of the candidates, and its worth.
fn fill(site: &Site, candidates: &mut Vec<Candidate<'_>>) -> (i128, Vec<(usize, u32)>) {
    let mut room = site.holds.clone();
    let mut scarcity = vec![0.0; room.len()];
    let mut held: Vec<(usize, u32)> = Vec::new();
    let mut worth = 0_i128;
    loop {
        // What is scarce counts more.
        for (scarcity, &room) in scarcity.iter_mut().zip(&room) {
            *scarcity = 1.0 / (room.max(0) as f64 + 1.0);
        }
        let mut best: Option<(f64, usize)> = None;
        let mut kept = 0;
        candidates.retain(|of| {
            if of.count == 0 || of.requests.iter().zip(&room).any(|(amount, room)| amount > room) {
                return false;
            }
            let takes: f64 =
                of.requests.iter().zip(&scarcity).map(|(&amount, scarcity)| amount as f64 * scarcity).sum();
            let score = of.power / takes.max(f64::MIN_POSITIVE);
            if best.is_none_or(|(most, _)| score > most) {
                best = Some((score, kept));
            }
            kept += 1;
            true
        });
        let Some((_, position)) = best else { break };
        let Some(of) = candidates.get_mut(position) else { break };
        let fits = of.requests.iter().zip(&room).filter(|(amount, _)| **amount > 0).map(|(it, room)| room / it);
        let most = fits.min().map_or(of.count, |fits| u32::try_from(fits).unwrap_or(u32::MAX).min(of.count));
        // Many small ones go in by and by, so that the balance is looked at in between.
        let copies = (most / 8).max(1);
        of.count -= copies;
        for (room, amount) in room.iter_mut().zip(of.requests) {
            *room -= amount * i64::from(copies);
        }
        worth += i128::from(of.worth) * i128::from(copies);
        match held.iter_mut().find(|(known, _)| *known == of.index) {
            Some((_, known)) => *known += copies,
            None => held.push((of.index, copies)),
        }
    }
    held.sort_unstable();
    (worth, held)
}

fn alternative_at<'p>(table: &'p PoolTable<'_>, class: ClassId, offering: OfferingId) -> Option<&'p Alternative> {
    table.by_class[class].iter().find(|alternative| alternative.offerings.contains(offering))
}

/// Offerings that no other beats: one that is not dearer, holds at least as much and takes at least the same classes.
fn sites(table: &PoolTable<'_>, items: &[Item], amounts: impl Fn(&ResourceVec) -> Vec<i64>) -> Vec<Site> {
    let mut takes: IdVec<OfferingId, IdSet<ItemId>> =
        IdVec::filled(IdSet::with_len(items.len()), table.catalogue.offerings.len());
    for (index, item) in items.iter().enumerate() {
        for offering in table.by_class[item.class].iter().flat_map(|alternative| alternative.offerings.iter()) {
            takes[offering].insert(ItemId::from_index(index));
        }
    }
    let mut sites: Vec<Site> = Vec::new();
    for &offering in &table.by_price {
        let site = Site {
            offering,
            price: table.price(offering),
            holds: amounts(table.net(offering)),
            takes: std::mem::take(&mut takes[offering]),
        };
        // Those before it are not dearer.
        let beats = |other: &Site| {
            other.holds.iter().zip(&site.holds).all(|(theirs, mine)| theirs >= mine)
                && site.takes.is_subset(&other.takes)
        };
        if !site.takes.is_empty() && !sites.iter().any(beats) {
            sites.push(site);
        }
    }
    sites
}
