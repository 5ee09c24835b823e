//! A launched machine's Node has appeared: which changes make it the NodeClaim's.
//!
//! The Node gets finalizer, owner, labels, annotations and taints of its NodeClaim, loses the taint
//! `karpenter.sh/unregistered`, and, in the same patch, gets our own taint if pods wait to be handed over to it.

use std::collections::BTreeMap;

use crate::world::node_facts::{has_taint, is_registered, same_taint};
use api::conditions::node_claim::{MULTIPLE_NODES_FOUND, NODE_NOT_FOUND};
use api::{NodeClaim, annotations, finalizers, labels, taints};
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

/// Annotations of a NodeClaim that its Node does not get.
const NOT_FOR_NODES: [&str; 1] = [annotations::PLANNED_PODS];

/// What to do about a launched NodeClaim that is not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registration {
    /// No Node has the machine's provider id yet: condition Registered is unknown.
    NodeNotFound,
    /// More than one has: condition Registered is false. Looked at again whenever one of them changes.
    ///
    /// Differs: `two-nodes`. Karpenter never looks again, and gives up after its time-out.
    MultipleNodesFound,
    /// Make the Node look [`registered`], then condition Registered is true.
    Register {
        /// Whether it started without the taint that its kubelet must set: an event says so.
        taint_missing: bool,
    },
}

impl Registration {
    /// Reason and message of condition Registered where it is not true.
    pub(crate) fn waiting_for(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::NodeNotFound => Some((NODE_NOT_FOUND, "Node not registered with cluster")),
            Self::MultipleNodesFound => Some((MULTIPLE_NODES_FOUND, "Invariant violated, matched multiple nodes")),
            Self::Register { .. } => None,
        }
    }
}

/// Whether a new Node is kept closed until its pods are handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It gets our taint.
    UntilHandedOver,
    /// It is open as soon as nothing else keeps pods away.
    No,
}

/// What to do, given all Nodes with the machine's provider id.
pub(crate) fn decide(nodes: &[&Node]) -> Registration {
    match nodes {
        [] => Registration::NodeNotFound,
        [node] => {
            Registration::Register { taint_missing: !is_registered(node) && !has_taint(node, &taints::unregistered()) }
        }
        [_, _, ..] => Registration::MultipleNodesFound,
    }
}

/// The Node as the NodeClaim's.
pub(crate) fn registered(claim: &NodeClaim, node: &Node, hold: Hold) -> Node {
    let first_time = !is_registered(node);
    let mut node = node.clone();
    let finalizers = node.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == finalizers::TERMINATION) {
        finalizers.push(finalizers::TERMINATION.to_owned());
    }
    let owners = node.metadata.owner_references.get_or_insert_default();
    if !owners.iter().any(|owner| Some(&owner.uid) == claim.metadata.uid.as_ref()) {
        owners.push(owner(claim));
    }
    let of_node = node.metadata.annotations.get_or_insert_default();
    for (key, value) in claim.metadata.annotations.iter().flatten() {
        if !NOT_FOR_NODES.contains(&key.as_str()) {
            of_node.insert(key.clone(), value.clone());
        }
    }
    let of_node = node.metadata.labels.get_or_insert_default();
    of_node.extend(claim.metadata.labels.clone().unwrap_or_default());
    let sync_taints = of_node.get(labels::DO_NOT_SYNC_TAINTS).is_none_or(|value| value != labels::TRUE);
    of_node.insert(labels::REGISTERED.to_owned(), labels::TRUE.to_owned());

    let of_node = node.spec.get_or_insert_default().taints.get_or_insert_default();
    if sync_taints {
        for taint in claim.spec.taints.iter().chain(&claim.spec.startup_taints) {
            add_taint(of_node, taint);
        }
    }
    let unregistered = taints::unregistered();
    of_node.retain(|taint| !same_taint(taint, &unregistered));
    match hold {
        Hold::UntilHandedOver if first_time => {
            add_taint(of_node, &taints::held(claim.metadata.uid.as_deref().unwrap_or_default()));
        }
        Hold::UntilHandedOver | Hold::No => {}
    }
    node
}

/// The reference by which a Node goes when its NodeClaim does.
pub(crate) fn owner(claim: &NodeClaim) -> OwnerReference {
    OwnerReference {
        api_version: NodeClaim::api_version(&()).into_owned(),
        kind: NodeClaim::kind(&()).into_owned(),
        name: claim.metadata.name.clone().unwrap_or_default(),
        uid: claim.metadata.uid.clone().unwrap_or_default(),
        controller: None,
        block_owner_deletion: Some(true),
    }
}

fn add_taint(taints: &mut Vec<Taint>, wanted: &Taint) {
    if !taints.iter().any(|taint| same_taint(taint, wanted)) {
        taints.push(wanted.clone());
    }
}

/// The label by which the controllers know whose a NodeClaim and its Node are.
pub(crate) fn class_label(claim: &NodeClaim) -> (String, String) {
    let class = &claim.spec.node_class_ref;
    (labels::node_class(&class.group, &class.kind), class.name.clone())
}

/// The node class label, for claims that an older version wrote without it. Empty for those that have it.
pub(crate) fn missing_class_label(claim: &NodeClaim) -> BTreeMap<String, String> {
    let (key, name) = class_label(claim);
    let known = claim.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(&key));
    if known { BTreeMap::new() } else { BTreeMap::from([(key, name)]) }
}

#[cfg(test)]
mod tests;
