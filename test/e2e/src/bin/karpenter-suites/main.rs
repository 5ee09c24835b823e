//! `cargo xtask karpenter-suites`: Karpenter's own end-to-end tests on real control planes, with our controller.

use std::collections::BTreeMap;
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use e2e::exit;
use e2e::karpenter_suites::{
    Expectations, Expected, Judgement, Options, Played, Progress, Spec, Specs, Suite, Summary, run,
};
use e2e::scratch::Scratch;
use indicatif::{ProgressBar, ProgressStyle};

#[derive(Parser)]
#[command(about = "Run Karpenter's own end-to-end tests with our controller")]
struct Arguments {
    /// Only this suite; repeat for several.
    #[arg(long = "suite", value_name = "SUITE", value_enum)]
    suites: Vec<Suite>,
    /// Only specs that this regular expression of Go's is found in: the suite's title, the containers' texts and the
    /// spec's own, joined by blanks.
    #[arg(long)]
    focus: Option<String>,
    /// Only specs that pass and are quick.
    #[arg(long)]
    fast: bool,
    /// On how many clusters at a time; each takes a gigabyte of memory. [default: two for each processor, at most 8]
    #[arg(long)]
    jobs: Option<usize>,
    /// Print the specs and what is expected of them, and run none.
    #[arg(long)]
    list: bool,
    /// Write all results to this file, as JSON.
    #[arg(long)]
    report: Option<PathBuf>,
    /// The controller to measure with the performance suite.
    #[arg(long)]
    release_binary: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit::code(play(&Arguments::parse()).await)
}

async fn play(arguments: &Arguments) -> Result<bool> {
    let scratch = Scratch::new("karpenter-suites")?;
    // What is in a folder of this name stays when the others are removed.
    let folder = scratch.path().join("logs");
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let expectations = Expectations::read()?;
    let chosen = choose(arguments, &expectations, &folder)?;
    if arguments.list {
        chosen.iter().flat_map(|(_, specs)| specs).for_each(|spec| println!("{}", describe(spec, &expectations)));
        return Ok(true);
    }

    let started = Instant::now();
    let options = Options {
        jobs: arguments.jobs.unwrap_or_else(default_jobs).max(1),
        release_binary: arguments.release_binary.clone(),
        folder: folder.clone(),
    };
    let screen = Screen::new(chosen.iter().map(|(_, specs)| specs.len()).sum(), &expectations)?;
    let told = |played: &Played, progress: Progress| screen.show(played, progress);
    let run = run(&chosen, &expectations, &options, &told).await?;
    screen.bar.finish_and_clear();

    let summary = Summary::new(run.played, &expectations);
    println!("{}", summary.table());
    summary.surprises().for_each(|surprise| println!("{surprise}"));
    let seconds = started.elapsed().as_secs_f64();
    let (kubernetes, karpenter) = (run.kubernetes.unwrap_or_else(|| "unknown".to_owned()), run.karpenter);
    println!("Kubernetes {kubernetes}, Karpenter {karpenter}, {seconds:.0} s, logs in {}", folder.display());
    if let Some(file) = &arguments.report {
        let versions = BTreeMap::from([("kubernetes", kubernetes), ("karpenter", karpenter)]);
        let report = summary.report(&versions, seconds);
        std::fs::write(file, format!("{report:#}\n")).with_context(|| format!("write {}", file.display()))?;
    }
    println!("{summary}");
    Ok(summary.is_as_expected())
}

/// Builds the suites that are asked for and takes the specs that are asked for.
fn choose(arguments: &Arguments, expectations: &Expectations, folder: &Path) -> Result<Vec<(Specs, Vec<Spec>)>> {
    let suites = Suite::ALL.into_iter().filter(|suite| {
        let asked_for = arguments.suites.is_empty() || arguments.suites.contains(suite);
        asked_for && (!arguments.fast || expectations.has_fast(*suite))
    });
    let mut chosen = Vec::new();
    for suite in suites {
        let specs = Specs::of(suite, folder)?;
        expectations.check(suite, &specs.all).context("test/karpenter-suites/testdata/expectations.yaml")?;
        let mut wanted = specs.all.clone();
        if let Some(focus) = &arguments.focus {
            let focused = specs.focused(focus, folder)?;
            wanted.retain(|spec| focused.contains(&spec.name));
        }
        if arguments.fast {
            wanted.retain(|spec| expectations.is_fast(spec));
        }
        if !wanted.is_empty() {
            chosen.push((specs, wanted));
        }
    }
    ensure!(!chosen.is_empty(), "no spec is chosen by these arguments");
    Ok(chosen)
}

fn describe(spec: &Spec, expectations: &Expectations) -> String {
    let fast = if expectations.is_fast(spec) { ", fast" } else { "" };
    let expected = match expectations.of(spec) {
        Expected::Pass => String::new(),
        Expected::Failure(cause) => format!(", expected to fail: {cause}"),
    };
    format!("{spec} [at most {} s{fast}{expected}]", expectations.limit(spec).as_secs())
}

/// Much of a spec is waiting.
fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(2, |processors| processors.get().saturating_mul(2)).min(8)
}

/// A line for each spec, and one below them on a terminal.
struct Screen<'a> {
    bar: ProgressBar,
    is_terminal: bool,
    failed: std::sync::atomic::AtomicUsize,
    expectations: &'a Expectations,
}

impl<'a> Screen<'a> {
    fn new(specs: usize, expectations: &'a Expectations) -> Result<Self> {
        let bar = ProgressBar::new(specs.try_into()?);
        bar.set_style(ProgressStyle::with_template("{bar:30} {msg}")?);
        bar.set_message(format!("0 done, 0 failed, {specs} left"));
        bar.enable_steady_tick(Duration::from_secs(1));
        Ok(Self { bar, is_terminal: stderr().is_terminal(), failed: Default::default(), expectations })
    }

    fn show(&self, played: &Played, progress: Progress) {
        let judgement = Judgement::of(&played.verdict, &self.expectations.of(&played.spec));
        let failed = &self.failed;
        if judgement == Judgement::Failed {
            failed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        let word = match judgement {
            Judgement::Passed => "passed",
            Judgement::Failed => "FAILED",
            Judgement::FailedAsExpected => "failed as expected",
            Judgement::PassedThoughListed => "PASSED THOUGH LISTED",
            Judgement::Skipped => "skipped",
        };
        let state = format!(
            "{} done, {} failed, {} left, about {} to go",
            progress.done,
            failed.load(std::sync::atomic::Ordering::Relaxed),
            progress.left,
            minutes(progress.time_left),
        );
        let remarks: String = played.remarks.iter().map(|remark| format!("; {remark}")).collect();
        self.bar.suspend(|| println!("{word}, {:.0} s: {}{remarks}", played.time.as_secs_f64(), played.spec));
        self.bar.inc(1);
        self.bar.set_message(state.clone());
        if !self.is_terminal {
            eprintln!("{state}");
        }
    }
}

fn minutes(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..90 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}
