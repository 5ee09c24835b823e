//! What devices cost of their machine, and what of them nobody can use.
//!
//! A machine has one price and says nothing of its parts. So each driver's devices share the whole price of the
//! machine, driver by driver: on a machine of $8 with eight GPUs and four network cards a GPU costs $1 and a card $2. A
//! device without counters is a whole one, and so is each set of counters that others draw on; whole devices of one
//! driver cost the same. A partition costs a part of its set: that of the counter of which it takes the largest part.
//! Counters of one, such as a memory slice, say where a partition is and not how much it is: those of a set count as
//! one counter together.
//!
//! Counters of a set that are left where some partitions are allocated may be of no use, because no partition that is
//! still free can be taken from them. These are stranded, and so is their part of the price: what is left of the set
//! once it is filled up, the largest free partitions first.
//!
//! Left out: compatibility groups (KEP-5963), and what claims would ask for beside partitions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use dra_types::{
    CounterName, CounterSet, CounterSetName, Device, DeviceName, DriverName, NodeScope, PoolName, ResourceSlice,
};
use model::{NodeName, PriceNanoUsdPerHour};
use scheduling::devices::DeviceObjects;
use scheduling::snapshot::{NodeId, Snapshot};

/// What is stranded of a driver's devices on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stranded {
    /// The machine.
    pub node: NodeId,
    /// The driver.
    pub driver: DriverName,
    /// Its part of the machine's price.
    pub price: PriceNanoUsdPerHour,
}

/// What is stranded on our machines, by machine and driver, where anything is. Empty for a snapshot without a fleet. A
/// machine whose price is not known has no part.
pub fn stranded(snapshot: &Snapshot) -> Vec<Stranded> {
    let Some(fleet) = &snapshot.fleet else { return Vec::new() };
    let Some(objects) = fleet.devices.as_ref().map(|devices| &*devices.objects) else { return Vec::new() };
    let allocated = allocated(objects);
    // Without counters nothing is stranded, which is so in most clusters.
    if allocated.is_empty() || objects.slices.values().all(|slice| slice.shared_counters.is_empty()) {
        return Vec::new();
    }
    let local = local_pools(objects);
    let mut found = Vec::new();
    for machine in &fleet.nodes {
        let node = snapshot.nodes.try_get(machine.node).and_then(|node| node.name.as_ref());
        let (Some(price), Some(name)) = (machine.machine.price(), node) else { continue };
        for (driver, pools) in local.get(name).into_iter().flatten() {
            let devices: Vec<DevicesOfPool<'_>> = pools.values().map(|slices| of_slices(slices)).collect();
            let Some(each) = price_each(price, &devices) else { continue };
            let of_pool = |(pool, devices): (&&PoolName, &DevicesOfPool<'_>)| {
                let taken = allocated.get(&(*driver, *pool));
                devices.stranded(&|name| taken.is_some_and(|taken| taken.contains(name))).of(each).0
            };
            let price = PriceNanoUsdPerHour(pools.keys().zip(&devices).map(of_pool).sum());
            if price.0 > 0 {
                found.push(Stranded { node: machine.node, driver: (*driver).clone(), price });
            }
        }
    }
    found
}

type Slices<'a> = Vec<&'a ResourceSlice>;

/// The devices that claims have, by driver and pool; those that are only looked at do not count.
fn allocated(objects: &DeviceObjects) -> BTreeMap<(&DriverName, &PoolName), BTreeSet<&DeviceName>> {
    let mut allocated: BTreeMap<_, BTreeSet<&DeviceName>> = BTreeMap::new();
    let results = objects.claims.values().filter_map(|claim| claim.allocation.as_ref()).flat_map(|it| &it.results);
    for result in results.filter(|result| !result.admin_access) {
        let device = &result.device;
        allocated.entry((&device.driver, &device.pool)).or_default().insert(&device.device);
    }
    allocated
}

/// The pools of each node, by driver, with the slices of their newest generations.
fn local_pools(objects: &DeviceObjects) -> BTreeMap<&NodeName, BTreeMap<&DriverName, BTreeMap<&PoolName, Slices<'_>>>> {
    let mut local: BTreeMap<_, BTreeMap<_, BTreeMap<_, Slices<'_>>>> = BTreeMap::new();
    for slice in objects.slices.values() {
        let Some(NodeScope::Node(node)) = &slice.node_scope else { continue };
        let of_driver = local.entry(node).or_default().entry(&slice.driver).or_default();
        slice.join_newest(of_driver.entry(&slice.pool.name).or_default());
    }
    local
}

fn of_slices<'a>(slices: &[&'a ResourceSlice]) -> DevicesOfPool<'a> {
    DevicesOfPool {
        devices: slices.iter().flat_map(|slice| &slice.devices).collect(),
        counter_sets: slices.iter().flat_map(|slice| &slice.shared_counters).collect(),
    }
}

/// A whole device.
const WHOLE: i128 = 1_000_000_000;
/// A counter of one, in billionths.
const UNIT: i128 = 1_000_000_000;

/// The devices of a driver in one pool, with the counters that they draw on.
#[derive(Debug, Clone, Default)]
pub struct DevicesOfPool<'a> {
    /// The devices.
    pub devices: Vec<&'a Device>,
    /// The counters.
    pub counter_sets: Vec<&'a CounterSet>,
}

/// A part of whole devices, in billionths of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Part(i128);

impl Part {
    /// That part of the price of a whole device, rounded down.
    pub fn of(self, whole: PriceNanoUsdPerHour) -> PriceNanoUsdPerHour {
        PriceNanoUsdPerHour(i64::try_from(i128::from(whole.0) * self.0 / WHOLE).unwrap_or(i64::MAX))
    }

    /// Whether there is nothing of it.
    pub fn is_nothing(self) -> bool {
        self.0 == 0
    }

    fn ratio(amount: i128, of: i128) -> Self {
        // Who draws more than there is cannot be allocated, and costs no more than everything.
        Self(if of <= 0 { 0 } else { amount.min(of).saturating_mul(WHOLE) / of })
    }
}

/// How many whole devices a driver has in its pools.
pub fn whole_devices(pools: &[DevicesOfPool<'_>]) -> usize {
    let in_pool = |pool: &DevicesOfPool<'_>| {
        let alone = pool.devices.iter().filter(|device| device.consumes_counters.is_empty()).count();
        let draws = pool.devices.iter().flat_map(|device| &device.consumes_counters);
        alone + draws.map(|draw| &draw.counter_set).collect::<BTreeSet<_>>().len()
    };
    pools.iter().map(in_pool).sum()
}

/// The price of a whole device of a driver on a machine of that price; `None` if the driver has none.
pub fn price_each(machine: PriceNanoUsdPerHour, pools: &[DevicesOfPool<'_>]) -> Option<PriceNanoUsdPerHour> {
    let count = i64::try_from(whole_devices(pools)).ok().filter(|count| *count > 0)?;
    Some(PriceNanoUsdPerHour(machine.0 / count))
}

impl DevicesOfPool<'_> {
    /// What part of whole devices a device of the pool is. One that draws on several sets is a part of each.
    pub fn part(&self, device: &Device) -> Part {
        if device.consumes_counters.is_empty() {
            return Part(WHOLE);
        }
        let of_set = |name: &CounterSetName| {
            let mut drawn = Amounts::default();
            drawn.add(device);
            self.largest_part(name, &drawn).0
        };
        let sets: BTreeSet<&CounterSetName> = device.consumes_counters.iter().map(|draw| &draw.counter_set).collect();
        Part(sets.into_iter().map(of_set).sum())
    }

    /// The parts of the sets that no free device can use beside the allocated ones. A set that nothing is allocated of
    /// is free as a whole.
    pub fn stranded(&self, is_allocated: &dyn Fn(&DeviceName) -> bool) -> Part {
        let mut drawn = Amounts::default();
        let (allocated, mut free): (Vec<&Device>, Vec<&Device>) = self
            .devices
            .iter()
            .filter(|device| !device.consumes_counters.is_empty())
            .partition(|device| is_allocated(&device.name));
        allocated.iter().for_each(|device| drawn.add(device));
        let touched: BTreeSet<&CounterSetName> = drawn.0.keys().map(|(set, _)| *set).collect();
        free.sort_by_cached_key(|device| (Reverse(self.part(device)), device.name.clone()));
        let mut filled = drawn.clone();
        for device in free {
            if self.fits(&filled, device) {
                filled.add(device);
            }
        }
        Part(touched.into_iter().map(|set| WHOLE - self.largest_part(set, &filled).0).sum())
    }

    fn fits(&self, drawn: &Amounts<'_>, device: &Device) -> bool {
        let mut with = drawn.clone();
        with.add(device);
        device.consumes_counters.iter().all(|draw| {
            draw.counters
                .keys()
                .all(|counter| with.of(&draw.counter_set, counter) <= self.there(&draw.counter_set, counter))
        })
    }

    fn largest_part(&self, name: &CounterSetName, drawn: &Amounts<'_>) -> Part {
        let counters = self.counter_sets.iter().filter(|set| set.name == *name).flat_map(|set| &set.counters);
        let (mut largest, mut units) = (Part::default(), (0, 0));
        for (counter, there) in counters {
            let (drawn, there) = (drawn.of(name, counter), there.to_nano());
            if there > UNIT {
                largest = largest.max(Part::ratio(drawn, there));
            } else {
                units = (units.0 + drawn, units.1 + there);
            }
        }
        largest.max(Part::ratio(units.0, units.1))
    }

    fn there(&self, set: &CounterSetName, counter: &CounterName) -> i128 {
        let set = self.counter_sets.iter().find(|it| it.name == *set);
        set.and_then(|it| it.counters.get(counter)).map_or(0, |amount| amount.to_nano())
    }
}

/// What devices draw of each counter, in billionths.
#[derive(Debug, Clone, Default)]
struct Amounts<'a>(BTreeMap<(&'a CounterSetName, &'a CounterName), i128>);

impl<'a> Amounts<'a> {
    fn add(&mut self, device: &'a Device) {
        for draw in &device.consumes_counters {
            for (counter, amount) in &draw.counters {
                *self.0.entry((&draw.counter_set, counter)).or_default() += amount.to_nano();
            }
        }
    }

    fn of(&self, set: &CounterSetName, counter: &CounterName) -> i128 {
        self.0.get(&(set, counter)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
