//! Carries out the actions of a plan, if what they rely on still holds.
//!
//! Before anything is done, each NodePool that an action relies on is read from the API server once more. An action is
//! dropped, and a new plan asked for, if one of its preconditions does not hold: its NodePool is another object by now,
//! has changed its spec, is not ready or is being deleted, its limits are used up by NodeClaims that the plan did not
//! know, none of a machine's pods waits any more, or a pod has come to a node that was to go.
//!
//! NodeClaims are created in parallel and put into the store at once, so that the next plan sees them. A request that
//! is not answered is repeated for some minutes ([`new_node_claim::create`]): while it may have been carried out, no
//! plan can be made without the risk to launch for the same pods twice.

pub(super) mod delete;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{NodeClaim, NodePool};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use model::{Id, NodeClaimName, Uid};
use scheduling::plan::action::Action;
use scheduling::plan::{MachineId, Plan};
use scheduling::snapshot::{PodId, Snapshot};
use tokio::sync::Semaphore;
use tracing::{error, info};

use super::bindings;
use super::node_claim;
use super::planned_pods_update;
use super::round::Launches;
use crate::runtime::beats::Beat;
use crate::runtime::failpoints;
use crate::runtime::patch::lean;
use crate::world::assignments::{Assignments, Promise};
use crate::world::context::Context;
use crate::world::new_node_claim;
use crate::world::overlays::Outcome;
use crate::world::planned_node_claim::{self, pod_uids};
use crate::world::preconditions::{self, Present, Stale};
use crate::world::store::{Revision, State, Stored};

/// NodeClaims being created at the same time.
const PARALLEL_CREATES: usize = 64;
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
    /// Actions dropped because the cluster had changed.
    pub(super) stale: usize,
    /// NodeClaims that could not be created or deleted.
    pub(super) failed: usize,
}

/// What NodeClaims say besides what the plan does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Notes<'a> {
    /// What NodeOverlays changed of the instance types.
    pub(super) overlays: &'a Outcome,
    /// For which classes of pods they are launched, and which are not launched now.
    pub(super) launches: &'a Launches,
}

/// Does what the plan says, and remembers which pods wait for which machine.
pub(super) async fn commit(context: &Context, beat: &Beat, planned: Planned<'_>) -> Committed {
    let Planned { snapshot, plan, pools: planned_pools, notes } = planned;
    let launches = notes.launches;
    let promise = assign(&context.store.read(), &context.assignments, planned);
    planned_pods_update::write(context, snapshot, plan);
    let mut committed = Committed::default();
    let pools = preconditions::current_pools(context, snapshot, preconditions::pools_of(plan), planned_pools).await;
    let state = context.store.snapshot();
    let present = Present { snapshot, plan, state: &state, pools: &pools, now: context.clock.now() };
    let Ready { creates, deletes, stale } = ready(&present, &launches.held_back);
    let created: BTreeSet<usize> = creates.iter().map(|(id, _)| id.index()).collect();
    promise.retain(|machine| created.contains(&machine));
    for (action, why) in stale {
        log_dropped(action, &why, planned);
        committed.stale += 1;
    }
    // At the same time: requests for machines may go unanswered for minutes, and what was looked at would be old.
    let mut deleted = Committed::default();
    tokio::join!(
        create_all(context, beat, planned, creates, &mut committed),
        delete::all(&context.client, &context.store, beat, deletes, &mut deleted),
    );
    committed.stale += deleted.stale;
    committed.failed += deleted.failed;
    context.metrics.stale_plans.inc_by(u64::try_from(committed.stale).unwrap_or(u64::MAX));
    committed
}

/// What is to be done now, and what is not done.
#[derive(Default)]
pub(super) struct Ready<'a> {
    pub(super) creates: Vec<(MachineId, &'a Arc<NodePool>)>,
    /// As they were looked at.
    pub(super) deletes: Vec<Arc<NodeClaim>>,
    pub(super) stale: Vec<(&'a Action, Stale)>,
}

/// Which actions may be carried out. Machines that are held back are in none of the lists.
pub(super) fn ready<'a>(present: &Present<'a>, held_back: &BTreeSet<MachineId>) -> Ready<'a> {
    let mut ready = Ready::default();
    for action in &present.plan.actions {
        let added = match action {
            Action::Create { machine, .. } if held_back.contains(machine) => continue,
            Action::Create { machine, .. } => present.check(action).and_then(|()| {
                ready.creates.push((*machine, present.pool(present.plan.machines[*machine].node_pool)?));
                Ok(())
            }),
            Action::Delete { nodes, .. } => present.check(action).and_then(|()| {
                let claims: Vec<_> = nodes.iter().map(|&node| present.node_claim(node)).collect::<Result<_, _>>()?;
                ready.deletes.extend(claims.into_iter().map(Arc::clone));
                Ok(())
            }),
        };
        if let Err(why) = added {
            ready.stale.push((action, why));
        }
    }
    ready
}

fn log_dropped(action: &Action, stale: &Stale, Planned { snapshot, plan, .. }: Planned<'_>) {
    match action {
        Action::Create { machine, .. } => {
            let pool = &snapshot.node_pools[plan.machines[*machine].node_pool].name;
            info!(node_pool = %pool, %stale, "dropping a planned machine, planning again");
        }
        Action::Delete { nodes, .. } => {
            let nodes: Vec<&str> = nodes.iter().map(|&id| snapshot.nodes[id].display_name()).collect();
            info!(nodes = nodes.join(", "), %stale, "dropping a planned deletion, planning again");
        }
    }
}

/// Creates NodeClaims, many at a time.
async fn create_all(
    context: &Context,
    beat: &Beat,
    planned: Planned<'_>,
    claims: Vec<(MachineId, &Arc<NodePool>)>,
    committed: &mut Committed,
) {
    let Planned { snapshot, plan, notes, .. } = planned;
    let permits = Semaphore::new(PARALLEL_CREATES);
    let mut creating: FuturesUnordered<_> = claims
        .into_iter()
        .map(|(id, pool)| create(context, snapshot, plan, Promised { id, pool }, notes, &permits))
        .collect();
    while let Some((id, result)) = creating.next().await {
        beat.busy();
        match result {
            Ok(name) => {
                committed.created.insert(id, name);
            }
            Err(failure) => {
                let pool = &snapshot.node_pools[plan.machines[id].node_pool].name;
                error!(node_pool = %pool, error = format!("{failure:#}"), "could not create nodeclaim");
                committed.failed += 1;
            }
        }
    }
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

/// Remembers what the plan's pods wait for, but for those that are bound by now. Its machines, by which their pods know
/// them, are promised.
pub(super) fn assign<'a>(state: &State, assignments: &'a Assignments, planned: Planned<'_>) -> Promise<'a> {
    let Planned { snapshot, plan, notes, .. } = planned;
    assignments.set_stages(stages(snapshot, plan));
    let machines = plan.machines.iter_enumerated().map(|(id, machine)| match notes.launches.held_back.contains(&id) {
        true => Vec::new(),
        false => pod_uids(snapshot, machine),
    });
    let promise = assignments.promise(machines);
    for placement in &plan.existing {
        let Some(claim) = &snapshot.nodes[placement.node].node_claim else { continue };
        let pods = placement.pods.iter().map(|&pod| &snapshot.pods[pod]);
        assignments.extend(claim, pods.map(|pending| (pending.pod.uid.clone(), pending.planned_on.clone())));
    }
    bindings::catch_up(state, assignments, snapshot, plan);
    promise
}

/// A machine of the plan whose NodeClaim is being created.
struct Promised<'a> {
    /// By which its pods know it until then.
    id: MachineId,
    pool: &'a NodePool,
}

async fn create(
    context: &Context,
    snapshot: &Snapshot,
    plan: &Plan,
    promised: Promised<'_>,
    notes: Notes<'_>,
    permits: &Semaphore,
) -> (MachineId, anyhow::Result<NodeClaimName>) {
    let Promised { id, pool } = promised;
    // The semaphore is never closed.
    let _permit = permits.acquire().await;
    let machine = &plan.machines[id];
    let grace = context.cloud.config().default_termination_grace_period;
    let result = match planned_node_claim::node_claim(snapshot, machine, pool, grace) {
        Ok(mut claim) => {
            planned_node_claim::note_overlays(&mut claim, snapshot, machine, notes.overlays);
            node_claim::note_classes(&mut claim, notes.launches.annotations.get(&id));
            let pods = pod_uids(snapshot, machine);
            node_claim::note_stages(&mut claim, &pods, &context.assignments.stages());
            let created = new_node_claim::create(context, claim).await;
            created.map(|created| remember(context, created, id, &pods))
        }
        Err(error) => Err(new_node_claim::Error::into(error)),
    };
    (id, result)
}

fn remember(context: &Context, claim: NodeClaim, machine: MachineId, pods: &[Uid]) -> NodeClaimName {
    failpoints::hit("provision.after-create");
    let name = claim.key();
    context.assignments.keep_promise(machine.index(), &name, pods);
    let revision = Revision::of(&claim.metadata);
    context.store.apply(lean(claim), revision);
    name
}
