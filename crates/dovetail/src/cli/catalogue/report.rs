//! An instance type as data.

use std::collections::{BTreeMap, BTreeSet};

use cloudprovider::{InstanceType, Offering};
use dra_templates::Expansion;
use dra_templates::layout::{self, Host};
use model::PriceNanoUsdPerHour;
use serde::Serialize;
use serde_json::Value;

/// The name of the machine whose devices are counted.
const NODE: &str = "node";

/// What is known of an instance type.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Type {
    /// The NodePool that launches it, if the user gave any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node_pool: Option<String>,
    pub(super) name: String,
    pub(super) capacity: BTreeMap<String, String>,
    pub(super) allocatable: BTreeMap<String, String>,
    /// The values that each label may have.
    pub(super) labels: BTreeMap<String, BTreeSet<String>>,
    pub(super) offerings: Vec<Offer>,
    /// By driver.
    pub(super) devices: Vec<Driver>,
}

/// An offering.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Offer {
    pub(super) zone: String,
    pub(super) capacity_type: String,
    /// Whether a machine could be launched; without a price none can.
    pub(super) launchable: bool,
    pub(super) price_nano_usd_per_hour: PriceNanoUsdPerHour,
    /// Labels besides zone and capacity type.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) labels: BTreeMap<String, String>,
}

/// What a driver will publish.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Driver {
    pub(super) driver: String,
    /// Devices that are no partitions, and sets of partitions.
    pub(super) count: usize,
    /// The machine's cheapest price divided by `count`; none where nothing can be launched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) price_nano_usd_per_hour_each: Option<PriceNanoUsdPerHour>,
    pub(super) kinds: Vec<Kind>,
}

/// Devices that are alike but for where they are.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kind {
    pub(super) count: usize,
    pub(super) attributes: BTreeMap<String, Value>,
    pub(super) capacity: BTreeMap<String, Value>,
    /// How many values other attributes have among them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) differ_in: BTreeMap<String, usize>,
}

impl Type {
    pub(super) fn new(node_pool: Option<&str>, instance_type: &InstanceType) -> Self {
        let amounts = |list: cloudprovider::ResourceList| {
            list.into_iter().map(|(resource, amount)| (resource, amount.to_string())).collect()
        };
        let cheapest = instance_type.offerings.iter().filter(|it| it.launchable()).map(|it| it.price).min();
        Self {
            node_pool: node_pool.map(str::to_owned),
            name: instance_type.name.to_string(),
            capacity: amounts(instance_type.capacity.clone()),
            allocatable: amounts(instance_type.allocatable()),
            labels: instance_type.requirements.clone(),
            offerings: instance_type.offerings.iter().map(Offer::new).collect(),
            devices: drivers(instance_type, cheapest),
        }
    }

    /// The least that a machine of that capacity type costs.
    pub(super) fn cheapest(&self, capacity_type: &str) -> Option<PriceNanoUsdPerHour> {
        let launchable = self.offerings.iter().filter(|it| it.launchable && it.capacity_type == capacity_type);
        launchable.map(|it| it.price_nano_usd_per_hour).min()
    }
}

impl Offer {
    fn new(offering: &Offering) -> Self {
        Self {
            zone: offering.zone.clone(),
            capacity_type: offering.capacity_type.to_string(),
            launchable: offering.launchable(),
            price_nano_usd_per_hour: offering.price,
            labels: offering.labels.clone(),
        }
    }
}

/// A type whose templates cannot be used has been told of as a problem.
fn drivers(instance_type: &InstanceType, cheapest: Option<PriceNanoUsdPerHour>) -> Vec<Driver> {
    let label = |key: &str| instance_type.certain_label(key).map(str::to_owned);
    let Ok(expansion) = Expansion::new(&instance_type.dynamic_resources, &label) else { return Vec::new() };
    let labels = BTreeMap::new();
    let mut devices: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for pool in &expansion.pools {
        let slices = layout::slices(pool, Host { node_name: NODE, labels: &labels }).unwrap_or_default();
        let of_pool = slices.iter().filter_map(|slice| slice.pointer("/spec/devices")?.as_array()).flatten().cloned();
        devices.entry(pool.driver.to_string()).or_default().extend(of_pool);
    }
    let each = |count: usize| Some(PriceNanoUsdPerHour(cheapest?.0 / i64::try_from(count).ok().filter(|it| *it > 0)?));
    devices
        .into_iter()
        .map(|(driver, devices)| {
            let count = whole(&devices);
            let kinds = kinds(&driver, &devices);
            Driver { driver, count, price_nano_usd_per_hour_each: each(count), kinds }
        })
        .collect()
}

/// Devices that draw on no counters, and sets of counters that the others draw on.
fn whole(devices: &[Value]) -> usize {
    let sets = |device: &Value| -> Vec<String> {
        let consumed = device.get("consumesCounters").and_then(Value::as_array).into_iter().flatten();
        consumed.filter_map(|it| it.get("counterSet")?.as_str().map(str::to_owned)).collect()
    };
    let all: Vec<_> = devices.iter().map(sets).collect();
    let alone = all.iter().filter(|sets| sets.is_empty()).count();
    alone + all.into_iter().flatten().collect::<BTreeSet<_>>().len()
}

/// Devices whose capacity is equal, and whose attributes of the driver's own that are no numbers: numbers count devices
/// or tell where they are, as attributes of other domains do.
fn kinds(driver: &str, devices: &[Value]) -> Vec<Kind> {
    let object = |device: &Value, field: &str| -> BTreeMap<String, Value> {
        let found = device.get(field).and_then(Value::as_object).into_iter().flatten();
        found.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let is_kind = |(key, value): &(String, Value)| {
        key.split_once('/').is_none_or(|(domain, _)| domain == driver) && value.get("int").is_none()
    };
    let mut kinds: Vec<(Kind, BTreeMap<String, BTreeSet<String>>)> = Vec::new();
    for device in devices {
        let capacity = object(device, "capacity");
        let (attributes, others): (BTreeMap<_, _>, Vec<_>) = {
            let (own, others): (Vec<_>, Vec<_>) = object(device, "attributes").into_iter().partition(is_kind);
            (own.into_iter().collect(), others)
        };
        let known = kinds.iter().position(|(kind, _)| kind.attributes == attributes && kind.capacity == capacity);
        let at = known.unwrap_or(kinds.len());
        if at == kinds.len() {
            kinds.push((Kind { count: 0, attributes, capacity, differ_in: BTreeMap::new() }, BTreeMap::new()));
        }
        if let Some((kind, values)) = kinds.get_mut(at) {
            kind.count += 1;
            for (key, value) in others {
                values.entry(key).or_default().insert(value.to_string());
            }
        }
    }
    let counted = |(kind, values): (Kind, BTreeMap<String, BTreeSet<String>>)| Kind {
        differ_in: values.into_iter().map(|(key, values)| (key, values.len())).collect(),
        ..kind
    };
    kinds.into_iter().map(counted).collect()
}
