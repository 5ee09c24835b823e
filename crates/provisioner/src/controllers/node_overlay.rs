//! NodeOverlays: each learns whether it is in effect, whether machines have the devices that it describes, and whether
//! pods of their drivers can run there.
//!
//! [`run`] keeps the overlays' conditions, and says in them whether machines have published what the overlays describe
//! (`machines`), and for which drivers a machine would have no pod ([`cluster::driver_daemons`]). What the overlays
//! make of the provider's answers is in [`crate::world::overlays`]. With the gate NodeOverlay off, nothing is done.

use std::sync::Arc;
use std::time::Duration;

use api::conditions::node_claim::INITIALIZED;
use api::conditions::node_overlay::{
    DEVICES_AS_DESCRIBED, DRIVERS_CAN_RUN, MISMATCH, NO_DAEMON_SET_POD, READY_DEPENDS_ON, VALIDATION_SUCCEEDED,
};
use api::{NodeClaim, NodeOverlay, NodePool};
use cluster::driver_daemons::{self, DriverPods, Machines};
use dra_types::ResourceSlice;
use kube::api::Api;
use model::NodeOverlayName;
use model::workload::DaemonSet;
use tokio::sync::Notify;
use tracing::warn;

use crate::options::LearnDevices;
use crate::runtime::conditions::ConditionSet;
use crate::runtime::controller_loop::{Looks, Rhythm};
use crate::runtime::patch::{self, Lock};
use crate::world::catalogues::{self, Answer};
use crate::world::claim;
use crate::world::context::Context;
use crate::world::overlays::Outcome;
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
    // What decides where its pods run; its status changes with each of them.
    notify_of(context, changed, |set: &DaemonSet| (Arc::clone(&set.template.shape), set.template.labels.clone()));
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

/// The drivers whose DaemonSets overlays in effect name.
fn driver_pods(
    context: &Context,
    objects: &[Arc<NodeOverlay>],
    answers: &[Answer],
    outcome: &Outcome,
) -> Vec<DriverPods> {
    let names_one = |it: &Arc<NodeOverlay>| it.spec.dynamic_resources.iter().any(|it| !it.drivers.is_empty());
    if !objects.iter().any(names_one) {
        return Vec::new();
    }
    let machines = answers.iter().filter_map(|answer| {
        let corrected = outcome.described_types.get(&answer.pool.key())?;
        Some(Machines { node_pool: &answer.pool, types: &corrected.types })
    });
    let machines: Vec<Machines<'_>> = machines.collect();
    let daemon_sets: Vec<Arc<DaemonSet>> = context.store.read().daemon_sets.values().cloned().collect();
    let (found, _) = context.store.intern(|interner| {
        let mut names = decode::Context::with_labels(interner, &context.cloud.config().labels);
        driver_daemons::look(&machines, &daemon_sets, &mut names)
    });
    found
}

/// Says whether pods of the drivers of an overlay can run on all machines that it describes.
fn tell_of_drivers(conditions: &mut ConditionSet<'_>, overlay: &NodeOverlayName, all: &[DriverPods]) {
    let mut of_overlay = all.iter().filter(|it| it.overlay == *overlay).peekable();
    if of_overlay.peek().is_none() {
        conditions.clear(DRIVERS_CAN_RUN);
        return;
    }
    let told = |it: &DriverPods| it.problem.as_ref().map(|problem| format!("{}: {problem}", it.driver));
    let problems: Vec<String> = of_overlay.filter_map(told).collect();
    match problems.is_empty() {
        true => conditions.set_true(DRIVERS_CAN_RUN),
        false => conditions.set_false(DRIVERS_CAN_RUN, NO_DAEMON_SET_POD, &problems.join("; ")),
    };
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
    let driver_pods = driver_pods(context, &objects, &answers, &outcome);
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
        tell_of_drivers(&mut conditions, &name, &driver_pods);
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
