//! What a plan says of Nodes that are being deleted, for those who drain them.

use std::collections::{BTreeMap, BTreeSet};

use model::{NodeClaimName, NodeName};
use scheduling::plan::{MachineId, Plan};
use scheduling::snapshot::{PodId, Snapshot};

use crate::world::departures::Departing;
use crate::world::store::State;

/// The Nodes that are being deleted.
pub(super) fn going(state: &State) -> BTreeSet<NodeName> {
    let nodes = state.nodes.values().filter(|node| node.model.deletion_timestamp.is_some());
    nodes.map(|node| node.model.name.clone()).collect()
}

/// Where the pods of these Nodes go by a plan of which `created` was created. A Node is left out if what some of its
/// pods need could not be created: the next plan says more. What is held back on purpose nobody waits for.
pub(super) fn departing(
    (snapshot, plan): (&Snapshot, &Plan),
    held_back: &BTreeSet<MachineId>,
    created: &BTreeMap<MachineId, NodeClaimName>,
    mut nodes: BTreeSet<NodeName>,
) -> Departing {
    let mut places = BTreeMap::new();
    let mut put = |pods: &[PodId], claim: &NodeClaimName| {
        places.extend(pods.iter().map(|&pod| (snapshot.pods[pod].pod.uid.clone(), claim.clone())));
    };
    for placement in &plan.existing {
        if let Some(claim) = &snapshot.nodes[placement.node].node_claim {
            put(&placement.pods, claim);
        }
    }
    for (id, machine) in plan.machines.iter_enumerated() {
        match created.get(&id) {
            Some(claim) => put(&machine.pods, claim),
            None if held_back.contains(&id) => {}
            None => machine.pods.iter().filter_map(|&pod| snapshot.pods[pod].pod.node_name.as_ref()).for_each(|node| {
                nodes.remove(node);
            }),
        }
    }
    let is_of_these = |pod: &&model::Pod| pod.node_name.as_ref().is_some_and(|node| nodes.contains(node));
    let theirs: BTreeSet<_> = snapshot.pods.iter().map(|it| &*it.pod).filter(is_of_these).map(|pod| &pod.uid).collect();
    places.retain(|pod, _| theirs.contains(pod));
    Departing { nodes, places }
}
