//! `dovetail plan --compare A B`: what another set of NodePools or NodeOverlays, or another snapshot, would change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use decode::manifests::Manifest;
use model::PriceNanoUsdPerHour;
use serde::Serialize;

use super::table::{finished, right, short, table};
use super::{Args, Format, plan_of};
use crate::cli::input::{Documents, Input};
use crate::cli::progress::Progress;
use crate::cli::report::{Report, Unschedulable, plural};
use crate::cli::{Outcome, output};

/// Kinds of which those of a side stand in place of the shared ones.
const REPLACED: [&str; 2] = ["NodePool", "NodeOverlay"];
/// Pods named before the rest are counted.
const NAMED_PODS: usize = 5;

/// Both plans, and what differs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Comparison {
    a: Report,
    b: Report,
    difference: Difference,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Difference {
    /// B minus A.
    machines: i64,
    /// B minus A.
    price_nano_usd_per_hour: i64,
    /// (NodePool, instance type, capacity type) to machines of B minus those of A, where that is not zero.
    machines_by_type: BTreeMap<String, i64>,
    /// Pods with a place in B only.
    gained: Vec<String>,
    /// Pods with a place in A only.
    lost: Vec<String>,
}

/// Plans both sides and prints how they differ.
pub(super) fn run(args: &Args, a: &Path, b: &Path) -> anyhow::Result<Outcome> {
    let (first, is_first_bad) = side(args, a, args.karpenter_order)?;
    let (second, is_second_bad) = side(args, b, false)?;
    let comparison = Comparison { difference: Difference::new(&first, &second), a: first, b: second };
    let text = match args.output {
        Format::Table | Format::Wide => comparison.render(&a.display().to_string(), &b.display().to_string()),
        Format::Json => serde_json::to_string_pretty(&comparison)? + "\n",
        Format::Yaml => serde_saphyr::to_string(&comparison)?,
    };
    output::stdout(text.as_bytes())?;
    Ok(if is_first_bad || is_second_bad {
        Outcome::BadInput
    } else if comparison.b.has_unschedulable() {
        Outcome::NoPlace
    } else {
        Outcome::Done
    })
}

fn side(args: &Args, path: &Path, in_karpenters_order: bool) -> anyhow::Result<(Report, bool)> {
    let progress = Progress::new("reading");
    let mut shared = Documents::read(&args.filenames)?;
    let own = Documents::read(&[PathBuf::from(path)])?;
    let replaced: BTreeSet<&str> =
        REPLACED.into_iter().filter(|kind| own.manifests.iter().any(|manifest| is_of(manifest, kind))).collect();
    shared.manifests.retain(|manifest| !replaced.iter().any(|kind| is_of(manifest, kind)));
    shared.manifests.extend(own.manifests);
    shared.errors.extend(own.errors);
    let mut input = Input::new(shared, &args.input)?;
    args.apply(&mut input.snapshot.options);
    progress.now(format!("planning {} pods of {}", input.snapshot.pods.len(), path.display()));
    let plan = plan_of(&input.snapshot, in_karpenters_order);
    drop(progress);
    let is_bad = input.tell();
    Ok((Report::new(&input, &plan), is_bad))
}

fn is_of(manifest: &Manifest, kind: &str) -> bool {
    manifest.group == api::groups::KARPENTER && manifest.kind == kind
}

impl Difference {
    fn new(a: &Report, b: &Report) -> Self {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let mut machines_by_type: BTreeMap<String, i64> = BTreeMap::new();
        for (report, sign) in [(a, -1), (b, 1)] {
            for claim in &report.node_claims {
                let launch = &claim.launch;
                let name = format!("{} {} {}", claim.node_pool, launch.instance_type, launch.capacity_type);
                *machines_by_type.entry(name).or_default() += sign;
            }
        }
        machines_by_type.retain(|_, difference| *difference != 0);
        let without = |report: &Report| -> BTreeSet<String> {
            report.unschedulable.iter().map(|refused| refused.pod.clone()).collect()
        };
        let (in_a, in_b) = (without(a), without(b));
        Self {
            machines: count(b.node_claims.len()) - count(a.node_claims.len()),
            price_nano_usd_per_hour: b.cost.price_nano_usd_per_hour.0 - a.cost.price_nano_usd_per_hour.0,
            machines_by_type,
            gained: in_a.difference(&in_b).cloned().collect(),
            lost: in_b.difference(&in_a).cloned().collect(),
        }
    }
}

impl Comparison {
    fn render(&self, name_of_a: &str, name_of_b: &str) -> String {
        let Self { a, b, difference } = self;
        let mut totals = table(&["", name_of_a, name_of_b, "DIFFERENCE"]);
        let placed = |report: &Report| {
            let new: usize = report.node_claims.iter().map(|claim| claim.pods.len()).sum();
            new + report.existing_nodes.iter().map(|node| node.pods.len()).sum::<usize>()
        };
        let mut count = |what: &str, of_a: usize, of_b: usize| {
            let change = i64::try_from(of_b).unwrap_or(i64::MAX) - i64::try_from(of_a).unwrap_or(i64::MAX);
            totals.add_row([what.into(), right(of_a), right(of_b), right(format!("{change:+}"))]);
        };
        count("new machines", a.node_claims.len(), b.node_claims.len());
        count("pods with a place", placed(a), placed(b));
        count("pods without a place", a.unschedulable.len(), b.unschedulable.len());
        let price = |report: &Report| report.cost.price_nano_usd_per_hour;
        let bound = |report: &Report| report.cost.lower_bound_nano_usd_per_hour;
        totals.add_row(["price".into(), right(short(price(a))), right(short(price(b))), right(self.price_change())]);
        totals.add_row(["no plan below".into(), right(short(bound(a))), right(short(bound(b))), "".into()]);
        let mut sections = vec![finished(&totals)];
        if !difference.machines_by_type.is_empty() {
            let mut types = table(&["MACHINES", "NODEPOOL, INSTANCE TYPE, CAPACITY"]);
            for (name, change) in &difference.machines_by_type {
                types.add_row([right(format!("{change:+}")), name.into()]);
            }
            sections.push(format!("Other machines\n{}", finished(&types)));
        }
        if !difference.gained.is_empty() {
            sections.push(format!("A place in {name_of_b} only\n  {}\n", some(&difference.gained)));
        }
        if !difference.lost.is_empty() {
            let lost = |refused: &&Unschedulable| difference.lost.contains(&refused.pod);
            let mut text = format!("No place in {name_of_b} any more\n  {}\n", some(&difference.lost));
            let reasons: BTreeSet<String> = b
                .unschedulable
                .iter()
                .filter(lost)
                .flat_map(|refused| &refused.reasons)
                .map(|reason| match &reason.object {
                    Some(object) => format!("{object}: {}", reason.message),
                    None => reason.message.clone(),
                })
                .collect();
            for reason in reasons {
                let _ = writeln!(text, "    {reason}");
            }
            sections.push(text);
        }
        sections.push(self.verdict(name_of_a, name_of_b));
        sections.join("\n")
    }

    fn price_change(&self) -> String {
        let change = self.difference.price_nano_usd_per_hour;
        let of = self.a.cost.price_nano_usd_per_hour.0;
        let sign = if change < 0 { "-" } else { "+" };
        let amount = short(PriceNanoUsdPerHour(change.saturating_abs()));
        if of == 0 {
            return format!("{sign}{amount}");
        }
        format!("{sign}{amount} ({:+.1} %)", change as f64 / of as f64 * 100.0)
    }

    fn verdict(&self, name_of_a: &str, name_of_b: &str) -> String {
        let Difference { price_nano_usd_per_hour: price, gained, lost, .. } = &self.difference;
        let money = match price {
            0 => "costs the same as".to_owned(),
            change => {
                let amount = short(PriceNanoUsdPerHour(change.saturating_abs()));
                format!("costs {amount} {} than", if *change < 0 { "less" } else { "more" })
            }
        };
        let mut text = format!("{name_of_b} {money} {name_of_a}");
        for (pods, what) in [(gained.len(), "gain"), (lost.len(), "lose")] {
            if pods > 0 {
                let _ = write!(
                    text,
                    "; {} {what}{} a place",
                    plural(pods, "pod", "pods"),
                    if pods == 1 { "s" } else { "" }
                );
            }
        }
        text + "\n"
    }
}

/// The first names, and how many more.
fn some(names: &[String]) -> String {
    let (named, others) = names.split_at(names.len().min(NAMED_PODS));
    let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    named.join(", ") + &more
}
