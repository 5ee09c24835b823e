//! `dovetail plan`: the controller's planner on files.

mod compare;
mod disruption;
pub(super) mod table;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use model::{DurationMs, PriceNanoUsdPerHour, Timestamp};
use scheduling::snapshot::expiration::ExpirationPolicy;
use scheduling::snapshot::{PreferencePolicy, PrioritizedListPolicy};
use scheduling::{Plan, Snapshot, provisioning};

use super::input::{Documents, Input, InputArgs};
use super::progress::Progress;
use super::report::Report;
use super::{Outcome, output};
use provisioner::options::price;

/// Plan machines for the pods in manifests or in a snapshot
///
/// Reads YAML and JSON manifests, Lists and snapshot files, from files, folders (with their subfolders) or standard
/// input, and prints which machines `dovetail run` would launch, where each pod goes, what it costs, and why pods are
/// unschedulable. Needs neither a cluster nor a cloud.
///
/// With --disruption it prints instead which machines would be removed or replaced, what that saves, and why each of
/// the others stays.
///
/// Exit code: 0 if all pods can be scheduled, 3 if some cannot, 1 on an error, 2 on wrong usage. With --disruption, 0
/// whatever the plan is.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dovetail plan -f manifests/ --expand-workloads
  helm template my-chart | dovetail plan -f - --expand-workloads
  dovetail plan -f pods.yaml -f nodepools.yaml -o json
  dovetail snapshot > cluster.jsonl && dovetail plan -f cluster.jsonl -o wide
  dovetail plan -f cluster.jsonl --compare pools-now.yaml pools-then.yaml
  dovetail plan -f cluster.jsonl --disruption --at 2026-12-01T22:00:00Z
  dovetail plan -f cluster.jsonl --disruption --compare current eviction-price=0")]
pub(super) struct Args {
    /// File or folder to read, - for standard input; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "PATH", required_unless_present = "compare")]
    filenames: Vec<PathBuf>,
    /// Plan twice, once with each of two files or folders added to what -f reads, and print the difference. NodePools
    /// and NodeOverlays in them replace those of -f. With --disruption, A and B may also be `current`, for the input as
    /// it is, or settings: eviction-price=USD, consolidation-horizon=TIME, device-restart-time=TIME,
    /// spot-to-spot-consolidation=true or false,
    /// expiration-policy=Forceful or Graceful, consolidation-policy=WhenEmpty, WhenEmptyOrUnderutilized or Balanced for
    /// all NodePools; several with commas between them
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "check")]
    compare: Option<Vec<String>>,
    /// Say which machines would be removed or replaced, and why each of the others stays
    #[arg(long, conflicts_with_all = ["karpenter_order", "reasons"])]
    disruption: bool,
    /// The time to plan for, in RFC 3339; it decides which schedules of disruption budgets are active [default: the
    /// snapshot's time, else now]
    #[arg(long, value_name = "TIME", requires = "disruption")]
    at: Option<Timestamp>,
    /// Place pods in Karpenter's order, for comparison; with --compare, in A only
    #[arg(long)]
    karpenter_order: bool,
    #[command(flatten)]
    input: InputArgs,
    /// How to print the plan
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
    /// Print for each pod that is placed which rule decided, and what excluded the other places
    #[arg(long, conflicts_with = "compare")]
    reasons: bool,
    /// Check the plan pod by pod with a second implementation of kube-scheduler's rules; exit 1 if a pod does not fit
    #[arg(long)]
    check: bool,
    /// Steps that the search for room may take when room is short [default: 200000, or the snapshot's]
    #[arg(long, value_name = "STEPS")]
    budget: Option<u64>,
    /// Which preferences of pods the plan keeps [default: Respect, or the snapshot's]
    #[arg(long, value_enum)]
    preference_policy: Option<Preferences>,
    /// What keeping a preference may cost, in dollars per hour for each pod and point of weight [default: 0, or the
    /// snapshot's]
    #[arg(long, value_parser = price, value_name = "USD")]
    preference_price: Option<PriceNanoUsdPerHour>,
    /// How to choose between the alternatives (firstAvailable) of a claim [default: order, or the snapshot's]
    #[arg(long, value_enum)]
    prioritized_list_policy: Option<Alternatives>,
    /// What the eviction of a pod costs, in dollars; 0 is Karpenter's rule, that any saving pays [default: 0.021, or
    /// the snapshot's]
    #[arg(long, value_parser = price, value_name = "USD", requires = "disruption")]
    eviction_price: Option<PriceNanoUsdPerHour>,
    /// How long a saving counts against the price of evictions [default: 1h, or the snapshot's]
    #[arg(long, value_parser = duration, value_name = "TIME", requires = "disruption")]
    consolidation_horizon: Option<DurationMs>,
    /// How long pods with devices take to start anew elsewhere; their machine's price for that time counts as evictions
    /// do [default: 5m, or the snapshot's]
    #[arg(long, value_parser = duration, value_name = "TIME", requires = "disruption")]
    device_restart_time: Option<DurationMs>,
    /// Let spot machines be replaced by cheaper spot machines (Karpenter's gate SpotToSpotConsolidation)
    #[arg(long, requires = "disruption")]
    spot_to_spot_consolidation: bool,
    /// What becomes of machines older than their expireAfter, unless their NodePool says it [default: Forceful, or the
    /// snapshot's]
    #[arg(long, value_enum, requires = "disruption")]
    expiration_policy: Option<Expiration>,
    /// What a node costs besides its machine, in dollars per hour [default: 0, or the snapshot's]
    #[arg(long, value_parser = price, value_name = "USD")]
    node_price: Option<PriceNanoUsdPerHour>,
}

/// What preferences count for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Preferences {
    /// Keep those that cost nothing, or no more than --preference-price
    #[value(name = "Respect")]
    Respect,
    /// Leave them to kube-scheduler
    #[value(name = "Ignore")]
    Ignore,
}

/// What becomes of machines that are past their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Expiration {
    /// They are deleted, whatever is planned
    #[value(name = "Forceful")]
    Forceful,
    /// They are replaced as those that have drifted
    #[value(name = "Graceful")]
    Graceful,
}

/// What decides between the alternatives of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Alternatives {
    /// The first alternative that any machine gives
    Order,
    /// The cheapest machine that gives any alternative
    Price,
}

fn duration(text: &str) -> Result<DurationMs, String> {
    DurationMs::parse(text).map_err(|error| error.to_string())
}

impl Args {
    /// Changes what the input says by what was asked for.
    fn apply(&self, options: &mut scheduling::snapshot::Options) {
        options.search_steps = self.budget.unwrap_or(options.search_steps);
        options.preference_price = self.preference_price.unwrap_or(options.preference_price);
        options.node_price = self.node_price.unwrap_or(options.node_price);
        let disruption = &mut options.disruption;
        disruption.eviction_price_nano_usd =
            self.eviction_price.map_or(disruption.eviction_price_nano_usd, |price| price.0);
        disruption.consolidation_horizon = self.consolidation_horizon.unwrap_or(disruption.consolidation_horizon);
        disruption.device_restart = self.device_restart_time.unwrap_or(disruption.device_restart);
        disruption.spot_to_spot_consolidation |= self.spot_to_spot_consolidation;
        disruption.expiration.policy = match self.expiration_policy {
            Some(Expiration::Forceful) => ExpirationPolicy::Forceful,
            Some(Expiration::Graceful) => ExpirationPolicy::Graceful,
            None => disruption.expiration.policy,
        };
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
    /// For people, one line for equal machines
    Table,
    /// For people, one line for each machine, with its pods by name
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
    if args.disruption {
        return disruption::run(&args);
    }
    if let Some([a, b]) = args.compare.as_deref() {
        return compare::run(&args, Path::new(a), Path::new(b));
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
