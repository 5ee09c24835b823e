//! What drivers have published on nodes, held against the overlays.

use std::collections::BTreeMap;
use std::sync::Arc;

use dra_sched::NodeFacts;
use dra_sched::types::{DriverName, NodeScope, ResourceSlice};
use overlay::Expansion;
use overlay::verify::{self as compare, Publication};

use super::objects::{Objects, World};
use super::table;

/// What was found on all nodes.
#[derive(Debug)]
pub(super) struct Report {
    /// Nodes whose devices an overlay or the provider describes.
    pub(super) nodes: Vec<NodeReport>,
    /// Nodes of NodePools that could not be looked at, in words.
    pub(super) unknown: Vec<String>,
}

/// What was found on a node.
#[derive(Debug)]
pub(super) struct NodeReport {
    name: String,
    instance_type: String,
    drivers: Vec<(DriverName, Publication)>,
    differences: Vec<String>,
}

impl Report {
    /// Whether nothing differs, and every driver has published.
    pub(super) fn is_as_described(&self) -> bool {
        let all = self.nodes.iter().all(|node| {
            node.differences.is_empty() && node.drivers.iter().all(|(_, state)| *state == Publication::Complete)
        });
        all && self.unknown.is_empty()
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
        let drivers = expansion.device_counts().into_keys().map(|driver| {
            let state = compare::publication(&expansion, &driver, &slices, &is_here);
            (driver, state)
        });
        let drivers: Vec<_> = drivers.collect();
        let complete =
            |driver: &DriverName| drivers.iter().any(|(name, state)| name == driver && *state == Publication::Complete);
        let differences = compare::verify(&expansion, &slices, &is_here);
        // Of a driver that is not ready everything would be missing.
        let differences = differences.iter().filter(|it| complete(&it.driver)).map(ToString::to_string).collect();
        nodes.push(NodeReport { name: name.clone(), instance_type: instance_type.to_owned(), drivers, differences });
    }
    Report { nodes, unknown }
}

fn facts(name: &str, labels: &BTreeMap<String, String>) -> NodeFacts {
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
        let (mut name, mut instance_type) = (node.name.as_str(), node.instance_type.as_str());
        for (driver, state) in &node.drivers {
            let prefix = format!("{driver}: ");
            let count = node.differences.iter().filter(|difference| difference.starts_with(&prefix)).count();
            let state = match state {
                Publication::Nothing => "has not published".to_owned(),
                Publication::Incomplete => "a pool is incomplete".to_owned(),
                Publication::Complete if count == 0 => "as described".to_owned(),
                Publication::Complete => crate::cli::report::plural(count, "difference", "differences"),
            };
            table.add_row([name, instance_type, driver.as_str(), &state]);
            (name, instance_type) = ("", "");
        }
    }
    let mut text = table::text(&table);
    for node in report.nodes.iter().filter(|node| !node.differences.is_empty()) {
        text.push_str(&format!("\n{}\n", node.name));
        for difference in &node.differences {
            text.push_str(&format!("  {difference}\n"));
        }
    }
    text
}
