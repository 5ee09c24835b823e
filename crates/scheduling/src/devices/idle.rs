//! Claims that are allocated and that nobody uses.
//!
//! kube-scheduler writes an allocation before it binds the pod. If the pod is not bound after all, the claim is
//! reserved for nobody again and stays allocated. The scheduler takes an allocation back for a pod that names the claim
//! (`PostFilter` of `DynamicResources`) if no node has room for the pod, some node has but for this claim, and nobody
//! but the pod is among `status.reservedFor`. Then it gives the pod its devices where it has room. So such a claim
//! keeps its pods on the nodes that it is allocated for only as long as one of these takes them ([`stay`]); elsewhere
//! it is allocated anew, and what it held is free for others from then on. For pods that do not name it, its devices
//! are taken until then: nobody else takes them back.
//!
//! A machine that is launched for such a pod is the node that the scheduler needs to find out: before there is one that
//! refuses the pod for the claim alone, it takes nothing back.
//!
//! Differs: `idle-claims`. For Karpenter a claim that is allocated keeps its pods on its nodes. Of claims that are
//! reserved for a PodGroup, we say the same: whether one of its pods is about to be bound is not known.

use std::{collections::BTreeSet, sync::Arc};

use dra_sched::pods;
use dra_types::ResourceClaim;
use model::{IdSet, Uid};

use super::{DemandId, Devices, NodeDevices};
use crate::snapshot::{NodeId, PodsToPlace};

/// The pods of which one may be the only consumer of such a claim.
pub(super) struct Idle<'a> {
    waiting: BTreeSet<&'a Uid>,
}

impl<'a> Idle<'a> {
    pub(super) fn new(pods: PodsToPlace<'a>) -> Self {
        let waiting = pods.pods.iter().map(|pending| &pending.pod).filter(|pod| pod.node_name.is_none());
        Self { waiting: waiting.map(|pod| &pod.uid).collect() }
    }

    /// Whether kube-scheduler may take the allocation back.
    pub(super) fn contains(&self, claim: &Arc<ResourceClaim>) -> bool {
        pods::is_idle(claim, |consumer| self.waiting.contains(&consumer.uid))
    }
}

impl Devices {
    /// Leaves pods with idle claims, of the nodes that accept them, those that the claims are allocated for, if one of
    /// these has room for a pod.
    pub(crate) fn stay(&self, demand: DemandId, accepted: &mut IdSet<NodeId>, has_room: impl Fn(NodeId) -> bool) {
        let variants = self.demands.try_get(demand).into_iter().flat_map(|demand| &demand.variants);
        let idle: BTreeSet<_> = variants.flat_map(|variant| self.inventory.idle(&variant.claims)).collect();
        if idle.is_empty() {
            return;
        }
        let selectors: Vec<_> =
            idle.into_iter().filter_map(|claim| self.inventory.allocation(claim)?.node_selector.as_deref()).collect();
        let reached = |node: &NodeId| match self.nodes.try_get(*node) {
            Some(NodeDevices::Published(facts)) => {
                selectors.iter().all(|selector| facts.matches(selector).unwrap_or(false))
            }
            Some(NodeDevices::Expected(_)) | None => false,
        };
        let theirs: IdSet<NodeId> = accepted.iter().filter(reached).collect();
        if theirs.iter().any(has_room) {
            *accepted = theirs;
        }
    }
}
