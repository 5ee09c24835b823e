//! Asks kube-scheduler's own plugins and our crate the same random questions about what a pod gets of devices and what
//! they cost of the node: the claim for extended resources, costs of devices, claims that may not be shared.
//!
//!     cargo run -p dra-sched --example plugin_differential -- --oracle 1.36=PROGRAM [--cases N] [--seed S]
//!         [--fixtures FOLDER]
//!
//! PROGRAM is built from `test/oracle/plugin`. A difference is shrunk while it stays one and written into FOLDER.
//! `cargo xtask oracle` builds the program and runs this.

#[path = "differential/arguments.rs"]
mod arguments;
#[path = "plugin_differential/compare.rs"]
mod compare;
#[path = "plugin_differential/generate.rs"]
mod generate;
#[path = "differential/oracle.rs"]
mod oracle;
#[path = "plugin_differential/ours.rs"]
mod ours;
#[path = "differential/random.rs"]
mod random;
#[path = "differential/shrink.rs"]
mod shrink;
#[path = "differential/tally.rs"]
mod tally;

use std::collections::VecDeque;
use std::process::ExitCode;

use dra_sched::KubernetesMinor;
use serde_json::Value;

use arguments::Arguments;
use compare::{Comparison, KnownDifference};
use oracle::Oracle;
use random::Random;
use tally::Tally;

/// Questions that the oracle has at a time: its plugins wait more than they compute.
const ASKED_AHEAD: u64 = 16;

fn main() -> ExitCode {
    arguments::main("plugin_differential", run)
}

fn run(arguments: &Arguments) -> Result<u64, String> {
    let mut tally = Tally::new("plugins", arguments);
    for (release, program) in &arguments.oracles {
        let mut oracle = Oracle::start(program)?;
        // Shrinking asks out of turn.
        let mut shrinking = Oracle::start(program)?;
        let mut asked = VecDeque::new();
        let mut next = 0;
        for done in 0..arguments.cases {
            while next < arguments.cases.min(done + ASKED_AHEAD) {
                let name = format!("{}-{next}", arguments.seed);
                let question = generate::question(&mut Random::of_case(arguments.seed, next), &name);
                oracle.send(&question)?;
                asked.push_back(question);
                next += 1;
            }
            let question = asked.pop_front().ok_or("nothing was asked")?;
            let answer = oracle.receive(&question)?;
            match compare::compare(&question, *release, &answer) {
                Comparison::Unanswered => tally.unanswered(),
                Comparison::Same(kinds) => tally.passed(&kinds),
                Comparison::Known(difference) => tally.known(difference.name()),
                Comparison::Different(_) => {
                    if tally.failed() {
                        let name = format!("{}-{done}", arguments.seed);
                        let (small, difference) = shrunk(question, *release, &mut shrinking)?;
                        tally.show(*release, &name, &small, &difference)?;
                    }
                }
            }
            tally.progress(done + 1);
        }
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
        Ok(match compare::compare(question, release, &answer) {
            Comparison::Different(difference) => Some((answer, difference)),
            Comparison::Unanswered | Comparison::Same(_) | Comparison::Known(_) => None,
        })
    };
    let mut small = shrink::shrink(question, |candidate| matches!(differs(candidate, oracle), Ok(Some(_))));
    let (answer, difference) = differs(&small, oracle)?.ok_or("a difference comes and goes")?;
    small["kubernetes"] = release.to_string().into();
    small["answer"] = answer["nodes"].clone();
    Ok((small, difference))
}
