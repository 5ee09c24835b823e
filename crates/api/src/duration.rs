//! Durations as the API writes them: Go's syntax, kept as written.
//!
//! An object that was read is written back byte for byte, so that tools that compare it with its source see no change.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A duration in Go's syntax, such as `30m` or `1h0m0s`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct DurationString(pub String);

/// A duration in Go's syntax, or `Never`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct NillableDuration(pub String);

/// The text of a [`NillableDuration`] that stands for no duration at all.
pub const NEVER: &str = "Never";

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a number followed by a unit.
    #[error("{0:?} is not a duration: expected numbers with units such as \"1h30m\"")]
    Syntax(String),
    /// Negative, where only zero and more make sense.
    #[error("{0:?} is a negative duration")]
    Negative(String),
    /// More than Go's `time.Duration` holds (about 292 years).
    #[error("{0:?} is longer than a duration can be")]
    Overflow(String),
}

impl DurationString {
    /// The duration that the text stands for.
    pub fn parse(&self) -> Result<Duration, Error> {
        parse(&self.0)
    }
}

impl From<Duration> for DurationString {
    fn from(duration: Duration) -> Self {
        Self(format(duration))
    }
}

impl NillableDuration {
    /// `Never`.
    pub fn never() -> Self {
        Self(NEVER.to_owned())
    }

    /// The duration that the text stands for; `None` is `Never`.
    pub fn parse(&self) -> Result<Option<Duration>, Error> {
        if self.0 == NEVER { Ok(None) } else { parse(&self.0).map(Some) }
    }
}

impl From<Duration> for NillableDuration {
    fn from(duration: Duration) -> Self {
        Self(format(duration))
    }
}

const NANOS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration as Go's `time.ParseDuration` does, and refuses negative ones.
pub fn parse(text: &str) -> Result<Duration, Error> {
    let syntax = || Error::Syntax(text.to_owned());
    let overflow = || Error::Overflow(text.to_owned());
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, text.get(1..).unwrap_or_default()),
        Some(b'+') => (false, text.get(1..).unwrap_or_default()),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(syntax());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (number, after) = split_while(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split_while(after, |c| !c.is_ascii_digit() && c != '.');
        let scale = NANOS.iter().find(|(name, _)| *name == unit).map(|(_, nanos)| *nanos).ok_or_else(syntax)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(syntax());
        }
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| overflow())? };
        let nanos = whole.checked_mul(scale).and_then(|n| n.checked_add(fraction_of(fraction, scale)));
        total = nanos.and_then(|n| total.checked_add(n)).ok_or_else(overflow)?;
        rest = after;
    }
    if total > i64::MAX as u64 {
        return Err(overflow());
    }
    if negative && total > 0 {
        return Err(Error::Negative(text.to_owned()));
    }
    Ok(Duration::from_nanos(total))
}

fn split_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !keep(c)).unwrap_or(text.len()))
}

/// `0.<digits>` of `scale`, rounded down; digits past the nineteenth change nothing.
fn fraction_of(digits: &str, scale: u64) -> u64 {
    let (mut value, mut unit) = (0u128, 1u128);
    for digit in digits.bytes().take(19) {
        value = value * 10 + u128::from(digit - b'0');
        unit *= 10;
    }
    u64::try_from(value * u128::from(scale) / unit).unwrap_or(u64::MAX)
}

/// Writes a duration as Go's `time.Duration.String` does: `1h0m0s`, `1.5s`, `20ms`, `0s`.
pub fn format(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    if nanos < 1_000 {
        return format!("{nanos}ns");
    }
    if nanos < 1_000_000 {
        return format!("{}\u{b5}s", decimal(nanos, 1_000));
    }
    if nanos < 1_000_000_000 {
        return format!("{}ms", decimal(nanos, 1_000_000));
    }
    let minutes = nanos / 60_000_000_000;
    let seconds = decimal(nanos % 60_000_000_000, 1_000_000_000);
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

fn decimal(value: u128, unit: u128) -> String {
    let (whole, fraction) = (value / unit, value % unit);
    if fraction == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    format!("{whole}.{}", format!("{fraction:0width$}").trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_as_in_go() {
        let cases = [
            ("0", 0),
            ("0s", 0),
            ("30s", 30_000_000_000),
            ("1h0m0s", 3_600_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("+3us", 3_000),
            ("3\u{b5}s", 3_000),
            ("-0s", 0),
            ("2562047h47m16.854775807s", i64::MAX as u64),
            ("0.3333333333333333333h", 1_200_000_000_000 - 1),
        ];
        for (text, nanos) in cases {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn texts_that_go_refuses_are_refused() {
        for text in ["", "-", "1", "s", ".s", "1d", "1 h", "1h ", "1.2.3s", "3000000000h", "99999999999999999999s"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("-1s"), Err(Error::Negative("-1s".to_owned())));
        assert_eq!(parse("2562047h47m16.854775808s"), Err(Error::Overflow("2562047h47m16.854775808s".to_owned())));
    }

    #[test]
    fn durations_are_written_as_in_go() {
        let cases = [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1\u{b5}s"),
            (2_200_000, "2.2ms"),
            (3_300_000_000, "3.3s"),
            (245_000_000_000, "4m5s"),
            (245_001_000_000, "4m5.001s"),
            (3_600_000_000_000, "1h0m0s"),
        ];
        for (nanos, text) in cases {
            assert_eq!(format(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn never_is_no_duration_and_text_is_kept() {
        assert_eq!(NillableDuration::never().parse(), Ok(None));
        let kept: NillableDuration = serde_json::from_str("\"60m\"").unwrap();
        assert_eq!(kept.parse(), Ok(Some(Duration::from_secs(3600))));
        assert_eq!(serde_json::to_string(&kept).unwrap(), "\"60m\"");
    }
}
