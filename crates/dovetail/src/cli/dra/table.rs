//! An answer for people: who gets which devices, who gets none and why, and what would help.

use std::fmt::Write as _;

use comfy_table::{Attribute, Cell, ContentArrangement, Table, presets};
use dra_sched::explain::{Explanation, FallExplanation, RequestExplanation};
use dra_sched::told_devices;

use super::report::{ClaimAnswer, ClaimState, CostOfClaim, DeviceAnswer, NodeRefusal, Outcome, PodAnswer, Report};
use crate::cli::report::plural;

/// Nodes named in a line before the rest are counted.
const NAMED_NODES: usize = 4;
/// Different refusals of one pod shown in full.
const SHOWN_REFUSALS: usize = 5;

/// Prints the whole report.
pub(super) fn render(report: &Report) -> String {
    let mut sections = Vec::new();
    let mut table = table();
    for pod in &report.pods {
        rows(&mut table, pod);
    }
    if table.row_count() > 0 {
        sections.push(format!("Devices\n{}", finished(&table)));
    }
    let without: Vec<&PodAnswer> =
        report.pods.iter().filter(|pod| !matches!(pod.outcome, Outcome::Allocated { .. })).collect();
    if !without.is_empty() {
        sections.push(format!("No devices\n{}", no_devices(&without)));
    }
    sections.push(summary(report));
    sections.join("\n")
}

/// Columns without borders, as kubectl prints them.
fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let headings = ["POD", "NODE", "CLAIM", "REQUEST", "DEVICES"];
    table.set_header(headings.iter().map(|heading| Cell::new(heading).add_attribute(Attribute::Bold)));
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    table
}

fn finished(table: &Table) -> String {
    table.lines().map(|line| format!("  {}\n", line.trim_end())).collect()
}

/// A line for each request; what was said in the line before is not said again.
fn rows(table: &mut Table, pod: &PodAnswer) {
    let Outcome::Allocated { node, claims, node_resources, costs_of_claims, .. } = &pod.outcome else { return };
    let name = match &pod.evicted_by {
        Some(_) => format!("{} (evicted)", pod.pod),
        None => pod.pod.clone(),
    };
    let mut pod_cell = name.as_str();
    let mut node_cell = node.as_str();
    for claim in claims {
        let mut claim_cell = name_of(claim);
        for (request, devices) in by_request(&claim.devices) {
            table.add_row([pod_cell, node_cell, &claim_cell, request, &devices]);
            (pod_cell, node_cell) = ("", "");
            claim_cell = String::new();
        }
        if claim.devices.is_empty() {
            table.add_row([pod_cell, node_cell, &claim_cell, "", "none needed"]);
            (pod_cell, node_cell) = ("", "");
        }
    }
    if !node_resources.is_empty() {
        let costs = node_resources.iter().map(|(name, amount)| {
            let of_claims = costs_of_claims.iter().filter(|cost| cost.resource == *name).map(|cost| {
                let CostOfClaim { claim, devices, amount, each, .. } = cost;
                format!("{amount} for {claim}, {}", told_devices(*devices, each.clone()))
            });
            format!("{amount} {name} ({})", of_claims.collect::<Vec<String>>().join("; "))
        });
        table.add_row(["", "", "", "", &format!("cost the node {}", costs.collect::<Vec<String>>().join(", "))]);
    }
}

fn name_of(claim: &ClaimAnswer) -> String {
    match claim.state {
        ClaimState::New => claim.claim.clone(),
        ClaimState::Shared => format!("{} (shared)", claim.claim),
    }
}

/// Devices of each request in one text; the pool is told once.
fn by_request(devices: &[DeviceAnswer]) -> Vec<(&str, String)> {
    let mut requests: Vec<(&str, String)> = Vec::new();
    let mut last: Option<&DeviceAnswer> = None;
    for device in devices {
        let same_pool = last.is_some_and(|last| (&last.driver, &last.pool) == (&device.driver, &device.pool));
        let same_request = last.is_some_and(|last| last.request == device.request);
        let text = if same_pool && same_request {
            device.device.clone()
        } else {
            format!("{}/{}/{}", device.driver, device.pool, device.device)
        };
        let mut text = text;
        if !device.consumed_capacity.is_empty() {
            let parts: Vec<String> =
                device.consumed_capacity.iter().map(|(name, amount)| format!("{amount} {name}")).collect();
            let _ = write!(text, " ({})", parts.join(", "));
        }
        if device.admin_access {
            text.push_str(" (admin access)");
        }
        match requests.last_mut().filter(|_| same_request) {
            Some((_, texts)) => {
                let _ = write!(texts, ", {text}");
            }
            None => requests.push((&device.request, text)),
        }
        last = Some(device);
    }
    requests
}

/// Pods that are refused alike together, and then why.
fn no_devices(pods: &[&PodAnswer]) -> String {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for pod in pods {
        let why = why(pod);
        match groups.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(&pod.pod),
            None => groups.push((why, vec![&pod.pod])),
        }
    }
    let mut text = String::new();
    for (why, pods) in groups {
        let _ = writeln!(text, "  {}", named(&pods));
        text.push_str(&why);
    }
    text
}

fn why(pod: &PodAnswer) -> String {
    let mut text = String::new();
    if let Some(taint) = &pod.evicted_by {
        let _ = writeln!(text, "    ends where it runs: {taint}");
    }
    match &pod.outcome {
        Outcome::Allocated { .. } => {}
        Outcome::Refused { nodes } if nodes.is_empty() => text.push_str("    there is no node to ask\n"),
        Outcome::Refused { nodes } => all_refused(&mut text, nodes),
        Outcome::Undecided { nodes, steps, refused: by } => {
            let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
            let _ =
                writeln!(text, "    {}: neither yes nor no after {steps} steps; --budget allows more", named(&names));
            all_refused(&mut text, by);
        }
        Outcome::Invalid { reason } => {
            let _ = writeln!(text, "    {reason}");
        }
    }
    text
}

fn all_refused(text: &mut String, refusals: &[NodeRefusal]) {
    refusals.iter().take(SHOWN_REFUSALS).for_each(|refusal| refused(text, refusal));
    let others: usize = refusals.iter().skip(SHOWN_REFUSALS).map(|refusal| refusal.nodes.len()).sum();
    if others > 0 {
        let _ = writeln!(text, "    and {} for like reasons; -o json tells them", plural(others, "node", "nodes"));
    }
}

fn refused(text: &mut String, refusal: &NodeRefusal) {
    let names: Vec<&str> = refusal.nodes.iter().map(String::as_str).collect();
    let at = if refusal.why.everywhere { "everywhere".to_owned() } else { named(&names) };
    let Explanation { message, requests, values, pools, hints, .. } = &refusal.why;
    if requests.is_empty() {
        let _ = writeln!(text, "    {at}: {message}");
    } else {
        let _ = writeln!(text, "    {at}: {}", headline(&refusal.why));
        requests.iter().for_each(|found| request(text, found));
    }
    for value in values {
        let devices: Vec<String> =
            value.devices.iter().map(|(value, count)| format!("{value} on {}", plural_devices(*count))).collect();
        let devices = if devices.is_empty() { "no usable device".to_owned() } else { devices.join(", ") };
        let _ = writeln!(text, "      {} {}, request {}: {devices}", value.constraint, value.attribute, value.request);
    }
    for pool in pools {
        let _ = writeln!(text, "      pool {pool}");
    }
    for (index, hint) in hints.iter().enumerate() {
        let lead = if index == 0 { "would fit if" } else { "          or" };
        let _ = writeln!(text, "      {lead} {hint}");
    }
}

/// What is wrong in one line, where the requests say the rest.
fn headline(why: &Explanation) -> &str {
    match why.code {
        "TooFewDevices" => "too few devices",
        "NoCommonValue" => "no value is shared by as many devices as wanted",
        "TooFewValues" => "fewer different values than devices wanted",
        _ => &why.message,
    }
}

fn request(text: &mut String, found: &RequestExplanation) {
    let wanted = found.wanted.map_or_else(|| "all wanted".to_owned(), |wanted| format!("{wanted} wanted"));
    let _ = writeln!(
        text,
        "      claim {}, request {}: {wanted}, {} of {} usable",
        found.claim,
        found.request,
        found.usable,
        plural_devices(found.seen)
    );
    found.fell.iter().for_each(|fall| fell(text, fall));
}

fn fell(text: &mut String, fall: &FallExplanation) {
    let _ = write!(text, "        {} {}", fall.devices, fall.message);
    if let Some(amount) = &fall.amount {
        let _ = write!(text, " ({} needed, {} left)", amount.needed, amount.left);
    }
    text.push('\n');
    for met in &fall.met {
        let _ = writeln!(text, "          {} is {}", met.name, met.values.join(", "));
    }
    for holder in &fall.held_by {
        let _ = writeln!(text, "          {} by {}", holder.device, holder.holder);
    }
}

fn plural_devices(count: u64) -> String {
    plural(usize::try_from(count).unwrap_or(usize::MAX), "device", "devices")
}

fn named(names: &[&str]) -> String {
    let (first, others) = names.split_at(NAMED_NODES.min(names.len()));
    match others.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

fn summary(report: &Report) -> String {
    let with = report.pods.iter().filter(|pod| matches!(pod.outcome, Outcome::Allocated { .. })).count();
    let undecided = report.pods.iter().filter(|pod| matches!(pod.outcome, Outcome::Undecided { .. })).count();
    let without = report.pods.len() - with - undecided;
    if report.pods.is_empty() {
        return "No pod waits for devices\n".to_owned();
    }
    let mut parts = Vec::new();
    for (count, what) in [(with, "with their devices"), (without, "without"), (undecided, "undecided")] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    let mut text = format!("{}: {}\n", plural(report.pods.len(), "pod", "pods"), parts.join(", "));
    if report.without_devices > 0 {
        let _ = writeln!(text, "Need no devices: {}", plural(report.without_devices, "pod", "pods"));
    }
    text
}
