//! What drivers have published on nodes, held against the overlays.

use std::collections::BTreeMap;
use std::sync::Arc;

use dra_templates::Expansion;
use dra_types::{DriverName, NodeFacts, NodeScope, ResourceSlice};
use overlay::verify::{self as compare, Publication};
use serde::Serialize;

use super::objects::{Objects, World};
use super::table;

/// What was found on all nodes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Nodes whose devices an overlay or the provider describes.
    pub(super) nodes: Vec<NodeReport>,
    /// Nodes of NodePools that could not be looked at, in words.
    pub(super) unknown: Vec<String>,
}

/// What was found on a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeReport {
    node: String,
    instance_type: String,
    drivers: Vec<DriverReport>,
}

/// What a driver has made of a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DriverReport {
    driver: String,
    state: State,
    /// What is not as described, in words; nothing is held against a description before all of it is there.
    differences: Vec<String>,
}

/// How a driver stands to what is said of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum State {
    NotPublished,
    Incomplete,
    Different,
    AsDescribed,
}

impl Report {
    /// Whether nothing differs, and every driver has published.
    pub(super) fn is_as_described(&self) -> bool {
        let mut drivers = self.nodes.iter().flat_map(|node| &node.drivers);
        drivers.all(|driver| driver.state == State::AsDescribed) && self.unknown.is_empty()
    }
}

/// Looks at every node of the input, or one.
pub(super) fn verify(objects: &Objects, world: &World, only: Option<&str>) -> Report {
    let slices: Vec<&ResourceSlice> = objects.slices.iter().collect();
    let (mut nodes, mut unknown) = (Vec::new(), Vec::new());
    for (name, labels) in objects.nodes.iter().filter(|(name, _)| only.is_none_or(|only| only == name)) {
        let label = |key: &str| labels.get(key).map(String::as_str);
        let (Some(pool), Some(instance_type)) = (label(api::labels::NODEPOOL), label(api::labels::INSTANCE_TYPE))
        else {
            continue;
        };
        let Some((_, types)) = world.pools().find(|(name, _)| *name == pool) else { continue };
        let Some(described) = types.iter().find(|it| it.name == *instance_type) else {
            unknown.push(format!(
                "node/{name}: instance type {instance_type} is not known; --instance-types names a file that has it"
            ));
            continue;
        };
        let Ok(expansion) = Expansion::new(&described.dynamic_resources, &|key| labels.get(key).cloned()) else {
            continue;
        };
        if expansion.is_empty() {
            continue;
        }
        let facts = facts(name, labels);
        let is_here = |scope: &NodeScope| facts.is_in(scope).unwrap_or(false);
        let differences = compare::verify(&expansion, &slices, &is_here);
        let report = |driver: DriverName| {
            let of_driver = || differences.iter().filter(|difference| difference.driver == driver);
            let state = match compare::publication(&expansion, &driver, &slices, &is_here) {
                Publication::Nothing => State::NotPublished,
                Publication::Incomplete => State::Incomplete,
                Publication::Complete if of_driver().next().is_some() => State::Different,
                Publication::Complete => State::AsDescribed,
            };
            // Of a driver that is not ready everything would be missing.
            let told = of_driver().filter(|_| state == State::Different).map(ToString::to_string).collect();
            DriverReport { driver: driver.to_string(), state, differences: told }
        };
        let drivers = expansion.device_counts().into_keys().map(report).collect();
        nodes.push(NodeReport { node: name.clone(), instance_type: instance_type.to_owned(), drivers });
    }
    Report { nodes, unknown }
}

/// What is known of a node.
pub(super) fn facts(name: &str, labels: &BTreeMap<String, String>) -> NodeFacts {
    NodeFacts {
        name: Some(name.into()),
        labels: labels.iter().map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value.as_str()))).collect(),
        ..NodeFacts::default()
    }
}

/// A line for each node and driver, then the differences.
pub(super) fn table(report: &Report) -> String {
    if report.nodes.is_empty() {
        return "No node's devices are described.\n".to_owned();
    }
    let mut table = table::new(&["NODE", "INSTANCE TYPE", "DRIVER", "STATE"]);
    for node in &report.nodes {
        let (mut name, mut instance_type) = (node.node.as_str(), node.instance_type.as_str());
        for driver in &node.drivers {
            let state = match driver.state {
                State::NotPublished => "has not published".to_owned(),
                State::Incomplete => "a pool is incomplete".to_owned(),
                State::Different => crate::cli::report::plural(driver.differences.len(), "difference", "differences"),
                State::AsDescribed => "as described".to_owned(),
            };
            table.add_row([name, instance_type, &driver.driver, &state]);
            (name, instance_type) = ("", "");
        }
    }
    let mut text = table::text(&table);
    for node in &report.nodes {
        let differences: Vec<&String> = node.drivers.iter().flat_map(|driver| &driver.differences).collect();
        if !differences.is_empty() {
            text.push_str(&format!("\n{}\n", node.node));
        }
        differences.iter().for_each(|difference| text.push_str(&format!("  {difference}\n")));
    }
    text
}
