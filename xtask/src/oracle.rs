//! `cargo xtask oracle`: upstream's allocator and ours, on the same random questions, for each release that is imitated.

use anyhow::{Result, bail};
use clap::Args;

use crate::process::command;
use crate::progress::Progress;

#[derive(Args)]
pub(crate) struct Options {
    /// Questions for each release.
    #[arg(long, default_value_t = 2_000)]
    cases: u64,
    /// Where the random numbers start.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut failed = Vec::new();
    for (release, program) in [("1.37", go_programs::ALLOCATOR_1_37), ("1.36", go_programs::ALLOCATOR_1_36)] {
        let progress = Progress::new();
        let built = program.build(&|line| progress.say(line))?;
        drop(progress);
        let status = command("cargo")
            .args(["run", "--quiet", "--release", "--package", "dra-sched", "--example", "differential", "--"])
            .arg("--oracle")
            .arg(built)
            .args(["--release", release, "--cases", &options.cases.to_string(), "--seed", &options.seed.to_string()])
            .status()?;
        if !status.success() {
            failed.push(release);
        }
    }
    if !failed.is_empty() {
        bail!("answers differ from upstream's {}", failed.join(" and "));
    }
    Ok(())
}
