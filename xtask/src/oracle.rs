//! `cargo xtask oracle`: Kubernetes' own libraries and ours, on the same random questions, for each release that is
//! imitated: the device allocator, the evaluator of device selectors, and the scheduler's plugins around them.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use go_programs::Program;

use crate::process::{build, command, describe, side_by_side};
use crate::progress::Progress;
use crate::release::Release;

#[derive(Args)]
pub(crate) struct Options {
    /// Questions for each seed, asked of each release; of the plugins a fifth, since they take so much longer.
    #[arg(long, default_value_t = 2_000)]
    cases: u64,
    /// Where the random numbers start: a number, or `date` for one that is another each day; repeat for several.
    /// [default: 1]
    #[arg(long = "seed", value_name = "SEED", value_parser = seed)]
    seeds: Vec<u64>,
    /// Ask only this release; repeat for several. [default: all]
    #[arg(long = "kubernetes", value_name = "RELEASE", value_enum)]
    releases: Vec<Release>,
    /// Ask only about this.
    #[arg(long, value_enum)]
    only: Option<Subject>,
    /// Use a release build: minutes to compile, and a tenth of the time for each question.
    #[arg(long)]
    release: bool,
}

/// The seed whose questions are the same in every run.
const FIXED_SEED: u64 = 1;

impl Options {
    /// The questions of CI: the same ones at each commit, and others each day.
    pub(crate) fn of_ci() -> Self {
        Self {
            cases: 2_000,
            seeds: vec![FIXED_SEED, seed_of_today()],
            releases: Vec::new(),
            only: None,
            release: false,
        }
    }
}

fn seed(text: &str) -> Result<u64, String> {
    match text {
        "date" => Ok(seed_of_today()),
        text => text.parse().map_err(|_| "neither a number nor `date`".to_owned()),
    }
}

/// Days since 1970.
fn seed_of_today() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / (24 * 60 * 60))
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    Allocator,
    Cel,
    Plugins,
}

impl Subject {
    /// The example that asks.
    fn example(self) -> &'static str {
        match self {
            Self::Allocator => "differential",
            Self::Cel => "cel_differential",
            Self::Plugins => "plugin_differential",
        }
    }

    fn program(self, release: Release) -> Program {
        match (self, release) {
            (Self::Allocator, Release::V1_36) => go_programs::ALLOCATOR_1_36,
            (Self::Allocator, Release::V1_37) => go_programs::ALLOCATOR_1_37,
            (Self::Cel, Release::V1_36) => go_programs::CEL_1_36,
            (Self::Cel, Release::V1_37) => go_programs::CEL_1_37,
            (Self::Plugins, Release::V1_36) => go_programs::PLUGIN_1_36,
            (Self::Plugins, Release::V1_37) => go_programs::PLUGIN_1_37,
        }
    }

    fn cases(self, asked: u64) -> u64 {
        match self {
            Self::Allocator | Self::Cel => asked,
            Self::Plugins => asked.div_ceil(5),
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let releases = if options.releases.is_empty() { Release::value_variants() } else { &options.releases };
    let subjects = Subject::value_variants().iter().filter(|subject| options.only.is_none_or(|only| only == **subject));
    let seeds: &[u64] = if options.seeds.is_empty() { &[FIXED_SEED] } else { &options.seeds };
    let mut questions = Vec::new();
    for &subject in subjects {
        let ask = asked(subject, releases, options)?;
        questions.extend(seeds.iter().map(|seed| (subject, *seed, with_seed(&ask, *seed))));
    }
    let mut failed = Vec::new();
    let mut sum = Counts::default();
    for (name, answer) in ask_all(questions) {
        let Answer { succeeded, counts } = answer?;
        sum.passed += counts.passed;
        sum.failed += counts.failed;
        if !succeeded {
            failed.push(name);
        }
    }
    println!("\nall together");
    println!("{} passed, {} failed", sum.passed, sum.failed);
    if !failed.is_empty() {
        bail!("answers differ from upstream's, or too few were compared:\n{}", failed.join("\n"));
    }
    Ok(())
}

/// What a comparison's last line says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
}

impl Counts {
    /// Reads `12 passed, 3 failed`, whatever comes after it.
    fn of_line(line: &str) -> Option<Self> {
        let (passed, rest) = line.trim().split_once(" passed, ")?;
        let (failed, _) = rest.split_once(" failed")?;
        Some(Self { passed: passed.parse().ok()?, failed: failed.parse().ok()? })
    }
}

/// The comparison of a subject with these releases, but for its seed.
fn asked(subject: Subject, releases: &[Release], options: &Options) -> Result<Command> {
    let mut ask = command(&ours(subject, options)?.to_string_lossy());
    for &release in releases {
        let progress = Progress::new();
        let oracle = subject.program(release).build(&|line| progress.say(line))?;
        ask.arg("--oracle").arg(format!("{}={}", release.name(), oracle.display()));
    }
    ask.args(["--cases", &subject.cases(options.cases).to_string()]);
    ask.arg("--fixtures").arg(crate::process::target_folder()?.join("oracle"));
    Ok(ask)
}

fn with_seed(ask: &Command, seed: u64) -> Command {
    let mut once = command(&ask.get_program().to_string_lossy());
    once.args(ask.get_args()).args(["--seed", &seed.to_string()]);
    once
}

/// What a comparison came to.
struct Answer {
    succeeded: bool,
    counts: Counts,
}

/// Runs the comparisons, as many at a time as there are processors, since each is one program that asks another in
/// turn. Prints what each said once it has ended. The results are in the order given.
fn ask_all(questions: Vec<(Subject, u64, Command)>) -> Vec<(String, Result<Answer>)> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(questions.len());
    side_by_side(questions, threads, |(subject, seed, mut ask)| {
        eprintln!("{}, seed {seed}: asking", subject.example());
        let (said, answer) = ask_and_count(&mut ask);
        println!("\n{}, seed {seed}\n{}", subject.example(), said.trim_end());
        (describe(&ask), answer)
    })
}

/// Runs a comparison, and gives what it printed and what it counted last.
fn ask_and_count(ask: &mut Command) -> (String, Result<Answer>) {
    match ask.stderr(Stdio::inherit()).output().with_context(|| describe(ask)) {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let counts = said.lines().filter_map(Counts::of_line).next_back().unwrap_or_default();
            (said, Ok(Answer { succeeded: output.status.success(), counts }))
        }
        Err(error) => (String::new(), Err(error)),
    }
}

/// Our side of the comparison. A debug build is that of the tests, so that nothing is compiled twice.
fn ours(subject: Subject, options: &Options) -> Result<PathBuf> {
    let example = ["--example", subject.example()];
    let package = if matches!(subject, Subject::Cel) { "--package=k8s-cel" } else { "--package=dra-sched" };
    let selection: &[&str] =
        if options.release { &["--release", package] } else { &["--workspace", "--features", crate::test::FEATURES] };
    build(&[selection, &example].concat(), subject.example())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ci_asks_a_fixed_seed_and_one_that_follows_the_date() {
        let seeds = Options::of_ci().seeds;
        assert_eq!(seeds.first(), Some(&FIXED_SEED));
        assert!(seeds.get(1).is_some_and(|today| *today > 20_000), "{seeds:?}");
        assert_eq!(seed("7"), Ok(7));
        assert!(seed("yesterday").is_err());
    }

    #[test]
    fn the_last_line_of_a_comparison_is_counted() {
        assert_eq!(Counts::of_line("12 passed, 3 failed"), Some(Counts { passed: 12, failed: 3 }));
        assert_eq!(Counts::of_line("9 passed, 0 failed, 1 unanswered"), Some(Counts { passed: 9, failed: 0 }));
        assert_eq!(Counts::of_line("1.36: 40 of 90"), None);
    }
}
