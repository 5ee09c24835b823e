//! Brings the annotation with the planned pods up to date when a later plan puts more pods on a NodeClaim that is under
//! way, so that a restart does not lose them.
//!
//! Best effort and in the background: what is not written now is written with the next plan. Pods that have been bound are
//! not taken out; whoever reads the annotation leaves them aside.

use std::sync::Arc;

use api::NodeClaim;
use futures::StreamExt;
use kube::api::{Api, Patch, PatchParams};
use model::NodeClaimName;
use scheduling::plan::Plan;
use scheduling::snapshot::Snapshot;
use serde_json::json;
use tracing::debug;

use crate::assignments::Assignments;
use crate::context::Context;
use crate::planned_pods;
use crate::store::{Revision, State};

/// Annotations written after one plan; the next plan writes what is left.
const MAX_WRITES: usize = 200;
/// Annotations being written at the same time.
const PARALLEL_WRITES: usize = 8;

/// An annotation that does not name all pods that wait for the NodeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Outdated {
    name: NodeClaimName,
    uid: String,
    value: String,
}

/// Writes what the annotations of the plan's NodeClaims lack.
pub(super) fn write(context: &Context, snapshot: &Snapshot, plan: &Plan) {
    let outdated: Vec<Outdated> = {
        let state = context.store.read();
        let claims = plan.existing.iter().filter_map(|placement| snapshot.nodes[placement.node].node_claim.as_ref());
        claims.filter_map(|name| outdated(&state, &context.assignments, name)).take(MAX_WRITES).collect()
    };
    if outdated.is_empty() {
        return;
    }
    let (api, store) = (Api::<NodeClaim>::all(context.client.clone()), Arc::clone(&context.store));
    tokio::spawn(async move {
        let writing = outdated.into_iter().map(|Outdated { name, uid, value }| {
            let api = api.clone();
            async move {
                let patch = json!({"metadata": {"uid": uid, "annotations": {planned_pods::ANNOTATION: value}}});
                (api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await, name)
            }
        });
        let mut answers = futures::stream::iter(writing).buffer_unordered(PARALLEL_WRITES);
        while let Some((answer, name)) = answers.next().await {
            match answer {
                Ok(written) => {
                    let revision = Revision::of(&written.metadata);
                    store.apply(written, revision);
                }
                Err(error) => debug!(nodeclaim = %name, %error, "could not note which pods wait for a nodeclaim"),
            }
        }
    });
}

/// What the NodeClaim's annotation should say, if it lacks a pod that it could name.
fn outdated(state: &State, assignments: &Assignments, name: &NodeClaimName) -> Option<Outdated> {
    let claim = state.node_claims.get(name).filter(|claim| claim.metadata.deletion_timestamp.is_none())?;
    let value = planned_pods::encode(assignments.pods_of(name).iter())?;
    let noted = planned_pods::decode(claim.metadata.annotations.as_ref());
    let wanted = planned_pods::decode_value(&value);
    let lacks_some = wanted.iter().any(|pod| !noted.contains(pod));
    lacks_some.then(|| Outdated { name: name.clone(), uid: claim.metadata.uid.clone().unwrap_or_default(), value })
}

#[cfg(test)]
mod tests {
    use model::Uid;

    use super::*;
    use crate::store::ClusterStore;

    fn store(annotation: Option<&str>) -> ClusterStore {
        let store = ClusterStore::new();
        let annotations = annotation.map(|value| json!({planned_pods::ANNOTATION: value}));
        let claim: NodeClaim = serde_json::from_value(json!({
            "metadata": {"name": "m", "uid": "claim-uid", "resourceVersion": "1", "annotations": annotations},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
        }))
        .unwrap();
        let revision = Revision::of(&claim.metadata);
        store.apply(claim, revision);
        store
    }

    fn lacking(annotation: Option<&str>, waiting: &[&str]) -> Option<String> {
        let assignments = Assignments::default();
        assignments.assign(&"m".into(), waiting.iter().map(|pod| Uid::from(*pod)));
        let outdated = outdated(&store(annotation).read(), &assignments, &"m".into())?;
        assert_eq!((outdated.name.as_str(), outdated.uid.as_str()), ("m", "claim-uid"));
        Some(outdated.value)
    }

    #[test]
    fn an_annotation_is_written_when_it_lacks_a_pod_and_only_then() {
        assert_eq!(lacking(Some("a,b"), &["a", "b", "c"]).as_deref(), Some("a,b,c"));
        assert_eq!(lacking(None, &["a"]).as_deref(), Some("a"));
        assert_eq!(lacking(Some("a,b"), &["b", "a"]), None, "the order alone is not worth a write");
        assert_eq!(lacking(Some("a,b"), &["b"]), None, "nor is a pod that has been bound");
        assert_eq!(lacking(Some("a"), &[]), None);
        assert_eq!(lacking(Some("a,b"), &["c"]).as_deref(), Some("c"));
    }

    #[test]
    fn pods_beyond_what_the_annotation_can_hold_do_not_make_it_be_written_again_and_again() {
        let pods: Vec<String> = (0..1000).map(|index| format!("{index:036}")).collect();
        let names: Vec<&str> = pods.iter().map(String::as_str).collect();
        let written = lacking(None, &names).unwrap();
        assert_eq!(lacking(Some(&written), &names), None);
    }

    #[test]
    fn a_claim_that_is_gone_gets_no_annotation() {
        let assignments = Assignments::default();
        assignments.assign(&"other".into(), [Uid::from("a")]);
        assert_eq!(outdated(&store(None).read(), &assignments, &"other".into()), None);
    }
}
