//! One pod leaves: by the Eviction API, or by force once its node's time is over.
//!
//! Pods wait in a queue of their own, keyed by name and uid, with the earliest deadline that anybody asked for. What a
//! PodDisruptionBudget or `karpenter.sh/do-not-disrupt` refuses is tried again, later and later up to ten seconds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::events;
use k8s_openapi::api::core::v1 as core;
use kube::api::{Api, DeleteParams, EvictParams, Preconditions};
use model::pod::DoNotDisrupt;
use model::{DurationMs, NamespacedName, NodeName, Pod, Timestamp, Uid};
use parking_lot::Mutex;
use scheduling::snapshot::eviction::is_protected;
use tracing::{debug, info};

use super::drain::{has_ended, needs_force};
use crate::runtime::failpoints;
use crate::runtime::failures::is_of_ending_namespace;
use crate::runtime::metrics::{ByCode, ByReason};
use crate::runtime::queue::{self, Action, WorkQueue};
use crate::runtime::recorder::{Event, Severity, pod_reference, reference};
use crate::world::context::Context;

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "eviction-queue";
const CONCURRENCY: usize = 100;
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// Pods beyond this are not taken; the drain asks again.
const CAPACITY: usize = 10_000;
/// Least grace that a pod gets.
const MIN_GRACE_S: i64 = 1;

/// One pod, not another of its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodKey {
    /// The name.
    pub name: NamespacedName,
    /// The uid.
    pub uid: Uid,
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.name, f)
    }
}

/// What is asked of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// The node that is drained.
    pub node: NodeName,
    /// When the node stops waiting, and pods go by force.
    pub deadline: Option<Timestamp>,
    /// When nobody asks any more, and pods that are still there stay: a reboot does not wait longer. A deadline counts
    /// for more.
    pub give_up_at: Option<Timestamp>,
    /// Why, for the pod's event.
    pub reason: String,
}

impl Request {
    /// Whether the pod may stay after all.
    fn is_given_up(&self, now: Timestamp) -> bool {
        self.deadline.is_none() && self.give_up_at.is_some_and(|until| now >= until)
    }
}

/// What to do with a pod that shall leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing: it has ended, is leaving, or is not there.
    Drop,
    /// Nothing for now: it may not be disrupted.
    Wait,
    /// Evict it.
    Evict,
    /// Delete it with that grace, whatever protects it.
    Delete {
        /// In seconds.
        grace_s: i64,
    },
}

/// Decides for one pod.
pub(crate) fn decide(pod: &Pod, deadline: Option<Timestamp>, now: Timestamp) -> Step {
    if has_ended(pod.phase) {
        return Step::Drop;
    }
    if let Some(deadline) = deadline.filter(|_| needs_force(pod, deadline, now)) {
        return Step::Delete { grace_s: deadline.since(now).as_seconds().max(MIN_GRACE_S) };
    }
    if pod.deletion_timestamp.is_some() {
        return Step::Drop;
    }
    if is_protected(pod, now) { Step::Wait } else { Step::Evict }
}

/// What is to be told about a pod that shall leave and has the annotation `karpenter.sh/do-not-disrupt`.
fn about_protection(pod: &Pod, now: Timestamp) -> Option<Event> {
    let (severity, reason, message) = match pod.do_not_disrupt {
        DoNotDisrupt::Never | DoNotDisrupt::Always => return None,
        DoNotDisrupt::Invalid => (
            Severity::Warning,
            events::INVALID_DO_NOT_DISRUPT_ANNOTATION,
            format!(
                "Pod is not protected from disruption: its annotation {} is neither \"true\" nor a positive duration \
                 such as \"30m\"",
                api::annotations::DO_NOT_DISRUPT
            ),
        ),
        DoNotDisrupt::For(span) => {
            let until = pod.started_at?.saturating_add(span);
            if now < until {
                let message = format!("Pod may not be disrupted until {until}, {span} after its start");
                (Severity::Normal, events::DO_NOT_DISRUPT_UNTIL, message)
            } else {
                let message = format!("Pod may be disrupted since {until}, {span} after its start");
                (Severity::Normal, events::DO_NOT_DISRUPT_GRACE_PERIOD_ELAPSED, message)
            }
        }
    };
    Some(Event::new(pod_reference(pod), severity, reason, message))
}

/// Pods that shall leave. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Evictions {
    queue: Arc<WorkQueue<PodKey>>,
    entries: Arc<Mutex<BTreeMap<PodKey, Entry>>>,
}

#[derive(Debug, Clone)]
struct Entry {
    request: Request,
    refusals: u32,
}

impl Default for Evictions {
    fn default() -> Self {
        Self { queue: Arc::new(WorkQueue::new()), entries: Arc::default() }
    }
}

impl Evictions {
    /// Asks a pod to leave. Of two deadlines the earlier one holds. Says whether it is in the queue.
    pub(crate) fn add(&self, key: PodKey, request: Request) -> bool {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get_mut(&key) {
            let earlier = [entry.request.deadline, request.deadline].into_iter().flatten().min();
            if request.give_up_at.is_none() {
                entry.request.give_up_at = None;
            }
            if earlier != entry.request.deadline {
                entry.request.deadline = earlier;
                self.queue.add(key);
            }
            return true;
        }
        if entries.len() >= CAPACITY {
            return false;
        }
        entries.insert(key.clone(), Entry { request, refusals: 0 });
        drop(entries);
        self.queue.add(key);
        true
    }

    fn get(&self, key: &PodKey) -> Option<Request> {
        self.entries.lock().get(key).map(|entry| entry.request.clone())
    }

    fn remove(&self, key: &PodKey) {
        self.entries.lock().remove(key);
    }

    /// How long to wait after one more refusal.
    fn refused(&self, key: &PodKey) -> Duration {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(key) else { return BACKOFF_MIN };
        let delay = BACKOFF_MIN.saturating_mul(2_u32.saturating_pow(entry.refusals.min(16))).min(BACKOFF_MAX);
        entry.refusals = entry.refusals.saturating_add(1);
        delay
    }
}

/// Works the queue until the context is stopped.
pub(crate) async fn run(context: Context, evictions: Evictions) {
    let config = queue::Config { concurrency: CONCURRENCY, backoff_min: BACKOFF_MIN, backoff_max: BACKOFF_MAX };
    let (queue, owner) = (Arc::clone(&evictions.queue), context.owner(NAME));
    queue::run(owner, queue, config, move |key| {
        let (context, evictions) = (context.clone(), evictions.clone());
        async move { reconcile(&context, &evictions, &key).await }
    })
    .await;
}

async fn reconcile(context: &Context, evictions: &Evictions, key: &PodKey) -> anyhow::Result<Action> {
    let Some(request) = evictions.get(key) else { return Ok(Action::Done) };
    let pod = context.store.read().pods.get(&key.name).filter(|pod| pod.uid == key.uid).cloned();
    let now = context.clock.now();
    let wanted = pod.as_deref().filter(|_| !request.is_given_up(now));
    let step = wanted.map_or(Step::Drop, |pod| decide(pod, request.deadline, now));
    let Some(pod) = pod.filter(|_| step != Step::Drop) else {
        evictions.remove(key);
        return Ok(Action::Done);
    };
    if let Some(event) = about_protection(&pod, now) {
        context.recorder.publish(event);
    }
    match step {
        Step::Drop => Ok(Action::Done),
        Step::Wait => Ok(Action::RequeueAfter(wait(&pod, &request, now, evictions.refused(key)))),
        Step::Delete { grace_s } => {
            delete(context, &pod, &request, grace_s).await?;
            evictions.remove(key);
            Ok(Action::Done)
        }
        Step::Evict => evict(context, evictions, key, &pod, &request, now).await,
    }
}

/// How long a pod may be left alone: until its turn would come again, and not beyond the moment for force.
fn wait(pod: &Pod, request: &Request, now: Timestamp, delay: Duration) -> Duration {
    let (Some(deadline), Some(grace_s)) = (request.deadline, pod.termination_grace_period_s) else { return delay };
    let force_at = deadline.saturating_sub(DurationMs::from_seconds(grace_s.max(0)));
    let left = u64::try_from(force_at.since(now).0).unwrap_or_default();
    delay.min(Duration::from_millis(left.saturating_add(1)))
}

fn params(pod: &Pod, grace_s: Option<i64>) -> DeleteParams {
    DeleteParams {
        grace_period_seconds: grace_s.and_then(|grace| u32::try_from(grace).ok()),
        preconditions: Some(Preconditions { uid: Some(pod.uid.to_string()), resource_version: None }),
        ..DeleteParams::default()
    }
}

fn api(context: &Context, pod: &Pod) -> Api<core::Pod> {
    Api::namespaced(context.eviction_client.clone(), &pod.name.namespace)
}

async fn delete(context: &Context, pod: &Pod, request: &Request, grace_s: i64) -> anyhow::Result<()> {
    match api(context, pod).delete(&pod.name.name, &params(pod, Some(grace_s))).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let message = format!(
        "Deleting the pod to accommodate the terminationTime {} of the node. The pod was granted {grace_s} seconds of \
         grace-period of its {} terminationGracePeriodSeconds. This bypasses the PDB of the pod and the do-not-disrupt \
         annotation.",
        request.deadline.map(|deadline| deadline.to_string()).unwrap_or_default(),
        pod.termination_grace_period_s.unwrap_or_default(),
    );
    info!(pod = %pod.name, node = %request.node, grace_s, "deleted pod by force");
    context.recorder.publish(Event::new(pod_reference(pod), Severity::Normal, events::DISRUPTED, message));
    Ok(())
}

async fn evict(
    context: &Context,
    evictions: &Evictions,
    key: &PodKey,
    pod: &Pod,
    request: &Request,
    now: Timestamp,
) -> anyhow::Result<Action> {
    failpoints::hit("terminate.before-eviction");
    let evict_params = EvictParams { delete_options: Some(params(pod, None)), ..EvictParams::default() };
    let answer = api(context, pod).evict(&pod.name.name, &evict_params).await;
    failpoints::hit("terminate.after-eviction");
    let code = match &answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    };
    let by_code = ByCode { code: code.to_string() };
    context.metrics.pods_eviction_requests.get_or_create(&by_code).inc();
    match answer {
        Ok(_) => {
            let by_reason = ByReason { reason: request.reason.clone() };
            context.metrics.pods_drained.get_or_create(&by_reason).inc();
            debug!(pod = %pod.name, node = %request.node, "evicted pod");
            let message = format!("Evicted pod: {}", request.reason);
            context.recorder.publish(Event::new(pod_reference(pod), Severity::Normal, events::EVICTED, message));
            evictions.remove(key);
            Ok(Action::Done)
        }
        // Gone, or another of its name.
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {
            evictions.remove(key);
            Ok(Action::Done)
        }
        Err(kube::Error::Api(status)) if is_of_ending_namespace(&status) => {
            // The API server takes no eviction there any more, and the namespace's end deletes the pod.
            debug!(pod = %pod.name, node = %request.node, "the pod ends with its namespace");
            Ok(Action::RequeueAfter(wait(pod, request, now, evictions.refused(key))))
        }
        Err(kube::Error::Api(status)) => match refusal(status.code, &status.message) {
            Some(message) => {
                tell_refused(context, pod, request, message);
                Ok(Action::RequeueAfter(wait(pod, request, now, evictions.refused(key))))
            }
            None => Err(kube::Error::Api(status).into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// What an answer that refuses an eviction because of PodDisruptionBudgets means.
fn refusal(code: u16, message: &str) -> Option<&'static str> {
    match code {
        429 => Some("evicting pod violates a PDB"),
        500 if message.contains("more than one PodDisruptionBudget") => Some("eviction does not support multiple PDBs"),
        _ => None,
    }
}

fn tell_refused(context: &Context, pod: &Pod, request: &Request, refusal: &str) {
    debug!(pod = %pod.name, node = %request.node, error = refusal, "could not evict pod, trying again");
    let Some(node) = context.store.read().nodes.get(&request.node).map(|node| node.object.clone()) else { return };
    let message = format!("Failed to drain node, {refusal}, pod {}", pod.name);
    let event = Event::new(reference(node.as_ref()), Severity::Warning, events::FAILED_DRAINING, message);
    context.recorder.publish(event.with_dedupe(pod.name.to_string()));
}

#[cfg(test)]
mod tests;
