//! Instance types for people.

use std::fmt::Write as _;

use api::labels::{CAPACITY_TYPE_ON_DEMAND, CAPACITY_TYPE_SPOT};
use api::resources::{CPU, MEMORY, PODS};
use comfy_table::Cell;
use model::price::short;
use model::quantity::Rounding;
use model::{PriceNanoUsdPerHour, Quantity};
use serde_json::Value;

use super::report::{Driver, Kind, Type};
use crate::cli::overlay::table;
use crate::cli::plan::table::right;

/// A line for each type: what pods can use of it, its least prices, its devices.
pub(super) fn list(types: &[Type]) -> String {
    let with_pools = types.iter().any(|it| it.node_pool.is_some());
    let mut headings = vec!["INSTANCE TYPE", "CPU", "MEMORY", "PODS", "ON-DEMAND", "SPOT", "ZONES", "DEVICES"];
    if with_pools {
        headings.insert(0, "NODEPOOL");
    }
    let mut lines = table::new(&headings);
    for it in types {
        let amount = |resource: &str| {
            let amount = it.allocatable.get(resource).map_or("0", String::as_str);
            right(Quantity::parse(amount).map_or_else(|_| amount.to_owned(), |it| it.readable(Rounding::Down)))
        };
        let price = |capacity_type| right(it.cheapest(capacity_type).map_or_else(|| "-".to_owned(), short));
        let mut zones: Vec<_> = it.offerings.iter().filter(|it| it.launchable).map(|it| it.zone.as_str()).collect();
        zones.sort_unstable();
        zones.dedup();
        let devices: Vec<String> = it.devices.iter().map(counted).collect();
        let mut row = vec![
            Cell::new(&it.name),
            amount(CPU),
            amount(MEMORY),
            amount(PODS),
            price(CAPACITY_TYPE_ON_DEMAND),
            price(CAPACITY_TYPE_SPOT),
            right(zones.len()),
            Cell::new(if devices.is_empty() { "-".to_owned() } else { devices.join(", ") }),
        ];
        if with_pools {
            row.insert(0, Cell::new(it.node_pool.as_deref().unwrap_or("-")));
        }
        lines.add_row(row);
    }
    table::text(&lines)
}

/// `8 of gpu.nvidia.com ($6.8800/h each)`.
fn counted(driver: &Driver) -> String {
    let each = each(driver.price_nano_usd_per_hour_each).map(|price| format!(" ({price} each)")).unwrap_or_default();
    format!("{} of {}{each}", driver.count, driver.driver)
}

fn each(price: Option<PriceNanoUsdPerHour>) -> Option<String> {
    price.map(short)
}

/// A line for each kind of device of each type: how many there are, what one costs of the machine, what it is.
pub(super) fn devices(types: &[Type]) -> String {
    let with_pools = types.iter().any(|it| it.node_pool.is_some());
    let mut headings = vec!["INSTANCE TYPE", "DRIVER", "DEVICES", "$/H EACH", "DEVICE"];
    if with_pools {
        headings.insert(0, "NODEPOOL");
    }
    let mut lines = table::new(&headings);
    for it in types {
        for (driver, kind) in it.devices.iter().flat_map(|of| of.kinds.iter().map(move |kind| (&of.driver, kind))) {
            let price = each(kind.price_nano_usd_per_hour_each).unwrap_or_else(|| "-".to_owned());
            let mut row = vec![
                Cell::new(&it.name),
                Cell::new(driver),
                right(kind.count),
                right(price),
                Cell::new(properties(kind)),
            ];
            if with_pools {
                row.insert(0, Cell::new(it.node_pool.as_deref().unwrap_or("-")));
            }
            lines.add_row(row);
        }
    }
    if lines.row_count() == 0 {
        return "No instance type has devices.\n".to_owned();
    }
    table::text(&lines)
}

/// Everything that is known of each type.
pub(super) fn everything(types: &[Type]) -> String {
    types.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn one(it: &Type) -> String {
    let of_pool = it.node_pool.as_ref().map(|pool| format!(" of nodepool/{pool}")).unwrap_or_default();
    let mut text = format!("{}{of_pool}\n\n", it.name);
    let mut resources = table::new(&["RESOURCE", "CAPACITY", "ALLOCATABLE"]);
    for (resource, amount) in &it.capacity {
        let left = it.allocatable.get(resource).map_or("0", String::as_str);
        resources.add_row([Cell::new(resource), right(amount), right(left)]);
    }
    text.push_str(&table::text(&resources));
    text.push('\n');
    if it.offerings.is_empty() {
        text.push_str("No zone sells it.\n");
    } else {
        let mut offerings = table::new(&["ZONE", "CAPACITY", "PRICE"]);
        for offering in &it.offerings {
            let price = if offering.launchable { short(offering.price_nano_usd_per_hour) } else { "-".to_owned() };
            offerings.add_row([Cell::new(&offering.zone), Cell::new(&offering.capacity_type), right(price)]);
        }
        text.push_str(&table::text(&offerings));
    }
    for driver in &it.devices {
        let _ = writeln!(text, "\n{}", counted(driver));
        for kind in &driver.kinds {
            let _ = writeln!(text, "  {}", described(kind));
        }
    }
    text
}

/// How many, and what they are.
fn described(kind: &Kind) -> String {
    format!("{} with {}", kind.count, properties(kind))
}

/// What devices are, what they have, and in what they differ.
fn properties(kind: &Kind) -> String {
    let mut parts: Vec<String> =
        kind.attributes.iter().map(|(name, value)| format!("{name} {}", attribute(value))).collect();
    parts.extend(kind.capacity.iter().map(|(name, value)| {
        let amount = value.get("value").and_then(Value::as_str).unwrap_or_default();
        format!("{name} {amount}")
    }));
    let differ = |(name, count): (&String, &usize)| match count {
        1 => format!("one {name}"),
        _ => format!("{count} values of {name}"),
    };
    parts.extend(kind.differ_in.iter().map(differ));
    parts.join(", ")
}

/// The value without its type.
fn attribute(value: &Value) -> String {
    let inner = value.as_object().and_then(|value| value.values().next()).unwrap_or(value);
    inner.as_str().map_or_else(|| inner.to_string(), str::to_owned)
}
