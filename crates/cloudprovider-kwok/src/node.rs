//! From a NodeClaim and an offering to a record, and from a record to a Node. Pure.

use crate::names;
use std::collections::BTreeMap;

use api::{NodeClaim, Operator, annotations, labels, taints};
use cloudprovider::LabelRequirements;
use cloudprovider::launch::LaunchOption;
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use kube::core::ObjectMeta;
use model::{NodeClaimName, PriceNanoUsdPerHour, Timestamp, Uid};

use crate::record::{InvalidToken, NodeTemplate, Record, State, amounts, node_name};

/// The machine that a NodeClaim gets from an offering.
///
/// # Errors
/// If the token cannot be recorded.
pub fn new_record(
    claim: &NodeClaim,
    token: &Uid,
    option: &LaunchOption<'_>,
    requirements: &LabelRequirements,
    created_at: Timestamp,
    register_at: Timestamp,
) -> Result<Record, InvalidToken> {
    let claim_name = NodeClaimName::from(claim.metadata.name.as_deref().unwrap_or_default());
    let node_name = node_name(&claim_name, token)?;
    let provider_labels = requirements.resolve_labels(option.instance_type, option.offering);
    let price = option.offering.price;
    Ok(Record {
        token: token.clone(),
        instance_type: option.instance_type.name.clone(),
        zone: option.offering.zone.clone(),
        capacity_type: option.offering.capacity_type,
        price,
        created_at,
        register_at,
        state: State::Booting,
        node: NodeTemplate {
            labels: node_labels(claim, &provider_labels, &node_name, price),
            provider_labels,
            annotations: node_annotations(claim),
            taints: node_taints(claim),
            // Differs: `kwok-capacity`. Karpenter's kwok provider writes the NodeClaim's requests as the Node's
            // capacity.
            capacity: amounts(&option.offering.capacity(option.instance_type)),
            allocatable: amounts(&option.offering.allocatable(option.instance_type)),
        },
        devices: option.instance_type.dynamic_resources.clone(),
        resource_version: None,
        node_name,
        claim_name,
    })
}

/// The NodeClaim's labels, its requirements with one value, then the machine's own, which win.
fn node_labels(
    claim: &NodeClaim,
    provider_labels: &BTreeMap<String, String>,
    node_name: &str,
    price: PriceNanoUsdPerHour,
) -> BTreeMap<String, String> {
    let mut all = claim.metadata.labels.clone().unwrap_or_default();
    for requirement in &claim.spec.requirements {
        if let (Operator::In, [value]) = (&requirement.operator, requirement.values.as_slice()) {
            all.insert(requirement.key.clone(), value.clone());
        }
    }
    all.extend(provider_labels.clone());
    let own = [
        (labels::HOSTNAME, node_name.to_owned()),
        (names::KWOK_NODE, names::KWOK_NODE_FAKE.to_owned()),
        (names::KWOK_PARTITION, names::KWOK_PARTITION_A.to_owned()),
        (names::NODE_VIEWER_PRICE, dollars(price)),
    ];
    all.extend(own.map(|(key, value)| (key.to_owned(), value)));
    all
}

/// The NodeClaim's, but for the one that can be long and says nothing about the machine.
fn node_annotations(claim: &NodeClaim) -> BTreeMap<String, String> {
    let mut all = claim.metadata.annotations.clone().unwrap_or_default();
    all.remove(annotations::PLANNED_PODS);
    all
}

/// Dollars with six decimal places.
fn dollars(price: PriceNanoUsdPerHour) -> String {
    let micro = (i128::from(price.0) + 500).div_euclid(1000);
    format!("{}.{:06}", micro.div_euclid(1_000_000), micro.rem_euclid(1_000_000))
}

/// What a kubelet registers with whose configuration the provider wrote: the NodeClaim's taints, its startup taints,
/// and the one that keeps pods away until the NodeClaim has been found. The first of equal key and effect stays.
///
/// Differs: `kwok-taints`. Karpenter's kwok provider registers with the last one only.
fn node_taints(claim: &NodeClaim) -> Vec<Taint> {
    let mut all: Vec<Taint> = Vec::new();
    let unregistered = taints::unregistered();
    for taint in [&unregistered].into_iter().chain(&claim.spec.taints).chain(&claim.spec.startup_taints) {
        if !all.iter().any(|earlier| earlier.key == taint.key && earlier.effect == taint.effect) {
            all.push(taint.clone());
        }
    }
    all
}

/// Whether somebody plays the kubelet of a Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kubelet {
    /// kwok does, and the Node becomes ready.
    Kwok,
    /// Nobody does.
    Absent,
}

/// The Node that a machine registers whose record is kept in that namespace.
pub fn to_node(record: &Record, namespace: &str, kubelet: Kubelet) -> Node {
    let template = &record.node;
    let mut annotations = template.annotations.clone();
    let record_name = format!("{namespace}/{}", record.config_map_name());
    annotations.insert(names::KWOK_INSTANCE_RECORD.to_owned(), record_name);
    match kubelet {
        Kubelet::Kwok => {
            annotations.insert(names::KWOK_NODE.to_owned(), names::KWOK_NODE_FAKE.to_owned());
        }
        Kubelet::Absent => {
            annotations.remove(names::KWOK_NODE);
        }
    }
    let amounts = |list: &BTreeMap<String, api::QuantityString>| {
        list.iter().map(|(resource, amount)| (resource.clone(), ApiQuantity(amount.0.clone()))).collect()
    };
    Node {
        metadata: ObjectMeta {
            name: Some(record.node_name.to_string()),
            labels: Some(template.labels.clone()),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(record.provider_id().to_string()),
            taints: Some(template.taints.clone()),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            capacity: Some(amounts(&template.capacity)),
            allocatable: Some(amounts(&template.allocatable)),
            // Releases without the field, or without its gate, drop it.
            declared_features: Some(names::DECLARED_FEATURES.map(str::to_owned).to_vec()),
            ..NodeStatus::default()
        }),
    }
}

#[cfg(test)]
mod tests;
