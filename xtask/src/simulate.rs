//! `cargo xtask simulate`: days of a cluster in virtual time, with our rules of disruption and with Karpenter's.
//!
//! The simulator is a program of its own, `test/simulate`, which is built with optimization.

use anyhow::Result;

use crate::process::{build, command, run as run_command};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Passed on to the simulator; `--help` shows what it takes.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    eprintln!("building the simulator in release mode");
    let built = build(&["--release", "--package=simulate", "--bin=simulate"], "simulate")?;
    run_command(command(&built.to_string_lossy()).args(&options.arguments))
}
