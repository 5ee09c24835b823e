//! What the engine offers, as sets of offerings that a packer can price.

use std::{
    cell::OnceCell,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dra_sched::{Alternative as Allocations, Domain, Offer, ShapeId};
use model::{IdSet, KeyId, Requirement, Requirements, ResourceVec, SearchEnd, ValueSet};

use super::hosts::value_of;
use crate::catalogue::OfferingId;
use crate::devices::{Demand, DeviceCost};
use crate::simulation::compile::devices::ProblemDevices;
use crate::simulation::compile::pools::PoolTable;
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::state::Bin;

/// What the devices of a copy cost of the machine's own resources, by shape, where they cost anything.
pub(crate) type Costs = Arc<[CostOfCopy]>;

/// What they cost on one shape.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CostOfCopy {
    /// The shape; `None` for a node that publishes.
    pub(super) shape: Option<ShapeId>,
    /// All of it.
    pub(super) extra: ResourceVec,
    /// What it is made up of, claim after claim.
    by_claim: Arc<[DeviceCost]>,
}

impl CostOfCopy {
    fn is_any(&self) -> bool {
        !self.extra.is_zero()
    }
}

/// One way to give copies of a class their devices.
#[derive(Debug)]
pub(crate) struct Way {
    pub(super) allocations: Allocations,
    /// Copies at most.
    pub(crate) copies: u32,
    /// Offerings whose machines give them their devices; none for nodes.
    pub(crate) offerings: IdSet<OfferingId>,
    /// Labels that the machine will have.
    pub(super) pins: Requirements,
    pub(super) costs: Costs,
    /// kube-scheduler's score of the first copy: more for earlier alternatives of firstAvailable requests.
    pub(crate) score: u32,
}

/// All ways at one place.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    pub(crate) ways: Vec<Way>,
    pub(super) asked: u32,
    /// How the searches for them ended.
    pub(super) end: SearchEnd,
    /// Shapes that have the devices, but whose costs the pod's own total does not cover, with what it comes to.
    pub(super) not_covered: Vec<(Option<ShapeId>, Arc<str>)>,
    pub(super) by_price: OnceCell<Box<[OfferingId]>>,
}

impl Ways {
    /// The most copies that any of them gives.
    pub(crate) fn most(&self) -> u32 {
        self.ways.iter().map(|way| way.copies).max().unwrap_or(0)
    }

    /// The way that gives most copies on a machine from an offering.
    pub(crate) fn at(&self, offering: OfferingId) -> Option<&Way> {
        let here = self.ways.iter().filter(|way| way.offerings.contains(offering));
        here.max_by_key(|way| way.copies)
    }

    /// The members of the pool whose machines give copies their devices by one of the ways, cheapest first: a few of
    /// thousands.
    pub(crate) fn by_price(&self, table: &PoolTable<'_>) -> &[OfferingId] {
        self.by_price.get_or_init(|| {
            let mut giving = IdSet::default();
            self.ways.iter().for_each(|way| giving.union_with(&way.offerings));
            giving.intersect_with(&table.members);
            let mut by_price: Vec<OfferingId> = giving.iter().collect();
            by_price.sort_unstable_by_key(|&offering| (table.price(offering), offering));
            by_price.into()
        })
    }

    /// Whether no search for them was given up.
    pub(crate) fn is_decided(&self) -> bool {
        !self.end.is_out_of_budget()
    }

    pub(super) fn answers(&self, wanted: u32) -> bool {
        self.asked >= wanted || self.most() < self.asked && self.is_decided()
    }
}

impl Way {
    /// The shapes that a machine can have.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = ShapeId> {
        self.allocations.shapes.iter()
    }

    /// What a copy costs of a machine of a shape besides, where it costs anything.
    pub(crate) fn extra(&self, shape: Option<ShapeId>) -> Option<&ResourceVec> {
        self.costs.iter().find(|cost| cost.shape == shape).map(|cost| &cost.extra)
    }

    /// What a copy takes on a node that is there; the most of any shape that it may have.
    pub(crate) fn extra_on_node(&self) -> ResourceVec {
        let mut most = ResourceVec::default();
        self.costs.iter().for_each(|cost| most.max_assign(&cost.extra));
        most
    }

    /// What a copy costs of a machine of a shape, claim after claim, where it costs anything.
    pub(crate) fn costs(&self, shape: Option<ShapeId>) -> Option<&Arc<[DeviceCost]>> {
        costs_of(&self.costs, shape)
    }
}

/// What a copy costs on a shape; on a node of which no shape is given, on the first that it may have.
pub(super) fn costs_of(costs: &Costs, shape: Option<ShapeId>) -> Option<&Arc<[DeviceCost]>> {
    costs.iter().find(|cost| shape.is_none() || cost.shape == shape).map(|cost| &cost.by_claim)
}

/// Drops the offerings that do not hold `requests` and what devices cost besides.
fn drop_short(
    offerings: &mut IdSet<OfferingId>,
    table: &PoolTable<'_>,
    requests: &ResourceVec,
    extra: impl Fn(ShapeId) -> ResourceVec,
) {
    for (shape, of_shape) in &table.shapes.by_shape {
        if !of_shape.intersects(offerings) {
            continue;
        }
        let extra = extra(*shape);
        if extra.is_zero() {
            continue;
        }
        let mut total = requests.clone();
        total.saturating_add_assign(&extra);
        let short: Vec<OfferingId> = offerings
            .iter()
            .filter(|&offering| of_shape.contains(offering) && !total.fits_in(table.net(offering)))
            .collect();
        for offering in short {
            offerings.remove(offering);
        }
    }
}

pub(super) fn times(extra: &ResourceVec, copies: u32) -> ResourceVec {
    let mut product = ResourceVec::default();
    for (resource, amount) in extra.iter() {
        product.set(resource, amount.saturating_mul(i64::from(copies)));
    }
    product
}

/// Narrows offerings to those that hold `requests`, what the devices of the machine cost besides, and what more copies
/// by one of the ways cost.
pub(crate) fn narrow(
    offerings: &mut IdSet<OfferingId>,
    table: &PoolTable<'_>,
    requests: &ResourceVec,
    bin: Option<&Bin>,
    more: Option<(&Way, u32)>,
) {
    let held = bin.and_then(|bin| bin.devices.as_ref());
    if let Some((way, _)) = more {
        offerings.intersect_with(&way.offerings);
    }
    let costs = held.is_some_and(|held| !held.extra.is_empty()) || more.is_some_and(|(way, _)| !way.costs.is_empty());
    if !costs {
        return;
    }
    drop_short(offerings, table, requests, |shape| {
        let mut extra = held.and_then(|held| held.extra(shape)).cloned().unwrap_or_default();
        if let Some((way, copies)) = more
            && let Some(each) = way.extra(Some(shape))
        {
            extra.saturating_add_assign(&times(each, copies));
        }
        extra
    });
}

/// Turns what the engine offers into ways.
pub(super) struct Asked<'a, 's> {
    pub(super) problem: &'a Problem<'s>,
    pub(super) of_problem: &'a ProblemDevices<'s>,
    pub(super) demand: &'a Demand,
    /// The pool of a machine; `None` for a node.
    pub(super) table: Option<&'a PoolTable<'s>>,
    /// The machine, if it is open already.
    pub(super) bin: Option<&'a Bin>,
    /// Labels that each way has to decide.
    pub(super) to_decide: BTreeSet<Arc<str>>,
}

impl Asked<'_, '_> {
    pub(super) fn ways(&self, offer: Offer, shapes: &IdSet<ShapeId>, asked: u32) -> Ways {
        let end = SearchEnd::of(!offer.undecided.is_empty());
        let (mut ways, mut costs) = (Vec::new(), Costing { asked: self, not_covered: Vec::new() });
        match self.table {
            Some(table) => {
                offer.alternatives.iter().for_each(|of| self.in_machine(table, of, &mut costs, &mut ways));
            }
            None => {
                let all = offer.anywhere.into_iter().chain(offer.alternatives);
                ways.extend(all.filter_map(|allocations| self.on_node(allocations, shapes, &mut costs)));
            }
        }
        Ways { ways, asked, end, not_covered: costs.not_covered, by_price: OnceCell::new() }
    }

    /// On a node that is there all is certain; one that is expected must hold the copies whatever comes of it.
    fn on_node(
        &self,
        allocations: Allocations,
        shapes: &IdSet<ShapeId>,
        costing: &mut Costing<'_, '_, '_>,
    ) -> Option<Way> {
        if !allocations.domain.0.is_empty() || !shapes.is_subset(&allocations.shapes) {
            return None;
        }
        let mut costs = Vec::new();
        let all = if shapes.is_empty() { vec![None] } else { shapes.iter().map(Some).collect() };
        for shape in all {
            costs.extend(Some(costing.cost(&allocations, shape)?).filter(CostOfCopy::is_any));
        }
        let (copies, offerings, costs) = (allocations.copies, IdSet::default(), costs.into());
        Some(Way { allocations, copies, offerings, pins: Requirements::default(), costs, score: 0 })
    }

    /// One way for each score that its shapes have; for pods without firstAvailable all scores are equal. And one for
    /// each set of pools that these bring for others, where that changes what claims get.
    fn in_machine(
        &self,
        table: &PoolTable<'_>,
        allocations: &Allocations,
        costing: &mut Costing<'_, '_, '_>,
        ways: &mut Vec<Way>,
    ) {
        let Some((pins, in_domain)) = self.domain(table, &allocations.domain) else { return };
        let mut by_score: BTreeMap<Reverse<u32>, Vec<IdSet<ShapeId>>> = BTreeMap::new();
        let devices = self.of_problem;
        let mut costs = Vec::new();
        for shape in allocations.shapes.iter() {
            let Some(of_shape) = costing.cost(allocations, Some(shape)) else { continue };
            costs.extend(Some(of_shape).filter(CostOfCopy::is_any));
            let of_score = by_score.entry(Reverse(allocations.score(Some(shape), 0))).or_default();
            let bring_alike = |shapes: &&mut IdSet<ShapeId>| {
                let first = shapes.iter().next();
                first.is_some_and(|first| devices.devices.inventory.bring_alike(first, shape, &devices.decisive))
            };
            match of_score.iter_mut().find(bring_alike) {
                Some(shapes) => {
                    shapes.insert(shape);
                }
                None => of_score.push([shape].into_iter().collect()),
            }
        }
        let costs: Costs = costs.into();
        let by_score = by_score.into_iter().flat_map(|(score, of)| of.into_iter().map(move |shapes| (score, shapes)));
        for (score, shapes) in by_score {
            let mut offerings = table.shapes.offerings(&shapes);
            if let Some(in_domain) = &in_domain {
                offerings.intersect_with(in_domain);
            }
            if !offerings.intersects(&table.members) {
                continue;
            }
            let mut allocations = allocations.clone();
            allocations.shapes = shapes;
            let (copies, score) = (allocations.copies, score.0);
            let (pins, costs) = (pins.clone(), Arc::clone(&costs));
            let way = Way { allocations, copies, offerings, pins, costs, score };
            self.decide(table, way, ways);
        }
    }

    /// One way for each value of the labels to decide; what cannot be decided stays open.
    fn decide(&self, table: &PoolTable<'_>, way: Way, ways: &mut Vec<Way>) {
        let names = self.problem.names();
        let open = self.to_decide.iter().filter(|key| !way.allocations.domain.0.contains_key(*key));
        let keys: Vec<(&Arc<str>, KeyId)> = open.filter_map(|key| Some((key, names.find_key(key)?))).collect();
        if keys.is_empty() {
            ways.push(way);
            return;
        }
        let mut by_values: BTreeMap<Vec<Option<Arc<str>>>, Way> = BTreeMap::new();
        for offering in way.offerings.iter() {
            let values: Vec<_> = keys.iter().map(|(_, key)| value_of(table, self.bin, offering, *key)).collect();
            let texts = values.iter().map(|value| value.map(|value| names.value_arc(value))).collect();
            let decided = by_values.entry(texts).or_insert_with(|| {
                let (mut allocations, mut pins) = (way.allocations.clone(), way.pins.clone());
                for ((name, key), value) in keys.iter().zip(&values) {
                    let Some(value) = *value else { continue };
                    allocations.domain.0.insert(Arc::clone(name), names.value_arc(value));
                    pins.insert_intersect(Requirement::new(*key, ValueSet::one(value)), names);
                }
                let (offerings, costs) = (IdSet::default(), Arc::clone(&way.costs));
                Way { allocations, copies: way.copies, offerings, pins, costs, score: way.score }
            });
            decided.offerings.insert(offering);
        }
        ways.extend(by_values.into_values().filter(|way| way.offerings.intersects(&table.members)));
    }

    /// The labels of a domain, and the members of the pool that can be in it; `None` for all.
    fn domain(&self, table: &PoolTable<'_>, domain: &Domain) -> Option<(Requirements, Option<IdSet<OfferingId>>)> {
        let names = self.problem.names();
        let mut pins = Requirements::default();
        let mut inside: Option<IdSet<OfferingId>> = None;
        for (key, value) in &domain.0 {
            let (key, value) = (names.find_key(key)?, ValueSet::one(names.find_value(value)?));
            let accepting = table.members.iter().filter(|&id| table.can_have(Some(id), key, &value, names)).collect();
            match &mut inside {
                Some(inside) => inside.intersect_with(&accepting),
                None => inside = Some(accepting),
            }
            pins.insert_intersect(Requirement::new(key, value), names);
        }
        Some((pins, inside))
    }
}

/// Works out what copies cost of a machine, and keeps why that is more than some pods say of themselves.
struct Costing<'a, 'p, 's> {
    asked: &'a Asked<'p, 's>,
    not_covered: Vec<(Option<ShapeId>, Arc<str>)>,
}

impl Costing<'_, '_, '_> {
    /// What a copy costs of the machine besides, which can be nothing; `None` where it can't have that.
    fn cost(&mut self, allocations: &Allocations, shape: Option<ShapeId>) -> Option<CostOfCopy> {
        let (demand, names) = (self.asked.demand, self.asked.problem.names());
        match demand.extra(allocations, shape, names) {
            Ok(extra) => extra.map(|extra| {
                let by_claim = match extra.is_zero() {
                    true => Arc::default(),
                    false => demand.costs(allocations, shape, &extra, names),
                };
                CostOfCopy { shape, extra, by_claim }
            }),
            Err(fault) => {
                self.not_covered.push((shape, fault.to_string().into()));
                None
            }
        }
    }
}

/// The driver of each device that copies are given on a machine of a shape.
pub(super) fn drivers_given(
    allocations: &Allocations,
    shape: Option<ShapeId>,
    copies: u32,
) -> impl Iterator<Item = Arc<str>> {
    (0..copies as usize)
        .flat_map(move |copy| allocations.allocations(shape, copy))
        .flat_map(|given| &given.results)
        .map(|result| Arc::from(result.device.driver.as_str()))
}
