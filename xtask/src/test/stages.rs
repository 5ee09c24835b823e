//! What each stage runs. Cheap ones come first, so that a slip shows early. Those that wait for the control plane most
//! of the time come before those that wait for builds: these go on meanwhile. Last are those that a slow computer may
//! leave out.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::background::Background;
use super::{FEATURES, aws, cargo_deny, differs, go, layers, purity, targets, tidy};
use crate::image::{self, Platform, Told, Tools};
use crate::process::{build, cargo, run, target_folder};
use crate::release::Release;

/// Unit tests that read data outside the repository, each of which says so in a line.
const READERS: usize = 8;

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Stage {
    Fmt,
    Purity,
    Layers,
    Targets,
    Differs,
    Clippy,
    Unit,
    Drift,
    Licences,
    Helm,
    Oracle,
    E2e,
    Dra,
    Go,
    Aws,
    Release,
    Instructions,
    Fuzz,
}

impl Stage {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fmt => "fmt",
            Self::Purity => "purity",
            Self::Layers => "layers",
            Self::Targets => "targets",
            Self::Differs => "differs",
            Self::Clippy => "clippy",
            Self::Unit => "unit",
            Self::Drift => "drift",
            Self::Licences => "licences",
            Self::Oracle => "oracle",
            Self::Instructions => "instructions",
            Self::Fuzz => "fuzz",
            Self::Go => "go",
            Self::Helm => "helm",
            Self::Aws => "aws",
            Self::E2e => "e2e",
            Self::Dra => "dra",
            Self::Release => "release",
        }
    }

    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Fmt => "Rust is formatted, comments and pages are tidy",
            Self::Purity => "core crates do no I/O and know no clock; no crate may panic",
            Self::Layers => "rooms and crates use only what the table of layers lets them use",
            Self::Targets => "every test target of the workspace is run by a stage",
            Self::Differs => "deliberate differences in the code are in docs/compatibility.md",
            Self::Clippy => "no warning from compiler or clippy",
            Self::Unit => "unit, property and doc tests",
            Self::Drift => "generated files are up to date",
            Self::Licences => "dependencies: bans, licences, sources, advisories (cargo-deny)",
            Self::Oracle => "devices, selectors, plugins: the answers of Kubernetes' own code",
            Self::Instructions => "plans take no more instructions than test/bench/instructions.json says",
            Self::Fuzz => "a minute of inputs that nobody thought of, guided by branches",
            Self::Go => "our Go modules: gofmt, vet, tests, known vulnerabilities",
            Self::Helm => "charts render, and refuse bad values",
            Self::Aws => "the adapter to AWS: the SDK against moto, on the wire",
            Self::E2e => "the controller on a real control plane",
            Self::Dra => "devices on a real control plane of Kubernetes 1.37",
            Self::Release => {
                "the controller with the SDK of AWS, linked statically, on a real control plane, and its image"
            }
        }
    }

    /// Why it cannot be run on this computer.
    pub(crate) fn skipped(self) -> Option<&'static str> {
        match self {
            Self::Instructions if !crate::bench::has_valgrind() => Some("valgrind is not installed"),
            Self::Fuzz if !crate::fuzz::has_compiler() => Some("there is no C++ compiler for libFuzzer"),
            _ => None,
        }
    }

    /// Whether it may be left out when time is short: it tells how quick we are, or tries its luck, and what is right
    /// is known without it.
    pub(super) fn may_be_left_out(self) -> bool {
        matches!(self, Self::Instructions | Self::Fuzz)
    }

    /// Builds what takes long and what no other stage builds, if there is such a thing.
    pub(super) fn build_ahead(self) -> Result<()> {
        match self {
            Self::Instructions => crate::bench::build_counted().map(drop),
            Self::Fuzz => crate::fuzz::build_fuzzer().map(drop),
            Self::Release => released().map(drop),
            Self::Go => go::vet_ahead(),
            _ => Ok(()),
        }
    }

    pub(crate) fn run(self, background: &Background) -> Result<()> {
        match self {
            Self::Fmt => {
                run(&mut cargo(["fmt", "--all", "--check"]))?;
                let lines = tidy::check()?;
                eprintln!("{lines} lines of code and pages are tidy");
                one_passed()
            }
            Self::Purity => purity::check(),
            Self::Layers => layers::check(),
            Self::Targets => targets::check(),
            Self::Differs => differs::check(),
            Self::Clippy => run(&mut cargo([
                "clippy",
                "--workspace",
                "--all-targets",
                "--features",
                FEATURES,
                "--",
                "--deny",
                "warnings",
            ]))
            .and_then(|()| one_passed()),
            Self::Unit => targets::run_all(&targets::UNIT, &[], READERS),
            Self::Drift => crate::codegen::check(),
            Self::Licences => cargo_deny::check(),
            Self::Oracle => {
                // The scheduler's plugins are a part of the control plane: what is compiled for it is compiled for
                // both.
                background.wait_for_control_planes();
                crate::oracle::run(&crate::oracle::Options::of_ci())
            }
            Self::Instructions => crate::bench::count_instructions(),
            Self::Fuzz => crate::fuzz::run(&crate::fuzz::Options::of_ci()),
            Self::Go => {
                background.wait_for_control_planes();
                background.wait_for_build_of(Self::Go);
                go::check()
            }
            Self::Helm => targets::run_all(&targets::HELM, &[], 0),
            Self::Aws => {
                background.wait_for_build_of(Self::Release);
                aws::check(&told_as_for_the_image()?)
            }
            Self::E2e => {
                background.wait_for_control_planes();
                let audit = audit_folder()?;
                let audit = audit.to_string_lossy();
                targets::run_all(&targets::E2E, &[("DOVETAIL_E2E", "1"), (AUDIT, &audit)], 0)?;
                // What all of them asked of the API server, beside what the chart grants.
                targets::run_all(&targets::GRANTED, &[(AUDIT, &audit)], 0)
            }
            Self::Dra => {
                background.wait_for_control_planes();
                let environment = [("DOVETAIL_E2E", "1"), ("DOVETAIL_KUBERNETES", Release::V1_37.name())];
                targets::run_all(&targets::DRA, &environment, 0)
            }
            Self::Release => {
                background.wait_for_build_of(Self::Release);
                let released = released()?;
                background.wait_for_control_planes();
                let binary = released.binary.to_string_lossy();
                targets::run_all(&targets::RELEASE, &[("DOVETAIL_E2E", "1"), ("DOVETAIL_BIN", &binary)], 0)?;
                let Some(image) = &released.image else { return Ok(()) };
                targets::run_all(&targets::IMAGE, &[("DOVETAIL_IMAGE", &image.to_string_lossy())], 0)
            }
        }
    }
}

/// What is released: the binary, and the image with it.
struct Released {
    binary: PathBuf,
    image: Option<PathBuf>,
}

/// A profile that does not optimize: size and speed are all that differs, and a release takes half an hour on two
/// processors. `cargo xtask image` makes that.
const RELEASED: &str = "ci";

/// Builds both for this computer. Where what the image takes cannot be had, the binary alone, as Cargo builds it here.
fn released() -> Result<Released> {
    match Tools::get(Platform::host()) {
        Ok(tools) => {
            let made = image::make(&[tools], RELEASED)?;
            let (_, binary) = made.binaries.into_iter().next().context("no binary was built")?;
            Ok(Released { binary, image: Some(made.archive) })
        }
        Err(error) => {
            println!("left out: the image, and the binary is not linked statically: {error:#}");
            let told = Told::of_this_computer(RELEASED)?;
            Ok(Released { binary: build(&told.for_controller(), "dovetail")?, image: None })
        }
    }
}

/// What Cargo is told for tests that share what is compiled for the image.
fn told_as_for_the_image() -> Result<Told> {
    match Tools::get(Platform::host()) {
        Ok(tools) => tools.told(RELEASED),
        Err(_) => Told::of_this_computer(RELEASED),
    }
}

/// Names the folder of the audit logs to the end-to-end tests.
const AUDIT: &str = "DOVETAIL_AUDIT";

/// An empty folder for audit logs.
fn audit_folder() -> Result<PathBuf> {
    let folder = target_folder()?.join("e2e-audit");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    Ok(folder)
}

/// For tools that only speak when something is wrong.
fn one_passed() -> Result<()> {
    println!("1 passed, 0 failed");
    Ok(())
}
