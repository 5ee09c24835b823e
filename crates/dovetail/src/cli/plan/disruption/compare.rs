//! `dovetail plan --disruption --compare A B`: what another policy, or other NodePools, would remove and save.

use std::collections::BTreeMap;

use model::price::{PriceNanoUsdPerHour, short};
use serde::Serialize;

use super::policy::Policy;
use super::table::{self, signed};
use super::{Planned, Report, output, planned};
use crate::cli::input::Documents;
use crate::cli::plan::table::{Detail, finished, listed, right, table};
use crate::cli::plan::{Args, Format, compare};
use crate::cli::report::plural;
use crate::cli::{Outcome, input::Input};

/// Both plans, and what differs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Comparison {
    a: Report,
    b: Report,
    difference: Difference,
}

/// Numbers are B's minus A's.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Difference {
    commands: i64,
    nodes_that_go: i64,
    new_machines: i64,
    evictions: i64,
    price_after_nano_usd_per_hour: i64,
    /// Nodes that go with A and stay with B, by name.
    go_only_in_a: Vec<String>,
    /// Nodes that go with B and stay with A, by name.
    go_only_in_b: Vec<String>,
}

/// Plans both sides and prints how they differ.
pub(super) fn run(args: &Args, [a, b]: [&str; 2]) -> anyhow::Result<Outcome> {
    let policies = [Policy::parse(a)?, Policy::parse(b)?];
    // Standard input can be read once.
    let shared = Documents::read(&args.filenames)?;
    let [of_a, of_b] = policies.map(|policy| side(args, &shared, &policy));
    let ((a_report, is_a_bad), (b_report, is_b_bad)) = (of_a?, of_b?);
    let comparison = Comparison { difference: Difference::new(&a_report, &b_report), a: a_report, b: b_report };
    let text = match args.output {
        Format::Table => comparison.render([a, b], Detail::Grouped),
        Format::Wide => comparison.render([a, b], Detail::Everything),
        Format::Json => serde_json::to_string_pretty(&comparison)? + "\n",
        Format::Yaml => serde_saphyr::to_string(&comparison)?,
    };
    output::stdout(text.as_bytes())?;
    Ok(if is_a_bad || is_b_bad { Outcome::BadInput } else { Outcome::Done })
}

/// One side's plan, and whether part of its input could not be used.
fn side(args: &Args, shared: &Documents, policy: &Policy) -> anyhow::Result<(Report, bool)> {
    let documents = match policy {
        Policy::Settings(_) => shared.clone(),
        Policy::Files(path) => compare::with_own(shared.clone(), path)?,
    };
    let mut input = Input::with_fleet(documents, &args.input, args.at)?;
    args.apply(&mut input.snapshot.options);
    policy.apply(&mut input.snapshot);
    let Planned { report, is_bad } = planned(&input, args.check);
    Ok((report, is_bad))
}

/// What a plan comes to, in numbers.
#[derive(Debug, Clone, Copy)]
struct Totals {
    commands: usize,
    nodes: usize,
    machines: usize,
    evictions: usize,
    price_after: PriceNanoUsdPerHour,
}

impl Totals {
    fn of(report: &Report) -> Self {
        Self {
            commands: report.commands.len(),
            nodes: report.commands.iter().map(|command| command.nodes.len()).sum(),
            machines: report.commands.iter().map(super::Command::launches).sum(),
            evictions: report.commands.iter().map(|command| command.moves.len()).sum(),
            price_after: report.fleet.price_after_nano_usd_per_hour,
        }
    }
}

impl Difference {
    fn new(a: &Report, b: &Report) -> Self {
        let (of_a, of_b) = (Totals::of(a), Totals::of(b));
        let goes = |report: &Report, name: &str| report.commands.iter().any(|it| it.nodes.iter().any(|it| it == name));
        let only = |one: &Report, other: &Report| -> Vec<String> {
            let nodes = one.commands.iter().flat_map(|command| &command.nodes);
            let mut only: Vec<String> = nodes.filter(|name| !goes(other, name)).cloned().collect();
            only.sort();
            only
        };
        Self {
            commands: change(of_a.commands, of_b.commands),
            nodes_that_go: change(of_a.nodes, of_b.nodes),
            new_machines: change(of_a.machines, of_b.machines),
            evictions: change(of_a.evictions, of_b.evictions),
            price_after_nano_usd_per_hour: of_b.price_after.0.saturating_sub(of_a.price_after.0),
            go_only_in_a: only(a, b),
            go_only_in_b: only(b, a),
        }
    }
}

fn change(before: usize, after: usize) -> i64 {
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    count(after) - count(before)
}

impl Comparison {
    fn render(&self, names: [&str; 2], detail: Detail) -> String {
        let Self { a, b, difference } = self;
        let mut sections = vec![self.totals(names)];
        let [name_of_a, name_of_b] = names;
        let only =
            [(name_of_a, name_of_b, b, &difference.go_only_in_a), (name_of_b, name_of_a, a, &difference.go_only_in_b)];
        for (here, there, other, nodes) in only.into_iter().filter(|(.., nodes)| !nodes.is_empty()) {
            sections.push(format!("Go with {here}, stay with {there}\n{}", why_they_stay(other, nodes, detail)));
        }
        sections.push(self.verdict(names));
        sections.join("\n")
    }

    fn totals(&self, [name_of_a, name_of_b]: [&str; 2]) -> String {
        let (a, b) = (&self.a, &self.b);
        let (of_a, of_b) = (Totals::of(a), Totals::of(b));
        let mut totals = table(&["", name_of_a, name_of_b, "DIFFERENCE"]);
        let mut count = |what: &str, of_a: usize, of_b: usize| {
            totals.add_row([what.into(), right(of_a), right(of_b), right(format!("{:+}", change(of_a, of_b)))]);
        };
        count("commands", of_a.commands, of_b.commands);
        let mut reasons: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
        for (side, report) in [a, b].into_iter().enumerate() {
            for command in &report.commands {
                if let Some(count) = reasons.entry(&command.reason).or_default().get_mut(side) {
                    *count += 1;
                }
            }
        }
        for (reason, [of_a, of_b]) in reasons {
            count(&format!("  {reason}"), of_a, of_b);
        }
        count("nodes that go", of_a.nodes, of_b.nodes);
        count("new machines", of_a.machines, of_b.machines);
        count("evictions", of_a.evictions, of_b.evictions);
        let now = [a, b].map(|report| report.fleet.price_nano_usd_per_hour);
        let mut price = |what: &str, [of_a, of_b]: [PriceNanoUsdPerHour; 2]| {
            let change = PriceNanoUsdPerHour(of_b.0.saturating_sub(of_a.0));
            let change = if change.0 > 0 { format!("+{}", short(change)) } else { signed(change) };
            totals.add_row([what.into(), right(short(of_a)), right(short(of_b)), right(change)]);
        };
        price("price now", now);
        price("price afterwards", [of_a.price_after, of_b.price_after]);
        if let (Some(of_a), Some(of_b)) = (a.fleet.bound_nano_usd_per_hour, b.fleet.bound_nano_usd_per_hour) {
            let gap = |bound, after| right(format!("{} %", table::above(bound, after)));
            totals.add_row([
                "above the lower bound".into(),
                gap(of_a, self.a.fleet.price_after_nano_usd_per_hour),
                gap(of_b, self.b.fleet.price_after_nano_usd_per_hour),
                "".into(),
            ]);
        }
        finished(&totals)
    }

    /// What B costs and evicts beside A, and what an eviction more or less is worth.
    fn verdict(&self, [name_of_a, name_of_b]: [&str; 2]) -> String {
        let Difference { price_after_nano_usd_per_hour: price, evictions, .. } = self.difference;
        let amount = |price: i64| short(PriceNanoUsdPerHour(price.saturating_abs()));
        let money = match price {
            0 => format!("{name_of_b} ends at the price of {name_of_a}"),
            1.. => format!("{name_of_b} ends {} above {name_of_a}", amount(price)),
            _ => format!("{name_of_b} ends {} below {name_of_a}", amount(price)),
        };
        let count = usize::try_from(evictions.unsigned_abs()).unwrap_or(usize::MAX);
        let pods = match evictions {
            0 => ", with as many evictions".to_owned(),
            1.. => format!(", with {} more", plural(count, "eviction", "evictions")),
            _ => format!(", with {} less", plural(count, "eviction", "evictions")),
        };
        let is_a_trade = price != 0 && evictions != 0 && (price > 0) != (evictions > 0);
        let each = if is_a_trade { format!(": {} for each", amount(price / evictions)) } else { String::new() };
        format!("{money}{pods}{each}\n")
    }
}

/// Those nodes, by why they stay.
fn why_they_stay(report: &Report, nodes: &[String], detail: Detail) -> String {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let stay = report.nodes.iter().filter(|node| nodes.contains(&node.name));
    for node in stay {
        groups.entry(&node.reason.message).or_default().push(&node.name);
    }
    let told = groups.into_iter().map(|(message, names)| format!("  {}\n    {message}\n", listed(&names, detail)));
    told.collect()
}
