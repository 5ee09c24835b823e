//! Asks upstream's allocator, of one release or several, and ours the same random questions.
//!
//!     cargo run -p dra-sched --example differential -- --oracle 1.37=PROGRAM [--oracle 1.36=PROGRAM]
//!         [--cases N] [--seed S] [--fixtures FOLDER]
//!
//! PROGRAM is built from `test/oracle/allocator`. Questions are small, so that upstream's search ends. A difference is
//! shrunk while it stays one and written into FOLDER with upstream's answer, in the form of the recorded questions in
//! `tests/allocator/upstream.jsonl`, to which it is added once it is understood. `cargo xtask oracle` builds the programs
//! and runs this.

#[path = "differential/arguments.rs"]
mod arguments;
#[path = "conformance/case.rs"]
mod case;
#[path = "differential/compare.rs"]
mod compare;
#[path = "differential/generate.rs"]
mod generate;
#[path = "differential/oracle.rs"]
mod oracle;
#[path = "differential/random.rs"]
mod random;
#[path = "conformance/show.rs"]
mod show;
#[path = "differential/shrink.rs"]
mod shrink;
#[path = "differential/tally.rs"]
mod tally;

use std::process::ExitCode;

use dra_sched::KubernetesMinor;
use serde_json::{Value, json};

use arguments::Arguments;
use compare::{Comparison, KnownDifference};
use oracle::Oracle;
use random::Random;
use tally::Tally;

fn main() -> ExitCode {
    arguments::main("differential", run)
}

fn run(arguments: &Arguments) -> Result<u64, String> {
    let mut oracles = arguments
        .oracles
        .iter()
        .map(|(release, program)| Oracle::start(program).map(|oracle| (*release, oracle)))
        .collect::<Result<Vec<_>, _>>()?;
    let mut tally = Tally::new("allocator", arguments);
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
                Comparison::Unanswered => tally.unanswered(),
                Comparison::Same(kinds) => tally.passed(&kinds),
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
            Comparison::Unanswered | Comparison::Same(_) | Comparison::Known(_) => None,
        })
    };
    let mut small = shrink::shrink(question, |candidate| matches!(differs(candidate, oracle), Ok(Some(_))));
    let (answer, difference) = differs(&small, oracle)?.ok_or("a difference comes and goes")?;
    small["kubernetes"] = release.to_string().into();
    small["attempts"] = json!(answer["attempts"]);
    Ok((small, difference))
}
