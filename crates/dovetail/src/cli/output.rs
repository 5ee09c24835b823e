//! Writing to standard output and standard error.
//!
//! What is written holds names and values from manifests that somebody else made, and a terminal obeys control
//! characters in them: they could hide or fake lines of a plan. So control characters are written as JSON writes them
//! (`\\u001b`), which leaves JSON what it was. Line feeds and tabs stay, for our own lines have them; no text that the
//! planner reads may hold any (`decode`).

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::io::{ErrorKind, Write};

/// Writes a result. Whoever reads it may have seen enough and closed the pipe; that is no fault.
pub(super) fn stdout(bytes: &[u8]) -> anyhow::Result<()> {
    let text = String::from_utf8_lossy(bytes);
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(escaped(&text).as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// Says something beside the result.
pub(super) fn note(text: impl Display) {
    stderr(format_args!("note: {text}"));
}

/// Says that part of the input could not be used.
pub(super) fn problem(text: impl Display) {
    stderr(format_args!("problem: {text}"));
}

/// Says why the command failed.
pub(super) fn error(error: &anyhow::Error) {
    stderr(format_args!("error: {error}"));
    for cause in error.chain().skip(1) {
        stderr(format_args!("  because {cause}"));
    }
}

/// Nobody can be told that standard error is closed.
fn stderr(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{}", one_message(&text.to_string()));
}

/// A message of which no further line looks like the beginning of another.
fn one_message(text: &str) -> String {
    escaped(text).replace('\n', "\n  ")
}

/// The text without control characters that a terminal would obey.
fn escaped(text: &str) -> Cow<'_, str> {
    let is_obeyed = |char: char| char.is_control() && !matches!(char, '\n' | '\t');
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_obeyed(char) {
            let _ = write!(escaped, "\\u{:04x}", u32::from(char));
        } else {
            escaped.push(char);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_as_json_writes_them_and_lines_stay() {
        assert_eq!(escaped("NAME\tPODS\nüber"), "NAME\tPODS\nüber");
        assert_eq!(escaped("a\u{1b}[2Jb\rc\u{7f}\u{9b}d"), "a\\u001b[2Jb\\u000dc\\u007f\\u009bd");
        let json = serde_json::to_string("a\u{1b}\u{7f}\u{9b}").unwrap();
        assert_eq!(serde_json::from_str::<String>(&escaped(&json)).unwrap(), "a\u{1b}\u{7f}\u{9b}");
    }

    #[test]
    fn no_line_of_a_message_but_the_first_begins_at_the_margin() {
        assert_eq!(one_message("bad pod \nerror: all is well"), "bad pod \n  error: all is well");
    }
}
