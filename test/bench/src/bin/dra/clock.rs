//! CPU time and memory of this process.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// Measures the CPU time of this thread from when it was made.
pub(crate) struct Stopwatch {
    begun_ns: u64,
}

impl Stopwatch {
    /// Begins.
    pub(crate) fn start() -> Self {
        Self { begun_ns: cpu_ns() }
    }

    /// Nanoseconds that this thread computed since.
    pub(crate) fn elapsed_ns(&self) -> u64 {
        cpu_ns() - self.begun_ns
    }
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The most memory that this process had, in KiB; None where the system does not say.
pub(crate) fn peak_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}
