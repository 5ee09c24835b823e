//! What the binding of pods does to the places of those that still wait.

use std::sync::Arc;

use api::NodeClaim;
use model::collections::NameMap;
use model::{NodeClaimName, Pod, Uid};
use scheduling::plan::Plan;
use scheduling::snapshot::Snapshot;

use super::trigger::claim_of_node;
use crate::world::assignments::Assignments;
use crate::world::planned_pods;
use crate::world::store::{ClusterStore, State};

/// Keeps the assignments from now on: brings those of each NodeClaim back from its annotation, unless they are known;
/// exchanges pods of one class; forgets pods that are bound or gone and NodeClaims that are gone.
pub(super) fn keep_assignments(store: &ClusterStore, assignments: &Arc<Assignments>) {
    let kept = Arc::clone(assignments);
    store.on::<Pod>(move |delta, state| {
        if let Some(pod) = delta.after.filter(|pod| pod.node_name.is_some()) {
            // With its node the API server gives a pod labels that those which still wait have not (KEP-4742).
            exchange(delta.before.unwrap_or(pod), pod, state, &kept);
        }
        let bound_or_gone = delta.after.is_none_or(|pod| pod.node_name.is_some());
        if bound_or_gone && let Some(before) = delta.before {
            kept.forget_pod(&before.uid);
        }
    });
    let kept = Arc::clone(assignments);
    store.on::<NodeClaim>(move |delta, state| match (delta.before, delta.after) {
        (None, Some(claim)) => restore(delta.key, claim, state, &kept),
        (_, None) => kept.forget_claim(delta.key),
        (Some(_), Some(_)) => {}
    });
    let state = store.read();
    for (name, claim) in state.node_claims.iter() {
        restore(name, claim, &state, assignments);
    }
}

/// Where a pod, which is known as it was `before`, took the place of another of its class, that one takes its.
///
/// A place on a machine that is open is anybody's: kube-scheduler gives it to whichever of them it looks at first.
fn exchange(before: &Pod, bound: &Pod, state: &State, assignments: &Assignments) {
    let waits = |uid: &Uid| state.pod_by_uid(uid).filter(|pod| pod.node_name.is_none()).map(|pod| &**pod);
    exchange_with(before, bound, state, assignments, waits);
}

/// [`exchange`], with who can have lost its place, as it was when it got it.
fn exchange_with<'a>(
    before: &Pod,
    bound: &Pod,
    state: &State,
    assignments: &Assignments,
    without_place: impl Fn(&Uid) -> Option<&'a Pod>,
) {
    if !assignments.is_planned(&bound.uid) {
        return;
    }
    let planned = assignments.claim_of(&bound.uid);
    let Some(taken) = claim_of_node(bound, state).filter(|taken| planned.as_ref() != Some(taken)) else { return };
    let assigned = assignments.pods_of(&taken);
    let left_over = assigned.iter().find(|uid| without_place(uid).is_some_and(|pod| pod.is_alike(before)));
    if let Some(left_over) = left_over {
        assignments.exchange(&bound.uid, left_over);
    }
}

/// Catches up with what was bound since the snapshot, once the plan's places are known: when it was, nobody knew yet
/// what those pods were planned for.
pub(super) fn catch_up(state: &State, assignments: &Assignments, snapshot: &Snapshot, plan: &Plan) {
    let on_machines = plan.machines.iter().flat_map(|machine| &machine.pods);
    let on_existing = plan.existing.iter().flat_map(|placement| &placement.pods);
    let planned: NameMap<&Uid, &Pod> =
        on_machines.chain(on_existing).map(|&id| &*snapshot.pods[id].pod).map(|pod| (&pod.uid, pod)).collect();
    let node_of = |uid: &Uid| state.pod_by_uid(uid).and_then(|pod| pod.node_name.as_ref());
    // Whoever has another's place may have lost its own to a third.
    let mut bound: Vec<&Pod> = planned.values().copied().filter(|pod| node_of(&pod.uid).is_some()).collect();
    bound.sort_by(|one, other| one.uid.cmp(&other.uid));
    for before in bound {
        let Some(bound) = state.pod_by_uid(&before.uid) else { continue };
        let without_place = |uid: &Uid| {
            let is_there = || node_of(uid) == bound.node_name.as_ref();
            planned.get(uid).copied().filter(|_| !is_there())
        };
        exchange_with(before, bound, state, assignments, without_place);
    }
    for uid in planned.keys().filter(|uid| state.pod_by_uid(uid).is_none_or(|pod| pod.node_name.is_some())) {
        assignments.forget_pod(uid);
    }
}

fn restore(name: &NodeClaimName, claim: &NodeClaim, state: &State, assignments: &Assignments) {
    let waits = |uid: &Uid| state.pod_by_uid(uid).is_some_and(|pod| pod.node_name.is_none());
    let annotations = claim.metadata.annotations.as_ref();
    let stages = planned_pods::decode_stages(annotations).into_iter();
    assignments.restore_stages(stages.filter(|(pod, _)| waits(pod)));
    assignments.restore(name, planned_pods::decode(annotations).into_iter().filter(waits));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `first` was planned into room on the open machine `m`, `second` for a machine of its own, whose NodeClaim may
    /// still be being created.
    #[test]
    fn a_pod_whose_place_another_of_its_class_took_takes_the_other_ones() {
        for (app_of_second, second_has, is_promised, expected) in [
            ("web", "m", false, Some("own")),
            ("db", "m", false, Some("m")),
            ("web", "own", false, Some("m")),
            ("web", "m", true, None),
            ("db", "m", true, Some("m")),
        ] {
            let (store, assignments) = (ClusterStore::new(), Arc::new(Assignments::default()));
            keep_assignments(&store, &assignments);
            for name in ["m", "own"] {
                store.show_node_claim(json!({"metadata": {"name": name}, "status": {"providerID": name}}));
                store.show_node(json!({"metadata": {"name": name}, "spec": {"providerID": name}}));
            }
            let show = |name: &str, app: &str, node: Option<&str>| {
                let labels = match node {
                    Some(_) => json!({"app": app, "topology.kubernetes.io/zone": "a"}),
                    None => json!({"app": app}),
                };
                store.show_pod(json!({
                    "metadata": {"name": name, "labels": labels},
                    "spec": {"nodeName": node},
                    "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
                }));
            };
            show("first", "web", None);
            show("second", app_of_second, None);
            assignments.assign(&"m".into(), [Uid::from("first")]);
            let promise = is_promised.then(|| assignments.promise([vec![Uid::from("second")]]));
            if !is_promised {
                assignments.assign(&"own".into(), [Uid::from("second")]);
            }
            show("second", app_of_second, Some(second_has));
            let (first, second) = (assignments.claim_of(&"first".into()), assignments.claim_of(&"second".into()));
            assert_eq!((first.as_deref(), second), (expected, None), "{app_of_second} {second_has} {is_promised}");
            let promised = assignments.awaited_by_pod().promised;
            let first_is_promised = promised.contains_key(&Uid::from("first"));
            assert_eq!(first_is_promised, expected.is_none(), "{app_of_second} {second_has}");
            assert!(!promised.contains_key(&Uid::from("second")), "it is bound");
            drop(promise);
        }
    }
}
