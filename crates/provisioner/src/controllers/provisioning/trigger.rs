//! Which changes of the cluster ask for a plan, and what they do to the pods that wait for a machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{CapacityBuffer, NodeClaim, NodeOverlay, NodePool};
use decode::capacity_buffer::BufferTemplate;
use decode::pod_selectors::PodSelector;
use model::{NamespacedName, NodeClaimName, Pod, Uid};
use parking_lot::Mutex;
use scheduling::snapshot::pending::{is_provisionable, is_untried};

use super::batcher::{Batcher, Trigger};
use crate::world::assignments::Assignments;
use crate::world::context::Context;
use crate::world::store::{ClusterStore, Delta, Kind, NodeClass, NodeRecord, State, Stored};
use cluster::node_pool::readiness;

/// Kinds of which any change may let a pod be placed otherwise.
const ANY_CHANGE: [Kind; 9] = [
    Kind::PersistentVolumeClaim,
    Kind::PersistentVolume,
    Kind::StorageClass,
    Kind::DeviceClass,
    Kind::ResourceSlice,
    Kind::ResourceClaim,
    Kind::ResourceClaimTemplate,
    Kind::DeviceTaintRule,
    Kind::PodGroup,
];

/// Triggers the batcher on changes from now on.
pub(super) fn subscribe(context: &Context, batcher: &Arc<Batcher>) {
    let siblings = Mutex::new(Siblings::default());
    let told = Arc::clone(batcher);
    let assignments = Arc::clone(&context.assignments);
    context.store.on::<Pod>(move |delta, state| {
        let by_sibling = siblings.lock().trigger(delta);
        if let Some(trigger) = by_sibling.or_else(|| pod(delta, state, &assignments)) {
            told.trigger(trigger);
        }
    });
    let batcher = Arc::clone(batcher);
    subscribe_to_cluster(&context.store, move || batcher.trigger(Trigger::Cluster));
}

/// Calls `trigger` when something else than a pod changes so that pods may be placed otherwise.
fn subscribe_to_cluster(store: &ClusterStore, trigger: impl Fn() + Clone + Send + Sync + 'static) {
    /// Calls `trigger` for the changes of a kind that matter.
    fn when<T: Stored>(
        store: &ClusterStore,
        trigger: &(impl Fn() + Clone + Send + Sync + 'static),
        matters: impl Fn(&Delta<'_, T::Key, T>, &State) -> bool + Send + Sync + 'static,
    ) {
        let trigger = trigger.clone();
        store.on::<T>(move |delta, state| {
            if matters(delta, state) {
                trigger();
            }
        });
    }
    when::<NodeRecord>(store, &trigger, |delta, _| {
        delta.changed(|node| (node.model.deletion_timestamp.is_some(), node.model.unschedulable))
    });
    // A machine that goes leaves its planned pods behind.
    when::<NodeClaim>(store, &trigger, |delta, _| {
        delta.before.is_some()
            && delta.after.is_none_or(|claim| claim.metadata.deletion_timestamp.is_some())
            && delta.changed(|claim| claim.metadata.deletion_timestamp.is_some())
    });
    when::<NodePool>(store, &trigger, |delta, _| {
        delta.changed(|pool| pool.metadata.generation) || delta.changed(|pool| readiness(pool).is_ok())
    });
    when::<NodeOverlay>(store, &trigger, |delta, _| delta.changed(|overlay| overlay.metadata.generation));
    when::<NodeClass>(store, &trigger, |delta, _| delta.changed(|class| class.generation));
    when::<CapacityBuffer>(store, &trigger, |delta, _| delta.changed(|buffer| buffer.metadata.generation));
    when::<BufferTemplate>(store, &trigger, |delta, state| {
        !state.capacity_buffers.is_empty()
            && delta.changed(|it| (it.replicas, Arc::clone(&it.template), it.devices.clone()))
    });
    // Pods that wait may be spread otherwise now; a ReplicaSet that only counts its pods changes nothing.
    when::<PodSelector>(store, &trigger, |delta, state| {
        delta.changed(|selector| selector.selects.clone())
            && state.unbound_pods().any(|pod| pod.name.namespace == delta.key.name.namespace && is_provisionable(pod))
    });
    store.on_any_of(&ANY_CHANGE, move |_, _| trigger());
}

/// What a pod's change asks for.
fn pod(delta: &Delta<'_, NamespacedName, Pod>, state: &State, assignments: &Assignments) -> Option<Trigger> {
    let after = delta.after?;
    if is_provisionable(after) {
        let is_new =
            delta.before.is_none_or(|pod| !is_provisionable(pod) || pod.shape != after.shape || pod.uid != after.uid);
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

/// Pods that kube-scheduler has given up on: one of each controller, because those that it makes after that are planned
/// without being tried.
#[derive(Debug, Default)]
struct Siblings(BTreeMap<Uid, Arc<Pod>>);

impl Siblings {
    /// Beyond that all are forgotten: then the window does not wait for pods that were not tried.
    const MOST: usize = 10_000;

    /// What else than any pod's a pod's change asks for. One that was not tried and need not be asks for a plan; when
    /// the scheduler gives up on it too, that is no news that others are to be waited for.
    fn trigger(&mut self, delta: &Delta<'_, NamespacedName, Pod>) -> Option<Trigger> {
        let pod = delta.after?;
        let is_ours = is_provisionable(pod);
        // Most changes are of pods that run; those need not be compared.
        if !is_ours && (delta.before.is_some() || !is_untried(pod)) {
            return None;
        }
        let owner = &pod.owner.as_ref()?.uid;
        let is_known = self.0.get(owner).is_some_and(|known| known.is_alike(pod));
        if !is_ours {
            return is_known.then(|| Trigger::Pod(pod.uid.clone()));
        }
        if is_known {
            return delta.before.is_some_and(|before| is_untried(before)).then_some(Trigger::Cluster);
        }
        if self.0.len() == Self::MOST {
            self.0.clear();
        }
        self.0.insert(owner.clone(), Arc::clone(pod));
        None
    }
}

/// The NodeClaim of the node that a pod is bound to.
pub(super) fn claim_of_node(pod: &Pod, state: &State) -> Option<NodeClaimName> {
    let node = state.nodes.get(pod.node_name.as_ref()?.as_str())?;
    let provider_id = node.model.provider_id.as_ref()?;
    state.node_claims_by_provider_id.get(provider_id.as_str()).next().cloned()
}

#[cfg(test)]
mod tests {
    use decode::pod_selectors::{SelectorKind, pod_selector};
    use serde_json::json;

    use super::*;
    use crate::world::store::test_objects::controlled_by;

    /// The triggers of a sequence of states of one pod, with a machine `m` planned for it.
    fn triggers(states: &[(&str, Option<&str>)]) -> Vec<Trigger> {
        let store = ClusterStore::new();
        let assignments = Arc::new(Assignments::default());
        assignments.assign(&"m".into(), [Uid::from("uid")]);
        let seen = Arc::new(Mutex::new(Vec::new()));
        {
            let (seen, assignments) = (Arc::clone(&seen), Arc::clone(&assignments));
            store.on::<Pod>(move |delta, state| seen.lock().extend(pod(delta, state, &assignments)));
        }
        for (reason, node) in states {
            store.show_pod(json!({
                "metadata": {"name": "a", "uid": "uid"},
                "spec": {"nodeName": node},
                "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": reason}]},
            }));
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
    fn a_pod_that_was_not_tried_triggers_if_one_like_it_of_the_same_controller_was_given_up() {
        let store = ClusterStore::new();
        let seen = Arc::new(Mutex::new(Vec::new()));
        {
            let (seen, siblings) = (Arc::clone(&seen), Mutex::new(Siblings::default()));
            store.on::<Pod>(move |delta, _| seen.lock().extend(siblings.lock().trigger(delta)));
        }
        let triggers = |name: &str, owner: &str, cpu: &str, reason: Option<&str>| {
            store.show_pod(json!({
                "metadata": {"name": name, "ownerReferences": controlled_by("ReplicaSet", owner)},
                "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]},
                "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": reason}]},
            }));
            std::mem::take(&mut *seen.lock())
        };
        assert_eq!(triggers("a", "web", "1", None), [], "nothing is known of its siblings");
        assert_eq!(triggers("b", "web", "1", Some("Unschedulable")), [], "that is not the siblings' business");
        assert_eq!(triggers("c", "web", "1", None), [Trigger::Pod("c".into())]);
        assert_eq!(triggers("a", "web", "1", Some("Unschedulable")), [Trigger::Cluster], "one for all of them");
        assert_eq!(triggers("d", "web", "2", None), [], "of another shape");
        assert_eq!(triggers("e", "db", "1", None), [], "of another controller");
        assert_eq!(triggers("f", "web", "1", Some("SchedulingGated")), []);
    }

    #[test]
    fn what_selects_pods_asks_for_a_plan_if_it_selects_otherwise_and_some_wait_there() {
        let store = ClusterStore::new();
        let seen = Arc::new(Mutex::new(Vec::new()));
        store.show_pod(json!({
            "metadata": {"namespace": "shop", "name": "a"},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
        }));
        {
            let seen = Arc::clone(&seen);
            subscribe_to_cluster(&store, move || seen.lock().push(Trigger::Cluster));
        }
        let triggers = |namespace: &str, revision: u64, app: &str| {
            let set = json!({
                "metadata": {"namespace": namespace, "name": "web", "uid": "set", "resourceVersion": revision.to_string()},
                "spec": {"selector": {"matchLabels": {"app": app}}},
            });
            store.apply_json(set, |set, context| pod_selector(set, SelectorKind::ReplicaSet, context));
            std::mem::take(&mut *seen.lock())
        };
        assert_eq!(triggers("shop", 2, "web"), [Trigger::Cluster]);
        assert_eq!(triggers("shop", 3, "web"), [], "it has only counted its pods");
        assert_eq!(triggers("shop", 4, "other"), [Trigger::Cluster]);
        assert_eq!(triggers("quiet", 5, "web"), [], "no pod waits there");
    }
}
