//! What DRA drivers will publish on a machine of EC2, from the tables in `data/devices`.
//!
//! Only what was seen on real machines is there, each entry with where. A root that nobody has seen is left out, so
//! that a claim which needs it is refused rather than planned on a guess; a value that is one for all devices of a
//! machine but not known before launch is an attribute binding.
//!
//! Differs: `ec2-device-tables`. Karpenter describes GPUs and the adapters of the same types, behind gates, and gives
//! an A100's or H100's memory as the driver tells it after it has looked at MIG profiles.

mod compute_domain;
mod neuron;
mod partitions;
mod sharing;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use api::resource_slice_template::{
    AttributeBinding, CounterSet, DeviceAttribute, DeviceCapacity, DeviceSelector, DeviceTemplate, DynamicResources,
    IntOrIndex, ResourceSliceTemplate, ResourceSliceTemplateMetadata, ResourceSliceTemplateSpec,
};
use api::resources::QuantityString;
use serde::Deserialize;

use self::partitions::Partitioning;
use crate::instance_types::drivers::{DriverSettings, Mig};
use crate::instance_types::info::InstanceTypeInfo;

const PCIE_ROOT: &str = "resource.kubernetes.io/pcieRoot";
/// What a kind that is for all types is `of`.
const EVERY_TYPE: &str = "*";

static GPUS: LazyLock<Table> = LazyLock::new(|| parse(include_str!("../data/devices/gpu.nvidia.com.yaml")));
static ADAPTERS: LazyLock<Table> = LazyLock::new(|| parse(include_str!("../data/devices/dra.net.yaml")));
static ROCE: LazyLock<Table> = LazyLock::new(|| parse(include_str!("../data/devices/dra.networking.k8s.aws.yaml")));

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
    #[serde(default)]
    layouts: Vec<Layout>,
    /// How devices can be cut.
    #[serde(default)]
    partitions: Vec<Partitioning>,
}

/// What devices are, by family or type.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    of: Vec<String>,
    #[serde(rename = "seen")]
    _seen: String,
    #[serde(default)]
    attributes: Attributes,
    #[serde(default)]
    memory: Option<String>,
    /// Attributes that they have, with one value that nobody has shown.
    #[serde(default)]
    unknown: Vec<String>,
    /// How many there are, where EC2 does not say.
    #[serde(default)]
    count: Option<u32>,
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
pub fn dynamic_resources(info: &InstanceTypeInfo, adapters: u32, drivers: &DriverSettings) -> DynamicResources {
    let mut all = DynamicResources::default();
    let gpus = info.gpu_info.iter().flat_map(|gpus| &gpus.gpus).filter(|gpu| gpu.manufacturer == "NVIDIA");
    let gpus: u32 = gpus.map(|gpu| gpu.logical_gpu_count.unwrap_or(gpu.count)).sum();
    if let Some(mut set) = GPUS.devices(info, gpus, |_| Attributes::new()) {
        if let Some(partitioning) = GPUS.partitioning(info, drivers.mig) {
            partitioning.cut(&mut set, drivers.mig);
        }
        set.devices.iter_mut().for_each(|device| sharing::share(device, drivers.sharing));
        GPUS.add(&mut all, set);
        compute_domain::add(&mut all);
    }
    let groups = neuron::groups_of_adapters(&info.instance_type);
    let efas = ADAPTERS.devices(info, adapters, |index| groups.get(index).cloned().unwrap_or_default());
    efas.into_iter().for_each(|set| ADAPTERS.add(&mut all, set));
    ROCE.devices(info, 0, |_| Attributes::new()).into_iter().for_each(|set| ROCE.add(&mut all, set));
    neuron::add(&mut all, info);
    all
}

/// Whether a driver publishes the Elastic Fabric Adapters that a launch attaches.
pub fn publishes_adapters(driver: &str) -> bool {
    driver == ADAPTERS.driver
}

/// The devices of one driver.
#[derive(Default)]
struct DeviceSet {
    devices: Vec<DeviceTemplate>,
    /// What they draw on.
    shared_counters: Vec<CounterSet>,
    /// Attributes that they have, with one value that nobody has shown.
    unknown: Vec<String>,
}

impl Table {
    /// Devices of a type: as many as the table says, else `count`, with further attributes by index; `None` where there
    /// are none.
    fn devices(&self, info: &InstanceTypeInfo, count: u32, further: impl Fn(usize) -> Attributes) -> Option<DeviceSet> {
        let name = info.instance_type.as_str();
        let kind = self.kinds.iter().find(|kind| is_of(&kind.of, info))?;
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
        let devices: Vec<_> = (0..kind.count.unwrap_or(count) as usize).map(device).collect();
        let set = DeviceSet { devices, unknown: kind.unknown.clone(), ..DeviceSet::default() };
        Some(set).filter(|set| !set.devices.is_empty())
    }

    /// How devices of a type are cut, if they can be and the driver does it.
    fn partitioning(&self, info: &InstanceTypeInfo, mig: Mig) -> Option<&Partitioning> {
        let of_type = self.partitions.iter().find(|it| is_of(&it.of, info))?;
        Some(of_type).filter(|it| it.is_done(mig))
    }

    /// Adds the template.
    fn add(&self, all: &mut DynamicResources, set: DeviceSet) {
        bind(all, &self.driver, &self.same_on_node, &set.devices);
        bind(all, &self.driver, &set.unknown, &set.devices);
        all.resource_slice_templates.push(template(&self.driver, set));
    }

    /// The root of a device, and its NUMA node where the driver tells it.
    fn place(&self, layout: &Layout, index: usize) -> Vec<(String, DeviceAttribute)> {
        let at = index / layout.each.max(1);
        let root = layout.roots.get(at).map(|bus| (PCIE_ROOT.to_owned(), text(&format!("pci{}:{bus}", layout.domain))));
        let numa = self.numa_attribute.clone().zip(layout.numa.get(at).copied().map(integer));
        root.into_iter().chain(numa).collect()
    }
}

/// Whether a table's entry is for a type, by its name, its family or for all.
fn is_of(of: &[String], info: &InstanceTypeInfo) -> bool {
    let name = info.instance_type.as_str();
    let family = info.family_and_size().map_or(name, |(family, _)| family);
    of.iter().any(|of| of == name || of == family || of == EVERY_TYPE)
}

/// Says that all devices will have one value of each of the attributes.
fn bind(all: &mut DynamicResources, driver: &str, attributes: &[String], devices: &[DeviceTemplate]) {
    if attributes.is_empty() {
        return;
    }
    let selector = |device: &DeviceTemplate| DeviceSelector {
        resource_slice_template: driver.to_owned(),
        device: device.name.clone(),
    };
    all.attribute_bindings.push(AttributeBinding {
        attributes: attributes.iter().map(|attribute| format!("{driver}/{attribute}")).collect(),
        distinct_groups: None,
        device_selectors: devices.iter().map(selector).collect(),
    });
}

/// A template is named by its driver: a machine has one of each.
fn template(driver: &str, set: DeviceSet) -> ResourceSliceTemplate {
    ResourceSliceTemplate {
        metadata: ResourceSliceTemplateMetadata { name: driver.to_owned() },
        spec: ResourceSliceTemplateSpec {
            driver: driver.to_owned(),
            pool_suffix: None,
            scope: None,
            node_selector: None,
            all_nodes: None,
            per_device_node_selection: None,
            devices: set.devices,
            shared_counters: set.shared_counters,
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
