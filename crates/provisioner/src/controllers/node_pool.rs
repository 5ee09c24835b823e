//! What is kept up to date on NodePools: hash, validation, node class readiness, counters, registration health.
//!
//! One controller, one status patch per look, and only where something differs. Each question is a pure function in a
//! module of its own.

use std::sync::Arc;
use std::time::Duration;

use api::conditions::AWAITING_RECONCILIATION;
use api::conditions::node_pool::{NODE_CLASS_READY, NODE_REGISTRATION_HEALTHY, READY_DEPENDS_ON, VALIDATION_SUCCEEDED};
use api::{NodeClaim, NodePool, annotations, validation};
use kube::api::{Api, Patch, PatchParams};
use model::NodePoolName;
use serde_json::json;
use tracing::warn;

use crate::runtime::conditions::ConditionSet;
use crate::runtime::failures;
use crate::runtime::patch::{self, Lock};
use crate::runtime::queue::{self, Action, WorkQueue};
use crate::world::catalogues;
use crate::world::claim;
use crate::world::context::Context;
use crate::world::registration_health::{Health, RegistrationHealth};
use crate::world::store::{NodeClass, NodeClassKey, NodeRecord, Revision, State};
use cluster::node_pool_hash as hash;
use gauges::Gauges;

pub(crate) mod cost;
pub(crate) mod counter;
pub(crate) mod gauges;
pub(crate) mod readiness;

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "nodepool";
/// Changes of machines are collected for this long before they are counted.
const COUNT_DELAY: Duration = Duration::from_secs(1);
/// After this long a NodePool is looked at though nothing has changed that we know of.
const RESYNC: Duration = Duration::from_secs(60);

/// Keeps all NodePools up to date until the context is stopped.
pub(crate) async fn run(context: Context, health: Arc<RegistrationHealth>) {
    let queue = Arc::new(WorkQueue::new());
    subscribe(&context, &queue);
    context.store.wait_until_synced().await;
    for name in context.store.read().node_pools.keys() {
        queue.add(name.clone());
    }
    let owner = context.owner(NAME);
    let gauges = Arc::new(Gauges::new(Arc::clone(&context.metrics)));
    queue::run(owner, queue, queue::Config::default(), move |name| {
        let (context, health, gauges) = (context.clone(), Arc::clone(&health), Arc::clone(&gauges));
        async move {
            match reconcile(&context, &health, &gauges, &name).await {
                // Deleted while it was looked at; the watch says so soon, and what is left to do is done then.
                Err(failure) if failures::is_not_found(&failure) => Ok(Action::Done),
                result => result,
            }
        }
    })
    .await;
}

fn subscribe(context: &Context, queue: &Arc<WorkQueue<NodePoolName>>) {
    let changed = Arc::clone(queue);
    context.store.on::<NodePool>(move |delta, _| changed.add(delta.key.clone()));
    let changed = Arc::clone(queue);
    context.store.on::<NodeClass>(move |delta, state| {
        let class = &delta.key.0;
        let users = state.node_pools.iter().filter(|(_, pool)| pool.spec.template.spec.node_class_ref == *class);
        users.for_each(|(name, _)| changed.add(name.clone()));
    });
    let changed = Arc::clone(queue);
    context.store.on::<NodeClaim>(move |delta, _| {
        if let Some(claim) = delta.latest() {
            changed.add_after(claim::node_pool(claim).into(), COUNT_DELAY);
        }
    });
    let changed = Arc::clone(queue);
    context.store.on::<NodeRecord>(move |delta, state| {
        // Heartbeats count nothing.
        if !delta.changed(|node| Arc::clone(&node.model)) {
            return;
        }
        let provider_id = delta.latest().and_then(|node| node.model.provider_id.clone());
        for claim in provider_id.iter().flat_map(|id| state.node_claims_of_machine(id)) {
            changed.add_after(claim::node_pool(claim).into(), COUNT_DELAY);
        }
    });
}

async fn reconcile(
    context: &Context,
    health: &RegistrationHealth,
    gauges: &Gauges,
    name: &NodePoolName,
) -> anyhow::Result<Action> {
    let Some(node_pool) = context.store.read().node_pools.get(name).cloned() else {
        let uids: Vec<_> =
            context.store.read().node_pools.values().filter_map(|pool| pool.metadata.uid.clone()).collect();
        health.retain(|uid| uids.iter().any(|known| *uid == known.as_str()));
        gauges.forget(name);
        return Ok(Action::Done);
    };
    let class = &node_pool.spec.template.spec.node_class_ref;
    let kinds = context.cloud.node_class_kinds();
    if !kinds.iter().any(|kind| kind.group == class.group && kind.kind == class.kind) {
        gauges.forget(name);
        return Ok(Action::Done);
    }
    let node_pool = write_hashes(context, &node_pool).await?;
    let mut after = node_pool.clone();
    let readiness = context.cloud.node_class_readiness(class).await?;
    let count = judge(context, health, &mut after, readiness);
    gauges.show(name, &count.resources, after.spec.limits.as_ref());
    show_cost(context, gauges, name).await;
    let api: Api<NodePool> = Api::all(context.client.clone());
    if let Some(answer) = patch::status(&api, &node_pool, &after, Lock::Revision).await? {
        let revision = Revision::of(&answer.metadata);
        context.store.apply(answer, revision);
    }
    Ok(Action::RequeueAfter(RESYNC))
}

/// What cannot be told keeps its last value.
async fn show_cost(context: &Context, gauges: &Gauges, name: &NodePoolName) {
    let types = catalogues::launchable(context, name).await;
    let (sum, unknown) = {
        let state = context.store.read();
        let machines = state.node_claims_of_pool(name).map(AsRef::as_ref).filter(|it| claim::is_launched(it));
        match &types {
            Some(types) => cost::cost(&types.types, machines),
            None => return gauges.cost_unknown(name, 1),
        }
    };
    gauges.show_cost(name, sum);
    gauges.cost_unknown(name, unknown);
}

/// Conditions and counters. Gives back what was counted.
fn judge(
    context: &Context,
    health: &RegistrationHealth,
    node_pool: &mut NodePool,
    readiness: cloudprovider::NodeClassReadiness,
) -> counter::Count {
    let findings = validation::node_pool(node_pool, &context.cloud.config().labels);
    for warning in &findings.warnings {
        warn!(node_pool = node_pool.metadata.name, %warning, "nodepool is valid, with a warning");
    }
    let (count, class_generation) = {
        let state = context.store.read();
        let class = NodeClassKey(node_pool.spec.template.spec.node_class_ref.clone());
        let generation = state.node_classes.get(&class).map_or(0, |class| class.generation);
        (count(&state, node_pool), generation)
    };
    let uid = node_pool.metadata.uid.as_deref().unwrap_or_default().into();
    let generations = (node_pool.metadata.generation.unwrap_or_default(), class_generation);
    let status = node_pool.status.get_or_insert_default();
    let registration = health.health(&uid, generations, &status.conditions);

    let mut conditions =
        ConditionSet::of(&mut status.conditions, &node_pool.metadata, &READY_DEPENDS_ON, context.clock.now());
    if findings.is_valid() {
        conditions.set_true(VALIDATION_SUCCEEDED);
    } else {
        conditions.set_false(VALIDATION_SUCCEEDED, validation::NODE_POOL_REASON, &findings.message());
    }
    match readiness::refusal(readiness) {
        None => conditions.set_true(NODE_CLASS_READY),
        Some((reason, message)) => conditions.set_false(NODE_CLASS_READY, &reason, &message),
    };
    match registration {
        Health::Unknown => conditions.set_unknown(
            NODE_REGISTRATION_HEALTHY,
            AWAITING_RECONCILIATION,
            "object is awaiting reconciliation",
        ),
        Health::Healthy => conditions.set_true(NODE_REGISTRATION_HEALTHY),
        Health::Unhealthy(reason, message) => conditions.set_false(NODE_REGISTRATION_HEALTHY, &reason, &message),
    };
    status.nodes = Some(count.nodes);
    status.resources = count.resources.clone();
    status.node_class_observed_generation = (class_generation > 0).then_some(class_generation);
    count
}

/// The machines of a NodePool that exist and are to stay. A registered Node says itself what it has.
fn count(state: &State, node_pool: &NodePool) -> counter::Count {
    let name = node_pool.metadata.name.as_deref().unwrap_or_default();
    let machines = state.node_claims_of_pool(name).filter_map(|node_claim| {
        let provider_id = claim::provider_id(node_claim).filter(|_| !claim::is_deleting(node_claim))?;
        let node = state.nodes_of_machine(provider_id).next().map(|node| Arc::clone(&node.object));
        Some((node_claim, node))
    });
    let capacities: Vec<Vec<(String, String)>> = machines
        .map(|(node_claim, node)| {
            let of_node = node.as_ref().and_then(|node| node.status.as_ref()?.capacity.as_ref());
            match of_node.filter(|_| claim::is_registered(node_claim)) {
                Some(capacity) => capacity.iter().map(|(name, amount)| (name.clone(), amount.0.clone())).collect(),
                None => capacity_of(node_claim),
            }
        })
        .collect();
    counter::count(capacities.iter().map(|machine| machine.iter().map(|(name, text)| (name.as_str(), text.as_str()))))
}

fn capacity_of(claim: &NodeClaim) -> Vec<(String, String)> {
    let capacity = claim.status.iter().flat_map(|status| &status.capacity);
    capacity.map(|(name, amount)| (name.clone(), amount.0.clone())).collect()
}

/// Stamps the NodePool, and NodeClaims that were stamped another way. Gives back the NodePool as it is then.
async fn write_hashes(context: &Context, node_pool: &NodePool) -> anyhow::Result<NodePool> {
    let name = node_pool.metadata.name.as_deref().unwrap_or_default();
    let claims: Vec<Arc<NodeClaim>> = context.store.read().node_claims_of_pool(name).cloned().collect();
    let none = std::collections::BTreeMap::new();
    let stamped = claims.iter().map(|node_claim| hash::StampedClaim {
        name: claim::name(node_claim),
        annotations: node_claim.metadata.annotations.as_ref().unwrap_or(&none),
        drifted: claim::is(node_claim, api::conditions::node_claim::DRIFTED),
    });
    let stamps = match hash::decide(node_pool, stamped) {
        Ok(stamps) => stamps,
        // Admission refuses such a duration; an object from before it says so in its validation.
        Err(error) => {
            warn!(node_pool = name, %error, "could not hash the template of a nodepool");
            return Ok(node_pool.clone());
        }
    };
    let api: Api<NodeClaim> = Api::all(context.client.clone());
    for (claim, stamp) in &stamps.claims {
        let answer = api.patch(claim, &PatchParams::default(), &Patch::Merge(annotate(stamp))).await?;
        let revision = Revision::of(&answer.metadata);
        context.store.apply(answer, revision);
    }
    let Some(stamp) = &stamps.node_pool else { return Ok(node_pool.clone()) };
    let api: Api<NodePool> = Api::all(context.client.clone());
    let answer = api.patch(name, &PatchParams::default(), &Patch::Merge(annotate(stamp))).await?;
    context.store.apply(answer.clone(), Revision::of(&answer.metadata));
    Ok(answer)
}

fn annotate(stamp: &hash::Stamp) -> serde_json::Value {
    let mut written = serde_json::Map::new();
    written.insert(annotations::NODEPOOL_HASH_VERSION.to_owned(), stamp.version.into());
    if let Some(hash) = &stamp.hash {
        written.insert(annotations::NODEPOOL_HASH.to_owned(), hash.as_str().into());
    }
    json!({"metadata": {"annotations": written}})
}
