//! Hostile input: whatever the bytes, reading and answering ends, soon, within bounds, and without a panic.
//!
//! Each target is a plain function of bytes, so that a coverage-guided fuzzer can call it too. Here they run on a
//! corpus and on seeded mutations of it. A failure prints the input; it is to be added to the corpus.

#[path = "fuzz/mutate.rs"]
mod mutate;
#[path = "../examples/differential/random.rs"]
mod random;
#[path = "fuzz/targets.rs"]
mod targets;

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use random::Random;

/// One input may take this long in a debug build on a busy computer.
const MAX_TIME: Duration = Duration::from_secs(5);

/// What the process may have needed at most by the end.
const MAX_MEMORY_KIB: u64 = 1024 * 1024;

/// Runs a target on the corpus and so many mutations of it.
fn fuzz(corpus: &str, mutations: u64, target: fn(&[u8]), mutate: fn(&mut Random, &[Vec<u8>]) -> Vec<u8>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(corpus);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let corpus: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert!(!corpus.is_empty(), "no corpus in {}", folder.display());
    for input in &corpus {
        run(target, input);
    }
    for case in 0..mutations {
        run(target, &mutate(&mut Random::of_case(1, case), &corpus));
    }
    if let Some(peak) = peak_memory_kib() {
        assert!(peak <= MAX_MEMORY_KIB, "{peak} KiB at the peak");
    }
}

fn run(target: fn(&[u8]), input: &[u8]) {
    let begun = Instant::now();
    let outcome = catch_unwind(|| target(input));
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
fn any_text_is_a_selector_or_refused_and_evaluates_within_its_cost() {
    fuzz("selector", 1_500, targets::selector, mutate::text);
}

#[test]
fn any_text_is_a_quantity_or_refused_and_prints_what_it_reads() {
    fuzz("quantity", 10_000, targets::quantity, mutate::text);
}

#[test]
fn any_objects_are_read_or_refused_and_answered_within_the_budget() {
    fuzz("objects", 700, targets::objects, mutate::json);
}
