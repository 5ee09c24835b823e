//! Everything that is said of the devices of one instance type, by whom, and whether it agrees: the provider's
//! templates, overlays, generated ones among them, and what machines of the type have published.

use std::collections::{BTreeMap, BTreeSet};

use api::DynamicResources;
use cloudprovider::InstanceType;
use dra_templates::Expansion;
use dra_templates::layout::{self, Host};
use dra_types::{DriverName, NodeFacts, ResourceSlice};
use overlay::evaluate::retain_drivers;
use overlay::learn;
use overlay::verify::{self as compare, What};
use serde::Serialize;
use serde_json::Value;

use super::objects::{GivenOverlay, Objects, World};
use super::{render, table, verify};

/// What is said of one driver on the type, in one NodePool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Said {
    node_pool: String,
    driver: String,
    /// First who is believed, then the provider and the overlays by name, then machines by name.
    sources: Vec<Source>,
}

/// Who says something of a driver's devices.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    from: String,
    devices: usize,
    verdict: Verdict,
    /// The first thing in which it differs from what is planned with.
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<String>,
}

/// How a source stands to what is planned with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Verdict {
    Used,
    Agrees,
    Differs,
}

impl Said {
    /// Whether nobody differs.
    pub(super) fn is_agreed(&self) -> bool {
        self.sources.iter().all(|source| source.verdict != Verdict::Differs)
    }
}

/// What is said of an instance type, by NodePool and driver.
pub(super) fn why(objects: &Objects, world: &World, name: &str) -> Vec<Said> {
    let mut said = Vec::new();
    let alone: Vec<_> = world.overlays.iter().map(|overlay| (overlay, world.alone(overlay, objects))).collect();
    for (place, (node_pool, types)) in world.pools().enumerate() {
        let Some(planned) = types.iter().find(|it| it.name == *name) else { continue };
        let of_provider = world.provider_types(place, objects).iter().find(|it| it.name == *name);
        for driver in drivers(&planned.dynamic_resources) {
            let Some(used) = of_driver(planned, &planned.dynamic_resources, &driver) else { continue };
            let from = believed(&planned.dynamic_resources, &driver);
            let mut sources = vec![Source {
                from: displayed(from.as_deref(), &objects.overlays),
                devices: devices(&used),
                verdict: Verdict::Used,
                difference: None,
            }];
            let mut add = |from: Option<&str>, its: &InstanceType| {
                let its = of_driver(its, &its.dynamic_resources, &driver).filter(|its| !its.is_empty());
                let compared = its.map(|its| (difference(planned, &used, &its), devices(&its)));
                sources.extend(compared.map(|(difference, devices)| {
                    Source::compared(displayed(from, &objects.overlays), devices, difference)
                }));
            };
            if from.is_some() {
                of_provider.into_iter().for_each(|it| add(None, it));
            }
            for (overlay, evaluation) in &alone {
                let its = evaluation.pools.get(place).and_then(|pool| pool.types.iter().find(|it| it.name == *name));
                let is_its_own = |it: &&std::sync::Arc<InstanceType>| {
                    believed(&it.dynamic_resources, &driver).is_some_and(|from| *from == *overlay.name)
                };
                if from.as_deref() != Some(overlay.name.as_str())
                    && let Some(its) = its.filter(is_its_own)
                {
                    add(Some(overlay.name.as_str()), its);
                }
            }
            sources.extend(published(objects, (node_pool, name), &used, &driver));
            said.push(Said { node_pool: node_pool.to_owned(), driver: driver.to_string(), sources });
        }
    }
    said
}

impl Source {
    fn compared(from: String, devices: usize, difference: Option<String>) -> Self {
        let verdict = if difference.is_none() { Verdict::Agrees } else { Verdict::Differs };
        Self { from, devices, verdict, difference }
    }
}

/// What drivers of running machines of the type have published completely.
fn published(
    objects: &Objects,
    (node_pool, instance_type): (&str, &str),
    used: &Expansion,
    driver: &DriverName,
) -> Vec<Source> {
    let slices: Vec<&ResourceSlice> = objects.slices.iter().collect();
    let is = |labels: &BTreeMap<String, String>, key: &str, value: &str| labels.get(key).is_some_and(|it| it == value);
    let of_type = objects.nodes.iter().filter(|(_, labels)| {
        is(labels, api::labels::NODEPOOL, node_pool) && is(labels, api::labels::INSTANCE_TYPE, instance_type)
    });
    let found = of_type.filter_map(|(name, labels)| {
        let facts = verify::facts(name, labels);
        let is_here = |scope: &_| facts.is_in(scope).unwrap_or(false);
        if compare::publication(used, driver, &slices, &is_here) != compare::Publication::Complete {
            return None;
        }
        let here =
            slices.iter().filter(|slice| slice.driver == *driver && slice.node_scope.as_ref().is_some_and(is_here));
        let devices = here.map(|slice| slice.devices.len()).sum();
        let difference = compare::verify(used, &slices, &is_here).first().map(|it| in_words(&it.what));
        Some(Source::compared(format!("node/{name} (published)"), devices, difference))
    });
    let mut found: Vec<Source> = found.collect();
    found.sort_by(|a, b| a.from.cmp(&b.from));
    found
}

/// The drivers that templates are of, by name.
fn drivers(resources: &DynamicResources) -> BTreeSet<DriverName> {
    resources.resource_slice_templates.iter().map(|template| template.spec.driver.as_str().into()).collect()
}

/// The overlay whose templates are used for a driver; `None` for the provider's.
fn believed(resources: &DynamicResources, driver: &DriverName) -> Option<String> {
    let template =
        resources.resource_slice_templates.iter().find(|template| template.spec.driver == driver.as_str())?;
    template.metadata.name.split_once('/').map(|(overlay, _)| overlay.to_owned())
}

fn displayed(from: Option<&str>, overlays: &[GivenOverlay]) -> String {
    let Some(name) = from else { return "the provider".to_owned() };
    let object = overlays.iter().map(|given| &given.object).find(|it| it.metadata.name.as_deref() == Some(name));
    let learned = if object.is_some_and(learn::is_generated) { " (learned)" } else { "" };
    format!("nodeoverlay/{name}{learned}")
}

/// What templates give for one driver on a type.
fn of_driver(instance_type: &InstanceType, resources: &DynamicResources, driver: &DriverName) -> Option<Expansion> {
    let mut resources = resources.clone();
    retain_drivers(&mut resources, |it| it == driver.as_str());
    Expansion::new(&resources, &|key| instance_type.certain_label(key).map(str::to_owned)).ok()
}

fn devices(expansion: &Expansion) -> usize {
    expansion.pools.iter().map(|pool| pool.devices.len()).sum()
}

/// The first thing in which other templates differ from those that are used.
fn difference(instance_type: &InstanceType, used: &Expansion, other: &Expansion) -> Option<String> {
    let less = first_difference(instance_type, used, other).map(|what| in_words(&what));
    // What only the other has is no difference to who looks for what is used.
    less.or_else(|| Some(more_in_words(&first_difference(instance_type, other, used)?)))
}

/// The first thing of a description that another one, published, would not have.
fn first_difference(instance_type: &InstanceType, wanted: &Expansion, other: &Expansion) -> Option<What> {
    let label = |key: &str| instance_type.certain_label(key).map(str::to_owned);
    let other = other.clone().with_values(|group| format!("value-{group}"));
    let mut all_labels = BTreeMap::new();
    let mut slices = Vec::new();
    for pool in &other.pools {
        let labels = render::shown_labels(pool, &label);
        let host = Host { node_name: render::NODE, labels: &labels };
        slices.extend(layout::slices(pool, host).unwrap_or_default());
        all_labels.extend(labels);
    }
    let read = |slice: &Value| ResourceSlice::from_json(slice).ok();
    let slices: Vec<ResourceSlice> = slices.iter().filter_map(read).collect();
    let facts: NodeFacts = verify::facts(render::NODE, &all_labels);
    let is_here = |scope: &_| facts.is_in(scope).unwrap_or(false);
    let differences = compare::verify(wanted, &slices.iter().collect::<Vec<_>>(), &is_here);
    differences.into_iter().next().map(|difference| difference.what)
}

/// What another source says instead of what is used.
fn in_words(what: &What) -> String {
    match what {
        What::Missing(device) => format!("device {device} is missing"),
        What::Extra(device) => format!("device {device} is one more"),
        What::Attribute { .. }
        | What::Capacity { .. }
        | What::Field { .. }
        | What::Counters(_)
        | What::Group { .. }
        | What::SameGroups { .. } => what.to_string(),
    }
}

/// What another source says beyond what is used.
fn more_in_words(what: &What) -> String {
    match what {
        What::Missing(device) => format!("device {device} is one more"),
        What::Extra(device) => format!("device {device} is missing"),
        What::Attribute { device, name, expected, .. } => {
            format!("device {device} has {expected} for attribute {name} too")
        }
        What::Capacity { device, name, expected, .. } => format!("device {device} has {expected} of {name} too"),
        What::Field { .. } | What::Counters(_) | What::Group { .. } | What::SameGroups { .. } => what.to_string(),
    }
}

/// A line for each source.
pub(super) fn lines(said: &[Said]) -> String {
    if said.is_empty() {
        return "Nobody describes devices of this instance type.\n".to_owned();
    }
    let mut table = table::new(&["NODEPOOL", "DRIVER", "FROM", "DEVICES", "PLANNED WITH"]);
    for Said { node_pool, driver, sources } in said {
        let (mut node_pool, mut driver) = (node_pool.as_str(), driver.as_str());
        for source in sources {
            let verdict = match (source.verdict, &source.difference) {
                (Verdict::Used, _) => "this".to_owned(),
                (Verdict::Agrees, _) => "agrees".to_owned(),
                (Verdict::Differs, difference) => format!("differs: {}", difference.as_deref().unwrap_or_default()),
            };
            table.add_row([node_pool, driver, &source.from, &source.devices.to_string(), &verdict]);
            (node_pool, driver) = ("", "");
        }
    }
    table::text(&table)
}
