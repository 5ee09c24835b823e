//! CPU time and memory of this process.

use std::fs;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Measures what this process takes from when it was made.
pub(crate) struct Stopwatch {
    wall: Instant,
    cpu: Duration,
}

impl Stopwatch {
    /// Begins.
    pub(crate) fn start() -> Self {
        Self { cpu: cpu(), wall: Instant::now() }
    }

    /// CPU time of all threads, and wall time, in nanoseconds.
    pub(crate) fn elapsed(&self) -> (u64, u64) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        (nanos(cpu().saturating_sub(self.cpu)), nanos(self.wall.elapsed()))
    }
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The most memory that this process had, in KiB; None where the system does not say.
pub(crate) fn peak_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}
