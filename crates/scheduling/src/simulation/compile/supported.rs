//! Pods for which no place is looked for: those that wait for another object, and those with a construct that
//! kube-scheduler enforces and this planner does not plan for yet. They are refused and the construct is named, so that
//! none is placed wrongly. Unsupported preferences are ignored, with a note per class.

use std::sync::Arc;

use model::{
    PodShape, Requirements, Unsupported,
    pod::{SpreadSource, VolumeRef, WhenUnsatisfiable},
    volume::{ClaimPhase, PersistentVolume, StorageClass, VolumeBindingMode},
};

use crate::plan::Verdict;
use crate::plan::reason::{NoteKind, Reason};
use crate::snapshot::Snapshot;

/// Why no place is looked for.
#[derive(Debug, Clone)]
pub(crate) enum Obstacle {
    /// A pass left the pods out. Why is known of each ([`super::request::Request::refusal`]).
    LeftOut,
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
            Obstacle::LeftOut => Verdict::DoesNotFit,
            Obstacle::Waits(_) => Verdict::Waits,
            Obstacle::Unsupported(_) => Verdict::Unsupported,
        }
    }

    pub(crate) fn reason(&self) -> Option<Reason> {
        match self {
            Obstacle::LeftOut => None,
            Obstacle::Waits(what) => Some(Reason::WaitsFor { what: Arc::clone(what) }),
            Obstacle::Unsupported(unsupported) => Some(Reason::Unsupported(unsupported.clone())),
        }
    }
}

/// The first obstacle to planning pods of a shape. Claims are planned for if what they ask for could be read.
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
    shape.volumes.iter().find_map(|volume| cannot_be_placed(volume, snapshot))
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
fn cannot_be_placed(volume: &VolumeRef, snapshot: &Snapshot) -> Option<Obstacle> {
    let volumes = &snapshot.volumes;
    match volume {
        VolumeRef::Ephemeral { volume, storage_class } => {
            let name = format!("ephemeral volume {volume}");
            restricts_class(&name, storage_class.as_ref(), snapshot)
        }
        VolumeRef::Claim(claim) => {
            let name = format!("PersistentVolumeClaim {claim}");
            let Some(claim) = volumes.claims.get(claim) else {
                return Some(Obstacle::Waits(format!("{name} does not exist").into()));
            };
            if claim.phase == ClaimPhase::Lost {
                return Some(Obstacle::Waits(format!("{name} has lost its volume").into()));
            }
            if claim.is_being_deleted {
                return Some(Obstacle::Waits(format!("{name} is being deleted").into()));
            }
            let Some(volume) = &claim.volume_name else {
                return restricts_class(&name, claim.storage_class.as_ref(), snapshot);
            };
            let Some(persistent) = volumes.volumes.get(volume) else {
                let why = format!("{name} is of PersistentVolume {volume}, which does not exist");
                return Some(Obstacle::Waits(why.into()));
            };
            // kube-scheduler takes it for a claim that is bound without a pod, and waits.
            if !claim.bind_completed {
                let why =
                    format!("{name} names PersistentVolume {volume}, and the two are not bound to each other yet");
                return Some(Obstacle::Waits(why.into()));
            }
            unsupported_volume(&name, persistent, snapshot)
        }
    }
}

fn restricts_class(name: &str, class: Option<&Arc<str>>, snapshot: &Snapshot) -> Option<Obstacle> {
    let waits = match (snapshot.volumes.class_of(class), class.map(|class| &**class)) {
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
        (Some(class), _) => return unsupported_class(name, class, snapshot),
    };
    Some(Obstacle::Waits(waits.into()))
}

/// A class whose volumes no machine of this cloud could use.
fn unsupported_class(name: &str, class: &StorageClass, snapshot: &Snapshot) -> Option<Obstacle> {
    let of_class = || format!("{name} of StorageClass {}", class.name);
    if snapshot.options.unsupported_storage.provisioners.contains(&class.provisioner) {
        let provisioner = &class.provisioner;
        return Some(Obstacle::unsupported(format!("{}, whose provisioner is {provisioner},", of_class())));
    }
    let key = unsupported_key(class.allowed_topologies.iter(), snapshot)?;
    Some(Obstacle::unsupported(format!("{}, whose allowedTopologies go by {key},", of_class())))
}

/// What is not supported of a volume that is there.
fn unsupported_volume(name: &str, volume: &PersistentVolume, snapshot: &Snapshot) -> Option<Obstacle> {
    let of_volume = || format!("{name} of PersistentVolume {}", volume.name);
    let driver = volume.csi_driver.as_ref();
    if let Some(driver) = driver.filter(|driver| snapshot.options.unsupported_storage.provisioners.contains(*driver)) {
        return Some(Obstacle::unsupported(format!("{}, whose driver is {driver},", of_volume())));
    }
    let key = unsupported_key(volume.node_affinity.iter().map(|term| &term.expressions), snapshot)?;
    Some(Obstacle::unsupported(format!("{}, whose node affinity goes by {key},", of_volume())))
}

/// The first label by name that the cloud says cannot be told of its machines.
fn unsupported_key<'r>(terms: impl Iterator<Item = &'r Requirements>, snapshot: &Snapshot) -> Option<&str> {
    let unsupported = &snapshot.options.unsupported_storage.topology_keys;
    if unsupported.is_empty() {
        return None;
    }
    let keys = terms.flat_map(Requirements::iter).map(|requirement| snapshot.interner.key_name(requirement.key));
    keys.filter(|key| unsupported.contains(*key)).min()
}
