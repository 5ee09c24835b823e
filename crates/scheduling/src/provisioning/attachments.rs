//! How many volumes of a CSI driver a node can attach, as a resource: `attachable-volumes-csi-<driver>`.
//!
//! A pod takes one of it for each volume that the driver attaches; a node has what its CSINode allows beside the volumes
//! of the pods that run there, and a machine to come what the provider tells of its instance type. The rest of the planner
//! knows nothing of volumes. Where nobody tells a limit there is [`UNLIMITED`], as for kube-scheduler.
//!
//! Volumes that pods share count once on existing nodes, where the pods that use them run, and per pod among those that
//! wait, so the count errs towards another machine. Pods that are on their way out still count.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{NamespacedName, Pod, PodShape, ResourceId, collections::FastMap, pod::VolumeRef, volume::StorageClass};

use crate::{
    catalogue::{Catalogue, InstanceType},
    plan::Plan,
    snapshot::{Node, NodeLabels, NodeState, Snapshot, Volumes, attach_resource},
};

/// More than any node attaches.
const UNLIMITED: i64 = 1 << 40;

/// Drivers whose volumes waiting pods use and some node or type limits.
type Limited = BTreeMap<Arc<str>, ResourceId>;

/// The snapshot with limits and volumes as resources. `None` where nothing that waits is limited. Ids stay.
pub(super) fn as_resources(snapshot: &Snapshot) -> Option<Snapshot> {
    let mut shapes: FastMap<Arc<PodShape>, Arc<PodShape>> = FastMap::default();
    let of_pods = snapshot.pods.iter().filter(|pending| !pending.pod.shape.volumes.is_empty());
    let used: BTreeSet<Arc<str>> = of_pods
        .flat_map(|pending| pending.pod.shape.volumes.iter())
        .filter_map(|volume| attached(volume, &snapshot.volumes))
        .map(|(driver, _)| driver)
        .collect();
    if used.is_empty() {
        return None;
    }
    let of_nodes = snapshot.nodes.iter().flat_map(|node| &node.attach_limits);
    let types = snapshot.node_pools.iter().flat_map(|pool| &pool.catalogue.types);
    let of_types = types.flat_map(|instance_type| &instance_type.volume_attachment_limits);
    let limited: Limited = of_nodes
        .chain(of_types)
        .filter(|(driver, _)| used.contains(driver))
        .filter_map(|(driver, _)| {
            Some((Arc::clone(driver), snapshot.interner.find_resource(&attach_resource(driver))?))
        })
        .collect();
    if limited.is_empty() {
        return None;
    }
    let mut with = snapshot.clone();
    for pending in with.pods.iter_mut().filter(|pending| !pending.pod.shape.volumes.is_empty()) {
        let shape = shapes
            .entry(Arc::clone(&pending.pod.shape))
            .or_insert_with(|| with_requests(&pending.pod.shape, &limited, &snapshot.volumes));
        pending.pod = Arc::new(Pod { shape: Arc::clone(shape), ..(*pending.pod).clone() });
    }
    for node in with.nodes.iter_mut() {
        for (driver, resource) in &limited {
            node.allocatable.set(*resource, free_on(node, driver, snapshot));
        }
    }
    let mut catalogues: Vec<(Arc<Catalogue>, Arc<Catalogue>)> = Vec::new();
    for pool in with.node_pools.iter_mut() {
        let known = catalogues.iter().find(|(before, _)| Arc::ptr_eq(before, &pool.catalogue));
        let catalogue = known.map(|(_, after)| Arc::clone(after)).unwrap_or_else(|| {
            let after = Arc::new(with_limits(&pool.catalogue, &limited));
            catalogues.push((Arc::clone(&pool.catalogue), Arc::clone(&after)));
            after
        });
        pool.catalogue = catalogue;
    }
    Some(with)
}

/// Takes the resources out of what a plan says of its machines: no node reports them.
pub(super) fn forget(plan: &mut Plan, snapshot: &Snapshot) {
    let drivers: BTreeSet<&Arc<str>> = snapshot
        .node_pools
        .iter()
        .flat_map(|pool| &pool.catalogue.types)
        .flat_map(|instance_type| instance_type.volume_attachment_limits.iter().map(|(driver, _)| driver))
        .chain(snapshot.nodes.iter().flat_map(|node| node.attach_limits.iter().map(|(driver, _)| driver)))
        .collect();
    for resource in drivers.into_iter().filter_map(|driver| snapshot.interner.find_resource(&attach_resource(driver))) {
        for machine in plan.machines.iter_mut() {
            machine.requests.set(resource, 0);
        }
    }
}

fn with_requests(shape: &PodShape, limited: &Limited, volumes: &Volumes) -> Arc<PodShape> {
    let mut with = shape.clone();
    for (driver, _) in shape.volumes.iter().filter_map(|volume| attached(volume, volumes)) {
        if let Some(&resource) = limited.get(&driver) {
            with.requests.set(resource, with.requests.get(resource) + 1);
        }
    }
    Arc::new(with)
}

fn with_limits(catalogue: &Catalogue, limited: &Limited) -> Catalogue {
    let mut with = catalogue.clone();
    for offering in with.offerings.iter_mut() {
        let instance_type = &catalogue.types[offering.instance_type];
        for (driver, resource) in limited {
            let limit = limit_of_type(instance_type, driver).map_or(UNLIMITED, i64::from);
            offering.allocatable.set(*resource, limit);
        }
    }
    with
}

fn limit_of_type(instance_type: &InstanceType, driver: &str) -> Option<u32> {
    limit_of(&instance_type.volume_attachment_limits, driver)
}

fn limit_of(limits: &[(Arc<str>, u32)], driver: &str) -> Option<u32> {
    limits.iter().find(|(limited, _)| **limited == *driver).map(|(_, limit)| *limit)
}

/// How many volumes of a driver a node can still attach.
fn free_on(node: &Node, driver: &Arc<str>, snapshot: &Snapshot) -> i64 {
    let Some(limit) = limit_of(&node.attach_limits, driver).or_else(|| limit_to_come(node, driver, snapshot)) else {
        return UNLIMITED;
    };
    let volumes = &snapshot.volumes;
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
    let used = i64::try_from(used.len()).unwrap_or(i64::MAX);
    i64::from(limit).saturating_sub(used).max(0)
}

/// The least limit among the types that a machine on its way may turn out to be: its CSINode comes later.
fn limit_to_come(node: &Node, driver: &str, snapshot: &Snapshot) -> Option<u32> {
    if node.state == NodeState::Initialized {
        return None;
    }
    let names = &*snapshot.interner;
    let pool = snapshot.node_pools.iter().find(|pool| Some(&pool.name) == node.node_pool.as_ref())?;
    let key = names.find_key(api::labels::INSTANCE_TYPE)?;
    let may_be = |instance_type: &&InstanceType| {
        let value = names.find_value(&instance_type.name);
        match &node.labels {
            NodeLabels::Known(labels) => labels.get(key) == value,
            NodeLabels::Promised(promised) => promised
                .get(key)
                .is_none_or(|asked| value.is_some_and(|value| asked.values.contains(Some(value), names))),
        }
    };
    pool.catalogue.types.iter().filter(may_be).filter_map(|it| limit_of_type(it, driver)).min()
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
