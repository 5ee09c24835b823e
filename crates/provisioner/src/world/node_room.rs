//! What a Node has free.

use std::sync::Arc;

use model::{Pod, ResourceVec};

use crate::world::store::{NodeRecord, State};

/// What is left on the node beside those of its pods that stay.
pub(crate) fn free_beside(state: &State, node: &NodeRecord, stays: impl Fn(&Pod) -> bool) -> ResourceVec {
    let mut free = node.model.allocatable.clone();
    for pod in holding_room(state, node).filter(|pod| stays(pod)) {
        free.saturating_sub_assign(&pod.shape.requests);
    }
    free
}

/// The pods that are bound to the node and have not ended.
pub(crate) fn holding_room<'a>(state: &'a State, node: &NodeRecord) -> impl Iterator<Item = &'a Arc<Pod>> {
    state.pods_on_node(&node.model.name).filter(|pod| !pod.phase.is_terminal())
}
