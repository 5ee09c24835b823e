//! Which machines may be disrupted, and what blocks each of the others.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::pod::SchedulingState;
use model::{IdVec, NamespacedName, NodeClaimName, NodePoolName, Timestamp};

use super::reason::{Block, NodeReason};
use crate::plan::Plan;
use crate::provisioning;
use crate::simulation::homes::Homes;
use crate::snapshot::expiration::Expiration;
use crate::snapshot::fleet::{Fleet, FleetNode, FleetPod, FleetPool, Moves, Reason, RepairHold, UnderWay};
use crate::snapshot::{NodeId, NodeState, PodId, Snapshot};

/// What all methods read.
pub(super) struct Context<'s> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) fleet: &'s Fleet,
    /// Nodes that pending pods, or those of commands under way, are nominated to, each with the first of them by name.
    nominated: BTreeMap<NodeId, NamespacedName>,
    /// Nodes that hold room for buffers, each with the first of these buffers by name.
    buffers: BTreeMap<NodeId, NamespacedName>,
    /// Pending pods, and the NodeClaims with room for them.
    pub(super) planned_on: BTreeMap<PodId, NodeClaimName>,
    /// The plan for pending pods and buffers if no machine were disrupted; `None` if nothing is pending.
    pub(super) waiting: Option<Plan>,
    homes: OnceCell<Homes>,
}

impl<'s> Context<'s> {
    pub(super) fn new(snapshot: &'s Snapshot, fleet: &'s Fleet) -> Self {
        let (nominated, buffers, planned_on) = Default::default();
        let mut context =
            Self { snapshot, fleet, nominated, buffers, planned_on, waiting: None, homes: OnceCell::new() };
        // The scheduler has promised the node, and has not bound the pod.
        for (id, node) in snapshot.nodes.iter_enumerated() {
            let mut promised = node.pods.iter().filter(|pod| pod.scheduling != SchedulingState::Scheduled);
            context
                .nominated
                .extend(promised.find(|pod| pod.nominated_node_name.is_some()).map(|pod| (id, pod.name.clone())));
        }
        context.keep_destinations();
        if !snapshot.pods.is_empty() || !snapshot.buffers.is_empty() {
            context.plan_what_waits();
        }
        context
    }

    /// Nominates the machines that pods of commands under way are to move to. Were one of these taken away meanwhile,
    /// its pods and those that come would look for the same room.
    fn keep_destinations(&mut self) {
        let moving = self.fleet.nodes.iter().filter(|machine| matches!(machine.under_way, Some(UnderWay::Command(_))));
        let mut destinations: BTreeMap<&NodeClaimName, &NamespacedName> = BTreeMap::new();
        for pending in moving.flat_map(|machine| machine.moving()) {
            if let Some(claim) = &pending.planned_on {
                destinations.entry(claim).or_insert(&pending.pod.name);
            }
        }
        if destinations.is_empty() {
            return;
        }
        for (id, node) in self.snapshot.nodes.iter_enumerated() {
            if let Some(pod) = node.node_claim.as_ref().and_then(|claim| destinations.get(claim)) {
                self.nominated.entry(id).or_insert_with(|| NamespacedName::clone(pod));
            }
        }
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

    /// In which domains pods stay.
    pub(super) fn homes(&self) -> &Homes {
        self.homes.get_or_init(|| Homes::new(self.snapshot, self.fleet))
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

    /// Why a machine has to be replaced at any cost, and since when: it is broken, has expired, or has drifted. One
    /// that is broken and may not be repaired now can still be replaced for the others.
    pub(super) fn outdated(&self, machine: &FleetNode) -> Option<(Reason, Timestamp)> {
        if let Some(unhealthy) = &machine.unhealthy
            && self.block_of_repair(machine).is_none()
        {
            return Some((Reason::Unhealthy, unhealthy.since));
        }
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

    /// Whether no pod that moves is planned onto a machine, because it should be replaced itself.
    pub(super) fn is_closed(&self, machine: &FleetNode) -> bool {
        machine.unhealthy.is_some() || self.outdated(machine).is_some()
    }

    fn block(&self, machine: &FleetNode) -> Option<Block> {
        if let Some(block) = self.unusable(machine).or_else(|| self.block_of_pool(machine)) {
            return Some(block);
        }
        let left_to_others = |pod: &FleetPod| match &pod.moves {
            Moves::No | Moves::As(_) => None,
            Moves::LeftToOthers(why) => {
                Some(Block::PodLeftToOthers { pod: pod.pod.name.clone(), why: Arc::clone(why) })
            }
        };
        self.protection(machine).or_else(|| machine.pods.iter().find_map(left_to_others))
    }

    /// Why a machine's NodePool launches nothing for its pods.
    fn block_of_pool(&self, machine: &FleetNode) -> Option<Block> {
        let (name, pool) = self.pool_of(machine)?;
        if pool.is_static() {
            return Some(Block::StaticNodePool(name.clone()));
        }
        let planned = self.snapshot.node_pools.iter().find(|pool| pool.name == *name);
        let has_none = planned.is_some_and(|planned| planned.catalogue.types.is_empty());
        has_none.then(|| Block::NoInstanceTypes(name.clone()))
    }

    /// Why a broken machine is not replaced for that, whatever its NodePool launches.
    ///
    /// It need not be initialized, which it may never be, and `do-not-disrupt` of its Node does not protect it. Whoever
    /// places its pods has to do so in any case.
    fn block_of_repair(&self, machine: &FleetNode) -> Option<Block> {
        let unhealthy = machine.unhealthy.as_ref()?;
        let (name, _) = match self.unavailable(machine) {
            Some(block) => return Some(block),
            None => self.pool_of(machine)?,
        };
        match unhealthy.hold {
            Some(RepairHold::DoNotRepair) => return Some(Block::DoNotRepair),
            Some(RepairHold::TooMany { unhealthy, nodes }) => {
                return Some(Block::TooManyUnhealthy { node_pool: name.clone(), unhealthy, nodes });
            }
            None => {}
        }
        let nominated = self.nominated.get(&machine.node).filter(|_| self.is_initialized(machine));
        let nominated = nominated.map(|pod| Block::Nominated(pod.clone()));
        nominated.or_else(|| forbidden(machine).filter(|_| !machine.ends_by_force(Reason::Unhealthy)))
    }

    /// Whether it is part of what budgets count.
    pub(super) fn is_initialized(&self, machine: &FleetNode) -> bool {
        self.snapshot.nodes.try_get(machine.node).is_some_and(|node| node.state == NodeState::Initialized)
    }

    /// Why a machine cannot be disrupted voluntarily at all.
    fn unusable(&self, machine: &FleetNode) -> Option<Block> {
        let not_initialized = || (!self.is_initialized(machine)).then_some(Block::NotInitialized);
        match self.unavailable(machine) {
            Some(under_way @ Block::UnderWay(_)) => Some(under_way),
            block => not_initialized().or(block),
        }
    }

    /// Why nothing can be done with a machine: somebody does something with it already, it has no Node of ours, or
    /// nobody knows its NodePool.
    fn unavailable(&self, machine: &FleetNode) -> Option<Block> {
        let node = self.snapshot.nodes.try_get(machine.node)?;
        if let Some(under_way) = &machine.under_way {
            return Some(Block::UnderWay(under_way.clone()));
        }
        if node.name.is_none() || matches!(node.state, NodeState::Launched | NodeState::Launching) {
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
    /// Blocks that the machine is replaced because it is broken.
    repair: Option<Block>,
}

/// The first pod that may not be evicted.
fn forbidden(machine: &FleetNode) -> Option<Block> {
    let (pod, forbidden) = machine.pods.iter().find_map(|pod| Some((pod, pod.forbidden.clone()?)))?;
    Some(Block::Pod { pod: pod.pod.name.clone(), forbidden })
}

/// What blocks each machine.
pub(super) struct Candidates(IdVec<NodeId, Standing>);

impl Candidates {
    pub(super) fn new(context: &Context<'_>) -> Self {
        let mut standings = IdVec::filled(Standing::default(), context.snapshot.nodes.len());
        for machine in &context.fleet.nodes {
            let of_repair = || context.block_of_repair(machine).or_else(|| context.block_of_pool(machine));
            if let Some(standing) = standings.try_get_mut(machine.node) {
                *standing = Standing {
                    whatever: context.block(machine),
                    pods: forbidden(machine),
                    repair: machine.unhealthy.as_ref().and_then(|_| of_repair()),
                };
            }
        }
        Self(standings)
    }

    /// What blocks disrupting a machine for that reason.
    pub(super) fn block(&self, machine: &FleetNode, reason: Reason) -> Option<&Block> {
        let standing = self.0.try_get(machine.node)?;
        if reason == Reason::Unhealthy {
            return standing.repair.as_ref();
        }
        standing.whatever.as_ref().or_else(|| standing.pods.as_ref().filter(|_| !machine.ends_by_force(reason)))
    }

    /// What blocks a machine of a static NodePool from being replaced by its like. No places for its pods are looked
    /// for beforehand, so it does not matter whose they are.
    pub(super) fn block_of_replica(&self, context: &Context<'_>, machine: &FleetNode, reason: Reason) -> Option<Block> {
        if reason == Reason::Unhealthy {
            return context.block_of_repair(machine);
        }
        let of_pods = self.0.try_get(machine.node).and_then(|standing| standing.pods.clone());
        let of_machine = context.unusable(machine).or_else(|| context.protection(machine));
        of_machine.or_else(|| of_pods.filter(|_| !machine.ends_by_force(reason)))
    }

    /// Why a machine stays if no method says more about it.
    pub(super) fn why_it_stays(&self, machine: &FleetNode) -> NodeReason {
        let reason = if machine.unhealthy.is_some() { Reason::Unhealthy } else { Reason::Underutilized };
        match self.block(machine, reason) {
            Some(block) => NodeReason::Blocked(block.clone()),
            None => NodeReason::Undecided { reason },
        }
    }
}
