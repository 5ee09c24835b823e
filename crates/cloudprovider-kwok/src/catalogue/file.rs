//! Reading a catalogue file.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as MapEntry;
use std::fmt;

use api::resource_slice_template::DynamicResources;
use api::{NodeSelectorRequirement, Operator, QuantityString, labels, resources};
use cloudprovider::instance_type::resources_from_api;
use cloudprovider::{CapacityType, InstanceType, Offering, Overhead, ResourceList};
use model::PriceNanoUsdPerHour;
use serde::Deserialize;
use serde_json::{Number, Value};

use super::Description;

/// Longest file, in bytes.
pub(super) const MAX_LEN: usize = 64 << 20;

/// Most entries in a file.
pub(super) const MAX_INSTANCE_TYPES: usize = 20_000;

/// Most offerings of an entry.
pub(super) const MAX_OFFERINGS: usize = 2_000;

/// What a catalogue file describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalogue {
    /// The types that make sense, ordered by name. At least one.
    pub instance_types: Vec<InstanceType>,
    /// The entries that were left out, each an [`Error::Entry`], in the order of the file.
    pub left_out: Vec<Error>,
}

/// Why a catalogue or one of its entries cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not a JSON list, or too long.
    #[error("instance types: {reason}")]
    File {
        /// What is wrong with it.
        reason: String,
    },
    /// An entry makes no sense.
    #[error("instance types: entry {index} ({name:?}): {field}: {reason}")]
    Entry {
        /// Its place in the list, from 0.
        index: usize,
        /// The instance type's name, as far as it can be read.
        name: String,
        /// Where in the entry.
        field: String,
        /// What is wrong there.
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    name: String,
    offerings: Vec<EntryOffering>,
    architecture: String,
    operating_systems: Vec<String>,
    resources: BTreeMap<String, QuantityString>,
    #[serde(default)]
    volume_attachment_limits: BTreeMap<String, u32>,
    #[serde(default)]
    dynamic_resources: DynamicResources,
}

/// Karpenter writes these with Go's own field names.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct EntryOffering {
    #[serde(alias = "price")]
    price: Number,
    #[serde(alias = "available", default = "yes")]
    available: bool,
    #[serde(alias = "requirements")]
    requirements: Vec<NodeSelectorRequirement>,
    #[serde(alias = "reservationCapacity", default)]
    reservation_capacity: i64,
    #[serde(alias = "capacityOverride", default)]
    capacity_override: Option<BTreeMap<String, QuantityString>>,
    #[serde(alias = "overheadOverride", default)]
    overhead_override: Option<EntryOverhead>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
struct EntryOverhead {
    #[serde(alias = "kubeReserved")]
    kube_reserved: BTreeMap<String, QuantityString>,
    #[serde(alias = "systemReserved")]
    system_reserved: BTreeMap<String, QuantityString>,
    #[serde(alias = "evictionThreshold")]
    eviction_threshold: BTreeMap<String, QuantityString>,
}

fn yes() -> bool {
    true
}

/// What is wrong inside an entry: field and reason.
struct Wrong(String, String);

fn wrong(field: impl fmt::Display, reason: impl fmt::Display) -> Wrong {
    Wrong(field.to_string(), reason.to_string())
}

/// Reads a catalogue. An entry that makes no sense is left out and told of; the others are used.
///
/// Entries that differ in architecture and operating system only are one type that can be had with either: Karpenter's
/// generator for AWS writes such.
///
/// # Errors
/// If the text is not a JSON list, too long, or has no entry that makes sense: then the first entry's error is told.
pub fn parse(text: &str) -> Result<Catalogue, Error> {
    let file_error = |reason: String| Error::File { reason };
    if text.len() > MAX_LEN {
        return Err(file_error(format!("{} bytes, more than {MAX_LEN}", text.len())));
    }
    let entries: Vec<Value> =
        serde_json::from_str(text).map_err(|error| file_error(format!("expected a JSON list: {error}")))?;
    if entries.len() > MAX_INSTANCE_TYPES {
        return Err(file_error(format!("{} entries, more than {MAX_INSTANCE_TYPES}", entries.len())));
    }
    let mut described = BTreeMap::<String, Description>::new();
    let mut left_out = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let name = entry.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Err(Wrong(field, reason)) = add(entry, &mut described) {
            left_out.push(Error::Entry { index, name, field, reason });
        }
    }
    if described.is_empty() {
        return Err(left_out.into_iter().next().unwrap_or_else(|| file_error("the list is empty".to_owned())));
    }
    Ok(Catalogue { instance_types: described.into_values().map(Description::into_instance_type).collect(), left_out })
}

/// Takes in one entry, or leaves all as it was.
fn add(entry: Value, described: &mut BTreeMap<String, Description>) -> Result<(), Wrong> {
    let entry: Entry = serde_json::from_value(entry).map_err(|error| wrong("entry", error))?;
    let name = entry.name.clone();
    let description = describe(entry)?;
    match described.entry(name) {
        MapEntry::Vacant(vacant) => {
            vacant.insert(description);
            Ok(())
        }
        MapEntry::Occupied(mut earlier) => merge(earlier.get_mut(), description),
    }
}

/// Adds what a later entry of the same name says.
fn merge(earlier: &mut Description, later: Description) -> Result<(), Wrong> {
    let twice = |field| wrong(field, "an earlier entry of this name has it differently");
    if earlier.resources != later.resources {
        return Err(twice("resources"));
    }
    if earlier.offerings != later.offerings {
        return Err(twice("offerings"));
    }
    if earlier.volume_attachment_limits != later.volume_attachment_limits {
        return Err(twice("volumeAttachmentLimits"));
    }
    if earlier.dynamic_resources != later.dynamic_resources {
        return Err(twice("dynamicResources"));
    }
    let more_architectures = !later.architectures.is_subset(&earlier.architectures);
    if !more_architectures && later.operating_systems.is_subset(&earlier.operating_systems) {
        return Err(wrong("name", "an earlier entry has the same name, architecture and operating systems"));
    }
    earlier.architectures.extend(later.architectures);
    earlier.operating_systems.extend(later.operating_systems);
    Ok(())
}

fn describe(entry: Entry) -> Result<Description, Wrong> {
    if entry.name.is_empty() {
        return Err(wrong("name", "is empty"));
    }
    if entry.architecture.is_empty() {
        return Err(wrong("architecture", "is empty"));
    }
    if entry.operating_systems.is_empty() || entry.operating_systems.iter().any(String::is_empty) {
        return Err(wrong("operatingSystems", "needs at least one, none empty"));
    }
    let resources = amounts("resources", &entry.resources)?;
    for resource in [resources::CPU, resources::MEMORY] {
        if !resources.contains_key(resource) {
            return Err(wrong("resources", format_args!("{resource} is missing")));
        }
    }
    if entry.offerings.is_empty() {
        return Err(wrong("offerings", "the list is empty"));
    }
    if entry.offerings.len() > MAX_OFFERINGS {
        return Err(wrong("offerings", format_args!("{}, more than {MAX_OFFERINGS}", entry.offerings.len())));
    }
    let mut offerings = Vec::with_capacity(entry.offerings.len());
    for (index, offering) in entry.offerings.iter().enumerate() {
        let offering = read_offering(offering)
            .map_err(|Wrong(field, reason)| Wrong(format!("offerings[{index}].{field}"), reason))?;
        let twin = offerings
            .iter()
            .any(|earlier: &Offering| earlier.zone == offering.zone && earlier.capacity_type == offering.capacity_type);
        if twin {
            let (zone, terms) = (&offering.zone, offering.capacity_type);
            return Err(wrong(format_args!("offerings[{index}]"), format_args!("a second one for {terms} in {zone}")));
        }
        offerings.push(offering);
    }
    Ok(Description {
        name: entry.name,
        architectures: [entry.architecture].into(),
        operating_systems: entry.operating_systems.into_iter().collect(),
        resources,
        offerings,
        volume_attachment_limits: entry.volume_attachment_limits,
        dynamic_resources: entry.dynamic_resources,
    })
}

fn amounts(field: &str, list: &BTreeMap<String, QuantityString>) -> Result<ResourceList, Wrong> {
    let amounts = resources_from_api(list).map_err(|error| wrong(field, error))?;
    match amounts.iter().find(|(_, amount)| amount.sign() < 0) {
        Some((resource, amount)) => Err(wrong(field, format_args!("{resource}: {amount} is negative"))),
        None => Ok(amounts),
    }
}

/// Differs: `kwok-available`. `Available: false` is kept; Karpenter's kwok provider reads every offering as available.
fn read_offering(offering: &EntryOffering) -> Result<Offering, Wrong> {
    // The shortest decimal that is this number; Karpenter computes its prices with floats.
    let price =
        PriceNanoUsdPerHour::parse_rounded(&offering.price.to_string()).map_err(|error| wrong("Price", error))?;
    if price < PriceNanoUsdPerHour::ZERO {
        return Err(wrong("Price", "is negative"));
    }
    let mut of_machine = BTreeMap::new();
    for NodeSelectorRequirement { key, operator, values } in &offering.requirements {
        let (Operator::In, [value]) = (operator, values.as_slice()) else {
            let reason = format_args!("{key}: needs operator In with one value, got {operator} {values:?}").to_string();
            return Err(wrong("Requirements", reason));
        };
        if of_machine.insert(key.clone(), value.clone()).is_some() {
            return Err(wrong("Requirements", format_args!("{key} twice")));
        }
    }
    let mut take =
        |key: &str| of_machine.remove(key).ok_or_else(|| wrong("Requirements", format_args!("{key} is missing")));
    let zone = take(labels::ZONE)?;
    let terms = take(labels::CAPACITY_TYPE)?;
    let capacity_type = CapacityType::parse(&terms).ok_or_else(|| {
        let known = labels::CAPACITY_TYPES.join(", ");
        wrong("Requirements", format_args!("{}: {terms:?} is none of {known}", labels::CAPACITY_TYPE))
    })?;
    if capacity_type == CapacityType::Reserved || offering.reservation_capacity != 0 {
        return Err(wrong("Requirements", "this provider has no reservations"));
    }
    let capacity_override = match &offering.capacity_override {
        Some(list) => Some(amounts("CapacityOverride", list)?),
        None => None,
    };
    let overhead_override = match &offering.overhead_override {
        Some(overhead) => Some(Overhead {
            kube_reserved: amounts("OverheadOverride.KubeReserved", &overhead.kube_reserved)?,
            system_reserved: amounts("OverheadOverride.SystemReserved", &overhead.system_reserved)?,
            eviction_threshold: amounts("OverheadOverride.EvictionThreshold", &overhead.eviction_threshold)?,
        }),
        None => None,
    };
    Ok(Offering {
        zone,
        capacity_type,
        labels: of_machine,
        reservation: None,
        price,
        available: offering.available,
        capacity_override,
        overhead_override,
    })
}
