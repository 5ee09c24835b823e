//! The fields of an EC2NodeClass, as they are written.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::EC2NodeClassStatus;
use crate::text_enum::text_enum;

/// Texts by tag key.
pub type Tags = BTreeMap<String, String>;

/// How machines are launched: image, network, rights, disks, and what they are told when they boot.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.k8s.aws",
    version = "v1",
    kind = "EC2NodeClass",
    root = "EC2NodeClassDefinition",
    plural = "ec2nodeclasses",
    status = "EC2NodeClassStatus",
    doc = "How machines of EC2 are launched.",
    shortname = "ec2nc",
    shortname = "ec2ncs",
    category = "karpenter",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Role", type_ = "string", json_path = ".spec.role", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct EC2NodeClassSpec {
    /// Which subnets machines are put into: all that one of the terms selects.
    pub subnet_selector_terms: Vec<SubnetSelectorTerm>,
    /// Which security groups machines get: all that one of the terms selects.
    pub security_group_selector_terms: Vec<SecurityGroupSelectorTerm>,
    /// Which capacity reservations are used before anything else: all that one of the terms selects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservation_selector_terms: Vec<CapacityReservationSelectorTerm>,
    /// The placement group that all machines are put into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_group_selector: Option<PlacementGroupSelector>,
    /// Whether machines get a public IPv4 address; what the subnet says where absent.
    #[serde(default, rename = "associatePublicIPAddress", skip_serializing_if = "Option::is_none")]
    pub associate_public_ip_address: Option<bool>,
    /// How many IP prefixes the primary network interface gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_prefix_count: Option<i32>,
    /// Which images machines boot from: the newest that fits an instance type, of all that one of the terms selects.
    pub ami_selector_terms: Vec<AmiSelectorTerm>,
    /// How the images are told what cluster they belong to, and what disks they come with. An alias says it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ami_family: Option<AmiFamily>,
    /// What machines are told at boot in addition to what makes them join the cluster; the AMI family says in which
    /// form. For the family Custom it is all that they are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// The IAM role of the machines; an instance profile is made for it. Not together with `instanceProfile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The instance profile of the machines. Not together with `role`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// Tags of everything that is made for a machine, beside those by which machines are found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: Tags,
    /// Settings of the kubelet, in the form of its own configuration file. Which of them arrive depends on the AMI
    /// family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<serde_json::Map<String, serde_json::Value>>,
    /// The disks of the machines; those of the AMI family where empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub block_device_mappings: Vec<BlockDeviceMapping>,
    /// What is done with the disks that an instance type brings along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// The network interfaces of the machines, where one is not enough. The pods' own come on top.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_interfaces: Vec<NetworkInterface>,
    /// Whether machines report metrics every minute, which costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detailed_monitoring: Option<bool>,
    /// How the machines' metadata service answers.
    #[serde(default)]
    pub metadata_options: MetadataOptions,
    /// How long network interfaces remember connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_tracking: Option<ConnectionTracking>,
    /// A text that is handed to EC2 with every launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// What the processors can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_options: Option<CpuOptions>,
    /// Whether machines can start Nitro enclaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enclave_options: Option<EnclaveOptions>,
}

/// Selects subnets: one by id, or all with certain tags.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubnetSelectorTerm {
    /// Tags that a subnet has; the value `*` stands for any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: Tags,
    /// The subnet's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Selects security groups: by id, by name, or all with certain tags.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityGroupSelectorTerm {
    /// Tags that a security group has; the value `*` stands for any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: Tags,
    /// The security group's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The security group's name, which is not its tag `Name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Selects capacity reservations: one by id, or all with certain properties.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservationSelectorTerm {
    /// Tags that a reservation has; the value `*` stands for any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: Tags,
    /// The reservation's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The account that owns the reservation.
    #[serde(default, rename = "ownerID", skip_serializing_if = "Option::is_none")]
    pub owner_id: Option<String>,
    /// Whether every fitting launch uses the reservation, or only those that name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_match_criteria: Option<InstanceMatchCriteria>,
}

text_enum! {
    /// Which launches use a capacity reservation.
    pub enum InstanceMatchCriteria {
        /// Every one that fits.
        Open = "open",
        /// Those that name it.
        Targeted = "targeted",
    }
}

/// Selects one placement group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementGroupSelector {
    /// The group's name. Not together with `id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The group's id. Not together with `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Selects images: by alias, id, parameter, name or tags.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AmiSelectorTerm {
    /// The images that AWS publishes for EKS, as `family@version`, such as `al2023@v20240807` or
    /// `bottlerocket@latest`. It stands alone: no other field, no other term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Tags that an image has; the value `*` stands for any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: Tags,
    /// The image's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The image's name, which is not its tag `Name`; `*` and `?` stand for other characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whose images: an account, `self`, `amazon` or `aws-marketplace`. With a name and without an owner these are
    /// one's own and Amazon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Name or ARN of an SSM parameter that holds the image's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssm_parameter: Option<String>,
}

text_enum! {
    /// Families of images, each with its own way of joining a cluster.
    pub enum AmiFamily {
        /// Amazon Linux 2.
        Al2 = "AL2",
        /// Amazon Linux 2023.
        Al2023 = "AL2023",
        /// Bottlerocket.
        Bottlerocket = "Bottlerocket",
        /// Any other image; what makes it join is the user's.
        Custom = "Custom",
        /// Windows Server 2019 Core.
        Windows2019 = "Windows2019",
        /// Windows Server 2022 Core.
        Windows2022 = "Windows2022",
        /// Windows Server 2025 Core.
        Windows2025 = "Windows2025",
    }
}

impl AmiFamily {
    /// Whether its images run Windows.
    pub const fn is_windows(self) -> bool {
        match self {
            Self::Windows2019 | Self::Windows2022 | Self::Windows2025 => true,
            Self::Al2 | Self::Al2023 | Self::Bottlerocket | Self::Custom => false,
        }
    }
}

/// A disk of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockDeviceMapping {
    /// The device's name, such as `/dev/xvda`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// The EBS volume behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ebs: Option<Ebs>,
    /// Whether the kubelet's files are on it, so that its size is what pods can use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_volume: Option<bool>,
}

/// An EBS volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ebs {
    /// Whether it goes with the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
    /// Whether it is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// Operations a second, for volume types that sell them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<i64>,
    /// Id, alias or ARN of the KMS key that encrypts it.
    #[serde(default, rename = "kmsKeyID", skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,
    /// The snapshot that it is made from.
    #[serde(default, rename = "snapshotID", skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// MiB a second, for volumes of type gp3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i64>,
    /// MiB a second at which the snapshot is read in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_initialization_rate: Option<i32>,
    /// Its size in `Gi`, `G`, `Ti` or `T`; that of the snapshot where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<String>,
    /// What kind of volume it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<VolumeType>,
}

text_enum! {
    /// Kinds of EBS volumes.
    pub enum VolumeType {
        /// Magnetic.
        Standard = "standard",
        /// Provisioned operations, first generation.
        Io1 = "io1",
        /// Provisioned operations, second generation.
        Io2 = "io2",
        /// General purpose, second generation.
        Gp2 = "gp2",
        /// Cold disks.
        Sc1 = "sc1",
        /// Disks for throughput.
        St1 = "st1",
        /// General purpose, third generation.
        Gp3 = "gp3",
    }
}

text_enum! {
    /// What is done with the disks that an instance type brings along.
    pub enum InstanceStorePolicy {
        /// They become one RAID 0 array that holds pods, images and logs.
        Raid0 = "RAID0",
    }
}

/// A network interface of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterface {
    /// The network card that it is on.
    pub network_card_index: i32,
    /// Its place on the card.
    pub device_index: i32,
    /// What it can do.
    pub interface_type: InterfaceType,
}

text_enum! {
    /// Kinds of network interfaces.
    pub enum InterfaceType {
        /// An ordinary one, with an address.
        Interface = "interface",
        /// An Elastic Fabric Adapter without an address.
        EfaOnly = "efa-only",
    }
}

/// How the machines' metadata service answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MetadataOptions {
    /// Whether it answers at all.
    pub http_endpoint: Switch,
    /// Whether it answers by IPv6.
    #[serde(rename = "httpProtocolIPv6")]
    pub http_protocol_ipv6: Switch,
    /// How many network hops its answers travel; with 1 no pod gets one unless it uses the host's network.
    pub http_put_response_hop_limit: i64,
    /// Whether a request needs a session token.
    pub http_tokens: HttpTokens,
}

impl Default for MetadataOptions {
    fn default() -> Self {
        Self {
            http_endpoint: Switch::Enabled,
            http_protocol_ipv6: Switch::Disabled,
            http_put_response_hop_limit: 1,
            http_tokens: HttpTokens::Required,
        }
    }
}

text_enum! {
    /// Whether something is on.
    pub enum Switch {
        /// It is.
        Enabled = "enabled",
        /// It is not.
        Disabled = "disabled",
    }
}

text_enum! {
    /// Whether a request to the metadata service needs a session token.
    pub enum HttpTokens {
        /// It does.
        Required = "required",
        /// It does not.
        Optional = "optional",
    }
}

/// How long network interfaces remember idle connections, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionTracking {
    /// Established TCP connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_established_timeout: Option<i32>,
    /// UDP flows with more than one request and answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_stream_timeout: Option<i32>,
    /// UDP flows with traffic one way, or a single request and answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_timeout: Option<i32>,
}

/// What the processors can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CpuOptions {
    /// Whether machines can start virtual machines of their own. Only instance types that can do so are launched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested_virtualization: Option<Switch>,
}

/// Whether machines can start Nitro enclaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnclaveOptions {
    /// Whether they can. Only instance types that can do so are launched.
    pub enabled: bool,
}
