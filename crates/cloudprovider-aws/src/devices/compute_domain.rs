//! The devices by which pods join a ComputeDomain, on every machine that has NVIDIA GPUs.

use std::sync::LazyLock;

use api::resource_slice_template::{DeviceTemplate, DynamicResources};
use serde::Deserialize;

use super::{Attributes, DeviceSet, parse, template};

static TABLE: LazyLock<Table> =
    LazyLock::new(|| parse(include_str!("../../data/devices/compute-domain.nvidia.com.yaml")));

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    driver: String,
    #[serde(rename = "seen")]
    _seen: String,
    devices: Vec<Device>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Device {
    name: String,
    attributes: Attributes,
}

/// Adds the template.
pub(super) fn add(all: &mut DynamicResources) {
    let device = |it: &Device| DeviceTemplate {
        name: it.name.clone(),
        attributes: it.attributes.clone(),
        ..DeviceTemplate::default()
    };
    let devices = TABLE.devices.iter().map(device).collect();
    all.resource_slice_templates.push(template(&TABLE.driver, DeviceSet { devices, ..DeviceSet::default() }));
}
