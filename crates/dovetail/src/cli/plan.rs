//! `dovetail plan`: the controller's planner on files.

mod compare;
mod disruption;
mod table;

use std::path::PathBuf;

use clap::ValueEnum;
use model::{PriceNanoUsdPerHour, Timestamp};
use scheduling::snapshot::{PreferencePolicy, PrioritizedListPolicy};
use scheduling::{Plan, Snapshot, provisioning};

use super::input::{Documents, Input, InputArgs};
use super::progress::Progress;
use super::report::Report;
use super::{Outcome, output};
use provisioner::options::price;

/// Plan machines for the pods in manifests or in a snapshot
///
/// Reads any mix of YAML and JSON manifests, Lists and snapshot files, from files, folders (with all below them) or
/// standard input, and says which machines `dovetail run` would launch, which pods go where, what it costs, and why
/// pods have no place. Needs no cluster and no cloud.
///
/// With --disruption it says instead which machines would be removed or replaced, what that saves, and why each of the
/// others stays.
///
/// Exit code: 0 all pods have a place, 3 some have none, 1 a fault, 2 wrong usage. With --disruption 0 whatever is
/// planned.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dovetail plan -f manifests/ --expand-workloads
  helm template my-chart | dovetail plan -f - --expand-workloads
  dovetail plan -f pods.yaml -f nodepools.yaml -o json
  dovetail snapshot > cluster.jsonl && dovetail plan -f cluster.jsonl -o wide
  dovetail plan -f cluster.jsonl --compare pools-now.yaml pools-then.yaml
  dovetail plan -f cluster.jsonl --disruption --at 2026-12-01T22:00:00Z")]
pub(super) struct Args {
    /// File or folder to read, - for standard input; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "PATH", required_unless_present = "compare")]
    filenames: Vec<PathBuf>,
    /// Plan twice and print the difference: each of two files or folders beside what -f reads. NodePools and
    /// NodeOverlays in them stand in place of those of -f
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "check")]
    compare: Option<Vec<PathBuf>>,
    /// Say which machines would be removed or replaced, and why each of the others stays
    #[arg(long, conflicts_with_all = ["compare", "karpenter_order", "reasons"])]
    disruption: bool,
    /// When to plan for, in RFC 3339: schedules of disruption budgets are looked at then [default: the snapshot's time,
    /// else now]
    #[arg(long, value_name = "TIME", requires = "disruption")]
    at: Option<Timestamp>,
    /// Pack in Karpenter's order instead, to compare with; with --compare only A is packed so
    #[arg(long)]
    karpenter_order: bool,
    #[command(flatten)]
    input: InputArgs,
    /// How to print the plan
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Say for each pod with a place which rule decided, and how other places fell
    #[arg(long, conflicts_with = "compare")]
    reasons: bool,
    /// Play the plan pod by pod by kube-scheduler's rules, written down a second time; exit 1 if a pod would not get in
    #[arg(long)]
    check: bool,
    /// Steps that the search for room may take where room is short [default: 200000, or the snapshot's]
    #[arg(long, value_name = "STEPS")]
    budget: Option<u64>,
    /// Respect keeps preferences that cost nothing or no more than --preference-price, Ignore leaves them out [default:
    /// Respect, or the snapshot's]
    #[arg(long, value_enum)]
    preference_policy: Option<Preferences>,
    /// What keeping a preference may cost, in dollars per hour for each pod and point of weight [default: 0, or the
    /// snapshot's]
    #[arg(long, value_parser = price, value_name = "USD")]
    preference_price: Option<PriceNanoUsdPerHour>,
    /// Machines for claims with alternatives: order takes the first alternative that any machine gives, price the
    /// cheapest machine that gives any [default: order, or the snapshot's]
    #[arg(long, value_enum)]
    prioritized_list_policy: Option<Alternatives>,
    /// What a node costs besides its machine, in dollars per hour [default: 0, or the snapshot's]
    #[arg(long, value_parser = price, value_name = "USD")]
    node_price: Option<PriceNanoUsdPerHour>,
}

/// What preferences count for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Preferences {
    /// They are kept where that costs nothing, or no more than it is worth
    #[value(name = "Respect")]
    Respect,
    /// They are left to the scheduler
    #[value(name = "Ignore")]
    Ignore,
}

/// What decides between the alternatives of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Alternatives {
    /// Their order
    Order,
    /// The price of the machine
    Price,
}

impl Args {
    /// Changes what the input says by what was asked for.
    fn apply(&self, options: &mut scheduling::snapshot::Options) {
        options.search_steps = self.budget.unwrap_or(options.search_steps);
        options.preference_price = self.preference_price.unwrap_or(options.preference_price);
        options.node_price = self.node_price.unwrap_or(options.node_price);
        options.prioritized_list_policy = match self.prioritized_list_policy {
            Some(Alternatives::Order) => PrioritizedListPolicy::Order,
            Some(Alternatives::Price) => PrioritizedListPolicy::Price,
            None => options.prioritized_list_policy,
        };
        options.preference_policy = match self.preference_policy {
            Some(Preferences::Respect) => PreferencePolicy::Respect,
            Some(Preferences::Ignore) => PreferencePolicy::Ignore,
            None => options.preference_policy,
        };
    }
}

/// How a plan is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people, machines that are alike in one line
    Table,
    /// For people, a line for each machine and its pods by name
    Wide,
    /// For programs
    Json,
    /// For programs, as YAML
    Yaml,
}

fn plan_of(snapshot: &Snapshot, in_karpenters_order: bool) -> Plan {
    if in_karpenters_order { provisioning::plan_in_karpenters_order(snapshot) } else { provisioning::plan(snapshot) }
}

/// Runs the command.
pub(super) fn run(args: Args) -> anyhow::Result<Outcome> {
    if let Some([a, b]) = args.compare.as_deref() {
        return compare::run(&args, a, b);
    }
    if args.disruption {
        return disruption::run(&args);
    }
    let progress = Progress::new("reading");
    let mut input = Input::new(Documents::read(&args.filenames)?, &args.input)?;
    args.apply(&mut input.snapshot.options);
    progress.now(format!("planning {} pods", input.snapshot.pods.len()));
    let plan = plan_of(&input.snapshot, args.karpenter_order);
    let wrong = if args.check { checker::check(&input.snapshot, &plan) } else { Vec::new() };
    drop(progress);
    for problem in &wrong {
        output::problem(format_args!("the plan is wrong: {problem}"));
    }

    let is_bad = input.tell();
    let mut report = Report::new(&input, &plan);
    if args.reasons {
        report.add_placements(&input.snapshot, &plan);
    }
    for note in report.notes() {
        output::note(note);
    }
    let text = match args.output {
        Format::Table => table::render(&report, table::Detail::Grouped),
        Format::Wide => table::render(&report, table::Detail::Everything),
        Format::Json => report.to_json()?,
        Format::Yaml => report.to_yaml()?,
    };
    output::stdout(text.as_bytes())?;
    Ok(if is_bad || !wrong.is_empty() {
        Outcome::BadInput
    } else if report.has_unschedulable() {
        Outcome::NoPlace
    } else {
        Outcome::Done
    })
}
