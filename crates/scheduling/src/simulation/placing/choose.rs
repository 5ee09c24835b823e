//! Which machine of the plan takes copies of a class, by what they add to the price.
//!
//! 1. Machines that stay at their price: room that is paid for already.
//! 2. The least addition per copy, over a new machine of the most preferred pool that takes the class (by the size that
//!    is cheapest per copy placed) and over a larger size for one of the machines opened last in that pool
//!    ([`crate::simulation::packing::upsizing`]).
//! 3. Whatever takes a copy at all, whichever the price: limits or minValues can leave no choice.
//!
//! A machine keeps every offering that holds its pods, whatever the size it was opened for; the price is that of its
//! cheapest. Prices are compared as fractions in integers.

mod larger_sizes;

use std::{borrow::Cow, cmp::Ordering, rc::Rc};

use model::{Answer, PriceNanoUsdPerHour, ResourceVec, SearchEnd};

use smallvec::SmallVec;

use self::larger_sizes::LargerSizes;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::pools::{Alternative, PoolRank, PoolTable};
use crate::simulation::packing::Packing;
use crate::simulation::packing::devices::{DeviceRequest, Spot, Ways};
use crate::simulation::packing::host_rooms;
use crate::simulation::packing::host_rooms::RowIndex;
use crate::simulation::packing::mode::Mode;
use crate::simulation::packing::state::BinId;
use crate::simulation::packing::trial::more_copies;
use crate::simulation::packing::upsizing::Some64;
use crate::simulation::topology::Place;
use crate::tuning::{MAX_GROWN, SIZE_ROWS};
use crate::{catalogue::OfferingId, snapshot::PrioritizedListPolicy};

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
pub(crate) fn place(packing: &mut Packing<'_>, class: ClassId, wanted: u32) -> Answer<u32> {
    place_until(packing, class, wanted, false)
}

/// Places one batch of copies in machines and stops, so that the caller can look at existing nodes again; returns how
/// many are left.
pub(crate) fn place_some(packing: &mut Packing<'_>, class: ClassId, wanted: u32) -> Answer<u32> {
    place_until(packing, class, wanted, true)
}

fn place_until(packing: &mut Packing<'_>, class: ClassId, wanted: u32, some_are_enough: bool) -> Answer<u32> {
    let mut end = SearchEnd::default();
    let mut left = into_paid_room(packing, class, wanted).part_of(&mut end);
    while left > 0 {
        if some_are_enough && left < wanted {
            return Answer::new(left, end);
        }
        let placed = by_preference(packing, class, left).part_of(&mut end);
        if placed == 0 {
            break;
        }
        left -= placed;
        if packing.aim.is_too_dear(packing.state.price()) {
            return Answer::new(left, end);
        }
    }
    let mut open = Open::default();
    for bin in (0..packing.state.bins.len()).map(BinId) {
        if left == 0 {
            break;
        }
        left -= at_any_price(packing, bin, class, left, &mut open).part_of(&mut end);
    }
    Answer::new(left, end)
}

/// Places copies in machines without raising their price, and returns how many are left.
pub(crate) fn into_paid_room(packing: &mut Packing<'_>, class: ClassId, wanted: u32) -> Answer<u32> {
    let pods = &packing.problem.classes[class];
    let mut left = wanted;
    let mut end = SearchEnd::default();
    let mut from = BinId(0);
    let mut open = Open::default();
    let least = pods.least_requests();
    while left > 0 {
        let next = packing.state.slack.next(from.0, &least).map(BinId);
        let Some(id) = next.filter(|id| id.0 < packing.state.bins.len()) else { break };
        left -= without_growth(packing, id, class, left, &mut open).part_of(&mut end);
        from = BinId(id.0 + 1);
    }
    Answer::new(left, end)
}

/// Places some copies where it is cheapest and returns how many. A class whose claims have alternatives gets a machine
/// for a later one only if no machine that can be launched gives it an earlier one, unless only the price counts.
pub(crate) fn by_preference(packing: &mut Packing<'_>, class: ClassId, wanted: u32) -> Answer<u32> {
    let mut end = SearchEnd::default();
    for score in scores(packing, class).part_of(&mut end) {
        let mode = Mode { least_score: score, ..packing.mode().clone() };
        let placed = packing.with(mode, |packing| match best_offer(packing, class, wanted).part_of(&mut end) {
            Some(offer) => take(packing, class, &offer).part_of(&mut end),
            None => 0,
        });
        if placed > 0 {
            return Answer::new(placed, end);
        }
    }
    Answer::new(0, end)
}

/// The scores that kube-scheduler would give the machines which could be launched for the class, best first; only 0 for
/// classes whose claims have no alternatives.
fn scores(packing: &Packing<'_>, class: ClassId) -> Answer<Vec<u32>> {
    let problem = packing.problem;
    let in_order = problem.snapshot.options.prioritized_list_policy == PrioritizedListPolicy::Order;
    if !in_order || !problem.classes[class].has_alternatives() {
        return Answer::finished(vec![0]);
    }
    let mut end = SearchEnd::default();
    let mut scores: Vec<u32> = Vec::new();
    for (pool, table) in problem.pools.iter_enumerated() {
        for alternative in &table.by_class[class] {
            let request = DeviceRequest { spot: Spot::New(pool), class, variant: alternative.variant, copies: 1 };
            let ways = packing.ways(request).part_of(&mut end);
            scores.extend(ways.iter().flat_map(|ways| &ways.ways).map(|way| way.score));
        }
    }
    scores.push(0);
    scores.sort_unstable_by(|a, b| b.cmp(a));
    scores.dedup();
    Answer::new(scores, end)
}

/// Places copies in machines whose cheapest offering still holds them.
fn without_growth<'p>(
    packing: &mut Packing<'p>,
    id: BinId,
    class: ClassId,
    wanted: u32,
    open: &mut Open<'p>,
) -> Answer<u32> {
    let problem = packing.problem;
    let pods = &problem.classes[class];
    let Some(pool) = packing.state.bins.get(id.0).map(|bin| bin.pool) else { return Answer::finished(0) };
    let table = &problem.pools[pool];
    let mut end = SearchEnd::default();
    let mut best: Option<(&Alternative, u32)> = None;
    for way in open.ways(packing, pool, class, wanted) {
        let alternative = way.alternative;
        let Some(bin) = packing.state.bins.get(id.0) else { break };
        if bin.is_elsewhere(table, alternative) || !pods.requests(alternative.variant).fits_in(&bin.slack) {
            continue;
        }
        let Some(allowed) = way.on_host(packing, id, class) else { continue };
        let Some(bin) = packing.state.bins.get(id.0) else { break };
        let size = Size::new(packing, Spot::Bin(id), class, alternative, allowed).part_of(&mut end);
        let same_price = size
            .at_least_at_price(table, bin.price)
            .iter()
            .take_while(|&&offering| table.price(offering) == bin.price)
            .filter(|&&offering| bin.offerings.contains(offering) && alternative.offerings.contains(offering));
        let copies =
            same_price.map(|&offering| size.copies(table, offering, &bin.requests, allowed)).max().unwrap_or(0);
        if copies > best.map_or(0, |(_, most)| most) {
            best = Some((alternative, copies));
        }
    }
    let Some((alternative, copies)) = best else { return Answer::new(0, end) };
    let copies = packing.copies_in_bin(id, class, alternative, copies).part_of(&mut end);
    if copies > 0 {
        packing.place_in_bin(id, class, alternative, copies);
        *open = Open::default();
    }
    Answer::new(copies, end)
}

/// An alternative of a class in a pool that rules leave open to some copies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowed<'p> {
    pub(crate) alternative: &'p Alternative,
    /// At most so many on one machine.
    copies: u32,
    /// Whether rules over hosts may allow fewer.
    depends_on_host: bool,
    /// The row that keeps how many copies these rules allow on each machine, until the class is asked about again or
    /// another one is.
    host: Option<RowIndex>,
}

impl Allowed<'_> {
    /// How many copies rules over hosts allow on an open machine; `None` if none.
    pub(crate) fn on_host(&self, packing: &mut Packing<'_>, id: BinId, class: ClassId) -> Option<u32> {
        if !self.depends_on_host {
            return Some(self.copies);
        }
        let ask = |packing: &Packing<'_>, wanted| packing.copies_allowed_on_host(id, class, self.alternative, wanted);
        let copies = match self.host {
            None => ask(packing, self.copies),
            Some(row) => {
                let known = packing.state.host_rooms.copies(row, id).unwrap_or_else(|| {
                    let copies = ask(packing, host_rooms::ANY);
                    packing.state.host_rooms.keep(row, id, copies);
                    copies
                });
                known.min(self.copies)
            }
        };
        (copies > 0).then_some(copies)
    }
}

/// The alternatives of the class that rules over labels leave open now. They are the same for all machines of the pool.
pub(crate) fn allowed_by_labels<'p>(
    packing: &mut Packing<'p>,
    pool: PoolRank,
    class: ClassId,
    wanted: u32,
) -> SmallVec<[Allowed<'p>; 4]> {
    let table = &packing.problem.pools[pool];
    let allowed = |alternative: &'p Alternative| {
        if packing.run.is_avoided(table, class, alternative) {
            return None;
        }
        let copies = packing.copies_allowed_by_labels(class, alternative, wanted);
        let depends_on_host = alternative.places.contains(&Place::OwnHost);
        (copies > 0).then_some(Allowed { alternative, copies, depends_on_host, host: None })
    };
    let mut open: SmallVec<[Allowed<'p>; 4]> = table.by_class[class].iter().filter_map(allowed).collect();
    let over_hosts = open.iter().filter(|allowed| allowed.depends_on_host).map(|allowed| allowed.alternative);
    let (checking, state) = (packing.mode().checking, &mut packing.state);
    let rows = state.host_rooms.rows((packing.problem, &state.counts), class, checking, over_hosts, state.bins.len());
    for (allowed, row) in open.iter_mut().filter(|allowed| allowed.depends_on_host).zip(rows) {
        allowed.host = row;
        if row.is_some() {
            // No machine takes more than one that holds nothing.
            allowed.copies = packing.copies_allowed(None, class, allowed.alternative, allowed.copies);
        }
    }
    open.retain(|allowed| allowed.copies > 0);
    open
}

/// What was last found out about a pool, as long as nothing is placed: machines of a pool mostly come one after the
/// other.
#[derive(Default)]
struct Open<'p> {
    pool: Option<PoolRank>,
    ways: SmallVec<[Allowed<'p>; 4]>,
}

impl<'p> Open<'p> {
    fn ways(&mut self, packing: &mut Packing<'p>, pool: PoolRank, class: ClassId, wanted: u32) -> &[Allowed<'p>] {
        if self.pool != Some(pool) {
            self.pool = Some(pool);
            self.ways = allowed_by_labels(packing, pool, class, wanted);
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
    fn new(packing: &Packing<'a>, spot: Spot, class: ClassId, alternative: &Alternative, wanted: u32) -> Answer<Self> {
        let pods = &packing.problem.classes[class];
        let variant = alternative.variant;
        let requests = pods.requests(variant);
        if pods.devices.is_none() {
            return Answer::finished(Self { requests, ways: None });
        }
        packing.ways(DeviceRequest { spot, class, variant, copies: wanted }).map(|ways| Self { requests, ways })
    }

    /// The members whose machines may take copies and cost that much at least, cheapest first.
    fn at_least_at_price<'s>(&'s self, table: &'s PoolTable<'_>, price: PriceNanoUsdPerHour) -> &'s [OfferingId] {
        let Some(ways) = &self.ways else { return table.at_least_at_price(price) };
        let giving = ways.by_price(table);
        let first = giving.partition_point(|&offering| table.price(offering) < price);
        giving.get(first..).unwrap_or_default()
    }

    /// Copies that a machine from the offering takes on top of what it holds.
    fn copies(&self, table: &PoolTable<'_>, offering: OfferingId, held: &ResourceVec, wanted: u32) -> u32 {
        let net = table.net(offering);
        let Some(ways) = &self.ways else { return more_copies(self.requests, held, net, wanted) };
        let Some(way) = ways.at(offering) else { return 0 };
        let mut each = Cow::Borrowed(self.requests);
        if let Some(extra) = way.extra(table.shapes.shape_of(offering)) {
            each.to_mut().saturating_add_assign(extra);
        }
        more_copies(&each, held, net, wanted.min(way.copies))
    }
}

/// The cheapest way to place some copies: in the first pool that can have a new machine for them, else `None`.
fn best_offer<'p>(packing: &mut Packing<'p>, class: ClassId, wanted: u32) -> Answer<Option<Offer<'p>>> {
    let problem = packing.problem;
    let mut end = SearchEnd::default();
    for (pool, table) in problem.pools.iter_enumerated() {
        let mut best: Option<Offer<'p>> = None;
        for alternative in &table.by_class[class] {
            let most = packing.copies_in_new_bin(pool, class, alternative, wanted).part_of(&mut end);
            if most == 0 {
                continue;
            }
            let mut offer = new_machine(packing, pool, class, alternative, most).part_of(&mut end);
            // A large machine may be within limits where no smaller one has been asked for.
            offer.copies = offer.copies.min(most);
            keep_best(&mut best, offer);
        }
        if best.is_none() {
            continue;
        }
        let open = allowed_by_labels(packing, pool, class, wanted);
        let last = packing.state.bins.len();
        let first_of_last = last.saturating_sub(MAX_GROWN);
        let repeated = packing.state.alike.repeated(MAX_GROWN).filter(|id| id.0 < first_of_last);
        let repeated: SmallVec<[BinId; MAX_GROWN]> = repeated.collect();
        let mut larger = LargerSizes { packing, pool, table, class, best, end };
        if problem.classes[class].devices.is_some() || open.len() > SIZE_ROWS {
            for id in (first_of_last..last).rev().map(BinId).chain(repeated) {
                if larger.packing.state.bins.get(id.0).is_some_and(|bin| bin.pool == pool) {
                    open.iter().for_each(|allowed| larger.of(id, allowed));
                }
            }
        } else {
            larger.of_plain(&[Some64::Last(first_of_last..last), Some64::These(&repeated)], &open);
        }
        return Answer::new(larger.best, larger.end);
    }
    Answer::new(None, end)
}

fn keep_best<'p>(best: &mut Option<Offer<'p>>, offer: Offer<'p>) {
    if best.as_ref().is_none_or(|best| offer.cmp(best) == Ordering::Less) {
        *best = Some(offer);
    }
}

/// The size that is cheapest per copy; the caller knows that `wanted` copies, at most, can be had at once.
pub(crate) fn new_machine<'p>(
    packing: &Packing<'_>,
    pool: PoolRank,
    class: ClassId,
    alternative: &'p Alternative,
    wanted: u32,
) -> Answer<Offer<'p>> {
    let table = &packing.problem.pools[pool];
    let mut end = SearchEnd::default();
    let size = Size::new(packing, Spot::New(pool), class, alternative, wanted).part_of(&mut end);
    let offer = |copies, added| Offer { bin: None, pool, alternative, copies, added, is_forced: false };
    let mut best: Option<Offer<'p>> = None;
    if let Some(ways) = &size.ways {
        let nothing = ResourceVec::default();
        for &offering in ways.by_price(table).iter().filter(|&&offering| alternative.offerings.contains(offering)) {
            let price = table.price(offering).0;
            // Cheapest first: what is dearer costs more, for `wanted` copies at most.
            if best.is_some_and(|best| best.cost_cmp(&offer(wanted, price)) == Ordering::Less) {
                break;
            }
            let copies = size.copies(table, offering, &nothing, wanted);
            if copies > 0 {
                keep_best(&mut best, offer(copies, price));
            }
        }
    } else {
        let step = table.staircase(alternative.fit).best(wanted);
        best = step.map(|(copies, price)| offer(copies, price.0));
    }
    Answer::new(best.unwrap_or_else(|| offer(wanted, i64::MAX)), end)
}

/// Carries an offer out, with fewer copies if limits, minValues or open labels ask for it; returns how many.
fn take(packing: &mut Packing<'_>, class: ClassId, offer: &Offer<'_>) -> Answer<u32> {
    let Offer { bin, pool, alternative, copies, .. } = *offer;
    let Some(id) = bin else {
        return packing.copies_in_new_bin(pool, class, alternative, copies).map(|copies| {
            if copies > 0 {
                packing.open_bin(pool, class, alternative, copies);
            }
            copies
        });
    };
    packing.copies_in_bin(id, class, alternative, copies).map(|possible| {
        if possible > 0 {
            packing.place_in_bin(id, class, alternative, possible);
        }
        possible
    })
}

/// Places copies in an open machine, by the term that takes most of them.
fn at_any_price<'p>(
    packing: &mut Packing<'p>,
    bin: BinId,
    class: ClassId,
    wanted: u32,
    open: &mut Open<'p>,
) -> Answer<u32> {
    let Some(pool) = packing.state.bins.get(bin.0).map(|bin| bin.pool) else { return Answer::finished(0) };
    let mut end = SearchEnd::default();
    let mut best: Option<(&Alternative, u32)> = None;
    for &Allowed { alternative, copies: wanted, .. } in open.ways(packing, pool, class, wanted) {
        let copies = packing.copies_in_bin(bin, class, alternative, wanted).part_of(&mut end);
        if copies > best.map_or(0, |(_, most)| most) {
            best = Some((alternative, copies));
        }
    }
    let Some((alternative, copies)) = best else { return Answer::new(0, end) };
    packing.place_in_bin(bin, class, alternative, copies);
    *open = Open::default();
    Answer::new(copies, end)
}
