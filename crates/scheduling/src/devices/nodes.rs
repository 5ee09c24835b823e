//! What describes the devices of nodes that are there, and of machines on their way.

use std::{collections::BTreeMap, sync::Arc};

use api::labels;
use dra_sched::{InventoryBuilder, MachineTemplate, PoolScope, SharedTemplate, Templates};
use dra_types::{DriverName, NodeFacts, NodeScope, PoolName};
use model::{IdSet, IdVec, NodeName, NodePoolName, Requirement, Requirements, ValueId, ValueSet};

use super::{DeviceObjects, NodeDevices, shapes::Shapes};
use crate::{
    catalogue::TypeId,
    snapshot::{Node, NodeId, NodeLabels, NodePool, PoolId},
};

/// Whether any device can be used by more than one node.
pub(super) fn has_shared_devices(objects: &DeviceObjects) -> bool {
    objects.slices.values().any(|slice| !matches!(slice.node_scope, Some(NodeScope::Node(_)) | None))
}

/// Describes every node. A machine that has still to publish what its templates say is described by them; all others by
/// what is published.
pub(super) fn describe(
    nodes: &IdVec<NodeId, Arc<Node>>,
    pools: &IdVec<PoolId, NodePool>,
    objects: &DeviceObjects,
    shapes: &mut Shapes<'_>,
    builder: &mut InventoryBuilder,
) -> IdVec<NodeId, NodeDevices> {
    let published = complete_drivers(objects);
    let by_name: BTreeMap<&NodePoolName, &NodePool> = pools.iter().map(|pool| (&pool.name, pool)).collect();
    let templates: IdVec<NodeId, Vec<OfTypes>> = nodes
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
        let mut expected: Vec<OfTypes> = Vec::new();
        for of_type in templates.iter().filter(|_| node.awaits_devices || node.name.is_none()) {
            let all = &of_type.templates;
            let shared = for_domains.still_to_come(node, &all.shared, shapes);
            misses_some |= all.own.iter().any(is_missing) || !shared.is_empty();
            let templates = match shared.len() == all.shared.len() {
                true => Arc::clone(all),
                false => Arc::new(Templates { own: all.own.clone(), shared }),
            };
            expected.push(OfTypes { templates, promised: of_type.promised.clone() });
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
        nodes: &IdVec<NodeId, Arc<Node>>,
        templates: &IdVec<NodeId, Vec<OfTypes>>,
        objects: &'o DeviceObjects,
        shapes: &Shapes<'_>,
    ) -> Self {
        let mut pools = Self { objects, left: Vec::new() };
        let is_done = |node: &Node| node.name.is_some() && !node.awaits_devices;
        for (node, templates) in nodes.iter().zip(templates).filter(|(node, _)| is_done(node)) {
            // A machine that is there has one type.
            for shared in templates.iter().take(1).flat_map(|of_type| &of_type.templates.shared) {
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

/// What a machine brings if it is of one of some types.
struct OfTypes {
    templates: Arc<Templates>,
    /// What is promised of its labels then, for a machine that has not said them: a type may be had in one zone only.
    promised: Option<Requirements>,
}

/// What the types bring that a machine can be of; nothing where no catalogue knows its type.
fn templates_of(node: &Node, pool: Option<&NodePool>, shapes: &Shapes<'_>) -> Vec<OfTypes> {
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
    let mut found: Vec<(&Arc<Templates>, Vec<TypeId>)> = Vec::new();
    for (id, of) in pool.catalogue.types.iter_enumerated().filter(|(_, of)| is_possible(of.name.as_str())) {
        match found.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &of.device_templates)) {
            Some((_, types)) => types.push(id),
            None => found.push((&of.device_templates, vec![id])),
        }
    }
    let promised = |types: &[TypeId]| match &node.labels {
        NodeLabels::Known(_) => None,
        NodeLabels::Promised(promised) => Some(promised_of(promised, pool, types, shapes)),
    };
    found
        .into_iter()
        .map(|(templates, types)| OfTypes { templates: Arc::clone(templates), promised: promised(&types) })
        .collect()
}

/// What a NodeClaim promises of labels that matter, if its machine is of one of those types.
fn promised_of(promised: &Requirements, pool: &NodePool, types: &[TypeId], shapes: &Shapes<'_>) -> Requirements {
    let names = shapes.names();
    let offerings: Vec<&Requirements> = pool
        .catalogue
        .offerings
        .iter()
        .filter(|offering| types.contains(&offering.instance_type))
        .map(|offering| &offering.requirements)
        .filter(|of_offering| promised.intersects(of_offering, names).is_ok())
        .collect();
    let mut of_types = promised.clone();
    for (_, key) in shapes.keys() {
        let values = offerings.iter().map(|of_offering| of_offering.get(*key)?.values.finite_values());
        let values: Option<Vec<&[ValueId]>> = values.collect();
        if let Some(values) = values.filter(|values| !values.is_empty()) {
            let any = ValueSet::among(values.into_iter().flatten().copied());
            of_types.insert_intersect(Requirement::new(*key, any), names);
        }
    }
    of_types
}

fn shapes_of(
    node: &Node,
    expected: &[OfTypes],
    shapes: &mut Shapes<'_>,
    builder: &mut InventoryBuilder,
) -> IdSet<dra_sched::ShapeId> {
    let none: Arc<Templates> = Arc::default();
    let mut shape = |templates: &Arc<Templates>, of_types: Option<&Requirements>| match &node.labels {
        NodeLabels::Known(labels) => shapes.of_labelled(templates, labels, node, builder),
        NodeLabels::Promised(promised) => shapes.of_machine(templates, of_types.unwrap_or(promised), node, builder),
    };
    if expected.is_empty() {
        return [shape(&none, None)].into_iter().collect();
    }
    expected.iter().map(|of_types| shape(&of_types.templates, of_types.promised.as_ref())).collect()
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
