//! Neuron devices, and the groups in which they and the adapters beside them are near each other.
//!
//! A group of 4, 8 or 16 is devices whose index divided by that is equal; a group of 1 is an adapter with its devices.
//! The groups' values are computable before launch: that of 1 is the adapter's PCI address, the others are the first 16
//! hexadecimal digits of the SHA-256 of the distinct addresses of the group, sorted, with commas between them
//! (aws-neuron/connected-device-maps-over-efa-for-neuron). Both drivers publish the same values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use api::resource_slice_template::{DeviceTemplate, DynamicResources};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::{Attributes, DeviceSet, bind, integer, parse, template, text};
use crate::instance_types::info::InstanceTypeInfo;

const DRIVER: &str = "neuron.aws.com";
const SIZES: [usize; 3] = [4, 8, 16];

static TABLE: LazyLock<Table> = LazyLock::new(|| parse(include_str!("../../data/devices/neuron.aws.com.yaml")));

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// Families whose devices the driver publishes.
    families: BTreeSet<String>,
    /// Attributes with one value for all devices of a machine, unknown until launch.
    #[serde(rename = "sameOnNode")]
    same_on_node: Vec<String>,
    fabrics: Vec<Fabric>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Fabric {
    /// The type.
    of: String,
    #[serde(rename = "seen")]
    _seen: String,
    devices_per_adapter: usize,
    /// PCI addresses.
    adapters: Vec<String>,
}

impl Fabric {
    fn of(instance_type: &str) -> Option<&'static Self> {
        TABLE.fabrics.iter().find(|fabric| fabric.of == instance_type)
    }

    /// The groups of an adapter and of the devices beside it.
    fn groups(&self, adapter: usize) -> Attributes {
        let Some(own) = self.adapters.get(adapter) else { return Attributes::new() };
        let mut groups = BTreeMap::from([(attribute(1), text(own))]);
        for size in SIZES {
            // A group has at least one adapter: no more than two devices share one.
            let adapters = (size / self.devices_per_adapter.max(1)).max(1);
            let first = adapter / adapters * adapters;
            let members: BTreeSet<&str> = self.adapters.iter().skip(first).take(adapters).map(String::as_str).collect();
            groups.insert(attribute(size), text(&digest(&members)));
        }
        groups
    }
}

fn attribute(size: usize) -> String {
    format!("resource.aws.com/devicegroup{size}_id")
}

fn digest(addresses: &BTreeSet<&str>) -> String {
    let joined = addresses.iter().copied().collect::<Vec<_>>().join(",");
    Sha256::digest(joined).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The groups of the adapters of a type, by index; none where its fabric is not known.
pub(super) fn groups_of_adapters(instance_type: &str) -> Vec<Attributes> {
    let fabric = Fabric::of(instance_type);
    fabric.map_or_else(Vec::new, |fabric| (0..fabric.adapters.len()).map(|adapter| fabric.groups(adapter)).collect())
}

/// Adds the template of the type's devices, if the driver publishes them.
pub(super) fn add(all: &mut DynamicResources, info: &InstanceTypeInfo) {
    let kinds = info.neuron_info.iter().flat_map(|neuron| &neuron.neuron_devices);
    let count: u32 = kinds.map(|kind| kind.count).sum();
    let is_published = info.family_and_size().is_some_and(|(family, _)| TABLE.families.contains(family));
    if count == 0 || !is_published {
        return;
    }
    let fabric = Fabric::of(&info.instance_type);
    let device = |index: u32| {
        let mut attributes = BTreeMap::from([
            ("deviceId".to_owned(), integer(i64::from(index))),
            ("instanceType".to_owned(), text(&info.instance_type)),
            ("resourceType".to_owned(), text("neuron_device")),
        ]);
        if let Some(fabric) = fabric {
            attributes.extend(fabric.groups(index as usize / fabric.devices_per_adapter.max(1)));
        }
        DeviceTemplate { name: format!("neurondevice{index}"), attributes, ..DeviceTemplate::default() }
    };
    let devices: Vec<_> = (0..count).map(device).collect();
    bind(all, DRIVER, &TABLE.same_on_node, &devices);
    all.resource_slice_templates.push(template(DRIVER, DeviceSet { devices, ..DeviceSet::default() }));
}
