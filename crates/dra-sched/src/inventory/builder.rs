//! Puts an [`Inventory`] together from objects, in any order.

mod digest;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use model::collections::{FastMap, NameMap};
use model::{Id, IdVec, NamespacedName, NodeName};
use smallvec::SmallVec;

use super::view::LocalSlices;
use super::{Inventory, shared};
use crate::compile::attributes::{AttributeColumn, ValueTable};
use crate::compile::claims::{Claim, ClaimClass, Numbering};
use crate::compile::derived::DerivedTable;
use crate::compile::device::{DeviceEntry, Draw, Pool, Shape, Slice, Traits};
use crate::compile::ids::{
    AttributeIndex, ClaimClassId, ClaimId, CounterIndex, CounterSetIndex, DeviceIndex, DeviceKey, DeviceShape, GroupId,
    PoolIndex, ShapeId, SharedPoolId, SliceIndex,
};
use crate::compile::node_scope::{keys_of, selector_keys};
use crate::compile::selectors::SelectorTable;
use crate::machine::{MachineShape, MachineTemplate, SharedTemplate};
use crate::quirks::Quirks;
use dra_types::compat::{Compat, Gate};
use dra_types::{
    AllocationResult, CounterConsumption, CounterName, CounterSetName, Device, DeviceClass, DeviceClassName, DeviceId,
    DeviceTaint, DeviceTaintRule, NodeScope, PoolId, QualifiedName, ResourceClaim, ResourceClaimSpec, ResourceSlice,
};

/// A claim spec: its name in reasons, the spec, and a field of it that is not understood.
type Spec = (Arc<str>, Arc<ResourceClaimSpec>, Option<Arc<str>>);

/// A template and its slices.
type TemplateSlices = (Arc<MachineTemplate>, Vec<SliceIndex>);

/// Where a slice comes from.
#[derive(Debug)]
enum Origin {
    Published,
    /// Only the machine itself can use it.
    Machine(Arc<MachineTemplate>),
    /// Nodes of a domain share it.
    Shared(Arc<SharedTemplate>),
}

impl Origin {
    fn template(&self) -> Option<&MachineTemplate> {
        match self {
            Self::Published => None,
            Self::Machine(template) => Some(template),
            Self::Shared(shared) => Some(&shared.template),
        }
    }
}

/// Collects objects for an [`Inventory`].
#[derive(Debug)]
pub struct InventoryBuilder {
    compat: Compat,
    classes: BTreeMap<DeviceClassName, Arc<DeviceClass>>,
    slices: Vec<(Arc<ResourceSlice>, Origin)>,
    rules: Vec<Arc<DeviceTaintRule>>,
    specs: IdVec<ClaimClassId, Spec>,
    /// Specs by a digest; those of one digest are compared in full.
    spec_of: FastMap<u64, SmallVec<[ClaimClassId; 1]>>,
    claims: IdVec<ClaimId, (ClaimClassId, Arc<ResourceClaim>)>,
    idle: BTreeSet<ClaimId>,
    groups: BTreeMap<NamespacedName, GroupId>,
    machines: IdVec<ShapeId, MachineShape>,
    /// Machine shapes by a digest.
    machine_of: FastMap<u64, SmallVec<[ShapeId; 1]>>,
    /// Templates that have slices, and these, by a digest.
    template_of: FastMap<u64, Vec<TemplateSlices>>,
    shared: IdVec<SharedPoolId, (Arc<SharedTemplate>, Vec<SliceIndex>)>,
}

impl InventoryBuilder {
    /// Nothing yet.
    pub fn new(compat: Compat) -> Self {
        Self {
            compat,
            classes: BTreeMap::new(),
            slices: Vec::new(),
            rules: Vec::new(),
            specs: IdVec::new(),
            spec_of: FastMap::default(),
            claims: IdVec::new(),
            idle: BTreeSet::new(),
            groups: BTreeMap::new(),
            machines: IdVec::new(),
            machine_of: FastMap::default(),
            template_of: FastMap::default(),
            shared: IdVec::new(),
        }
    }

    /// Adds a class; the last of a name counts.
    pub fn class(&mut self, class: Arc<DeviceClass>) {
        self.classes.insert(DeviceClassName::from(&*class.meta.name.name), class);
    }

    /// Adds a published slice.
    pub fn slice(&mut self, slice: Arc<ResourceSlice>) {
        self.slices.push((slice, Origin::Published));
    }

    /// Adds a rule. Without the gate it taints nothing.
    pub fn taint_rule(&mut self, rule: Arc<DeviceTaintRule>) {
        self.rules.push(rule);
    }

    /// Adds a claim spec under its name in reasons. Equal specs become one class, under the first name.
    pub fn claim_class(
        &mut self,
        name: &str,
        spec: &Arc<ResourceClaimSpec>,
        unsupported: Option<Arc<str>>,
    ) -> ClaimClassId {
        self.intern_spec(spec, unsupported, || (name.into(), Arc::clone(spec)))
    }

    /// The class of a spec; `new` gives the name and the spec of one that is not known.
    fn intern_spec(
        &mut self,
        spec: &ResourceClaimSpec,
        unsupported: Option<Arc<str>>,
        new: impl FnOnce() -> (Arc<str>, Arc<ResourceClaimSpec>),
    ) -> ClaimClassId {
        let specs = &self.specs;
        let same = |id: &&ClaimClassId| {
            let (_, known, field) = &specs[**id];
            (std::ptr::eq(&**known, spec) || **known == *spec) && *field == unsupported
        };
        let candidates = self.spec_of.entry(digest::of_spec(spec)).or_default();
        if let Some(known) = candidates.iter().find(same) {
            return *known;
        }
        let (name, shared) = new();
        let id = self.specs.push((name, shared, unsupported));
        candidates.push(id);
        id
    }

    /// Adds a claim that exists, allocated or not.
    pub fn claim(&mut self, claim: Arc<ResourceClaim>) -> ClaimId {
        let unsupported = claim.unsupported.first().map(|unsupported| Arc::clone(&unsupported.construct));
        let new = || (claim.meta.name.to_string().into(), Arc::new(claim.spec.clone()));
        let class = self.intern_spec(&claim.spec, unsupported, new);
        self.claims.push((class, claim))
    }

    /// Says that nobody uses an allocated claim. kube-scheduler takes the allocation back (`PostFilter` of its
    /// `DynamicResources` plugin) where a pod that names the claim fits on no node that the allocation is for. So each
    /// pod that names it may have it allocated anew on other nodes, until a pod of the plan uses it where it is.
    pub fn mark_idle(&mut self, claim: ClaimId) {
        self.idle.insert(claim);
    }

    /// The number of a PodGroup.
    pub fn group(&mut self, name: &NamespacedName) -> GroupId {
        let next = GroupId::from_index(self.groups.len());
        *self.groups.entry(name.clone()).or_insert(next)
    }

    /// Adds what machines of some instance types will publish, with the labels that they will have. Equal input gives
    /// the same id.
    pub fn machine_shape(&mut self, shape: MachineShape) -> ShapeId {
        let candidates = self.machine_of.entry(digest::of_machine(&shape)).or_default();
        if let Some(known) = candidates.iter().find(|known| self.machines[**known].is_like(&shape)) {
            return *known;
        }
        let id = self.machines.next_id();
        candidates.push(id);
        let mut slices: Vec<SliceIndex> =
            shape.templates.iter().flat_map(|template| self.slices_of(template)).collect();
        slices.sort_unstable();
        slices.dedup();
        let pools = shape.shared.iter().map(|shared| self.shared_pool(shared)).collect();
        self.machines.push(MachineShape { slices, pools, ..shape })
    }

    /// The slices of a template, which are added when it is first seen.
    fn slices_of(&mut self, template: &Arc<MachineTemplate>) -> Vec<SliceIndex> {
        let known = self.template_of.entry(digest::of_template(template)).or_default();
        let same = |(other, _): &&(Arc<MachineTemplate>, _)| Arc::ptr_eq(other, template) || other == template;
        if let Some((_, slices)) = known.iter().find(same) {
            return slices.clone();
        }
        let first = self.slices.len();
        let made =
            template.to_slices().into_iter().map(|slice| (Arc::new(slice), Origin::Machine(Arc::clone(template))));
        self.slices.extend(made);
        let slices: Vec<SliceIndex> = (first..self.slices.len()).map(SliceIndex::from_index).collect();
        known.push((Arc::clone(template), slices.clone()));
        slices
    }

    /// The pools of a shared template, whose slices are added when it is first seen.
    fn shared_pool(&mut self, shared: &Arc<SharedTemplate>) -> SharedPoolId {
        let same =
            |(_, (other, _)): &(SharedPoolId, &(Arc<SharedTemplate>, _))| Arc::ptr_eq(other, shared) || other == shared;
        if let Some((known, _)) = self.shared.iter_enumerated().find(same) {
            return known;
        }
        let first = self.slices.len();
        let made = shared.template.to_slices().into_iter();
        self.slices.extend(made.map(|slice| (Arc::new(slice), Origin::Shared(Arc::clone(shared)))));
        let slices = (first..self.slices.len()).map(SliceIndex::from_index).collect();
        self.shared.push((Arc::clone(shared), slices))
    }

    /// Compiles everything.
    pub fn build(self) -> Inventory {
        let devices = self.slices.iter().map(|(slice, _)| slice.devices.len()).sum();
        let mut tables = Tables::new(self.compat, &self.rules, devices);
        for (slice, origin) in &self.slices {
            tables.add(slice, origin);
        }
        // Claims are compiled after devices: the tables of selectors and derived attributes have a column for each
        // device shape.
        let mut selectors = SelectorTable::new(self.compat);
        let mut derived = DerivedTable::new(self.compat);
        let mut attributes = IdVec::new();
        let claim_classes: IdVec<ClaimClassId, ClaimClass> = self
            .specs
            .iter()
            .map(|(name, spec, unsupported)| {
                ClaimClass::compile(
                    name,
                    spec,
                    unsupported.as_ref(),
                    &self.compat,
                    &self.classes,
                    &mut Numbering { selectors: &mut selectors, derived: &mut derived, attributes: &mut attributes },
                )
            })
            .collect();
        selectors.set_shapes(tables.shapes.len());
        derived.set_shapes(tables.shapes.len());
        let mut values = ValueTable::new(Quirks::of(&self.compat).constraints_see_lists(&self.compat));
        // Only attributes that some constraint compares get a column of values.
        let attributes = tables.columns(&attributes, &mut values);
        values.fix();
        let machines = self.machines;
        // Which shared pools need a template depends on what is published by now.
        let published = if self.shared.is_empty() { Vec::new() } else { published(&tables.slices, &self.slices) };
        let shared_pools = shared::pools(&self.shared, &machines, &published);
        let mut inventory = Inventory {
            compat: self.compat,
            quirks: Quirks::of(&self.compat),
            slices: tables.slices,
            pools: tables.pools,
            devices: tables.devices,
            shapes: tables.shapes,
            keys: tables.keys,
            key_of: tables.key_of,
            local: tables.local,
            shared: tables.shared,
            selectors,
            attributes,
            values,
            derived,
            claim_classes,
            claims: IdVec::new(),
            of_first_consumer: NameMap::default(),
            alone: machines.map(|_| OnceLock::new()),
            machines,
            shared_pools,
            planned_keys: tables.planned_keys.into_iter().collect(),
            mentioned_keys: BTreeSet::new(),
        };
        // Keys that no node selector mentions cannot make domains matter.
        inventory.mentioned_keys = tables.mentioned_keys;
        for allocation in self.claims.iter().filter_map(|(_, claim)| claim.allocation.as_ref()) {
            let keys = allocation.node_selector.as_deref().into_iter().flat_map(selector_keys);
            inventory.mentioned_keys.extend(keys.cloned());
        }
        for (shared, _) in &self.shared {
            inventory.mentioned_keys.extend(shared.nodes.keys().cloned());
        }
        for (id, (class, claim)) in self.claims.iter_enumerated() {
            // An allocation may name a device that is no longer published; it still counts, so it gets a key.
            let results = claim.allocation.iter().flat_map(|allocation| &allocation.results);
            let key = |result: &AllocationResult| match inventory.key_of.get(&result.device) {
                Some(key) => *key,
                None => {
                    let key = inventory.keys.push(result.device.clone());
                    inventory.key_of.insert(result.device.clone(), key);
                    key
                }
            };
            let held = results.map(key).collect();
            let is_idle = claim.allocation.is_some() && self.idle.contains(&id);
            if let Some(first) = claim.reserved_for.first().filter(|first| claim.allocation.is_some() && first.is_pod())
            {
                inventory.of_first_consumer.entry(first.uid.clone()).or_default().push(id);
            }
            inventory.claims.push(Claim { class: *class, object: Arc::clone(claim), held, is_idle });
        }
        inventory
    }
}

/// The published slices of each pool.
fn published<'s>(
    slices: &'s IdVec<SliceIndex, Slice>,
    origins: &[(Arc<ResourceSlice>, Origin)],
) -> Vec<(PoolIndex, Vec<&'s Slice>)> {
    let mut pools: BTreeMap<PoolIndex, Vec<&Slice>> = BTreeMap::new();
    for (slice, _) in slices.iter().zip(origins).filter(|(_, (_, origin))| matches!(origin, Origin::Published)) {
        pools.entry(slice.pool).or_default().push(slice);
    }
    pools.into_iter().collect()
}

struct Tables<'a> {
    compat: Compat,
    quirks: Quirks,
    rules: Vec<&'a DeviceTaintRule>,
    slices: IdVec<SliceIndex, Slice>,
    pools: IdVec<PoolIndex, Pool>,
    /// By name and, for templates, by template: two templates never share a pool.
    pool_of: NameMap<(PoolId, Option<usize>), PoolIndex>,
    devices: IdVec<DeviceIndex, DeviceEntry>,
    shapes: IdVec<DeviceShape, Shape>,
    /// By hash of driver and attributes.
    shape_of: FastMap<u64, SmallVec<[DeviceShape; 1]>>,
    keys: IdVec<DeviceKey, DeviceId>,
    key_of: NameMap<DeviceId, DeviceKey>,
    local: NameMap<NodeName, LocalSlices>,
    shared: Vec<SliceIndex>,
    bindings: Vec<(DeviceIndex, QualifiedName, u32)>,
    planned_keys: Vec<DeviceKey>,
    /// Of devices without taints.
    no_taints: Arc<[DeviceTaint]>,
    /// The label keys on which it depends who reaches a device; with those of claims, who reaches an allocated one.
    mentioned_keys: BTreeSet<Arc<str>>,
}

impl<'a> Tables<'a> {
    /// Empty tables with room for so many devices.
    fn new(compat: Compat, rules: &'a [Arc<DeviceTaintRule>], devices: usize) -> Self {
        let active = compat.is_on(Gate::DeviceTaints) && compat.is_on(Gate::DeviceTaintRules);
        let mut rules: Vec<&DeviceTaintRule> =
            rules.iter().filter(|rule| active && rule.unsupported.is_empty()).map(|rule| &**rule).collect();
        rules.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        Self {
            compat,
            quirks: Quirks::of(&compat),
            rules,
            slices: IdVec::new(),
            pools: IdVec::new(),
            pool_of: NameMap::default(),
            devices: IdVec::with_capacity(devices),
            shapes: IdVec::new(),
            shape_of: FastMap::default(),
            keys: IdVec::with_capacity(devices),
            key_of: NameMap::with_capacity_and_hasher(devices, <_>::default()),
            local: NameMap::default(),
            shared: Vec::new(),
            bindings: Vec::new(),
            planned_keys: Vec::new(),
            no_taints: Arc::default(),
            mentioned_keys: BTreeSet::new(),
        }
    }

    fn add(&mut self, slice: &Arc<ResourceSlice>, origin: &Origin) {
        let template = origin.template();
        let id = slice.pool_id();
        let index = self.slices.next_id();
        // Templates never share a pool with what is published.
        let pool = *self
            .pool_of
            .entry((id.clone(), template.map(|template| std::ptr::from_ref(template) as usize)))
            .or_insert_with(|| {
                self.pools.push(Pool { id, slices: Vec::new(), sets: IdVec::new(), counters: IdVec::new() })
            });
        self.pools[pool].slices.push(index);
        for set in &slice.shared_counters {
            let set_index = self.set(pool, &set.name);
            for counter in set.counters.keys() {
                self.counter(pool, set_index, counter);
            }
        }
        let uses_groups = slice
            .devices
            .iter()
            .flat_map(|device| &device.consumes_counters)
            .any(|draw| !draw.compatibility_groups.is_empty());
        self.slices.push(Slice {
            slice: Arc::clone(slice),
            pool,
            first_device: self.devices.next_id(),
            uses_compatibility_groups: uses_groups,
            template: matches!(origin, Origin::Machine(_)),
        });
        self.mentioned_keys.extend(slice.node_scope.iter().flat_map(keys_of).cloned());
        // Slices of a driver are often alike but for the names, device by device: those of its machines.
        let mut alike = index.index().checked_sub(1).map(SliceIndex::from_index);
        for position in 0..slice.devices.len() {
            let known = alike.and_then(|alike| self.shape_at(alike, position));
            let shape = self.add_device(slice, index, position, (pool, origin), known);
            // No more guesses once one was wrong.
            alike = alike.filter(|_| known == shape);
        }
        if template.is_some() {
            return;
        }
        // Up to 1.36 slices with counters are looked at for every node.
        let everywhere = Quirks::of(&self.compat).counter_slices_reach_all_nodes && !slice.shared_counters.is_empty();
        match &slice.node_scope {
            Some(NodeScope::Node(node)) if !everywhere => {
                self.local.entry(node.clone()).or_default().slices.push(index);
            }
            Some(NodeScope::Node(_) | NodeScope::Selector(_) | NodeScope::AllNodes | NodeScope::PerDevice) | None => {
                self.shared.push(index);
            }
        }
    }

    /// Adds a device, whose shape may be one that is known; gives the shape.
    fn add_device(
        &mut self,
        slice: &Arc<ResourceSlice>,
        index: SliceIndex,
        position: usize,
        (pool, origin): (PoolIndex, &Origin),
        guess: Option<DeviceShape>,
    ) -> Option<DeviceShape> {
        let template = origin.template();
        let device = slice.devices.get(position)?;
        self.mentioned_keys.extend(device.node_scope.iter().flat_map(keys_of).cloned());
        let id = DeviceId { driver: slice.driver.clone(), pool: slice.pool.name.clone(), device: device.name.clone() };
        let taints = self.taints(device, &id);
        let key = match origin {
            Origin::Published => *self.key_of.entry(id).or_insert_with_key(|id| self.keys.push(id.clone())),
            // Devices of templates are nobody else's, whatever their names.
            Origin::Machine(_) => {
                let key = self.keys.push(id);
                self.planned_keys.push(key);
                key
            }
            Origin::Shared(_) => self.keys.push(id),
        };
        let is_guess = |guess: &DeviceShape| self.shapes[*guess].is_of(slice, device);
        let shape = guess.filter(is_guess).unwrap_or_else(|| self.shape(slice, device, position));
        let draws = device.consumes_counters.iter().map(|draw| self.draw(pool, draw)).collect();
        let entry = self.devices.push(DeviceEntry {
            slice: index,
            position,
            key,
            shape,
            taints,
            draws,
            bound: SmallVec::new(),
            traits: Traits::of(slice, device),
        });
        // The attribute's column does not exist yet, so the binding is resolved once all attributes are numbered.
        for (group, binding) in template.iter().flat_map(|template| template.bindings.iter()) {
            if binding.device == device.name {
                self.bindings.push((entry, binding.attribute.clone(), *group));
            }
        }
        Some(shape)
    }

    /// A DeviceTaintRule taints like the driver itself (KEP-5055); the rules come after the device's own taints.
    fn taints(&self, device: &Device, id: &DeviceId) -> Arc<[DeviceTaint]> {
        let is_for = |rule: &&&DeviceTaintRule| match &rule.selector {
            Some(selector) => selector.matches(&id.driver, &id.pool, &id.device),
            None => self.quirks.rule_without_selector_taints_all,
        };
        let of_rules = self.rules.iter().filter(is_for).map(|rule| &rule.taint);
        let taints: SmallVec<[DeviceTaint; 1]> = device.taints.iter().chain(of_rules).cloned().collect();
        if taints.is_empty() { Arc::clone(&self.no_taints) } else { taints.into_vec().into() }
    }

    /// The shape of a device that was added.
    fn shape_at(&self, slice: SliceIndex, position: usize) -> Option<DeviceShape> {
        let slice = &self.slices[slice];
        let device = DeviceIndex::from_index(slice.first_device.index() + position);
        (position < slice.slice.devices.len()).then(|| self.devices[device].shape)
    }

    /// The shape of a device. Candidates with one hash are compared in full.
    fn shape(&mut self, slice: &Arc<ResourceSlice>, device: &Device, position: usize) -> DeviceShape {
        let hash = self.shape_of.hasher().hash_one((&slice.driver, &device.attributes));
        let candidates = self.shape_of.entry(hash).or_default();
        if let Some(known) = candidates.iter().find(|candidate| self.shapes[**candidate].is_of(slice, device)) {
            return *known;
        }
        let shape = self.shapes.push(Shape {
            driver: slice.driver.clone(),
            slice: Arc::clone(slice),
            position,
            plain_capacity: device
                .capacity
                .values()
                .all(|capacity| capacity.request_policy.is_none() && capacity.value.to_nano() >= 0),
            view: OnceLock::new(),
        });
        candidates.push(shape);
        shape
    }

    fn set(&mut self, pool: PoolIndex, name: &CounterSetName) -> CounterSetIndex {
        let sets = &mut self.pools[pool].sets;
        let known = sets.iter_enumerated().find(|(_, known)| *known == name).map(|(index, _)| index);
        known.unwrap_or_else(|| sets.push(name.clone()))
    }

    fn counter(&mut self, pool: PoolIndex, set: CounterSetIndex, name: &CounterName) -> CounterIndex {
        let counters = &mut self.pools[pool].counters;
        let same = |(_, (known_set, known)): &(CounterIndex, &(CounterSetIndex, CounterName))| {
            *known_set == set && known == name
        };
        let known = counters.iter_enumerated().find(same).map(|(index, _)| index);
        known.unwrap_or_else(|| counters.push((set, name.clone())))
    }

    fn draw(&mut self, pool: PoolIndex, draw: &CounterConsumption) -> Draw {
        let set = self.set(pool, &draw.counter_set);
        let counters =
            draw.counters.iter().map(|(name, amount)| (self.counter(pool, set, name), amount.to_nano())).collect();
        let mut groups = draw.compatibility_groups.clone();
        groups.sort_unstable();
        groups.dedup();
        Draw { set, counters, groups: groups.into() }
    }

    /// Looks up every attribute that a constraint compares on every shape.
    fn columns(
        &mut self,
        names: &IdVec<AttributeIndex, QualifiedName>,
        values: &mut ValueTable,
    ) -> IdVec<AttributeIndex, AttributeColumn> {
        for (device, attribute, group) in std::mem::take(&mut self.bindings) {
            for (index, name) in names.iter_enumerated() {
                let driver = self.shapes[self.devices[device].shape].driver.clone();
                if *name == attribute || name.resolve(&driver) == attribute.resolve(&driver) {
                    self.devices[device].bound.push((index, group));
                }
            }
        }
        names.map(|name| AttributeColumn::new(name.clone(), &self.shapes, values))
    }
}
