//! Points in time and spans, as data. Nothing here reads a clock.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const MS_PER_S: i64 = 1000;

/// A point in time in milliseconds since 1970-01-01T00:00:00Z.
///
/// Written and read as RFC 3339. Parts finer than a millisecond are cut off when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

/// A span of time in milliseconds.
///
/// Written and read as Go's `time.Duration`: `1h30m`, `1.5s`. Parts finer than a millisecond are rounded away from
/// zero when it is read, so that a short span never becomes none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DurationMs(pub i64);

/// Why a text is no time or span.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not RFC 3339.
    #[error("time {text:?} is not in RFC 3339 form")]
    MalformedTimestamp {
        /// The text.
        text: String,
    },
    /// Not in Go's form.
    #[error("duration {text:?} is not a sequence of numbers with units (ns, us, ms, s, m, h)")]
    MalformedDuration {
        /// The text.
        text: String,
    },
    /// Beyond what Go's `time.Duration` holds, about 292 years.
    #[error("duration {text:?} is out of range")]
    DurationOutOfRange {
        /// The text.
        text: String,
    },
}

impl Timestamp {
    /// The whole seconds since the epoch.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(MS_PER_S))
    }

    /// Reads RFC 3339 with any offset.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let malformed = || Error::MalformedTimestamp { text: text.to_owned() };
        // jiff reads more forms than RFC 3339: without seconds, with a space, with a zone's name in brackets.
        let bytes = text.as_bytes();
        let at = |index: usize, expected: &[u8]| bytes.get(index).is_some_and(|byte| expected.contains(byte));
        if !at(10, b"Tt") || !at(13, b":") || !at(16, b":") || text.contains('[') {
            return Err(malformed());
        }
        let time: jiff::Timestamp = text.parse().map_err(|_| malformed())?;
        Ok(Self(time.as_nanosecond().div_euclid(1_000_000) as i64))
    }

    /// The time `span` later, stopping at the ends of the range.
    pub fn saturating_add(self, span: DurationMs) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The time `span` earlier, stopping at the ends of the range.
    pub fn saturating_sub(self, span: DurationMs) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// How long after `earlier` this is; below zero if it is before.
    pub fn since(self, earlier: Self) -> DurationMs {
        DurationMs(self.0.saturating_sub(earlier.0))
    }
}

impl DurationMs {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// Whole seconds.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(MS_PER_S))
    }

    /// Reads Go's `time.ParseDuration` form.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let malformed = || Error::MalformedDuration { text: text.to_owned() };
        let out_of_range = || Error::DurationOutOfRange { text: text.to_owned() };
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if unsigned == "0" {
            return Ok(Self::ZERO);
        }
        if unsigned.is_empty() {
            return Err(malformed());
        }
        let mut nano = 0i128;
        let mut rest = unsigned;
        while !rest.is_empty() {
            let (part, after) = parse_part(rest).ok_or_else(malformed)?;
            nano = nano.saturating_add(part);
            if nano > i128::from(i64::MAX) {
                return Err(out_of_range());
            }
            rest = after;
        }
        // At most 2^63 nanoseconds, so the milliseconds fit.
        let ms = i64::try_from((nano + 999_999) / 1_000_000).map_err(|_| out_of_range())?;
        Ok(Self(if negative { -ms } else { ms }))
    }

    /// The span in seconds, cut off.
    pub const fn as_seconds(self) -> i64 {
        self.0 / MS_PER_S
    }
}

/// One number with its unit, in nanoseconds, and what follows. Digits beyond a nanosecond are cut off, as in Go.
fn parse_part(text: &str) -> Option<(i128, &str)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = text.split_at(digits(text));
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let unit_len = rest.find(|character: char| character == '.' || character.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_len);
    let unit_ns: i128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    // Saturates: a number this long is out of range whatever its unit.
    let whole = whole
        .bytes()
        .fold(0i128, |number, digit| number.saturating_mul(10).saturating_add(i128::from(digit - b'0')).min(1 << 64));
    let mut scale = 1i128;
    let mut fraction_value = 0i128;
    for digit in fraction.bytes().take(18) {
        fraction_value = fraction_value * 10 + i128::from(digit - b'0');
        scale *= 10;
    }
    Some((whole * unit_ns + fraction_value * unit_ns / scale, rest))
}

impl FromStr for Timestamp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

impl FromStr for DurationMs {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

/// RFC 3339 in UTC; milliseconds only if there are any.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => f.pad(&time.to_string()),
            // Beyond year 9999 there is no RFC 3339 form.
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

/// Go's form: `1h30m0s`, `1.5s`, `200ms`, `0s`.
impl fmt::Display for DurationMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let ms = self.0.unsigned_abs();
        let (seconds, fraction) = (ms / 1000, ms % 1000);
        let (hours, minutes, seconds_left) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let fraction = match fraction {
            0 => String::new(),
            _ => format!(".{fraction:03}").trim_end_matches('0').to_owned(),
        };
        let text = match (hours, minutes) {
            _ if ms == 0 => "0s".to_owned(),
            _ if ms < 1000 => format!("{sign}{ms}ms"),
            (0, 0) => format!("{sign}{seconds_left}{fraction}s"),
            (0, _) => format!("{sign}{minutes}m{seconds_left}{fraction}s"),
            _ => format!("{sign}{hours}h{minutes}m{seconds_left}{fraction}s"),
        };
        f.pad(&text)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl Serialize for DurationMs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DurationMs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
