//! The taint `dovetail.sh/held`: a Node that carries it takes only pods that were planned for it.
//!
//! A new machine has it from its registration, if planned pods wait for it; any other gets it while pods of a
//! disruption command move there, or are to go past it since it is about to go. The hand-over lets in whose place it
//! is, and takes it off again, whoever has put it there.
//!
//! Differs: `places-held`. Karpenter leaves it to kube-scheduler where evicted pods come back.
//!
//! `reference`: `docs/rfcs/0004-hand-over.md`.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::taints;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::api::Api;
use model::NodeClaimName;
use tracing::{info, warn};

use crate::options::HandOverMode;
use crate::runtime::failures::is_not_found;
use crate::runtime::patch;
use crate::world::claim;
use crate::world::context::Context;
use crate::world::node_facts::{is_ready, is_registered, taints_of};
use crate::world::store::State;

/// The taint, if the node carries it.
pub(crate) fn of_node(node: &Node) -> Option<&Taint> {
    taints_of(node).iter().find(|taint| is_hold(taint))
}

/// Whether that is the taint, of whatever machine.
pub(crate) fn is_hold(taint: &Taint) -> bool {
    taint.key == taints::HELD && taint.effect == taints::NO_SCHEDULE
}

/// Whether the node carries the taint.
pub(crate) fn is_held(node: &Node) -> bool {
    of_node(node).is_some()
}

/// Puts the taint onto the node, unless it has it. Says whether it is there, or the node is gone.
pub(crate) async fn close(context: &Context, node: &Node, taint: &Taint) -> bool {
    let add = |taints: &mut Vec<Taint>| {
        if !taints.iter().any(is_hold) {
            taints.push(taint.clone());
        }
    };
    set_taints(context, node, add).await
}

/// Takes the taint off. Says whether it is gone.
pub(crate) async fn open(context: &Context, node: &Node) -> bool {
    set_taints(context, node, |taints| taints.retain(|taint| !is_hold(taint))).await
}

/// Closes the machines to which pods are about to move, or are not to come, so that what was planned for these is not
/// taken by others that kube-scheduler places first. A wish: pods find their way to a machine that could not be closed
/// as well, mostly.
pub(crate) async fn close_places(context: &Context, places: &BTreeSet<NodeClaimName>) {
    if context.options.hand_over.mode != HandOverMode::Tolerate {
        return;
    }
    let open = {
        let state = context.store.read();
        places.iter().filter_map(|place| open_node(&state, place)).collect::<Vec<_>>()
    };
    let closed = open.into_iter().map(|(node, taint)| {
        let context = context.clone();
        async move { close(&context, &node, &taint).await }
    });
    let closed = futures::future::join_all(closed).await.into_iter().filter(|is_closed| *is_closed).count();
    if closed > 0 {
        info!(node_count = closed, "tainted nodes until pods that move there are bound");
    }
}

/// The node of a machine that lets everybody in, and the taint that would close it.
fn open_node(state: &State, place: &NodeClaimName) -> Option<(Arc<Node>, Taint)> {
    let claim = state.node_claims.get(place).filter(|claim| !claim::is_deleting(claim))?;
    let node = claim::node(state, claim)?;
    let lets_in = is_registered(&node.object)
        && is_ready(&node.object)
        && node.model.deletion_timestamp.is_none()
        && !is_held(&node.object);
    let uid = claim.metadata.uid.as_deref().filter(|_| lets_in)?;
    Some((Arc::clone(&node.object), taints::held(uid)))
}

/// Changes the Node's taints, whatever others change meanwhile. Says whether they are as wanted, or the Node is gone.
async fn set_taints(context: &Context, node: &Node, change: impl Fn(&mut Vec<Taint>)) -> bool {
    // Not rate limited: there are few, and machines open, and close, together.
    let nodes: Api<Node> = Api::all(context.urgent_client.clone());
    let changed = |node: &Node| {
        let mut wanted = node.clone();
        change(wanted.spec.get_or_insert_default().taints.get_or_insert_default());
        wanted
    };
    match patch::retried(&nodes, node, changed).await {
        Ok(written) => {
            written.iter().for_each(|node| context.store.apply_node(node));
            true
        }
        Err(failure) if is_not_found(&failure) => true,
        Err(failure) => {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            warn!(node = name, error = format!("{failure:#}"), "could not change the taints of a node");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::world::store::ClusterStore;

    fn machine(store: &ClusterStore, name: &str, metadata: Value, taints: &Value, ready: &str) {
        store.show_node_claim(json!({"metadata": {"name": name}, "status": {"providerID": format!("id-{name}")}}));
        let mut node = json!({
            "metadata": {"name": format!("node-{name}"), "labels": {"karpenter.sh/registered": "true"}},
            "spec": {"providerID": format!("id-{name}"), "taints": taints},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        crate::world::store::test_objects::merge(&mut node["metadata"], metadata);
        store.show_node(node);
    }

    #[test]
    fn only_machines_that_let_everybody_in_are_closed() {
        let store = ClusterStore::new();
        machine(&store, "open", json!({}), &json!([{"key": "own", "effect": "NoSchedule"}]), "True");
        machine(&store, "held", json!({}), &json!([{"key": "dovetail.sh/held", "effect": "NoSchedule"}]), "True");
        machine(&store, "broken", json!({}), &json!([]), "False");
        machine(&store, "leaving", json!({"deletionTimestamp": "2026-11-25T21:10:00Z"}), &json!([]), "True");
        machine(&store, "coming", json!({"labels": {"karpenter.sh/registered": "false"}}), &json!([]), "True");
        store.show_node_claim(json!({"metadata": {"name": "launching"}}));
        let state = store.read();
        let closed = ["open", "held", "broken", "leaving", "coming", "launching", "gone"].map(|name| {
            let found = open_node(&state, &name.into());
            found.map(|(node, taint)| (node.metadata.name.clone().unwrap(), taint.value.unwrap()))
        });
        let [open, others @ ..] = closed;
        let uid = state.node_claims.get("open").unwrap().metadata.uid.clone().unwrap();
        assert_eq!(open, Some(("node-open".to_owned(), uid)));
        assert_eq!(others, [const { None }; 6]);
    }
}
