//! What a machine has: processors, memory, disk, pods, and devices as extended resources.

use api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS};
use cloudprovider::ResourceList;
use model::Quantity;
use model::quantity::Format;

use super::info::{Gpu, InstanceTypeInfo};
use super::settings::{MachineOptions, NodeSettings, count, traits_of};
use crate::labels::resources;
use crate::node_class::AmiFamily;
use crate::node_class::kubelet::expressions::Told;

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
const NANO: u128 = 1_000_000_000;
/// What Linux keeps of memory on Graviton for itself, in MiB.
const GRAVITON_RESERVED_MIB: u64 = 64;
/// What the kubelet allows where nothing limits the pods.
const DEFAULT_MAX_PODS: u64 = 110;

/// All that a machine has. Resources of which it has none are left out.
pub(super) fn capacity(info: &InstanceTypeInfo, settings: &NodeSettings, options: &MachineOptions) -> ResourceList {
    let mut capacity = ResourceList::from([
        (CPU.to_owned(), whole(info.v_cpu_info.default_vcpus)),
        (MEMORY.to_owned(), mebibytes(memory_mib(info, options))),
        (EPHEMERAL_STORAGE.to_owned(), ephemeral_storage(info, settings)),
        (PODS.to_owned(), whole(pods(info, settings, options))),
    ]);
    let extended = [
        (resources::NVIDIA_GPU, gpus(info, "NVIDIA")),
        (resources::AMD_GPU, gpus(info, "AMD")),
        (resources::HABANA_GAUDI, gpus(info, "Habana")),
        (resources::AWS_NEURON, neuron_devices(info)),
        (resources::AWS_NEURON_CORE, neuron_cores(info)),
        (resources::EFA, efas(info, settings)),
        (resources::POD_ENI, info.branch_interfaces.unwrap_or(0)),
        (resources::PRIVATE_IPV4_ADDRESS, windows_addresses(info, settings.ami_family)),
    ];
    for (resource, amount) in extended {
        if amount > 0 {
            capacity.insert(resource.to_owned(), whole(amount));
        }
    }
    capacity
}

/// What of the memory is left when the hypervisor has had its share, in MiB. Its share is rounded up.
pub(super) fn memory_mib(info: &InstanceTypeInfo, options: &MachineOptions) -> u64 {
    let first_is_arm = info.processor_info.supported_architectures.first().is_some_and(|name| name == "arm64");
    let reserved = if first_is_arm { GRAVITON_RESERVED_MIB } else { 0 };
    let mib = info.memory_info.size_in_mib.saturating_sub(reserved);
    let overhead = (u128::from(mib) * u128::from(options.vm_memory_overhead_nano)).div_ceil(NANO);
    mib.saturating_sub(u64::try_from(overhead).unwrap_or(u64::MAX))
}

/// The most pods.
pub(super) fn pods(info: &InstanceTypeInfo, settings: &NodeSettings, options: &MachineOptions) -> u64 {
    let traits = traits_of(settings.ami_family);
    let kubelet = &settings.kubelet;
    let unsaid = || family_pods(info, settings, options);
    let most = match kubelet.max_pods {
        Some(most) => u64::from(most),
        None => kubelet.computed.max_pods(&told(info, unsaid())).unwrap_or_else(unsaid),
    };
    let per_core = u64::from(settings.kubelet.pods_per_core);
    if per_core > 0 && traits.has_pods_per_core {
        most.min(per_core * u64::from(info.v_cpu_info.default_vcpus))
    } else {
        most
    }
}

/// The most pods where the node class does not say.
pub(super) fn family_pods(info: &InstanceTypeInfo, settings: &NodeSettings, options: &MachineOptions) -> u64 {
    if traits_of(settings.ami_family).pods_by_addresses {
        address_limited_pods(info, settings, options.reserved_enis)
    } else {
        DEFAULT_MAX_PODS
    }
}

/// What expressions are told of a type.
pub(super) fn told(info: &InstanceTypeInfo, max_pods: u64) -> Told<'_> {
    let card = info.network_card(info.network_info.default_network_card_index);
    Told {
        instance_type: &info.instance_type,
        vcpus: u64::from(info.v_cpu_info.default_vcpus),
        memory_mib: info.memory_info.size_in_mib,
        default_enis: card.map_or(0, |card| u64::from(card.maximum_network_interfaces)),
        ips_per_eni: u64::from(info.network_info.ipv4_addresses_per_interface),
        max_pods,
    }
}

/// The pods that get an address each: of every interface of the first card all addresses but the interface's own, and
/// two pods that use the host's.
pub(super) fn address_limited_pods(info: &InstanceTypeInfo, settings: &NodeSettings, reserved_enis: u32) -> u64 {
    let card = info.network_card(info.network_info.default_network_card_index);
    let interfaces = card.map_or(0, |card| card.maximum_network_interfaces);
    let usable = interfaces.saturating_sub(reserved_enis).saturating_sub(settings.efa_only_on_first_card());
    if usable == 0 {
        return 0;
    }
    u64::from(usable) * u64::from(info.network_info.ipv4_addresses_per_interface.saturating_sub(1)) + 2
}

/// The disk that pods and images are on.
pub(super) fn ephemeral_storage(info: &InstanceTypeInfo, settings: &NodeSettings) -> Quantity {
    let brought_along = info.instance_storage_info.as_ref().and_then(|storage| storage.total_size_gb);
    if let (Some(_), Some(gigabytes)) = (settings.instance_store_policy, brought_along) {
        let bytes = i64::try_from(gigabytes).unwrap_or(i64::MAX).saturating_mul(1_000_000_000);
        return quantity(bytes, Format::DecimalSi);
    }
    let traits = traits_of(settings.ami_family);
    let devices = &settings.block_devices;
    let root = devices.iter().find(|device| device.is_root_volume);
    let by_family = match traits.storage_device {
        Some(name) => devices.iter().find(|device| device.name == name),
        None => devices.last(),
    };
    root.and_then(|device| device.size)
        .or_else(|| by_family.and_then(|device| device.size))
        .unwrap_or_else(|| quantity(traits.storage_gib * GIB, Format::BinarySi))
}

fn gpus(info: &InstanceTypeInfo, manufacturer: &str) -> u32 {
    let all = info.gpu_info.iter().flat_map(|gpus| &gpus.gpus);
    all.filter(|gpu: &&Gpu| gpu.manufacturer == manufacturer).map(|gpu| gpu.count).fold(0, u32::saturating_add)
}

fn neuron_devices(info: &InstanceTypeInfo) -> u32 {
    let all = info.neuron_info.iter().flat_map(|neuron| &neuron.neuron_devices);
    all.map(|device| device.count).fold(0, u32::saturating_add)
}

/// Only the first kind of devices counts; no type has two.
fn neuron_cores(info: &InstanceTypeInfo) -> u32 {
    let first = info.neuron_info.as_ref().and_then(|neuron| neuron.neuron_devices.first());
    first.map_or(0, |device| device.count.saturating_mul(device.core_info.count))
}

/// The Elastic Fabric Adapters of a machine: those that the node class lists, else all that the type can have.
pub fn efas(info: &InstanceTypeInfo, settings: &NodeSettings) -> u32 {
    if settings.network_interfaces.is_empty() { info.efa_interfaces() } else { count(settings.efa_only()) }
}

/// What the VPC resource controller hands out on Windows: the addresses of one interface but its own.
fn windows_addresses(info: &InstanceTypeInfo, family: AmiFamily) -> u32 {
    if family.is_windows() && info.architecture() == Some(api::labels::ARCH_AMD64) {
        info.network_info.ipv4_addresses_per_interface.saturating_sub(1)
    } else {
        0
    }
}

pub(super) fn whole(amount: impl Into<u64>) -> Quantity {
    quantity(i64::try_from(amount.into()).unwrap_or(i64::MAX), Format::DecimalSi)
}

pub(super) fn mebibytes(amount: u64) -> Quantity {
    quantity(i64::try_from(amount).unwrap_or(i64::MAX).saturating_mul(MIB), Format::BinarySi)
}

/// No magnitude of an `i64` but that of its least value is out of a quantity's range, and nothing here is negative.
pub(super) fn quantity(units: i64, format: Format) -> Quantity {
    Quantity::from_i64(units, format).unwrap_or(Quantity::ZERO)
}
