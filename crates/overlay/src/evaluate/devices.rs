//! Which overlay describes the devices of which driver on which instance type.
//!
//! For each driver of an instance type, the overlay of the highest weight gives all of that driver's templates; the
//! provider's rank below every overlay. Overlays of equal weight may describe the same.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use api::DynamicResources;
use cloudprovider::InstanceType;
use dra_types::{DeviceName, DriverName};

use crate::{Overlay, evaluate::Pool};
use dra_templates::{Expansion, Pool as DevicePool};

/// The devices that the templates of one overlay give for one driver.
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

/// A driver, and which overlay says what of it.
pub(super) type Decision = (DriverName, usize, usize);

/// Expanded templates, kept for machines with equal values of the labels that counts are read from. Overlays with equal
/// templates share them.
#[derive(Debug, Default)]
pub(super) struct Expansions<'a> {
    templates: Vec<&'a DynamicResources>,
    known: BTreeMap<(usize, Counts), Result<Said, dra_templates::Error>>,
}

/// The values of the labels that counts are read from.
type Counts = Vec<Option<String>>;

/// The overlays that describe a driver's devices on an instance type.
#[derive(Debug, Clone)]
pub(super) struct Claimed<'a> {
    /// The first, which takes precedence.
    pub(super) winner: &'a Overlay,
    /// The last; no other has less weight.
    pub(super) last: &'a Overlay,
    /// What the last describes.
    pub(super) says: Rc<OfDriver>,
    /// What the first describes.
    decides: Rc<OfDriver>,
}

impl<'a> Claimed<'a> {
    /// The first overlay that describes the driver.
    pub(super) fn new(overlay: &'a Overlay, says: &Rc<OfDriver>) -> Self {
        Self { winner: overlay, last: overlay, says: Rc::clone(says), decides: Rc::clone(says) }
    }

    /// The key of the decision: equal for types that get the same templates.
    pub(super) fn decision(&self, driver: &DriverName) -> Decision {
        (driver.clone(), std::ptr::from_ref(self.winner).addr(), Rc::as_ptr(&self.decides).addr())
    }

    /// Whether the same overlay decides, and describes the same: that may depend on labels of the NodePool.
    pub(super) fn is_decided_like(&self, other: &Self) -> bool {
        std::ptr::eq(self.winner, other.winner) && Rc::ptr_eq(&self.decides, &other.decides)
    }
}

impl<'a> Expansions<'a> {
    /// The number of an overlay's templates.
    pub(super) fn number(&mut self, templates: &'a DynamicResources) -> usize {
        self.templates.iter().position(|known| *known == templates).unwrap_or_else(|| {
            self.templates.push(templates);
            self.templates.len() - 1
        })
    }

    /// What the overlay with that number describes for each driver, on that type in that NodePool.
    pub(super) fn of(
        &mut self,
        (overlay, number): (&Overlay, usize),
        pool: &Pool<'_>,
        instance_type: &InstanceType,
    ) -> Result<Said, dra_templates::Error> {
        let label = |key: &str| certain_label(pool, instance_type, key);
        let counts: Counts = dra_templates::counting_labels(&overlay.dynamic_resources).map(label).collect();
        let expand = || {
            let expansion = Expansion::new(&overlay.dynamic_resources, &label)?;
            let drivers: BTreeSet<&DriverName> = expansion.pools.iter().map(|pool| &pool.driver).collect();
            let of_drivers = drivers.into_iter().map(|it| (it.clone(), Rc::new(OfDriver::new(&expansion, it))));
            Ok(Rc::new(of_drivers.collect()))
        };
        self.known.entry((number, counts)).or_insert_with(expand).clone()
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

/// The value of a label that every machine of that type in that NodePool has.
pub(super) fn certain_label(pool: &Pool<'_>, instance_type: &InstanceType, key: &str) -> Option<String> {
    super::value_of_pool(pool, key).or_else(|| instance_type.certain_label(key)).map(str::to_owned)
}

/// Keeps only the templates of drivers for which `keep` holds, and their bindings.
pub fn retain_drivers(resources: &mut DynamicResources, keep: impl Fn(&str) -> bool) {
    resources.resource_slice_templates.retain(|template| keep(&template.spec.driver));
    let kept: BTreeSet<&str> =
        resources.resource_slice_templates.iter().map(|template| template.metadata.name.as_str()).collect();
    for binding in &mut resources.attribute_bindings {
        binding.device_selectors.retain(|selector| kept.contains(selector.resource_slice_template.as_str()));
    }
    resources.attribute_bindings.retain(|binding| !binding.device_selectors.is_empty());
    resources.drivers.retain(|driver| keep(&driver.name));
}

/// The templates of a type: for each described driver those of its overlay, for the others the provider's. Counts from
/// a label are written as numbers, since the NodePool's labels are not the type's.
pub(super) fn merged(
    provider: &DynamicResources,
    winners: &BTreeMap<DriverName, &Overlay>,
    label: &dyn Fn(&str) -> Option<String>,
) -> DynamicResources {
    let mut merged = provider.clone();
    retain_drivers(&mut merged, |driver| !winners.contains_key(driver));
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for overlay in winners.values().filter(|it| done.insert(it.name.as_str())) {
        let mut its = overlay.dynamic_resources.clone();
        retain_drivers(&mut its, |driver| winners.get(driver).is_some_and(|winner| winner.name == overlay.name));
        dra_templates::write_counts(&mut its, label);
        // Templates of different overlays may have the same name.
        let named = |name: &mut String| *name = format!("{}/{name}", overlay.name);
        its.resource_slice_templates.iter_mut().for_each(|template| named(&mut template.metadata.name));
        let selectors = its.attribute_bindings.iter_mut().flat_map(|binding| &mut binding.device_selectors);
        selectors.for_each(|selector| named(&mut selector.resource_slice_template));
        merged.resource_slice_templates.append(&mut its.resource_slice_templates);
        merged.attribute_bindings.append(&mut its.attribute_bindings);
        merged.drivers.append(&mut its.drivers);
    }
    merged
}
