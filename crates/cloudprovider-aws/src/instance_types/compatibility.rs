//! Whether machines of a type can be launched as a node class wants them. `pkg/providers/instancetype/compatibility` of
//! karpenter-provider-aws 1.15 has the same checks.

use std::fmt;

use super::info::InstanceTypeInfo;
use super::settings::{NodeSettings, count};
use crate::node_class::AmiFamily;

/// Why a type cannot be launched with a node class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incompatible {
    /// Kubernetes does not run on the processor.
    Architecture,
    /// The images do not boot on the first generation of Graviton.
    AmiFamily,
    /// There is no Elastic Network Adapter for the interfaces.
    NoAdapter,
    /// There is no network card of that index.
    NetworkCard(i32),
    /// The card of that index has no place of that number.
    DeviceIndex(i32, i32),
    /// More Elastic Fabric Adapters than the type has.
    Efas {
        /// So many.
        asked: u32,
        /// So many it has.
        most: u32,
    },
    /// It starts no virtual machines of its own.
    NestedVirtualization,
    /// It starts no enclaves.
    Enclaves,
    /// It is in no placement group of that strategy.
    Placement(String),
    /// Connection tracking cannot be set.
    ConnectionTracking,
}

impl fmt::Display for Incompatible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Architecture => f.write_str("Kubernetes does not run on its processor"),
            Self::AmiFamily => f.write_str("images of AL2023 do not boot on it"),
            Self::NoAdapter => f.write_str("networkInterfaces: it has no Elastic Network Adapter"),
            Self::NetworkCard(card) => write!(f, "networkInterfaces: it has no network card {card}"),
            Self::DeviceIndex(card, device) => {
                write!(f, "networkInterfaces: its network card {card} has no device index {device}")
            }
            Self::Efas { asked, most } => write!(f, "networkInterfaces: {asked} of type efa-only, it has {most}"),
            Self::NestedVirtualization => f.write_str("cpuOptions: it does not support nested virtualization"),
            Self::Enclaves => f.write_str("enclaveOptions: it does not support Nitro enclaves"),
            Self::Placement(strategy) => write!(f, "it cannot be in a placement group of strategy {strategy}"),
            Self::ConnectionTracking => f.write_str("connectionTracking: its hypervisor is not Nitro"),
        }
    }
}

/// Checks a type against what a node class wants.
///
/// # Errors
/// The first thing that the type cannot do.
pub fn check(info: &InstanceTypeInfo, settings: &NodeSettings) -> Result<(), Incompatible> {
    if info.architecture().is_none() {
        return Err(Incompatible::Architecture);
    }
    if settings.ami_family == AmiFamily::Al2023 && info.instance_type.starts_with("a1.") {
        return Err(Incompatible::AmiFamily);
    }
    check_interfaces(info, settings)?;
    let demands = &settings.demands;
    if demands.nested_virtualization && !info.processor_info.supported_features.contains("nested-virtualization") {
        return Err(Incompatible::NestedVirtualization);
    }
    if demands.enclaves && info.nitro_enclaves_support.as_deref() != Some("supported") {
        return Err(Incompatible::Enclaves);
    }
    if let Some(strategy) = &demands.placement_strategy
        && !info.placement_group_info.supported_strategies.contains(strategy)
    {
        return Err(Incompatible::Placement(strategy.clone()));
    }
    if demands.connection_tracking && info.hypervisor.as_deref() != Some("nitro") {
        return Err(Incompatible::ConnectionTracking);
    }
    Ok(())
}

fn check_interfaces(info: &InstanceTypeInfo, settings: &NodeSettings) -> Result<(), Incompatible> {
    if settings.network_interfaces.is_empty() {
        return Ok(());
    }
    if info.network_info.ena_support.as_deref() == Some("unsupported") {
        return Err(Incompatible::NoAdapter);
    }
    for interface in &settings.network_interfaces {
        let index = interface.network_card_index;
        let card = u32::try_from(index).ok().and_then(|index| info.network_card(index));
        let places = card.ok_or(Incompatible::NetworkCard(index))?.maximum_network_interfaces;
        if u32::try_from(interface.device_index).is_ok_and(|device| device >= places) {
            return Err(Incompatible::DeviceIndex(index, interface.device_index));
        }
    }
    let (asked, most) = (count(settings.efa_only()), info.efa_interfaces());
    if asked > most { Err(Incompatible::Efas { asked, most }) } else { Ok(()) }
}
