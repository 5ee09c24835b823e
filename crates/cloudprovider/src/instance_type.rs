//! A kind of machine that a provider can launch.
//!
//! Everything is text and exact quantities, so that providers need no interner and a catalogue can be written to a
//! file; `cluster` turns it into the planner's integers. A type lists **all** its offerings, including those that have
//! run out: disruption needs their prices.

use std::collections::{BTreeMap, BTreeSet};

use api::resource_slice_template::DynamicResources;
use api::resources::MEMORY;
use api::resources::QuantityString;
use model::{InstanceTypeName, Quantity, quantity};
use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

use crate::{LabelRequirements, Offering};

/// Amounts by resource name, such as `cpu` or `nvidia.com/gpu`.
pub type ResourceList = BTreeMap<String, Quantity>;

/// A resource's amount that is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("{resource}: {source}")]
pub struct InvalidResource {
    /// The resource.
    pub resource: String,
    /// What is wrong with the amount.
    pub source: quantity::Error,
}

/// Reads amounts as the API has them.
///
/// # Errors
/// The first amount, by resource name, that is no quantity.
pub fn resources_from_api(list: &api::ResourceList) -> Result<ResourceList, InvalidResource> {
    list.iter()
        .map(|(resource, amount)| match Quantity::parse(&amount.0) {
            Ok(amount) => Ok((resource.clone(), amount)),
            Err(source) => Err(InvalidResource { resource: resource.clone(), source }),
        })
        .collect()
}

/// Writes amounts as the API has them.
pub fn resources_to_api(list: &ResourceList) -> api::ResourceList {
    list.iter().map(|(resource, amount)| (resource.clone(), QuantityString(amount.to_string()))).collect()
}

/// Resources that are carved out of memory.
const HUGE_PAGES_PREFIX: &str = "hugepages-";

/// The part of a machine's capacity that pods cannot use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Overhead {
    /// For the kubelet and the container runtime.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kube_reserved: ResourceList,
    /// For the operating system's own daemons.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub system_reserved: ResourceList,
    /// What must stay free before the kubelet evicts pods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub eviction_threshold: ResourceList,
}

impl Overhead {
    /// What is taken of one resource, in nano-units. Negative parts count as nothing.
    fn of(&self, resource: &str) -> i128 {
        [&self.kube_reserved, &self.system_reserved, &self.eviction_threshold]
            .into_iter()
            .filter_map(|part| part.get(resource))
            .map(|amount| amount.to_nano().max(0))
            .fold(0, i128::saturating_add)
    }
}

/// A kind of machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceType {
    /// Its name, unique in a catalogue; also the value of `node.kubernetes.io/instance-type`.
    pub name: InstanceTypeName,
    /// For each label that the provider sets on such a machine, the values it may have. A label with one value is
    /// certain; one with several is decided at launch (by the offering, or by what the NodeClaim asks for).
    pub requirements: BTreeMap<String, BTreeSet<String>>,
    /// Its zones and capacity types, with prices. Unique by [`Offering::key`].
    pub offerings: Vec<Offering>,
    /// The whole machine.
    pub capacity: ResourceList,
    /// What pods cannot use of it.
    #[serde(default)]
    pub overhead: Overhead,
    /// How many volumes of a CSI driver can be attached, by driver name. A driver that is not listed has no limit
    /// known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volume_attachment_limits: BTreeMap<String, u32>,
    /// What DRA drivers will publish for such a machine, as far as the provider knows.
    #[serde(default, skip_serializing_if = "DynamicResources::is_empty")]
    pub dynamic_resources: DynamicResources,
}

impl InstanceType {
    /// What pods can use of a machine of this type, if the offering does not change it.
    pub fn allocatable(&self) -> ResourceList {
        allocatable(&self.capacity, &self.overhead)
    }

    /// The value of a label that every machine of this type has; `None` if there are several, or none.
    pub fn certain_label(&self, key: &str) -> Option<&str> {
        if let Some(values) = self.requirements.get(key) {
            let mut values = values.iter();
            return values.next().filter(|_| values.next().is_none()).map(String::as_str);
        }
        let mut of_offerings = self.offerings.iter().map(|offering| offering.label(key));
        let first = of_offerings.next()??;
        of_offerings.all(|value| value == Some(first)).then_some(first)
    }

    /// The offerings that can be launched now and meet the requirements.
    pub fn launchable_offerings<'a>(
        &'a self,
        requirements: &'a LabelRequirements,
    ) -> impl Iterator<Item = &'a Offering> {
        requirements.allowed_offerings(self).filter(|offering| offering.launchable())
    }
}

/// Capacity less overhead, never below zero. Huge pages are taken out of memory as well, since the kernel has set
/// them aside before anything else can ask for memory.
pub(crate) fn allocatable(capacity: &ResourceList, overhead: &Overhead) -> ResourceList {
    let huge_pages = capacity
        .iter()
        .filter(|(resource, _)| resource.starts_with(HUGE_PAGES_PREFIX))
        .map(|(_, amount)| amount.to_nano().max(0))
        .fold(0, i128::saturating_add);
    capacity
        .iter()
        .map(|(resource, amount)| {
            let set_aside = if resource == MEMORY { huge_pages } else { 0 };
            let left = amount.to_nano().saturating_sub(overhead.of(resource).saturating_add(set_aside)).max(0);
            let left = Quantity::from_nano(left, amount.format()).expect("lies between zero and a quantity");
            (resource.clone(), left)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(amounts: &[(&str, &str)]) -> ResourceList {
        amounts.iter().map(|(resource, amount)| ((*resource).to_owned(), Quantity::parse(amount).unwrap())).collect()
    }

    #[test]
    fn allocatable_is_capacity_less_all_three_overheads_and_huge_pages() {
        let capacity = list(&[("cpu", "4"), ("memory", "8Gi"), ("hugepages-2Mi", "1Gi"), ("pods", "110")]);
        let overhead = Overhead {
            kube_reserved: list(&[("cpu", "100m"), ("memory", "1Gi")]),
            system_reserved: list(&[("cpu", "50m"), ("ephemeral-storage", "1Gi")]),
            eviction_threshold: list(&[("memory", "512Mi")]),
        };
        let expected = list(&[("cpu", "3850m"), ("memory", "5632Mi"), ("hugepages-2Mi", "1Gi"), ("pods", "110")]);
        assert_eq!(allocatable(&capacity, &overhead), expected);
    }

    #[test]
    fn allocatable_is_never_negative_nor_more_than_the_capacity() {
        let huge = i64::MAX.to_string();
        let overhead = Overhead {
            kube_reserved: list(&[("cpu", &huge), ("memory", "-5")]),
            system_reserved: list(&[("cpu", &huge)]),
            eviction_threshold: list(&[("cpu", &huge)]),
        };
        let capacity = list(&[("cpu", &huge), ("memory", &huge)]);
        assert_eq!(allocatable(&capacity, &overhead), list(&[("cpu", "0"), ("memory", &huge)]));
    }
}
