//! CapacityBuffers: which room the cluster's buffers ask for.

use std::sync::Arc;

use api::CapacityBuffer;
use cluster::buffers::{NotResolved, Resolved, is_served, resolve};
use decode::capacity_buffer::TemplateKey;
use scheduling::plan::{MachineId, Plan};
use scheduling::snapshot::{Buffer, Snapshot};

use crate::world::store::State;

/// A buffer of the cluster, and what it asks for.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) object: Arc<CapacityBuffer>,
    pub(crate) resolved: Result<Resolved, NotResolved>,
}

/// All buffers that are ours to serve, by name.
pub(crate) fn asked(state: &State) -> Vec<Asked> {
    let served = state.capacity_buffers.values().filter(|buffer| is_served(buffer));
    let find = |key: &TemplateKey| state.buffer_templates.get(key).map(AsRef::as_ref);
    served
        .map(|object| Asked { resolved: resolve(object, find, &state.interner), object: Arc::clone(object) })
        .collect()
}

/// The room that they ask for.
pub(crate) fn room(asked: &[Asked]) -> Vec<Buffer> {
    asked.iter().filter_map(|asked| Some(asked.resolved.as_ref().ok()?.buffer.clone())).collect()
}

/// Whether a machine of the plan has room of a buffer that is still there.
pub(crate) fn is_wanted(state: &State, snapshot: &Snapshot, plan: &Plan, machine: MachineId) -> bool {
    let is_there = |buffer: &Buffer| {
        let object = state.capacity_buffers.get(&buffer.name);
        object.is_some_and(|it| is_served(it) && it.metadata.uid.as_deref() == Some(buffer.uid.as_str()))
    };
    let rooms = snapshot.buffers.iter().zip(&plan.buffers);
    rooms.filter(|(_, room)| room.on_machines.iter().any(|(id, _)| *id == machine)).any(|(buffer, _)| is_there(buffer))
}
