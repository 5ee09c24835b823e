//! Which instance types get which devices.

use std::collections::BTreeMap;

use dra_templates::Expansion;
use dra_templates::layout::{self, Host};
use dra_templates::{Nodes, Pool, PoolScope};
use serde::Serialize;
use serde_json::Value;

use super::objects::World;
use super::table;

/// The name of the machine whose slices are shown.
pub(super) const NODE: &str = "node";
/// Instance types named in a line before the rest are counted.
const NAMED_TYPES: usize = 3;

/// Instance types of one NodePool whose machines have equal devices.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rendered {
    node_pool: String,
    instance_types: Vec<String>,
    pools: Vec<RenderedPool>,
}

/// What one driver publishes in one pool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RenderedPool {
    driver: String,
    /// Templates, with the overlay that they come from before a slash; the provider's have none.
    templates: Vec<String>,
    usable_by: String,
    devices: usize,
    counter_sets: usize,
    /// Devices whose value under an attribute is unknown before launch.
    bound: usize,
    /// As the driver would publish them.
    resource_slices: Vec<Value>,
}

/// All of it, or one instance type.
pub(super) fn render(world: &World, only: Option<&str>) -> Vec<Rendered> {
    let mut rendered: Vec<(Expansion, Rendered)> = Vec::new();
    for (name, types) in world.pools() {
        for instance_type in types.iter().filter(|it| only.is_none_or(|only| it.name == *only)) {
            let label = |key: &str| instance_type.certain_label(key).map(str::to_owned);
            // What fails was rejected.
            let Ok(expansion) = Expansion::new(&instance_type.dynamic_resources, &label) else { continue };
            if expansion.is_empty() {
                continue;
            }
            let known = rendered.iter_mut().find(|(known, it)| it.node_pool == name && *known == expansion);
            match known {
                Some((_, known)) => known.instance_types.push(instance_type.name.to_string()),
                None => {
                    let pools =
                        (0..).zip(&expansion.pools).map(|(place, pool)| of_pool(&expansion, place, pool, &label));
                    let new = Rendered {
                        node_pool: name.to_owned(),
                        instance_types: vec![instance_type.name.to_string()],
                        pools: pools.collect(),
                    };
                    rendered.push((expansion, new));
                }
            }
        }
    }
    rendered.into_iter().map(|(_, rendered)| rendered).collect()
}

fn of_pool(expansion: &Expansion, place: usize, pool: &Pool, label: &dyn Fn(&str) -> Option<String>) -> RenderedPool {
    let labels = shown_labels(pool, label);
    let host = Host { node_name: NODE, labels: &labels };
    RenderedPool {
        driver: pool.driver.to_string(),
        templates: pool.templates.clone(),
        usable_by: usable_by(pool),
        devices: pool.devices.len(),
        counter_sets: pool.shared_counters.len(),
        bound: expansion.groups.iter().flat_map(|group| &group.members).filter(|(of, _)| *of == place).count(),
        resource_slices: layout::slices(pool, host).unwrap_or_default(),
    }
}

/// The labels that a pool takes from its machine. A key that is decided at launch is shown by its name.
pub(super) fn shown_labels(pool: &Pool, label: &dyn Fn(&str) -> Option<String>) -> BTreeMap<String, String> {
    let of_devices = pool.devices.iter().filter_map(|device| device.nodes.as_ref());
    let keys = of_devices.chain([&pool.nodes]).flat_map(|nodes| match nodes {
        Nodes::Selected(selection) => selection.match_label_keys.iter().collect(),
        Nodes::Host | Nodes::All | Nodes::PerDevice => Vec::new(),
    });
    keys.map(|key| (key.clone(), label(key).unwrap_or_else(|| format!("<{key}>")))).collect()
}

fn usable_by(pool: &Pool) -> String {
    let once = if pool.scope == PoolScope::Domain { ", once for all" } else { "" };
    match &pool.nodes {
        Nodes::Host => "the machine".to_owned(),
        Nodes::All => format!("every node{once}"),
        Nodes::PerDevice => "as each device says".to_owned(),
        Nodes::Selected(selection) => {
            let keys: Vec<&str> = selection.match_label_keys.iter().map(String::as_str).collect();
            let others = selection.expressions.len() + selection.fields.len();
            let mut text = "nodes".to_owned();
            if !keys.is_empty() {
                text.push_str(&format!(" of its {}", keys.join(" and ")));
            }
            if others > 0 {
                text.push_str(" that are selected");
            }
            text + once
        }
    }
}

/// A line for each pool.
pub(super) fn table(rendered: &[Rendered]) -> String {
    if rendered.is_empty() {
        return "No instance type has devices.\n".to_owned();
    }
    let mut table = table::new(&["NODEPOOL", "INSTANCE TYPES", "DRIVER", "DEVICES", "COUNTERS", "USABLE BY", "FROM"]);
    for Rendered { node_pool, instance_types, pools } in rendered {
        let types = named(instance_types);
        let (mut node_pool, mut types) = (node_pool.as_str(), types.as_str());
        for pool in pools {
            let counters = if pool.counter_sets == 0 { String::new() } else { pool.counter_sets.to_string() };
            let from = pool.templates.join(", ");
            let devices = match pool.bound {
                0 => pool.devices.to_string(),
                bound => format!("{} ({bound} bound)", pool.devices),
            };
            table.add_row([node_pool, types, &pool.driver, &devices, &counters, &pool.usable_by, &from]);
            (node_pool, types) = ("", "");
        }
    }
    table::text(&table)
}

fn named(types: &[String]) -> String {
    let shown: Vec<&str> = types.iter().take(NAMED_TYPES).map(String::as_str).collect();
    match types.len().saturating_sub(NAMED_TYPES) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
