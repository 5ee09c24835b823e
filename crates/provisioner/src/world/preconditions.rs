//! What actions rely on, looked at in the cluster as it is now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{NodeClaim, NodePool};
use cluster::node_pool::readiness;
use kube::api::Api;
use model::{NamespacedName, NodeClaimName, NodeName, NodePoolName, Pod, Quantity, ResourceVec, Timestamp};
use scheduling::plan::action::{Action, Precondition};
use scheduling::plan::{Machine, Plan};
use scheduling::snapshot::eviction::Budgets;
use scheduling::snapshot::pending::{is_of_workload, may_leave};
use scheduling::snapshot::{Limit, NodeId, PoolId, Snapshot};
use tracing::warn;

use crate::runtime::failures::cause_in_words;
use crate::world::buffers;
use crate::world::claim;
use crate::world::context::Context;
use crate::world::store::{State, Stored};

/// Why an action is dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stale {
    #[error("nodepool is gone")]
    NodePoolGone,
    #[error("nodepool was replaced by another of that name")]
    NodePoolReplaced,
    #[error("nodepool has changed")]
    NodePoolChanged,
    #[error("nodepool is being deleted")]
    NodePoolDeleting,
    #[error("nodepool {0}")]
    NodePoolNotReady(Arc<str>),
    #[error("limits of the nodepool are used up by now")]
    LimitsUsedUp,
    #[error("none of its pods waits any more")]
    NoPodWaits,
    #[error("{0} has no nodeclaim of ours any more")]
    NodeGone(NodeName),
    #[error("{0} is being deleted")]
    NodeDeleting(NodeName),
    #[error("pod {pod} has come to {node}")]
    PodArrived { pod: NamespacedName, node: NodeName },
    #[error("pod {pod} may not leave {node}")]
    PodMayNotLeave { pod: NamespacedName, node: NodeName },
    #[error("{0} takes part in a command already")]
    NodeUnderWay(NodeName),
    #[error("pods that wait are to come to {0}")]
    PodsPlanned(NodeName),
    #[error("more nodes of the nodepool are disrupted by now")]
    BudgetUsedUp,
    #[error("nodeclaim {0} has changed")]
    NodeClaimChanged(NodeClaimName),
}

/// What preconditions are held against.
#[derive(Clone, Copy)]
pub(crate) struct Present<'a> {
    /// What the plan was made from.
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) plan: &'a Plan,
    /// The cluster as it is now.
    pub(crate) state: &'a State,
    /// The NodePools that the plan's actions rely on.
    pub(crate) pools: &'a BTreeMap<PoolId, Result<Arc<NodePool>, Stale>>,
    pub(crate) now: Timestamp,
}

impl<'a> Present<'a> {
    /// Whether all that an action relies on still holds; if not, the first that does not.
    pub(crate) fn check(&self, action: &Action) -> Result<(), Stale> {
        action.preconditions().iter().try_for_each(|precondition| self.holds(*precondition))
    }

    fn holds(&self, precondition: Precondition) -> Result<(), Stale> {
        let Self { snapshot, plan, state, .. } = *self;
        match precondition {
            Precondition::PoolUnchanged(pool) => self.pool(pool).map(drop),
            Precondition::StillWanted(id) => check_machine(state, snapshot, &plan.machines[id])
                .or_else(|why| if buffers::is_wanted(state, snapshot, plan, id) { Ok(()) } else { Err(why) }),
            Precondition::NodeStays(node) => self.node_claim(node).map(drop),
            Precondition::NoPodArrived(node) => {
                let known: BTreeSet<_> = snapshot.nodes[node].pods.iter().map(|pod| &pod.uid).collect();
                match self.pods_on(node).find(|pod| !known.contains(&pod.uid)) {
                    Some(pod) => Err(Stale::PodArrived { pod: pod.name.clone(), node: self.node_name(node) }),
                    None => Ok(()),
                }
            }
            Precondition::PodsMayLeave(node) => match held(state, self.pods_on(node), self.now) {
                Some(pod) => Err(Stale::PodMayNotLeave { pod: pod.name.clone(), node: self.node_name(node) }),
                None => Ok(()),
            },
        }
    }

    /// The NodePool as it is now, if machines of it may be created.
    pub(crate) fn pool(&self, pool: PoolId) -> Result<&'a Arc<NodePool>, Stale> {
        match self.pools.get(&pool) {
            Some(Ok(pool)) => Ok(pool),
            Some(Err(stale)) => Err(stale.clone()),
            None => Err(Stale::NodePoolGone),
        }
    }

    /// The node's NodeClaim as it is now, if neither it nor the node is being deleted.
    pub(crate) fn node_claim(&self, node: NodeId) -> Result<&'a Arc<NodeClaim>, Stale> {
        let planned = &self.snapshot.nodes[node];
        let claim = planned.node_claim.as_ref().and_then(|name| self.state.node_claims.get(name));
        let claim = claim.ok_or_else(|| Stale::NodeGone(self.node_name(node)))?;
        let is_going = match &planned.name {
            None => false,
            Some(name) => {
                let now = self.state.nodes.get(name).ok_or_else(|| Stale::NodeGone(name.clone()))?;
                now.model.deletion_timestamp.is_some()
            }
        };
        if is_going || claim::is_deleting(claim) { Err(Stale::NodeDeleting(self.node_name(node))) } else { Ok(claim) }
    }

    /// Pods there that would have to be placed elsewhere. The machine may have got its Node after the snapshot.
    fn pods_on(&self, node: NodeId) -> impl Iterator<Item = &'a Arc<Pod>> + use<'a> {
        let (state, planned) = (self.state, &self.snapshot.nodes[node]);
        let claim = planned.node_claim.as_ref().and_then(|name| state.node_claims.get(name));
        let machine = claim.and_then(|claim| claim::provider_id(claim));
        let now = machine.into_iter().flat_map(|id| state.nodes_of_machine(id)).map(|record| &record.model.name);
        let names: BTreeSet<&NodeName> = planned.name.iter().chain(now).collect();
        let pods = names.into_iter().flat_map(|name| state.pods_on_node(name));
        pods.filter(|pod| is_of_workload(pod))
    }

    fn node_name(&self, node: NodeId) -> NodeName {
        self.snapshot.nodes[node].display_name().into()
    }
}

/// The first of those pods that something forbids to evict, for good or for longer than one waits for it.
fn held<'a>(state: &State, mut pods: impl Iterator<Item = &'a Arc<Pod>>, now: Timestamp) -> Option<&'a Arc<Pod>> {
    let budgets = Budgets::new(state.pod_disruption_budgets.values().map(AsRef::as_ref));
    pods.find(|pod| !may_leave(pod, now, &budgets, &state.interner))
}

/// The pods on the Node of a NodeClaim that would have to be placed elsewhere.
pub(crate) fn pods_of_machine<'a>(state: &'a State, claim: &NodeClaim) -> impl Iterator<Item = &'a Arc<Pod>> {
    let nodes = claim::provider_id(claim).into_iter().flat_map(|id| state.nodes_of_machine(id));
    nodes.flat_map(|node| state.pods_on_node(&node.model.name)).filter(|pod| is_of_workload(pod))
}

/// The first pod there that may not be evicted, as [`Precondition::PodsMayLeave`] asks for it.
pub(crate) fn held_pod<'a>(state: &'a State, claim: &NodeClaim, now: Timestamp) -> Option<&'a Arc<Pod>> {
    held(state, pods_of_machine(state, claim), now)
}

/// The NodePools that a plan's actions rely on.
pub(crate) fn pools_of(plan: &Plan) -> BTreeSet<PoolId> {
    plan.actions.iter().flat_map(pools).collect()
}

fn pools(action: &Action) -> impl Iterator<Item = PoolId> {
    action.preconditions().iter().filter_map(|precondition| match precondition {
        Precondition::PoolUnchanged(pool) => Some(*pool),
        Precondition::StillWanted(_)
        | Precondition::NodeStays(_)
        | Precondition::NoPodArrived(_)
        | Precondition::PodsMayLeave(_) => None,
    })
}

/// Each of those NodePools as it is on the API server, or why it may not be used.
pub(crate) async fn current_pools(
    context: &Context,
    snapshot: &Snapshot,
    wanted: BTreeSet<PoolId>,
    planned_pools: &[Arc<NodePool>],
) -> BTreeMap<PoolId, Result<Arc<NodePool>, Stale>> {
    let api = Api::<NodePool>::all(context.client.clone());
    let mut current = BTreeMap::new();
    for id in wanted {
        let name = &snapshot.node_pools[id].name;
        let planned = planned_pools.iter().find(|pool| pool.metadata.name.as_deref() == Some(name));
        let live = match api.get_opt(name).await {
            Ok(live) => live.map(Arc::new),
            Err(error) => {
                // What the watch has shown is the next best knowledge.
                warn!(node_pool = %name, error = cause_in_words(&error), "could not read nodepool again");
                context.store.read().node_pools.get(name).cloned()
            }
        };
        let checked = match (planned, live) {
            (Some(planned), Some(live)) => check_pool(planned, &live).map(|()| live),
            (None, _) | (_, None) => Err(Stale::NodePoolGone),
        };
        let checked = checked.and_then(|pool| {
            let used = used_since(&context.store.read(), snapshot, name);
            check_limits(snapshot, id, &used).map(|()| pool)
        });
        current.insert(id, checked);
    }
    current
}

/// Whether a NodePool is still the one that the plan was made from, and ready.
pub(crate) fn check_pool(planned: &NodePool, live: &NodePool) -> Result<(), Stale> {
    check_same_pool(planned, live)?;
    check_ready(live)
}

/// Whether machines of a NodePool may be created.
pub(crate) fn check_ready(live: &NodePool) -> Result<(), Stale> {
    readiness(live).map_err(Stale::NodePoolNotReady)
}

/// Whether a NodePool is still the one that the plan was made from.
pub(crate) fn check_same_pool(planned: &NodePool, live: &NodePool) -> Result<(), Stale> {
    if planned.metadata.uid != live.metadata.uid {
        return Err(Stale::NodePoolReplaced);
    }
    if live.metadata.deletion_timestamp.is_some() {
        return Err(Stale::NodePoolDeleting);
    }
    if planned.metadata.generation != live.metadata.generation {
        return Err(Stale::NodePoolChanged);
    }
    Ok(())
}

/// What NodeClaims of a pool that the plan did not know ask for.
pub(crate) fn used_since(state: &State, snapshot: &Snapshot, pool: &NodePoolName) -> (ResourceVec, i64) {
    let known: BTreeSet<&str> = snapshot.nodes.iter().filter_map(|node| node.node_claim.as_deref()).collect();
    let (mut used, mut count) = (ResourceVec::new(), 0);
    for claim in state.node_claims_of_pool(pool) {
        if known.contains(claim.key().as_str()) || claim.metadata.deletion_timestamp.is_some() {
            continue;
        }
        count += 1;
        for (name, amount) in &claim.spec.resources.requests {
            let Some(resource) = snapshot.interner.find_resource(name) else { continue };
            let mut one = ResourceVec::new();
            if let Ok(amount) = Quantity::parse(&amount.0)
                && one.set_quantity(resource, &amount).is_ok()
            {
                used.saturating_add_assign(&one);
            }
        }
    }
    (used, count)
}

/// Whether anything is left of a pool's limits after what was created meanwhile.
pub(crate) fn check_limits(snapshot: &Snapshot, pool: PoolId, used: &(ResourceVec, i64)) -> Result<(), Stale> {
    let exceeded = snapshot.node_pools[pool].remaining.iter().any(|limit| {
        let since = match limit.limit {
            Limit::Nodes => used.1,
            Limit::Resource(resource) => used.0.get(resource),
        };
        since > 0 && since >= limit.remaining
    });
    if exceeded { Err(Stale::LimitsUsedUp) } else { Ok(()) }
}

/// Whether a machine is still wanted: one of its pods waits, and was not bound or deleted meanwhile.
pub(crate) fn check_machine(state: &State, snapshot: &Snapshot, machine: &Machine) -> Result<(), Stale> {
    let waits = |pod: &Pod| {
        let planned_node = &pod.node_name;
        state.pod_by_uid(&pod.uid).is_some_and(|now| {
            now.deletion_timestamp.is_none() && !now.phase.is_terminal() && now.node_name == *planned_node
        })
    };
    let any = machine.pods.iter().any(|&pod| waits(&snapshot.pods[pod].pod));
    if any { Ok(()) } else { Err(Stale::NoPodWaits) }
}
