//! What a process has used, as Linux tells it.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// CPU time and memory of a process.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// In user and kernel mode, all threads.
    pub cpu: Duration,
    /// The most memory that was resident at once.
    pub peak_rss_bytes: u64,
}

impl Usage {
    /// Of the process with that id, so far.
    pub fn of(process: u32) -> Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).context("read its CPU time")?;
        // The second field is the name in parentheses, which may hold anything.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
        let (user, system) = ticks(11).zip(ticks(12)).context("a stat line without times")?;
        let status = fs::read_to_string(format!("/proc/{process}/status")).context("read its memory")?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        let peak_kib: u64 = peak.trim().trim_end_matches("kB").trim().parse().context("VmHWM")?;
        let per_second = rustix::param::clock_ticks_per_second();
        Ok(Self {
            cpu: Duration::from_millis((user + system) * 1000 / per_second.max(1)),
            peak_rss_bytes: peak_kib << 10,
        })
    }
}
