//! DaemonSets whose pods want devices: what they take of each machine and node before any other pod does.
//!
//! A daemon's pod is bound by kube-scheduler like any other, to the one node that the DaemonSet controller made it for.
//! Where that node has not got its devices the pod stays pending there: nothing is allocated to it and none of its
//! requests count, and the node takes other pods as if the daemon did not exist. So it is here: on machines of a shape
//! that meets its claims it has its devices (and its requests count) from the start, on all others it takes nothing,
//! and it keeps no type from being launched, also where it asks for an extended resource that only devices could serve.
//!
//! Differs: `daemon-devices`. Karpenter counts the requests of such a daemon on every machine, so that one which asks
//! for an extended resource of devices keeps every other type from being launched.
//!
//! Daemons come by priority, then by name. Which of them run on a type's machines is part of the type's shape; where
//! that differs between the type's zones or capacity types, the devices of all of them are kept for them everywhere. A
//! pod that is there has its claims like any other; only daemons without a pod on their node are looked at here.
//!
//! kube-scheduler may come to a daemon's pod later than to others: plans are tried with daemons' claims in every order
//! ([`Daemons::running`]), in which a daemon that comes too late for its devices takes nothing.
//!
//! Left out: devices that other nodes can use are not kept back on machines to come, and claims that all pods of a
//! DaemonSet share by name are not planned for: such a daemon counts with its requests alone.

use std::{borrow::Cow, cmp::Reverse, collections::BTreeMap, sync::Arc};

use dra_sched::{
    Alternative, BinLedger, ClaimUse, ClusterLedger, Copies, Daemon, Inventory, MachineOverhead, NodeDemand,
    OverheadVerdict, ShapeId,
};
use dra_types::Pod;
use model::{Budget, IdSet, IdVec, Interner, NamespacedName, ResourceVec, workload::DaemonSet};

use super::{Demand, DemandId, NodeDevices};
use crate::catalogue::{OfferingId, TypeId};
use crate::snapshot::daemons::{can_run, missing_sets};
use crate::snapshot::{Node, NodeId, NodePool};
use crate::tuning::DAEMON_STEPS;

/// A DaemonSet whose pods may want devices, with what devices read of a pod that is made from its template.
pub type DaemonPod = (Arc<DaemonSet>, Arc<Pod>);

/// Daemons that run on machines of a shape, in their order: position, and how their extended resources are served.
pub(super) type Running = Vec<(usize, usize)>;

/// A DaemonSet whose pods want devices.
#[derive(Debug)]
struct Wanting {
    set: Arc<DaemonSet>,
    demand: DemandId,
}

/// What becomes of a daemon at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    /// It runs; its devices cost this of the machine's own resources.
    Runs(ResourceVec),
    /// It stays pending.
    Waits,
}

/// What was settled for a daemon at one place.
#[derive(Debug)]
struct Settled {
    /// Its position.
    daemon: usize,
    /// How its extended resources are served.
    variant: usize,
    fate: Fate,
    /// What it was given on a node that publishes its devices.
    given: Option<Alternative>,
}

/// A daemon that runs with devices at some place, as others compete with it.
#[derive(Debug, Clone)]
pub(crate) struct RunningDaemon<'d> {
    /// Tells daemons apart.
    pub(crate) daemon: usize,
    pub(crate) demand: DemandId,
    pub(crate) variant: usize,
    pub(crate) claims: &'d [ClaimUse],
    /// Of the machine's shapes those on which it runs.
    pub(crate) shapes: IdSet<ShapeId>,
    /// What is held for it on a node that publishes its devices.
    pub(crate) given: Option<&'d Alternative>,
}

/// The daemons that want devices, and what becomes of them where.
#[derive(Debug, Default)]
pub(super) struct Daemons {
    wanting: Vec<Wanting>,
    by_shape: BTreeMap<ShapeId, Vec<Settled>>,
    by_node: BTreeMap<NodeId, Vec<Settled>>,
    overhead: MachineOverhead,
}

impl Daemons {
    /// Those of some DaemonSets that want devices, in the order in which their pods come.
    pub(super) fn new(sets: &[DaemonPod], demands: &[Option<DemandId>]) -> Self {
        let mut wanting: Vec<Wanting> = sets
            .iter()
            .zip(demands)
            .filter_map(|((set, _), demand)| Some(Wanting { set: Arc::clone(set), demand: (*demand)? }))
            .collect();
        wanting.sort_by(|a, b| {
            let key = |wanting: &'_ Wanting| Reverse(wanting.set.template.priority.unwrap_or(0));
            key(a).cmp(&key(b)).then_with(|| a.set.name.cmp(&b.set.name))
        });
        Self { wanting, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wanting.is_empty()
    }

    pub(super) fn overhead(&self) -> &MachineOverhead {
        &self.overhead
    }

    pub(super) fn wants_devices(&self, set: &NamespacedName) -> bool {
        self.position(set).is_some()
    }

    fn position(&self, set: &NamespacedName) -> Option<usize> {
        self.wanting.iter().position(|wanting| wanting.set.name == *set)
    }

    /// Those that would run on some machine of a pool's type.
    pub(super) fn of_type(
        &self,
        pool: &NodePool,
        instance_type: TypeId,
        demands: &IdVec<DemandId, Demand>,
        names: &Interner,
    ) -> Running {
        if self.is_empty() {
            return Running::new();
        }
        let offerings = pool.catalogue.offerings.iter_enumerated();
        let offerings: Vec<(OfferingId, &ResourceVec)> = offerings
            .filter(|(_, offering)| offering.instance_type == instance_type)
            .map(|(id, offering)| (id, &offering.allocatable))
            .collect();
        let runs = |wanting: &Wanting| {
            let shape = &wanting.set.template.shape;
            let found = offerings.iter().find(|(offering, _)| can_run(pool, *offering, shape, names));
            found.map(|(_, allocatable)| demands[wanting.demand].variant_for(allocatable))
        };
        self.wanting.iter().enumerate().filter_map(|(index, wanting)| Some((index, runs(wanting)?))).collect()
    }

    /// Those that will run on a node and have no pod there yet.
    pub(super) fn missing_on(&self, node: &Node, demands: &IdVec<DemandId, Demand>, names: &Interner) -> Running {
        let is_missing = |wanting: &&(usize, &Wanting)| {
            missing_sets(node, std::slice::from_ref(&wanting.1.set), names).next().is_some()
        };
        let missing = self.wanting.iter().enumerate().collect::<Vec<_>>();
        let missing = missing.iter().filter(is_missing);
        missing.map(|(index, wanting)| (*index, demands[wanting.demand].variant_for(&node.allocatable))).collect()
    }

    /// Gives the daemons their devices: on machines of each shape, then on nodes that publish theirs, by name.
    pub(super) fn settle(
        &mut self,
        shapes: &BTreeMap<ShapeId, Running>,
        described: &IdVec<NodeId, NodeDevices>,
        nodes: &IdVec<NodeId, Arc<Node>>,
        (inventory, cluster): (&Inventory, &mut ClusterLedger),
        (demands, names): (&IdVec<DemandId, Demand>, &Interner),
    ) {
        for (&shape, running) in shapes {
            let mut fates = Vec::with_capacity(running.len());
            for &(index, variant) in running {
                let take = |claims: &[ClaimUse]| {
                    let budget = &mut Budget::new(DAEMON_STEPS);
                    Daemon { claims }.add_to(inventory, &mut self.overhead, shape, cluster, budget)
                };
                let Some(wanting) = self.wanting.get(index) else { continue };
                let fate = fate(&demands[wanting.demand], variant, take, names);
                fates.push(Settled { daemon: index, variant, fate, given: None });
            }
            self.by_shape.insert(shape, fates);
        }
        if self.is_empty() {
            return;
        }
        let mut there: Vec<(NodeId, &dra_types::NodeFacts)> = described
            .iter_enumerated()
            .filter_map(|(id, devices)| match devices {
                NodeDevices::Published(facts) => Some((id, facts)),
                NodeDevices::Expected(_) => None,
            })
            .collect();
        there.sort_by(|(a, _), (b, _)| nodes[*a].display_name().cmp(nodes[*b].display_name()));
        for (id, facts) in there {
            let missing = self.missing_on(&nodes[id], demands, names);
            if missing.is_empty() {
                continue;
            }
            let mut ledger = BinLedger::node(facts.clone());
            let mut fates = Vec::with_capacity(missing.len());
            for (index, variant) in missing {
                let mut given = None;
                let take = |claims: &[ClaimUse]| take_on_node(inventory, &mut ledger, cluster, claims, &mut given);
                let Some(wanting) = self.wanting.get(index) else { continue };
                let fate = fate(&demands[wanting.demand], variant, take, names);
                fates.push(Settled { daemon: index, variant, fate, given });
            }
            self.by_node.insert(id, fates);
        }
    }

    /// The daemons that run with devices of their own claims at a place.
    pub(super) fn running<'d>(
        &'d self,
        place: Place<'_>,
        demands: &'d IdVec<DemandId, Demand>,
    ) -> Vec<RunningDaemon<'d>> {
        let settled: Vec<(Option<ShapeId>, &Settled)> = match place {
            Place::Node(node) => self.by_node.get(&node).into_iter().flatten().map(|settled| (None, settled)).collect(),
            Place::Machine(shapes) => {
                let of_shape = |shape: ShapeId| self.by_shape.get(&shape).into_iter().flatten();
                shapes.iter().flat_map(|shape| of_shape(shape).map(move |settled| (Some(shape), settled))).collect()
            }
        };
        let mut running: Vec<RunningDaemon<'d>> = Vec::new();
        for (shape, settled) in settled.into_iter().filter(|(_, settled)| matches!(settled.fate, Fate::Runs(_))) {
            let of =
                |known: &&mut RunningDaemon<'_>| known.daemon == settled.daemon && known.variant == settled.variant;
            if let Some(known) = running.iter_mut().find(of) {
                known.shapes.extend(shape);
                continue;
            }
            let Some(wanting) = self.wanting.get(settled.daemon) else { continue };
            let variant = demands[wanting.demand].variants.get(settled.variant);
            let claims = variant.map_or(&[][..], |variant| &variant.claims);
            let is_fresh = |claim: &ClaimUse| matches!(claim, ClaimUse::Fresh { .. } | ClaimUse::Extended { .. });
            if !claims.is_empty() && claims.iter().all(is_fresh) {
                running.push(RunningDaemon {
                    daemon: settled.daemon,
                    demand: wanting.demand,
                    variant: settled.variant,
                    claims,
                    shapes: shape.into_iter().collect(),
                    given: settled.given.as_ref(),
                });
            }
        }
        running
    }

    /// What a pod of a daemon requests on a machine or node; `None` where it stays pending. Those that want no devices
    /// request what they say.
    pub(super) fn requests<'d>(
        &self,
        set: &'d DaemonSet,
        place: Place<'_>,
        allocatable: &ResourceVec,
        demands: &IdVec<DemandId, Demand>,
    ) -> Option<Cow<'d, ResourceVec>> {
        let requests = &set.template.shape.requests;
        let Some(index) = self.position(&set.name) else { return Some(Cow::Borrowed(requests)) };
        let of_shape = |shape: ShapeId| self.by_shape.get(&shape).into_iter().flatten();
        let fates: Vec<&Fate> = match place {
            Place::Node(node) => self.by_node.get(&node).into_iter().flatten().collect::<Vec<_>>(),
            Place::Machine(shapes) => shapes.iter().flat_map(of_shape).collect(),
        }
        .into_iter()
        .filter(|settled| settled.daemon == index)
        .map(|settled| &settled.fate)
        .collect();
        // Of a machine that may be of several shapes the worst is believed.
        let mut extra: Option<ResourceVec> = None;
        for fate in fates {
            match fate {
                Fate::Runs(costs) => extra.get_or_insert_default().max_assign(costs),
                Fate::Waits => {}
            }
        }
        let extra = extra?;
        let wanting = self.wanting.get(index)?;
        let demand = &demands[wanting.demand];
        let mut total = requests.clone();
        for &served in demand.variants.get(demand.variant_for(allocatable)).iter().flat_map(|of| &of.served) {
            total.set(served, 0);
        }
        total.saturating_add_assign(&extra);
        Some(Cow::Owned(total))
    }
}

/// Where a daemon would run.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place<'a> {
    /// A node that publishes its devices.
    Node(NodeId),
    /// A machine of one of these shapes.
    Machine(&'a IdSet<ShapeId>),
}

/// What becomes of a daemon where `take` gives it its devices or does not.
fn fate(demand: &Demand, variant: usize, take: impl FnOnce(&[ClaimUse]) -> OverheadVerdict, names: &Interner) -> Fate {
    if demand.fault.is_some() || !demand.can_be_bound(variant) {
        return Fate::Waits;
    }
    let claims = demand.variants.get(variant).map_or(&[][..], |variant| &variant.claims);
    let is_shared = |claim: &ClaimUse| matches!(claim, ClaimUse::Named { .. });
    if claims.is_empty() || claims.iter().any(is_shared) {
        return Fate::Runs(ResourceVec::default());
    }
    match take(claims) {
        OverheadVerdict::Given(costs) => match demand.extra_of(&costs, names) {
            Ok(Some(extra)) => Fate::Runs(extra),
            // What it takes is held although it can't be bound: rather too little is planned than too much.
            Ok(None) | Err(_) => Fate::Waits,
        },
        OverheadVerdict::Refused => Fate::Waits,
        // It may come.
        OverheadVerdict::Undecided => Fate::Runs(ResourceVec::default()),
    }
}

/// Takes a daemon's devices on a node that is there, and says what they are.
fn take_on_node(
    inventory: &Inventory,
    ledger: &mut BinLedger,
    cluster: &mut ClusterLedger,
    claims: &[ClaimUse],
    given: &mut Option<Alternative>,
) -> OverheadVerdict {
    let offer = Copies { claims, copies: 1 }.try_add(
        inventory,
        ledger,
        &IdSet::default(),
        cluster,
        &mut Budget::new(DAEMON_STEPS),
    );
    match offer.alternatives.first() {
        Some(alternative) => {
            alternative.commit(inventory, ledger, cluster);
            *given = Some(alternative.clone());
            OverheadVerdict::Given(NodeDemand::clone(&alternative.demand(None)))
        }
        None if offer.undecided.is_empty() => OverheadVerdict::Refused,
        None => OverheadVerdict::Undecided,
    }
}
