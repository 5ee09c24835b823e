//! The end of a machine, as the controllers of NodeClaims and of Nodes both ask for it.

use std::time::Duration;

use api::NodeClaim;
use api::conditions::node_claim::{INSTANCE_TERMINATING, READY_DEPENDS_ON};
use cloudprovider::Error;
use kube::api::Api;
use model::ProviderId;

use crate::runtime::conditions::ConditionSet;
use crate::runtime::failpoints;
use crate::runtime::failures::is_not_found;
use crate::runtime::patch::{self, Lock};
use crate::world::context::Context;
use crate::world::pace::INSTANCE_POLL;
use crate::world::store::Revision;

/// Whether a machine is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instance {
    /// It is on its way.
    Ending {
        /// When the provider may be asked again.
        ask_again_in: Duration,
    },
    /// It is.
    Gone,
}

/// Asks the provider to end a machine, unless it was asked just now, and notes that in the NodeClaim's status.
///
/// # Errors
/// Those of the API server and the provider.
pub(crate) async fn end_instance(
    context: &Context,
    node_claim: Option<&NodeClaim>,
    id: &ProviderId,
) -> anyhow::Result<Instance> {
    if let Err(ask_again_in) = context.pace.ask(id) {
        return Ok(Instance::Ending { ask_again_in });
    }
    failpoints::hit("terminate.before-instance");
    let answer = context.cloud.delete(id).await;
    if answer.is_err() {
        context.pace.forget(id);
    }
    let answer = Error::ignore_not_found(answer)?;
    failpoints::hit("terminate.after-instance");
    let Some(()) = answer else { return Ok(Instance::Gone) };
    if let Some(node_claim) = node_claim {
        set_condition(context, node_claim, |conditions| conditions.set_true(INSTANCE_TERMINATING)).await?;
    }
    Ok(Instance::Ending { ask_again_in: INSTANCE_POLL })
}

/// Changes a condition in a NodeClaim's status, if there is something to change.
///
/// # Errors
/// Those of the API server.
pub(crate) async fn set_condition(
    context: &Context,
    node_claim: &NodeClaim,
    change: impl FnOnce(&mut ConditionSet<'_>) -> bool,
) -> anyhow::Result<()> {
    let mut wanted = node_claim.clone();
    let status = wanted.status.get_or_insert_default();
    let mut conditions =
        ConditionSet::of(&mut status.conditions, &node_claim.metadata, &READY_DEPENDS_ON, context.clock.now());
    if !change(&mut conditions) {
        return Ok(());
    }
    let claims: Api<NodeClaim> = Api::all(context.client.clone());
    match patch::status(&claims, node_claim, &wanted, Lock::Revision).await {
        Ok(Some(answer)) => {
            let revision = Revision::of(&answer.metadata);
            context.store.apply(answer, revision);
            Ok(())
        }
        Ok(None) => Ok(()),
        Err(error) if is_not_found(&error) => Ok(()),
        Err(error) => Err(error),
    }
}
