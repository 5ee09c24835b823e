//! An instance type as data.

use std::collections::{BTreeMap, BTreeSet};

use cloudprovider::{InstanceType, Offering};
use cluster::device_prices::{self, DevicesOfPool};
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

/// A device, and what it costs of its machine.
struct Priced {
    device: Value,
    price: Option<PriceNanoUsdPerHour>,
}

/// Devices that are alike but for where they are.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kind {
    pub(super) count: usize,
    /// Of one: of a partition its part of the whole device's price; none where nothing can be launched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) price_nano_usd_per_hour_each: Option<PriceNanoUsdPerHour>,
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
    let mut by_driver: BTreeMap<&str, Vec<(DevicesOfPool<'_>, Vec<Value>)>> = BTreeMap::new();
    for pool in &expansion.pools {
        let slices = layout::slices(pool, Host { node_name: NODE, labels: &labels }).unwrap_or_default();
        let of_pool = slices.iter().filter_map(|slice| slice.pointer("/spec/devices")?.as_array()).flatten().cloned();
        let typed = DevicesOfPool {
            devices: pool.devices.iter().map(|it| &it.device).collect(),
            counter_sets: pool.shared_counters.iter().collect(),
        };
        by_driver.entry(pool.driver.as_str()).or_default().push((typed, of_pool.collect()));
    }
    let told = by_driver.into_iter().map(|(driver, pools)| {
        let (typed, written): (Vec<DevicesOfPool<'_>>, Vec<Vec<Value>>) = pools.into_iter().unzip();
        let each = cheapest.and_then(|machine| device_prices::price_each(machine, &typed));
        // Slices have the devices in the pool's order.
        let priced = typed.iter().zip(written).flat_map(|(pool, written)| {
            pool.devices.iter().zip(written).map(move |(device, written)| Priced {
                device: written,
                price: each.map(|each| pool.part(device).of(each)),
            })
        });
        Driver {
            driver: driver.to_owned(),
            count: device_prices::whole_devices(&typed),
            price_nano_usd_per_hour_each: each,
            kinds: kinds(driver, &priced.collect::<Vec<_>>()),
        }
    });
    told.collect()
}

/// Devices whose price and capacity are equal, and whose attributes of the driver's own that are no numbers: numbers
/// count devices or tell where they are, as attributes of other domains do.
fn kinds(driver: &str, devices: &[Priced]) -> Vec<Kind> {
    let object = |device: &Value, field: &str| -> BTreeMap<String, Value> {
        let found = device.get(field).and_then(Value::as_object).into_iter().flatten();
        found.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let is_kind = |(key, value): &(String, Value)| {
        key.split_once('/').is_none_or(|(domain, _)| domain == driver) && value.get("int").is_none()
    };
    let mut kinds: Vec<(Kind, BTreeMap<String, BTreeSet<String>>)> = Vec::new();
    for Priced { device, price } in devices {
        let capacity = object(device, "capacity");
        let (attributes, others): (BTreeMap<_, _>, Vec<_>) = {
            let (own, others): (Vec<_>, Vec<_>) = object(device, "attributes").into_iter().partition(is_kind);
            (own.into_iter().collect(), others)
        };
        let is_like = |kind: &Kind| {
            kind.attributes == attributes && kind.capacity == capacity && kind.price_nano_usd_per_hour_each == *price
        };
        let known = kinds.iter().position(|(kind, _)| is_like(kind));
        let at = known.unwrap_or(kinds.len());
        if at == kinds.len() {
            let new = Kind {
                count: 0,
                price_nano_usd_per_hour_each: *price,
                attributes,
                capacity,
                differ_in: BTreeMap::new(),
            };
            kinds.push((new, BTreeMap::new()));
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
