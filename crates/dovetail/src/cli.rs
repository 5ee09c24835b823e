//! The command line: arguments, dispatch, exit codes.
//!
//! Arguments are parsed without looking at the world, then each command checks them once and works on checked values.
//! Results go to standard output, everything else to standard error, so that output can be piped. Exit codes: 0 done,
//! 3 done and some pods have no place, 1 a fault, 2 wrong usage.

mod catalogue;
mod dra;
mod explain;
mod input;
mod live;
mod machine_types;
mod on_demand;
mod output;
mod overlay;
mod plan;
mod progress;
mod provider_args;
mod release;
mod report;
mod run;
mod snapshot;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use provisioner::options;

/// What a command ended with, if not with a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// All is as it should be.
    Done,
    /// Some pods have no place.
    NoPlace,
    /// Part of the input could not be used; the rest was.
    BadInput,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::SUCCESS,
            Outcome::BadInput => Self::FAILURE,
            Outcome::NoPlace => Self::from(3),
        }
    }
}

/// A node autoscaler for Kubernetes
///
/// Finds the cheapest machines on which kube-scheduler can place the pending pods, and launches them. Speaks
/// Karpenter's API (karpenter.sh). The offline commands need neither a cluster nor a cloud.
#[derive(Debug, Parser)]
#[command(name = "dovetail", version, disable_help_subcommand = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controller
    #[command(after_help = "Examples:\n  dovetail run\n  dovetail run --dry-run --log-format=text")]
    Run(Box<run::Args>),
    Plan(plan::Args),
    Explain(explain::Args),
    Snapshot(snapshot::Args),
    Dra(dra::Args),
    Overlay(overlay::Args),
    Catalogue(catalogue::Args),
    /// Print the CustomResourceDefinitions as YAML
    #[command(after_help = "Examples:\n  dovetail crds | kubectl apply --server-side -f -")]
    Crds,
    /// Print which features of Kubernetes' Dynamic Resource Allocation are supported, as Markdown
    #[command(after_help = "Examples:\n  dovetail support | less -S")]
    Support,
    /// Print a completion script for a shell
    #[command(after_help = "Examples:\n  source <(dovetail completion bash)\n  dovetail completion fish > \
                            ~/.config/fish/completions/dovetail.fish")]
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Runs the program.
pub(crate) fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run::run(*args).map(|()| ExitCode::SUCCESS),
        Command::Plan(args) => plan::run(args).map(ExitCode::from),
        Command::Explain(args) => explain::run(args).map(ExitCode::from),
        Command::Snapshot(args) => snapshot::run(args).map(ExitCode::from),
        Command::Dra(args) => dra::run(args).map(ExitCode::from),
        Command::Overlay(args) => overlay::run(args).map(ExitCode::from),
        Command::Catalogue(args) => catalogue::run(&args).map(ExitCode::from),
        Command::Crds => crds().map(ExitCode::from),
        Command::Support => output::stdout(dra_sched::support::markdown().as_bytes()).map(|()| ExitCode::SUCCESS),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "dovetail", &mut script);
            output::stdout(&script).map(|()| ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|error| {
        output::error(&error);
        // A flag or variable whose value cannot be used is wrong usage, found out a little later than clap would.
        if error.is::<options::Error>() { ExitCode::from(2) } else { ExitCode::FAILURE }
    })
}

fn crds() -> anyhow::Result<Outcome> {
    let ours = api::crd::crds_with_label_domains(&crate::providers::label_domains());
    let crds = ours.into_iter().chain(crate::providers::crds()).collect::<Vec<_>>();
    output::stdout(api::crd::yaml_stream(&crds)?.as_bytes())?;
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
