//! Plans that hold in whichever order the scheduler comes to claims.
//!
//! A nominated pod reserves no devices, and the scheduler allocates in the order of its queue. Where claims of
//! different kinds compete for the devices of one machine (or, where machines share devices, of the cluster), an
//! arrangement that one order finds may be out of reach in another: the claim for any GPU takes the one that the claim
//! for a large GPU needed. So before copies are put beside others, all claims of the place are allocated again in other
//! orders of their kinds, one kind after the other and in turns, on ledgers that hold nothing of this plan. What does
//! not go in each of them is not offered there, and the packer finds another place.
//!
//! In each order the pools of a driver whose names are not known before they are published are taken in several orders
//! as well ([`PoolOrder`]), and machines that are free to land in several domains land in each.
//!
//! Daemons are among them: the rest of a plan takes it that they come first, but their pods wait in the same queue. One
//! that comes too late for its devices takes none, so that others have theirs.
//!
//! Claims that take more where there is more (alternatives, requests for all) compete with their own kind too where
//! several places share devices: who comes first takes what another's machine brings. So do claims for which it matters
//! what pools are called. They are replayed by place, there and back, and few places in each order.
//!
//! What cannot compete is left out: claims that reach no device in common with the new ones, directly or through
//! others.
//!
//! Bounds: all orders of up to `MAX_PERMUTED` kinds, the new one first, and rotations of more; turns for up to
//! `MAX_IN_TURNS` copies. Of placements that compete, up to `REPLAYED_PLACEMENTS` count, and if there are more, the
//! place's own. A plan has so many allocations to replay (`REPLAYS`, `SEARCH_REPLAYS`). An order that runs out of
//! steps, or for which none are left, does not hold, and the answer is out of budget. Since every order begins
//! with nothing planned, an answer holds for as long as the problem does, and `KNOWN_REPLAYS` of them are kept.
//! [`crate::tuning`] has the numbers.

mod sequences;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dra_sched::{
    Alternative, BinId as LedgerId, BinLedger, ClaimId, ClaimUse, ClusterLedger, Copies, Daemon, Domain, PoolOrder,
    Reach, ShapeId,
};
use dra_types::DriverName;
use model::{Answer, Budget, IdSet, SearchEnd};

use super::placements::Held;
use super::{Asking, DeviceRequest, DeviceState, Replaying, Spot, Way, Ways};
use crate::devices::RunningDaemon;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::devices::ProblemDevices;
use crate::simulation::compile::pools::PoolTable;
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::plan_run::PlanRun;
use crate::simulation::packing::state::Bin;
use crate::snapshot::NodeId;
use crate::tuning::{MAX_LANDINGS, REPLAY_STEPS, REPLAYED_PLACEMENTS, REPLAYED_SHAPES};

/// Where devices are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    Node(NodeId),
    Machine(LedgerId),
    /// A machine that is still to be opened.
    New,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Replay {
    pools: PoolOrder,
    /// Claims that are no longer allocated.
    released: BTreeSet<ClaimId>,
    places: Vec<PlaceBefore>,
    /// In order: which of the places, what, and how many.
    parts: Vec<(usize, Whose, u32)>,
}

/// What nobody knows before launch, as it is assumed in a replay.
#[derive(Debug, Clone, Copy)]
struct Assumed {
    pools: PoolOrder,
    /// In which of the domains that they can land in machines do.
    landing: Option<usize>,
}

/// Whether daemons have their devices from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Daemons {
    First,
    InTurn,
}

/// A place with nothing planned on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum PlaceBefore {
    Node(NodeId, Daemons),
    Machine(IdSet<ShapeId>, Domain, Daemons),
    /// Nothing that devices are known of.
    Unknown,
}

/// What is asked about.
struct Question<'q> {
    problem: &'q ProblemDevices<'q>,
    run: &'q PlanRun,
    replaying: Replaying,
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
    /// What pools that are still to be published could be called.
    pool_orders: Vec<PoolOrder>,
    class: ClassId,
    variant: usize,
    claims: &'q [ClaimUse],
}

impl DeviceState {
    /// Leaves of the ways to place copies what holds in every order of the claims.
    pub(super) fn in_every_order(&self, asking: Asking<'_>, request: DeviceRequest, mut ways: Ways) -> Ways {
        let Asking { problem, run, bins, replaying } = asking;
        let DeviceRequest { spot, class, variant, .. } = request;
        let Some(of_problem) = problem.devices.as_ref().filter(|_| replaying != Replaying::Never) else { return ways };
        let bin = match spot {
            Spot::Bin(id) => bins.get(id.0),
            Spot::Node(_) | Spot::New(_) => None,
        };
        let own = bin.and_then(|bin| bin.devices.as_ref()).map(|own| &own.ledger);
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
        // Daemons take devices on the machine too, in whichever order their pods come.
        let daemons = match spot {
            Spot::Node(node) => of_problem.devices.daemons_on(node),
            Spot::Bin(_) | Spot::New(_) => {
                let shapes = ways.ways.iter().flat_map(Way::shapes).collect();
                of_problem.devices.daemons_on_machine(&shapes)
            }
        };
        // Claims that compete with none of the class, directly or through others, cannot change its outcome.
        let (there, daemons) = self.competing(problem, of_problem, place, (class, variant), daemons);
        let there: Vec<Part<'_>> = there.into_iter().map(part).collect();
        let claims = of_problem.claims(&problem.classes[class], variant);
        let released = self.cluster.released();
        let takes_more = |class: ClassId, variant: usize| {
            !of_problem.elastic.is_disjoint(&of_problem.reach_after(&problem.classes[class], variant, released).shared)
        };
        let is_elastic =
            |part: &Part<'_>| matches!(part.whose, Whose::Pods(class, variant) if takes_more(class, variant));
        // Names of pools that are still to be published decide only if some of these claims could take devices of
        // several such pools.
        let mut unordered = of_problem.reach_after(&problem.classes[class], variant, released).unordered();
        for part in &there {
            if let Whose::Pods(class, variant) = part.whose {
                unordered.extend(of_problem.reach_after(&problem.classes[class], variant, released).unordered());
            }
        }
        let pool_orders = PoolOrder::all(unordered);
        let is_some_elastic =
            !of_problem.elastic.is_empty() && (takes_more(class, variant) || there.iter().any(is_elastic));
        // Where claims of other places take part, the order of places is one more order to replay.
        let by_place = there.iter().any(|part| part.place != place) && (is_some_elastic || pool_orders.len() > 1);
        // Claims of one kind get the same devices in any order, so there is nothing to replay.
        let is_one_kind = daemons.is_empty() && !by_place && there.iter().all(|part| part.claims == claims);
        if is_one_kind && pool_orders.len() == 1 {
            return ways;
        }
        let domain = own.and_then(BinLedger::domain).cloned().unwrap_or_default();
        let hosts = hosts(of_problem, bins);
        let question = Question {
            problem: of_problem,
            run,
            replaying,
            state: self,
            bins,
            place,
            domain,
            there,
            daemons,
            by_place,
            hosts,
            pool_orders,
            class,
            variant,
            claims,
        };
        let table = match spot {
            Spot::New(pool) => Some(&problem.pools[pool]),
            Spot::Bin(_) => bins.iter().find(|bin| is_of(bin, place)).map(|bin| &problem.pools[bin.pool]),
            Spot::Node(_) => None,
        };
        // Replays have a bound of their own, so that one place cannot use up the steps of the whole plan.
        let mut budget = Budget::new(run.devices().steps_left().min(REPLAY_STEPS));
        let before = budget.remaining();
        let before_count = ways.ways.len();
        let most = ways.most();
        let end = &mut ways.end;
        let holding = ways.ways.into_iter().flat_map(|way| question.holding(way, table, &mut budget).part_of(end));
        ways.ways = holding.collect();
        run.devices().spend_on_replays(before - budget.remaining());
        // A plan that only holds in the order of placing may be cheaper; `price_of_keeping_apart` computes that.
        if ways.most() < most || ways.ways.len() != before_count {
            run.devices().kept_apart = true;
        }
        ways
    }

    /// What is placed whose claims compete with those of the class at that place, directly or through others, in the
    /// order of placing; and of the place's daemons those that do.
    fn competing<'d>(
        &self,
        problem: &Problem<'_>,
        of_problem: &ProblemDevices<'_>,
        place: Place,
        (class, variant): (ClassId, usize),
        daemons: Vec<RunningDaemon<'d>>,
    ) -> (Vec<&Held>, Vec<RunningDaemon<'d>>) {
        let released = self.cluster.released();
        let reach = of_problem.reach_after(&problem.classes[class], variant, released);
        let mut contested = Contested::default();
        contested.extend(place, reach);
        let reach_of = |held: &Held| of_problem.reach_after(&problem.classes[held.class], held.variant, released);
        let of_daemons: Vec<&Reach> =
            daemons.iter().map(|daemon| of_problem.reach_of(daemon.demand, daemon.variant)).collect();
        // Nobody else can compete: those at a place are looked at once something of the place is contested.
        let mut near: BTreeSet<usize> = self.held.beyond_place().iter().chain(self.held.at(place)).copied().collect();
        let mut places = BTreeSet::from([place]);
        let placed = |position: &usize| self.held.get(*position).map(|held| (held.place, reach_of(held)));
        let mut apart: Vec<(Place, &Reach)> =
            near.iter().filter_map(placed).chain(of_daemons.iter().map(|&reach| (place, reach))).collect();
        loop {
            let before = apart.len();
            let mut reached: Vec<Place> = Vec::new();
            apart.retain(|(place, reach)| {
                let competes = contested.is_wanted_by(*place, reach);
                if competes {
                    contested.extend(*place, reach);
                    reached.extend(places.insert(*place).then_some(*place));
                }
                !competes
            });
            if apart.len() == before {
                break;
            }
            let more = reached.iter().flat_map(|place| self.held.at(*place)).filter(|position| near.insert(**position));
            apart.extend(more.filter_map(placed));
        }
        let near = near.iter().filter_map(|position| self.held.get(*position));
        let mut competing: Vec<&Held> =
            near.filter(|held| contested.is_wanted_by(held.place, reach_of(held))).collect();
        if competing.len() >= REPLAYED_PLACEMENTS {
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
    ledgers.filter(brings).filter_map(BinLedger::id).map(Place::Machine).take(REPLAYED_PLACEMENTS).collect()
}

fn is_of(bin: &Bin, place: Place) -> bool {
    let id = bin.devices.as_ref().and_then(|own| own.ledger.id());
    id.is_some_and(|id| place == Place::Machine(id))
}

impl Question<'_> {
    /// What of a way holds: all of it, fewer copies, or the machines of some shapes.
    fn holding(&self, mut way: Way, table: Option<&PoolTable<'_>>, budget: &mut Budget) -> Answer<Vec<Way>> {
        let mut end = SearchEnd::default();
        let all = way.allocations.shapes.clone();
        if self.holds(&way, &all, way.copies, budget).part_of(&mut end) {
            return Answer::new(vec![way], end);
        }
        let mut ways = Vec::new();
        if let Some(table) = table.filter(|_| all.count() > 1) {
            let alone = |shape: &ShapeId| [*shape].into_iter().collect::<IdSet<ShapeId>>();
            let some = all.iter().take(REPLAYED_SHAPES);
            let mut holds_on = |shape: &ShapeId| self.holds(&way, &alone(shape), way.copies, budget).part_of(&mut end);
            let shapes: IdSet<ShapeId> = some.filter(&mut holds_on).collect();
            if !shapes.is_empty() {
                let mut allocations = way.allocations.clone();
                let mut offerings = way.offerings.clone();
                offerings.intersect_with(&table.shapes.offerings(&shapes));
                allocations.shapes = shapes;
                let (pins, costs) = (way.pins.clone(), Arc::clone(&way.costs));
                ways.push(Way { allocations, copies: way.copies, offerings, pins, costs, score: way.score });
            }
        }
        let (mut most, mut too_many) = (0, way.copies);
        while too_many - most > 1 {
            let middle = most + (too_many - most) / 2;
            if self.holds(&way, &all, middle, budget).part_of(&mut end) { most = middle } else { too_many = middle }
        }
        if most > 0 {
            way.copies = most;
            ways.push(way);
        }
        Answer::new(ways, end)
    }

    /// Whether so many copies hold beside what is there, on a machine of any of the shapes.
    fn holds(&self, way: &Way, shapes: &IdSet<ShapeId>, copies: u32, budget: &mut Budget) -> Answer<bool> {
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
        let landings = self.landings(shapes, &domain, &parts);
        let assumed = || self.pool_orders.iter().flat_map(|&pools| (0..landings).map(move |landing| (pools, landing)));
        let mut end = SearchEnd::default();
        let holds = sequences::all(&parts, &kinds, self.by_place).all(|parts| {
            assumed().all(|(pools, landing)| {
                let assumed = Assumed { pools, landing: (landings > 1).then_some(landing) };
                self.replays(assumed, &parts, shapes, &domain, budget).part_of(&mut end)
            })
        });
        Answer::new(holds, end)
    }

    /// Whether all get their devices if they come like this.
    fn replays(
        &self,
        assumed: Assumed,
        parts: &[Part<'_>],
        shapes: &IdSet<ShapeId>,
        domain: &Domain,
        budget: &mut Budget,
    ) -> Answer<bool> {
        // The key of the replay names places by their first appearance, so that equal situations on different machines
        // share one answer.
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
        // Machines that bring pools for others matter even if nothing of the order is placed on them.
        let others = self.hosts.iter().filter(|host| parts.iter().all(|part| part.place != **host));
        order.extend(others);
        let before = |place: &Place| self.before(*place, shapes, domain, assumed.landing);
        let replay = Replay {
            pools: assumed.pools,
            released: self.state.cluster.released().clone(),
            places: order.iter().map(before).collect(),
            parts: parts_by_place,
        };
        let known = self.run.devices().known(&replay);
        if let Some(known) = known {
            return Answer::finished(known);
        }
        if !self.run.devices().may_replay(parts.len(), self.replaying) {
            return Answer::new(false, SearchEnd::OutOfBudget);
        }
        let holds = self.replay(&replay, parts, budget);
        // An answer that was cut short would be wrong for a later question with more steps left.
        let end = SearchEnd::of(budget.remaining() == 0);
        if !end.is_out_of_budget() {
            self.run.devices().learn(replay, holds);
        }
        Answer::new(holds, end)
    }

    /// In how many ways machines could land that are free to: claims get other devices there.
    fn landings(&self, shapes: &IdSet<ShapeId>, domain: &Domain, parts: &[Part<'_>]) -> usize {
        if !self.problem.devices.brings_pools() {
            return 1;
        }
        let ways = parts.iter().map(|part| match self.before(part.place, shapes, domain, None) {
            PlaceBefore::Machine(shapes, domain, _) => self.domains(&shapes, &domain).len(),
            PlaceBefore::Node(..) | PlaceBefore::Unknown => 1,
        });
        ways.max().unwrap_or(1).clamp(1, MAX_LANDINGS)
    }

    fn domains(&self, shapes: &IdSet<ShapeId>, pinned: &Domain) -> Vec<Domain> {
        let inventory = &self.problem.devices.inventory;
        shapes.iter().next().map_or_else(Vec::new, |shape| inventory.domains(shape, pinned))
    }

    /// A place as it is before anything is planned there; a machine in one of the domains that it can land in, if that
    /// is given.
    fn before(&self, place: Place, shapes: &IdSet<ShapeId>, domain: &Domain, landing: Option<usize>) -> PlaceBefore {
        let landed = |shapes: &IdSet<ShapeId>, domain: &Domain| {
            let domains = landing.map(|_| self.domains(shapes, domain)).unwrap_or_default();
            let landed = landing.and_then(|landing| domains.get(landing % domains.len().max(1)));
            let mut domain = domain.clone();
            domain
                .0
                .extend(landed.iter().flat_map(|it| &it.0).map(|(key, value)| (Arc::clone(key), Arc::clone(value))));
            domain
        };
        let is_here = place == self.place;
        let daemons = if is_here && !self.daemons.is_empty() { Daemons::InTurn } else { Daemons::First };
        if let Place::Node(node) = place {
            return PlaceBefore::Node(node, daemons);
        }
        if is_here {
            return PlaceBefore::Machine(shapes.clone(), landed(shapes, domain), daemons);
        }
        let own = self.bins.iter().find(|bin| is_of(bin, place)).and_then(|bin| bin.devices.as_ref());
        let machine = own.and_then(|own| Some((own.ledger.shapes()?.collect(), own.ledger.domain()?.clone())));
        machine.map_or(PlaceBefore::Unknown, |(shapes, domain)| {
            let domain = landed(&shapes, &domain);
            PlaceBefore::Machine(shapes, domain, daemons)
        })
    }

    fn is_node(&self) -> bool {
        matches!(self.place, Place::Node(_))
    }

    fn replay(&self, replay: &Replay, parts: &[Part<'_>], budget: &mut Budget) -> bool {
        let inventory = &self.problem.devices.inventory;
        let pristine = &self.state.pristine;
        // The pristine ledger is rolled back after each replay, which is cheaper than a clone of it.
        let cluster = &mut *pristine.cluster.borrow_mut();
        let mark = cluster.mark();
        replay.released.iter().for_each(|claim| cluster.release(inventory, *claim));
        cluster.assume_order_of_pools(replay.pools);
        let ledger = |place: &PlaceBefore| match place {
            PlaceBefore::Node(node, daemons) => {
                let given = self.daemons.iter().filter_map(|daemon| daemon.given);
                if *daemons == Daemons::InTurn {
                    given.for_each(|given| given.refund(cluster));
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
            // A place whose devices are not known can keep nothing from anybody.
            let Some(Some(ledger)) = ledgers.get_mut(place) else { return true };
            if let Whose::Daemon(number) = part.whose {
                let mut daemons = self.daemons.iter();
                let Some(daemon) = daemons.find(|daemon| daemon.daemon == number) else { return true };
                return Daemon { claims: part.claims }
                    .add_late(inventory, ledger, &daemon.shapes, cluster, budget)
                    .is_ok();
            }
            let shapes: IdSet<ShapeId> = ledger.shapes().into_iter().flatten().collect();
            let offer = Copies { claims: part.claims, copies: part.copies }
                .try_add(inventory, ledger, &shapes, cluster, budget);
            // On a node all copies have to get devices wherever it is; on a machine in every shape that it may still
            // have.
            let is_node = matches!(part.place, Place::Node(_));
            let holds = |it: &Alternative| {
                it.copies >= part.copies && shapes.is_subset(&it.shapes) && (!is_node || it.domain.0.is_empty())
            };
            let mut given = offer.anywhere.into_iter().chain(offer.alternatives);
            let Some(mut given) = given.find(holds) else { return false };
            given.copies = part.copies;
            given.commit(inventory, ledger, cluster);
            true
        });
        cluster.rollback(mark);
        cluster.assume_order_of_pools(PoolOrder::default());
        holds
    }
}
