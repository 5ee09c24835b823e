//! The programs of the suites, and the specs that they say they have.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::ginkgo;
use super::spec::{Spec, Suite};

/// A suite's program with its specs.
#[derive(Clone, Debug)]
pub struct Specs {
    /// Which suite.
    pub suite: Suite,
    /// All that it has, in its order.
    pub all: Vec<Spec>,
    /// Its program.
    program: PathBuf,
    /// What the suite calls itself.
    description: String,
}

impl Specs {
    /// Builds a suite and asks it for its specs; `folder` is for its answers.
    ///
    /// # Errors
    /// If it does not compile, or gives no answer.
    pub fn of(suite: Suite, folder: &Path) -> Result<Self> {
        let program = suite.program().build(&|text| eprintln!("{text}"))?;
        let listing = dry_run(suite, &program, None, folder)?;
        ensure!(!listing.specs.is_empty(), "{suite}: the suite has no spec");
        Ok(Self { suite, all: listing.specs, program, description: listing.description })
    }

    /// The names of those that a focus takes, a regular expression as Ginkgo reads it.
    ///
    /// # Errors
    /// If it is no regular expression.
    pub fn focused(&self, focus: &str, folder: &Path) -> Result<Vec<String>> {
        let listing = dry_run(self.suite, &self.program, Some(focus), folder)?;
        Ok(listing.specs.into_iter().map(|spec| spec.name).collect())
    }

    /// Runs one spec for at most `limit`, and writes the report.
    pub(super) fn command(&self, spec: &Spec, limit: Duration, report: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(ginkgo::arguments(&self.description, spec, limit, report));
        command
    }
}

fn dry_run(suite: Suite, program: &Path, focus: Option<&str>, folder: &Path) -> Result<ginkgo::Listing> {
    let report = folder.join(format!("{suite}-specs.json"));
    let mut command = Command::new(program);
    command.args(["-test.timeout=0", "--ginkgo.dry-run", "--ginkgo.no-color"]);
    command.arg(format!("--ginkgo.json-report={}", report.display()));
    if let Some(focus) = focus {
        command.arg(format!("--ginkgo.focus={focus}"));
    }
    let output = command.current_dir(folder).stdin(Stdio::null()).output().context("run the suite")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{suite}: its specs cannot be listed ({}):\n{said}", output.status);
    let text = fs::read_to_string(&report).with_context(|| format!("read {}", report.display()))?;
    ginkgo::listing(suite, &text).with_context(|| format!("read {}", report.display()))
}
