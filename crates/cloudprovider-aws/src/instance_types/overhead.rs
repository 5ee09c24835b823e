//! What pods cannot use of a machine: what kubelet, system and eviction keep.

use api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};
use cloudprovider::{Overhead, ResourceList};
use model::Quantity;
use model::quantity::Format;

use super::capacity::{self, mebibytes, quantity, told};
use super::info::InstanceTypeInfo;
use super::settings::{MachineOptions, NodeSettings, Threshold, traits_of};

/// What the kubelet and the runtime are taken to need, in MiB: this, and so much for each pod.
const KUBE_RESERVED_MIB: u64 = 255;
const KUBE_RESERVED_MIB_PER_POD: u64 = 11;
const KUBE_RESERVED_STORAGE_GIB: i64 = 1;
/// What must stay free unless the node class says otherwise.
const EVICTION_MEMORY_MIB: u64 = 100;
const EVICTION_STORAGE: Threshold = Threshold::NanoPercent(10 * NANO);
const NANO: u64 = 1_000_000_000;
/// Of each processor's thousandths from here on, the kubelet keeps so many in 10,000.
const CPU_SHARES: [(u64, u64); 4] = [(0, 600), (1000, 100), (2000, 50), (4000, 25)];

pub(super) fn overhead(info: &InstanceTypeInfo, settings: &NodeSettings, options: &MachineOptions) -> Overhead {
    let memory = mebibytes(capacity::memory_mib(info, options));
    let storage = capacity::ephemeral_storage(info, settings);
    let (kubelet, told) = (&settings.kubelet, told(info, capacity::pods(info, settings, options)));
    let mut kube_reserved = kube_reserved(info, settings, told.max_pods);
    kube_reserved.extend(kubelet.kube_reserved.clone());
    kube_reserved.extend(kubelet.computed.kube_reserved(&told));
    let mut system_reserved = kubelet.system_reserved.clone();
    system_reserved.extend(kubelet.computed.system_reserved(&told));
    Overhead {
        kube_reserved,
        system_reserved,
        eviction_threshold: ResourceList::from([
            (
                MEMORY.to_owned(),
                settings.kubelet.eviction_memory.map_or_else(|| mebibytes(EVICTION_MEMORY_MIB), |it| it.of(memory)),
            ),
            (EPHEMERAL_STORAGE.to_owned(), settings.kubelet.eviction_storage.unwrap_or(EVICTION_STORAGE).of(storage)),
        ]),
    }
}

/// What is kept where the node class does not say. The most pods that count for memory are those that have addresses,
/// not those that the node class allows, except where the image itself goes by the latter.
fn kube_reserved(info: &InstanceTypeInfo, settings: &NodeSettings, max_pods: u64) -> ResourceList {
    let pods = if traits_of(settings.ami_family).memory_by_addresses {
        capacity::address_limited_pods(info, settings, 0)
    } else {
        max_pods
    };
    let memory_mib = pods.saturating_mul(KUBE_RESERVED_MIB_PER_POD).saturating_add(KUBE_RESERVED_MIB);
    let milli = i64::try_from(reserved_milli_cpu(info.v_cpu_info.default_vcpus)).unwrap_or(i64::MAX);
    ResourceList::from([
        (CPU.to_owned(), Quantity::from_milli(milli, Format::DecimalSi)),
        (MEMORY.to_owned(), mebibytes(memory_mib)),
        (EPHEMERAL_STORAGE.to_owned(), quantity(KUBE_RESERVED_STORAGE_GIB << 30, Format::BinarySi)),
    ])
}

/// In thousandths of a processor. Each part is rounded down for itself.
fn reserved_milli_cpu(vcpus: u32) -> u64 {
    let milli = u64::from(vcpus) * 1000;
    let ends = CPU_SHARES.iter().skip(1).map(|(start, _)| *start).chain([u64::MAX]);
    CPU_SHARES
        .iter()
        .zip(ends)
        .map(|((start, share), end)| milli.min(end).saturating_sub(*start) * share / 10_000)
        .sum()
}

impl Threshold {
    /// How much of `whole` must stay free, rounded up to a whole unit. All of it stands for nothing, as for the
    /// kubelet.
    pub(super) fn of(self, whole: Quantity) -> Quantity {
        match self {
            Self::Amount(amount) => amount,
            Self::NanoPercent(share) if share == 100 * NANO => Quantity::ZERO,
            Self::NanoPercent(share) => {
                let units = u128::try_from(whole.value().unwrap_or(0).max(0)).unwrap_or(0);
                let kept = (units * u128::from(share)).div_ceil(100 * u128::from(NANO));
                quantity(i64::try_from(kept).unwrap_or(i64::MAX), whole.format())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelet_keeps_less_of_each_further_processor() {
        for (vcpus, milli) in [(1, 60), (2, 70), (4, 80), (8, 90), (96, 310), (128, 390), (192, 550), (896, 2310)] {
            assert_eq!(reserved_milli_cpu(vcpus), milli, "{vcpus}");
        }
    }

    #[test]
    fn a_threshold_is_an_amount_or_a_share_rounded_up_and_all_of_it_is_nothing() {
        let whole = Quantity::parse("1001").unwrap();
        let amount = Quantity::parse("7").unwrap();
        assert_eq!(Threshold::Amount(amount).of(whole), amount);
        assert_eq!(Threshold::NanoPercent(5 * NANO).of(whole), Quantity::parse("51").unwrap());
        assert_eq!(Threshold::NanoPercent(NANO / 2).of(whole), Quantity::parse("6").unwrap());
        assert_eq!(Threshold::NanoPercent(0).of(whole), Quantity::ZERO);
        assert_eq!(Threshold::NanoPercent(100 * NANO).of(whole), Quantity::ZERO);
    }
}
