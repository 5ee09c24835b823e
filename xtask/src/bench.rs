//! `cargo xtask bench`: measurements, always in a release build and on one thread.

use anyhow::Result;
use clap::Subcommand;

use crate::process::{cargo, run as run_command};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Plan 1,000 mixed pods on 144 instance types and print the time.
    Plan {
        /// Passed on to the benchmark; `-- --help` shows what it takes.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Plan { arguments } => {
            eprintln!("building the planner's benchmark in release mode");
            let mut benchmark = cargo(["run", "--release", "--package", "bench", "--bin", "plan", "--"]);
            run_command(benchmark.args(arguments))
        }
    }
}
