//! Which attached volumes a drained node waits for.
//!
//! A volume that is still attached when its machine goes may be attached elsewhere only minutes later. Volumes of pods
//! that a drain leaves alone will not be detached, so they are not waited for.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::pod::VolumeRef;
use model::{Interner, NamespacedName, Pod, Timestamp};

use super::drain::is_drainable;
use crate::world::store::State;

/// The PersistentVolumes that have to be detached from a node before its machine goes.
pub(crate) fn awaited(state: &State, node: &str, now: Timestamp) -> Vec<Arc<str>> {
    let kept = kept_by(state.pods_on_node(node).map(AsRef::as_ref), &state.interner, now, |claim| {
        state.persistent_volume_claims.get(claim).and_then(|claim| claim.volume_name.clone())
    });
    let attached = state.volume_attachments_of_node(node).filter_map(|it| it.persistent_volume.clone());
    let awaited: BTreeSet<Arc<str>> = attached.filter(|volume| !kept.contains(volume)).collect();
    awaited.into_iter().collect()
}

/// The volumes of pods that stay.
fn kept_by<'a>(
    pods: impl Iterator<Item = &'a Pod>,
    interner: &Interner,
    now: Timestamp,
    volume_of: impl Fn(&NamespacedName) -> Option<Arc<str>>,
) -> BTreeSet<Arc<str>> {
    pods.filter(|pod| !is_drainable(pod, interner, now))
        .flat_map(|pod| pod.shape.volumes.iter().map(move |volume| claim_name(pod, volume)))
        .filter_map(|claim| volume_of(&claim))
        .collect()
}

/// The PersistentVolumeClaim of a pod's volume.
fn claim_name(pod: &Pod, volume: &VolumeRef) -> NamespacedName {
    match volume {
        VolumeRef::Claim(name) => name.clone(),
        VolumeRef::Ephemeral { volume, .. } => {
            NamespacedName::new(Arc::clone(&pod.name.namespace), format!("{}-{volume}", pod.name.name))
        }
    }
}
