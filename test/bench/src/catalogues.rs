//! The machines that can be had.

use std::collections::{BTreeMap, BTreeSet};

use api::{labels, resources};
use cloudprovider::declaration::CatalogueInput;
use cloudprovider::{CapacityType, InstanceType, Offering, Overhead, Reservation, ResourceList};
use model::quantity::Format;
use model::{InstanceTypeName, PriceNanoUsdPerHour, Quantity};

/// Zones of [`linear`].
pub const ZONES: [&str; 3] = ["test-zone-1", "test-zone-2", "test-zone-3"];

const GIB: i64 = 1 << 30;
const MIB: i64 = 1 << 20;

/// The 400 types of Karpenter's own benchmark: 1 to 400 vCPU with 2 GiB and 10 pods each, at one price per vCPU and per
/// GB, on three systems, spot in two zones and on demand in three.
pub fn linear() -> Vec<InstanceType> {
    (1..=400)
        .map(|cpus: i64| {
            let price = PriceNanoUsdPerHour(cpus * 314_748_365);
            let spot = ZONES[..2].iter().map(|zone| Offering::new(zone, CapacityType::Spot, price));
            let on_demand = ZONES.iter().map(|zone| Offering::new(zone, CapacityType::OnDemand, price));
            let overhead = Overhead { kube_reserved: amounts(100, 10 * MIB, 0), ..Overhead::default() };
            let systems = ["linux", "windows", "darwin"].as_slice();
            of(
                &format!("fake-it-{}", cpus - 1),
                systems,
                "amd64",
                amounts(cpus * 1000, cpus * 2 * GIB, cpus * 10),
                overhead,
                spot.chain(on_demand).collect(),
            )
        })
        .collect()
}

/// GiB per vCPU and nano-dollars per vCPU and hour of a class of families.
const CLASSES: [(&str, i64, i64); 3] = [("c", 2, 42_500_000), ("m", 4, 48_000_000), ("r", 8, 63_000_000)];
/// A processor: its letter, its architecture, and its price in percent of Intel's.
const PROCESSORS: [(&str, &str, i64); 3] = [("i", "amd64", 100), ("a", "amd64", 90), ("g", "arm64", 80)];
/// Extras, with the price in percent of that without: local disks, network.
const EXTRAS: [(&str, i64); 3] = [("", 100), ("d", 119), ("n", 127)];
/// Sizes: name, vCPUs, and how many pods the network interfaces carry.
const SIZES: [(&str, i64, i64); 8] = [
    ("large", 2, 29),
    ("xlarge", 4, 58),
    ("2xlarge", 8, 58),
    ("4xlarge", 16, 110),
    ("8xlarge", 32, 110),
    ("12xlarge", 48, 110),
    ("16xlarge", 64, 250),
    ("24xlarge", 96, 250),
];

/// 800 types shaped like those of a large cloud, at about its list prices: prices rise with the size exactly, the
/// kubelet keeps more on small machines than on large ones, and a part of the memory is never seen. On demand costs the
/// same in each zone; spot costs between a third and two thirds, differently by family and zone.
pub fn real_shaped() -> Vec<InstanceType> {
    let mut types = Vec::new();
    for (class, gib_per_cpu, price) in CLASSES {
        for generation in 5..=8_i64 {
            for (processor, arch, processor_percent) in PROCESSORS {
                for (extra, extra_percent) in EXTRAS {
                    if generation == 5 && extra == "n" {
                        continue;
                    }
                    let newer_percent = 100 + 5 * (generation - 6).max(0);
                    let price = price * processor_percent / 100 * extra_percent / 100 * newer_percent / 100;
                    family(&format!("{class}{generation}{processor}{extra}"), arch, gib_per_cpu, price, &mut types);
                }
            }
        }
    }
    family("x2g", "arm64", 16, 83_400_000, &mut types);
    types
}

fn family(family: &str, arch: &str, gib_per_cpu: i64, price_per_cpu: i64, types: &mut Vec<InstanceType>) {
    let spread = spread(family);
    for (size, cpus, pods) in SIZES {
        let on_demand = cpus * price_per_cpu;
        let zones = ZONES.iter().zip(0_i64..);
        let offerings = zones.flat_map(|(zone, index)| {
            let spot_percent = 33 + (spread * (index + 3) * 17) % 34;
            [
                Offering::new(zone, CapacityType::OnDemand, PriceNanoUsdPerHour(on_demand)),
                Offering::new(zone, CapacityType::Spot, PriceNanoUsdPerHour(on_demand * spot_percent / 100)),
            ]
        });
        // What the hypervisor keeps is no capacity.
        let memory = cpus * gib_per_cpu * GIB / 1000 * 925;
        let kept_cpu = 60 + 10 + if cpus > 2 { 10 } else { 0 } + (cpus - 4).max(0) * 5 / 2;
        let overhead = Overhead {
            kube_reserved: amounts(kept_cpu, 255 * MIB + 11 * MIB * pods, 0),
            eviction_threshold: amounts(0, 100 * MIB, 0),
            ..Overhead::default()
        };
        let capacity = amounts(cpus * 1000, memory, pods);
        types.push(of(&format!("{family}.{size}"), &["linux"], arch, capacity, overhead, offerings.collect()));
    }
}

/// The types that EC2 sells in us-east-1, in each zone that sells them, on demand, spot and reserved, with the devices
/// that drivers publish. Spot costs between a third and two thirds, differently by family and zone. Reservations are
/// used up, as most are most of the time: a plan looks at them and cannot use them.
///
/// # Panics
/// If the built-in data cannot be used, which the tests of its crate rule out.
#[must_use]
pub fn ec2() -> Vec<InstanceType> {
    let catalogue = cloudprovider_aws::catalogue::of_input(&CatalogueInput::default()).expect("it is built in");
    let mut types = catalogue.instance_types;
    for instance_type in &mut types {
        let family = instance_type.name.split('.').next().unwrap_or_default();
        let spread = spread(family);
        let mut reserved = Vec::new();
        for (index, offering) in (0_i64..).zip(&mut instance_type.offerings) {
            let percent = 33 + (spread * (index + 3) * 17) % 34;
            match offering.capacity_type {
                CapacityType::Spot => offering.price.0 = offering.price.0 / 100 * percent,
                CapacityType::OnDemand => {
                    let mut used_up = Offering::new(&offering.zone, CapacityType::Reserved, PriceNanoUsdPerHour(1));
                    let id = format!("cr-{}-{}", instance_type.name, offering.zone);
                    used_up.reservation = Some(Reservation { id, remaining: 0 });
                    reserved.push(used_up);
                }
                CapacityType::Reserved => {}
            }
        }
        if !reserved.is_empty() {
            let sold = instance_type.requirements.entry(labels::CAPACITY_TYPE.to_owned()).or_default();
            sold.insert(CapacityType::Reserved.as_str().to_owned());
        }
        instance_type.offerings.extend(reserved);
    }
    types
}

/// A number that depends on a family's name.
fn spread(family: &str) -> i64 {
    family.bytes().fold(7_i64, |hash, byte| (hash * 31 + i64::from(byte)) % 1009)
}

fn of(
    name: &str,
    systems: &[&str],
    arch: &str,
    capacity: ResourceList,
    overhead: Overhead,
    offerings: Vec<Offering>,
) -> InstanceType {
    let values = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect::<BTreeSet<_>>();
    let mut requirements = BTreeMap::from([
        (labels::INSTANCE_TYPE.to_owned(), values(&[name])),
        (labels::ARCH.to_owned(), values(&[arch])),
        (labels::OS.to_owned(), values(systems)),
    ]);
    for (key, value) in offerings.iter().flat_map(Offering::all_labels) {
        requirements.entry(key.to_owned()).or_default().insert(value.to_owned());
    }
    InstanceType {
        name: InstanceTypeName::from(name),
        requirements,
        offerings,
        capacity,
        overhead,
        volume_attachment_limits: BTreeMap::new(),
        dynamic_resources: Default::default(),
    }
}

/// Those that are not 0.
fn amounts(cpu_milli: i64, memory_bytes: i64, pods: i64) -> ResourceList {
    let whole = |amount, format| Quantity::from_i64(amount, format).expect("the magnitude is at most 2^63-1");
    let all = [
        (resources::CPU, Quantity::from_milli(cpu_milli, Format::DecimalSi)),
        (resources::MEMORY, whole(memory_bytes, Format::BinarySi)),
        (resources::PODS, whole(pods, Format::DecimalSi)),
    ];
    all.into_iter().filter(|(_, amount)| !amount.is_zero()).map(|(name, amount)| (name.to_owned(), amount)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogues_have_400_and_800_types_of_different_names() {
        for (types, count) in [(linear(), 400), (real_shaped(), 800)] {
            let names: BTreeSet<_> = types.iter().map(|instance_type| instance_type.name.as_str()).collect();
            assert_eq!(names.len(), count);
        }
    }

    #[test]
    fn types_of_ec2_are_sold_in_three_ways_and_some_have_devices() {
        let types = ec2();
        assert!(types.len() > 1300, "{}", types.len());
        let zones: BTreeSet<_> = types.iter().flat_map(|it| &it.offerings).map(|it| it.zone.as_str()).collect();
        assert_eq!(zones.len(), 6);
        let reserved = |it: &Offering| it.capacity_type == CapacityType::Reserved && it.reservation.is_some();
        assert!(types.iter().all(|it| !it.offerings.is_empty()));
        assert!(types.iter().filter(|it| it.offerings.iter().any(reserved)).count() > 1300);
        assert!(types.iter().filter(|it| !it.dynamic_resources.is_empty()).count() > 50);
    }
}
