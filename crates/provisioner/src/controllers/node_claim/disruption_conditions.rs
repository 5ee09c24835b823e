//! What NodeClaims say of themselves to those who plan disruption: `status.lastPodEventTime`, and the conditions
//! `Consolidatable` and `Drifted`.
//!
//! All three are decided in one look and written in one patch. What is true when is decided in [`cluster::node_claim`];
//! this module brings together what it is decided from, and looks again when time alone changes the answer. Of the
//! cloud it knows what [`cloud_drift`] has asked, so that a slow answer holds nothing else up.
//!
//! A NodeClaim of no NodePool gets a `lastPodEventTime` and no condition.

use std::sync::Arc;
use std::time::Duration;

use api::conditions::node_claim::{CONSOLIDATABLE, DRIFTED};
use api::labels::ProviderLabels;
use api::{NodeClaim, NodePool};
use cloudprovider::CloudProvider;
use cluster::node_claim::consolidatable::{self, Consolidatable};
use cluster::node_claim::drift::{self, Cause};
use decode::Problem;
use model::{NodeClaimName, Timestamp};
use tracing::{debug, info, warn};

use super::Draft;
use crate::runtime::conditions::{is_reason, to_time};
use crate::runtime::failures;
use crate::runtime::patch::{self, Lock};
use crate::runtime::queue::{self, Action, WorkQueue};
use crate::world::claim;
use crate::world::context::Context;
use crate::world::store::{NodeClass, Revision};
use cloud_drift::{Asked, CloudDrift};
use pod_events::PodEvents;

mod cloud_drift;
mod pod_events;

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "nodeclaim.disruption";

/// The controller of these conditions.
#[derive(Debug)]
struct Conditions {
    context: Context,
    pod_events: Arc<PodEvents>,
    cloud_drift: Arc<CloudDrift>,
}

/// Keeps the conditions of all NodeClaims up to date until the context is stopped.
pub(crate) async fn run(context: Context) {
    let queue = Arc::new(WorkQueue::new());
    let pod_events = Arc::new(PodEvents::default());
    let cloud_drift = Arc::new(CloudDrift::new(&context, Arc::clone(&queue)));
    subscribe(&context, &queue, &cloud_drift);
    pod_events::subscribe(&context.store, Arc::clone(&context.clock), &queue, &pod_events);
    context.store.wait_until_synced().await;
    {
        let state = context.store.read();
        pod_events.catch_up(&state, context.clock.now());
        state.node_claims.keys().for_each(|name| queue.add(name.clone()));
    }
    let owner = context.owner(NAME);
    let asking = cloud_drift::run(context.owner(cloud_drift::NAME), Arc::clone(&cloud_drift));
    let conditions = Arc::new(Conditions { context, pod_events, cloud_drift });
    let looking = queue::run(owner, queue, queue::Config::default(), move |name| {
        let conditions = Arc::clone(&conditions);
        async move {
            match conditions.reconcile(&name).await {
                // Gone while it was looked at; the watch says so soon.
                Err(failure) if failures::is_not_found(&failure) => Ok(Action::Done),
                result => result,
            }
        }
    });
    futures::future::join(looking, asking).await;
}

fn subscribe(context: &Context, queue: &Arc<WorkQueue<NodeClaimName>>, cloud_drift: &Arc<CloudDrift>) {
    let (changed, cloud) = (Arc::clone(queue), Arc::clone(cloud_drift));
    context.store.on::<NodeClaim>(move |delta, _| {
        let is_another = |before: &NodeClaim| delta.after.is_none_or(|after| claim::uid(after) != claim::uid(before));
        if let Some(gone) = delta.before.filter(|before| is_another(before)) {
            cloud.forget(&claim::uid(gone));
        }
        changed.add(delta.key.clone());
    });
    let changed = Arc::clone(queue);
    context.store.on::<NodePool>(move |delta, state| {
        // Its counters are no part of it.
        if delta.changed(|pool| (pool.metadata.uid.clone(), pool.metadata.generation)) {
            state.node_claims_by_pool.get(delta.key).for_each(|name| changed.add(name.clone()));
        }
    });
    let changed = Arc::clone(queue);
    context.store.on::<NodeClass>(move |delta, state| {
        let users = state.node_claims.iter().filter(|(_, claim)| claim.spec.node_class_ref == delta.key.0);
        users.for_each(|(name, _)| changed.add(name.clone()));
    });
}

impl Conditions {
    async fn reconcile(&self, name: &NodeClaimName) -> anyhow::Result<Action> {
        let context = &self.context;
        let found = {
            let state = context.store.read();
            let found = state.node_claims.get(name);
            found.map(|found| (Arc::clone(found), state.node_pools.get(claim::node_pool(found)).cloned()))
        };
        let (read, pool) = match found {
            Some((read, pool)) if is_judged(&*context.cloud, &read) => (read, pool),
            Some(_) | None => {
                self.pod_events.forget(name);
                return Ok(Action::Done);
            }
        };
        let now = context.clock.now();
        let mut draft = Draft::new(read, now);
        let event = self.pod_events.to_write(name, &draft.read, now);
        if let Some(event) = event {
            draft.wanted.status.get_or_insert_default().last_pod_event_time = Some(to_time(event));
        }
        let mut action = Action::Done;
        if let Some(pool) = pool {
            let rules = &context.cloud.config().labels;
            let of_cloud = |read: &NodeClaim| self.cloud_drift.answer(read);
            action = judge_consolidatable(&mut draft, &pool).sooner(judge_drift(&mut draft, &pool, rules, of_cloud));
        }
        self.write(&draft).await?;
        self.pod_events.settle(name, event);
        Ok(action)
    }

    async fn write(&self, draft: &Draft) -> anyhow::Result<()> {
        // Conditions are written as one list, in which somebody else may have changed another.
        let has_new_conditions = claim::conditions(&draft.read) != claim::conditions(&draft.wanted);
        let lock = if has_new_conditions { Lock::Revision } else { Lock::Uid };
        let claims = kube::Api::<NodeClaim>::all(self.context.client.clone());
        if let Some(answer) = patch::status(&claims, &*draft.read, &draft.wanted, lock).await? {
            let revision = Revision::of(&answer.metadata);
            self.context.store.apply(answer, revision);
        }
        Ok(())
    }
}

/// Whether the NodeClaim is ours and is to stay.
fn is_judged(cloud: &dyn CloudProvider, node_claim: &NodeClaim) -> bool {
    claim::is_managed(node_claim, cloud.node_class_kinds()) && !claim::is_deleting(node_claim)
}

/// Condition `Consolidatable`; says when to look again.
fn judge_consolidatable(draft: &mut Draft, pool: &NodePool) -> Action {
    match consolidatable::decide(pool, &draft.wanted, draft.now) {
        Ok(Consolidatable::Yes) => {
            if !claim::is(&draft.wanted, CONSOLIDATABLE) && draft.conditions().set_true(CONSOLIDATABLE) {
                debug!(node_claim = claim::name(&draft.read), "nodeclaim is consolidatable");
            }
            Action::Done
        }
        Ok(Consolidatable::At(time)) => {
            clear(draft, CONSOLIDATABLE);
            Action::RequeueAfter(left(draft.now, time))
        }
        Ok(Consolidatable::No) => {
            clear(draft, CONSOLIDATABLE);
            Action::Done
        }
        Err(problem) => {
            tell(pool, &problem);
            Action::Done
        }
    }
}

/// Condition `Drifted`; says when to look again. The objects are asked first: they cost no call.
fn judge_drift(
    draft: &mut Draft,
    pool: &NodePool,
    rules: &ProviderLabels,
    of_cloud: impl FnOnce(&NodeClaim) -> (Asked, Duration),
) -> Action {
    if !drift::is_possible(&draft.wanted) {
        clear(draft, DRIFTED);
        return Action::Done;
    }
    match drift::of_objects(pool, &draft.wanted, rules) {
        Ok(Some(cause)) => {
            set_drifted(draft, &cause);
            Action::Done
        }
        Ok(None) => {
            let (asked, again_in) = of_cloud(&draft.wanted);
            match asked {
                Asked::Drifted(cause) => set_drifted(draft, &cause),
                Asked::NotDrifted => clear(draft, DRIFTED),
                // What another process has found out is still true, as far as anybody knows.
                Asked::NotYet => {}
            }
            Action::RequeueAfter(again_in)
        }
        Err(problem) => {
            tell(pool, &problem);
            Action::Done
        }
    }
}

fn set_drifted(draft: &mut Draft, cause: &Cause) {
    // The API server refuses a reason in free words, as a provider may have it; the message has them anyway.
    let reason = if is_reason(cause.reason()) { cause.reason() } else { DRIFTED };
    let was_drifted = claim::is(&draft.wanted, DRIFTED);
    if draft.conditions().set_true_because(DRIFTED, reason, &cause.to_string()) && !was_drifted {
        info!(node_claim = claim::name(&draft.read), reason, %cause, "nodeclaim has drifted");
    }
}

fn clear(draft: &mut Draft, condition: &'static str) {
    if crate::runtime::conditions::find(claim::conditions(&draft.wanted), condition).is_some() {
        draft.conditions().clear(condition);
        debug!(node_claim = claim::name(&draft.read), condition, "cleared condition");
    }
}

fn tell(pool: &NodePool, problem: &Problem) {
    warn!(node_pool = pool.metadata.name, error = %problem, "could not evaluate the disruption conditions of a nodepool's nodeclaims, leaving them unchanged");
}

fn left(now: Timestamp, until: Timestamp) -> Duration {
    Duration::from_millis(u64::try_from(until.since(now).0).unwrap_or_default())
}

#[cfg(test)]
mod tests;
