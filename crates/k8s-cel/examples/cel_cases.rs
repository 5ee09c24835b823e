//! Writes random devices and selectors as JSON lines, for upstream's verdict and ours, to be recorded:
//!
//! ```text
//! cargo run -p k8s-cel --example cel_cases -- CASES SEED > cases.jsonl
//! (cd test/oracle/cel && go run .) < cases.jsonl > answered.jsonl
//! cargo run -p k8s-cel --example cel_conformance -- answered.jsonl
//! ```
//!
//! `cargo xtask oracle` does the same without files.

#[path = "cel_cases/generate.rs"]
mod generate;

use seeded_random::Random;

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().unwrap_or(0));
    let (cases, seed) = (args.next().unwrap_or(1000), args.next().unwrap_or(1));
    for number in 0..cases {
        println!("{}", generate::case(&mut Random::of_case(seed, number), &format!("{seed}-{number}")));
    }
}
