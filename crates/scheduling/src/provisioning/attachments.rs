//! How many volumes of a CSI driver a node can attach.
//!
//! A count per node is not planned yet, so this only keeps pods from where they could end up stuck: a node is left out for
//! a class unless it could attach the volumes of *all* waiting pods on top of what it has; a class is refused by name
//! where a type to launch declares a limit below that. Volumes that pods share are counted once on existing nodes and per
//! pod among those that wait, so the count errs towards another machine.

use std::{collections::BTreeSet, sync::Arc};

use model::{NamespacedName, PodShape, Unsupported, pod::VolumeRef, volume::StorageClass};

use crate::snapshot::{Node, Snapshot, Volumes};

/// Volumes per CSI driver, by driver name.
pub(crate) type Attachments = Vec<(Arc<str>, u32)>;

/// What the volumes of one pod take.
pub(crate) fn of(shape: &PodShape, volumes: &Volumes) -> Attachments {
    let mut all = Attachments::new();
    for (driver, _) in shape.volumes.iter().filter_map(|volume| attached(volume, volumes)) {
        add(&mut all, &driver, 1);
    }
    all.sort();
    all
}

/// Adds a count.
pub(crate) fn add(all: &mut Attachments, driver: &Arc<str>, count: u32) {
    match all.iter_mut().find(|(known, _)| known == driver) {
        Some((_, known)) => *known = known.saturating_add(count),
        None => all.push((Arc::clone(driver), count)),
    }
}

/// Whether the node could attach everything that waits, as far as drivers of this class are concerned.
pub(crate) fn node_has_room(node: &Node, class: &Attachments, waiting: &Attachments, volumes: &Volumes) -> bool {
    class.iter().all(|(driver, _)| {
        let Some((_, limit)) = node.attach_limits.iter().find(|(limited, _)| limited == driver) else { return true };
        let used: BTreeSet<Volume<'_>> = node
            .pods
            .iter()
            .flat_map(|pod| pod.shape.volumes.iter().map(move |volume| (pod, volume)))
            .filter_map(|(pod, volume)| match attached(volume, volumes)? {
                (of_driver, Some(claim)) if of_driver == *driver => Some(Volume::Claim(claim)),
                (of_driver, None) if of_driver == *driver => Some(Volume::OfPod(&pod.name, volume_name(volume))),
                _ => None,
            })
            .collect();
        let used = u32::try_from(used.len()).unwrap_or(u32::MAX);
        count_of(waiting, driver) <= limit.saturating_sub(used)
    })
}

/// A driver of the class whose limit on some type to launch is below what waits.
pub(crate) fn unsupported(class: &Attachments, waiting: &Attachments, snapshot: &Snapshot) -> Option<Unsupported> {
    let types = snapshot.node_pools.iter().filter(|pool| pool.usable.is_ok()).flat_map(|pool| &pool.catalogue.types);
    let mut limits: Vec<&(Arc<str>, u32)> =
        types.flat_map(|instance_type| &instance_type.volume_attachment_limits).collect();
    limits.sort();
    let (driver, limit) = limits
        .into_iter()
        .find(|(driver, limit)| class.iter().any(|(used, _)| used == driver) && count_of(waiting, driver) > *limit)?;
    Some(Unsupported::new(format!("the limit of {limit} volumes of CSI driver {driver} on an instance type")))
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Volume<'s> {
    Claim(NamespacedName),
    OfPod(&'s NamespacedName, &'s str),
}

fn volume_name(volume: &VolumeRef) -> &str {
    match volume {
        VolumeRef::Claim(claim) => &claim.name,
        VolumeRef::Ephemeral { volume, .. } => volume,
    }
}

fn count_of(all: &Attachments, driver: &Arc<str>) -> u32 {
    all.iter().find(|(known, _)| known == driver).map_or(0, |(_, count)| *count)
}

/// The named StorageClass or, without a name, the default one.
pub(crate) fn class_of<'v>(name: Option<&Arc<str>>, volumes: &'v Volumes) -> Option<&'v Arc<StorageClass>> {
    match name {
        Some(name) => volumes.classes.get(name),
        None => volumes.classes.values().find(|class| class.is_default),
    }
}

/// The CSI driver that attaches a volume and, unless the volume is the pod's own, its claim.
fn attached(volume: &VolumeRef, volumes: &Volumes) -> Option<(Arc<str>, Option<NamespacedName>)> {
    let provisioner = |class: Option<&Arc<str>>| class_of(class, volumes).map(|class| Arc::clone(&class.provisioner));
    match volume {
        VolumeRef::Ephemeral { storage_class, .. } => Some((provisioner(storage_class.as_ref())?, None)),
        VolumeRef::Claim(name) => {
            let claim = volumes.claims.get(name)?;
            let driver = match &claim.volume_name {
                Some(volume) => volumes.volumes.get(volume)?.csi_driver.clone()?,
                None => provisioner(claim.storage_class.as_ref())?,
            };
            Some((driver, Some(name.clone())))
        }
    }
}
