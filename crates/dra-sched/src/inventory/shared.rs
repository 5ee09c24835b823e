//! Templates of pools that nodes of a domain share: which pools they make, for which machine and domain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{DeviceIndex, Inventory, PoolIndex, ShapeId, SharedPoolId, Slice, SliceIndex};
use crate::ledger::{BinId, Brought, ClusterLedger, Domain, Instance, Unit, Usage};
use crate::machine::{LabelKnowledge, MachineShape, PoolScope, SharedTemplate};
use crate::packing::shared_pool_name;
use crate::tuning::MAX_DOMAINS;
use crate::verdict::Fault;
use dra_types::{
    AllocationResult, DriverName, NodeFacts, NodeScope, NodeSelector, NodeSelectorRequirement, PoolName, ResourceSlice,
    SelectorError,
};
use model::IdVec;
use smallvec::SmallVec;

/// A template, and what is known of the domains that machines could bring it to.
#[derive(Debug)]
pub(crate) struct SharedPool {
    pub(crate) template: Arc<SharedTemplate>,
    pub(crate) slices: Vec<SliceIndex>,
    /// Of a template that makes one pool for each domain.
    domains: BTreeMap<Domain, DomainPool>,
}

/// The one pool of a domain.
#[derive(Debug)]
struct DomainPool {
    instance: Instance,
    /// It is published and complete, so that it needs no template.
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
    // There is one pool for a driver, a suffix and a scope, whichever templates describe it.
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
        let values: Vec<&Arc<str>> = match machine.labels.get(key) {
            Some(LabelKnowledge::Known(value)) => vec![value],
            Some(LabelKnowledge::OneOf(values)) => values.iter().collect(),
            None => return Vec::new(),
        };
        let with = |domain: &Domain, value: &&Arc<str>| {
            let mut domain = domain.clone();
            domain.0.insert(Arc::clone(key), Arc::clone(value));
            domain
        };
        domains = domains.iter().flat_map(|domain| values.iter().map(|value| with(domain, value))).collect();
        domains.truncate(MAX_DOMAINS);
    }
    domains
}

fn of_pool<'s>(slices: &[&'s Slice]) -> Vec<&'s ResourceSlice> {
    slices.iter().map(|slice| &*slice.slice).collect()
}

/// Whether the newest generation of a pool is there as a whole.
pub(crate) fn is_complete(slices: &[&ResourceSlice]) -> bool {
    let newest = slices.iter().map(|slice| slice.pool.generation).max();
    let mut of_newest = slices.iter().filter(|slice| Some(slice.pool.generation) == newest);
    let expected = of_newest.next().map_or(0, |slice| slice.pool.resource_slice_count);
    usize::try_from(expected) == Ok(of_newest.count() + 1)
}

/// Whether two scopes hold the same nodes, as far as their texts say: requirements and values in any order.
pub(crate) fn alike(a: &NodeScope, b: &NodeScope) -> bool {
    match (a, b) {
        (NodeScope::Selector(a), NodeScope::Selector(b)) => is_same_selector(a, b),
        _ => a == b,
    }
}

fn is_same_selector(a: &NodeSelector, b: &NodeSelector) -> bool {
    let normal = |requirements: &[NodeSelectorRequirement]| {
        let one = |requirement: &NodeSelectorRequirement| {
            let mut values = requirement.values.clone();
            values.sort_unstable();
            values.dedup();
            (Arc::clone(&requirement.key), requirement.operator.as_str().to_owned(), values)
        };
        let mut all: Vec<_> = requirements.iter().map(one).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    match (a.terms.as_slice(), b.terms.as_slice()) {
        ([a], [b]) => {
            normal(&a.match_expressions) == normal(&b.match_expressions)
                && normal(&a.match_fields) == normal(&b.match_fields)
        }
        _ => a == b,
    }
}

impl Inventory {
    /// Whether machines of a shape bring pools for others.
    pub fn brings_pools(&self, shape: ShapeId) -> bool {
        !self.machines[shape].pools.is_empty()
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

    /// The pools that a machine would see if it landed where it has these labels: those that it brings itself and those
    /// of others.
    pub(crate) fn seen_by(
        &self,
        shape: ShapeId,
        facts: &NodeFacts,
        host: BinId,
        cluster: &ClusterLedger,
    ) -> Result<Vec<Brought>, Fault> {
        let mut seen = self.brought_to(facts, cluster)?;
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

    /// The pools of planned machines that a node can use.
    pub(crate) fn brought_to(&self, facts: &NodeFacts, cluster: &ClusterLedger) -> Result<Vec<Brought>, Fault> {
        cluster.offered().reaching(facts).map_err(|(pool, error)| self.shared_fault(pool, error))
    }

    fn shared_fault(&self, pool: SharedPoolId, error: SelectorError) -> Fault {
        let pool = self.shared_pools[pool].slices.first().map(|slice| self.slices[*slice].slice.pool_id());
        Fault::NodeSelector { pool: pool.expect("every template makes a slice"), error }
    }

    /// The pool that a template makes for a machine with these labels.
    fn brought(&self, pool: SharedPoolId, facts: &NodeFacts, host: BinId) -> Option<Brought> {
        let SharedPool { template, domains, .. } = &self.shared_pools[pool];
        let domain = Domain(template.nodes.domain(&facts.labels)?);
        let (instance, mut name) = match template.scope {
            PoolScope::Machine => (Instance::of_bin(host), shared_pool_name(host)),
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

    /// The one pool of each domain that machines could be in and where none is published: the template, which of the
    /// pools of its driver it is, and who can use it. Templates may describe one pool differently.
    pub(crate) fn pools_of_domains(&self) -> impl Iterator<Item = (&SharedPool, Instance, NodeScope)> {
        self.shared_pools.iter().flat_map(|shared| {
            let to_come = shared.domains.iter().filter(|(_, pool)| !pool.live);
            to_come.map(move |(domain, pool)| (shared, pool.instance, shared.template.nodes.scope(&domain.0)))
        })
    }

    /// What stands for an allocated device as long as its domain's pool is not published, or not whole, and templates
    /// say what is there: the device of its name, else the first of its kind of which nothing is taken; by each
    /// description of the pool.
    ///
    /// Left out: claims that are tied to one node by another of their devices, and pools of which each machine brings
    /// one.
    pub(crate) fn stand_ins(
        &self,
        result: &AllocationResult,
        nodes: Option<&NodeSelector>,
        taken: &Usage,
    ) -> SmallVec<[Unit; 1]> {
        let device = &result.device;
        let is_for = |scope: &NodeScope| match (nodes, scope) {
            (None, scope) => *scope == NodeScope::AllNodes,
            (Some(nodes), NodeScope::Selector(selector)) => is_same_selector(nodes, selector),
            (Some(_), NodeScope::Node(_) | NodeScope::AllNodes | NodeScope::PerDevice) => false,
        };
        let described = self.pools_of_domains().filter(|(shared, ..)| shared.template.template.driver == device.driver);
        let described: Vec<(&SharedPool, Instance)> =
            described.filter(|(.., scope)| is_for(scope)).map(|(shared, instance, _)| (shared, instance)).collect();
        let named = |(shared, _): &(&SharedPool, Instance)| {
            shared.template.template.devices.iter().any(|other| other.name == device.device)
        };
        let Some(&(_, instance)) = described.iter().find(|pool| named(pool)).or(described.first()) else {
            return SmallVec::new();
        };
        let stand_in = |shared: &SharedPool| {
            let devices = || shared.slices.iter().flat_map(|slice| self.devices_of(*slice));
            let is_it = |index: &DeviceIndex| self.device(*index).name == device.device;
            let unit = |index: DeviceIndex| Unit::new(self.devices[index].key, instance);
            let is_free = |index: &DeviceIndex| {
                let unit = unit(*index);
                let is_shared = self.device(*index).allow_multiple_allocations;
                !taken.dedicated.contains(&unit)
                    && !taken.shares.contains_key(&unit)
                    && is_shared == result.share_id.is_some()
            };
            devices().find(is_it).or_else(|| devices().find(is_free)).map(unit)
        };
        let of_instance = described.iter().filter(|(_, of)| *of == instance);
        of_instance.filter_map(|(shared, _)| stand_in(shared)).collect()
    }

    /// Whether a published pool is still incomplete and is what a template describes until then.
    pub(crate) fn is_described_by(&self, pool: PoolIndex, brought: &Brought) -> bool {
        let mut domains = self.shared_pools[brought.pool].domains.values();
        domains.any(|known| known.instance == brought.instance && known.incomplete.contains(&pool))
    }
}
