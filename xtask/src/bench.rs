//! `cargo xtask bench`: measurements, always in a release build and on one thread.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Subcommand;

use crate::process::{self, build, cargo, run as run_command};
use crate::progress::Progress;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Plan 1,000 mixed pods on 144 instance types and print the time.
    Plan {
        /// Passed on to the benchmark; `-- --help` shows what it takes.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Allocate devices with our engine and with kube-scheduler's allocator, side by side, and print both times.
    Dra {
        /// Passed on to the benchmark; `-- --help` shows what it takes.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Plan generated clusters with our planner and with Karpenter's scheduler, side by side, and print time and price.
    Scheduling {
        /// Passed on to the benchmark; `-- --help` shows what it takes.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Consolidate generated fleets with our planner and with Karpenter's methods, to the fixed point, and print time,
    /// price and evictions.
    Consolidation {
        /// Passed on to the benchmark; `-- --help` shows what it takes.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Evaluate 50 NodeOverlays against 1,000 instance types of 20 NodePools and print the time.
    Overlays {
        /// Passed on to the benchmark; `-- --help` shows what it takes.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Bring 1,000 waiting pods onto machines on a real control plane and print time, price and the controller's use.
    E2e {
        /// Measure Karpenter's controller too, right before ours.
        #[arg(long)]
        beside_karpenter: bool,
        /// Passed on to the benchmark; `-- --help` shows what it takes.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Bring 720 pods with claims onto a hundred machines of a real control plane, then churn 80 pods ten times, and
    /// print times, price, and the controller's use and requests.
    DraScale {
        /// Passed on to the benchmark; `--nodes 10 --waves 2` is quick, `--help` after `--` shows the rest.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Make the instance types of EC2 again after a change of prices, launch 1,000 machines on an EC2 in memory, and
    /// print time and calls beside the least.
    Ec2 {
        /// Passed on to the benchmark; `-- --help` shows what it takes.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Start the controller in a cluster of 150,000 pods, played by a server of our own, and print how much memory it
    /// took.
    Memory {
        /// Passed on to the benchmark; `--pods 10000` is quick, `--help` after `--` shows the rest.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
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
        Command::Dra { arguments } => {
            let progress = Progress::new();
            let oracle = go_programs::ALLOCATOR_1_37.build(&|line| progress.say(line))?;
            drop(progress);
            eprintln!("building the allocators' benchmark in release mode");
            let built = build(&["--release", "--package=bench", "--bin=dra"], "dra")?;
            run_command(process::command(&built.to_string_lossy()).arg("--oracle").arg(oracle).args(arguments))
        }
        Command::Scheduling { arguments } if arguments.iter().any(|it| COUNTING.contains(&it.as_str())) => {
            count(arguments)
        }
        Command::Scheduling { arguments } => beside_karpenter(None, arguments),
        Command::Consolidation { arguments } => beside_karpenter(Some("consolidation"), arguments),
        Command::Overlays { arguments } => {
            eprintln!("building the overlays' benchmark in release mode");
            let mut benchmark = cargo(["run", "--release", "--package", "bench", "--bin", "overlays", "--"]);
            run_command(benchmark.args(arguments))
        }
        Command::Ec2 { arguments } => {
            eprintln!("building the provider's benchmark in release mode");
            let built = build(&["--release", "--package=e2e", "--bin=bench-ec2"], "bench-ec2")?;
            run_command(process::command(&built.to_string_lossy()).args(arguments))
        }
        Command::Memory { arguments } => beside_dovetail("bench-memory", arguments),
        Command::E2e { beside_karpenter, arguments } => {
            let mut arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            if *beside_karpenter {
                let progress = Progress::new();
                let built = go_programs::KARPENTER_CONTROLLER.build(&|line| progress.say(line))?;
                arguments.extend(["--karpenter".into(), built.into_os_string()]);
            }
            beside_dovetail("bench-e2e", &arguments)
        }
        Command::DraScale { arguments } => beside_dovetail("bench-dra-scale", arguments),
    }
}

/// Runs the planner's benchmark, or a subcommand of it, with Karpenter's side built.
fn beside_karpenter(subcommand: Option<&str>, arguments: &[String]) -> Result<()> {
    let mut karpenter = Vec::new();
    if !arguments.iter().any(|argument| argument == "--only-ours") {
        let progress = Progress::new();
        let built = go_programs::KARPENTER_SCHEDULER.build(&|line| progress.say(line));
        let built = built.context("Karpenter's side; --only-ours leaves it out")?;
        karpenter = vec!["--karpenter".into(), built.into_os_string()];
    }
    eprintln!("building the planner's benchmark in release mode");
    let built = build(&["--release", "--package=bench", "--bin=scheduling"], "scheduling")?;
    run_command(process::command(&built.to_string_lossy()).args(subcommand).args(karpenter).args(arguments))
}

/// Options of `bench scheduling` that count instructions, and need nothing of Karpenter.
const COUNTING: [&str; 2] = ["--instructions", "--keep-instructions"];

/// Whether there is a program that counts instructions.
pub(crate) fn has_valgrind() -> bool {
    process::is_installed("valgrind")
}

/// Fails if plans take more instructions than was kept.
pub(crate) fn count_instructions() -> Result<()> {
    count(&["--instructions".to_owned()])?;
    println!("1 passed, 0 failed");
    Ok(())
}

fn count(arguments: &[String]) -> Result<()> {
    eprintln!("building the planner's benchmark, optimized by crate");
    run_command(process::command(&build_counted()?.to_string_lossy()).args(arguments))
}

/// What the program whose instructions are counted and the fuzzer are built of, so that both have one build of what
/// others wrote.
pub(crate) const COUNTED: [&str; 3] = ["--profile=instructions", "--package=bench", "--package=fuzz"];

/// The program whose instructions are counted.
pub(crate) fn build_counted() -> Result<PathBuf> {
    let mut arguments = COUNTED.to_vec();
    arguments.push("--bin=scheduling");
    build(&arguments, "scheduling")
}

fn beside_dovetail(program: &str, arguments: &[impl AsRef<OsStr>]) -> Result<()> {
    eprintln!("building dovetail in release mode");
    // Side by side in one folder: the benchmark runs the controller that lies beside it.
    let program_only = format!("--bin={program}");
    let built = build(&["--release", "--package=dovetail", "--package=e2e", "--bin=dovetail", &program_only], program)?;
    run_command(process::command(&built.to_string_lossy()).args(arguments))
}
