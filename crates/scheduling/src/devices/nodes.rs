//! What describes the devices of nodes that are there, and of machines on their way.

use std::{collections::BTreeMap, sync::Arc};

use api::labels;
use dra_sched::{
    InventoryBuilder, MachineTemplate, NodeFacts,
    types::{DriverName, NodeScope, PoolName},
};
use model::{IdSet, IdVec, NodeName, NodePoolName};

use super::{DeviceObjects, NodeDevices, shapes::Shapes};
use crate::snapshot::{Node, NodeId, NodeLabels, NodePool, PoolId};

/// Whether any device can be used by more than one node.
pub(super) fn has_shared_devices(objects: &DeviceObjects) -> bool {
    objects.slices.values().any(|slice| !matches!(slice.node_scope, Some(NodeScope::Node(_)) | None))
}

/// Describes every node. A machine that has still to publish what its templates say is described by them; all others by
/// what is published.
pub(super) fn describe(
    nodes: &IdVec<NodeId, Node>,
    pools: &IdVec<PoolId, NodePool>,
    objects: &DeviceObjects,
    shapes: &mut Shapes<'_>,
    builder: &mut InventoryBuilder,
) -> IdVec<NodeId, NodeDevices> {
    let published = complete_drivers(objects);
    let by_name: BTreeMap<&NodePoolName, &NodePool> = pools.iter().map(|pool| (&pool.name, pool)).collect();
    let mut described = IdVec::with_capacity(nodes.len());
    for node in nodes {
        let pool = node.node_pool.as_ref().and_then(|name| by_name.get(name).copied());
        let templates = templates_of(node, pool, shapes);
        let nothing = Vec::new();
        let there = node.name.as_ref().and_then(|name| published.get(name)).unwrap_or(&nothing);
        let is_missing = |template: &Arc<MachineTemplate>| !there.contains(&&template.driver);
        let misses_some = node.awaits_devices && templates.iter().any(|of_type| of_type.iter().any(is_missing));
        described.push(match &node.name {
            Some(name) if !misses_some => NodeDevices::Published(facts(name, node, shapes)),
            Some(_) | None => NodeDevices::Expected(expected(node, &templates, shapes, builder)),
        });
    }
    described
}

type Templates = Arc<[Arc<MachineTemplate>]>;

/// The templates of the types that a machine can be of; none where no catalogue knows its type.
fn templates_of(node: &Node, pool: Option<&NodePool>, shapes: &Shapes<'_>) -> Vec<Templates> {
    let Some(pool) = pool else { return Vec::new() };
    let names = shapes.names();
    let Some(key) = names.find_key(labels::INSTANCE_TYPE) else { return Vec::new() };
    let is_possible = |instance_type: &str| {
        let value = names.find_value(instance_type);
        match &node.labels {
            NodeLabels::Known(labels) => value.is_some() && labels.get(key) == value,
            NodeLabels::Promised(promised) => promised.get(key).is_some_and(|of| of.values.contains(value, names)),
        }
    };
    let mut found: Vec<Templates> = Vec::new();
    for instance_type in pool.catalogue.types.iter().filter(|of| is_possible(of.name.as_str())) {
        if !found.iter().any(|known| Arc::ptr_eq(known, &instance_type.device_templates)) {
            found.push(Arc::clone(&instance_type.device_templates));
        }
    }
    found
}

fn expected(
    node: &Node,
    templates: &[Templates],
    shapes: &mut Shapes<'_>,
    builder: &mut InventoryBuilder,
) -> IdSet<dra_sched::ShapeId> {
    let none: Templates = Arc::new([]);
    let templates = if templates.is_empty() { std::slice::from_ref(&none) } else { templates };
    let shape = |templates: &Templates| match &node.labels {
        NodeLabels::Known(labels) => shapes.of_labelled(templates, labels, builder),
        NodeLabels::Promised(promised) => shapes.of_machine(templates, promised, builder),
    };
    templates.iter().map(shape).collect()
}

fn facts(name: &NodeName, node: &Node, shapes: &Shapes<'_>) -> NodeFacts {
    let names = shapes.names();
    let label = |(text, key): &(Arc<str>, model::KeyId)| {
        let value = match &node.labels {
            NodeLabels::Known(labels) => labels.get(*key)?,
            NodeLabels::Promised(promised) => promised.get(*key)?.values.single_value()?,
        };
        Some((Arc::clone(text), names.value_arc(value)))
    };
    NodeFacts {
        name: Some(name.clone()),
        labels: shapes.keys().iter().filter_map(label).collect(),
        declared_features: std::collections::BTreeSet::new(),
    }
}

/// The drivers all of whose pools on a node are complete.
fn complete_drivers(objects: &DeviceObjects) -> BTreeMap<NodeName, Vec<&DriverName>> {
    /// Generation, slices seen of it, slices that it has.
    type Seen = (i64, i64, i64);
    let mut pools: BTreeMap<(&NodeName, &DriverName, &PoolName), Seen> = BTreeMap::new();
    for slice in objects.slices.values() {
        let Some(NodeScope::Node(node)) = &slice.node_scope else { continue };
        let (generation, count) = (slice.pool.generation, slice.pool.resource_slice_count);
        let seen = pools.entry((node, &slice.driver, &slice.pool.name)).or_insert((generation, 0, count));
        if generation > seen.0 {
            *seen = (generation, 0, count);
        }
        if generation == seen.0 {
            seen.1 += 1;
        }
    }
    let mut complete: BTreeMap<(&NodeName, &DriverName), bool> = BTreeMap::new();
    for ((node, driver, _), (_, seen, count)) in pools {
        *complete.entry((node, driver)).or_insert(true) &= seen == count;
    }
    let mut by_node: BTreeMap<NodeName, Vec<&DriverName>> = BTreeMap::new();
    for ((node, driver), _) in complete.into_iter().filter(|(_, is_complete)| *is_complete) {
        by_node.entry(node.clone()).or_default().push(driver);
    }
    by_node
}
