//! The instance types of a node class: what EC2 sells, with prices, reservations and what has run out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cloudprovider::{InstanceType, InstanceTypes};
use model::Timestamp;
use parking_lot::Mutex;

use super::region::Region;
use crate::devices;
use crate::instance_types::learned::LearnedMemory;
use crate::instance_types::offerings::{CapacityReservation, Market, Zone};
use crate::instance_types::settings::{MachineOptions, NodeSettings};
use crate::instance_types::{Resolver, efas, set_memory};
use crate::labels;
use crate::launch::resolve::image_of;
use crate::ledger::Ledger;
use crate::node_class::NodeClass;
use crate::node_class::status::{Ami, ReservationState};
use crate::service::ec2::PlacementGroup;

/// All that the instance types of a node class are made from, but for the region.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Inputs {
    pub(super) region: String,
    pub(super) settings: NodeSettings,
    pub(super) options: MachineOptions,
    pub(super) images: Vec<Ami>,
    /// Zones with a subnet: name and id.
    pub(super) subnet_zones: BTreeMap<String, Option<String>>,
    /// What machines are launched into.
    pub(super) placement_group: Option<PlacementGroup>,
    /// Ids of the zones that traffic is shifted away from.
    pub(super) shifted_zones: BTreeSet<String>,
    pub(super) reservations: Vec<CapacityReservation>,
    /// Tells states of the ledger apart.
    pub(super) ledger: u64,
    /// Tells states of what was learnt apart.
    pub(super) learned: u64,
    /// Tells states of the region apart.
    pub(super) of_region: u64,
}

/// What is known beside, of which the inputs tell the states apart.
pub(super) struct Known<'a> {
    pub(super) region: &'a Region,
    pub(super) ledger: &'a Ledger,
    pub(super) learned: &'a LearnedMemory,
    pub(super) now: Timestamp,
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

    fn build(&self, known: &Known<'_>) -> Vec<Arc<InstanceType>> {
        let Known { region, ledger, learned, now } = *known;
        let resolver = Resolver { region: &self.region, settings: &self.settings, options: &self.options };
        let is_out = |key: &cloudprovider::OfferingKey| ledger.is_out(key, now);
        let mut types = Vec::new();
        for (name, zones) in region.sold.iter() {
            let Some(info) = region.types.get(name).filter(|info| info.architecture().is_some()) else { continue };
            let zone = |zone: &String| {
                let id = self.subnet_zones.get(zone).cloned().flatten();
                Zone {
                    name: zone.clone(),
                    has_subnet: self.subnet_zones.contains_key(zone),
                    is_shifted: id.as_ref().is_some_and(|id| self.shifted_zones.contains(id)),
                    id,
                }
            };
            let zones: Vec<_> = zones.iter().map(zone).collect();
            let market = Market {
                zones: &zones,
                prices: &region.prices,
                reservations: &self.reservations,
                is_out_of_stock: &is_out,
            };
            let mut instance_type = resolver.resolve(info);
            instance_type.dynamic_resources =
                devices::dynamic_resources(info, efas(info, &self.settings), &self.settings.drivers);
            market.add_offerings(&mut instance_type, info, &self.settings);
            self.placement_group.iter().for_each(|group| add_placement(&mut instance_type, group));
            match image_of(&self.images, &instance_type) {
                Some(image) => {
                    let seen = learned.get(&instance_type.name, &image.id, now);
                    seen.into_iter().for_each(|memory| set_memory(&mut instance_type, memory));
                }
                None => instance_type.offerings.iter_mut().for_each(|offering| offering.available = false),
            }
            types.push(Arc::new(instance_type));
        }
        types
    }
}

/// The labels that a placement group gives: its id, and any of its partitions. A machine is in one of them, which its
/// NodeClaim may ask for; so a type leaves it open.
fn add_placement(instance_type: &mut InstanceType, group: &PlacementGroup) {
    let open = &mut instance_type.requirements;
    open.insert(labels::PLACEMENT_GROUP_ID.to_owned(), [group.id.clone()].into());
    let partitions = group.partition_names();
    if !partitions.is_empty() {
        open.insert(labels::PLACEMENT_GROUP_PARTITION.to_owned(), partitions);
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
    /// The instance types of each node class, as they were made last.
    pub(super) fn known(&self) -> Vec<InstanceTypes> {
        self.made.lock().by_class.values().map(|(_, types)| types.clone()).collect()
    }

    /// The instance types of a node class. Equal types keep their generation.
    pub(super) fn types(&self, class: &str, inputs: Inputs, known: &Known<'_>) -> InstanceTypes {
        let made = &mut *self.made.lock();
        let before = made.by_class.get(class);
        if let Some((_, types)) = before.filter(|(of_before, _)| *of_before == inputs) {
            return types.clone();
        }
        let built = inputs.build(known);
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
