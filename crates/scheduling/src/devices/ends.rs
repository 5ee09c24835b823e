//! Errors with which one node keeps a pod from every other.
//!
//! kube-scheduler asks each node that its other rules let a pod onto, and an error among the answers, a selector that
//! fails on a device of one node say, is its answer for the pod. Here each node that publishes its devices is asked
//! once for each kind of demand, as things are before anything is planned; which of them a pod would be asked about is
//! for the planner to say.
//!
//! Left out: nodes and machines whose devices are still to be published, and what devices a node has left later.

use std::{collections::BTreeMap, sync::Arc};

use dra_sched::packing::{ends_on, may_end};
use dra_sched::{BinLedger, ClusterLedger, Inventory};
use model::{Budget, IdVec};

use super::{Demand, DemandId, NodeDevices};
use crate::snapshot::{Node, NodeId};
use crate::tuning::END_STEPS;

/// By demand: the nodes that answer with an error, and which.
#[derive(Debug, Default)]
pub(super) struct Ends(BTreeMap<DemandId, Vec<(NodeId, Arc<str>)>>);

impl Ends {
    pub(super) fn new(
        wanted: impl Iterator<Item = DemandId>,
        demands: &IdVec<DemandId, Demand>,
        nodes: &IdVec<NodeId, Arc<Node>>,
        described: &IdVec<NodeId, NodeDevices>,
        (inventory, cluster): (&Inventory, &ClusterLedger),
    ) -> Self {
        let mut ends: BTreeMap<DemandId, Vec<(NodeId, Arc<str>)>> = BTreeMap::new();
        for demand in wanted {
            if ends.contains_key(&demand) {
                continue;
            }
            let variants = &demands[demand].variants;
            let may_end: Vec<bool> = variants.iter().map(|variant| may_end(inventory, &variant.claims)).collect();
            let on_node = |(id, node): (NodeId, &Arc<Node>)| {
                let NodeDevices::Published(facts) = &described[id] else { return None };
                let index = demands[demand].variant_for(&node.allocatable);
                let variant = variants.get(index).filter(|_| may_end.get(index) == Some(&true))?;
                let ledger = BinLedger::node(facts.clone());
                let fault = ends_on(inventory, &ledger, &variant.claims, cluster, &mut Budget::new(END_STEPS))?;
                Some((id, fault.to_string().into()))
            };
            let found = match may_end.contains(&true) {
                true => {
                    nodes.iter_enumerated().filter(|(_, node)| node.excluded.is_none()).filter_map(on_node).collect()
                }
                false => Vec::new(),
            };
            ends.insert(demand, found);
        }
        Self(ends)
    }

    pub(super) fn of(&self, demand: DemandId) -> &[(NodeId, Arc<str>)] {
        self.0.get(&demand).map_or(&[], Vec::as_slice)
    }
}
