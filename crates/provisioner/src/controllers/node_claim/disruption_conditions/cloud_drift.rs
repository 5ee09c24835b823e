//! Whether the cloud would launch a machine differently today, asked at a bounded pace.
//!
//! Every NodeClaim's machine is asked for now and then, and sooner when its node class has changed; never more often,
//! whatever happens to the NodeClaim, and only [`CONCURRENCY`] at a time. A machine that the objects call drifted is
//! not asked for at all.
//!
//! Differs: `drift-pace`. Karpenter asks whenever NodeClaim, NodePool, node class or a pod of the machine changes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::{NodeClaim, NodePool};
use cloudprovider::{CloudProvider, DriftReason, Error};
use cluster::node_claim::drift::{self, Cause};
use model::{NodeClaimName, Uid};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::is_judged;
use crate::runtime::clock::Clock;
use crate::runtime::jitter::jittered;
use crate::runtime::queue::{self, Action, Owner, WorkQueue};
use crate::world::claim;
use crate::world::context::Context;
use crate::world::store::{ClusterStore, NodeClassKey, State};

/// The name of the asking loop in logs and metrics.
pub(super) const NAME: &str = "nodeclaim.drift";
/// How many machines are asked for at the same time.
const CONCURRENCY: usize = 10;
/// After this long at the latest a machine is asked for again. Karpenter's own time; ours is up to half shorter, so
/// that machines of one start are not asked for together for ever.
const EVERY: Duration = Duration::from_mins(5);
/// After this long at the earliest, where the node class has changed.
const AFTER_CHANGE: Duration = Duration::from_secs(10);
/// Longest that one answer is waited for.
const TIMEOUT: Duration = Duration::from_secs(30);
const BACKOFF_MIN: Duration = Duration::from_secs(5);
const BACKOFF_MAX: Duration = EVERY;

/// What the cloud has said of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nothing so far.
    NotYet,
    /// It is as it would be launched today.
    NotDrifted,
    /// It is not.
    Drifted(Cause),
}

/// Asks the cloud, and knows its answers.
pub(super) struct CloudDrift {
    cloud: Arc<dyn CloudProvider>,
    store: Arc<ClusterStore>,
    clock: Arc<dyn Clock>,
    known: Mutex<BTreeMap<Uid, Known>>,
    /// Whom to ask for.
    to_ask: Arc<WorkQueue<NodeClaimName>>,
    /// Where to tell of answers.
    answered: Arc<WorkQueue<NodeClaimName>>,
}

#[derive(Debug, Clone)]
struct Known {
    asked_at: Instant,
    again_at: Instant,
    /// The state of the node class that was asked about.
    node_class: Option<String>,
    answer: Asked,
}

impl CloudDrift {
    /// Tells of each answer by queueing the NodeClaim in `answered`.
    pub(super) fn new(context: &Context, answered: Arc<WorkQueue<NodeClaimName>>) -> Self {
        Self::of(Arc::clone(&context.cloud), Arc::clone(&context.store), Arc::clone(&context.clock), answered)
    }

    fn of(
        cloud: Arc<dyn CloudProvider>,
        store: Arc<ClusterStore>,
        clock: Arc<dyn Clock>,
        answered: Arc<WorkQueue<NodeClaimName>>,
    ) -> Self {
        Self { cloud, store, clock, known: Mutex::default(), to_ask: Arc::new(WorkQueue::new()), answered }
    }

    /// What the cloud said last of that NodeClaim's machine, and when to look again. Has it asked if it is time.
    pub(super) fn answer(&self, node_claim: &NodeClaim) -> (Asked, Duration) {
        let node_class = class_version(&self.store.read(), node_claim);
        let now = Instant::now();
        let known = self.known.lock().get(&claim::uid(node_claim)).cloned();
        let due = known.as_ref().map_or(now, |known| known.due(node_class.as_deref()));
        if due <= now {
            self.to_ask.add(claim::name(node_claim).into());
        }
        let again_in = if due <= now { EVERY } else { due.duration_since(now) };
        (known.map_or(Asked::NotYet, |known| known.answer), again_in)
    }

    /// The NodeClaim is gone.
    pub(super) fn forget(&self, uid: &Uid) {
        self.known.lock().remove(uid);
    }

    async fn ask(&self, name: &NodeClaimName) -> anyhow::Result<Action> {
        let Some((node_claim, pool)) = self.begin(name) else { return Ok(Action::Done) };
        let Some(answer) = self.answer_of_cloud(&node_claim, &pool).await? else { return Ok(Action::Done) };
        if let Some(known) = self.known.lock().get_mut(&claim::uid(&node_claim)) {
            known.answer = answer;
        }
        self.answered.add(name.clone());
        Ok(Action::Done)
    }

    /// What to ask about; noted as asked, also if no answer comes: then it is tried again at the queue's own pace.
    fn begin(&self, name: &NodeClaimName) -> Option<(Arc<NodeClaim>, Arc<NodePool>)> {
        // Noted while it is known to exist, so that its end comes later and takes the note away.
        let state = self.store.read();
        let node_claim = state.node_claims.get(name).filter(|it| is_judged(&*self.cloud, it))?;
        let pool = state.node_pools.get(claim::node_pool(node_claim))?;
        let now = Instant::now();
        let (uid, node_class) = (claim::uid(node_claim), class_version(&state, node_claim));
        let mut all = self.known.lock();
        let answer = all.remove(&uid).map_or(Asked::NotYet, |known| known.answer);
        all.insert(uid, Known { asked_at: now, again_at: now + jittered(EVERY), node_class, answer });
        Some((Arc::clone(node_claim), Arc::clone(pool)))
    }

    /// `None` if the machine is gone: then there is nothing that could have drifted.
    async fn answer_of_cloud(&self, node_claim: &NodeClaim, pool: &NodePool) -> anyhow::Result<Option<Asked>> {
        let Self { cloud, clock, .. } = self;
        let types = timeout(TIMEOUT, cloud.instance_types(pool)).await.context("instance types")??;
        let cause = drift::of_instance_type(node_claim, &types.types, &cloud.config().labels, clock.now());
        if let Some(cause) = cause {
            return Ok(Some(Asked::Drifted(cause)));
        }
        match timeout(TIMEOUT, cloud.drifted(node_claim)).await.context("drift")? {
            Ok(Some(DriftReason(reason))) => Ok(Some(Asked::Drifted(Cause::Provider { reason }))),
            Ok(None) => Ok(Some(Asked::NotDrifted)),
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// What tells one state of the NodeClaim's node class from another.
fn class_version(state: &State, node_claim: &NodeClaim) -> Option<String> {
    let key = NodeClassKey(node_claim.spec.node_class_ref.clone());
    state.node_classes.get(&key)?.object.metadata.resource_version.clone()
}

impl fmt::Debug for CloudDrift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloudDrift").field("cloud", &self.cloud.name()).finish_non_exhaustive()
    }
}

impl Known {
    /// When to ask again.
    fn due(&self, node_class: Option<&str>) -> Instant {
        let is_changed = self.node_class.as_deref() != node_class;
        if is_changed { (self.asked_at + AFTER_CHANGE).min(self.again_at) } else { self.again_at }
    }
}

/// Asks what is to be asked until the context is stopped.
pub(super) async fn run(owner: Owner, cloud_drift: Arc<CloudDrift>) {
    let queue = Arc::clone(&cloud_drift.to_ask);
    let config = queue::Config { concurrency: CONCURRENCY, backoff_min: BACKOFF_MIN, backoff_max: BACKOFF_MAX };
    queue::run(owner, queue, config, move |name| {
        let cloud_drift = Arc::clone(&cloud_drift);
        async move { cloud_drift.ask(&name).await }
    })
    .await;
}

#[cfg(test)]
mod tests;
