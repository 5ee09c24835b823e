//! Prices that a user gives in a file.
//!
//! ```yaml
//! onDemand:
//!   m5.large: 0.096
//! spot:
//!   m5.large:
//!     us-east-1a: 0.0389
//! ```

use std::collections::BTreeMap;

use model::PriceNanoUsdPerHour;
use serde::Deserialize;

use super::{Prices, UnlistedSpot};

/// Why a file of prices cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It has another form.
    #[error("prices: {0}")]
    Form(#[source] Box<serde_saphyr::Error>),
    /// A price is none.
    #[error("prices: {field}: {reason}")]
    Price {
        /// Where it stands.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    on_demand: Listed,
    #[serde(default)]
    spot: BTreeMap<String, Listed>,
}

/// Prices by type, or by zone.
pub type Listed = BTreeMap<String, Amount>;

/// Dollars an hour, as a number or a text.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    /// A number.
    Number(f64),
    /// A decimal in quotes.
    Text(String),
}

impl Prices {
    /// Takes the prices of a file over those that are known.
    ///
    /// # Errors
    /// If the text is neither YAML nor JSON of the form above, or a price is not above zero.
    pub fn read_over(self, text: &str) -> Result<Self, Error> {
        let file: File = serde_saphyr::from_str(text).map_err(|error| Error::Form(Box::new(error)))?;
        self.with(file.on_demand, file.spot)
    }

    /// Takes prices by type, and spot prices by type and zone, over those that are known. Of types that are not listed,
    /// spot prices stay unknown.
    ///
    /// # Errors
    /// If a price is not above zero.
    pub fn with(mut self, on_demand: Listed, spot: BTreeMap<String, Listed>) -> Result<Self, Error> {
        let on_demand = prices(on_demand, "onDemand")?;
        let spot: BTreeMap<_, _> = spot
            .into_iter()
            .map(|(name, zones)| Ok((name.clone(), prices(zones, &format!("spot.{name}"))?)))
            .collect::<Result<_, Error>>()?;
        self.set_on_demand(on_demand);
        let mut all = std::mem::take(&mut self.spot);
        all.extend(spot);
        self.set_spot(all, UnlistedSpot::Unknown);
        Ok(self)
    }
}

fn prices(listed: Listed, at: &str) -> Result<BTreeMap<String, PriceNanoUsdPerHour>, Error> {
    listed
        .into_iter()
        .map(|(key, amount)| {
            let price = amount.price(|| format!("{at}.{key}"))?;
            Ok((key, price))
        })
        .collect()
}

impl Amount {
    /// The shortest decimal that is the number is what was written.
    fn price(&self, field: impl Fn() -> String) -> Result<PriceNanoUsdPerHour, Error> {
        let wrong = |reason: String| Error::Price { field: field(), reason };
        let text = match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        };
        let price = PriceNanoUsdPerHour::parse(&text).map_err(|error| wrong(error.to_string()))?;
        if price > PriceNanoUsdPerHour::ZERO { Ok(price) } else { Err(wrong(format!("{text} is not above zero"))) }
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::CapacityType;

    use super::*;

    #[test]
    fn a_files_prices_replace_those_that_are_built_in() {
        let text = "onDemand: {m5.large: 0.2, trn2.48xlarge: '35.5'}\nspot: {m5.large: {us-east-1a: 0.05}}";
        let prices = Prices::built_in().read_over(text).unwrap();
        let price = |name, zone, capacity_type| prices.price(name, zone, capacity_type).map(|price| price.0);
        assert_eq!(price("m5.large", "us-east-1a", CapacityType::OnDemand), Some(200_000_000));
        assert_eq!(price("m5.large", "us-east-1a", CapacityType::Spot), Some(50_000_000));
        assert_eq!(price("m5.large", "us-east-1b", CapacityType::Spot), None);
        assert_eq!(price("trn2.48xlarge", "x", CapacityType::Spot), Some(35_500_000_000));
        assert_eq!(price("m5.xlarge", "us-east-1b", CapacityType::Spot), Some(192_000_000));
    }

    #[test]
    fn spot_prices_of_another_file_replace_those_of_its_types_and_leave_the_others() {
        let first = "spot: {m5.large: {a: 0.05, b: 0.06}, c5.large: {a: 0.03}}";
        let prices = Prices::default().read_over(first).unwrap().read_over("spot: {m5.large: {a: 0.04}}").unwrap();
        let price = |name, zone| prices.price(name, zone, CapacityType::Spot).map(|price| price.0);
        assert_eq!((price("m5.large", "a"), price("m5.large", "b")), (Some(40_000_000), None));
        assert_eq!(price("c5.large", "a"), Some(30_000_000));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_field() {
        for (text, expected) in [
            ("onDemand: {m5.large: 0}", "prices: onDemand.m5.large: 0 is not above zero"),
            ("onDemand: {m5.large: cheap}", "prices: onDemand.m5.large: price \"cheap\" is not a decimal number"),
            ("spot: {m5.large: {a: -1}}", "prices: spot.m5.large.a: -1 is not above zero"),
        ] {
            assert_eq!(Prices::default().read_over(text).unwrap_err().to_string(), expected);
        }
        let unknown = Prices::default().read_over("on_demand: {}").unwrap_err().to_string();
        assert!(unknown.starts_with("prices: ") && unknown.contains("on_demand"), "{unknown}");
    }
}
