//! Amounts as Go holds them: in a small form, a 64-bit number times a power of ten, or in a large one.
//!
//! Which form an amount has follows from how it was written and what it was computed from, not from its value, and
//! upstream calls an amount an integer only if its small form has no places behind the point: `3000m` is none, nor is
//! `1Pi`, whose form is large.

use model::Quantity;
use model::quantity::Error;

/// Digits that the small form takes from decimal texts.
const MAX_DIGITS: usize = 18;
/// The least power of ten that has a small form: nano-units.
const LEAST_SCALE: i32 = -9;

/// A quantity, or a sum of some.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    nano: i128,
    /// The power of ten of the small form; None for the large one.
    scale: Option<i32>,
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Amount {
    /// Reads a text.
    ///
    /// Beyond 2⁶³−1 units upstream caps what has a binary suffix and keeps the rest as it is. Differs:
    /// `cel-quantities`. Here it ends at what nano-units of 128 bits hold.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        match Quantity::parse(text) {
            Ok(value) => Ok(Self { nano: value.to_nano(), scale: scale_of(text) }),
            Err(error @ Error::TooLarge { .. }) => match large(text) {
                Some(nano) => Ok(Self { nano, scale: None }),
                None => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// What an object has; the API server has written it in its canonical form.
    pub(crate) fn published(value: Quantity) -> Self {
        Self { nano: value.to_nano(), scale: scale_of(&value.to_string()) }
    }

    pub(crate) fn whole(value: i64) -> Self {
        Self { nano: i128::from(value) * 1_000_000_000, scale: Some(0) }
    }

    pub(crate) fn nano(self) -> i128 {
        self.nano
    }

    /// The number, if it is an integer as upstream sees it.
    pub(crate) fn integer(self) -> Option<i64> {
        self.scale.filter(|scale| *scale >= 0)?;
        i64::try_from(self.nano / 1_000_000_000).ok()
    }

    /// As a float, by way of the form: the number as a float, times the power of ten. The large form counts nano-units.
    #[allow(clippy::cast_precision_loss, reason = "upstream's function is called approximate")]
    pub(crate) fn approximate(self) -> f64 {
        let scale = self.scale.unwrap_or(LEAST_SCALE);
        let number = mantissa(self.nano, scale).unwrap_or(0) as f64;
        if scale == 0 { number } else { number * power_of_ten(scale) }
    }

    /// None where even nano-units of 128 bits do not hold the sum.
    pub(crate) fn plus(self, other: Self) -> Option<Self> {
        let nano = self.nano.checked_add(other.nano)?;
        let scale = match (self.scale, other.scale) {
            (Some(own), Some(_)) if other.nano == 0 => Some(own),
            (Some(_), Some(others)) if self.nano == 0 => Some(others),
            (Some(own), Some(others)) => {
                let scale = own.min(others);
                let fits = |nano: i128| mantissa(nano, scale).is_some_and(|mantissa| i64::try_from(mantissa).is_ok());
                (fits(self.nano) && fits(other.nano) && fits(nano)).then_some(scale)
            }
            _ => None,
        };
        Some(Self { nano, scale })
    }

    pub(crate) fn minus(self, other: Self) -> Option<Self> {
        self.plus(Self { nano: other.nano.checked_neg()?, ..other })
    }
}

/// The float nearest to a power of ten.
fn power_of_ten(exponent: i32) -> f64 {
    format!("1e{exponent}").parse().unwrap_or(f64::INFINITY)
}

/// An amount in units of a power of ten.
fn mantissa(nano: i128, scale: i32) -> Option<i128> {
    Some(nano / 10_i128.checked_pow(u32::try_from(scale - LEAST_SCALE).ok()?)?)
}

/// A quantity's number before and after the point, and its suffix.
fn parts(text: &str) -> (&str, &str, &str) {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (number, fraction) = number.split_once('.').unwrap_or((number, ""));
    (number, fraction, suffix)
}

/// The power of ten that a decimal suffix stands for.
fn decimal_exponent(suffix: &str) -> Option<i32> {
    Some(match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        exponent => exponent.strip_prefix(['e', 'E'])?.parse().ok()?,
    })
}

/// Nano-units of a quantity beyond 2⁶³−1 units.
fn large(text: &str) -> Option<i128> {
    let (number, fraction, suffix) = parts(text);
    let nano = match decimal_exponent(suffix) {
        None => i128::from(i64::MAX) * 1_000_000_000,
        Some(exponent) => {
            let digits: i128 = format!("{number}{fraction}").parse().ok()?;
            let exponent = exponent - LEAST_SCALE - i32::try_from(fraction.len()).ok()?;
            let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
            if exponent < 0 { digits / power + i128::from(digits % power != 0) } else { digits.checked_mul(power)? }
        }
    };
    Some(if text.starts_with('-') { -nano } else { nano })
}

/// The power of ten of the small form of a text that is a quantity.
fn scale_of(text: &str) -> Option<i32> {
    let (number, fraction, suffix) = parts(text);
    let digits = number.trim_start_matches('0').len().max(1);
    let binary = |exponent: usize| {
        let fits = fraction.is_empty() && digits + exponent * 3 / 10 < 15;
        fits.then_some(0)
    };
    let exponent = match suffix {
        "Ki" => return binary(10),
        "Mi" => return binary(20),
        "Gi" => return binary(30),
        "Ti" => return binary(40),
        "Pi" => return binary(50),
        "Ei" => return binary(60),
        suffix => decimal_exponent(suffix)?,
    };
    let scale = exponent - i32::try_from(fraction.len()).ok()?;
    (digits + fraction.len() <= MAX_DIGITS && scale >= LEAST_SCALE).then_some(scale)
}
