//! All overlays against the instance types of all NodePools.
//!
//! Overlays are taken by weight, highest first, then by name, last first; for each price and each resource the first that
//! says something wins. Two of equal weight that say something about the same price or resource conflict: the later one
//! is rejected whole. The same goes for the devices of each driver (`devices`), except that two may say the same of them.
//! NodePools between which no overlay can tell are evaluated once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use cloudprovider::{InstanceType, OfferingKey};
use dra_sched::types::DriverName;
use model::{InstanceTypeName, NodeOverlayName, NodePoolName};
use thiserror::Error as ThisError;

pub use self::devices::retain_drivers;
use self::devices::{Expansions, Said};
use crate::{Overlay, expand};

mod devices;

/// What overlays may correct of one NodePool.
#[derive(Debug, Clone, Copy)]
pub struct Pool<'a> {
    /// The NodePool.
    pub name: &'a NodePoolName,
    /// Labels that its nodes get. Its own requirements do not decide which overlays match.
    pub template_labels: &'a BTreeMap<String, String>,
    /// What the provider offers it. NodePools that were given the same slice share the work.
    pub types: &'a [Arc<InstanceType>],
}

/// What an overlay says something about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// The price of an offering.
    Price,
    /// The amount of this resource.
    Capacity(String),
    /// The devices of this driver.
    Devices(DriverName),
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Price => f.write_str("the price"),
            Self::Capacity(resource) => write!(f, "the amount of {resource}"),
            Self::Devices(driver) => write!(f, "the devices of {driver}"),
        }
    }
}

/// Why an overlay was rejected (reason `Conflict`): the first place where another says something as well.
///
/// Differs: Karpenter's message says neither which nor where, and it misses a conflict over a resource with any but the
/// overlay that was applied last.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error(
    "conflict with another overlay: nodeoverlay/{other} of equal weight also sets {field} of instance type \
     {instance_type} in nodepool/{node_pool}"
)]
pub struct Conflict {
    /// The overlay that stays.
    pub other: NodeOverlayName,
    /// What both set.
    pub field: Field,
    /// The first NodePool, in the order given.
    pub node_pool: NodePoolName,
    /// The first instance type there.
    pub instance_type: InstanceTypeName,
}

/// Why an overlay is not in effect.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Rejection {
    /// Another says something else about the same thing.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// Its templates make no sense on an instance type (reason `RuntimeValidation`).
    #[error("spec.dynamicResources.{error} (instance type {instance_type} in nodepool/{node_pool})")]
    Devices {
        /// What is wrong.
        error: expand::Error,
        /// The first NodePool.
        node_pool: NodePoolName,
        /// The first instance type there.
        instance_type: InstanceTypeName,
    },
    /// It describes devices, and not all machines of an instance type are meant (reason `RuntimeValidation`).
    #[error(
        "spec.requirements: they leave out {offering} of instance type {instance_type} in nodepool/{node_pool}, but \
         devices are the same on all machines of a type; use a template's nodeSelector for what differs by zone"
    )]
    PartOfAType {
        /// An offering that is not meant.
        offering: OfferingKey,
        /// The first NodePool.
        node_pool: NodePoolName,
        /// The first instance type there.
        instance_type: InstanceTypeName,
    },
}

/// The devices of one driver that an overlay describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Described {
    /// On how many instance types, all NodePools together.
    pub instance_types: usize,
    /// The fewest on one machine.
    pub fewest: usize,
    /// The most on one machine.
    pub most: usize,
}

/// The instance types of one NodePool as overlays leave them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Corrected {
    /// In the order of the provider's. What no overlay touches is the provider's own.
    pub types: Vec<Arc<InstanceType>>,
    /// Those with another price.
    pub with_price: BTreeSet<InstanceTypeName>,
    /// Those with other capacity.
    pub with_capacity: BTreeSet<InstanceTypeName>,
    /// Those whose devices an overlay describes.
    pub with_devices: BTreeSet<InstanceTypeName>,
}

impl Corrected {
    /// Whether no overlay touches any of them.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.with_price.is_empty() && self.with_capacity.is_empty() && self.with_devices.is_empty()
    }
}

/// What came of all overlays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evaluation {
    /// The overlays that were rejected; all others are in effect.
    pub rejected: BTreeMap<NodeOverlayName, Rejection>,
    /// What those in effect with templates describe, be it shadowed by another or not.
    pub described: BTreeMap<NodeOverlayName, BTreeMap<DriverName, Described>>,
    /// One for each NodePool, in the order given. Equal ones are shared.
    pub pools: Vec<Arc<Corrected>>,
}

/// Applies overlays, in any order, to NodePools.
#[must_use]
pub fn evaluate(overlays: &[Overlay], pools: &[Pool<'_>]) -> Evaluation {
    let mut overlays: Vec<&Overlay> = overlays.iter().collect();
    overlays.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| b.name.cmp(&a.name)));
    let (mut classes, class_of_pool) = Class::of_pools(&overlays, pools);
    let (mut rejected, mut described) = (BTreeMap::new(), BTreeMap::new());
    for overlay in overlays {
        let mut expansions = Expansions::default();
        let found: Result<Vec<Matches>, Rejection> =
            classes.iter().map(|class| class.matches(overlay, &mut expansions)).collect();
        match found {
            Err(rejection) => {
                rejected.insert(overlay.name.clone(), rejection);
            }
            Ok(found) => {
                if !overlay.dynamic_resources.is_empty() {
                    described.insert(overlay.name.clone(), describe(&classes, &found));
                }
                for (class, found) in classes.iter_mut().zip(found) {
                    class.register(overlay, found);
                }
            }
        }
    }
    let corrected: Vec<Arc<Corrected>> = classes.iter().map(|class| Arc::new(class.corrected())).collect();
    let pools = class_of_pool.into_iter().filter_map(|class| corrected.get(class).cloned()).collect();
    Evaluation { rejected, described, pools }
}

fn describe(classes: &[Class<'_>], found: &[Matches]) -> BTreeMap<DriverName, Described> {
    let mut types: BTreeMap<DriverName, BTreeSet<&InstanceTypeName>> = BTreeMap::new();
    let mut described: BTreeMap<DriverName, Described> = BTreeMap::new();
    for (class, matches) in classes.iter().zip(found) {
        for matching in matches {
            let Some(instance_type) = class.pool.types.get(matching.instance_type) else { continue };
            for (driver, says) in matching.devices.iter() {
                let count = says.devices();
                let types = types.entry(driver.clone()).or_default();
                types.insert(&instance_type.name);
                let of_driver = Described { instance_types: types.len(), fewest: count, most: count };
                let described = described.entry(driver.clone()).or_insert(of_driver);
                described.instance_types = types.len();
                described.fewest = described.fewest.min(count);
                described.most = described.most.max(count);
            }
        }
    }
    described
}

/// The instance types that match.
type Matches = Vec<Match>;

/// An instance type that matches.
struct Match {
    /// By its place.
    instance_type: usize,
    /// The places of its offerings that match.
    offerings: Vec<usize>,
    /// What the overlay says about the devices of each driver there.
    devices: Said,
}

/// NodePools between which no overlay can tell.
struct Class<'a> {
    /// The first of them.
    pool: Pool<'a>,
    /// By type and offering.
    prices: BTreeMap<(usize, usize), Claimed<'a>>,
    /// By type and resource.
    capacity: BTreeMap<(usize, &'a str), Claimed<'a>>,
    /// By type and driver.
    devices: BTreeMap<(usize, DriverName), devices::Claimed<'a>>,
}

/// Who says something about a price or an amount.
#[derive(Clone, Copy)]
struct Claimed<'a> {
    /// The first: it wins.
    winner: &'a Overlay,
    /// The last: no other has less weight.
    last: &'a Overlay,
}

impl<'a> Class<'a> {
    /// The classes, in the order of their first NodePools, and for each NodePool the place of its class.
    fn of_pools(overlays: &[&Overlay], pools: &[Pool<'a>]) -> (Vec<Self>, Vec<usize>) {
        let asked = overlays.iter().flat_map(|overlay| overlay.requirements.keys());
        let counted = overlays.iter().flat_map(|overlay| expand::counting_labels(&overlay.dynamic_resources));
        let keys: BTreeSet<&str> = asked.chain(counted).collect();
        let mut places = BTreeMap::new();
        let mut classes = Vec::new();
        let class_of_pool = pools
            .iter()
            .map(|pool| {
                let values: Vec<Option<&str>> = keys.iter().map(|key| value_of_pool(pool, key)).collect();
                let types = (pool.types.as_ptr().addr(), pool.types.len());
                *places.entry((types, values)).or_insert_with(|| {
                    classes.push(Self {
                        pool: *pool,
                        prices: BTreeMap::new(),
                        capacity: BTreeMap::new(),
                        devices: BTreeMap::new(),
                    });
                    classes.len() - 1
                })
            })
            .collect();
        (classes, class_of_pool)
    }

    /// What matches, if the overlay can be in effect beside those that are.
    fn matches(&self, overlay: &Overlay, expansions: &mut Expansions) -> Result<Matches, Rejection> {
        let found = matches(overlay, &self.pool);
        let mut matches = Vec::with_capacity(found.len());
        for (place, offerings) in found {
            let Some(instance_type) = self.pool.types.get(place) else { continue };
            let devices = self.devices_of(overlay, instance_type, &offerings, expansions)?;
            let matching = Match { instance_type: place, offerings, devices };
            self.conflict(overlay, &matching).map_or(Ok(()), Err)?;
            matches.push(matching);
        }
        Ok(matches)
    }

    fn devices_of(
        &self,
        overlay: &Overlay,
        instance_type: &InstanceType,
        offerings: &[usize],
        expansions: &mut Expansions,
    ) -> Result<Said, Rejection> {
        if overlay.dynamic_resources.is_empty() {
            return Ok(Said::default());
        }
        let (node_pool, name) = (|| self.pool.name.clone(), || instance_type.name.clone());
        let left_out = (0..).zip(&instance_type.offerings).find(|(place, _)| !offerings.contains(place));
        if let Some((_, offering)) = left_out {
            return Err(Rejection::PartOfAType {
                offering: offering.key(&instance_type.name),
                node_pool: node_pool(),
                instance_type: name(),
            });
        }
        expansions.of(overlay, &self.pool, instance_type).map_err(|error| Rejection::Devices {
            error,
            node_pool: node_pool(),
            instance_type: name(),
        })
    }

    fn conflict(&self, overlay: &Overlay, matching: &Match) -> Option<Conflict> {
        let place = matching.instance_type;
        let prices = matching.offerings.iter().filter(|_| overlay.price.is_some());
        let of_price = prices.map(|offering| (Field::Price, self.prices.get(&(place, *offering)).map(|it| it.last)));
        let of_capacity = overlay.capacity.keys().map(|resource| {
            let claimed = self.capacity.get(&(place, resource.as_str()));
            (Field::Capacity(resource.clone()), claimed.map(|it| it.last))
        });
        let of_devices = matching.devices.iter().map(|(driver, says)| {
            let claimed = self.devices.get(&(place, driver.clone())).filter(|claimed| claimed.says != *says);
            (Field::Devices(driver.clone()), claimed.map(|it| it.last))
        });
        let (field, other) = of_price
            .chain(of_capacity)
            .chain(of_devices)
            .find_map(|(field, last)| Some((field, last?)).filter(|(_, it)| it.weight == overlay.weight))?;
        Some(Conflict {
            other: other.name.clone(),
            field,
            node_pool: self.pool.name.clone(),
            instance_type: self.pool.types.get(place)?.name.clone(),
        })
    }

    fn register(&mut self, overlay: &'a Overlay, found: Matches) {
        let claimed = Claimed { winner: overlay, last: overlay };
        for Match { instance_type, offerings, devices } in found {
            for offering in offerings.into_iter().filter(|_| overlay.price.is_some()) {
                self.prices.entry((instance_type, offering)).or_insert(claimed).last = overlay;
            }
            for resource in overlay.capacity.keys() {
                self.capacity.entry((instance_type, resource)).or_insert(claimed).last = overlay;
            }
            for (driver, says) in devices.iter() {
                let new = || devices::Claimed { winner: overlay, last: overlay, says: Rc::clone(says) };
                let claimed = self.devices.entry((instance_type, driver.clone())).or_insert_with(new);
                (claimed.last, claimed.says) = (overlay, Rc::clone(says));
            }
        }
    }

    fn corrected(&self) -> Corrected {
        let mut corrected = Corrected { types: self.pool.types.to_vec(), ..Corrected::default() };
        for (&(instance_type, offering), claimed) in &self.prices {
            let Some(instance_type) = corrected.types.get_mut(instance_type) else { continue };
            corrected.with_price.insert(instance_type.name.clone());
            if let (Some(offering), Some(change)) =
                (Arc::make_mut(instance_type).offerings.get_mut(offering), claimed.winner.price)
            {
                offering.price = change.apply(offering.price);
            }
        }
        for (&(instance_type, resource), claimed) in &self.capacity {
            let Some(instance_type) = corrected.types.get_mut(instance_type) else { continue };
            let Some(amount) = claimed.winner.capacity.get(resource) else { continue };
            corrected.with_capacity.insert(instance_type.name.clone());
            let instance_type = Arc::make_mut(instance_type);
            instance_type.capacity.insert(resource.to_owned(), *amount);
            // An offering that differs from its type does not differ from the overlay.
            for offering in &mut instance_type.offerings {
                if let Some(known) = offering.capacity_override.as_mut().and_then(|it| it.get_mut(resource)) {
                    *known = *amount;
                }
            }
        }
        let mut winners: BTreeMap<usize, BTreeMap<DriverName, &Overlay>> = BTreeMap::new();
        for ((instance_type, driver), claimed) in &self.devices {
            winners.entry(*instance_type).or_default().insert(driver.clone(), claimed.winner);
        }
        for (instance_type, winners) in winners {
            let Some(instance_type) = corrected.types.get_mut(instance_type) else { continue };
            corrected.with_devices.insert(instance_type.name.clone());
            let label = |key: &str| devices::certain_label(&self.pool, instance_type, key);
            let merged = devices::merged(&instance_type.dynamic_resources, &winners, &label);
            Arc::make_mut(instance_type).dynamic_resources = merged;
        }
        corrected
    }
}

/// What the NodePool itself says about a label of its nodes.
fn value_of_pool<'a>(pool: &Pool<'a>, key: &str) -> Option<&'a str> {
    match key {
        api::labels::NODEPOOL => Some(pool.name.as_str()),
        key => pool.template_labels.get(key).map(String::as_str),
    }
}

fn matches(overlay: &Overlay, pool: &Pool<'_>) -> Vec<(usize, Vec<usize>)> {
    let asked: Vec<(&str, Option<&str>)> =
        overlay.requirements.keys().map(|key| (key, value_of_pool(pool, key))).collect();
    let types = pool
        .types
        .iter()
        .enumerate()
        .filter(|(_, it)| asked.iter().all(|(key, of_pool)| allows_type(overlay, key, *of_pool, it)));
    types
        .map(|(place, it)| {
            let offerings = it.offerings.iter().enumerate();
            let matching = offerings.filter(|(_, offering)| overlay.requirements.allow_offering(offering));
            (place, matching.map(|(offering, _)| offering).collect::<Vec<_>>())
        })
        .filter(|(_, offerings)| !offerings.is_empty())
        .collect()
}

/// Whether a machine of that type in a NodePool with that label (if any) may have a value that the overlay asks for. A
/// label of which neither knows anything is absent.
fn allows_type(overlay: &Overlay, key: &str, of_pool: Option<&str>, instance_type: &InstanceType) -> bool {
    let allows = |value: Option<&str>| overlay.requirements.allow_value(key, value);
    match (of_pool, instance_type.requirements.get(key)) {
        (Some(value), Some(of_type)) => of_type.contains(value) && allows(Some(value)),
        (Some(value), None) => allows(Some(value)),
        (None, Some(of_type)) if of_type.is_empty() => allows(None),
        (None, Some(of_type)) => of_type.iter().any(|value| allows(Some(value))),
        (None, None) => {
            let mut of_offerings = instance_type.offerings.iter().filter_map(|offering| offering.label(key)).peekable();
            match of_offerings.peek() {
                None => allows(None),
                Some(_) => of_offerings.any(|value| allows(Some(value))),
            }
        }
    }
}

#[cfg(test)]
mod tests;
