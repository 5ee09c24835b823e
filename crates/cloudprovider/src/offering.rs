//! Offerings: an instance type in a zone, under a capacity type, at a price.

use std::collections::BTreeMap;
use std::fmt;

use api::labels;
use model::{InstanceTypeName, PriceNanoUsdPerHour};
use serde::{Deserialize, Serialize};

use crate::instance_type::allocatable;
use crate::{InstanceType, Overhead, ResourceList};

/// How a machine is paid for: the value of `karpenter.sh/capacity-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// Paid for beforehand, and limited.
    Reserved,
    /// Spare capacity, which the provider may take back.
    Spot,
    /// Paid by use.
    OnDemand,
}

impl CapacityType {
    /// All of them, in the order of [`Ord`].
    pub const ALL: [Self; 3] = [Self::Reserved, Self::Spot, Self::OnDemand];

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => labels::CAPACITY_TYPE_RESERVED,
            Self::Spot => labels::CAPACITY_TYPE_SPOT,
            Self::OnDemand => labels::CAPACITY_TYPE_ON_DEMAND,
        }
    }

    /// The capacity type of that label value, if there is one.
    pub fn parse(value: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|capacity_type| capacity_type.as_str() == value)
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Capacity that was paid for beforehand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reservation {
    /// The provider's name of it. Offerings of several types and zones may share one.
    pub id: String,
    /// How many more machines it holds now.
    pub remaining: u32,
}

/// One way to get a machine of a type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offering {
    /// The value of `topology.kubernetes.io/zone`.
    pub zone: String,
    /// The value of `karpenter.sh/capacity-type`.
    pub capacity_type: CapacityType,
    /// Further labels that a machine from this offering gets, such as the zone's id or the reservation's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The reservation it draws on; given exactly when the capacity type is [`CapacityType::Reserved`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<Reservation>,
    /// What a machine costs.
    pub price: PriceNanoUsdPerHour,
    /// Whether the provider has such machines, as far as it knows. A used-up reservation is still available; its
    /// `remaining` is 0.
    pub available: bool,
    /// Capacity that differs from the type's, by resource; resources that are not listed are as the type has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_override: Option<ResourceList>,
    /// Overhead in place of the type's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead_override: Option<Overhead>,
}

impl Offering {
    /// One that is available, with nothing else to say of it.
    pub fn new(zone: &str, capacity_type: CapacityType, price: PriceNanoUsdPerHour) -> Self {
        Self {
            zone: zone.to_owned(),
            capacity_type,
            labels: BTreeMap::new(),
            reservation: None,
            price,
            available: true,
            capacity_override: None,
            overhead_override: None,
        }
    }

    /// Whether a machine could be launched from it now.
    pub fn launchable(&self) -> bool {
        self.available && self.reservation.as_ref().is_none_or(|reservation| reservation.remaining > 0)
    }

    /// Every label that the offering decides: zone, capacity type and the further ones.
    pub fn all_labels(&self) -> impl Iterator<Item = (&str, &str)> {
        [(labels::ZONE, self.zone.as_str()), (labels::CAPACITY_TYPE, self.capacity_type.as_str())]
            .into_iter()
            .chain(self.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())))
    }

    /// The value of one of [`Self::all_labels`].
    pub fn label(&self, key: &str) -> Option<&str> {
        match key {
            labels::ZONE => Some(&self.zone),
            labels::CAPACITY_TYPE => Some(self.capacity_type.as_str()),
            _ => self.labels.get(key).map(String::as_str),
        }
    }

    /// The whole machine, with what this offering changes.
    pub fn capacity(&self, instance_type: &InstanceType) -> ResourceList {
        let mut capacity = instance_type.capacity.clone();
        for (resource, amount) in self.capacity_override.iter().flatten() {
            capacity.insert(resource.clone(), *amount);
        }
        capacity
    }

    /// What pods can use of a machine of `instance_type` launched from this offering.
    pub fn allocatable(&self, instance_type: &InstanceType) -> ResourceList {
        let overhead = self.overhead_override.as_ref().unwrap_or(&instance_type.overhead);
        allocatable(&self.capacity(instance_type), overhead)
    }

    /// What tells this offering from every other one of the catalogue.
    pub fn key(&self, instance_type: &InstanceTypeName) -> OfferingKey {
        OfferingKey {
            instance_type: instance_type.clone(),
            zone: self.zone.clone(),
            capacity_type: self.capacity_type,
            reservation_id: self.reservation.as_ref().map(|reservation| reservation.id.clone()),
        }
    }
}

/// What tells an offering from every other one of the catalogue. Ordered by its fields, first to last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OfferingKey {
    /// The type.
    pub instance_type: InstanceTypeName,
    /// The zone.
    pub zone: String,
    /// The terms.
    pub capacity_type: CapacityType,
    /// The reservation, if it is a reserved one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation_id: Option<String>,
}

impl fmt::Display for OfferingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.instance_type, self.zone, self.capacity_type)?;
        if let Some(id) = &self.reservation_id {
            write!(f, "/{id}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use model::Quantity;

    use super::*;

    fn offering() -> Offering {
        Offering {
            zone: "a".to_owned(),
            capacity_type: CapacityType::Reserved,
            labels: [("example.com/reservation".to_owned(), "r-1".to_owned())].into(),
            reservation: Some(Reservation { id: "r-1".to_owned(), remaining: 1 }),
            price: PriceNanoUsdPerHour(5),
            available: true,
            capacity_override: None,
            overhead_override: None,
        }
    }

    fn list(amounts: &[(&str, &str)]) -> ResourceList {
        amounts.iter().map(|(resource, amount)| ((*resource).to_owned(), Quantity::parse(amount).unwrap())).collect()
    }

    #[test]
    fn an_offering_is_launchable_if_it_is_available_and_its_reservation_has_room() {
        let full = Reservation { id: "r-1".to_owned(), remaining: 0 };
        assert!(offering().launchable());
        assert!(Offering { reservation: None, ..offering() }.launchable());
        assert!(!Offering { reservation: Some(full), ..offering() }.launchable());
        assert!(!Offering { available: false, ..offering() }.launchable());
    }

    #[test]
    fn an_offering_changes_capacity_by_resource_and_overhead_as_a_whole() {
        let mut instance_type = InstanceType {
            name: "m".into(),
            requirements: BTreeMap::new(),
            offerings: Vec::new(),
            capacity: list(&[("cpu", "4"), ("memory", "8Gi")]),
            overhead: Overhead { kube_reserved: list(&[("cpu", "1"), ("memory", "1Gi")]), ..Overhead::default() },
            volume_attachment_limits: BTreeMap::new(),
            dynamic_resources: Default::default(),
        };
        assert_eq!(offering().allocatable(&instance_type), instance_type.allocatable());
        let changed = Offering {
            capacity_override: Some(list(&[("memory", "16Gi"), ("example.com/gpu", "1")])),
            overhead_override: Some(Overhead { kube_reserved: list(&[("cpu", "2")]), ..Overhead::default() }),
            ..offering()
        };
        let expected = list(&[("cpu", "2"), ("memory", "16Gi"), ("example.com/gpu", "1")]);
        assert_eq!(changed.allocatable(&instance_type), expected);
        instance_type.capacity.clear();
        assert_eq!(changed.capacity(&instance_type), list(&[("memory", "16Gi"), ("example.com/gpu", "1")]));
    }

    #[test]
    fn offerings_are_told_apart_by_type_zone_terms_and_reservation() {
        assert_eq!(offering().key(&"m".into()).to_string(), "m/a/reserved/r-1");
        let spot = Offering { capacity_type: CapacityType::Spot, reservation: None, ..offering() };
        assert_eq!(spot.key(&"m".into()).to_string(), "m/a/spot");
        assert_eq!(offering().label(labels::CAPACITY_TYPE), Some("reserved"));
        assert_eq!(offering().label("example.com/reservation"), Some("r-1"));
        assert_eq!(CapacityType::parse("free"), None);
    }

    #[test]
    fn an_offering_survives_being_written() {
        let json = serde_json::to_string(&offering()).unwrap();
        assert_eq!(serde_json::from_str::<Offering>(&json).unwrap(), offering(), "{json}");
    }
}
