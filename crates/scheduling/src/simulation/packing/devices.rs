//! Devices while packing: the ledgers of `dra-sched` beside the packer's own state, and what its answers mean for
//! offerings.
//!
//! The engine answers for shapes and domains, the packer chooses among offerings. A [`Way`] is where both meet: copies
//! of a class, the offerings whose machines would give them their devices, the labels that this pins, and what it costs
//! of the machine's own resources. A class without claims never gets here.
//!
//! Answers are kept until something that they depend on changes: the machine's own devices, or, where devices or claims
//! are shared, anything at all. A machine that holds no claims yet answers like a new one.
//!
//! Pools that machines bring for their domain can be used by others once the domain is decided; [`hosts`] decides it
//! where that is worth it.
//!
//! Where devices plainly run out, [`shortage`] says so before anybody searches for room.
//!
//! Steps of the engine are counted for the whole plan. An answer for which they did not last says so, whoever asks for
//! it again.

mod hosts;
mod left;
mod orders;
mod placements;
mod released;
mod shortage;
mod usage;
mod ways;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use dra_sched::explain::{Explanation, RequestStep};
use dra_sched::{BinLedger, ClusterLedger, Copies, Domain, Offer, ShapeId, ledger};
use model::{Answer, Budget, IdSet, Interner, ResourceVec, ValueSet, collections::FastMap};

use self::{
    left::LeftOfNodes,
    orders::{Place, Pristine},
    placements::{Held, Placements},
    ways::{Asked, drivers_given, times},
};
use super::plan_run::PlanRun;
use super::state::{Bin, BinId};
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::devices::ProblemDevices;
use crate::simulation::compile::pools::{PoolRank, PoolTable};
use crate::simulation::compile::problem::Problem;
use crate::tuning::{KEPT_DEVICE_ANSWERS, STEPS_PER_QUESTION};
use crate::{
    catalogue::OfferingId,
    devices::{DemandId, DeviceCost, NodeDevices},
    snapshot::NodeId,
};

pub(crate) use hosts::pinned;
pub(crate) use released::BeforeRelease;
pub(crate) use shortage::want_too_much;
pub(crate) use usage::DeviceUse;
pub(crate) use ways::{Way, Ways, narrow};

/// The reason for people why a node with enough devices is not used.
const KEPT_APART: &str =
    "the scheduler may come to the claims planned there in an order that leaves one without devices";

/// The devices of a planned machine that holds claims.
#[derive(Debug, Clone)]
pub(crate) struct BinDevices {
    ledger: BinLedger,
    version: u64,
    /// What its pods' devices cost of the machine's own resources, by shape.
    extra: Vec<(ShapeId, ResourceVec)>,
    /// How many devices of which driver its pods get, by shape.
    planned: Vec<(ShapeId, BTreeMap<Arc<str>, u32>)>,
}

impl BinDevices {
    /// How many devices of which driver a machine of a shape gives its pods.
    pub(crate) fn planned(&self, shape: Option<ShapeId>) -> Option<&BTreeMap<Arc<str>, u32>> {
        self.planned.iter().find(|(known, _)| Some(*known) == shape).map(|(_, drivers)| drivers)
    }

    /// Whether a machine from the offering could have the shape and be in the domain that the claims were planned for.
    pub(crate) fn allow(&self, table: &PoolTable<'_>, offering: OfferingId, names: &Interner) -> bool {
        let shape = table.shapes.shape_of(offering);
        let in_domain = self.ledger.domain().into_iter().flat_map(|domain| &domain.0).all(|(key, value)| {
            let (Some(key), Some(value)) = (names.find_key(key), names.find_value(value)) else { return false };
            table.can_have(Some(offering), key, &ValueSet::one(value), names)
        });
        in_domain && self.ledger.shapes().into_iter().flatten().any(|known| Some(known) == shape)
    }

    /// What the devices cost of a machine of a shape besides what pods ask for.
    pub(crate) fn extra(&self, shape: ShapeId) -> Option<&ResourceVec> {
        self.extra.iter().find(|(known, _)| *known == shape).map(|(_, extra)| extra)
    }

    /// Whether two machines look alike to claims.
    pub(crate) fn looks_like(&self, other: &Self) -> bool {
        self.ledger.domain() == other.ledger.domain()
            && self.extra == other.extra
            && self.planned == other.planned
            && self.ledger.shapes().into_iter().flatten().eq(other.ledger.shapes().into_iter().flatten())
    }
}

/// Why some machines give no devices.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) why: Arc<str>,
    /// Devices that the requests could have used: more means nearer.
    pub(crate) usable: u64,
    /// The shapes that it is about; none for a node.
    pub(crate) shapes: IdSet<ShapeId>,
}

/// What stops the requests of a class on machines of each shape that does not give it its devices.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub(crate) by_shape: Vec<(ShapeId, Ends)>,
}

/// Where each request ends; or why that is not known; or `None` in place of a reason if the search was given up.
pub(crate) type Ends = Result<Vec<RequestStep>, Option<Arc<str>>>;

/// Where devices are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Spot {
    Node(NodeId),
    Bin(BinId),
    New(PoolRank),
}

/// Copies of a class that ask for devices at a place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceRequest {
    pub(crate) spot: Spot,
    pub(crate) class: ClassId,
    /// The variant of the class at that place.
    pub(crate) variant: usize,
    pub(crate) copies: u32,
}

/// What a question about devices is asked of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    pub(crate) problem: &'a Problem<'a>,
    pub(crate) run: &'a PlanRun,
    pub(crate) bins: &'a [Bin],
    pub(crate) replaying: Replaying,
}

/// Whether allocations are replayed in other orders, and which budget pays for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replaying {
    /// While placing, from a budget for the plan ([`crate::tuning::REPLAYS`]).
    Placing,
    /// In searches for contended room, from a budget of their own ([`crate::tuning::SEARCH_REPLAYS`]).
    Searching,
    /// The order of placing is taken to be that of binding.
    Never,
}

/// Which of several ways is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pick {
    /// The one with the cheapest machine, then with most offerings.
    Cheapest,
    /// This one, with one shape only if that is given.
    Only(usize, Option<ShapeId>),
}

/// Copies of a class, how many, and what the devices of each cost of their place, where they cost anything.
type CostOfCopies<'a> = (ClassId, u32, Option<&'a Arc<[DeviceCost]>>);

/// A question: demand, variant, place, version of the place. Classes that want the same of devices share its answer.
type Question = (DemandId, usize, Spot, u64);

/// What is taken of devices.
#[derive(Debug)]
pub(crate) struct DeviceState {
    cluster: ClusterLedger,
    /// A machine of any shape that holds nothing. A new machine answers as this one.
    spare: BinLedger,
    /// Nodes whose devices are not published yet, by what is expected of them.
    expected: BTreeMap<NodeId, BinLedger>,
    /// The drivers whose devices pods are given there.
    expected_drivers: BTreeMap<NodeId, BTreeSet<Arc<str>>>,
    of_nodes: FastMap<NodeId, u64>,
    /// Changes whenever something changes that can matter to other machines.
    version: u64,
    /// The next version; none is given out twice.
    next_version: u64,
    /// What is placed of classes with claims, in order.
    held: Placements,
    pristine: Rc<Pristine>,
    kept: RefCell<FastMap<Question, (u64, Rc<Ways>)>>,
    left: RefCell<LeftOfNodes>,
}

impl Clone for DeviceState {
    fn clone(&self) -> Self {
        Self {
            cluster: self.cluster.clone(),
            spare: self.spare.clone(),
            expected: self.expected.clone(),
            expected_drivers: self.expected_drivers.clone(),
            of_nodes: self.of_nodes.clone(),
            version: self.version,
            next_version: self.next_version,
            held: self.held.clone(),
            pristine: Rc::clone(&self.pristine),
            // The two part from here, and number what follows alike.
            kept: RefCell::default(),
            left: RefCell::default(),
        }
    }
}

/// What an expected node was before.
#[derive(Debug)]
pub(crate) struct NodeBefore {
    node: NodeId,
    ledger: Option<BinLedger>,
    drivers: Option<BTreeSet<Arc<str>>>,
    version: Option<u64>,
}

/// A state of the devices to go back to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceMark {
    cluster: ledger::Mark,
    version: u64,
    held: usize,
}

impl DeviceState {
    pub(crate) fn new(problem: &Problem<'_>) -> Option<Self> {
        let devices = problem.devices.as_ref()?.devices;
        let mut cluster = devices.ledger().clone();
        let spare = BinLedger::machine_with(&devices.launchable_shapes(), devices.overhead(), &mut cluster);
        let mut expected = BTreeMap::new();
        for node in problem.snapshot.nodes.ids() {
            if let Some(NodeDevices::Expected(shapes)) = devices.node(node) {
                let mut ledger = BinLedger::machine_with(shapes, devices.overhead(), &mut cluster);
                // What it brings for others is theirs from the start.
                ledger.pin(&devices.inventory, &mut cluster, &Domain::default());
                devices.give_nominated(node, &mut ledger, &mut cluster);
                expected.insert(node, ledger);
            }
        }
        let pristine = Pristine { cluster: RefCell::new(cluster.clone()), expected: expected.clone() };
        Some(Self {
            cluster,
            spare,
            expected,
            expected_drivers: BTreeMap::new(),
            held: Placements::default(),
            pristine: Rc::new(pristine),
            of_nodes: FastMap::default(),
            version: 0,
            next_version: 1,
            kept: RefCell::default(),
            left: RefCell::default(),
        })
    }

    pub(crate) fn mark(&mut self) -> DeviceMark {
        DeviceMark { cluster: self.cluster.mark(), version: self.version, held: self.held.len() }
    }

    pub(crate) fn keep(&mut self, mark: DeviceMark) {
        self.cluster.keep(mark.cluster);
    }

    pub(crate) fn rollback(&mut self, mark: DeviceMark) {
        self.cluster.rollback(mark.cluster);
        self.held.truncate(mark.held);
        // Numbers are never used twice, so what was kept for this state holds again.
        self.version = mark.version;
    }

    pub(crate) fn restore(&mut self, before: NodeBefore) {
        if let Some(ledger) = before.ledger {
            self.expected.insert(before.node, ledger);
            match before.drivers {
                Some(drivers) => self.expected_drivers.insert(before.node, drivers),
                None => self.expected_drivers.remove(&before.node),
            };
        }
        match before.version {
            Some(version) => self.of_nodes.insert(before.node, version),
            None => self.of_nodes.remove(&before.node),
        };
    }

    fn new_version(&mut self) -> u64 {
        self.next_version += 1;
        self.next_version
    }

    /// Forgets answers for other places if what was just placed can change them: directly, by what it competes with at
    /// its own place, or by the pools that its machine brings.
    fn touch_others(&mut self, problem: &Problem<'_>) {
        let (Some(of_problem), Some(last)) = (&problem.devices, self.held.last()) else { return };
        let released = self.cluster.released();
        let reaches = |held: &Held| {
            of_problem.reach_after(&problem.classes[held.class], held.variant, released).is_beyond_machine()
        };
        let mut at_place = self.held.at(last.place).iter().filter_map(|position| self.held.get(*position));
        if of_problem.devices.brings_pools() || at_place.any(reaches) {
            self.version = self.new_version();
        }
    }

    /// The ways to give copies of a class their devices at a place; `None` if it wants none there.
    pub(crate) fn ways(&self, asking: Asking<'_>, request: DeviceRequest) -> Answer<Option<Rc<Ways>>> {
        let ways = self.ways_if_wanted(asking, request);
        let end = ways.as_ref().map(|ways| ways.end).unwrap_or_default();
        Answer::new(ways, end)
    }

    fn ways_if_wanted(&self, asking: Asking<'_>, request: DeviceRequest) -> Option<Rc<Ways>> {
        let Asking { problem, run, bins, .. } = asking;
        let DeviceRequest { spot, class, variant, copies: wanted } = request;
        let of_problem = problem.devices.as_ref()?;
        let of_class = problem.classes[class].devices.as_ref()?;
        let claims = of_problem.claims(&problem.classes[class], variant);
        if claims.is_empty() {
            return None;
        }
        let bin = match spot {
            Spot::Bin(id) => bins.get(id.0),
            Spot::Node(_) | Spot::New(_) => None,
        };
        let own = bin.and_then(|bin| bin.devices.as_ref());
        // A machine that holds no claims answers like a new one of its pool, so all of these share one question.
        let (spot, version) = match (spot, own, bin) {
            (Spot::Bin(_), Some(own), _) => (spot, own.version),
            (Spot::Bin(_), None, Some(bin)) => (Spot::New(bin.pool), 0),
            (Spot::Node(node), ..) => (spot, self.of_nodes.get(&node).copied().unwrap_or(0)),
            (Spot::Bin(_) | Spot::New(_), ..) => (spot, 0),
        };
        let question = (of_class.demand, variant, spot, version);
        // A kept answer holds as long as nothing changed that other machines can see, and if it was asked for enough
        // copies.
        if let Some((at, kept)) = self.kept.borrow().get(&question)
            && *at == self.version
            && kept.answers(wanted)
        {
            return Some(Rc::clone(kept));
        }
        // A node is asked by what it publishes or, until that is complete, by what is expected of it.
        let ledger = match (spot, own) {
            (Spot::Bin(_), Some(own)) => Some(&own.ledger),
            (Spot::Node(node), _) => self.expected.get(&node).or_else(|| of_problem.published.try_get(node)?.as_ref()),
            (Spot::Bin(_) | Spot::New(_), _) => Some(&self.spare),
        };
        let shapes = match spot {
            Spot::New(pool) => problem.pools[pool].shapes.all.clone(),
            Spot::Bin(_) | Spot::Node(_) => ledger.and_then(BinLedger::shapes).into_iter().flatten().collect(),
        };
        let possible = match spot {
            Spot::Node(node) => wanted.min(self.possible_copies(problem, node, class)),
            Spot::Bin(_) | Spot::New(_) => wanted,
        };
        let ways = match ledger.filter(|_| possible > 0) {
            None => Ways { asked: wanted, ..Ways::default() },
            Some(ledger) => {
                let offer = self.ask(of_problem, run, ledger, Copies { claims, copies: possible }, &shapes);
                let table = match spot {
                    Spot::New(pool) => Some(&problem.pools[pool]),
                    Spot::Bin(_) => bin.map(|bin| &problem.pools[bin.pool]),
                    Spot::Node(_) => None,
                };
                // Labels that change what others get are decided with the choice, so each value is a way of its own.
                let to_decide = of_problem.keys_to_decide(&shapes, own.and_then(|own| own.ledger.domain()));
                let demand = of_problem.demand(&problem.classes[class])?;
                let asked = Asked { problem, of_problem, demand, table, bin, to_decide };
                let ways = asked.ways(offer, &shapes, wanted);
                self.in_every_order(asking, DeviceRequest { spot, ..request }, ways)
            }
        };
        let ways = Rc::new(ways);
        let mut kept = self.kept.borrow_mut();
        // Dropping all answers is rare and cheap compared with keeping track of which one is oldest.
        if kept.len() >= KEPT_DEVICE_ANSWERS {
            kept.clear();
        }
        kept.insert(question, (self.version, Rc::clone(&ways)));
        Some(ways)
    }

    fn ask(
        &self,
        problem: &ProblemDevices<'_>,
        run: &PlanRun,
        ledger: &BinLedger,
        copies: Copies<'_>,
        shapes: &IdSet<ShapeId>,
    ) -> Offer {
        let part = run.devices().steps_left().min(STEPS_PER_QUESTION);
        let mut budget = Budget::new(part);
        let offer = copies.try_add(&problem.devices.inventory, ledger, shapes, &self.cluster, &mut budget);
        run.devices().spend(part - budget.remaining());
        offer
    }

    /// Why a place gives a class no devices, each reason once; for people.
    pub(crate) fn refusals(&self, asking: Asking<'_>, spot: Spot, class: ClassId, variant: usize) -> Vec<Trouble> {
        let problem = asking.problem;
        let Some(of_problem) = &problem.devices else { return Vec::new() };
        let claims = of_problem.claims(&problem.classes[class], variant);
        let (ledger, shapes) = match spot {
            Spot::Node(node) => {
                let ledger = self.expected.get(&node).or_else(|| of_problem.published.try_get(node)?.as_ref());
                (ledger, ledger.and_then(BinLedger::shapes).into_iter().flatten().collect())
            }
            Spot::New(pool) => (Some(&self.spare), problem.pools[pool].shapes.all.clone()),
            Spot::Bin(_) => (None, IdSet::default()),
        };
        let Some(ledger) = ledger.filter(|_| !claims.is_empty()) else { return Vec::new() };
        let inventory = &of_problem.devices.inventory;
        // Explanations have steps of their own, so that they do not change a plan.
        let mut budget = Budget::new(STEPS_PER_QUESTION);
        let offer = Copies { claims, copies: 1 }.try_add(inventory, ledger, &shapes, &self.cluster, &mut budget);
        let mut all: Vec<Trouble> = Vec::new();
        let ways = self.ways(asking, DeviceRequest { spot, class, variant, copies: 1 }).so_far();
        let is_kept_apart = offer.refused.is_empty()
            && matches!(spot, Spot::Node(_))
            && ways.as_ref().is_some_and(|ways| ways.most() == 0 && ways.not_covered.is_empty());
        if is_kept_apart {
            all.push(Trouble { why: KEPT_APART.into(), usable: 0, shapes: IdSet::default() });
        }
        // What has the devices, and only says too little of itself, is nearest.
        let not_covered = ways.iter().flat_map(|ways| &ways.not_covered);
        let not_covered = not_covered.map(|(shape, why)| (Arc::clone(why), u64::MAX, *shape));
        let refused = offer.refused.iter().map(|refused| {
            let explained = Explanation::of(inventory, &refused.refusal, &|_| None);
            let why: Arc<str> = match refused.domain.0.is_empty() {
                true => explained.message.into(),
                false => format!("in {}: {}", refused.domain, explained.message).into(),
            };
            (why, explained.requests.iter().map(|request| request.usable).sum(), refused.shape)
        });
        for (why, usable, shape) in not_covered.chain(refused) {
            match all.iter_mut().find(|known| known.why == why) {
                Some(known) => known.shapes.extend(shape),
                None => all.push(Trouble { why, usable, shapes: shape.into_iter().collect() }),
            }
        }
        all
    }

    /// What stops the requests of a class on a pool's machines, its types that can't be launched now included; for
    /// people.
    pub(crate) fn steps(&self, asking: Asking<'_>, pool: PoolRank, class: ClassId, variant: usize) -> Steps {
        let (problem, mut steps) = (asking.problem, Steps::default());
        let Some(of_problem) = &problem.devices else { return steps };
        let claims = of_problem.claims(&problem.classes[class], variant);
        if claims.is_empty() {
            return steps;
        }
        let inventory = &of_problem.devices.inventory;
        let shapes: IdSet<ShapeId> = problem.pools[pool].shapes.by_shape.iter().map(|(shape, _)| *shape).collect();
        let mut budget = Budget::new(STEPS_PER_QUESTION);
        let offer = Copies { claims, copies: 1 }.try_add(inventory, &self.spare, &shapes, &self.cluster, &mut budget);
        let is_given = |shape: ShapeId| offer.alternatives.iter().any(|alternative| alternative.shapes.contains(shape));
        for shape in shapes.iter().filter(|shape| !is_given(*shape)) {
            // Of several domains, the one is shown in which the requests have most to use.
            let refused = offer.refused.iter().filter(|refused| refused.shape == Some(shape));
            let told = refused.map(|refused| {
                RequestStep::all_of(inventory, &refused.refusal).ok_or_else(|| Some(refused.refusal.to_string().into()))
            });
            let usable = |steps: &Ends| match steps {
                Ok(steps) => steps.iter().map(|step| step.usable).sum(),
                Err(_) => 0_u64,
            };
            let nearest = told.reduce(|a, b| if usable(&b) > usable(&a) { b } else { a });
            steps.by_shape.push((shape, nearest.unwrap_or(Err(None))));
        }
        let request = DeviceRequest { spot: Spot::New(pool), class, variant, copies: 1 };
        for (shape, why) in self.ways(asking, request).so_far().iter().flat_map(|ways| &ways.not_covered) {
            steps
                .by_shape
                .extend(shape.filter(|shape| is_given(*shape)).map(|shape| (shape, Err(Some(Arc::clone(why))))));
        }
        steps
    }

    /// Takes devices on a node; the caller knows that there are enough. Gives what the copies cost of the node besides.
    pub(crate) fn take_on_node(
        &mut self,
        problem: &Problem<'_>,
        node: NodeId,
        (class, variant): (ClassId, usize),
        ways: &Ways,
        copies: u32,
    ) -> (ResourceVec, NodeBefore) {
        let before = NodeBefore {
            node,
            ledger: self.expected.get(&node).cloned(),
            drivers: self.expected_drivers.get(&node).cloned(),
            version: self.of_nodes.get(&node).copied(),
        };
        let way = ways.ways.iter().rev().find(|way| way.copies >= copies);
        let (Some(of_problem), Some(way)) = (&problem.devices, way) else { return (ResourceVec::default(), before) };
        let mut allocations = way.allocations.clone();
        allocations.copies = copies;
        let inventory = &of_problem.devices.inventory;
        match self.expected.get_mut(&node) {
            Some(ledger) => {
                allocations.commit(inventory, ledger, &mut self.cluster);
                let drivers = self.expected_drivers.entry(node).or_default();
                // Whichever of its types the machine becomes, it must not be used before these have published.
                let shapes = allocations.shapes.iter();
                drivers.extend(shapes.flat_map(|shape| drivers_given(&allocations, Some(shape), copies)));
            }
            None => {
                if let Some(Some(ledger)) = of_problem.published.try_get(node) {
                    // The cluster's ledger also holds all that a node's ledger holds.
                    allocations.commit(inventory, &mut ledger.clone(), &mut self.cluster);
                }
            }
        }
        self.hold(
            problem,
            of_problem,
            Held { place: Place::Node(node), class, variant, copies, costs: Arc::clone(&way.costs) },
        );
        let version = self.new_version();
        self.of_nodes.insert(node, version);
        self.touch_others(problem);
        (times(&way.extra_on_node(), copies), before)
    }

    fn hold(&mut self, problem: &Problem<'_>, of_problem: &ProblemDevices<'_>, held: Held) {
        let is_beyond_place = of_problem.reach(&problem.classes[held.class], held.variant).is_beyond_machine();
        self.held.push(held, is_beyond_place);
    }

    /// The drivers whose devices pods are given on a node that has not published them yet, by name.
    pub(crate) fn drivers_awaited_on(&self, node: NodeId) -> impl Iterator<Item = &Arc<str>> {
        self.expected_drivers.get(&node).into_iter().flatten()
    }

    /// What devices cost of a node, or of a machine of a shape: copies of which class, and what each costs.
    fn costs_at(&self, place: Option<Place>, shape: Option<ShapeId>) -> impl Iterator<Item = CostOfCopies<'_>> {
        let at = place.map(|place| self.held.at(place)).unwrap_or_default();
        let held = at.iter().filter_map(|position| self.held.get(*position));
        held.map(move |held| (held.class, held.copies, ways::costs_of(&held.costs, shape)))
    }

    /// What they cost of a machine that the plan launches.
    pub(crate) fn costs_in(&self, bin: &Bin, shape: Option<ShapeId>) -> impl Iterator<Item = CostOfCopies<'_>> {
        self.costs_at(bin.devices.as_ref().and_then(|own| own.ledger.id()).map(Place::Machine), shape)
    }

    /// What they cost of a node.
    pub(crate) fn costs_on(&self, node: NodeId) -> impl Iterator<Item = CostOfCopies<'_>> {
        self.costs_at(Some(Place::Node(node)), None)
    }

    /// Takes devices in a machine by one way, and narrows the machine to the shapes that have them.
    pub(crate) fn take_in_bin(
        &mut self,
        problem: &Problem<'_>,
        bin: &mut Bin,
        request: DeviceRequest,
        way: &Way,
        shape: Option<ShapeId>,
    ) {
        let DeviceRequest { class, variant, copies, .. } = request;
        let Some(of_problem) = &problem.devices else { return };
        let inventory = &of_problem.devices.inventory;
        let table = &problem.pools[bin.pool];
        // Only offerings whose machines would give the copies these devices stay open.
        bin.offerings.intersect_with(&way.offerings);
        if let Some(shape) = shape {
            table.shapes.keep(&mut bin.offerings, shape);
        }
        // A machine gets a ledger with its first claim.
        self.begin_ledger(problem, bin);
        let Some(own) = bin.devices.take() else { return };
        let mut own = Arc::unwrap_or_clone(own);
        let mut allocations = way.allocations.clone();
        allocations.copies = copies;
        if let Some(shape) = shape {
            allocations.shapes = [shape].into_iter().collect();
        }
        allocations.commit(inventory, &mut own.ledger, &mut self.cluster);
        if let Some(id) = own.ledger.id() {
            let (place, costs) = (Place::Machine(id), Arc::clone(&way.costs));
            self.hold(problem, of_problem, Held { place, class, variant, copies, costs });
        }
        // Answers that were kept for the machine no longer hold.
        own.version = self.new_version();
        // Devices can cost CPU or memory of the machine (KEP-5517), by shape, since the type is still open.
        for cost in way.costs.iter() {
            let Some(shape) = cost.shape else { continue };
            let more = times(&cost.extra, copies);
            match own.extra.iter_mut().find(|(known, _)| *known == shape) {
                Some((_, held)) => held.saturating_add_assign(&more),
                None => own.extra.push((shape, more)),
            }
        }
        // The NodeClaim says how many devices of each driver are expected, whichever shape is launched.
        for shape in allocations.shapes.iter() {
            let drivers = match own.planned.iter_mut().find(|(known, _)| *known == shape) {
                Some((_, drivers)) => drivers,
                None => {
                    own.planned.push((shape, BTreeMap::new()));
                    let Some((_, drivers)) = own.planned.last_mut() else { continue };
                    drivers
                }
            };
            for driver in drivers_given(&allocations, Some(shape), copies) {
                *drivers.entry(driver).or_default() += 1;
            }
        }
        // The domain that the claims were allocated in becomes a requirement of the NodeClaim.
        bin.open.intersect(&way.pins, problem.names());
        bin.devices = Some(Arc::new(own));
        self.touch_others(problem);
    }

    /// Refunds what was taken only for shapes that the machine can no longer have.
    pub(crate) fn release(&mut self, problem: &Problem<'_>, bin: &mut Bin) {
        self.pin_decided(problem, bin);
        let (Some(of_problem), Some(own)) = (&problem.devices, &mut bin.devices) else { return };
        let held: IdSet<ShapeId> = own.ledger.shapes().into_iter().flatten().collect();
        let left = problem.pools[bin.pool].shapes.among(&held, &bin.offerings);
        if held.is_subset(&left) {
            return;
        }
        let own = Arc::make_mut(own);
        own.ledger.release(&of_problem.devices.inventory, &mut self.cluster, &left);
        own.extra.retain(|(shape, _)| left.contains(*shape));
        own.planned.retain(|(shape, _)| left.contains(*shape));
        self.next_version += 1;
        own.version = self.next_version;
        if of_problem.devices.has_shared_devices() {
            self.next_version += 1;
            self.version = self.next_version;
        }
    }
}
