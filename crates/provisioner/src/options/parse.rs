//! Values in Go's spelling, because that is what chart values for Karpenter hold.

use model::{DurationMs, PriceNanoUsdPerHour};

/// Reads what Go's `strconv.ParseBool` reads.
pub fn go_bool(text: &str) -> Result<bool, String> {
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

/// Dollars per hour, not negative.
pub fn price(text: &str) -> Result<PriceNanoUsdPerHour, String> {
    let price = PriceNanoUsdPerHour::parse(text).map_err(|error| error.to_string())?;
    if price < PriceNanoUsdPerHour::ZERO { Err(format!("price {text} is negative")) } else { Ok(price) }
}
