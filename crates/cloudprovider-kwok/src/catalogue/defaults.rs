//! Karpenter's default kwok machines: twelve CPU counts, three ratios of memory, two systems, two architectures.

use std::collections::BTreeMap;

use api::{labels, resources};
use cloudprovider::{CapacityType, InstanceType, Offering};
use model::PriceNanoUsdPerHour;

use super::{Description, binary, whole};

/// The zones that the default machines are sold in.
pub const DEFAULT_ZONES: [&str; 4] = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];

const CPUS: [i64; 12] = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256];
/// GiB of memory for each CPU, and the letter that stands for it.
const MEMORY_FACTORS: [(i64, &str); 3] = [(2, "c"), (4, "s"), (8, "m")];
const GIB: i64 = 1 << 30;
const PICO_PER_NANO: i64 = 1000;
/// $0.025 an hour.
const PICO_USD_PER_CPU: i64 = 25_000_000_000;
/// $0.001 an hour for 10⁹ bytes.
const PICO_USD_PER_BYTE: i64 = 1;

/// The default machines, ordered by name. There are 144.
pub fn default_instance_types() -> Vec<InstanceType> {
    let mut types = Vec::new();
    for cpu in CPUS {
        for (factor, family) in MEMORY_FACTORS {
            for os in [labels::OS_LINUX, labels::OS_WINDOWS] {
                for arch in [labels::ARCH_AMD64, labels::ARCH_ARM64] {
                    let name = format!("{family}-{cpu}x-{arch}-{os}");
                    types.push(describe(name, arch, os, cpu, cpu * factor * GIB).into_instance_type());
                }
            }
        }
    }
    types.sort_by(|a, b| a.name.cmp(&b.name));
    types
}

fn describe(name: String, arch: &str, os: &str, cpu: i64, memory: i64) -> Description {
    let price_pico = cpu * PICO_USD_PER_CPU + memory * PICO_USD_PER_BYTE;
    let offerings = DEFAULT_ZONES
        .into_iter()
        .flat_map(|zone| {
            [(CapacityType::Spot, rounded(price_pico * 7, 10)), (CapacityType::OnDemand, rounded(price_pico, 1))]
                .map(|(capacity_type, price)| Offering::new(zone, capacity_type, price))
        })
        .collect();
    Description {
        name,
        architectures: [arch.to_owned()].into(),
        operating_systems: [os.to_owned()].into(),
        resources: [
            (resources::CPU.to_owned(), whole(cpu)),
            (resources::MEMORY.to_owned(), binary(memory)),
            (resources::PODS.to_owned(), whole((cpu * 16).min(1024))),
            (resources::EPHEMERAL_STORAGE.to_owned(), binary(20 * GIB)),
        ]
        .into(),
        offerings,
        volume_attachment_limits: BTreeMap::new(),
        dynamic_resources: Default::default(),
    }
}

/// `pico / divisor` pico-dollars to the nearest nano-dollar.
fn rounded(pico: i64, divisor: i64) -> PriceNanoUsdPerHour {
    let divisor = divisor * PICO_PER_NANO;
    PriceNanoUsdPerHour((pico + divisor / 2) / divisor)
}
