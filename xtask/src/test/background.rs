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
    control_planes: RefCell<Option<JoinHandle<()>>>,
    /// Ends with us, if something stops us before it is through.
    ahead: RefCell<Option<Child>>,
}

impl Background {
    pub(crate) fn start(stages: &[Stage]) -> Self {
        let ahead = match start_ahead(stages) {
            Ok(child) => child,
            Err(error) => {
                eprintln!("nothing is built ahead: {error:#}");
                None
            }
        };
        Self { control_planes: RefCell::new(build_control_planes(stages)), ahead: RefCell::new(ahead) }
    }

    pub(super) fn wait_for_control_planes(&self) {
        if let Some(build) = self.control_planes.borrow_mut().take() {
            // What panicked has said so.
            let _ = build.join();
        }
    }

    /// Until all is built ahead. What is built last writes more than Cargo keeps from being written twice at a time.
    pub(super) fn wait_for_builds_ahead(&self) {
        if let Some(mut child) = self.ahead.borrow_mut().take() {
            // If it failed, the stage fails at the same step.
            let _ = child.wait();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(child) = self.ahead.get_mut() {
            // It may have ended by itself, which is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Kubernetes of each release that a stage runs on.
fn build_control_planes(stages: &[Stage]) -> Option<JoinHandle<()>> {
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
    (!releases.is_empty()).then(|| {
        thread::spawn(move || {
            let progress = Progress::new();
            for release in releases {
                if let Err(error) = release.control_plane().build(&|text| progress.say(text)) {
                    eprintln!("building the control plane of {}: {error}", release.name());
                }
            }
        })
    })
}

/// Starts this program once more, at the least priority, so that it takes only what the stages leave idle. Nobody
/// but the last of them waits for it: Cargo lets a stage wait whose build is under way.
fn start_ahead(stages: &[Stage]) -> Result<Option<Child>> {
    let is_built = |stage: &Stage| stages.contains(stage) && stage.skipped().is_none();
    let ahead: Vec<Stage> = AHEAD.into_iter().filter(is_built).collect();
    // A stage alone builds at once.
    if stages.len() < 2 || ahead.is_empty() {
        return Ok(None);
    }
    if ahead.contains(&Stage::Release) {
        // Written here, so that no two write it at a time.
        trimmed_sdk::make().context("trim the SDK of AWS")?;
    }
    let log = target_folder()?.join("build-ahead.log");
    let log = File::create(&log).with_context(|| format!("write {}", log.display()))?;
    let mut again = command("nice");
    again.args(["-n", "19"]).arg(std::env::current_exe().context("find this program")?).arg("test");
    again.args(ahead.iter().flat_map(|stage| ["--ahead", stage.name()]));
    again.stdout(log.try_clone().context("share the log")?).stderr(log).stdin(Stdio::null());
    again.spawn().context("run nice").map(Some)
}
