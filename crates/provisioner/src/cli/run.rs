//! `dovetail run`: the controller.

use anyhow::Context;
use clap::error::ErrorKind;

use crate::options::RawOptions;
use crate::{controller, logging};

/// Checks the options, then runs the controller until it is told to stop.
///
/// An option that cannot be used is wrong usage and ends the program, as if clap had found it.
///
/// # Errors
/// What keeps the controller from starting, or the loss of leadership.
pub fn run(options: RawOptions) -> anyhow::Result<()> {
    let options = options
        .check()
        .unwrap_or_else(|error| clap::Error::raw(ErrorKind::ValueValidation, format!("{error}\n")).exit());
    logging::init(&options)?;
    // Planning runs on blocking threads of its own; these wait for calls, and waking each other up costs more than a
    // second one saves.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.planner_threads.max(1))
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(controller::run(options));
    // A planner under way is not waited for; its plan would not be committed.
    runtime.shutdown_background();
    result
}
