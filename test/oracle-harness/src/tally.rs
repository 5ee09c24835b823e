//! Counts what came of the questions, shows progress, and keeps the differences.

use std::fs;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use dra_types::KubernetesMinor;
use serde_json::Value;

use crate::arguments::Arguments;
use crate::counts::{Counts, Floor, Unanswered};

/// Differences that are shrunk and shown, and questions of which it is said why we did not answer; the others are only
/// counted.
const MAX_SHOWN: u64 = 5;

/// Between two lines of progress in a log.
const INTERVAL: Duration = Duration::from_secs(20);

/// What came of the questions so far.
pub struct Tally {
    subject: &'static str,
    floor: Floor,
    cases: u64,
    fixtures: Option<PathBuf>,
    record: Option<PathBuf>,
    counts: Counts,
    begun: Instant,
    last_line: Instant,
    on_terminal: bool,
}

impl Tally {
    /// Nothing yet.
    pub fn new(subject: &'static str, floor: Floor, arguments: &Arguments) -> Self {
        Self {
            subject,
            floor,
            cases: arguments.cases,
            fixtures: arguments.fixtures.clone(),
            record: arguments.record.clone(),
            counts: Counts::default(),
            begun: Instant::now(),
            last_line: Instant::now(),
            on_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// A question that was not compared.
    pub fn unanswered(&mut self, release: KubernetesMinor, name: &str, unanswered: &Unanswered) {
        self.counts.unanswered(unanswered);
        if let Unanswered::Ours(why) = unanswered
            && self.counts.ours <= MAX_SHOWN
        {
            self.clear_line();
            println!("{} {name}, Kubernetes {release}: we have no answer: {why}", self.subject);
        }
    }

    /// Counts equal answers, of these kinds.
    pub fn passed(&mut self, kinds: &[&'static str]) {
        self.counts.pass(kinds);
    }

    /// Writes a question with upstream's answer, if that is wanted.
    #[allow(dead_code, reason = "selectors are recorded otherwise")]
    pub fn record(&self, recorded: impl FnOnce() -> Value) -> Result<(), String> {
        let Some(path) = &self.record else { return Ok(()) };
        let mut file =
            fs::OpenOptions::new().create(true).append(true).open(path).map_err(|error| error.to_string())?;
        writeln!(file, "{}", recorded()).map_err(|error| format!("write {}: {error}", path.display()))
    }

    /// A difference that is deliberate and named.
    #[allow(dead_code, reason = "selectors have none")]
    pub fn known(&mut self, name: &'static str) {
        *self.counts.known.entry(name).or_default() += 1;
    }

    /// A difference. Whether it is to be shrunk and shown.
    pub fn failed(&mut self) -> bool {
        self.counts.failed += 1;
        self.counts.failed <= MAX_SHOWN
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
        let (cases, differ, seconds) = (self.cases, self.counts.failed, self.begun.elapsed().as_secs());
        let line = format!("{}: {done} of {cases} questions, {differ} differ, {seconds} s", self.subject);
        if self.on_terminal {
            eprint!("\r\x1b[K{line}");
        } else {
            eprintln!("{line}");
        }
    }

    /// Lists a named difference, if it was met.
    #[allow(dead_code, reason = "selectors have none")]
    pub fn describe(&self, name: &str, description: &str) {
        if let Some(count) = self.counts.known.get(name) {
            self.clear_line();
            println!("Differs: {name}, {count} times: {description}");
        }
    }

    /// Prints the sums; gives what is wrong with the run.
    pub fn finish(self) -> Vec<String> {
        self.clear_line();
        let Counts { passed, failed, theirs, ours, crashes, .. } = self.counts;
        let kinds: Vec<String> = self.counts.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let seconds = self.begun.elapsed().as_secs_f64();
        println!("{}: {}, {seconds:.1} s", self.subject, kinds.join(", "));
        println!(
            "{}: {} asked, {theirs} not answered by upstream, {ours} not answered by us, {crashes} crashes of upstream",
            self.subject,
            self.counts.asked()
        );
        println!("{passed} passed, {failed} failed");
        self.counts.faults(self.floor).into_iter().map(|fault| format!("{}: {fault}", self.subject)).collect()
    }

    fn clear_line(&self) {
        if self.on_terminal {
            eprint!("\r\x1b[K");
        }
    }
}
