//! Text to quantity: Go's grammar, and serde's way in.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};

use super::{Error, Format, MAX_EXPONENT, MAX_LEN, MAX_NANO, NANO_PER_UNIT, Quantity};
use crate::decimal::{self, Digits, Rounding};

/// What a suffix stands for: 2^binary × 10^decimal.
struct Scale {
    multiplier: u64,
    exponent: i32,
    format: Format,
}

pub(super) fn parse(text: &str) -> Result<Quantity, Error> {
    if text.is_empty() {
        return Err(Error::Empty);
    }
    if text.len() > MAX_LEN {
        return Err(Error::TooLong { len: text.len() });
    }
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, text.get(1..).unwrap_or_default()),
        Some(b'+') => (false, text.get(1..).unwrap_or_default()),
        _ => (false, text),
    };
    let (digits, suffix) = Digits::split_off(unsigned);
    let scale = parse_suffix(text, suffix)?;
    // Go takes a number without digits (".", "Ki") for zero, unless the suffix leads it to its slower parser.
    if digits.len() == 0 && (scale.multiplier >= 1 << 50 || scale.exponent < -9) {
        return Err(Error::Malformed { text: text.to_owned() });
    }
    let nano =
        digits.to_nano(scale.multiplier, scale.exponent, Rounding::AwayFromZero).map_err(|error| match error {
            decimal::Error::TooLong => Error::TooLong { len: text.len() },
            decimal::Error::Overflow | decimal::Error::TooFine => Error::TooLarge { text: text.to_owned() },
        })?;
    // Go prints a binary quantity between 0 and 1 as a decimal one from the start.
    let format = match scale.format {
        Format::BinarySi if nano > 0 && nano < NANO_PER_UNIT => Format::DecimalSi,
        format => format,
    };
    debug_assert!(nano <= MAX_NANO);
    Ok(Quantity { nano: if negative { -nano } else { nano }, format })
}

fn parse_suffix(text: &str, suffix: &str) -> Result<Scale, Error> {
    let decimal = |exponent| Scale { multiplier: 1, exponent, format: Format::DecimalSi };
    let binary = |power: u32| Scale { multiplier: 1 << power, exponent: 0, format: Format::BinarySi };
    Ok(match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => match suffix.strip_prefix(['e', 'E']) {
            Some(exponent) => {
                let exponent = parse_exponent(text, suffix, exponent)?;
                Scale { multiplier: 1, exponent, format: Format::DecimalExponent }
            }
            None => return Err(bad_suffix(text, suffix)),
        },
    })
}

fn parse_exponent(text: &str, suffix: &str, exponent: &str) -> Result<i32, Error> {
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad_suffix(text, suffix));
    }
    match exponent.parse::<i32>() {
        Ok(exponent) if exponent.abs() <= MAX_EXPONENT => Ok(exponent),
        _ => Err(Error::ExponentOutOfRange { text: text.to_owned() }),
    }
}

/// A suffix made of a suffix's characters is merely unknown; anything else is no quantity at all.
fn bad_suffix(text: &str, suffix: &str) -> Error {
    let plausible = suffix.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'-');
    if plausible {
        Error::UnknownSuffix { text: text.to_owned(), suffix: suffix.to_owned() }
    } else {
        Error::Malformed { text: text.to_owned() }
    }
}

impl FromStr for Quantity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text)
    }
}

/// Accepts a string, a number token, or null for zero, as the API server does. A number token in a float's form is
/// read through its shortest decimal text.
impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

struct QuantityVisitor;

impl Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity such as \"500m\" or 2")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        parse(text.trim()).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Quantity, E> {
        Quantity::from_i64(value, Format::DecimalSi).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity, E> {
        Quantity::from_nano(i128::from(value) * NANO_PER_UNIT, Format::DecimalSi).map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Quantity, E> {
        parse(&value.to_string()).map_err(E::custom)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Quantity, E> {
        Ok(Quantity::ZERO)
    }
}
