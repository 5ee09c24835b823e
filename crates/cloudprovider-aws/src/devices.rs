//! What DRA drivers will publish on a machine of EC2, from the tables in `data/devices`.
//!
//! Only what was seen on real machines is there, each entry with where. A root that nobody has seen is left out, so
//! that a claim which needs it is refused rather than planned on a guess; a value that is one for all devices of a
//! machine but not known before launch is an attribute binding.

mod neuron;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use api::resource_slice_template::{
    AttributeBinding, DeviceAttribute, DeviceCapacity, DeviceSelector, DeviceTemplate, DynamicResources, IntOrIndex,
    ResourceSliceTemplate, ResourceSliceTemplateMetadata, ResourceSliceTemplateSpec,
};
use api::resources::QuantityString;
use serde::Deserialize;

use crate::instance_types::info::InstanceTypeInfo;

const PCIE_ROOT: &str = "resource.kubernetes.io/pcieRoot";
/// What a kind that is for all types is `of`.
const EVERY_TYPE: &str = "*";

static GPUS: LazyLock<Table> = LazyLock::new(|| parse(include_str!("../data/devices/gpu.nvidia.com.yaml")));
static ADAPTERS: LazyLock<Table> = LazyLock::new(|| parse(include_str!("../data/devices/dra.net.yaml")));

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).expect("a test reads the built-in tables")
}

type Attributes = BTreeMap<String, DeviceAttribute>;

/// The devices of one driver.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Table {
    driver: String,
    /// Name of a device, with `{index}`.
    device: String,
    /// Attributes with one value for all devices of a machine, unknown until launch.
    #[serde(default)]
    same_on_node: Vec<String>,
    /// The attribute that tells the NUMA node, if the driver has it.
    #[serde(default)]
    numa_attribute: Option<String>,
    /// Those of every device.
    attributes: Attributes,
    kinds: Vec<Kind>,
    layouts: Vec<Layout>,
}

/// What devices are, by family or type.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    of: Vec<String>,
    #[serde(rename = "seen")]
    _seen: String,
    attributes: Attributes,
    #[serde(default)]
    memory: Option<String>,
}

/// Where devices are, by type.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Layout {
    of: Vec<String>,
    #[serde(rename = "seen")]
    _seen: String,
    /// The PCI domain, four digits.
    #[serde(default = "first_domain")]
    domain: String,
    /// How many devices are below each of the roots.
    #[serde(default = "one")]
    each: usize,
    /// Bus numbers.
    roots: Vec<String>,
    /// NUMA nodes of the roots; empty where the machine tells none.
    #[serde(default)]
    numa: Vec<i64>,
}

fn first_domain() -> String {
    "0000".to_owned()
}

fn one() -> usize {
    1
}

/// What drivers will publish on a machine of this type to which `adapters` Elastic Fabric Adapters are attached.
pub fn dynamic_resources(info: &InstanceTypeInfo, adapters: u32) -> DynamicResources {
    let mut all = DynamicResources::default();
    let gpus = info.gpu_info.iter().flat_map(|gpus| &gpus.gpus);
    let gpus: u32 = gpus.map(|gpu| gpu.logical_gpu_count.unwrap_or(gpu.count)).sum();
    GPUS.add(&mut all, info, gpus, |_| Attributes::new());
    let groups = neuron::groups_of_adapters(&info.instance_type);
    ADAPTERS.add(&mut all, info, adapters, |index| groups.get(index).cloned().unwrap_or_default());
    neuron::add(&mut all, info);
    all
}

impl Table {
    /// Adds the template of `count` devices, with further attributes by index.
    fn add(
        &self,
        all: &mut DynamicResources,
        info: &InstanceTypeInfo,
        count: u32,
        further: impl Fn(usize) -> Attributes,
    ) {
        let name = info.instance_type.as_str();
        let family = info.family_and_size().map_or(name, |(family, _)| family);
        let is_of = |of: &String| of == name || of == family || of == EVERY_TYPE;
        let Some(kind) = self.kinds.iter().find(|kind| kind.of.iter().any(is_of)).filter(|_| count > 0) else { return };
        let layout = self.layouts.iter().find(|layout| layout.of.iter().any(|of| of == name));
        let device = |index: usize| {
            let mut attributes = self.attributes.clone();
            attributes.extend(kind.attributes.clone());
            attributes.extend(layout.into_iter().flat_map(|layout| self.place(layout, index)));
            attributes.extend(further(index));
            let memory = kind.memory.as_deref().map(|memory| ("memory".to_owned(), capacity(memory)));
            DeviceTemplate {
                name: self.device.replace("{index}", &index.to_string()),
                attributes,
                capacity: memory.into_iter().collect(),
                ..DeviceTemplate::default()
            }
        };
        let devices: Vec<_> = (0..count as usize).map(device).collect();
        self.bind(all, &devices);
        all.resource_slice_templates.push(template(&self.driver, devices));
    }

    /// The root of a device, and its NUMA node where the driver tells it.
    fn place(&self, layout: &Layout, index: usize) -> Vec<(String, DeviceAttribute)> {
        let at = index / layout.each.max(1);
        let root = layout.roots.get(at).map(|bus| (PCIE_ROOT.to_owned(), text(&format!("pci{}:{bus}", layout.domain))));
        let numa = self.numa_attribute.clone().zip(layout.numa.get(at).copied().map(integer));
        root.into_iter().chain(numa).collect()
    }

    /// One device alone shares nothing.
    fn bind(&self, all: &mut DynamicResources, devices: &[DeviceTemplate]) {
        if self.same_on_node.is_empty() || devices.len() < 2 {
            return;
        }
        let selector = |device: &DeviceTemplate| DeviceSelector {
            resource_slice_template: self.driver.clone(),
            device: device.name.clone(),
        };
        all.attribute_bindings.push(AttributeBinding {
            attributes: self.same_on_node.iter().map(|attribute| format!("{}/{attribute}", self.driver)).collect(),
            distinct_groups: None,
            device_selectors: devices.iter().map(selector).collect(),
        });
    }
}

/// A template is named by its driver: a machine has one of each.
fn template(driver: &str, devices: Vec<DeviceTemplate>) -> ResourceSliceTemplate {
    ResourceSliceTemplate {
        metadata: ResourceSliceTemplateMetadata { name: driver.to_owned() },
        spec: ResourceSliceTemplateSpec {
            driver: driver.to_owned(),
            pool_suffix: None,
            scope: None,
            node_selector: None,
            all_nodes: None,
            per_device_node_selection: None,
            devices,
            shared_counters: Vec::new(),
        },
    }
}

fn text(value: &str) -> DeviceAttribute {
    DeviceAttribute { string: Some(value.to_owned()), ..DeviceAttribute::default() }
}

fn integer(value: i64) -> DeviceAttribute {
    DeviceAttribute { int: Some(IntOrIndex::Int(value)), ..DeviceAttribute::default() }
}

fn capacity(value: &str) -> DeviceCapacity {
    DeviceCapacity { value: QuantityString::from(value), request_policy: None }
}

#[cfg(test)]
mod tests;
