//! `dovetail run`: the controller.

use anyhow::Context;
use clap::error::ErrorKind;

use super::provider_args::ProviderArgs;
use provisioner::controller::{self, ChosenProvider};
use provisioner::options::RawOptions;
use provisioner::runtime::logging;

/// What the command takes.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    options: RawOptions,
    #[command(flatten)]
    provider: ProviderArgs,
}

/// Checks the options, then runs the controller until it is told to stop.
///
/// An option that cannot be used is wrong usage and ends the program, as if clap had found it.
///
/// # Errors
/// What keeps the controller from starting, or the loss of leadership.
pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let provider = ChosenProvider { plugin: args.provider.plugin.get(), options: args.provider.values };
    let options = args
        .options
        .check()
        .unwrap_or_else(|error| clap::Error::raw(ErrorKind::ValueValidation, format!("{error}\n")).exit());
    logging::init(&options, provider.plugin.declaration().log_target)?;
    // Planning runs on blocking threads of its own; these wait for calls, and waking each other up costs more than a
    // second one saves.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.planner_threads.max(1))
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(controller::run(options, provider));
    // A planner under way is not waited for; its plan would not be committed.
    runtime.shutdown_background();
    result
}
