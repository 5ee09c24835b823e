//! Templates of pools that nodes of a domain share: which pools they make, for which machine and domain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Inventory;
use super::domains::{Domain, split};
use super::unit::{BinId, Instance};
use crate::compile::device::Slice;
use crate::compile::ids::{PoolIndex, ShapeId, SharedPoolId, SliceIndex};
use crate::compile::node_scope::{alike, is_complete};
use crate::faults::Fault;
use crate::machine::{LabelKnowledge, MachineShape, PoolScope, SharedTemplate};
use crate::tuning::MAX_DOMAINS;
use dra_types::{DriverName, NodeFacts, NodeScope, PoolName, ResourceSlice, SelectorError};
use model::{IdSet, IdVec};

/// A pool that a machine brings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Brought {
    pub(crate) pool: SharedPoolId,
    pub(crate) instance: Instance,
    /// Who can use it.
    pub(crate) scope: Arc<NodeScope>,
    /// What results call it; its real name is not known.
    pub(crate) name: PoolName,
}

impl Brought {
    /// Which pool of which template it is.
    pub(crate) fn key(&self) -> (SharedPoolId, Instance) {
        (self.pool, self.instance)
    }
}

/// A template, and what is known of the domains that machines could bring it to.
#[derive(Debug)]
pub(crate) struct SharedPool {
    pub(crate) template: Arc<SharedTemplate>,
    pub(crate) slices: Vec<SliceIndex>,
    /// Of a template that makes one pool for each domain.
    domains: BTreeMap<Domain, DomainPool>,
}

/// The single pool of a domain.
#[derive(Debug)]
struct DomainPool {
    instance: Instance,
    /// It is published and complete, so no template is needed.
    live: bool,
    /// It is being published.
    incomplete: Vec<PoolIndex>,
}

/// Numbers the pools that templates make for domains, and finds out which of them are published.
pub(super) fn pools(
    templates: &IdVec<SharedPoolId, (Arc<SharedTemplate>, Vec<SliceIndex>)>,
    machines: &IdVec<ShapeId, MachineShape>,
    published: &[(PoolIndex, Vec<&Slice>)],
) -> IdVec<SharedPoolId, SharedPool> {
    // A driver, a suffix and a scope name one pool, whichever templates describe it.
    let mut known: Vec<(&DriverName, &PoolName, NodeScope)> = Vec::new();
    let mut pools = IdVec::with_capacity(templates.len());
    for (id, (template, slices)) in templates.iter_enumerated() {
        let mut domains = BTreeMap::new();
        if template.scope == PoolScope::Domain {
            let shapes = machines.iter().filter(|machine| machine.pools.contains(&id));
            for domain in shapes.flat_map(|machine| domains_of(template, machine)) {
                let scope = template.nodes.scope(&domain.0);
                domains.entry(domain).or_insert_with(|| {
                    let (driver, suffix) = (&template.template.driver, &template.template.pool_suffix);
                    let same = |(of, with, it): &(&DriverName, &PoolName, NodeScope)| {
                        *of == driver && *with == suffix && alike(it, &scope)
                    };
                    let number = known.iter().position(same).unwrap_or_else(|| {
                        known.push((driver, suffix, scope.clone()));
                        known.len() - 1
                    }) + 1;
                    let same = |slices: &[&Slice]| {
                        let reaches =
                            |slice: &&Slice| slice.slice.node_scope.as_ref().is_some_and(|it| alike(it, &scope));
                        slices.iter().any(|slice| slice.slice.driver == template.template.driver && reaches(slice))
                    };
                    let of_domain = published.iter().filter(|(_, slices)| same(slices));
                    let (complete, incomplete): (Vec<_>, Vec<_>) =
                        of_domain.partition(|(_, slices)| is_complete(&of_pool(slices)));
                    DomainPool {
                        instance: Instance::of_domain(number),
                        live: !complete.is_empty(),
                        incomplete: incomplete.iter().map(|(pool, _)| *pool).collect(),
                    }
                });
            }
        }
        pools.push(SharedPool { template: Arc::clone(template), slices: slices.clone(), domains });
    }
    pools
}

/// The domains that machines of a shape can bring a pool to.
fn domains_of(template: &SharedTemplate, machine: &MachineShape) -> Vec<Domain> {
    let mut domains = vec![Domain::default()];
    for key in &template.nodes.match_label_keys {
        domains = match machine.labels.get(key) {
            Some(LabelKnowledge::Known(value)) => split(&domains, key, [value]),
            Some(LabelKnowledge::OneOf(values)) => split(&domains, key, values),
            None => return Vec::new(),
        };
    }
    domains
}

fn of_pool<'s>(slices: &[&'s Slice]) -> Vec<&'s ResourceSlice> {
    slices.iter().map(|slice| &*slice.slice).collect()
}

impl Inventory {
    /// Whether machines of a shape bring pools for others.
    pub fn brings_pools(&self, shape: ShapeId) -> bool {
        !self.machines[shape].pools.is_empty()
    }

    /// The domains for which machines of these shapes may bring a pool; `None` if there are more than are looked at.
    pub(crate) fn domains_of_machines(&self, pool: SharedPoolId, shapes: &IdSet<ShapeId>) -> Option<BTreeSet<Domain>> {
        let template = &self.shared_pools[pool].template;
        let mut all = BTreeSet::new();
        for machine in shapes.iter().map(|shape| &self.machines[shape]).filter(|it| it.pools.contains(&pool)) {
            let domains = domains_of(template, machine);
            if domains.len() >= MAX_DOMAINS {
                return None;
            }
            all.extend(domains);
        }
        Some(all)
    }

    /// The labels that decide for whom machines of a shape bring pools of these drivers.
    pub fn keys_of_brought(&self, shape: ShapeId, drivers: &BTreeSet<DriverName>) -> BTreeSet<Arc<str>> {
        let shared = self.machines[shape].shared.iter().filter(|shared| drivers.contains(&shared.template.driver));
        shared.flat_map(|shared| shared.nodes.match_label_keys.iter().cloned()).collect()
    }

    /// Whether machines of two shapes bring the same pools of these drivers.
    pub fn bring_alike(&self, a: ShapeId, b: ShapeId, drivers: &BTreeSet<DriverName>) -> bool {
        let brought = |shape: ShapeId| {
            let of_drivers =
                |pool: &&SharedPoolId| drivers.contains(&self.shared_pools[**pool].template.template.driver);
            self.machines[shape].pools.iter().filter(of_drivers).collect::<BTreeSet<_>>()
        };
        a == b || brought(a) == brought(b)
    }

    /// The pools that a machine of a shape certainly brings, as far as its labels are pinned.
    pub(crate) fn brought_by(&self, shape: ShapeId, pinned: &Domain, host: BinId) -> Vec<Brought> {
        if self.machines[shape].pools.is_empty() {
            return Vec::new();
        }
        let facts = self.facts(shape, pinned, &Domain::default());
        self.machines[shape].pools.iter().filter_map(|pool| self.brought(*pool, &facts, host)).collect()
    }

    /// The pools that a machine would see if it landed where it has these labels: `others`, and those that it brings
    /// itself.
    pub(crate) fn with_own_pools(
        &self,
        others: Vec<Brought>,
        shape: ShapeId,
        facts: &NodeFacts,
        host: BinId,
    ) -> Result<Vec<Brought>, Fault> {
        let mut seen = others;
        for &pool in &self.machines[shape].pools {
            let Some(brought) = self.brought(pool, facts, host) else { continue };
            let is_known = |other: &Brought| {
                let is_one = self.shared_pools[pool].template.scope == PoolScope::Domain || other.pool == pool;
                is_one && other.instance == brought.instance
            };
            if !seen.iter().any(is_known)
                && facts.is_in(&brought.scope).map_err(|error| self.shared_fault(pool, error))?
            {
                seen.push(brought);
            }
        }
        Ok(seen)
    }

    /// The fault for an invalid node selector in a shared template.
    pub(crate) fn shared_fault(&self, pool: SharedPoolId, error: SelectorError) -> Fault {
        let pool = self.shared_pools[pool].slices.first().map(|slice| self.slices[*slice].slice.pool_id());
        Fault::NodeSelector { pool: pool.expect("every template makes a slice"), error }
    }

    /// The pool that a template makes for a machine with these labels.
    fn brought(&self, pool: SharedPoolId, facts: &NodeFacts, host: BinId) -> Option<Brought> {
        let SharedPool { template, domains, .. } = &self.shared_pools[pool];
        let domain = Domain(template.nodes.domain(&facts.labels)?);
        let (instance, mut name) = match template.scope {
            PoolScope::Machine => (Instance::of_bin(host), host.pool_name()),
            PoolScope::Domain => {
                let known = domains.get(&domain).filter(|known| !known.live)?;
                let values: Vec<&str> = domain.0.values().map(|value| &**value).collect();
                (known.instance, format!("domain-{}", values.join("-")))
            }
        };
        let suffix = template.template.pool_suffix.as_str();
        if !suffix.is_empty() {
            name = format!("{name}-{suffix}");
        }
        let scope = Arc::new(template.nodes.scope(&domain.0));
        Some(Brought { pool, instance, scope, name: name.as_str().into() })
    }

    /// The single pools of domains that machines could be in and for which none is published: the template, the pool's
    /// number among those of its driver, and who can use it. Several templates may describe one pool differently.
    pub(crate) fn pools_of_domains(&self) -> impl Iterator<Item = (&SharedPool, Instance, NodeScope)> {
        self.shared_pools.iter().flat_map(|shared| {
            let to_come = shared.domains.iter().filter(|(_, pool)| !pool.live);
            to_come.map(move |(domain, pool)| (shared, pool.instance, shared.template.nodes.scope(&domain.0)))
        })
    }

    /// Whether a published pool is still incomplete, so that this template describes it until it is complete.
    pub(crate) fn is_described_by(&self, pool: PoolIndex, brought: &Brought) -> bool {
        let mut domains = self.shared_pools[brought.pool].domains.values();
        domains.any(|known| known.instance == brought.instance && known.incomplete.contains(&pool))
    }

    /// The slices of shared templates whose pool no machine brings, because every machine lacks a label that says for
    /// whom.
    pub(crate) fn slices_for_nobody(&self) -> BTreeSet<SliceIndex> {
        let is_brought = |id: SharedPoolId, pool: &SharedPool| {
            let mut keys = pool.template.nodes.match_label_keys.iter();
            let shapes = || self.machines.iter().filter(|machine| machine.pools.contains(&id));
            keys.all(|key| shapes().any(|machine| machine.labels.contains_key(key)))
        };
        let for_nobody = self.shared_pools.iter_enumerated().filter(|(id, pool)| !is_brought(*id, pool));
        for_nobody.flat_map(|(_, pool)| pool.slices.iter().copied()).collect()
    }

    /// The slices of templates of pools that machines bring for others, and how many of the pool there are.
    pub(crate) fn scopes_for_domains(&self) -> BTreeMap<SliceIndex, PoolScope> {
        let of_pool = |pool: &SharedPool| {
            let scope = pool.template.scope;
            pool.slices.iter().map(move |slice| (*slice, scope)).collect::<Vec<_>>()
        };
        self.shared_pools.iter().flat_map(of_pool).collect()
    }

    /// The slices of templates of pools that machines bring for others.
    pub(crate) fn slices_for_domains(&self) -> BTreeSet<SliceIndex> {
        self.scopes_for_domains().into_keys().collect()
    }
}
