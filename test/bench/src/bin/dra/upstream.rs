//! kube-scheduler's allocator in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

/// The program; ends when it is dropped.
pub(crate) struct Upstream {
    process: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// What it measured.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Measured {
    pub cpu_nanos: u64,
    pub allocations: u64,
    pub placed: u64,
    pub timed_out: bool,
    pub peak_kib: u64,
}

impl Upstream {
    /// Starts it; it gives up a question after the limit.
    pub(crate) fn start(program: &Path, limit_seconds: u64) -> Result<Self> {
        let mut process = Command::new(program)
            .args(["-timeout-seconds", &limit_seconds.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("run {}", program.display()))?;
        let questions = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().context("upstream has no output")?);
        Ok(Self { process, questions, answers })
    }

    /// Allocates again and again: so often, after once that is not counted; 0 is once that is.
    pub(crate) fn repeat(&mut self, question: &Value, times: u64) -> Result<Measured> {
        self.measure(question, &json!({"repeat": times}))
    }

    /// Any benchmark.
    pub(crate) fn measure(&mut self, question: &Value, bench: &Value) -> Result<Measured> {
        let mut question = question.clone();
        question["bench"] = bench.clone();
        let questions = self.questions.as_mut().context("upstream has no input")?;
        writeln!(questions, "{question}")?;
        questions.flush()?;
        let mut line = String::new();
        ensure!(self.answers.read_line(&mut line)? > 0, "upstream's program ended at {}", question["name"]);
        let mut answer: Value = serde_json::from_str(&line)?;
        serde_json::from_value(answer["measured"].take()).with_context(|| format!("upstream said {line}"))
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        // It ends when its input does.
        self.questions = None;
        let _ = self.process.wait();
    }
}
