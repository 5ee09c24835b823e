//! Pods that the scheduler is about to bind.
//!
//! kube-scheduler first says where a pod will go (`status.nominatedNodeName`), then writes what its claims were given, then
//! binds it. Whoever looks in between sees a pod that waits no longer and devices that seem free. So such a pod is given
//! its devices as the scheduler will have given them: on its node, before anything is planned, several by node and name.
//! What its claims have already is counted with them.
//!
//! A pod that was nominated because others have to go first has no devices yet in the scheduler's eyes. They are kept for
//! it nevertheless: that node is where it is tried first.
//!
//! Left out: what devices cost of the node's own resources.

use std::sync::Arc;

use dra_sched::{BinLedger, ClaimUse, ClusterLedger, Inventory, ShapeId, types::Pod};
use model::{Budget, IdSet, IdVec};

use super::{Demand, DemandId, NodeDevices};
use crate::snapshot::{Node, NodeId};

/// Steps for one pod.
const STEPS: u64 = 50_000;

/// The node that a pod is nominated to, and what devices read of the pod.
pub type NominatedPod = (NodeId, Arc<Pod>);

/// The nominated pods that want devices, in their order.
#[derive(Debug, Default)]
pub(super) struct Nominated {
    pods: Vec<(NominatedPod, Vec<ClaimUse>)>,
}

impl Nominated {
    pub(super) fn new(
        pods: &[NominatedPod],
        wanted: &[Option<DemandId>],
        demands: &IdVec<DemandId, Demand>,
        nodes: &IdVec<NodeId, Node>,
    ) -> Self {
        let claims = |(pod, demand): (&NominatedPod, &Option<DemandId>)| {
            let demand = &demands[(*demand)?];
            let variant = demand.variants.get(demand.variant_for(&nodes[pod.0].allocatable))?;
            (!variant.claims.is_empty()).then(|| (pod.clone(), variant.claims.clone()))
        };
        let mut pods: Vec<_> = pods.iter().zip(wanted).filter_map(claims).collect();
        pods.sort_by(|((a, pod), _), ((b, other), _)| {
            let key = |node: NodeId| nodes[node].display_name();
            key(*a).cmp(key(*b)).then_with(|| pod.meta.name.cmp(&other.meta.name))
        });
        Self { pods }
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = &NominatedPod> {
        self.pods.iter().map(|(pod, _)| pod)
    }

    pub(super) fn is_on(&self, node: NodeId) -> bool {
        self.pods().any(|(of, _)| *of == node)
    }

    /// Gives the devices of nodes that publish theirs.
    pub(super) fn settle(&self, described: &IdVec<NodeId, NodeDevices>, at: (&Inventory, &mut ClusterLedger)) {
        let (inventory, cluster) = at;
        let mut last = None;
        for &(node, _) in self.pods() {
            if let NodeDevices::Published(facts) = &described[node]
                && last != Some(node)
            {
                self.give(node, &mut BinLedger::node(facts.clone()), (inventory, &mut *cluster));
            }
            last = Some(node);
        }
    }

    /// Gives those on one node their devices; who can have none takes none.
    pub(super) fn give(
        &self,
        node: NodeId,
        at: &mut BinLedger,
        (inventory, cluster): (&Inventory, &mut ClusterLedger),
    ) {
        for (_, claims) in self.pods.iter().filter(|((of, _), _)| *of == node) {
            let shapes: IdSet<ShapeId> = at.shapes().into_iter().flatten().collect();
            let offer = inventory.try_add(at, claims, 1, &shapes, cluster, &mut Budget::new(STEPS));
            if let Some(given) = offer.alternatives.first() {
                inventory.commit(at, cluster, given);
            }
        }
    }
}
