//! Measures both sides of a case in turn and prints a line.

use std::hint::black_box;

use anyhow::{Result, ensure};
use dra_sched::{Refusal, Verdict};

use crate::cases::{Case, End};
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
    /// Of each row that upstream finished.
    ratios: Vec<f64>,
    /// Of those in which the pod fits.
    feasible_ratios: Vec<f64>,
    /// Rows in which upstream takes less than [`GOAL`] times as long.
    below: Vec<String>,
}

/// How many times as long upstream should take in each row.
const GOAL: f64 = 25.0;

/// How many times as long it should take in the median row.
const GOAL_OF_THE_MEDIAN: f64 = 60.0;

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
        let end = match &verdict {
            Verdict::Allocated { .. } => End::Allocated,
            Verdict::Refused(Refusal::Infeasible(_)) => End::Refused,
            Verdict::Refused(Refusal::Fault(_)) => End::Error,
            other => anyhow::bail!("{}: {other:?}", case.name),
        };
        ensure!(end == case.end, "{}: {end:?}, not {:?}", case.name, case.end);
        let fits = end == End::Allocated;
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
                ensure!((first.placed > 0) == fits, "{}: upstream placed {}", case.name, first.placed);
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
        let ratio = self.rate(&case.name, &theirs, &ours);
        if fits {
            self.feasible_ratios.extend(ratio);
        }
        let limit = 10 * (case.devices() + case.requests()) as u64;
        let over = !fits && steps > limit;
        self.over_the_step_limit += usize::from(over);
        let of = if fits { String::new() } else { format!(" ({limit}){}", if over { " OVER" } else { "" }) };
        println!(
            "  {:<50} {:>10} {:>10} {:>12} {:>18} {:>14}",
            case.name,
            time(cold_ns as f64),
            least(&ours).map_or(String::new(), time),
            least(&theirs).map_or("not finished".to_owned(), time),
            with_spread(ratio, &theirs, &ours),
            format!("{steps}{of}"),
        );
        Ok(finished)
    }

    /// How many times as long upstream took in a row, of the best runs of both: what else runs on the computer can only
    /// make a run longer. None if upstream did not finish.
    pub(crate) fn rate(&mut self, row: &str, theirs: &[f64], ours: &[f64]) -> Option<f64> {
        let ratio = least(theirs)? / least(ours)?;
        self.ratios.push(ratio);
        if ratio < GOAL {
            self.below.push(format!("{row}: {ratio:.1} times"));
        }
        Some(ratio)
    }

    /// Prints what holds for all.
    pub(crate) fn end(&self) {
        for (rows, ratios) in [("all rows", &self.ratios), ("rows in which the pod fits", &self.feasible_ratios)] {
            if let (Some(median), Some(least)) = (median(ratios), least(ratios)) {
                println!(
                    "{rows}, {} that upstream finished: it takes {median:.0} times as long in the median (goal \
                     {GOAL_OF_THE_MEDIAN:.0}), {least:.1} times at least (goal {GOAL:.0})",
                    ratios.len()
                );
            }
        }
        for row in &self.below {
            println!("  below the goal: {row}");
        }
    }
}

/// The smallest one.
pub(crate) fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().min_by(f64::total_cmp)
}

/// A ratio with the range of those of single runs.
pub(crate) fn with_spread(ratio: Option<f64>, theirs: &[f64], ours: &[f64]) -> String {
    let ratios: Vec<f64> = theirs.iter().zip(ours).map(|(theirs, ours)| theirs / ours).collect();
    match (ratio, ratios.len()) {
        (None, _) => String::new(),
        (Some(ratio), 0 | 1) => format!("{ratio:.1}"),
        (Some(ratio), _) => {
            let most = ratios.iter().copied().fold(0.0, f64::max);
            format!("{ratio:.1} ({:.1}-{most:.1})", least(&ratios).unwrap_or(0.0))
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
