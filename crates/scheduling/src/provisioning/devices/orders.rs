//! Plans that hold in whichever order the scheduler comes to claims.
//!
//! A nominated pod reserves no devices, and the scheduler allocates in the order of its queue. Where claims of different
//! kinds compete for the devices of one machine (or, where machines share devices, of the cluster), an arrangement that
//! one order finds may be out of reach in another: the claim for any GPU takes the one that the claim for a large GPU
//! needed. So before copies are put beside others, all claims of the place are allocated again in other orders of their
//! kinds, one kind after the other and in turns, on ledgers that hold nothing of this plan. What does not go in each of
//! them is not offered there, and the packer finds another place.
//!
//! Daemons are among them: the rest of a plan takes it that they come first, but their pods wait in the same queue. One
//! that comes too late for its devices takes none, so that others have theirs.
//!
//! Claims that take more where there is more (alternatives, requests for all) compete with their own kind too where several
//! places share devices: who comes first takes what another's machine brings. They are replayed by place, there and back.
//!
//! What cannot compete is left out: claims that reach no device in common with the new ones, directly or through others.
//!
//! Bounds: all orders of up to [`MAX_PERMUTED`] kinds, the new one first, and rotations of more; turns for up to
//! [`MAX_IN_TURNS`] copies. Of placements that compete, up to [`MAX_PLACEMENTS`] count, and if there are more, the place's
//! own. A plan has so many allocations to replay ([`REPLAYS`], [`SEARCH_REPLAYS`]). An order that runs out of steps,
//! or for which none are left, does not hold, and the answer is no more than undecided. Since every order begins with
//! nothing planned, an answer holds for as long as the problem does, and [`MAX_KNOWN`] of them are kept.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use dra_sched::{
    BinLedger, ClaimId, ClaimUse, ClusterLedger, Domain, Reach, ShapeId, ledger::BinId as LedgerId, types::DriverName,
};
use model::{Budget, IdSet};

use super::{DeviceState, ProblemDevices, Spot, Way, Ways};
use crate::{
    devices::RunningDaemon,
    provisioning::{classes::ClassId, pools::PoolTable, problem::Problem, state::Bin},
    snapshot::NodeId,
};

/// Most kinds of claims of which all orders are tried.
const MAX_PERMUTED: usize = 4;

/// Most copies that are also allocated in turns.
const MAX_IN_TURNS: u32 = 24;

/// Most placements that are replayed if some of them are at other places.
const MAX_PLACEMENTS: usize = 32;

/// Most shapes that are tried by themselves where not all of a way's hold.
const MAX_SHAPES: usize = 16;

/// Most allocations that are replayed while a plan is made.
pub(super) const REPLAYS: usize = 6_000;

/// The same in its searches for contended room, which ask again and again.
pub(super) const SEARCH_REPLAYS: usize = 1_000;

/// Steps for all orders of one question.
const STEPS: u64 = 100_000;

/// Most orders whose answers are kept.
const MAX_KNOWN: usize = 10_000;

/// Where devices are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Node(NodeId),
    Machine(LedgerId),
    /// A machine that is still to be opened.
    New,
}

/// Copies of a class with claims, in the order of placing.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) place: Place,
    pub(super) class: ClassId,
    pub(super) variant: usize,
    pub(super) copies: u32,
}

/// Ledgers as they are before anything is planned.
#[derive(Debug)]
pub(super) struct Pristine {
    pub(super) cluster: RefCell<ClusterLedger>,
    pub(super) expected: BTreeMap<NodeId, BinLedger>,
}

/// Whose claims they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Whose {
    /// A class's by one of its variants.
    Pods(ClassId, usize),
    /// A daemon's, by its number.
    Daemon(usize),
}

/// Copies of one kind of claims at one place.
#[derive(Debug, Clone, Copy)]
struct Part<'c> {
    place: Place,
    whose: Whose,
    claims: &'c [ClaimUse],
    copies: u32,
}

/// What comes one after the other in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind<'c> {
    Claims(&'c [ClaimUse]),
    Daemon(usize),
}

impl<'c> Part<'c> {
    fn kind(&self) -> Kind<'c> {
        match self.whose {
            Whose::Pods(..) => Kind::Claims(self.claims),
            Whose::Daemon(daemon) => Kind::Daemon(daemon),
        }
    }
}

/// All that the outcome of an order depends on.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Replay {
    places: Vec<PlaceBefore>,
    /// In order: which of the places, what, and how many.
    parts: Vec<(usize, Whose, u32)>,
}

/// Whether daemons have their devices from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Daemons {
    First,
    InTurn,
}

/// A place with nothing planned on it.
#[derive(Debug, PartialEq, Eq, Hash)]
enum PlaceBefore {
    Node(NodeId, Daemons),
    Machine(IdSet<ShapeId>, Domain, Daemons),
    /// Nothing that devices are known of.
    Unknown,
}

/// What is asked about.
struct Question<'q> {
    problem: &'q ProblemDevices<'q>,
    state: &'q DeviceState,
    bins: &'q [Bin],
    place: Place,
    domain: Domain,
    /// What is there already.
    there: Vec<Part<'q>>,
    /// Those at the place that compete.
    daemons: Vec<RunningDaemon<'q>>,
    /// Some of the claims take more where there is more, so that it matters which of several places comes first.
    by_place: bool,
    /// Machines that bring devices for others, which are there whatever competes with what they hold.
    hosts: Vec<Place>,
    class: ClassId,
    variant: usize,
    claims: &'q [ClaimUse],
}

impl ProblemDevices<'_> {
    /// Whether a search for contended room has allocations to replay.
    pub(crate) fn may_search(&self) -> bool {
        self.search_replays.get() > 0
    }

    /// Whether so many more allocations may be replayed.
    fn may_replay(&self, count: usize) -> bool {
        let left = if self.is_searching.get() { &self.search_replays } else { &self.replays };
        let enough = left.get() >= count;
        left.set(left.get().saturating_sub(count));
        if !enough {
            self.undecided.set(true);
        }
        enough
    }
}

impl DeviceState {
    /// Leaves of the ways to place copies what holds in every order of the claims.
    pub(super) fn in_every_order(
        &self,
        problem: &Problem<'_>,
        bins: &[Bin],
        (spot, own): (Spot, Option<&BinLedger>),
        (class, variant): (ClassId, usize),
        mut ways: Ways,
    ) -> Ways {
        let Some(of_problem) = problem.devices.as_ref().filter(|of| !of.any_order.get()) else { return ways };
        let place = match (spot, own.and_then(BinLedger::id)) {
            (Spot::Node(node), _) => Place::Node(node),
            (Spot::Bin(_), Some(id)) => Place::Machine(id),
            (Spot::Bin(_) | Spot::New(_), _) => Place::New,
        };
        let part = |held: &Held| Part {
            place: held.place,
            whose: Whose::Pods(held.class, held.variant),
            claims: of_problem.claims(&problem.classes[held.class], held.variant),
            copies: held.copies,
        };
        let daemons = match spot {
            Spot::Node(node) => of_problem.devices.daemons_on(node),
            Spot::Bin(_) | Spot::New(_) => {
                let shapes = ways.ways.iter().flat_map(Way::shapes).collect();
                of_problem.devices.daemons_on_machine(&shapes)
            }
        };
        let (there, daemons) = self.competing(problem, of_problem, place, (class, variant), daemons);
        let there: Vec<Part<'_>> = there.into_iter().map(part).collect();
        let claims = of_problem.claims(&problem.classes[class], variant);
        let takes_more = |class: ClassId, variant: usize| {
            !of_problem.elastic.is_disjoint(&of_problem.reach(&problem.classes[class], variant).shared)
        };
        let is_elastic =
            |part: &Part<'_>| matches!(part.whose, Whose::Pods(class, variant) if takes_more(class, variant));
        let by_place = !of_problem.elastic.is_empty()
            && there.iter().any(|part| part.place != place)
            && (takes_more(class, variant) || there.iter().any(is_elastic));
        if daemons.is_empty() && !by_place && there.iter().all(|part| part.claims == claims) {
            return ways;
        }
        let domain = own.and_then(BinLedger::domain).cloned().unwrap_or_default();
        let hosts = hosts(of_problem, bins);
        let question = Question {
            problem: of_problem,
            state: self,
            bins,
            place,
            domain,
            there,
            daemons,
            by_place,
            hosts,
            class,
            variant,
            claims,
        };
        let table = match spot {
            Spot::New(pool) => Some(&problem.pools[pool]),
            Spot::Bin(_) => bins.iter().find(|bin| is_of(bin, place)).map(|bin| &problem.pools[bin.pool]),
            Spot::Node(_) => None,
        };
        let mut budget = Budget::new(of_problem.steps.get().min(STEPS));
        let before = budget.remaining();
        let before_count = ways.ways.len();
        let most = ways.most();
        ways.ways = ways.ways.into_iter().flat_map(|way| question.holding(way, table, &mut budget)).collect();
        of_problem.steps.set(of_problem.steps.get() - (before - budget.remaining()));
        if ways.most() < most || ways.ways.len() != before_count {
            of_problem.kept_apart.set(true);
        }
        ways.is_cut_short |= budget.remaining() == 0;
        ways
    }

    /// What is placed whose claims compete with those of the class at that place, directly or through others, in the order
    /// of placing; and of the place's daemons those that do.
    fn competing<'d>(
        &self,
        problem: &Problem<'_>,
        of_problem: &ProblemDevices<'_>,
        place: Place,
        (class, variant): (ClassId, usize),
        daemons: Vec<RunningDaemon<'d>>,
    ) -> (Vec<&Held>, Vec<RunningDaemon<'d>>) {
        let reach = of_problem.reach(&problem.classes[class], variant);
        let mut contested = Contested::default();
        contested.extend(place, &reach);
        let reach_of = |held: &Held| of_problem.reach(&problem.classes[held.class], held.variant);
        let all: Vec<(&Held, Rc<Reach>)> = self.held.iter().map(|held| (held, reach_of(held))).collect();
        let of_daemons: Vec<Rc<Reach>> =
            daemons.iter().map(|daemon| of_problem.reach_of(daemon.demand, daemon.variant)).collect();
        let placed = all.iter().map(|(held, reach)| (held.place, reach));
        let mut apart: Vec<(Place, &Rc<Reach>)> = placed.chain(of_daemons.iter().map(|reach| (place, reach))).collect();
        loop {
            let before = apart.len();
            apart.retain(|(place, reach)| {
                let competes = contested.is_wanted_by(*place, reach);
                if competes {
                    contested.extend(*place, reach);
                }
                !competes
            });
            if apart.len() == before {
                break;
            }
        }
        let compete = all.iter().filter(|(held, reach)| contested.is_wanted_by(held.place, reach));
        let mut competing: Vec<&Held> = compete.map(|(held, _)| *held).collect();
        if competing.len() >= MAX_PLACEMENTS {
            competing.retain(|held| held.place == place);
        }
        let mut reaches = of_daemons.iter();
        let competes = |_: &RunningDaemon<'_>| reaches.next().is_some_and(|reach| contested.is_wanted_by(place, reach));
        (competing, daemons.into_iter().filter(competes).collect())
    }
}

/// Devices that several claims could take.
#[derive(Debug, Default)]
struct Contested {
    own: BTreeSet<(Place, DriverName)>,
    shared: BTreeSet<DriverName>,
    claims: BTreeSet<ClaimId>,
}

impl Contested {
    fn extend(&mut self, place: Place, reach: &Reach) {
        self.own.extend(reach.own.iter().map(|driver| (place, driver.clone())));
        self.shared.extend(reach.shared.iter().cloned());
        self.claims.extend(&reach.claims);
    }

    fn is_wanted_by(&self, place: Place, reach: &Reach) -> bool {
        !self.shared.is_disjoint(&reach.shared)
            || !self.claims.is_disjoint(&reach.claims)
            || reach.own.iter().any(|driver| self.own.contains(&(place, driver.clone())))
    }
}

/// Planned machines that bring devices for others.
fn hosts(problem: &ProblemDevices<'_>, bins: &[Bin]) -> Vec<Place> {
    if !problem.devices.brings_pools() {
        return Vec::new();
    }
    let inventory = &problem.devices.inventory;
    let ledgers = bins.iter().filter_map(|bin| bin.devices.as_ref()).map(|own| &own.ledger);
    let brings = |ledger: &&BinLedger| ledger.shapes().into_iter().flatten().any(|shape| inventory.brings_pools(shape));
    ledgers.filter(brings).filter_map(BinLedger::id).map(Place::Machine).take(MAX_PLACEMENTS).collect()
}

fn is_of(bin: &Bin, place: Place) -> bool {
    let id = bin.devices.as_ref().and_then(|own| own.ledger.id());
    id.is_some_and(|id| place == Place::Machine(id))
}

impl Question<'_> {
    /// What of a way holds: all of it, fewer copies, or the machines of some shapes.
    fn holding(&self, mut way: Way, table: Option<&PoolTable<'_>>, budget: &mut Budget) -> Vec<Way> {
        let all = way.allocations.shapes.clone();
        if self.holds(&way, &all, way.copies, budget) {
            return vec![way];
        }
        let mut ways = Vec::new();
        if let Some(table) = table.filter(|_| all.count() > 1) {
            let alone = |shape: &ShapeId| [*shape].into_iter().collect::<IdSet<ShapeId>>();
            let some = all.iter().take(MAX_SHAPES);
            let shapes: IdSet<ShapeId> =
                some.filter(|shape| self.holds(&way, &alone(shape), way.copies, budget)).collect();
            if !shapes.is_empty() {
                let mut allocations = way.allocations.clone();
                let mut offerings = way.offerings.clone();
                offerings.intersect_with(&table.shapes.offerings(&shapes));
                allocations.shapes = shapes;
                let (pins, extra) = (way.pins.clone(), way.extra.clone());
                ways.push(Way { allocations, copies: way.copies, offerings, pins, extra, score: way.score });
            }
        }
        let (mut most, mut too_many) = (0, way.copies);
        while too_many - most > 1 {
            let middle = most + (too_many - most) / 2;
            if self.holds(&way, &all, middle, budget) { most = middle } else { too_many = middle }
        }
        if most > 0 {
            way.copies = most;
            ways.push(way);
        }
        ways
    }

    /// Whether so many copies hold beside what is there, on a machine of any of the shapes.
    fn holds(&self, way: &Way, shapes: &IdSet<ShapeId>, copies: u32, budget: &mut Budget) -> bool {
        let mut parts = self.there.clone();
        let whose = Whose::Pods(self.class, self.variant);
        parts.push(Part { place: self.place, whose, claims: self.claims, copies });
        // Which of them run is another matter for each shape.
        let running = self.daemons.iter().filter(|daemon| self.is_node() || daemon.shapes.intersects(shapes));
        parts.extend(running.map(|daemon| Part {
            place: self.place,
            whose: Whose::Daemon(daemon.daemon),
            claims: daemon.claims,
            copies: 1,
        }));
        let mut kinds: Vec<Kind<'_>> = vec![Kind::Claims(self.claims)];
        for part in &parts {
            if !kinds.contains(&part.kind()) {
                kinds.push(part.kind());
            }
        }
        let mut domain = self.domain.clone();
        domain.0.extend(way.allocations.domain.0.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value))));
        orders(kinds.len()).into_iter().all(|order| {
            let by_kind: Vec<Vec<Part<'_>>> = order
                .iter()
                .filter_map(|&kind| kinds.get(kind))
                .map(|kind| parts.iter().filter(|part| part.kind() == *kind).copied().collect())
                .collect();
            let last_place_first = || by_kind.iter().flat_map(|parts| parts.iter().rev().copied()).collect::<Vec<_>>();
            self.replays(&by_kind.concat(), shapes, &domain, budget)
                && (!self.by_place || self.replays(&last_place_first(), shapes, &domain, budget))
                && in_turns(&by_kind).is_none_or(|turns| self.replays(&turns, shapes, &domain, budget))
        })
    }

    /// Whether all get their devices if they come like this.
    fn replays(&self, parts: &[Part<'_>], shapes: &IdSet<ShapeId>, domain: &Domain, budget: &mut Budget) -> bool {
        let mut order: Vec<Place> = Vec::new();
        let parts_by_place = parts.iter().map(|part| {
            let known = order.iter().position(|place| *place == part.place);
            let place = known.unwrap_or(order.len());
            if known.is_none() {
                order.push(part.place);
            }
            (place, part.whose, part.copies)
        });
        let parts_by_place = parts_by_place.collect();
        let others = self.hosts.iter().filter(|host| parts.iter().all(|part| part.place != **host));
        order.extend(others);
        let before = |place: &Place| self.before(*place, shapes, domain);
        let replay = Replay { places: order.iter().map(before).collect(), parts: parts_by_place };
        if let Some(&known) = self.problem.known_replays.borrow().get(&replay) {
            return known;
        }
        if !self.problem.may_replay(parts.len()) {
            return false;
        }
        let holds = self.replay(&replay, parts, budget);
        let mut known = self.problem.known_replays.borrow_mut();
        if budget.remaining() > 0 && known.len() < MAX_KNOWN {
            known.insert(replay, holds);
        }
        holds
    }

    fn before(&self, place: Place, shapes: &IdSet<ShapeId>, domain: &Domain) -> PlaceBefore {
        let is_here = place == self.place;
        let daemons = if is_here && !self.daemons.is_empty() { Daemons::InTurn } else { Daemons::First };
        if let Place::Node(node) = place {
            return PlaceBefore::Node(node, daemons);
        }
        if is_here {
            return PlaceBefore::Machine(shapes.clone(), domain.clone(), daemons);
        }
        let own = self.bins.iter().find(|bin| is_of(bin, place)).and_then(|bin| bin.devices.as_ref());
        let machine = own.and_then(|own| Some((own.ledger.shapes()?.collect(), own.ledger.domain()?.clone())));
        machine.map_or(PlaceBefore::Unknown, |(shapes, domain)| PlaceBefore::Machine(shapes, domain, daemons))
    }

    fn is_node(&self) -> bool {
        matches!(self.place, Place::Node(_))
    }

    fn replay(&self, replay: &Replay, parts: &[Part<'_>], budget: &mut Budget) -> bool {
        let inventory = &self.problem.devices.inventory;
        let pristine = &self.state.pristine;
        let cluster = &mut *pristine.cluster.borrow_mut();
        let mark = cluster.mark();
        let ledger = |place: &PlaceBefore| match place {
            PlaceBefore::Node(node, daemons) => {
                let given = self.daemons.iter().filter_map(|daemon| daemon.given);
                if *daemons == Daemons::InTurn {
                    given.for_each(|given| inventory.refund(cluster, given));
                }
                let published = || self.problem.published.try_get(*node).cloned().flatten();
                // What nominated pods have there stays; then so does what daemons have.
                let keeps_all = *daemons == Daemons::First || self.problem.devices.has_nominated(*node);
                let expected = pristine.expected.get(node);
                let expected = expected.map(|it| if keeps_all { it.clone() } else { it.without_overhead() });
                expected.or_else(published)
            }
            PlaceBefore::Machine(shapes, domain, daemons) => {
                let mut ledger = match daemons {
                    Daemons::First => BinLedger::machine_with(shapes, self.problem.devices.overhead(), cluster),
                    Daemons::InTurn => BinLedger::machine(shapes, cluster),
                };
                ledger.pin(inventory, cluster, domain);
                Some(ledger)
            }
            PlaceBefore::Unknown => None,
        };
        let mut ledgers: Vec<Option<BinLedger>> = replay.places.iter().map(ledger).collect();
        let holds = replay.parts.iter().zip(parts).all(|(&(place, ..), part)| {
            let Some(Some(ledger)) = ledgers.get_mut(place) else { return true };
            if let Whose::Daemon(number) = part.whose {
                let mut daemons = self.daemons.iter();
                let Some(daemon) = daemons.find(|daemon| daemon.daemon == number) else { return true };
                return inventory.add_late_overhead(ledger, &daemon.shapes, part.claims, cluster, budget);
            }
            let shapes: IdSet<ShapeId> = ledger.shapes().into_iter().flatten().collect();
            let offer = inventory.try_add(ledger, part.claims, part.copies, &shapes, cluster, budget);
            let mut given = offer.alternatives.into_iter();
            let Some(mut given) = given.find(|it| it.copies >= part.copies && shapes.is_subset(&it.shapes)) else {
                return false;
            };
            given.copies = part.copies;
            inventory.commit(ledger, cluster, &given);
            true
        });
        cluster.rollback(mark);
        holds
    }
}

/// Orders of so many kinds: all of few, rotations there and back of many. Those with a late one first come first, since
/// the earlier ones were there when nothing else was.
fn orders(kinds: usize) -> Vec<Vec<usize>> {
    if kinds > MAX_PERMUTED {
        let rotation = |first: usize| (0..kinds).map(move |index| (first + index) % kinds).collect::<Vec<_>>();
        let back = |first: usize| rotation(first).into_iter().rev().collect();
        return (0..kinds).flat_map(|first| [rotation(first), back(first)]).collect();
    }
    let mut orders: Vec<Vec<usize>> = vec![Vec::new()];
    for kind in 0..kinds {
        let longer = |order: &Vec<usize>| {
            let order = order.clone();
            (0..=order.len()).rev().map(move |at| {
                let mut longer = order.clone();
                longer.insert(at, kind);
                longer
            })
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    orders
}

/// One copy of each kind after the other; `None` if there are too many, or if no kind has several.
fn in_turns<'c>(by_kind: &[Vec<Part<'c>>]) -> Option<Vec<Part<'c>>> {
    let copies = by_kind.iter().flatten().map(|part| part.copies).sum::<u32>();
    if copies > MAX_IN_TURNS || copies as usize == by_kind.len() {
        return None;
    }
    let one = |part: &Part<'c>| std::iter::repeat_n(Part { copies: 1, ..*part }, part.copies as usize);
    let mut waiting: Vec<Vec<Part<'c>>> =
        by_kind.iter().map(|parts| parts.iter().flat_map(one).rev().collect()).collect();
    let mut turns = Vec::new();
    while turns.len() < copies as usize {
        turns.extend(waiting.iter_mut().filter_map(Vec::pop));
    }
    Some(turns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_orders_of_few_kinds_are_tried_and_each_of_many_begins_once() {
        for (kinds, count) in [(1, 1), (2, 2), (3, 6), (4, 24), (6, 12)] {
            let mut all = orders(kinds);
            assert_eq!(all.len(), count);
            assert_eq!(all.first().map(|order| order.first().copied()), Some(Some(0)));
            assert!((0..kinds).all(|kind| all.iter().any(|order| order.first() == Some(&kind))));
            all.sort();
            all.dedup();
            assert_eq!(all.len(), count, "none twice");
        }
    }

    #[test]
    fn turns_take_one_of_each_as_long_as_there_are() {
        let class = model::Id::from_index(0);
        let part = |copies| Part { place: Place::New, whose: Whose::Pods(class, 0), claims: &[], copies };
        let kinds = vec![vec![part(1)], vec![part(2), part(1)]];
        assert_eq!(in_turns(&kinds).map(|turns| turns.len()), Some(4));
        assert!(in_turns(&[vec![part(1)], vec![part(1)]]).is_none());
        assert!(in_turns(&[vec![part(MAX_IN_TURNS)], vec![part(1)]]).is_none());
    }
}
