//! Slices, pools and devices, compiled: names are numbered, and equal contents are kept once.

use std::sync::{Arc, OnceLock};

use model::IdVec;
use smallvec::SmallVec;

use super::ids::{
    AttributeIndex, CounterIndex, CounterSetIndex, DeviceIndex, DeviceKey, DeviceShape, PoolIndex, SliceIndex,
};
use crate::faults::Fault;
use dra_types::{
    Compat, CounterName, CounterSetName, Device, DeviceTaint, DriverName, PoolId, ResourceSlice, SelectorError,
};
use k8s_cel::DeviceView;

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

impl Pool {
    /// The fault for an invalid node selector in one of its slices or devices.
    pub(crate) fn selector_fault(&self, error: SelectorError) -> Fault {
        Fault::NodeSelector { pool: self.id.clone(), error }
    }
}

/// A device in a slice.
#[derive(Debug)]
pub(crate) struct DeviceEntry {
    pub(crate) slice: SliceIndex,
    pub(crate) position: usize,
    pub(crate) key: DeviceKey,
    pub(crate) shape: DeviceShape,
    /// The device's own taints and those of DeviceTaintRules.
    pub(crate) taints: Arc<[DeviceTaint]>,
    pub(crate) draws: Box<[Draw]>,
    /// Attributes whose value is unknown but shared: position in the inventory's attributes, group.
    pub(crate) bound: SmallVec<[(AttributeIndex, u32); 1]>,
    pub(crate) traits: Traits,
}

/// What a walk asks of every device that it looks at, so that it need not go to the object for that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traits {
    pub(crate) allows_multiple_allocations: bool,
    pub(crate) has_capacity: bool,
    pub(crate) has_binding_conditions: bool,
    pub(crate) consumes_counters: bool,
    /// Its slice asks the node to skip steps.
    pub(crate) skips_node_operations: bool,
}

impl Traits {
    pub(crate) fn of(slice: &ResourceSlice, device: &Device) -> Self {
        Self {
            allows_multiple_allocations: device.allow_multiple_allocations,
            has_capacity: !device.capacity.is_empty(),
            has_binding_conditions: !device.binding_conditions.is_empty(),
            consumes_counters: !device.consumes_counters.is_empty(),
            skips_node_operations: !slice.skip_node_operations.is_empty(),
        }
    }
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
    /// Some device of this shape; all of them have its attributes, capacity and `allow_multiple_allocations`.
    pub(crate) slice: Arc<ResourceSlice>,
    pub(crate) position: usize,
    /// Whether such a device can be given out whole as long as nothing is taken of it: no policy sets an amount, and no
    /// capacity is negative.
    pub(crate) plain_capacity: bool,
    /// What selectors read; made on the first use.
    pub(crate) view: OnceLock<DeviceView>,
}

impl Shape {
    /// What selectors see.
    pub(crate) fn view(&self, compat: &Compat) -> &DeviceView {
        self.view.get_or_init(|| DeviceView::new(&self.driver, self.device(), compat))
    }

    /// Whether a device of a slice is of this shape.
    pub(crate) fn is_of(&self, slice: &ResourceSlice, device: &Device) -> bool {
        let known = self.device();
        self.driver == slice.driver
            && known.allow_multiple_allocations == device.allow_multiple_allocations
            && known.attributes == device.attributes
            && known.capacity == device.capacity
    }

    pub(crate) fn device(&self) -> &Device {
        self.slice.devices.get(self.position).expect("a shape points at a device of its slice")
    }
}
