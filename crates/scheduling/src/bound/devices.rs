//! Devices as dimensions of the relaxation.
//!
//! * *Served*: of pods that want the same of devices a machine serves so many, as the engine says of a new one. That
//!   holds constraints, counters and shares, and nothing of who else is there.
//! * *Taken*: of a set of devices pods take at least so many, whoever they are, and a machine has so many
//!   ([`DeviceCounts`]). That is how pods compete that want different things.
//!
//! A node is not asked. It serves no more than its sets of devices allow.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use dra_sched::ClusterLedger;
use model::{Id, IdSet, IdVec, collections::FastMap};

use super::CouldGo;
use crate::catalogue::OfferingId;
use crate::devices::DemandId;
use crate::simulation::compile::classes::ClassId;
use crate::simulation::compile::devices::DeviceCounts;
use crate::simulation::compile::pools::{PoolRank, PoolTable};
use crate::simulation::compile::problem::Problem;
use crate::simulation::packing::Packing;
use crate::simulation::packing::devices::{DeviceRequest, Spot};
use crate::simulation::packing::plan_run::PlanRun;
use crate::simulation::packing::state::Charging;
use crate::snapshot::NodeId;
use crate::tuning::{BOUND_SERVED, BOUND_SLOTS};

/// What pods want of devices, and what machines and nodes have for them.
pub(super) struct Devices<'p> {
    of: Option<OfProblem<'p>>,
    /// By what pods want, by pool: how many of them a new machine of an offering has devices for.
    served: FastMap<DemandId, Vec<FastMap<OfferingId, u32>>>,
    /// Of these, those that are a dimension.
    counted: Vec<DemandId>,
}

struct OfProblem<'p> {
    problem: &'p Problem<'p>,
    counts: DeviceCounts<'p>,
    /// What is taken before anything is planned.
    ledger: &'p ClusterLedger,
}

/// What a machine or node has devices for.
#[derive(Debug, Default)]
pub(super) struct Supply {
    /// By demand that is counted: how many pods.
    pub(super) served: Vec<i64>,
    /// By set: how many devices.
    pub(super) sets: Vec<i64>,
}

impl Supply {
    /// Changes each amount by the other's.
    fn merge(&mut self, other: &Self, with: impl Fn(i64, i64) -> i64) {
        let pairs = self.served.iter_mut().zip(&other.served).chain(self.sets.iter_mut().zip(&other.sets));
        pairs.for_each(|(amount, other)| *amount = with(*amount, *other));
    }
}

impl<'p> Devices<'p> {
    pub(super) fn new(problem: &'p Problem<'p>, run: &PlanRun, copies: &IdVec<ClassId, u32>) -> Self {
        let Some(devices) = &problem.devices else {
            return Self { of: None, served: FastMap::default(), counted: Vec::new() };
        };
        let mut demands: FastMap<DemandId, (u32, Vec<ClassId>)> = FastMap::default();
        for (class, &copies) in copies.iter_enumerated().filter(|(_, copies)| **copies > 0) {
            if let Some(of_class) = &problem.classes[class].devices {
                let (pods, classes) = demands.entry(of_class.demand).or_default();
                *pods = pods.saturating_add(copies);
                classes.push(class);
            }
        }
        // Left out are demands for which it could not be decided, and those that may be met by what other machines
        // bring: a machine that has no devices for them by itself may have some beside others.
        let is_told =
            |classes: &[ClassId]| classes.first().is_some_and(|&class| !devices.grows(&problem.classes[class]));
        let packing = Packing::new(problem, run, Charging::Least);
        let mut served = FastMap::default();
        for (demand, (pods, classes)) in demands.iter().filter(|(_, (_, classes))| is_told(classes)) {
            if let Some(by_pool) = problem.pools.ids().map(|pool| most(&packing, pool, classes, *pods)).collect() {
                served.insert(*demand, by_pool);
            }
        }
        let mut counted: Vec<DemandId> = served.keys().copied().collect();
        counted.sort_by_key(|demand| (Reverse(demands.get(demand).map(|(pods, _)| *pods)), *demand));
        counted.truncate(BOUND_SLOTS);
        let counts = devices.counts(&problem.classes);
        Self { of: Some(OfProblem { problem, counts, ledger: devices.devices.ledger() }), served, counted }
    }

    /// How many dimensions there are: of pods that are served, and of sets of devices.
    pub(super) fn dimensions(&self) -> (usize, usize) {
        (self.counted.len(), self.of.as_ref().map_or(0, |of| of.counts.sets()))
    }

    /// What a copy of a class takes of each.
    pub(super) fn taken(&self, class: ClassId) -> Supply {
        let Some(of) = &self.of else { return Supply::default() };
        let demand = of.problem.classes[class].devices.as_ref().map(|devices| devices.demand);
        Supply {
            served: self.counted.iter().map(|counted| i64::from(Some(*counted) == demand)).collect(),
            sets: demand.map_or_else(|| vec![0; of.counts.sets()], |demand| of.counts.taken(demand).to_vec()),
        }
    }

    /// Leaves of a pool's offerings those whose machines have devices for a copy of a class, where that is told.
    pub(super) fn keep_serving(&self, class: ClassId, pool: PoolRank, offerings: &mut IdSet<OfferingId>) {
        let demand = self.of.as_ref().and_then(|of| of.problem.classes[class].devices.as_ref());
        let by_pool = demand.and_then(|devices| self.served.get(&devices.demand));
        if let Some(of_pool) = by_pool.and_then(|pools| pools.get(pool.index())) {
            let serving = of_pool.iter().filter(|(_, copies)| **copies > 0).map(|(&offering, _)| offering);
            offerings.intersect_with(&serving.collect());
        }
    }

    /// What a new machine has.
    pub(super) fn on_machine(&self, pool: PoolRank, table: &PoolTable<'_>, offering: OfferingId) -> Supply {
        let Some(of) = &self.of else { return Supply::default() };
        let served = |demand: &DemandId| {
            let of_pool = self.served.get(demand).and_then(|pools| pools.get(pool.index()));
            i64::from(of_pool.and_then(|most| most.get(&offering)).copied().unwrap_or(0))
        };
        let sets = of.counts.on_machine(table.shapes.shape_of(offering));
        Supply { served: self.counted.iter().map(served).collect(), sets }
    }

    /// What a node has left.
    pub(super) fn on_node(&self, node: NodeId) -> Supply {
        let Some(of) = &self.of else { return Supply::default() };
        self.with_sets(of, of.counts.on_node(node, Some(of.ledger)))
    }

    /// What a node has once its pods are gone; no less than these hold, as they may stay.
    pub(super) fn on_node_without_pods(&self, node: &CouldGo) -> Supply {
        let Some(of) = &self.of else { return Supply::default() };
        let mut has = self.with_sets(of, of.counts.on_node(node.node, None));
        let mut own = Supply { served: vec![0; has.served.len()], sets: vec![0; has.sets.len()] };
        for &(class, copies) in &node.pods {
            own.merge(&self.taken(class), |amount, more| amount + more * i64::from(copies));
        }
        has.merge(&own, i64::max);
        has
    }

    /// With no more pods than these sets serve.
    fn with_sets(&self, of: &OfProblem<'_>, sets: Vec<i64>) -> Supply {
        let served = |demand: &DemandId| i64::from(DeviceCounts::times(of.counts.taken(*demand), &sets));
        Supply { served: self.counted.iter().map(served).collect(), sets }
    }
}

/// By offering of the pool: the most pods of some classes that want the same, `wanted` at most, that a new machine has
/// devices for. One that is not there has devices for none.
fn most(packing: &Packing<'_>, pool: PoolRank, classes: &[ClassId], wanted: u32) -> Option<FastMap<OfferingId, u32>> {
    let table = &packing.problem.pools[pool];
    let mut by_variant: BTreeMap<usize, (ClassId, IdSet<OfferingId>)> = BTreeMap::new();
    for &class in classes {
        for alternative in &table.by_class[class] {
            let (_, offerings) = by_variant.entry(alternative.variant).or_insert((class, IdSet::new()));
            offerings.union_with(&alternative.offerings);
        }
    }
    let asked = wanted.min(BOUND_SERVED);
    let mut most: FastMap<OfferingId, u32> = FastMap::default();
    for (variant, (class, offerings)) in by_variant {
        let ways = packing.ways(DeviceRequest { spot: Spot::New(pool), class, variant, copies: asked });
        if ways.end().is_out_of_budget() {
            return None;
        }
        let ways = ways.so_far();
        let serving = ways.as_ref().map_or(&*table.by_price, |ways| ways.by_price(table));
        for &offering in serving.iter().filter(|&&offering| offerings.contains(offering)) {
            let copies = ways.as_ref().map_or(asked, |ways| ways.at(offering).map_or(0, |way| way.copies));
            // As many as it was asked for: it may serve more.
            let copies = if copies == asked { wanted } else { copies };
            let known = most.entry(offering).or_default();
            *known = copies.max(*known);
        }
    }
    Some(most)
}
