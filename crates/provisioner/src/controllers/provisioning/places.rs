//! Whether a plan could change anything: not if every pod that waits has its place on a machine under way.
//!
//! While machines come up the cluster changes all the time: Nodes register, kube-scheduler takes up pods and gives up
//! on them again. Pods keep the place that was planned for them, so a plan made then says what the last one said. It is
//! still made from time to time, because this looks at rooms only: not at taints and labels that turn out otherwise.

use std::collections::BTreeMap;

use api::NodeClaim;
use model::{NodeClaimName, Pod, ResourceVec};
use scheduling::snapshot::Options;
use scheduling::snapshot::pending::is_ignored;

use crate::world::assignments::Assignments;
use crate::world::claim;
use crate::world::snapshot::is_ours;
use crate::world::store::State;

/// What the pods of the cluster wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Places {
    /// No pod waits.
    NotNeeded,
    /// Each waits for a machine that is under way and has room for it.
    Planned,
    /// Some pod has no such machine, or will lose its node.
    Lacking,
}

/// Looks at all pods.
pub(super) fn look(state: &State, assignments: &Assignments, options: &Options) -> Places {
    let is_going = |node: &str| state.pods_on_node(node).next().is_some();
    if state.nodes.values().any(|node| node.model.deletion_timestamp.is_some() && is_going(&node.model.name)) {
        return Places::Lacking;
    }
    let mut waiting: BTreeMap<NodeClaimName, Vec<&Pod>> = BTreeMap::new();
    for pod in state.unbound_pods().filter(|pod| is_ours(pod, &options.scheduler_names) && !is_ignored(pod, options)) {
        match assignments.claim_of(&pod.uid) {
            Some(name) => waiting.entry(name).or_default().push(pod),
            None => return Places::Lacking,
        }
    }
    if waiting.is_empty() {
        return Places::NotNeeded;
    }
    let have_room = waiting
        .iter()
        .all(|(name, pods)| state.node_claims.get(name).is_some_and(|claim| has_room(state, claim, pods)));
    if have_room { Places::Planned } else { Places::Lacking }
}

/// Whether the machine is to stay and, if its Node is there, holds its pods beside those that it runs.
fn has_room(state: &State, node_claim: &NodeClaim, pods: &[&Pod]) -> bool {
    if claim::is_deleting(node_claim) {
        return false;
    }
    let node = claim::node(state, node_claim);
    let Some(node) = node.map(|node| &node.model) else { return true };
    if node.unschedulable || node.deletion_timestamp.is_some() {
        return false;
    }
    // Until the kubelet has said what it has, the NodeClaim's word stands.
    if node.allocatable.is_zero() {
        return true;
    }
    let mut needed = ResourceVec::new();
    let running = state.pods_on_node(&node.name).filter(|pod| !pod.phase.is_terminal()).map(AsRef::as_ref);
    for pod in running.chain(pods.iter().copied()) {
        if pod.unreadable.is_some() {
            return false;
        }
        needed.saturating_add_assign(&pod.shape.requests);
    }
    needed.fits_in(&node.allocatable)
}

#[cfg(test)]
mod tests {
    use model::{NamespacedName, Uid};
    use serde_json::{Value, json};

    use super::*;
    use crate::world::store::ClusterStore;

    struct Setup {
        store: ClusterStore,
        assignments: Assignments,
    }

    impl Setup {
        fn new() -> Self {
            let setup = Self { store: ClusterStore::new(), assignments: Assignments::default() };
            setup.store.show_node_claim(json!({"metadata": {"name": "m"}, "status": {"providerID": "id-m"}}));
            setup
        }

        fn pod(&self, name: &str, cpu: &str, node: Option<&str>) {
            self.store.show_pod(json!({
                "metadata": {"namespace": "ns", "name": name},
                "spec": {"nodeName": node, "containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]},
                "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
            }));
        }

        fn node(&self, cpu: &str, change: impl FnOnce(&mut Value)) {
            let mut node = json!({
                "metadata": {"name": "node"},
                "spec": {"providerID": "id-m"}, "status": {"allocatable": {"cpu": cpu, "pods": "10"}},
            });
            change(&mut node);
            self.store.show_node(node);
        }

        fn plan(&self, pods: &[&str]) {
            self.assignments.assign(&"m".into(), pods.iter().map(|pod| Uid::from(*pod)));
        }

        fn look(&self) -> Places {
            look(&self.store.read(), &self.assignments, &Options::default())
        }
    }

    #[test]
    fn a_pod_has_its_place_while_its_machine_is_under_way() {
        let setup = Setup::new();
        assert_eq!(setup.look(), Places::NotNeeded);
        setup.pod("a", "1", None);
        assert_eq!(setup.look(), Places::Lacking);
        setup.plan(&["a"]);
        assert_eq!(setup.look(), Places::Planned);
        setup.node("2", |_| {});
        assert_eq!(setup.look(), Places::Planned, "its Node has come");
        setup.pod("b", "1", None);
        assert_eq!(setup.look(), Places::Lacking, "another pod waits");
        setup.store.forget::<Pod>(&NamespacedName::new("ns", "b"));
        setup.store.forget::<NodeClaim>(&"m".into());
        assert_eq!(setup.look(), Places::Lacking, "its machine is gone");
    }

    #[test]
    fn a_node_that_others_have_filled_is_no_place() {
        let setup = Setup::new();
        setup.pod("a", "1", None);
        setup.plan(&["a"]);
        setup.node("2", |_| {});
        setup.pod("small", "500m", Some("node"));
        assert_eq!(setup.look(), Places::Planned);
        setup.pod("thief", "1", Some("node"));
        assert_eq!(setup.look(), Places::Lacking);
    }

    #[test]
    fn a_node_that_is_smaller_than_promised_or_cordoned_or_going_is_no_place() {
        for (cpu, change) in [("500m", json!({})), ("2", json!({"unschedulable": true}))] {
            let setup = Setup::new();
            setup.pod("a", "1", None);
            setup.plan(&["a"]);
            setup.node(cpu, |node| {
                for (field, value) in change.as_object().unwrap() {
                    node["spec"][field] = value.clone();
                }
            });
            assert_eq!(setup.look(), Places::Lacking, "{cpu} {change}");
        }
        let setup = Setup::new();
        setup.pod("a", "1", None);
        setup.plan(&["a"]);
        setup.node("2", |node| node["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
        assert_eq!(setup.look(), Places::Lacking);
    }

    #[test]
    fn pods_on_a_node_that_goes_need_places() {
        let setup = Setup::new();
        setup.pod("runs", "1", Some("node"));
        setup.node("2", |node| node["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
        assert_eq!(setup.look(), Places::Lacking);
    }
}
