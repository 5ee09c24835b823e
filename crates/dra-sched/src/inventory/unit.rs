//! Devices that a template makes more than once: for each machine that brings the pool, or for each domain.

use model::{Id, define_id};

use crate::compile::ids::{CounterIndex, DeviceKey, PoolIndex};

define_id! {
    /// A planned machine, as the cluster's ledger knows it.
    pub struct BinId;
}

impl BinId {
    /// The name in results of the pool that the machine brings for its domain.
    pub(crate) fn pool_name(self) -> String {
        format!("machine-{}", self.index())
    }
}

/// A counter of a pool, or of one of the pools made from a template.
pub(crate) type CounterKey = (PoolIndex, Instance, CounterIndex);

/// Which of the pools made from one template this is; [`Instance::ONLY`] for pools that exist once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Instance(u32);

impl Instance {
    pub(crate) const ONLY: Self = Self(0);

    /// The pool that a planned machine brings for itself and its domain.
    pub(crate) fn of_bin(bin: BinId) -> Self {
        Self(2 * Self::checked(bin.index()) + 2)
    }

    /// The pool of a domain, by its number among the pools of its driver.
    pub(crate) fn of_domain(number: usize) -> Self {
        Self(2 * Self::checked(number) + 1)
    }

    /// Whether it is the pool of a domain.
    pub(crate) fn is_of_domain(self) -> bool {
        self.0 % 2 == 1
    }

    /// The number of the machine, or of the domain's pool.
    pub(crate) fn number(self) -> i64 {
        i64::from(self.0)
    }

    fn checked(number: usize) -> u32 {
        u32::try_from(number).ok().filter(|number| *number < u32::MAX / 2).expect("ids are far below 2^31")
    }
}

/// A device in a ledger: its name and, if a template makes it more than once, its instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Unit(u64);

impl Unit {
    pub(crate) fn new(key: DeviceKey, instance: Instance) -> Self {
        Self(u64::from(instance.0) << 32 | key.index() as u64)
    }

    pub(crate) fn key(self) -> DeviceKey {
        DeviceKey::from_index((self.0 & u64::from(u32::MAX)) as usize)
    }

    pub(crate) fn instance(self) -> Instance {
        Instance((self.0 >> 32) as u32)
    }

    /// The device's counterpart in another machine's pool, if it is a device of `from`.
    pub(crate) fn moved(self, from: Instance, to: Instance) -> Self {
        if self.instance() == from { Self::new(self.key(), to) } else { self }
    }
}

impl From<DeviceKey> for Unit {
    fn from(key: DeviceKey) -> Self {
        Self::new(key, Instance::ONLY)
    }
}
