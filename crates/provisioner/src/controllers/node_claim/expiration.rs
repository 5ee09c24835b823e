//! A NodeClaim that is `expireAfter` old is deleted, and with it its machine: Karpenter's forceful way. One that is to
//! be replaced first is left to `controllers/disruption` until its deadline.
//!
//! No budget is looked at and nothing is launched beforehand. The machine is drained as that of any deleted NodeClaim,
//! so PodDisruptionBudgets and `do-not-disrupt` hold until the `terminationGracePeriod` is over.

use std::sync::Arc;
use std::time::Duration;

use api::{NodeClaim, NodePool, events};
use cluster::node_claim::expiration;
use model::{NodeClaimName, Timestamp};
use scheduling::snapshot::expiration::{Expiration, ExpirationRules};
use tracing::{info, warn};

use crate::runtime::queue::{self, Action, WorkQueue};
use crate::runtime::recorder::{Event, Severity, reference};
use crate::world::claim;
use crate::world::context::Context;

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "nodeclaim.expiration";
/// Label `reason` of the metric.
const REASON: &str = "expired";
/// From one deletion to the next: machines that were launched together do not all go in one moment. Karpenter's own
/// pace. It also lets the watch show what was deleted before it is looked at again.
const PACE: Duration = Duration::from_secs(1);
/// A NodeClaim is looked at this often though nothing is due: the clock may have been set.
const RESYNC: Duration = Duration::from_hours(1);

/// What to do about a NodeClaim's age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It never expires.
    Nothing,
    /// It is not deleted before that time.
    Wait(Timestamp),
    /// It is deleted.
    Delete,
}

/// Deletes NodeClaims whose time is over, until the context is stopped.
pub(crate) async fn run(context: Context) {
    let queue = Arc::new(WorkQueue::new());
    let changed = Arc::clone(&queue);
    context.store.on::<NodeClaim>(move |delta, _| {
        if delta.changed(|it| (it.metadata.uid.clone(), it.spec.expire_after.clone())) {
            changed.add(delta.key.clone());
        }
    });
    let changed = Arc::clone(&queue);
    context.store.on::<NodePool>(move |delta, state| {
        // Which of its machines go by force may be others now.
        if delta.changed(|pool| expiration::policy(pool).ok().flatten()) {
            let of_pool = state.node_claims_of_pool(delta.key);
            of_pool.for_each(|node_claim| changed.add(claim::name(node_claim).into()));
        }
    });
    context.store.wait_until_synced().await;
    for name in context.store.read().node_claims.keys() {
        queue.add(name.clone());
    }
    let owner = context.owner(NAME);
    // One after another, or there is no pace.
    let config = queue::Config { concurrency: 1, ..queue::Config::default() };
    queue::run(owner, queue, config, move |name| {
        let context = context.clone();
        async move { reconcile(&context, &name).await }
    })
    .await;
}

fn decide(node_claim: &NodeClaim, pool: Option<&NodePool>, rules: ExpirationRules, now: Timestamp) -> Step {
    match expiration::decide(node_claim, pool, rules, now) {
        Ok(Some(Expiration::Due)) => Step::Delete,
        Ok(Some(Expiration::At(at) | Expiration::Graceful { until: at, .. })) => Step::Wait(at),
        Ok(None) => Step::Nothing,
        // Admission refuses it. What was stored before it did is no reason to delete a machine.
        Err(problem) => {
            warn!(node_claim = claim::name(node_claim), error = %problem, "nodeclaim does not expire");
            Step::Nothing
        }
    }
}

async fn reconcile(context: &Context, name: &NodeClaimName) -> anyhow::Result<Action> {
    let (node_claim, pool) = {
        let state = context.store.read();
        let node_claim = state.node_claims.get(name).map(Arc::clone);
        let pool = node_claim.as_deref().and_then(|it| state.node_pools.get(claim::node_pool(it)).map(Arc::clone));
        (node_claim, pool)
    };
    let is_ours = |it: &NodeClaim| claim::is_managed(it, context.cloud.node_class_kinds()) && !claim::is_deleting(it);
    let Some(node_claim) = node_claim.filter(|it| is_ours(it)) else { return Ok(Action::Done) };
    let now = context.clock.now();
    match decide(&node_claim, pool.as_deref(), context.options.expiration, now) {
        Step::Nothing => Ok(Action::Done),
        Step::Wait(time) => {
            let left = Duration::from_millis(u64::try_from(time.since(now).0).unwrap_or_default());
            Ok(Action::RequeueAfter(left.min(RESYNC)))
        }
        Step::Delete => {
            super::disrupt(context, &node_claim, REASON).await?;
            tell(context, &node_claim);
            tokio::time::sleep(PACE).await;
            Ok(Action::Done)
        }
    }
}

/// Differs: `expiration-event`. Karpenter publishes none.
fn tell(context: &Context, node_claim: &NodeClaim) {
    let name = claim::name(node_claim);
    let age = &node_claim.spec.expire_after.0;
    info!(node_claim = name, expire_after = age, "deleting expired nodeclaim");
    let publish = |regarding, message| {
        context.recorder.publish(Event::new(regarding, Severity::Normal, events::DISRUPTION_TERMINATING, message));
    };
    publish(reference(node_claim), format!("Disrupting NodeClaim: Expired, it is older than {age}"));
    let state = context.store.read();
    for node in state.nodes_of_machine(claim::provider_id(node_claim).unwrap_or_default()) {
        publish(reference(&*node.object), format!("Disrupting Node: Expired, NodeClaim {name} is older than {age}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_is_deleted_at_its_age_or_after_its_deadline_and_not_before() {
        let at = |text: &str| Timestamp::parse(text).unwrap();
        let decided = |expire_after: &str, of_pool: Option<&str>, now: &str| {
            let node_claim = json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {
                    "nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": [],
                    "expireAfter": expire_after,
                },
            });
            let pool: NodePool = serde_json::from_value(json!({
                "metadata": {"name": "p", "annotations": of_pool.map(|policy| json!({"dovetail.sh/expiration-policy": policy}))},
                "spec": {"template": {"spec": {
                    "requirements": [], "nodeClassRef": {"group": "g", "kind": "K", "name": "n"}}}},
            }))
            .unwrap();
            decide(&serde_json::from_value(node_claim).unwrap(), Some(&pool), ExpirationRules::default(), at(now))
        };
        let expired = "2026-01-01T01:00:00Z";
        assert_eq!(decided("1h", None, "2026-01-01T00:59:59Z"), Step::Wait(at(expired)));
        assert_eq!(decided("1h", None, expired), Step::Delete);
        assert_eq!(decided("1h", Some("Forceful"), expired), Step::Delete);
        assert_eq!(decided("1h", Some("Graceful"), expired), Step::Wait(at("2026-01-02T01:00:00Z")));
        assert_eq!(decided("1h", Some("Graceful"), "2026-01-02T01:00:00Z"), Step::Delete);
        assert_eq!(
            decided("1h", Some("gracefully"), expired),
            Step::Wait(at("2026-01-02T01:00:00Z")),
            "less is disrupted"
        );
        assert_eq!(decided("Never", None, "2036-01-01T00:00:00Z"), Step::Nothing);
        assert_eq!(decided("when it is old", None, "2036-01-01T00:00:00Z"), Step::Nothing);
    }
}
