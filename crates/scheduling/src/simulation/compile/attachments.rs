//! How many volumes of a CSI driver a node can attach, as a resource: `attachable-volumes-csi-<driver>`.
//!
//! A pod takes one of it for each volume that the driver attaches; a node has what its CSINode allows beside the
//! volumes of the pods that run there, and a machine to come what the provider tells of its instance type. The rest of
//! the planner knows nothing of volumes. Where nobody tells a limit there is [`UNLIMITED`], as for kube-scheduler.
//!
//! A claim that several pods use is attached once on each node. Its volume is no part of what a pod requests: the first
//! of its pods that comes to a node or machine takes one more of the resource there ([`SharedVolumes`]), and none where
//! a pod that runs has it attached already. Pods that are on their way out still count.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{IdVec, NamespacedName, Pod, PodShape, ResourceId, ResourceVec, collections::FastMap, pod::VolumeRef};
use smallvec::SmallVec;

use super::classes::{ClassId, PodClass};
use super::request::Request;
use crate::{
    catalogue::{Catalogue, InstanceType},
    plan::Plan,
    snapshot::{Node, NodeId, NodeLabels, NodeState, Snapshot, Volumes, attach_resource},
};

/// More than any node attaches.
const UNLIMITED: i64 = 1 << 40;

/// Drivers whose volumes waiting pods use and some node or type limits.
type Limited = BTreeMap<Arc<str>, ResourceId>;

/// The request with limits and volumes as resources. `None` where nothing that waits is limited.
pub(crate) fn as_resources(request: &Request<'_>) -> Option<Request<'static>> {
    let snapshot = &*request.snapshot;
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
    // Only drivers that waiting pods use and that some node or type limits become resources; for all others nothing
    // changes.
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
    let shared_volumes = shared(snapshot, &limited);
    // Most pods of a class share their shape, so each is rewritten once.
    for pending in with.pods.iter_mut().filter(|pending| !pending.pod.shape.volumes.is_empty()) {
        let shape = shapes
            .entry(Arc::clone(&pending.pod.shape))
            .or_insert_with(|| with_requests(&pending.pod.shape, &limited, &shared_volumes, &snapshot.volumes));
        pending.pod = Arc::new(Pod { shape: Arc::clone(shape), ..(*pending.pod).clone() });
    }
    // Volumes of pods that run are subtracted here, since their requests do not contain them.
    for (node, before) in with.nodes.iter_mut().map(Arc::make_mut).zip(&snapshot.nodes) {
        for (driver, resource) in &limited {
            node.allocatable.set(*resource, free_beside(before, driver, &before.pods, snapshot));
        }
    }
    // Most pools share one catalogue; its copy is shared in the same way, so that later steps can compile it once.
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
    let mut with = request.with_snapshot(with);
    with.shared_volumes = shared_volumes;
    Some(with)
}

/// Takes the resources out of what a plan says of its machines: no node reports them.
pub(crate) fn forget(plan: &mut Plan, snapshot: &Snapshot) {
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

/// The claims of limited drivers that more than one pod uses.
fn shared(snapshot: &Snapshot, limited: &Limited) -> BTreeMap<NamespacedName, ResourceId> {
    let mut users: BTreeMap<&NamespacedName, usize> = BTreeMap::new();
    for pending in &snapshot.pods {
        for claim in claims(&pending.pod.shape) {
            *users.entry(claim).or_default() += 1;
        }
    }
    for claim in snapshot.nodes.iter().flat_map(|node| &node.pods).flat_map(|pod| claims(&pod.shape)) {
        users.entry(claim).and_modify(|users| *users += 1);
    }
    let used_by_several = users.into_iter().filter(|(_, users)| *users > 1).map(|(claim, _)| claim);
    used_by_several
        .filter_map(|claim| {
            let (driver, _) = attached(&VolumeRef::Claim(claim.clone()), &snapshot.volumes)?;
            Some((claim.clone(), *limited.get(&driver)?))
        })
        .collect()
}

/// The claims of a pod, each once.
fn claims(shape: &PodShape) -> BTreeSet<&NamespacedName> {
    let used = shape.volumes.iter().filter_map(|volume| match volume {
        VolumeRef::Claim(claim) => Some(claim),
        VolumeRef::Ephemeral { .. } => None,
    });
    used.collect()
}

fn with_requests(
    shape: &PodShape,
    limited: &Limited,
    shared: &BTreeMap<NamespacedName, ResourceId>,
    volumes: &Volumes,
) -> Arc<PodShape> {
    let mut with = shape.clone();
    let of_others = |volume: &&VolumeRef| matches!(volume, VolumeRef::Claim(claim) if shared.contains_key(claim));
    let own: BTreeSet<(&str, bool)> = shape
        .volumes
        .iter()
        .filter(|volume| !of_others(volume))
        .map(|volume| (volume_name(volume), matches!(volume, VolumeRef::Claim(_))))
        .collect();
    for (name, is_claim) in own {
        let is_meant =
            |volume: &&VolumeRef| volume_name(volume) == name && matches!(volume, VolumeRef::Claim(_)) == is_claim;
        let driver = shape.volumes.iter().find(is_meant).and_then(|volume| attached(volume, volumes));
        if let Some(&resource) = driver.and_then(|(driver, _)| limited.get(&driver)) {
            with.requests.set(resource, with.requests.get(resource) + 1);
        }
    }
    Arc::new(with)
}

/// A claim that several pods use, by its place among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SharedVolume(usize);

/// Shared volumes that are attached somewhere, or will be, sorted.
pub(crate) type Attached = SmallVec<[SharedVolume; 2]>;

/// What volumes that pods share add to what the first of them takes.
#[derive(Debug, Default)]
pub(crate) struct SharedVolumes {
    /// By volume.
    resources: Vec<ResourceId>,
    by_class: IdVec<ClassId, Attached>,
    /// What pods that run have attached; empty if nothing is shared.
    pub(crate) on_nodes: IdVec<NodeId, Attached>,
}

impl SharedVolumes {
    pub(crate) fn new(request: &Request<'_>, classes: &IdVec<ClassId, PodClass>) -> Self {
        if request.shared_volumes.is_empty() {
            return Self::default();
        }
        let (snapshot, shared) = (&request.snapshot, shared_volumes(request));
        Self {
            resources: request.shared_volumes.values().copied().collect(),
            by_class: classes.map(|class| volumes_of(&class.shape, &shared).collect()),
            on_nodes: snapshot.nodes.map(|node| attached_by(&node.pods, &shared)),
        }
    }

    /// Those of a class.
    pub(crate) fn of(&self, class: ClassId) -> &[SharedVolume] {
        self.by_class.try_get(class).map_or(&[], |volumes| volumes)
    }

    /// What the first copies of a class take besides their requests where some volumes are attached.
    pub(crate) fn extra(&self, class: ClassId, attached: &[SharedVolume]) -> SmallVec<[(ResourceId, i64); 2]> {
        let mut extra: SmallVec<[(ResourceId, i64); 2]> = SmallVec::new();
        for volume in self.of(class).iter().filter(|volume| !attached.contains(volume)) {
            let Some(&resource) = self.resources.get(volume.0) else { continue };
            match extra.iter_mut().find(|(known, _)| *known == resource) {
                Some((_, amount)) => *amount += 1,
                None => extra.push((resource, 1)),
            }
        }
        extra
    }

    /// Notes that the volumes of a class are attached.
    pub(crate) fn attach(&self, class: ClassId, attached: &mut Attached) {
        attached.extend_from_slice(self.of(class));
        attached.sort_unstable();
        attached.dedup();
    }

    /// Requests of a copy of the class where these volumes are attached.
    pub(crate) fn with_extra<'r>(
        &self,
        requests: &'r ResourceVec,
        class: ClassId,
        attached: &[SharedVolume],
    ) -> Cow<'r, ResourceVec> {
        let extra = self.extra(class, attached);
        if extra.is_empty() {
            return Cow::Borrowed(requests);
        }
        let mut with = requests.clone();
        for (resource, amount) in extra {
            with.set(resource, with.get(resource).saturating_add(amount));
        }
        Cow::Owned(with)
    }
}

/// Shared volumes by claim.
fn shared_volumes<'r>(request: &'r Request<'_>) -> BTreeMap<&'r NamespacedName, SharedVolume> {
    request.shared_volumes.keys().enumerate().map(|(index, claim)| (claim, SharedVolume(index))).collect()
}

fn volumes_of(
    shape: &PodShape,
    shared: &BTreeMap<&NamespacedName, SharedVolume>,
) -> impl Iterator<Item = SharedVolume> {
    claims(shape).into_iter().filter_map(|claim| shared.get(claim).copied())
}

fn attached_by(pods: &[Arc<Pod>], shared: &BTreeMap<&NamespacedName, SharedVolume>) -> Attached {
    let mut attached: Attached = pods.iter().flat_map(|pod| volumes_of(&pod.shape, shared)).collect();
    attached.sort_unstable();
    attached.dedup();
    attached
}

/// The shared volumes that some pods have attached.
pub(crate) fn shared_by(pods: &[Arc<Pod>], request: &Request<'_>) -> Attached {
    attached_by(pods, &shared_volumes(request))
}

/// How many more volumes, by resource, a node can attach once only those of its pods are left that stay.
pub(crate) fn given_back(node: &Node, stay: &[Arc<Pod>], snapshot: &Snapshot) -> Vec<(ResourceId, i64)> {
    let volumes = node.pods.iter().flat_map(|pod| &pod.shape.volumes);
    let drivers: BTreeSet<Arc<str>> =
        volumes.filter_map(|volume| Some(attached(volume, &snapshot.volumes)?.0)).collect();
    let more = |driver: &Arc<str>| {
        let resource = snapshot.interner.find_resource(&attach_resource(driver))?;
        let free = |pods: &[Arc<Pod>]| free_beside(node, driver, pods, snapshot);
        Some((resource, free(stay) - free(&node.pods)))
    };
    drivers.iter().filter_map(more).collect()
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

/// How many volumes of a driver a node can still attach beside those of some pods.
fn free_beside(node: &Node, driver: &Arc<str>, pods: &[Arc<Pod>], snapshot: &Snapshot) -> i64 {
    let Some(limit) = limit_of(&node.attach_limits, driver).or_else(|| limit_to_come(node, driver, snapshot)) else {
        return UNLIMITED;
    };
    let volumes = &snapshot.volumes;
    let used: BTreeSet<Volume<'_>> = pods
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

/// The CSI driver that attaches a volume and, unless the volume is the pod's own, its claim.
fn attached(volume: &VolumeRef, volumes: &Volumes) -> Option<(Arc<str>, Option<NamespacedName>)> {
    let provisioner = |class: Option<&Arc<str>>| volumes.class_of(class).map(|class| Arc::clone(&class.provisioner));
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
