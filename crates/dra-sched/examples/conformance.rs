//! Runs cases recorded from upstream's own test suite and says which are answered differently.
//!
//!     cargo run --release -p dra-sched --example conformance -- FILE.jsonl…
//!
//! A case holds feature gates, claims, classes, slices, a node, what is allocated, and the results or the error.
//! Compared are the verdict (allocated, nothing, error), and of an allocation every device in order with request,
//! adminAccess, consumed capacity, whether it is a share, binding conditions, then configurations and node selector.

#[path = "conformance/case.rs"]
mod case;
#[path = "conformance/show.rs"]
mod show;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::ExitCode;

use dra_sched::Compat;
use serde_json::Value;

const STEPS: u64 = 1_000_000;

fn main() -> ExitCode {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        eprintln!("usage: conformance FILE.jsonl…");
        return ExitCode::from(2);
    }
    let (mut passed, mut failed) = (0, 0);
    for file in &files {
        let lines = match File::open(file) {
            Ok(file) => BufReader::new(file).lines(),
            Err(error) => {
                eprintln!("{file}: {error}");
                return ExitCode::FAILURE;
            }
        };
        for (number, line) in lines.enumerate() {
            match line.map_err(|error| error.to_string()).and_then(|line| check(&line)) {
                Ok(()) => passed += 1,
                Err(difference) => {
                    failed += 1;
                    println!("{file}:{}: {difference}", number + 1);
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The difference between a case and our answer, if there is one.
fn check(line: &str) -> Result<(), String> {
    let record: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    let name = record["name"].as_str().unwrap_or("unnamed").to_owned();
    let gates = case::gates(&record).map_err(|error| format!("{name}: {error}"))?;
    let mut case = case::Case::read(&record, Compat::alpha_1_37(gates)).map_err(|error| format!("{name}: {error}"))?;
    let attempts = case.attempts(STEPS);
    let ours = show::verdict(&attempts.first().ok_or_else(|| format!("{name}: nothing was asked"))?.verdict);
    let theirs = show::recorded(&record).map_err(|error| format!("{name}: {error}"))?;
    if ours.answer == theirs.answer {
        return Ok(());
    }
    Err(format!("{name}:\n  expected {}\n  found    {}", theirs, ours))
}
