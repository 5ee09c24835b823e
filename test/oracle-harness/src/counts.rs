//! What came of the questions, and whether that is enough to say that we answer as upstream does.
//!
//! A run that compares nothing finds no difference either, so each subject has a floor: the share of questions that
//! must have been compared and found equal. A question without an answer says whose fault that is. Ours are few,
//! because questions are made of what we can read and answer; when they are many, something of ours has broken.

use std::collections::BTreeMap;

/// Questions that we leave without an answer, at most, in a thousand.
const MAX_OURS_PER_MILLE: u64 = 5;

/// From so many questions on every kind of answer must have been met.
const MANY: u64 = 1000;

/// What a run has to come to.
#[derive(Debug, Clone, Copy)]
pub struct Floor {
    /// Answers that are equal to upstream's, at least, in a hundred questions.
    pub passed_percent: u64,
    /// Kinds of answers that must be among them.
    pub kinds: &'static [&'static str],
}

/// Why a question was not compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unanswered {
    /// Upstream took longer than its oracle gives it, or failed at something other than the question.
    Theirs,
    /// We could not read the question, or ran out of steps.
    Ours(String),
    /// Upstream's code crashed.
    Crash,
}

/// What came of the questions so far.
#[derive(Debug, Default)]
pub struct Counts {
    /// Equal answers.
    pub passed: u64,
    /// Different answers.
    pub failed: u64,
    /// Questions that upstream did not answer.
    pub theirs: u64,
    /// Questions that we did not answer.
    pub ours: u64,
    /// Questions on which upstream crashed.
    pub crashes: u64,
    /// Deliberate differences, by their names.
    pub known: BTreeMap<&'static str, u64>,
    /// Equal answers by kind; one question may have several.
    pub kinds: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// Counts equal answers, of these kinds.
    pub fn pass(&mut self, kinds: &[&'static str]) {
        self.passed += 1;
        for kind in kinds {
            *self.kinds.entry(kind).or_default() += 1;
        }
    }

    /// A question that was not compared.
    pub fn unanswered(&mut self, unanswered: &Unanswered) {
        match unanswered {
            Unanswered::Theirs => self.theirs += 1,
            Unanswered::Ours(_) => self.ours += 1,
            Unanswered::Crash => self.crashes += 1,
        }
    }

    /// All questions.
    pub fn asked(&self) -> u64 {
        self.passed + self.failed + self.theirs + self.ours + self.crashes + self.known.values().sum::<u64>()
    }

    /// What is wrong with the run as a whole; empty if it is good.
    pub fn faults(&self, floor: Floor) -> Vec<String> {
        let asked = self.asked();
        let mut faults = Vec::new();
        if self.failed > 0 {
            faults.push(format!("{} answers differ from upstream's", self.failed));
        }
        if self.passed == 0 {
            faults.push(format!("nothing was compared: {asked} questions, none of them passed"));
        } else if self.passed * 100 < asked * floor.passed_percent {
            let Floor { passed_percent, .. } = floor;
            faults.push(format!("only {} of {asked} questions passed, less than {passed_percent} %", self.passed));
        }
        if self.ours * 1000 > asked * MAX_OURS_PER_MILLE {
            faults.push(format!("we did not answer {} of {asked} questions, more than 0.5 %", self.ours));
        }
        if asked >= MANY {
            let missing = floor.kinds.iter().filter(|kind| !self.kinds.contains_key(*kind));
            faults.extend(missing.map(|kind| format!("no answer was of the kind {kind:?}")));
        }
        faults
    }
}
