//! What EC2 says of an instance type, in our type. What it does not say is empty or 0, and whoever reads it decides
//! whether the rest is worth anything; values that the SDK does not know are taken as they are.

use std::collections::BTreeSet;

use aws_sdk_ec2::types;
use cloudprovider_aws::instance_types::info::{
    EbsInfo, EbsOptimizedInfo, EfaInfo, Gpu, GpuInfo, InferenceAccelerator, InferenceAcceleratorInfo,
    InstanceStorageInfo, InstanceTypeInfo, MemoryInfo, NetworkCard, NetworkInfo, NeuronCoreInfo, NeuronDevice,
    NeuronInfo, PlacementGroupInfo, ProcessorInfo, VCpuInfo, in_thousandths,
};

use super::answers::{count, text};

pub(super) fn info(info: &types::InstanceTypeInfo) -> Option<InstanceTypeInfo> {
    let memory = info.memory_info().and_then(|it| it.size_in_mib());
    Some(InstanceTypeInfo {
        instance_type: info.instance_type()?.as_str().to_owned(),
        bare_metal: info.bare_metal().unwrap_or(false),
        hypervisor: info.hypervisor().map(|it| it.as_str().to_owned()),
        supported_usage_classes: set(info.supported_usage_classes(), |it| it.as_str()),
        v_cpu_info: VCpuInfo { default_vcpus: count(info.v_cpu_info().and_then(|it| it.default_v_cpus())) },
        memory_info: MemoryInfo { size_in_mib: amount(memory).unwrap_or(0) },
        processor_info: info.processor_info().map(processor).unwrap_or_default(),
        instance_storage_info: info.instance_storage_info().map(|it| InstanceStorageInfo {
            total_size_gb: amount(it.total_size_in_gb()),
            nvme_support: it.nvme_support().map(|it| it.as_str().to_owned()),
        }),
        ebs_info: info.ebs_info().map(ebs).unwrap_or_default(),
        network_info: info.network_info().map(network).unwrap_or_default(),
        gpu_info: info.gpu_info().map(|it| GpuInfo { gpus: it.gpus().iter().map(gpu).collect() }),
        neuron_info: info
            .neuron_info()
            .map(|it| NeuronInfo { neuron_devices: it.neuron_devices().iter().map(neuron).collect() }),
        inference_accelerator_info: info
            .inference_accelerator_info()
            .map(|it| InferenceAcceleratorInfo { accelerators: it.accelerators().iter().map(inference).collect() }),
        placement_group_info: PlacementGroupInfo {
            supported_strategies: info
                .placement_group_info()
                .map(|it| set(it.supported_strategies(), |it| it.as_str()))
                .unwrap_or_default(),
        },
        nitro_enclaves_support: info.nitro_enclaves_support().map(|it| it.as_str().to_owned()),
        branch_interfaces: None,
        network_bandwidth_mbps: None,
    })
}

fn set<T>(values: &[T], name: impl Fn(&T) -> &str) -> BTreeSet<String> {
    values.iter().map(|value| name(value).to_owned()).collect()
}

fn amount(number: Option<i64>) -> Option<u64> {
    number.and_then(|number| u64::try_from(number).ok())
}

fn thousandths(number: Option<f64>) -> u64 {
    number.and_then(in_thousandths).unwrap_or(0)
}

fn processor(info: &types::ProcessorInfo) -> ProcessorInfo {
    ProcessorInfo {
        manufacturer: text(info.manufacturer()),
        supported_architectures: info.supported_architectures().iter().map(|it| it.as_str().to_owned()).collect(),
        supported_features: set(info.supported_features(), |it| it.as_str()),
        sustained_clock_speed_mhz: thousandths(info.sustained_clock_speed_in_ghz()),
    }
}

fn ebs(info: &types::EbsInfo) -> EbsInfo {
    EbsInfo {
        ebs_optimized_support: info.ebs_optimized_support().map(|it| it.as_str().to_owned()),
        ebs_optimized_info: info
            .ebs_optimized_info()
            .map(|it| EbsOptimizedInfo { maximum_bandwidth_mbps: u64::from(count(it.maximum_bandwidth_in_mbps())) }),
    }
}

fn network(info: &types::NetworkInfo) -> NetworkInfo {
    NetworkInfo {
        default_network_card_index: count(info.default_network_card_index()),
        ipv4_addresses_per_interface: count(info.ipv4_addresses_per_interface()),
        network_cards: info.network_cards().iter().map(network_card).collect(),
        efa_info: info.efa_info().map(|it| EfaInfo { maximum_efa_interfaces: count(it.maximum_efa_interfaces()) }),
        ena_support: info.ena_support().map(|it| it.as_str().to_owned()),
        encryption_in_transit_supported: info.encryption_in_transit_supported().unwrap_or(false),
    }
}

fn network_card(info: &types::NetworkCardInfo) -> NetworkCard {
    NetworkCard {
        network_card_index: count(info.network_card_index()),
        maximum_network_interfaces: count(info.maximum_network_interfaces()),
        interface_types: set(info.interface_types(), |it| it.as_str()),
        baseline_bandwidth_mbps: thousandths(info.baseline_bandwidth_in_gbps()),
    }
}

fn gpu(info: &types::GpuDeviceInfo) -> Gpu {
    Gpu {
        manufacturer: text(info.manufacturer()),
        name: text(info.name()),
        count: count(info.count()),
        logical_gpu_count: info.logical_gpu_count().and_then(|it| u32::try_from(it).ok()),
        memory_info: MemoryInfo { size_in_mib: u64::from(count(info.memory_info().and_then(|it| it.size_in_mib()))) },
    }
}

fn neuron(info: &types::NeuronDeviceInfo) -> NeuronDevice {
    NeuronDevice {
        name: text(info.name()),
        count: count(info.count()),
        core_info: NeuronCoreInfo { count: count(info.core_info().and_then(|it| it.count())) },
    }
}

fn inference(info: &types::InferenceDeviceInfo) -> InferenceAccelerator {
    InferenceAccelerator {
        manufacturer: text(info.manufacturer()),
        name: text(info.name()),
        count: count(info.count()),
    }
}
