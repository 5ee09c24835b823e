//! Runs the hand-over's engine: tells it what the store shows, carries its commands out, wakes it when it asks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use api::NodeClaim;
use api::taints;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use model::{DurationMs, NamespacedName, NodeClaimName, NodeName, Timestamp, Uid};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::engine::{Command, Config, Engine, Event, Opening, Surroundings, TolerationOutcome, View};
use super::view;
use super::withdrawals::{Withdrawal, Withdrawals};
use crate::options::HandOverMode;
use crate::runtime::beats::Beat;
use crate::runtime::failpoints;
use crate::runtime::failures::cause_in_words;
use crate::runtime::metrics::ByOutcome;
use crate::runtime::patch;
use crate::runtime::supervision;
use crate::world::claim;
use crate::world::context::Context;
use crate::world::hold::{self, is_held};
use crate::world::store::{NodeRecord, State};

/// Calls under way at the same time. More would only keep the API server from registering the machines that come next.
const PARALLEL_CALLS: usize = 16;
/// Changes are collected for this long at least: one look serves all that come together.
const COLLECT: Duration = Duration::from_millis(25);
/// The next look begins this long after the last one at the earliest: while pods are bound there is always news.
const LOOK_AFTER: Duration = Duration::from_millis(100);
/// And this many times as long after it as it took, which grows with the pods that are handed over.
const LOOK_AFTER_TIMES: u32 = 50;
/// But not longer.
const LOOK_AFTER_AT_MOST: Duration = Duration::from_millis(500);
/// How long changes are collected while nominations are under way, which soon are lost.
const COLLECT_IN_HURRY: Duration = Duration::from_millis(2);
/// How long after its NodeClaim a Node may register, for others to wait for it.
const GATHER: Duration = Duration::from_secs(5);
/// Longest that a call may take: some requests, each with its own deadline.
const CALL_LIMIT: Duration = Duration::from_secs(180);
/// Longest that a step of the engine may take, or come late.
const BOUND: Duration = Duration::from_secs(60);

/// What has happened since the engine last looked.
#[derive(Debug, Default)]
struct Inbox {
    news: Mutex<News>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct News {
    taint_changed: bool,
    nomination_cleared: bool,
    /// Ended calls; bounded by the calls under way.
    ended: Vec<Event>,
    /// Nodes that carry our taint.
    held: BTreeSet<NodeName>,
    /// NodeClaims whose Nodes have not registered, and when they were first seen.
    coming: BTreeMap<NodeClaimName, Instant>,
}

impl Inbox {
    fn note(&self, change: impl FnOnce(&mut News)) {
        change(&mut self.news.lock());
        self.changed.notify_one();
    }

    /// Until when machines that were launched lately are waited for.
    fn expected_until(&self) -> Option<Instant> {
        let news = self.news.lock();
        let now = Instant::now();
        news.coming.values().map(|since| *since + GATHER).filter(|until| *until > now).max()
    }

    fn take(&self) -> (Vec<Event>, BTreeSet<NodeName>) {
        let mut news = self.news.lock();
        let mut events = std::mem::take(&mut news.ended);
        if std::mem::take(&mut news.taint_changed) {
            events.push(Event::TaintChanged);
        }
        if std::mem::take(&mut news.nomination_cleared) {
            events.push(Event::NominationCleared);
        }
        (events, news.held.clone())
    }
}

/// Hands machines over until the context is stopped. Machines that an earlier process held are taken up where they are.
pub(crate) async fn run(context: Context) {
    let inbox = Arc::new(Inbox::default());
    subscribe(&context, &inbox);
    context.store.wait_until_synced().await;
    {
        let state = context.store.read();
        let held = state.nodes.iter().filter(|(_, node)| is_held(&node.object)).map(|(name, _)| name.clone());
        let held: BTreeSet<NodeName> = held.collect();
        inbox.note(|news| news.held.extend(held));
    }
    Driver::new(context, inbox).run().await;
}

fn subscribe(context: &Context, inbox: &Arc<Inbox>) {
    let told = Arc::clone(inbox);
    context.store.on::<NodeRecord>(move |delta, _| {
        let held = delta.after.is_some_and(|node| is_held(&node.object));
        let taint_changed = delta.changed(|node| node.model.taints.clone());
        told.note(|news| {
            news.taint_changed |= taint_changed;
            if held {
                news.held.insert(delta.key.clone());
            } else {
                news.held.remove(delta.key);
            }
        });
    });
    let (told, assignments) = (Arc::clone(inbox), Arc::clone(&context.assignments));
    context.store.on::<model::Pod>(move |delta, _| {
        let waits = |pod: &&Arc<model::Pod>| pod.node_name.is_none();
        let was_nominated = delta.before.is_some_and(|pod| pod.nominated_node_name.is_some());
        let cleared = was_nominated && delta.after.filter(waits).is_some_and(|pod| pod.nominated_node_name.is_none());
        let matters = cleared
            || delta
                .latest()
                .is_some_and(|pod| pod.is_daemon || was_nominated || assignments.claim_of(&pod.uid).is_some());
        if matters {
            told.note(|news| news.nomination_cleared |= cleared);
        }
    });
    let told = Arc::clone(inbox);
    context.store.on::<NodeClaim>(move |delta, _| {
        let comes = delta.after.is_some_and(|it| !claim::is_registered(it) && !claim::is_deleting(it));
        told.note(|news| {
            if comes {
                news.coming.entry(delta.key.clone()).or_insert_with(Instant::now);
            } else {
                news.coming.remove(delta.key);
            }
        });
    });
}

struct Driver {
    context: Context,
    inbox: Arc<Inbox>,
    engine: Engine,
    withdrawals: Withdrawals,
    started: Instant,
    calls: JoinSet<()>,
    permits: Arc<Semaphore>,
    beat: Beat,
}

impl Driver {
    fn new(context: Context, inbox: Arc<Inbox>) -> Self {
        let options = &context.options.hand_over;
        let config = Config {
            tolerate: options.mode == HandOverMode::Tolerate,
            quiet: milliseconds(options.quiet),
            max_hold: milliseconds(options.max_hold),
            batch_machines: options.batch,
            patches_per_pod: options.patches_per_pod,
            ..Config::default()
        };
        Self {
            engine: Engine::new(config, Timestamp::default()),
            withdrawals: Withdrawals::default(),
            beat: context.beats.beat(super::NAME, BOUND),
            context,
            inbox,
            started: Instant::now(),
            calls: JoinSet::new(),
            permits: Arc::new(Semaphore::new(PARALLEL_CALLS)),
        }
    }

    async fn run(mut self) {
        let stop = self.context.stop.clone();
        loop {
            let looked_at = Instant::now();
            self.beat.busy();
            let next = self.step();
            self.beat.due_at(next);
            let unhurried = (looked_at.elapsed() * LOOK_AFTER_TIMES).clamp(LOOK_AFTER, LOOK_AFTER_AT_MOST);
            tokio::select! {
                () = self.inbox.changed.notified() => {
                    let until = match self.engine.is_nominating() {
                        true => Instant::now() + COLLECT_IN_HURRY,
                        false => (Instant::now() + COLLECT).max(looked_at + unhurried),
                    };
                    tokio::time::sleep_until(until).await;
                }
                () = sleep_until(next), if next.is_some() => {}
                () = stop.cancelled() => break,
            }
            // What came of them is in the inbox.
            while self.calls.try_join_next().is_some() {}
        }
        while self.calls.join_next().await.is_some() {}
    }

    /// One step of the engine. Says when it wants the next one.
    fn step(&mut self) -> Option<Instant> {
        let (events, mut nodes) = self.inbox.take();
        nodes.extend(self.engine.followed().cloned());
        // Time stands still between the looks of one step.
        let now = self.timestamp(Instant::now());
        let store = Arc::clone(&self.context.store);
        let expected_until = self.inbox.expected_until().map(|until| self.timestamp(until));
        let commands = {
            let state = store.read();
            let (mut view, mut late) = (View::new(), Vec::new());
            // Nobody asks for either while no machine is to be opened.
            if !nodes.is_empty() {
                let assignments = &self.context.assignments;
                let closed = self.context.successors.closed_for(self.context.clock.now());
                view = view::build(&state, assignments, closed, &nodes, self.context.options.hand_over.mode);
                late = view::late(&state, assignments);
            }
            let surroundings = Surroundings { expected_until, waiting_pods: state.unbound_pods_count(), late };
            let withdrawals = self.withdrawals.take_due(&state, Instant::now());
            let commands = self.engine.step(now, &view, surroundings, &events);
            let calls = commands.into_iter().filter_map(|command| self.prepare(&state, command));
            calls.chain(withdrawals.into_iter().map(Call::Withdraw)).collect::<Vec<_>>()
        };
        if !events.is_empty() || !commands.is_empty() {
            debug!(
                event_count = events.len(),
                call_count = commands.len(),
                node_count = nodes.len(),
                phase = self.engine.phase(),
                "hand-over step"
            );
        }
        for call in commands {
            self.start(call);
        }
        let next = self.engine.next_step(now);
        let next = next.map(|next| self.started + Duration::from_millis(u64::try_from(next.0).unwrap_or_default()));
        next.into_iter().chain(self.withdrawals.next()).min()
    }

    /// The engine's time begins with the driver.
    fn timestamp(&self, instant: Instant) -> Timestamp {
        let elapsed = instant.saturating_duration_since(self.started);
        Timestamp(i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
    }

    /// Adds to a command what it was decided from: the precondition of its call.
    fn prepare(&self, state: &State, command: Command) -> Option<Call> {
        match command {
            Command::Tolerate { uid, pod, node } => {
                let known = state.pods.get(&pod).filter(|known| known.uid == uid)?;
                let first = known.shape.tolerations.is_empty() && known.may_enter.is_empty();
                let record = state.nodes.get(&node)?;
                let toleration = tolerating(hold::of_node(&record.object)?);
                Some(Call::Tolerate { uid, pod, node, toleration, first })
            }
            Command::Nominate { uid, pod, node } => {
                let revision = state.pods.revision(&pod).filter(|revision| revision.uid == uid)?;
                Some(Call::Nominate { resource_version: revision.resource_version, uid, pod, node })
            }
            Command::Close { node } => {
                let object = state.nodes.get(&node).map(|record| record.object.clone())?;
                let provider_id = object.spec.as_ref()?.provider_id.as_deref()?;
                let claim = state.node_claims_of_machine(provider_id).next()?;
                let taint = taints::held(claim.metadata.uid.as_deref()?);
                Some(Call::Close { node, object, taint })
            }
            Command::Open { node, opening } => {
                let object = state.nodes.get(&node).map(|record| record.object.clone())?;
                Some(Call::Open { node, object, opening })
            }
        }
    }

    fn start(&mut self, call: Call) {
        let (context, inbox, permits) = (self.context.clone(), Arc::clone(&self.inbox), Arc::clone(&self.permits));
        self.calls.spawn(async move {
            // The semaphore is never closed.
            let _permit = permits.acquire().await;
            let failed = call.failed();
            if let Some(ended) = ended(failed, call.run(&context)).await {
                inbox.note(|news| news.ended.push(ended));
            }
        });
    }
}

/// What the engine is told of a call, which is always told of its end. One that panics, or is not done in time, has
/// `failed`.
async fn ended(failed: Option<Event>, call: impl Future<Output = Option<Event>>) -> Option<Event> {
    match tokio::time::timeout(CALL_LIMIT, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(ended)) => ended,
        Ok(Err(panic)) => {
            error!(
                ?failed,
                error = supervision::text(panic.as_ref()),
                "a call of the hand-over panicked; this is a defect, please report it"
            );
            failed
        }
        Err(_) => {
            warn!(?failed, timeout = ?CALL_LIMIT, "a call of the hand-over did not end in time");
            failed
        }
    }
}

/// A command with its precondition.
#[derive(Debug)]
enum Call {
    /// `first` if the pod has no toleration yet.
    Tolerate {
        uid: Uid,
        pod: NamespacedName,
        node: NodeName,
        toleration: Toleration,
        first: bool,
    },
    Nominate {
        uid: Uid,
        resource_version: u64,
        pod: NamespacedName,
        node: NodeName,
    },
    Open {
        node: NodeName,
        object: Arc<Node>,
        opening: Opening,
    },
    Close {
        node: NodeName,
        object: Arc<Node>,
        taint: Taint,
    },
    Withdraw(Withdrawal),
}

impl Call {
    /// Its end, should it fail.
    fn failed(&self) -> Option<Event> {
        match self {
            Self::Tolerate { uid, node, .. } => Some(Event::TolerationEnded {
                pod: uid.clone(),
                node: node.clone(),
                outcome: TolerationOutcome::Failed,
            }),
            Self::Nominate { uid, .. } => Some(Event::NominationEnded { pod: uid.clone(), accepted: false }),
            Self::Close { .. } => Some(Event::ClosingEnded),
            Self::Open { node, .. } => Some(Event::OpeningEnded { node: node.clone(), opened: false }),
            Self::Withdraw(_) => None,
        }
    }

    /// Does it, and says what came of it.
    async fn run(self, context: &Context) -> Option<Event> {
        match self {
            Self::Withdraw(withdrawal) => {
                withdraw(context, &withdrawal).await;
                None
            }
            Self::Tolerate { uid, pod, node, toleration, first } => {
                let outcome = tolerate(context, &uid, &pod, &node, &toleration, first).await;
                Some(Event::TolerationEnded { pod: uid, node, outcome })
            }
            Self::Nominate { uid, resource_version, pod, node } => {
                let accepted = nominate(context, &uid, resource_version, &pod, &node).await;
                Some(Event::NominationEnded { pod: uid, accepted })
            }
            Self::Close { node, object, taint } => {
                close(context, &node, &object, &taint).await;
                Some(Event::ClosingEnded)
            }
            Self::Open { node, object, opening } => {
                let opened = open(context, &node, &object, opening).await;
                Some(Event::OpeningEnded { node, opened })
            }
        }
    }
}

/// The toleration of exactly that taint.
fn tolerating(taint: &Taint) -> Toleration {
    Toleration {
        key: Some(taint.key.clone()),
        operator: Some("Equal".to_owned()),
        value: taint.value.clone(),
        effect: Some(taint.effect.clone()),
        toleration_seconds: None,
    }
}

/// Adds the toleration to the pod. Tolerations can be added to a pod at any time, and never removed.
async fn tolerate(
    context: &Context,
    uid: &Uid,
    pod: &NamespacedName,
    node: &NodeName,
    toleration: &Toleration,
    first: bool,
) -> TolerationOutcome {
    // Not rate limited: the pods of a machine go together. Patches per pod are bounded.
    let pods: Api<Pod> = Api::namespaced(context.urgent_client.clone(), &pod.namespace);
    failpoints::hit("hand-over.before-toleration");
    let addition = match first {
        true => json!({"op": "add", "path": "/spec/tolerations", "value": [toleration]}),
        false => json!({"op": "add", "path": "/spec/tolerations/-", "value": toleration}),
    };
    let patch = json!([{"op": "test", "path": "/metadata/uid", "value": uid}, addition]);
    // There may be thousands. We need no answer but that it was done, and write fields that every release knows.
    let params = PatchParams::default().validation_ignore();
    let patched = match serde_json::from_value(patch) {
        Ok(patch) => patch::unread(&pods, &pod.name, None, &params, &Patch::<()>::Json(patch)).await,
        Err(error) => Err(kube::Error::SerdeError(error)),
    };
    let (outcome, label) = match patched {
        Ok(_) => (TolerationOutcome::Done, "accepted"),
        Err(kube::Error::Api(status)) if status.code == 404 => (TolerationOutcome::Done, "gone"),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            warn!(%pod, %node, error = status.message, "not allowed to add a toleration to a pod; nominating the pods of its machine instead");
            (TolerationOutcome::Refused, "refused")
        }
        Err(error) => {
            warn!(%pod, %node, error = cause_in_words(&error), "could not add a toleration to a pod");
            (TolerationOutcome::Failed, "failed")
        }
    };
    debug!(%pod, %node, outcome = label, "added a toleration");
    let labels = ByOutcome { outcome: label.to_owned() };
    context.metrics.hand_over_tolerations.get_or_create(&labels).inc();
    outcome
}

/// Writes to which node the pod is nominated, unless it has changed since it was looked at: somebody else may have
/// nominated it.
async fn set_nomination(
    client: &Client,
    uid: &Uid,
    resource_version: u64,
    pod: &NamespacedName,
    node: Option<&NodeName>,
) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let patch = json!({
        "metadata": {"uid": uid, "resourceVersion": resource_version.to_string()},
        "status": {"nominatedNodeName": node},
    });
    patch::unread(&pods, &pod.name, Some("status"), &PatchParams::default(), &Patch::Merge(patch)).await
}

/// Nominates the pod. Says whether it is nominated now.
async fn nominate(context: &Context, uid: &Uid, resource_version: u64, pod: &NamespacedName, node: &NodeName) -> bool {
    failpoints::hit("hand-over.before-nomination");
    // Not rate limited: the longer it takes, the more nominations are lost again. Patches per pod are bounded.
    let outcome = match set_nomination(&context.urgent_client, uid, resource_version, pod, Some(node)).await {
        Ok(()) => "accepted",
        // Bound already, which is what we wanted.
        Err(kube::Error::Api(status)) if status.code == 422 => "bound",
        Err(kube::Error::Api(status)) if status.code == 409 => "conflict",
        Err(kube::Error::Api(status)) if status.code == 404 => "gone",
        Err(error) => {
            warn!(%pod, %node, error = cause_in_words(&error), "could not nominate a pod");
            "failed"
        }
    };
    debug!(%pod, %node, outcome, "nominated pod");
    let labels = ByOutcome { outcome: outcome.to_owned() };
    context.metrics.hand_over_nominations.get_or_create(&labels).inc();
    outcome == "accepted"
}

/// Removes a nomination.
async fn withdraw(context: &Context, withdrawal: &Withdrawal) {
    let Withdrawal { pod, uid, resource_version } = withdrawal;
    match set_nomination(&context.client, uid, *resource_version, pod, None).await {
        Ok(()) => info!(%pod, "withdrew a nomination that the scheduler does not follow"),
        // Bound, changed or gone meanwhile: the next look sees it.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => {}
        Err(error) => warn!(%pod, error = cause_in_words(&error), "could not withdraw a nomination"),
    }
}

/// Takes our taint off. Says whether it is gone.
async fn open(context: &Context, name: &NodeName, node: &Node, opening: Opening) -> bool {
    failpoints::hit("hand-over.before-opening");
    let opened = hold::open(context, node).await;
    if opened {
        let outcome = opening.as_str();
        info!(node = %name, outcome, "opened node");
        let labels = ByOutcome { outcome: outcome.to_owned() };
        context.metrics.hand_over_machines.get_or_create(&labels).inc();
    }
    opened
}

/// Puts our taint on again.
async fn close(context: &Context, name: &NodeName, node: &Node, taint: &Taint) {
    if hold::close(context, node, taint).await {
        info!(node = %name, "tainted node again until its pods are bound");
    }
}

fn milliseconds(duration: Duration) -> DurationMs {
    DurationMs(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_engine_is_told_of_the_end_of_every_call() {
        let call = |uid: &str| Call::Nominate {
            uid: uid.into(),
            resource_version: 1,
            pod: NamespacedName::new("ns", "a"),
            node: "n".into(),
        };
        let failed = || call("a").failed();
        let accepted = Event::NominationEnded { pod: "a".into(), accepted: true };
        let refused = Event::NominationEnded { pod: "a".into(), accepted: false };
        assert_eq!(ended(failed(), async { Some(accepted.clone()) }).await, Some(accepted));
        assert_eq!(ended(failed(), async { panic!("a defect") }).await, Some(refused.clone()));
        let started = Instant::now();
        assert_eq!(ended(failed(), std::future::pending()).await, Some(refused));
        assert_eq!(started.elapsed(), CALL_LIMIT);
    }
}
