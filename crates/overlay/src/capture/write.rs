//! Writes a device that was read as a template describes it.

use api::QuantityString;
use api::resource_slice_template as templates;
use dra_types as read;
use dra_types::AttributeValue;
use model::Quantity;

use super::pools::DraftDevice;

/// One device, not replicated.
pub(super) fn device(draft: &DraftDevice) -> templates::DeviceTemplate {
    let device = &draft.device;
    let attributes = device.attributes.iter().map(|(name, value)| (name.to_string(), attribute(value)));
    let capacities = device.capacity.iter().map(|(name, it)| (name.to_string(), capacity(it)));
    let read::NodeAllocatableResources { resources, mappings } = &device.node_allocatable;
    let resources = resources.iter().map(|(name, it)| (name.to_string(), node_allocatable(it)));
    let mappings = mappings.iter().filter_map(|(name, it)| Some((name.to_string(), mapping_of_1_36(it)?)));
    templates::DeviceTemplate {
        name: device.name.to_string(),
        replicas: None,
        replicas_from_label: None,
        attributes: attributes.collect(),
        capacity: capacities.collect(),
        consumes_counters: device.consumes_counters.iter().map(consumption).collect(),
        node_selector: draft.node_selector.clone(),
        all_nodes: draft.all_nodes.then_some(true),
        taints: device.taints.iter().map(taint).collect(),
        binds_to_node: device.binds_to_node.then_some(true),
        binding_conditions: device.binding_conditions.iter().map(ToString::to_string).collect(),
        binding_failure_conditions: device.binding_failure_conditions.iter().map(ToString::to_string).collect(),
        allow_multiple_allocations: device.allow_multiple_allocations.then_some(true),
        node_allocatable_resources: resources.collect(),
        node_allocatable_resource_mappings: mappings.collect(),
    }
}

/// One set, not replicated.
pub(super) fn counter_set(set: &read::CounterSet) -> templates::CounterSet {
    templates::CounterSet {
        name: set.name.to_string(),
        replicas: None,
        replicas_from_label: None,
        counters: set.counters.iter().map(|(name, value)| (name.to_string(), counter(*value))).collect(),
    }
}

fn counter(value: Quantity) -> templates::Counter {
    templates::Counter { value: quantity(value) }
}

fn quantity(value: Quantity) -> QuantityString {
    QuantityString(value.to_string())
}

fn attribute(value: &AttributeValue) -> templates::DeviceAttribute {
    let int = |value: &i64| templates::IntOrIndex::Int(*value);
    let texts = |texts: &[std::sync::Arc<str>]| Some(texts.iter().map(ToString::to_string).collect());
    let mut attribute = templates::DeviceAttribute::default();
    match value {
        AttributeValue::Int(value) => attribute.int = Some(int(value)),
        AttributeValue::Bool(value) => attribute.bool = Some(*value),
        AttributeValue::String(text) => attribute.string = Some(text.to_string()),
        AttributeValue::Version(text) => attribute.version = Some(text.to_string()),
        AttributeValue::Ints(values) => attribute.ints = Some(values.iter().map(int).collect()),
        AttributeValue::Bools(values) => attribute.bools = Some(values.to_vec()),
        AttributeValue::Strings(values) => attribute.strings = texts(values),
        AttributeValue::Versions(values) => attribute.versions = texts(values),
        AttributeValue::Unset | AttributeValue::AfterLaunch => {}
    }
    attribute
}

fn capacity(capacity: &read::DeviceCapacity) -> templates::DeviceCapacity {
    let range = |range: &read::CapacityRange| templates::CapacityRequestPolicyRange {
        min: quantity(range.min.unwrap_or_default()),
        max: range.max.map(quantity),
        step: range.step.map(quantity),
    };
    let policy = capacity.request_policy.as_ref().map(|policy| templates::CapacityRequestPolicy {
        default: policy.default.map(quantity),
        valid_values: policy.valid_values.iter().copied().map(quantity).collect(),
        valid_range: policy.valid_range.as_ref().map(range),
    });
    templates::DeviceCapacity { value: quantity(capacity.value), request_policy: policy }
}

fn consumption(draw: &read::CounterConsumption) -> templates::DeviceCounterConsumption {
    templates::DeviceCounterConsumption {
        counter_set: draw.counter_set.to_string(),
        counters: draw.counters.iter().map(|(name, value)| (name.to_string(), counter(*value))).collect(),
        compatibility_groups: draw.compatibility_groups.iter().map(ToString::to_string).collect(),
    }
}

fn taint(taint: &read::DeviceTaint) -> templates::DeviceTaint {
    templates::DeviceTaint {
        key: taint.key.to_string(),
        value: Some(taint.value.to_string()).filter(|value| !value.is_empty()),
        effect: taint.effect.as_str().to_owned(),
    }
}

fn node_allocatable(resource: &read::NodeAllocatable) -> templates::NodeAllocatableResource {
    let mapping = resource.mapping.as_ref().map(|mapping| match mapping {
        read::NodeAllocatableMapping::Capacity { key, multiplier } => templates::NodeAllocatableMapping {
            capacity_key: Some(key.to_string()),
            capacity_multiplier: Some(quantity(*multiplier)),
            device_multiplier: None,
        },
        read::NodeAllocatableMapping::Device { multiplier } => templates::NodeAllocatableMapping {
            capacity_key: None,
            capacity_multiplier: None,
            device_multiplier: Some(quantity(*multiplier)),
        },
    });
    let overhead = resource.overhead.as_ref().map(|overhead| templates::NodeAllocatableOverhead {
        per_container: overhead.per_container.map(quantity),
        per_pod: overhead.per_pod.map(quantity),
    });
    templates::NodeAllocatableResource { mapping, overhead }
}

fn mapping_of_1_36(resource: &read::NodeAllocatable) -> Option<templates::NodeAllocatableResourceMapping> {
    Some(match resource.mapping.as_ref()? {
        read::NodeAllocatableMapping::Capacity { key, multiplier } => templates::NodeAllocatableResourceMapping {
            capacity_key: Some(key.to_string()),
            allocation_multiplier: Some(quantity(*multiplier)),
        },
        read::NodeAllocatableMapping::Device { multiplier } => templates::NodeAllocatableResourceMapping {
            capacity_key: None,
            allocation_multiplier: Some(quantity(*multiplier)),
        },
    })
}
