//! What people read.

use std::fmt::Write as _;

use crate::run::Outcome;
use crate::trace::Kind;

/// What one side made of all traces of a kind.
#[derive(Debug, Clone)]
pub struct Row {
    /// The kind.
    pub kind: Kind,
    /// Who.
    pub side: String,
    /// One for each seed.
    pub outcomes: Vec<Outcome>,
}

/// Mean values of several outcomes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Means {
    /// In dollars per hour.
    pub price: f64,
    /// By the day.
    pub evictions: f64,
    /// Of these, by the day, pods whose last move had not paid for itself, with nothing changed since.
    pub moved_again: f64,
    /// By the day.
    pub commands: f64,
    /// Machines that were launched for commands, by the day.
    pub replacements: f64,
    /// How many pods wait.
    pub waiting: f64,
}

impl Row {
    /// The means over the seeds.
    pub fn means(&self) -> Means {
        let count = self.outcomes.len().max(1) as f64;
        let mean = |of: &dyn Fn(&Outcome) -> f64| self.outcomes.iter().map(of).sum::<f64>() / count;
        let days = |outcome: &Outcome| outcome.lasted_ms.max(1) as f64 / 86_400_000.0;
        Means {
            price: mean(&|it| it.mean_price() / 1e9),
            evictions: mean(&Outcome::evictions_per_day),
            moved_again: mean(&|it| it.moved_again as f64 / days(it)),
            commands: mean(&|it| it.commands as f64 / days(it)),
            replacements: mean(&|it| it.replacements as f64 / days(it)),
            waiting: mean(&|it| it.waited_ms as f64 / it.lasted_ms.max(1) as f64),
        }
    }
}

/// One table, a line for each trace and side, and one for each side over all traces; how they compare with the last
/// side's.
pub fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| trace | rules | $/h | evictions a day | too soon again | commands a day | launched for them | pods waiting |\n|---|---|---|---|---|---|---|---|\n",
    );
    let mut line = |kind: &str, side: &str, means: &Means| {
        let Means { price, evictions, moved_again, commands, replacements, waiting } = means;
        let _ = writeln!(
            out,
            "| {kind} | {side} | {price:.3} | {evictions:.1} | {moved_again:.1} | {commands:.1} | {replacements:.1} | {waiting:.2} |"
        );
    };
    for row in rows {
        line(row.kind.name(), &row.side, &row.means());
    }
    for side in sides(rows) {
        line("all", side, &over_all(rows, side));
    }
    out
}

/// Who took part, in the order of the rows.
pub fn sides(rows: &[Row]) -> Vec<&str> {
    let mut sides: Vec<&str> = Vec::new();
    for row in rows {
        if !sides.contains(&row.side.as_str()) {
            sides.push(&row.side);
        }
    }
    sides
}

/// The mean of a side over all traces, each of which counts as much.
pub fn over_all(rows: &[Row], side: &str) -> Means {
    let means: Vec<Means> = rows.iter().filter(|row| row.side == side).map(Row::means).collect();
    let count = means.len().max(1) as f64;
    let mean = |of: fn(&Means) -> f64| means.iter().map(of).sum::<f64>() / count;
    Means {
        price: mean(|it| it.price),
        evictions: mean(|it| it.evictions),
        moved_again: mean(|it| it.moved_again),
        commands: mean(|it| it.commands),
        replacements: mean(|it| it.replacements),
        waiting: mean(|it| it.waiting),
    }
}
