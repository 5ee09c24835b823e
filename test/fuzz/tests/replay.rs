//! Plays each target's corpus, the inputs that broke it once, and seeded mutations of them. A failure prints the input;
//! it becomes a file of the target's folder in `crashes/`.

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fastrand::Rng;
use fuzz::Target;

/// One input may take this long in a debug build on a busy computer.
const MAX_TIME: Duration = Duration::from_secs(10);

/// What the process may have needed at most by the end.
const MAX_MEMORY_KIB: u64 = 1024 * 1024;

/// Runs a target on what is there and so many mutations of it.
fn replay(target: Target, mutations: usize) {
    let corpus = inputs(&target.corpus());
    assert!(!corpus.is_empty(), "no corpus in {}", target.corpus().display());
    let crashes = inputs(&target.crashes());
    for input in corpus.iter().chain(&crashes) {
        run(target, input);
    }
    let mut random = Rng::with_seed(1);
    for _ in 0..mutations {
        let (input, other) = (&corpus[random.usize(..corpus.len())], &corpus[random.usize(..corpus.len())]);
        run(target, &target.mutate(&mut random, input, other));
    }
    if let Some(peak) = peak_memory_kib() {
        assert!(peak <= MAX_MEMORY_KIB, "{peak} KiB at the peak");
    }
}

/// The files of a folder, in the order of their names; none where there is no folder.
fn inputs(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

fn run(target: Target, input: &[u8]) {
    let begun = Instant::now();
    let outcome = catch_unwind(|| target.run(input));
    let time = begun.elapsed();
    let text = || String::from_utf8_lossy(input).into_owned();
    assert!(outcome.is_ok(), "panicked on {}", text());
    assert!(time <= MAX_TIME, "{time:?} for {}", text());
}

/// Linux says it.
fn peak_memory_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

#[test]
fn any_text_is_a_quantity_or_refused_and_prints_what_it_reads() {
    replay(Target::Quantity, 10_000);
}

#[test]
fn any_text_is_a_selector_or_refused_and_evaluates_within_its_cost() {
    replay(Target::Selector, 1_500);
}

#[test]
fn any_object_is_read_or_refused_by_name() {
    replay(Target::Object, 2_000);
}

#[test]
fn any_objects_of_devices_are_read_or_refused_and_answered_within_the_budget() {
    replay(Target::Devices, 700);
}

#[test]
fn any_overlay_is_expanded_or_refused() {
    replay(Target::Overlay, 1_000);
}

#[test]
fn any_text_is_read_as_manifests_or_refused() {
    replay(Target::Manifests, 1_000);
}

#[test]
fn any_lines_are_read_as_a_snapshot_or_refused() {
    replay(Target::Snapshot, 500);
}

#[test]
fn whatever_is_planned_is_planned_right() {
    replay(Target::Plan, 300);
}
