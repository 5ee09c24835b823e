//! What of a cluster decides about devices.

use std::collections::BTreeMap;
use std::sync::Arc;

use decode::ObjectError;
use decode::devices::{
    Admitted, DeviceKind, device_class, device_taint_rule, pod_group_claims, resource_claim, resource_claim_template,
    resource_slice,
};
use dra_types::{Compat, KubernetesMinor, Pod};
use model::Uid;
use scheduling::devices::DeviceObjects;
use serde_json::Value;

/// Claims, slices and what belongs to them.
#[derive(Debug, Clone)]
pub struct ClusterDevices {
    /// Whose allocator is imitated.
    pub compat: Compat,
    /// The objects.
    pub objects: Arc<DeviceObjects>,
    /// What devices read of the pods that may want any, and of the DaemonSets whose pods may, by their uids.
    pub pods: BTreeMap<Uid, Arc<Pod>>,
}

impl Default for ClusterDevices {
    fn default() -> Self {
        Self { compat: Compat::new(KubernetesMinor::NEWEST), objects: Arc::default(), pods: BTreeMap::new() }
    }
}

/// Reads an object of one of the kinds and puts it with the others; the last of a name counts.
pub(crate) fn add_device_object(
    kind: DeviceKind,
    object: &Value,
    admitted: Admitted<'_>,
    objects: &mut DeviceObjects,
) -> Result<(), ObjectError> {
    match kind {
        DeviceKind::DeviceClass => {
            let class = device_class(object, admitted)?;
            objects.classes.insert(Arc::clone(&class.meta.name.name), Arc::new(class));
        }
        DeviceKind::ResourceSlice => {
            let slice = resource_slice(object, admitted)?;
            objects.slices.insert(Arc::clone(&slice.meta.name.name), Arc::new(slice));
        }
        DeviceKind::ResourceClaim => {
            let claim = resource_claim(object, admitted)?;
            objects.claims.insert(claim.meta.name.clone(), Arc::new(claim));
        }
        DeviceKind::ResourceClaimTemplate => {
            let template = resource_claim_template(object, admitted)?;
            objects.claim_templates.insert(template.meta.name.clone(), Arc::new(template));
        }
        DeviceKind::DeviceTaintRule => {
            let rule = device_taint_rule(object, admitted)?;
            objects.taint_rules.insert(Arc::clone(&rule.meta.name.name), Arc::new(rule));
        }
        DeviceKind::PodGroup => {
            let group = pod_group_claims(object, admitted)?;
            objects.pod_groups.insert(group.meta.name.clone(), Arc::new(group));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
