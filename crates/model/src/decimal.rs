//! Decimal text to integers of 10⁻⁹, exactly.
//!
//! Shared by quantities and prices. The digits are worked on as digits, so no intermediate value can overflow and the
//! cost is bounded by the length of the text, whatever its exponent says.

/// Decimal places that are kept.
pub(crate) const PLACES: usize = 9;

/// Longest run of digits that is read.
pub(crate) const MAX_DIGITS: usize = 128;

/// Room for the digits and for what a binary multiplier of up to 2⁶⁰ (19 digits) puts before them.
const BUFFER_LEN: usize = MAX_DIGITS + 20;

/// What to do with places beyond [`PLACES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To the next greater magnitude.
    AwayFromZero,
    /// To the nearest; a half goes to the greater magnitude.
    Nearest,
    /// Refuse them unless they are zero.
    Exact,
}

/// Why digits have no value here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Error {
    /// More than [`MAX_DIGITS`] digits.
    TooLong,
    /// The magnitude does not fit.
    Overflow,
    /// Places beyond [`PLACES`] with [`Rounding::Exact`].
    TooFine,
}

/// An unsigned decimal as it was written: digits before and after the point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Digits<'a> {
    pub(crate) whole: &'a str,
    pub(crate) fraction: &'a str,
}

impl<'a> Digits<'a> {
    /// Splits leading digits with an optional point off `text`; returns the rest. There may be no digit at all.
    pub(crate) fn split_off(text: &'a str) -> (Self, &'a str) {
        let (whole, rest) = split_digits(text);
        match rest.strip_prefix('.') {
            Some(rest) => {
                let (fraction, rest) = split_digits(rest);
                (Self { whole, fraction }, rest)
            }
            None => (Self { whole, fraction: "" }, rest),
        }
    }

    /// How many digits were written.
    pub(crate) fn len(&self) -> usize {
        self.whole.len() + self.fraction.len()
    }

    /// The number times `multiplier` times 10^`exponent`, in units of 10⁻⁹.
    ///
    /// `multiplier` is at most 2⁶⁰. The result is at most `i64::MAX` units (not 10⁻⁹ units) in magnitude.
    pub(crate) fn to_nano(self, multiplier: u64, exponent: i32, rounding: Rounding) -> Result<i128, Error> {
        if self.len() > MAX_DIGITS {
            return Err(Error::TooLong);
        }
        // Multiply from the last digit on, least significant digit first in the buffer.
        let mut buffer = [0u8; BUFFER_LEN];
        let mut slots = buffer.iter_mut();
        let mut carry = 0u128;
        let written = self.whole.bytes().chain(self.fraction.bytes()).rev();
        let mut product_len = 0;
        let mut push = |digit: u8, slots: &mut std::slice::IterMut<'_, u8>| {
            if let Some(slot) = slots.next() {
                *slot = digit;
                product_len += 1;
            }
        };
        for digit in written {
            carry += u128::from(digit - b'0') * u128::from(multiplier);
            push((carry % 10) as u8, &mut slots);
            carry /= 10;
        }
        while carry > 0 {
            push((carry % 10) as u8, &mut slots);
            carry /= 10;
        }
        let product = buffer.get(..product_len).unwrap_or(&buffer);

        // The point stands before the `fraction.len()` last digits, then moves right by `exponent + PLACES`.
        let cut = self.fraction.len() as i64 - i64::from(exponent) - PLACES as i64;
        nano_from_product(product, cut, rounding)
    }
}

/// Drops the `cut` least significant digits of `product` (least significant first), or appends `-cut` zeros.
fn nano_from_product(product: &[u8], cut: i64, rounding: Rounding) -> Result<i128, Error> {
    const LIMIT: i128 = i64::MAX as i128 * 1_000_000_000;
    let product = match product.iter().rposition(|&digit| digit != 0) {
        Some(last) => product.get(..=last).unwrap_or(product),
        None => return Ok(0),
    };
    let kept_len = product.len() as i64 - cut;
    if kept_len > 38 {
        return Err(Error::Overflow);
    }
    let split = usize::try_from(cut).unwrap_or(0).min(product.len());
    let (dropped, kept) = product.split_at(split);
    let mut nano = 0i128;
    for &digit in kept.iter().rev() {
        nano = nano * 10 + i128::from(digit);
    }
    for _ in 0..(-cut).max(0) {
        nano *= 10;
    }
    if dropped.iter().any(|&digit| digit != 0) {
        nano += match rounding {
            Rounding::AwayFromZero => 1,
            // A digit just below the cut exists only if nothing lies between it and the cut.
            Rounding::Nearest => {
                i128::from(cut == dropped.len() as i64 && dropped.last().is_some_and(|&digit| digit >= 5))
            }
            Rounding::Exact => return Err(Error::TooFine),
        };
    }
    if nano > LIMIT { Err(Error::Overflow) } else { Ok(nano) }
}

fn split_digits(text: &str) -> (&str, &str) {
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(len)
}
