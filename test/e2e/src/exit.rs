//! How programs of this crate end.

use std::process::ExitCode;

use anyhow::Result;

/// Of a program that found all well, or not, or could not find out, which is told.
#[must_use]
pub fn code(is_well: Result<bool>) -> ExitCode {
    match is_well {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
