//! Asks upstream's evaluator of device selectors, of one release or several, and ours the same random questions.
//!
//!     cargo run -p k8s-cel --example cel_differential -- --oracle 1.37=PROGRAM [--oracle 1.36=PROGRAM]
//!         [--cases N] [--seed S] [--fixtures FOLDER]
//!
//! PROGRAM is built from `test/oracle/cel`. Compared are the verdict of the compiler with its place, the match, the
//! kind of error, and both costs. Where upstream's answers vary, ours must be one of them. A difference is shrunk while
//! it stays one and written into FOLDER as a line that `cel_conformance` reads. `cargo xtask oracle` builds the
//! programs and runs this.

#[path = "cel_conformance.rs"]
#[allow(dead_code, reason = "an example has a main function")]
mod conformance;
#[path = "cel_cases/generate.rs"]
mod generate;
#[path = "cel_differential/shrink.rs"]
mod shrink;

use std::process::ExitCode;

use dra_types::KubernetesMinor;
use serde_json::Value;

use oracle_harness::arguments::Arguments;
use oracle_harness::counts::{Floor, Unanswered};
use oracle_harness::oracle::Oracle;
use oracle_harness::tally::Tally;
use oracle_harness::varying::Among;
use seeded_random::Random;

/// Upstream answers every selector but those on which its compiler crashes, of which there are fewer than one in a
/// thousand.
const FLOOR: Floor = Floor { passed_percent: 99, kinds: &["refused", "error", "match", "no match"] };

/// An answer that upstream gives now and then, because it goes over domains and attributes in a random order.
const VARIES: &str = "as upstream now and then";

/// How often upstream is asked again before an answer that it did not give counts as one that it never gives. An order
/// of two or three names has each of its results once in six times or oftener.
const ASKED_AGAIN: usize = 200;

/// How many smaller cases are asked again.
const ASKED_AGAIN_OF_SMALLER: usize = 24;

fn main() -> ExitCode {
    oracle_harness::arguments::main("cel_differential", run)
}

fn run(arguments: &Arguments) -> Result<Vec<String>, String> {
    let mut oracles = arguments.start()?;
    let mut tally = Tally::new("cel", FLOOR, arguments);
    for index in 0..arguments.cases {
        let name = format!("{}-{index}", arguments.seed);
        let case = generate::case(&mut Random::of_case(arguments.seed, index), &name);
        for (_, oracle) in &mut oracles {
            oracle.send(&case)?;
        }
        for (release, oracle) in &mut oracles {
            let answered = oracle.receive(&case)?;
            if answered["kubernetes"] != release.to_string() {
                return Err(format!("the oracle of {release} answers for {}", answered["kubernetes"]));
            }
            match compare(&case, &answered, oracle, ASKED_AGAIN)? {
                Comparison::Unanswered(unanswered) => tally.unanswered(*release, &name, &unanswered),
                Comparison::Same => tally.passed(&[kind(&answered["upstream"])]),
                Comparison::Varies => tally.passed(&[kind(&answered["upstream"]), VARIES]),
                Comparison::Different(first) => {
                    if tally.failed() {
                        show(&mut tally, (*release, &name), &case, oracle, &first)?;
                    }
                }
            }
        }
        tally.progress(index + 1);
    }
    Ok(tally.finish())
}

/// What upstream's answer and ours are to each other.
enum Comparison {
    Same,
    /// Upstream's answers vary, and ours is one of them.
    Varies,
    Different(String),
    /// Upstream has no answer: its compiler crashes on an optional element of unknown type in a list, which ours takes.
    Unanswered(Unanswered),
}

fn compare(case: &Value, answered: &Value, oracle: &mut Oracle, times: usize) -> Result<Comparison, String> {
    if answered["upstream"]["crash"].is_string() {
        return Ok(Comparison::Unanswered(Unanswered::Crash));
    }
    if answered["upstream"].is_null() {
        return Ok(Comparison::Unanswered(Unanswered::Theirs));
    }
    if let Err(why) = conformance::read_device(&case["device"]) {
        return Ok(Comparison::Unanswered(Unanswered::Ours(why)));
    }
    let Err(difference) = conformance::check(answered, &case["device"]) else { return Ok(Comparison::Same) };
    let ask = || oracle.ask(case);
    let is_ours = |answered: &Value| conformance::check(answered, &case["device"]).is_ok();
    Ok(match oracle_harness::varying::among(answered, times, ask, is_ours)? {
        Among::Seen => Comparison::Varies,
        Among::Other => Comparison::Different(difference),
        Among::Outside(seen) => {
            let seen: Vec<String> = seen.iter().map(|answered| answered["upstream"].to_string()).collect();
            Comparison::Different(format!("{difference}\nnone of upstream's answers: {}", seen.join(", ")))
        }
    })
}

/// Shows the smallest case found that still differs in this way.
fn show(
    tally: &mut Tally,
    (release, name): (KubernetesMinor, &str),
    case: &Value,
    oracle: &mut Oracle,
    first: &str,
) -> Result<(), String> {
    let mut differs = |case: &Value| -> Option<(Value, String)> {
        let answered = oracle.ask(case).ok()?;
        let Comparison::Different(difference) = compare(case, &answered, oracle, ASKED_AGAIN_OF_SMALLER).ok()? else {
            return None;
        };
        // A smaller case of another kind would hide this one.
        (difference.split(' ').next() == first.split(' ').next()).then_some((answered, difference))
    };
    let small = shrink::shrink(case.clone(), |candidate| differs(candidate).is_some());
    let (answered, difference) = differs(&small).ok_or("a difference comes and goes")?;
    tally.show(release, name, &answered, &format!("{}\n{difference}", small["expr"]))
}

fn kind(upstream: &Value) -> &'static str {
    if upstream["compileError"].is_string() {
        "refused"
    } else if upstream["error"].as_str().is_some_and(|error| !error.is_empty()) {
        "error"
    } else if upstream["match"] == true {
        "match"
    } else {
        "no match"
    }
}
