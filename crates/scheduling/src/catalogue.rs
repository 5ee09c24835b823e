//! What a NodePool can launch, in the planner's own terms: instance types and their offerings with interned labels,
//! integer resources and integer prices.
//!
//! `cluster` makes a catalogue from a provider's instance types, after `overlay` has corrected them. A catalogue is
//! independent of the NodePool: pools with the same instance types share one. Types are sorted by name and the
//! offerings of a type by (zone, capacity type, reservation), so that ids follow names and a decision that falls back
//! on id order falls back on names; [`Catalogue::new`] establishes this.
//!
//! An *offering* is the unit of choice: one instance type in one zone with one capacity type and perhaps one
//! reservation. All node labels that a provider determines are known per offering, except for keys where an instance
//! type allows several values; those are kept as requirements and resolved per machine.

use std::sync::Arc;

use cloudprovider::CapacityType;
use dra_sched::Templates;
use model::{
    Id as _, IdVec, InstanceTypeName, Interner, KeyId, PriceNanoUsdPerHour, Requirements, ResourceVec, ValueId,
    define_id,
};

define_id! {
    /// An instance type of one [`Catalogue`].
    pub struct TypeId;
}
define_id! {
    /// An offering of one [`Catalogue`]; dense over all types, so that sets of offerings are bitsets.
    pub struct OfferingId;
}

/// Instance types and offerings that a NodePool may choose from. Immutable and shared.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    /// Sorted by name.
    pub types: IdVec<TypeId, InstanceType>,
    /// Grouped by type, in the order of `types`.
    pub offerings: IdVec<OfferingId, Offering>,
}

/// One instance type.
#[derive(Debug, Clone)]
pub struct InstanceType {
    /// The value of `node.kubernetes.io/instance-type`.
    pub name: InstanceTypeName,
    /// The provider's requirements for labels of machines of this type, including the instance type label.
    pub requirements: Requirements,
    /// Capacity before overhead, for limits.
    pub capacity: ResourceVec,
    /// CSI driver name → volumes that may be attached.
    pub volume_attachment_limits: Vec<(Arc<str>, u32)>,
    /// What drivers will publish on its machines. Types with equal templates share them.
    pub device_templates: Arc<Templates>,
}

/// One way to buy one instance type.
#[derive(Debug, Clone)]
pub struct Offering {
    /// The type it belongs to.
    pub instance_type: TypeId,
    /// All that is known about the labels of a machine launched from it: the type's requirements and its own (zone,
    /// capacity type, reservation id and whatever else the provider adds), intersected.
    pub requirements: Requirements,
    /// Value of `topology.kubernetes.io/zone`.
    pub zone: ValueId,
    /// Spot, on-demand or reserved.
    pub capacity_type: CapacityType,
    /// Reservation id and machines left in it.
    pub reservation: Option<Reservation>,
    /// Price of one machine.
    pub price: PriceNanoUsdPerHour,
    /// The provider believes that a launch would work. A full reservation stays available but is not launchable.
    pub available: bool,
    /// Capacity, for limits; the type's, or the offering's own.
    pub capacity: ResourceVec,
    /// What pods and daemons can use.
    pub allocatable: ResourceVec,
}

/// A capacity reservation that an offering draws on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// The label with the reservation's id on machines, if the provider has one.
    pub label: Option<KeyId>,
    /// The reservation's id as label value.
    pub id: ValueId,
    /// Machines that can still be launched from it.
    pub remaining: u32,
}

impl Offering {
    /// Whether a launch may be asked for: available and, if reserved, with room left.
    pub fn launchable(&self) -> bool {
        self.available && self.reservation.is_none_or(|reservation| reservation.remaining > 0)
    }
}

impl Catalogue {
    /// Sorts types by name and each type's offerings by (zone, capacity type, reservation, price), and numbers them.
    /// `Offering::instance_type` of the input is ignored.
    pub fn new(mut types: Vec<(InstanceType, Vec<Offering>)>, interner: &Interner) -> Self {
        types.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        let mut catalogue = Catalogue::default();
        for (instance_type, mut offerings) in types {
            offerings.sort_by(|a, b| {
                let key = |offering: &Offering| {
                    (
                        interner.value_name(offering.zone),
                        offering.capacity_type.as_str(),
                        offering.reservation.map(|reservation| interner.value_name(reservation.id)),
                        offering.price,
                    )
                };
                key(a).cmp(&key(b))
            });
            let id = catalogue.types.push(instance_type);
            for mut offering in offerings {
                offering.instance_type = id;
                catalogue.offerings.push(offering);
            }
        }
        catalogue
    }
    /// The offerings of one type; they are next to each other.
    pub fn offerings_of(&self, instance_type: TypeId) -> impl Iterator<Item = OfferingId> + use<> {
        let offerings = self.offerings.as_slice();
        let first = offerings.partition_point(|offering| offering.instance_type < instance_type);
        let end = offerings.partition_point(|offering| offering.instance_type <= instance_type);
        (first..end).map(OfferingId::from_index)
    }
}
