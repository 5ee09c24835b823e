//! The machines that can be pretended: Karpenter's 144 default ones, or those of a catalogue file.
//!
//! A file is a JSON list in Karpenter's format (`instance_types.json` of its kwok provider):
//!
//! ```json
//! [{"name": "c-1x-amd64-linux", "architecture": "amd64", "operatingSystems": ["linux"],
//!   "resources": {"cpu": "1", "memory": "2Gi"},
//!   "offerings": [{"Price": 0.027, "Available": true, "Requirements": [
//!     {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
//!     {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]}]}]}]
//! ```
//!
//! Beyond it an entry may have `volumeAttachmentLimits` and `dynamicResources`. An entry that makes no sense is left
//! out; every error names the entry, the field and the reason.

mod defaults;
mod file;

use crate::names;
use std::collections::{BTreeMap, BTreeSet};

use api::resource_slice_template::DynamicResources;
use api::{labels, resources};
use cloudprovider::{InstanceType, Offering, Overhead, ResourceList};
use model::quantity::Format;
use model::{InstanceTypeName, Quantity};

pub use defaults::{DEFAULT_ZONES, default_instance_types};
pub use file::{Catalogue, Error, parse};

/// What Kubernetes lets run on a node unless told otherwise.
const DEFAULT_PODS: i64 = 110;

/// What is written down about a type; the rest follows.
struct Description {
    name: String,
    architectures: BTreeSet<String>,
    operating_systems: BTreeSet<String>,
    resources: ResourceList,
    offerings: Vec<Offering>,
    volume_attachment_limits: BTreeMap<String, u32>,
    dynamic_resources: DynamicResources,
}

impl Description {
    fn into_instance_type(self) -> InstanceType {
        let mut capacity = self.resources;
        let text = |resource: &str| capacity.get(resource).map(Quantity::to_string).unwrap_or_default();
        let (cpu, memory) = (text(resources::CPU), text(resources::MEMORY));
        let one = |value: String| BTreeSet::from([value]);
        let mut requirements = BTreeMap::from([
            (labels::INSTANCE_TYPE.to_owned(), one(self.name.clone())),
            (labels::ARCH.to_owned(), self.architectures),
            (labels::OS.to_owned(), self.operating_systems),
            (names::KWOK_INSTANCE_SIZE.to_owned(), one(size(&self.name).unwrap_or(&cpu).to_owned())),
            (names::KWOK_INSTANCE_FAMILY.to_owned(), one(family(&self.name).to_owned())),
            (names::KWOK_INSTANCE_CPU.to_owned(), one(cpu)),
            (names::KWOK_INSTANCE_MEMORY.to_owned(), one(memory)),
        ]);
        for (key, value) in self.offerings.iter().flat_map(Offering::all_labels) {
            requirements.entry(key.to_owned()).or_default().insert(value.to_owned());
        }
        capacity.entry(resources::PODS.to_owned()).or_insert_with(|| whole(DEFAULT_PODS));
        InstanceType {
            name: InstanceTypeName::from(self.name),
            requirements,
            offerings: self.offerings,
            capacity,
            overhead: overhead(),
            volume_attachment_limits: self.volume_attachment_limits,
            dynamic_resources: self.dynamic_resources,
        }
    }
}

/// What the kubelet would keep for itself: 100m CPU and 10Mi memory, whatever the type.
fn overhead() -> Overhead {
    let kube_reserved = [
        (resources::CPU.to_owned(), Quantity::from_milli(100, Format::DecimalSi)),
        (resources::MEMORY.to_owned(), binary(10 << 20)),
    ];
    Overhead { kube_reserved: kube_reserved.into(), ..Overhead::default() }
}

fn whole(amount: i64) -> Quantity {
    Quantity::from_i64(amount, Format::DecimalSi).expect("the magnitude is at most 2^63-1")
}

fn binary(amount: i64) -> Quantity {
    Quantity::from_i64(amount, Format::BinarySi).expect("the magnitude is at most 2^63-1")
}

/// The size in a name that AWS could have given: what follows the only dot in `m5.4xlarge`.
fn size(name: &str) -> Option<&str> {
    let (family, size) = name.split_once('.')?;
    let word = |text: &str| text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    let known = match size {
        "nano" | "micro" | "small" | "medium" | "large" | "metal" => true,
        _ => size.strip_suffix("xlarge").is_some_and(|count| count.bytes().all(|byte| byte.is_ascii_digit())),
    };
    (known && !family.is_empty() && word(family)).then_some(size)
}

/// What stands before the first dot or dash, or else the first letter.
fn family(name: &str) -> &str {
    match name.split_once(['.', '-']) {
        Some((family, _)) => family,
        None => name.char_indices().nth(1).and_then(|(end, _)| name.get(..end)).unwrap_or(name),
    }
}

#[cfg(test)]
mod tests;
