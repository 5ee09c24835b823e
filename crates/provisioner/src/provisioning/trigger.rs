//! Which changes of the cluster ask for a plan, and what they do to the pods that wait for a machine.

use std::sync::Arc;

use api::NodeClaim;
use model::{NamespacedName, NodeClaimName, Pod, Uid};

use super::batcher::{Batcher, Trigger};
use super::catalogues::readiness;
use super::snapshot::is_ours;
use crate::assignments::Assignments;
use crate::context::Context;
use crate::planned_pods;
use crate::store::{Change, Delta, Kind, State};

/// Triggers the batcher on changes from now on.
pub(super) fn subscribe(context: &Context, batcher: &Arc<Batcher>) {
    let (batcher, assignments) = (Arc::clone(batcher), Arc::clone(&context.assignments));
    context.store.on_change(move |change, state| {
        if let Some(trigger) = trigger(change, state, &assignments) {
            batcher.trigger(trigger);
        }
    });
}

/// What a change asks for.
fn trigger(change: &Change<'_>, state: &State, assignments: &Assignments) -> Option<Trigger> {
    let cluster = |asks: bool| asks.then_some(Trigger::Cluster);
    match change {
        Change::Pod(delta) => pod(delta, state, assignments),
        Change::Node(delta) => {
            cluster(delta.changed(|node| (node.model.deletion_timestamp.is_some(), node.model.unschedulable)))
        }
        // A machine that goes leaves its planned pods behind.
        Change::NodeClaim(delta) => cluster(
            delta.before.is_some()
                && delta.after.is_none_or(|claim| claim.metadata.deletion_timestamp.is_some())
                && delta.changed(|claim| claim.metadata.deletion_timestamp.is_some()),
        ),
        Change::NodePool(delta) => {
            cluster(delta.changed(|pool| pool.metadata.generation) || delta.changed(|pool| readiness(pool).is_ok()))
        }
        Change::NodeOverlay(delta) => cluster(delta.changed(|overlay| overlay.metadata.generation)),
        Change::NodeClass(delta) => cluster(delta.changed(|class| class.generation)),
        Change::DaemonSet(_) | Change::PodDisruptionBudget(_) => None,
        Change::CapacityBuffer(delta) => cluster(delta.changed(|buffer| buffer.metadata.generation)),
        Change::BufferTemplate(delta) => cluster(
            !state.capacity_buffers.is_empty()
                && delta.changed(|template| (template.replicas, Arc::clone(&template.template))),
        ),
        // Pods that wait may be spread otherwise now; a ReplicaSet that only counts its pods changes nothing.
        Change::PodSelector(delta) => cluster(
            delta.changed(|selector| selector.selects.clone())
                && state.unbound_pods().any(|pod| pod.name.namespace == delta.key.name.namespace && is_ours(pod)),
        ),
        Change::Other(kind) => match kind {
            Kind::PersistentVolumeClaim
            | Kind::PersistentVolume
            | Kind::StorageClass
            | Kind::DeviceClass
            | Kind::ResourceSlice
            | Kind::ResourceClaim
            | Kind::ResourceClaimTemplate
            | Kind::DeviceTaintRule
            | Kind::PodGroup => Some(Trigger::Cluster),
            Kind::Pod
            | Kind::Node
            | Kind::NodeClaim
            | Kind::NodePool
            | Kind::NodeOverlay
            | Kind::NodeClass
            | Kind::Namespace
            | Kind::DaemonSet
            | Kind::CsiNode
            | Kind::VolumeAttachment
            | Kind::PodDisruptionBudget
            | Kind::CapacityBuffer
            | Kind::BufferTemplate
            | Kind::PodSelector => None,
        },
    }
}

fn pod(delta: &Delta<'_, NamespacedName, Pod>, state: &State, assignments: &Assignments) -> Option<Trigger> {
    let after = delta.after?;
    if is_ours(after) {
        let is_new = delta.before.is_none_or(|pod| !is_ours(pod) || pod.shape != after.shape || pod.uid != after.uid);
        return is_new.then(|| Trigger::Pod(after.uid.clone()));
    }
    // A pod that the scheduler put elsewhere may have taken another's room.
    let was_bound = delta.before.is_none_or(|before| before.node_name.is_some());
    // And any pod may have taken that of a buffer.
    if !was_bound && after.node_name.is_some() && !state.capacity_buffers.is_empty() {
        return Some(Trigger::Cluster);
    }
    let planned = assignments.claim_of(&after.uid).filter(|_| !was_bound)?;
    (after.node_name.is_some() && claim_of_node(after, state).as_ref() != Some(&planned)).then_some(Trigger::Cluster)
}

/// The NodeClaim of the node that a pod is bound to.
fn claim_of_node(pod: &Pod, state: &State) -> Option<NodeClaimName> {
    let node = state.nodes.get(pod.node_name.as_ref()?.as_str())?;
    let provider_id = node.model.provider_id.as_ref()?;
    state.node_claims_by_provider_id.get(provider_id.as_str()).next().cloned()
}

/// Keeps the assignments from now on: brings those of each NodeClaim back from its annotation, unless they are known;
/// forgets pods that are bound or gone and NodeClaims that are gone.
pub(super) fn keep_assignments(context: &Context) {
    let assignments = Arc::clone(&context.assignments);
    context.store.on_change(move |change, state| match change {
        Change::Pod(delta) => {
            let bound_or_gone = delta.after.is_none_or(|pod| pod.node_name.is_some());
            if bound_or_gone && let Some(before) = delta.before {
                assignments.forget_pod(&before.uid);
            }
        }
        Change::NodeClaim(delta) => match (delta.before, delta.after) {
            (None, Some(claim)) => restore(delta.key, claim, state, &assignments),
            (_, None) => assignments.forget_claim(delta.key),
            (Some(_), Some(_)) => {}
        },
        Change::Node(_)
        | Change::NodePool(_)
        | Change::NodeOverlay(_)
        | Change::NodeClass(_)
        | Change::DaemonSet(_)
        | Change::PodDisruptionBudget(_)
        | Change::CapacityBuffer(_)
        | Change::BufferTemplate(_)
        | Change::PodSelector(_)
        | Change::Other(_) => {}
    });
    let state = context.store.read();
    for (name, claim) in state.node_claims.iter() {
        restore(name, claim, &state, &context.assignments);
    }
}

fn restore(name: &NodeClaimName, claim: &NodeClaim, state: &State, assignments: &Assignments) {
    let waits = |uid: &Uid| state.pod_by_uid(uid).is_some_and(|pod| pod.node_name.is_none());
    let planned = planned_pods::decode(claim.metadata.annotations.as_ref());
    assignments.restore(name, planned.into_iter().filter(waits));
}

#[cfg(test)]
mod tests {
    use decode::default_spread::{SelectorKind, pod_selector};
    use serde_json::{Value, json};

    use super::*;
    use crate::store::{ClusterStore, RawObject};
    use parking_lot::Mutex;
    use serde::Deserialize;

    /// The triggers of a sequence of states of one pod, with a machine `m` planned for it.
    fn triggers(states: &[(&str, Option<&str>)]) -> Vec<Trigger> {
        let store = ClusterStore::new();
        let assignments = Arc::new(Assignments::default());
        assignments.assign(&"m".into(), [Uid::from("uid")]);
        let seen = Arc::new(Mutex::new(Vec::new()));
        {
            let (seen, assignments) = (Arc::clone(&seen), Arc::clone(&assignments));
            store.on_change(move |change, state| seen.lock().extend(trigger(change, state, &assignments)));
        }
        for (revision, (reason, node)) in states.iter().enumerate() {
            let pod: Value = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"namespace": "default", "name": "a", "uid": "uid", "resourceVersion": (revision + 1).to_string()},
                "spec": {"schedulerName": "default-scheduler", "nodeName": node, "containers": [{"name": "a", "image": "a"}]},
                "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": reason}]},
            });
            let raw = RawObject::deserialize(pod).unwrap();
            store.apply_with(raw.revision(), |names| decode::pod(&raw.json, &mut decode::Context::new(names))).unwrap();
        }
        std::mem::take(&mut *seen.lock())
    }

    #[test]
    fn a_pod_triggers_when_the_scheduler_gives_up_on_it_and_not_again() {
        let pod = Trigger::Pod("uid".into());
        assert_eq!(triggers(&[("", None)]), []);
        assert_eq!(
            triggers(&[("", None), ("Unschedulable", None), ("Unschedulable", None)]),
            std::slice::from_ref(&pod)
        );
        assert_eq!(triggers(&[("SchedulingGated", None), ("Unschedulable", None)]), [pod]);
    }

    #[test]
    fn a_pod_bound_elsewhere_than_planned_asks_for_a_plan() {
        let pod = Trigger::Pod("uid".into());
        assert_eq!(triggers(&[("Unschedulable", None), ("Unschedulable", Some("n"))]), [pod, Trigger::Cluster]);
    }

    #[test]
    fn what_selects_pods_asks_for_a_plan_if_it_selects_otherwise_and_some_wait_there() {
        let store = ClusterStore::new();
        let (assignments, seen) = (Assignments::default(), Arc::new(Mutex::new(Vec::new())));
        let pod = json!({
            "metadata": {"namespace": "shop", "name": "a", "uid": "uid", "resourceVersion": "1"},
            "spec": {"containers": [{"name": "a"}]},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
        });
        let raw = RawObject::deserialize(pod).unwrap();
        store.apply_with(raw.revision(), |names| decode::pod(&raw.json, &mut decode::Context::new(names))).unwrap();
        {
            let seen = Arc::clone(&seen);
            store.on_change(move |change, state| seen.lock().extend(trigger(change, state, &assignments)));
        }
        let triggers = |namespace: &str, revision: u64, app: &str| {
            let set = RawObject::deserialize(json!({
                "metadata": {"namespace": namespace, "name": "web", "uid": "set", "resourceVersion": revision.to_string()},
                "spec": {"selector": {"matchLabels": {"app": app}}},
            }))
            .unwrap();
            let read = |names: &mut model::Interner| {
                pod_selector(&set.json, SelectorKind::ReplicaSet, &mut decode::Context::new(names))
            };
            store.apply_with(set.revision(), read).unwrap();
            std::mem::take(&mut *seen.lock())
        };
        assert_eq!(triggers("shop", 2, "web"), [Trigger::Cluster]);
        assert_eq!(triggers("shop", 3, "web"), [], "it has only counted its pods");
        assert_eq!(triggers("shop", 4, "other"), [Trigger::Cluster]);
        assert_eq!(triggers("quiet", 5, "web"), [], "no pod waits there");
    }
}
