//! Measures both sides of a case in turn and prints a line.

use std::hint::black_box;

use anyhow::{Result, ensure};
use dra_sched::{Refusal, Verdict};

use crate::cases::Case;
use crate::clock::Stopwatch;
use crate::ours::Objects;
use crate::upstream::Upstream;

/// What one run of one side should take.
const RUN_NS: u64 = 60_000_000;

/// Repetitions of one run at most.
const MAX_REPEAT: u64 = 50_000;

/// What was printed so far.
#[derive(Default)]
pub(crate) struct Report {
    pub over_the_step_limit: usize,
    feasible_ratios: Vec<f64>,
    /// Cases in which upstream takes less than [`GOAL`] times as long although the pod fits, or less than we do.
    below: Vec<String>,
}

/// How many times as long upstream should take where the pod fits.
const GOAL: f64 = 20.0;

impl Report {
    /// Prints the head.
    pub(crate) fn begin(&self) {
        println!("CPU time of one allocation, one thread, warm unless said otherwise");
        println!(
            "{:<52} {:>10} {:>10} {:>12} {:>18} {:>14}",
            "", "ours cold", "ours", "upstream", "upstream/ours", "steps (limit)"
        );
    }

    /// Begins a group of lines.
    pub(crate) fn family(&self, title: &str) {
        println!("{title}");
    }

    /// Measures a case; without upstream only ours. Gives whether upstream finished.
    pub(crate) fn compare(&mut self, case: &Case, upstream: Option<&mut Upstream>, runs: usize) -> Result<bool> {
        let question = case.question();
        let objects = Objects::read(&question)?;
        let node = &objects.nodes[0];
        let watch = Stopwatch::start();
        let prepared = objects.prepare();
        let (verdict, steps) = prepared.allocate(0, node);
        let cold_ns = watch.elapsed_ns();
        match &verdict {
            Verdict::Allocated { .. } => ensure!(case.fits, "{}: allocated, but cannot be", case.name),
            Verdict::Refused(Refusal::Infeasible(_)) => ensure!(!case.fits, "{}: refused, but fits", case.name),
            other => anyhow::bail!("{}: {other:?}", case.name),
        }
        let once = || {
            let watch = Stopwatch::start();
            black_box(prepared.allocate(0, node));
            watch.elapsed_ns().max(1)
        };
        let times = (RUN_NS / once().min(once())).clamp(1, MAX_REPEAT);
        let ours_ns = || {
            let watch = Stopwatch::start();
            for _ in 0..times {
                black_box(prepared.allocate(0, node));
            }
            watch.elapsed_ns() as f64 / times as f64
        };

        let mut ours = vec![ours_ns()];
        let mut theirs = Vec::new();
        let mut finished = false;
        if let Some(upstream) = upstream {
            let first = upstream.repeat(&question, 0)?;
            finished = !first.timed_out;
            if finished {
                ensure!((first.placed > 0) == case.fits, "{}: upstream placed {}", case.name, first.placed);
                let times = (RUN_NS / first.cpu_nanos.max(1)).clamp(1, MAX_REPEAT);
                // What takes seconds needs no repetition.
                let runs = if first.cpu_nanos > 1_000_000_000 { 1 } else { runs };
                ours.clear();
                for _ in 0..runs {
                    let measured = upstream.repeat(&question, times)?;
                    theirs.push(measured.cpu_nanos as f64 / measured.allocations.max(1) as f64);
                    ours.push(ours_ns());
                }
            }
        }
        let ratios: Vec<f64> = theirs.iter().zip(&ours).map(|(theirs, ours)| theirs / ours).collect();
        if let Some(ratio) = median(&ratios) {
            if case.fits {
                self.feasible_ratios.push(ratio);
            }
            if ratio < 1.0 || case.fits && ratio < GOAL {
                let how = if ratio < 1.0 { "slower than upstream" } else { "below the goal" };
                self.below.push(format!("{}: {how}, {ratio:.1} times", case.name));
            }
        }
        let limit = 10 * (case.devices() + case.requests()) as u64;
        let over = !case.fits && steps > limit;
        self.over_the_step_limit += usize::from(over);
        let of = if case.fits { String::new() } else { format!(" ({limit}){}", if over { " OVER" } else { "" }) };
        println!(
            "  {:<50} {:>10} {:>10} {:>12} {:>18} {:>14}",
            case.name,
            time(cold_ns as f64),
            time(median(&ours).unwrap_or(0.0)),
            median(&theirs).map_or("not finished".to_owned(), time),
            spread(&ratios),
            format!("{steps}{of}"),
        );
        Ok(finished)
    }

    /// Prints what holds for all.
    pub(crate) fn end(&self) {
        let least = self.feasible_ratios.iter().copied().fold(f64::INFINITY, f64::min);
        if let Some(median) = median(&self.feasible_ratios) {
            println!("feasible cases: upstream takes {median:.0} times as long (median), {least:.0} times at least");
        }
        for case in &self.below {
            println!("  {case}");
        }
    }
}

/// The middle one.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The median and, of several, the range.
pub(crate) fn spread(ratios: &[f64]) -> String {
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    match median(ratios) {
        None => String::new(),
        Some(median) if ratios.len() == 1 => format!("{median:.1}"),
        Some(median) => format!("{median:.1} ({least:.1}-{most:.1})"),
    }
}

/// Nanoseconds, readable.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}
