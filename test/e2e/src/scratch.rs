//! Folders for one run, removed with it. What a killed run left behind is removed by the next one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use rustix::process::{Pid, test_kill_process};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A folder that goes when this is dropped, unless a panic is under way: then its path is printed.
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
        if std::thread::panicking() {
            eprintln!("kept for a look: {}", self.path.display());
        } else {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Folders of processes that are gone, except the most recent few, which may be what somebody looks at.
fn remove_left_behind(all: &Path) {
    const KEPT: usize = 5;
    let mut dead: Vec<_> = fs::read_dir(all)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| owner(&entry.file_name().to_string_lossy()).is_some_and(|pid| test_kill_process(pid).is_err()))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    dead.sort();
    dead.truncate(dead.len().saturating_sub(KEPT));
    for (_, path) in dead {
        let _ = fs::remove_dir_all(path);
    }
}

fn owner(folder: &str) -> Option<Pid> {
    folder.split('-').next()?.parse().ok().and_then(Pid::from_raw)
}
