//! What a plan says of Nodes that are being deleted, for those who drain them.

use std::collections::{BTreeMap, BTreeSet};

use model::{NodeClaimName, NodeName, Pod};
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
    let pod_of = |&pod: &PodId| &*snapshot.pods[pod].pod;
    let is_lost = |id: &MachineId| !created.contains_key(id) && !held_back.contains(id);
    let lost = plan.machines.iter_enumerated().filter(|(id, _)| is_lost(id)).flat_map(|(_, machine)| &machine.pods);
    for node in lost.filter_map(|pod| pod_of(pod).node_name.as_ref()) {
        nodes.remove(node);
    }
    let is_of_these = |pod: &&Pod| pod.node_name.as_ref().is_some_and(|node| nodes.contains(node));
    let on_nodes = plan.existing.iter();
    let on_nodes = on_nodes.filter_map(|it| Some((snapshot.nodes[it.node].node_claim.as_ref()?, &it.pods)));
    let on_machines = plan.machines.iter_enumerated();
    let on_machines = on_machines.filter_map(|(id, machine)| Some((created.get(&id)?, &machine.pods)));
    let mut places = BTreeMap::new();
    for (claim, pods) in on_nodes.chain(on_machines) {
        places.extend(pods.iter().map(pod_of).filter(is_of_these).map(|pod| (pod.uid.clone(), claim.clone())));
    }
    Departing { nodes, places }
}
