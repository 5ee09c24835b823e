//! Objects of which the store keeps more, or otherwise, than `decode` gives.

use std::sync::Arc;

use decode::limit_range::TemplateResources;
use k8s_openapi::api::core::v1 as core;
use serde::Deserialize;
use serde_json::Value;

use super::super::ClusterStore;
use super::super::object::{NodeRecord, PodGroupRecord, VolumeAttachment};
use super::super::raw::RawObject;

/// What devices read of a pod. A pod that cannot be read is told when it is stored.
pub(super) fn note_devices(store: &ClusterStore, raw: &RawObject) {
    // Most pods want none, and there may be many.
    let devices = match decode::devices::may_want_devices(&raw.json) {
        true => decode::devices::pod_devices(&raw.json).ok().flatten(),
        false => None,
    };
    store.note_devices(&raw.uid(), devices);
}

/// What devices read of the pods that a DaemonSet will make, and what admission may add to their requests.
pub(super) fn note_daemon_set(store: &ClusterStore, raw: &RawObject) {
    store.note_template_resources(&raw.uid(), TemplateResources::of_daemon_set(&raw.json));
    store.note_devices(&raw.uid(), decode::devices::daemon_set_devices(&raw.json).ok().flatten());
}

/// Reads a Node in both forms.
pub fn node_record(raw: &RawObject, context: &mut decode::Context<'_>) -> Result<NodeRecord, String> {
    let model = decode::node(&raw.json, context).map_err(|error| error.to_string())?;
    let mut object = core::Node::deserialize(&raw.json).map_err(|error| format!("Node {}: {error}", model.name))?;
    if let Some(status) = &mut object.status {
        status.images = None;
        status.volumes_in_use = None;
    }
    Ok(NodeRecord { model: Arc::new(model), object: Arc::new(object) })
}

impl ClusterStore {
    /// Stores a Node that was just written, so that the next look does not ask for it a second time.
    pub(crate) fn apply_node(&self, node: &core::Node) {
        let Ok(Ok(raw)) = serde_json::to_value(node).map(RawObject::deserialize) else { return };
        if let Err(error) = self.apply_with(raw.revision(), |names| node_record(&raw, &mut decode::Context::new(names)))
        {
            tracing::debug!(error, "could not decode a node that was written");
        }
    }
}

pub(super) fn pod_group(
    raw: &RawObject,
    context: &mut decode::Context<'_>,
) -> Result<PodGroupRecord, decode::ObjectError> {
    let claims = decode::devices::pod_group_claims(&raw.json, decode::devices::Admitted::ByServer)?;
    Ok(PodGroupRecord { model: Arc::new(decode::pod_group(&raw.json, context)?), claims: Arc::new(claims) })
}

pub(super) fn volume_attachment(raw: &RawObject) -> Result<VolumeAttachment, String> {
    let text = |pointer: &str| raw.json.pointer(pointer).and_then(Value::as_str);
    let name = raw.name().name;
    let node_name =
        text("/spec/nodeName").ok_or_else(|| format!("VolumeAttachment {name}: spec.nodeName: is missing"))?;
    Ok(VolumeAttachment {
        node_name: node_name.into(),
        persistent_volume: text("/spec/source/persistentVolumeName").map(Arc::from),
        attached: raw.json.pointer("/status/attached").and_then(Value::as_bool).unwrap_or(false),
        name,
    })
}
