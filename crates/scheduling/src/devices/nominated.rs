//! Pods that the scheduler is about to bind.
//!
//! kube-scheduler first says where a pod will go (`status.nominatedNodeName`), then writes what its claims were given,
//! then binds it. Whoever looks in between sees a pod that waits no longer and devices that seem free. So such a pod is
//! given its devices as the scheduler will have given them: on its node, before anything is planned, several by node
//! and name. What its claims have already is counted with them.
//!
//! A pod that was nominated because others have to go first has no devices yet in the scheduler's eyes. They are kept
//! for it nevertheless: that node is where it is tried first.
//!
//! What their devices cost of the node's own resources is subtracted from its room, unless the pod's status says it
//! already.

use std::{collections::BTreeMap, sync::Arc};

use dra_sched::{Alternative, BinLedger, ClaimUse, ClusterLedger, Copies, Inventory, MachineOverhead, ShapeId};
use dra_types::Pod;
use model::{Budget, IdSet, IdVec, Interner, ResourceVec};

use super::{Demand, DemandId, NodeDevices};
use crate::snapshot::{Node, NodeId};
use crate::tuning::NOMINATED_STEPS;

/// The node that a pod is nominated to, and what devices read of the pod.
pub type NominatedPod = (NodeId, Arc<Pod>);

/// The nominated pods that want devices, in their order.
#[derive(Debug, Default)]
pub(super) struct Nominated {
    pods: Vec<(NominatedPod, DemandId, Vec<ClaimUse>)>,
    /// What devices cost of each node.
    costs: BTreeMap<NodeId, ResourceVec>,
}

impl Nominated {
    pub(super) fn new(
        pods: &[NominatedPod],
        wanted: &[Option<DemandId>],
        demands: &IdVec<DemandId, Demand>,
        nodes: &IdVec<NodeId, Arc<Node>>,
    ) -> Self {
        let claims = |(pod, demand): (&NominatedPod, &Option<DemandId>)| {
            let (id, demand) = ((*demand)?, &demands[(*demand)?]);
            let variant = demand.variants.get(demand.variant_for(&nodes[pod.0].allocatable))?;
            (!variant.claims.is_empty()).then(|| (pod.clone(), id, variant.claims.clone()))
        };
        let mut pods: Vec<_> = pods.iter().zip(wanted).filter_map(claims).collect();
        pods.sort_by(|((a, pod), ..), ((b, other), ..)| {
            let key = |node: NodeId| nodes[node].display_name();
            key(*a).cmp(key(*b)).then_with(|| pod.meta.name.cmp(&other.meta.name))
        });
        Self { pods, costs: BTreeMap::new() }
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = &NominatedPod> {
        self.pods.iter().map(|(pod, ..)| pod)
    }

    pub(super) fn is_on(&self, node: NodeId) -> bool {
        self.pods().any(|(of, _)| *of == node)
    }

    /// What devices of these pods cost of a node.
    pub(super) fn cost(&self, node: NodeId) -> Option<&ResourceVec> {
        self.costs.get(&node)
    }

    /// Gives the devices of nodes that publish theirs.
    pub(super) fn settle(
        &mut self,
        described: &IdVec<NodeId, NodeDevices>,
        (inventory, cluster): (&Inventory, &mut ClusterLedger),
        of: (&IdVec<DemandId, Demand>, &Interner),
    ) {
        for node in self.nodes() {
            if let NodeDevices::Published(facts) = &described[node] {
                let mut costs = ResourceVec::default();
                let mut ledger = BinLedger::node(facts.clone());
                self.give(node, &mut ledger, (inventory, &mut *cluster), |demand, given| {
                    costs.saturating_add_assign(&cost(&of.0[demand], given, of.1));
                });
                self.costs.insert(node, costs);
            }
        }
    }

    /// Finds out what devices cost of nodes that have still to publish theirs; nothing is given there.
    pub(super) fn settle_costs(
        &mut self,
        described: &IdVec<NodeId, NodeDevices>,
        overhead: &MachineOverhead,
        (inventory, cluster): (&Inventory, &mut ClusterLedger),
        of: (&IdVec<DemandId, Demand>, &Interner),
    ) {
        for node in self.nodes() {
            if let NodeDevices::Expected(shapes) = &described[node] {
                let mark = cluster.mark();
                let mut costs = ResourceVec::default();
                let mut ledger = BinLedger::machine_with(shapes, overhead, cluster);
                self.give(node, &mut ledger, (inventory, &mut *cluster), |demand, given| {
                    costs.saturating_add_assign(&cost(&of.0[demand], given, of.1));
                });
                cluster.rollback(mark);
                self.costs.insert(node, costs);
            }
        }
    }

    /// Their nodes, each once, in order.
    fn nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = self.pods().map(|(node, _)| *node).collect();
        nodes.dedup();
        nodes
    }

    /// Gives those on one node their devices, and tells what was given; who can have none takes none.
    pub(super) fn give(
        &self,
        node: NodeId,
        at: &mut BinLedger,
        (inventory, cluster): (&Inventory, &mut ClusterLedger),
        mut tell: impl FnMut(DemandId, &Alternative),
    ) {
        for ((_, pod), demand, claims) in self.pods.iter().filter(|((of, _), ..)| *of == node) {
            let shapes: IdSet<ShapeId> = at.shapes().into_iter().flatten().collect();
            let offer = Copies { claims, copies: 1 }.try_add(
                inventory,
                at,
                &shapes,
                cluster,
                &mut Budget::new(NOMINATED_STEPS),
            );
            if let Some(given) = offer.alternatives.first() {
                given.commit(inventory, at, cluster);
                if pod.device_costs.is_empty() {
                    tell(*demand, given);
                }
            }
        }
    }
}

/// What devices cost of the node; the most that they cost on any shape that it may have.
fn cost(demand: &Demand, given: &Alternative, names: &Interner) -> ResourceVec {
    let shapes = given.shapes.iter().map(Some);
    let shapes: Vec<Option<ShapeId>> = if given.shapes.is_empty() { vec![None] } else { shapes.collect() };
    let mut most = ResourceVec::default();
    for extra in shapes.into_iter().filter_map(|shape| demand.extra(given, shape, names).ok().flatten()) {
        most.max_assign(&extra);
    }
    most
}
