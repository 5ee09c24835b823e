//! Values in Go's spelling, because that is what chart values for Karpenter hold.

use model::DurationMs;

/// Reads what Go's `strconv.ParseBool` reads.
pub(crate) fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// Reads what Go's `time.ParseDuration` reads.
pub(super) fn go_duration(text: &str) -> Result<DurationMs, String> {
    DurationMs::parse(text).map_err(|error| error.to_string())
}
