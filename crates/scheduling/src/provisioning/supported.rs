//! Constructs that kube-scheduler enforces and this planner does not plan for yet. A pod that uses one is refused with
//! its name, so that it is never placed wrongly; what is only preferred is left out and said once per class.

use std::sync::Arc;

use model::{
    Interner, LabelSelector, NamespacedName, Pod, PodShape, Unsupported,
    pod::{PodAffinityTerm, VolumeRef, WhenUnsatisfiable},
    volume::{AccessMode, ClaimPhase, VolumeBindingMode},
};

use crate::{
    reason::NoteKind,
    snapshot::{Snapshot, Volumes},
};

/// The first construct of a shape that can restrict where the pod goes and is not planned for.
pub(crate) fn unsupported(shape: &PodShape, volumes: &Volumes) -> Option<Unsupported> {
    if let Some(unsupported) = shape.unsupported.first() {
        return Some(unsupported.clone());
    }
    if shape.topology_spread.iter().any(|spread| spread.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule) {
        return Some(Unsupported::new("required topology spread (topologySpreadConstraints, DoNotSchedule)"));
    }
    if !shape.pod_affinity.required.is_empty() {
        return Some(Unsupported::new("required pod affinity (podAffinity)"));
    }
    if !shape.pod_anti_affinity.required.is_empty() {
        return Some(Unsupported::new("required pod anti-affinity (podAntiAffinity)"));
    }
    if let Some(port) = shape.host_ports.first() {
        return Some(Unsupported::new(format!("host port {port} (hostPort)")));
    }
    if let Some(claim) = shape.resource_claims.first() {
        return Some(Unsupported::new(format!("resource claim {} (resourceClaims)", claim.name)));
    }
    if let Some(group) = &shape.scheduling_group {
        return Some(Unsupported::new(format!("scheduling group {}", group.pod_group)));
    }
    shape.volumes.iter().find_map(|volume| restricts_place(volume, volumes))
}

/// What of a shape is preferred and left out of planning, in a fixed order.
pub(crate) fn left_out(shape: &PodShape) -> impl Iterator<Item = NoteKind> {
    let spread =
        shape.topology_spread.iter().any(|spread| spread.when_unsatisfiable == WhenUnsatisfiable::ScheduleAnyway);
    let pod_affinity = !shape.pod_affinity.preferred.is_empty() || !shape.pod_anti_affinity.preferred.is_empty();
    [
        (!shape.preferred_node_affinity.is_empty(), NoteKind::PreferredNodeAffinity),
        (pod_affinity, NoteKind::PreferredPodAffinity),
        (spread, NoteKind::ScheduleAnywaySpread),
    ]
    .into_iter()
    .filter_map(|(used, kind)| used.then_some(kind))
}

/// Why a volume can restrict the place, if it can. Free: a claim that waits for its first consumer in a class without
/// `allowedTopologies`, and a bound volume that every node reaches.
fn restricts_place(volume: &VolumeRef, volumes: &Volumes) -> Option<Unsupported> {
    match volume {
        VolumeRef::Ephemeral { volume, storage_class } => {
            let name = format!("ephemeral volume {volume}");
            restricts_class(&name, storage_class.as_ref(), volumes)
        }
        VolumeRef::Claim(claim) => {
            let name = format!("PersistentVolumeClaim {claim}");
            let Some(claim) = volumes.claims.get(claim) else {
                return Some(Unsupported::new(format!("{name}, which does not exist,")));
            };
            if claim.phase == ClaimPhase::Lost {
                return Some(Unsupported::new(format!("{name}, which has lost its volume,")));
            }
            if claim.access_modes.contains(&AccessMode::ReadWriteOncePod) {
                return Some(Unsupported::new(format!("{name} with access mode ReadWriteOncePod")));
            }
            match &claim.volume_name {
                None => restricts_class(&name, claim.storage_class.as_ref(), volumes),
                Some(volume) => match volumes.volumes.get(volume) {
                    None => Some(Unsupported::new(format!("{name}, whose PersistentVolume {volume} does not exist,"))),
                    Some(found) if found.node_affinity.is_empty() => None,
                    Some(_) => {
                        Some(Unsupported::new(format!("{name}, bound to PersistentVolume {volume} with node affinity")))
                    }
                },
            }
        }
    }
}

fn restricts_class(name: &str, class: Option<&Arc<str>>, volumes: &Volumes) -> Option<Unsupported> {
    let class = match class {
        Some(class) => volumes.classes.get(class),
        None => volumes.classes.values().find(|class| class.is_default),
    };
    match class {
        None => Some(Unsupported::new(format!("{name}, whose StorageClass does not exist,"))),
        Some(class) if class.binding_mode == VolumeBindingMode::Immediate => {
            Some(Unsupported::new(format!("{name}, which is not bound yet by its StorageClass {},", class.name)))
        }
        Some(class) if !class.allowed_topologies.is_empty() => {
            Some(Unsupported::new(format!("{name} of StorageClass {} with allowedTopologies", class.name)))
        }
        Some(_) => None,
    }
}

/// Required anti-affinity of pods that run already: kube-scheduler honours it against pods that come later.
pub(crate) struct RunningAntiAffinity<'s> {
    terms: Vec<(&'s NamespacedName, &'s PodAffinityTerm)>,
}

impl<'s> RunningAntiAffinity<'s> {
    pub(crate) fn new(snapshot: &'s Snapshot) -> Self {
        let pods = snapshot.nodes.iter().flat_map(|node| &node.pods);
        let mut terms: Vec<_> =
            pods.flat_map(|pod| pod.shape.pod_anti_affinity.required.iter().map(|term| (&pod.name, term))).collect();
        terms.sort_by_key(|(name, _)| *name);
        Self { terms }
    }

    /// The first running pod, by name, whose anti-affinity may keep `pod` away. A namespace selector counts as matching
    /// every namespace, since namespaces' labels are not known here.
    pub(crate) fn against(&self, pod: &Pod, names: &Interner) -> Option<Unsupported> {
        let matches = |(owner, term): &&(&NamespacedName, &PodAffinityTerm)| {
            let in_namespace = match &term.namespace_selector {
                LabelSelector::Matching(_) => true,
                LabelSelector::Nothing if term.namespaces.is_empty() => owner.namespace == pod.name.namespace,
                LabelSelector::Nothing => term.namespaces.contains(&pod.name.namespace),
            };
            in_namespace && term.selector.matches(&pod.labels, names)
        };
        let (owner, _) = self.terms.iter().find(matches)?;
        Some(Unsupported::new(format!("required pod anti-affinity of the running pod {owner}")))
    }
}
