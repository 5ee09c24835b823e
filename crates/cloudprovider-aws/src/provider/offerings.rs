//! What the region offers, as gauges: written when somebody asks for metrics, because there are tens of thousands.

use std::collections::BTreeMap;

use api::resources::{CPU, MEMORY};
use cloudprovider::{InstanceType, InstanceTypes};
use model::PriceNanoUsdPerHour;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::Ec2CloudProvider;

/// Shows the offerings that a provider knows.
#[derive(Debug)]
pub struct Offerings(pub Ec2CloudProvider);

/// An offering, as node classes see it together.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Offered {
    is_available: bool,
    /// The least.
    price: PriceNanoUsdPerHour,
}

/// By instance type, capacity type and zone.
fn offered(of_classes: &[InstanceTypes]) -> BTreeMap<(&str, &'static str, &str), Offered> {
    let mut all: BTreeMap<_, Offered> = BTreeMap::new();
    for instance_type in of_classes.iter().flat_map(|types| types.types.iter()) {
        for offering in &instance_type.offerings {
            let key = (instance_type.name.as_str(), offering.capacity_type.as_str(), offering.zone.as_str());
            let this = Offered { is_available: offering.available, price: offering.price };
            let known = all.entry(key).or_insert(this);
            known.is_available |= this.is_available;
            known.price = known.price.min(this.price);
        }
    }
    all
}

impl Collector for Offerings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let of_classes = self.0.known_types();
        let offered = offered(&of_classes);
        let labels = |(instance_type, capacity_type, zone)| {
            [("instance_type", instance_type), ("capacity_type", capacity_type), ("zone", zone)]
        };
        gauges(
            &mut encoder,
            ("cloudprovider_instance_type_offering_available", "1 where an instance type can be launched"),
            offered.iter().map(|(key, it)| (labels(*key), f64::from(u8::from(it.is_available)))),
        )?;
        gauges(
            &mut encoder,
            ("cloudprovider_instance_type_offering_price_estimate", "Price of an instance, in dollars per hour"),
            offered.iter().map(|(key, it)| (labels(*key), it.price.0 as f64 / 1e9)),
        )?;
        let types: BTreeMap<&str, &InstanceType> =
            of_classes.iter().flat_map(|types| types.types.iter()).map(|it| (it.name.as_str(), &**it)).collect();
        for (name, help, resource) in [
            ("cloudprovider_instance_type_cpu_cores", "Processors of an instance type", CPU),
            ("cloudprovider_instance_type_memory_bytes", "Memory of an instance type", MEMORY),
        ] {
            let amounts = types.iter().filter_map(|(name, instance_type)| {
                let amount = instance_type.capacity.get(resource)?.value().ok()?;
                Some(([("instance_type", *name)], amount as f64))
            });
            gauges(&mut encoder, (name, help), amounts)?;
        }
        Ok(())
    }
}

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    values: impl Iterator<Item = (impl EncodeLabelSet, f64)>,
) -> Result<(), std::fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
