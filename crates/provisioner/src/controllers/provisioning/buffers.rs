//! CapacityBuffers: what their status says of the room that they ask for.
//!
//! The store has buffers, and what they may name, only while the feature gate `CapacityBuffer` is on. Each round plans
//! the room of all buffers that are understood, and writes into every buffer's status what it comes to. A status is
//! written if it changes; one that cannot be written is written by the next round.

use std::sync::Arc;

use api::conditions::capacity_buffer::{
    BUFFER_EMPTY, FITS_EXISTING_CAPACITY, NOT_READY_FOR_PROVISIONING, PROVISIONING, READY_FOR_PROVISIONING,
    REQUIRES_NEW_CAPACITY, RESOLVED,
};
use api::{CapacityBuffer, capacity_buffer};
use cluster::buffers::buffer_name;
use decode::capacity_buffer::TemplateKind;
use futures::StreamExt;
use kube::api::Api;
use model::{NamespacedName, Timestamp};
use scheduling::plan::{BufferRoom, Plan};
use scheduling::snapshot::Snapshot;
use tracing::debug;

use crate::runtime::conditions::ConditionSet;
use crate::runtime::failures::in_words;
use crate::runtime::metrics::{BufferLabels, Metrics};
use crate::runtime::patch::{self, Lock};
use crate::world::buffers::Asked;
use crate::world::context::Context;
use crate::world::store::Revision;

/// Statuses being written at the same time.
const PARALLEL_WRITES: usize = 8;

/// Shows where the room is.
pub(crate) fn observe(metrics: &Metrics, snapshot: &Snapshot, plan: &Plan) {
    metrics.capacity_buffer_pods.clear();
    for (buffer, room) in snapshot.buffers.iter().zip(&plan.buffers) {
        for (state, pods) in [("existing", room.on_existing()), ("new", room.on_new()), ("missing", room.missing)] {
            let NamespacedName { namespace, name } = &buffer.name;
            let labels =
                BufferLabels { namespace: namespace.to_string(), name: name.to_string(), state: state.to_owned() };
            metrics.capacity_buffer_pods.get_or_create(&labels).set(i64::from(pods));
        }
    }
}

/// Writes the statuses that have changed.
pub(crate) async fn write(context: &Context, asked: &[Asked], snapshot: &Snapshot, plan: &Plan) {
    let now = context.clock.now();
    let mut writes = Vec::new();
    for asked in asked {
        let position = snapshot.buffers.iter().position(|buffer| buffer.name == buffer_name(&asked.object));
        let room = position.and_then(|position| plan.buffers.get(position));
        let after = with_status(asked, room, now);
        if *asked.object == after {
            continue;
        }
        let (client, before) = (context.client.clone(), Arc::clone(&asked.object));
        writes.push(async move {
            let namespace = before.metadata.namespace.as_deref().unwrap_or_default();
            let api = Api::<CapacityBuffer>::namespaced(client, namespace);
            (patch::status(&api, &*before, &after, Lock::Revision).await, buffer_name(&before))
        });
    }
    let mut answers = futures::stream::iter(writes).buffer_unordered(PARALLEL_WRITES);
    while let Some((answer, buffer)) = answers.next().await {
        match answer {
            Ok(Some(written)) => {
                let revision = Revision::of(&written.metadata);
                context.store.apply(written, revision);
            }
            Ok(None) => {}
            Err(error) => debug!(
                capacity_buffer = %buffer,
                error = in_words(&error),
                "could not write the status of a capacity buffer"
            ),
        }
    }
}

/// The buffer with what there is to say of it. `room` is there if it was planned.
fn with_status(asked: &Asked, room: Option<&BufferRoom>, now: Timestamp) -> CapacityBuffer {
    let mut after = (*asked.object).clone();
    let status = after.status.get_or_insert_default();
    let strategy = asked.object.spec.provisioning_strategy.as_deref();
    status.provisioning_strategy = Some(strategy.unwrap_or(capacity_buffer::ACTIVE_CAPACITY).to_owned());
    let mut conditions = ConditionSet::without_ready(&mut status.conditions, &after.metadata, now);
    match &asked.resolved {
        Err(why) => {
            conditions.set_false(READY_FOR_PROVISIONING, why.reason(), &why.to_string());
            let message = "buffer is not ready for provisioning";
            conditions.set_false(PROVISIONING, NOT_READY_FOR_PROVISIONING, message);
            (status.replicas, status.pod_template_ref, status.pod_template_generation) = (None, None, None);
        }
        Ok(resolved) => {
            conditions.set_true_because(READY_FOR_PROVISIONING, RESOLVED, "");
            set_provisioning(&mut conditions, resolved.buffer.replicas, room);
            let template = &resolved.template;
            let named = (template.kind == TemplateKind::PodTemplate).then(|| template.name.name.to_string());
            status.replicas = i32::try_from(resolved.buffer.replicas).ok();
            status.pod_template_generation = named.is_some().then_some(resolved.generation);
            status.pod_template_ref = named.map(|name| capacity_buffer::LocalObjectReference { name });
        }
    }
    after
}

fn set_provisioning(conditions: &mut ConditionSet<'_>, replicas: u32, room: Option<&BufferRoom>) {
    if replicas == 0 {
        conditions.set_false(PROVISIONING, BUFFER_EMPTY, "no room is asked for");
        return;
    }
    // What was not planned has no room yet.
    let (new, missing) = room.map_or((0, replicas), |room| (room.on_new(), room.missing));
    if new + missing == 0 {
        conditions.set_true_because(PROVISIONING, FITS_EXISTING_CAPACITY, "");
        return;
    }
    let message = format!("{new}/{replicas} virtual pods required new capacity, {missing} failed");
    conditions.set_false(PROVISIONING, REQUIRES_NEW_CAPACITY, &message);
}

#[cfg(test)]
mod tests {
    use cluster::buffers::resolve;
    use decode::capacity_buffer::TemplateKey;
    use serde_json::json;

    use super::*;
    use crate::runtime::conditions::find;

    fn asked_for(replicas: u32) -> Asked {
        let object = json!({
            "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
            "metadata": {"namespace": "shop", "name": "spare", "uid": "u", "generation": 4},
            "spec": {"podTemplateRef": {"name": "small"}, "replicas": replicas},
        });
        let template = json!({
            "metadata": {"namespace": "shop", "name": "small", "generation": 2},
            "template": {"spec": {"containers": [{"name": "c"}]}},
        });
        let mut names = model::Interner::new();
        let context = &mut decode::Context::new(&mut names);
        let template = decode::capacity_buffer::buffer_template(&template, TemplateKind::PodTemplate, context).unwrap();
        let object: CapacityBuffer = serde_json::from_value(object).unwrap();
        let resolved = resolve(&object, |key| (*key == template.key).then_some(&template), &names);
        Asked { object: Arc::new(object), resolved }
    }

    fn said(buffer: &CapacityBuffer) -> Vec<String> {
        let conditions = &buffer.status.as_ref().unwrap().conditions;
        let said = |of: &str| {
            let it = find(conditions, of).unwrap();
            assert_eq!(it.observed_generation, Some(4));
            format!("{} {} {}", it.status, it.reason, it.message).trim_end().to_owned()
        };
        vec![said(READY_FOR_PROVISIONING), said(PROVISIONING)]
    }

    #[test]
    fn the_status_says_what_the_buffer_comes_to_and_whether_its_room_is_there() {
        let room = |on_nodes: u32, on_machines: u32, missing: u32| BufferRoom {
            on_nodes: vec![(model::Id::from_index(0), on_nodes)],
            on_machines: vec![(model::Id::from_index(0), on_machines)],
            missing,
            reasons: Arc::from([]),
        };
        let table = [
            (3, room(3, 0, 0), "True FitsExistingCapacity"),
            (3, room(1, 2, 0), "False RequiresNewCapacity 2/3 virtual pods required new capacity, 0 failed"),
            (3, room(1, 1, 1), "False RequiresNewCapacity 1/3 virtual pods required new capacity, 1 failed"),
            (0, room(0, 0, 0), "False BufferEmpty no room is asked for"),
        ];
        for (replicas, room, expected) in table {
            let after = with_status(&asked_for(replicas), Some(&room), Timestamp(1_000));
            assert_eq!(said(&after), ["True Resolved", expected]);
            let status = after.status.unwrap();
            assert_eq!(status.replicas, i32::try_from(replicas).ok());
            assert_eq!(status.pod_template_ref.unwrap().name, "small");
            assert_eq!(status.pod_template_generation, Some(2));
        }
    }

    #[test]
    fn a_buffer_that_is_not_understood_says_why_and_nothing_of_room() {
        let mut asked = asked_for(3);
        let find = |_: &TemplateKey| None;
        asked.resolved = resolve(&asked.object, find, &model::Interner::new());
        let after = with_status(&asked, None, Timestamp(1_000));
        assert_eq!(
            said(&after),
            [
                "False PodTemplateNotFound podTemplateRef: PodTemplate shop/small was not found",
                "False NotReadyForProvisioning buffer is not ready for provisioning"
            ]
        );
        assert_eq!(after.status.unwrap().replicas, None);
    }

    #[test]
    fn the_same_room_changes_no_status() {
        let mut asked = asked_for(3);
        let room = BufferRoom { missing: 3, ..BufferRoom::default() };
        let first = with_status(&asked, Some(&room), Timestamp(1_000));
        asked.object = Arc::new(first.clone());
        assert_eq!(with_status(&asked, Some(&room), Timestamp(9_000)), first);
    }
}
