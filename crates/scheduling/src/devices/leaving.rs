//! Claims that nobody will use any more because their consumers leave their nodes or end.
//!
//! A claim stays allocated as long as one of its consumers is there, and those that leave have to follow it. When the
//! last has gone the claim controller takes the allocation back: the devices are free, and the claim is allocated anew
//! where its next pod goes. So a claim all of whose consumers leave is planned as if it had never been allocated.
//!
//! Consumers that end where they are count too if they end before a machine could be there
//! ([`PodsBefore::ending`](super::PodsBefore::ending)), unless somebody who is planned uses the claim: kube-scheduler
//! would let that pod in beside them, and the claim would never be given back. No pod is bound to such devices before
//! they are free, since kube-scheduler counts them as taken until then.
//!
//! Differs: `ending-claims`. For Karpenter devices are taken as long as their claim is allocated.

use std::{collections::BTreeSet, sync::Arc};

use dra_sched::pods::{WantedClaim, claims};
use dra_types::{Compat, Consumer, ResourceClaim};
use model::{IdVec, NamespacedName, NodeName, Pod, Uid};

use super::{DeviceObjects, PodsBefore};
use crate::snapshot::{Excluded, Node, NodeId, PodsToPlace};

/// Pods that leave their nodes or end.
pub(super) struct Leaving<'a> {
    moving: BTreeSet<&'a Uid>,
    ending: BTreeSet<&'a Uid>,
    /// Claims of pods that are planned, or come before them. Only looked for if pods end.
    wanted: BTreeSet<NamespacedName>,
}

impl<'a> Leaving<'a> {
    /// Those that want a place and have a node that is going or gone, those that end on a node that is going, and those
    /// that end soon. Pods of nodes that only could go want a place too; as long as these stay, so do their claims
    /// ([`Packing::vacate`](crate::simulation::packing::Packing::vacate) releases them).
    pub(super) fn new(
        pods: PodsToPlace<'a>,
        nodes: &'a IdVec<NodeId, Arc<Node>>,
        before: PodsBefore<'a>,
        (objects, compat): (&DeviceObjects, &Compat),
    ) -> Self {
        let stay = nodes.iter().filter(|node| node.excluded != Some(Excluded::Deleting));
        let stay: BTreeSet<&NodeName> = stay.filter_map(|node| node.name.as_ref()).collect();
        let moves = |pod: &&Arc<Pod>| pod.node_name.as_ref().is_some_and(|name| !stay.contains(name));
        let moving = pods.pods.iter().map(|pending| &pending.pod).filter(moves);
        let going = nodes.iter().filter(|node| node.excluded == Some(Excluded::Deleting)).flat_map(|node| &node.pods);
        let of_going = going.filter(|pod| pod.deletion_timestamp.is_some());
        let moving = moving.chain(of_going).map(|pod| &pod.uid).collect();
        let ending: BTreeSet<&Uid> = before.ending.iter().collect();
        let mut wanted = BTreeSet::new();
        if !ending.is_empty() {
            let daemons = before.daemon_sets.iter().map(|(_, pod)| pod);
            let promised = before.nominated.iter().map(|(_, pod)| pod);
            let planned = pods.devices().flatten().chain(daemons).chain(promised);
            // Whose claims are at fault has no place anyway.
            for claim in planned.filter_map(|pod| claims(pod, &objects.lookup(), compat).ok()).flatten() {
                if let WantedClaim::Existing { claim, .. } = claim {
                    wanted.insert(claim);
                }
            }
        }
        Self { moving, ending, wanted }
    }

    /// The claim as it is once they have left.
    pub(super) fn without(&self, claim: &Arc<ResourceClaim>) -> Arc<ResourceClaim> {
        let moves = |consumer: &Consumer| consumer.is_pod() && self.moving.contains(&consumer.uid);
        let ends = |consumer: &Consumer| consumer.is_pod() && self.ending.contains(&consumer.uid);
        let consumers = &claim.reserved_for;
        let is_given_up = !consumers.is_empty()
            && (consumers.iter().all(moves) || (consumers.iter().all(ends) && !self.wanted.contains(&claim.meta.name)));
        if !is_given_up {
            return Arc::clone(claim);
        }
        Arc::new(ResourceClaim { allocation: None, reserved_for: Vec::new(), ..ResourceClaim::clone(claim) })
    }
}
