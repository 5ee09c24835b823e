//! Events about commands, and about what keeps machines from being disrupted.
//!
//! Differs: `disruption-blocked-events`. Karpenter tells of every machine that may not be disrupted; here only those
//! are told of that would go otherwise, so that a fleet at rest has no events.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{NodeClaim, events};
use model::{NodeClaimName, NodePoolName};
use scheduling::disruption::reason::{Block, BudgetLimit, NodeReason, Unconsolidatable};
use scheduling::snapshot::NodeId;
use scheduling::snapshot::fleet::{Reason, UnderWay};

use super::planning::{Planned, is_eligible};
use super::progress::{Replacement, Why};
use crate::runtime::recorder::{Event, Severity, reference};
use crate::world::claim;
use crate::world::context::Context;
use crate::world::store::State;

/// A replacement was created.
pub(crate) fn launching(context: &Context, claim: &NodeClaim, reason: Reason) {
    let message = format!("Launching NodeClaim: {reason}");
    let event = Event::new(reference(claim), Severity::Normal, events::DISRUPTION_LAUNCHING, message);
    context.recorder.publish(event);
}

/// Replacements are waited for.
pub(crate) fn waiting(context: &Context, state: &State, replacements: &[Replacement]) {
    for claim in replacements.iter().filter_map(|it| state.node_claims.get(&it.name)) {
        let message = "Waiting on readiness to continue disruption";
        let event = Event::new(reference(&**claim), Severity::Normal, events::DISRUPTION_WAITING_READINESS, message);
        context.recorder.publish(event);
    }
}

/// A NodeClaim was deleted by a command; `cause` says more about the reason where there is more to say.
pub(crate) fn terminating(
    context: &Context,
    state: &State,
    claim: &NodeClaim,
    (reason, cause): (Reason, Option<&str>),
) {
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    about_both(context, state, claim, events::DISRUPTION_TERMINATING, |kind| {
        format!("Disrupting {kind}: {reason}{cause}")
    });
}

/// A command was rolled back.
pub(crate) fn rolled_back(context: &Context, state: &State, name: &NodeClaimName, why: &Why) {
    let Some(claim) = state.node_claims.get(name) else { return };
    about_both(context, state, claim, events::DISRUPTION_BLOCKED, |kind| {
        format!("{kind} stays, its disruption is taken back: {why}")
    });
}

/// A note cannot be read.
pub(crate) fn broken(context: &Context, state: &State, name: &NodeClaimName, why: &str) {
    let Some(claim) = state.node_claims.get(name) else { return };
    let key = api::annotations::DISRUPTION_COMMAND;
    about_both(context, state, claim, events::DISRUPTION_BLOCKED, |kind| {
        format!("{kind} stays, its annotation {key} cannot be read: {why}")
    });
}

/// What keeps machines that would go.
pub(crate) fn blocked(context: &Context, planned: &Planned) {
    let Planned { state, snapshot, found: plan, .. } = planned;
    let machines = snapshot.fleet.iter().flat_map(|fleet| &fleet.nodes);
    let unhealthy: BTreeSet<NodeId> = machines.filter(|it| it.unhealthy.is_some()).map(|it| it.node).collect();
    for (node, why) in &plan.node_reasons {
        let name = snapshot.nodes.try_get(*node).and_then(|node| node.node_claim.as_ref());
        let claim = name.and_then(|name| state.node_claims.get(name)).filter(|claim| {
            unhealthy.contains(node) || is_eligible(state, claim, context.options.expiration, snapshot.now)
        });
        let Some(claim) = claim.filter(|_| is_told(why)) else { continue };
        let reason = match why {
            NodeReason::Unconsolidatable(_) => events::UNCONSOLIDATABLE,
            NodeReason::Blocked(Block::TooManyUnhealthy { .. }) => events::NODE_REPAIR_BLOCKED,
            _ => events::DISRUPTION_BLOCKED,
        };
        about_both(context, state, claim, reason, |kind| {
            format!("Cannot disrupt {kind}: it {}", why.message(snapshot))
        });
        match why {
            NodeReason::Budget { reason, node_pool, limit } => {
                tell_pool(context, state, (node_pool, *reason), limit);
            }
            NodeReason::Blocked(Block::TooManyUnhealthy { node_pool, unhealthy, nodes }) => {
                tell_pool_too_many(context, state, node_pool, (*unhealthy, *nodes));
            }
            _ => {}
        }
    }
}

fn tell_pool_too_many(context: &Context, state: &State, node_pool: &NodePoolName, (unhealthy, nodes): (usize, usize)) {
    let Some(pool) = state.node_pools.get(node_pool) else { return };
    let message = format!("No node is repaired: {unhealthy} of {nodes} nodes are unhealthy, more than 20%");
    context.recorder.publish(Event::new(reference(&**pool), Severity::Warning, events::NODE_REPAIR_BLOCKED, message));
}

fn tell_pool(context: &Context, state: &State, (node_pool, reason): (&NodePoolName, Reason), limit: &BudgetLimit) {
    let Some(pool) = state.node_pools.get(node_pool) else { return };
    let message = match limit {
        BudgetLimit::Budget { .. } => {
            format!("No allowed disruptions for disruption reason {reason} due to blocking budget")
        }
        BudgetLimit::Fault { index, problem } => format!(
            "No allowed disruptions for disruption reason {reason}: spec.disruption.budgets[{index}] cannot be read: {problem}"
        ),
    };
    let event = Event::new(reference(&**pool), Severity::Normal, events::DISRUPTION_BLOCKED, message);
    context.recorder.publish(event.with_dedupe(reason.as_str()));
}

/// Whether a person should know. What is under way says so itself.
fn is_told(why: &NodeReason) -> bool {
    match why {
        NodeReason::Blocked(Block::UnderWay(UnderWay::Taint)) => true,
        NodeReason::Blocked(Block::UnderWay(_) | Block::NotInitialized) | NodeReason::Goes { .. } => false,
        NodeReason::Blocked(_)
        | NodeReason::Budget { .. }
        | NodeReason::Replicas { .. }
        | NodeReason::NoPlace { .. }
        | NodeReason::PlaceNotReady { .. }
        | NodeReason::Undecided { .. }
        | NodeReason::HoldsBuffer { .. } => true,
        // Where nothing can be gained that is the state to be in, and it is not told of every machine.
        NodeReason::Unconsolidatable(why) => !matches!(
            why,
            Unconsolidatable::PolicyWhenEmpty(_)
                | Unconsolidatable::NothingToGain { .. }
                | Unconsolidatable::WorthItsPrice { .. }
                | Unconsolidatable::CannotPay { .. }
        ),
        NodeReason::ConsolidationOff { .. } | NodeReason::NotQuiet { .. } | NodeReason::TakesPods => false,
    }
}

/// Tells about a NodeClaim and its Node.
fn about_both(
    context: &Context,
    state: &State,
    claim: &NodeClaim,
    reason: &'static str,
    message: impl Fn(&str) -> String,
) {
    let publish = |regarding, kind| {
        let severity = if reason == events::DISRUPTION_TERMINATING { Severity::Normal } else { Severity::Warning };
        context.recorder.publish(Event::new(regarding, severity, reason, message(kind)));
    };
    publish(reference(claim), "NodeClaim");
    for node in claim::provider_id(claim).into_iter().flat_map(|id| state.nodes_of_machine(id)) {
        let object: &Arc<_> = &node.object;
        publish(reference(&**object), "Node");
    }
}
