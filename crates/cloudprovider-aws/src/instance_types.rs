//! Instance types as the planner knows them, computed from what EC2 says of a type and what a node class changes.
//!
//! A machine's capacity, overhead and labels are those of `pkg/providers/instancetype/types.go` of
//! karpenter-provider-aws 1.15: a cluster that changes over sees no node grow or shrink. Everything is computed; no
//! type is a special case.

mod capacity;
pub mod compatibility;
pub mod drivers;
pub mod info;
pub mod learned;
pub mod offerings;
mod overhead;
mod requirements;
pub mod settings;

pub use capacity::efas;

use std::collections::BTreeMap;

use api::resource_slice_template::DynamicResources;
use api::resources::MEMORY;
use cloudprovider::InstanceType;
use model::{InstanceTypeName, Quantity};

use self::info::InstanceTypeInfo;
use self::settings::{MachineOptions, NodeSettings};

/// What machines of one node class in one region have in common.
#[derive(Debug, Clone, Copy)]
pub struct Resolver<'a> {
    /// The region.
    pub region: &'a str,
    /// What the node class changes.
    pub settings: &'a NodeSettings,
    /// What the controller's options change.
    pub options: &'a MachineOptions,
}

impl Resolver<'_> {
    /// The type with capacity, overhead and labels, without offerings and devices.
    pub fn resolve(&self, info: &InstanceTypeInfo) -> InstanceType {
        InstanceType {
            name: InstanceTypeName::from(info.instance_type.as_str()),
            requirements: requirements::labels(info, self.settings, self.region),
            offerings: Vec::new(),
            capacity: capacity::capacity(info, self.settings, self.options),
            overhead: overhead::overhead(info, self.settings, self.options),
            volume_attachment_limits: BTreeMap::new(),
            dynamic_resources: DynamicResources::default(),
        }
    }

    /// The first setting of the kubelet whose expression fails on a type, with the reason.
    pub fn failed_expression(&self, info: &InstanceTypeInfo) -> Option<(String, String)> {
        let computed = &self.settings.kubelet.computed;
        let told = |pods| capacity::told(info, pods);
        let for_pods = told(capacity::family_pods(info, self.settings, self.options));
        computed.failure(&for_pods, &told(capacity::pods(info, self.settings, self.options)))
    }
}

/// Puts the memory that machines of a type were seen to have in the place of the estimate. What must stay free is
/// reckoned from the estimate still, as the kubelet's thresholds were.
pub fn set_memory(instance_type: &mut InstanceType, seen: Quantity) {
    instance_type.capacity.insert(MEMORY.to_owned(), seen);
}

#[cfg(test)]
mod tests;
