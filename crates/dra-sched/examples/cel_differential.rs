//! Asks upstream's evaluator of device selectors, of one release or several, and ours the same random questions.
//!
//!     cargo run -p dra-sched --example cel_differential -- --oracle 1.37=PROGRAM [--oracle 1.36=PROGRAM]
//!         [--cases N] [--seed S] [--fixtures FOLDER]
//!
//! PROGRAM is built from `test/oracle/cel`. Compared are the verdict of the compiler with its place, the match, the kind
//! of error, and both costs. A difference is shrunk while it stays one and written into FOLDER as a line that
//! `cel_conformance` reads. `cargo xtask oracle` builds the programs and runs this.

#[path = "differential/arguments.rs"]
mod arguments;
#[path = "cel_conformance.rs"]
#[allow(dead_code, reason = "an example has a main function")]
mod conformance;
#[path = "cel_cases/generate.rs"]
mod generate;
#[path = "differential/oracle.rs"]
mod oracle;
#[path = "differential/random.rs"]
mod random;
#[path = "cel_differential/shrink.rs"]
mod shrink;
#[path = "differential/tally.rs"]
mod tally;

use std::process::ExitCode;

use serde_json::Value;

use arguments::Arguments;
use oracle::Oracle;
use random::Random;
use tally::Tally;

fn main() -> ExitCode {
    arguments::main("cel_differential", run)
}

fn run(arguments: &Arguments) -> Result<u64, String> {
    let mut oracles = arguments
        .oracles
        .iter()
        .map(|(release, program)| Oracle::start(program).map(|oracle| (*release, oracle)))
        .collect::<Result<Vec<_>, _>>()?;
    let mut tally = Tally::new("cel", arguments);
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
            if answered["upstream"]["crash"].is_string() {
                tally.known(CRASH);
                continue;
            }
            match conformance::check(&answered, &case["device"]) {
                Ok(()) => tally.passed(&[kind(&answered["upstream"])]),
                Err(_) if is_random(&case, &answered, oracle)? => tally.known(ORDER_OF_MAPS),
                Err(_) if !tally.failed() => {}
                Err(first) => {
                    let differs = |case: &Value, oracle: &mut Oracle| -> Option<(Value, String)> {
                        let answered = oracle.ask(case).ok()?;
                        if answered["upstream"]["crash"].is_string() {
                            return None;
                        }
                        let difference = conformance::check(&answered, &case["device"]).err()?;
                        // A smaller case of another kind would hide this one.
                        (difference.split(' ').next() == first.split(' ').next()).then_some((answered, difference))
                    };
                    let small = shrink::shrink(case.clone(), |candidate| differs(candidate, oracle).is_some());
                    let (answered, difference) = differs(&small, oracle).ok_or("a difference comes and goes")?;
                    tally.show(*release, &name, &answered, &format!("{}\n{difference}", small["expr"]))?;
                }
            }
        }
        tally.progress(index + 1);
    }
    tally.describe(
        ORDER_OF_MAPS,
        "upstream goes over domains and attributes in a random order, and its own answers vary",
    );
    tally.describe(CRASH, "upstream's compiler crashes on an optional element of unknown type, ours takes it");
    Ok(tally.finish())
}

/// What upstream has no answer to.
const CRASH: &str = "crash";

/// What upstream itself answers in different ways.
const ORDER_OF_MAPS: &str = "order of maps";

/// How often upstream is asked again before a difference counts.
const ASKED_AGAIN: usize = 24;

/// Whether upstream's own answers to a case vary.
fn is_random(case: &Value, answered: &Value, oracle: &mut Oracle) -> Result<bool, String> {
    for _ in 0..ASKED_AGAIN {
        if oracle.ask(case)?["upstream"] != answered["upstream"] {
            return Ok(true);
        }
    }
    Ok(false)
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
