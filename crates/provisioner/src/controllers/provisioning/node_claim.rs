//! From a planned machine to the NodeClaim that is created for it.
//!
//! The claim keeps every type, zone and capacity type that would do; the provider takes the cheapest that it has.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use api::node_claim::ResourceRequirements;
use api::{
    NodeClaim, NodeClaimSpec, NodePool, NodeSelectorRequirementWithMinValues, Operator as ApiOperator, annotations,
    finalizers, labels,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use model::collections::NameMap;
use model::{DurationMs, Interner, Operator, Requirements, Uid};
use scheduling::plan::Machine;
use scheduling::snapshot::{self, Snapshot};

use crate::world::overlays::Outcome;
use crate::world::planned_pods;

/// The API server's alphabet for generated names: no vowels, nothing that looks like something else.
const NAME_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const NAME_SUFFIX_LEN: usize = 5;
/// What a generated name may begin with at most.
const NAME_PREFIX_LEN: usize = 58;

/// What can keep a NodeClaim from being written down.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The NodePool's template cannot be hashed.
    #[error("nodepool {node_pool}: {error}")]
    Hash {
        /// Which.
        node_pool: String,
        /// Why.
        error: api::duration::Error,
    },
}

/// The NodeClaim for a planned machine, without a name.
///
/// # Errors
/// If the NodePool's template has a duration that is none, which admission refuses.
pub(super) fn node_claim(
    snapshot: &Snapshot,
    machine: &Machine,
    node_pool: &NodePool,
    default_termination_grace_period: Option<DurationMs>,
) -> Result<NodeClaim, Error> {
    let pool_name = node_pool.metadata.name.clone().unwrap_or_default();
    let template = &node_pool.spec.template;
    let hash = cluster::node_pool_hash::hash(node_pool)
        .map_err(|error| Error::Hash { node_pool: pool_name.clone(), error })?;
    let spec = NodeClaimSpec {
        taints: template.spec.taints.clone(),
        startup_taints: template.spec.startup_taints.clone(),
        requirements: requirements(snapshot, machine),
        resources: ResourceRequirements { requests: requests(snapshot, machine) },
        node_class_ref: template.spec.node_class_ref.clone(),
        termination_grace_period: template
            .spec
            .termination_grace_period
            .clone()
            .or_else(|| default_termination_grace_period.map(|span| api::DurationString(span.to_string()))),
        expire_after: template.spec.expire_after.clone(),
    };
    let mut claim = NodeClaim::new("", spec);
    claim.metadata.name = None;
    claim.metadata.generate_name = Some(format!("{pool_name}-"));
    claim.metadata.labels = Some(claim_labels(snapshot, machine, node_pool));
    claim.metadata.annotations = Some(claim_annotations(snapshot, machine, node_pool, hash));
    // Karpenter's gets it once the NodeClaim is looked at; with it from the start that is one write less.
    claim.metadata.finalizers = Some(vec![finalizers::TERMINATION.to_owned()]);
    claim.metadata.owner_references =
        Some(vec![OwnerReference { block_owner_deletion: Some(true), controller: None, ..owner(node_pool) }]);
    Ok(claim)
}

/// A name as the API server would generate it for this claim. We make it ourselves, so that a request whose answer was
/// lost can be repeated without a second machine: the name is taken then.
pub(super) fn random_name(claim: &NodeClaim) -> String {
    let prefix = claim.metadata.generate_name.as_deref().unwrap_or_default();
    let prefix: String = prefix.chars().take(NAME_PREFIX_LEN).collect();
    // The standard library seeds each state differently.
    let mut random = RandomState::new().hash_one(prefix.as_str());
    let mut name = prefix;
    for _ in 0..NAME_SUFFIX_LEN {
        let letters = NAME_ALPHABET.len() as u64;
        let index = usize::try_from(random % letters).unwrap_or(0);
        name.extend(NAME_ALPHABET.get(index).copied().map(char::from));
        random /= letters;
    }
    name
}

fn owner(node_pool: &NodePool) -> OwnerReference {
    OwnerReference {
        api_version: NodePool::api_version(&()).into_owned(),
        kind: NodePool::kind(&()).into_owned(),
        name: node_pool.metadata.name.clone().unwrap_or_default(),
        uid: node_pool.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

fn claim_labels(snapshot: &Snapshot, machine: &Machine, node_pool: &NodePool) -> BTreeMap<String, String> {
    let class = &node_pool.spec.template.spec.node_class_ref;
    let mut all = node_pool.spec.template.metadata.labels.clone();
    all.insert(labels::NODEPOOL.to_owned(), node_pool.metadata.name.clone().unwrap_or_default());
    all.insert(labels::node_class(&class.group, &class.kind), class.name.clone());
    for (key, value) in &machine.labels {
        all.entry(snapshot.interner.key_name(*key).to_owned()).or_insert_with(|| value.to_string());
    }
    all
}

fn claim_annotations(
    snapshot: &Snapshot,
    machine: &Machine,
    node_pool: &NodePool,
    hash: String,
) -> BTreeMap<String, String> {
    let mut all = node_pool.spec.template.metadata.annotations.clone();
    all.insert(annotations::NODEPOOL_HASH.to_owned(), hash);
    all.insert(annotations::NODEPOOL_HASH_VERSION.to_owned(), annotations::NODEPOOL_HASH_VERSION_VALUE.to_owned());
    let relaxed = if machine.min_values_relaxed { annotations::TRUE } else { annotations::FALSE };
    all.insert(annotations::NODECLAIM_MIN_VALUES_RELAXED.to_owned(), relaxed.to_owned());
    // By name, as the machine has them. Empty where nothing is wanted: then Karpenter writes none.
    let drivers: Vec<&str> =
        machine.devices.iter().filter(|(_, count)| *count > 0).map(|(driver, _)| driver.as_ref()).collect();
    if !drivers.is_empty() {
        all.insert(annotations::REQUESTED_DRA_DRIVERS.to_owned(), drivers.join(","));
    }
    if let Some(value) = planned_pods::encode(&pod_uids(snapshot, machine), &NameMap::default()) {
        all.insert(planned_pods::ANNOTATION.to_owned(), value);
    }
    all
}

/// Notes on a planned claim for which classes of pods it is launched.
pub(super) fn note_classes(claim: &mut NodeClaim, classes: Option<&String>) {
    let noted = classes.map(|classes| (annotations::LAUNCHED_FOR.to_owned(), classes.clone()));
    claim.metadata.annotations.get_or_insert_default().extend(noted);
}

/// Notes on a planned claim which of its pods are to be bound after others.
pub(super) fn note_stages(claim: &mut NodeClaim, pods: &[Uid], stages: &NameMap<Uid, u32>) {
    if pods.iter().any(|pod| stages.contains_key(pod)) {
        let all = claim.metadata.annotations.get_or_insert_default();
        all.extend(planned_pods::encode(pods, stages).map(|value| (planned_pods::ANNOTATION.to_owned(), value)));
    }
}

/// Notes on a planned claim that overlays have changed a price or a capacity among its instance types.
pub(super) fn note_overlays(claim: &mut NodeClaim, snapshot: &Snapshot, machine: &Machine, overlays: &Outcome) {
    let pool = &snapshot.node_pools[machine.node_pool];
    let Some(corrected) = overlays.corrected.get(&pool.name) else { return };
    for (changed, annotation) in [
        (&corrected.with_price, annotations::PRICE_OVERLAY_APPLIED),
        (&corrected.with_capacity, annotations::CAPACITY_OVERLAY_APPLIED),
    ] {
        if machine.instance_types.iter().any(|&id| changed.contains(&pool.catalogue.types[id].name)) {
            let all = claim.metadata.annotations.get_or_insert_default();
            all.insert(annotation.to_owned(), annotations::TRUE.to_owned());
        }
    }
}

/// The uids of a machine's pods, in the plan's order.
pub(super) fn pod_uids(snapshot: &Snapshot, machine: &Machine) -> Vec<Uid> {
    machine.pods.iter().map(|&pod| snapshot.pods[pod].pod.uid.clone()).collect()
}

fn requests(snapshot: &Snapshot, machine: &Machine) -> api::ResourceList {
    let name = |resource| snapshot.interner.resource_name(resource).to_owned();
    machine
        .requests
        .iter()
        .map(|(resource, _)| (name(resource), machine.requests.quantity(resource).to_string().into()))
        .collect()
}

/// The planned requirements by key, and the instance types, cheapest first.
fn requirements(snapshot: &Snapshot, machine: &Machine) -> Vec<NodeSelectorRequirementWithMinValues> {
    let names = &snapshot.interner;
    let pool: &snapshot::NodePool = &snapshot.node_pools[machine.node_pool];
    let types = &pool.catalogue.types;
    let instance_type = names.find_key(labels::INSTANCE_TYPE);
    let min_types = instance_type.and_then(|key| machine.requirements.get(key)).and_then(|known| known.min_values);
    let mut planned = machine.requirements.clone();
    decode::aliases::normalize(&mut planned, names);
    let mut all = expressions(&planned, names);
    all.retain(|requirement| requirement.key != labels::INSTANCE_TYPE);
    all.push(NodeSelectorRequirementWithMinValues {
        key: labels::INSTANCE_TYPE.to_owned(),
        operator: ApiOperator::In,
        values: machine.instance_types.iter().map(|&id| types[id].name.to_string()).collect(),
        min_values: min_types.map(i64::from),
    });
    all
}

/// Requirements as the API writes them, by key. A minimum stands at the first of the expressions that a key needs.
fn expressions(requirements: &Requirements, names: &Interner) -> Vec<NodeSelectorRequirementWithMinValues> {
    let mut all = Vec::new();
    for requirement in requirements.iter_by_name(names) {
        let mut min_values = requirement.min_values.map(i64::from);
        for expression in requirement.values.to_expressions() {
            all.push(NodeSelectorRequirementWithMinValues {
                key: names.key_name(requirement.key).to_owned(),
                operator: operator(expression.operator()),
                values: expression.values(names),
                min_values: min_values.take(),
            });
        }
    }
    all
}

fn operator(operator: Operator) -> ApiOperator {
    match operator {
        Operator::In => ApiOperator::In,
        Operator::NotIn => ApiOperator::NotIn,
        Operator::Exists => ApiOperator::Exists,
        Operator::DoesNotExist => ApiOperator::DoesNotExist,
        Operator::Gt => ApiOperator::Gt,
        Operator::Lt => ApiOperator::Lt,
        Operator::Gte => ApiOperator::Gte,
        Operator::Lte => ApiOperator::Lte,
    }
}
