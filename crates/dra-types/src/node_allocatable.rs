//! What devices hand out of the node's own resources, and what they cost of them (KEP-5517): `cpu`, `memory`, …
//!
//! 1.36 has one shape of it, 1.37 another. A server drops the field of the other release, so in a release only its own
//! counts. What the API server refuses of either is refused here: an amount below zero would make room on a node that
//! has none.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Quantity;
use model::quantity::Format;

use super::compat::KubernetesMinor;
use super::device::DeviceCapacity;
use super::json::{FieldError, Reader, Reason};
use super::names::QualifiedName;

/// What a device hands out or costs, by resource name, in the shape of each release.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeAllocatableResources {
    /// `nodeAllocatableResourceMappings`, of 1.36.
    pub mappings: BTreeMap<Arc<str>, NodeAllocatable>,
    /// `nodeAllocatableResources`, from 1.37 on.
    pub resources: BTreeMap<Arc<str>, NodeAllocatable>,
}

/// What a device hands out of a node's own resource, or costs of it.
///
/// The shape of 1.36 is read into [`NodeAllocatableMapping`]s without overhead.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeAllocatable {
    /// What a claim gets of the resource through this device.
    pub mapping: Option<NodeAllocatableMapping>,
    /// What it costs besides.
    pub overhead: Option<NodeAllocatableOverhead>,
}

/// What a claim gets of a node's own resource through a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeAllocatableMapping {
    /// The consumed amount of a capacity, multiplied.
    Capacity {
        /// The key in `consumedCapacity`, one of the device's capacities.
        key: QualifiedName,
        /// By what it is multiplied, more than zero; 1 if 1.36's shape does not say.
        multiplier: Quantity,
    },
    /// A fixed amount for each allocation of the device.
    Device {
        /// The amount, more than zero.
        multiplier: Quantity,
    },
}

/// What a device costs of a node's own resource, none of it below zero.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeAllocatableOverhead {
    /// Once for each pod that uses the claim.
    pub per_pod: Option<Quantity>,
    /// For each container that references the claim.
    pub per_container: Option<Quantity>,
}

impl NodeAllocatableResources {
    /// What counts in a release.
    pub fn in_release(&self, release: KubernetesMinor) -> &BTreeMap<Arc<str>, NodeAllocatable> {
        if release < KubernetesMinor::V1_37 { &self.mappings } else { &self.resources }
    }

    /// Reads both shapes of a device with these capacities.
    ///
    /// # Errors
    /// A value that the API server refuses; the error names the field.
    pub(crate) fn read(
        device: &Reader<'_>,
        capacity: &BTreeMap<QualifiedName, DeviceCapacity>,
    ) -> Result<Self, FieldError> {
        let (older, newer) =
            (device.field("nodeAllocatableResourceMappings"), device.field("nodeAllocatableResources"));
        let mappings: BTreeMap<Arc<str>, _> = older.map(|resource| read_1_36(resource, capacity))?;
        let resources: BTreeMap<Arc<str>, _> = newer.map(|resource| read_1_37(resource, capacity))?;
        let is_native = |name: &str| !name.contains('/') || name.contains("kubernetes.io/");
        names(&older, &mappings, is_native)?;
        names(&newer, &resources, |name| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-"))?;
        Ok(Self { mappings, resources })
    }
}

/// Whether the resources are ones that a device of the release can hand out.
fn names(
    field: &Reader<'_>,
    resources: &BTreeMap<Arc<str>, NodeAllocatable>,
    is_allowed: impl Fn(&str) -> bool,
) -> Result<(), FieldError> {
    match resources.keys().find(|name| !is_allowed(name)) {
        Some(name) => Err(invalid(field, &format!("{name} is not a resource that nodes hand out to devices"))),
        None => Ok(()),
    }
}

fn read_1_36(
    reader: &Reader<'_>,
    capacity: &BTreeMap<QualifiedName, DeviceCapacity>,
) -> Result<NodeAllocatable, FieldError> {
    const FIELDS: &[&str] = &["allocationMultiplier", "capacityKey"];
    reader.object(FIELDS)?;
    let multiplier = positive(reader, "allocationMultiplier")?;
    let mapping = match (capacity_key(reader, capacity)?, multiplier) {
        (Some(key), multiplier) => {
            let one = Quantity::from_milli(1000, Format::DecimalSi);
            NodeAllocatableMapping::Capacity { key, multiplier: multiplier.unwrap_or(one) }
        }
        (None, Some(multiplier)) => NodeAllocatableMapping::Device { multiplier },
        (None, None) => return Err(reader.unset(FIELDS, "allocationMultiplier or capacityKey must be set")),
    };
    Ok(NodeAllocatable { mapping: Some(mapping), overhead: None })
}

fn read_1_37(
    reader: &Reader<'_>,
    capacity: &BTreeMap<QualifiedName, DeviceCapacity>,
) -> Result<NodeAllocatable, FieldError> {
    const FIELDS: &[&str] = &["mapping", "overhead"];
    reader.object(FIELDS)?;
    let (mapping, overhead) = (reader.field("mapping"), reader.field("overhead"));
    let resource = NodeAllocatable {
        mapping: if mapping.is_present() { Some(read_mapping(&mapping, capacity)?) } else { None },
        overhead: if overhead.is_present() { Some(read_overhead(&overhead)?) } else { None },
    };
    if resource == NodeAllocatable::default() {
        return Err(reader.unset(FIELDS, "mapping or overhead must be set"));
    }
    Ok(resource)
}

fn read_mapping(
    reader: &Reader<'_>,
    capacity: &BTreeMap<QualifiedName, DeviceCapacity>,
) -> Result<NodeAllocatableMapping, FieldError> {
    reader.object(&["capacityKey", "capacityMultiplier", "deviceMultiplier"])?;
    let key = capacity_key(reader, capacity)?;
    match (key, positive(reader, "capacityMultiplier")?, positive(reader, "deviceMultiplier")?) {
        (Some(key), Some(multiplier), None) => Ok(NodeAllocatableMapping::Capacity { key, multiplier }),
        (None, None, Some(multiplier)) => Ok(NodeAllocatableMapping::Device { multiplier }),
        (Some(_), None, _) => Err(invalid(&reader.field("capacityMultiplier"), "is required beside capacityKey")),
        (None, Some(_), _) => Err(invalid(&reader.field("capacityKey"), "is required beside capacityMultiplier")),
        (Some(_), Some(_), Some(_)) | (None, None, None) => {
            Err(invalid(reader, "exactly one of capacityKey and deviceMultiplier must be set"))
        }
    }
}

fn read_overhead(reader: &Reader<'_>) -> Result<NodeAllocatableOverhead, FieldError> {
    const FIELDS: &[&str] = &["perContainer", "perPod"];
    reader.object(FIELDS)?;
    let amount = |name: &'static str| {
        let field = reader.field(name);
        match field.quantity()? {
            Some(amount) if amount.to_nano() < 0 => Err(invalid(&field, "must not be negative")),
            amount => Ok(amount),
        }
    };
    let overhead = NodeAllocatableOverhead { per_pod: amount("perPod")?, per_container: amount("perContainer")? };
    if overhead == NodeAllocatableOverhead::default() {
        return Err(reader.unset(FIELDS, "perPod or perContainer must be set"));
    }
    Ok(overhead)
}

fn capacity_key(
    reader: &Reader<'_>,
    capacity: &BTreeMap<QualifiedName, DeviceCapacity>,
) -> Result<Option<QualifiedName>, FieldError> {
    let field = reader.field("capacityKey");
    let key: Option<QualifiedName> = field.optional_string()?;
    match key {
        Some(key) if !capacity.contains_key(&key) => {
            Err(invalid(&field, &format!("{:?} is not a capacity of the device", key.to_string())))
        }
        key => Ok(key),
    }
}

fn positive(reader: &Reader<'_>, name: &'static str) -> Result<Option<Quantity>, FieldError> {
    let field = reader.field(name);
    match field.quantity()? {
        Some(amount) if amount.to_nano() <= 0 => Err(invalid(&field, "must be greater than zero")),
        amount => Ok(amount),
    }
}

fn invalid(reader: &Reader<'_>, reason: &str) -> FieldError {
    reader.error(Reason::Invalid(reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::Device;
    use crate::compat::KubernetesMinor;

    const OLDER: &str = "nodeAllocatableResourceMappings";
    const NEWER: &str = "nodeAllocatableResources";

    fn device(field: &str, value: &Value) -> Result<Device, String> {
        let object = json!({"name": "a", "capacity": {"cores": {"value": "8"}}, field: value});
        Device::from_json(&object).map_err(|error| error.to_string())
    }

    #[test]
    fn both_shapes_read_alike_and_count_in_their_release_only() {
        for (older, newer) in [
            (
                json!({"cpu": {"capacityKey": "cores", "allocationMultiplier": "2"}}),
                json!({"cpu": {"mapping": {"capacityKey": "cores", "capacityMultiplier": 2}}}),
            ),
            (
                json!({"memory": {"allocationMultiplier": "2Gi"}}),
                json!({"memory": {"mapping": {"deviceMultiplier": "2Gi"}}}),
            ),
        ] {
            let (older, newer) = (device(OLDER, &older).unwrap(), device(NEWER, &newer).unwrap());
            let in_release = |device: &Device, release| device.node_allocatable.in_release(release).clone();
            let (in_1_36, in_1_37) = (KubernetesMinor::V1_36, KubernetesMinor::V1_37);
            assert_eq!(in_release(&older, in_1_36), in_release(&newer, in_1_37));
            assert!(in_release(&older, in_1_37).is_empty() && in_release(&newer, in_1_36).is_empty());
        }
        let overhead = device(NEWER, &json!({"memory": {"overhead": {"perPod": "1Gi"}}})).unwrap();
        let memory = &overhead.node_allocatable.resources["memory"];
        assert_eq!(memory.overhead.as_ref().unwrap().per_pod.unwrap().to_string(), "1Gi");
        assert_eq!(memory.mapping, None);
    }

    #[test]
    fn values_that_the_api_server_refuses_are_refused_by_their_field() {
        let cpu = |mapping: Value| json!({"cpu": {"mapping": mapping}});
        for (shape, value, field) in [
            (OLDER, json!({"cpu": {"allocationMultiplier": "-1"}}), "[cpu].allocationMultiplier"),
            (OLDER, json!({"cpu": {"allocationMultiplier": "0"}}), "[cpu].allocationMultiplier"),
            (OLDER, json!({"cpu": {"capacityKey": "absent"}}), "[cpu].capacityKey"),
            (OLDER, json!({"cpu": {}}), "[cpu]"),
            (OLDER, json!({"example.com/gpu": {"allocationMultiplier": "1"}}), ""),
            (NEWER, cpu(json!({"deviceMultiplier": "-1"})), "[cpu].mapping.deviceMultiplier"),
            (NEWER, cpu(json!({"deviceMultiplier": "0"})), "[cpu].mapping.deviceMultiplier"),
            (
                NEWER,
                cpu(json!({"capacityKey": "cores", "capacityMultiplier": "-2"})),
                "[cpu].mapping.capacityMultiplier",
            ),
            (NEWER, cpu(json!({"capacityKey": "absent", "capacityMultiplier": "1"})), "[cpu].mapping.capacityKey"),
            (NEWER, cpu(json!({"capacityKey": "cores"})), "[cpu].mapping.capacityMultiplier"),
            (NEWER, cpu(json!({"capacityMultiplier": "1"})), "[cpu].mapping.capacityKey"),
            (
                NEWER,
                cpu(json!({"capacityKey": "cores", "capacityMultiplier": "1", "deviceMultiplier": "1"})),
                "[cpu].mapping",
            ),
            (NEWER, cpu(json!({})), "[cpu].mapping"),
            (NEWER, json!({"cpu": {}}), "[cpu]"),
            (NEWER, json!({"memory": {"overhead": {"perPod": "-1Gi"}}}), "[memory].overhead.perPod"),
            (NEWER, json!({"memory": {"overhead": {"perContainer": "-1"}}}), "[memory].overhead.perContainer"),
            (NEWER, json!({"memory": {"overhead": {}}}), "[memory].overhead"),
            (NEWER, json!({"ephemeral-storage": {"mapping": {"deviceMultiplier": "1"}}}), ""),
            (NEWER, json!({"example.com/gpu": {"mapping": {"deviceMultiplier": "1"}}}), ""),
        ] {
            let error = device(shape, &value).unwrap_err();
            assert!(error.starts_with(&format!("{shape}{field}: ")), "{value}: {error}");
        }
        assert!(device(NEWER, &json!({"hugepages-2Mi": {"overhead": {"perPod": "0"}}})).is_ok());
        assert!(device(OLDER, &json!({"ephemeral-storage": {"allocationMultiplier": "1Gi"}})).is_ok());
    }
}
