//! Asks kube-scheduler's own plugins and our crate the same random questions about what a pod gets of devices and what
//! they cost of the node: the claim for extended resources, costs of devices, claims that may not be shared.
//!
//!     cargo run -p dra-sched --example plugin_differential -- --oracle 1.37=PROGRAM [--oracle 1.36=PROGRAM]
//!         [--cases N] [--seed S] [--fixtures FOLDER] [--record FILE]
//!
//! PROGRAM is built from `test/oracle/plugin`. A difference is shrunk while it stays one and written into FOLDER.
//! `cargo xtask oracle` builds the program and runs this.

#[path = "plugin_differential/compare.rs"]
mod compare;
#[path = "plugin_differential/generate.rs"]
mod generate;
#[path = "plugin_differential/ours.rs"]
mod ours;
#[path = "plugin_differential/refusal.rs"]
mod refusal;

use std::collections::VecDeque;
use std::process::ExitCode;

use dra_types::KubernetesMinor;
use serde_json::Value;

use compare::{Comparison, KnownDifference};
use oracle_harness::arguments::Arguments;
use oracle_harness::counts::Floor;
use oracle_harness::oracle::Oracle;
use oracle_harness::tally::Tally;
use oracle_harness::varying::Among;
use seeded_random::Random;

/// Questions that the oracle has at a time: its plugins wait more than they compute.
const ASKED_AHEAD: u64 = 16;

/// How often upstream is asked again about a difference: each time takes a hundredth of a second.
const ASKED_AGAIN: usize = 50;

/// Upstream answers all questions that an API server would accept; the rest is for pods that a deliberate difference is
/// about.
const PASSED_PERCENT: u64 = 95;

/// What answers must be of, the last only in 1.36.
const KINDS: &[&str] = &[
    "with extended resources",
    "with extended resources that cost",
    "with devices that cost",
    "with neither",
    "claim unusable",
    "class missing",
    "too large for the node",
    "allocated elsewhere",
    "not shared",
    "without devices",
    "error",
    "too large for the pod",
    "too large with devices",
    "claim not used",
];

fn main() -> ExitCode {
    oracle_harness::arguments::main("plugin_differential", run)
}

fn run(arguments: &Arguments) -> Result<Vec<String>, String> {
    let asks_1_36 = arguments.oracles.iter().any(|(release, _)| *release < KubernetesMinor::V1_37);
    let kinds = if asks_1_36 { KINDS } else { KINDS.split_last().map_or(KINDS, |(_, others)| others) };
    let mut tally = Tally::new("plugins", Floor { passed_percent: PASSED_PERCENT, kinds }, arguments);
    for (release, program) in &arguments.oracles {
        let mut oracle = Oracle::start(program)?;
        // What is asked out of turn: again, and smaller.
        let mut again = Oracle::start(program)?;
        let mut asked = VecDeque::new();
        let mut next = 0;
        for done in 0..arguments.cases {
            while next < arguments.cases.min(done + ASKED_AHEAD) {
                let name = format!("{}-{next}", arguments.seed);
                let question = generate::question(&mut Random::of_case(arguments.seed, next), &name, *release);
                oracle.send(&question)?;
                asked.push_back(question);
                next += 1;
            }
            let question = asked.pop_front().ok_or("nothing was asked")?;
            let answer = oracle.receive(&question)?;
            let name = format!("{}-{done}", arguments.seed);
            match often(&question, *release, &answer, &mut again)? {
                Comparison::Unanswered(unanswered) => tally.unanswered(*release, &name, &unanswered),
                Comparison::Same(kinds) => {
                    tally.passed(&kinds);
                    tally.record(|| recorded(question.clone(), *release, &answer))?;
                }
                Comparison::Known(difference) => tally.known(difference.name()),
                Comparison::Different(_) => {
                    if tally.failed() {
                        let (small, difference) = shrunk(question, *release, &mut again)?;
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

/// Compares an answer of upstream with ours; if they differ, ours may be one that upstream gives now and then.
fn often(
    question: &Value,
    release: KubernetesMinor,
    answer: &Value,
    oracle: &mut Oracle,
) -> Result<Comparison, String> {
    let first = compare::compare(question, release, answer);
    let Comparison::Different(difference) = first else { return Ok(first) };
    let is_ours = |answer: &Value| {
        matches!(compare::compare(question, release, answer), Comparison::Same(_) | Comparison::Known(_))
    };
    Ok(match oracle_harness::varying::among(answer, ASKED_AGAIN, || oracle.ask(question), is_ours)? {
        Among::Seen => Comparison::Same(vec!["as upstream now and then"]),
        Among::Other => Comparison::Different(difference),
        Among::Outside(seen) => {
            let seen: Vec<String> = seen.iter().map(|answer| answer["nodes"].to_string()).collect();
            Comparison::Different(format!("{difference}\nnone of upstream's answers: {}", seen.join(", ")))
        }
    })
}

/// The smallest question found that still differs, with upstream's answer in it, and how it differs.
fn shrunk(question: Value, release: KubernetesMinor, oracle: &mut Oracle) -> Result<(Value, String), String> {
    let kind = |difference: &str| difference.lines().next().map(str::to_owned);
    let mut first = None;
    let mut differs = |question: &Value, oracle: &mut Oracle| -> Result<Option<(Value, String)>, String> {
        let answer = oracle.ask(question)?;
        Ok(match compare::compare(question, release, &answer) {
            // A smaller question that differs in another way would hide this one.
            Comparison::Different(difference) => {
                let first = first.get_or_insert_with(|| kind(&difference));
                (*first == kind(&difference)).then_some((answer, difference))
            }
            Comparison::Unanswered(_) | Comparison::Same(_) | Comparison::Known(_) => None,
        })
    };
    differs(&question, oracle)?;
    let small = oracle_harness::shrink::shrink(question, |candidate| matches!(differs(candidate, oracle), Ok(Some(_))));
    let (answer, difference) = differs(&small, oracle)?.ok_or("a difference comes and goes")?;
    Ok((recorded(small, release, &answer), difference))
}

/// A question with upstream's answer in it.
fn recorded(mut question: Value, release: KubernetesMinor, answer: &Value) -> Value {
    question["kubernetes"] = release.to_string().into();
    question["answer"] = answer["nodes"].clone();
    for claim in question["answer"][0]["claims"].as_array_mut().into_iter().flatten() {
        if let Some(metadata) = claim["metadata"].as_object_mut() {
            metadata.retain(|name, _| ["name", "namespace", "annotations"].contains(&name.as_str()));
        }
    }
    question
}
