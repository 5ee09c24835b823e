//! What a node can reach: pools in upstream's order, whether they are usable, and their devices.
//!
//! Upstream's rules (`GatherPools`): only slices that reach the node decide which generation of a pool counts. If these
//! are not as many as they say, all slices of the pool are looked at, and the pool is not there if another node has
//! slices of a newer generation. Pools are ordered by driver and name, those with a device that has binding conditions
//! last; slices by name; devices as listed. Names of pools that are still to be published are assumed ([`PoolOrder`]).
//!
//! What a node sees of its own slices alone depends only on its name, and what a planned machine sees of its templates
//! only on its shape, so such views are made once and shared.

use std::sync::{Arc, OnceLock};

use model::collections::{FastSet, NameSet};
use model::{Id, IdVec, define_id};

use super::shared::Brought;
use super::unit::{BinId, CounterKey, Instance, Unit};
use super::{Inventory, PoolKind, PoolOrder};
use crate::compile::attributes;
use crate::compile::ids::{CounterIndex, DeviceIndex, PoolIndex, ShapeId, SliceIndex};
use crate::faults::{Fault, PoolTrouble};
use crate::machine::MachineTemplate;
use dra_types::compat::{Gate, KubernetesMinor};
use dra_types::{DeviceId, NodeFacts, NodeScope, NodeSelector, PoolId};

define_id! {
    /// A device of a view.
    pub(crate) struct Position;
}
define_id! {
    /// A pool of a view.
    pub(crate) struct PoolPosition;
}

/// The input of one search.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) pools: IdVec<PoolPosition, ViewPool>,
    /// Devices of usable pools in upstream's order.
    pub(crate) devices: IdVec<Position, ViewDevice>,
    /// The node selector of what can only be used on this node; made when first needed.
    pub(crate) only_here: OnceLock<Arc<NodeSelector>>,
}

/// The slices that belong to one node only.
#[derive(Debug, Default)]
pub(crate) struct LocalSlices {
    pub(crate) slices: Vec<SliceIndex>,
    /// What the node sees if no other slice reaches it.
    alone: OnceLock<Result<Arc<View>, Fault>>,
}

/// A pool that a node sees.
#[derive(Debug, Clone)]
pub(crate) struct ViewPool {
    pub(crate) pool: PoolIndex,
    pub(crate) trouble: Option<PoolTrouble>,
    /// The total of each counter of the pool; None if the generation does not define it.
    pub(crate) totals: Box<[Option<i128>]>,
    /// All devices of the generation that draw counters, also those that other nodes see.
    pub(crate) drawing: Box<[DeviceIndex]>,
    /// The shared template that describes the pool, if it is not published yet.
    pub(crate) brought: Option<Brought>,
    /// Added to the numbers of bound-attribute groups in a pool that another machine brings, so that they differ from
    /// this machine's.
    pub(crate) group_offset: Option<u32>,
}

impl ViewPool {
    /// Which of the pools made from its template this is.
    pub(crate) fn instance(&self) -> Instance {
        self.brought.as_ref().map_or(Instance::ONLY, |brought| brought.instance)
    }

    /// A counter of it, as ledgers know it.
    pub(crate) fn counter(&self, counter: CounterIndex) -> CounterKey {
        (self.pool, self.instance(), counter)
    }

    /// A device of it, as ledgers know it.
    pub(crate) fn unit(&self, inventory: &Inventory, device: DeviceIndex) -> Unit {
        Unit::new(inventory.devices[device].key, self.instance())
    }

    /// The pool's name in results.
    pub(crate) fn id(&self, inventory: &Inventory) -> PoolId {
        let PoolId { driver, pool } = inventory.pools[self.pool].id.clone();
        PoolId { driver, pool: self.brought.as_ref().map_or(pool, |brought| brought.name.clone()) }
    }
}

/// A device that a node sees in a usable pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ViewDevice {
    pub(crate) device: DeviceIndex,
    /// Position among the view's pools.
    pub(crate) pool: PoolPosition,
    /// Whether the device's own node selection includes the node, if its slice leaves that to devices.
    pub(crate) here: bool,
}

impl View {
    /// Whether a search could not tell the two apart, except by the labels in results.
    pub(crate) fn sees_the_same(&self, other: &Self) -> bool {
        let device = |device: &ViewDevice| (device.device, device.here);
        let pool = |pool: &ViewPool| (pool.pool, pool.instance(), pool.trouble.is_some());
        self.devices.iter().map(device).eq(other.devices.iter().map(device))
            && self.pools.iter().map(pool).eq(other.pools.iter().map(pool))
    }

    /// A device, as ledgers know it.
    pub(crate) fn unit(&self, inventory: &Inventory, position: Position) -> Unit {
        let device = &self.devices[position];
        self.pools[device.pool].unit(inventory, device.device)
    }

    /// The name of a device in results.
    pub(crate) fn device_id(&self, inventory: &Inventory, position: Position) -> DeviceId {
        let device = &self.devices[position];
        let mut id = inventory.keys[inventory.devices[device.device].key].clone();
        if let Some(brought) = &self.pools[device.pool].brought {
            id.pool = brought.name.clone();
        }
        id
    }

    /// The device with that name in results.
    pub(crate) fn find(&self, inventory: &Inventory, id: &DeviceId) -> Option<DeviceIndex> {
        let is_it = |device: &&ViewDevice| {
            let known = &inventory.keys[inventory.devices[device.device].key];
            let pool = self.pools[device.pool].brought.as_ref().map_or(&known.pool, |brought| &brought.name);
            known.device == id.device && *pool == id.pool && known.driver == id.driver
        };
        self.devices.iter().find(is_it).map(|device| device.device)
    }
}

impl View {
    /// What an existing node sees, including pools that planned machines bring it.
    pub(crate) fn of_node(
        inventory: &Inventory,
        facts: &NodeFacts,
        brought: &[Brought],
        order: PoolOrder,
    ) -> Result<Arc<Self>, Fault> {
        let local = facts.name.as_ref().and_then(|name| inventory.local.get(name));
        let shared = Gathering::new(inventory, facts).reaching_of_shared()?;
        let own = local.map_or(&[][..], |local| &local.slices);
        let view = || Self::gathered(inventory, facts, Others { local: own, shared: &shared, brought, order }, None);
        match local {
            Some(local) if shared.is_empty() && brought.is_empty() => local.alone.get_or_init(view).clone(),
            Some(_) | None => view(),
        }
    }

    /// What a planned machine would see if it were of a shape and had the given labels.
    pub(crate) fn of_machine(
        inventory: &Inventory,
        facts: &NodeFacts,
        (shape, bin): (ShapeId, BinId),
        brought: &[Brought],
        order: PoolOrder,
    ) -> Result<Arc<Self>, Fault> {
        let shared = Gathering::new(inventory, facts).reaching_of_shared()?;
        let others = Others { local: &[], shared: &shared, brought, order };
        let view = || Self::gathered(inventory, facts, others, Some((shape, bin)));
        if shared.is_empty() && brought.is_empty() { inventory.alone[shape].get_or_init(view).clone() } else { view() }
    }

    /// Gathers slices of the node's own and others that reach it. Its own come first: of slices that disagree about
    /// their number the first counts.
    fn gathered(
        inventory: &Inventory,
        facts: &NodeFacts,
        others: Others<'_>,
        machine: Option<(ShapeId, BinId)>,
    ) -> Result<Arc<View>, Fault> {
        let Others { local, shared, brought, order } = others;
        let mut gathering = Gathering::new(inventory, facts);
        // Upstream gathers the slices of the node first; of slices that disagree about their number the first counts.
        for &slice in local {
            if gathering.is_seen(slice)? {
                gathering.add(slice);
            }
        }
        shared.iter().for_each(|&slice| gathering.add(slice));
        let mut seen: Vec<Seen> = gathering.reaching.iter().filter_map(|reaching| gathering.finish(reaching)).collect();
        for pool in brought {
            let slices = &inventory.shared_pools[pool.pool].slices;
            let Some(first) = slices.first() else { continue };
            // Until a pool is complete, its template describes it.
            seen.retain(|seen| seen.trouble.is_none() || !inventory.is_described_by(seen.pool, pool));
            let built = gathering.build(inventory.slices[*first].pool, slices, slices);
            seen.push(Seen { brought: Some(pool.clone()), ..built });
        }
        if let Some((machine, _)) = machine {
            let mut own: Vec<(PoolIndex, Vec<SliceIndex>)> = Vec::new();
            for &slice in &inventory.machines[machine].slices {
                let pool = inventory.slices[slice].pool;
                match own.iter_mut().find(|(known, _)| *known == pool) {
                    Some((_, slices)) => slices.push(slice),
                    None => own.push((pool, vec![slice])),
                }
            }
            seen.extend(own.into_iter().map(|(pool, slices)| gathering.build(pool, &slices, &slices)));
        }
        // The allocator takes devices in this order, so it decides which devices a claim gets.
        let host = machine.map(|(_, bin)| Instance::of_bin(bin));
        seen.sort_by(|a, b| a.order(inventory, host, order).cmp(&b.order(inventory, host, order)));
        let mut view = View::default();
        let mut groups = Groups::of(inventory, machine);
        for seen in seen {
            let position = view.pools.next_id();
            for device in seen.devices {
                let entry = &inventory.slices[inventory.devices[device].slice];
                // A slice with `perDeviceNodeSelection` leaves it to each device on which nodes it is.
                let here = match &entry.slice.node_scope {
                    Some(NodeScope::PerDevice) => match &inventory.device(device).node_scope {
                        Some(scope) => {
                            facts.is_in(scope).map_err(|error| inventory.pools[seen.pool].selector_fault(error))?
                        }
                        None => false,
                    },
                    Some(NodeScope::Node(_) | NodeScope::Selector(_) | NodeScope::AllNodes) | None => true,
                };
                view.devices.push(ViewDevice { device, pool: position, here });
            }
            view.pools.push(ViewPool {
                pool: seen.pool,
                trouble: seen.trouble,
                totals: seen.totals,
                drawing: seen.drawing,
                group_offset: seen.brought.as_ref().and_then(|brought| groups.offset(inventory, brought)),
                brought: seen.brought,
            });
        }
        Ok(Arc::new(view))
    }
}

/// What a node sees beside the templates of its own.
#[derive(Clone, Copy)]
struct Others<'a> {
    /// Slices of the node alone.
    local: &'a [SliceIndex],
    /// Other slices that reach it.
    shared: &'a [SliceIndex],
    /// Pools of planned machines.
    brought: &'a [Brought],
    /// The assumed order of pools that are still to be published.
    order: PoolOrder,
}

/// Numbers bound-attribute groups so that those of different machines differ.
struct Groups {
    own: Option<Instance>,
    /// One more than the highest number so far.
    next: u32,
}

impl Groups {
    fn of(inventory: &Inventory, machine: Option<(ShapeId, BinId)>) -> Self {
        let Some((shape, bin)) = machine else { return Self { own: None, next: 0 } };
        let shape = &inventory.machines[shape];
        let shared = shape.shared.iter().map(|shared| &shared.template);
        let next = shape.templates.iter().map(|template| &**template).chain(shared).map(groups_of).max().unwrap_or(0);
        Self { own: Some(Instance::of_bin(bin)), next }
    }

    /// What is added to the groups of a pool; None for one that the machine itself brings.
    fn offset(&mut self, inventory: &Inventory, brought: &Brought) -> Option<u32> {
        if self.own == Some(brought.instance) {
            return None;
        }
        let offset = self.next;
        self.next += groups_of(&inventory.shared_pools[brought.pool].template.template);
        Some(offset)
    }
}

/// One more than the highest number of a template's groups.
fn groups_of(template: &MachineTemplate) -> u32 {
    template.bindings.iter().map(|(group, _)| attributes::group_index(*group) + 1).max().unwrap_or(0)
}

/// Slices of one pool that reach the node, of the newest generation among them.
struct Reaching {
    pool: PoolIndex,
    generation: i64,
    slices: Vec<SliceIndex>,
}

/// A pool that the node sees.
struct Seen {
    pool: PoolIndex,
    brought: Option<Brought>,
    trouble: Option<PoolTrouble>,
    has_binding_conditions: bool,
    devices: Vec<DeviceIndex>,
    totals: Box<[Option<i128>]>,
    drawing: Box<[DeviceIndex]>,
}

impl Seen {
    /// The sort key of a pool: driver and name, as upstream sorts, with assumed names for pools that are not published
    /// yet.
    fn order<'i>(&self, inventory: &'i Inventory, host: Option<Instance>, assumed: PoolOrder) -> impl Ord + use<'i> {
        let entry = &inventory.pools[self.pool];
        let kind = match &self.brought {
            Some(brought) => PoolKind::Brought(brought.instance),
            None if inventory.is_planned_pool(self.pool) => PoolKind::Own(host),
            None => PoolKind::Published,
        };
        let instance = self.brought.as_ref().map(|brought| brought.instance);
        let PoolId { driver, pool } = &entry.id;
        (self.has_binding_conditions, driver, assumed.rank(kind), pool, self.pool, instance)
    }
}

struct Gathering<'a> {
    inventory: &'a Inventory,
    facts: &'a NodeFacts,
    reaching: Vec<Reaching>,
}

impl<'a> Gathering<'a> {
    fn new(inventory: &'a Inventory, facts: &'a NodeFacts) -> Self {
        Self { inventory, facts, reaching: Vec::new() }
    }

    /// The slices that are no single node's own and reach a node.
    fn reaching_of_shared(&self) -> Result<Vec<SliceIndex>, Fault> {
        let mut reaching = Vec::new();
        for &slice in &self.inventory.shared {
            if self.is_seen(slice)? {
                reaching.push(slice);
            }
        }
        Ok(reaching)
    }

    fn is_on(&self, gate: Gate) -> bool {
        self.inventory.compat.is_on(gate)
    }

    /// Releases that know the gate for compatibility groups ignore slices with groups while it is off.
    fn ignores_groups(&self) -> bool {
        self.inventory.compat.kubernetes >= KubernetesMinor::V1_37 && !self.is_on(Gate::DeviceCompatibilityGroups)
    }

    /// Whether a slice reaches the node.
    fn is_seen(&self, index: SliceIndex) -> Result<bool, Fault> {
        let entry = &self.inventory.slices[index];
        let slice = &entry.slice;
        let per_device = matches!(slice.node_scope, Some(NodeScope::PerDevice));
        if !self.is_on(Gate::PartitionableDevices) && (per_device || !slice.shared_counters.is_empty()) {
            return Ok(false);
        }
        if self.ignores_groups() && entry.uses_compatibility_groups {
            return Ok(false);
        }
        if self.inventory.quirks.counter_slices_reach_all_nodes && !slice.shared_counters.is_empty() {
            return Ok(true);
        }
        self.reaches(index)
    }

    /// Adds a slice that reaches the node to those of its pool. The newest generation counts.
    fn add(&mut self, index: SliceIndex) {
        let entry = &self.inventory.slices[index];
        let generation = entry.slice.pool.generation;
        match self.reaching.iter_mut().find(|reaching| reaching.pool == entry.pool) {
            None => self.reaching.push(Reaching { pool: entry.pool, generation, slices: vec![index] }),
            Some(reaching) if generation > reaching.generation => {
                reaching.generation = generation;
                reaching.slices = vec![index];
            }
            Some(reaching) if generation == reaching.generation => reaching.slices.push(index),
            Some(_) => {}
        }
    }

    fn reaches(&self, index: SliceIndex) -> Result<bool, Fault> {
        let entry = &self.inventory.slices[index];
        let fault = |error| self.inventory.pools[entry.pool].selector_fault(error);
        match &entry.slice.node_scope {
            Some(NodeScope::PerDevice) => {
                for device in &entry.slice.devices {
                    let Some(scope) = &device.node_scope else { continue };
                    if self.facts.is_in(scope).map_err(fault)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Some(scope) => self.facts.is_in(scope).map_err(fault),
            None => Ok(false),
        }
    }

    /// Decides whether the pool is complete; None if it is being replaced.
    fn finish(&self, reaching: &Reaching) -> Option<Seen> {
        let first = &self.inventory.slices[*reaching.slices.first()?].slice;
        let expected = first.pool.resource_slice_count;
        if usize::try_from(expected) == Ok(reaching.slices.len()) {
            return Some(self.build(reaching.pool, &reaching.slices, &reaching.slices));
        }
        let mut all = Vec::new();
        for &index in &self.inventory.pools[reaching.pool].slices {
            let entry = &self.inventory.slices[index];
            let generation = entry.slice.pool.generation;
            if generation > reaching.generation {
                return None;
            }
            if generation == reaching.generation && !(self.ignores_groups() && entry.uses_compatibility_groups) {
                all.push(index);
            }
        }
        if usize::try_from(expected) == Ok(all.len()) {
            return Some(self.build(reaching.pool, &reaching.slices, &all));
        }
        let trouble = PoolTrouble::Incomplete { found: all.len() as u64, expected, generation: reaching.generation };
        Some(Seen::unusable(reaching.pool, trouble))
    }

    /// A complete pool, from the slices that reach the node and from all slices of its generation.
    fn build(&self, pool: PoolIndex, reaching: &[SliceIndex], all: &[SliceIndex]) -> Seen {
        let slice = |index: SliceIndex| &self.inventory.slices[index].slice;
        let partitionable = self.is_on(Gate::PartitionableDevices);
        let offers = |index: &SliceIndex| !partitionable || slice(*index).shared_counters.is_empty();
        let mut offering: Vec<SliceIndex> = reaching.iter().copied().filter(offers).collect();
        offering.sort_by(|a, b| slice(*a).meta.name.name.cmp(&slice(*b).meta.name.name));
        let names: FastSet<SliceIndex> = reaching.iter().copied().collect();
        let elsewhere: Vec<SliceIndex> =
            all.iter().copied().filter(|index| !names.contains(index) && offers(index)).collect();
        let devices: Vec<DeviceIndex> = offering.iter().flat_map(|&index| self.inventory.devices_of(index)).collect();
        let others: Vec<DeviceIndex> = elsewhere.iter().flat_map(|&index| self.inventory.devices_of(index)).collect();
        let trouble = self.not_understood(all).or_else(|| self.duplicate_device(&devices));
        if let Some(trouble) = trouble {
            return Seen::unusable(pool, trouble);
        }
        let mut totals = vec![None; self.inventory.pools[pool].counters.len()];
        let mut drawing = Vec::new();
        if partitionable {
            let all_sets = if all.len() > reaching.len() { all } else { reaching };
            let checked = self.totals(pool, all_sets, &mut totals);
            let checked = checked.and_then(|()| self.check_draws(pool, devices.iter().chain(&others), &totals));
            if let Err(trouble) = checked {
                return Seen::unusable(pool, trouble);
            }
            let draws = |device: &&DeviceIndex| !self.inventory.devices[**device].draws.is_empty();
            drawing = devices.iter().chain(&others).filter(draws).copied().collect();
        }
        let has_binding_conditions =
            devices.iter().any(|&device| !self.inventory.device(device).binding_conditions.is_empty());
        Seen {
            pool,
            brought: None,
            trouble: None,
            has_binding_conditions,
            devices,
            totals: totals.into(),
            drawing: drawing.into(),
        }
    }

    fn not_understood(&self, slices: &[SliceIndex]) -> Option<PoolTrouble> {
        slices.iter().find_map(|&index| {
            let slice = &self.inventory.slices[index].slice;
            slice.unsupported.first().map(|unsupported| PoolTrouble::Unsupported {
                slice: Arc::clone(&slice.meta.name.name),
                field: Arc::clone(&unsupported.construct),
            })
        })
    }

    fn duplicate_device(&self, devices: &[DeviceIndex]) -> Option<PoolTrouble> {
        let mut names = NameSet::default();
        let mut names_of = devices.iter().map(|&device| self.inventory.device(device).name.as_str());
        names_of.find(|name| !names.insert(*name)).map(|name| PoolTrouble::DuplicateDevice(name.into()))
    }

    fn totals(&self, pool: PoolIndex, slices: &[SliceIndex], totals: &mut [Option<i128>]) -> Result<(), PoolTrouble> {
        let entry = &self.inventory.pools[pool];
        let mut seen = NameSet::default();
        for set in slices.iter().flat_map(|&index| &self.inventory.slices[index].slice.shared_counters) {
            if !seen.insert(set.name.as_str()) {
                return Err(PoolTrouble::DuplicateCounterSet(set.name.as_str().into()));
            }
            for (index, (set_index, counter)) in entry.counters.iter_enumerated() {
                if entry.sets[*set_index] != set.name {
                    continue;
                }
                if let (Some(total), Some(slot)) = (set.counters.get(counter), totals.get_mut(index.index())) {
                    *slot = Some(total.to_nano());
                }
            }
        }
        Ok(())
    }

    fn check_draws<'d>(
        &self,
        pool: PoolIndex,
        devices: impl Iterator<Item = &'d DeviceIndex>,
        totals: &[Option<i128>],
    ) -> Result<(), PoolTrouble> {
        let entry = &self.inventory.pools[pool];
        let defined = |counter: CounterIndex| totals.get(counter.index()).is_some_and(Option::is_some);
        for &device in devices {
            let name = || self.inventory.device(device).name.as_str().into();
            for draw in &self.inventory.devices[device].draws {
                let set = || entry.sets[draw.set].as_str().into();
                let of_set = |(index, (of, _)): (CounterIndex, &(_, _))| *of == draw.set && defined(index);
                if !entry.counters.iter_enumerated().any(of_set) {
                    return Err(PoolTrouble::UnknownCounterSet { device: name(), set: set() });
                }
                if let Some((counter, _)) = draw.counters.iter().find(|(counter, _)| !defined(*counter)) {
                    let counter = entry.counters[*counter].1.as_str().into();
                    return Err(PoolTrouble::UnknownCounter { device: name(), set: set(), counter });
                }
            }
        }
        Ok(())
    }
}

impl Seen {
    fn unusable(pool: PoolIndex, trouble: PoolTrouble) -> Self {
        Self {
            pool,
            brought: None,
            trouble: Some(trouble),
            has_binding_conditions: false,
            devices: Vec::new(),
            totals: Box::default(),
            drawing: Box::default(),
        }
    }
}
