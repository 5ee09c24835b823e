//! Broken Nodes are repaired by the policies of their provider (gate `NodeRepair`, Karpenter 1.15).
//!
//! What is to be replaced is replaced by disruption (`controllers/disruption`), as what has drifted is. Here are the
//! machines that are to be rebooted: [`decision`] says which, and what keeps the others from it; this module marks
//! them, and `controllers/node/reboot` does the rest. With `--legacy-node-repair` the rules are those of Karpenter
//! before 1.15: no reboots, no budgets, nothing launched beforehand, all pods by force. Then NodeClaims are deleted
//! here, and whoever keeps their NodePools filled launches for their pods.
//!
//! Nothing is remembered that a restart would lose: how often a machine was rebooted is written on its NodeClaim.
//!
//! Differs: `repair-many`. Karpenter repairs one machine in each pass.
//!
//! Failpoints, in order: `repair.before-deadline`, `repair.before-delete`, `repair.after-delete`;
//! `repair.before-note`, `repair.before-request`, `repair.after-request`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::conditions::node_claim::{DISRUPTION_REASON, REBOOT_REQUESTED, REBOOTING};
use api::{NodeClaim, annotations, events};
use cloudprovider::RepairAction;
use cluster::node_claim::command::has_note;
use cluster::node_repair;
use kube::api::Api;
use model::Timestamp;
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::runtime::controller_loop::{Looks, Rhythm};
use crate::runtime::failpoints;
use crate::runtime::failures::{in_words, is_conflict};
use crate::runtime::patch::{self, Lock};
use crate::runtime::recorder::{Event, Severity, reference};
use crate::world::claim;
use crate::world::context::Context;
use crate::world::disrupted::{Disrupted, count_unhealthy};
use crate::world::instance::set_condition;
use crate::world::plan_options::deletion_costs;
use crate::world::store::{NodeRecord, Revision};
use crate::world::termination;

use decision::{Case, Decisions, Obstacle, Question, Rules};

pub(crate) mod decision;

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "node.repair";
/// Why, as budgets and condition `DisruptionReason` have it.
const UNHEALTHY: &str = "Unhealthy";
/// As metrics have it.
const REASON: &str = "unhealthy";
/// As often as Karpenter looks for what to disrupt, and soon after a Node has got worse or better. Nodes that break
/// together are seen together, so that the breaker counts them all.
const RHYTHM: Rhythm = Rhythm {
    first: Duration::ZERO,
    period: Duration::from_secs(10),
    collect: Duration::from_secs(1),
    bound: Duration::from_secs(300),
};

/// Repairs broken Nodes until the context is stopped.
pub(crate) async fn run(context: Context) {
    let Some(policies) = context.repair_policies.clone() else { return context.stop.cancelled().await };
    let changed = Arc::new(Notify::new());
    let (notify, known) = (Arc::clone(&changed), Arc::clone(&policies));
    context.store.on::<NodeRecord>(move |delta, _| {
        if delta.changed(|node| node_repair::is_unhealthy(&node.object, &known)) {
            notify.notify_one();
        }
    });
    context.store.wait_until_synced().await;
    let mut looks = Looks::new(NAME, RHYTHM, &context.beats, &context.stop).after(changed);
    let mut is_first = true;
    while looks.next().await {
        let (now, awaited) = (context.clock.now(), awaited(&context));
        let question = Question {
            rules: if context.options.legacy_node_repair { Rules::Legacy } else { Rules::Current },
            policies: &policies,
            kinds: context.cloud.node_class_kinds(),
            awaited: &awaited,
            deletion_costs: deletion_costs(&context.options),
            now,
        };
        let decisions = decision::decide(&context.store.read(), question);
        if std::mem::take(&mut is_first) {
            tidy(&context, &decisions).await;
        }
        for (case, obstacle) in &decisions.blocked {
            tell_blocked(&context, case, obstacle);
        }
        for case in &decisions.repairs {
            looks.beat().busy();
            if let Err(failure) = repair(&context, case, now).await
                && !is_conflict(&failure)
            {
                warn!(node_claim = claim::name(&case.claim), error = in_words(&failure), "could not repair node");
            }
        }
    }
}

fn awaited(context: &Context) -> BTreeSet<model::NodeClaimName> {
    context.assignments.awaited().into_iter().filter(|(_, pods)| !pods.is_empty()).map(|(claim, _)| claim).collect()
}

/// Takes away deadlines that were written right before a crash, if their machines have recovered meanwhile: the next
/// drain, whatever for, would be by force.
async fn tidy(context: &Context, decisions: &Decisions<'_>) {
    let of_broken: BTreeSet<&str> = decisions.repairs.iter().map(|case| claim::name(&case.claim)).collect();
    let stale: Vec<Arc<NodeClaim>> = {
        let state = context.store.read();
        let is_stale = |it: &NodeClaim| {
            !claim::is_deleting(it)
                && claim::is_managed(it, context.cloud.node_class_kinds())
                // That of a command is the command's.
                && !has_note(it)
                && termination::deadline(it.metadata.annotations.as_ref()).is_some()
                && !of_broken.contains(claim::name(it))
        };
        state.node_claims.values().filter(|it| is_stale(it)).cloned().collect()
    };
    for node_claim in stale {
        let mut wanted = NodeClaim::clone(&node_claim);
        wanted.metadata.annotations.get_or_insert_default().remove(annotations::NODECLAIM_TERMINATION_TIMESTAMP);
        if let Err(failure) = write(context, &node_claim, &wanted).await {
            let error = in_words(&failure);
            warn!(node_claim = claim::name(&node_claim), error, "could not remove a stale deadline");
        }
    }
}

async fn repair(context: &Context, case: &Case<'_>, now: Timestamp) -> anyhow::Result<()> {
    info!(
        node_claim = claim::name(&case.claim),
        node = case.node.metadata.name,
        condition = case.repair.condition(),
        policy = case.repair.because.policy.reason_regex,
        action = ?case.repair.action,
        eligible_at = %case.repair.because.eligible_at,
        "selected repair policy"
    );
    match case.repair.action {
        RepairAction::ReplaceNode => replace(context, case, now).await,
        RepairAction::RebootNode => request_reboot(context, case, now).await,
    }
}

/// Writes an object's metadata, and tells the store.
async fn write(context: &Context, before: &NodeClaim, after: &NodeClaim) -> anyhow::Result<Option<NodeClaim>> {
    let api: Api<NodeClaim> = Api::all(context.client.clone());
    let answer = patch::object(&api, before, after, Lock::Revision).await?;
    if let Some(answer) = &answer {
        context.store.apply(answer.clone(), Revision::of(&answer.metadata));
    }
    Ok(answer)
}

/// The machine goes; its drain ends at the latest when its bound is over, counted from now.
async fn replace(context: &Context, case: &Case<'_>, now: Timestamp) -> anyhow::Result<()> {
    let disrupted = Disrupted::now(&context.store.read(), &case.claim, REASON).bounded(case.drain_bound);
    failpoints::hit("repair.before-deadline");
    // Where the policy says nothing, the deletion itself brings the NodeClaim's own bound.
    let deadline = case.repair.drain_bound.and(case.drain_bound).map(|bound| now.saturating_add(bound));
    let bounded = match deadline {
        Some(deadline) => write(context, &case.claim, &termination::tightened(&case.claim, deadline)).await?,
        None => None,
    };
    failpoints::hit("repair.before-delete");
    let latest = bounded.as_ref().unwrap_or(&case.claim);
    if let Some(going) = claim::delete(&context.client, latest, Lock::Revision).await? {
        let going = patch::lean(going);
        let revision = Revision::of(&going.metadata);
        context.store.apply(going, revision);
    }
    failpoints::hit("repair.after-delete");
    disrupted.count(&context.metrics);
    count_unhealthy(&context.metrics, &case.claim, &case.repair, case.drain_bound);
    let because = case.repair.cause();
    tell(context, case, events::DISRUPTION_TERMINATING, &format!("Replacing unhealthy node: {because}"));
    Ok(())
}

/// Marks the machine for a reboot: what is to be remembered first, the request last.
async fn request_reboot(context: &Context, case: &Case<'_>, now: Timestamp) -> anyhow::Result<()> {
    let mut wanted = NodeClaim::clone(&case.claim);
    let notes = wanted.metadata.annotations.get_or_insert_default();
    notes.insert(annotations::REBOOTS.to_owned(), node_repair::reboots_with(&case.claim, now));
    // What is left of the last reboot would take the bound of this one along.
    notes.remove(annotations::REBOOT_PRE_BOOT_ID);
    notes.remove(annotations::REBOOT_ISSUED_AT);
    match case.drain_bound {
        Some(bound) => notes.insert(annotations::REBOOT_TERMINATION_GRACE_PERIOD.to_owned(), bound.to_string()),
        None => notes.remove(annotations::REBOOT_TERMINATION_GRACE_PERIOD),
    };
    failpoints::hit("repair.before-note");
    let noted = write(context, &case.claim, &wanted).await?;
    failpoints::hit("repair.before-request");
    let because = &case.repair.because;
    let message = format!("rebooting for {}/{}", because.policy.condition_type, because.reason);
    set_condition(context, noted.as_ref().unwrap_or(&case.claim), |conditions| {
        let is_new = conditions.set_true_because(REBOOTING, REBOOT_REQUESTED, &message);
        conditions.set_true_because(DISRUPTION_REASON, UNHEALTHY, UNHEALTHY) || is_new
    })
    .await?;
    failpoints::hit("repair.after-request");
    info!(node_claim = claim::name(&case.claim), reason = message, "committed node reboot");
    tell(
        context,
        case,
        events::DISRUPTION_TERMINATING,
        &format!("Rebooting unhealthy node: {}", case.repair.condition()),
    );
    Ok(())
}

fn tell(context: &Context, case: &Case<'_>, reason: &'static str, message: &str) {
    for regarding in [reference(&*case.node), reference(&*case.claim)] {
        context.recorder.publish(Event::new(regarding, Severity::Normal, reason, message));
    }
}

fn tell_blocked(context: &Context, case: &Case<'_>, obstacle: &Obstacle) {
    let message = format!("Node is unhealthy, {}, and is not repaired: {obstacle}", case.repair.condition());
    match obstacle {
        Obstacle::TooMany { .. } => {
            let of_pool = case.pool.as_deref().map(reference);
            let all = [reference(&*case.node), reference(&*case.claim)].into_iter().chain(of_pool);
            for regarding in all {
                let event = Event::new(regarding, Severity::Warning, events::NODE_REPAIR_BLOCKED, message.clone());
                context.recorder.publish(event);
            }
        }
        Obstacle::DoNotRepair | Obstacle::NoNodePool | Obstacle::Pod(..) | Obstacle::Budget(_) => {
            tell(context, case, events::DISRUPTION_BLOCKED, &message);
        }
    }
}
