//! What the user sees: steps with their time, a line of progress, the table of machines. Plain text when not on a
//! terminal.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io::{IsTerminal, stdout};
use std::time::{Duration, Instant};

use anyhow::Result;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use e2e::fleet::{Fleet, Machine, dollars};

use super::claims::{Claims, Row};
use super::scale_down::Removed;

pub(crate) struct Screen {
    terminal: bool,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self { terminal: stdout().is_terminal() }
    }

    /// Runs a step, with a spinner while it lasts and a line once it is done.
    pub(crate) async fn step<T>(&self, what: &str, step: impl Future<Output = Result<T>>) -> Result<T> {
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

    pub(crate) fn heading(&self, text: &str) {
        println!("\n{text}");
    }

    pub(crate) fn note(&self, text: &str) {
        println!("  {text}");
    }

    /// What a command printed.
    pub(crate) fn text(&self, text: &str) {
        println!();
        text.trim_end().lines().for_each(|line| println!("{}", format!("  {line}").trim_end()));
    }

    pub(crate) fn progress(&self, pods: usize) -> Progress {
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
    pub(crate) fn machines(&self, fleet: &Fleet, known: &BTreeSet<String>) {
        let mut table = self.table(&["", "MACHINE", "TYPE", "ZONE", "CAPACITY", "$/H", "CPU", "PODS", "WHY"]);
        for machine in fleet.machines() {
            let mark = if known.is_empty() || known.contains(&machine.name) { "" } else { "+" };
            table.add_row(row(mark, &machine));
        }
        show(table, &[5, 6]);
        println!("\n  {} machines for ${}/h", fleet.claims(), dollars(fleet.price_nano_usd_per_hour()));
    }

    /// The machines that went, with what ran on them before and why they went.
    pub(crate) fn removed(&self, removed: &[Removed]) {
        let mut table = self.table(&["", "REMOVED", "TYPE", "ZONE", "CAPACITY", "SAVES $/H", "PODS BEFORE", "WHY"]);
        for Removed { machine, why } in removed {
            let price = dollars(machine.price_nano_usd_per_hour);
            let pods = pods(&machine.pods);
            let Machine { name, instance_type, zone, capacity_type, .. } = machine;
            let [name, instance_type, zone, capacity_type] =
                [name, instance_type, zone, capacity_type].map(String::to_owned);
            table.add_row(["-".to_owned(), name, instance_type, zone, capacity_type, price, pods, why.clone()]);
        }
        show(table, &[5]);
    }

    /// The machines, with what their drivers have published.
    pub(crate) fn machines_with_devices(&self, fleets: &[Fleet], claims: &Claims) {
        let mut table = self.table(&["", "MACHINE", "TYPE", "ZONE", "CAPACITY", "$/H", "PUBLISHED", "PODS"]);
        for machine in fleets.iter().flat_map(Fleet::machines) {
            let published = claims.published(&machine.node);
            let published: Vec<String> =
                published.iter().map(|(driver, count)| format!("{count} of {driver}")).collect();
            let price = dollars(machine.price_nano_usd_per_hour);
            let pods = pods(&machine.pods);
            let Machine { name, instance_type, zone, capacity_type, .. } = machine;
            let nothing = String::new();
            table.add_row([nothing, name, instance_type, zone, capacity_type, price, published.join(", "), pods]);
        }
        show(table, &[5]);
    }

    /// Claims, each with whether it is as planned.
    pub(crate) fn claims(&self, rows: &[Row]) {
        let mut table = self.table(&["", "CLAIM", "PODS", "MACHINE", "DEVICES", "AS PLANNED"]);
        for row in rows {
            let planned = row.differs.clone().unwrap_or_else(|| "yes".to_owned());
            let nothing = String::new();
            let devices = row.devices.join(", ");
            table.add_row([nothing, row.name.clone(), pods(&row.pods), row.node.clone(), devices, planned]);
        }
        show(table, &[]);
    }

    fn table(&self, headings: &[&str]) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        if !self.terminal {
            // Machines read it, so nothing is wrapped.
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
        table.set_header(headings);
        table
    }
}

fn show(mut table: Table, right_aligned: &[usize]) {
    for column in right_aligned {
        if let Some(column) = table.column_mut(*column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("\n{}", table.trim_fmt());
}

fn pods(pods: &BTreeMap<String, usize>) -> String {
    let pods: Vec<_> = pods.iter().map(|(workload, count)| format!("{count} {workload}")).collect();
    pods.join(", ")
}

fn row(mark: &str, machine: &Machine) -> [String; 9] {
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
        pods(&machine.pods),
        machine.why.clone(),
    ]
}

/// One line that follows the fleet; on a terminal it stays in place.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    last: RefCell<String>,
}

impl Progress {
    pub(crate) fn show(&self, bound: usize, launched: usize, ready: usize) {
        let machines = format!("{launched} machines launched, {ready} ready");
        if let Some(bar) = &self.bar {
            bar.set_position(u64::try_from(bound).unwrap_or(0));
            bar.set_message(machines);
            return;
        }
        let line = format!("{bound} pods bound, {machines}");
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
