//! What describes the devices of nodes that are there, and of machines on their way.

use std::{collections::BTreeMap, sync::Arc};

use api::labels;
use dra_sched::{
    InventoryBuilder, MachineTemplate, NodeFacts, PoolScope, SharedTemplate, Templates,
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
    let templates: IdVec<NodeId, Vec<Arc<Templates>>> = nodes
        .iter()
        .map(|node| templates_of(node, node.node_pool.as_ref().and_then(|name| by_name.get(name).copied()), shapes))
        .collect();
    let mut for_domains = ForDomains::new(nodes, &templates, objects, shapes);
    let mut described = IdVec::with_capacity(nodes.len());
    for (node, templates) in nodes.iter().zip(&templates) {
        let nothing = Vec::new();
        let there = node.name.as_ref().and_then(|name| published.get(name)).unwrap_or(&nothing);
        let is_missing = |template: &Arc<MachineTemplate>| !there.contains(&&template.driver);
        let mut misses_some = false;
        let mut expected: Vec<Arc<Templates>> = Vec::new();
        for of_type in templates.iter().filter(|_| node.awaits_devices || node.name.is_none()) {
            let shared = for_domains.still_to_come(node, &of_type.shared, shapes);
            misses_some |= of_type.own.iter().any(is_missing) || !shared.is_empty();
            expected.push(match shared.len() == of_type.shared.len() {
                true => Arc::clone(of_type),
                false => Arc::new(Templates { own: of_type.own.clone(), shared }),
            });
        }
        described.push(match &node.name {
            Some(name) if !misses_some => NodeDevices::Published(facts(name, node, shapes)),
            Some(_) | None => NodeDevices::Expected(shapes_of(node, &expected, shapes, builder)),
        });
    }
    described
}

/// Pools that nodes bring for their domain, and which of them are published. From slices alone nobody can tell who
/// published them, but they are alike: of the machines that still have to publish, as many have as there are pools over
/// those of the machines that are done.
struct ForDomains<'o> {
    objects: &'o DeviceObjects,
    /// By template and scope: pools that no machine has been found for.
    left: Vec<(Arc<SharedTemplate>, NodeScope, usize)>,
}

impl<'o> ForDomains<'o> {
    fn new(
        nodes: &IdVec<NodeId, Node>,
        templates: &IdVec<NodeId, Vec<Arc<Templates>>>,
        objects: &'o DeviceObjects,
        shapes: &Shapes<'_>,
    ) -> Self {
        let mut pools = Self { objects, left: Vec::new() };
        let is_done = |node: &Node| node.name.is_some() && !node.awaits_devices;
        for (node, templates) in nodes.iter().zip(templates).filter(|(node, _)| is_done(node)) {
            // A machine that is there has one type.
            for shared in templates.iter().take(1).flat_map(|of_type| &of_type.shared) {
                pools.take(node, shared, shapes);
            }
        }
        pools
    }

    /// The pools that a machine has still to publish.
    fn still_to_come(
        &mut self,
        node: &Node,
        shared: &[Arc<SharedTemplate>],
        shapes: &Shapes<'_>,
    ) -> Vec<Arc<SharedTemplate>> {
        let can_be_there = |shared: &SharedTemplate| node.name.is_some() || shared.scope == PoolScope::Domain;
        shared.iter().filter(|shared| !(can_be_there(shared) && self.take(node, shared, shapes))).cloned().collect()
    }

    /// Whether a node's pool is published.
    fn take(&mut self, node: &Node, shared: &Arc<SharedTemplate>, shapes: &Shapes<'_>) -> bool {
        let Some(scope) = shared.scope_of(&labels(node, shapes)) else { return false };
        let known = self.left.iter().position(|(known, of, _)| *of == scope && is_alike(known, shared));
        let known = known.unwrap_or_else(|| {
            let published = shared.published_pools(&scope, self.objects.slices.values().map(|slice| &**slice));
            self.left.push((Arc::clone(shared), scope, published));
            self.left.len() - 1
        });
        let Some((_, _, left)) = self.left.get_mut(known).filter(|(_, _, left)| *left > 0) else { return false };
        match shared.scope {
            PoolScope::Machine => *left -= 1,
            // One is enough for all.
            PoolScope::Domain => {}
        }
        true
    }
}

/// Whether the pools of two templates are as good as each other.
fn is_alike(a: &Arc<SharedTemplate>, b: &Arc<SharedTemplate>) -> bool {
    Arc::ptr_eq(a, b) || a.template.driver == b.template.driver && a.scope == b.scope
}

/// The templates of the types that a machine can be of; none where no catalogue knows its type.
fn templates_of(node: &Node, pool: Option<&NodePool>, shapes: &Shapes<'_>) -> Vec<Arc<Templates>> {
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
    let mut found: Vec<Arc<Templates>> = Vec::new();
    for instance_type in pool.catalogue.types.iter().filter(|of| is_possible(of.name.as_str())) {
        if !found.iter().any(|known| Arc::ptr_eq(known, &instance_type.device_templates)) {
            found.push(Arc::clone(&instance_type.device_templates));
        }
    }
    found
}

fn shapes_of(
    node: &Node,
    templates: &[Arc<Templates>],
    shapes: &mut Shapes<'_>,
    builder: &mut InventoryBuilder,
) -> IdSet<dra_sched::ShapeId> {
    let none: Arc<Templates> = Arc::default();
    let templates = if templates.is_empty() { std::slice::from_ref(&none) } else { templates };
    let shape = |templates: &Arc<Templates>| match &node.labels {
        NodeLabels::Known(labels) => shapes.of_labelled(templates, labels, node, builder),
        NodeLabels::Promised(promised) => shapes.of_machine(templates, promised, node, builder),
    };
    templates.iter().map(shape).collect()
}

/// Labels of a node that decide which devices it reaches.
fn labels(node: &Node, shapes: &Shapes<'_>) -> BTreeMap<Arc<str>, Arc<str>> {
    let names = shapes.names();
    let label = |(text, key): &(Arc<str>, model::KeyId)| {
        let value = match &node.labels {
            NodeLabels::Known(labels) => labels.get(*key)?,
            NodeLabels::Promised(promised) => promised.get(*key)?.values.single_value()?,
        };
        Some((Arc::clone(text), names.value_arc(value)))
    };
    shapes.keys().iter().filter_map(label).collect()
}

fn facts(name: &NodeName, node: &Node, shapes: &Shapes<'_>) -> NodeFacts {
    NodeFacts {
        name: Some(name.clone()),
        labels: labels(node, shapes),
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
