//! All overlays against the instance types of all NodePools.
//!
//! Overlays are taken by weight, highest first, then by name, last first; for each price and each resource the first
//! that says something wins. Two of equal weight that say something about the same price or resource conflict: the
//! later one is rejected whole. The same goes for the devices of each driver (`devices`), except that two may say the
//! same of them.
//!
//! An overlay is held against the types of a NodePool once for all NodePools that it cannot tell apart; NodePools in
//! which every overlay matches the same are corrected once, and what comes of a type is shared where the same overlays
//! decide.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use api::DynamicResources;
use cloudprovider::{InstanceType, OfferingKey};
use dra_types::DriverName;
use model::{InstanceTypeName, NodeOverlayName, NodePoolName};
use thiserror::Error as ThisError;

pub use self::devices::retain_drivers;
use self::devices::{Expansions, Said};
use self::matching::Columns;
use crate::Overlay;

mod devices;
mod matching;

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

/// What an overlay can set.
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

/// Why an overlay was rejected (reason `Conflict`): the first thing that another overlay sets too.
///
/// Differs: `overlay-conflict-names`, `overlay-conflict-all`. Karpenter's message says neither which nor where, and it
/// misses a conflict over a resource with any but the overlay that was applied last.
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
    /// Another overlay sets the same thing to something else.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// Its templates are invalid on an instance type (reason `RuntimeValidation`).
    #[error("spec.dynamicResources.{error} (instance type {instance_type} in nodepool/{node_pool})")]
    Devices {
        /// What is wrong.
        error: dra_templates::Error,
        /// The first NodePool.
        node_pool: NodePoolName,
        /// The first instance type there.
        instance_type: InstanceTypeName,
    },
    /// It describes devices, but only selects some offerings of an instance type (reason `RuntimeValidation`).
    #[error(
        "spec.requirements: they leave out {offering} of instance type {instance_type} in nodepool/{node_pool}, but \
         devices are the same on all machines of a type; use a template's nodeSelector for what differs by zone"
    )]
    PartOfAType {
        /// An offering that it does not select.
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
    /// In the provider's order. Types that no overlay changes are shared with the provider.
    pub types: Vec<Arc<InstanceType>>,
    /// The types whose price was changed.
    pub with_price: BTreeSet<InstanceTypeName>,
    /// The types whose capacity was changed.
    pub with_capacity: BTreeSet<InstanceTypeName>,
    /// The types whose devices an overlay describes.
    pub with_devices: BTreeSet<InstanceTypeName>,
}

impl Corrected {
    /// Whether no overlay changes any of them.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.with_price.is_empty() && self.with_capacity.is_empty() && self.with_devices.is_empty()
    }
}

/// The result for all overlays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evaluation {
    /// The overlays that were rejected; all others are in effect.
    pub rejected: BTreeMap<NodeOverlayName, Rejection>,
    /// What overlays in effect describe with templates, even where another overlay has precedence.
    pub described: BTreeMap<NodeOverlayName, BTreeMap<DriverName, Described>>,
    /// One for each NodePool, in the order given. Equal ones are shared.
    pub pools: Vec<Arc<Corrected>>,
}

/// Applies overlays, in any order, to NodePools.
#[must_use]
pub fn evaluate(overlays: &[Overlay], pools: &[Pool<'_>]) -> Evaluation {
    let mut overlays: Vec<&Overlay> = overlays.iter().collect();
    overlays.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| b.name.cmp(&a.name)));
    let (mut rejected, mut described) = (BTreeMap::new(), BTreeMap::new());
    let mut matched: Vec<(&Overlay, Vec<Rc<Matches>>)> = Vec::with_capacity(overlays.len());
    let (mut columns, mut expansions) = (Columns::default(), Expansions::default());
    for overlay in overlays {
        match Matches::of_pools(overlay, pools, &mut columns, &mut expansions) {
            Ok(found) => matched.push((overlay, found)),
            Err(rejection) => {
                rejected.insert(overlay.name.clone(), rejection);
            }
        }
    }
    let (mut classes, class_of_pool) = Class::of_pools(&matched, pools);
    // Overlays come by weight, so only neighbours can conflict.
    let mut weight_in_effect = None;
    for (overlay, found) in &matched {
        let may_conflict = weight_in_effect == Some(overlay.weight);
        let conflict = classes.iter().filter(|_| may_conflict).find_map(|class| class.conflict(overlay, found));
        if let Some(conflict) = conflict {
            rejected.insert(overlay.name.clone(), Rejection::Conflict(conflict));
            continue;
        }
        weight_in_effect = Some(overlay.weight);
        if !overlay.dynamic_resources.is_empty() {
            described.insert(overlay.name.clone(), describe(&classes, found));
        }
        classes.iter_mut().for_each(|class| class.register(overlay, found));
    }
    let mut made = Made::default();
    let corrected: Vec<Arc<Corrected>> = classes.iter().map(|class| Arc::new(class.corrected(&mut made))).collect();
    let pools = class_of_pool.into_iter().filter_map(|class| corrected.get(class).cloned()).collect();
    Evaluation { rejected, described, pools }
}

fn describe(classes: &[Class<'_>], found: &[Rc<Matches>]) -> BTreeMap<DriverName, Described> {
    // NodePools that the overlay cannot tell apart have the same types.
    let mut different: Vec<(&Class<'_>, &Rc<Matches>)> = Vec::new();
    for class in classes {
        let Some(matches) = found.get(class.place) else { continue };
        if !different.iter().any(|(_, known)| Rc::ptr_eq(known, matches)) {
            different.push((class, matches));
        }
    }
    let mut described: BTreeMap<&DriverName, (Described, BTreeSet<&InstanceTypeName>)> = BTreeMap::new();
    for (class, matches) in &different {
        for matching in &matches.0 {
            let Some(instance_type) = class.pool.types.get(matching.instance_type) else { continue };
            for (driver, says) in matching.devices.iter() {
                let count = says.devices();
                let new = || (Described { instance_types: 0, fewest: count, most: count }, BTreeSet::new());
                let (of_driver, names) = described.entry(driver).or_insert_with(new);
                of_driver.fewest = of_driver.fewest.min(count);
                of_driver.most = of_driver.most.max(count);
                // Within one list no name comes twice.
                if different.len() == 1 || names.insert(&instance_type.name) {
                    of_driver.instance_types += 1;
                }
            }
        }
    }
    described.into_iter().map(|(driver, (described, _))| (driver.clone(), described)).collect()
}

/// The instance types that match, in order.
#[derive(Debug, Default)]
struct Matches(Vec<Match>);

/// An instance type that matches.
#[derive(Debug)]
struct Match {
    /// By its place.
    instance_type: usize,
    /// The places of its offerings that match.
    offerings: Vec<usize>,
    /// What the overlay says about the devices of each driver there.
    devices: Said,
}

/// The key of NodePools that an overlay cannot tell apart: their types, and their values of the labels that it asks
/// for.
type Seen<'a> = ((usize, usize), Vec<Option<&'a str>>);

impl Matches {
    /// What an overlay matches in each NodePool. NodePools that it cannot tell apart share the answer.
    fn of_pools<'a>(
        overlay: &'a Overlay,
        pools: &[Pool<'a>],
        columns: &mut Columns<'a>,
        expansions: &mut Expansions<'a>,
    ) -> Result<Vec<Rc<Self>>, Rejection> {
        let counted: Vec<&str> = dra_templates::counting_labels(&overlay.dynamic_resources).collect();
        let keys: BTreeSet<&str> = overlay.requirements.keys().chain(counted).collect();
        let mut known: BTreeMap<Seen<'_>, Rc<Self>> = BTreeMap::new();
        let mut found = Vec::with_capacity(pools.len());
        for pool in pools {
            let values = keys.iter().map(|key| value_of_pool(pool, key)).collect();
            let seen = ((pool.types.as_ptr().addr(), pool.types.len()), values);
            let matches = match known.get(&seen) {
                Some(matches) => Rc::clone(matches),
                None => {
                    let matches = Rc::new(Self::new(overlay, pool, columns, expansions)?);
                    known.insert(seen, Rc::clone(&matches));
                    matches
                }
            };
            found.push(matches);
        }
        Ok(found)
    }

    fn new<'a>(
        overlay: &'a Overlay,
        pool: &Pool<'a>,
        columns: &mut Columns<'a>,
        expansions: &mut Expansions<'a>,
    ) -> Result<Self, Rejection> {
        let found = matching::matches(overlay, pool, columns);
        let number = expansions.number(&overlay.dynamic_resources);
        let mut matches = Vec::with_capacity(found.len());
        for (place, offerings) in found {
            let Some(instance_type) = pool.types.get(place) else { continue };
            let devices = devices_of((overlay, number), pool, instance_type, &offerings, expansions)?;
            matches.push(Match { instance_type: place, offerings, devices });
        }
        Ok(Self(matches))
    }
}

fn devices_of(
    (overlay, number): (&Overlay, usize),
    pool: &Pool<'_>,
    instance_type: &InstanceType,
    offerings: &[usize],
    expansions: &mut Expansions<'_>,
) -> Result<Said, Rejection> {
    if overlay.dynamic_resources.is_empty() {
        return Ok(Said::default());
    }
    let (node_pool, name) = (|| pool.name.clone(), || instance_type.name.clone());
    let is_whole = offerings.len() == instance_type.offerings.len();
    let mut left_out = (0..).zip(&instance_type.offerings).filter(|(place, _)| !is_whole && !offerings.contains(place));
    if let Some((_, offering)) = left_out.next() {
        return Err(Rejection::PartOfAType {
            offering: offering.key(&instance_type.name),
            node_pool: node_pool(),
            instance_type: name(),
        });
    }
    expansions.of((overlay, number), pool, instance_type).map_err(|error| Rejection::Devices {
        error,
        node_pool: node_pool(),
        instance_type: name(),
    })
}

/// NodePools in which every overlay matches the same.
struct Class<'a> {
    /// The first of them.
    pool: Pool<'a>,
    /// Its place.
    place: usize,
    /// By the place of the type; empty for one that no overlay says anything about.
    types: Vec<OfType<'a>>,
}

/// Which overlays set what of an instance type.
#[derive(Clone, Default)]
struct OfType<'a> {
    /// By the place of the offering; empty if there is no price.
    prices: Vec<Option<Claimed<'a>>>,
    capacity: Vec<(&'a str, Claimed<'a>)>,
    devices: Vec<(DriverName, devices::Claimed<'a>)>,
}

/// The overlays that set one price or amount.
#[derive(Clone, Copy)]
struct Claimed<'a> {
    /// The first: it wins.
    winner: &'a Overlay,
    /// The last: no other has less weight.
    last: &'a Overlay,
}

impl OfType<'_> {
    fn is_untouched(&self) -> bool {
        self.prices.is_empty() && self.capacity.is_empty() && self.devices.is_empty()
    }

    /// Whether the same overlays decide in both.
    fn has_winners_of(&self, other: &Self) -> bool {
        let same_price = |(a, b): (&Option<Claimed<'_>>, &Option<Claimed<'_>>)| match (a, b) {
            (Some(a), Some(b)) => std::ptr::eq(a.winner, b.winner),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        self.prices.len() == other.prices.len()
            && self.capacity.len() == other.capacity.len()
            && self.devices.len() == other.devices.len()
            && self.prices.iter().zip(&other.prices).all(same_price)
            && self.capacity.iter().all(|(resource, it)| {
                other.capacity.iter().any(|(name, other)| name == resource && std::ptr::eq(it.winner, other.winner))
            })
            && self.devices.iter().all(|(driver, it)| {
                other.devices.iter().any(|(name, other)| name == driver && it.is_decided_like(other))
            })
    }
}

/// The corrected instance types so far.
#[derive(Default)]
struct Made<'a> {
    /// Instance types, for each list of types and each position in it: which overlays decided, and the result.
    types: BTreeMap<(usize, usize), Decided<'a>>,
    /// Templates merged from overlays only, by the decision for each driver.
    templates: BTreeMap<Vec<devices::Decision>, DynamicResources>,
}

/// Corrections of one type.
type Decided<'a> = Vec<(OfType<'a>, Arc<InstanceType>)>;

impl<'a> Class<'a> {
    /// The classes, in the order of their first NodePools, and for each NodePool the place of its class.
    fn of_pools(matched: &[(&'a Overlay, Vec<Rc<Matches>>)], pools: &[Pool<'a>]) -> (Vec<Self>, Vec<usize>) {
        let mut places = BTreeMap::new();
        let mut classes = Vec::new();
        let class_of_pool = pools.iter().enumerate().map(|(place, pool)| {
            let found: Vec<usize> =
                matched.iter().filter_map(|(_, found)| Some(Rc::as_ptr(found.get(place)?).addr())).collect();
            let types = (pool.types.as_ptr().addr(), pool.types.len());
            *places.entry((types, found)).or_insert_with(|| {
                classes.push(Self { pool: *pool, place, types: vec![OfType::default(); pool.types.len()] });
                classes.len() - 1
            })
        });
        let class_of_pool = class_of_pool.collect();
        (classes, class_of_pool)
    }

    /// The first thing that an overlay in effect sets too, with equal weight.
    fn conflict(&self, overlay: &Overlay, found: &[Rc<Matches>]) -> Option<Conflict> {
        let mut matches = found.get(self.place).into_iter().flat_map(|matches| &matches.0);
        matches.find_map(|matching| self.conflict_of_type(overlay, matching))
    }

    fn conflict_of_type(&self, overlay: &Overlay, matching: &Match) -> Option<Conflict> {
        let known = self.types.get(matching.instance_type)?;
        let prices = matching.offerings.iter().filter(|_| overlay.price.is_some());
        let of_price =
            prices.map(|offering| (Field::Price, known.prices.get(*offering).copied().flatten().map(|it| it.last)));
        let of_capacity = overlay.capacity.keys().map(|resource| {
            let claimed = known.capacity.iter().find(|(name, _)| name == resource);
            (Field::Capacity(resource.clone()), claimed.map(|(_, it)| it.last))
        });
        let of_devices = matching.devices.iter().map(|(driver, says)| {
            let claimed = known.devices.iter().find(|(name, _)| name == driver);
            let differs = claimed.filter(|(_, claimed)| claimed.says != *says);
            (Field::Devices(driver.clone()), differs.map(|(_, it)| it.last))
        });
        let (field, other) = of_price
            .chain(of_capacity)
            .chain(of_devices)
            .find_map(|(field, last)| Some((field, last?)).filter(|(_, it)| it.weight == overlay.weight))?;
        Some(Conflict {
            other: other.name.clone(),
            field,
            node_pool: self.pool.name.clone(),
            instance_type: self.pool.types.get(matching.instance_type)?.name.clone(),
        })
    }

    fn register(&mut self, overlay: &'a Overlay, found: &[Rc<Matches>]) {
        let claimed = Claimed { winner: overlay, last: overlay };
        let matches = found.get(self.place).into_iter().flat_map(|matches| &matches.0);
        for Match { instance_type, offerings, devices } in matches {
            let Some(known) = self.types.get_mut(*instance_type) else { continue };
            if overlay.price.is_some() {
                let count = self.pool.types.get(*instance_type).map_or(0, |it| it.offerings.len());
                known.prices.resize(count, None);
                for offering in offerings {
                    if let Some(price) = known.prices.get_mut(*offering) {
                        price.get_or_insert(claimed).last = overlay;
                    }
                }
            }
            for resource in overlay.capacity.keys() {
                match known.capacity.iter_mut().find(|(name, _)| name == resource) {
                    Some((_, known)) => known.last = overlay,
                    None => known.capacity.push((resource, claimed)),
                }
            }
            for (driver, says) in devices.iter() {
                match known.devices.iter_mut().find(|(name, _)| name == driver) {
                    Some((_, known)) => (known.last, known.says) = (overlay, Rc::clone(says)),
                    None => known.devices.push((driver.clone(), devices::Claimed::new(overlay, says))),
                }
            }
        }
    }

    fn corrected(&self, made: &mut Made<'a>) -> Corrected {
        let mut corrected = Corrected { types: self.pool.types.to_vec(), ..Corrected::default() };
        let list = self.pool.types.as_ptr().addr();
        for (place, (instance_type, known)) in corrected.types.iter_mut().zip(&self.types).enumerate() {
            if known.is_untouched() {
                continue;
            }
            for (is_set, names) in [
                (!known.prices.is_empty(), &mut corrected.with_price),
                (!known.capacity.is_empty(), &mut corrected.with_capacity),
                (!known.devices.is_empty(), &mut corrected.with_devices),
            ] {
                if is_set {
                    names.insert(instance_type.name.clone());
                }
            }
            let Made { types, templates } = &mut *made;
            let before = types.entry((list, place)).or_default();
            match before.iter().find(|(decided, _)| decided.has_winners_of(known)) {
                Some((_, made)) => *instance_type = Arc::clone(made),
                None => {
                    self.correct(known, Arc::make_mut(instance_type), templates);
                    before.push((known.clone(), Arc::clone(instance_type)));
                }
            }
        }
        corrected
    }

    fn correct(
        &self,
        known: &OfType<'_>,
        instance_type: &mut InstanceType,
        templates: &mut BTreeMap<Vec<devices::Decision>, DynamicResources>,
    ) {
        for (offering, claimed) in instance_type.offerings.iter_mut().zip(&known.prices) {
            if let Some(change) = claimed.and_then(|claimed| claimed.winner.price) {
                offering.price = change.apply(offering.price);
            }
        }
        for (resource, claimed) in &known.capacity {
            let Some(amount) = claimed.winner.capacity.get(*resource) else { continue };
            instance_type.capacity.insert((*resource).to_owned(), *amount);
            // An offering that differs from its type does not differ from the overlay.
            for offering in &mut instance_type.offerings {
                if let Some(known) = offering.capacity_override.as_mut().and_then(|it| it.get_mut(*resource)) {
                    *known = *amount;
                }
            }
        }
        if known.devices.is_empty() {
            return;
        }
        let merged = |instance_type: &InstanceType| {
            let winners: BTreeMap<DriverName, &Overlay> =
                known.devices.iter().map(|(driver, claimed)| (driver.clone(), claimed.winner)).collect();
            let label = |key: &str| devices::certain_label(&self.pool, instance_type, key);
            devices::merged(&instance_type.dynamic_resources, &winners, &label)
        };
        instance_type.dynamic_resources = if instance_type.dynamic_resources.is_empty() {
            let decisions = known.devices.iter().map(|(driver, claimed)| claimed.decision(driver)).collect();
            templates.entry(decisions).or_insert_with(|| merged(instance_type)).clone()
        } else {
            merged(instance_type)
        };
    }
}

/// What the NodePool itself says about a label of its nodes.
fn value_of_pool<'a>(pool: &Pool<'a>, key: &str) -> Option<&'a str> {
    match key {
        api::labels::NODEPOOL => Some(pool.name.as_str()),
        key => pool.template_labels.get(key).map(String::as_str),
    }
}

#[cfg(test)]
mod tests;
