//! What machines look like to claims: their templates, and the labels by which they reach devices of others.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dra_sched::{InventoryBuilder, LabelKnowledge, MachineShape, ShapeId, SharedTemplate, Templates};
use dra_types::{NodeScope, NodeSelector};
use model::{IdVec, Interner, KeyId, Labels, Requirements, ValueId, ValueSet};

use super::{
    Demand, DemandId, DeviceObjects,
    daemons::{Daemons, Running},
};
use crate::{
    catalogue::{OfferingId, TypeId},
    snapshot::{Node, NodePool, PodsToPlace, PoolId},
};

/// Shapes found so far.
pub(super) struct Shapes<'a> {
    names: &'a Interner,
    /// Keys that decide who reaches a device, as far as any label has them.
    keys: Vec<(Arc<str>, KeyId)>,
    /// Values that the selectors ask for.
    asked: BTreeMap<KeyId, BTreeSet<ValueId>>,
    /// By templates, labels and daemons.
    known: BTreeMap<(usize, KnownLabels, Running), (Arc<Templates>, ShapeId)>,
    daemons: (&'a Daemons, &'a IdVec<DemandId, Demand>),
    /// What runs together, each numbered by its position.
    running: Vec<Running>,
}

/// Labels that matter, by name.
type KnownLabels = BTreeMap<Arc<str>, KnownLabel>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum KnownLabel {
    One(Arc<str>),
    Several(BTreeSet<Arc<str>>),
}

fn selectors(objects: &DeviceObjects) -> impl Iterator<Item = &NodeSelector> {
    let of_scope = |scope: &'_ NodeScope| matches!(scope, NodeScope::Selector(_));
    let scopes = objects.slices.values().flat_map(move |slice| {
        let of_devices = slice.devices.iter().filter_map(|device| device.node_scope.as_ref());
        slice.node_scope.iter().chain(of_devices).filter(move |scope| of_scope(scope))
    });
    let of_slices = scopes.filter_map(|scope| match scope {
        NodeScope::Selector(selector) => Some(selector),
        NodeScope::Node(_) | NodeScope::AllNodes | NodeScope::PerDevice => None,
    });
    let allocations = objects.claims.values().filter_map(|claim| claim.allocation.as_ref());
    of_slices.chain(allocations.filter_map(|allocation| allocation.node_selector.as_deref()))
}

/// Pools that machines will bring for others, each once for all types that share their templates.
pub(super) fn shared_templates(pools: &IdVec<PoolId, NodePool>) -> Vec<Arc<SharedTemplate>> {
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    let of_types = pools.iter().flat_map(|pool| pool.catalogue.types.iter()).map(|of| &of.device_templates);
    let different = of_types.filter(|templates| seen.insert(Arc::as_ptr(templates).addr()));
    different.flat_map(|templates| templates.shared.iter().cloned()).collect()
}

impl<'a> Shapes<'a> {
    pub(super) fn new(
        objects: &DeviceObjects,
        pools: &IdVec<PoolId, NodePool>,
        daemons: (&'a Daemons, &'a IdVec<DemandId, Demand>),
        names: &'a Interner,
    ) -> Self {
        let mut keys: BTreeMap<Arc<str>, KeyId> = BTreeMap::new();
        let mut asked: BTreeMap<KeyId, BTreeSet<ValueId>> = BTreeMap::new();
        let brought = shared_templates(pools);
        let of_published = selectors(objects).flat_map(|selector| &selector.terms);
        let terms = of_published.chain(brought.iter().map(|shared| &shared.nodes.term));
        for requirement in terms.flat_map(|term| &term.match_expressions) {
            let Some(key) = names.find_key(&requirement.key) else { continue };
            keys.insert(Arc::clone(&requirement.key), key);
            let values = requirement.values.iter().filter_map(|value| names.find_value(value));
            asked.entry(key).or_default().extend(values);
        }
        let of_hosts = brought.iter().flat_map(|shared| &shared.nodes.match_label_keys);
        keys.extend(of_hosts.filter_map(|name| Some((Arc::clone(name), names.find_key(name)?))));
        Self {
            names,
            keys: keys.into_iter().collect(),
            asked,
            known: BTreeMap::new(),
            daemons,
            running: vec![Running::new()],
        }
    }

    /// The shapes on which daemons run that want devices, with these.
    pub(super) fn into_running(self) -> BTreeMap<ShapeId, Running> {
        let shapes = self.known.into_iter().map(|((_, _, running), (_, shape))| (shape, running));
        shapes.filter(|(_, running)| !running.is_empty()).collect()
    }

    /// The daemons that a node has still to get.
    fn missing_on(&self, node: &Node) -> Running {
        let (daemons, demands) = self.daemons;
        daemons.missing_on(node, demands, self.names)
    }

    /// The label keys that matter.
    pub(super) fn keys(&self) -> &[(Arc<str>, KeyId)] {
        &self.keys
    }

    pub(super) fn names(&self) -> &'a Interner {
        self.names
    }

    /// The shape of each of the pool's instance types.
    pub(super) fn of_pool(
        &mut self,
        pool: &NodePool,
        pods: PodsToPlace<'_>,
        builder: &mut InventoryBuilder,
    ) -> IdVec<TypeId, ShapeId> {
        let labels: Vec<IdVec<TypeId, Option<KnownLabel>>> = self
            .keys
            .iter()
            .map(|(_, key)| label_of_types(pool, *key, || self.candidates(pool, *key, pods), self.names))
            .collect();
        let types = &pool.catalogue.types;
        let of_type = |instance_type: TypeId| -> KnownLabels {
            let with_keys = self.keys.iter().zip(&labels);
            with_keys
                .filter_map(|((name, _), of_types)| Some((Arc::clone(name), of_types[instance_type].clone()?)))
                .collect()
        };
        let (daemons, demands) = self.daemons;
        let running = |id: TypeId| daemons.of_type(pool, id, demands, self.names);
        let wanted: Vec<_> =
            types.ids().map(|id| (Arc::clone(&types[id].device_templates), of_type(id), running(id))).collect();
        wanted
            .into_iter()
            .map(|(templates, labels, running)| self.intern(&templates, labels, running, builder))
            .collect()
    }

    /// The shape of one machine of which this is known.
    pub(super) fn of_machine(
        &mut self,
        templates: &Arc<Templates>,
        promised: &Requirements,
        node: &Node,
        builder: &mut InventoryBuilder,
    ) -> ShapeId {
        let label = |(name, key): &(Arc<str>, KeyId)| {
            let values = promised.get(*key)?.values.finite_values()?;
            Some((Arc::clone(name), known_label(values.iter().copied(), self.names)?))
        };
        let labels = self.keys.iter().filter_map(label).collect();
        self.intern(templates, labels, self.missing_on(node), builder)
    }

    /// The shape of one machine with these labels.
    pub(super) fn of_labelled(
        &mut self,
        templates: &Arc<Templates>,
        labels: &Labels,
        node: &Node,
        builder: &mut InventoryBuilder,
    ) -> ShapeId {
        let label = |(name, key): &(Arc<str>, KeyId)| {
            Some((Arc::clone(name), KnownLabel::One(self.names.value_arc(labels.get(*key)?))))
        };
        let labels = self.keys.iter().filter_map(label).collect();
        self.intern(templates, labels, self.missing_on(node), builder)
    }

    fn intern(
        &mut self,
        templates: &Arc<Templates>,
        labels: KnownLabels,
        running: Running,
        builder: &mut InventoryBuilder,
    ) -> ShapeId {
        // The address only saves comparing; the builder knows equal shapes by their content.
        let key = (Arc::as_ptr(templates).addr(), labels, running);
        if let Some((_, shape)) = self.known.get(&key) {
            return *shape;
        }
        let knowledge = key.1.iter().map(|(name, label)| {
            let knowledge = match label {
                KnownLabel::One(value) => LabelKnowledge::Known(Arc::clone(value)),
                KnownLabel::Several(values) => LabelKnowledge::OneOf(values.clone()),
            };
            (Arc::clone(name), knowledge)
        });
        let shape = MachineShape::new(templates.own.clone(), knowledge.collect(), BTreeSet::new());
        let daemons = self.running.iter().position(|known| *known == key.2).unwrap_or_else(|| {
            self.running.push(key.2.clone());
            self.running.len() - 1
        });
        let daemons = u32::try_from(daemons).unwrap_or(u32::MAX);
        let id = builder.machine_shape(shape.with_shared(templates.shared.clone()).with_daemons(daemons));
        // What is remembered is kept, so that no other has its address.
        self.known.insert(key, (Arc::clone(templates), id));
        id
    }

    /// Values of a label that a pool leaves open without saying which: those that somebody asks for.
    fn candidates(&self, pool: &NodePool, key: KeyId, pods: PodsToPlace<'_>) -> BTreeSet<ValueId> {
        let allowed = |value: &ValueId| {
            let of_pool = pool.requirements.get(key);
            of_pool.is_none_or(|of_pool| of_pool.values.contains(Some(*value), self.names))
        };
        let of_pods = pods.shapes().flat_map(|shape| {
            let terms = shape.required_node_affinity.iter().map(|term| &term.expressions);
            terms.chain([&shape.node_selector]).filter_map(|requirements| requirements.get(key))
        });
        let of_pods = of_pods.filter_map(|wanted| wanted.values.finite_values()).flatten();
        of_pods.chain(self.asked.get(&key).into_iter().flatten()).copied().filter(allowed).collect()
    }
}

fn known_label(values: impl Iterator<Item = ValueId>, names: &Interner) -> Option<KnownLabel> {
    let values: BTreeSet<Arc<str>> = values.map(|value| names.value_arc(value)).collect();
    let mut all = values.iter();
    match (all.next(), all.next()) {
        (None, _) => None,
        (Some(one), None) => Some(KnownLabel::One(Arc::clone(one))),
        (Some(_), Some(_)) => Some(KnownLabel::Several(values)),
    }
}

/// What is known of one label of the machines of each type. Where it is not the type that decides it, it can be what
/// any of the pool's machines can have, so that types which differ in nothing else share a shape.
fn label_of_types(
    pool: &NodePool,
    key: KeyId,
    candidates: impl Fn() -> BTreeSet<ValueId>,
    names: &Interner,
) -> IdVec<TypeId, Option<KnownLabel>> {
    let catalogue = &*pool.catalogue;
    let of_offering = |offering: OfferingId| values_of(pool, offering, key, &candidates, names);
    let mut by_type: IdVec<TypeId, BTreeSet<ValueId>> = catalogue.types.map(|_| BTreeSet::new());
    for (id, offering) in catalogue.offerings.iter_enumerated() {
        by_type[offering.instance_type].extend(of_offering(id));
    }
    if by_type.iter().all(|values| values.len() <= 1) {
        return by_type.map(|values| known_label(values.iter().copied(), names));
    }
    let all: BTreeSet<ValueId> = by_type.iter().flatten().copied().collect();
    let shared = known_label(all.into_iter(), names);
    by_type.map(|values| if values.is_empty() { None } else { shared.clone() })
}

fn values_of(
    pool: &NodePool,
    offering: OfferingId,
    key: KeyId,
    candidates: &impl Fn() -> BTreeSet<ValueId>,
    names: &Interner,
) -> BTreeSet<ValueId> {
    let offered = pool.catalogue.offerings[offering].requirements.get(key).map(|of| &of.values);
    let of_pool = pool.requirements.get(key).map(|of| &of.values);
    let values = match (offered, of_pool) {
        (Some(offered), Some(of_pool)) => offered.intersect(of_pool, names),
        (Some(known), None) | (None, Some(known)) => known.clone(),
        (None, None) => ValueSet::only_absent(),
    };
    match values.finite_values() {
        Some(values) => values.iter().copied().collect(),
        None => candidates().into_iter().filter(|value| values.contains(Some(*value), names)).collect(),
    }
}
