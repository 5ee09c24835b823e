//! How an overlay changes a price.

use model::PriceNanoUsdPerHour;
use model::price::Error;

/// A percentage in nano-percent: `12.5%` is 12,500,000,000.
type NanoPercent = i64;

const HUNDRED_PERCENT: i128 = 100_000_000_000;

/// `spec.price` or `spec.priceAdjustment`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriceChange {
    /// This price instead.
    Replace(PriceNanoUsdPerHour),
    /// The price plus this amount, which may be negative.
    Add(PriceNanoUsdPerHour),
    /// The price plus this percentage, which may be negative.
    AddPercent(NanoPercent),
}

impl PriceChange {
    /// Reads `spec.price`.
    ///
    /// # Errors
    /// If it is no price.
    pub fn replacement(text: &str) -> Result<Self, Error> {
        Ok(Self::Replace(PriceNanoUsdPerHour::parse_rounded(text)?))
    }

    /// Reads `spec.priceAdjustment`: `+0.5`, `-1.2`, `+10%`, `-15%`.
    ///
    /// # Errors
    /// If it is neither amount nor percentage.
    pub fn adjustment(text: &str) -> Result<Self, Error> {
        match text.strip_suffix('%') {
            // Percent are read like dollars: a decimal number in billionths.
            Some(percent) => Ok(Self::AddPercent(PriceNanoUsdPerHour::parse_rounded(percent)?.0)),
            None => Ok(Self::Add(PriceNanoUsdPerHour::parse_rounded(text)?)),
        }
    }

    /// The price after the change, to the nearest nano-dollar (a half up), never below zero.
    ///
    /// Differs: `price-percentages`. Karpenter computes with floats.
    #[must_use]
    pub fn apply(self, price: PriceNanoUsdPerHour) -> PriceNanoUsdPerHour {
        let changed = match self {
            Self::Replace(replacement) => replacement,
            Self::Add(amount) => price.saturating_add(amount),
            Self::AddPercent(percent) => {
                // At most 2^63 · 2^64: within 128 bits.
                let exact = i128::from(price.0) * (HUNDRED_PERCENT + i128::from(percent));
                let rounded = (exact + HUNDRED_PERCENT / 2).div_euclid(HUNDRED_PERCENT);
                PriceNanoUsdPerHour(i64::try_from(rounded).unwrap_or(if rounded < 0 { 0 } else { i64::MAX }))
            }
        };
        changed.max(PriceNanoUsdPerHour::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usd(text: &str) -> PriceNanoUsdPerHour {
        PriceNanoUsdPerHour::parse(text).unwrap()
    }

    #[test]
    fn prices_are_replaced_or_moved_by_an_amount_or_a_percentage_and_never_negative() {
        let cases = [
            ("+0.5", "1", "1.5"),
            ("-0.5", "1", "0.5"),
            ("-1.5", "1", "0"),
            ("+10%", "0.3", "0.33"),
            ("-15%", "2", "1.7"),
            ("-100%", "2", "0"),
            ("+0.5%", "0.000000001", "0.000000001"),
            ("+50%", "0.000000001", "0.000000002"),
            ("-12.5%", "8", "7"),
        ];
        for (change, before, after) in cases {
            assert_eq!(PriceChange::adjustment(change).unwrap().apply(usd(before)), usd(after), "{change} of {before}");
        }
        assert_eq!(PriceChange::replacement("0.25").unwrap().apply(usd("9")), usd("0.25"));
    }

    #[test]
    fn no_change_overflows() {
        let most = PriceNanoUsdPerHour(i64::MAX);
        for text in ["+9000000000", "+9000000000%", "-9000000000", "-9000000000%"] {
            let changed = PriceChange::adjustment(text).unwrap().apply(most);
            assert!(changed == most || changed.0 < most.0 && changed.0 >= 0, "{text}: {changed}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "%", "+", "ten", "1e99"] {
            assert!(PriceChange::adjustment(text).is_err(), "{text:?}");
        }
        assert!(PriceChange::replacement("10%").is_err());
    }
}
