//! From a NodePool object to the pool that the planner chooses from.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{NodePool, conditions, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use model::{NamespacedName, Quantity, Requirements, ResourceVec};
use scheduling::catalogue::Catalogue;
use scheduling::snapshot::{self, Limit, LimitRemaining, MinValuesPolicy};

use decode::Context;
use decode::resource_list::set;
use decode::{ObjectError, ObjectRef, Problem};
use decode::{requirements, taints};

/// The limit that counts nodes.
const NODES: &str = "nodes";

/// The summed capacity and number of a pool's machines, for its limits.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    /// Summed capacity.
    pub capacity: ResourceVec,
    /// How many.
    pub nodes: i64,
}

/// Resolves a NodePool: labels become requirements, limits what is left of them.
///
/// `usable` says whether it may launch; a pool that is static or being deleted never may.
pub fn node_pool(
    object: &NodePool,
    usable: Result<(), Arc<str>>,
    usage: &Usage,
    catalogue: Arc<Catalogue>,
    context: &mut Context<'_>,
) -> Result<snapshot::NodePool, ObjectError> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let decoded = decode(object, name, usable, usage, catalogue, context);
    decoded.map_err(|problem| ObjectError {
        object: ObjectRef { kind: "NodePool".into(), name: NamespacedName::new("", name) },
        problem,
    })
}

/// The condition `Ready`, if there is one.
pub fn ready_condition(pool: &NodePool) -> Option<&Condition> {
    pool.status.iter().flat_map(|status| &status.conditions).find(|it| it.type_ == conditions::READY)
}

/// Whether a controller has checked the NodePool yet.
pub fn is_judged(pool: &NodePool) -> bool {
    ready_condition(pool).is_some()
}

/// Whether the NodePool's condition `Ready` is true; if not, its reason and message.
pub fn readiness(pool: &NodePool) -> Result<(), Arc<str>> {
    match ready_condition(pool) {
        Some(ready) if ready.status == conditions::TRUE => Ok(()),
        Some(ready) => Err(format!("is not ready: {} {}", ready.reason, ready.message).trim_end().into()),
        None => Err("is not ready: it has not been looked into yet".into()),
    }
}

/// Why a NodePool's own requirements leave nothing of a catalogue to launch, for its event; `None` if they leave some,
/// or if it cannot be resolved.
pub fn nothing_to_launch(
    object: &NodePool,
    catalogue: &Catalogue,
    min_values: MinValuesPolicy,
    context: &mut Context<'_>,
) -> Option<String> {
    let pool = node_pool(object, Ok(()), &Usage::default(), Arc::default(), context).ok()?;
    let names = &*context.interner;
    let allowed: Vec<_> = catalogue.offerings.iter().filter(|offering| pool.allows(offering, names)).collect();
    let types = catalogue.types.len();
    if allowed.is_empty() {
        return Some(format!("the requirements exclude all {types} instance types of the provider"));
    }
    if !allowed.iter().any(|offering| offering.launchable()) {
        return Some(format!(
            "of {types} instance types the requirements allow some, but none of these has a launchable offering now"
        ));
    }
    if min_values == MinValuesPolicy::BestEffort {
        return None;
    }
    pool.requirements.iter_by_name(names).find_map(|requirement| {
        let wanted = usize::try_from(requirement.min_values?).unwrap_or(usize::MAX);
        let offered = allowed.iter().filter(|offering| offering.launchable());
        let values: BTreeSet<_> = offered
            .filter_map(|offering| offering.requirements.get(requirement.key)?.values.finite_values())
            .flatten()
            .filter(|value| requirement.values.contains(Some(**value), names))
            .collect();
        (values.len() < wanted).then(|| {
            format!(
                "minValues of {} wants {wanted} values, the instance types that the requirements allow have {}",
                names.key_name(requirement.key),
                values.len()
            )
        })
    })
}

/// A NodePool that cannot be resolved, so that pods without a place can say why it is not used.
pub(crate) fn refused(object: &NodePool, error: &ObjectError) -> snapshot::NodePool {
    snapshot::NodePool {
        name: object.metadata.name.as_deref().unwrap_or_default().into(),
        weight: object.spec.weight.unwrap_or(0),
        usable: Err(format!("is refused: {}", error.problem).into()),
        requirements: Requirements::new(),
        planning_only: Vec::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        remaining: Vec::new(),
        catalogue: Arc::default(),
        observed_room: Vec::new(),
    }
}

fn decode(
    object: &NodePool,
    name: &str,
    usable: Result<(), Arc<str>>,
    usage: &Usage,
    catalogue: Arc<Catalogue>,
    context: &mut Context<'_>,
) -> Result<snapshot::NodePool, Problem> {
    let template = &object.spec.template;
    let mut all = requirements::requirements(&template.spec.requirements, "spec.template.spec.requirements", context)?;
    all.intersect(&requirements::labels(&template.metadata.labels, context), context.interner);
    let class = &template.spec.node_class_ref;
    let planning_only = [labels::REGISTERED, labels::INITIALIZED];
    let own = [(labels::NODEPOOL.to_owned(), name), (labels::node_class(&class.group, &class.kind), &class.name)];
    let own = own.into_iter().chain(planning_only.map(|key| (key.to_owned(), labels::TRUE)));
    for (key, value) in own {
        let requirement = requirements::exactly(&key, value, context);
        all.insert_intersect(requirement, context.interner);
    }
    Ok(snapshot::NodePool {
        name: name.into(),
        weight: object.spec.weight.unwrap_or(0),
        usable: if object.metadata.deletion_timestamp.is_some() {
            Err("is being deleted".into())
        } else if object.spec.replicas.is_some() {
            Err("has a fixed number of replicas and launches nothing for pods".into())
        } else {
            usable
        },
        requirements: all,
        planning_only: planning_only.into_iter().map(|key| context.key(key)).collect(),
        taints: taints::taints(&template.spec.taints, "spec.template.spec.taints", context)?,
        startup_taints: taints::taints(&template.spec.startup_taints, "spec.template.spec.startupTaints", context)?,
        remaining: remaining(object, usage, context)?,
        catalogue,
        observed_room: Vec::new(),
    })
}

fn remaining(object: &NodePool, usage: &Usage, context: &mut Context<'_>) -> Result<Vec<LimitRemaining>, Problem> {
    let mut remaining = Vec::new();
    for (name, amount) in object.spec.limits.iter().flatten() {
        let problem = |reason| Problem { field: format!("spec.limits[{name}]"), reason };
        let amount = Quantity::parse(&amount.0).map_err(|error| problem(error.into()))?;
        let mut total = ResourceVec::new();
        set(&mut total, name, &amount, context.interner).map_err(problem)?;
        let resource = context.interner.resource(name);
        let (limit, used) = if name == NODES {
            (Limit::Nodes, usage.nodes)
        } else {
            (Limit::Resource(resource), usage.capacity.get(resource))
        };
        let total = total.get(resource);
        remaining.push(LimitRemaining { limit, total, remaining: total.saturating_sub(used) });
    }
    Ok(remaining)
}
