//! Which machines may go to save something, and why each of the others stays.

use std::collections::{BTreeMap, BTreeSet};

use model::NodePoolName;

use super::REASON;
use crate::disruption::candidates::{Candidates, Context};
use crate::disruption::methods::Outcome;
use crate::disruption::reason::{NodeReason, Unconsolidatable};
use crate::snapshot::fleet::{ConsolidationPolicy, FleetNode};
use crate::snapshot::{NodeId, NodeState};

/// The machines that may go, by name; they are told by their position.
pub(super) struct Eligible<'s> {
    pub(super) machines: Vec<&'s FleetNode>,
    /// By machine: the position of its NodePool.
    pub(super) pool_at: Vec<usize>,
    /// By name.
    pub(super) pools: Vec<&'s NodePoolName>,
    /// By machine: equal for those of one NodePool and zone.
    pub(super) kin: Vec<usize>,
    /// Why the others stay.
    pub(super) stays: BTreeMap<NodeId, NodeReason>,
    /// Machines that are still coming up, or have not been quiet for long enough: nobody who moves goes there, so that
    /// they do not go in turn.
    pub(super) unquiet: BTreeSet<NodeId>,
}

impl<'s> Eligible<'s> {
    pub(super) fn new(context: &Context<'s>, candidates: &Candidates, before: &Outcome) -> Self {
        let gone: BTreeSet<NodeId> = before.commands.iter().flat_map(|command| &command.nodes).copied().collect();
        let mut stays = BTreeMap::new();
        let mut unquiet = BTreeSet::new();
        let mut machines: Vec<&FleetNode> = Vec::new();
        for machine in context.fleet.nodes.iter().filter(|machine| !gone.contains(&machine.node)) {
            let pool = context.pool_of(machine);
            let wants_quiet = pool.is_some_and(|(_, pool)| !pool.is_static() && pool.consolidate_after.is_some());
            let node = context.snapshot.nodes.try_get(machine.node);
            let is_coming_up = node.is_some_and(|node| node.state != NodeState::Initialized);
            if is_coming_up || (wants_quiet && machine.claim.consolidatable.is_none()) {
                unquiet.insert(machine.node);
            }
            if machine.is_empty() || candidates.block(machine, REASON).is_some() {
                continue;
            }
            match why_it_stays(context, machine) {
                Some(why) => drop(stays.insert(machine.node, why)),
                None => machines.push(machine),
            }
        }
        machines.sort_by_key(|machine| context.display_name(machine.node));
        let of_pool = |machine: &&FleetNode| context.pool_of(machine).map(|(name, _)| name);
        let names: BTreeSet<&NodePoolName> = machines.iter().filter_map(of_pool).collect();
        let pools: Vec<&NodePoolName> = names.into_iter().collect();
        let position = |machine: &&FleetNode| pools.iter().position(|pool| Some(*pool) == of_pool(machine));
        let pool_at: Vec<usize> = machines.iter().map(|machine| position(machine).unwrap_or(usize::MAX)).collect();
        let zones: BTreeSet<(usize, Option<&str>)> = pool_at.iter().copied().zip(machines.iter().map(zone)).collect();
        let zones: BTreeMap<(usize, Option<&str>), usize> = zones.into_iter().zip(0..).collect();
        let kin = pool_at.iter().copied().zip(machines.iter().map(zone));
        let kin = kin.map(|kin| zones.get(&kin).copied().unwrap_or(0)).collect();
        Self { machines, pool_at, pools, kin, stays, unquiet }
    }

    pub(super) fn node(&self, index: usize) -> Option<NodeId> {
        Some(self.machines.get(index)?.node)
    }

    pub(super) fn pool_of(&self, index: usize) -> Option<&'s NodePoolName> {
        self.pools.get(*self.pool_at.get(index)?).copied()
    }

    /// The machines of a set.
    pub(super) fn of(&self, set: &[usize]) -> Vec<&'s FleetNode> {
        set.iter().filter_map(|index| self.machines.get(*index).copied()).collect()
    }
}

fn zone<'f>(machine: &&'f FleetNode) -> Option<&'f str> {
    machine.machine.zone.as_deref()
}

/// Why a machine may not go that nothing blocks.
fn why_it_stays(context: &Context<'_>, machine: &FleetNode) -> Option<NodeReason> {
    let (name, pool) = context.pool_of(machine)?;
    let Some(wanted) = pool.consolidate_after else {
        return Some(NodeReason::ConsolidationOff { reason: REASON, node_pool: name.clone() });
    };
    if pool.policy == ConsolidationPolicy::WhenEmpty {
        return Some(NodeReason::Unconsolidatable(Unconsolidatable::PolicyWhenEmpty(name.clone())));
    }
    if machine.claim.consolidatable.is_none() {
        let last_pod_event = machine.claim.last_pod_event;
        return Some(NodeReason::NotQuiet { reason: REASON, wanted, last_pod_event });
    }
    if let Some(buffer) = context.buffer_on(machine.node) {
        return Some(NodeReason::HoldsBuffer { reason: REASON, buffer: buffer.clone() });
    }
    let unknown = NodeReason::Unconsolidatable(Unconsolidatable::PriceUnknown);
    machine.machine.price().is_none().then_some(unknown)
}
