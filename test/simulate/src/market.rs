//! Instance types, what they cost now, and what can be had.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, bail};
use cloudprovider::{CapacityType, InstanceType};
use decode::Context;
use model::{DurationMs, InstanceTypeName, PriceNanoUsdPerHour, Timestamp};
use scheduling::catalogue::{Catalogue, OfferingId, TypeId};
use seeded_random::Random;

/// The largest machines have so many vCPUs: with larger ones, some would hold all pods.
const MOST_CPUS: i64 = 8;
/// What a price moves, in parts of a thousand of the list price, up and down.
const NOISE_PER_MILLE: i64 = 20;
/// How long an offering counts as out of stock after a launch has failed, as with Karpenter's providers.
const KNOWN_FOR: DurationMs = DurationMs::from_seconds(180);

/// An offering by its numbers: that of the type, and that among the offerings of the type.
type Number = (usize, usize);

/// What can be bought.
#[derive(Debug)]
pub struct Market {
    /// At list prices.
    list: Vec<InstanceType>,
    /// As they are now; what is known to be out of stock is not available.
    now: Vec<InstanceType>,
    out_until: BTreeMap<Number, Timestamp>,
    known_until: BTreeMap<Number, Timestamp>,
    catalogue: Option<Arc<Catalogue>>,
}

/// What a NodeClaim lets in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The instance types.
    pub types: Vec<InstanceTypeName>,
    /// The zones; all if there are none.
    pub zones: Vec<Arc<str>>,
}

/// What was bought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bought {
    /// The type and the offering.
    number: Number,
}

impl Default for Market {
    /// Three processors with 2, 4 and 8 GiB for each vCPU in three sizes, on demand in three zones.
    fn default() -> Self {
        let is_of_fleet = |it: &InstanceType| {
            let name = it.name.as_str();
            let Some((family, _)) = name.split_once('.') else { return false };
            let cpus = it.capacity.get(api::resources::CPU).and_then(|cpus| cpus.milli_value().ok());
            family.len() == 3
                && family.as_bytes().get(1) == Some(&b'7')
                && cpus.is_some_and(|it| it <= 1000 * MOST_CPUS)
        };
        let mut list: Vec<InstanceType> = bench::catalogues::real_shaped().into_iter().filter(is_of_fleet).collect();
        for of_type in &mut list {
            of_type.offerings.retain(|offering| offering.capacity_type == CapacityType::OnDemand);
        }
        Self { now: list.clone(), list, out_until: BTreeMap::new(), known_until: BTreeMap::new(), catalogue: None }
    }
}

impl Market {
    /// The type and the offering that were bought, as they are now.
    pub fn offering(&self, bought: Bought) -> (&InstanceType, &cloudprovider::Offering) {
        let of_type = &self.now[bought.number.0];
        (of_type, &of_type.offerings[bought.number.1])
    }

    /// What it costs now.
    pub fn price(&self, bought: Bought) -> PriceNanoUsdPerHour {
        self.offering(bought).1.price
    }

    /// Moves all prices.
    pub fn move_prices(&mut self, seed: u64) {
        let mut random = Random::new(seed);
        for (now, list) in self.now.iter_mut().zip(&self.list) {
            for (now, list) in now.offerings.iter_mut().zip(&list.offerings) {
                let per_mille = 1000 - NOISE_PER_MILLE + random.below(2 * NOISE_PER_MILLE + 1);
                now.price = PriceNanoUsdPerHour(list.price.0 / 1000 * per_mille);
            }
        }
        self.catalogue = None;
    }

    /// Lets an offering run out.
    pub fn run_out(&mut self, offering: u64, until: Timestamp) {
        let all: Vec<Number> = self.numbers().collect();
        let index = usize::try_from(offering % all.len().max(1) as u64).unwrap_or(0);
        if let Some(number) = all.get(index) {
            self.out_until.insert(*number, until);
        }
    }

    fn numbers(&self) -> impl Iterator<Item = Number> {
        let types = self.now.iter().enumerate();
        types.flat_map(|(of_type, it)| (0..it.offerings.len()).map(move |offering| (of_type, offering)))
    }

    /// Buys the cheapest that is let in and that there is. What there is not is known for a while.
    pub fn buy(&mut self, wanted: &Wanted, now: Timestamp) -> Option<Bought> {
        self.forget(now);
        let mut options: Vec<(PriceNanoUsdPerHour, Number)> = Vec::new();
        for (of_type, it) in self.now.iter().enumerate().filter(|(_, it)| wanted.types.contains(&it.name)) {
            let offerings = it.offerings.iter().enumerate().filter(|(_, offering)| {
                offering.available
                    && (wanted.zones.is_empty() || wanted.zones.iter().any(|zone| **zone == *offering.zone))
            });
            options.extend(offerings.map(|(offering, it)| (it.price, (of_type, offering))));
        }
        options.sort_unstable();
        for (_, number) in options {
            if self.out_until.get(&number).is_none_or(|until| *until <= now) {
                return Some(Bought { number });
            }
            self.known_until.insert(number, now.saturating_add(KNOWN_FOR));
            self.set_available(number, false);
        }
        None
    }

    /// When the next offering counts as available again that was out of stock.
    pub fn next_to_forget(&self) -> Option<Timestamp> {
        self.known_until.values().min().copied()
    }

    fn forget(&mut self, now: Timestamp) {
        let over: Vec<Number> =
            self.known_until.iter().filter(|(_, until)| **until <= now).map(|(it, _)| *it).collect();
        for number in over {
            self.known_until.remove(&number);
            self.set_available(number, true);
        }
    }

    fn set_available(&mut self, number: Number, available: bool) {
        if let Some(offering) = self.now.get_mut(number.0).and_then(|it| it.offerings.get_mut(number.1)) {
            offering.available = available;
            self.catalogue = None;
        }
    }

    /// As planners see it.
    ///
    /// # Errors
    /// An instance type that cannot be compiled.
    pub fn catalogue(&mut self, context: &mut Context<'_>, now: Timestamp) -> Result<Arc<Catalogue>> {
        self.forget(now);
        if let Some(catalogue) = &self.catalogue {
            return Ok(Arc::clone(catalogue));
        }
        let (catalogue, errors) = cluster::catalogue(&self.now, context);
        if let Some(error) = errors.first() {
            bail!("{error}");
        }
        let catalogue = Arc::new(catalogue);
        self.catalogue = Some(Arc::clone(&catalogue));
        Ok(catalogue)
    }
}

/// The offering of a type in a zone.
pub fn offering_in(catalogue: &Catalogue, of_type: TypeId, zone: model::ValueId) -> Option<OfferingId> {
    catalogue.offerings_of(of_type).find(|id| catalogue.offerings[*id].zone == zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(market: &Market) -> Wanted {
        Wanted { types: market.now.iter().map(|it| it.name.clone()).collect(), zones: vec!["test-zone-2".into()] }
    }

    #[test]
    fn the_cheapest_is_bought_that_is_not_out_of_stock_and_a_failed_launch_is_known_for_a_while() {
        let mut market = Market::default();
        let wanted = wanted(&market);
        let now = Timestamp(0);
        let first = market.buy(&wanted, now).unwrap();
        assert_eq!(market.offering(first).1.zone, "test-zone-2");
        let position = market.numbers().position(|number| number == first.number).unwrap();
        market.run_out(position as u64, Timestamp(1_000_000));
        let second = market.buy(&wanted, now).unwrap();
        assert_ne!(first, second);
        assert!(market.price(second) >= market.price(first));
        assert!(!market.offering(first).1.available);
        // Known to be out for three minutes, out for more.
        assert_eq!(market.next_to_forget(), Some(Timestamp(180_000)));
        assert_eq!(market.buy(&wanted, Timestamp(200_000)), Some(second));
        assert_eq!(market.buy(&wanted, Timestamp(1_000_000)), Some(first));
    }

    #[test]
    fn prices_stay_within_two_percent_of_the_list() {
        let mut market = Market::default();
        market.move_prices(5);
        let pairs =
            market.now.iter().zip(&market.list).flat_map(|(now, list)| now.offerings.iter().zip(&list.offerings));
        let moved: Vec<f64> = pairs.map(|(now, list)| now.price.0 as f64 / list.price.0 as f64).collect();
        assert!(moved.iter().all(|share| (0.9799..=1.0201).contains(share)), "{moved:?}");
        assert!(moved.iter().any(|share| *share > 1.005) && moved.iter().any(|share| *share < 0.995), "{moved:?}");
    }
}
