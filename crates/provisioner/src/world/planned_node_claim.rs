//! From a planned machine to the NodeClaim that is created for it.
//!
//! The claim keeps every type, zone and capacity type that would do; the provider takes the cheapest that it has.

use std::collections::BTreeMap;

use api::node_claim::ResourceRequirements;
use api::{NodeClaim, NodePool, NodeSelectorRequirementWithMinValues, Operator, annotations, labels};
use model::collections::NameMap;
use model::{DurationMs, Uid};
use scheduling::plan::Machine;
use scheduling::snapshot::{self, Snapshot};

use crate::world::new_node_claim::{self, expressions};
use crate::world::overlays::Outcome;
use crate::world::planned_pods;

/// The NodeClaim for a planned machine, without a name.
///
/// # Errors
/// If the NodePool's template has a duration that is none, which admission refuses.
pub(crate) fn node_claim(
    snapshot: &Snapshot,
    machine: &Machine,
    node_pool: &NodePool,
    default_termination_grace_period: Option<DurationMs>,
) -> Result<NodeClaim, new_node_claim::Error> {
    let mut claim = new_node_claim::of_node_pool(node_pool, default_termination_grace_period)?;
    claim.spec.requirements = requirements(snapshot, machine);
    claim.spec.resources = ResourceRequirements { requests: requests(snapshot, machine) };
    let of_claim = claim.metadata.labels.get_or_insert_default();
    for (key, value) in &machine.labels {
        of_claim.entry(snapshot.interner.key_name(*key).to_owned()).or_insert_with(|| value.to_string());
    }
    claim.metadata.annotations.get_or_insert_default().extend(claim_annotations(snapshot, machine));
    Ok(claim)
}

fn claim_annotations(snapshot: &Snapshot, machine: &Machine) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
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

/// Notes on a planned claim that overlays have changed a price or a capacity among its instance types.
pub(crate) fn note_overlays(claim: &mut NodeClaim, snapshot: &Snapshot, machine: &Machine, overlays: &Outcome) {
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
pub(crate) fn pod_uids(snapshot: &Snapshot, machine: &Machine) -> Vec<Uid> {
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
        operator: Operator::In,
        values: machine.instance_types.iter().map(|&id| types[id].name.to_string()).collect(),
        min_values: min_types.map(i64::from),
    });
    all
}
