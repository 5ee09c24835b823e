//! Counts what came of the questions, shows progress, and keeps the differences.

use std::collections::BTreeMap;
use std::fs;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use dra_sched::KubernetesMinor;
use serde_json::Value;

use crate::arguments::Arguments;

/// Differences that are shrunk and shown; the others are only counted.
const MAX_SHOWN: u64 = 5;

/// Between two lines of progress in a log.
const INTERVAL: Duration = Duration::from_secs(20);

/// What came of the questions so far.
pub struct Tally {
    subject: &'static str,
    cases: u64,
    fixtures: Option<PathBuf>,
    passed: u64,
    failed: u64,
    unanswered: u64,
    kinds: BTreeMap<&'static str, u64>,
    known: BTreeMap<&'static str, u64>,
    begun: Instant,
    last_line: Instant,
    on_terminal: bool,
}

impl Tally {
    /// Nothing yet.
    pub fn new(subject: &'static str, arguments: &Arguments) -> Self {
        Self {
            subject,
            cases: arguments.cases,
            fixtures: arguments.fixtures.clone(),
            passed: 0,
            failed: 0,
            unanswered: 0,
            kinds: BTreeMap::new(),
            known: BTreeMap::new(),
            begun: Instant::now(),
            last_line: Instant::now(),
            on_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// One of the two had no answer in time.
    #[allow(dead_code, reason = "selectors always have an answer")]
    pub fn unanswered(&mut self) {
        self.unanswered += 1;
    }

    /// The same answers, of these kinds.
    pub fn passed(&mut self, kinds: &[&'static str]) {
        self.passed += 1;
        for kind in kinds {
            *self.kinds.entry(kind).or_default() += 1;
        }
    }

    /// A difference that is deliberate and named.
    pub fn known(&mut self, name: &'static str) {
        self.passed += 1;
        *self.known.entry(name).or_default() += 1;
    }

    /// A difference. Whether it is to be shrunk and shown.
    pub fn failed(&mut self) -> bool {
        self.failed += 1;
        self.failed <= MAX_SHOWN
    }

    /// Prints a difference and writes the question.
    pub fn show(
        &mut self,
        release: KubernetesMinor,
        name: &str,
        fixture: &Value,
        difference: &str,
    ) -> Result<(), String> {
        self.clear_line();
        println!("{} {name}, Kubernetes {release}:\n  {}", self.subject, difference.replace('\n', "\n  "));
        let Some(folder) = &self.fixtures else {
            println!("  {fixture}");
            return Ok(());
        };
        let path = folder.join(format!("{}-{release}-{name}.json", self.subject));
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, format!("{fixture}\n")));
        written.map_err(|error| format!("write {}: {error}", path.display()))?;
        println!("  shrunk into {}", path.display());
        Ok(())
    }

    /// Says how far it is, now and then.
    pub fn progress(&mut self, done: u64) {
        let interval = if self.on_terminal { Duration::from_millis(200) } else { INTERVAL };
        if self.last_line.elapsed() < interval || done == self.cases {
            return;
        }
        self.last_line = Instant::now();
        let seconds = self.begun.elapsed().as_secs();
        let line = format!("{}: {done} of {} questions, {} differ, {seconds} s", self.subject, self.cases, self.failed);
        if self.on_terminal {
            eprint!("\r\x1b[K{line}");
        } else {
            eprintln!("{line}");
        }
    }

    /// Lists a named difference, if it was met.
    pub fn describe(&self, name: &str, description: &str) {
        if let Some(count) = self.known.get(name) {
            self.clear_line();
            println!("Differs: {name}, {count} times: {description}");
        }
    }

    /// Prints the sums; gives the number of failed questions.
    pub fn finish(self) -> u64 {
        self.clear_line();
        let kinds: Vec<String> = self.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        println!(
            "{}: {}, {} unanswered, {:.1} s",
            self.subject,
            kinds.join(", "),
            self.unanswered,
            self.begun.elapsed().as_secs_f64()
        );
        println!("{} passed, {} failed", self.passed, self.failed);
        self.failed
    }

    fn clear_line(&self) {
        if self.on_terminal {
            eprint!("\r\x1b[K");
        }
    }
}
