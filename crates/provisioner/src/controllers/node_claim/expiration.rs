//! A NodeClaim that is `expireAfter` old is deleted, and with it its machine: Karpenter's forceful way.
//!
//! No budget is looked at and nothing is launched beforehand. The machine is drained as that of any deleted NodeClaim,
//! so PodDisruptionBudgets and `do-not-disrupt` hold until the `terminationGracePeriod` is over.

use std::sync::Arc;
use std::time::Duration;

use api::{NodeClaim, events};
use cluster::node_claim::expiration::expires_at;
use model::{NodeClaimName, Timestamp};
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
enum Expiration {
    /// It never expires.
    Never,
    /// It expires at that time.
    At(Timestamp),
    /// Its time is over.
    Due,
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

fn decide(node_claim: &NodeClaim, now: Timestamp) -> Expiration {
    match expires_at(node_claim) {
        Ok(Some(at)) if at <= now => Expiration::Due,
        Ok(Some(at)) => Expiration::At(at),
        Ok(None) => Expiration::Never,
        // Admission refuses it. What was stored before it did is no reason to delete a machine.
        Err(problem) => {
            warn!(node_claim = claim::name(node_claim), %problem, "it does not expire");
            Expiration::Never
        }
    }
}

async fn reconcile(context: &Context, name: &NodeClaimName) -> anyhow::Result<Action> {
    let node_claim = context.store.read().node_claims.get(name).map(Arc::clone);
    let is_ours = |it: &NodeClaim| claim::is_managed(it, context.cloud.node_class_kinds()) && !claim::is_deleting(it);
    let Some(node_claim) = node_claim.filter(|it| is_ours(it)) else { return Ok(Action::Done) };
    let now = context.clock.now();
    match decide(&node_claim, now) {
        Expiration::Never => Ok(Action::Done),
        Expiration::At(time) => {
            let left = Duration::from_millis(u64::try_from(time.since(now).0).unwrap_or_default());
            Ok(Action::RequeueAfter(left.min(RESYNC)))
        }
        Expiration::Due => {
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
    fn a_claim_is_due_at_its_age_and_not_before() {
        let at = |text: &str| Timestamp::parse(text).unwrap();
        let decided = |expire_after: &str, now: &str| {
            let node_claim = json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {
                    "nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": [],
                    "expireAfter": expire_after,
                },
            });
            decide(&serde_json::from_value(node_claim).unwrap(), at(now))
        };
        assert_eq!(decided("1h", "2026-01-01T00:59:59Z"), Expiration::At(at("2026-01-01T01:00:00Z")));
        assert_eq!(decided("1h", "2026-01-01T01:00:00Z"), Expiration::Due);
        assert_eq!(decided("Never", "2036-01-01T00:00:00Z"), Expiration::Never);
        assert_eq!(decided("when it is old", "2036-01-01T00:00:00Z"), Expiration::Never);
    }
}
