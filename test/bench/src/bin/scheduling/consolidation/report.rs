//! The table that people read, and the file for programs.

use anyhow::Result;
use serde::Serialize;
use serde_json::json;

use super::Consolidated;
use super::fleets::GROUPS;

/// A fleet, consolidated on both sides.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub group: String,
    pub name: String,
    pub nodes: usize,
    pub price_before_nano_usd_per_hour: i64,
    /// Of the file that both read.
    pub sha256: String,
    pub ours: Consolidated,
    /// None if it was not asked, or did not even stop when it was told to.
    pub theirs: Option<Consolidated>,
}

impl Row {
    /// Whether Karpenter's methods came to a cheaper fleet.
    pub(super) fn is_dearer(&self) -> bool {
        let theirs = self.theirs.as_ref();
        theirs.is_some_and(|theirs| theirs.price_nano_usd_per_hour < self.ours.price_nano_usd_per_hour)
    }
}

/// Rows as they come.
pub(super) struct Report {
    pub(super) rows: Vec<Row>,
    karpenter: Option<String>,
}

impl Report {
    pub(super) fn begin(karpenter: Option<String>) -> Self {
        println!("Consolidation to the fixed point: Dovetail beside {}", karpenter.as_deref().unwrap_or("nothing"));
        Self { rows: Vec::new(), karpenter }
    }

    pub(super) fn add(&mut self, row: Row) {
        for (who, side) in [("ours", Some(&row.ours)), ("Karpenter", row.theirs.as_ref())] {
            let Some(side) = side else { continue };
            eprintln!(
                "{}: {who}: {} rounds, {} evictions, {}",
                row.name,
                side.rounds,
                side.evictions,
                dollars(side.price_nano_usd_per_hour)
            );
        }
        self.rows.push(row);
    }

    pub(super) fn end(&self) {
        for (group, what) in GROUPS.iter().filter(|(group, _)| self.rows.iter().any(|row| row.group == *group)) {
            println!("{group}: {what}");
        }
        println!();
        println!(
            "| fleet | $/h before | side | CPU, first round | for each node | CPU, all | wall | RSS MiB | rounds | commands | evictions | nodes | $/h | above bound |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
        for row in &self.rows {
            let before = dollars(row.price_before_nano_usd_per_hour);
            for (who, side) in [("ours", Some(&row.ours)), ("Karpenter", row.theirs.as_ref())] {
                let Some(side) = side else { continue };
                let each = side.first_cpu_nanos / u64::try_from(side.candidates.max(1)).unwrap_or(1);
                let bound = row.ours.bound_nano_usd_per_hour.filter(|bound| *bound > 0);
                let gap = bound.map_or("-".to_owned(), |bound| {
                    format!("{:.1} %", (side.price_nano_usd_per_hour as f64 / bound as f64 - 1.0) * 100.0)
                });
                let over = if side.timed_out { " (stopped)" } else { "" };
                println!(
                    "| {} | {before} | {who}{over} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {gap} |",
                    row.name,
                    time(side.first_cpu_nanos),
                    time(each),
                    time(side.cpu_nanos),
                    time(side.wall_nanos),
                    side.peak_kib / 1024,
                    side.rounds,
                    side.commands,
                    side.evictions,
                    side.nodes,
                    dollars(side.price_nano_usd_per_hour),
                );
            }
        }
        println!();
        for row in &self.rows {
            let again = &row.ours.again_cpu_nanos;
            let part = |percent: usize| again.get((again.len() * percent / 100).min(again.len().saturating_sub(1)));
            if let (Some(&half), Some(&most)) = (part(50), part(99)) {
                println!(
                    "{}: after a change of one node, of {} plans, the median took {}, the 99th percentile {} of CPU",
                    row.name,
                    again.len(),
                    time(half),
                    time(most),
                );
            }
        }
        for row in &self.rows {
            let Some(theirs) = &row.theirs else { continue };
            let times = |theirs: u64, ours: u64| theirs as f64 / ours.max(1) as f64;
            println!(
                "{}: {:.0} times less CPU in the first round, {:.0} times in all; {} evictions to {}",
                row.name,
                times(theirs.first_cpu_nanos, row.ours.first_cpu_nanos),
                times(theirs.cpu_nanos, row.ours.cpu_nanos),
                row.ours.evictions,
                theirs.evictions,
            );
        }
    }

    pub(super) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(&json!({"karpenter": self.karpenter, "rows": self.rows}))?)
    }
}

fn dollars(nano: i64) -> String {
    format!("{:.2}", nano as f64 / 1e9)
}

fn time(nanos: u64) -> String {
    match nanos {
        0..1_000_000 => format!("{:.0} µs", nanos as f64 / 1e3),
        1_000_000..10_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        _ => format!("{:.1} s", nanos as f64 / 1e9),
    }
}
