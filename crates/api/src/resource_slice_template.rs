//! What a DRA driver will publish on a machine that does not exist yet.
//!
//! A template describes a set of devices, not one ResourceSlice: devices may be replicated, and how they are cut into
//! slices is the driver's business. Fields that cannot be known before the machine exists (`nodeName`, `pool`,
//! generations, `timeAdded`) do not exist here. All else mirrors `resource.k8s.io/v1`.
//!
//! NodeOverlays carry them, and cloud providers hand them out with their instance types.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{NodeSelectorRequirement, QuantityString, open_enum::open_enum};

/// The devices of machines, and which of their attributes are equal although unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DynamicResources {
    /// Sets of devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_slice_templates: Vec<ResourceSliceTemplate>,
    /// Devices that will share a value that is unknown before launch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attribute_bindings: Vec<AttributeBinding>,
    /// The drivers of the templates, as far as more is known of them than their devices. At most one entry a driver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<DescribedDriver>,
}

impl DynamicResources {
    /// Whether there is neither a template nor a binding.
    pub fn is_empty(&self) -> bool {
        self.resource_slice_templates.is_empty() && self.attribute_bindings.is_empty()
    }
}

/// A driver whose devices templates describe.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DescribedDriver {
    /// The driver's name, as templates give it.
    pub name: String,
    /// The DaemonSet that runs the driver. Only used to say when none of its pods could run on machines with the
    /// devices; nothing else depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon_set: Option<DriverDaemonSet>,
}

/// Which DaemonSets run a driver: the one of a name, or all whose pods have certain labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DriverDaemonSet {
    /// The namespace; any if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The DaemonSet's name. Not together with `matchLabels`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels of the DaemonSet's pods. Not together with `name`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
}

/// A set of devices of one driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceSliceTemplate {
    /// The template's name, which bindings refer to.
    pub metadata: ResourceSliceTemplateMetadata,
    /// The devices.
    pub spec: ResourceSliceTemplateSpec,
}

/// Names a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceSliceTemplateMetadata {
    /// Unique among the templates beside it.
    pub name: String,
}

/// A driver's devices and who can use them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceSliceTemplateSpec {
    /// The driver that publishes the devices.
    pub driver: String,
    /// Tells pools of one driver with equal node selection apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_suffix: Option<String>,
    /// Whether each machine brings its own devices, which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// The nodes that can use the devices. With none of `nodeSelector`, `allNodes` and `perDeviceNodeSelection`, only
    /// the machine itself can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelectorTemplate>,
    /// Every node can use the devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_nodes: Option<bool>,
    /// Each device says who can use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_device_node_selection: Option<bool>,
    /// The devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceTemplate>,
    /// Counters that devices of the same pool consume from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_counters: Vec<CounterSet>,
}

open_enum! {
    /// To what a template's devices belong.
    pub enum Scope {
        /// Each machine brings its own; they come and go with it.
        Machine,
        /// There is one set for each domain that the node selector yields, however many machines are in it.
        Domain,
    }
}

/// Selects nodes, partly by what the publishing machine is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSelectorTemplate {
    /// Exactly one term, as in a ResourceSlice.
    pub node_selector_terms: Vec<NodeSelectorTermTemplate>,
}

/// A term of a node selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSelectorTermTemplate {
    /// Labels in which a node must equal the machine that publishes the devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_label_keys: Vec<String>,
    /// Requirements on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
    /// Requirements on fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_fields: Vec<NodeSelectorRequirement>,
}

/// One device, or several that differ only in an index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceTemplate {
    /// Name of the device; with replicas it contains `{index}`.
    pub name: String,
    /// How many devices, numbered from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// The instance type's label that says how many devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas_from_label: Option<String>,
    /// Attributes by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, DeviceAttribute>,
    /// Capacities by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, DeviceCapacity>,
    /// What the device takes from shared counters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consumes_counters: Vec<DeviceCounterConsumption>,
    /// The nodes that can use the device, where the template leaves it to each device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelectorTemplate>,
    /// Every node can use the device, where the template leaves it to each device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_nodes: Option<bool>,
    /// Taints of the device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<DeviceTaint>,
    /// Using the device ties the claim to the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binds_to_node: Option<bool>,
    /// Conditions that must be true of the device before a pod is bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binding_conditions: Vec<String>,
    /// Conditions that make binding fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binding_failure_conditions: Vec<String>,
    /// Several claims may use the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_multiple_allocations: Option<bool>,
    /// Node resources that the device takes, in the shape of Kubernetes 1.37.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_allocatable_resources: BTreeMap<String, NodeAllocatableResource>,
    /// Node resources that the device takes, in the shape of Kubernetes 1.36.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_allocatable_resource_mappings: BTreeMap<String, NodeAllocatableResourceMapping>,
}

/// The value of an attribute; exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceAttribute {
    /// A truth value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bool: Option<bool>,
    /// An integer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub int: Option<IntOrIndex>,
    /// A text; it may contain `{index}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub string: Option<String>,
    /// A semantic version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Truth values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bools: Option<Vec<bool>>,
    /// Integers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ints: Option<Vec<IntOrIndex>>,
    /// Texts; they may contain `{index}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strings: Option<Vec<String>>,
    /// Semantic versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Vec<String>>,
}

/// An integer, or a text such as `{index}` that becomes one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrIndex {
    /// The integer itself.
    Int(i64),
    /// A text that contains `{index}`.
    Index(String),
}

impl JsonSchema for IntOrIndex {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "IntOrIndex".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "x-kubernetes-int-or-string": true })
    }
}

/// How much of something a device has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceCapacity {
    /// All of it.
    pub value: QuantityString,
    /// What claims may ask for, where several may use the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_policy: Option<CapacityRequestPolicy>,
}

/// What claims may ask of a capacity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CapacityRequestPolicy {
    /// What a claim gets that asks for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<QuantityString>,
    /// Amounts that a claim may get; what it asks for is rounded up to one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub valid_values: Vec<QuantityString>,
    /// Range of what a claim may get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_range: Option<CapacityRequestPolicyRange>,
}

/// A range of amounts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CapacityRequestPolicyRange {
    /// The least.
    pub min: QuantityString,
    /// The most; all of the capacity where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<QuantityString>,
    /// What is asked for is rounded up to `min` plus a multiple of this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<QuantityString>,
}

/// A named set of counters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CounterSet {
    /// Unique in the pool; with replicas it contains `{index}`.
    pub name: String,
    /// How many such sets, numbered from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// The instance type's label that says how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas_from_label: Option<String>,
    /// Counters by name.
    pub counters: BTreeMap<String, Counter>,
}

/// A counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Counter {
    /// How much there is, or is taken.
    pub value: QuantityString,
}

/// What a device takes from one set of counters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceCounterConsumption {
    /// Name of the set.
    pub counter_set: String,
    /// Amounts by counter.
    pub counters: BTreeMap<String, Counter>,
    /// Only devices that have a group in common may be in use at once (Kubernetes 1.37).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compatibility_groups: Vec<String>,
}

/// A taint of a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceTaint {
    /// The taint's key.
    pub key: String,
    /// The taint's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// `NoSchedule`, `NoExecute` or `None`.
    pub effect: String,
}

/// How much of a node resource a device takes (Kubernetes 1.37).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeAllocatableResource {
    /// What the device itself takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<NodeAllocatableMapping>,
    /// What is taken beside it for those who use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<NodeAllocatableOverhead>,
}

/// How an allocation turns into an amount of a node resource (Kubernetes 1.37).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeAllocatableMapping {
    /// The capacity whose allocated amount counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_key: Option<String>,
    /// Factor on that amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_multiplier: Option<QuantityString>,
    /// Amount for each device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_multiplier: Option<QuantityString>,
}

/// What the users of a device take of a node resource (Kubernetes 1.37).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeAllocatableOverhead {
    /// Amount for each container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_container: Option<QuantityString>,
    /// Amount for each pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_pod: Option<QuantityString>,
}

/// How an allocation turns into an amount of a node resource (Kubernetes 1.36).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeAllocatableResourceMapping {
    /// The capacity whose allocated amount counts; the number of devices where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_key: Option<String>,
    /// Factor on that amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_multiplier: Option<QuantityString>,
}

/// Devices that will share a value that is unknown before launch, such as the PCIe root they sit on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttributeBinding {
    /// The attributes that have one value across the devices of a group.
    pub attributes: Vec<String>,
    /// With `{index}`: whether values of different groups differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct_groups: Option<bool>,
    /// The devices; with `{index}` there is one group for each index that all selectors have.
    pub device_selectors: Vec<DeviceSelector>,
}

/// Selects devices of one template by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceSelector {
    /// Name of the template.
    pub resource_slice_template: String,
    /// Name of the device; it may contain `{index}`.
    pub device: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_read_and_write_the_fields_of_the_api() {
        let json = serde_json::json!({
            "resourceSliceTemplates": [{
                "metadata": {"name": "gpus"},
                "spec": {
                    "driver": "gpu.example.com",
                    "scope": "Domain",
                    "nodeSelector": {"nodeSelectorTerms": [{"matchLabelKeys": ["topology.kubernetes.io/zone"]}]},
                    "devices": [{
                        "name": "gpu-{index}",
                        "replicasFromLabel": "example.com/gpu-count",
                        "attributes": {"model": {"string": "x1"}, "index": {"int": "{index}"}, "numa": {"int": 1}},
                        "capacity": {"memory": {"value": "80Gi"}},
                        "consumesCounters": [{"counterSet": "all", "counters": {"memory": {"value": "1Gi"}}}]
                    }],
                    "sharedCounters": [{"name": "all", "counters": {"memory": {"value": "80Gi"}}}]
                }
            }],
            "attributeBindings": [{
                "attributes": ["resource.kubernetes.io/pcieRoot"],
                "distinctGroups": true,
                "deviceSelectors": [{"resourceSliceTemplate": "gpus", "device": "gpu-{index}"}]
            }],
            "drivers": [{
                "name": "gpu.example.com",
                "daemonSet": {"namespace": "gpu-system", "matchLabels": {"app": "gpu-driver"}}
            }]
        });
        let parsed: DynamicResources = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&parsed).unwrap(), json);
        let device = &parsed.resource_slice_templates[0].spec.devices[0];
        assert_eq!(device.attributes["index"].int, Some(IntOrIndex::Index("{index}".to_owned())));
    }

    #[test]
    fn what_cannot_be_known_before_launch_is_refused_by_name() {
        let spec = serde_json::json!({"driver": "gpu.example.com", "nodeName": "a"});
        let error = serde_json::from_value::<ResourceSliceTemplateSpec>(spec).unwrap_err().to_string();
        assert!(error.contains("nodeName"), "{error}");
    }
}
