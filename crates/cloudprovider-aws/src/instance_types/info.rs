//! What EC2 says of an instance type: the part of a DescribeInstanceTypes record that decides anything here.
//!
//! The names are those of the API, so that the JSON of `aws ec2 describe-instance-types` reads as it is. Fields that we
//! do not know are ignored, and so are values: EC2 adds both at any time.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One record, and two figures that the API does not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct InstanceTypeInfo {
    /// The type's name, such as `m5.large`.
    pub instance_type: String,
    /// Whether there is no hypervisor.
    #[serde(default)]
    pub bare_metal: bool,
    /// `nitro` or `xen`; absent on bare metal.
    #[serde(default)]
    pub hypervisor: Option<String>,
    /// `on-demand`, `spot`, `capacity-block`.
    #[serde(default)]
    pub supported_usage_classes: BTreeSet<String>,
    /// Processors as the machine sees them.
    pub v_cpu_info: VCpuInfo,
    /// Memory.
    pub memory_info: MemoryInfo,
    /// The processor itself.
    #[serde(default)]
    pub processor_info: ProcessorInfo,
    /// Disks that the machine brings along.
    #[serde(default)]
    pub instance_storage_info: Option<InstanceStorageInfo>,
    /// The way to EBS volumes.
    #[serde(default)]
    pub ebs_info: EbsInfo,
    /// Network cards.
    pub network_info: NetworkInfo,
    /// GPUs.
    #[serde(default)]
    pub gpu_info: Option<GpuInfo>,
    /// Inferentia and Trainium.
    #[serde(default)]
    pub neuron_info: Option<NeuronInfo>,
    /// Accelerators for inference. EC2 lists Inferentia here too.
    #[serde(default)]
    pub inference_accelerator_info: Option<InferenceAcceleratorInfo>,
    /// Placement groups that the machine can be in.
    #[serde(default)]
    pub placement_group_info: PlacementGroupInfo,
    /// `supported` or `unsupported`.
    #[serde(default)]
    pub nitro_enclaves_support: Option<String>,
    /// Branch interfaces that the machine can carry, if it can be a trunk. EC2's API does not tell: the
    /// [catalogue](crate::catalogue) fills it in.
    #[serde(skip)]
    pub branch_interfaces: Option<u32>,
    /// Steady bandwidth of the network as EC2's documentation has it. The API does not tell it: the
    /// [catalogue](crate::catalogue) fills it in.
    #[serde(skip)]
    pub network_bandwidth_mbps: Option<u64>,
}

/// Processors as the machine sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VCpuInfo {
    /// How many, unless the launch asks for fewer.
    #[serde(rename = "DefaultVCpus")]
    pub default_vcpus: u32,
}

/// An amount of memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryInfo {
    /// In MiB.
    #[serde(rename = "SizeInMiB")]
    pub size_in_mib: u64,
}

/// The processor itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ProcessorInfo {
    /// Who makes it.
    #[serde(default)]
    pub manufacturer: String,
    /// In EC2's order: `x86_64`, `arm64`, `i386`, ….
    #[serde(default)]
    pub supported_architectures: Vec<String>,
    /// Such as `nested-virtualization`.
    #[serde(default)]
    pub supported_features: BTreeSet<String>,
    /// The steady clock in MHz; EC2 tells GHz with a fraction.
    #[serde(default, rename = "SustainedClockSpeedInGhz", with = "thousandths")]
    pub sustained_clock_speed_mhz: u64,
}

/// Disks that the machine brings along.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceStorageInfo {
    /// Size of all of them, in 10⁹ bytes.
    #[serde(default, rename = "TotalSizeInGB")]
    pub total_size_gb: Option<u64>,
    /// `required`, `supported` or `unsupported`.
    #[serde(default, rename = "NvmeSupport")]
    pub nvme_support: Option<String>,
}

/// The way to EBS volumes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct EbsInfo {
    /// `default`, `supported` or `unsupported`: whether volumes have bandwidth of their own.
    #[serde(default)]
    pub ebs_optimized_support: Option<String>,
    /// That bandwidth.
    #[serde(default)]
    pub ebs_optimized_info: Option<EbsOptimizedInfo>,
}

/// Bandwidth to EBS volumes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EbsOptimizedInfo {
    /// At most, in Mbit/s.
    #[serde(rename = "MaximumBandwidthInMbps")]
    pub maximum_bandwidth_mbps: u64,
}

/// Network cards.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NetworkInfo {
    /// The card of the first interface. Pods get their addresses from its interfaces only.
    #[serde(default)]
    pub default_network_card_index: u32,
    /// IPv4 addresses of one interface, its own among them.
    pub ipv4_addresses_per_interface: u32,
    /// The cards.
    pub network_cards: Vec<NetworkCard>,
    /// Elastic Fabric Adapters, where the type has them.
    #[serde(default)]
    pub efa_info: Option<EfaInfo>,
    /// `required`, `supported` or `unsupported`: Elastic Network Adapters.
    #[serde(default)]
    pub ena_support: Option<String>,
    /// Whether traffic between machines is encrypted.
    #[serde(default)]
    pub encryption_in_transit_supported: bool,
}

/// A network card.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NetworkCard {
    /// Its index.
    pub network_card_index: u32,
    /// How many interfaces it carries.
    pub maximum_network_interfaces: u32,
    /// `interface`, `efa`, `efa-only`; empty where EC2 does not tell.
    #[serde(default)]
    pub interface_types: BTreeSet<String>,
    /// Steady bandwidth in Mbit/s; EC2 tells Gbit/s with a fraction.
    #[serde(default, rename = "BaselineBandwidthInGbps", with = "thousandths")]
    pub baseline_bandwidth_mbps: u64,
}

/// Elastic Fabric Adapters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct EfaInfo {
    /// How many a machine can have.
    pub maximum_efa_interfaces: u32,
}

/// GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct GpuInfo {
    /// By kind.
    #[serde(default)]
    pub gpus: Vec<Gpu>,
}

/// GPUs of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Gpu {
    /// Who makes them.
    pub manufacturer: String,
    /// Their name in EC2, such as `H100`.
    pub name: String,
    /// How many whole ones: 0 where the machine has a part of one.
    #[serde(default)]
    pub count: u32,
    /// How many the machine sees, parts of one among them.
    #[serde(default)]
    pub logical_gpu_count: Option<u32>,
    /// Memory of one.
    pub memory_info: MemoryInfo,
}

/// Inferentia and Trainium.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NeuronInfo {
    /// By kind.
    #[serde(default)]
    pub neuron_devices: Vec<NeuronDevice>,
}

/// Neuron devices of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NeuronDevice {
    /// Their name in EC2, such as `Trainium`.
    pub name: String,
    /// How many.
    pub count: u32,
    /// Cores of one.
    #[serde(default)]
    pub core_info: NeuronCoreInfo,
}

/// Cores of a Neuron device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NeuronCoreInfo {
    /// How many.
    pub count: u32,
}

/// Accelerators for inference.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct InferenceAcceleratorInfo {
    /// By kind.
    #[serde(default)]
    pub accelerators: Vec<InferenceAccelerator>,
}

/// Accelerators for inference, of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct InferenceAccelerator {
    /// Who makes them.
    pub manufacturer: String,
    /// Their name in EC2.
    pub name: String,
    /// How many.
    pub count: u32,
}

/// Placement groups that a machine can be in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct PlacementGroupInfo {
    /// `cluster`, `partition`, `spread`.
    #[serde(default)]
    pub supported_strategies: BTreeSet<String>,
}

impl InstanceTypeInfo {
    /// What Kubernetes calls the architecture; `None` for machines that it does not run on, such as Macs.
    pub fn architecture(&self) -> Option<&'static str> {
        self.processor_info.supported_architectures.iter().find_map(|name| match name.as_str() {
            "x86_64" => Some(api::labels::ARCH_AMD64),
            "arm64" => Some(api::labels::ARCH_ARM64),
            _ => None,
        })
    }

    /// Family and size: what stands before and after the only dot of the name.
    pub fn family_and_size(&self) -> Option<(&str, &str)> {
        self.instance_type.split_once('.').filter(|(_, size)| !size.contains('.'))
    }

    /// How many Elastic Fabric Adapters a machine can have.
    pub fn efa_interfaces(&self) -> u32 {
        self.network_info.efa_info.as_ref().map_or(0, |efa| efa.maximum_efa_interfaces)
    }

    /// What the record does not say though nothing can be planned without it; none if it is whole.
    pub fn missing(&self) -> Option<&'static str> {
        let network = &self.network_info;
        let checks = [
            (self.family_and_size().is_none(), "family and size in its name"),
            (self.v_cpu_info.default_vcpus == 0, "processors"),
            (self.memory_info.size_in_mib == 0, "memory"),
            (network.network_cards.is_empty(), "network cards"),
            (network.ipv4_addresses_per_interface == 0, "addresses of a network interface"),
        ];
        checks.into_iter().find(|(is_missing, _)| *is_missing).map(|(_, what)| what)
    }

    /// The network card of that index.
    pub fn network_card(&self, index: u32) -> Option<&NetworkCard> {
        self.network_info.network_cards.iter().find(|card| card.network_card_index == index)
    }
}

/// Numbers with a fraction, in thousandths, rounded to the nearest. EC2 gives no more than three places.
mod thousandths {
    use super::{Deserialize as _, Deserializer, Serializer, in_thousandths};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let number = Option::<f64>::deserialize(deserializer)?.unwrap_or(0.0);
        in_thousandths(number).ok_or_else(|| serde::de::Error::custom(format_args!("{number} is out of range")))
    }

    pub(super) fn serialize<S: Serializer>(thousandths: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(*thousandths as f64 / 1000.0)
    }
}

/// A number with a fraction, in thousandths, rounded to the nearest; none of one that is negative or too large.
pub fn in_thousandths(number: f64) -> Option<u64> {
    let thousandths = (number * 1000.0).round();
    (0.0..=9e15).contains(&thousandths).then_some(thousandths as u64)
}
