//! Machines of static NodePools that have drifted: each is replaced by one from the bare template, as many at once as
//! budgets and `limits.nodes` let (Karpenter's StaticDrift).
//!
//! No pod decides what takes their place, so nothing is placed: the pods go where the scheduler finds room once their
//! machine is drained.
//!
//! Differs: `static-drift-order`. Those that drifted first go first; Karpenter takes them as its maps have them.

use std::collections::BTreeMap;

use api::NodePool;
use model::NodePoolName;
use scheduling::disruption::plan::DisruptionPlan;
use scheduling::disruption::reason::{Block, NodeReason};
use scheduling::snapshot::fleet::{Fleet, FleetNode, Reason};
use scheduling::snapshot::{NodeId, Snapshot};

use crate::world::static_pools::{Count, node_limit};
use crate::world::store::State;

/// How many machines of a static NodePool may be replaced now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Room {
    /// `spec.replicas`.
    replicas: i64,
    count: Count,
    /// `limits.nodes`.
    limit: Option<i64>,
    /// What is left of the strictest budget for drift; `None` if nothing limits it.
    budget: Option<i64>,
}

impl Room {
    /// A NodePool that has more than it wants is brought down first.
    fn replaceable(self) -> i64 {
        let Count { active, pending_disruption, deleting } = self.count;
        if active + pending_disruption > self.replicas {
            return 0;
        }
        let below_limit = self.limit.map_or(i64::MAX, |limit| limit - (active + pending_disruption + deleting));
        below_limit.min(self.budget.unwrap_or(i64::MAX)).max(0)
    }
}

/// The nodes that are replaced, by NodePool and in the order in which they drifted.
pub(crate) fn replaced(state: &State, snapshot: &Snapshot, plan: &DisruptionPlan) -> Vec<(NodeId, NodePoolName)> {
    let Some(fleet) = snapshot.fleet.as_deref() else { return Vec::new() };
    let mut replaced = Vec::new();
    for (name, mut candidates) in candidates(fleet, snapshot, plan) {
        let Some(room) = state.node_pools.get(&name).and_then(|pool| room(state, plan, &name, pool)) else { continue };
        candidates.sort_by_key(|machine| {
            let since = machine.claim.drifted.as_ref().map(|drift| drift.since);
            (since, snapshot.nodes.try_get(machine.node).map(|node| node.display_name()))
        });
        let number = usize::try_from(room.replaceable()).unwrap_or(usize::MAX);
        replaced.extend(candidates.into_iter().take(number).map(|machine| (machine.node, name.clone())));
    }
    replaced
}

/// Machines that have drifted, and that nothing holds but that their NodePool is static, by NodePool.
fn candidates<'f>(
    fleet: &'f Fleet,
    snapshot: &Snapshot,
    plan: &DisruptionPlan,
) -> BTreeMap<NodePoolName, Vec<&'f FleetNode>> {
    let mut all: BTreeMap<NodePoolName, Vec<&FleetNode>> = BTreeMap::new();
    let by_node: BTreeMap<NodeId, &FleetNode> = fleet.nodes.iter().map(|machine| (machine.node, machine)).collect();
    for (node, why) in &plan.node_reasons {
        let NodeReason::Blocked(Block::StaticNodePool(pool)) = why else { continue };
        let Some(machine) = by_node.get(node).filter(|machine| may_go(snapshot, machine)) else { continue };
        all.entry(pool.clone()).or_default().push(machine);
    }
    all
}

fn may_go(snapshot: &Snapshot, machine: &FleetNode) -> bool {
    // The grace period ends what holds pods (Karpenter's class "eventual").
    let is_held =
        machine.claim.termination_grace_period.is_none() && machine.pods.iter().any(|pod| pod.forbidden.is_some());
    let is_nominated = snapshot.nodes.try_get(machine.node).is_none_or(|node| {
        let claim = node.node_claim.as_ref();
        snapshot.pods.iter().any(|pending| pending.planned_on.is_some() && pending.planned_on.as_ref() == claim)
    });
    machine.claim.drifted.is_some() && !machine.is_protected && !is_held && !is_nominated
}

fn room(state: &State, plan: &DisruptionPlan, name: &NodePoolName, pool: &NodePool) -> Option<Room> {
    let allowance = plan.pools.iter().find(|allowance| allowance.name == *name)?;
    let allowed = allowance.allowed.iter().find(|(reason, _)| *reason == Reason::Drifted)?.1;
    let consumed = i64::from(allowance.disrupted) + i64::from(allowance.taken);
    Some(Room {
        replicas: pool.spec.replicas?,
        count: Count::of(state.node_claims_of_pool(name).map(AsRef::as_ref)),
        // One that cannot be read lets nothing be launched, and whoever launches tells it.
        limit: node_limit(pool).unwrap_or(Some(0)),
        budget: allowed.map(|allowed| i64::from(allowed) - consumed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_replaced_as_budget_and_limit_let_and_none_while_there_are_too_many() {
        let cases = [
            // replicas, active, pending disruption, deleting, limit, budget
            ((3, 3, 0, 0, None, None), i64::MAX),
            ((3, 3, 0, 0, None, Some(2)), 2),
            ((3, 3, 0, 0, Some(4), Some(2)), 1),
            ((3, 3, 0, 0, Some(3), Some(2)), 0),
            ((3, 2, 1, 0, Some(9), Some(1)), 1),
            ((3, 3, 1, 0, None, Some(2)), 0),
            ((3, 3, 0, 1, Some(5), None), 1),
            ((3, 3, 0, 0, None, Some(-1)), 0),
        ];
        for ((replicas, active, pending_disruption, deleting, limit, budget), expected) in cases {
            let count = Count { active, pending_disruption, deleting };
            let room = Room { replicas, count, limit, budget };
            assert_eq!(room.replaceable(), expected, "{room:?}");
        }
    }
}
