//! Prices of machines in integers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::decimal::{self, Digits, Rounding};

const NANO_PER_USD: i64 = 1_000_000_000;

/// A price in nano-dollars per hour. No decision reads a float.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PriceNanoUsdPerHour(pub i64);

/// Why a text is no price.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is no decimal number.
    #[error("price {text:?} is not a decimal number")]
    Malformed {
        /// The text.
        text: String,
    },
    /// It has more than nine decimal places.
    #[error("price {text:?} is finer than a nano-dollar")]
    TooFine {
        /// The text.
        text: String,
    },
    /// It does not fit.
    #[error("price {text:?} is out of range")]
    OutOfRange {
        /// The text.
        text: String,
    },
}

impl PriceNanoUsdPerHour {
    /// Free.
    pub const ZERO: Self = Self(0);

    /// Reads dollars per hour, exactly: `0.0832`, `-1.5`, `8e-2`. More than nine decimal places are an error.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::parse_with(text, Rounding::Exact)
    }

    /// Reads dollars per hour, rounded to the nearest nano-dollar (a half to the greater magnitude), for catalogues
    /// whose prices were computed with floats.
    pub fn parse_rounded(text: &str) -> Result<Self, Error> {
        Self::parse_with(text, Rounding::Nearest)
    }

    /// The sum.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// The difference; may be below zero.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    /// `count` times the price.
    pub fn checked_mul(self, count: i64) -> Option<Self> {
        self.0.checked_mul(count).map(Self)
    }

    /// The sum, stopping at the ends of `i64`.
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// In dollars, for metrics and people; no decision reads it.
    pub fn dollars(self) -> f64 {
        self.0 as f64 / NANO_PER_USD as f64
    }

    fn parse_with(text: &str, rounding: Rounding) -> Result<Self, Error> {
        let malformed = || Error::Malformed { text: text.to_owned() };
        let out_of_range = || Error::OutOfRange { text: text.to_owned() };
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (digits, rest) = Digits::split_off(unsigned);
        if digits.len() == 0 {
            return Err(malformed());
        }
        let exponent = match rest.strip_prefix(['e', 'E']) {
            Some(exponent) => exponent.parse::<i32>().map_err(|_| malformed())?,
            None if rest.is_empty() => 0,
            None => return Err(malformed()),
        };
        let nano = digits.to_nano(1, exponent, rounding).map_err(|error| match error {
            decimal::Error::TooFine => Error::TooFine { text: text.to_owned() },
            decimal::Error::TooLong | decimal::Error::Overflow => out_of_range(),
        })?;
        i64::try_from(if negative { -nano } else { nano }).map(Self).map_err(|_| out_of_range())
    }
}

impl FromStr for PriceNanoUsdPerHour {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

/// Prints `$0.0832/h`: as many decimal places as the price has, two at least; `{:.4}` cuts after four.
impl fmt::Display for PriceNanoUsdPerHour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let magnitude = self.0.unsigned_abs();
        let (dollars, nano) = (magnitude / NANO_PER_USD as u64, magnitude % NANO_PER_USD as u64);
        let places = format!("{nano:09}");
        let shown = match f.precision() {
            Some(precision) => precision.min(places.len()),
            None => places.trim_end_matches('0').len().max(2),
        };
        let places = places.get(..shown).unwrap_or(&places);
        let point = if places.is_empty() { "" } else { "." };
        write!(f, "{sign}${dollars}{point}{places}/h")
    }
}

/// A price for people: four places, and in full if it would look like nothing then.
pub fn short(price: PriceNanoUsdPerHour) -> String {
    const SMALL: i64 = 1_000_000;
    if price.0 == 0 || price.0 >= SMALL { format!("{price:.4}") } else { price.to_string() }
}

/// Two prices that are compared in one sentence: [`short`], and in full if four places do not tell them apart.
pub fn short_apart(a: PriceNanoUsdPerHour, b: PriceNanoUsdPerHour) -> (String, String) {
    let (short_a, short_b) = (short(a), short(b));
    if short_a == short_b && a != b { (a.to_string(), b.to_string()) } else { (short_a, short_b) }
}

#[cfg(test)]
mod tests;
