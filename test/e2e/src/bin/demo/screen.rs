//! What the user sees: steps with their time, a line of progress, the table of machines. Plain text when not on a
//! terminal.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::io::{IsTerminal, stdout};
use std::time::{Duration, Instant};

use anyhow::Result;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use e2e::fleet::{Fleet, Machine, dollars};

pub struct Screen {
    terminal: bool,
}

impl Screen {
    pub fn new() -> Self {
        Self { terminal: stdout().is_terminal() }
    }

    /// Runs a step, with a spinner while it lasts and a line once it is done.
    pub async fn step<T>(&self, what: &str, step: impl Future<Output = Result<T>>) -> Result<T> {
        let started = Instant::now();
        let spinner = self.terminal.then(|| {
            let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
            spinner.set_message(what.to_owned());
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner
        });
        let result = step.await;
        if let Some(spinner) = spinner {
            spinner.finish_and_clear();
        }
        if result.is_ok() {
            println!("  {what} ({:.1} s)", started.elapsed().as_secs_f64());
        }
        result
    }

    pub fn heading(&self, text: &str) {
        println!("\n{text}");
    }

    pub fn note(&self, text: &str) {
        println!("  {text}");
    }

    pub fn progress(&self, pods: usize) -> Progress {
        let bar = self.terminal.then(|| {
            let length = u64::try_from(pods).unwrap_or(u64::MAX);
            let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stdout());
            if let Ok(style) = ProgressStyle::with_template("  [{bar:30}] {pos}/{len} pods bound, {msg}") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        });
        Progress { bar, last: RefCell::new(String::new()) }
    }

    /// The machines; those in `known` are not marked as new.
    pub fn machines(&self, fleet: &Fleet, known: &BTreeSet<String>) {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        if !self.terminal {
            // Machines read it, so nothing is wrapped.
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
        table.set_header(["", "MACHINE", "TYPE", "ZONE", "CAPACITY", "$/H", "CPU", "PODS", "WHY"]);
        for machine in fleet.machines() {
            let mark = if known.is_empty() || known.contains(&machine.name) { "" } else { "+" };
            table.add_row(row(mark, &machine));
        }
        for right_aligned in [5, 6] {
            if let Some(column) = table.column_mut(right_aligned) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        println!("\n{}\n", table.trim_fmt());
        println!("  {} machines for ${}/h", fleet.claims(), dollars(fleet.price_nano_usd_per_hour()));
    }
}

fn row(mark: &str, machine: &Machine) -> [String; 9] {
    let pods: Vec<_> = machine.pods.iter().map(|(workload, count)| format!("{count} {workload}")).collect();
    let (used, total) = machine.cpu_milli;
    let share = if total == 0 { String::new() } else { format!("{}%", used * 100 / total) };
    [
        mark.to_owned(),
        machine.name.clone(),
        machine.instance_type.clone(),
        machine.zone.clone(),
        machine.capacity_type.clone(),
        dollars(machine.price_nano_usd_per_hour),
        share,
        pods.join(", "),
        machine.why.clone(),
    ]
}

/// One line that follows the fleet; on a terminal it stays in place.
pub struct Progress {
    bar: Option<ProgressBar>,
    last: RefCell<String>,
}

impl Progress {
    pub fn show(&self, fleet: &Fleet) {
        let machines = format!("{} machines launched, {} ready", fleet.claims(), fleet.ready_nodes());
        if let Some(bar) = &self.bar {
            bar.set_position(u64::try_from(fleet.bound()).unwrap_or(0));
            bar.set_message(machines);
            return;
        }
        let line = format!("{} pods bound, {machines}", fleet.bound());
        if *self.last.borrow() != line {
            println!("  {line}");
            *self.last.borrow_mut() = line;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
