//! Which machine of the plan takes copies of a class, by what they add to the price.
//!
//! 1. Machines that stay at their price: room that is paid for already.
//! 2. The least addition per copy, over a new machine of the most preferred pool that takes the class (by the size that
//!    is cheapest per copy placed) and over a larger size for one of the machines opened last in that pool
//!    ([`super::growth`]).
//! 3. Whatever takes a copy at all, whichever the price: limits or minValues can leave no choice.
//!
//! A machine keeps every offering that holds its pods, whatever the size it was opened for; the price is that of its
//! cheapest. Prices are compared as fractions in integers.

use std::{borrow::Cow, cmp::Ordering, rc::Rc};

use model::{PriceNanoUsdPerHour, ResourceVec};

use smallvec::SmallVec;

use super::{
    classes::ClassId,
    devices::{Spot, Ways},
    growth::{self, MAX_ROWS, Some64},
    host_rooms::{self, RowIndex},
    pools::{Alternative, PoolRank, PoolTable},
    problem::Problem,
    state::{Bin, BinId, State},
    topology::Place,
};
use crate::{catalogue::OfferingId, snapshot::PrioritizedListPolicy};

/// How many of the machines opened last are considered for a larger size, and as many of which there are several alike.
/// Others have been passed over by enough classes; without a bound the work would grow with the square of the machines.
const MAX_GROWN: usize = 64;

/// Copies somewhere, for an addition to the price.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offer<'p> {
    bin: Option<BinId>,
    pub(crate) pool: PoolRank,
    alternative: &'p Alternative,
    copies: u32,
    /// Nano-dollars per hour.
    added: i64,
    /// Whether it is a machine that has to be there for pods which need a host each.
    is_forced: bool,
}

impl Offer<'_> {
    /// Cheaper per copy first, then more copies, then machines that have to be there anyway: it saves a machine.
    pub(crate) fn cmp(&self, other: &Self) -> Ordering {
        self.cost_cmp(other).then(other.copies.cmp(&self.copies)).then(other.is_forced.cmp(&self.is_forced))
    }

    /// Cheaper per copy first.
    pub(crate) fn cost_cmp(&self, other: &Self) -> Ordering {
        cost_cmp((self.added, self.copies), (other.added, other.copies))
    }
}

/// Of two additions to the price with the copies that they are for, the one that is cheaper per copy first.
fn cost_cmp(mine: (i64, u32), theirs: (i64, u32)) -> Ordering {
    let product = |added: i64, copies: u32| i128::from(added) * i128::from(copies);
    product(mine.0, theirs.1).cmp(&product(theirs.0, mine.1))
}

/// Places up to `wanted` copies in machines and returns how many are left.
pub(crate) fn place(problem: &Problem<'_>, state: &mut State, class: ClassId, wanted: u32) -> u32 {
    place_until(problem, state, class, wanted, false)
}

/// Places some of the copies in machines, so that it can be looked at what that changes, and returns how many are left.
pub(crate) fn place_some(problem: &Problem<'_>, state: &mut State, class: ClassId, wanted: u32) -> u32 {
    place_until(problem, state, class, wanted, true)
}

fn place_until(problem: &Problem<'_>, state: &mut State, class: ClassId, wanted: u32, some_are_enough: bool) -> u32 {
    let mut left = into_paid_room(problem, state, class, wanted);
    while left > 0 {
        if some_are_enough && left < wanted {
            return left;
        }
        let placed = by_preference(problem, state, class, left);
        if placed == 0 {
            break;
        }
        left -= placed;
        if problem.is_too_dear(state.price()) {
            return left;
        }
    }
    let mut open = Open::default();
    for bin in (0..state.bins.len()).map(BinId) {
        if left == 0 {
            return 0;
        }
        left -= at_any_price(problem, state, bin, class, left, &mut open);
    }
    left
}

/// Places copies in machines whose price stays, and returns how many are left.
pub(crate) fn into_paid_room(problem: &Problem<'_>, state: &mut State, class: ClassId, wanted: u32) -> u32 {
    let pods = &problem.classes[class];
    let mut left = wanted;
    let mut from = BinId(0);
    let mut open = Open::default();
    while left > 0 {
        // What a copy takes besides depends on who serves its extended resources.
        let next = match pods.devices {
            None => state.slack.next(from.0, &pods.shape.requests).map(BinId),
            Some(_) => Some(from),
        };
        let Some(id) = next.filter(|id| id.0 < state.bins.len()) else { break };
        left -= without_growth(problem, state, id, class, left, &mut open);
        from = BinId(id.0 + 1);
    }
    left
}

/// Places some copies where it is cheapest. A class whose claims have alternatives gets a machine for a later one only
/// if no machine that can be launched gives it an earlier one, unless only the price counts.
pub(crate) fn by_preference(problem: &Problem<'_>, state: &mut State, class: ClassId, wanted: u32) -> u32 {
    for score in scores(problem, state, class) {
        if let Some(devices) = &mut state.devices {
            devices.least_score = score;
        }
        let placed = match best_offer(problem, state, class, wanted) {
            Some(offer) => take(problem, state, class, &offer),
            None => 0,
        };
        if let Some(devices) = &mut state.devices {
            devices.least_score = 0;
        }
        if placed > 0 {
            return placed;
        }
    }
    0
}

/// What kube-scheduler makes of the machines that could be launched for the class, the best first; 0 alone for classes
/// whose claims have no alternatives.
fn scores(problem: &Problem<'_>, state: &State, class: ClassId) -> Vec<u32> {
    let in_order = problem.snapshot.options.prioritized_list_policy == PrioritizedListPolicy::Order;
    if !in_order || !problem.classes[class].has_alternatives() {
        return vec![0];
    }
    let mut scores: Vec<u32> = Vec::new();
    for (pool, table) in problem.pools.iter_enumerated() {
        for alternative in &table.by_class[class] {
            let ways = state.ways(problem, Spot::New(pool), class, alternative.variant, 1);
            scores.extend(ways.iter().flat_map(|ways| &ways.ways).map(|way| way.score));
        }
    }
    scores.push(0);
    scores.sort_unstable_by(|a, b| b.cmp(a));
    scores.dedup();
    scores
}

/// Places copies where the machine's cheapest offering still holds them.
fn without_growth<'p>(
    problem: &'p Problem<'_>,
    state: &mut State,
    id: BinId,
    class: ClassId,
    wanted: u32,
    open: &mut Open<'p>,
) -> u32 {
    let pods = &problem.classes[class];
    let Some(pool) = state.bins.get(id.0).map(|bin| bin.pool) else { return 0 };
    let table = &problem.pools[pool];
    let mut best: Option<(&Alternative, u32)> = None;
    for way in open.ways(problem, state, pool, class, wanted) {
        let alternative = way.alternative;
        let Some(bin) = state.bins.get(id.0) else { break };
        if bin.is_elsewhere(table, alternative) || !pods.requests(alternative.variant).fits_in(&bin.slack) {
            continue;
        }
        let Some(allowed) = way.on_host(problem, state, id, class) else { continue };
        let Some(bin) = state.bins.get(id.0) else { break };
        let ways = Size::new(problem, state, Spot::Bin(id), class, alternative, allowed);
        let same_price = table
            .at_least_at_price(bin.price)
            .take_while(|&&offering| table.price(offering) == bin.price)
            .filter(|&&offering| bin.offerings.contains(offering) && alternative.offerings.contains(offering));
        let copies =
            same_price.map(|&offering| ways.copies(table, offering, &bin.requests, allowed)).max().unwrap_or(0);
        if copies > best.map_or(0, |(_, most)| most) {
            best = Some((alternative, copies));
        }
    }
    let Some((alternative, copies)) = best else { return 0 };
    let copies = state.copies_in_bin(problem, id, class, alternative, copies);
    if copies > 0 {
        state.place_in_bin(problem, id, class, alternative, copies);
        *open = Open::default();
    }
    copies
}

/// A way for a class to be in machines of a pool that is open to some copies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowed<'p> {
    pub(crate) alternative: &'p Alternative,
    /// At most so many on one machine.
    copies: u32,
    /// Whether rules over hosts may allow fewer.
    depends_on_host: bool,
    /// Where it is kept how many these allow on each machine, until the class is asked for again or another.
    host: Option<RowIndex>,
}

impl Allowed<'_> {
    /// How many copies rules over hosts allow on an open machine; `None` if none.
    pub(crate) fn on_host(&self, problem: &Problem<'_>, state: &mut State, id: BinId, class: ClassId) -> Option<u32> {
        if !self.depends_on_host {
            return Some(self.copies);
        }
        let ask = |state: &State, wanted| state.copies_allowed_on_host(problem, id, class, self.alternative, wanted);
        let copies = match self.host {
            None => ask(state, self.copies),
            Some(row) => {
                let known = state.host_rooms.copies(row, id).unwrap_or_else(|| {
                    let copies = ask(state, host_rooms::ANY);
                    state.host_rooms.keep(row, id, copies);
                    copies
                });
                known.min(self.copies)
            }
        };
        (copies > 0).then_some(copies)
    }
}

/// The ways in which rules over labels let copies into machines of a pool as things are: these are the same for all machines.
pub(crate) fn allowed_by_labels<'p>(
    problem: &'p Problem<'_>,
    state: &mut State,
    table: &'p PoolTable<'_>,
    class: ClassId,
    wanted: u32,
) -> SmallVec<[Allowed<'p>; 4]> {
    let allowed = |alternative: &'p Alternative| {
        if problem.is_avoided(table, class, alternative) {
            return None;
        }
        let copies = state.copies_allowed_by_labels(problem, class, alternative, wanted);
        let depends_on_host = alternative.places.contains(&Place::OwnHost);
        (copies > 0).then_some(Allowed { alternative, copies, depends_on_host, host: None })
    };
    let mut open: SmallVec<[Allowed<'p>; 4]> = table.by_class[class].iter().filter_map(allowed).collect();
    let over_hosts = open.iter().filter(|allowed| allowed.depends_on_host).map(|allowed| allowed.alternative);
    let rows = state.host_rooms.rows(problem, class, state.checking, over_hosts, state.bins.len());
    for (allowed, row) in open.iter_mut().filter(|allowed| allowed.depends_on_host).zip(rows) {
        allowed.host = row;
        if row.is_some() {
            // No machine takes more than one that holds nothing.
            allowed.copies = state.copies_allowed(problem, None, class, allowed.alternative, allowed.copies);
        }
    }
    open.retain(|allowed| allowed.copies > 0);
    open
}

/// The same for the pool that was asked for last, as long as nothing is placed: machines of a pool mostly come together.
#[derive(Default)]
struct Open<'p> {
    pool: Option<PoolRank>,
    ways: SmallVec<[Allowed<'p>; 4]>,
}

impl<'p> Open<'p> {
    fn ways(
        &mut self,
        problem: &'p Problem<'_>,
        state: &mut State,
        pool: PoolRank,
        class: ClassId,
        wanted: u32,
    ) -> &[Allowed<'p>] {
        if self.pool != Some(pool) {
            self.pool = Some(pool);
            self.ways = allowed_by_labels(problem, state, &problem.pools[pool], class, wanted);
        }
        &self.ways
    }
}

/// How large copies of a class are, and how many a machine gives their devices.
struct Size<'a> {
    requests: &'a ResourceVec,
    /// `None` for pods without claims.
    ways: Option<Rc<Ways>>,
}

impl<'a> Size<'a> {
    fn new(
        problem: &'a Problem<'_>,
        state: &State,
        spot: Spot,
        class: ClassId,
        alternative: &Alternative,
        wanted: u32,
    ) -> Self {
        let pods = &problem.classes[class];
        let variant = alternative.variant;
        let ways = pods.devices.as_ref().and_then(|_| state.ways(problem, spot, class, variant, wanted));
        Self { requests: pods.requests(variant), ways }
    }

    /// Copies that a machine from the offering takes on top of what it holds.
    fn copies(&self, table: &PoolTable<'_>, offering: OfferingId, held: &ResourceVec, wanted: u32) -> u32 {
        let net = table.net(offering);
        let Some(ways) = &self.ways else { return more_copies(self.requests, held, net, wanted) };
        let Some((most, extra)) = ways.at(table, offering) else { return 0 };
        let mut each = Cow::Borrowed(self.requests);
        if let Some(extra) = extra {
            each.to_mut().saturating_add_assign(extra);
        }
        more_copies(&each, held, net, wanted.min(most))
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

/// The cheapest way to place some copies: in the first pool that can have a new machine for them, else `None`.
fn best_offer<'p>(problem: &'p Problem<'_>, state: &mut State, class: ClassId, wanted: u32) -> Option<Offer<'p>> {
    for (pool, table) in problem.pools.iter_enumerated() {
        let mut best: Option<Offer<'p>> = None;
        for alternative in &table.by_class[class] {
            let most = state.copies_in_new_bin(problem, pool, class, alternative, wanted);
            if most == 0 {
                continue;
            }
            let mut offer = new_machine(problem, state, pool, class, alternative, most);
            // A large machine may be within limits where no smaller one has been asked for.
            offer.copies = offer.copies.min(most);
            keep_best(&mut best, offer);
        }
        if best.is_none() {
            continue;
        }
        let open = allowed_by_labels(problem, state, table, class, wanted);
        let last = state.bins.len();
        let first_of_last = last.saturating_sub(MAX_GROWN);
        let repeated = state.alike.repeated(MAX_GROWN).filter(|id| id.0 < first_of_last);
        let repeated: SmallVec<[BinId; MAX_GROWN]> = repeated.collect();
        if problem.classes[class].devices.is_some() || open.len() > MAX_ROWS {
            for id in (first_of_last..last).rev().map(BinId).chain(repeated) {
                if state.bins.get(id.0).is_some_and(|bin| bin.pool == pool) {
                    for allowed in &open {
                        larger_size(problem, state, id, table, class, allowed, &mut best);
                    }
                }
            }
        } else {
            let bins = [Some64::Last(first_of_last..last), Some64::These(&repeated)];
            larger_sizes(problem, state, &bins, pool, class, &open, &mut best);
        }
        return best;
    }
    None
}

fn keep_best<'p>(best: &mut Option<Offer<'p>>, offer: Offer<'p>) {
    if best.as_ref().is_none_or(|best| offer.cmp(best) == Ordering::Less) {
        *best = Some(offer);
    }
}

/// The size that is cheapest per copy; the caller knows that `wanted` copies, at most, can be had at once.
pub(crate) fn new_machine<'p>(
    problem: &Problem<'_>,
    state: &State,
    pool: PoolRank,
    class: ClassId,
    alternative: &'p Alternative,
    wanted: u32,
) -> Offer<'p> {
    let table = &problem.pools[pool];
    let size = Size::new(problem, state, Spot::New(pool), class, alternative, wanted);
    let offer = |copies, added| Offer { bin: None, pool, alternative, copies, added, is_forced: false };
    let mut best: Option<Offer<'p>> = None;
    if size.ways.is_none() {
        let step = table.staircase(alternative.fit).best(wanted);
        best = step.map(|(copies, price)| offer(copies, price.0));
    } else {
        let nothing = ResourceVec::default();
        for offering in alternative.offerings.iter() {
            let copies = size.copies(table, offering, &nothing, wanted);
            if copies > 0 {
                keep_best(&mut best, offer(copies, table.price(offering).0));
            }
        }
    }
    best.unwrap_or_else(|| offer(wanted, i64::MAX))
}

/// Offers larger sizes of open machines, those of a class without claims. Which machines are looked at is told by what one copy
/// more adds: above `most` for all of the copies it is beaten, as `larger_size` would find.
fn larger_sizes<'p>(
    problem: &Problem<'_>,
    state: &mut State,
    bins: &[Some64<'_>],
    pool: PoolRank,
    class: ClassId,
    open: &[Allowed<'p>],
    best: &mut Option<Offer<'p>>,
) {
    let table = &problem.pools[pool];
    let rows = state.growths.rows(pool, open.iter().map(|allowed| allowed.alternative.fit), state.bins.len());
    // What is added at most for as many copies as may come, and whether there is nothing left to compare at exactly that.
    let limits = |best: &Option<Offer<'_>>| -> SmallVec<[(i64, bool); 4]> {
        let limit = |allowed: &Allowed<'_>| {
            let Some(best) = best else { return (i64::MAX, false) };
            let (all, each) = (i128::from(best.added) * i128::from(allowed.copies), i128::from(best.copies.max(1)));
            let most = i64::try_from(all.div_euclid(each)).unwrap_or(i64::MAX);
            (most, all.rem_euclid(each) == 0 && best.copies >= allowed.copies)
        };
        open.iter().map(limit).collect()
    };
    let mut most = limits(best);
    // Of machines that can become the same the first is the best.
    let mut asked: SmallVec<[Asked; 16]> = SmallVec::new();
    for bins in bins {
        let within = |((&row, &(most, _)), allowed): ((&growth::RowIndex, &(i64, bool)), &Allowed<'_>)| {
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
                let Some(added) = state.growths.added(row, id, &state.bins, table, allowed.alternative) else {
                    continue;
                };
                if added > most_added || (added == most_added && is_exact && !is_more_forced(state, id, best)) {
                    continue;
                }
                let Some(wanted) = allowed.on_host(problem, state, id, class) else { continue };
                let Some(bin) = state.bins.get(id.0) else { continue };
                if let Some(shape) = bin.shape() {
                    let this = Asked { shape, way: index, wanted, is_forced: bin.is_forced };
                    if asked.contains(&this) {
                        continue;
                    }
                    asked.push(this);
                }
                if larger_step(problem, state, id, table, class, (allowed.alternative, wanted), best) {
                    most = limits(best);
                }
            }
        }
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

/// Whether a machine has to be there anyway and that of the best offer has not.
fn is_more_forced(state: &State, id: BinId, best: &Option<Offer<'_>>) -> bool {
    best.is_some_and(|best| !best.is_forced) && state.bins.get(id.0).is_some_and(|bin| bin.is_forced)
}

/// Offers the larger size of an open machine that adds least per copy, if it beats the best so far.
fn larger_size<'p>(
    problem: &Problem<'_>,
    state: &mut State,
    id: BinId,
    table: &PoolTable<'_>,
    class: ClassId,
    allowed: &Allowed<'p>,
    best: &mut Option<Offer<'p>>,
) {
    let alternative = allowed.alternative;
    let Some(bin) = state.bins.get(id.0) else { return };
    let wants_devices = problem.classes[class].devices.is_some();
    let least = if wants_devices {
        table.least_price_with(problem.classes[class].requests(alternative.variant), &bin.requests)
    } else {
        state.growths.of(id, bin, table, alternative).least()
    };
    let Some(least) = least else { return };
    let is_beaten = |offer: &Offer<'_>, wanted: u32| match against(offer, bin, least, wanted) {
        Ordering::Greater => true,
        Ordering::Equal => offer.copies >= wanted && (offer.is_forced || !bin.is_forced),
        Ordering::Less => false,
    };
    if best.as_ref().is_some_and(|best| is_beaten(best, allowed.copies)) {
        return;
    }
    let Some(wanted) = allowed.on_host(problem, state, id, class) else { return };
    if !wants_devices {
        larger_step(problem, state, id, table, class, (alternative, wanted), best);
        return;
    }
    let Some(bin) = state.bins.get(id.0) else { return };
    let size = Size::new(problem, state, Spot::Bin(id), class, alternative, wanted);
    let mut found: Option<Offer<'p>> = None;
    for &offering in table.at_least_at_price(least.max(bin.price)) {
        let price = table.price(offering);
        // Cheapest first: what is dearer adds more, for `wanted` copies at most.
        let is_too_dear = |offer: &Offer<'_>| against(offer, bin, price, wanted) == Ordering::Greater;
        if best.iter().chain(&found).any(is_too_dear) {
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
        keep_if_possible(problem, state, id, class, found, best);
    }
}

/// The same for `wanted` copies without claims, by what is known of the machine's larger sizes; whether it is the best now.
fn larger_step<'p>(
    problem: &Problem<'_>,
    state: &mut State,
    id: BinId,
    table: &PoolTable<'_>,
    class: ClassId,
    (alternative, wanted): (&'p Alternative, u32),
    best: &mut Option<Offer<'p>>,
) -> bool {
    let found = best_step(state, id, table, alternative, wanted, best);
    found.is_some_and(|found| keep_if_possible(problem, state, id, class, found, best))
}

/// The larger size of an open machine that adds least per copy, if it beats the best so far.
fn best_step<'p>(
    state: &mut State,
    id: BinId,
    table: &PoolTable<'_>,
    alternative: &'p Alternative,
    wanted: u32,
    best: &Option<Offer<'p>>,
) -> Option<Offer<'p>> {
    let bin = state.bins.get(id.0)?;
    let growth = state.growths.of(id, bin, table, alternative);
    let mut to_beat = *best;
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

/// Copies in an open machine that becomes one of that price.
fn grown<'p>(id: BinId, bin: &Bin, alternative: &'p Alternative, copies: u32, price: PriceNanoUsdPerHour) -> Offer<'p> {
    let added = price.0.saturating_sub(bin.price.0);
    Offer { bin: Some(id), pool: bin.pool, alternative, copies, added, is_forced: bin.is_forced }
}

/// Keeps an offer of an open machine if it beats the best so far, and if limits, minValues and open labels let it be.
fn keep_if_possible<'p>(
    problem: &Problem<'_>,
    state: &mut State,
    id: BinId,
    class: ClassId,
    offer: Offer<'p>,
    best: &mut Option<Offer<'p>>,
) -> bool {
    let is_better = best.as_ref().is_none_or(|best| offer.cmp(best) == Ordering::Less)
        && state.copies_in_bin(problem, id, class, offer.alternative, offer.copies) == offer.copies;
    if is_better {
        *best = Some(offer);
    }
    is_better
}

/// So many copies in a larger size of a machine at that price, against an offer.
fn against(offer: &Offer<'_>, bin: &Bin, price: PriceNanoUsdPerHour, copies: u32) -> Ordering {
    cost_cmp((price.0.saturating_sub(bin.price.0), copies), (offer.added, offer.copies))
}

/// Carries an offer out, with fewer copies if limits, minValues or open labels ask for it.
fn take(problem: &Problem<'_>, state: &mut State, class: ClassId, offer: &Offer<'_>) -> u32 {
    let Offer { bin, pool, alternative, copies, .. } = *offer;
    let Some(id) = bin else {
        let copies = state.copies_in_new_bin(problem, pool, class, alternative, copies);
        if copies > 0 {
            state.open_bin(problem, pool, class, alternative, copies);
        }
        return copies;
    };
    let possible = state.copies_in_bin(problem, id, class, alternative, copies);
    if possible > 0 {
        state.place_in_bin(problem, id, class, alternative, possible);
    }
    possible
}

/// Places copies in an open machine, by the term that takes most of them.
fn at_any_price<'p>(
    problem: &'p Problem<'_>,
    state: &mut State,
    bin: BinId,
    class: ClassId,
    wanted: u32,
    open: &mut Open<'p>,
) -> u32 {
    let Some(pool) = state.bins.get(bin.0).map(|bin| bin.pool) else { return 0 };
    let mut best: Option<(&Alternative, u32)> = None;
    for &Allowed { alternative, copies: wanted, .. } in open.ways(problem, state, pool, class, wanted) {
        let copies = state.copies_in_bin(problem, bin, class, alternative, wanted);
        if copies > best.map_or(0, |(_, most)| most) {
            best = Some((alternative, copies));
        }
    }
    let Some((alternative, copies)) = best else { return 0 };
    state.place_in_bin(problem, bin, class, alternative, copies);
    *open = Open::default();
    copies
}
