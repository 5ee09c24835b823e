//! NodeOverlays: each learns whether it is in effect, and whether machines have the devices that it describes.
//!
//! [`run`] keeps the overlays' conditions, and says in them whether machines have published what the overlays describe
//! (`machines`). What the overlays make of the provider's answers is in [`crate::world::overlays`]. With the gate
//! NodeOverlay off, nothing is done.

use std::sync::Arc;
use std::time::Duration;

use api::conditions::node_claim::INITIALIZED;
use api::conditions::node_overlay::{DEVICES_AS_DESCRIBED, MISMATCH, READY_DEPENDS_ON, VALIDATION_SUCCEEDED};
use api::{NodeClaim, NodeOverlay, NodePool};
use dra_types::ResourceSlice;
use kube::api::Api;
use tokio::sync::Notify;
use tracing::warn;

use crate::options::LearnDevices;
use crate::runtime::conditions::ConditionSet;
use crate::runtime::controller_loop::{Looks, Rhythm};
use crate::runtime::patch::{self, Lock};
use crate::world::catalogues::{self};
use crate::world::claim;
use crate::world::context::Context;
use crate::world::store::{Kind, NodeClass, Revision, Stored};

use learning::Learning;
use machines::Machine;

mod learning;
mod machines;

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "nodeoverlay";
const RHYTHM: Rhythm = Rhythm {
    first: Duration::ZERO,
    period: Duration::from_secs(60),
    collect: Duration::from_millis(500),
    bound: Duration::from_secs(300),
};

fn subscribe(context: &Context, changed: &Arc<Notify>) {
    /// Notifies of changes of a kind in which the property differs.
    fn notify_of<T: Stored, P: PartialEq>(
        context: &Context,
        changed: &Arc<Notify>,
        property: impl Fn(&T) -> P + Send + Sync + 'static,
    ) {
        let changed = Arc::clone(changed);
        context.store.on::<T>(move |delta, _| {
            if delta.changed(&property) {
                changed.notify_one();
            }
        });
    }
    notify_of(context, changed, |overlay: &NodeOverlay| overlay.metadata.generation);
    notify_of(context, changed, |pool: &NodePool| pool.metadata.generation);
    notify_of(context, changed, |class: &NodeClass| class.generation);
    notify_of(context, changed, |node_claim: &NodeClaim| claim::is(node_claim, INITIALIZED));
    if context.options.learn_devices != LearnDevices::Off {
        let changed = Arc::clone(changed);
        context.store.on_any_of(&[Kind::ResourceSlice], move |_, _| changed.notify_one());
    }
}

/// Keeps the conditions of all overlays until the context is stopped.
pub(crate) async fn run(context: Context) {
    if !context.options.feature_gates.node_overlay {
        return context.stop.cancelled().await;
    }
    let changed = Arc::new(Notify::new());
    subscribe(&context, &changed);
    context.store.wait_until_synced().await;
    let learning = Learning::default();
    let mut looks = Looks::new(NAME, RHYTHM, &context.beats, &context.stop).after(changed);
    while looks.next().await {
        tell(&context, &learning).await;
    }
}

/// The machines that have a Node, and what drivers have published.
fn running(context: &Context) -> (Vec<Machine>, Vec<Arc<ResourceSlice>>) {
    let state = context.store.read();
    let node = |node_claim: &NodeClaim| {
        let id = claim::provider_id(node_claim)?;
        state.nodes_of_machine(id).map(|node| Arc::clone(&node.object)).next()
    };
    let machines = state.node_claims.values().filter_map(|it| Some(Machine { node: node(it)?, claim: Arc::clone(it) }));
    let mut slices = state.resource_slices.iter().map(|(name, it)| (Arc::clone(name), Arc::clone(it))).collect();
    // A driver that is being replaced has told already what it publishes.
    context.held_devices.hold(&mut slices, context.clock.now());
    (machines.collect(), slices.into_values().collect())
}

/// Writes the condition of each overlay whose condition differs, and learns what no overlay says.
async fn tell(context: &Context, learning: &Learning) {
    let objects = context.node_overlays();
    if objects.is_empty() && context.options.learn_devices == LearnDevices::Off {
        return;
    }
    let answers = catalogues::answers(context).await;
    let outcome = context.overlays.evaluate(&objects, &answers, &context.cloud.config().labels, context.clock.now());
    let (running, slices) = running(context);
    learning.learn(context, &objects, &answers, &outcome, (&running, &slices)).await;
    let machines = machines::look(&outcome, &running, &slices);
    let api: Api<NodeOverlay> = Api::all(context.client.clone());
    for before in &objects {
        let name = before.key();
        let mut after = NodeOverlay::clone(before);
        let status = after.status.get_or_insert_default();
        let mut conditions =
            ConditionSet::of(&mut status.conditions, &before.metadata, &READY_DEPENDS_ON, context.clock.now());
        match outcome.refused.get(&name) {
            None => match outcome.described.get(&name) {
                None => conditions.set_true(VALIDATION_SUCCEEDED),
                Some(devices) => conditions.set_true_because(VALIDATION_SUCCEEDED, VALIDATION_SUCCEEDED, devices),
            },
            Some((reason, message)) => conditions.set_false(VALIDATION_SUCCEEDED, reason, message),
        };
        match machines.get(&name) {
            None => conditions.clear(DEVICES_AS_DESCRIBED),
            Some(machines) if machines.are_as_described() => {
                conditions.set_true_because(DEVICES_AS_DESCRIBED, DEVICES_AS_DESCRIBED, &machines.in_words())
            }
            Some(machines) => conditions.set_false(DEVICES_AS_DESCRIBED, MISMATCH, &machines.in_words()),
        };
        match patch::status(&api, before, &after, Lock::Revision).await {
            Ok(None) => {}
            Ok(Some(answer)) => {
                let revision = Revision::of(&answer.metadata);
                context.store.apply(answer, revision);
            }
            // The watch brings what has changed, or the next look does.
            Err(error) => {
                warn!(node_overlay = %name, error = format!("{error:#}"), "could not write the conditions of a nodeoverlay")
            }
        }
    }
}
