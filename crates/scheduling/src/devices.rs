//! Devices and claims as the planner needs them: the objects of `resource.k8s.io`, compiled by `dra-sched` into one
//! inventory, with what each waiting pod wants of them, what each instance type's machines will publish, and what is
//! known of each node.
//!
//! * Pods that want the same of devices share a [`Demand`]. A claim that was made from a template for one pod and is
//!   not allocated is as good as one still to be made, so pods of one Deployment share their demand before and after
//!   the claim controller has seen them.
//! * Instance types whose machines look alike to every claim share a shape. A label that a slice's node selector
//!   mentions is part of the shape: its value where the type decides it, else the values that the pool's machines can
//!   have, which the engine then answers for one by one.
//! * A node whose drivers have published is described by its slices; one that has still to publish, by its templates.
//! * What a machine will publish for the nodes of its domain is part of its shape too; a machine that has still to
//!   publish it brings it nevertheless.
//!
//! * A claim all of whose consumers leave their nodes is one that is not allocated ([`leaving`]); one that nobody uses
//!   is allocated anew where its pods have no room on its nodes ([`idle`]).
//! * What daemons take of machines and nodes is taken before anything is planned ([`daemons`]).
//!
//! Nothing of this exists while no waiting pod and no daemon wants a device. Left out: `status.declaredFeatures` of
//! nodes is not known.

mod daemons;
mod demand;
mod ends;
mod idle;
mod leaving;
mod nodes;
mod nominated;
mod shapes;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dra_sched::{BinLedger, ClusterLedger, Inventory, InventoryBuilder, MachineOverhead, ShapeId, pods::Claims};
use dra_types::{
    ClaimTemplate, Compat, DeviceClass, DeviceTaintRule, NodeFacts, PodGroup, ResourceClaim, ResourceSlice,
};
use model::{IdSet, IdVec, Interner, NamespacedName, ResourceVec, Uid, define_id, workload::DaemonSet};

use crate::{
    catalogue::TypeId,
    snapshot::{Node, NodeId, NodePool, PodId, PodsToPlace, PoolId},
};

pub use daemons::DaemonPod;
pub(crate) use daemons::RunningDaemon;
pub use demand::{Demand, DeviceCost, Variant, device_costs};
pub use nominated::NominatedPod;

use self::{
    daemons::{Daemons, Place},
    demand::Demands,
    ends::Ends,
    nominated::Nominated,
    shapes::Shapes,
};

define_id! {
    /// What some pods of one snapshot want of devices.
    pub struct DemandId;
}

/// The objects that decide about devices, by name.
#[derive(Debug, Clone, Default)]
pub struct DeviceObjects {
    /// DeviceClasses.
    pub classes: BTreeMap<Arc<str>, Arc<DeviceClass>>,
    /// ResourceSlices.
    pub slices: BTreeMap<Arc<str>, Arc<ResourceSlice>>,
    /// DeviceTaintRules.
    pub taint_rules: BTreeMap<Arc<str>, Arc<DeviceTaintRule>>,
    /// ResourceClaims.
    pub claims: BTreeMap<NamespacedName, Arc<ResourceClaim>>,
    /// ResourceClaimTemplates.
    pub claim_templates: BTreeMap<NamespacedName, Arc<ClaimTemplate>>,
    /// PodGroups, for the claims that their pods share.
    pub pod_groups: BTreeMap<NamespacedName, Arc<PodGroup>>,
}

impl DeviceObjects {
    /// What the claims of pods are looked up in.
    pub fn lookup(&self) -> Claims<'_> {
        Claims { claims: &self.claims, templates: &self.claim_templates, groups: &self.pod_groups }
    }
}

/// Pods that have their devices before any pod that is planned.
#[derive(Debug, Clone, Copy, Default)]
pub struct PodsBefore<'a> {
    /// DaemonSets whose pods may want devices.
    pub daemon_sets: &'a [DaemonPod],
    /// Pods that the scheduler is about to bind.
    pub nominated: &'a [NominatedPod],
    /// Pods that are being deleted and end before a machine could be there: a claim that only they use counts as given
    /// back.
    pub ending: &'a [Uid],
}

/// The parts of a snapshot that devices are compiled for.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotParts<'a> {
    /// NodePools, for the devices of machines to be.
    pub pools: &'a IdVec<PoolId, NodePool>,
    /// Nodes and in-flight NodeClaims.
    pub nodes: &'a IdVec<NodeId, Arc<Node>>,
    /// Pods that want a place.
    pub pods: PodsToPlace<'a>,
    /// Pods that take devices before these.
    pub before: PodsBefore<'a>,
    /// The snapshot's names.
    pub names: &'a Interner,
}

/// Everything about devices that stays the same while planning. Immutable; what searches find out about selectors is
/// kept in the inventory and changes no answer.
#[derive(Debug)]
pub struct Devices {
    /// What it was made of.
    pub objects: Arc<DeviceObjects>,
    /// The objects, compiled, with the shapes of machines to be.
    pub inventory: Inventory,
    /// What pods want, each kind once.
    pub demands: IdVec<DemandId, Demand>,
    of_pods: IdVec<PodId, Option<DemandId>>,
    shapes: IdVec<PoolId, IdVec<TypeId, ShapeId>>,
    nodes: IdVec<NodeId, NodeDevices>,
    daemons: Daemons,
    nominated: Nominated,
    ending: BTreeSet<Uid>,
    ends: Ends,
    /// What is taken before anything is planned.
    ledger: ClusterLedger,
    has_shared_devices: bool,
    brings_pools: bool,
}

/// What describes the devices of a node or in-flight NodeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeDevices {
    /// What its drivers publish.
    Published(NodeFacts),
    /// What is expected of it: it will have one of these shapes.
    Expected(IdSet<ShapeId>),
}

impl Devices {
    /// Compiles the objects for the pods that want a place and the daemons; `None` if none of them wants a device.
    pub fn new(objects: Arc<DeviceObjects>, compat: Compat, parts: SnapshotParts<'_>) -> Option<Self> {
        let SnapshotParts { pools, nodes, pods, before, names } = parts;
        if before.daemon_sets.is_empty() && pods.devices().all(|devices| devices.is_none()) {
            return None;
        }
        let mut builder = InventoryBuilder::new(compat);
        objects.classes.values().for_each(|class| builder.class(Arc::clone(class)));
        objects.slices.values().for_each(|slice| builder.slice(Arc::clone(slice)));
        objects.taint_rules.values().for_each(|rule| builder.taint_rule(Arc::clone(rule)));
        let demands = Demands::new(&objects, compat, parts, &mut builder);
        let mut daemons = Daemons::new(before.daemon_sets, &demands.of_daemons);
        if daemons.is_empty() && demands.of_pods.iter().all(Option::is_none) {
            return None;
        }
        let mut shapes = Shapes::new(&objects, pools, (&daemons, &demands.demands), names);
        let of_pools = pools.iter().map(|pool| shapes.of_pool(pool, pods, &mut builder)).collect();
        let of_nodes = nodes::describe(nodes, pools, &objects, &mut shapes, &mut builder);
        let brings_pools = !shapes::shared_templates(pools).is_empty();
        let with_daemons = shapes.into_running();
        let inventory = builder.build();
        let mut ledger = ClusterLedger::new(&inventory);
        let mut nominated = Nominated::new(before.nominated, &demands.of_nominated, &demands.demands, nodes);
        nominated.settle(&of_nodes, (&inventory, &mut ledger), (&demands.demands, names));
        let at = (&inventory, &mut ledger);
        daemons.settle(&with_daemons, &of_nodes, nodes, at, (&demands.demands, names));
        let at = (&inventory, &mut ledger);
        nominated.settle_costs(&of_nodes, daemons.overhead(), at, (&demands.demands, names));
        let wanted = demands.of_pods.iter().flatten().copied();
        let ends = Ends::new(wanted, &demands.demands, nodes, &of_nodes, (&inventory, &ledger));
        Some(Self {
            ends,
            has_shared_devices: brings_pools || nodes::has_shared_devices(&objects),
            brings_pools,
            objects,
            inventory,
            demands: demands.demands,
            of_pods: demands.of_pods,
            shapes: of_pools,
            nodes: of_nodes,
            daemons,
            nominated,
            ending: before.ending.iter().cloned().collect(),
            ledger,
        })
    }

    /// What a pod wants of devices, be it one that waits or the virtual one of a buffer; `None` for nothing.
    pub fn demand_of(&self, pod: PodId) -> Option<DemandId> {
        self.of_pods.try_get(pod).copied().flatten()
    }

    /// The shape of a pool's machines of a type.
    pub fn shape(&self, pool: PoolId, instance_type: TypeId) -> Option<ShapeId> {
        self.shapes.try_get(pool)?.try_get(instance_type).copied()
    }

    /// All shapes of machines that pools can launch.
    pub fn launchable_shapes(&self) -> IdSet<ShapeId> {
        self.shapes.iter().flatten().copied().collect()
    }

    /// What describes a node's devices.
    pub fn node(&self, node: NodeId) -> Option<&NodeDevices> {
        self.nodes.try_get(node)
    }

    /// Nodes that would answer a demand with an error that ends the pod's attempt on all nodes, and the error.
    pub(crate) fn ends(&self, demand: DemandId) -> &[(NodeId, Arc<str>)] {
        self.ends.of(demand)
    }

    /// The pods that the scheduler is about to bind, in the order in which they are given their devices.
    pub fn nominated(&self) -> impl Iterator<Item = &NominatedPod> {
        self.nominated.pods()
    }

    /// The pods of [`PodsBefore::ending`].
    pub fn ending(&self) -> &BTreeSet<Uid> {
        &self.ending
    }

    /// Whether pods are nominated to a node that want devices there.
    pub(crate) fn has_nominated(&self, node: NodeId) -> bool {
        self.nominated.is_on(node)
    }

    /// Gives the pods that are nominated to a node their devices there. [`Self::ledger`] has those of nodes that
    /// publish theirs.
    pub(crate) fn give_nominated(&self, node: NodeId, at: &mut BinLedger, cluster: &mut ClusterLedger) {
        self.nominated.give(node, at, (&self.inventory, cluster), |_, _| ());
    }

    /// What the devices of pods that are nominated to a node cost of it.
    pub(crate) fn nominated_cost(&self, node: NodeId) -> Option<&ResourceVec> {
        self.nominated.cost(node)
    }

    /// What is taken before anything is planned: by claims that are allocated, by pods that are nominated to nodes, and
    /// by daemons that nodes have still to get.
    pub fn ledger(&self) -> &ClusterLedger {
        &self.ledger
    }

    /// What daemons take of each machine to be.
    pub fn overhead(&self) -> &MachineOverhead {
        self.daemons.overhead()
    }

    /// The daemons that run with devices on a machine of one of these shapes.
    pub(crate) fn daemons_on_machine(&self, shapes: &IdSet<ShapeId>) -> Vec<RunningDaemon<'_>> {
        self.daemons.running(Place::Machine(shapes), &self.demands)
    }

    /// Those that a node has still to get.
    pub(crate) fn daemons_on(&self, node: NodeId) -> Vec<RunningDaemon<'_>> {
        match self.node(node) {
            Some(NodeDevices::Expected(shapes)) => self.daemons_on_machine(shapes),
            Some(NodeDevices::Published(_)) | None => self.daemons.running(Place::Node(node), &self.demands),
        }
    }

    /// Whether a DaemonSet's pods want devices.
    pub fn is_daemon_with_devices(&self, set: &DaemonSet) -> bool {
        self.daemons.wants_devices(&set.name)
    }

    /// What a daemon's pod requests on a pool's machines of a type; `None` where it will not get its devices, and so
    /// takes nothing.
    pub fn daemon_requests<'d>(
        &self,
        set: &'d DaemonSet,
        (pool, instance_type): (PoolId, TypeId),
        allocatable: &ResourceVec,
    ) -> Option<Cow<'d, ResourceVec>> {
        let shapes: IdSet<ShapeId> = self.shape(pool, instance_type).into_iter().collect();
        self.daemons.requests(set, Place::Machine(&shapes), allocatable, &self.demands)
    }

    /// What a DaemonSet's pod asks for on a node that has still to get it.
    pub fn daemon_requests_on<'d>(
        &self,
        set: &'d DaemonSet,
        node: NodeId,
        allocatable: &ResourceVec,
    ) -> Option<Cow<'d, ResourceVec>> {
        let place = match self.node(node) {
            Some(NodeDevices::Expected(shapes)) => Place::Machine(shapes),
            Some(NodeDevices::Published(_)) | None => Place::Node(node),
        };
        self.daemons.requests(set, place, allocatable, &self.demands)
    }

    /// Whether machines can use devices that are not their own, so that one's allocation can matter to another.
    pub fn has_shared_devices(&self) -> bool {
        self.has_shared_devices
    }

    /// Whether machines bring pools that other machines can use.
    pub fn brings_pools(&self) -> bool {
        self.brings_pools
    }
}
