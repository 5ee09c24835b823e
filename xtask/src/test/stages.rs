//! What each stage runs. Cheap ones come first, so that a slip shows early.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::{FEATURES, cargo_deny, go, purity};
use crate::process::{cargo, run, target_folder};
use crate::progress::Progress;

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Stage {
    Fmt,
    Purity,
    Clippy,
    Unit,
    Drift,
    Licences,
    Oracle,
    Go,
    Helm,
    E2e,
}

impl Stage {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fmt => "fmt",
            Self::Purity => "purity",
            Self::Clippy => "clippy",
            Self::Unit => "unit",
            Self::Drift => "drift",
            Self::Licences => "licences",
            Self::Oracle => "oracle",
            Self::Go => "go",
            Self::Helm => "helm",
            Self::E2e => "e2e",
        }
    }

    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Fmt => "Rust is formatted",
            Self::Purity => "core crates do no I/O and know no clock",
            Self::Clippy => "no warning from compiler or clippy",
            Self::Unit => "unit, property and doc tests",
            Self::Drift => "generated files are up to date",
            Self::Licences => "dependencies: bans, licences, sources, advisories (cargo-deny)",
            Self::Oracle => "devices, selectors, plugins: the answers of Kubernetes' own code",
            Self::Go => "our Go modules: gofmt, vet, tests, known vulnerabilities",
            Self::Helm => "charts render, and refuse bad values",
            Self::E2e => "the controller on a real control plane",
        }
    }

    pub(crate) fn run(self, background: &Background) -> Result<()> {
        match self {
            Self::Fmt => run(&mut cargo(["fmt", "--all", "--check"])).and_then(|()| one_passed()),
            Self::Purity => purity::check(),
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
            Self::Unit => test(&["--workspace", "--exclude", "e2e"]),
            Self::Drift => crate::codegen::check(),
            Self::Licences => cargo_deny::check(),
            Self::Oracle => {
                // The scheduler's plugins are a part of the control plane: what is compiled for it is compiled for both.
                background.wait();
                crate::oracle::run(&crate::oracle::Options::default())
            }
            Self::Go => {
                background.wait();
                go::check()
            }
            Self::Helm => test(&["--workspace", "--test", "charts"]),
            Self::E2e => {
                background.wait();
                // They wait more than they compute, so more of them than there are processors run at a time. Tests of
                // other crates that need a control plane boot one when they are told to.
                let selection = ["--workspace", "--test", "e2e", "--", "--test-threads=4"];
                let audit = audit_folder()?;
                run(tests(&selection).env("DOVETAIL_E2E", "1").env(AUDIT, &audit))?;
                // What all of them asked of the API server, beside what the chart grants.
                run(tests(&["--workspace", "--test", "granted"]).env(AUDIT, &audit))
            }
        }
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

fn test(selection: &[&str]) -> Result<()> {
    run(&mut tests(selection))
}

fn tests(selection: &[&str]) -> Command {
    let mut arguments = vec!["test", "--no-fail-fast", "--features", FEATURES];
    arguments.extend(selection);
    cargo(arguments)
}

/// Kubernetes compiles for minutes, so it starts first and beside everything else.
pub(crate) struct Background {
    build: std::cell::RefCell<Option<JoinHandle<()>>>,
}

impl Background {
    pub(crate) fn start(stages: &[Stage]) -> Self {
        let needed = stages.contains(&Stage::E2e) || stages.contains(&Stage::Go);
        let build = needed.then(|| {
            thread::spawn(|| {
                let progress = Progress::new();
                // A failure shows again, and in its place, in the stage that needs the program.
                if let Err(error) = go_programs::CONTROL_PLANE.build(&|text| progress.say(text)) {
                    eprintln!("building the control plane: {error}");
                }
            })
        });
        Self { build: std::cell::RefCell::new(build) }
    }

    fn wait(&self) {
        if let Some(build) = self.build.borrow_mut().take() {
            let _ = build.join();
        }
    }
}
