//! Which changes of the cluster ask for a plan.

use std::sync::Arc;

use model::{Pod, Uid};

use super::batcher::{Batcher, Trigger};
use super::snapshot::is_ours;
use crate::context::Context;
use crate::planned_pods;
use crate::store::{Change, ClusterStore, Delta, Kind};

/// Triggers the batcher on changes from now on.
pub(super) fn subscribe(store: &ClusterStore, batcher: &Arc<Batcher>) {
    let batcher = Arc::clone(batcher);
    store.on_change(move |change, _| {
        if let Some(trigger) = trigger(change) {
            batcher.trigger(trigger);
        }
    });
}

/// What a change asks for. Changes that can only make room matter to pods that a plan refused; so do NodePools.
fn trigger(change: &Change<'_>) -> Option<Trigger> {
    match change {
        Change::Pod(delta) => pod(delta),
        Change::Node(delta) => (delta.changed(|node| node.model.deletion_timestamp.is_some())
            || delta.changed(|node| node.model.unschedulable))
        .then_some(Trigger::Cluster),
        // A machine that goes leaves its planned pods behind.
        Change::NodeClaim(delta) => delta
            .before
            .is_some_and(|_| delta.after.is_none_or(|claim| claim.metadata.deletion_timestamp.is_some()))
            .then_some(Trigger::Cluster),
        Change::NodePool(delta) => (delta.changed(|pool| pool.spec.clone())
            || delta.changed(|pool| super::catalogues::readiness(pool).is_ok()))
        .then_some(Trigger::Cluster),
        Change::NodeClass(delta) => delta.changed(|class| class.generation).then_some(Trigger::Cluster),
        Change::DaemonSet(_) | Change::PodDisruptionBudget(_) => None,
        Change::Other(kind) => match kind {
            Kind::PersistentVolumeClaim | Kind::PersistentVolume | Kind::StorageClass => Some(Trigger::Cluster),
            Kind::Pod
            | Kind::Node
            | Kind::NodeClaim
            | Kind::NodePool
            | Kind::NodeClass
            | Kind::Namespace
            | Kind::DaemonSet
            | Kind::CsiNode
            | Kind::VolumeAttachment
            | Kind::PodDisruptionBudget => None,
        },
    }
}

fn pod(delta: &Delta<'_, model::NamespacedName, Pod>) -> Option<Trigger> {
    let after = delta.after.filter(|pod| is_ours(pod))?;
    let is_new = delta.before.is_none_or(|pod| !is_ours(pod) || pod.shape != after.shape || pod.uid != after.uid);
    is_new.then(|| Trigger::Pod(after.uid.clone()))
}

/// Brings back which pods each machine was launched for, from the NodeClaims' annotations; and forgets pods that are
/// bound or gone and claims that are gone, from now on.
pub(super) fn restore_assignments(context: &Context) {
    let assignments = Arc::clone(&context.assignments);
    context.store.on_change(move |change, _| match change {
        Change::Pod(delta) => {
            let bound_or_gone = delta.after.is_none_or(|pod| pod.node_name.is_some());
            if bound_or_gone && let Some(before) = delta.before {
                assignments.forget_pod(&before.uid);
            }
        }
        Change::NodeClaim(delta) if delta.after.is_none() => assignments.forget_claim(delta.key),
        Change::NodeClaim(_)
        | Change::Node(_)
        | Change::NodePool(_)
        | Change::NodeClass(_)
        | Change::DaemonSet(_)
        | Change::PodDisruptionBudget(_)
        | Change::Other(_) => {}
    });
    let state = context.store.read();
    for (name, claim) in state.node_claims.iter() {
        if context.assignments.knows(name) {
            continue;
        }
        let waiting = |uid: &Uid| state.pod_by_uid(uid).is_some_and(|pod| pod.node_name.is_none());
        let pods: Vec<Uid> =
            planned_pods::decode(claim.metadata.annotations.as_ref()).into_iter().filter(waiting).collect();
        if !pods.is_empty() {
            context.assignments.assign(name, pods);
        }
    }
}
