//! `process_…`: what every Prometheus client shows about its own process, read from `/proc`.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// `sysconf(_SC_CLK_TCK)`, which Linux has fixed at 100 for every architecture that Rust builds for.
const CLOCK_TICKS_PER_SECOND: f64 = 100.0;
const PAGE_BYTES: u64 = 4096;

/// Reads the process's state whenever metrics are asked for. Where there is no `/proc`, it shows the start time only.
#[derive(Debug)]
pub(super) struct Process {
    started_at: f64,
}

impl Process {
    pub(super) fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started_at: since_epoch.as_secs_f64() }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: f64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        gauge("process_start_time_seconds", "Start of the process since the epoch", self.started_at)?;
        if let Some(usage) = Usage::read() {
            #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
            {
                gauge("process_resident_memory_bytes", "Memory in use", usage.resident_bytes as f64)?;
                // The name that Karpenter's performance suite samples; there is no collector here, so all of it is
                // live.
                gauge(
                    "go_gc_heap_live_bytes",
                    "Memory in use, as the runtime of Go names it",
                    usage.resident_bytes as f64,
                )?;
                gauge("process_virtual_memory_bytes", "Address space in use", usage.virtual_bytes as f64)?;
                gauge("process_open_fds", "Open files", usage.open_files as f64)?;
                gauge("process_threads", "Threads", usage.threads as f64)?;
            }
            let cpu = ConstCounter::new(usage.cpu_seconds);
            cpu.encode(encoder.encode_descriptor(
                "process_cpu_seconds",
                "Processor time used",
                None,
                cpu.metric_type(),
            )?)?;
        }
        Ok(())
    }
}

struct Usage {
    cpu_seconds: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    open_files: usize,
    threads: u64,
}

impl Usage {
    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let mut usage = Self::parse(&stat)?;
        usage.open_files = fs::read_dir("/proc/self/fd").ok()?.count();
        Some(usage)
    }

    /// Fields as in `man 5 proc_pid_stat`, which counts from 1; the name in parentheses may hold spaces.
    fn parse(stat: &str) -> Option<Self> {
        let after_name: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| after_name.get(number - 3)?.parse::<u64>().ok();
        #[expect(clippy::cast_precision_loss, reason = "a counter of seconds is a float")]
        let cpu_seconds = (field(14)? + field(15)?) as f64 / CLOCK_TICKS_PER_SECOND;
        Some(Self {
            cpu_seconds,
            resident_bytes: field(24)? * PAGE_BYTES,
            virtual_bytes: field(23)?,
            open_files: 0,
            threads: field(20)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_behind_the_name() {
        let stat = "12 (a b) c) S 1 1 1 0 -1 4194560 9 0 0 0 250 50 0 0 20 0 7 0 100 8192000 300 0 0 0";
        let usage = Usage::parse(stat).unwrap();
        assert_eq!(usage.threads, 7);
        assert_eq!(usage.virtual_bytes, 8_192_000);
        assert_eq!(usage.resident_bytes, 300 * PAGE_BYTES);
        assert!((usage.cpu_seconds - 3.0).abs() < f64::EPSILON);
        assert!(Usage::parse("nonsense").is_none());
    }
}
