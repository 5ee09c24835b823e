//! What the measured cases are held against.

use std::time::Duration;

use crate::scale_down::ScaledDown;
use crate::{Case, Measured};

/// Karpenter 1.15 with pods that arrive while it runs, on an idle computer of the same size.
struct Reference {
    pods: usize,
    took: Duration,
    cpu: Duration,
    machines: usize,
    dollars_per_hour: f64,
    megabytes: u64,
}

const REFERENCE: [Reference; 2] = [
    Reference {
        pods: 1000,
        took: Duration::from_millis(18_700),
        cpu: Duration::from_millis(4_800),
        machines: 50,
        dollars_per_hour: 47.24,
        megabytes: 170,
    },
    Reference {
        pods: 3000,
        took: Duration::from_millis(64_000),
        cpu: Duration::from_millis(28_100),
        machines: 124,
        dollars_per_hour: 120.05,
        megabytes: 362,
    },
];

/// How far above the lower bound the fleet may be once all pods are bound, as a share.
const MOST_ABOVE_BOUND: f64 = 0.05;
const MOST_MEGABYTES: u64 = 60;

/// Prints each goal that what was measured says something about, with what was reached.
pub(crate) fn print(pods: usize, ours: &[Measured], karpenter: &[Measured]) {
    for ours in ours {
        if let Some(karpenter) = karpenter.iter().find(|it| it.case == ours.case) {
            compare(ours, karpenter);
        }
    }
    let case = |wanted: Case| ours.iter().find(|measured| measured.case == wanted);
    let mut lines = Vec::new();
    if let Some(one) = case(Case::One) {
        lines.push((one.rounds == 1, "case one in one round".to_owned(), one.rounds.to_string()));
    }
    let Some(two) = case(Case::Two) else {
        return show(&lines);
    };
    if let Some(reference) = REFERENCE.iter().find(|reference| reference.pods == pods) {
        println!(
            "Karpenter 1.15, case two, on another idle computer: {:.1} s, {} machines, ${:.2}/h, {:.1} CPU s, {} MB\n",
            reference.took.as_secs_f64(),
            reference.machines,
            reference.dollars_per_hour,
            reference.cpu.as_secs_f64(),
            reference.megabytes,
        );
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let faster = format!("case two in less than {}", seconds(reference.took));
        lines.push((two.took < reference.took, faster, seconds(two.took)));
        let tenth = reference.cpu / 10;
        let cpu = format!("case two with a tenth of the CPU, {:.2} s", tenth.as_secs_f64());
        lines.push((two.usage.cpu <= tenth, cpu, format!("{:.2} s", two.usage.cpu.as_secs_f64())));
    }
    let above = two.above_bound();
    lines.push((
        above <= MOST_ABOVE_BOUND,
        format!("case two at most {:.0} % above the bound", 100.0 * MOST_ABOVE_BOUND),
        format!("{:.1} %", 100.0 * above),
    ));
    let megabytes = two.megabytes();
    let memory = format!("case two in at most {MOST_MEGABYTES} MB");
    lines.push((megabytes <= MOST_MEGABYTES, memory, format!("{megabytes} MB")));
    if let Some(one) = case(Case::One) {
        let most = one.machines * 105 / 100;
        let machines = format!("case two with at most 5 % more machines than case one, {most}");
        lines.push((two.machines <= most, machines, two.machines.to_string()));
    }
    show(&lines);
}

/// What the scale-down to three tenths has to reach, and what Karpenter 1.15 took on a busy computer.
struct ScaleDownGoal {
    pods: usize,
    settled: Duration,
    dollars_per_hour: f64,
    karpenter_recreated: usize,
}

const SCALE_DOWN: [ScaleDownGoal; 2] = [
    ScaleDownGoal { pods: 1000, settled: Duration::from_secs(60), dollars_per_hour: 10.8, karpenter_recreated: 245 },
    ScaleDownGoal { pods: 3000, settled: Duration::from_secs(120), dollars_per_hour: 32.0, karpenter_recreated: 356 },
];

/// Prints each goal of the scale-down, with what was reached.
#[expect(clippy::cast_precision_loss, reason = "for people to read")]
pub(crate) fn print_scale_down(pods: usize, ours: &ScaledDown, karpenter: Option<&ScaledDown>) {
    let Some(goal) = SCALE_DOWN.iter().find(|goal| goal.pods == pods) else { return };
    let is_in_time = ours.settled.is_some_and(|settled| settled < goal.settled);
    let settled = ours.settled.map_or_else(|| "not".to_owned(), |settled| format!("{:.1} s", settled.as_secs_f64()));
    let price = ours.price_nano_usd_per_hour as f64 / 1e9;
    let (of_karpenter, when) = match karpenter {
        Some(karpenter) => (karpenter.recreated, "in this run"),
        None => (goal.karpenter_recreated, "on another computer"),
    };
    show(&[
        (is_in_time, format!("settled in less than {} s", goal.settled.as_secs()), settled),
        (price <= goal.dollars_per_hour, format!("at most ${:.1}/h", goal.dollars_per_hour), format!("${price:.2}/h")),
        (
            2 * ours.recreated <= of_karpenter,
            format!("half of the {of_karpenter} pods that Karpenter moved {when}"),
            ours.recreated.to_string(),
        ),
    ]);
}

/// What Karpenter took of everything, with ours as 1.
#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn compare(ours: &Measured, karpenter: &Measured) {
    let case = match ours.case {
        Case::One => "one",
        Case::Two => "two",
    };
    println!(
        "Karpenter took, in case {case} of this run: {:.2} times the time, {:.2} the machines, {:.2} the price, {:.1} the CPU, {:.1} the memory",
        karpenter.took.as_secs_f64() / ours.took.as_secs_f64(),
        karpenter.machines as f64 / ours.machines as f64,
        karpenter.price_nano_usd_per_hour as f64 / ours.price_nano_usd_per_hour as f64,
        karpenter.usage.cpu.as_secs_f64() / ours.usage.cpu.as_secs_f64(),
        karpenter.usage.peak_rss_bytes as f64 / ours.usage.peak_rss_bytes as f64,
    );
}

fn show(lines: &[(bool, String, String)]) {
    let width = lines.iter().map(|(_, goal, _)| goal.len()).max().unwrap_or(0);
    for (reached, goal, measured) in lines {
        println!("{:<7}  {goal:<width$}  {measured}", if *reached { "reached" } else { "MISSED" });
    }
}
