//! Plays traces with our rules of disruption and with Karpenter's, and prints what both come to.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fmt, fs, thread};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use model::{DurationMs, PriceNanoUsdPerHour};
use scheduling::snapshot::DisruptionOptions;
use simulate::plot;
use simulate::report::{self, Row};
use simulate::rules::Side;
use simulate::run::{Outcome, run};
use simulate::trace::{Kind, Size, Trace};

/// Plays days of a cluster in virtual time, and prints what its machines cost and how many pods are evicted.
#[derive(Parser)]
#[command(name = "cargo xtask simulate", bin_name = "cargo xtask simulate", disable_version_flag = true)]
struct Arguments {
    /// How many days things change.
    #[arg(long, default_value_t = 3.0)]
    days: f64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Play Karpenter's rules on the same traces.
    #[arg(long)]
    karpenter_rules: bool,
    /// Only traces of this kind; may be given several times.
    #[arg(long = "trace", value_name = "KIND", value_parser = kind)]
    traces: Vec<Kind>,
    /// What an eviction costs, in dollars; several are compared. [default: the controller's]
    #[arg(long, value_delimiter = ',', value_name = "DOLLARS")]
    eviction_price: Vec<f64>,
    /// How long a saving counts, in hours; several are compared. [default: the controller's]
    #[arg(long, value_delimiter = ',', value_name = "HOURS")]
    consolidation_horizon: Vec<f64>,
    /// How many workloads a cluster has.
    #[arg(long, default_value_t = 14)]
    workloads: usize,
    /// How many pods each of them has in the mean.
    #[arg(long, default_value_t = 16)]
    replicas: usize,
    /// Draw the fleet's price over time, of the first seed.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

fn kind(text: &str) -> Result<Kind, String> {
    let names = || Kind::ALL.map(Kind::name).join(", ");
    Kind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| format!("not one of {}", names()))
}

fn main() -> ExitCode {
    match play(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn play(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.days > 0.0 && arguments.days <= 366.0, "--days has to be above 0, and 366 at most");
    ensure!(arguments.seeds > 0 && arguments.workloads > 1 && arguments.replicas > 0, "there is nothing to play");
    let size = Size {
        workloads: arguments.workloads,
        replicas: arguments.replicas,
        lasts: DurationMs((arguments.days * 86_400_000.0) as i64),
    };
    let kinds = if arguments.traces.is_empty() { Kind::ALL.to_vec() } else { arguments.traces.clone() };
    let sides = sides(arguments);
    let seeds = arguments.seed..arguments.seed.saturating_add(arguments.seeds);
    let mut plays = Vec::new();
    for &kind in &kinds {
        for (name, side) in &sides {
            plays.extend(seeds.clone().map(|seed| Play { kind, name, side: *side, seed }));
        }
    }
    let mut outcomes = at_once(&plays, size)?.into_iter();
    let mut rows: Vec<Row> = Vec::new();
    for &kind in &kinds {
        for (name, _) in &sides {
            let outcomes = outcomes.by_ref().take(seeds.clone().count()).collect();
            rows.push(Row { kind, side: name.clone(), outcomes });
        }
    }
    eprint!("\r\x1b[K");
    print!("{}", report::table(&rows));
    if let Some(path) = &arguments.plot {
        fs::write(path, plot::svg(&rows)).with_context(|| format!("write {}", path.display()))?;
    }
    judge(&rows)
}

/// A trace, and by whose rules it is played.
struct Play<'a> {
    kind: Kind,
    name: &'a str,
    side: Side,
    seed: u64,
}

impl fmt::Display for Play<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, seed {}", self.kind, self.name, self.seed)
    }
}

/// Plays as many at once as there are processors.
fn at_once(plays: &[Play<'_>], size: Size) -> Result<Vec<Outcome>> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let outcomes: Vec<OnceLock<Result<Outcome>>> = plays.iter().map(|_| OnceLock::new()).collect();
    let work = || {
        while let Some((play, slot)) = plays.iter().zip(&outcomes).nth(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = run(&Trace::new(play.kind, size, play.seed), play.side, play.seed);
            for violation in outcome.iter().flat_map(|outcome| &outcome.violations) {
                eprintln!("\r{play}: {violation}\x1b[K");
            }
            let _: Result<(), _> = slot.set(outcome.with_context(|| play.to_string()));
            eprint!("\r{} of {}: {play}\x1b[K", done.fetch_add(1, Ordering::Relaxed) + 1, plays.len());
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    outcomes.into_iter().map(|slot| slot.into_inner().context("a trace was not played")?).collect()
}

/// What is compared, by what people call it.
fn sides(arguments: &Arguments) -> Vec<(String, Side)> {
    let default = DisruptionOptions::default();
    let dollars = |price: f64| (price * 1e9) as i64;
    let hours = |hours: f64| DurationMs((hours * 3_600_000.0) as i64);
    let prices: Vec<i64> = match arguments.eviction_price.as_slice() {
        [] => vec![default.eviction_price_nano_usd],
        prices => prices.iter().map(|price| dollars(*price)).collect(),
    };
    let horizons: Vec<DurationMs> = match arguments.consolidation_horizon.as_slice() {
        [] => vec![default.consolidation_horizon],
        horizons => horizons.iter().map(|horizon| hours(*horizon)).collect(),
    };
    let mut sides = Vec::new();
    for &eviction_price_nano_usd in &prices {
        for &consolidation_horizon in &horizons {
            let name = format!(
                "Dovetail, ${} an eviction, {} h",
                PriceNanoUsdPerHour(eviction_price_nano_usd).0 as f64 / 1e9,
                consolidation_horizon.0 as f64 / 3_600_000.0
            );
            let options = DisruptionOptions { eviction_price_nano_usd, consolidation_horizon, ..default };
            sides.push((name, Side::Ours(options)));
        }
    }
    if arguments.karpenter_rules {
        sides.push(("Karpenter".to_owned(), Side::Karpenter));
    }
    sides
}

/// Fails where a rule did not hold, or where ours are dearer than Karpenter's or evict more than half as many.
fn judge(rows: &[Row]) -> Result<()> {
    let ours = || rows.iter().filter(|row| row.side != "Karpenter");
    let violated = ours().flat_map(|row| &row.outcomes).filter(|outcome| !outcome.violations.is_empty()).count();
    ensure!(violated == 0, "rules did not hold in {violated} traces");
    let sides = report::sides(rows);
    let Some((_, others)) = sides.split_last().filter(|(last, _)| **last == "Karpenter") else { return Ok(()) };
    let theirs = report::over_all(rows, "Karpenter");
    let mut worse = Vec::new();
    for side in others {
        let means = report::over_all(rows, side);
        let (price, evictions) = (means.price / theirs.price, means.evictions / theirs.evictions);
        println!("{side}: {:+.1} % in price, {:.0} % of the evictions", (price - 1.0) * 100.0, evictions * 100.0);
        if price > 1.0 || evictions > 0.5 {
            worse.push(*side);
        }
    }
    ensure!(worse.len() < others.len(), "dearer than Karpenter's rules, or more than half as many evictions");
    Ok(())
}
