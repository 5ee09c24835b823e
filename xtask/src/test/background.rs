//! What is built beside the stages, because it takes minutes: a stage that needs it finds it there, or waits for it.
//!
//! A failure is only noted here. It shows again, and in its place, in the stage that needs what was not built.

use std::cell::RefCell;
use std::fs::File;
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};

use super::stages::Stage;
use crate::process::{command, target_folder};
use crate::progress::Progress;
use crate::release::Release;
use crate::trimmed_sdk;

/// Stages that build with a profile of their own, in a folder of its own, so that Cargo lets them build beside others.
const AHEAD: [Stage; 3] = [Stage::Instructions, Stage::Fuzz, Stage::Release];

pub(crate) struct Background {
    control_planes: RefCell<Option<JoinHandle<Option<Ahead>>>>,
    ahead: RefCell<Vec<Ahead>>,
}

/// A stage's build under way. It ends with us, if something stops us before it is through.
struct Ahead {
    stage: Stage,
    build: Child,
}

impl Ahead {
    /// Starts this program once more, at a priority so low that it takes little but what the stages leave idle, and the
    /// least of all where it may be left out.
    fn start(stage: Stage) -> Result<Self> {
        let program = std::env::current_exe().context("find this program")?;
        let log = target_folder()?.join(format!("build-ahead-{}.log", stage.name()));
        let log = File::create(&log).with_context(|| format!("write {}", log.display()))?;
        let mut again = command("nice");
        let niceness = if stage.may_be_left_out() { "19" } else { "10" };
        again.args(["-n", niceness]).arg(&program).args(["test", "--ahead", stage.name()]);
        again.stdout(log.try_clone().context("share the log")?).stderr(log).stdin(Stdio::null());
        Ok(Self { stage, build: again.spawn().context("run nice")? })
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.build.kill();
        let _ = self.build.wait();
    }
}

impl Background {
    pub(crate) fn start(stages: &[Stage]) -> Self {
        let ahead = start_ahead(stages).unwrap_or_else(|error| {
            eprintln!("nothing is built ahead: {error:#}");
            Vec::new()
        });
        Self { control_planes: RefCell::new(build_control_planes(stages)), ahead: RefCell::new(ahead) }
    }

    pub(super) fn wait_for_control_planes(&self) {
        if let Some(build) = self.control_planes.borrow_mut().take() {
            // What panicked has said so.
            self.ahead.borrow_mut().extend(build.join().ok().flatten());
        }
    }

    /// Until what a stage needs is built. Cargo lets builds of one folder wait for each other, but not what is written
    /// beside them.
    pub(super) fn wait_for_build_of(&self, stage: Stage) {
        for ahead in self.ahead.borrow_mut().iter_mut().filter(|ahead| ahead.stage == stage) {
            // If it failed, the stage fails at the same step.
            let _ = ahead.build.wait();
        }
    }
}

/// Kubernetes of each release that a stage runs on. What of it our other Go modules use is compiled then, and the rest
/// of them begins.
fn build_control_planes(stages: &[Stage]) -> Option<JoinHandle<Option<Ahead>>> {
    let needed = |stage: &Stage| match stage {
        Stage::E2e | Stage::Go | Stage::Release => Some(Release::V1_36),
        Stage::Dra => Some(Release::V1_37),
        Stage::Fmt
        | Stage::Purity
        | Stage::Layers
        | Stage::Targets
        | Stage::Differs
        | Stage::Clippy
        | Stage::Unit
        | Stage::Drift
        | Stage::Licences
        | Stage::Oracle
        | Stage::Instructions
        | Stage::Fuzz
        | Stage::Helm
        | Stage::Aws => None,
    };
    let mut releases: Vec<Release> = Vec::new();
    for release in stages.iter().filter_map(needed) {
        if !releases.contains(&release) {
            releases.push(release);
        }
    }
    let is_go_ahead = stages.len() > 1 && stages.contains(&Stage::Go);
    (!releases.is_empty()).then(|| {
        thread::spawn(move || {
            let progress = Progress::new();
            for release in releases {
                if let Err(error) = release.control_plane().build(&|text| progress.say(text)) {
                    eprintln!("building the control plane of {}: {error}", release.name());
                }
            }
            let ahead = is_go_ahead.then(|| Ahead::start(Stage::Go)).transpose();
            ahead.unwrap_or_else(|error| {
                eprintln!("nothing is vetted ahead: {error:#}");
                None
            })
        })
    })
}

/// All at once, since the end of a build has but one crate at a time to compile.
fn start_ahead(stages: &[Stage]) -> Result<Vec<Ahead>> {
    let is_built = |stage: &Stage| stages.contains(stage) && stage.skipped().is_none();
    let stages_ahead: Vec<Stage> = AHEAD.into_iter().filter(is_built).collect();
    // A stage alone builds at once.
    if stages.len() < 2 || stages_ahead.is_empty() {
        return Ok(Vec::new());
    }
    if stages_ahead.contains(&Stage::Release) {
        // Written here, so that no two write it at a time.
        trimmed_sdk::make().context("trim the SDK of AWS")?;
    }
    stages_ahead.into_iter().map(Ahead::start).collect()
}
