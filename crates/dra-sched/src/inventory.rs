//! Everything about devices and claims that stays the same while planning, compiled once.
//!
//! Invariants: devices of equal content share a `DeviceShape`; a device's name (driver, pool, device) is a
//! [`DeviceKey`], whatever slice and generation it stands in, because that is what allocations refer to; claims of
//! equal spec share a [`ClaimClassId`]. Ids are positions in input order and decide nothing: pools and slices are
//! ordered by name.

mod builder;
pub(crate) mod shared;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use model::collections::NameMap;
use model::{IdSet, IdVec, NodeName, define_id};
use smallvec::SmallVec;

use crate::attributes::{AttributeColumn, ValueTable};
use crate::claims::{Claim, ClaimClass};
use crate::derived::DerivedTable;
use crate::ledger::ClusterLedger;
use crate::machine::MachineShape;
use crate::quirks::Quirks;
use crate::selectors::SelectorTable;
use crate::verdict::Fault;
use crate::view::{LocalSlices, View};
use dra_types::{
    Allocation, CounterName, CounterSetName, Device, DeviceId, DeviceTaint, DriverName, PoolId, ResourceSlice,
    compat::Compat,
};
use k8s_cel::DeviceView;

pub use builder::InventoryBuilder;
pub(crate) use shared::SharedPool;

define_id! {
    /// A distinct claim spec.
    pub struct ClaimClassId;
}
define_id! {
    /// A ResourceClaim that exists.
    pub struct ClaimId;
}
define_id! {
    /// What an instance type's machines publish: templates, bindings, labels. Types with equal shapes share one.
    pub struct ShapeId;
}
define_id! {
    /// A device in a slice.
    pub(crate) struct DeviceIndex;
}
define_id! {
    /// A device by name.
    pub struct DeviceKey;
}
define_id! {
    /// A distinct device content.
    pub(crate) struct DeviceShape;
}
define_id! {
    /// A template of pools that nodes of a domain share.
    pub(crate) struct SharedPoolId;
}
define_id! {
    /// A slice.
    pub(crate) struct SliceIndex;
}
define_id! {
    /// A pool of all generations.
    pub(crate) struct PoolIndex;
}
define_id! {
    /// A counter set name of a pool.
    pub(crate) struct CounterSetIndex;
}
define_id! {
    /// A counter name of a pool.
    pub(crate) struct CounterIndex;
}
define_id! {
    /// A distinct attribute that constraints compare.
    pub(crate) struct AttributeIndex;
}

/// Classes, slices, claims and machine shapes, compiled. Immutable; what a search finds out about selectors is kept in
/// it, which changes no answer.
#[derive(Debug)]
pub struct Inventory {
    pub(crate) compat: Compat,
    pub(crate) quirks: Quirks,
    pub(crate) slices: IdVec<SliceIndex, Slice>,
    pub(crate) pools: IdVec<PoolIndex, Pool>,
    pub(crate) devices: IdVec<DeviceIndex, DeviceEntry>,
    pub(crate) shapes: IdVec<DeviceShape, Shape>,
    pub(crate) keys: IdVec<DeviceKey, DeviceId>,
    pub(crate) key_of: NameMap<DeviceId, DeviceKey>,
    pub(crate) local: NameMap<NodeName, LocalSlices>,
    pub(crate) shared: Vec<SliceIndex>,
    pub(crate) selectors: SelectorTable,
    pub(crate) attributes: IdVec<AttributeIndex, AttributeColumn>,
    /// Has numbered the values of attributes.
    pub(crate) values: ValueTable,
    pub(crate) derived: DerivedTable,
    pub(crate) claim_classes: IdVec<ClaimClassId, ClaimClass>,
    pub(crate) claims: IdVec<ClaimId, Claim>,
    pub(crate) machines: IdVec<ShapeId, MachineShape>,
    pub(crate) shared_pools: IdVec<SharedPoolId, SharedPool>,
    /// What machines of a shape see if no published slice reaches them.
    pub(crate) alone: IdVec<ShapeId, OnceLock<Result<Arc<View>, Fault>>>,
    /// Devices of templates that only the machine itself can use.
    pub(crate) planned_keys: IdSet<DeviceKey>,
    pub(crate) mentioned_keys: BTreeSet<Arc<str>>,
}

/// A slice with what the inventory knows of it.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) slice: Arc<ResourceSlice>,
    pub(crate) pool: PoolIndex,
    /// The first of its devices; the others follow.
    pub(crate) first_device: DeviceIndex,
    pub(crate) uses_compatibility_groups: bool,
    /// Made from a template that only the machine itself can use.
    pub(crate) template: bool,
}

/// A pool: all slices of its name, of every generation.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) id: PoolId,
    /// In input order.
    pub(crate) slices: Vec<SliceIndex>,
    pub(crate) sets: IdVec<CounterSetIndex, CounterSetName>,
    pub(crate) counters: IdVec<CounterIndex, (CounterSetIndex, CounterName)>,
}

/// A device in a slice.
#[derive(Debug)]
pub(crate) struct DeviceEntry {
    pub(crate) slice: SliceIndex,
    pub(crate) position: usize,
    pub(crate) key: DeviceKey,
    pub(crate) shape: DeviceShape,
    /// Its own and those of rules.
    pub(crate) taints: Arc<[DeviceTaint]>,
    pub(crate) draws: Box<[Draw]>,
    /// Attributes whose value is unknown but shared: position in the inventory's attributes, group.
    pub(crate) bound: SmallVec<[(AttributeIndex, u32); 1]>,
}

/// What a device draws from one counter set.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Draw {
    pub(crate) set: CounterSetIndex,
    /// Nano-units, by counter.
    pub(crate) counters: SmallVec<[(CounterIndex, i128); 2]>,
    /// Sorted, without repetition.
    pub(crate) groups: Box<[Arc<str>]>,
}

/// What a selector can read of a device, and its capacity.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) driver: DriverName,
    /// A device of this shape; attributes, capacity and `allow_multiple_allocations` are those of all.
    pub(crate) slice: Arc<ResourceSlice>,
    pub(crate) position: usize,
    /// Whether such a device can be given out whole as long as nothing is taken of it: no policy says what that takes,
    /// and no capacity is negative.
    pub(crate) plain_capacity: bool,
    /// Made when a selector first asks.
    pub(crate) view: OnceLock<DeviceView>,
}

impl Shape {
    /// What selectors see.
    pub(crate) fn view(&self, compat: &Compat) -> &DeviceView {
        self.view.get_or_init(|| DeviceView::new(&self.driver, self.device(), compat))
    }

    pub(crate) fn device(&self) -> &Device {
        self.slice.devices.get(self.position).expect("a shape points at a device of its slice")
    }
}

impl Inventory {
    /// The release and gates that are imitated.
    pub fn compat(&self) -> &Compat {
        &self.compat
    }

    /// The device of a key.
    pub fn device_id(&self, key: DeviceKey) -> &DeviceId {
        &self.keys[key]
    }

    /// The key of a device, if any slice or allocation names it.
    pub fn device_key(&self, id: &DeviceId) -> Option<DeviceKey> {
        self.key_of.get(id).copied()
    }

    /// What a claim has in the cluster.
    pub fn allocation(&self, claim: ClaimId) -> Option<&Allocation> {
        self.claims[claim].object.allocation.as_ref()
    }

    /// What a claim has in the cluster, unless a ledger has released it.
    pub(crate) fn allocation_in(&self, cluster: &ClusterLedger, claim: ClaimId) -> Option<&Allocation> {
        self.allocation(claim).filter(|_| !cluster.released().contains(&claim))
    }

    /// The object of a device entry.
    pub(crate) fn device(&self, index: DeviceIndex) -> &Device {
        let entry = &self.devices[index];
        let slice = &self.slices[entry.slice].slice;
        slice.devices.get(entry.position).expect("a device entry points at a device of its slice")
    }

    /// The devices of a slice.
    pub(crate) fn devices_of(&self, slice: SliceIndex) -> impl Iterator<Item = DeviceIndex> + use<> {
        let entry = &self.slices[slice];
        let first = model::Id::index(entry.first_device);
        (first..first + entry.slice.devices.len()).map(model::Id::from_index)
    }
}
