//! `cargo xtask test`: the stages of CI, each timed. All of them run, even if one fails.

mod aws;
mod background;
mod cargo_deny;
mod differs;
mod go;
mod go_versions;
mod layers;
mod purity;
pub(crate) mod sources;
mod stages;
mod targets;
mod tidy;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::ValueEnum;

use background::Background;
use stages::Stage;

/// Features of the product that only tests turn on. With the whole workspace it is what every stage selects, so that
/// nothing is compiled twice.
pub(crate) const FEATURES: &str = "provisioner/failpoints";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run only this stage; repeat for several. They run in the order of --list.
    #[arg(long = "stage", value_name = "NAME", value_enum)]
    stages: Vec<Stage>,
    /// List the stages and stop.
    #[arg(long)]
    list: bool,
    /// Leave out what only measures or tries its luck (instructions, fuzz) once so many minutes are gone.
    #[arg(long, value_name = "MINUTES", env = "DOVETAIL_TEST_MINUTES")]
    minutes: Option<u64>,
    /// Only build what this stage will run.
    #[arg(long, value_name = "NAME", value_enum, hide = true)]
    ahead: Option<Stage>,
}

struct Outcome {
    stage: Stage,
    time: Duration,
    result: Result<Verdict>,
}

enum Verdict {
    Passed,
    /// It cannot be run here, for this reason.
    Skipped(&'static str),
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.list {
        for stage in Stage::value_variants() {
            println!("{:<12} {}", stage.name(), stage.what());
        }
        return Ok(());
    }
    if let Some(stage) = options.ahead {
        return stage.build_ahead();
    }
    let chosen = |stage: &&Stage| options.stages.is_empty() || options.stages.contains(stage);
    let chosen: Vec<Stage> = Stage::value_variants().iter().filter(chosen).copied().collect();
    let background = Background::start(&chosen);

    let started = Instant::now();
    let limit = options.minutes.map(|minutes| Duration::from_secs(minutes.saturating_mul(60)));
    let is_late = || limit.is_some_and(|limit| started.elapsed() >= limit);
    let outcomes: Vec<Outcome> = chosen.into_iter().map(|stage| run_stage(stage, &background, is_late())).collect();
    let failed = outcomes.iter().filter(|outcome| outcome.result.is_err()).count();
    print_summary(&outcomes, started.elapsed());
    let skipped = outcomes.iter().filter(|outcome| matches!(outcome.result, Ok(Verdict::Skipped(_)))).count();
    println!("{} passed, {failed} failed, {skipped} skipped", outcomes.len() - failed - skipped);
    if failed > 0 {
        bail!("{failed} of {} stages failed", outcomes.len());
    }
    Ok(())
}

fn run_stage(stage: Stage, background: &Background, is_late: bool) -> Outcome {
    println!("\n=== {}: {}", stage.name(), stage.what());
    let started = Instant::now();
    let left_out = (is_late && stage.may_be_left_out()).then_some("the minutes for it are gone");
    let result = match stage.skipped().or(left_out) {
        Some(why) => Ok(Verdict::Skipped(why)),
        None => stage.run(background).map(|()| Verdict::Passed),
    };
    let time = started.elapsed();
    match &result {
        Ok(Verdict::Skipped(why)) => println!("=== {} SKIPPED: {why}", stage.name()),
        Ok(Verdict::Passed) => println!("=== {} passed in {}", stage.name(), seconds(time)),
        Err(error) => println!("=== {} FAILED after {}: {error:#}", stage.name(), seconds(time)),
    }
    Outcome { stage, time, result }
}

fn print_summary(outcomes: &[Outcome], total: Duration) {
    println!("\n{:<12} {:>9}  result", "stage", "time");
    for outcome in outcomes {
        let result = match &outcome.result {
            Ok(Verdict::Passed) => "passed".to_owned(),
            Ok(Verdict::Skipped(why)) => format!("skipped: {why}"),
            Err(_) => "FAILED".to_owned(),
        };
        println!("{:<12} {:>9}  {result}", outcome.stage.name(), seconds(outcome.time));
    }
    println!("{:<12} {:>9}", "all", seconds(total));
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
