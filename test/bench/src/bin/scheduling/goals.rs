//! What the planner must reach and aims at, beside what it does.

use crate::report::{Row, ratio};

/// One line for each goal whose cases were measured.
pub(crate) fn lines(rows: &[Row]) -> Vec<String> {
    let goals = [largest_benchmark(rows), preferences(rows), price(rows), price_against_karpenter(rows), backlog(rows)];
    let more = [on_nodes(rows, "P4-5000"), on_nodes(rows, "X2-1000"), cold_start(rows)];
    let of_ec2 = [on_ec2(rows, "E1-5000"), on_ec2(rows, "E1-claims-5000")];
    let of_all = [slope(rows), same_bytes(rows), checked(rows)];
    goals.into_iter().chain(more).chain(of_ec2).chain(of_all).flatten().collect()
}

fn verdict(must: bool, aim: bool) -> &'static str {
    match (must, aim) {
        (true, true) => "reached, aim too",
        (true, false) => "reached, aim missed",
        (false, _) => "MISSED",
    }
}

fn named<'r>(rows: &'r [Row], name: &str) -> Option<&'r Row> {
    rows.iter().find(|row| row.name == name)
}

fn largest_benchmark(rows: &[Row]) -> Option<String> {
    let row = named(rows, "P1-5000")?;
    let (ours, theirs) = (row.ours(), row.theirs()?);
    let times = ratio(theirs.cpu_ns, ours.cpu_ns);
    let few = ours.machines <= theirs.machines;
    Some(format!(
        "P1 at 5,000 pods: {times:.0} times less CPU (must 100, aim 150), {} machines to {} (must: no more): {}",
        ours.machines,
        theirs.machines,
        verdict(times >= 100.0 && few, times >= 150.0 && few)
    ))
}

/// Where much runs already: the first round reads all of it, the next ones what has changed.
fn on_nodes(rows: &[Row], name: &str) -> Option<String> {
    let row = named(rows, name)?;
    let theirs = row.theirs()?;
    let first = ratio(theirs.cpu_ns, row.ours().cpu_ns);
    let next = row.next_cpu_ns().map(|next| ratio(theirs.cpu_ns, next));
    let least = if theirs.timed_out { "at least " } else { "" };
    Some(format!(
        "{name}: {least}{first:.0} times less CPU in the first round (must 100), {} in a next one: {}",
        next.map_or("not measured".to_owned(), |next| format!("{next:.0} times")),
        if first >= 100.0 { "reached" } else { "MISSED" }
    ))
}

fn preferences(rows: &[Row]) -> Option<String> {
    let (respect, ignore) = (named(rows, "P2-respect-4000")?, named(rows, "P2-ignore-4000")?);
    let theirs = respect.theirs()?;
    let times = ratio(theirs.cpu_ns, respect.ours().cpu_ns);
    let (machines, ignoring) = (respect.ours().machines, ignore.ours().machines);
    let few = machines as f64 <= 1.2 * ignoring as f64;
    let least = if theirs.timed_out { "at least " } else { "" };
    Some(format!(
        "P2: {least}{times:.0} times less CPU (must 200, aim 1,000), {machines} machines to {ignoring} without preferences \
         (must: at most 1.2 times): {}",
        verdict(times >= 200.0 && few, times >= 1000.0 && few)
    ))
}

fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn price(rows: &[Row]) -> Option<String> {
    let of_group = rows.iter().filter(|row| row.group == "P3");
    let gaps: Vec<f64> = of_group.filter_map(|row| row.gap(row.ours().price)).collect();
    let most = gaps.iter().copied().fold(0.0, f64::max) * 100.0;
    let count = gaps.len();
    let median = middle(gaps)? * 100.0;
    Some(format!(
        "P3, {count} cases: price {median:.1} % above the bound in the median (must 5, aim 3), {most:.1} % at most (must 10): {}",
        verdict(median <= 5.0 && most <= 10.0, median <= 3.0 && most <= 10.0)
    ))
}

fn price_against_karpenter(rows: &[Row]) -> Option<String> {
    let compared = rows.iter().filter(|row| row.group == "P3").filter_map(|row| {
        let theirs = row.theirs().filter(|theirs| !theirs.timed_out && theirs.unplaced == row.ours().unplaced)?;
        Some(1.0 - row.ours().price as f64 / theirs.price.max(1) as f64)
    });
    let saved: Vec<f64> = compared.collect();
    let least = saved.iter().copied().fold(f64::INFINITY, f64::min) * 100.0;
    let count = saved.len();
    let median = middle(saved)? * 100.0;
    Some(format!(
        "P3, {count} cases: {median:.1} % below Karpenter's price in the median, {least:.1} % at least (must 8): {}",
        if least >= 8.0 { "reached" } else { "MISSED" }
    ))
}

fn backlog(rows: &[Row]) -> Option<String> {
    let seconds = named(rows, "P7-105000")?.ours().wall_ns as f64 / 1e9;
    Some(format!("P7: {seconds:.2} s (must 3, aim 1): {}", verdict(seconds < 3.0, seconds < 1.0)))
}

fn cold_start(rows: &[Row]) -> Option<String> {
    let ours = named(rows, "X2-1000")?.ours();
    let (seconds, mib) = (ours.wall_ns as f64 / 1e9, ours.peak_kib as f64 / 1024.0);
    Some(format!(
        "X2: first plan {seconds:.2} s after reading (must 2, aim 1), {mib:.0} MiB (must 300, aim 200 MB): {}",
        verdict(seconds < 2.0 && mib <= 286.1, seconds < 1.0 && mib <= 190.7)
    ))
}

/// Beside as many pods of the same kind on types of which there are a third, without devices.
fn on_ec2(rows: &[Row], name: &str) -> Option<String> {
    let (ours, plain) = (named(rows, name)?.ours(), named(rows, "P1-5000")?.ours());
    let (times, mib) = (ratio(ours.cpu_ns, plain.cpu_ns), ours.peak_kib as f64 / 1024.0);
    Some(format!(
        "{name}: {times:.1} times the CPU of P1-5000 (must 3), {mib:.0} MiB (must 100): {}",
        if times <= 3.0 && mib <= 100.0 { "reached" } else { "MISSED" }
    ))
}

/// The slope of the line through the logarithms of pods and CPU time of P1 from 1,000 pods on, by least squares.
pub(crate) fn exponent(points: &[(usize, u64)]) -> Option<f64> {
    let points: Vec<(f64, f64)> = points
        .iter()
        .filter(|(pods, _)| (1000..=20_000).contains(pods))
        .map(|&(pods, ns)| ((pods as f64).ln(), (ns.max(1) as f64).ln()))
        .collect();
    if points.len() < 2 {
        return None;
    }
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0 / count, sum.1 + point.1 / count));
    let (up, over) = points
        .iter()
        .fold((0.0, 0.0), |sum, point| (sum.0 + (point.0 - x) * (point.1 - y), sum.1 + (point.0 - x) * (point.0 - x)));
    (over > 0.0).then(|| up / over)
}

fn slope(rows: &[Row]) -> Option<String> {
    let of_group = || rows.iter().filter(|row| row.group == "P1");
    let ours = exponent(&of_group().map(|row| (row.pods, row.ours().cpu_ns)).collect::<Vec<_>>())?;
    let finished = of_group().filter_map(|row| Some((row.pods, row.theirs().filter(|side| !side.timed_out)?.cpu_ns)));
    let theirs = exponent(&finished.collect::<Vec<_>>()).map_or("-".to_owned(), |slope| format!("{slope:.2}"));
    Some(format!(
        "P1 from 1,000 to 20,000 pods: CPU time grows with the pods to the power of {ours:.2} (must 1.15), Karpenter's {theirs}: {}",
        if ours <= 1.15 { "reached" } else { "MISSED" }
    ))
}

/// Nothing was found wrong; which says nothing where nothing was looked at.
fn none_of(wrong: usize, looked_at: usize) -> &'static str {
    match (wrong, looked_at) {
        (_, 0) => "NOT MEASURED",
        (0, _) => "reached for these",
        _ => "MISSED",
    }
}

fn same_bytes(rows: &[Row]) -> Option<String> {
    let all = rows.len();
    let asked: Vec<usize> = rows.iter().filter_map(|row| row.ours[0].differing_plans).collect();
    let repeated = rows.iter().filter(|row| row.ours.len() > 1);
    let (repeated, again) = repeated.fold((0, 0), |(cases, again), row| {
        (cases + 1, again + usize::from(row.ours.iter().any(|run| run.sha256 != row.ours[0].sha256)))
    });
    let differing: usize = asked.iter().sum();
    let threads = asked.len();
    (all > 0).then(|| {
        format!(
            "same bytes, on 1, 2 and 8 threads at once: {differing} plans differ in {threads} of {all} cases that were asked: {}; \
             from process to process: {again} of {repeated} cases that were repeated: {}",
            none_of(differing, threads),
            none_of(again, repeated)
        )
    })
}

fn checked(rows: &[Row]) -> Option<String> {
    let all = rows.len();
    let finished = rows.iter().filter(|row| row.ours_checked.finished).count();
    let wrong = rows.iter().filter(|row| row.ours_checked.problems > 0).count();
    (all > 0).then(|| {
        format!(
            "checker: {wrong} of our plans are wrong, of {finished} of {all} that it finished: {}",
            none_of(wrong, finished)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_that_nobody_looked_at_is_not_reached() {
        assert_eq!([none_of(0, 0), none_of(0, 2), none_of(1, 2)], ["NOT MEASURED", "reached for these", "MISSED"]);
    }

    #[test]
    fn the_exponent_of_a_power_is_that_power_and_small_cases_do_not_count() {
        let points = [(100, 7), (1000, 1_000_000), (2000, 4_000_000), (4000, 16_000_000)];
        let exponent = exponent(&points).unwrap_or(0.0);
        assert!((exponent - 2.0).abs() < 1e-9, "{exponent}");
    }
}
