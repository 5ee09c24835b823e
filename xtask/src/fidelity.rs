//! `cargo xtask fidelity`: builds the control plane and the scenarios' player, and runs it.

use std::thread;

use anyhow::{Context, Result, anyhow, ensure};

use crate::process::{build, command, run as run_command};
use crate::progress::Progress;
use crate::release::Release;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many scenarios.
    #[arg(long, default_value_t = 200)]
    scenarios: u64,
    /// The first scenario's seed; the next have the next.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Scenarios of devices: half with the default feature gates, half with all.
    #[arg(long)]
    dra: bool,
    /// Scenarios of fleets that change, whose machines go and are replaced.
    #[arg(long, conflicts_with = "dra")]
    disruption: bool,
    /// Scenarios of devices: whose machines, fake ones or those of an EC2 in memory.
    #[arg(long, value_parser = ["kwok", "aws"], default_value = "kwok", requires = "dra")]
    provider: String,
    /// Scenarios of devices: only one half, with the default feature gates or with all.
    #[arg(long, value_parser = ["default", "all"], requires = "dra")]
    gates: Option<String>,
    /// Scenarios of devices: the release of Kubernetes.
    #[arg(long, value_enum, default_value = "1.36")]
    kubernetes: Release,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let kubernetes = options.kubernetes;
    ensure!(options.dra || kubernetes == Release::V1_36, "--kubernetes is for scenarios of devices: add --dra");
    // Cargo shows its own progress on the same terminal, so ours is plain lines while both build.
    let control_plane = thread::spawn(move || {
        let progress = Progress::new();
        kubernetes
            .control_plane()
            .build(&|text| progress.say(text))
            .and_then(|_| go_programs::HELM_RENDER.build(&|text| progress.say(text)))
    });
    eprintln!("building the scenarios' player");
    let built = build(&["--package=e2e", "--bin=fidelity"], "fidelity");
    control_plane.join().map_err(|_| anyhow!("the build of the control plane panicked"))?.context("control plane")?;
    let mut player = command(&built?.to_string_lossy());
    player.args(["--scenarios", &options.scenarios.to_string(), "--seed", &options.seed.to_string()]);
    if options.dra {
        player.args(["--dra", "--kubernetes", kubernetes.name(), "--provider", &options.provider]);
    }
    if options.disruption {
        player.arg("--disruption");
    }
    if let Some(gates) = &options.gates {
        player.args(["--gates", gates]);
    }
    run_command(&mut player)
}
