//! Everything about devices and claims that does not change during a plan, compiled once; and what a node sees of it.
//!
//! Invariants: devices of equal content share a `DeviceShape`. A device's name (driver, pool, device) is a
//! [`DeviceKey`], whatever slice and generation it is in, because allocations refer to the name. Claims of equal spec
//! share a [`ClaimClassId`]. What is taken is in a ledger, never here.

mod builder;
mod claims;
mod domains;
mod pool_order;
pub(crate) mod shared;
pub(crate) mod unit;
pub(crate) mod view;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use model::collections::NameMap;
use model::{IdSet, IdVec, NodeName, Uid};

use crate::compile::attributes::{AttributeColumn, ValueTable};
use crate::compile::claims::{Claim, ClaimClass};
use crate::compile::derived::DerivedTable;
use crate::compile::device::{DeviceEntry, Pool, Shape, Slice};
use crate::compile::ids::{
    AttributeIndex, ClaimClassId, ClaimId, DeviceIndex, DeviceKey, DeviceShape, PoolIndex, ShapeId, SharedPoolId,
    SliceIndex,
};
use crate::compile::selectors::SelectorTable;
use crate::faults::Fault;
use crate::machine::MachineShape;
use crate::quirks::Quirks;
use dra_types::{Device, DeviceId, compat::Compat};
use shared::SharedPool;
use view::{LocalSlices, View};

pub use builder::InventoryBuilder;
pub use claims::{ClaimUse, Reservation};
pub use domains::Domain;
pub(crate) use pool_order::PoolKind;
pub use pool_order::{PoolKinds, PoolOrder};

/// Classes, slices, claims and machine shapes, compiled. It is immutable, except that it remembers what searches find
/// out about selectors; that changes no answer.
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
    /// The numbers of attribute values.
    pub(crate) values: ValueTable,
    pub(crate) derived: DerivedTable,
    pub(crate) claim_classes: IdVec<ClaimClassId, ClaimClass>,
    pub(crate) claims: IdVec<ClaimId, Claim>,
    /// By the first consumer of a claim that is allocated, if that is a pod: its claims, in their order.
    pub(crate) of_first_consumer: NameMap<Uid, Vec<ClaimId>>,
    pub(crate) machines: IdVec<ShapeId, MachineShape>,
    pub(crate) shared_pools: IdVec<SharedPoolId, SharedPool>,
    /// By shape: what its machines see if no published slice reaches them.
    pub(crate) alone: IdVec<ShapeId, OnceLock<Result<Arc<View>, Fault>>>,
    /// Devices of templates that only the machine itself can use.
    pub(crate) planned_keys: IdSet<DeviceKey>,
    pub(crate) mentioned_keys: BTreeSet<Arc<str>>,
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

    /// Whether a device belongs to machines that do not exist.
    pub(crate) fn is_planned(&self, key: DeviceKey) -> bool {
        self.planned_keys.contains(key)
    }

    /// Whether a pool belongs to machines that do not exist.
    pub(crate) fn is_planned_pool(&self, pool: PoolIndex) -> bool {
        self.pools[pool].slices.first().is_some_and(|slice| self.slices[*slice].template)
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
