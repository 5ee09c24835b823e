//! All overlays against the instance types of all NodePools.
//!
//! Overlays are taken by weight, highest first, then by name, last first; for each price and each resource the first that
//! says something wins. Two of equal weight that say something about the same price or resource conflict: the later one
//! is rejected whole. NodePools between which no overlay can tell are evaluated once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use cloudprovider::InstanceType;
use model::{InstanceTypeName, NodeOverlayName, NodePoolName};
use thiserror::Error as ThisError;

use crate::Overlay;

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
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Price => f.write_str("the price"),
            Self::Capacity(resource) => write!(f, "the amount of {resource}"),
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

/// The instance types of one NodePool as overlays leave them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Corrected {
    /// In the order of the provider's. What no overlay touches is the provider's own.
    pub types: Vec<Arc<InstanceType>>,
    /// Those with another price.
    pub with_price: BTreeSet<InstanceTypeName>,
    /// Those with other capacity.
    pub with_capacity: BTreeSet<InstanceTypeName>,
}

impl Corrected {
    /// Whether no overlay touches any of them.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.with_price.is_empty() && self.with_capacity.is_empty()
    }
}

/// What came of all overlays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evaluation {
    /// The overlays that were rejected; all others are in effect.
    pub conflicts: BTreeMap<NodeOverlayName, Conflict>,
    /// One for each NodePool, in the order given. Equal ones are shared.
    pub pools: Vec<Arc<Corrected>>,
}

/// Applies overlays, in any order, to NodePools.
#[must_use]
pub fn evaluate(overlays: &[Overlay], pools: &[Pool<'_>]) -> Evaluation {
    let mut overlays: Vec<&Overlay> = overlays.iter().collect();
    overlays.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| b.name.cmp(&a.name)));
    let (mut classes, class_of_pool) = Class::of_pools(&overlays, pools);
    let mut conflicts = BTreeMap::new();
    for overlay in overlays {
        let found: Vec<Matches> = classes.iter().map(|class| matches(overlay, &class.pool)).collect();
        let conflict = classes.iter().zip(&found).find_map(|(class, found)| class.conflict(overlay, found));
        match conflict {
            Some(conflict) => {
                conflicts.insert(overlay.name.clone(), conflict);
            }
            None => {
                for (class, found) in classes.iter_mut().zip(found) {
                    class.register(overlay, found);
                }
            }
        }
    }
    let corrected: Vec<Arc<Corrected>> = classes.iter().map(|class| Arc::new(class.corrected())).collect();
    let pools = class_of_pool.into_iter().filter_map(|class| corrected.get(class).cloned()).collect();
    Evaluation { conflicts, pools }
}

/// For each instance type that matches, by its place, the places of its offerings that do.
type Matches = Vec<(usize, Vec<usize>)>;

/// NodePools between which no overlay can tell.
struct Class<'a> {
    /// The first of them.
    pool: Pool<'a>,
    /// By type and offering.
    prices: BTreeMap<(usize, usize), Claimed<'a>>,
    /// By type and resource.
    capacity: BTreeMap<(usize, &'a str), Claimed<'a>>,
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
        let keys: BTreeSet<&str> = overlays.iter().flat_map(|overlay| overlay.requirements.keys()).collect();
        let mut places = BTreeMap::new();
        let mut classes = Vec::new();
        let class_of_pool = pools
            .iter()
            .map(|pool| {
                let values: Vec<Option<&str>> = keys.iter().map(|key| value_of_pool(pool, key)).collect();
                let types = (pool.types.as_ptr().addr(), pool.types.len());
                *places.entry((types, values)).or_insert_with(|| {
                    classes.push(Self { pool: *pool, prices: BTreeMap::new(), capacity: BTreeMap::new() });
                    classes.len() - 1
                })
            })
            .collect();
        (classes, class_of_pool)
    }

    fn conflict(&self, overlay: &Overlay, found: &Matches) -> Option<Conflict> {
        found.iter().find_map(|(instance_type, offerings)| {
            let prices = offerings.iter().filter(|_| overlay.price.is_some());
            let of_price = prices.map(|offering| (Field::Price, self.prices.get(&(*instance_type, *offering))));
            let of_capacity = overlay.capacity.keys().map(|resource| {
                (Field::Capacity(resource.clone()), self.capacity.get(&(*instance_type, resource.as_str())))
            });
            let (field, other) = of_price.chain(of_capacity).find_map(|(field, claimed)| {
                Some((field, claimed?.last)).filter(|(_, it)| it.weight == overlay.weight)
            })?;
            Some(Conflict {
                other: other.name.clone(),
                field,
                node_pool: self.pool.name.clone(),
                instance_type: self.pool.types.get(*instance_type)?.name.clone(),
            })
        })
    }

    fn register(&mut self, overlay: &'a Overlay, found: Matches) {
        let claimed = Claimed { winner: overlay, last: overlay };
        for (instance_type, offerings) in found {
            for offering in offerings.into_iter().filter(|_| overlay.price.is_some()) {
                self.prices.entry((instance_type, offering)).or_insert(claimed).last = overlay;
            }
            for resource in overlay.capacity.keys() {
                self.capacity.entry((instance_type, resource)).or_insert(claimed).last = overlay;
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

fn matches(overlay: &Overlay, pool: &Pool<'_>) -> Matches {
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
