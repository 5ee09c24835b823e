//! Which machines a NodeClaim may become, cheapest first.
//!
//! Everything here is a pure function of a catalogue and requirements, and every order is total: equal prices are
//! ordered by instance type, zone, capacity type and reservation.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use model::{PriceNanoUsdPerHour, Quantity};

use crate::{InstanceType, LabelRequirements, Offering, OfferingKey, ResourceList};

/// How many instance types a NodeClaim's requirements may name.
pub const MAX_INSTANCE_TYPES: usize = 600;

/// How many instance types a provider is asked to choose from at launch.
pub const MAX_LAUNCH_INSTANCE_TYPES: usize = 60;

/// A machine that could be launched.
#[derive(Debug, Clone, Copy)]
pub struct LaunchOption<'a> {
    /// Its type.
    pub instance_type: &'a Arc<InstanceType>,
    /// Where and how it is sold.
    pub offering: &'a Offering,
}

impl<'a> LaunchOption<'a> {
    /// What options are ordered by: price, then the fields of [`OfferingKey`].
    fn order(&self) -> impl Ord + use<'a> {
        let offering = self.offering;
        let reservation = offering.reservation.as_ref().map(|reservation| reservation.id.as_str());
        (offering.price, self.instance_type.name.as_str(), offering.zone.as_str(), offering.capacity_type, reservation)
    }

    /// What tells the offering from every other one of the catalogue.
    pub fn key(&self) -> OfferingKey {
        self.offering.key(&self.instance_type.name)
    }
}

/// A requirement's `minValues` that a set of instance types does not meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinValuesUnmet {
    /// The label.
    pub key: String,
    /// How many different values it must keep.
    pub min_values: u32,
    /// How many there are.
    pub found: usize,
}

impl fmt::Display for MinValuesUnmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, min_values, found } = self;
        write!(f, "minValues requirement is not met for {key:?}: {found} of {min_values} values")
    }
}

/// Whether every requested amount is there.
pub fn fits(requests: &ResourceList, allocatable: &ResourceList) -> bool {
    requests.iter().all(|(resource, requested)| {
        requested.sign() <= 0 || *requested <= allocatable.get(resource).copied().unwrap_or(Quantity::ZERO)
    })
}

/// Every machine that can be launched now, meets the requirements and holds the requests; cheapest first. An offering
/// that `is_unavailable` is left out.
pub fn launch_options<'a>(
    instance_types: &'a [Arc<InstanceType>],
    requirements: &'a LabelRequirements,
    requests: &ResourceList,
    is_unavailable: impl Fn(&OfferingKey) -> bool,
) -> Vec<LaunchOption<'a>> {
    let mut options = Vec::new();
    for instance_type in instance_types {
        let mut type_fits = None;
        for offering in instance_type.launchable_offerings(requirements) {
            let is_like_its_type = offering.capacity_override.is_none() && offering.overhead_override.is_none();
            let fits = if is_like_its_type {
                *type_fits.get_or_insert_with(|| fits(requests, &instance_type.allocatable()))
            } else {
                fits(requests, &offering.allocatable(instance_type))
            };
            let option = LaunchOption { instance_type, offering };
            if fits && !is_unavailable(&option.key()) {
                options.push(option);
            }
        }
    }
    options.sort_by(|a, b| a.order().cmp(&b.order()));
    options
}

/// The options of at most [`MAX_LAUNCH_INSTANCE_TYPES`] instance types, in their order: of the cheapest, and before
/// these of the cheapest that together have the `minValues` which the requirements ask for. For clouds that take so
/// many in one request; a provider that can choose among all only needs [`min_values_unmet`].
///
/// Differs: `launch-min-values`. Karpenter cuts to the cheapest and fails if these no longer have the `minValues`.
///
/// # Errors
/// If what is left no longer has the `minValues` that the requirements ask for.
pub fn launch_candidates<'a>(
    options: &[LaunchOption<'a>],
    requirements: &LabelRequirements,
) -> Result<Vec<LaunchOption<'a>>, MinValuesUnmet> {
    let mut kept: BTreeSet<&str> = BTreeSet::new();
    for (key, min_values) in requirements.min_values() {
        kept.extend(types_for_min_values(options, requirements, key, min_values));
    }
    for option in options {
        if kept.len() >= MAX_LAUNCH_INSTANCE_TYPES {
            break;
        }
        kept.insert(&option.instance_type.name);
    }
    let is_kept = |option: &&LaunchOption<'a>| kept.contains(&*option.instance_type.name);
    let mut seen = BTreeSet::new();
    let candidates: Vec<_> = options
        .iter()
        .filter(is_kept)
        .filter(|option| {
            let name: &str = &option.instance_type.name;
            seen.contains(name) || (seen.len() < MAX_LAUNCH_INSTANCE_TYPES && seen.insert(name))
        })
        .copied()
        .collect();
    let types = candidates.iter().map(|candidate| &**candidate.instance_type);
    match min_values_unmet(types, requirements) {
        Some(unmet) => Err(unmet),
        None => Ok(candidates),
    }
}

/// The cheapest types each of which has a value of the key that no cheaper one has, until there are enough values.
fn types_for_min_values<'a>(
    options: &[LaunchOption<'a>],
    requirements: &LabelRequirements,
    key: &str,
    min_values: u32,
) -> BTreeSet<&'a str> {
    let (mut values, mut types) = (BTreeSet::new(), BTreeSet::new());
    for option in options {
        if values.len() >= min_values as usize {
            break;
        }
        let of_type = option.instance_type.requirements.get(key).into_iter().flatten();
        let before = values.len();
        values.extend(of_type.filter(|value| requirements.allow_value(key, Some(value))));
        if values.len() > before {
            types.insert(&*option.instance_type.name);
        }
    }
    types
}

/// What the cheapest launchable offering of a type costs that meets the requirements.
pub fn cheapest_price(instance_type: &InstanceType, requirements: &LabelRequirements) -> Option<PriceNanoUsdPerHour> {
    instance_type.launchable_offerings(requirements).map(|offering| offering.price).min()
}

/// Orders types by [`cheapest_price`], then by name. Types that cannot be launched come last.
pub fn order_by_price(instance_types: &mut [Arc<InstanceType>], requirements: &LabelRequirements) {
    instance_types.sort_by_cached_key(|instance_type| {
        let price = cheapest_price(instance_type, requirements);
        (price.is_none(), price, instance_type.name.clone())
    });
}

/// The first label, in byte order, of which these types leave fewer different values than `minValues` asks for. Only
/// values that the requirements allow count.
pub fn min_values_unmet<'a>(
    instance_types: impl IntoIterator<Item = &'a InstanceType> + Clone,
    requirements: &LabelRequirements,
) -> Option<MinValuesUnmet> {
    requirements.min_values().find_map(|(key, min_values)| {
        let found = instance_types
            .clone()
            .into_iter()
            .filter_map(|instance_type| instance_type.requirements.get(key))
            .flatten()
            .filter(|value| requirements.allow_value(key, Some(value)))
            .collect::<BTreeSet<_>>()
            .len();
        (found < min_values as usize).then(|| MinValuesUnmet { key: key.to_owned(), min_values, found })
    })
}

/// The `limit` cheapest types ([`order_by_price`]).
///
/// # Errors
/// If those no longer have the `minValues` that the requirements ask for.
pub fn truncate(
    mut instance_types: Vec<Arc<InstanceType>>,
    requirements: &LabelRequirements,
    limit: usize,
) -> Result<Vec<Arc<InstanceType>>, MinValuesUnmet> {
    order_by_price(&mut instance_types, requirements);
    instance_types.truncate(limit);
    match min_values_unmet(instance_types.iter().map(|instance_type| &**instance_type), requirements) {
        Some(unmet) => Err(unmet),
        None => Ok(instance_types),
    }
}

#[cfg(test)]
mod tests;
