//! What pods claim of a type's devices.

use api::resource_slice_template::DeviceTemplate;
use serde_json::{Value, json};

use super::{Target, Writer};

const GPU_DRIVER: &str = "gpu.nvidia.com";
const ADAPTER_DRIVER: &str = "dra.net";
const NEURON_DRIVER: &str = "neuron.aws.com";
const DOMAIN_DRIVER: &str = "compute-domain.nvidia.com";
const ROOT: &str = "resource.kubernetes.io/pcieRoot";

/// A class of devices, as the charts of their drivers install it.
pub(super) struct Class {
    pub(super) name: &'static str,
    driver: &'static str,
    /// The value of the attribute `type`, where that tells devices of the driver apart.
    kind: Option<&'static str>,
}

pub(super) const CLASSES: [Class; 5] = [
    Class { name: "gpu", driver: GPU_DRIVER, kind: Some("gpu") },
    Class { name: "mig", driver: GPU_DRIVER, kind: Some("mig") },
    Class { name: "efa", driver: ADAPTER_DRIVER, kind: None },
    Class { name: "neuron", driver: NEURON_DRIVER, kind: None },
    Class { name: "channel", driver: DOMAIN_DRIVER, kind: Some("channel") },
];

/// Of a device, the text of an attribute.
fn text<'d>(device: &'d DeviceTemplate, attribute: &str) -> Option<&'d str> {
    device.attributes.get(attribute)?.string.as_deref()
}

impl Target {
    /// The devices of a class.
    fn of_class(&self, class: &Class) -> Vec<&DeviceTemplate> {
        let mut devices = self.devices(class.driver);
        devices.retain(|device| class.kind.is_none_or(|kind| text(device, "type") == Some(kind)));
        devices
    }

    /// Whether some adapter is below one root with a GPU.
    fn has_aligned(&self) -> bool {
        let adapters = self.devices(ADAPTER_DRIVER);
        let roots: Vec<_> = adapters.iter().filter_map(|device| text(device, ROOT)).collect();
        self.of_class(&CLASSES[0]).iter().any(|gpu| text(gpu, ROOT).is_some_and(|root| roots.contains(&root)))
    }
}

impl Writer {
    pub(super) fn class(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    pub(super) fn device_classes(&mut self) {
        for Class { name, driver, kind } in CLASSES {
            let kind = kind.map(|kind| format!(" && device.attributes['{driver}'].type == '{kind}'"));
            let expression = format!("device.driver == '{driver}'{}", kind.unwrap_or_default());
            let class = json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": self.class(name) },
                "spec": { "selectors": [{ "cel": { "expression": expression } }] },
            });
            self.objects.push(class);
        }
    }

    pub(super) fn template(&mut self, class: u64, devices: &Value) -> String {
        let name = format!("claim-{class}");
        self.objects.push(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": { "name": name, "namespace": self.name }, "spec": { "spec": { "devices": devices } },
        }));
        name
    }

    /// An entry of a pod's claims, of what a type has; and whether all pods share it.
    pub(super) fn claim(&mut self, class: u64, target: &Target) -> (Value, bool) {
        if let Some(name) = self.shared.take().filter(|_| self.random.one_in(2)) {
            return (json!({ "name": "devices", "resourceClaimName": name }), true);
        }
        let devices = self.devices(target);
        if self.random.one_in(8) {
            let name = format!("shared-{class}");
            self.objects.push(json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": { "name": name, "namespace": self.name }, "spec": { "devices": devices },
            }));
            self.shared = Some(name.clone());
            return (json!({ "name": "devices", "resourceClaimName": name }), true);
        }
        let name = self.template(class, &devices);
        (json!({ "name": "devices", "resourceClaimTemplateName": name }), false)
    }

    pub(super) fn exactly(&self, class: &str, count: usize) -> Value {
        json!({ "deviceClassName": self.class(class), "count": count })
    }

    /// The devices of a claim that a machine of the type can meet.
    fn devices(&mut self, target: &Target) -> Value {
        let mut there: Vec<&Class> = CLASSES.iter().collect();
        there.retain(|class| !target.of_class(class).is_empty());
        let class = *self.random.pick(&there);
        let devices = target.of_class(class);
        match class.name {
            "gpu" => self.gpus(target, &devices),
            "mig" => {
                let profile = text(self.random.pick::<&DeviceTemplate>(&devices), "profile").unwrap_or_default();
                let mut exact = self.exactly("mig", 1);
                exact["selectors"] = selector(&format!("device.attributes['{GPU_DRIVER}'].profile == '{profile}'"));
                claim_of([("slice", exact)], &[])
            }
            "neuron" => self.neurons(&devices),
            "efa" => {
                let count = self.up_to(devices.len());
                claim_of([("adapters", self.exactly("efa", count))], &[])
            }
            name => claim_of([("r", self.exactly(name, 1))], &[]),
        }
    }

    /// At least one, and no more than there are.
    fn up_to(&mut self, most: usize) -> usize {
        (*self.random.pick(&[1, 1, 2, 4, 8])).min(most)
    }

    fn gpus(&mut self, target: &Target, devices: &[&DeviceTemplate]) -> Value {
        let count = self.up_to(devices.len());
        let mut exact = self.exactly("gpu", count);
        let known = |attribute: &str| text(devices[0], attribute).map(str::to_owned);
        match self.random.below(8_u32) {
            0 | 1 if target.has_aligned() => {
                let gpu = self.exactly("gpu", 1);
                return claim_of([("gpu", gpu), ("adapter", self.exactly("efa", 1))], &[(&["gpu", "adapter"], ROOT)]);
            }
            0 | 2 => {
                if let Some(product) = known("productName") {
                    exact["selectors"] =
                        selector(&format!("device.attributes['{GPU_DRIVER}'].productName == '{product}'"));
                }
            }
            3 => {
                if let Some(memory) = devices[0].capacity.get("memory") {
                    let least = &memory.value;
                    exact["selectors"] = selector(&format!(
                        "device.capacity['{GPU_DRIVER}'].memory.compareTo(quantity('{least}')) >= 0"
                    ));
                }
            }
            4 => {
                let mut alternatives = [exact, self.exactly("gpu", 1)];
                for (alternative, name) in alternatives.iter_mut().zip(["many", "one"]) {
                    alternative["name"] = json!(name);
                }
                return json!({ "requests": [{ "name": "gpus", "firstAvailable": alternatives }] });
            }
            5 => {
                // Those of a machine that has no other product.
                exact = json!({ "deviceClassName": self.class("gpu"), "allocationMode": "All" });
            }
            6 => {
                // Nobody knows the version, but it is one.
                let version = format!("{GPU_DRIVER}/driverVersion");
                return claim_of([("gpus", exact)], &[(&["gpus"], &version)]);
            }
            _ => {}
        }
        claim_of([("gpus", exact)], &[])
    }

    fn neurons(&mut self, devices: &[&DeviceTemplate]) -> Value {
        let sizes: Vec<usize> = [4, 8, 16].into_iter().filter(|size| *size <= devices.len()).collect();
        let group = |size: usize| format!("resource.aws.com/devicegroup{size}_id");
        if !sizes.is_empty() && self.random.one_in(2) {
            let size = *self.random.pick(&sizes);
            if text(devices[0], &group(size)).is_some() {
                return claim_of([("neurons", self.exactly("neuron", size))], &[(&["neurons"], &group(size))]);
            }
        }
        let count = self.up_to(devices.len());
        claim_of([("neurons", self.exactly("neuron", count))], &[])
    }
}

fn selector(expression: &str) -> Value {
    json!([{ "cel": { "expression": expression } }])
}

/// Requests by name, and the attributes that devices of some of them share.
fn claim_of<const N: usize>(requests: [(&str, Value); N], same: &[(&[&str], &str)]) -> Value {
    let requests = requests.map(|(name, exactly)| json!({ "name": name, "exactly": exactly })).to_vec();
    let constraint =
        |(requests, attribute): &(&[&str], &str)| json!({ "requests": requests, "matchAttribute": attribute });
    json!({ "requests": requests, "constraints": same.iter().map(constraint).collect::<Vec<_>>() })
}
