//! Carries writes out, each with what it relies on.
//!
//! NodeClaims are changed and deleted in the state in which they were looked at; the API server refuses any other, and
//! the next look decides anew. What is taken away is taken away whatever else has changed. Answers go into the store,
//! so that the next look sees them.

use std::sync::Arc;

use anyhow::Context as _;
use api::conditions::node_claim::DISRUPTION_REASON;
use api::{NodeClaim, annotations, taints};
use cluster::node_claim::command::Note;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use model::NodeClaimName;

use super::writes::Write;
use crate::runtime::conditions::ConditionSet;
use crate::runtime::failpoints;
use crate::runtime::failures::{is_conflict, is_not_found};
use crate::runtime::patch::{self, Lock, lean};
use crate::world::context::Context;
use crate::world::instance::set_condition;
use crate::world::store::{Revision, State};
use crate::world::{claim, new_node_claim, node_facts, termination};

/// How often a condition is written while others write the status as well.
const ATTEMPTS: usize = 5;

/// What writes are about.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    /// The command; `None` for what nobody can read.
    pub note: Option<&'a Note>,
    /// The state in which it was decided.
    pub looked: &'a State,
    /// The replacements, if there are any to create.
    pub launches: &'a [NodeClaim],
}

/// Carries writes out, one after the other, up to the first that fails.
///
/// # Errors
/// That of the write, with what it was.
pub(crate) async fn all(context: &Context, job: Job<'_>, writes: &[Write]) -> anyhow::Result<()> {
    for write in writes {
        failpoints::hit(write.failpoint());
        match one(context, job, write).await {
            Err(failure) if is_not_found(&failure) && is_removal(write) => {}
            result => result.with_context(|| format!("{write:?}"))?,
        }
    }
    Ok(())
}

fn is_removal(write: &Write) -> bool {
    match write {
        Write::Note(_) | Write::Mark(_) | Write::Taint(_) | Write::Launch(_) => false,
        Write::Delete(_) | Write::Untaint(_) | Write::Unmark(_) | Write::Forget(_) | Write::Discard(_) => true,
    }
}

async fn one(context: &Context, job: Job<'_>, write: &Write) -> anyhow::Result<()> {
    match write {
        Write::Note(name) => note(context, job, name).await,
        Write::Mark(name) => mark(context, job, name).await,
        Write::Taint(name) => set_taint(context, name, true).await,
        Write::Launch(number) => launch(context, job, *number).await,
        Write::Untaint(name) => set_taint(context, name, false).await,
        Write::Unmark(name) => change_conditions(context, name, |conditions| conditions.clear(DISRUPTION_REASON)).await,
        Write::Forget(name) => forget(context, job, name).await,
        Write::Delete(name) => delete_within_bound(context, job, name).await,
        Write::Discard(name) => match job.looked.node_claims.get(name) {
            Some(read) => delete(context, read).await,
            None => Ok(()),
        },
    }
}

async fn note(context: &Context, job: Job<'_>, name: &NodeClaimName) -> anyhow::Result<()> {
    let (Some(note), Some(read)) = (job.note, job.looked.node_claims.get(name)) else {
        anyhow::bail!("there is no such nodeclaim");
    };
    let mut wanted = NodeClaim::clone(read);
    let all = wanted.metadata.annotations.get_or_insert_default();
    let before = all.insert(annotations::DISRUPTION_COMMAND.to_owned(), note.encode());
    anyhow::ensure!(before.is_none(), "it takes part in a command already");
    keep(context, patch::object(&claims(context), &**read, &wanted, Lock::Revision).await?);
    Ok(())
}

async fn mark(context: &Context, job: Job<'_>, name: &NodeClaimName) -> anyhow::Result<()> {
    let reason = job.note.map(|note| note.reason.as_str()).context("no note")?;
    change_conditions(context, name, |conditions| conditions.set_true_because(DISRUPTION_REASON, reason, "")).await
}

/// Changes the NodeClaim's conditions, again where somebody else was faster.
async fn change_conditions(
    context: &Context,
    name: &NodeClaimName,
    change: impl Fn(&mut ConditionSet<'_>) -> bool + Send + Sync,
) -> anyhow::Result<()> {
    let read = context.store.read().node_claims.get(name).map(Arc::clone);
    let Some(mut read) = read else { return Ok(()) };
    for _ in 1..ATTEMPTS {
        match set_condition(context, &read, &change).await {
            Err(failure) if is_conflict(&failure) => {}
            result => return result,
        }
        read = Arc::new(lean(claims(context).get(name).await?));
        context.store.apply_shared(Arc::clone(&read), Revision::of(&read.metadata));
    }
    set_condition(context, &read, &change).await
}

/// Puts the taint onto the NodeClaim's Node, or takes it away.
async fn set_taint(context: &Context, name: &NodeClaimName, is_wanted: bool) -> anyhow::Result<()> {
    let nodes: Vec<Arc<Node>> = {
        let state = context.store.read();
        let claim = state.node_claims.get(name);
        let of_machine =
            claim.and_then(|claim| claim::provider_id(claim)).into_iter().flat_map(|id| state.nodes_of_machine(id));
        of_machine.map(|node| Arc::clone(&node.object)).collect()
    };
    let disrupted = taints::disrupted();
    let changed = |node: &Node| {
        let mut wanted = node.clone();
        let of_node = wanted.spec.get_or_insert_default().taints.get_or_insert_default();
        of_node.retain(|taint| !node_facts::same_taint(taint, &disrupted));
        if is_wanted {
            of_node.push(disrupted.clone());
        }
        wanted
    };
    for node in nodes {
        // One that is as wanted is not written: the order of its taints would be another.
        if node_facts::has_taint(&node, &disrupted) == is_wanted {
            continue;
        }
        let written = patch::retried(&Api::<Node>::all(context.client.clone()), &node, changed).await?;
        written.iter().for_each(|node| context.store.apply_node(node));
    }
    Ok(())
}

async fn launch(context: &Context, job: Job<'_>, number: usize) -> anyhow::Result<()> {
    let (Some(note), Some(claim)) = (job.note, job.launches.get(number)) else {
        anyhow::bail!("nobody knows what is to be launched");
    };
    let mut claim = claim.clone();
    let all = claim.metadata.annotations.get_or_insert_default();
    all.insert(annotations::DISRUPTION_COMMAND.to_owned(), note.encode());
    let created = new_node_claim::create(context, claim).await?;
    keep(context, Some(lean(created)));
    Ok(())
}

/// Takes the note away, and the deadline of the drain if the command has written one. Both stay if the note is not that
/// of the command: what has another by now is somebody else's.
async fn forget(context: &Context, job: Job<'_>, name: &NodeClaimName) -> anyhow::Result<()> {
    let read = context.store.read().node_claims.get(name).map(Arc::clone);
    let Some(read) = read else { return Ok(()) };
    let is_ours = |claim: &NodeClaim| match (Note::of(claim), job.note) {
        (Some(Ok(found)), Some(note)) => found == *note,
        (Some(Err(_)), None) => true,
        // Of its id, and another; see `view`.
        (Some(Ok(_)), None) => job.looked.node_claims.get(name).is_some_and(|it| Note::of(it) == Note::of(claim)),
        (Some(Err(_)), Some(_)) | (None, _) => false,
    };
    let without = |claim: &NodeClaim| {
        let mut wanted = claim.clone();
        if is_ours(claim)
            && let Some(all) = &mut wanted.metadata.annotations
        {
            all.remove(annotations::DISRUPTION_COMMAND);
            // Whatever drains it next would end by force.
            let may_be_bounded = job.note.is_none_or(|note| note.drain_bounds.contains_key(name));
            if may_be_bounded && !claim::is_deleting(claim) {
                all.remove(annotations::NODECLAIM_TERMINATION_TIMESTAMP);
            }
        }
        wanted
    };
    keep(context, patch::retried(&claims(context), &*read, without).await?);
    Ok(())
}

/// Deletes a NodeClaim that goes. Where the command bounds its drain the deadline is written first, so that the time in
/// which the replacement came is no part of it.
async fn delete_within_bound(context: &Context, job: Job<'_>, name: &NodeClaimName) -> anyhow::Result<()> {
    let Some(read) = job.looked.node_claims.get(name) else { return Ok(()) };
    let bound = job.note.and_then(|note| note.drain_bounds.get(name)).copied();
    let Some(bound) = bound.and_then(|bound| termination::drain_bound(Some(bound), read)) else {
        return delete(context, read).await;
    };
    let wanted = termination::tightened(read, context.clock.now().saturating_add(bound));
    let bounded = patch::object(&claims(context), &**read, &wanted, Lock::Revision).await?;
    keep(context, bounded.clone());
    failpoints::hit("disruption.after-deadline");
    delete(context, bounded.as_ref().unwrap_or(read)).await
}

async fn delete(context: &Context, read: &NodeClaim) -> anyhow::Result<()> {
    keep(context, claim::delete(&context.client, read, Lock::Revision).await?.map(lean));
    Ok(())
}

fn keep(context: &Context, answer: Option<NodeClaim>) {
    if let Some(answer) = answer {
        let revision = Revision::of(&answer.metadata);
        context.store.apply(answer, revision);
    }
}

fn claims(context: &Context) -> Api<NodeClaim> {
    Api::all(context.client.clone())
}
