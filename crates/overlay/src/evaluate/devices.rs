//! Who describes the devices of which driver on which instance type.
//!
//! For each driver of an instance type, the overlay of the highest weight gives all of that driver's templates; the
//! provider's rank below every overlay. Overlays of equal weight may say the same.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use api::{DynamicResources, ResourceSliceTemplate};
use cloudprovider::InstanceType;
use dra_sched::types::{DeviceName, DriverName};

use crate::expand::{self, Expansion, Pool as DevicePool};
use crate::{Overlay, evaluate::Pool};

/// What the templates of one overlay yield for one driver.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OfDriver {
    /// The pools; which template a device comes from makes no difference.
    pools: Vec<DevicePool>,
    groups: Vec<GroupOfDriver>,
}

/// A group of bound attributes, independent of the order of templates.
#[derive(Debug, Clone, PartialEq)]
struct GroupOfDriver {
    distinct: bool,
    attributes: Vec<String>,
    members: Vec<(DriverName, String, DeviceName)>,
}

/// What an overlay says about each driver's devices on a machine.
pub(super) type Said = Rc<BTreeMap<DriverName, Rc<OfDriver>>>;

/// An overlay's templates written out for machines that have the same values under the labels that count.
#[derive(Debug, Default)]
pub(super) struct Expansions {
    known: BTreeMap<Vec<Option<String>>, Result<Said, expand::Error>>,
}

/// Who says something about a driver's devices on an instance type.
#[derive(Debug, Clone)]
pub(super) struct Claimed<'a> {
    /// The first: it wins.
    pub(super) winner: &'a Overlay,
    /// The last: no other has less weight.
    pub(super) last: &'a Overlay,
    /// What the last says.
    pub(super) says: Rc<OfDriver>,
}

impl Expansions {
    /// What the overlay says about each driver on that type in that NodePool.
    pub(super) fn of(
        &mut self,
        overlay: &Overlay,
        pool: &Pool<'_>,
        instance_type: &InstanceType,
    ) -> Result<Said, expand::Error> {
        let label = |key: &str| certain_label(pool, instance_type, key);
        let key = counting_labels(&overlay.dynamic_resources).map(label).collect();
        let expand = || {
            let expansion = Expansion::new(&overlay.dynamic_resources, &label)?;
            let drivers: BTreeSet<&DriverName> = expansion.pools.iter().map(|pool| &pool.driver).collect();
            let of_drivers = drivers.into_iter().map(|it| (it.clone(), Rc::new(OfDriver::new(&expansion, it))));
            Ok(Rc::new(of_drivers.collect()))
        };
        self.known.entry(key).or_insert_with(expand).clone()
    }
}

impl OfDriver {
    fn new(expansion: &Expansion, driver: &DriverName) -> Self {
        let mut pools: Vec<DevicePool> = expansion.pools.iter().filter(|it| it.driver == *driver).cloned().collect();
        for pool in &mut pools {
            pool.templates.clear();
        }
        let member = |&(pool, device): &(usize, usize)| {
            let pool = expansion.pools.get(pool)?;
            Some((pool.driver.clone(), pool.suffix.clone(), pool.devices.get(device)?.device.name.clone()))
        };
        let groups = expansion.groups.iter().map(|group| {
            let mut members: Vec<_> = group.members.iter().filter_map(member).collect();
            members.sort();
            GroupOfDriver { distinct: group.distinct, attributes: group.attributes.clone(), members }
        });
        let concerns = |group: &GroupOfDriver| group.members.iter().any(|(of, ..)| of == driver);
        Self { pools, groups: groups.filter(concerns).collect() }
    }

    /// How many devices.
    pub(super) fn devices(&self) -> usize {
        self.pools.iter().map(|pool| pool.devices.len()).sum()
    }
}

/// The labels of the machine that decide how many devices there are.
pub(super) fn counting_labels(templates: &DynamicResources) -> impl Iterator<Item = &str> {
    let specs = templates.resource_slice_templates.iter().map(|template| &template.spec);
    specs.flat_map(|spec| {
        let of_devices = spec.devices.iter().map(|device| &device.replicas_from_label);
        let of_sets = spec.shared_counters.iter().map(|set| &set.replicas_from_label);
        of_devices.chain(of_sets).flatten().map(String::as_str)
    })
}

/// The value of a label that every machine of that type in that NodePool has.
fn certain_label(pool: &Pool<'_>, instance_type: &InstanceType, key: &str) -> Option<String> {
    if let Some(value) = super::value_of_pool(pool, key) {
        return Some(value.to_owned());
    }
    if let Some(values) = instance_type.requirements.get(key) {
        let mut values = values.iter();
        return values.next().filter(|_| values.next().is_none()).cloned();
    }
    let mut of_offerings = instance_type.offerings.iter().map(|offering| offering.label(key));
    let first = of_offerings.next()??;
    of_offerings.all(|value| value == Some(first)).then(|| first.to_owned())
}

/// The templates of a type: for each claimed driver those of its overlay, for the others the provider's.
pub(super) fn merged(provider: &DynamicResources, winners: &BTreeMap<DriverName, &Overlay>) -> DynamicResources {
    let is_claimed = |template: &ResourceSliceTemplate| winners.contains_key(template.spec.driver.as_str());
    let mut merged = DynamicResources::default();
    add(&mut merged, provider, None, |template| !is_claimed(template));
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for overlay in winners.values().filter(|it| done.insert(it.name.as_str())) {
        let is_its = |template: &ResourceSliceTemplate| {
            winners.get(template.spec.driver.as_str()).is_some_and(|winner| winner.name == overlay.name)
        };
        add(&mut merged, &overlay.dynamic_resources, Some(overlay.name.as_str()), is_its);
    }
    merged
}

/// Adds some of the templates, with the bindings between them. `prefix` keeps names of different overlays apart.
fn add(
    merged: &mut DynamicResources,
    from: &DynamicResources,
    prefix: Option<&str>,
    wanted: impl Fn(&ResourceSliceTemplate) -> bool,
) {
    let named = |name: &str| prefix.map_or_else(|| name.to_owned(), |prefix| format!("{prefix}/{name}"));
    let mut added = BTreeSet::new();
    for template in from.resource_slice_templates.iter().filter(|template| wanted(template)) {
        added.insert(template.metadata.name.as_str());
        let mut template = template.clone();
        template.metadata.name = named(&template.metadata.name);
        merged.resource_slice_templates.push(template);
    }
    for binding in &from.attribute_bindings {
        let mut binding = binding.clone();
        binding.device_selectors.retain(|selector| added.contains(selector.resource_slice_template.as_str()));
        for selector in &mut binding.device_selectors {
            selector.resource_slice_template = named(&selector.resource_slice_template);
        }
        if !binding.device_selectors.is_empty() {
            merged.attribute_bindings.push(binding);
        }
    }
}
