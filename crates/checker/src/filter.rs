//! kube-scheduler's filters (1.36), one function each, for one pod and one node as the cluster is at that moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{
    LabelSelector, NamespacedName, Pod, ResourceVec, ValueId,
    pod::{NodeInclusionPolicy, PodAffinityTerm, TopologySpreadConstraint, VolumeRef, WhenUnsatisfiable},
    volume::{AccessMode, StorageClass},
};

use scheduling::Snapshot;

use crate::world::World;

/// Why the pod is not let onto the node.
pub(crate) fn filter(world: &World<'_>, pod: &Pod, node: usize) -> Result<(), String> {
    taints_and_node_affinity(world, pod, node)?;
    resources(world, pod, node)?;
    ports(world, pod, node)?;
    spread(world, pod, node)?;
    anti_affinity(world, pod, node)?;
    affinity(world, pod, node)?;
    volumes(world, pod, node)?;
    devices(world, pod, node)
}

/// The filters that nothing which comes later can open.
pub(crate) fn lasting(world: &World<'_>, pod: &Pod, node: usize) -> Result<(), String> {
    taints_and_node_affinity(world, pod, node)?;
    resources(world, pod, node)?;
    ports(world, pod, node)?;
    anti_affinity(world, pod, node)?;
    volumes(world, pod, node)?;
    devices(world, pod, node)
}

fn ensure(holds: bool, why: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why.into()) }
}

fn taints_and_node_affinity(world: &World<'_>, pod: &Pod, node: usize) -> Result<(), String> {
    ensure(world.tolerates(&pod.shape, node), "a taint is not tolerated")?;
    ensure(world.affinity_matches(&pod.shape, node), "labels do not match")
}

fn resources(world: &World<'_>, pod: &Pod, node: usize) -> Result<(), String> {
    let there = world.node(node);
    let mut used = ResourceVec::default();
    let compiled = world.devices();
    let requests = |pod: &Pod| match &compiled {
        Some(compiled) => compiled.requests(world, pod, node),
        None => pod.shape.requests.clone(),
    };
    for pod in &there.pods {
        used.saturating_add_assign(&requests(pod));
    }
    for shape in &there.daemons {
        used.saturating_add_assign(&shape.requests);
    }
    for (resource, amount) in requests(pod).iter() {
        let free = there.allocatable.get(resource).saturating_sub(used.get(resource));
        ensure(amount <= free, format!("{} is short", world.names.resource_name(resource)))?;
    }
    Ok(())
}

/// Whether the pod's claims can be allocated on the node, and whether the node has what their devices cost.
fn devices(world: &World<'_>, pod: &Pod, node: usize) -> Result<(), String> {
    if !crate::devices::concern(world.snapshot, pod) {
        return Ok(());
    }
    let Some(compiled) = world.devices() else { return Ok(()) };
    let mut held = compiled.replay(&world.bound())?;
    compiled.bind(&mut held, &pod.uid, node)?;
    let there = world.node(node);
    let mut free = there.allocatable.clone();
    for other in there.pods.iter().copied().chain([pod]) {
        free.saturating_sub_assign(&compiled.requests(world, other, node));
    }
    for shape in &there.daemons {
        free.saturating_sub_assign(&shape.requests);
    }
    for (name, nano) in held.costs.get(&node).into_iter().flatten() {
        let Some(resource) = world.names.find_resource(name) else { return Err(format!("no node has {name}")) };
        let unit = if name == "cpu" { 1_000_000 } else { 1_000_000_000 };
        ensure(*nano <= i128::from(free.get(resource)) * unit, format!("{name} is short for devices"))?;
    }
    Ok(())
}

/// The node that keeps a pod from all nodes, and its error: kube-scheduler asks those that taints, labels and room let
/// it onto for devices, and an error of one is its answer.
pub(crate) fn ended(snapshot: &Snapshot, pod: &Pod) -> Option<String> {
    if !crate::devices::concern(snapshot, pod) {
        return None;
    }
    let world = World::as_it_is(snapshot);
    let compiled = world.devices()?;
    let asked = (0..world.nodes.len()).filter(|&node| world.is_asked_for_devices(node));
    let mut let_in =
        asked.filter(|&node| taints_and_node_affinity(&world, pod, node).and(resources(&world, pod, node)).is_ok());
    let_in.find_map(|node| Some(format!("{} ends it: {}", world.name(node), compiled.ends(&pod.uid, node)?)))
}

fn ports(world: &World<'_>, pod: &Pod, node: usize) -> Result<(), String> {
    let there = world.node(node);
    let taken = there.pods.iter().map(|pod| &*pod.shape).chain(there.daemons.iter().copied());
    for port in taken.flat_map(|shape| &shape.host_ports) {
        for wanted in &pod.shape.host_ports {
            let any = |ip: std::net::IpAddr| ip == std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
            let conflict = port.port == wanted.port
                && port.protocol == wanted.protocol
                && (port.ip == wanted.ip || any(port.ip) || any(wanted.ip));
            ensure(!conflict, format!("port {wanted} is taken"))?;
        }
    }
    Ok(())
}

fn spread(world: &World<'_>, pod: &Pod, node: usize) -> Result<(), String> {
    let hard: Vec<&TopologySpreadConstraint> = pod
        .shape
        .topology_spread
        .iter()
        .filter(|spread| spread.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule)
        .collect();
    for spread in &hard {
        let mut selector = spread.selector.clone();
        for &key in &spread.match_label_keys {
            if let Some(value) = pod.labels.get(key) {
                selector.and_label(key, value, &world.names);
            }
        }
        let mut counts: BTreeMap<ValueId, i64> = BTreeMap::new();
        let nodes = world.nodes.iter().map(|node| (node, false));
        for (there, is_going) in nodes.chain(world.going.iter().map(|node| (node, true))) {
            let counted = hard.iter().all(|spread| there.label(spread.topology_key).is_some())
                && (spread.node_affinity_policy == NodeInclusionPolicy::Ignore
                    || there.is_wanted_by(&pod.shape, &world.names))
                && (spread.node_taints_policy == NodeInclusionPolicy::Ignore
                    || there.is_tolerated_by(&pod.shape, &world.names));
            let Some(value) = there.label(spread.topology_key).filter(|_| counted) else { continue };
            // One that is going may take its domain along.
            if is_going && !counts.contains_key(&value) {
                continue;
            }
            let matched = there.pods.iter().filter(|other| {
                other.deletion_timestamp.is_none()
                    && other.name.namespace == pod.name.namespace
                    && selector.matches(&other.labels, &world.names)
            });
            *counts.entry(value).or_default() += i64::try_from(matched.count()).unwrap_or(i64::MAX);
        }
        let here = world.node(node).label(spread.topology_key);
        let what = || format!("spread over {}", world.names.key_name(spread.topology_key));
        let Some(here) = here else { return Err(format!("{}: the label is missing", what())) };
        let least = if counts.len() < spread.min_domains.unwrap_or(1) as usize {
            0
        } else {
            counts.values().copied().min().unwrap_or(i64::MAX / 2)
        };
        let itself = i64::from(selector.matches(&pod.labels, &world.names));
        let skew = counts.get(&here).copied().unwrap_or(0) + itself - least;
        ensure(skew <= i64::from(spread.max_skew), format!("{}: the skew would be {skew}", what()))?;
    }
    Ok(())
}

/// Whether the term of a pod in `owner`'s namespace means `other`.
fn term_matches(world: &World<'_>, term: &PodAffinityTerm, other: &Pod) -> bool {
    let by_label = match &term.namespace_selector {
        LabelSelector::Nothing => false,
        selector => world
            .snapshot
            .namespaces
            .get(&other.name.namespace)
            .is_none_or(|labels| selector.matches(labels, &world.names)),
    };
    (by_label || term.namespaces.contains(&other.name.namespace)) && term.selector.matches(&other.labels, &world.names)
}

fn anti_affinity(world: &World<'_>, pod: &Pod, node: usize) -> Result<(), String> {
    for there in world.nodes.iter().chain(&world.going) {
        for other in &there.pods {
            let mine = pod.shape.pod_anti_affinity.required.iter().map(|term| (term, *other));
            let theirs = other.shape.pod_anti_affinity.required.iter().map(|term| (term, pod));
            for (term, meant) in mine.chain(theirs) {
                let here = world.node(node).label(term.topology_key);
                let together = here.is_some() && here == there.label(term.topology_key);
                ensure(
                    !(together && term_matches(world, term, meant)),
                    format!("anti-affinity with {} over {}", other.name, world.names.key_name(term.topology_key)),
                )?;
            }
        }
    }
    Ok(())
}

fn affinity(world: &World<'_>, pod: &Pod, node: usize) -> Result<(), String> {
    let terms = &pod.shape.pod_affinity.required;
    if terms.is_empty() {
        return Ok(());
    }
    let is_meant = |other: &Pod| terms.iter().all(|term| term_matches(world, term, other));
    let mut somewhere = false;
    let mut found = vec![false; terms.len()];
    for there in world.nodes.iter().chain(&world.going) {
        if !there.pods.iter().any(|other| is_meant(other)) {
            continue;
        }
        for (term, found) in terms.iter().zip(&mut found) {
            let value = there.label(term.topology_key);
            somewhere |= value.is_some();
            *found |= value.is_some() && value == world.node(node).label(term.topology_key);
        }
    }
    let labelled = terms.iter().all(|term| world.node(node).label(term.topology_key).is_some());
    ensure(labelled, "affinity: a label is missing")?;
    ensure(found.iter().all(|found| *found) || (!somewhere && is_meant(pod)), "affinity: nothing to be near to")
}

fn volumes(world: &World<'_>, pod: &Pod, node: usize) -> Result<(), String> {
    let volumes = &world.snapshot.volumes;
    let class_of = |name: Option<&Arc<str>>| -> Option<&StorageClass> {
        match name {
            Some(name) => volumes.classes.get(name).map(|class| &**class),
            None => volumes.classes.values().find(|class| class.is_default).map(|class| &**class),
        }
    };
    let allowed = |class: Option<&StorageClass>| match class {
        None => Err("a StorageClass is missing".to_owned()),
        Some(class) => ensure(
            class.allowed_topologies.is_empty()
                || class.allowed_topologies.iter().any(|topology| world.all_hold(topology, node)),
            "allowedTopologies",
        ),
    };
    let everywhere = || world.nodes.iter().chain(&world.going).flat_map(|there| there.pods.iter());
    for volume in &pod.shape.volumes {
        let name = match volume {
            VolumeRef::Ephemeral { storage_class, .. } => {
                allowed(class_of(storage_class.as_ref()))?;
                continue;
            }
            VolumeRef::Claim(name) => name,
        };
        let Some(claim) = volumes.claims.get(name) else { return Err(format!("claim {name} is missing")) };
        if claim.access_modes.contains(&AccessMode::ReadWriteOncePod) {
            let used = everywhere().any(|other| other.shape.volumes.contains(volume));
            ensure(!used, format!("claim {name} is in use"))?;
        }
        match &claim.volume_name {
            None => allowed(class_of(claim.storage_class.as_ref()))?,
            Some(bound) => {
                let Some(bound) = volumes.volumes.get(bound) else { return Err(format!("volume {bound} is missing")) };
                let reached = bound.node_affinity.is_empty()
                    || bound.node_affinity.iter().any(|term| world.term_matches(term, node));
                ensure(reached, format!("volume {} is elsewhere", bound.name))?;
            }
        }
    }
    attachments(world, pod, node)
}

/// Different volumes of each limited driver, with those of the pod.
fn attachments(world: &World<'_>, pod: &Pod, node: usize) -> Result<(), String> {
    let volumes = &world.snapshot.volumes;
    let there = world.node(node);
    if pod.shape.volumes.is_empty() {
        return Ok(());
    }
    for (driver, limit) in &there.attach_limits {
        let mut attached: BTreeSet<(NamespacedName, Arc<str>)> = BTreeSet::new();
        for user in there.pods.iter().copied().chain([pod]) {
            for volume in &user.shape.volumes {
                let class = |name: Option<&Arc<str>>| match name {
                    Some(name) => volumes.classes.get(name).map(|class| Arc::clone(&class.provisioner)),
                    None => {
                        let default = volumes.classes.values().find(|class| class.is_default);
                        default.map(|class| Arc::clone(&class.provisioner))
                    }
                };
                let (made_by, key) = match volume {
                    VolumeRef::Ephemeral { volume, storage_class } => {
                        (class(storage_class.as_ref()), (user.name.clone(), Arc::clone(volume)))
                    }
                    VolumeRef::Claim(name) => {
                        let claim = volumes.claims.get(name);
                        let made_by = claim.and_then(|claim| match &claim.volume_name {
                            Some(bound) => volumes.volumes.get(bound).and_then(|bound| bound.csi_driver.clone()),
                            None => class(claim.storage_class.as_ref()),
                        });
                        (made_by, (name.clone(), Arc::from("claim")))
                    }
                };
                if made_by.as_ref() == Some(driver) {
                    attached.insert(key);
                }
            }
        }
        ensure(attached.len() <= *limit as usize, format!("too many volumes of {driver}"))?;
    }
    Ok(())
}
