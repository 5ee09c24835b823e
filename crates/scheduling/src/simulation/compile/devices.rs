//! The part of the problem that is about devices: what claims are allocated from.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

use dra_sched::{BinLedger, ClaimId, ClaimUse, ClusterLedger, DeviceSets, Domain, Reach, ShapeId};
use dra_types::DriverName;
use model::{IdSet, IdVec};

use crate::devices::{Demand, DemandId, Devices, NodeDevices};
use crate::simulation::compile::classes::{ClassId, PodClass};
use crate::snapshot::{NodeId, Snapshot};
use crate::tuning::BOUND_SLOTS;

/// What claims are allocated from, and what they can reach.
#[derive(Debug)]
pub(crate) struct ProblemDevices<'s> {
    pub(crate) devices: &'s Devices,
    /// Nodes that are described by what they publish.
    pub(crate) published: IdVec<NodeId, Option<BinLedger>>,
    /// Drivers with devices for several machines of which some claims take more the more there are.
    pub(crate) elastic: BTreeSet<DriverName>,
    /// Drivers for which it matters to claims which machine brings its devices first: the elastic ones, and those where
    /// pool names decide for claims that do not take just the first device that matches.
    pub(crate) decisive: BTreeSet<DriverName>,
    /// What claims could take, by variant, of those that were asked about.
    reaches: IdVec<DemandId, Vec<OnceLock<Reach>>>,
    /// What they could take if none of them were allocated.
    reaches_anew: IdVec<DemandId, Vec<OnceLock<Reach>>>,
    nothing: Reach,
    /// Sets of devices that the problem's pods compete for, and by set what a pod takes at least, whichever of its
    /// variants it is; made when first asked for.
    sets: OnceLock<(DeviceSets, IdVec<DemandId, Vec<i64>>)>,
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
            elastic.extend(Reach::elastic(&devices.inventory, claims));
            if devices.inventory.takes_first_that_match(claims) {
                continue;
            }
            let pools = Reach::of(&devices.inventory, claims).pools.into_iter();
            decisive.extend(pools.filter(|(_, kinds)| kinds.is_unordered()).map(|(driver, _)| driver));
        }
        decisive.extend(elastic.iter().cloned());
        let unknown: IdVec<DemandId, Vec<OnceLock<Reach>>> =
            devices.demands.iter().map(|demand| vec![OnceLock::new(); demand.variants.len()]).collect();
        Some(Self {
            devices,
            elastic,
            decisive,
            published: snapshot.nodes.ids().map(ledger).collect(),
            reaches: unknown.clone(),
            reaches_anew: unknown,
            nothing: Reach::default(),
            sets: OnceLock::new(),
        })
    }

    pub(crate) fn demand(&self, class: &PodClass) -> Option<&'s Demand> {
        self.devices.demands.try_get(class.devices.as_ref()?.demand)
    }

    pub(crate) fn claims(&self, class: &PodClass, variant: usize) -> &'s [ClaimUse] {
        let variant = self.demand(class).and_then(|demand| demand.variants.get(variant));
        variant.map_or(&[], |variant| variant.claims.as_slice())
    }

    /// Labels of a machine of one of the shapes that have to be decided at once: where it is, what it brings changes
    /// what claims get, and others have to count with it.
    pub(crate) fn keys_to_decide(&self, shapes: &IdSet<ShapeId>, decided: Option<&Domain>) -> BTreeSet<Arc<str>> {
        if self.decisive.is_empty() {
            return BTreeSet::new();
        }
        let inventory = &self.devices.inventory;
        let keys = shapes.iter().flat_map(|shape| inventory.keys_of_brought(shape, &self.decisive));
        keys.filter(|key| decided.is_none_or(|decided| !decided.0.contains_key(key))).collect()
    }

    /// What the claims of a class could take.
    pub(crate) fn reach(&self, class: &PodClass, variant: usize) -> &Reach {
        let demand = class.devices.as_ref().map(|devices| devices.demand);
        demand.map_or(&self.nothing, |demand| self.reach_of(demand, variant))
    }

    /// Whether machines can bring more devices that the claims of a class could take.
    pub(crate) fn grows(&self, class: &PodClass) -> bool {
        let variants = self.demand(class).map_or(0, |demand| demand.variants.len());
        self.devices.brings_pools() && (0..variants).any(|variant| self.reach(class, variant).grows)
    }

    /// What the claims of a demand could take.
    pub(crate) fn reach_of(&self, demand: DemandId, variant: usize) -> &Reach {
        let of = self.devices.demands.try_get(demand).and_then(|demand| demand.variants.get(variant));
        let known = self.reaches.try_get(demand).and_then(|reaches| reaches.get(variant));
        let (Some(of), Some(known)) = (of, known) else { return &self.nothing };
        known.get_or_init(|| Reach::of(&self.devices.inventory, &of.claims))
    }

    /// What the claims of a class could take once some of those that are allocated were released.
    pub(crate) fn reach_after(&self, class: &PodClass, variant: usize, released: &BTreeSet<ClaimId>) -> &Reach {
        let is_released = |claim: &ClaimUse| matches!(claim, ClaimUse::Named { claim, .. } if released.contains(claim));
        if released.is_empty() || !self.claims(class, variant).iter().any(is_released) {
            return self.reach(class, variant);
        }
        let known = class.devices.as_ref().and_then(|devices| self.reaches_anew.try_get(devices.demand)?.get(variant));
        let made = || Reach::anew(&self.devices.inventory, self.claims(class, variant));
        known.map_or(&self.nothing, |known| known.get_or_init(made))
    }

    /// Devices that pods of the problem's classes compete for, by number.
    pub(crate) fn counts(&self, classes: &IdVec<ClassId, PodClass>) -> DeviceCounts<'_> {
        let made = || {
            let wanting = classes.iter().flat_map(|class| {
                let variants = self.demand(class).into_iter().flat_map(|demand| &demand.variants);
                variants.map(|variant| (variant.claims.as_slice(), class.count()))
            });
            let sets = DeviceSets::new(&self.devices.inventory, wanting, BOUND_SLOTS);
            let taken = self.devices.demands.map(|demand| least_taken(&sets, demand));
            (sets, taken)
        };
        let (sets, taken) = self.sets.get_or_init(made);
        DeviceCounts { devices: self.devices, sets, taken }
    }

    /// What is taken before anything is planned, once claims were released.
    pub(crate) fn ledger_after(&self, released: &BTreeSet<ClaimId>) -> Cow<'_, ClusterLedger> {
        let mut ledger = Cow::Borrowed(self.devices.ledger());
        for claim in released {
            ledger.to_mut().release(&self.devices.inventory, *claim);
        }
        ledger
    }
}

/// What pods take at least of [`DeviceSets`], and what machines and nodes have of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceCounts<'p> {
    devices: &'p Devices,
    sets: &'p DeviceSets,
    taken: &'p IdVec<DemandId, Vec<i64>>,
}

fn least_taken(sets: &DeviceSets, demand: &Demand) -> Vec<i64> {
    let taken = demand.variants.iter().map(|variant| sets.taken(&variant.claims));
    let least = taken.reduce(|least, other| least.into_iter().zip(other).map(|(a, b)| a.min(b)).collect());
    least.map_or_else(|| vec![0; sets.len()], |least| least.into_iter().map(i64::from).collect())
}

impl<'p> DeviceCounts<'p> {
    /// How many sets there are.
    pub(crate) fn sets(&self) -> usize {
        self.sets.len()
    }

    /// By set: what a pod takes at least.
    pub(crate) fn taken(&self, demand: DemandId) -> &'p [i64] {
        self.taken.try_get(demand).map_or(&[], Vec::as_slice)
    }

    /// By set: how many a new machine of a shape has.
    pub(crate) fn on_machine(&self, shape: Option<ShapeId>) -> Vec<i64> {
        shape.map_or_else(|| self.none(), |shape| self.sets.on_machine(shape).iter().copied().map(i64::from).collect())
    }

    /// By set: how many a node has at most, or has beside what a ledger holds.
    pub(crate) fn on_node(&self, node: NodeId, ledger: Option<&ClusterLedger>) -> Vec<i64> {
        match self.devices.node(node) {
            Some(NodeDevices::Expected(shapes)) => shapes.iter().fold(self.none(), |most, shape| {
                most.into_iter().zip(self.on_machine(Some(shape))).map(|(most, count)| most.max(count)).collect()
            }),
            Some(NodeDevices::Published(facts)) => facts.name.as_ref().map_or_else(
                || self.none(),
                |name| {
                    let counts = self.sets.on_node(&self.devices.inventory, name, ledger);
                    counts.into_iter().map(i64::from).collect()
                },
            ),
            None => self.none(),
        }
    }

    /// How many pods are served at most that take so much, where there is so much.
    pub(crate) fn times(taken: &[i64], there: &[i64]) -> u32 {
        let times = taken.iter().zip(there).filter(|(taken, _)| **taken > 0).map(|(taken, has)| has / taken);
        times.min().map_or(u32::MAX, |times| u32::try_from(times).unwrap_or(u32::MAX))
    }

    fn none(&self) -> Vec<i64> {
        vec![0; self.sets.len()]
    }
}
