//! Pods that no place is looked for: those that wait for another object, and those with a construct that kube-scheduler
//! enforces and this planner does not plan for yet. They are refused with its name, so that none is placed wrongly; what
//! is only preferred is left out and said once per class.

use std::sync::Arc;

use model::{
    PodShape, Unsupported,
    pod::{SpreadSource, VolumeRef, WhenUnsatisfiable},
    volume::{ClaimPhase, VolumeBindingMode},
};

use super::attachments::class_of;
use crate::{
    plan::Verdict,
    reason::{NoteKind, Reason},
    snapshot::{Snapshot, Volumes},
};

/// Why no place is looked for.
#[derive(Debug, Clone)]
pub(crate) enum Obstacle {
    /// kube-scheduler waits for another object too, and leaves the pod alone until then.
    Waits(Arc<str>),
    /// It restricts where the pod goes and is not planned for.
    Unsupported(Unsupported),
}

impl Obstacle {
    pub(crate) fn unsupported(construct: impl Into<Arc<str>>) -> Self {
        Obstacle::Unsupported(Unsupported::new(construct))
    }

    pub(crate) fn verdict(&self) -> Verdict {
        match self {
            Obstacle::Waits(_) => Verdict::Waits,
            Obstacle::Unsupported(_) => Verdict::Unsupported,
        }
    }

    pub(crate) fn reason(&self) -> Reason {
        match self {
            Obstacle::Waits(what) => Reason::WaitsFor { what: Arc::clone(what) },
            Obstacle::Unsupported(unsupported) => Reason::Unsupported(unsupported.clone()),
        }
    }
}

/// What first keeps pods of a shape from being planned. Claims are planned for if what they ask for could be read.
pub(crate) fn obstacle(shape: &PodShape, snapshot: &Snapshot, claims_are_read: bool) -> Option<Obstacle> {
    if let Some(unsupported) = shape.unsupported.first() {
        return Some(Obstacle::Unsupported(unsupported.clone()));
    }
    if let Some(claim) = shape.resource_claims.first().filter(|_| !claims_are_read) {
        return Some(Obstacle::unsupported(format!("resource claim {} (resourceClaims)", claim.name)));
    }
    if let Some(group) = &shape.scheduling_group {
        let name = &group.pod_group;
        match snapshot.pod_groups.get(name) {
            None => return Some(Obstacle::Waits(format!("PodGroup {name} does not exist").into())),
            Some(group) => {
                if let Some(unsupported) = group.unsupported.first() {
                    return Some(Obstacle::unsupported(format!("{} {name}", unsupported.construct)));
                }
            }
        }
    }
    shape.volumes.iter().find_map(|volume| cannot_be_placed(volume, &snapshot.volumes))
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
fn cannot_be_placed(volume: &VolumeRef, volumes: &Volumes) -> Option<Obstacle> {
    match volume {
        VolumeRef::Ephemeral { volume, storage_class } => {
            let name = format!("ephemeral volume {volume}");
            restricts_class(&name, storage_class.as_ref(), volumes)
        }
        VolumeRef::Claim(claim) => {
            let name = format!("PersistentVolumeClaim {claim}");
            let Some(claim) = volumes.claims.get(claim) else {
                return Some(Obstacle::Waits(format!("{name} does not exist").into()));
            };
            if claim.phase == ClaimPhase::Lost {
                return Some(Obstacle::Waits(format!("{name} has lost its volume").into()));
            }
            match &claim.volume_name {
                None => restricts_class(&name, claim.storage_class.as_ref(), volumes),
                Some(volume) if volumes.volumes.contains_key(volume) => None,
                Some(volume) => Some(Obstacle::Waits(
                    format!("{name} is of PersistentVolume {volume}, which does not exist").into(),
                )),
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
            return Some(Obstacle::unsupported(format!(
                "{name} of StorageClass {}, which only binds volumes that exist,",
                class.name
            )));
        }
        (Some(_), _) => return None,
    };
    Some(Obstacle::Waits(waits.into()))
}
