//! Upstream's libraries in a process of their own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

/// A running oracle; ends when it is dropped.
pub struct Oracle {
    process: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts the program.
    pub fn start(program: &str) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{program}: {error}");
        let mut process = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let questions = process.stdin.take();
        let answers = process.stdout.take().ok_or("the oracle has no output")?;
        Ok(Self { process, questions, answers: BufReader::new(answers) })
    }

    /// One question, one answer.
    pub fn ask(&mut self, question: &Value) -> Result<Value, String> {
        self.send(question)?;
        self.receive(question)
    }

    /// Asks; the answer is to be received before the next question.
    pub fn send(&mut self, question: &Value) -> Result<(), String> {
        let questions = self.questions.as_mut().ok_or("the oracle has no input")?;
        let line = format!("{question}\n");
        questions
            .write_all(line.as_bytes())
            .and_then(|()| questions.flush())
            .map_err(|error| format!("the oracle does not listen: {error}"))
    }

    /// The answer to what was sent.
    pub fn receive(&mut self, question: &Value) -> Result<Value, String> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).map_err(|error| error.to_string())?;
        if read == 0 {
            return Err(format!("the oracle ended at {question}"));
        }
        serde_json::from_str(&line).map_err(|error| format!("the oracle said {line}: {error}"))
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // It ends when its input does.
        self.questions = None;
        if self.process.wait().is_err() {
            eprintln!("the oracle did not end");
        }
    }
}
