//! Brings annotations up to date when a later plan puts more pods on a NodeClaim that is under way: the one with the
//! planned pods, so that a restart does not lose them, and the one with the drivers whose devices they claim, so that
//! its machine waits for these too.
//!
//! Best effort and in the background: what is not written now is written with the next plan. Pods that run there by now
//! are not taken out, so that the annotation tells what the machine was planned for; whoever restores plans from it
//! leaves them aside. Nor are pods that run on machines which go: the machine may be to take their place.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{NodeClaim, annotations};
use futures::StreamExt;
use kube::api::{Api, Patch, PatchParams};
use model::{NodeClaimName, Uid};
use scheduling::plan::Plan;
use scheduling::snapshot::Snapshot;
use serde_json::json;
use tracing::debug;

use crate::runtime::failures::cause_in_words;
use crate::world::assignments::Assignments;
use crate::world::claim;
use crate::world::context::Context;
use crate::world::leaving;
use crate::world::machine_devices;
use crate::world::planned_pods;
use crate::world::store::{Revision, State};

/// Annotations written after one plan; the next plan writes what is left.
const MAX_WRITES: usize = 200;
/// Annotations being written at the same time.
const PARALLEL_WRITES: usize = 8;

/// Annotations that do not name all pods that wait for the NodeClaim, or not all drivers that it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Outdated {
    name: NodeClaimName,
    uid: String,
    /// By key, what they should say.
    annotations: BTreeMap<&'static str, String>,
}

/// Writes what the annotations of the plan's NodeClaims lack.
pub(super) fn write(context: &Context, snapshot: &Snapshot, plan: &Plan) {
    let outdated: Vec<Outdated> = {
        let state = context.store.read();
        let claims = plan.existing.iter().filter_map(|placement| {
            let name = snapshot.nodes[placement.node].node_claim.as_ref()?;
            outdated(&state, &context.assignments, name, &placement.drivers)
        });
        claims.take(MAX_WRITES).collect()
    };
    if outdated.is_empty() {
        return;
    }
    let (api, store) = (Api::<NodeClaim>::all(context.client.clone()), Arc::clone(&context.store));
    context.in_background("write of planned pods", async move {
        let writing = outdated.into_iter().map(|Outdated { name, uid, annotations }| {
            let api = api.clone();
            async move {
                let patch = json!({"metadata": {"uid": uid, "annotations": annotations}});
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
                Err(error) => {
                    debug!(
                        node_claim = %name,
                        error = cause_in_words(&error),
                        "could not write the pods planned for a nodeclaim, trying later"
                    );
                }
            }
        }
    });
}

/// What the NodeClaim's annotations should say, if they lack a pod that they could name, or one of these drivers.
fn outdated(state: &State, assignments: &Assignments, name: &NodeClaimName, drivers: &[Arc<str>]) -> Option<Outdated> {
    let node_claim = state.node_claims.get(name).filter(|claim| claim.metadata.deletion_timestamp.is_none())?;
    let pods = lacking_pods(state, assignments, name, node_claim).map(|value| (planned_pods::ANNOTATION, value));
    let drivers = machine_devices::with_requested(node_claim, drivers.iter().map(|driver| &**driver));
    let drivers = drivers.map(|value| (annotations::REQUESTED_DRA_DRIVERS, value));
    let annotations: BTreeMap<&'static str, String> = pods.into_iter().chain(drivers).collect();
    (!annotations.is_empty()).then(|| Outdated {
        name: name.clone(),
        uid: node_claim.metadata.uid.clone().unwrap_or_default(),
        annotations,
    })
}

/// The planned pods as the annotation should have them, if it lacks one that it could name.
fn lacking_pods(
    state: &State,
    assignments: &Assignments,
    name: &NodeClaimName,
    node_claim: &NodeClaim,
) -> Option<String> {
    let waiting = assignments.pods_of(name);
    let noted = planned_pods::decode(node_claim.metadata.annotations.as_ref());
    // Those that wait come first: if the annotation cannot hold all, they are the ones that a restart must not lose.
    let node = claim::node(state, node_claim);
    let runs_there = |uid: &Uid| {
        node.is_some_and(|node| {
            state.pod_by_uid(uid).is_some_and(|pod| pod.node_name.as_ref() == Some(&node.model.name))
        })
    };
    let leaves = |uid: &Uid| state.pod_by_uid(uid).is_some_and(|pod| leaving::may_leave(state, pod));
    let are_to_come = noted.iter().filter(|uid| !runs_there(uid) && leaves(uid));
    let have_come = noted.iter().filter(|uid| runs_there(uid));
    let value = planned_pods::encode(waiting.iter().chain(are_to_come).chain(have_come), &assignments.stages())?;
    let wanted = planned_pods::decode_value(&value);
    let lacks_some = wanted.iter().any(|pod| !noted.contains(pod));
    lacks_some.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::store::ClusterStore;

    fn store(annotation: Option<&str>) -> ClusterStore {
        let store = ClusterStore::new();
        let annotations = annotation.map(|value| json!({planned_pods::ANNOTATION: value}));
        store.show_node_claim(json!({
            "metadata": {"name": "m", "uid": "claim-uid", "annotations": annotations},
            "status": {"providerID": "id-m"},
        }));
        store
    }

    fn lacking(annotation: Option<&str>, waiting: &[&str]) -> Option<String> {
        let assignments = Assignments::default();
        assignments.assign(&"m".into(), waiting.iter().map(|pod| Uid::from(*pod)));
        let outdated = outdated(&store(annotation).read(), &assignments, &"m".into(), &[])?;
        assert_eq!((outdated.name.as_str(), outdated.uid.as_str()), ("m", "claim-uid"));
        outdated.annotations.get(planned_pods::ANNOTATION).cloned()
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
    fn pods_that_run_on_the_machine_stay_in_its_annotation() {
        let store = store(Some("here,elsewhere,gone"));
        store.show_node(json!({"metadata": {"name": "node"}, "spec": {"providerID": "id-m"}}));
        for (name, node) in [("here", "node"), ("elsewhere", "another")] {
            store.show_pod(json!({"metadata": {"name": name}, "spec": {"nodeName": node}}));
        }
        let assignments = Assignments::default();
        assignments.assign(&"m".into(), [Uid::from("new")]);
        let outdated = outdated(&store.read(), &assignments, &"m".into(), &[]).unwrap();
        assert_eq!(outdated.annotations, BTreeMap::from([(planned_pods::ANNOTATION, "new,here".to_owned())]));
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
        assert_eq!(outdated(&store(None).read(), &assignments, &"other".into(), &["gpu.example.com".into()]), None);
    }

    #[test]
    fn a_claim_learns_of_the_drivers_that_later_pods_claim() {
        let assignments = Assignments::default();
        assignments.assign(&"m".into(), [Uid::from("a")]);
        let drivers = ["gpu.example.com".into(), "nic.example.com".into()];
        let outdated = outdated(&store(Some("a")).read(), &assignments, &"m".into(), &drivers).unwrap();
        let expected = (annotations::REQUESTED_DRA_DRIVERS, "gpu.example.com,nic.example.com".to_owned());
        assert_eq!(outdated.annotations, BTreeMap::from([expected]));
    }
}
