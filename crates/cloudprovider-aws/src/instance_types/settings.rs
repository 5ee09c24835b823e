//! What of a node class changes what a machine is, once decoded.
//!
//! The kubelet's settings and disks come from `pkg/providers/instancetype/types.go` of karpenter-provider-aws 1.15.

use cloudprovider::ResourceList;
use model::Quantity;

use super::drivers::DriverSettings;
use crate::node_class::kubelet::expressions::Computed;
use crate::node_class::kubelet::{Expressions, Kubelet};
use crate::node_class::spec::{InstanceStorePolicy, InterfaceType, NetworkInterface, Switch};
use crate::node_class::{AmiFamily, NodeClass};

/// What of a node class changes what a machine is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSettings {
    /// Which images are booted.
    pub ami_family: AmiFamily,
    /// The disks of EBS; those of the AMI family where empty.
    pub block_devices: Vec<BlockDevice>,
    /// What becomes of the disks that the type brings along.
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// The network interfaces; empty where the node class leaves them to the launch.
    pub network_interfaces: Vec<NetworkInterface>,
    /// Settings of the kubelet.
    pub kubelet: KubeletSettings,
    /// What else a type must be able to do.
    pub demands: Demands,
    /// How the machines' DRA drivers are set up.
    pub drivers: DriverSettings,
}

impl NodeSettings {
    /// Those of a node class that says nothing but the family of its images.
    pub fn of_family(ami_family: AmiFamily) -> Self {
        Self {
            ami_family,
            block_devices: Vec::new(),
            instance_store_policy: None,
            network_interfaces: Vec::new(),
            kubelet: KubeletSettings::default(),
            demands: Demands::default(),
            drivers: DriverSettings::default(),
        }
    }

    /// Those of a node class whose kubelet's settings have been checked. Fails if an annotation cannot be used.
    /// `placement_strategy` is that of the placement group which it selects, if any.
    pub fn of_node_class(
        class: &NodeClass,
        kubelet: &Kubelet,
        placement_strategy: Option<String>,
    ) -> Result<Self, String> {
        let spec = &class.spec;
        let disk = |disk: &crate::node_class::decode::Disk| BlockDevice {
            name: disk.device_name.clone().unwrap_or_default(),
            size: disk.volume.as_ref().and_then(|volume| volume.size),
            is_root_volume: disk.is_root,
        };
        let threshold = |signal: &str| kubelet.eviction_hard.get(signal).and_then(|value| Threshold::parse(value));
        Ok(Self {
            ami_family: spec.ami_family,
            block_devices: spec.disks.iter().map(disk).collect(),
            instance_store_policy: spec.instance_store_policy,
            network_interfaces: spec.network_interfaces.clone(),
            kubelet: KubeletSettings {
                max_pods: kubelet.max_pods,
                pods_per_core: kubelet.pods_per_core.unwrap_or(0),
                kube_reserved: kubelet.kube_reserved.clone(),
                system_reserved: kubelet.system_reserved.clone(),
                computed: kubelet.computed.clone(),
                eviction_memory: threshold("memory.available"),
                eviction_storage: threshold("nodefs.available"),
            },
            demands: Demands {
                nested_virtualization: spec.nested_virtualization == Some(Switch::Enabled),
                enclaves: spec.enclaves,
                connection_tracking: spec.connection_tracking.is_some(),
                placement_strategy,
            },
            drivers: DriverSettings::of_annotations(&class.annotations)?,
        })
    }

    /// How many interfaces of card 0 carry no addresses.
    pub(super) fn efa_only_on_first_card(&self) -> u32 {
        count(self.efa_only().filter(|interface| interface.network_card_index == 0))
    }

    /// The interfaces that carry no addresses.
    pub(super) fn efa_only(&self) -> impl Iterator<Item = &NetworkInterface> {
        self.network_interfaces.iter().filter(|interface| interface.interface_type == InterfaceType::EfaOnly)
    }
}

/// A count that fits, since a node class lists at most 150 interfaces.
pub(super) fn count<T>(items: impl Iterator<Item = T>) -> u32 {
    items.fold(0, |so_far, _| so_far + 1)
}

/// A disk of EBS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDevice {
    /// Its name, such as `/dev/xvda`.
    pub name: String,
    /// Its size; that of its snapshot where absent.
    pub size: Option<Quantity>,
    /// Whether the kubelet's files are on it.
    pub is_root_volume: bool,
}

/// Settings of the kubelet that change what pods can use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubeletSettings {
    /// Most pods.
    pub max_pods: Option<u32>,
    /// Most pods for each processor; no limit where 0.
    pub pods_per_core: u32,
    /// For the kubelet and the container runtime, where it is not what the provider computes.
    pub kube_reserved: ResourceList,
    /// For the system's daemons.
    pub system_reserved: ResourceList,
    /// What of these is computed for each type.
    pub computed: Computed,
    /// Memory that must stay free.
    pub eviction_memory: Option<Threshold>,
    /// Disk that must stay free.
    pub eviction_storage: Option<Threshold>,
}

/// How much must stay free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threshold {
    /// This much.
    Amount(Quantity),
    /// A share of the whole, in nano-percent: 10⁹ for each percent.
    NanoPercent(u64),
}

impl Threshold {
    /// Reads an amount or a percentage; `None` where it is neither. Finer parts than a nano-percent are cut off.
    fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            None => Quantity::parse(text).ok().map(Self::Amount),
            Some(percent) => {
                let nano = Quantity::parse(percent).ok()?.to_nano();
                u64::try_from(nano).ok().map(Self::NanoPercent)
            }
        }
    }
}

/// What a type must be able to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demands {
    /// Start virtual machines of its own.
    pub nested_virtualization: bool,
    /// Start Nitro enclaves.
    pub enclaves: bool,
    /// Let connection tracking be set, which only Nitro does.
    pub connection_tracking: bool,
    /// Be in a placement group of this strategy: `cluster`, `partition` or `spread`.
    pub placement_strategy: Option<String>,
}

/// What the controller's own options change of machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineOptions {
    /// The share of memory that the hypervisor is taken to keep, in parts of 10⁹.
    pub vm_memory_overhead_nano: u64,
    /// Network interfaces of each machine that are not for pods.
    pub reserved_enis: u32,
    /// Whether settings of the kubelet may be expressions.
    pub expressions: Expressions,
}

impl Default for MachineOptions {
    /// 7.5 % of memory, no interface, no expressions.
    fn default() -> Self {
        Self { vm_memory_overhead_nano: 75_000_000, reserved_enis: 0, expressions: Expressions::Disabled }
    }
}

/// How an AMI family's machines differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FamilyTraits {
    /// The kubelet's memory is reckoned from the addresses of the interfaces, whatever the most pods are.
    pub(super) memory_by_addresses: bool,
    /// The most pods follow from the addresses of the interfaces.
    pub(super) pods_by_addresses: bool,
    /// The kubelet is told of the most pods for each processor.
    pub(super) has_pods_per_core: bool,
    /// The disk that holds pods; not known of custom images.
    pub(super) storage_device: Option<&'static str>,
    /// Its size in GiB where the node class does not say.
    pub(super) storage_gib: i64,
}

/// See `FeatureFlags` and `EphemeralBlockDevice` in `pkg/providers/amifamily`.
pub(super) const fn traits_of(family: AmiFamily) -> FamilyTraits {
    let amazon_linux = FamilyTraits {
        memory_by_addresses: true,
        pods_by_addresses: true,
        has_pods_per_core: true,
        storage_device: Some("/dev/xvda"),
        storage_gib: 20,
    };
    match family {
        AmiFamily::Al2 | AmiFamily::Al2023 => amazon_linux,
        AmiFamily::Custom => FamilyTraits { storage_device: None, ..amazon_linux },
        AmiFamily::Bottlerocket => FamilyTraits {
            memory_by_addresses: false,
            has_pods_per_core: false,
            storage_device: Some("/dev/xvdb"),
            ..amazon_linux
        },
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => FamilyTraits {
            memory_by_addresses: false,
            pods_by_addresses: false,
            has_pods_per_core: true,
            storage_device: Some("/dev/sda1"),
            storage_gib: 50,
        },
    }
}
