//! `cargo xtask demo`: builds what the demonstration needs, all of it at once, and runs it.
//!
//! The demonstration itself talks to the cluster and so lives with the end-to-end tests' harness.

use std::thread;

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;

use crate::process::{build, command, run as run_command};
use crate::progress::Progress;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// What to show: a web shop that grows and shrinks, and pods with GPUs; or one of these.
    part: Option<Part>,
    /// Leave the cluster running at the end, and print how to reach it; Ctrl-C stops it.
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    /// The examples of devices: plan, machines, slices, verification, claims.
    Dra,
    /// Machines of an EC2 in memory: devices, reservations, shortages, spot interruptions, a new image.
    Aws,
}

impl Part {
    /// How the demonstration itself calls it.
    const fn name(self) -> &'static str {
        match self {
            Self::Dra => "dra",
            Self::Aws => "aws",
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    // Cargo shows its own progress on the same terminal, so ours is plain lines while both build.
    let control_plane = thread::spawn(|| {
        let progress = Progress::new();
        go_programs::CONTROL_PLANE
            .build(&|text| progress.say(text))
            .and_then(|_| go_programs::HELM_RENDER.build(&|text| progress.say(text)))
    });
    eprintln!("building dovetail and the demonstration");
    // Side by side in one folder: the demonstration runs the controller that lies beside it. Both are named, because
    // `e2e` has six more programs, each of which costs a newcomer's first demo a compilation and a link.
    let built = build(&["--package=dovetail", "--bin=dovetail", "--package=e2e", "--bin=demo"], "demo");
    control_plane.join().map_err(|_| anyhow!("the build of the control plane panicked"))?.context("control plane")?;
    let mut demo = command(&built?.to_string_lossy());
    demo.args(options.part.map(Part::name));
    if options.keep {
        demo.arg("--keep");
    }
    run_command(&mut demo)
}
