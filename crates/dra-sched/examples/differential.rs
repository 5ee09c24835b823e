//! Asks upstream's allocator and ours the same random questions.
//!
//!     cargo run --release -p dra-sched --example differential -- --oracle PROGRAM --release 1.37 [--cases N] [--seed S]
//!
//! PROGRAM is built from `test/oracle/allocator`. Questions are small, so that upstream's search ends. A difference is
//! shrunk while it stays one and printed as a question that the conformance example accepts.

#[path = "conformance/case.rs"]
mod case;
#[path = "differential/generate.rs"]
mod generate;
#[path = "differential/oracle.rs"]
mod oracle;
#[path = "conformance/show.rs"]
mod show;
#[path = "differential/shrink.rs"]
mod shrink;

use std::process::ExitCode;

use dra_sched::{Compat, KubernetesMinor};
use serde_json::Value;

use generate::Random;
use oracle::Oracle;

const STEPS: u64 = 1_000_000;
const MAX_SHOWN: usize = 5;

struct Options {
    oracle: String,
    release: KubernetesMinor,
    cases: u64,
    seed: u64,
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\nusage: differential --oracle PROGRAM --release 1.36|1.37 [--cases N] [--seed S]");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Options, String> {
    let mut options = Options { oracle: String::new(), release: KubernetesMinor::V1_37, cases: 1000, seed: 1 };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse().map_err(|_| format!("{name}: {value} is not a number"));
        match name.as_str() {
            "--oracle" => options.oracle = value,
            "--cases" => options.cases = number()?,
            "--seed" => options.seed = number()?,
            "--release" => {
                let minor = value.strip_prefix("1.").and_then(|minor| minor.parse().ok());
                let known = minor.and_then(KubernetesMinor::from_minor);
                options.release = known.ok_or_else(|| format!("--release: {value} is not known"))?;
            }
            _ => return Err(format!("unknown option {name}")),
        }
    }
    if options.oracle.is_empty() { Err("--oracle is missing".to_owned()) } else { Ok(options) }
}

fn run(options: &Options) -> Result<usize, String> {
    let mut oracle = Oracle::start(&options.oracle)?;
    let (mut passed, mut failed, mut unanswered) = (0, 0, 0);
    let mut kinds = [0; 3];
    for index in 0..options.cases {
        let mut random = Random::new(options.seed.wrapping_mul(1_000_003).wrapping_add(index));
        let record = generate::question(&mut random, &format!("{}-{index}", options.seed));
        match compare(&record, options.release, &mut oracle)? {
            Comparison::Unanswered => unanswered += 1,
            Comparison::Same(kind) => {
                passed += 1;
                kinds[kind] += 1;
            }
            Comparison::Different(_) => {
                failed += 1;
                if failed <= MAX_SHOWN {
                    let small = shrink::shrink(record, |candidate| {
                        matches!(compare(candidate, options.release, &mut oracle), Ok(Comparison::Different(_)))
                    });
                    if let Comparison::Different(difference) = compare(&small, options.release, &mut oracle)? {
                        println!("{small}\n  {difference}");
                    }
                }
            }
        }
    }
    println!(
        "release {}: {} allocated, {} nothing, {} error, {unanswered} unanswered",
        options.release, kinds[0], kinds[1], kinds[2]
    );
    println!("{passed} passed, {failed} failed");
    Ok(failed)
}

enum Comparison {
    /// Allocated, nothing, error.
    Same(usize),
    Different(String),
    /// One of the two ran out of time or steps.
    Unanswered,
}

fn compare(record: &Value, release: KubernetesMinor, oracle: &mut Oracle) -> Result<Comparison, String> {
    let gates = case::gates(record)?;
    let case = match case::Case::read(record, Compat::with_gates(release, gates)) {
        Ok(case) => case,
        // Shrinking makes objects that cannot be.
        Err(_) => return Ok(Comparison::Unanswered),
    };
    let answer = oracle.ask(record)?;
    if answer["unanswered"] == true {
        return Ok(Comparison::Unanswered);
    }
    let theirs = show::recorded(&answer)?;
    let ours = show::verdict(&case.ask(STEPS));
    if ours.answer == "out of budget" {
        return Ok(Comparison::Unanswered);
    }
    let kind = match theirs.answer.as_str() {
        Some("nothing") => 1,
        Some(_) => 2,
        None => 0,
    };
    Ok(if ours.answer == theirs.answer {
        Comparison::Same(kind)
    } else {
        Comparison::Different(format!("upstream {theirs}\n  ours     {ours}"))
    })
}
