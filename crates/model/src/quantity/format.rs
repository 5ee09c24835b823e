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
