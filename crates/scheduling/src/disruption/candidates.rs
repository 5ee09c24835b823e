//! Which machines may be disrupted, and what blocks each of the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::pod::SchedulingState;
use model::{IdVec, NamespacedName, NodeClaimName, NodePoolName, Timestamp};

use super::reason::{Block, NodeReason};
use crate::plan::Plan;
use crate::provisioning;
use crate::snapshot::expiration::Expiration;
use crate::snapshot::fleet::{Fleet, FleetNode, FleetPod, FleetPool, Moves, Reason};
use crate::snapshot::{NodeId, NodeState, PodId, Snapshot};

/// What all methods read.
pub(super) struct Context<'s> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) fleet: &'s Fleet,
    /// Nodes that pending pods are nominated to, each with the first of these pods by name.
    nominated: BTreeMap<NodeId, NamespacedName>,
    /// Nodes that hold room for buffers, each with the first of these buffers by name.
    buffers: BTreeMap<NodeId, NamespacedName>,
    /// Pending pods, and the NodeClaims with room for them.
    pub(super) planned_on: BTreeMap<PodId, NodeClaimName>,
    /// The plan for pending pods and buffers if no machine were disrupted; `None` if nothing is pending.
    pub(super) waiting: Option<Plan>,
}

impl<'s> Context<'s> {
    pub(super) fn new(snapshot: &'s Snapshot, fleet: &'s Fleet) -> Self {
        let (nominated, buffers, planned_on) = Default::default();
        let mut context = Self { snapshot, fleet, nominated, buffers, planned_on, waiting: None };
        // The scheduler has promised the node, and has not bound the pod.
        for (id, node) in snapshot.nodes.iter_enumerated() {
            let mut promised = node.pods.iter().filter(|pod| pod.scheduling != SchedulingState::Scheduled);
            context
                .nominated
                .extend(promised.find(|pod| pod.nominated_node_name.is_some()).map(|pod| (id, pod.name.clone())));
        }
        if !snapshot.pods.is_empty() || !snapshot.buffers.is_empty() {
            context.plan_what_waits();
        }
        context
    }

    fn plan_what_waits(&mut self) {
        let plan = provisioning::plan(self.snapshot);
        for placement in &plan.existing {
            let node = self.snapshot.nodes.try_get(placement.node);
            if let Some(claim) = node.and_then(|node| node.node_claim.as_ref()) {
                self.planned_on.extend(placement.pods.iter().map(|&pod| (pod, claim.clone())));
            }
            let first = placement.pods.first().and_then(|pod| self.snapshot.pods.try_get(*pod));
            if let Some(first) = first {
                self.nominated.entry(placement.node).or_insert_with(|| first.pod.name.clone());
            }
        }
        for (buffer, room) in self.snapshot.buffers.iter().zip(&plan.buffers) {
            for (node, _) in &room.on_nodes {
                self.buffers.entry(*node).or_insert_with(|| buffer.name.clone());
            }
        }
        self.waiting = Some(plan);
    }

    pub(super) fn display_name(&self, node: NodeId) -> &'s str {
        self.snapshot.nodes.try_get(node).map_or("", |node| node.display_name())
    }

    /// The buffer that keeps room free on a node.
    pub(super) fn buffer_on(&self, node: NodeId) -> Option<&NamespacedName> {
        self.buffers.get(&node)
    }

    /// The machine's NodePool. Every candidate has one.
    pub(super) fn pool_of(&self, machine: &FleetNode) -> Option<(&'s NodePoolName, &'s FleetPool)> {
        let name = self.snapshot.nodes.try_get(machine.node)?.node_pool.as_ref()?;
        self.fleet.pools.get_key_value(name)
    }

    /// Why a machine has to be replaced at any cost, and since when: it has expired, or has drifted.
    pub(super) fn outdated(&self, machine: &FleetNode) -> Option<(Reason, Timestamp)> {
        let rules = self.snapshot.options.disruption.expiration;
        let of_pool = self.pool_of(machine).and_then(|(_, pool)| pool.expiration);
        let expiration = machine.claim.expires_at.map(|at| rules.decide(at, of_pool, self.snapshot.now));
        match expiration {
            Some(Expiration::Graceful { since, .. }) => Some((Reason::Expired, since)),
            // An expiration that is due by force needs no plan.
            Some(Expiration::At(_) | Expiration::Due) | None => {
                machine.claim.drifted.as_ref().map(|drift| (Reason::Drifted, drift.since))
            }
        }
    }

    fn block(&self, machine: &FleetNode) -> Option<Block> {
        if let Some(block) = self.unusable(machine) {
            return Some(block);
        }
        let (name, pool) = self.pool_of(machine)?;
        if pool.is_static() {
            return Some(Block::StaticNodePool(name.clone()));
        }
        let planned = self.snapshot.node_pools.iter().find(|pool| pool.name == *name);
        if planned.is_some_and(|planned| planned.catalogue.types.is_empty()) {
            return Some(Block::NoInstanceTypes(name.clone()));
        }
        let left_to_others = |pod: &FleetPod| match &pod.moves {
            Moves::No | Moves::As(_) => None,
            Moves::LeftToOthers(why) => {
                Some(Block::PodLeftToOthers { pod: pod.pod.name.clone(), why: Arc::clone(why) })
            }
        };
        self.protection(machine).or_else(|| machine.pods.iter().find_map(left_to_others))
    }

    /// Why a machine cannot be disrupted at all.
    fn unusable(&self, machine: &FleetNode) -> Option<Block> {
        let node = self.snapshot.nodes.try_get(machine.node)?;
        if let Some(under_way) = &machine.under_way {
            return Some(Block::UnderWay(under_way.clone()));
        }
        if node.name.is_none() || node.state != NodeState::Initialized {
            return Some(Block::NotInitialized);
        }
        let Some(name) = &node.node_pool else { return Some(Block::NoNodePool) };
        let is_planned = self.snapshot.node_pools.iter().any(|pool| pool.name == *name);
        let is_known = is_planned && self.fleet.pools.contains_key(name);
        (!is_known).then(|| Block::NodePoolNotFound(name.clone()))
    }

    /// What protects a machine for now.
    fn protection(&self, machine: &FleetNode) -> Option<Block> {
        if machine.is_protected {
            return Some(Block::DoNotDisrupt);
        }
        self.nominated.get(&machine.node).map(|pod| Block::Nominated(pod.clone()))
    }
}

/// What blocks a machine.
#[derive(Debug, Clone, Default)]
struct Standing {
    /// Blocks every disruption of the machine.
    whatever: Option<Block>,
    /// A pod that may not be evicted. It does not block eventual reasons if a grace period bounds the drain.
    pods: Option<Block>,
}

/// Whether the disruption may go on although pods may not be evicted.
fn is_eventual(machine: &FleetNode, reason: Reason) -> bool {
    reason.is_eventual() && machine.claim.termination_grace_period.is_some()
}

/// What blocks each machine.
pub(super) struct Candidates(IdVec<NodeId, Standing>);

impl Candidates {
    pub(super) fn new(context: &Context<'_>) -> Self {
        let mut standings = IdVec::filled(Standing::default(), context.snapshot.nodes.len());
        for machine in &context.fleet.nodes {
            let forbidden = machine.pods.iter().find_map(|pod| Some((pod, pod.forbidden.clone()?)));
            let pods = forbidden.map(|(pod, forbidden)| Block::Pod { pod: pod.pod.name.clone(), forbidden });
            if let Some(standing) = standings.try_get_mut(machine.node) {
                *standing = Standing { whatever: context.block(machine), pods };
            }
        }
        Self(standings)
    }

    /// What blocks disrupting a machine for that reason.
    pub(super) fn block(&self, machine: &FleetNode, reason: Reason) -> Option<&Block> {
        let standing = self.0.try_get(machine.node)?;
        standing.whatever.as_ref().or_else(|| standing.pods.as_ref().filter(|_| !is_eventual(machine, reason)))
    }

    /// What blocks a machine of a static NodePool from being replaced by its like. No places for its pods are looked
    /// for beforehand, so it does not matter whose they are.
    pub(super) fn block_of_replica(&self, context: &Context<'_>, machine: &FleetNode, reason: Reason) -> Option<Block> {
        let of_pods = self.0.try_get(machine.node).and_then(|standing| standing.pods.clone());
        let of_machine = context.unusable(machine).or_else(|| context.protection(machine));
        of_machine.or_else(|| of_pods.filter(|_| !is_eventual(machine, reason)))
    }

    /// Why a machine stays if no method says more about it.
    pub(super) fn why_it_stays(&self, machine: &FleetNode) -> NodeReason {
        match self.block(machine, Reason::Underutilized) {
            Some(block) => NodeReason::Blocked(block.clone()),
            None => NodeReason::Undecided { reason: Reason::Underutilized },
        }
    }
}
