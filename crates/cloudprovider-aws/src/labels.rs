//! Labels of EC2 machines, and the names of resources that only they have. All labels but the first and the last are in
//! the domain `karpenter.k8s.aws`; `pkg/apis/v1/labels.go` of karpenter-provider-aws 1.15 defines them.

/// The zone's id, which means the same zone in every account.
pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";
/// The letters that a type's name begins with, such as `c` or `inf`.
pub const INSTANCE_CATEGORY: &str = "karpenter.k8s.aws/instance-category";
/// The number after them.
pub const INSTANCE_GENERATION: &str = "karpenter.k8s.aws/instance-generation";
/// What stands before the dot of a type's name.
pub const INSTANCE_FAMILY: &str = "karpenter.k8s.aws/instance-family";
/// What stands after it.
pub const INSTANCE_SIZE: &str = "karpenter.k8s.aws/instance-size";
/// Whether it is a flex type: full speed only most of the time.
pub const INSTANCE_CAPABILITY_FLEX: &str = "karpenter.k8s.aws/instance-capability-flex";
/// Number of virtual processors.
pub const INSTANCE_CPU: &str = "karpenter.k8s.aws/instance-cpu";
/// Who makes the processor.
pub const INSTANCE_CPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-cpu-manufacturer";
/// The processor's steady clock, in MHz.
pub const INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ: &str = "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";
/// Memory in MiB, before anything is taken off.
pub const INSTANCE_MEMORY: &str = "karpenter.k8s.aws/instance-memory";
/// Most Mbit/s to EBS volumes.
pub const INSTANCE_EBS_BANDWIDTH: &str = "karpenter.k8s.aws/instance-ebs-bandwidth";
/// Steady Mbit/s of all network cards.
pub const INSTANCE_NETWORK_BANDWIDTH: &str = "karpenter.k8s.aws/instance-network-bandwidth";
/// GB of NVMe disks that the type brings along.
pub const INSTANCE_LOCAL_NVME: &str = "karpenter.k8s.aws/instance-local-nvme";
/// `nitro`, `xen`, or empty on bare metal.
pub const INSTANCE_HYPERVISOR: &str = "karpenter.k8s.aws/instance-hypervisor";
/// Whether traffic between machines is encrypted.
pub const INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED: &str = "karpenter.k8s.aws/instance-encryption-in-transit-supported";
/// The GPU's name in EC2.
pub const INSTANCE_GPU_NAME: &str = "karpenter.k8s.aws/instance-gpu-name";
/// Who makes the GPU.
pub const INSTANCE_GPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-gpu-manufacturer";
/// Number of GPUs.
pub const INSTANCE_GPU_COUNT: &str = "karpenter.k8s.aws/instance-gpu-count";
/// MiB of memory of one GPU.
pub const INSTANCE_GPU_MEMORY: &str = "karpenter.k8s.aws/instance-gpu-memory";
/// The accelerator's name in EC2; GPUs are none.
pub const INSTANCE_ACCELERATOR_NAME: &str = "karpenter.k8s.aws/instance-accelerator-name";
/// Who makes the accelerator.
pub const INSTANCE_ACCELERATOR_MANUFACTURER: &str = "karpenter.k8s.aws/instance-accelerator-manufacturer";
/// Number of accelerators.
pub const INSTANCE_ACCELERATOR_COUNT: &str = "karpenter.k8s.aws/instance-accelerator-count";
/// Whether the machine shares its host with other accounts.
pub const INSTANCE_TENANCY: &str = "karpenter.k8s.aws/instance-tenancy";
/// The capacity reservation that the machine is in.
pub const CAPACITY_RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";
/// What kind of reservation it is.
pub const CAPACITY_RESERVATION_TYPE: &str = "karpenter.k8s.aws/capacity-reservation-type";
/// Whether its owner may take the machine back.
pub const CAPACITY_RESERVATION_INTERRUPTIBLE: &str = "karpenter.k8s.aws/capacity-reservation-interruptible";
/// The placement group that the machine is in.
pub const PLACEMENT_GROUP_ID: &str = "karpenter.k8s.aws/placement-group-id";
/// Its partition of that group.
pub const PLACEMENT_GROUP_PARTITION: &str = "karpenter.k8s.aws/placement-group-partition";
/// The zone as the EBS driver calls it; the same zone as Kubernetes' own label.
pub const EBS_ZONE: &str = "topology.ebs.csi.aws.com/zone";

/// The labels that a machine of EC2 can have, beside Kubernetes' own and those of Karpenter's core.
pub const WELL_KNOWN: [&str; 28] = [
    ZONE_ID,
    INSTANCE_CATEGORY,
    INSTANCE_GENERATION,
    INSTANCE_FAMILY,
    INSTANCE_SIZE,
    INSTANCE_CAPABILITY_FLEX,
    INSTANCE_CPU,
    INSTANCE_CPU_MANUFACTURER,
    INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ,
    INSTANCE_MEMORY,
    INSTANCE_EBS_BANDWIDTH,
    INSTANCE_NETWORK_BANDWIDTH,
    INSTANCE_LOCAL_NVME,
    INSTANCE_HYPERVISOR,
    INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED,
    INSTANCE_GPU_NAME,
    INSTANCE_GPU_MANUFACTURER,
    INSTANCE_GPU_COUNT,
    INSTANCE_GPU_MEMORY,
    INSTANCE_ACCELERATOR_NAME,
    INSTANCE_ACCELERATOR_MANUFACTURER,
    INSTANCE_ACCELERATOR_COUNT,
    INSTANCE_TENANCY,
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_TYPE,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    PLACEMENT_GROUP_ID,
    PLACEMENT_GROUP_PARTITION,
];

/// Extended resources of EC2 machines.
pub mod resources {
    /// GPUs of NVIDIA.
    pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
    /// GPUs of AMD.
    pub const AMD_GPU: &str = "amd.com/gpu";
    /// Gaudi accelerators.
    pub const HABANA_GAUDI: &str = "habana.ai/gaudi";
    /// Neuron devices: Inferentia and Trainium.
    pub const AWS_NEURON: &str = "aws.amazon.com/neuron";
    /// Their cores.
    pub const AWS_NEURON_CORE: &str = "aws.amazon.com/neuroncore";
    /// Elastic Fabric Adapters.
    pub const EFA: &str = "vpc.amazonaws.com/efa";
    /// Branch network interfaces, for pods with security groups of their own.
    pub const POD_ENI: &str = "vpc.amazonaws.com/pod-eni";
    /// Addresses for pods on Windows.
    pub const PRIVATE_IPV4_ADDRESS: &str = "vpc.amazonaws.com/PrivateIPv4Address";
}
