//! Compares what drivers have published with what templates announced.
//!
//! Devices are matched by name, and the rest by their properties: a driver may choose other names. A template need not
//! name every attribute and capacity, so additional ones are no difference either. Nothing here changes planning: once
//! a driver's pools on a node are complete, only they count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use dra_types::{
    AttributeValue, CounterSet, Device, DeviceName, DriverName, NodeScope, PoolName, QualifiedName, ResourceSlice,
};
use model::Quantity;

use dra_templates::Expansion;
use dra_templates::{Nodes, Pool, PoolScope};

/// At most so many differences are returned; there may be more.
pub const MAX_DIFFERENCES: usize = 100;

/// How far a driver has published a node's pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publication {
    /// Nothing of it is there.
    Nothing,
    /// A pool of it lacks slices.
    Incomplete,
    /// Every pool of it is complete.
    Complete,
}

/// A difference between what was published and a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The driver.
    pub driver: DriverName,
    /// What is different.
    pub what: What,
}

/// What is different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// No device like that was published.
    Missing(DeviceName),
    /// A device was published that is in no template.
    Extra(DeviceName),
    /// An attribute has another value, or is missing.
    Attribute {
        /// The device.
        device: DeviceName,
        /// The attribute.
        name: QualifiedName,
        /// What the template says.
        expected: AttributeValue,
        /// What was published.
        found: Option<AttributeValue>,
    },
    /// There is another amount of something, or none.
    Capacity {
        /// The device.
        device: DeviceName,
        /// The capacity.
        name: QualifiedName,
        /// What the template says.
        expected: Quantity,
        /// What was published.
        found: Option<Quantity>,
    },
    /// Something else about the device: the field's name in the API.
    Field {
        /// The device.
        device: DeviceName,
        /// The field.
        field: &'static str,
    },
    /// A set of counters is another, or missing.
    Counters(String),
    /// Devices of one group have different values.
    Group {
        /// The attribute.
        attribute: String,
        /// The devices with what they have.
        values: Vec<(DeviceName, Option<AttributeValue>)>,
    },
    /// Two groups that were said to differ have one value.
    SameGroups {
        /// The attribute.
        attribute: String,
        /// The value.
        value: AttributeValue,
        /// A device of each.
        devices: (DeviceName, DeviceName),
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.driver, self.what)
    }
}

/// As the end of a sentence about a driver.
impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |value: &Option<AttributeValue>| value.as_ref().map_or("nothing".to_owned(), ToString::to_string);
        match self {
            Self::Missing(device) => write!(f, "device {device} was not published"),
            Self::Extra(device) => write!(f, "device {device} is in no template"),
            Self::Attribute { device, name, expected, found } => {
                let found = or_none(found);
                write!(f, "device {device} has {found} for attribute {name}, not {expected}")
            }
            Self::Capacity { device, name, expected, found } => {
                let found = found.map_or("nothing".to_owned(), |found| found.to_string());
                write!(f, "device {device} has {found} of {name}, not {expected}")
            }
            Self::Field { device, field } => write!(f, "device {device} has another {field}"),
            Self::Counters(set) => write!(f, "counter set {set} is missing or another"),
            Self::Group { attribute, values } => {
                let values: Vec<String> =
                    values.iter().map(|(device, value)| format!("{device} {}", or_none(value))).collect();
                write!(f, "devices were bound to one {attribute}, but have {}", values.join(", "))
            }
            Self::SameGroups { attribute, value, devices: (one, other) } => {
                write!(f, "{one} and {other} were said to differ in {attribute}, but both have {value}")
            }
        }
    }
}

/// How far a driver has published a node's pools: those that belong to the node, and those that only reach it where the
/// templates say so. `reaches` says which nodes a selector selects.
#[must_use]
pub fn publication(
    expansion: &Expansion,
    driver: &DriverName,
    slices: &[&ResourceSlice],
    is_here: &dyn Fn(&NodeScope) -> bool,
) -> Publication {
    let pools = pools_of(driver, slices, is_here);
    let local = expansion.pools.iter().any(|pool| pool.driver == *driver && pool.nodes == Nodes::Host);
    let has_local = pools.values().flatten().any(|slice| matches!(slice.node_scope, Some(NodeScope::Node(_))));
    if pools.is_empty() || (local && !has_local) {
        return Publication::Nothing;
    }
    if pools.values().all(|slices| is_complete(slices)) { Publication::Complete } else { Publication::Incomplete }
}

/// The slices of a driver's pools that a node reaches, only those of the newest generation.
pub(crate) fn pools_of<'s>(
    driver: &DriverName,
    slices: &[&'s ResourceSlice],
    is_here: &dyn Fn(&NodeScope) -> bool,
) -> BTreeMap<PoolName, Vec<&'s ResourceSlice>> {
    let of_driver = || slices.iter().copied().filter(|slice| slice.driver == *driver);
    let here: BTreeSet<&PoolName> =
        of_driver().filter(|slice| reaches(slice, is_here)).map(|slice| &slice.pool.name).collect();
    let mut pools: BTreeMap<PoolName, Vec<&ResourceSlice>> = BTreeMap::new();
    for slice in of_driver().filter(|slice| here.contains(&slice.pool.name)) {
        slice.join_newest(pools.entry(slice.pool.name.clone()).or_default());
    }
    for slices in pools.values_mut() {
        slices.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
    }
    pools
}

/// Whether a node can use a slice's devices, or some of them.
pub(crate) fn reaches(slice: &ResourceSlice, is_here: &dyn Fn(&NodeScope) -> bool) -> bool {
    let of_devices = || slice.devices.iter().filter_map(|device| device.node_scope.as_ref());
    match &slice.node_scope {
        Some(NodeScope::PerDevice) => of_devices().any(is_here),
        Some(scope) => is_here(scope),
        None => false,
    }
}

/// Whether a slice of a pool that a node reaches is of use there: it has devices for it, or counters only.
pub(crate) fn belongs(slice: &ResourceSlice, is_here: &dyn Fn(&NodeScope) -> bool) -> bool {
    reaches(slice, is_here) || (slice.node_scope == Some(NodeScope::PerDevice) && slice.devices.is_empty())
}

/// Whether a pool's newest generation is all there.
pub(crate) fn is_complete(slices: &[&ResourceSlice]) -> bool {
    let wanted = slices.first().map_or(0, |slice| slice.pool.resource_slice_count);
    i64::try_from(slices.len()).is_ok_and(|count| count == wanted)
}

/// The differences on a machine whose drivers have published, driver by driver, at most [`MAX_DIFFERENCES`].
///
/// The machine's own pools must have exactly the devices of the templates. Of pools that nodes share, a machine's
/// templates are only a part.
#[must_use]
pub fn verify(
    expansion: &Expansion,
    slices: &[&ResourceSlice],
    is_here: &dyn Fn(&NodeScope) -> bool,
) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut matched: BTreeMap<(usize, usize), &Device> = BTreeMap::new();
    let drivers: BTreeSet<&DriverName> = expansion.pools.iter().map(|pool| &pool.driver).collect();
    for driver in drivers {
        let published = pools_of(driver, slices, is_here);
        let mut tell = |what: What| found.push(Difference { driver: driver.clone(), what });
        for is_local in [true, false] {
            let expected = expansion
                .pools
                .iter()
                .enumerate()
                .filter(|(_, pool)| pool.driver == *driver && is_of_machine(pool) == is_local);
            let expected: Vec<(usize, &Pool)> = expected.collect();
            let is_node = |slice: &&&ResourceSlice| matches!(slice.node_scope, Some(NodeScope::Node(_))) == is_local;
            let here = published.values().flatten().filter(|slice| belongs(slice, is_here));
            let slices: Vec<&ResourceSlice> = here.filter(is_node).copied().collect();
            let mut devices: Vec<&Device> = slices.iter().flat_map(|slice| &slice.devices).collect();
            let sets: Vec<&CounterSet> = slices.iter().flat_map(|slice| &slice.shared_counters).collect();
            compare_counters(&expected, &sets, &mut tell);
            let mut unmatched = Vec::new();
            for (pool_place, pool) in &expected {
                for (place, device) in pool.devices.iter().enumerate() {
                    match devices.iter().position(|it| it.name == device.device.name) {
                        Some(at) => {
                            let there = devices.remove(at);
                            compare(driver, &device.device, there, &mut tell);
                            matched.insert((*pool_place, place), there);
                        }
                        None => unmatched.push(((*pool_place, place), &device.device)),
                    }
                }
            }
            for (place, device) in unmatched {
                match devices.iter().position(|it| is_like(driver, device, it)) {
                    Some(at) => {
                        matched.insert(place, devices.remove(at));
                    }
                    None => tell(What::Missing(device.name.clone())),
                }
            }
            if is_local && !expected.is_empty() {
                devices.iter().for_each(|device| tell(What::Extra(device.name.clone())));
            }
        }
    }
    compare_groups(expansion, &matched, &mut found);
    found.truncate(MAX_DIFFERENCES);
    found
}

/// Whether a pool is the machine's alone.
fn is_of_machine(pool: &Pool) -> bool {
    pool.scope == PoolScope::Machine && pool.nodes == Nodes::Host
}

/// Reports every difference between two devices of one name.
fn compare(driver: &DriverName, expected: &Device, found: &Device, tell: &mut dyn FnMut(What)) {
    let device = &expected.name;
    for (name, value) in &expected.attributes {
        let there = find(driver, &found.attributes, name);
        if there != Some(value) {
            tell(What::Attribute {
                device: device.clone(),
                name: name.clone(),
                expected: value.clone(),
                found: there.cloned(),
            });
        }
    }
    for (name, capacity) in &expected.capacity {
        let there = find(driver, &found.capacity, name);
        if there.map(|it| it.value) != Some(capacity.value) {
            tell(What::Capacity {
                device: device.clone(),
                name: name.clone(),
                expected: capacity.value,
                found: there.map(|it| it.value),
            });
        } else if there.is_some_and(|it| it.request_policy != capacity.request_policy) {
            tell(What::Field { device: device.clone(), field: "capacity requestPolicy" });
        }
    }
    let mut fields = vec![
        ("consumesCounters", expected.consumes_counters == found.consumes_counters),
        ("allowMultipleAllocations", expected.allow_multiple_allocations == found.allow_multiple_allocations),
        ("bindsToNode", expected.binds_to_node == found.binds_to_node),
        ("bindingConditions", expected.binding_conditions == found.binding_conditions),
        ("nodeAllocatableResources", expected.node_allocatable == found.node_allocatable),
    ];
    // Drivers add and remove taints at runtime; those of a template stay.
    let lasts = |taint| found.taints.iter().any(|there| same_taint(taint, there));
    fields.push(("taints", expected.taints.iter().all(lasts)));
    for (field, _) in fields.into_iter().filter(|(_, same)| !same) {
        tell(What::Field { device: device.clone(), field });
    }
}

fn same_taint(a: &dra_types::DeviceTaint, b: &dra_types::DeviceTaint) -> bool {
    (&a.key, &a.value, &a.effect) == (&b.key, &b.value, &b.effect)
}

fn is_like(driver: &DriverName, expected: &Device, found: &Device) -> bool {
    let mut same = true;
    compare(driver, expected, found, &mut |_| same = false);
    same
}

fn compare_counters(expected: &[(usize, &Pool)], found: &[&CounterSet], tell: &mut dyn FnMut(What)) {
    for set in expected.iter().flat_map(|(_, pool)| &pool.shared_counters) {
        if !found.iter().any(|there| **there == *set) {
            tell(What::Counters(set.name.to_string()));
        }
    }
}

/// Whether bound devices have one value, and groups that were declared distinct have different ones.
fn compare_groups(expansion: &Expansion, matched: &BTreeMap<(usize, usize), &Device>, found: &mut Vec<Difference>) {
    // By attribute: the values of groups that were declared distinct, each with a device that has it. The allocator
    // treats all of them as different, whichever binding they come from.
    let mut values: BTreeMap<(&str, &str), Vec<(AttributeValue, DeviceName)>> = BTreeMap::new();
    for group in &expansion.groups {
        for attribute in &group.attributes {
            let members: Vec<(&DriverName, &Device)> = group
                .members
                .iter()
                .filter_map(|place| Some((&expansion.pools.get(place.0)?.driver, *matched.get(place)?)))
                .collect();
            let Some((driver, _)) = members.first() else { continue };
            let has = |driver: &DriverName, device: &Device| {
                find(driver, &device.attributes, &QualifiedName::from(attribute.as_str())).cloned()
            };
            let all: Vec<_> = members.iter().map(|(driver, it)| (it.name.clone(), has(driver, it))).collect();
            let differs = |(_, value): &(DeviceName, Option<AttributeValue>)| {
                value.is_none() || all.first().is_some_and(|(_, first)| first != value)
            };
            if all.iter().any(differs) {
                let what = What::Group { attribute: attribute.clone(), values: all };
                found.push(Difference { driver: (*driver).clone(), what });
                continue;
            }
            let Some((device, Some(value))) = all.into_iter().next() else { continue };
            if !group.distinct {
                continue;
            }
            let name = attribute.split_once('/').unwrap_or((driver.as_str(), attribute));
            let distinct = values.entry(name).or_default();
            if let Some((value, other)) = distinct.iter().find(|(known, _)| *known == value) {
                let what = What::SameGroups {
                    attribute: attribute.clone(),
                    value: value.clone(),
                    devices: (other.clone(), device.clone()),
                };
                found.push(Difference { driver: (*driver).clone(), what });
            }
            distinct.push((value, device));
        }
    }
}

/// A device's value under a name, which may be written with or without the driver's domain.
fn find<'d, T>(driver: &DriverName, of: &'d BTreeMap<QualifiedName, T>, name: &QualifiedName) -> Option<&'d T> {
    let other_spelling = || of.iter().find(|(it, _)| it.resolve(driver) == name.resolve(driver)).map(|(_, it)| it);
    of.get(name).or_else(other_spelling)
}

#[cfg(test)]
mod tests;
