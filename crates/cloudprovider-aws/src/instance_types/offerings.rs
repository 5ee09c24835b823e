//! Where and how machines of a type can be had, and what they cost.
//!
//! `pkg/providers/instancetype/offering` of karpenter-provider-aws 1.15: one offering for each zone that sells the type
//! and each capacity type, and one for each capacity reservation of the type.

use std::collections::{BTreeMap, BTreeSet};

use api::labels as kubernetes;
use cloudprovider::{CapacityType, InstanceType, Offering, OfferingKey, Reservation};
use model::PriceNanoUsdPerHour;

use super::compatibility;
use super::info::InstanceTypeInfo;
use super::settings::NodeSettings;
use crate::labels;
use crate::pricing::Prices;

/// By what a reserved machine is cheaper than one on demand: it is paid for anyway, and the price only tells reserved
/// machines apart.
const RESERVED_DISCOUNT: i64 = 10_000_000;

/// A zone of the region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// Its name in this account, such as `us-east-1a`.
    pub name: String,
    /// Its id, if it is known.
    pub id: Option<String>,
    /// Whether the node class has a subnet in it.
    pub has_subnet: bool,
    /// Whether traffic is shifted away from it.
    pub is_shifted: bool,
}

/// Machines of one type in one zone that were reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapacityReservation {
    /// Its id in EC2.
    pub id: String,
    /// The type.
    pub instance_type: String,
    /// The zone's name.
    pub zone: String,
    /// `default` or `capacity-block`.
    pub kind: String,
    /// Whether its owner may take machines back.
    pub is_interruptible: bool,
    /// Whether it is about to end, so that nothing is launched in it any more.
    pub is_expiring: bool,
    /// How many more machines it holds now.
    pub remaining: u32,
}

/// What is known of the region's offers at a time.
#[derive(Clone, Copy)]
pub struct Market<'a> {
    /// The zones that sell the type, ordered by name.
    pub zones: &'a [Zone],
    /// What machines cost.
    pub prices: &'a Prices,
    /// Reservations that the node class selects, of any type.
    pub reservations: &'a [CapacityReservation],
    /// Whether an offering had no machines lately.
    pub is_out_of_stock: &'a dyn Fn(&OfferingKey) -> bool,
}

impl std::fmt::Debug for Market<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Market").field("zones", &self.zones).finish_non_exhaustive()
    }
}

impl Market<'_> {
    /// Gives a type its offerings, and the labels that they decide.
    ///
    /// What cannot be launched is listed too, so that machines which run already have a price. An offering without a
    /// known price cannot be launched.
    pub fn add_offerings(&self, instance_type: &mut InstanceType, info: &InstanceTypeInfo, settings: &NodeSettings) {
        let fits = compatibility::check(info, settings).is_ok();
        let sold = instance_type.requirements.get(kubernetes::CAPACITY_TYPE).cloned().unwrap_or_default();
        let mut offerings = Vec::new();
        for zone in self.zones {
            for capacity_type in [CapacityType::Spot, CapacityType::OnDemand] {
                if sold.contains(capacity_type.as_str()) {
                    let price = self.prices.price(&info.instance_type, &zone.name, capacity_type);
                    let mut offering = self.offering(zone, capacity_type, price);
                    offering.available &= fits && !(self.is_out_of_stock)(&offering.key(&instance_type.name));
                    offerings.push(offering);
                }
            }
        }
        for reservation in self.reservations.iter().filter(|it| it.instance_type == info.instance_type) {
            if let Some(zone) = self.zones.iter().find(|zone| zone.name == reservation.zone) {
                let mut offering = self.reserved_offering(reservation, zone);
                offering.available &= fits;
                offerings.push(offering);
            }
        }
        add_labels(instance_type, &offerings);
        instance_type.offerings = offerings;
    }

    fn offering(&self, zone: &Zone, capacity_type: CapacityType, price: Option<PriceNanoUsdPerHour>) -> Offering {
        let mut offering = Offering::new(&zone.name, capacity_type, price.unwrap_or(PriceNanoUsdPerHour::ZERO));
        offering.available = price.is_some() && zone.has_subnet && !zone.is_shifted;
        if let Some(id) = &zone.id {
            offering.labels.insert(labels::ZONE_ID.to_owned(), id.clone());
        }
        offering
    }

    /// A reservation that is used up stays available; nothing remains of it.
    fn reserved_offering(&self, reservation: &CapacityReservation, zone: &Zone) -> Offering {
        let on_demand = self.prices.price(&reservation.instance_type, &zone.name, CapacityType::OnDemand);
        let price = PriceNanoUsdPerHour(on_demand.unwrap_or(PriceNanoUsdPerHour::ZERO).0 / RESERVED_DISCOUNT);
        let mut offering = self.offering(zone, CapacityType::Reserved, Some(price));
        offering.available &= !reservation.is_expiring;
        offering.labels.extend([
            (labels::CAPACITY_RESERVATION_ID.to_owned(), reservation.id.clone()),
            (labels::CAPACITY_RESERVATION_TYPE.to_owned(), reservation.kind.clone()),
            (labels::CAPACITY_RESERVATION_INTERRUPTIBLE.to_owned(), reservation.is_interruptible.to_string()),
        ]);
        offering.reservation = Some(Reservation { id: reservation.id.clone(), remaining: reservation.remaining });
        offering
    }
}

/// The values that a label has in some offering are those that the type may have.
fn add_labels(instance_type: &mut InstanceType, offerings: &[Offering]) {
    let mut decided: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (key, value) in offerings.iter().flat_map(Offering::all_labels) {
        decided.entry(key).or_default().insert(value.to_owned());
    }
    instance_type.requirements.remove(kubernetes::CAPACITY_TYPE);
    instance_type.requirements.extend(decided.into_iter().map(|(key, values)| (key.to_owned(), values)));
}
