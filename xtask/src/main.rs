//! `cargo xtask`: what developers and CI run. Each subcommand is a module.
//!
//! It compiles in seconds, because everything else waits for it: no Kubernetes client here. What needs one is a binary
//! of its own that a subcommand builds and runs.

mod bench;
mod codegen;
mod control_plane;
mod demo;
mod ec2_data;
mod faults;
mod fidelity;
mod fuzz;
mod image;
mod karpenter_suites;
mod oracle;
mod process;
mod progress;
mod python;
mod release;
mod same_plans;
mod simulate;
mod test;
mod trimmed_sdk;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Build, test and show Dovetail.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_version_flag = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Watch pending pods get machines, on a real control plane on this computer.
    Demo(demo::Options),
    /// Run every check that CI runs, or some of them.
    Test(test::Options),
    /// Leave a real Kubernetes control plane running, or stop it.
    #[command(subcommand)]
    ControlPlane(control_plane::Command),
    /// Write every generated file, or check that they are up to date.
    Codegen(codegen::Options),
    /// Gather anew what is built in of EC2: instance types, zones, prices.
    Ec2Data(ec2_data::Options),
    /// Copy the SDK of AWS without what is not called, and print how Cargo takes it: a tenth of the time and memory.
    TrimmedSdk(trimmed_sdk::Options),
    /// Build the static binary and put it into an OCI archive, without a container engine.
    Image(image::Options),
    /// Ask Kubernetes' own libraries and ours the same random questions.
    Oracle(oracle::Options),
    /// Play random scenarios on a real control plane, and hold what kube-scheduler does against what was planned.
    Fidelity(fidelity::Options),
    /// Let things go wrong between controller and API server, and see that all becomes right again.
    Faults(faults::Options),
    /// Run Karpenter's own end-to-end tests with our controller.
    KarpenterSuites(karpenter_suites::Options),
    /// Look for inputs that break what reads them, guided by the branches that they reach.
    Fuzz(fuzz::Options),
    /// Show that two revisions of `dovetail` answer alike, byte by byte.
    SamePlans(same_plans::Options),
    /// Play days of a cluster in virtual time, with our rules of disruption and with Karpenter's.
    Simulate(simulate::Options),
    /// Measure, in a release build.
    #[command(subcommand)]
    Bench(bench::Command),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Demo(options) => demo::run(&options),
        Command::Test(options) => test::run(&options),
        Command::ControlPlane(command) => control_plane::run(&command),
        Command::Codegen(options) => codegen::run(&options),
        Command::Ec2Data(options) => ec2_data::run(&options),
        Command::TrimmedSdk(options) => trimmed_sdk::run(&options),
        Command::Image(options) => image::run(&options),
        Command::Oracle(options) => oracle::run(&options),
        Command::Fidelity(options) => fidelity::run(&options),
        Command::Faults(options) => faults::run(&options),
        Command::KarpenterSuites(options) => karpenter_suites::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::SamePlans(options) => same_plans::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Bench(command) => bench::run(&command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
