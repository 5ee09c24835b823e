//! Folders for one run, removed with it but for logs. What a killed run left behind is removed by the next one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use rustix::process::{Pid, test_kill_process};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A folder that goes when this is dropped, but for the logs in it: a test that failed wants them, and they are small.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new folder. Its path is short, because Unix sockets go into it.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new(name: &str) -> Result<Self> {
        let all = std::env::temp_dir().join("dovetail-e2e");
        fs::create_dir_all(&all).with_context(|| format!("create {}", all.display()))?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        if number == 0 {
            remove_left_behind(&all);
        }
        let path = all.join(format!("{}-{number}-{name}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self { path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        keep_only_logs(&self.path);
    }
}

fn keep_only_logs(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_log = path.extension().is_some_and(|extension| extension == "log") || entry.file_name() == "logs";
        if path.is_dir() && !is_log {
            let _ = fs::remove_dir_all(path);
        } else if !is_log {
            let _ = fs::remove_file(path);
        }
    }
    // Gone if nothing was logged.
    let _ = fs::remove_dir(folder);
}

/// Folders of processes that are gone: their data, and the logs of all but the most recent.
fn remove_left_behind(all: &Path) {
    const KEPT: usize = 40;
    let mut dead: Vec<_> = fs::read_dir(all)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| owner(&entry.file_name().to_string_lossy()).is_some_and(|pid| test_kill_process(pid).is_err()))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    dead.sort();
    let old = dead.len().saturating_sub(KEPT);
    for (index, (_, path)) in dead.iter().enumerate() {
        if index < old {
            let _ = fs::remove_dir_all(path);
        } else {
            keep_only_logs(path);
        }
    }
}

fn owner(folder: &str) -> Option<Pid> {
    folder.split('-').next()?.parse().ok().and_then(Pid::from_raw)
}
