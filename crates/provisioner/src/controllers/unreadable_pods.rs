//! Tells of pods on nodes that cannot be read: an event, a gauge that names each, and the condition `PodsReadable` on
//! the NodeClaim of their node, which takes no further pods meanwhile.
//!
//! The condition is absent from a NodeClaim that never had such a pod, and true once it has none any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::conditions::node_claim::{PODS_READABLE, UNREADABLE_PODS};
use api::{NodeClaim, events};
use model::{NamespacedName, NodeClaimName};
use tokio::sync::Notify;
use tracing::{debug, warn};

use crate::runtime::conditions::is_false;
use crate::runtime::controller_loop::{Looks, Rhythm};
use crate::runtime::failures::in_words;
use crate::runtime::metrics::PodOnNode;
use crate::runtime::recorder::{Event, Severity, pod_reference};
use crate::world::claim;
use crate::world::context::Context;
use crate::world::instance::set_condition;
use crate::world::store::State;

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "pod.unreadable";
const RHYTHM: Rhythm = Rhythm {
    first: Duration::ZERO,
    period: Duration::from_secs(60),
    collect: Duration::ZERO,
    bound: Duration::from_secs(300),
};
/// Pods with a gauge of their own, and pods that a condition names.
const SHOWN: usize = 100;
const NAMED: usize = 5;

/// Tells of unreadable pods until the context is stopped.
pub(crate) async fn run(context: Context) {
    let changed = Arc::new(Notify::new());
    let notify = Arc::clone(&changed);
    context.store.on::<model::Pod>(move |delta, _| {
        if [delta.before, delta.after].into_iter().flatten().any(|pod| pod.unreadable.is_some()) {
            notify.notify_one();
        }
    });
    context.store.wait_until_synced().await;
    let mut told = BTreeSet::new();
    let mut looks = Looks::new(NAME, RHYTHM, &context.beats, &context.stop).after(changed);
    while looks.next().await {
        tell(&context, &mut told);
        write_conditions(&context).await;
    }
}

fn tell(context: &Context, told: &mut BTreeSet<NamespacedName>) {
    let state = context.store.read();
    // One that can be read again is gone, not at zero.
    context.metrics.unreadable_pods.clear();
    let mut now = BTreeSet::new();
    for pod in state.unreadable_pods() {
        let why = pod.unreadable.as_deref().unwrap_or_default();
        let node = pod.node_name.as_deref().unwrap_or_default();
        if now.len() < SHOWN {
            let labels = PodOnNode {
                namespace: pod.name.namespace.to_string(),
                pod: pod.name.name.to_string(),
                node: node.to_owned(),
            };
            context.metrics.unreadable_pods.get_or_create(&labels).set(1);
        }
        let message = format!("Cannot read the pod's requests, so its node {node} counts as full: {why}");
        let event = Event::new(pod_reference(pod), Severity::Warning, events::UNREADABLE_POD, message);
        context.recorder.publish(event);
        if !told.contains(&pod.name) {
            warn!(pod = %pod.name, node, error = why, "could not read a pod's requests, so its node counts as full");
        }
        now.insert(pod.name.clone());
    }
    *told = now;
}

async fn write_conditions(context: &Context) {
    let changes: Vec<(Arc<NodeClaim>, Option<String>)> = wanted(&context.store.read());
    for (node_claim, message) in changes {
        let written = set_condition(context, &node_claim, |conditions| match &message {
            Some(message) => conditions.set_false(PODS_READABLE, UNREADABLE_PODS, message),
            None => conditions.set_true(PODS_READABLE),
        });
        if let Err(error) = written.await {
            debug!(
                node_claim = claim::name(&node_claim),
                error = in_words(&error),
                "could not write a condition, trying later"
            );
        }
    }
}

/// The NodeClaims whose condition has to say something, with what is wrong if anything is.
fn wanted(state: &State) -> Vec<(Arc<NodeClaim>, Option<String>)> {
    let mut by_claim: BTreeMap<NodeClaimName, Vec<String>> = BTreeMap::new();
    for pod in state.unreadable_pods() {
        let node = pod.node_name.as_ref().and_then(|node| state.nodes.get(node));
        let provider_id = node.and_then(|node| node.model.provider_id.clone());
        for node_claim in provider_id.iter().flat_map(|id| state.node_claims_of_machine(id)) {
            let why = pod.unreadable.as_deref().unwrap_or_default();
            by_claim.entry(claim::name(node_claim).into()).or_default().push(format!("pod {}: {why}", pod.name));
        }
    }
    let claims = state.node_claims.iter().filter_map(|(name, node_claim)| {
        let is_said = is_false(claim::conditions(node_claim), PODS_READABLE);
        match by_claim.get(name) {
            Some(pods) => Some((Arc::clone(node_claim), Some(sentence(pods)))),
            None => is_said.then(|| (Arc::clone(node_claim), None)),
        }
    });
    claims.collect()
}

fn sentence(pods: &[String]) -> String {
    let named: Vec<&str> = pods.iter().take(NAMED).map(String::as_str).collect();
    match pods.len().saturating_sub(NAMED) {
        0 => named.join("; "),
        more => format!("{}; and {more} more", named.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controllers::node::devices_in_use::DevicesInUse;
    use crate::controllers::node::drain;
    use crate::world::store::ClusterStore;
    use crate::world::store::test_objects::condition;

    fn store(cpu: &str, readable: Option<&str>) -> ClusterStore {
        let store = ClusterStore::new();
        let said = readable.map(|status| condition(PODS_READABLE, status, "2026-01-01T00:00:00Z"));
        store.show_node_claim(json!({
            "metadata": {"name": "m"}, "status": {"providerID": "id-m", "conditions": Vec::from_iter(said)},
        }));
        store.show_node(json!({"metadata": {"name": "node"}, "spec": {"providerID": "id-m"}}));
        store.show_pod(json!({
            "metadata": {"namespace": "ns", "name": "a"},
            "spec": {"nodeName": "node", "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": "Running"},
        }));
        store
    }

    fn says(store: &ClusterStore) -> Vec<Option<String>> {
        wanted(&store.read()).into_iter().map(|(_, message)| message).collect()
    }

    #[test]
    fn the_node_claim_of_an_unreadable_pod_says_so_until_it_can_be_read() {
        let why = "pod ns/a: spec.containers[0].resources.requests[cpu]: ";
        let told = says(&store("much", None));
        assert!(matches!(told.as_slice(), [Some(message)] if message.starts_with(why)), "{told:?}");
        assert_eq!(says(&store("1", Some("False"))), [None]);
        assert!(says(&store("1", Some("True"))).is_empty() && says(&store("1", None)).is_empty());
    }

    #[test]
    fn a_node_with_an_unreadable_pod_is_not_drained_while_the_pod_is_there() {
        let (store, in_use, now) = (store("much", None), DevicesInUse::default(), model::Timestamp::default());
        let state = store.read();
        let pods = state.pods_on_node("node").map(AsRef::as_ref);
        let drain = drain::decide(pods, &in_use, None, &state.interner, now);
        assert_eq!((drain.remaining, drain.next.len()), (1, 1));
    }
}
