//! Kubernetes quantities, exactly.
//!
//! A [`Quantity`] counts nano-units in an `i128` and remembers how it was written, because that decides how it is
//! printed. Grammar, rounding (away from zero, to nano-units) and the canonical form are those of
//! `k8s.io/apimachinery/pkg/api/resource`; the tables in the tests were produced by it.
//!
//! Differs: `quantity-range`, `quantity-length`. What Go caps silently (binary suffixes) or stores unbounded (decimal
//! ones) is an error here once the magnitude exceeds 2⁶³−1 units, and so are exponents beyond ±[`MAX_EXPONENT`] and
//! texts beyond [`MAX_LEN`] bytes, so that a hostile quantity costs nothing and never turns into another number.

mod format;
mod parse;

pub use format::Rounding;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// Longest text that is parsed, in bytes.
pub const MAX_LEN: usize = 128;

/// Greatest magnitude of a decimal exponent (`1e100`).
pub const MAX_EXPONENT: i32 = 100;

const NANO_PER_UNIT: i128 = 1_000_000_000;
const NANO_PER_MILLI: i128 = 1_000_000;
const MAX_NANO: i128 = i64::MAX as i128 * NANO_PER_UNIT;

/// How a quantity was written, and therefore is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// `1500m`, `2k`, `3G`.
    #[default]
    DecimalSi,
    /// `1536Mi`.
    BinarySi,
    /// `12e6`.
    DecimalExponent,
}

/// Why a text is no quantity, or a result none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing was written.
    #[error("quantity is empty")]
    Empty,
    /// The text is longer than [`MAX_LEN`].
    #[error("quantity has {len} bytes, more than {MAX_LEN}")]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// A character stands where no quantity has one.
    #[error("quantity {text:?} is not a number with an optional suffix")]
    Malformed {
        /// The text.
        text: String,
    },
    /// The suffix is none of those known.
    #[error("quantity {text:?} has unknown suffix {suffix:?}")]
    UnknownSuffix {
        /// The text.
        text: String,
        /// What follows the number.
        suffix: String,
    },
    /// The exponent is beyond [`MAX_EXPONENT`].
    #[error("quantity {text:?} has an exponent beyond ±{MAX_EXPONENT}")]
    ExponentOutOfRange {
        /// The text.
        text: String,
    },
    /// The value is beyond 2⁶³−1 units.
    #[error("quantity {text:?} exceeds 2^63-1")]
    TooLarge {
        /// The text.
        text: String,
    },
    /// A sum, difference or conversion is beyond what its type holds.
    #[error("quantity out of range")]
    OutOfRange,
}

/// An exact decimal amount of a resource.
///
/// Equality, order and hash go by the value only: `1Ki` equals `1024`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    nano: i128,
    format: Format,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nano: 0, format: Format::DecimalSi };

    /// Reads a quantity by Go's rules.
    pub fn parse(text: &str) -> Result<Self, Error> {
        parse::parse(text)
    }

    /// `value` whole units.
    pub fn from_i64(value: i64, format: Format) -> Result<Self, Error> {
        Self::from_nano(i128::from(value) * NANO_PER_UNIT, format)
    }

    /// `milli` thousandths.
    pub fn from_milli(milli: i64, format: Format) -> Self {
        // Cannot leave the range: i64 thousandths are fewer than i64 units.
        Self { nano: i128::from(milli) * NANO_PER_MILLI, format }
    }

    /// `nano` nano-units.
    pub fn from_nano(nano: i128, format: Format) -> Result<Self, Error> {
        if (-MAX_NANO..=MAX_NANO).contains(&nano) { Ok(Self { nano, format }) } else { Err(Error::OutOfRange) }
    }

    /// The exact value in nano-units.
    pub const fn to_nano(self) -> i128 {
        self.nano
    }

    /// How it is printed.
    pub const fn format(self) -> Format {
        self.format
    }

    /// Whole units, fractions rounded away from zero like Go's `Value()`.
    pub fn value(self) -> Result<i64, Error> {
        self.rounded_to(NANO_PER_UNIT)
    }

    /// Thousandths, finer parts rounded away from zero like Go's `MilliValue()`.
    pub fn milli_value(self) -> Result<i64, Error> {
        self.rounded_to(NANO_PER_MILLI)
    }

    /// Whether the value is zero.
    pub const fn is_zero(self) -> bool {
        self.nano == 0
    }

    /// −1, 0 or 1.
    pub const fn sign(self) -> i32 {
        self.nano.signum() as i32
    }

    /// The sum. It is printed like `self`, or like `other` if `self` is zero, as in Go.
    pub fn checked_add(self, other: Self) -> Result<Self, Error> {
        let format = if self.is_zero() { other.format } else { self.format };
        Self::from_nano(self.nano + other.nano, format)
    }

    /// The difference. It is printed like `self`, or like `other` if `self` is zero, as in Go.
    pub fn checked_sub(self, other: Self) -> Result<Self, Error> {
        let format = if self.is_zero() { other.format } else { self.format };
        Self::from_nano(self.nano - other.nano, format)
    }

    fn rounded_to(self, unit: i128) -> Result<i64, Error> {
        let away_from_zero = if self.nano % unit == 0 { 0 } else { self.nano.signum() };
        i64::try_from(self.nano / unit + away_from_zero).map_err(|_| Error::OutOfRange)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nano.hash(state);
    }
}

#[cfg(test)]
mod tests;
