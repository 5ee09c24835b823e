//! Writing to standard output and standard error.

use std::fmt::Display;
use std::io::{ErrorKind, Write};

/// Writes a result. Whoever reads it may have seen enough and closed the pipe; that is no fault.
pub(super) fn stdout(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
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
    let _ = writeln!(std::io::stderr(), "{text}");
}
