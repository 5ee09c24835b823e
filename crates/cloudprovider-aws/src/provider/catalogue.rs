//! The instance types of a node class: what EC2 sells, with prices, reservations and what has run out.

use std::collections::BTreeMap;
use std::sync::Arc;

use cloudprovider::{InstanceType, InstanceTypes};
use model::{DurationMs, Timestamp};
use parking_lot::Mutex;

use crate::instance_types::info::InstanceTypeInfo;
use crate::instance_types::offerings::{CapacityReservation, Market, Zone};
use crate::instance_types::settings::{MachineOptions, NodeSettings};
use crate::instance_types::{Resolver, efas};
use crate::launch::resolve::image_of;
use crate::ledger::Ledger;
use crate::node_class::NodeClass;
use crate::node_class::status::{Ami, ReservationState};
use crate::pricing::Prices;
use crate::service::ec2::TypeInZone;
use crate::{catalogue, devices};

/// How long EC2's word on what is sold where counts.
pub(super) const SOLD_FRESH: DurationMs = DurationMs::from_seconds(12 * 3600);

/// What is sold in the region, whoever buys it.
#[derive(Debug, Clone)]
pub(super) struct Region {
    /// The types, by name.
    pub(super) types: Arc<BTreeMap<String, InstanceTypeInfo>>,
    /// The names of the zones that sell each type.
    pub(super) sold: Arc<BTreeMap<String, Vec<String>>>,
    /// What machines cost.
    pub(super) prices: Arc<Prices>,
}

/// The zones of each type.
pub(super) fn sold(offerings: Vec<TypeInZone>) -> BTreeMap<String, Vec<String>> {
    let mut sold: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for TypeInZone { instance_type, zone } in offerings {
        sold.entry(instance_type).or_default().push(zone);
    }
    for zones in sold.values_mut() {
        zones.sort();
        zones.dedup();
    }
    sold
}

/// All that the instance types of a node class are made from, but for the region.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Inputs {
    pub(super) region: String,
    pub(super) settings: NodeSettings,
    pub(super) options: MachineOptions,
    pub(super) images: Vec<Ami>,
    /// Zones with a subnet: name and id.
    pub(super) subnet_zones: BTreeMap<String, Option<String>>,
    pub(super) reservations: Vec<CapacityReservation>,
    /// Tells states of the ledger apart.
    pub(super) ledger: u64,
    /// Tells states of the region apart.
    pub(super) of_region: u64,
}

impl Inputs {
    /// The reservations of a node class, with what EC2 said last of how much is left of each.
    pub(super) fn reservations(class: &NodeClass, left: &BTreeMap<String, u32>) -> Vec<CapacityReservation> {
        let reservation = |it: &crate::node_class::status::CapacityReservation| CapacityReservation {
            id: it.id.clone(),
            instance_type: it.instance_type.clone(),
            zone: it.availability_zone.clone(),
            kind: it.reservation_type.as_str().to_owned(),
            is_interruptible: it.interruptible == Some(true),
            is_expiring: it.state == ReservationState::Expiring,
            remaining: left.get(&it.id).copied().unwrap_or(0),
        };
        class.status.capacity_reservations.iter().map(reservation).collect()
    }

    /// The zones that a node class has subnets in.
    pub(super) fn subnet_zones(class: &NodeClass) -> BTreeMap<String, Option<String>> {
        class.status.subnets.iter().map(|subnet| (subnet.zone.clone(), subnet.zone_id.clone())).collect()
    }

    fn build(&self, region: &Region, ledger: &Ledger, now: Timestamp) -> Vec<Arc<InstanceType>> {
        let resolver = Resolver { region: &self.region, settings: &self.settings, options: &self.options };
        let is_out = |key: &cloudprovider::OfferingKey| ledger.is_out(key, now);
        let mut types = Vec::new();
        for (name, zones) in region.sold.iter() {
            let Some(info) = region.types.get(name).filter(|info| info.architecture().is_some()) else { continue };
            let zone = |zone: &String| Zone {
                name: zone.clone(),
                id: self.subnet_zones.get(zone).cloned().flatten(),
                has_subnet: self.subnet_zones.contains_key(zone),
            };
            let zones: Vec<_> = zones.iter().map(zone).collect();
            let market = Market {
                zones: &zones,
                prices: &region.prices,
                reservations: &self.reservations,
                is_out_of_stock: &is_out,
            };
            let mut instance_type = resolver.resolve(info, None);
            instance_type.dynamic_resources =
                devices::dynamic_resources(info, efas(info, &self.settings), &self.settings.drivers);
            market.add_offerings(&mut instance_type, info, &self.settings);
            if image_of(&self.images, &instance_type).is_none() {
                instance_type.offerings.iter_mut().for_each(|offering| offering.available = false);
            }
            types.push(Arc::new(instance_type));
        }
        types
    }
}

/// The instance types of node classes, as they were made last.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Made {
    generation: u64,
    by_class: BTreeMap<String, (Inputs, InstanceTypes)>,
}

impl Catalogue {
    /// The instance types of a node class. Equal types keep their generation.
    pub(super) fn types(
        &self,
        class: &str,
        inputs: Inputs,
        region: &Region,
        ledger: &Ledger,
        now: Timestamp,
    ) -> InstanceTypes {
        let made = &mut *self.made.lock();
        let before = made.by_class.get(class);
        if let Some((_, types)) = before.filter(|(of_before, _)| *of_before == inputs) {
            return types.clone();
        }
        let built = inputs.build(region, ledger, now);
        let types = match before {
            Some((_, types)) if *types.types == *built => types.clone(),
            Some(_) | None => {
                made.generation += 1;
                InstanceTypes { generation: made.generation, types: built.into() }
            }
        };
        made.by_class.insert(class.to_owned(), (inputs, types.clone()));
        types
    }
}

/// The types that are built in, which stand for those of the region.
pub(super) fn built_in() -> Arc<BTreeMap<String, InstanceTypeInfo>> {
    Arc::new(catalogue::instance_types().clone())
}
