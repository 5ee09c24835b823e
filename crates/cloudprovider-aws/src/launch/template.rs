//! Launch templates: what a machine is, whatever its type and zone. There is one for each image and each thing that the
//! types behind an image need told differently.

use std::collections::BTreeMap;

use cloudprovider::CapacityType;
use serde::{Deserialize, Serialize};

use super::digest;
use super::disks::{BlockDevice, block_devices};
use crate::node_class::NodeClassSpec;
use crate::node_class::kubelet::expressions::ComputedReserved;
use crate::node_class::spec::{ConnectionTracking, InterfaceType, MetadataOptions, Switch, Tags};

/// What of a type and an offering a launch template depends on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TemplateKey {
    /// The image.
    pub image_id: String,
    /// Most pods, which the user data tells.
    pub max_pods: u32,
    /// How many Elastic Fabric Adapters are attached; 0 where no pod asks for one.
    pub efa_count: u32,
    /// How the machine is paid.
    pub market: Market,
    /// What expressions reserve, which the user data tells.
    #[serde(default, skip_serializing_if = "ComputedReserved::is_empty")]
    pub reserved: ComputedReserved,
}

/// How a machine is paid, as a launch template has to say it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Market {
    /// By use.
    OnDemand,
    /// As spare capacity.
    Spot,
    /// From an on-demand capacity reservation.
    Reservation(String),
    /// From a reservation whose owner may take the machine back.
    InterruptibleReservation(String),
    /// From a capacity block.
    CapacityBlock(String),
}

impl Market {
    /// The capacity type of machines that are paid so.
    pub const fn capacity_type(&self) -> CapacityType {
        match self {
            Self::OnDemand => CapacityType::OnDemand,
            Self::Spot => CapacityType::Spot,
            Self::Reservation(_) | Self::InterruptibleReservation(_) | Self::CapacityBlock(_) => CapacityType::Reserved,
        }
    }

    /// The reservation that the machine comes from.
    pub fn reservation(&self) -> Option<&str> {
        match self {
            Self::OnDemand | Self::Spot => None,
            Self::Reservation(id) | Self::InterruptibleReservation(id) | Self::CapacityBlock(id) => Some(id),
        }
    }
}

/// What all launch templates of a launch share.
#[derive(Debug, Clone, Copy)]
pub struct TemplateInput<'a> {
    /// The node class.
    pub node_class: &'a NodeClassSpec,
    /// The ids of the security groups, from its status.
    pub security_groups: &'a [String],
    /// The instance profile, from its status.
    pub instance_profile: &'a str,
    /// Tags of everything that is made for a machine.
    pub tags: &'a Tags,
    /// Where machines are placed.
    pub placement: &'a Placement,
    /// How the cluster's pods are addressed.
    pub addresses: AddressFamily,
}

/// Where machines are placed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Whether they share their host with other accounts: `default` or `dedicated`.
    pub tenancy: Option<String>,
    /// The placement group.
    pub group_id: Option<String>,
    /// Its partition, counted from 1.
    pub partition: Option<i32>,
}

/// How the cluster's pods are addressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum AddressFamily {
    /// By IPv4.
    V4,
    /// By IPv6.
    V6,
}

/// A launch template: a request to make one, but for its name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LaunchTemplate {
    /// The image.
    pub image_id: String,
    /// What machines are told, encoded.
    pub user_data: String,
    /// The instance profile's name.
    pub instance_profile: String,
    /// The disks; the image's own where empty.
    pub block_devices: Vec<BlockDevice>,
    /// The network interfaces, which carry the security groups.
    pub network_interfaces: Vec<Interface>,
    /// How the metadata service answers.
    pub metadata_options: MetadataOptions,
    /// Whether machines report metrics every minute.
    pub detailed_monitoring: Option<bool>,
    /// Whether machines can start virtual machines.
    pub nested_virtualization: Option<Switch>,
    /// Whether machines can start enclaves.
    pub enclaves: bool,
    /// Where machines are placed.
    pub placement: Placement,
    /// How they are paid.
    pub market: Market,
    /// Tags of the template, the interfaces and requests for spot.
    pub tags: Tags,
}

/// A network interface in a launch template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// The card.
    pub network_card_index: i32,
    /// Its place on the card.
    pub device_index: i32,
    /// `interface`, `efa` or `efa-only`; EC2's default where absent.
    pub interface_type: Option<&'static str>,
    /// Its security groups.
    pub security_groups: Vec<String>,
    /// Whether it gets a public IPv4 address.
    pub associate_public_ip_address: Option<bool>,
    /// How long it remembers connections.
    pub connection_tracking: Option<ConnectionTracking>,
    /// Whether it gets an IPv6 address, its first.
    pub has_ipv6_address: bool,
    /// How many IPv4 prefixes it gets.
    pub ipv4_prefixes: Option<i32>,
    /// How many IPv6 prefixes it gets.
    pub ipv6_prefixes: Option<i32>,
}

/// EC2 takes names of 3 to 128 characters, of which some are not letters.
pub(crate) const NAME_PREFIX: &str = "karpenter.k8s.aws/";

impl LaunchTemplate {
    /// The launch template of a key. `user_data` is encoded.
    pub fn new(input: &TemplateInput<'_>, key: &TemplateKey, user_data: String) -> Self {
        let class = input.node_class;
        Self {
            image_id: key.image_id.clone(),
            user_data,
            instance_profile: input.instance_profile.to_owned(),
            block_devices: block_devices(&class.disks, class.ami_family),
            network_interfaces: interfaces(input, key.efa_count),
            metadata_options: class.metadata_options,
            detailed_monitoring: class.detailed_monitoring,
            nested_virtualization: class.nested_virtualization,
            enclaves: class.enclaves,
            placement: input.placement.clone(),
            market: key.market.clone(),
            tags: input.tags.clone(),
        }
    }

    /// The template's name, by which it is found again: it stands for everything in it.
    pub fn name(&self) -> String {
        format!("{NAME_PREFIX}{}", digest(self))
    }
}

fn interfaces(input: &TemplateInput<'_>, efa_count: u32) -> Vec<Interface> {
    let class = input.node_class;
    if !class.network_interfaces.is_empty() {
        let of_user = class.network_interfaces.iter().map(|interface| {
            let (card, device) = (interface.network_card_index, interface.device_index);
            let kind = Some(interface.interface_type.as_str());
            match interface.interface_type {
                InterfaceType::Interface => with_addresses(input, card, device, kind),
                InterfaceType::EfaOnly => without_addresses(input, card, device, kind),
            }
        });
        return of_user.collect();
    }
    if efa_count == 0 {
        return vec![with_addresses(input, 0, 0, None)];
    }
    let cards = 0..i32::try_from(efa_count).unwrap_or(i32::MAX);
    cards.map(|card| with_addresses(input, card, i32::from(card > 0), Some("efa"))).collect()
}

/// An interface that only moves data between machines.
fn without_addresses(input: &TemplateInput<'_>, card: i32, device: i32, kind: Option<&'static str>) -> Interface {
    Interface {
        network_card_index: card,
        device_index: device,
        interface_type: kind,
        security_groups: input.security_groups.to_vec(),
        associate_public_ip_address: None,
        connection_tracking: None,
        has_ipv6_address: false,
        ipv4_prefixes: None,
        ipv6_prefixes: None,
    }
}

fn with_addresses(input: &TemplateInput<'_>, card: i32, device: i32, kind: Option<&'static str>) -> Interface {
    let class = input.node_class;
    // Prefixes and the node's own IPv6 address belong to the primary interface.
    let is_primary = card == 0 && device == 0;
    let prefixes = class.ip_prefix_count.filter(|_| is_primary);
    let (ipv4_prefixes, ipv6_prefixes) = match input.addresses {
        AddressFamily::V4 => (prefixes, None),
        AddressFamily::V6 => (None, prefixes),
    };
    Interface {
        associate_public_ip_address: class.associate_public_ip_address,
        connection_tracking: class.connection_tracking,
        has_ipv6_address: is_primary && input.addresses == AddressFamily::V6,
        ipv4_prefixes,
        ipv6_prefixes,
        ..without_addresses(input, card, device, kind)
    }
}

/// Tags of everything that is made for a machine: the user's, and those by which it is found.
pub fn tags(of_user: &Tags, cluster: &str, node_pool: &str, node_class: &str) -> Tags {
    use crate::node_class::tags::{CLUSTER_NAME, CLUSTER_PREFIX, OWNED};
    let mut tags: BTreeMap<_, _> = of_user.clone();
    tags.extend(
        [
            (format!("{CLUSTER_PREFIX}/{cluster}"), OWNED),
            (CLUSTER_NAME.to_owned(), cluster),
            (api::labels::NODEPOOL.to_owned(), node_pool),
            (crate::names::NODE_CLASS.to_owned(), node_class),
        ]
        .map(|(key, value)| (key, value.to_owned())),
    );
    tags
}

#[cfg(test)]
mod tests;
