//! What a binary answers, and how two answers differ.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::os::unix::process::CommandExt;
use std::path::Path;

use anyhow::{Context, Result};
use regex::bytes::Regex;

use super::questions::Question;
use crate::process::command;

/// Most lines that are printed of each side of a difference, and most characters of each line.
const SHOWN_LINES: usize = 4;
const SHOWN_CHARACTERS: usize = 200;

/// Everything that a command leaves behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Answer {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// The exit code, or the signal.
    status: String,
}

impl Answer {
    /// Runs a binary at the top of the repository.
    pub(super) fn of(binary: &Path, question: &Question) -> Result<Self> {
        // Help texts name the program as it was called, and backtraces hold addresses.
        let output = command(&binary.to_string_lossy())
            .arg0("dovetail")
            .args(&question.0)
            .env_remove("RUST_BACKTRACE")
            .output()
            .with_context(|| format!("run {}", binary.display()))?;
        Ok(Self { stdout: output.stdout, stderr: output.stderr, status: output.status.to_string() })
    }

    pub(super) fn stdout(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.stdout)
    }
}

/// Where two answers first differ, for people; none if they are equal but for the lines that may differ.
pub(super) fn difference(before: &Answer, after: &Answer, ignored: Option<&Regex>) -> Option<String> {
    if before == after {
        return None;
    }
    let mut text = String::new();
    if before.status != after.status {
        let _ = writeln!(text, "- {}\n+ {}", before.status, after.status);
    }
    for (name, before, after) in [("stdout", &before.stdout, &after.stdout), ("stderr", &before.stderr, &after.stderr)]
    {
        let (before, after) = (lines(before, ignored), lines(after, ignored));
        let equal = before.iter().zip(&after).take_while(|(before, after)| before.1 == after.1).count();
        if equal == before.len() && equal == after.len() {
            continue;
        }
        for (sign, lines) in [('-', before), ('+', after)] {
            for (number, line) in lines.iter().skip(equal).take(SHOWN_LINES) {
                let line: String = String::from_utf8_lossy(line).chars().take(SHOWN_CHARACTERS).collect();
                let _ = writeln!(text, "{sign} {name}:{number}: {}", line.escape_debug());
            }
        }
    }
    (!text.is_empty()).then_some(text)
}

/// Lines with their numbers, without those that may differ. The rest after the last line feed is a line too.
fn lines<'a>(bytes: &'a [u8], ignored: Option<&Regex>) -> Vec<(usize, &'a [u8])> {
    let all = (1..).zip(bytes.split(|byte| *byte == b'\n'));
    all.filter(|(_, line)| !ignored.is_some_and(|ignored| ignored.is_match(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(stdout: &str, stderr: &str, status: &str) -> Answer {
        Answer { stdout: stdout.into(), stderr: stderr.into(), status: status.into() }
    }

    #[test]
    fn every_byte_and_the_exit_code_count() {
        let before = answer("a\nb\n", "note\n", "exit status: 0");
        assert_eq!(difference(&before, &before, None), None);
        for after in [
            answer("a\nb", "note\n", "exit status: 0"),
            answer("a\nb\n\n", "note\n", "exit status: 0"),
            answer("a\nb\r\n", "note\n", "exit status: 0"),
            answer("a\nb\n", "", "exit status: 0"),
            answer("a\nb\n", "note\n", "exit status: 3"),
        ] {
            assert!(difference(&before, &after, None).is_some(), "{after:?}");
            assert!(difference(&after, &before, None).is_some(), "{after:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_count() {
        let before = Answer { stdout: vec![0xfe], ..Answer::default() };
        let after = Answer { stdout: vec![0xff], ..Answer::default() };
        assert!(difference(&before, &after, None).is_some());
    }

    #[test]
    fn the_first_lines_that_differ_are_shown_with_their_numbers() {
        let before = answer("same\nold\nend\n", "", "exit status: 0");
        let after = answer("same\nnew\nend\n", "", "exit status: 1");
        let shown = difference(&before, &after, None).unwrap_or_default();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[..2], ["- exit status: 0", "+ exit status: 1"]);
        assert_eq!(lines[2], "- stdout:2: old");
        assert!(lines.contains(&"+ stdout:2: new"), "{shown}");
        assert!(!shown.contains("same"), "{shown}");
    }

    #[test]
    fn lines_that_may_differ_may_be_missing_but_hide_no_other() -> Result<()> {
        let version = Regex::new("^version ")?;
        let before = answer("version 1\na\n", "", "exit status: 0");
        assert_eq!(difference(&before, &answer("version 2\na\n", "", "exit status: 0"), Some(&version)), None);
        assert_eq!(difference(&before, &answer("a\nversion 2\n", "", "exit status: 0"), Some(&version)), None);
        let after = answer("version 2\nb\n", "", "exit status: 0");
        let shown = difference(&before, &after, Some(&version)).unwrap_or_default();
        assert!(shown.contains("+ stdout:2: b"), "{shown}");
        Ok(())
    }
}
