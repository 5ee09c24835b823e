//! What machines of EC2 cost.
//!
//! Built in are on-demand prices of one region for Linux, as of the day that the data file names. In a cluster they
//! stand for other regions too until better ones are known, as in Karpenter; offline commands do not take them for
//! another region. Nothing is known of spot prices then; a spot machine is taken to cost what it costs on demand, which
//! is the most that it can cost.

mod file;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cloudprovider::CapacityType;
use model::PriceNanoUsdPerHour;

pub use file::{Amount, Error, Listed};

/// The built-in prices: a type and its price a line.
const BUILT_IN: &str = include_str!("../data/prices.txt");
/// The region that the built-in prices are of.
pub const BUILT_IN_REGION: &str = "us-east-1";

/// Prices of one region.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prices {
    on_demand: BTreeMap<String, PriceNanoUsdPerHour>,
    /// By type, then zone.
    spot: BTreeMap<String, BTreeMap<String, PriceNanoUsdPerHour>>,
    unlisted_spot: UnlistedSpot,
}

/// What a spot price that is not listed means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnlistedSpot {
    /// Nobody has asked EC2 yet: at most the price on demand.
    #[default]
    Unknown,
    /// EC2 lists all that it sells: there is no such offer.
    NotSold,
}

impl Prices {
    /// The built-in ones.
    pub fn built_in() -> Self {
        static PRICES: LazyLock<BTreeMap<String, PriceNanoUsdPerHour>> = LazyLock::new(|| {
            let lines = BUILT_IN.lines().filter(|line| !line.starts_with('#'));
            lines
                .map(|line| {
                    let (name, price) = line.split_once(' ').expect("a built-in price follows a blank");
                    let price = PriceNanoUsdPerHour::parse(price).expect("built-in prices are decimals");
                    (name.to_owned(), price)
                })
                .collect()
        });
        Self { on_demand: PRICES.clone(), ..Self::default() }
    }

    /// Takes on-demand prices over those that are known. Of a type that is not listed the price stays.
    pub fn set_on_demand(&mut self, listed: impl IntoIterator<Item = (String, PriceNanoUsdPerHour)>) {
        self.on_demand.extend(listed.into_iter().filter(|(_, price)| *price > PriceNanoUsdPerHour::ZERO));
    }

    /// Takes spot prices, by type and zone, in place of all that are known.
    pub fn set_spot(
        &mut self,
        listed: BTreeMap<String, BTreeMap<String, PriceNanoUsdPerHour>>,
        unlisted: UnlistedSpot,
    ) {
        self.spot = listed;
        self.unlisted_spot = unlisted;
    }

    /// What a machine costs; `None` where nobody knows, or where spot machines are not sold. A reserved machine has the
    /// price on demand here.
    pub fn price(&self, instance_type: &str, zone: &str, capacity_type: CapacityType) -> Option<PriceNanoUsdPerHour> {
        let on_demand = || self.on_demand.get(instance_type).copied();
        match capacity_type {
            CapacityType::OnDemand | CapacityType::Reserved => on_demand(),
            CapacityType::Spot => match (self.spot.get(instance_type), self.unlisted_spot) {
                (Some(zones), _) => zones.get(zone).copied(),
                (None, UnlistedSpot::Unknown) => on_demand(),
                (None, UnlistedSpot::NotSold) => None,
            },
        }
    }

    /// The on-demand prices, by type.
    pub fn on_demand(&self) -> &BTreeMap<String, PriceNanoUsdPerHour> {
        &self.on_demand
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(text: &str) -> PriceNanoUsdPerHour {
        PriceNanoUsdPerHour::parse(text).unwrap()
    }

    #[test]
    fn built_in_prices_are_exact_and_stand_for_spot_until_that_is_known() {
        let prices = Prices::built_in();
        assert!(prices.on_demand().len() > 1000, "{}", prices.on_demand().len());
        assert_eq!(prices.price("m5.large", "us-east-1a", CapacityType::OnDemand), Some(price("0.096")));
        assert_eq!(prices.price("m5.large", "us-east-1a", CapacityType::Spot), Some(price("0.096")));
        assert_eq!(prices.price("m5.huge", "us-east-1a", CapacityType::OnDemand), None);
    }

    #[test]
    fn once_spot_prices_are_listed_a_missing_one_means_that_it_is_not_sold() {
        let mut prices = Prices::built_in();
        let listed = BTreeMap::from([("m5.large".to_owned(), BTreeMap::from([("a".to_owned(), price("0.03"))]))]);
        prices.set_spot(listed.clone(), UnlistedSpot::Unknown);
        assert_eq!(prices.price("m5.large", "a", CapacityType::Spot), Some(price("0.03")));
        assert_eq!(prices.price("m5.large", "b", CapacityType::Spot), None);
        assert_eq!(prices.price("m5.xlarge", "a", CapacityType::Spot), Some(price("0.192")));
        prices.set_spot(listed, UnlistedSpot::NotSold);
        assert_eq!(prices.price("m5.xlarge", "a", CapacityType::Spot), None);
    }

    #[test]
    fn a_price_of_nothing_is_no_price() {
        let mut prices = Prices::default();
        prices.set_on_demand([("a".to_owned(), price("0")), ("b".to_owned(), price("1"))]);
        assert_eq!(prices.on_demand().keys().collect::<Vec<_>>(), ["b"]);
    }
}
