//! What the measured cases are held against.

use std::time::Duration;

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
