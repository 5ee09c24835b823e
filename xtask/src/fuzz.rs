//! `cargo xtask fuzz`: libFuzzer looks for inputs that break a target, guided by the branches that an input reaches.
//!
//! It works on the stable compiler, because the passes that count branches are LLVM's. What is found is left in the
//! target folder: inputs that reach something new in `fuzz/corpus`, inputs that break something in `fuzz/crashes`. With
//! `--keep` the smallest set of inputs that reaches as much goes into the repository's corpus.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};

use crate::process::{build_with, command, describe, is_installed, side_by_side, target_folder};
use crate::progress::Progress;

/// The targets of `test/fuzz`, and the share of the time that each gets: the slower ones see fewer inputs in it.
const TARGETS: [(&str, u64); 8] = [
    ("quantity", 1),
    ("selector", 3),
    ("object", 2),
    ("overlay", 2),
    ("devices", 3),
    ("manifests", 2),
    ("snapshot", 2),
    ("plan", 4),
];

/// What one input may take, in seconds; in memory, in MiB.
const INPUT_SECONDS: u64 = 20;
const MEMORY_MIB: u64 = 2_048;
const MAX_INPUT_BYTES: u64 = 64 * 1024;

/// How our crates are compiled.
const RUSTC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/fuzz/rustc.sh");

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long, over all targets.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Where the random numbers start. [default: another one each time]
    #[arg(long)]
    seed: Option<u32>,
    /// Only this target; repeat for several.
    #[arg(long = "target", value_name = "NAME", value_parser = names())]
    targets: Vec<String>,
    /// Take what was found into the repository's corpus, as few inputs as reach all of it.
    #[arg(long)]
    keep: bool,
}

impl Options {
    /// What CI runs: a minute with a fresh seed.
    pub(crate) fn of_ci() -> Self {
        Self { seconds: 60, seed: None, targets: Vec::new(), keep: false }
    }
}

fn names() -> clap::builder::PossibleValuesParser {
    TARGETS.map(|(name, _)| name).into()
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let seed = options.seed.unwrap_or_else(fresh_seed);
    let chosen: Vec<_> = TARGETS
        .into_iter()
        .filter(|(name, _)| options.targets.is_empty() || options.targets.iter().any(|it| it == name))
        .collect();
    eprintln!("building the targets with branch counters");
    let fuzzer = Fuzzer { program: build_fuzzer()?, folder: target_folder()?.join("fuzz"), seed };
    println!("seed {seed}: run again with `cargo xtask fuzz --seed {seed} --seconds {}`", options.seconds);

    let lanes = thread::available_parallelism().map_or(1, usize::from).min(chosen.len());
    let shares: u64 = chosen.iter().map(|(_, share)| share).sum();
    let seconds = |share: u64| (options.seconds * share * lanes as u64 / shares).max(1);
    let progress = Progress::new();
    let begun = Instant::now();
    let (say, said) = mpsc::channel();
    let outcomes = thread::scope(|scope| {
        let (chosen, fuzzer, seconds) = (chosen.clone(), &fuzzer, &seconds);
        let fuzzing = scope.spawn(move || {
            side_by_side(chosen, lanes, |(name, share)| {
                // Nobody listens only if the main thread has panicked.
                let _ = say.send(format!("{name} for {} s", seconds(share)));
                (name, fuzzer.fuzz(name, seconds(share)))
            })
        });
        for text in said {
            progress.say(&format!("{text}; {} s of about {} s are over", begun.elapsed().as_secs(), options.seconds));
        }
        fuzzing.join()
    });
    drop(progress);
    let outcomes: BTreeMap<_, _> = outcomes.map_err(|_| anyhow!("fuzzing panicked"))?.into_iter().collect();
    if options.keep {
        for (name, _) in &chosen {
            fuzzer.keep(name)?;
        }
    }
    summarize(
        &chosen.iter().filter_map(|(name, _)| Some((*name, outcomes.get(name)?))).collect::<Vec<_>>(),
        chosen.len(),
    )
}

/// Another one each time.
fn fresh_seed() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    u32::try_from(now % u64::from(u32::MAX)).unwrap_or(1).max(1)
}

/// Whether libFuzzer itself can be compiled. The `cc` crate asks for the same.
pub(crate) fn has_compiler() -> bool {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    is_installed(&compiler)
}

/// The program with all targets. What others wrote is compiled as for the [program](crate::bench::build_counted) whose
/// instructions are counted, and without counters.
pub(crate) fn build_fuzzer() -> Result<PathBuf> {
    let mut arguments = crate::bench::COUNTED.to_vec();
    arguments.extend(["--bin=fuzz", "--features=fuzz/coverage"]);
    build_with(&arguments, "fuzz", &[("RUSTC_WORKSPACE_WRAPPER".to_owned(), RUSTC.to_owned())])
        .context("the fuzzer needs a C++ compiler (Debian: g++)")
}

struct Fuzzer {
    program: PathBuf,
    folder: PathBuf,
    seed: u32,
}

/// What a target's run came to, in libFuzzer's own words.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    statistics: BTreeMap<String, u64>,
    edges: u64,
    /// Inputs that broke it.
    broken: Vec<PathBuf>,
    /// Why it ended, where it should not have.
    failure: Option<String>,
}

impl Fuzzer {
    fn command(&self, target: &str) -> Command {
        let mut command = command(&self.program.to_string_lossy());
        command.env("DOVETAIL_FUZZ_TARGET", target);
        command
    }

    fn repository(target: &str) -> PathBuf {
        go_programs::repository().join("test/fuzz/corpus").join(target)
    }

    fn found(&self, target: &str) -> PathBuf {
        self.folder.join("corpus").join(target)
    }

    fn fuzz(&self, target: &str, seconds: u64) -> Outcome {
        self.try_fuzz(target, seconds)
            .unwrap_or_else(|error| Outcome { failure: Some(format!("{error:#}")), ..Outcome::default() })
    }

    fn try_fuzz(&self, target: &str, seconds: u64) -> Result<Outcome> {
        let (found, crashes) = (self.found(target), self.folder.join("crashes").join(target));
        for folder in [&found, &crashes] {
            fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        }
        let before = files(&crashes)?;
        let mut command = self.command(target);
        command.args([&found, &Self::repository(target)]);
        command.arg(format!("-artifact_prefix={}/", crashes.display()));
        command.args([
            format!("-max_total_time={seconds}"),
            format!("-seed={}", self.seed),
            format!("-timeout={INPUT_SECONDS}"),
            format!("-rss_limit_mb={MEMORY_MIB}"),
            format!("-max_len={MAX_INPUT_BYTES}"),
        ]);
        command.args(["-print_final_stats=1", "-verbosity=1", "-report_slow_units=10"]);
        let mut outcome = Outcome::default();
        let mut last = Vec::new();
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().with_context(|| describe(&command))?;
        for line in BufReader::new(child.stderr.take().context("standard error was asked for")?).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            outcome.read(&line);
            last.push(line);
            if last.len() > 60 {
                last.remove(0);
            }
        }
        let status = child.wait()?;
        outcome.broken = files(&crashes)?.into_iter().filter(|file| !before.contains(file)).collect();
        if !status.success() {
            outcome.failure = Some(format!("{status}\n{}", last.join("\n")));
        }
        Ok(outcome)
    }

    /// Adds to the repository's corpus what reaches more than it does.
    fn keep(&self, target: &str) -> Result<()> {
        let mut command = self.command(target);
        command.args(["-merge=1", &format!("-max_len={MAX_INPUT_BYTES}")]);
        command.args([Self::repository(target), self.found(target)]);
        let status =
            command.stdout(Stdio::null()).stderr(Stdio::null()).status().with_context(|| describe(&command))?;
        if !status.success() {
            bail!("{} ended with {status}", describe(&command));
        }
        Ok(())
    }
}

impl Outcome {
    /// Takes what a line of libFuzzer's says.
    fn read(&mut self, line: &str) {
        if let Some((name, value)) = line.strip_prefix("stat::").and_then(|rest| rest.split_once(':'))
            && let Ok(value) = value.trim().parse()
        {
            self.statistics.insert(name.to_owned(), value);
        }
        let mut words = line.split_ascii_whitespace();
        while let Some(word) = words.next() {
            if word == "cov:" && line.starts_with('#') {
                self.edges = words.next().and_then(|edges| edges.parse().ok()).unwrap_or(self.edges);
            }
        }
    }

    fn statistic(&self, name: &str) -> u64 {
        self.statistics.get(name).copied().unwrap_or_default()
    }

    /// A run that tried nothing has found nothing, and is none.
    fn has_failed(&self) -> bool {
        self.failure.is_some() || !self.broken.is_empty() || self.statistic("number_of_executed_units") == 0
    }
}

fn summarize(outcomes: &[(&str, &Outcome)], expected: usize) -> Result<()> {
    println!(
        "{:<10} {:>10} {:>9} {:>9} {:>6} {:>9}  result",
        "target", "inputs", "a second", "branches", "new", "peak"
    );
    for (name, outcome) in outcomes {
        println!(
            "{:<10} {:>10} {:>9} {:>9} {:>6} {:>5} MiB  {}",
            name,
            outcome.statistic("number_of_executed_units"),
            outcome.statistic("average_exec_per_sec"),
            outcome.edges,
            outcome.statistic("new_units_added"),
            outcome.statistic("peak_rss_mb"),
            if outcome.has_failed() { "FAILED" } else { "passed" }
        );
    }
    for (name, outcome) in outcomes.iter().filter(|(_, outcome)| outcome.has_failed()) {
        println!("\n{name}: {}", outcome.failure.as_deref().unwrap_or("no input was tried"));
        for input in &outcome.broken {
            println!("{name}: broken by {}; mend it, and move it to test/fuzz/crashes/{name}", input.display());
        }
    }
    let failed = expected - outcomes.iter().filter(|(_, outcome)| !outcome.has_failed()).count();
    println!("{} passed, {failed} failed", expected - failed);
    if failed > 0 {
        bail!("{failed} of {expected} targets failed");
    }
    Ok(())
}

/// The files of a folder, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(lines: &[&str]) -> Outcome {
        let mut outcome = Outcome::default();
        lines.iter().for_each(|line| outcome.read(line));
        outcome
    }

    #[test]
    fn what_libfuzzer_says_at_the_end_is_read() {
        let outcome = outcome(&[
            "#4096\tpulse  cov: 512 ft: 900 corp: 20/1Kb lim: 64 exec/s: 2048 rss: 40Mb",
            "thread panicked cov: 9",
            "stat::number_of_executed_units: 4100",
            "stat::peak_rss_mb:              41",
        ]);
        assert_eq!((outcome.edges, outcome.statistic("number_of_executed_units")), (512, 4100));
        assert!(!outcome.has_failed());
    }

    #[test]
    fn a_run_without_inputs_is_a_failure() {
        assert!(outcome(&["stat::number_of_executed_units: 0"]).has_failed());
        assert!(Outcome::default().has_failed());
    }

    #[test]
    fn an_input_that_breaks_a_target_is_a_failure() {
        let broken = Outcome { broken: vec!["crash-1".into()], ..outcome(&["stat::number_of_executed_units: 9"]) };
        assert!(broken.has_failed());
    }

    #[test]
    fn each_target_has_a_corpus() {
        for (name, _) in TARGETS {
            assert!(!files(&Fuzzer::repository(name)).unwrap().is_empty(), "{name}");
        }
    }
}
