//! Claims that nobody will use any more because their consumers leave their nodes.
//!
//! A claim stays allocated as long as one of its consumers is there, and those that leave have to follow it. When the
//! last has gone the claim controller takes the allocation back: the devices are free, and the claim is allocated anew
//! where its next pod goes. So a claim all of whose consumers leave is planned as if it had never been allocated.

use std::{collections::BTreeSet, sync::Arc};

use dra_types::{Consumer, ResourceClaim};
use model::{IdVec, Uid};

use crate::snapshot::{Excluded, Node, NodeId, PodsToPlace};

/// Pods that leave their nodes.
pub(super) struct Leaving<'a>(BTreeSet<&'a Uid>);

impl<'a> Leaving<'a> {
    /// Those that have a node and want a place, and those that end on a node that is going.
    pub(super) fn new(pods: PodsToPlace<'a>, nodes: &'a IdVec<NodeId, Arc<Node>>) -> Self {
        let moving = pods.pods.iter().map(|pending| &pending.pod).filter(|pod| pod.node_name.is_some());
        let going = nodes.iter().filter(|node| node.excluded == Some(Excluded::Deleting)).flat_map(|node| &node.pods);
        let ending = going.filter(|pod| pod.deletion_timestamp.is_some());
        Self(moving.chain(ending).map(|pod| &pod.uid).collect())
    }

    /// The claim as it is once they have left.
    pub(super) fn without(&self, claim: &Arc<ResourceClaim>) -> Arc<ResourceClaim> {
        let leaves = |consumer: &Consumer| &*consumer.resource == "pods" && self.0.contains(&consumer.uid);
        if self.0.is_empty() || claim.reserved_for.is_empty() || !claim.reserved_for.iter().all(leaves) {
            return Arc::clone(claim);
        }
        Arc::new(ResourceClaim { allocation: None, reserved_for: Vec::new(), ..ResourceClaim::clone(claim) })
    }
}
