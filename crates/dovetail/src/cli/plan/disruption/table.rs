//! A disruption plan as text: which nodes are removed, what that saves, what budgets still allow, and why each other
//! node stays.

use std::fmt::Write as _;

use comfy_table::Cell;
use model::price::{PriceNanoUsdPerHour, short};

use super::super::table::{Detail, finished, listed, right, table};
use super::{Command, Node, NodePool, Report};
use crate::cli::report::plural;

/// Prints the whole report.
pub(super) fn render(report: &Report, detail: Detail) -> String {
    let mut sections = Vec::new();
    if !report.commands.is_empty() {
        sections.push(format!("Commands\n{}", commands(&report.commands, detail)));
    }
    let stay: Vec<&Node> = report.nodes.iter().filter(|node| node.command.is_none()).collect();
    if !stay.is_empty() {
        let why = match detail {
            Detail::Grouped => grouped(&stay),
            Detail::Everything => one_by_one(&stay),
        };
        sections.push(format!("Nodes that stay\n{why}"));
    }
    if !report.node_pools.is_empty() && !report.nodes.is_empty() {
        sections.push(format!("Budgets\n{}", budgets(&report.node_pools)));
    }
    sections.push(summary(report));
    sections.join("\n")
}

fn commands(commands: &[Command], detail: Detail) -> String {
    let mut table = table(&["#", "REASON", "NODES", "REPLACED BY", "EVICTIONS", "SAVES"]);
    for (index, command) in commands.iter().enumerate() {
        table.add_row([
            right(index + 1),
            Cell::new(&command.reason),
            Cell::new(listed(&command.nodes, detail)),
            Cell::new(replacements(command)),
            right(command.moves.len()),
            right(signed(command.saving_nano_usd_per_hour)),
        ]);
    }
    let mut text = finished(&table);
    if detail == Detail::Everything {
        for (index, command) in commands.iter().enumerate().filter(|(_, command)| !command.moves.is_empty()) {
            let _ = writeln!(text, "\n  Pods of command {}", index + 1);
            for it in &command.moves {
                let _ = writeln!(text, "    {} from {} to {}", it.pod, it.from, it.to);
            }
        }
    }
    text
}

/// `2 c-4x-amd64-linux, c-8x-amd64-linux`, or `another of nodepool fixed`, with why if that comes afterwards. Where
/// nothing is launched: `room on other nodes`, or `-` if no pod moves.
fn replacements(command: &Command) -> String {
    match (&command.static_node_pool, command.terminate_first) {
        (Some(pool), Some(why)) => return format!("another of nodepool {pool}, afterwards ({why})"),
        (None, Some(why)) => return format!("what is launched afterwards ({why})"),
        (Some(pool), None) => return format!("another of nodepool {pool}"),
        (None, None) => {}
    }
    let mut types: Vec<(&str, usize)> = Vec::new();
    for claim in &command.replacements {
        let name = claim.launch.instance_type.as_str();
        match types.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => types.push((name, 1)),
        }
    }
    let told = types.iter().map(|(name, count)| match count {
        1 => (*name).to_owned(),
        count => format!("{count} {name}"),
    });
    let told: Vec<String> = told.collect();
    match (told.is_empty(), command.moves.is_empty()) {
        (false, _) => told.join(", "),
        (true, false) => "room on other nodes".to_owned(),
        (true, true) => "-".to_owned(),
    }
}

/// Groups nodes that stay for one reason: their names, then the reason.
fn grouped(nodes: &[&Node]) -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for node in nodes {
        match groups.iter_mut().find(|(message, _)| *message == node.reason.message) {
            Some((_, names)) => names.push(&node.name),
            None => groups.push((&node.reason.message, vec![&node.name])),
        }
    }
    let mut text = String::new();
    for (message, names) in groups {
        let _ = writeln!(text, "  {}\n    {message}", listed(&names, Detail::Grouped));
    }
    text
}

fn one_by_one(nodes: &[&Node]) -> String {
    let mut table = table(&["NAME", "NODEPOOL", "INSTANCE TYPE", "ZONE", "CAPACITY", "PRICE", "PODS", "WHY"]);
    let text = |text: &Option<String>| Cell::new(text.as_deref().unwrap_or("-"));
    for node in nodes {
        table.add_row([
            Cell::new(&node.name),
            text(&node.node_pool),
            text(&node.instance_type),
            text(&node.zone),
            text(&node.capacity_type),
            right(node.price_nano_usd_per_hour.map_or("-".to_owned(), short)),
            right(node.pods),
            Cell::new(&node.reason.message),
        ]);
    }
    finished(&table)
}

fn budgets(pools: &[NodePool]) -> String {
    let reasons: Vec<&str> =
        pools.first().into_iter().flat_map(|pool| pool.allowed.keys()).map(String::as_str).collect();
    let headings: Vec<String> = reasons.iter().map(|reason| format!("ALLOWED {}", reason.to_uppercase())).collect();
    let headings: Vec<&str> =
        ["NODEPOOL", "NODES", "DISRUPTED", "TAKEN"].into_iter().chain(headings.iter().map(String::as_str)).collect();
    let mut table = table(&headings);
    for pool in pools {
        let mut row = vec![Cell::new(&pool.name), right(pool.nodes), right(pool.disrupted), right(pool.taken)];
        let allowed = |reason: &&str| pool.allowed.get(*reason).copied().flatten();
        row.extend(reasons.iter().map(|it| right(allowed(it).map_or("all".to_owned(), |allowed| allowed.to_string()))));
        table.add_row(row);
    }
    let mut text = finished(&table);
    for (pool, fault) in pools.iter().flat_map(|pool| pool.faults.iter().map(move |fault| (pool, fault))) {
        let _ = writeln!(text, "  nodepool {} allows no disruptions: {fault}", pool.name);
    }
    text
}

fn summary(report: &Report) -> String {
    let fleet = &report.fleet;
    let going: usize = report.commands.iter().map(|command| command.nodes.len()).sum();
    let launched: usize = report.commands.iter().map(Command::launches).sum();
    let evictions: usize = report.commands.iter().map(|command| command.moves.len()).sum();
    let nodes = plural(report.nodes.len(), "node", "nodes");
    let mut text = if report.nodes.is_empty() {
        "No node was launched by Dovetail\n".to_owned()
    } else if going == 0 {
        format!("{nodes} for {}: none removed\n", short(fleet.price_nano_usd_per_hour))
    } else {
        let (before, after) = (fleet.price_nano_usd_per_hour, fleet.price_after_nano_usd_per_hour);
        let saving = PriceNanoUsdPerHour(before.0.saturating_sub(after.0));
        let replaced = if launched == 0 { String::new() } else { format!(", {launched} launched") };
        format!(
            "{nodes} for {}: {going} removed{replaced}, {} evicted; {} afterwards, {} saved\n",
            short(before),
            plural(evictions, "pod", "pods"),
            short(after),
            signed(saving),
        )
    };
    if let Some(bound) = fleet.bound_nano_usd_per_hour {
        text += &least(bound, fleet.price_after_nano_usd_per_hour);
    }
    if fleet.without_price > 0 {
        let nodes = plural(fleet.without_price, "node", "nodes");
        let _ = writeln!(text, "{nodes} counted as free: the price is unknown, since no known offering matches");
    }
    if report.nodes_of_others > 0 {
        let nodes = plural(report.nodes_of_others, "node has", "nodes have");
        let _ = writeln!(
            text,
            "{nodes} no NodeClaim and {} left alone",
            if report.nodes_of_others == 1 { "is" } else { "are" }
        );
    }
    text
}

/// The bound, and how far the fleet is above it.
fn least(bound: PriceNanoUsdPerHour, after: PriceNanoUsdPerHour) -> String {
    format!(
        "Lower bound of the price for these pods: {}; the plan is {} % above it
",
        short(bound),
        above(bound, after)
    )
}

/// How far a price is above the bound, in percent.
pub(super) fn above(bound: PriceNanoUsdPerHour, after: PriceNanoUsdPerHour) -> String {
    let gap = i128::from(after.0.saturating_sub(bound.0)) * 1000 / i128::from(bound.0.max(1));
    format!("{}.{}", gap / 10, gap % 10)
}

pub(super) fn signed(price: PriceNanoUsdPerHour) -> String {
    match price.0 {
        0.. => short(price),
        _ => format!("-{}", short(PriceNanoUsdPerHour(price.0.saturating_neg()))),
    }
}
