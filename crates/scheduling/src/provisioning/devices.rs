//! Devices while packing: the ledgers of `dra-sched` beside the packer's own state, and what its answers mean for
//! offerings.
//!
//! The engine answers for shapes and domains, the packer chooses among offerings. A [`Way`] is where both meet: copies of
//! a class, the offerings whose machines would give them their devices, the labels that this pins, and what it costs of
//! the machine's own resources. A class without claims never gets here.
//!
//! Answers are kept until something that they depend on changes: the machine's own devices, or, where devices or claims
//! are shared, anything at all. A machine that holds no claims yet answers like a new one.
//!
//! Pools that machines bring for their domain can be used by others once the domain is decided; [`hosts`] decides it
//! where that is worth it.
//!
//! Where devices plainly run out, [`shortage`] says so before anybody searches for room.
//!
//! Steps of the engine are counted for the whole plan; a class that found no place while some answer was cut short is
//! undecided, not refused.

mod hosts;
mod orders;
mod shapes;
mod shortage;
mod ways;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use dra_sched::{
    BinLedger, ClaimUse, ClusterLedger, Domain, Offer, Reach, ShapeId, ledger, types::DriverName, verdict::RequestStep,
};
use model::{
    Budget, IdSet, IdVec, Interner, ResourceVec, ValueSet,
    collections::{FastMap, NameMap},
};

use self::{
    orders::{Held, Place, Pristine},
    ways::{Asked, times},
};
use super::{
    classes::{ClassId, PodClass},
    pools::{PoolRank, PoolTable},
    problem::Problem,
    state::{Bin, BinId},
};
use crate::{
    catalogue::OfferingId,
    devices::{Demand, DemandId, Devices, NodeDevices},
    snapshot::{NodeId, Snapshot},
};

pub(crate) use hosts::{pinned, place_with_hosts, retry_with_hosts};
pub(crate) use shapes::ShapesOfPool;
pub(crate) use shortage::want_too_much;
pub(crate) use ways::{Way, Ways, narrow};

/// Steps of one question to the engine; what hostile claims can cost at most, once for each distinct question.
const STEPS_PER_QUESTION: u64 = 200_000;

/// Why a node that has the devices is not given them.
const KEPT_APART: &str =
    "the scheduler may come to the claims planned there in an order that leaves one without devices";

/// Most answers that are kept.
const MAX_KEPT: usize = 4096;

/// The part of the problem that is about devices.
#[derive(Debug)]
pub(crate) struct ProblemDevices<'s> {
    pub(crate) devices: &'s Devices,
    /// Nodes that are described by what they publish.
    published: IdVec<NodeId, Option<BinLedger>>,
    steps: Cell<u64>,
    steps_taken: Cell<u64>,
    undecided: Cell<bool>,
    /// Whether a plan only has to hold in the order in which it was made.
    pub(crate) any_order: Cell<bool>,
    /// Allocations that may still be replayed in other orders, while placing and in the search for contended room.
    replays: Cell<usize>,
    search_replays: Cell<usize>,
    pub(crate) is_searching: Cell<bool>,
    /// Whether orders of claims hold, which stays true for the whole problem.
    known_replays: RefCell<NameMap<orders::Replay, bool>>,
    /// Drivers whose devices for several machines some claims take more of where there are more.
    elastic: BTreeSet<DriverName>,
    /// Drivers of which what others bring can leave claims less: those, and where names of pools decide for claims that do
    /// not just take the first device that matches.
    decisive: BTreeSet<DriverName>,
    /// What claims could take, of those that were asked about.
    reaches: RefCell<FastMap<(DemandId, usize), Rc<Reach>>>,
    /// Whether claims were kept apart because there is an order in which they would not all get their devices.
    pub(crate) kept_apart: Cell<bool>,
}

impl<'s> ProblemDevices<'s> {
    pub(crate) fn new(snapshot: &'s Snapshot) -> Option<Self> {
        let devices = &**snapshot.devices.as_ref()?;
        let ledger = |node: NodeId| match devices.node(node)? {
            NodeDevices::Published(facts) => Some(BinLedger::node(facts.clone())),
            NodeDevices::Expected(_) => None,
        };
        let claims = devices.demands.iter().flat_map(|demand| &demand.variants).map(|variant| &variant.claims);
        let mut elastic = BTreeSet::new();
        let mut decisive = BTreeSet::new();
        for claims in claims.filter(|_| devices.brings_pools()) {
            elastic.extend(devices.inventory.elastic(claims));
            if devices.inventory.takes_first_that_match(claims) {
                continue;
            }
            let pools = devices.inventory.reach(claims).pools.into_iter();
            decisive.extend(pools.filter(|(_, kinds)| kinds.is_unordered()).map(|(driver, _)| driver));
        }
        decisive.extend(elastic.iter().cloned());
        Some(Self {
            devices,
            elastic,
            decisive,
            published: snapshot.nodes.ids().map(ledger).collect(),
            steps: Cell::new(snapshot.options.device_steps),
            steps_taken: Cell::new(0),
            undecided: Cell::new(false),
            any_order: Cell::new(false),
            replays: Cell::new(orders::REPLAYS),
            search_replays: Cell::new(orders::SEARCH_REPLAYS),
            is_searching: Cell::new(false),
            known_replays: RefCell::default(),
            reaches: RefCell::default(),
            kept_apart: Cell::new(false),
        })
    }

    /// Whether an answer was cut short since the last time somebody asked.
    pub(crate) fn take_undecided(&self) -> bool {
        self.undecided.replace(false)
    }

    /// Steps that are left for the plan.
    pub(crate) fn steps_left(&self) -> u64 {
        self.steps.get()
    }

    /// Steps that were taken since the beginning, however often the plan was begun anew.
    pub(crate) fn steps_taken(&self) -> u64 {
        self.steps_taken.get()
    }

    /// Begins a plan anew.
    pub(crate) fn refill(&self, steps: u64) {
        self.steps.set(steps);
        self.replays.set(orders::REPLAYS);
        self.search_replays.set(orders::SEARCH_REPLAYS);
        self.undecided.set(false);
    }

    fn demand(&self, class: &PodClass) -> Option<&'s Demand> {
        self.devices.demands.try_get(class.devices.as_ref()?.demand)
    }

    fn claims(&self, class: &PodClass, variant: usize) -> &'s [ClaimUse] {
        let variant = self.demand(class).and_then(|demand| demand.variants.get(variant));
        variant.map_or(&[], |variant| variant.claims.as_slice())
    }

    /// Labels of a machine of one of the shapes that have to be decided at once: where it is, what it brings changes what
    /// claims get, and others have to count with it.
    fn keys_to_decide(&self, shapes: &IdSet<ShapeId>, decided: Option<&Domain>) -> BTreeSet<Arc<str>> {
        if self.decisive.is_empty() {
            return BTreeSet::new();
        }
        let inventory = &self.devices.inventory;
        let keys = shapes.iter().flat_map(|shape| inventory.keys_of_brought(shape, &self.decisive));
        keys.filter(|key| decided.is_none_or(|decided| !decided.0.contains_key(key))).collect()
    }

    /// What the claims of a class could take.
    pub(crate) fn reach(&self, class: &PodClass, variant: usize) -> Rc<Reach> {
        let demand = class.devices.as_ref().map(|devices| devices.demand);
        demand.map_or_else(Rc::default, |demand| self.reach_of(demand, variant))
    }

    /// Whether there can be more for the claims of a class where machines bring it.
    pub(crate) fn grows(&self, class: &PodClass) -> bool {
        let variants = self.demand(class).map_or(0, |demand| demand.variants.len());
        self.devices.brings_pools() && (0..variants).any(|variant| self.reach(class, variant).grows)
    }

    /// What the claims of a demand could take.
    fn reach_of(&self, demand: DemandId, variant: usize) -> Rc<Reach> {
        let of = self.devices.demands.try_get(demand).and_then(|demand| demand.variants.get(variant));
        let claims = of.map_or(&[][..], |variant| variant.claims.as_slice());
        let mut reaches = self.reaches.borrow_mut();
        let made = || Rc::new(self.devices.inventory.reach(claims));
        Rc::clone(reaches.entry((demand, variant)).or_insert_with(made))
    }
}

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
    fn extra(&self, shape: ShapeId) -> Option<&ResourceVec> {
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

/// Where requests end; else why there is none, or nothing where the search was given up.
pub(crate) type Ends = Result<Vec<RequestStep>, Option<Arc<str>>>;

/// Where devices are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Spot {
    Node(NodeId),
    Bin(BinId),
    New(PoolRank),
}

/// Which of several ways is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pick {
    /// The one with the cheapest machine, then with most offerings.
    Cheapest,
    /// This one, with one shape only if that is given.
    Only(usize, Option<ShapeId>),
}

/// A question: class, variant, place, version of the place.
type Question = (ClassId, usize, Spot, u64);

/// What is taken of devices.
#[derive(Debug)]
pub(crate) struct DeviceState {
    cluster: ClusterLedger,
    /// A machine of any shape that holds nothing: what a new one is asked like.
    spare: BinLedger,
    /// Nodes that are described by what is expected of them.
    expected: BTreeMap<NodeId, BinLedger>,
    of_nodes: FastMap<NodeId, u64>,
    /// Changes with whatever can matter to other machines.
    version: u64,
    /// Never given out twice.
    next_version: u64,
    /// What is placed of classes with claims, in order.
    held: Vec<Held>,
    pristine: Rc<Pristine>,
    /// At new machines, ways of a lower score are left out.
    pub(crate) least_score: u32,
    kept: RefCell<FastMap<Question, (u64, Rc<Ways>)>>,
}

impl Clone for DeviceState {
    fn clone(&self) -> Self {
        Self {
            cluster: self.cluster.clone(),
            spare: self.spare.clone(),
            expected: self.expected.clone(),
            of_nodes: self.of_nodes.clone(),
            version: self.version,
            next_version: self.next_version,
            held: self.held.clone(),
            pristine: Rc::clone(&self.pristine),
            least_score: self.least_score,
            // The two part from here, and number what follows alike.
            kept: RefCell::default(),
        }
    }
}

/// What an expected node was before.
#[derive(Debug)]
pub(crate) struct NodeBefore {
    node: NodeId,
    ledger: Option<BinLedger>,
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
            held: Vec::new(),
            pristine: Rc::new(pristine),
            of_nodes: FastMap::default(),
            version: 0,
            next_version: 1,
            least_score: 0,
            kept: RefCell::default(),
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

    /// Lets go of what is known of other places, where what was just placed can matter to them: by itself, by what it competes
    /// with at its own place, or by the pools that its machine brings.
    fn touch_others(&mut self, problem: &Problem<'_>) {
        let (Some(of_problem), Some(last)) = (&problem.devices, self.held.last()) else { return };
        let reaches = |held: &Held| of_problem.reach(&problem.classes[held.class], held.variant).is_beyond_machine();
        let mut at_place = self.held.iter().filter(|held| held.place == last.place);
        if of_problem.devices.brings_pools() || at_place.any(reaches) {
            self.version = self.new_version();
        }
    }

    /// The ways to give copies of a class their devices at a place; `None` if it wants none there.
    pub(crate) fn ways(
        &self,
        problem: &Problem<'_>,
        spot: Spot,
        bins: &[Bin],
        class: ClassId,
        variant: usize,
        wanted: u32,
    ) -> Option<Rc<Ways>> {
        let of_problem = problem.devices.as_ref()?;
        let claims = of_problem.claims(&problem.classes[class], variant);
        if claims.is_empty() {
            return None;
        }
        let bin = match spot {
            Spot::Bin(id) => bins.get(id.0),
            Spot::Node(_) | Spot::New(_) => None,
        };
        let own = bin.and_then(|bin| bin.devices.as_ref());
        let (spot, version) = match (spot, own, bin) {
            (Spot::Bin(_), Some(own), _) => (spot, own.version),
            (Spot::Bin(_), None, Some(bin)) => (Spot::New(bin.pool), 0),
            (Spot::Node(node), ..) => (spot, self.of_nodes.get(&node).copied().unwrap_or(0)),
            (Spot::Bin(_) | Spot::New(_), ..) => (spot, 0),
        };
        let question = (class, variant, spot, version);
        if let Some((at, kept)) = self.kept.borrow().get(&question)
            && *at == self.version
            && kept.answers(wanted)
        {
            if kept.is_cut_short {
                of_problem.undecided.set(true);
            }
            return Some(Rc::clone(kept));
        }
        let ledger = match (spot, own) {
            (Spot::Bin(_), Some(own)) => Some(&own.ledger),
            (Spot::Node(node), _) => self.expected.get(&node).or_else(|| of_problem.published.try_get(node)?.as_ref()),
            (Spot::Bin(_) | Spot::New(_), _) => Some(&self.spare),
        };
        let shapes = match spot {
            Spot::New(pool) => problem.pools[pool].shapes.all.clone(),
            Spot::Bin(_) | Spot::Node(_) => ledger.and_then(BinLedger::shapes).into_iter().flatten().collect(),
        };
        let ways = match ledger {
            None => Ways { asked: wanted, ..Ways::default() },
            Some(ledger) => {
                let offer = self.ask(of_problem, ledger, claims, wanted, &shapes);
                let table = match spot {
                    Spot::New(pool) => Some(&problem.pools[pool]),
                    Spot::Bin(_) => bin.map(|bin| &problem.pools[bin.pool]),
                    Spot::Node(_) => None,
                };
                let to_decide = of_problem.keys_to_decide(&shapes, own.and_then(|own| own.ledger.domain()));
                let demand = of_problem.demand(&problem.classes[class])?;
                let asked = Asked { problem, of_problem, demand, table, bin, to_decide };
                let ways = asked.ways(offer, &shapes, wanted);
                let at = (spot, own.map(|own| &own.ledger));
                self.in_every_order(problem, bins, at, (class, variant), ways)
            }
        };
        if ways.is_cut_short {
            of_problem.undecided.set(true);
        }
        let ways = Rc::new(ways);
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(question, (self.version, Rc::clone(&ways)));
        Some(ways)
    }

    fn ask(
        &self,
        problem: &ProblemDevices<'_>,
        ledger: &BinLedger,
        claims: &[ClaimUse],
        wanted: u32,
        shapes: &IdSet<ShapeId>,
    ) -> Offer {
        let part = problem.steps.get().min(STEPS_PER_QUESTION);
        let mut budget = Budget::new(part);
        let offer = problem.devices.inventory.try_add(ledger, claims, wanted, shapes, &self.cluster, &mut budget);
        let taken = part - budget.remaining();
        problem.steps.set(problem.steps.get() - taken);
        problem.steps_taken.set(problem.steps_taken.get().saturating_add(taken));
        offer
    }

    /// Why a place gives a class no devices, each reason once; for people.
    pub(crate) fn refusals(&self, problem: &Problem<'_>, spot: Spot, class: ClassId, variant: usize) -> Vec<Trouble> {
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
        // Explaining is not planning: it has steps of its own.
        let mut budget = Budget::new(STEPS_PER_QUESTION);
        let offer = inventory.try_add(ledger, claims, 1, &shapes, &self.cluster, &mut budget);
        let mut all: Vec<Trouble> = Vec::new();
        let is_kept_apart = offer.refused.is_empty()
            && matches!(spot, Spot::Node(_))
            && self.ways(problem, spot, &[], class, variant, 1).is_some_and(|ways| ways.most() == 0);
        if is_kept_apart {
            all.push(Trouble { why: KEPT_APART.into(), usable: 0, shapes: IdSet::default() });
        }
        for refused in &offer.refused {
            let explained = inventory.explain(&refused.refusal, &|_| None);
            let why: Arc<str> = explained.message.into();
            match all.iter_mut().find(|known| known.why == why) {
                Some(known) => known.shapes.extend(refused.shape),
                None => all.push(Trouble {
                    why,
                    usable: explained.requests.iter().map(|request| request.usable).sum(),
                    shapes: refused.shape.into_iter().collect(),
                }),
            }
        }
        all
    }

    /// What stops the requests of a class on a pool's machines, its types that can't be launched now included; for people.
    pub(crate) fn steps(&self, problem: &Problem<'_>, pool: PoolRank, class: ClassId, variant: usize) -> Steps {
        let mut steps = Steps::default();
        let Some(of_problem) = &problem.devices else { return steps };
        let claims = of_problem.claims(&problem.classes[class], variant);
        if claims.is_empty() {
            return steps;
        }
        let inventory = &of_problem.devices.inventory;
        let shapes: IdSet<ShapeId> = problem.pools[pool].shapes.by_shape.iter().map(|(shape, _)| *shape).collect();
        let mut budget = Budget::new(STEPS_PER_QUESTION);
        let offer = inventory.try_add(&self.spare, claims, 1, &shapes, &self.cluster, &mut budget);
        let is_given = |shape: ShapeId| offer.alternatives.iter().any(|alternative| alternative.shapes.contains(shape));
        for shape in shapes.iter().filter(|shape| !is_given(*shape)) {
            // Of several domains the one is told in which the requests have most to use.
            let refused = offer.refused.iter().filter(|refused| refused.shape == Some(shape));
            let told = refused.map(|refused| {
                inventory.steps(&refused.refusal).ok_or_else(|| Some(refused.refusal.to_string().into()))
            });
            let usable = |steps: &Ends| match steps {
                Ok(steps) => steps.iter().map(|step| step.usable).sum(),
                Err(_) => 0_u64,
            };
            let nearest = told.reduce(|a, b| if usable(&b) > usable(&a) { b } else { a });
            steps.by_shape.push((shape, nearest.unwrap_or(Err(None))));
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
        let before =
            NodeBefore { node, ledger: self.expected.get(&node).cloned(), version: self.of_nodes.get(&node).copied() };
        let way = ways.ways.iter().rev().find(|way| way.copies >= copies);
        let (Some(of_problem), Some(way)) = (&problem.devices, way) else { return (ResourceVec::default(), before) };
        let mut allocations = way.allocations.clone();
        allocations.copies = copies;
        let inventory = &of_problem.devices.inventory;
        match self.expected.get_mut(&node) {
            Some(ledger) => inventory.commit(ledger, &mut self.cluster, &allocations),
            None => {
                if let Some(Some(ledger)) = of_problem.published.try_get(node) {
                    // All that a node's ledger holds is in that of the cluster.
                    inventory.commit(&mut ledger.clone(), &mut self.cluster, &allocations);
                }
            }
        }
        self.held.push(Held { place: Place::Node(node), class, variant, copies });
        let version = self.new_version();
        self.of_nodes.insert(node, version);
        self.touch_others(problem);
        (times(&way.extra_on_node(), copies), before)
    }

    /// Takes devices in a machine by one way, and narrows the machine to it.
    pub(crate) fn take_in_bin(
        &mut self,
        problem: &Problem<'_>,
        bin: &mut Bin,
        (class, variant): (ClassId, usize),
        way: &Way,
        copies: u32,
        shape: Option<ShapeId>,
    ) {
        let Some(of_problem) = &problem.devices else { return };
        let inventory = &of_problem.devices.inventory;
        let table = &problem.pools[bin.pool];
        bin.offerings.intersect_with(&way.offerings);
        if let Some(shape) = shape {
            table.shapes.keep(&mut bin.offerings, shape);
        }
        let mut own = match bin.devices.take() {
            Some(own) => Arc::unwrap_or_clone(own),
            None => BinDevices {
                ledger: BinLedger::machine_with(&table.shapes.all, of_problem.devices.overhead(), &mut self.cluster),
                version: 0,
                extra: Vec::new(),
                planned: Vec::new(),
            },
        };
        let mut allocations = way.allocations.clone();
        allocations.copies = copies;
        if let Some(shape) = shape {
            allocations.shapes = [shape].into_iter().collect();
        }
        inventory.commit(&mut own.ledger, &mut self.cluster, &allocations);
        if let Some(id) = own.ledger.id() {
            self.held.push(Held { place: Place::Machine(id), class, variant, copies });
        }
        own.version = self.new_version();
        for (shape, extra) in &way.extra {
            let Some(shape) = shape else { continue };
            let more = times(extra, copies);
            match own.extra.iter_mut().find(|(known, _)| known == shape) {
                Some((_, held)) => held.saturating_add_assign(&more),
                None => own.extra.push((*shape, more)),
            }
        }
        for shape in allocations.shapes.iter() {
            let drivers = match own.planned.iter_mut().find(|(known, _)| *known == shape) {
                Some((_, drivers)) => drivers,
                None => {
                    own.planned.push((shape, BTreeMap::new()));
                    let Some((_, drivers)) = own.planned.last_mut() else { continue };
                    drivers
                }
            };
            for copy in 0..copies as usize {
                for result in allocations.allocations(Some(shape), copy).iter().flat_map(|given| &given.results) {
                    *drivers.entry(Arc::from(result.device.driver.as_str())).or_default() += 1;
                }
            }
        }
        bin.open.intersect(&way.pins, problem.names());
        bin.devices = Some(Arc::new(own));
        self.touch_others(problem);
    }

    /// Gives back what only shapes needed that the machine can't have any more.
    pub(crate) fn release(&mut self, problem: &Problem<'_>, bin: &mut Bin) {
        self.pin_decided(problem, bin);
        let (Some(of_problem), Some(own)) = (&problem.devices, &mut bin.devices) else { return };
        let table = &problem.pools[bin.pool];
        let left = table.shapes.shapes(&bin.offerings);
        if own.ledger.shapes().into_iter().flatten().all(|shape| left.contains(shape)) {
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
