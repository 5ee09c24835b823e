//! `dovetail plan --compare A B`: what another set of NodePools or NodeOverlays, or another snapshot, would change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use decode::manifests::Manifest;
use model::price::{PriceNanoUsdPerHour, short};
use serde::Serialize;

use super::table::{finished, right, table};
use super::{Args, Format, plan_of};
use crate::cli::input::{Documents, Input};
use crate::cli::progress::Progress;
use crate::cli::report::{CapacityBuffer, Launch, NodeClaim, Reason, Report, Unschedulable, plural};
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
    /// (NodePool, instance type, zone, capacity type) to machines of B minus those of A, where that is not zero.
    machines_by_offering: BTreeMap<String, i64>,
    /// Pods of both that have a place in B only.
    gained: Vec<String>,
    /// Pods of both that have a place in A only.
    lost: Vec<String>,
    /// Pods of both that have no place for reasons that are not the same.
    other_reasons: Vec<String>,
    /// Pods that only A has.
    only_in_a: Vec<String>,
    /// Pods that only B has.
    only_in_b: Vec<String>,
}

/// Plans both sides and prints how they differ.
pub(super) fn run(args: &Args, a: &Path, b: &Path) -> anyhow::Result<Outcome> {
    let (first, is_first_bad) = side(args, a, args.karpenter_order)?;
    let (second, is_second_bad) = side(args, b, false)?;
    let comparison = Comparison { difference: Difference::new(&first, &second), a: first, b: second };
    let text = match args.output {
        Format::Table | Format::Wide => {
            let order = if args.karpenter_order { " (Karpenter's order)" } else { "" };
            comparison.render(&format!("{}{order}", a.display()), &b.display().to_string())
        }
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
    let mut input = Input::new(with_own(Documents::read(&args.filenames)?, path)?, &args.input)?;
    args.apply(&mut input.snapshot.options);
    progress.now(format!("planning {} pods of {}", input.snapshot.pods.len(), path.display()));
    let plan = plan_of(&input.snapshot, in_karpenters_order);
    drop(progress);
    let is_bad = input.tell();
    Ok((Report::new(&input, &plan), is_bad))
}

/// The shared documents with a side's own. If these have any of the kinds that they replace, the shared ones have none.
pub(super) fn with_own(mut shared: Documents, path: &Path) -> anyhow::Result<Documents> {
    let own = Documents::read(&[PathBuf::from(path)])?;
    let replaced: BTreeSet<&str> =
        REPLACED.into_iter().filter(|kind| own.manifests.iter().any(|manifest| is_of(manifest, kind))).collect();
    shared.manifests.retain(|manifest| !replaced.iter().any(|kind| is_of(manifest, kind)));
    shared.manifests.extend(own.manifests);
    shared.errors.extend(own.errors);
    Ok(shared)
}

fn is_of(manifest: &Manifest, kind: &str) -> bool {
    manifest.group == api::groups::KARPENTER && manifest.kind == kind
}

impl Difference {
    fn new(a: &Report, b: &Report) -> Self {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let machines = |name: fn(&NodeClaim) -> String| {
            let mut machines: BTreeMap<String, i64> = BTreeMap::new();
            for (report, sign) in [(a, -1), (b, 1)] {
                for claim in &report.node_claims {
                    *machines.entry(name(claim)).or_default() += sign;
                }
            }
            machines.retain(|_, difference| *difference != 0);
            machines
        };
        let (waiting_in_a, waiting_in_b) = (without_place(a), without_place(b));
        let (in_a, in_b) = (pods(a), pods(b));
        let of_both = |pods: &BTreeMap<&str, &[Reason]>, others: &BTreeMap<&str, &[Reason]>| -> Vec<String> {
            let is_meant = |pod: &&str| in_a.contains(pod) && in_b.contains(pod) && !others.contains_key(pod);
            pods.keys().copied().filter(is_meant).map(str::to_owned).collect()
        };
        let has_other_reasons =
            |pod: &&str| waiting_in_a.get(pod).is_some_and(|reasons| Some(reasons) != waiting_in_b.get(pod));
        let only = |pods: &BTreeSet<&str>, others: &BTreeSet<&str>| -> Vec<String> {
            pods.difference(others).map(|&pod| pod.to_owned()).collect()
        };
        Self {
            machines: count(b.node_claims.len()) - count(a.node_claims.len()),
            price_nano_usd_per_hour: b.cost.price_nano_usd_per_hour.0 - a.cost.price_nano_usd_per_hour.0,
            machines_by_type: machines(|claim| {
                format!("{} {} {}", claim.node_pool, claim.launch.instance_type, claim.launch.capacity_type)
            }),
            machines_by_offering: machines(|claim| {
                let Launch { instance_type, zone, capacity_type, .. } = &claim.launch;
                format!("{} {instance_type} {zone} {capacity_type}", claim.node_pool)
            }),
            gained: of_both(&waiting_in_a, &waiting_in_b),
            lost: of_both(&waiting_in_b, &waiting_in_a),
            other_reasons: waiting_in_b.keys().copied().filter(has_other_reasons).map(str::to_owned).collect(),
            only_in_a: only(&in_a, &in_b),
            only_in_b: only(&in_b, &in_a),
        }
    }
}

fn without_place(report: &Report) -> BTreeMap<&str, &[Reason]> {
    report.unschedulable.iter().map(|refused| (refused.pod.as_str(), refused.reasons.as_slice())).collect()
}

/// Pods that the plan says anything of.
fn pods(report: &Report) -> BTreeSet<&str> {
    let new = report.node_claims.iter().flat_map(|claim| &claim.pods);
    let placed = new.chain(report.existing_nodes.iter().flat_map(|node| &node.pods));
    placed.map(String::as_str).chain(report.unschedulable.iter().map(|refused| refused.pod.as_str())).collect()
}

impl Comparison {
    fn render(&self, name_of_a: &str, name_of_b: &str) -> String {
        let Self { a, b, difference } = self;
        let mut totals = table(&["", name_of_a, name_of_b, "DIFFERENCE"]);
        let on_nodes = |report: &Report| report.existing_nodes.iter().map(|node| node.pods.len()).sum::<usize>();
        let placed =
            |report: &Report| report.node_claims.iter().map(|claim| claim.pods.len()).sum::<usize>() + on_nodes(report);
        let mut count = |what: &str, of_a: usize, of_b: usize| {
            let change = i64::try_from(of_b).unwrap_or(i64::MAX) - i64::try_from(of_a).unwrap_or(i64::MAX);
            totals.add_row([what.into(), right(of_a), right(of_b), right(format!("{change:+}"))]);
        };
        count("new machines", a.node_claims.len(), b.node_claims.len());
        count("pods with a place", placed(a), placed(b));
        if on_nodes(a) + on_nodes(b) > 0 {
            count("  on existing nodes", on_nodes(a), on_nodes(b));
        }
        count("unschedulable pods", a.unschedulable.len(), b.unschedulable.len());
        if !a.capacity_buffers.is_empty() || !b.capacity_buffers.is_empty() {
            let room = |report: &Report| -> usize {
                let of = |buffer: &CapacityBuffer| (buffer.replicas - buffer.missing.min(buffer.replicas)) as usize;
                report.capacity_buffers.iter().map(of).sum()
            };
            count("pods that room is kept free for", room(a), room(b));
        }
        let price = |report: &Report| report.cost.price_nano_usd_per_hour;
        let bound = |report: &Report| report.cost.lower_bound_nano_usd_per_hour;
        totals.add_row(["price".into(), right(short(price(a))), right(short(price(b))), right(self.price_change())]);
        totals.add_row(["no plan below".into(), right(short(bound(a))), right(short(bound(b))), "".into()]);
        let mut sections = vec![finished(&totals)];
        if !difference.machines_by_offering.is_empty() {
            let mut types = table(&["MACHINES", "NODEPOOL, INSTANCE TYPE, ZONE, CAPACITY"]);
            for (name, change) in &difference.machines_by_offering {
                types.add_row([right(format!("{change:+}")), name.into()]);
            }
            sections.push(format!("Other machines\n{}", finished(&types)));
        }
        for (name, pods) in [(name_of_a, &difference.only_in_a), (name_of_b, &difference.only_in_b)] {
            if !pods.is_empty() {
                sections.push(format!("Waiting in {name} only\n  {}\n", some(pods)));
            }
        }
        if !difference.gained.is_empty() {
            sections.push(format!("A place in {name_of_b} only\n  {}\n", some(&difference.gained)));
        }
        for (heading, pods) in [
            (format!("Unschedulable only in {name_of_b}"), &difference.lost),
            (format!("Unschedulable in {name_of_b} for other reasons"), &difference.other_reasons),
        ] {
            if !pods.is_empty() {
                sections.push(format!("{heading}\n  {}\n{}", some(pods), reasons(b, pods)));
            }
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

/// Why these pods have no place, a line each.
fn reasons(report: &Report, pods: &[String]) -> String {
    let is_meant = |refused: &&Unschedulable| pods.contains(&refused.pod);
    let mut told = BTreeSet::new();
    let reasons = report.unschedulable.iter().filter(is_meant).flat_map(|refused| &refused.reasons);
    reasons
        .filter(|reason| told.insert(*reason))
        .map(|reason| match &reason.object {
            Some(object) => format!("    {object}: {}\n", reason.message),
            None => format!("    {}\n", reason.message),
        })
        .collect()
}

/// The first names, and how many more.
fn some(names: &[String]) -> String {
    let (named, others) = names.split_at(names.len().min(NAMED_PODS));
    let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    named.join(", ") + &more
}
