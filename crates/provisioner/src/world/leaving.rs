//! Pods whose machines go, and where they go by what was planned for them.
//!
//! A disruption command launches machines for pods that still run. From then on provisioning looks at these pods as if
//! they waited already: what they were promised is not given to others that come meanwhile. Which places these are is
//! written on the replacements; those on nodes that were there before are known to [`Successors`] only, so after a
//! restart they are anybody's.
//!
//! Nothing is launched for such a pod as long as it runs ([`OfCommands`]): what it needs its command has launched.
//!
//! Differs: `displaced-while-running`. Karpenter launches for each pod of a machine that goes and that has no place.
//!
//! [`Successors`]: crate::world::successors::Successors

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::NodeClaim;
use cluster::node_claim::command::{self, Note, has_note};
use model::{NodeClaimName, NodeName, Pod, Timestamp, Uid};

use crate::world::claim;
use crate::world::planned_pods;
use crate::world::store::{State, Stored};
use crate::world::successors::{Move, Succession};

/// The nodes that commands will take away once their replacements are ready.
pub(crate) fn nodes_of_commands(state: &State) -> BTreeSet<NodeName> {
    let claims = command::leaving(state.node_claims.values().map(AsRef::as_ref));
    claims.iter().filter_map(|name| state.node_claims.get(name)).flat_map(|claim| nodes_of(state, claim)).collect()
}

/// Pods that run and for which commands care.
#[derive(Debug)]
pub(crate) struct OfCommands<'a> {
    /// Nodes whose replacements are on their way.
    waiting: BTreeSet<NodeName>,
    /// Nodes that are being drained.
    draining: BTreeSet<NodeName>,
    succession: &'a Succession,
}

impl<'a> OfCommands<'a> {
    pub(crate) fn now(state: &State, succession: &'a Succession) -> Self {
        let going = state.node_claims.values().map(AsRef::as_ref);
        let going = going.filter(|claim| claim::is_deleting(claim) && Note::is_going(claim));
        let draining = going.flat_map(|claim| nodes_of(state, claim)).collect();
        Self { waiting: nodes_of_commands(state), draining, succession }
    }

    /// Whether nothing is to be launched for the pod: its command has launched what it needs. A pod that has lost its
    /// place to another while its node is drained, and has not left, will find other room, more often than not.
    pub(crate) fn include(&self, pod: &Pod) -> bool {
        let Some(node) = &pod.node_name else { return false };
        self.waiting.contains(node) || (self.draining.contains(node) && self.succession.places.contains_key(&pod.uid))
    }
}

/// Whether the pod's node is being deleted, or its machine, or takes part in a command.
pub(crate) fn may_leave(state: &State, pod: &Pod) -> bool {
    let Some(node) = pod.node_name.as_ref().and_then(|node| state.nodes.get(node)) else { return false };
    let mut claims =
        node.model.provider_id.iter().flat_map(|provider_id| state.node_claims_of_machine(provider_id.as_str()));
    node.model.deletion_timestamp.is_some() || claims.any(|claim| claim::is_deleting(claim) || has_note(claim))
}

/// Where pods go that leave their nodes, as far as that was planned. Where several NodeClaims name a pod, the youngest
/// was planned for it last.
pub(crate) fn places(state: &State, succession: &Succession) -> BTreeMap<Uid, NodeClaimName> {
    let mut going: BTreeSet<NodeName> = nodes_of_commands(state);
    for claim in state.node_claims.values().filter(|claim| claim::is_deleting(claim)) {
        going.extend(nodes_of(state, claim));
    }
    going.extend(
        state.nodes.values().filter(|node| node.model.deletion_timestamp.is_some()).map(|node| node.model.name.clone()),
    );
    let leaving: BTreeSet<&Uid> = going.iter().flat_map(|node| state.pods_on_node(node)).map(|pod| &pod.uid).collect();
    if leaving.is_empty() {
        return BTreeMap::new();
    }
    let mut youngest: BTreeMap<Uid, (Timestamp, NodeClaimName)> = BTreeMap::new();
    for claim in state.node_claims.values().filter(|claim| !claim::is_deleting(claim)) {
        // It takes nobody in any more.
        if nodes_of(state, claim).any(|node| going.contains(&node)) {
            continue;
        }
        let planned = planned_pods::decode(claim.metadata.annotations.as_ref());
        for pod in planned.into_iter().filter(|pod| leaving.contains(pod)) {
            let found = (claim::created_at(claim), claim.key());
            let known = youngest.entry(pod).or_insert_with(|| found.clone());
            *known = found.max(known.clone());
        }
    }
    let mut places: BTreeMap<Uid, NodeClaimName> = youngest.into_iter().map(|(pod, (_, claim))| (pod, claim)).collect();
    for pod in leaving {
        let place = succession.places.get(pod).filter(|place| state.node_claims.get(*place).is_some());
        places.extend(place.map(|place| (pod.clone(), place.clone())));
    }
    places
}

/// Pods that are gone, as if they ran where their successors will.
pub(crate) fn kept(state: &State, succession: &Succession) -> Vec<Arc<Pod>> {
    let as_there = |(pod, place): &Move| {
        let claim = state.node_claims.get(place).filter(|claim| !claim::is_deleting(claim))?;
        let node = claim::node(state, claim)?;
        let is_gone = state.pod_by_uid(&pod.uid).is_none() && node.model.deletion_timestamp.is_none();
        let node_name = Some(node.model.name.clone());
        is_gone.then(|| Arc::new(Pod { node_name, deletion_timestamp: None, ..Pod::clone(pod) }))
    };
    succession.kept.iter().filter_map(as_there).collect()
}

fn nodes_of<'s>(state: &'s State, claim: &'s NodeClaim) -> impl Iterator<Item = NodeName> + 's {
    let of_machine = claim::provider_id(claim).into_iter().flat_map(|id| state.nodes_of_machine(id));
    of_machine.map(|node| node.model.name.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::world::store::ClusterStore;
    use crate::world::store::test_objects::condition;

    const NOTE: &str =
        r#"{"id":"1","reason":"Drifted","nodeClaims":["old"],"replacements":1,"deadline":"2026-11-25T21:10:00Z"}"#;

    fn claim(store: &ClusterStore, name: &str, created: &str, (note, planned): (Option<&str>, &str)) {
        let mut annotations = json!({"dovetail.sh/planned-pods": planned});
        if let Some(note) = note {
            annotations["dovetail.sh/disruption-command"] = note.into();
        }
        let marked = condition("DisruptionReason", "True", "2026-11-25T21:00:00Z");
        store.show_node_claim(json!({
            "metadata": {"name": name, "annotations": annotations, "creationTimestamp": created},
            "status": {"providerID": format!("id-{name}"), "conditions": [marked]},
        }));
        store.show_node(json!({
            "metadata": {"name": format!("node-{name}")}, "spec": {"providerID": format!("id-{name}")},
        }));
    }

    fn pod(store: &ClusterStore, name: &str, node: &str) -> Arc<Pod> {
        store.show_pod(json!({"metadata": {"name": name}, "spec": {"nodeName": node}}));
        Arc::clone(store.read().pod_by_uid(&name.into()).unwrap())
    }

    fn told(places: &BTreeMap<Uid, NodeClaimName>) -> Vec<(&str, &str)> {
        places.iter().map(|(pod, place)| (pod.as_str(), place.as_str())).collect()
    }

    #[test]
    fn pods_of_a_command_go_where_its_replacements_were_planned_for_them() {
        let store = ClusterStore::new();
        // Each was planned for its first machine once, which says so still.
        claim(&store, "old", "2026-11-25T10:00:00Z", (Some(NOTE), "a,b,c"));
        claim(&store, "other", "2026-11-25T11:00:00Z", (None, "a,d"));
        for (name, node) in [("a", "node-old"), ("b", "node-old"), ("c", "node-old"), ("d", "node-other")] {
            pod(&store, name, node);
        }
        assert!(nodes_of_commands(&store.read()).is_empty(), "what takes its place is not launched yet");
        assert!(places(&store.read(), &Succession::default()).is_empty());
        claim(&store, "new", "2026-11-25T21:00:00Z", (Some(NOTE), "a,b"));
        let state = store.read();
        assert_eq!(nodes_of_commands(&state), ["node-old".into()].into());
        assert_eq!(told(&places(&state, &Succession::default())), [("a", "new"), ("b", "new")]);
        let mut succession = Succession::default();
        succession.places.insert("c".into(), "other".into());
        succession.places.insert("d".into(), "new".into());
        succession.places.insert("b".into(), "gone".into());
        assert_eq!(told(&places(&state, &succession)), [("a", "new"), ("b", "new"), ("c", "other")]);
    }

    #[test]
    fn a_pod_that_is_gone_counts_where_its_successor_will_be_unless_that_is_gone_too() {
        let store = ClusterStore::new();
        claim(&store, "new", "2026-11-25T21:00:00Z", (None, ""));
        let gone = pod(&store, "a", "node-old");
        let there = pod(&store, "b", "node-old");
        store.forget::<Pod>(&gone.name);
        let places = ["new", "lost"];
        let kept_of = |pod: &Arc<Pod>| places.map(|place| (Arc::clone(pod), NodeClaimName::from(place)));
        let succession = Succession { kept: [kept_of(&gone), kept_of(&there)].concat(), ..Succession::default() };
        let kept = kept(&store.read(), &succession);
        let kept: Vec<_> = kept.iter().map(|pod| (pod.uid.as_str(), pod.node_name.as_deref())).collect();
        assert_eq!(kept, [("a", Some("node-new"))]);
    }
}
