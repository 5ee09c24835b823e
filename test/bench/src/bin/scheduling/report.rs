//! The table that people read, and the file for programs.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cases::GROUPS;
use crate::goals;
use crate::ours::Measured;
use crate::theirs::Answer;

/// The checker's verdict.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Checked {
    pub finished: bool,
    pub problems: usize,
    pub first_problem: Option<String>,
}

impl Checked {
    /// It was stopped.
    pub(crate) fn not_finished() -> Self {
        Self { finished: false, problems: 0, first_problem: None }
    }

    fn word(&self) -> String {
        match (self.finished, self.problems) {
            (false, _) => "not finished".to_owned(),
            (true, 0) => "right".to_owned(),
            (true, count) => format!("{count} problems"),
        }
    }
}

/// A case, measured on both sides.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub group: String,
    pub name: String,
    pub pods: usize,
    /// Of the file that both read.
    pub sha256: String,
    pub ours: Vec<Measured>,
    pub ours_checked: Checked,
    pub theirs: Theirs,
}

/// Karpenter's side.
#[derive(Debug, Clone, Serialize)]
pub(crate) enum Theirs {
    NotAsked,
    /// It did not even stop when it was told to.
    Killed,
    Answered {
        runs: Vec<TheirRun>,
        price_nano_usd_per_hour: i64,
        checked: Checked,
    },
}

/// One run of Karpenter's side.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TheirRun {
    pub cpu_ns: u64,
    pub wall_ns: u64,
    pub solve_cpu_ns: u64,
    pub peak_kib: u64,
    pub machines: usize,
    pub on_existing_nodes: usize,
    pub unplaced: usize,
    pub first_error: String,
    /// It was stopped at the limit, so the rest is what it had decided by then.
    pub timed_out: bool,
}

impl TheirRun {
    /// The figures of an answer.
    pub(crate) fn of(answer: &Answer) -> Self {
        Self {
            cpu_ns: answer.cpu_nanos,
            wall_ns: answer.wall_nanos,
            solve_cpu_ns: answer.solve_cpu_nanos,
            peak_kib: answer.peak_kib,
            machines: answer.claims.len(),
            on_existing_nodes: answer.existing.iter().map(|placement| placement.pods.len()).sum(),
            unplaced: answer.unplaced.len(),
            first_error: answer.first_error.clone(),
            timed_out: answer.timed_out,
        }
    }
}

/// What the table says of one side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side {
    pub cpu_ns: u64,
    /// Of that, the planner or the scheduler alone.
    pub solve_cpu_ns: u64,
    pub wall_ns: u64,
    pub peak_kib: u64,
    pub machines: usize,
    pub unplaced: usize,
    pub price: i64,
    pub timed_out: bool,
}

impl Row {
    /// Ours: medians of the first plans.
    pub(crate) fn ours(&self) -> Side {
        let first = &self.ours[0];
        Side {
            cpu_ns: median(self.ours.iter().map(|run| run.first_ns.0)),
            solve_cpu_ns: median(self.ours.iter().map(|run| run.first_plan_ns.0)),
            wall_ns: median(self.ours.iter().map(|run| run.first_ns.1)),
            peak_kib: median(self.ours.iter().map(|run| run.peak_kib.1)),
            machines: first.machines,
            unplaced: first.unplaced,
            price: first.price_nano_usd_per_hour,
            timed_out: false,
        }
    }

    /// Ours: CPU time of a round after the first, made with what is left of the one before; None where none was made.
    pub(crate) fn next_cpu_ns(&self) -> Option<u64> {
        let next = self.ours.iter().flat_map(|run| &run.again_cpu_ns).copied();
        Some(median(next)).filter(|&median| median > 0)
    }

    /// Karpenter's, if it was asked and gave an answer.
    pub(crate) fn theirs(&self) -> Option<Side> {
        let Theirs::Answered { runs, price_nano_usd_per_hour, .. } = &self.theirs else { return None };
        let first = runs.first()?;
        Some(Side {
            cpu_ns: median(runs.iter().map(|run| run.cpu_ns)),
            solve_cpu_ns: median(runs.iter().map(|run| run.solve_cpu_ns)),
            wall_ns: median(runs.iter().map(|run| run.wall_ns)),
            peak_kib: median(runs.iter().map(|run| run.peak_kib)),
            machines: first.machines,
            unplaced: first.unplaced,
            price: *price_nano_usd_per_hour,
            timed_out: first.timed_out,
        })
    }

    /// What no plan for the same pods can undercut; None where nothing is known.
    pub(crate) fn bound(&self) -> Option<i64> {
        Some(self.ours[0].lower_bound_nano_usd_per_hour).filter(|bound| *bound > 0)
    }

    /// How far a price is above the bound.
    pub(crate) fn gap(&self, price: i64) -> Option<f64> {
        let bound = self.bound()?;
        Some(price as f64 / bound as f64 - 1.0)
    }

    /// Whether our plan is wrong, or not the same each time.
    pub(crate) fn is_wrong(&self) -> bool {
        let first = &self.ours[0];
        let differs = first.differing_plans.is_some_and(|count| count > 0);
        let above_price =
            self.bound().is_some_and(|bound| bound > first.price_nano_usd_per_hour && first.unplaced == 0);
        let other = self.ours.iter().any(|run| run.sha256 != first.sha256);
        self.ours_checked.problems > 0 || differs || other || above_price
    }
}

/// All that was measured so far.
pub(crate) struct Report {
    pub rows: Vec<Row>,
    versions: String,
}

impl Report {
    /// Prints the head.
    pub(crate) fn begin(karpenter: Option<String>) -> Self {
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        let theirs = karpenter.unwrap_or_else(|| "Karpenter not run".to_owned());
        let versions = format!("Dovetail {}, {theirs}; {cpus} CPUs", env!("CARGO_PKG_VERSION"));
        println!("{versions}");
        println!(
            "CPU and wall: one first round in a process of its own, reading not counted; solve: of the CPU, the planner or the \
             scheduler alone; next round: ours again with what is left of the one before, pods of ten nodes changed; peak RSS: with \
             what was read"
        );
        Self { rows: Vec::new(), versions }
    }

    /// Adds a case and prints it.
    pub(crate) fn add(&mut self, row: Row) {
        if self.rows.last().is_none_or(|last| last.group != row.group) {
            let about = GROUPS.iter().find(|(group, _)| *group == row.group).map_or("", |(_, about)| about);
            println!("\n{}  {about}", row.group);
            println!(
                "  {:<20} {:<10} {:>10} {:>10} {:>10} {:>9} {:>9} {:>12} {:>12} {:>7} {:>9}  checker",
                "case", "side", "CPU", "solve", "wall", "RSS MiB", "machines", "$/h", "bound", "gap", "unplaced"
            );
        }
        let line = |case: &str, name: &str, side: &Side, checked: &Checked| {
            println!(
                "  {case:<20} {name:<10} {:>10} {:>10} {:>10} {:>9.0} {:>9} {:>12} {:>12} {:>7} {:>9}  {}{}",
                time(side.cpu_ns),
                time(side.solve_cpu_ns),
                time(side.wall_ns),
                side.peak_kib as f64 / 1024.0,
                side.machines,
                dollars(side.price),
                row.bound().map_or("-".to_owned(), dollars),
                row.gap(side.price)
                    .filter(|_| !side.timed_out)
                    .map_or("-".to_owned(), |gap| format!("{:.1} %", gap * 100.0)),
                side.unplaced,
                checked.word(),
                if side.timed_out { ", stopped at the limit" } else { "" },
            );
            if let Some(problem) = &checked.first_problem {
                println!("    {problem}");
            }
        };
        let ours = row.ours();
        line(&row.name, "ours", &ours, &row.ours_checked);
        if let Some(next) = row.next_cpu_ns() {
            println!("  {:<20} {:<10} {:>10}", "", "next round", time(next));
        }
        if let Some(refusal) = &row.ours[0].first_refusal {
            println!("    {}", refusal.chars().take(160).collect::<String>());
        }
        match (&row.theirs, row.theirs()) {
            (Theirs::Answered { checked, runs, .. }, Some(theirs)) => {
                line("", "Karpenter", &theirs, checked);
                if let Some(first) = runs.first().filter(|run| !run.first_error.is_empty()) {
                    println!("    {}", first.first_error.chars().take(160).collect::<String>());
                }
                let least = if theirs.timed_out { "at least " } else { "" };
                let price = if theirs.timed_out || ours.price == 0 && theirs.price == 0 {
                    String::new()
                } else {
                    format!(", price {:+.1} %", (ours.price as f64 / theirs.price.max(1) as f64 - 1.0) * 100.0)
                };
                let next = row.next_cpu_ns().map_or(String::new(), |next| {
                    format!(" ({least}{:.0} times that of a next round)", ratio(theirs.cpu_ns, next))
                });
                println!(
                    "  {:<20} {:<10} Karpenter takes {least}{:.0} times the CPU time{next} and {:.1} times the memory; ours against it: machines {} to {}{price}",
                    "",
                    "",
                    ratio(theirs.cpu_ns, ours.cpu_ns),
                    ratio(theirs.peak_kib, ours.peak_kib),
                    ours.machines,
                    theirs.machines
                );
            }
            (Theirs::Killed, _) => println!("  {:<20} {:<10} ended by force after the limit", "", "Karpenter"),
            _ => {}
        }
        self.rows.push(row);
    }

    /// Prints what holds for all.
    pub(crate) fn end(&self) {
        println!();
        for line in goals::lines(&self.rows) {
            println!("{line}");
        }
    }

    /// Everything, for programs.
    pub(crate) fn json(&self) -> Result<String> {
        let rows = json!({"versions": self.versions, "rows": self.rows, "summary": goals::lines(&self.rows)});
        Ok(serde_json::to_string_pretty(&rows)?)
    }
}

/// How many times as much.
pub(crate) fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

/// The middle one.
pub(crate) fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// Nanoseconds, readable.
pub(crate) fn time(ns: u64) -> String {
    match ns as f64 {
        ns if ns < 1e6 => format!("{:.0} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

fn dollars(nano: i64) -> String {
    format!("{:.2}", nano as f64 / 1e9)
}
