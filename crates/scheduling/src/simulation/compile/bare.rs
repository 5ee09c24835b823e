//! What a machine offers when only its daemons and static pods run on it.
//!
//! A machine that was launched for a pod and could not hold it even if it were empty was launched in vain, and the next
//! of its kind will be too.

use model::{PodShape, ResourceVec, Taint};

use super::daemons;
use crate::snapshot::affinity::{terms, untolerated};
use crate::snapshot::{NodeId, Snapshot};

/// What a node can hold beside its static pods and daemons, those to come included.
pub fn bare_room(id: NodeId, snapshot: &Snapshot) -> ResourceVec {
    let node = &snapshot.nodes[id];
    let mut room = node.allocatable.clone();
    for pod in node.pods.iter().filter(|pod| pod.is_daemon || pod.is_mirror) {
        room.saturating_sub_assign(&pod.shape.requests);
    }
    room.saturating_sub_assign(&daemons::missing(id, snapshot));
    room
}

/// Why a pod could not run on a node even if no other pod ran there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// The node is too small.
    Room,
    /// A taint that the pod does not tolerate.
    Taint(Taint),
    /// Its labels are not those that the pod asks for.
    Labels,
}

/// Why a pod of this shape could not run on a node beside its daemons and static pods; `None` if it could. Only labels,
/// taints and resources are looked at, not rules between pods and not devices.
pub fn obstacle(id: NodeId, shape: &PodShape, snapshot: &Snapshot) -> Option<Obstacle> {
    let (node, names) = (&snapshot.nodes[id], &*snapshot.interner);
    if let Some(taint) = untolerated(&node.taints, &shape.tolerations, names) {
        return Some(Obstacle::Taint(taint));
    }
    if !terms(shape, names).iter().any(|term| term.accepts(node, names)) {
        return Some(Obstacle::Labels);
    }
    (!shape.requests.fits_in(&bare_room(id, snapshot))).then_some(Obstacle::Room)
}
