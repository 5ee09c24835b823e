//! Constructs that kube-scheduler enforces and this planner does not plan for yet. A pod that uses one is refused with
//! its name, so that it is never placed wrongly; what is only preferred is left out and said once per class.

use std::sync::Arc;

use model::{
    PodShape, Unsupported,
    pod::{SpreadSource, VolumeRef, WhenUnsatisfiable},
    volume::{ClaimPhase, VolumeBindingMode},
};

use super::attachments::class_of;
use crate::{
    reason::NoteKind,
    snapshot::{Snapshot, Volumes},
};

/// The first construct of a shape that can restrict where the pod goes and is not planned for. Claims are planned for if
/// what they ask for could be read.
pub(crate) fn unsupported(shape: &PodShape, snapshot: &Snapshot, claims_are_read: bool) -> Option<Unsupported> {
    if let Some(unsupported) = shape.unsupported.first() {
        return Some(unsupported.clone());
    }
    if let Some(claim) = shape.resource_claims.first().filter(|_| !claims_are_read) {
        return Some(Unsupported::new(format!("resource claim {} (resourceClaims)", claim.name)));
    }
    if let Some(group) = &shape.scheduling_group {
        let name = &group.pod_group;
        match snapshot.pod_groups.get(name) {
            None => return Some(Unsupported::new(format!("PodGroup {name} does not exist"))),
            Some(group) => {
                if let Some(unsupported) = group.unsupported.first() {
                    return Some(Unsupported::new(format!("{} {name}", unsupported.construct)));
                }
            }
        }
    }
    shape.volumes.iter().find_map(|volume| match cannot_be_placed(volume, &snapshot.volumes)? {
        Obstacle::Waits(what) | Obstacle::Unsupported(what) => Some(Unsupported::new(what)),
    })
}

/// For which object a pod of the shape waits, as kube-scheduler does with it; what [`unsupported`] says may be something else.
pub(crate) fn waits_for(shape: &PodShape, snapshot: &Snapshot) -> Option<String> {
    if let Some(group) = &shape.scheduling_group
        && !snapshot.pod_groups.contains_key(&group.pod_group)
    {
        return Some(format!("PodGroup {} does not exist", group.pod_group));
    }
    let mut obstacles = shape.volumes.iter().filter_map(|volume| cannot_be_placed(volume, &snapshot.volumes));
    obstacles.find_map(|obstacle| match obstacle {
        Obstacle::Waits(what) => Some(what),
        Obstacle::Unsupported(_) => None,
    })
}

/// What of a shape is preferred and left out of planning, in a fixed order.
pub(crate) fn left_out(shape: &PodShape) -> impl Iterator<Item = NoteKind> {
    let spread = |source| {
        let mut soft =
            shape.topology_spread.iter().filter(|it| it.when_unsatisfiable == WhenUnsatisfiable::ScheduleAnyway);
        soft.any(|it| it.source == source)
    };
    let pod_affinity = !shape.pod_affinity.preferred.is_empty() || !shape.pod_anti_affinity.preferred.is_empty();
    [
        (!shape.preferred_node_affinity.is_empty(), NoteKind::PreferredNodeAffinity),
        (pod_affinity, NoteKind::PreferredPodAffinity),
        (spread(SpreadSource::Pod), NoteKind::ScheduleAnywaySpread),
        (spread(SpreadSource::ClusterDefault), NoteKind::DefaultScheduleAnywaySpread),
    ]
    .into_iter()
    .filter_map(|(used, kind)| used.then_some(kind))
}

/// The provisioner of classes whose volumes somebody makes by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Why nobody can tell where a volume lets its pod go.
enum Obstacle {
    /// kube-scheduler cannot either, as long as it is so.
    Waits(String),
    /// It is not planned for.
    Unsupported(String),
}

fn cannot_be_placed(volume: &VolumeRef, volumes: &Volumes) -> Option<Obstacle> {
    match volume {
        VolumeRef::Ephemeral { volume, storage_class } => {
            let name = format!("ephemeral volume {volume}");
            restricts_class(&name, storage_class.as_ref(), volumes)
        }
        VolumeRef::Claim(claim) => {
            let name = format!("PersistentVolumeClaim {claim}");
            let Some(claim) = volumes.claims.get(claim) else {
                return Some(Obstacle::Waits(format!("{name} does not exist")));
            };
            if claim.phase == ClaimPhase::Lost {
                return Some(Obstacle::Waits(format!("{name} has lost its volume")));
            }
            match &claim.volume_name {
                None => restricts_class(&name, claim.storage_class.as_ref(), volumes),
                Some(volume) if volumes.volumes.contains_key(volume) => None,
                Some(volume) => {
                    Some(Obstacle::Waits(format!("{name} is of PersistentVolume {volume}, which does not exist")))
                }
            }
        }
    }
}

fn restricts_class(name: &str, class: Option<&Arc<str>>, volumes: &Volumes) -> Option<Obstacle> {
    let waits = match (class_of(class, volumes), class.map(|class| &**class)) {
        (None, None) => format!("{name} is not bound, and there is no default StorageClass to make its volume"),
        (None, Some("")) => format!("{name} is not bound, and without a StorageClass (\"\") nobody makes its volume"),
        (None, Some(class)) => format!("{name} is not bound, and its StorageClass {class} does not exist"),
        (Some(class), _) if class.binding_mode == VolumeBindingMode::Immediate => format!(
            "{name} is not bound yet, and its StorageClass {} binds it without a pod (volumeBindingMode Immediate)",
            class.name
        ),
        (Some(class), _) if &*class.provisioner == NO_PROVISIONER => {
            return Some(Obstacle::Unsupported(format!(
                "{name} of StorageClass {}, which only binds volumes that exist,",
                class.name
            )));
        }
        (Some(_), _) => return None,
    };
    Some(Obstacle::Waits(waits))
}
