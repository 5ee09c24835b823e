//! `cargo xtask karpenter-suites`: builds Karpenter's suites, the control plane and the program that brings them
//! together, and runs it.

use std::path::PathBuf;
use std::thread;

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use go_programs::Program;

use crate::process::{build, command, run as run_command};
use crate::progress::Progress;

#[derive(Default, clap::Args)]
pub(crate) struct Options {
    /// Only this suite; repeat for several.
    #[arg(long = "suite", value_name = "SUITE", value_enum)]
    suites: Vec<Suite>,
    /// Only specs that this regular expression of Go's is found in: the suite's title, the containers' texts and the
    /// spec's own, joined by blanks.
    #[arg(long)]
    focus: Option<String>,
    /// On how many clusters at a time; each takes a gigabyte of memory. [default: two for each processor, at most 8]
    #[arg(long)]
    jobs: Option<usize>,
    /// Print the specs and what is expected of them, and run none.
    #[arg(long)]
    list: bool,
    /// Only specs that pass and are quick: five minutes in all.
    #[arg(long)]
    fast: bool,
    /// Write all results to this file, as JSON.
    #[arg(long)]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Suite {
    /// What the controller does, feature by feature.
    Regression,
    /// Devices and the driver that publishes them.
    Dra,
    /// Time, memory and utilization under load, with a release build.
    Performance,
}

impl Suite {
    fn programs(self) -> &'static [Program] {
        match self {
            Self::Regression => &[go_programs::KARPENTER_REGRESSION_SUITE],
            Self::Dra => &[go_programs::KARPENTER_DRA_SUITE, go_programs::KARPENTER_DRA_DRIVER],
            Self::Performance => &[go_programs::KARPENTER_PERFORMANCE_SUITE],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Regression => "regression",
            Self::Dra => "dra",
            Self::Performance => "performance",
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    // Cargo shows its own progress on the same terminal, so ours is plain lines while both build.
    let go = options.go_programs();
    let go = thread::spawn(move || {
        let progress = Progress::new();
        go.iter().try_for_each(|program| program.build(&|text| progress.say(text)).map(drop))
    });
    eprintln!("building what runs Karpenter's suites");
    // As tests build it, so that nothing is compiled twice.
    let tests = ["--workspace", "--features", crate::test::FEATURES, "--bin=karpenter-suites", "--bin=dovetail"];
    let built = build(&tests, "karpenter-suites");
    go.join().map_err(|_| anyhow!("the build of Go programs panicked"))?.context("Go programs")?;

    let mut player = command(&built?.to_string_lossy());
    for suite in &options.suites {
        player.args(["--suite", suite.name()]);
    }
    if let Some(focus) = &options.focus {
        player.args(["--focus", focus]);
    }
    if let Some(jobs) = options.jobs {
        player.args(["--jobs", &jobs.to_string()]);
    }
    if options.list {
        player.arg("--list");
    }
    if options.fast {
        player.arg("--fast");
    }
    if let Some(report) = &options.report {
        let report = std::path::absolute(report).with_context(|| format!("make {} absolute", report.display()))?;
        player.arg("--report").arg(report);
    }
    if options.measures() {
        eprintln!("building dovetail in release mode, to be measured");
        let release = build(&["--release", "--package=dovetail", "--bin=dovetail"], "dovetail")?;
        player.arg("--release-binary").arg(release);
    }
    run_command(&mut player)
}

impl Options {
    /// What is likely to be run; the player builds what is missing.
    fn go_programs(&self) -> Vec<Program> {
        let asked_for = |suite: &Suite| match self.suites.is_empty() {
            true => !self.fast || *suite == Suite::Regression,
            false => self.suites.contains(suite),
        };
        let suites = Suite::value_variants().iter().filter(|suite| asked_for(suite));
        let suites = suites.flat_map(|suite| suite.programs()).copied();
        let to_run = [go_programs::CONTROL_PLANE, go_programs::HELM_RENDER];
        suites.chain(to_run.into_iter().filter(|_| !self.list)).collect()
    }

    /// Whether time and memory are judged.
    fn measures(&self) -> bool {
        !self.list && !self.fast && (self.suites.is_empty() || self.suites.contains(&Suite::Performance))
    }
}
