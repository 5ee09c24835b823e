//! Turns a plan into NodeClaims, if what it was made from still holds.
//!
//! Before anything is created, each NodePool with machines is read from the API server once more. A machine is dropped,
//! and a new plan asked for, if its NodePool is another object by now, has changed its spec, is not ready or is being
//! deleted, if its limits are used up by NodeClaims that the plan did not know, or if none of its pods waits any more.
//!
//! NodeClaims are created in parallel and put into the store at once, so that the next plan sees them. The name is
//! chosen here and kept when a request is repeated, so an answer that got lost does not lead to a second machine. A
//! request that is not answered is repeated for some minutes: while it may have been carried out, no plan can be made
//! without the risk to launch for the same pods twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::{NodeClaim, NodePool};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::api::{Api, PostParams};
use model::{NodeClaimName, NodePoolName, ResourceVec, Uid};
use scheduling::plan::{Machine, MachineId, Plan};
use scheduling::snapshot::{Limit, PodId, PoolId, Snapshot};
use tokio::sync::Semaphore;
use tracing::{error, info, warn};

use super::buffers;
use super::catalogues::readiness;
use super::node_claim::{self, node_claim, pod_uids, random_name};
use super::planned_pods_update;
use super::round::Launches;
use crate::beats::Beat;
use crate::context::Context;
use crate::failpoints;
use crate::jitter::jittered;
use crate::leader_election::NotLeading;
use crate::overlays::Outcome;
use crate::patch::lean;
use crate::store::{Revision, State, Stored};

/// NodeClaims being created at the same time.
const PARALLEL_CREATES: usize = 64;
/// How often a name that is taken is replaced by another.
const NAME_ATTEMPTS: usize = 5;

/// How often a request is sent that is not answered, and the pause between two.
const UNANSWERED_ATTEMPTS: usize = 4;
const UNANSWERED_PAUSE: Duration = Duration::from_secs(2);

/// What is to be committed.
#[derive(Clone, Copy)]
pub(super) struct Planned<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) plan: &'a Plan,
    /// The NodePools that the plan was made from.
    pub(super) pools: &'a [Arc<NodePool>],
    pub(super) notes: Notes<'a>,
}

/// What came of a plan's machines and placements.
#[derive(Debug, Default)]
pub(super) struct Committed {
    /// Created NodeClaims.
    pub(super) created: BTreeMap<MachineId, NodeClaimName>,
    /// Machines dropped because the cluster had changed.
    pub(super) stale: usize,
    /// Machines that could not be created.
    pub(super) failed: usize,
}

/// Why a machine is dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Stale {
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
}

/// What NodeClaims say besides what the plan does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Notes<'a> {
    /// What NodeOverlays changed of the instance types.
    pub(super) overlays: &'a Outcome,
    /// For which classes of pods they are launched, and which are not launched now.
    pub(super) launches: &'a Launches,
}

/// Creates what the plan says, and remembers which pods wait for which machine.
pub(super) async fn commit(context: &Context, beat: &Beat, planned: Planned<'_>) -> Committed {
    let Planned { snapshot, plan, pools: planned_pools, notes } = planned;
    context.assignments.set_stages(stages(snapshot, plan));
    assign_existing(context, snapshot, plan);
    let mut committed = Committed::default();
    let usable = current_pools(context, snapshot, plan, planned_pools).await;
    let mut claims = Vec::new();
    let wanted = plan.machines.iter_enumerated().filter(|(id, _)| !notes.launches.held_back.contains(id));
    for (id, machine) in wanted {
        let checked = match usable.get(&machine.node_pool) {
            Some(Ok(pool)) => {
                let state = context.store.read();
                let checked = check_machine(&state, snapshot, machine);
                checked
                    .or_else(|why| if buffers::is_wanted(&state, snapshot, plan, id) { Ok(()) } else { Err(why) })
                    .map(|()| pool)
            }
            Some(Err(stale)) => Err(stale.clone()),
            None => Err(Stale::NodePoolGone),
        };
        match checked {
            Ok(pool) => claims.push((id, pool)),
            Err(stale) => {
                let pool = &snapshot.node_pools[machine.node_pool].name;
                info!(nodepool = %pool, reason = %stale, "dropping a planned machine, planning again");
                context.metrics.stale_plans.inc();
                committed.stale += 1;
            }
        }
    }
    let permits = Semaphore::new(PARALLEL_CREATES);
    let mut creating: FuturesUnordered<_> =
        claims.into_iter().map(|(id, pool)| create(context, snapshot, plan, (id, pool), notes, &permits)).collect();
    while let Some((id, result)) = creating.next().await {
        beat.busy();
        match result {
            Ok(name) => {
                committed.created.insert(id, name);
            }
            Err(failure) => {
                let pool = &snapshot.node_pools[plan.machines[id].node_pool].name;
                error!(nodepool = %pool, error = format!("{failure:#}"), "could not create nodeclaim");
                committed.failed += 1;
            }
        }
    }
    committed
}

/// The stages of the pods that get a machine with this plan; those that have one already keep theirs.
fn stages(snapshot: &Snapshot, plan: &Plan) -> Vec<(Uid, u32)> {
    let stages: BTreeMap<PodId, u32> = plan.stages().collect();
    let on_machines = plan.machines.iter().flat_map(|machine| machine.pods.iter().copied());
    let on_existing = plan.existing.iter().flat_map(|placement| {
        let claim = snapshot.nodes[placement.node].node_claim.as_ref();
        let is_new = move |pod: &PodId| claim.is_some() && snapshot.pods[*pod].planned_on.as_ref() != claim;
        placement.pods.iter().copied().filter(is_new)
    });
    let stage = |pod: PodId| (snapshot.pods[pod].pod.uid.clone(), stages.get(&pod).copied().unwrap_or(0));
    on_machines.chain(on_existing).map(stage).collect()
}

/// Pods planned onto NodeClaims that are under way wait for those.
fn assign_existing(context: &Context, snapshot: &Snapshot, plan: &Plan) {
    for placement in &plan.existing {
        let Some(claim) = &snapshot.nodes[placement.node].node_claim else { continue };
        let state = context.store.read();
        let waits = |uid: &Uid| state.pod_by_uid(uid).is_some_and(|pod| pod.node_name.is_none());
        // Who was bound meanwhile is forgotten, and stays so.
        let pods = placement.pods.iter().map(|&pod| snapshot.pods[pod].pod.uid.clone()).filter(waits);
        context.assignments.extend(claim, pods);
    }
    planned_pods_update::write(context, snapshot, plan);
}

/// Each NodePool with machines as it is on the API server, or why it may not be used.
async fn current_pools(
    context: &Context,
    snapshot: &Snapshot,
    plan: &Plan,
    planned_pools: &[Arc<NodePool>],
) -> BTreeMap<PoolId, Result<Arc<NodePool>, Stale>> {
    let api = Api::<NodePool>::all(context.client.clone());
    let mut current = BTreeMap::new();
    let wanted: BTreeSet<PoolId> = plan.machines.iter().map(|machine| machine.node_pool).collect();
    for id in wanted {
        let name = &snapshot.node_pools[id].name;
        let planned = planned_pools.iter().find(|pool| pool.metadata.name.as_deref() == Some(name));
        let live = match api.get_opt(name).await {
            Ok(live) => live.map(Arc::new),
            Err(error) => {
                // What the watch has shown is the next best knowledge.
                warn!(nodepool = %name, %error, "could not read nodepool again");
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

/// Whether a NodePool is still the one that the plan was made from.
pub(super) fn check_pool(planned: &NodePool, live: &NodePool) -> Result<(), Stale> {
    if planned.metadata.uid != live.metadata.uid {
        return Err(Stale::NodePoolReplaced);
    }
    if live.metadata.deletion_timestamp.is_some() {
        return Err(Stale::NodePoolDeleting);
    }
    if planned.metadata.generation != live.metadata.generation {
        return Err(Stale::NodePoolChanged);
    }
    readiness(live).map_err(Stale::NodePoolNotReady)
}

/// What NodeClaims of a pool that the plan did not know ask for.
pub(super) fn used_since(state: &State, snapshot: &Snapshot, pool: &NodePoolName) -> (ResourceVec, i64) {
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
            if let Ok(amount) = model::Quantity::parse(&amount.0)
                && one.set_quantity(resource, &amount).is_ok()
            {
                used.saturating_add_assign(&one);
            }
        }
    }
    (used, count)
}

/// Whether anything is left of a pool's limits after what was created meanwhile.
pub(super) fn check_limits(snapshot: &Snapshot, pool: PoolId, used: &(ResourceVec, i64)) -> Result<(), Stale> {
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
pub(super) fn check_machine(state: &State, snapshot: &Snapshot, machine: &Machine) -> Result<(), Stale> {
    let waits = |pod: &model::Pod| {
        let planned_node = &pod.node_name;
        state.pod_by_uid(&pod.uid).is_some_and(|now| {
            now.deletion_timestamp.is_none() && !now.phase.is_terminal() && now.node_name == *planned_node
        })
    };
    let any = machine.pods.iter().any(|&pod| waits(&snapshot.pods[pod].pod));
    if any { Ok(()) } else { Err(Stale::NoPodWaits) }
}

async fn create(
    context: &Context,
    snapshot: &Snapshot,
    plan: &Plan,
    (id, pool): (MachineId, &NodePool),
    notes: Notes<'_>,
    permits: &Semaphore,
) -> (MachineId, anyhow::Result<NodeClaimName>) {
    // The semaphore is never closed.
    let _permit = permits.acquire().await;
    let machine = &plan.machines[id];
    let grace = context.cloud.config().default_termination_grace_period;
    let result = match node_claim(snapshot, machine, pool, grace) {
        Ok(mut claim) => {
            node_claim::note_overlays(&mut claim, snapshot, machine, notes.overlays);
            node_claim::note_classes(&mut claim, notes.launches.annotations.get(&id));
            let pods = pod_uids(snapshot, machine);
            node_claim::note_stages(&mut claim, &pods, &context.assignments.stages());
            create_named(context, claim, &pods).await
        }
        Err(error) => Err(node_claim::Error::into(error)),
    };
    (id, result)
}

async fn create_named(context: &Context, mut claim: NodeClaim, pods: &[Uid]) -> anyhow::Result<NodeClaimName> {
    let api = Api::<NodeClaim>::all(context.client.clone());
    let (mut attempt, mut unanswered) = (1, 0);
    let mut name = random_name(&claim);
    loop {
        claim.metadata.name = Some(name.clone());
        failpoints::hit("provision.before-create");
        match api.create(&PostParams::default(), &claim).await {
            Ok(created) => return Ok(remember(context, created, pods)),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                // Requests are repeated, so this may be the claim we have just asked for.
                if let Some(existing) = api.get_opt(&name).await?.filter(|existing| is_same(existing, &claim)) {
                    return Ok(remember(context, existing, pods));
                }
                anyhow::ensure!(attempt < NAME_ATTEMPTS, "{attempt} names were taken, last {name}");
                attempt += 1;
                name = random_name(&claim);
            }
            Err(error) if may_be_done(&error) && !context.stop.is_cancelled() => {
                unanswered += 1;
                anyhow::ensure!(unanswered < UNANSWERED_ATTEMPTS, "no answer to {unanswered} requests, last: {error}");
                warn!(nodeclaim = name, %error, "not known whether the nodeclaim was created, asking again");
                tokio::time::sleep(jittered(UNANSWERED_PAUSE)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a request that failed so may have been carried out, or may be yet.
fn may_be_done(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500,
        kube::Error::Service(error) => !error.is::<NotLeading>(),
        _ => true,
    }
}

/// Whether a NodeClaim of the wanted name was made from this very request: claims of two machines differ in their pods.
fn is_same(existing: &NodeClaim, wanted: &NodeClaim) -> bool {
    existing.spec == wanted.spec && existing.metadata.annotations == wanted.metadata.annotations
}

fn remember(context: &Context, claim: NodeClaim, pods: &[Uid]) -> NodeClaimName {
    failpoints::hit("provision.after-create");
    let name = claim.key();
    context.assignments.assign(&name, pods.iter().cloned());
    let revision = Revision::of(&claim.metadata);
    context.store.apply(lean(claim), revision);
    name
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_request_is_repeated_under_its_name_only_while_nobody_knows_what_came_of_it() {
        let answered = |code| kube::Error::Api(Status { code, ..Status::default() }.boxed());
        let unanswered = crate::client::TimedOut::Answer(Duration::from_secs(35));
        for (error, expected) in [
            (answered(403), false),
            (answered(422), false),
            (answered(429), false),
            (answered(500), true),
            (answered(504), true),
            (kube::Error::Service(unanswered.into()), true),
            (kube::Error::Service(NotLeading.into()), false),
        ] {
            assert_eq!(may_be_done(&error), expected, "{error}");
        }
    }
}
