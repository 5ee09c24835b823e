//! Which annotations are to be written: a pure function of the store and the order of nodes.

use std::sync::Arc;

use model::Pod;
use scheduling::disruption::deletion_order::DeletionRank;
use scheduling::snapshot::{NodeId, Snapshot};

use crate::world::store::State;

/// Most nodes whose pods are patched in one look, not counting those that are being removed: a fleet whose order
/// changes is not patched all at once. Karpenter's number.
pub(super) const MOST_NODES: usize = 50;

/// Pods of one node whose annotation is to be changed.
#[derive(Debug, Clone)]
pub(super) struct OfNode {
    pub(super) node_pool: String,
    /// The new value; `None` removes the annotation.
    pub(super) cost: Option<i32>,
    pub(super) pods: Vec<Arc<Pod>>,
}

/// What is to be written.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    /// In this look, in the order of ranks.
    pub(super) now: Vec<OfNode>,
    /// In later looks.
    pub(super) later: Vec<OfNode>,
    /// The number of pods whose annotation is right.
    pub(super) unchanged: usize,
}

/// What is to be written for this order of all nodes.
pub(super) fn wanted(state: &State, snapshot: &Snapshot, order: &[(NodeId, DeletionRank)]) -> Wanted {
    let mut wanted = Wanted::default();
    let mut written = 0;
    for (node, rank) in order {
        let Some(there) = snapshot.nodes.try_get(*node) else { continue };
        let Some(name) = &there.name else { continue };
        let cost = rank.cost();
        let pods = state.pods_on_node(name).filter(|pod| is_of_replica_set(pod));
        let (unchanged, changed): (Vec<_>, Vec<_>) = pods.map(Arc::clone).partition(|pod| pod.deletion_cost == cost);
        wanted.unchanged += unchanged.len();
        if changed.is_empty() {
            continue;
        }
        let node_pool = there.node_pool.as_ref().map(ToString::to_string).unwrap_or_default();
        let of_node = OfNode { node_pool, cost, pods: changed };
        if *rank == DeletionRank::BeingRemoved {
            wanted.now.push(of_node);
        } else if written < MOST_NODES {
            written += 1;
            wanted.now.push(of_node);
        } else {
            wanted.later.push(of_node);
        }
    }
    wanted
}

/// Whether a ReplicaSet may delete the pod: only ReplicaSets read the annotation.
fn is_of_replica_set(pod: &Pod) -> bool {
    let controller = pod.owner.as_ref().filter(|owner| owner.controller);
    controller.is_some_and(|owner| &*owner.kind == "ReplicaSet")
        && pod.deletion_timestamp.is_none()
        && !pod.phase.is_terminal()
}

#[cfg(test)]
mod tests {
    use model::IdVec;
    use serde_json::json;

    use super::*;
    use crate::world::store::ClusterStore;
    use crate::world::store::test_objects::controlled_by;

    fn pod(store: &ClusterStore, name: &str, node: usize, (kind, cost): (&str, Option<&str>)) {
        let annotations = cost.map(|cost| json!({"controller.kubernetes.io/pod-deletion-cost": cost}));
        store.show_pod(json!({
            "metadata": {"name": name, "annotations": annotations, "ownerReferences": controlled_by(kind, "o")},
            "spec": {"nodeName": format!("n{node}")},
        }));
    }

    /// So many nodes, named by their numbers.
    fn snapshot(count: usize) -> Snapshot {
        let node = |number: usize| {
            let node = scheduling::snapshot::Node {
                name: Some(format!("n{number}").as_str().into()),
                node_claim: None,
                node_pool: Some("p".into()),
                state: scheduling::snapshot::NodeState::Initialized,
                excluded: None,
                labels: scheduling::snapshot::NodeLabels::Known(Default::default()),
                taints: Vec::new(),
                allocatable: Default::default(),
                attach_limits: Vec::new(),
                pods: Default::default(),
                awaits_devices: false,
            };
            Arc::new(node)
        };
        let nodes: IdVec<NodeId, _> = (0..count).map(node).collect();
        let (empty, _) = cluster::snapshot(Default::default(), Default::default(), &Default::default());
        Snapshot { nodes, ..empty }
    }

    fn told(all: &[OfNode]) -> Vec<(Option<i32>, Vec<&str>)> {
        all.iter().map(|it| (it.cost, it.pods.iter().map(|pod| &*pod.name.name).collect())).collect()
    }

    #[test]
    fn pods_of_replicasets_get_the_rank_of_their_node_and_other_values_are_removed() {
        let store = ClusterStore::new();
        pod(&store, "going", 0, ("ReplicaSet", None));
        pod(&store, "first", 1, ("ReplicaSet", Some("7")));
        pod(&store, "known", 1, ("ReplicaSet", Some("-1")));
        pod(&store, "job", 1, ("Job", None));
        pod(&store, "users", 2, ("ReplicaSet", Some("100")));
        pod(&store, "plain", 2, ("ReplicaSet", None));
        let snapshot = snapshot(3);
        let ids: Vec<NodeId> = snapshot.nodes.ids().collect();
        let order =
            [(ids[0], DeletionRank::BeingRemoved), (ids[1], DeletionRank::At(-1)), (ids[2], DeletionRank::Unranked)];
        let wanted = wanted(&store.read(), &snapshot, &order);
        assert_eq!(
            told(&wanted.now),
            [(Some(i32::MIN), vec!["going"]), (Some(-1), vec!["first"]), (None, vec!["users"])]
        );
        assert_eq!((wanted.later.len(), wanted.unchanged), (0, 2));
    }

    #[test]
    fn fifty_nodes_are_written_in_one_look_beside_those_that_are_being_removed() {
        let store = ClusterStore::new();
        let count = MOST_NODES + 3;
        for node in 0..count {
            pod(&store, &format!("p{node:02}"), node, ("ReplicaSet", None));
        }
        let snapshot = snapshot(count);
        let rank = |number: usize| match number {
            0 | 1 => DeletionRank::BeingRemoved,
            _ => DeletionRank::At(-1),
        };
        let order: Vec<_> = snapshot.nodes.ids().enumerate().map(|(number, node)| (node, rank(number))).collect();
        let wanted = wanted(&store.read(), &snapshot, &order);
        assert_eq!((wanted.now.len(), wanted.later.len()), (MOST_NODES + 2, 1));
    }
}
