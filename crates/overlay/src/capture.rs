//! A NodeOverlay from what drivers have published on one machine: where an author starts.
//!
//! What describes the machine's type is kept, what only this machine has is left out, and what only this machine has
//! but several of its devices share becomes an attribute binding ([`identity`] has the rule). Numbered devices that
//! differ in nothing but their number become replicas ([`numbering`]). Templates expanded for the machine match the
//! slices they come from; where a template cannot say something, a note tells so.
//!
//! Left out: what other machines of the type would have in common beyond this one. The author reads what comes out.

use std::collections::{BTreeMap, BTreeSet};

use api::resource_slice_template::{ResourceSliceTemplate, ResourceSliceTemplateMetadata, ResourceSliceTemplateSpec};
use api::{DynamicResources, NodeOverlay, NodeOverlaySpec, NodeSelectorRequirement, Operator, labels};
use dra_types::ResourceSlice;
use thiserror::Error as ThisError;

mod bindings;
mod identity;
mod numbering;
mod pools;
mod write;

use numbering::Entry;

/// Stands for the instance type where nothing says it. No machine has such a type, and `dovetail overlay lint` asks for
/// a real one.
pub const PLACEHOLDER_INSTANCE_TYPE: &str = "replace-with-the-instance-type";

/// As in the CRD.
const MAX_TEMPLATES: usize = 16;
const MAX_DEVICES_OF_TEMPLATE: usize = 128;
const MAX_COUNTER_SETS_OF_TEMPLATE: usize = 64;

/// What is captured.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The Node's name.
    pub node_name: &'a str,
    /// The Node's labels; [`implied_labels`] where nothing is known of it.
    pub labels: &'a BTreeMap<String, String>,
    /// Slices of any node and driver.
    pub slices: &'a [&'a ResourceSlice],
    /// Labels that every machine of the Node's instance type has, as far as they are known.
    pub label_of_type: &'a dyn Fn(&str) -> Option<String>,
    /// Only this driver's.
    pub driver: Option<&'a str>,
    /// Attributes that the author wants left out too, by their names with or without domain.
    pub without: &'a [String],
}

/// The result of a capture.
#[derive(Debug, Clone, PartialEq)]
pub struct Captured {
    /// The overlay. It has not been read by a person yet.
    pub overlay: NodeOverlay,
    /// What its author should know.
    pub notes: Vec<String>,
}

/// Why there is no overlay.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Error {
    /// Nothing to describe.
    #[error("node {node}: no driver{} has published a complete pool of devices there{}", of_driver(.driver.as_deref()), told(.notes))]
    Nothing {
        /// The node.
        node: String,
        /// The driver that was asked for.
        driver: Option<String>,
        /// What was left out, and why.
        notes: Vec<String>,
    },
    /// More than an overlay can hold.
    #[error(
        "node {node}: its devices need {templates} ResourceSliceTemplates, and an overlay holds {MAX_TEMPLATES}; capture \
         one driver at a time"
    )]
    TooMany {
        /// The node.
        node: String,
        /// How many.
        templates: usize,
    },
}

fn of_driver(driver: Option<&str>) -> String {
    driver.map(|driver| format!(" {driver}")).unwrap_or_default()
}

fn told(notes: &[String]) -> String {
    if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) }
}

/// Writes an overlay for machines like one that runs.
///
/// # Errors
/// If there is nothing to write, or too much.
pub fn capture(source: &Source<'_>) -> Result<Captured, Error> {
    let mut notes = Vec::new();
    let mut pools = pools::of_machine(source, &mut notes);
    if pools.is_empty() {
        return Err(Error::Nothing {
            node: source.node_name.to_owned(),
            driver: source.driver.map(str::to_owned),
            notes,
        });
    }
    pools.iter_mut().for_each(numbering::put_in_order);
    let bound = identity::separate(&mut pools, source, &mut notes);
    let mut resources = DynamicResources::default();
    let mut placed = Vec::new();
    for pool in &pools {
        let entries = numbering::entries(pool, source);
        placed.push(add_templates(&mut resources, pool, entries));
    }
    let templates = resources.resource_slice_templates.len();
    if templates > MAX_TEMPLATES {
        return Err(Error::TooMany { node: source.node_name.to_owned(), templates });
    }
    resources.attribute_bindings = bindings::write(&bound, &placed);
    let instance_type = source.labels.get(labels::INSTANCE_TYPE).map(String::as_str);
    if instance_type.is_none() {
        notes.push(format!("the instance type is not known: put it in place of {PLACEHOLDER_INSTANCE_TYPE}"));
    }
    let requirement = NodeSelectorRequirement {
        key: labels::INSTANCE_TYPE.to_owned(),
        operator: Operator::In,
        values: vec![instance_type.unwrap_or(PLACEHOLDER_INSTANCE_TYPE).to_owned()],
    };
    let name = object_name(&format!("{}-devices", instance_type.unwrap_or(source.node_name)));
    let spec = NodeOverlaySpec {
        requirements: vec![requirement],
        price_adjustment: None,
        price: None,
        capacity: None,
        dynamic_resources: Some(resources),
        weight: None,
    };
    Ok(Captured { overlay: NodeOverlay::new(&name, spec), notes })
}

/// The labels of a machine that reaches all of these slices, as far as their selectors tell. For slices whose Node is
/// not known.
#[must_use]
pub fn implied_labels(slices: &[&ResourceSlice]) -> BTreeMap<String, String> {
    pools::implied_labels(slices)
}

/// The entry that describes a device of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Placed {
    template: String,
    /// The entry's name, with `{index}` if it is one of several.
    entry: String,
    /// Its number, and how many there are.
    number: Option<(usize, usize)>,
    name: String,
}

/// Adds a pool's templates, and says which entry describes each of its devices.
fn add_templates(resources: &mut DynamicResources, pool: &pools::Draft, entries: numbering::Entries) -> Vec<Placed> {
    let mut placed = Vec::new();
    let mut sets = entries.counter_sets.chunks(MAX_COUNTER_SETS_OF_TEMPLATE);
    let mut devices = entries.devices.chunks(MAX_DEVICES_OF_TEMPLATE);
    loop {
        let (sets, devices) = (sets.next().unwrap_or_default(), devices.next().unwrap_or_default());
        if sets.is_empty() && devices.is_empty() {
            return placed;
        }
        let name = template_name(resources, pool);
        for Entry { template, names } in devices {
            let numbered = template.replicas.is_some() || template.replicas_from_label.is_some();
            placed.extend(names.iter().enumerate().map(|(number, device)| Placed {
                template: name.clone(),
                entry: template.name.clone(),
                number: numbered.then_some((number, names.len())),
                name: device.clone(),
            }));
        }
        resources.resource_slice_templates.push(ResourceSliceTemplate {
            metadata: ResourceSliceTemplateMetadata { name },
            spec: ResourceSliceTemplateSpec {
                driver: pool.driver.to_string(),
                pool_suffix: pool.suffix.clone(),
                scope: pool.scope.clone(),
                node_selector: pool.node_selector.clone(),
                all_nodes: pool.all_nodes.then_some(true),
                per_device_node_selection: pool.per_device.then_some(true),
                devices: devices.iter().map(|entry| entry.template.clone()).collect(),
                shared_counters: sets.to_vec(),
            },
        });
    }
}

/// The first word of the driver's name, numbered from the second on.
fn template_name(resources: &DynamicResources, pool: &pools::Draft) -> String {
    let taken: BTreeSet<&str> =
        resources.resource_slice_templates.iter().map(|template| template.metadata.name.as_str()).collect();
    let word = pool.driver.as_str().split('.').next().unwrap_or_default();
    unique(&label(word, "devices"), &|name| taken.contains(name))
}

/// A name, with a number if it is taken.
fn unique(name: &str, is_taken: &dyn Fn(&str) -> bool) -> String {
    if !is_taken(name) {
        return name.to_owned();
    }
    let numbered = (2..).map(|number: usize| format!("{name}-{number}"));
    numbered.take(4096).find(|name| !is_taken(name)).unwrap_or_else(|| name.to_owned())
}

/// A text as a DNS label, short enough for a number behind it.
fn label(text: &str, otherwise: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let kept: String = lower.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '-' }).take(56).collect();
    let kept = kept.trim_matches('-');
    if kept.is_empty() { otherwise.to_owned() } else { kept.to_owned() }
}

fn object_name(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let kept: String =
        lower.chars().map(|it| if it.is_ascii_alphanumeric() || it == '.' { it } else { '-' }).take(200).collect();
    kept.trim_matches(['-', '.']).replace("..", ".").replace(".-", "-").replace("-.", "-")
}

#[cfg(test)]
mod tests;
