//! ResourceSliceTemplates become the pools of devices that drivers will publish for one machine.
//!
//! A template describes a set of devices. All templates of one driver with the same suffix, scope and node selection
//! are one pool. Replicated devices are expanded, bindings become groups of devices, and everything is validated
//! against the API's limits, as if it had been published. If an instance type's label decides (`replicasFromLabel`),
//! the result differs by type; types with equal results have equal [`Expansion`]s.
//!
//! Left out: which of the pools a node can use ([`Nodes`] says what that depends on), and real pool names, which
//! drivers choose ([`layout`] makes placeholders).

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::resource_slice_template::{AttributeBinding, NodeSelectorTemplate, ResourceSliceTemplate, Scope};
use api::{DynamicResources, NodeSelectorRequirement};
use dra_sched::{DomainSelector, MachineTemplate, SharedTemplate, Templates, machine};
use dra_types::{AttributeValue, CounterSet, CounterSetName, Device, DriverName, QualifiedName};
use serde_json::Value;

pub mod devices;
mod drivers;
mod error;
pub mod layout;
mod nodes;

pub use error::{Error, Reason};

/// Devices that one pool may have.
pub const MAX_DEVICES: usize = 2048;
/// The placeholder for the number of a replica.
pub const INDEX: &str = "{index}";

/// What templates yield for machines with certain labels.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Expansion {
    /// The pools, in the order of their first templates.
    pub pools: Vec<Pool>,
    /// Attributes with one unknown value each.
    pub groups: Vec<Group>,
}

/// The devices that a driver will publish in one pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// The driver.
    pub driver: DriverName,
    /// Tells pools of one driver with equal node selection apart; mostly empty.
    pub suffix: String,
    /// Whether the pool belongs to one machine or to a domain.
    pub scope: PoolScope,
    /// Which nodes can use its devices.
    pub nodes: Nodes,
    /// How many pools before it differ only in the nodes that they select.
    number: usize,
    /// The templates, in order.
    pub templates: Vec<String>,
    /// The devices, in the order of publishing.
    pub devices: Vec<PoolDevice>,
    /// Counters that they draw from.
    pub shared_counters: Vec<CounterSet>,
    /// The counters as the API has them.
    counters_json: Vec<Value>,
}

/// A device of a pool.
#[derive(Debug, Clone)]
pub struct PoolDevice {
    /// The device, without its node selection.
    pub device: Device,
    /// Which nodes can use it, if the pool leaves that to each device.
    pub nodes: Option<Nodes>,
    /// Its place in the templates; the API object is only built for publishing.
    entry: Arc<devices::Entry>,
    index: Option<usize>,
    /// Attributes with values that the template did not know.
    found_out: BTreeMap<String, String>,
}

/// Devices are equal if they are to every claim, wherever they come from.
impl PartialEq for PoolDevice {
    fn eq(&self, other: &Self) -> bool {
        self.device == other.device && self.nodes == other.nodes
    }
}

impl Pool {
    /// Who can use a device of it.
    fn nodes_of<'a>(&'a self, device: &'a PoolDevice) -> &'a Nodes {
        device.nodes.as_ref().unwrap_or(&self.nodes)
    }
}

impl PoolDevice {
    /// The device as the API has it, without its node selection.
    fn json(&self) -> Value {
        // Its replicas have been read, so it can be written.
        let mut json = self.entry.json(self.index).unwrap_or_default();
        if let Some(fields) = json.as_object_mut().filter(|_| !self.found_out.is_empty()) {
            let attributes = fields.entry("attributes").or_insert_with(|| serde_json::json!({}));
            if let Some(attributes) = attributes.as_object_mut() {
                let found_out = self.found_out.iter();
                attributes.extend(
                    found_out.map(|(attribute, value)| (attribute.clone(), serde_json::json!({ "string": value }))),
                );
            }
        }
        json
    }
}

/// Whether a pool belongs to one machine or to a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PoolScope {
    /// Each machine has its own, which exists as long as the machine.
    Machine,
    /// Each domain has one, however many machines are in it.
    Domain,
}

/// Who can use devices.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Nodes {
    /// The machine itself.
    Host,
    /// Every node.
    All,
    /// Each device says.
    PerDevice,
    /// Nodes that match this selection.
    Selected(Selection),
}

/// Selects nodes, partly by the labels of the publishing machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Labels for which a node must have the value of the publishing machine. Sorted.
    pub match_label_keys: BTreeSet<String>,
    /// Requirements on labels.
    pub expressions: Vec<NodeSelectorRequirement>,
    /// Requirements on fields.
    pub fields: Vec<NodeSelectorRequirement>,
}

/// Devices with one unknown value under some attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The binding that it comes from, by its place.
    pub binding: usize,
    /// Whether its value differs from those of all other such groups, of whichever binding.
    pub distinct: bool,
    /// The attributes.
    pub attributes: Vec<String>,
    /// The pools and the places of the devices in them.
    pub members: Vec<(usize, usize)>,
}

impl Expansion {
    /// Expands templates and bindings for a machine. `label` returns the values of its labels that are certain.
    ///
    /// # Errors
    /// The first error in the templates, or the first thing that such a machine cannot have.
    pub fn new(templates: &DynamicResources, label: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        check(templates)?;
        let mut expansion = Self::default();
        // For each template its pool, and for each of its entries the places of the devices.
        let mut entries: BTreeMap<&str, (usize, Vec<Entry>)> = BTreeMap::new();
        for template in &templates.resource_slice_templates {
            let pool = expansion.pool_of(template);
            let added = expansion.add_devices(pool, template, label)?;
            entries.insert(&template.metadata.name, (pool, added));
        }
        for (place, binding) in templates.attribute_bindings.iter().enumerate() {
            expansion.bind(place, binding, &entries)?;
        }
        layout::check(&expansion)?;
        expansion.check_counter_sets()?;
        Ok(expansion)
    }

    /// Whether there is no device and no counter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pools.iter().all(|pool| pool.devices.is_empty() && pool.shared_counters.is_empty())
    }

    /// The devices with values in place of unknown ones: what a driver will have found out. `value` gets the place of
    /// the group.
    #[must_use]
    pub fn with_values(mut self, value: impl Fn(usize) -> String) -> Self {
        for (number, group) in self.groups.iter().enumerate() {
            let value = value(number);
            for &(pool, device) in &group.members {
                let device = self.pools.get_mut(pool).and_then(|pool| pool.devices.get_mut(device));
                let Some(PoolDevice { device, found_out, .. }) = device else { continue };
                for attribute in &group.attributes {
                    let of_device = AttributeValue::String(value.as_str().into());
                    device.attributes.insert(attribute.as_str().into(), of_device);
                    found_out.insert(attribute.clone(), value.clone());
                }
            }
        }
        self
    }

    /// Devices by driver.
    #[must_use]
    pub fn device_counts(&self) -> BTreeMap<DriverName, usize> {
        let mut counts = BTreeMap::new();
        for pool in &self.pools {
            *counts.entry(pool.driver.clone()).or_default() += pool.devices.len();
        }
        counts
    }

    /// What a machine brings, as the allocator takes it.
    ///
    /// Where each device says itself who can use it, the devices of each selection count as a pool; none of them draws
    /// from a counter set that those of another draw from ([`Reason::CounterSetForSeveralNodes`]).
    #[must_use]
    pub fn templates(&self) -> Templates {
        let mut templates = Templates::default();
        for (place, pool) in self.pools.iter().enumerate() {
            let mut by_nodes: Vec<(Option<DomainSelector>, Vec<usize>)> = Vec::new();
            for (device, of) in pool.devices.iter().enumerate() {
                let nodes = pool.nodes_of(of).domain();
                match by_nodes.iter_mut().find(|(known, _)| *known == nodes) {
                    Some((_, devices)) => devices.push(device),
                    None => by_nodes.push((nodes, vec![device])),
                }
            }
            for (nodes, devices) in by_nodes {
                let template = self.template_of(place, pool, &devices);
                match nodes {
                    None => templates.own.push(Arc::new(template)),
                    Some(nodes) => {
                        let scope = match pool.scope {
                            PoolScope::Machine => dra_sched::PoolScope::Machine,
                            PoolScope::Domain => dra_sched::PoolScope::Domain,
                        };
                        templates.shared.push(Arc::new(SharedTemplate { template, scope, nodes }));
                    }
                }
            }
        }
        templates
    }

    /// Devices that draw from one counter set are for the same nodes: what a machine can have of the set would be up to
    /// nodes that have nothing else in common with it.
    fn check_counter_sets(&self) -> Result<(), Error> {
        for pool in self.pools.iter().filter(|pool| pool.nodes == Nodes::PerDevice) {
            let mut users: BTreeMap<&CounterSetName, &PoolDevice> = BTreeMap::new();
            for device in &pool.devices {
                for draw in &device.device.consumes_counters {
                    let first = *users.entry(&draw.counter_set).or_insert(device);
                    if pool.nodes_of(first).domain() != pool.nodes_of(device).domain() {
                        let reason = Reason::CounterSetForSeveralNodes {
                            set: draw.counter_set.to_string(),
                            devices: [first.device.name.to_string(), device.device.name.to_string()],
                        };
                        let place = error::Place::Driver(pool.driver.to_string());
                        return Err(Error { place, reason: Box::new(reason) });
                    }
                }
            }
        }
        Ok(())
    }

    fn template_of(&self, place: usize, pool: &Pool, devices: &[usize]) -> MachineTemplate {
        let of_pool = devices.iter().filter_map(|device| pool.devices.get(*device));
        MachineTemplate {
            driver: pool.driver.clone(),
            pool_suffix: pool.suffix.as_str().into(),
            devices: of_pool.map(|it| it.device.clone()).collect(),
            shared_counters: pool.shared_counters.clone(),
            bindings: self.bindings_of(place, devices),
        }
    }

    fn bindings_of(&self, pool: usize, devices: &[usize]) -> Vec<(u32, machine::BoundAttribute)> {
        let mut bindings = Vec::new();
        for (number, group) in (0_u32..).zip(&self.groups) {
            let members = group.members.iter().filter(|(of, device)| *of == pool && devices.contains(device));
            let members: Vec<_> =
                members.filter_map(|(of, device)| self.pools.get(*of)?.devices.get(*device)).collect();
            for attribute in &group.attributes {
                bindings.extend(members.iter().map(|member| {
                    let bound = machine::BoundAttribute {
                        device: member.device.name.clone(),
                        attribute: attribute.as_str().into(),
                    };
                    (machine::binding_group(number, group.distinct), bound)
                }));
            }
        }
        bindings
    }

    /// The pool that a template belongs to.
    fn pool_of(&mut self, template: &ResourceSliceTemplate) -> usize {
        let spec = &template.spec;
        let nodes = Nodes::of_template(spec);
        let scope = if spec.scope == Some(Scope::Domain) { PoolScope::Domain } else { PoolScope::Machine };
        let suffix = spec.pool_suffix.as_deref().unwrap_or_default();
        let known = self.pools.iter().position(|pool| {
            pool.driver.as_str() == spec.driver && pool.suffix == suffix && pool.scope == scope && pool.nodes == nodes
        });
        let place = known.unwrap_or_else(|| {
            let differs_in_nodes = |pool: &&Pool| {
                let kind = |nodes| std::mem::discriminant(nodes);
                pool.driver.as_str() == spec.driver
                    && pool.suffix == suffix
                    && pool.scope == scope
                    && kind(&pool.nodes) == kind(&nodes)
            };
            let number = self.pools.iter().filter(differs_in_nodes).count();
            self.pools.push(Pool {
                driver: spec.driver.as_str().into(),
                suffix: suffix.to_owned(),
                scope,
                nodes,
                number,
                templates: Vec::new(),
                devices: Vec::new(),
                shared_counters: Vec::new(),
                counters_json: Vec::new(),
            });
            self.pools.len() - 1
        });
        if let Some(pool) = self.pools.get_mut(place) {
            pool.templates.push(template.metadata.name.clone());
        }
        place
    }

    fn add_devices(
        &mut self,
        pool: usize,
        template: &ResourceSliceTemplate,
        label: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Vec<Entry>, Error> {
        let name = &template.metadata.name;
        let mut entries = Vec::new();
        let Some(pool) = self.pools.get_mut(pool) else { return Ok(entries) };
        for (place, set) in template.spec.shared_counters.iter().enumerate() {
            let field = || format!("sharedCounters[{place}]");
            for written in devices::write_counter_set(set, label).map_err(|it| it.at(name, &field()))? {
                let (set, json) = written;
                pool.shared_counters.push(set);
                pool.counters_json.push(json);
            }
        }
        for (place, device) in template.spec.devices.iter().enumerate() {
            let field = format!("devices[{place}]");
            let count = devices::replicas(device.replicas, device.replicas_from_label.as_deref(), label)
                .map_err(|it| it.at(name, &field))?;
            let first = pool.devices.len();
            if first.saturating_add(count.unwrap_or(1)) > MAX_DEVICES {
                return Err(Reason::TooManyDevices.at(name, &field));
            }
            let nodes = Nodes::of_device(device);
            let written = Arc::new(devices::Entry::new(device));
            for index in 0..count.unwrap_or(1) {
                let index = count.map(|_| index);
                let other = pool.devices.get(first).map(|first| &first.device);
                let device = written.device(other, index).map_err(|it| it.at(name, &field))?;
                let (entry, found_out) = (Arc::clone(&written), BTreeMap::new());
                pool.devices.push(PoolDevice { device, nodes: nodes.clone(), entry, index, found_out });
            }
            entries.push(Entry { name: device.name.clone(), first, count });
        }
        Ok(entries)
    }

    fn bind(
        &mut self,
        place: usize,
        binding: &AttributeBinding,
        entries: &BTreeMap<&str, (usize, Vec<Entry>)>,
    ) -> Result<(), Error> {
        // For each selector its devices: by number where it has one.
        let mut selected: Vec<BTreeMap<Option<usize>, (usize, usize)>> = Vec::new();
        for (number, selector) in binding.device_selectors.iter().enumerate() {
            let error = |reason: Reason| reason.at_binding(place, &format!("deviceSelectors[{number}]"));
            let Some((pool, entries)) = entries.get(selector.resource_slice_template.as_str()) else {
                return Err(error(Reason::UnknownTemplate(selector.resource_slice_template.clone())));
            };
            let found = self.select(*pool, entries, &selector.device);
            if found.is_empty() && !entries.iter().any(|entry| entry.name == selector.device) {
                return Err(error(Reason::UnknownDevice(selector.device.clone())));
            }
            selected.push(found);
        }
        let numbered: Vec<_> = selected.iter().filter(|found| !found.contains_key(&None)).collect();
        let numbers: Vec<Option<usize>> = match numbered.split_first() {
            None => vec![None],
            Some((first, rest)) => {
                first.keys().filter(|number| rest.iter().all(|it| it.contains_key(number))).copied().collect()
            }
        };
        let distinct = binding.distinct_groups == Some(true);
        for number in numbers {
            let member = |found: &BTreeMap<_, _>| found.get(&number).or_else(|| found.get(&None)).copied();
            let members: Vec<(usize, usize)> = selected.iter().filter_map(member).collect();
            let group = Group { binding: place, distinct, attributes: binding.attributes.clone(), members };
            self.check_group(place, &group)?;
            self.groups.push(group);
        }
        Ok(())
    }

    /// The devices that a selector names: one, or one for each number.
    fn select(&self, pool: usize, entries: &[Entry], name: &str) -> BTreeMap<Option<usize>, (usize, usize)> {
        if let Some(entry) = entries.iter().find(|entry| entry.name == name && entry.count.is_some()) {
            return (0..entry.count.unwrap_or(0)).map(|it| (Some(it), (pool, entry.first + it))).collect();
        }
        let devices = self.pools.get(pool).map(|pool| pool.devices.as_slice()).unwrap_or_default();
        let place = devices.iter().position(|it| it.device.name.as_str() == name);
        let own = |place: &usize| entries.iter().any(|it| (it.first..it.first + it.count.unwrap_or(1)).contains(place));
        place.filter(own).map(|place| (None, (pool, place))).into_iter().collect()
    }

    /// A device has one value under an attribute, so one group at most, and none if the template gives the value.
    fn check_group(&self, place: usize, group: &Group) -> Result<(), Error> {
        for &(pool, device) in &group.members {
            let Some(pool_here) = self.pools.get(pool) else { continue };
            let Some(found) = pool_here.devices.get(device) else { continue };
            for attribute in &group.attributes {
                let name = found.device.name.to_string();
                let driver = &pool_here.driver;
                let bound = QualifiedName::from(attribute.as_str());
                let same = |other: &QualifiedName| other.resolve(driver) == bound.resolve(driver);
                if found.device.attributes.keys().any(same) {
                    return Err(Reason::BoundAndGiven { device: name, attribute: attribute.clone() }
                        .at_binding(place, "attributes"));
                }
                let twice = self.groups.iter().any(|known| {
                    known.members.contains(&(pool, device))
                        && known.attributes.iter().any(|other| same(&QualifiedName::from(other.as_str())))
                });
                if twice {
                    return Err(Reason::BoundTwice { device: name, attribute: attribute.clone() }
                        .at_binding(place, "attributes"));
                }
            }
        }
        Ok(())
    }
}

/// The devices of one entry of a template's list.
#[derive(Debug)]
struct Entry {
    name: String,
    first: usize,
    /// How many, if they are numbered.
    count: Option<usize>,
}

/// The labels of a machine that decide how many devices and counter sets it has.
pub fn counting_labels(templates: &DynamicResources) -> impl Iterator<Item = &str> {
    let specs = templates.resource_slice_templates.iter().map(|template| &template.spec);
    specs.flat_map(|spec| {
        let of_devices = spec.devices.iter().map(|device| &device.replicas_from_label);
        let of_sets = spec.shared_counters.iter().map(|set| &set.replicas_from_label);
        of_devices.chain(of_sets).flatten().map(String::as_str)
    })
}

/// Writes the numbers that labels stand for in their place. What is no number stays, to be refused where it is
/// expanded.
pub fn write_counts(templates: &mut DynamicResources, label: &dyn Fn(&str) -> Option<String>) {
    for spec in templates.resource_slice_templates.iter_mut().map(|template| &mut template.spec) {
        let of_devices = spec.devices.iter_mut().map(|it| (&mut it.replicas, &mut it.replicas_from_label));
        let of_sets = spec.shared_counters.iter_mut().map(|it| (&mut it.replicas, &mut it.replicas_from_label));
        for (replicas, from_label) in of_devices.chain(of_sets) {
            let count = from_label.as_deref().and_then(label).and_then(|value| value.parse().ok());
            if count.is_some() {
                (*replicas, *from_label) = (count, None);
            }
        }
    }
}

/// Validates what does not depend on a machine. The CRD has these rules too, for objects from the API server.
///
/// # Errors
/// The first thing that makes no sense.
pub fn check(templates: &DynamicResources) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    for template in &templates.resource_slice_templates {
        let name = &template.metadata.name;
        if !names.insert(name) {
            return Err(Reason::Duplicate.at(name, "metadata.name"));
        }
        check_template(template)?;
    }
    for (place, binding) in templates.attribute_bindings.iter().enumerate() {
        let required =
            [("attributes", binding.attributes.is_empty()), ("deviceSelectors", binding.device_selectors.is_empty())];
        if let Some((field, _)) = required.into_iter().find(|(_, missing)| *missing) {
            return Err(Reason::Required.at_binding(place, field));
        }
        for (number, selector) in binding.device_selectors.iter().enumerate() {
            if !names.contains(&selector.resource_slice_template) {
                return Err(Reason::UnknownTemplate(selector.resource_slice_template.clone())
                    .at_binding(place, &format!("deviceSelectors[{number}].resourceSliceTemplate")));
            }
        }
    }
    drivers::check(templates)
}

fn check_template(template: &ResourceSliceTemplate) -> Result<(), Error> {
    let (name, spec) = (&template.metadata.name, &template.spec);
    let error = |reason: Reason, field: &str| Err(reason.at(name, field));
    let given = |selector: &Option<_>, all_nodes: Option<bool>| {
        usize::from(selector.is_some()) + usize::from(all_nodes == Some(true))
    };
    let per_device = spec.per_device_node_selection == Some(true);
    if given(&spec.node_selector, spec.all_nodes) + usize::from(per_device) > 1 {
        return error(Reason::SeveralNodeFields, "nodeSelector");
    }
    if let Some(Scope::Unknown(scope)) = &spec.scope {
        return error(Reason::UnknownScope(scope.clone()), "scope");
    }
    if let Some(reason) = spec.node_selector.as_ref().and_then(wrong_term) {
        return error(reason, "nodeSelector.nodeSelectorTerms");
    }
    let is_shared = spec.all_nodes == Some(true) || spec.node_selector.is_some();
    if spec.scope == Some(Scope::Domain) && !is_shared {
        return error(Reason::DomainOfOne, "scope");
    }
    if spec.devices.is_empty() && spec.shared_counters.is_empty() {
        return error(Reason::Required, "devices");
    }
    let mut names = BTreeSet::new();
    for (place, device) in spec.devices.iter().enumerate() {
        let field = |name: &str| format!("devices[{place}].{name}");
        if !names.insert(&device.name) {
            return error(Reason::Duplicate, &field("name"));
        }
        match (per_device, given(&device.node_selector, device.all_nodes)) {
            (true, 1) | (false, 0) => {}
            (true, 0) => return error(Reason::Required, &field("nodeSelector")),
            (true, _) => return error(Reason::SeveralNodeFields, &field("nodeSelector")),
            (false, _) => return error(Reason::NotPerDevice, &field("nodeSelector")),
        }
        if let Some(reason) = device.node_selector.as_ref().and_then(wrong_term) {
            return error(reason, &field("nodeSelector.nodeSelectorTerms"));
        }
        let is_replicated = device.replicas.is_some() || device.replicas_from_label.is_some();
        if is_replicated != device.name.contains(INDEX) {
            let reason = if is_replicated { Reason::NoIndex } else { Reason::IndexWithoutReplicas };
            return error(reason, &field("name"));
        }
    }
    Ok(())
}

fn wrong_term(selector: &NodeSelectorTemplate) -> Option<Reason> {
    let [term] = selector.node_selector_terms.as_slice() else { return Some(Reason::OneTerm) };
    let is_empty =
        term.match_label_keys.is_empty() && term.match_expressions.is_empty() && term.match_fields.is_empty();
    is_empty.then_some(Reason::EmptyTerm)
}

#[cfg(test)]
mod tests;
