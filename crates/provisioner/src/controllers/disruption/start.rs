//! The start of a command: what it relies on is looked at once more, then it is written down, and what takes the place
//! of others is launched.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use api::NodeClaim;
use cluster::node_claim::command::{MOST_NODE_CLAIMS, Note, has_note};
use cluster::pool_budget::Machines;
use model::{DurationMs, NodeClaimName, NodePoolName};
use scheduling::disruption::plan::{Command, Place};
use scheduling::plan::Plan;
use scheduling::plan::action::Action;
use scheduling::snapshot::fleet::{FleetNode, Reason, Unhealthy};
use scheduling::snapshot::{NodeId, NodeState, PoolId, Snapshot};

use super::planning::Planned;
use crate::world::context::Context;
use crate::world::preconditions::{self, Present, Stale};
use crate::world::store::State;
use crate::world::successors::Move;
use crate::world::{claim, planned_node_claim, static_node_claim};

/// A command that may begin.
pub(crate) struct Beginning {
    pub(crate) note: Note,
    /// The NodeClaims to create.
    pub(crate) launches: Vec<NodeClaim>,
    /// What must hold when all is written but the launches.
    pub(crate) deletion: Action,
    /// Pods that move to nodes that are there, and the NodeClaims of these.
    pub(crate) moves: Vec<Move>,
    /// The NodePools of those that go.
    pub(crate) pools: BTreeSet<NodePoolName>,
}

/// What the commands that have begun since the plan was made change of what it relies on.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    /// Nodes that go, by NodePool.
    pub(crate) going: BTreeMap<NodePoolName, usize>,
}

/// Why a command does not begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// The cluster has changed.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// It takes more nodes than can be written down.
    #[error("it takes {0} nodes, more than can be written down")]
    TooLarge(usize),
    /// What is to be launched cannot be written down.
    #[error(transparent)]
    Launch(#[from] crate::world::new_node_claim::Error),
}

/// How long the replacements may take if so many nodes go: Karpenter's own span, or what the user wants if that is
/// more.
pub(crate) fn time_limit(wanted: DurationMs, nodes: usize) -> DurationMs {
    const FOR_EACH_MS: i64 = 80;
    let by_number = i64::try_from(nodes).unwrap_or(i64::MAX).saturating_mul(FOR_EACH_MS);
    DurationMs(by_number.min(LONGEST.0).max(wanted.0))
}

/// No more than that is waited for many nodes.
const LONGEST: DurationMs = DurationMs::from_seconds(60 * 60);

/// The furthest that a deadline can lie ahead.
pub(crate) fn longest_time_limit(wanted: DurationMs) -> DurationMs {
    time_limit(wanted, usize::MAX)
}

impl Planned {
    /// The snapshot and the plan that say where the pods of a command go. Both have the nodes' ids of the plan.
    fn of_moves(&self) -> (&Snapshot, Option<&Plan>) {
        match &self.found.simulated {
            Some(simulated) => (&simulated.snapshot, Some(&simulated.plan)),
            None => (&self.snapshot, None),
        }
    }

    fn claim_of(&self, node: NodeId) -> Option<&NodeClaimName> {
        self.snapshot.nodes.try_get(node)?.node_claim.as_ref()
    }

    /// The NodeClaims that a command takes.
    pub(crate) fn going(&self, command: &Command) -> BTreeSet<NodeClaimName> {
        command.nodes.iter().filter_map(|node| self.claim_of(*node)).cloned().collect()
    }

    fn pools_of(&self, command: &Command) -> BTreeSet<NodePoolName> {
        let pools = command.nodes.iter().filter_map(|node| self.snapshot.nodes.try_get(*node)?.node_pool.clone());
        pools.collect()
    }

    /// What must hold for the nodes of a command to be deleted.
    fn deletion(&self, command: &Command) -> Action {
        let ends_by_force =
            |node: NodeId| self.machine(node).is_some_and(|machine| machine.ends_by_force(command.reason));
        Action::delete_eventually(command.nodes.clone(), ends_by_force)
    }

    fn machine(&self, node: NodeId) -> Option<&FleetNode> {
        self.snapshot.fleet.as_deref()?.nodes.iter().find(|machine| machine.node == node)
    }

    /// The machines of a command that are broken, by their NodeClaims, if it repairs.
    pub(crate) fn repaired<'p>(
        &'p self,
        command: &'p Command,
    ) -> impl Iterator<Item = (&'p NodeClaimName, &'p Unhealthy)> {
        let nodes = command.nodes.iter().filter(|_| command.reason == Reason::Unhealthy);
        nodes.filter_map(|node| Some((self.claim_of(*node)?, self.machine(*node)?.unhealthy.as_ref()?)))
    }

    fn moves(&self, command: &Command) -> Vec<Move> {
        let (snapshot, _) = self.of_moves();
        let to_node = command.moves.iter().filter_map(|it| match it.to {
            Place::Node(node) => {
                let pod = Arc::clone(&snapshot.pods.try_get(it.pod)?.pod);
                Some((pod, self.claim_of(node)?.clone()))
            }
            // Its NodeClaim says so itself.
            Place::Machine(_) => None,
        });
        to_node.collect()
    }
}

/// Looks whether a command may begin, and what it takes.
pub(crate) async fn begin(
    context: &Context,
    planned: &Planned,
    command: &Command,
    begun: &Begun,
) -> Result<Beginning, Refused> {
    let going = planned.going(command);
    if going.len() > MOST_NODE_CLAIMS {
        return Err(Refused::TooLarge(going.len()));
    }
    let (snapshot, plan) = planned.of_moves();
    let machines = || command.replacements.iter().filter_map(|id| plan?.machines.try_get(*id));
    let wanted: BTreeSet<PoolId> = machines().map(|machine| machine.node_pool).collect();
    let pools = preconditions::current_pools(context, snapshot, wanted, &planned.pools).await;
    let beginning = {
        let mut launches = Vec::new();
        for machine in machines() {
            let pool = match pools.get(&machine.node_pool) {
                Some(Ok(pool)) => pool,
                Some(Err(stale)) => return Err(stale.clone().into()),
                None => return Err(Stale::NodePoolGone.into()),
            };
            let grace = context.cloud.config().default_termination_grace_period;
            let mut claim = planned_node_claim::node_claim(snapshot, machine, pool, grace)?;
            planned_node_claim::note_overlays(&mut claim, snapshot, machine, &planned.overlays);
            launches.push(claim);
        }
        if let Some(name) = &command.static_pool {
            let pool = context.store.read().node_pools.get(name).map(Arc::clone).ok_or(Stale::NodePoolGone)?;
            // Nothing would come afterwards either.
            preconditions::check_ready(&pool)?;
            let launched = going.iter().filter(|_| command.launches_from().is_some());
            let config = context.cloud.config();
            let grace = config.default_termination_grace_period;
            let claim = static_node_claim::node_claim(&pool, &config.labels, grace)?;
            launches.extend(launched.map(|_| claim.clone()));
        }
        let bound = |(name, unhealthy): (&NodeClaimName, &Unhealthy)| Some((name.clone(), unhealthy.drain_bound?));
        let drain_bounds = planned.repaired(command).filter_map(bound).collect();
        let time_limit = time_limit(context.options.replacement_timeout, going.len());
        let note = Note {
            id: new_id(),
            reason: command.reason,
            going,
            replacements: launches.len(),
            deadline: context.clock.now().saturating_add(time_limit),
            drain_bounds,
        };
        let (moves, pools) = (planned.moves(command), planned.pools_of(command));
        Beginning { note, launches, deletion: planned.deletion(command), moves, pools }
    };
    let state = context.store.snapshot();
    check_nodes(context, planned, command, &state)?;
    check_pools(planned, &beginning.pools, begun, &state)?;
    check_deletion(context, planned, &beginning.deletion, &state)?;
    Ok(beginning)
}

/// Whether the nodes may still go.
pub(crate) fn check_deletion(
    context: &Context,
    planned: &Planned,
    deletion: &Action,
    state: &State,
) -> Result<(), Stale> {
    let nothing = Plan::default();
    let present = Present {
        snapshot: &planned.snapshot,
        plan: &nothing,
        state,
        pools: &BTreeMap::new(),
        now: context.clock.now(),
    };
    present.check(deletion)
}

/// Nobody has begun with the nodes, and no pod that waits has been planned onto them since.
fn check_nodes(context: &Context, planned: &Planned, command: &Command, state: &State) -> Result<(), Stale> {
    for &node in &command.nodes {
        let name = || planned.snapshot.nodes.try_get(node).map_or("", |node| node.display_name()).into();
        let Some(name_of_claim) = planned.claim_of(node) else { return Err(Stale::NodeGone(name())) };
        let (then, now) = (planned.state.node_claims.get(name_of_claim), state.node_claims.get(name_of_claim));
        let Some(now) = now.filter(|now| then.is_some_and(|then| claim::uid(then) == claim::uid(now))) else {
            return Err(Stale::NodeGone(name()));
        };
        if has_note(now) {
            return Err(Stale::NodeUnderWay(name()));
        }
        let waits = |uid: &model::Uid| state.pod_by_uid(uid).is_some_and(|pod| pod.node_name.is_none());
        // A broken machine that was never initialized may have them wait for ever.
        let is_initialized =
            planned.snapshot.nodes.try_get(node).is_some_and(|node| node.state == NodeState::Initialized);
        if is_initialized && context.assignments.pods_of(name_of_claim).iter().any(waits) {
            return Err(Stale::PodsPlanned(name()));
        }
    }
    Ok(())
}

/// The NodePools are as the plan knew them, and no more of their nodes are disrupted than it knew and than have begun
/// to be by it.
fn check_pools(planned: &Planned, pools: &BTreeSet<NodePoolName>, begun: &Begun, state: &State) -> Result<(), Stale> {
    for name in pools {
        let then = planned.pools.iter().find(|pool| pool.metadata.name.as_deref() == Some(name.as_str()));
        let (Some(then), Some(now)) = (then, state.node_pools.get(name)) else { return Err(Stale::NodePoolGone) };
        preconditions::check_same_pool(then, now)?;
        let known = disrupted(&planned.state, name) + begun.going.get(name).copied().unwrap_or(0);
        if disrupted(state, name) > known {
            return Err(Stale::BudgetUsedUp);
        }
    }
    Ok(())
}

/// How many machines of a NodePool count against its budgets.
fn disrupted(state: &State, pool: &NodePoolName) -> usize {
    let mut machines = Machines::default();
    for claim in state.node_claims_of_pool(pool) {
        let nodes = claim::provider_id(claim).into_iter().flat_map(|id| state.nodes_of_machine(id));
        nodes.for_each(|node| machines.add(claim, &node.object));
    }
    usize::try_from(machines.disrupted()).unwrap_or(usize::MAX)
}

/// Different for each command, over restarts too.
fn new_id() -> String {
    format!("{:016x}", RandomState::new().hash_one("command"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_nodes_have_more_time_and_the_user_may_give_more() {
        let minutes = |minutes: i64| DurationMs::from_seconds(60 * minutes);
        assert_eq!(time_limit(minutes(10), 1), minutes(10));
        assert_eq!(time_limit(minutes(10), 15_000), minutes(20));
        assert_eq!(time_limit(minutes(10), 1_000_000), minutes(60));
        assert_eq!(time_limit(minutes(90), 1_000_000), minutes(90));
        assert_eq!(longest_time_limit(minutes(10)), minutes(60));
        assert_eq!(longest_time_limit(minutes(90)), minutes(90));
    }
}
