//! Asks upstream's allocator, of one release or several, and ours the same random questions.
//!
//!     cargo run -p dra-sched --example differential -- --oracle 1.37=PROGRAM [--oracle 1.36=PROGRAM]
//!         [--cases N] [--seed S] [--fixtures FOLDER] [--record FILE]
//!
//! PROGRAM is built from `test/oracle/allocator`. Questions are small, so that upstream's search ends. A difference is
//! shrunk while it stays one and written into FOLDER with upstream's answer, in the form of the recorded questions in
//! `tests/allocator/upstream.jsonl`, to which it is added once it is understood. `cargo xtask oracle` builds the
//! programs and runs this.

#[path = "conformance/case.rs"]
mod case;
#[path = "differential/compare.rs"]
mod compare;
#[path = "differential/generate.rs"]
mod generate;
#[path = "conformance/show.rs"]
mod show;

use std::process::ExitCode;

use dra_types::KubernetesMinor;
use serde_json::{Value, json};

use compare::{Comparison, KnownDifference};
use oracle_harness::arguments::Arguments;
use oracle_harness::counts::Floor;
use oracle_harness::oracle::Oracle;
use oracle_harness::tally::Tally;
use seeded_random::Random;

/// Questions are small, so that both sides answer nearly all of them; the rest is for those on which a search takes too
/// long.
const FLOOR: Floor = Floor { passed_percent: 95, kinds: &["allocated", "nothing", "error", "error on this node"] };

fn main() -> ExitCode {
    oracle_harness::arguments::main("differential", run)
}

fn run(arguments: &Arguments) -> Result<Vec<String>, String> {
    let mut oracles = arguments.start()?;
    let mut tally = Tally::new("allocator", FLOOR, arguments);
    for index in 0..arguments.cases {
        let name = format!("{}-{index}", arguments.seed);
        let question = generate::question(&mut Random::of_case(arguments.seed, index), &name);
        let since = generate::first_release(&question);
        for (_, oracle) in oracles.iter_mut().filter(|(release, _)| *release >= since) {
            oracle.send(&question)?;
        }
        for (release, oracle) in oracles.iter_mut().filter(|(release, _)| *release >= since) {
            let answer = oracle.receive(&question)?;
            match compare::compare(&question, *release, &answer)? {
                Comparison::Unanswered(unanswered) => tally.unanswered(*release, &name, &unanswered),
                Comparison::Same(kinds) => {
                    tally.passed(&kinds);
                    tally.record(|| recorded(question.clone(), *release, &answer))?;
                }
                Comparison::Known(difference) => tally.known(difference.name()),
                Comparison::Different(_) => {
                    if tally.failed() {
                        let fixture = shrunk(question.clone(), *release, oracle)?;
                        tally.show(*release, &name, &fixture.0, &fixture.1)?;
                    }
                }
            }
        }
        tally.progress(index + 1);
    }
    for difference in KnownDifference::ALL {
        tally.describe(difference.name(), difference.description());
    }
    Ok(tally.finish())
}

/// The smallest question found that still differs, with upstream's answer in it, and how it differs.
fn shrunk(question: Value, release: KubernetesMinor, oracle: &mut Oracle) -> Result<(Value, String), String> {
    let differs = |question: &Value, oracle: &mut Oracle| -> Result<Option<(Value, String)>, String> {
        let answer = oracle.ask(question)?;
        Ok(match compare::compare(question, release, &answer)? {
            Comparison::Different(difference) => Some((answer, difference)),
            Comparison::Unanswered(_) | Comparison::Same(_) | Comparison::Known(_) => None,
        })
    };
    let small = oracle_harness::shrink::shrink(question, |candidate| matches!(differs(candidate, oracle), Ok(Some(_))));
    let (answer, difference) = differs(&small, oracle)?.ok_or("a difference comes and goes")?;
    Ok((recorded(small, release, &answer), difference))
}

/// A question with upstream's answer in it.
fn recorded(mut question: Value, release: KubernetesMinor, answer: &Value) -> Value {
    question["kubernetes"] = release.to_string().into();
    question["attempts"] = json!(answer["attempts"]);
    for attempt in question["attempts"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        attempt.remove("micros");
    }
    question
}
