//! Quantity to text: Go's canonical form, and serde's way out.
//!
//! Canonical: no digit is lost, none follows a point, and the suffix is the largest that allows both.

use std::fmt;

use serde::ser::{Serialize, Serializer};

use super::{Format, NANO_PER_UNIT, Quantity};

const DECIMAL_SUFFIXES: [(i32, &str); 10] =
    [(-9, "n"), (-6, "u"), (-3, "m"), (0, ""), (3, "k"), (6, "M"), (9, "G"), (12, "T"), (15, "P"), (18, "E")];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.format {
            _ if self.is_zero() => "0".to_owned(),
            Format::BinarySi => binary(self.nano).unwrap_or_else(|| decimal_si(self.nano)),
            Format::DecimalSi => decimal_si(self.nano),
            Format::DecimalExponent => decimal_exponent(self.nano),
        };
        f.pad(&text)
    }
}

/// Which way an amount is rounded that would have too many digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// What is wanted or missing: never less than it is.
    Up,
    /// What is there: never more than it is.
    Down,
}

impl Quantity {
    /// The amount for people. Bytes take at most four digits: `974858Mi` is `952Gi`, or `953Gi` rounded up. Others are
    /// exact, without a suffix where a number reads better: `1000` and `255.9`, but `7900m`.
    pub fn readable(self, rounding: Rounding) -> String {
        match self.format {
            _ if self.nano <= 0 => self.to_string(),
            Format::BinarySi => bytes(self.nano, rounding),
            Format::DecimalSi | Format::DecimalExponent => number(self.nano),
        }
    }
}

/// Digits that are read at a glance.
const DIGITS: u32 = 4;

fn bytes(nano: i128, rounding: Rounding) -> String {
    let units = match rounding {
        Rounding::Up => (nano + NANO_PER_UNIT - 1) / NANO_PER_UNIT,
        Rounding::Down => nano / NANO_PER_UNIT,
    };
    let exact = binary(units * NANO_PER_UNIT).unwrap_or_else(|| units.to_string());
    if exact.chars().filter(char::is_ascii_digit).count() <= DIGITS as usize {
        return exact;
    }
    let power = units.ilog2() / 10;
    let unit = 1_i128 << (10 * power);
    // Three digits: 952, 95.2, 9.52.
    let places = match units / unit {
        100.. => 0,
        10..100 => 1,
        _ => 2,
    };
    let scaled = units * 10_i128.pow(places);
    let scaled = match rounding {
        Rounding::Up => (scaled + unit - 1) / unit,
        Rounding::Down => scaled / unit,
    };
    let suffix = usize::try_from(power).ok().and_then(|power| BINARY_SUFFIXES.get(power)).unwrap_or(&"");
    format!("{}{suffix}", point(scaled, places))
}

fn number(nano: i128) -> String {
    if nano % NANO_PER_UNIT == 0 {
        (nano / NANO_PER_UNIT).to_string()
    } else if nano < 10 * NANO_PER_UNIT {
        decimal_si(nano)
    } else {
        point(nano, 9)
    }
}

/// A number of so many decimal places, without zeros in the end.
fn point(scaled: i128, places: u32) -> String {
    let one = 10_i128.pow(places);
    let fraction = format!("{:0width$}", scaled % one, width = places as usize);
    match fraction.trim_end_matches('0') {
        "" => (scaled / one).to_string(),
        fraction => format!("{}.{fraction}", scaled / one),
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// `None` where Go falls back to decimal: small magnitudes and fractions.
fn binary(nano: i128) -> Option<String> {
    let mut units = nano / NANO_PER_UNIT;
    if nano % NANO_PER_UNIT != 0 || units.abs() < 1024 {
        return None;
    }
    let mut power = 0;
    while units % 1024 == 0 {
        units /= 1024;
        power += 1;
    }
    // Below 2^63 units the power is at most 6, so the suffix exists.
    BINARY_SUFFIXES.get(power).map(|suffix| format!("{units}{suffix}"))
}

fn decimal_si(nano: i128) -> String {
    let (mantissa, exponent) = in_thousands(nano);
    match DECIMAL_SUFFIXES.iter().find(|&&(of_suffix, _)| of_suffix == exponent) {
        Some((_, suffix)) => format!("{mantissa}{suffix}"),
        None => format!("{mantissa}e{exponent}"),
    }
}

fn decimal_exponent(nano: i128) -> String {
    match in_thousands(nano) {
        (mantissa, 0) => mantissa.to_string(),
        (mantissa, exponent) => format!("{mantissa}e{exponent}"),
    }
}

/// `nano` × 10⁻⁹ as mantissa and the greatest exponent divisible by three; `nano` is not zero.
fn in_thousands(nano: i128) -> (i128, i32) {
    let (mut mantissa, mut exponent) = (nano, -9);
    while mantissa % 1000 == 0 {
        mantissa /= 1000;
        exponent += 3;
    }
    (mantissa, exponent)
}
