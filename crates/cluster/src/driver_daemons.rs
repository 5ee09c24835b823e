//! DaemonSets that run the drivers of described devices: whether their pods could run on the machines.
//!
//! Without a pod of its driver a machine never publishes the devices that pods were planned with. A NodeOverlay can
//! name the DaemonSet of a driver (`dynamicResources.drivers`); this says where none of its pods could run, by the
//! rules by which the planner counts what daemons take ([`scheduling::snapshot::daemons`]).
//!
//! Left out: what the overlay does not name, and drivers that only the cloud provider describes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use api::{DriverDaemonSet, DynamicResources, NodePool};
use cloudprovider::InstanceType;
use decode::Context;
use dra_types::DriverName;
use model::workload::DaemonSet;
use model::{Interner, NodeOverlayName};
use scheduling::catalogue::TypeId;
use scheduling::snapshot;
use scheduling::snapshot::daemons::kept_off;

use crate::node_pool::{Usage, node_pool};

/// The machines of a NodePool, as overlays leave them.
#[derive(Debug, Clone, Copy)]
pub struct Machines<'a> {
    /// The NodePool.
    pub node_pool: &'a NodePool,
    /// Its instance types.
    pub types: &'a [Arc<InstanceType>],
}

/// A driver for which an overlay in effect names a DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverPods {
    /// The overlay.
    pub overlay: NodeOverlayName,
    /// The driver.
    pub driver: DriverName,
    /// Why no pod of it could run on machines of some instance type; `None` if one could on all.
    pub problem: Option<Problem>,
}

/// Why a machine would have no pod of a driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The overlay names what is not there. Has what it names, in words.
    #[error("there is no {0}")]
    NotThere(String),
    /// The pods of every DaemonSet that it names are kept off.
    #[error("{0}")]
    KeptOff(KeptOff),
}

/// The first machines that no pod of a driver could run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptOff {
    /// The first DaemonSet, by name.
    daemon_set: String,
    /// The first NodePool.
    node_pool: String,
    /// The first instance type there.
    instance_type: String,
    /// Why, as the end of a sentence about the DaemonSet.
    why: String,
    /// On how many more instance types none could run, all NodePools together.
    more: usize,
}

impl fmt::Display for KeptOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { daemon_set, node_pool, instance_type, why, more } = self;
        write!(
            f,
            "no pod of daemonset/{daemon_set} can run on machines of instance type {instance_type} of \
             nodepool/{node_pool}: it {why}"
        )?;
        match more {
            0 => Ok(()),
            1 => f.write_str("; nor on those of 1 more type"),
            more => write!(f, "; nor on those of {more} more types"),
        }
    }
}

/// `nodeoverlay/o: spec.dynamicResources.drivers[gpu.example.com].daemonSet: there is no daemonset/gpu/driver`; empty
/// without a problem.
impl fmt::Display for DriverPods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(problem) = &self.problem else { return Ok(()) };
        let Self { overlay, driver, .. } = self;
        write!(f, "nodeoverlay/{overlay}: spec.dynamicResources.drivers[{driver}].daemonSet: {problem}")
    }
}

/// Looks at all machines for the drivers whose DaemonSets overlays name. Ordered by overlay and driver. NodePools that
/// cannot be resolved have no part.
pub fn look(machines: &[Machines<'_>], daemon_sets: &[Arc<DaemonSet>], context: &mut Context<'_>) -> Vec<DriverPods> {
    let mut by_name: Vec<&DaemonSet> = daemon_sets.iter().map(AsRef::as_ref).collect();
    by_name.sort_by(|a, b| a.name.cmp(&b.name));
    let mut found: BTreeMap<(NodeOverlayName, DriverName), Option<Problem>> = BTreeMap::new();
    for Machines { node_pool: object, types } in machines {
        let named: Vec<&InstanceType> =
            types.iter().map(AsRef::as_ref).filter(|it| named(&it.dynamic_resources).next().is_some()).collect();
        if named.is_empty() {
            continue;
        }
        let (catalogue, _) = crate::catalogue(named.iter().copied(), context);
        let Ok(pool) = node_pool(object, Ok(()), &Usage::default(), Arc::new(catalogue), context) else { continue };
        for (id, compiled) in pool.catalogue.types.iter_enumerated() {
            let Some(instance_type) = named.iter().find(|it| it.name == compiled.name) else { continue };
            for (overlay, driver, wanted) in self::named(&instance_type.dynamic_resources) {
                let known = found.entry((overlay.into(), driver.into())).or_default();
                let problem = problem((&pool, id), wanted, &by_name, context.interner);
                merge(known, problem);
            }
        }
    }
    let told = found.into_iter().map(|((overlay, driver), problem)| DriverPods { overlay, driver, problem });
    told.collect()
}

/// The first problem stays, and counts those after it.
fn merge(known: &mut Option<Problem>, problem: Option<Problem>) {
    match (known, problem) {
        (known @ None, problem) => *known = problem,
        (Some(Problem::KeptOff(first)), Some(Problem::KeptOff(_))) => first.more += 1,
        (Some(_), _) => {}
    }
}

/// The drivers with a DaemonSet: overlay, driver, DaemonSet. Templates of overlays bear the overlay's name.
fn named(resources: &DynamicResources) -> impl Iterator<Item = (&str, &str, &DriverDaemonSet)> {
    resources.drivers.iter().filter_map(|driver| {
        let wanted = driver.daemon_set.as_ref()?;
        let mut templates = resources.resource_slice_templates.iter();
        let template = templates.find(|template| template.spec.driver == driver.name)?;
        let (overlay, _) = template.metadata.name.split_once('/')?;
        Some((overlay, driver.name.as_str(), wanted))
    })
}

fn problem(
    (pool, instance_type): (&snapshot::NodePool, TypeId),
    wanted: &DriverDaemonSet,
    daemon_sets: &[&DaemonSet],
    names: &Interner,
) -> Option<Problem> {
    let mut first = None;
    for set in daemon_sets.iter().filter(|set| is_named(wanted, set, names)) {
        match kept_off(pool, instance_type, &set.template.shape, names) {
            None => return None,
            Some(why) => drop(first.get_or_insert((set, why))),
        }
    }
    Some(match first {
        None => Problem::NotThere(in_words(wanted)),
        Some((set, why)) => Problem::KeptOff(KeptOff {
            daemon_set: set.name.to_string(),
            node_pool: pool.name.to_string(),
            instance_type: pool.catalogue.types[instance_type].name.to_string(),
            why: why.message(names),
            more: 0,
        }),
    })
}

fn is_named(wanted: &DriverDaemonSet, set: &DaemonSet, names: &Interner) -> bool {
    let has = |(key, value): (&String, &String)| {
        let value = names.find_value(value);
        value.is_some() && names.find_key(key).and_then(|key| set.template.labels.get(key)) == value
    };
    wanted.namespace.as_ref().is_none_or(|namespace| **namespace == *set.name.namespace)
        && wanted.name.as_ref().is_none_or(|name| **name == *set.name.name)
        && wanted.match_labels.iter().all(has)
}

/// `daemonset/gpu-system/driver`, or `DaemonSet whose pods have app=driver in namespace gpu-system`.
fn in_words(wanted: &DriverDaemonSet) -> String {
    if let Some(name) = &wanted.name {
        return match &wanted.namespace {
            Some(namespace) => format!("daemonset/{namespace}/{name}"),
            None => format!("DaemonSet {name} in any namespace"),
        };
    }
    let labels: Vec<String> = wanted.match_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let namespace = wanted.namespace.as_ref().map(|it| format!(" in namespace {it}")).unwrap_or_default();
    format!("DaemonSet whose pods have {}{namespace}", labels.join(","))
}

#[cfg(test)]
mod tests;
