//! A plan for people: which machines, where pods go, which are unschedulable and why, what it costs.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table, presets};
use model::price::{PriceNanoUsdPerHour, short};
use model::{Quantity, quantity::Rounding};

use crate::cli::report::{DecidedBy, NodeClaim, Placement, PodDeviceCosts, Reason, Report, plural};

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// Machines that are alike in one line.
    Grouped,
    /// Each machine, and pods by name.
    Everything,
}

/// Pods named in a line before the rest are counted.
const NAMED_PODS: usize = 3;

/// Prints the whole report.
pub(super) fn render(report: &Report, detail: Detail) -> String {
    let mut sections = Vec::new();
    if !report.node_claims.is_empty() {
        let table = match detail {
            Detail::Grouped => machines(&report.node_claims),
            Detail::Everything => every_machine(&report.node_claims),
        };
        sections.push(format!("New machines\n{table}"));
    }
    if !report.existing_nodes.is_empty() {
        sections.push(format!("Existing nodes\n{}", existing(report, detail)));
    }
    if !report.capacity_buffers.is_empty() {
        sections.push(format!("Room kept free\n{}", kept_free(report)));
    }
    if !report.bound_later.is_empty() {
        sections.push(format!("Bound after the others\n{}", bound_later(report, detail)));
    }
    if !report.unschedulable.is_empty() {
        sections.push(format!("Unschedulable\n{}", unschedulable(report, detail)));
    }
    if !report.placements.is_empty() {
        sections.push(format!("Why there\n{}", why_there(report, detail)));
    }
    sections.push(summary(report));
    sections.join("\n")
}

/// Columns without borders, as kubectl prints them; headings are bold on a terminal.
pub(super) fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.iter().map(|heading| Cell::new(heading).add_attribute(Attribute::Bold)));
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    table
}

pub(in crate::cli) fn right(text: impl ToString) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

pub(super) fn finished(table: &Table) -> String {
    table.lines().map(|line| format!("  {}\n", line.trim_end())).collect()
}

/// Headings, with one for devices before the last if any pod gets some.
fn headings<'h>(claims: &[NodeClaim], headings: &[&'h str]) -> Vec<&'h str> {
    let mut headings = headings.to_vec();
    if claims.iter().any(|claim| !claim.devices.is_empty()) {
        headings.insert(headings.len() - 1, "DEVICES");
    }
    headings
}

/// `3 of gpu.example.com`, for each driver.
fn devices(devices: &BTreeMap<String, u32>) -> Cell {
    let listed: Vec<String> = devices.iter().map(|(driver, count)| format!("{count} of {driver}")).collect();
    Cell::new(if listed.is_empty() { "-".to_owned() } else { listed.join(", ") })
}

/// Machines that are alike, in the order in which the first of each stands in the plan.
fn machines(claims: &[NodeClaim]) -> String {
    let headings =
        headings(claims, &["COUNT", "NODEPOOL", "INSTANCE TYPE", "ZONE", "CAPACITY", "PRICE", "TOTAL", "PODS"]);
    let mut table = table(&headings);
    let mut groups: Vec<(&NodeClaim, usize, usize, BTreeMap<String, u32>)> = Vec::new();
    for claim in claims {
        let alike = |other: &NodeClaim| {
            (&other.node_pool, &other.launch.instance_type, &other.launch.zone, &other.launch.capacity_type)
                == (&claim.node_pool, &claim.launch.instance_type, &claim.launch.zone, &claim.launch.capacity_type)
        };
        match groups.iter_mut().find(|(first, ..)| alike(first)) {
            Some((_, count, pods, devices)) => {
                *count += 1;
                *pods += claim.pods.len();
                for (driver, more) in &claim.devices {
                    *devices.entry(driver.clone()).or_default() += more;
                }
            }
            None => groups.push((claim, 1, claim.pods.len(), claim.devices.clone())),
        }
    }
    for (claim, count, pods, given) in groups {
        let price = claim.launch.price_nano_usd_per_hour;
        let total = i64::try_from(count).ok().and_then(|count| price.checked_mul(count)).unwrap_or(price);
        let mut row = vec![
            right(count),
            Cell::new(&claim.node_pool),
            Cell::new(&claim.launch.instance_type),
            Cell::new(&claim.launch.zone),
            Cell::new(&claim.launch.capacity_type),
            right(short(price)),
            right(short(total)),
            right(pods),
        ];
        if headings.contains(&"DEVICES") {
            row.insert(row.len() - 1, devices(&given));
        }
        table.add_row(row);
    }
    finished(&table)
}

fn every_machine(claims: &[NodeClaim]) -> String {
    let headings = headings(
        claims,
        &["NAME", "INSTANCE TYPE", "ZONE", "CAPACITY", "PRICE", "CPU", "MEMORY", "TYPES", "NEXT BEST", "PODS"],
    );
    let mut table = table(&headings);
    for claim in claims {
        let used = |resource: &str| used(resource, &claim.requests, &claim.allocatable);
        let next_best = claim.next_best.as_ref().map(|(name, price)| format!("{name} {}", short(*price)));
        let mut row = vec![
            Cell::new(&claim.name),
            Cell::new(&claim.launch.instance_type),
            Cell::new(&claim.launch.zone),
            Cell::new(&claim.launch.capacity_type),
            right(short(claim.launch.price_nano_usd_per_hour)),
            right(used("cpu")),
            right(used("memory")),
            right(claim.instance_types.len()),
            Cell::new(next_best.unwrap_or("-".to_owned())),
            Cell::new(claim.pods.join(" ")),
        ];
        if headings.contains(&"DEVICES") {
            row.insert(row.len() - 1, devices(&claim.devices));
        }
        table.add_row(row);
    }
    finished(&table) + &device_costs(claims.iter().flat_map(|claim| &claim.device_costs))
}

/// `17 of 31.9`.
fn used(resource: &str, requests: &BTreeMap<String, String>, allocatable: &BTreeMap<String, String>) -> String {
    let of = |amounts: &BTreeMap<String, String>, rounding: Rounding| {
        let amount = amounts.get(resource).map_or("0", |amount| amount);
        Quantity::parse(amount).map_or_else(|_| amount.to_owned(), |quantity| quantity.readable(rounding))
    };
    format!("{} of {}", of(requests, Rounding::Up), of(allocatable, Rounding::Down))
}

/// A line for each pod and resource of which its devices cost some; pods that are told alike together.
fn device_costs<'c>(costs: impl Iterator<Item = &'c PodDeviceCosts>) -> String {
    let mut by_text: Vec<(&[String], Vec<&str>)> = Vec::new();
    for of_pod in costs {
        match by_text.iter_mut().find(|(told, _)| *told == of_pod.told) {
            Some((_, pods)) => pods.push(&of_pod.pod),
            None => by_text.push((&of_pod.told, vec![&of_pod.pod])),
        }
    }
    let lines = by_text.iter().map(|(told, pods)| {
        let each = if pods.len() == 1 { "takes" } else { "take each" };
        format!("  {} {each} {}\n", listed(pods, Detail::Everything), told.join(", "))
    });
    lines.collect()
}

fn existing(report: &Report, detail: Detail) -> String {
    let nodes = &report.existing_nodes;
    match detail {
        Detail::Grouped => {
            let mut table = table(&["NAME", "PODS"]);
            for node in nodes {
                table.add_row([Cell::new(&node.name), right(node.pods.len())]);
            }
            finished(&table)
        }
        Detail::Everything => {
            let mut table = table(&["NAME", "CPU", "MEMORY", "PODS"]);
            for node in nodes {
                let used = |resource: &str| right(used(resource, &node.requests, &node.allocatable));
                table.add_row([Cell::new(&node.name), used("cpu"), used("memory"), Cell::new(node.pods.join(" "))]);
            }
            finished(&table) + &device_costs(nodes.iter().flat_map(|node| &node.device_costs))
        }
    }
}

/// Buffers with where the room for their virtual pods is, and why some has none.
fn kept_free(report: &Report) -> String {
    let mut table = table(&["CAPACITYBUFFER", "PODS", "ON NODES", "ON NEW MACHINES", "MISSING"]);
    for buffer in &report.capacity_buffers {
        table.add_row([
            Cell::new(&buffer.name),
            right(buffer.replicas),
            right(buffer.on_existing_nodes.values().sum::<u32>()),
            right(buffer.on_node_claims.values().sum::<u32>()),
            right(buffer.missing),
        ]);
    }
    let mut text = finished(&table);
    for buffer in &report.capacity_buffers {
        for Reason { message, object, .. } in &buffer.reasons {
            let object = object.as_ref().map(|object| format!("{object}: ")).unwrap_or_default();
            let _ = writeln!(text, "    {}: {object}{message}", buffer.name);
        }
    }
    text
}

/// A line for each stage, in the order of binding.
fn bound_later(report: &Report, detail: Detail) -> String {
    report.bound_later.iter().map(|pods| format!("  {}\n", listed(pods, detail))).collect()
}

/// `a, b, c and 4 more`.
pub(super) fn listed(pods: &[impl Borrow<str>], detail: Detail) -> String {
    let named = if detail == Detail::Everything { pods.len() } else { NAMED_PODS.min(pods.len()) };
    let (names, others) = pods.split_at(named);
    let others = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    names.join(", ") + &others
}

/// Pods that are refused alike together, and then why.
fn unschedulable(report: &Report, detail: Detail) -> String {
    let mut groups: Vec<(&[Reason], Vec<&str>)> = Vec::new();
    let mut index: BTreeMap<&[Reason], usize> = BTreeMap::new();
    for refused in &report.unschedulable {
        let at = *index.entry(&refused.reasons).or_insert(groups.len());
        if at == groups.len() {
            groups.push((&refused.reasons, Vec::new()));
        }
        if let Some((_, pods)) = groups.get_mut(at) {
            pods.push(&refused.pod);
        }
    }
    let mut text = String::new();
    for (reasons, pods) in groups {
        let _ = writeln!(text, "  {}", listed(&pods, detail));
        for Reason { message, object, .. } in reasons {
            let object = object.as_ref().map(|object| format!("{object}: ")).unwrap_or_default();
            let _ = writeln!(text, "    {object}{message}");
        }
    }
    text
}

/// Pods in one place for the same reasons together, and then why.
fn why_there(report: &Report, detail: Detail) -> String {
    type Why<'r> = (&'r str, &'r DecidedBy, &'r [String]);
    let mut groups: BTreeMap<Why<'_>, Vec<&str>> = BTreeMap::new();
    for Placement { pod, place, decided_by, passed_over } in &report.placements {
        groups.entry((place, decided_by, passed_over)).or_default().push(pod);
    }
    let mut text = String::new();
    for ((place, decided_by, passed_over), pods) in groups {
        let _ = writeln!(text, "  {} on {place}: {}", listed(&pods, detail), decided_by.message);
        for passed in passed_over {
            let _ = writeln!(text, "    {passed}");
        }
    }
    text
}

fn summary(report: &Report) -> String {
    let on_new: usize = report.node_claims.iter().map(|claim| claim.pods.len()).sum();
    let on_existing: usize = report.existing_nodes.iter().map(|node| node.pods.len()).sum();
    let opted_out = report.unschedulable.iter().filter(|refused| refused.is_opted_out()).count();
    let without = report.unschedulable.len() - opted_out;
    let mut parts = Vec::new();
    let room: u32 = report.capacity_buffers.iter().flat_map(|buffer| buffer.on_node_claims.values()).sum();
    let what = match (on_new, room) {
        (pods, 0) => pods.to_string(),
        (0, room) => format!("room for {room} more"),
        (pods, room) => format!("{pods} and room for {room} more"),
    };
    if !report.node_claims.is_empty() {
        let machines = plural(report.node_claims.len(), "new machine", "new machines");
        let cost = &report.cost;
        let (price, bound) = (short(cost.price_nano_usd_per_hour), short(cost.lower_bound_nano_usd_per_hour));
        let nodes = match cost.node_costs_nano_usd_per_hour {
            PriceNanoUsdPerHour::ZERO => String::new(),
            costs => format!(" and {} for nodes", short(costs)),
        };
        let apart = cost.kept_apart_nano_usd_per_hour.filter(|price| price.0 > 0).map_or_else(String::new, |price| {
            format!("; {} of it keep claims apart that could take each other's devices", short(price))
        });
        parts.push(format!("{what} on {machines} for {price}{nodes} (lower bound {bound}{apart})"));
    }
    if on_existing > 0 {
        let nodes = plural(report.existing_nodes.len(), "existing node", "existing nodes");
        parts.push(format!("{on_existing} on {nodes}"));
    }
    if without > 0 {
        parts.push(format!("{without} unschedulable"));
    }
    if opted_out > 0 {
        parts.push(format!("{opted_out} left to other nodes"));
    }
    let mut text = match (on_new + on_existing + without + opted_out, parts.is_empty()) {
        (_, true) => "No pending pods\n".to_owned(),
        (pods, false) => format!("{}: {}\n", plural(pods, "pod", "pods"), parts.join(", ")),
    };
    if !report.not_used.is_empty() {
        let kinds: Vec<_> = report.not_used.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let _ = writeln!(text, "Ignored: {}", kinds.join(", "));
    }
    text
}
