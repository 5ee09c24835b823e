//! `cargo xtask faults`: builds the control plane and the program that makes things go wrong, and runs it.

use std::thread;

use anyhow::{Context, Result, anyhow};

use crate::process::{build, command, run as run_command};
use crate::progress::Progress;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many rounds of random faults.
    #[arg(long, default_value_t = 10)]
    rounds: u64,
    /// The first round's seed; the next have the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// In place of rounds: kill the controller at each step that it takes.
    #[arg(long, conflicts_with = "silence")]
    crashes: bool,
    /// With --crashes: only steps with this in their name.
    #[arg(long, requires = "crashes")]
    step: Option<String>,
    /// In place of rounds: silent connections, and an API server that is away or hangs for two minutes.
    #[arg(long)]
    silence: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    // Cargo shows its own progress on the same terminal, so ours is plain lines while both build.
    let control_plane = thread::spawn(|| {
        let progress = Progress::new();
        go_programs::CONTROL_PLANE
            .build(&|text| progress.say(text))
            .and_then(|_| go_programs::HELM_RENDER.build(&|text| progress.say(text)))
    });
    eprintln!("building what makes things go wrong");
    let built = build(&["--package=e2e", "--bin=faults"], "faults");
    control_plane.join().map_err(|_| anyhow!("the build of the control plane panicked"))?.context("control plane")?;
    let mut player = command(&built?.to_string_lossy());
    player.args(["--rounds", &options.rounds.to_string(), "--seed", &options.seed.to_string()]);
    if options.crashes {
        player.arg("--crashes");
    }
    if let Some(step) = &options.step {
        player.args(["--step", step]);
    }
    if options.silence {
        player.arg("--silence");
    }
    run_command(&mut player)
}
