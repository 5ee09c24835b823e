//! A work queue of keys, and the loop that reconciles them.
//!
//! Invariants: a key waits at most once, whatever adds it and however often; a key is never reconciled twice at the
//! same time; a key that is added while it is being reconciled is reconciled once more afterwards; of two delays the
//! earlier wins. So the queue holds at most one entry per object. A reconciler that fails is tried again after a delay
//! that doubles up to a limit and starts afresh after the first success; one that panics, or is not done within five
//! minutes, counts as failed.
//!
//! Left out: kube's own `Controller`, because it keeps a store and a watch of its own per kind, and we have both
//! already.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::{Debug, Display};
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info_span, warn};

use crate::runtime::beats::Beat;
use crate::runtime::failures::{in_words, is_conflict};

tokio::task_local! {
    static CONTROLLER: &'static str;
}

/// The name of the controller that this code runs for; empty outside of any.
pub(crate) fn current_controller() -> &'static str {
    CONTROLLER.try_with(|name| *name).unwrap_or_default()
}

/// Runs a future in the name of a controller.
pub(crate) async fn as_controller<F: Future>(name: &'static str, future: F) -> F::Output {
    CONTROLLER.scope(name, future).await
}

/// What may be queued: the name of an object.
pub(crate) trait Key: Clone + Debug + Display + Eq + Hash + Ord + Send + Sync + 'static {}

impl<T: Clone + Debug + Display + Eq + Hash + Ord + Send + Sync + 'static> Key for T {}

/// What a reconciler wants to happen next with its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing until the key is added again.
    Done,
    /// Look again after this time at the latest.
    RequeueAfter(Duration),
}

impl Action {
    /// Whichever of the two looks again first.
    #[must_use]
    pub(crate) fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::Done, other) => other,
            (action, Self::Done) => action,
            (Self::RequeueAfter(a), Self::RequeueAfter(b)) => Self::RequeueAfter(a.min(b)),
        }
    }
}

/// How a queue's loop behaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Config {
    /// How many keys are reconciled at the same time.
    pub concurrency: usize,
    /// The delay after a key's first failure.
    pub backoff_min: Duration,
    /// The delay after which a failing key's delay no longer grows.
    pub backoff_max: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { concurrency: 10, backoff_min: Duration::from_millis(100), backoff_max: Duration::from_secs(60) }
    }
}

/// Keys that wait to be reconciled. See the [module](self).
#[derive(Debug)]
pub(crate) struct WorkQueue<K> {
    inner: Mutex<Inner<K>>,
    changed: Notify,
}

#[derive(Debug)]
struct Inner<K> {
    ready: VecDeque<K>,
    delayed: BTreeMap<(Instant, u64), K>,
    /// Where each waiting key is.
    waiting: HashMap<K, Place>,
    running: HashSet<K>,
    /// Keys added while running: reconciled again when done, at this time.
    again: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
    next_ticket: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Ready,
    Delayed(Instant, u64),
}

impl<K: Key> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key> WorkQueue<K> {
    /// An empty queue.
    pub(crate) fn new() -> Self {
        Self {
            inner: Mutex::new(Inner {
                ready: VecDeque::new(),
                delayed: BTreeMap::new(),
                waiting: HashMap::new(),
                running: HashSet::new(),
                again: HashMap::new(),
                failures: HashMap::new(),
                next_ticket: 0,
            }),
            changed: Notify::new(),
        }
    }

    /// Queues a key for now.
    pub(crate) fn add(&self, key: K) {
        self.add_at(key, Instant::now());
    }

    /// Queues a key for later. It is handled earlier if it is added again with a shorter delay.
    pub(crate) fn add_after(&self, key: K, delay: Duration) {
        self.add_at(key, Instant::now() + delay);
    }

    /// How many keys wait or are being reconciled.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let inner = self.inner.lock();
        inner.waiting.len() + inner.running.len()
    }

    fn add_at(&self, key: K, due: Instant) {
        self.inner.lock().add_at(key, due, Instant::now());
        self.changed.notify_one();
    }

    /// Takes a key that is due, or says when to look again.
    fn take(&self) -> Result<K, Option<Instant>> {
        self.inner.lock().take(Instant::now())
    }

    /// Puts a key's turn to an end and says after how many failures in a row.
    fn finish(&self, key: K, outcome: Outcome, config: &Config) -> Duration {
        let delay = self.inner.lock().finish(key, outcome, config, Instant::now());
        self.changed.notify_one();
        delay
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    Done,
    RequeueAfter(Duration),
    Failed,
}

impl<K: Key> Inner<K> {
    fn add_at(&mut self, key: K, due: Instant, now: Instant) {
        if self.running.contains(&key) {
            let again = self.again.entry(key).or_insert(due);
            *again = due.min(*again);
            return;
        }
        match self.waiting.get(&key) {
            Some(Place::Ready) => return,
            Some(Place::Delayed(planned, _)) if *planned <= due => return,
            Some(Place::Delayed(planned, ticket)) => {
                self.delayed.remove(&(*planned, *ticket));
            }
            None => {}
        }
        if due <= now {
            self.waiting.insert(key.clone(), Place::Ready);
            self.ready.push_back(key);
        } else {
            let ticket = self.next_ticket;
            self.next_ticket += 1;
            self.waiting.insert(key.clone(), Place::Delayed(due, ticket));
            self.delayed.insert((due, ticket), key);
        }
    }

    fn take(&mut self, now: Instant) -> Result<K, Option<Instant>> {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let key = entry.remove();
            self.waiting.insert(key.clone(), Place::Ready);
            self.ready.push_back(key);
        }
        match self.ready.pop_front() {
            Some(key) => {
                self.waiting.remove(&key);
                self.running.insert(key.clone());
                Ok(key)
            }
            None => Err(self.delayed.keys().next().map(|(due, _)| *due)),
        }
    }

    fn finish(&mut self, key: K, outcome: Outcome, config: &Config, now: Instant) -> Duration {
        self.running.remove(&key);
        let again = self.again.remove(&key);
        let mut delay = Duration::ZERO;
        let due = match outcome {
            Outcome::Done => {
                self.failures.remove(&key);
                again
            }
            Outcome::RequeueAfter(after) => {
                self.failures.remove(&key);
                let due = now + after;
                Some(again.map_or(due, |again| again.min(due)))
            }
            Outcome::Failed => {
                let failures = self.failures.entry(key.clone()).or_insert(0);
                delay = backoff(*failures, config);
                *failures = failures.saturating_add(1);
                // An addition meanwhile does not shorten the delay: a failing object that changes often must not spin.
                Some(now + delay)
            }
        };
        if let Some(due) = due {
            self.add_at(key, due, now);
        }
        delay
    }
}

/// Doubles from the minimum per failure, up to the maximum.
fn backoff(failures: u32, config: &Config) -> Duration {
    let factor = 2_u32.saturating_pow(failures.min(30));
    config.backoff_min.saturating_mul(factor).min(config.backoff_max)
}

/// Longest that one reconciliation may take. Its calls to the API server have deadlines; a provider's may have none.
const RECONCILE_LIMIT: Duration = Duration::from_secs(300);
/// Longest that a queue may be silent while keys are due or being reconciled.
pub(crate) const BOUND: Duration = Duration::from_secs(360);

/// Whose queue it is.
#[derive(Debug)]
pub struct Owner {
    /// The controller's name in logs.
    pub name: &'static str,
    /// Where it tells that it lives, with [`BOUND`].
    pub beat: Beat,
    /// Cancelled when it shall stop.
    pub stop: CancellationToken,
}

/// Reconciles the keys of `queue` until it shall stop, then waits for those under way.
///
/// The reconciler gets a key and reads what it needs from the store; a key whose
/// object is gone is an ordinary case that it answers with [`Action::Done`].
pub(crate) async fn run<K, R, F>(owner: Owner, queue: Arc<WorkQueue<K>>, config: Config, reconcile: R)
where
    K: Key,
    R: Fn(K) -> F,
    F: Future<Output = anyhow::Result<Action>> + Send + 'static,
{
    let Owner { name, beat, stop } = owner;
    let mut running = JoinSet::new();
    let mut keys = HashMap::<Id, K>::new();
    loop {
        while running.len() < config.concurrency.max(1) && !stop.is_cancelled() {
            let Ok(key) = queue.take() else { break };
            let span = info_span!("reconcile", controller = name, object = %key);
            let task = running.spawn(as_controller(name, within_limit(reconcile(key.clone())).instrument(span)));
            keys.insert(task.id(), key);
        }
        if stop.is_cancelled() && running.is_empty() {
            return;
        }
        let next_due = next_due(&queue, running.len() < config.concurrency.max(1));
        if running.is_empty() {
            beat.due_at(next_due)
        } else {
            beat.busy()
        }
        tokio::select! {
            Some(ended) = running.join_next_with_id() => {
                let (id, result) = match ended {
                    Ok((id, result)) => (id, result),
                    Err(failure) => (failure.id(), Err(anyhow::anyhow!("the reconciler panicked: {failure}"))),
                };
                if let Some(key) = keys.remove(&id) {
                    finish(name, &queue, key, result, &config);
                }
            }
            () = queue.changed.notified(), if !stop.is_cancelled() => {}
            () = sleep_until(next_due), if next_due.is_some() && !stop.is_cancelled() => {}
            () = stop.cancelled(), if !stop.is_cancelled() => {}
        }
    }
}

async fn within_limit(reconciling: impl Future<Output = anyhow::Result<Action>>) -> anyhow::Result<Action> {
    match tokio::time::timeout(RECONCILE_LIMIT, reconciling).await {
        Ok(result) => result,
        Err(_) => Err(anyhow::anyhow!("the reconciler was not done within {} s", RECONCILE_LIMIT.as_secs())),
    }
}

fn finish<K: Key>(name: &'static str, queue: &WorkQueue<K>, key: K, result: anyhow::Result<Action>, config: &Config) {
    match result {
        Ok(Action::Done) => {
            queue.finish(key, Outcome::Done, config);
        }
        Ok(Action::RequeueAfter(after)) => {
            queue.finish(key, Outcome::RequeueAfter(after), config);
        }
        Err(failure) => {
            let delay = queue.finish(key.clone(), Outcome::Failed, config);
            let error = in_words(&failure);
            if is_conflict(&failure) {
                debug!(controller = name, object = %key, error, "the object changed meanwhile, trying again");
            } else if delay >= config.backoff_max {
                error!(controller = name, object = %key, error, retry_in = ?delay, "reconciler error");
            } else {
                warn!(controller = name, object = %key, error, retry_in = ?delay, "reconciler error");
            }
        }
    }
}

fn next_due<K: Key>(queue: &WorkQueue<K>, has_room: bool) -> Option<Instant> {
    let inner = queue.inner.lock();
    if !has_room {
        return None;
    }
    if inner.ready.is_empty() { inner.delayed.keys().next().map(|(due, _)| *due) } else { Some(Instant::now()) }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
