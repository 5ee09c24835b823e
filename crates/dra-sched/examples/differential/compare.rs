//! Upstream's answers to a question beside ours.

use dra_types::{Compat, KubernetesMinor};
use serde_json::Value;

use crate::{case, show};
use oracle_harness::counts::Unanswered;

const STEPS: u64 = 1_000_000;

/// What two sets of answers are to each other.
pub(crate) enum Comparison {
    /// Equal; what each attempt came to.
    Same(Vec<&'static str>),
    /// Different in a way that is deliberate.
    #[allow(dead_code, reason = "there is none at the moment")]
    Known(KnownDifference),
    /// Different.
    Different(String),
    /// One of the two has no answer.
    Unanswered(Unanswered),
}

/// A difference from upstream that is deliberate: a `Differs:` in the code.
#[derive(Clone, Copy)]
pub(crate) enum KnownDifference {}

impl KnownDifference {
    /// All.
    pub(crate) const ALL: [Self; 0] = [];

    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {}
    }

    /// What differs.
    pub(crate) fn description(self) -> &'static str {
        match self {}
    }
}

/// Compares upstream's answers with ours, attempt by attempt.
pub(crate) fn compare(question: &Value, release: KubernetesMinor, answer: &Value) -> Result<Comparison, String> {
    let gates = case::gates(question)?;
    let mut case = match case::Case::read(question, Compat::with_gates(release, gates)) {
        Ok(case) => case,
        // Shrinking makes objects that cannot be; of the questions asked, each is to be read.
        Err(error) => return Ok(Comparison::Unanswered(Unanswered::Ours(format!("not read: {error}")))),
    };
    let ours = case.attempts(STEPS);
    let theirs = answer["attempts"].as_array().ok_or("an answer without attempts")?;
    let mut kinds = Vec::new();
    for (index, theirs) in theirs.iter().enumerate() {
        if theirs["unanswered"] == true {
            let crashed = theirs["crashed"] == true;
            return Ok(Comparison::Unanswered(if crashed { Unanswered::Crash } else { Unanswered::Theirs }));
        }
        let Some(ours) = ours.get(index) else { return Err(format!("attempt {index} is not ours: {theirs}")) };
        let place = (theirs["pod"].as_u64(), theirs["node"].as_u64());
        if place != (Some(ours.pod as u64), Some(ours.node as u64)) {
            return Err(format!("attempt {index} is pod {}, node {}: {theirs}", ours.pod, ours.node));
        }
        let scope = theirs["scope"].as_str();
        let theirs = show::recorded(theirs)?;
        let shown = show::verdict(&ours.verdict);
        if shown.answer == "out of budget" {
            return Ok(Comparison::Unanswered(Unanswered::Ours(format!("out of steps ({})", shown.why))));
        }
        if shown.answer != theirs.answer || shown.answer == "error" && scope != Some(show::scope(&ours.verdict)) {
            let place = format!("pod {}, node {}", ours.pod, ours.node);
            return Ok(Comparison::Different(format!("{place}\nupstream {theirs} for {scope:?}\nours     {shown}")));
        }
        kinds.push(match theirs.answer.as_str() {
            Some("nothing") => "nothing",
            Some(_) if scope == Some("node") => "error on this node",
            Some(_) => "error",
            None => "allocated",
        });
    }
    if ours.len() != theirs.len() {
        return Err(format!("{} attempts of ours, {} of upstream", ours.len(), theirs.len()));
    }
    Ok(Comparison::Same(kinds))
}
