//! Runs cases recorded from upstream's own test suite and says which are answered differently.
//!
//!     cargo run --release -p dra-sched --example conformance -- FILE.jsonl…
//!
//! A case holds feature gates, claims, classes, slices, a node, what is allocated, and the results or the error; or it
//! is a question of `cargo xtask oracle` with upstream's answers, about several pods and nodes. Compared are the
//! verdict (allocated, nothing, error), and of an allocation every device in order with request, adminAccess, consumed
//! capacity, whether it is a share, binding conditions, then configurations and node selector.

#[path = "conformance/case.rs"]
mod case;
#[path = "conformance/show.rs"]
mod show;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::ExitCode;

use dra_types::Compat;
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

/// The difference between a case and our answer, if there is one. A case that names a release was recorded by
/// `test/oracle/allocator` and may have several attempts.
pub(crate) fn check(line: &str) -> Result<(), String> {
    let record: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    let name = record["name"].as_str().unwrap_or("unnamed").to_owned();
    let named = |error: String| format!("{name}: {error}");
    let gates = case::gates(&record).map_err(named)?;
    let compat = match record["kubernetes"].as_str() {
        Some(release) => Compat::with_gates(oracle_harness::arguments::release(release).map_err(named)?, gates),
        None => Compat::alpha_1_37(gates),
    };
    let mut case = case::Case::read(&record, compat).map_err(named)?;
    let ours = case.attempts(STEPS);
    let theirs = record["attempts"].as_array().map_or_else(|| vec![&record], |attempts| attempts.iter().collect());
    if ours.len() != theirs.len() {
        return Err(format!("{name}: {} attempts expected, {} found", theirs.len(), ours.len()));
    }
    for (ours, theirs) in ours.iter().zip(theirs) {
        // Records of upstream's own suite do not tell it.
        let scope = theirs["scope"].as_str().unwrap_or_else(|| show::scope(&ours.verdict));
        if theirs["error"].is_string() && scope != show::scope(&ours.verdict) {
            return Err(format!("{name}: an error for the {scope}, found one for the {}", show::scope(&ours.verdict)));
        }
        let (ours, theirs) = (show::verdict(&ours.verdict), show::recorded(theirs).map_err(named)?);
        if ours.answer != theirs.answer {
            return Err(format!("{name}:\n  expected {theirs}\n  found    {ours}"));
        }
    }
    Ok(())
}
