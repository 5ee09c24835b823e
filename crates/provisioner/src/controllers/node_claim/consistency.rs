//! Whether a machine has what its NodeClaim was told: condition `ConsistentStateFound`. For information only.

use std::time::Duration;

use api::conditions::node_claim::{CONSISTENCY_CHECK_FAILED, CONSISTENT_STATE_FOUND, INITIALIZED, READY_DEPENDS_ON};
use api::{NodeClaim, events};
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use model::Quantity;
use tracing::{error, warn};

use crate::runtime::conditions::ConditionSet;
use crate::runtime::controller_loop::{Looks, Rhythm};
use crate::runtime::patch::{self, Lock};
use crate::runtime::recorder::{Event, Severity, reference};
use crate::world::claim;
use crate::world::context::Context;
use crate::world::store::Revision;

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "nodeclaim.consistency";
/// The bound is that of the check of one machine.
const RHYTHM: Rhythm = Rhythm {
    first: Duration::ZERO,
    period: Duration::from_mins(10),
    collect: Duration::ZERO,
    bound: Duration::from_secs(300),
};
/// Less than this much of what was promised is inconsistent.
const LEAST_PERCENT: i128 = 90;

/// What is wrong with an initialized machine, one text per resource that was asked for.
pub(crate) fn problems(node_claim: &NodeClaim, node: &Node) -> Vec<String> {
    let Some(expected) = node_claim.status.as_ref().map(|status| &status.capacity) else { return Vec::new() };
    let found = node.status.as_ref().and_then(|status| status.capacity.as_ref());
    let nano = |text: &str| Quantity::parse(text).ok().map(Quantity::to_nano);
    let requested = node_claim.spec.resources.requests.keys();
    requested
        .filter_map(|resource| {
            let wanted = expected.get(resource)?;
            let wanted_nano = nano(&wanted.0).filter(|amount| *amount > 0)?;
            let there = found.and_then(|found| found.get(resource)).map_or("0", |amount| amount.0.as_str());
            let there_nano = nano(there)?;
            let percent = there_nano.saturating_mul(1000) / wanted_nano;
            (percent < LEAST_PERCENT * 10).then(|| {
                let (whole, tenth) = (percent / 10, percent % 10);
                format!("expected {wanted} of resource {resource}, but found {there} ({whole}.{tenth}% of expected)")
            })
        })
        .collect()
}

/// Checks all machines now and then, until the context is stopped.
pub(crate) async fn run(context: Context) {
    context.store.wait_until_synced().await;
    let mut looks = Looks::new(NAME, RHYTHM, &context.beats, &context.stop);
    while looks.next().await {
        let pairs: Vec<_> = {
            let state = context.store.read();
            let initialized =
                state.node_claims.values().filter(|it| claim::is(it, INITIALIZED) && !claim::is_deleting(it));
            initialized
                .filter_map(|it| {
                    let node = claim::node(&state, it)?;
                    Some((NodeClaim::clone(it), node.object.clone()))
                })
                .collect()
        };
        for (node_claim, node) in pairs {
            looks.beat().busy();
            if let Err(failure) = check(&context, &node_claim, &node).await {
                warn!(
                    node_claim = claim::name(&node_claim),
                    error = format!("{failure:#}"),
                    "could not check the consistency of a nodeclaim"
                );
            }
        }
    }
}

async fn check(context: &Context, node_claim: &NodeClaim, node: &Node) -> anyhow::Result<()> {
    let problems = problems(node_claim, node);
    let mut wanted = node_claim.clone();
    let status = wanted.status.get_or_insert_default();
    let mut conditions =
        ConditionSet::of(&mut status.conditions, &node_claim.metadata, &READY_DEPENDS_ON, context.clock.now());
    if problems.is_empty() {
        conditions.set_true(CONSISTENT_STATE_FOUND);
    } else {
        conditions.set_false(CONSISTENT_STATE_FOUND, CONSISTENCY_CHECK_FAILED, "Consistency Check Failed");
    }
    for problem in problems {
        error!(node_claim = claim::name(node_claim), error = problem, "consistency error");
        let event =
            Event::new(reference(node_claim), Severity::Warning, events::FAILED_CONSISTENCY_CHECK, problem.clone());
        context.recorder.publish(event.with_dedupe(problem));
    }
    let api: Api<NodeClaim> = Api::all(context.client.clone());
    if let Some(answer) = patch::status(&api, node_claim, &wanted, Lock::Revision).await? {
        let revision = Revision::of(&answer.metadata);
        context.store.apply(answer, revision);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_with_less_than_nine_tenths_of_what_was_promised_is_inconsistent() {
        let claim: NodeClaim = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "a"},
            "spec": {
                "nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": [],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi", "pods": "3"}},
            },
            "status": {"capacity": {"cpu": "4", "memory": "128Gi", "pods": "110", "not-requested": "1"}},
        }))
        .unwrap();
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n"}, "status": {"capacity": {"cpu": "3600m", "memory": "64Gi"}},
        }))
        .unwrap();
        assert_eq!(
            problems(&claim, &node),
            [
                "expected 128Gi of resource memory, but found 64Gi (50.0% of expected)",
                "expected 110 of resource pods, but found 0 (0.0% of expected)",
            ]
        );
    }
}
