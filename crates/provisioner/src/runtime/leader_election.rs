//! One controller at a time, by a Lease.
//!
//! [`evaluate`] decides from a Lease, our identity and the time what to do; the loop around it reads and writes the
//! Lease with a client of its own, so that throttling elsewhere cannot lose it. Whoever leads and cannot renew in time
//! stops the process: it must not act while another may have taken over. On an orderly stop the Lease is released, and
//! the next replica starts within a retry period.
//!
//! Time on Leases is another machine's. A follower therefore judges by when *it* saw the Lease change last, and not by
//! the time written in it. It saw that after the leader had begun to write it. So the leader counts from when its last
//! successful write *began*, and has given up [`RENEW_DEADLINE`] later, before any follower's [`LEASE_DURATION`] is
//! over.

mod fence;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

pub(crate) use self::fence::{Fence, NotLeading};
use crate::runtime::beats::Beat;
use crate::runtime::clock::Clock;
use crate::runtime::failures::cause_in_words;
use crate::runtime::jitter::jittered;

/// Karpenter's timing, which is controller-runtime's.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// A leader that has not renewed for this long gives up.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Longest that the election may be silent.
pub(crate) const BOUND: Duration = Duration::from_secs(30);
/// Longest that one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The Lease and who wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// `<hostname>_<suffix>`, different for each process.
    pub identity: String,
}

/// Why this process does not lead, or no longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Somebody else may lead by now.
    #[error("the lease {0} could not be renewed in time")]
    Lost(String),
    /// Another autoscaler leads in another namespace.
    #[error(
        "the lease {lease} is held by {holder}: another autoscaler manages this cluster; stop it first, or start with \
         --allow-other-leader"
    )]
    OtherLeader {
        /// Namespace and name.
        lease: String,
        /// Its holder.
        holder: String,
    },
    /// The Leases could not be read.
    #[error("cannot list leases")]
    Api(#[source] kube::Error),
}

/// What to do about the Lease now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Take it: it has no holder, or its holder no longer renews it.
    Acquire,
    /// It is ours: write that we live.
    Renew,
    /// Somebody else holds it.
    Wait,
}

/// What a follower has seen of the Lease.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Observed {
    /// The part that changes with each renewal.
    pub spec: Option<LeaseSpec>,
    /// When we first saw it like this.
    pub since: Instant,
}

/// Decides from the Lease as last observed, and for how long it has been like that.
pub(crate) fn evaluate(lease: Option<&LeaseSpec>, identity: &str, unchanged_for: Duration) -> Step {
    let Some(lease) = lease else { return Step::Acquire };
    let holder = lease.holder_identity.as_deref().unwrap_or_default();
    if holder.is_empty() {
        return Step::Acquire;
    }
    if holder == identity {
        return Step::Renew;
    }
    let duration = lease.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let duration = duration.map_or(LEASE_DURATION, Duration::from_secs);
    if unchanged_for >= duration { Step::Acquire } else { Step::Wait }
}

/// Refuses to go on beside a held Lease of the candidate's name in another namespace.
///
/// # Errors
/// [`Error::OtherLeader`], or that the Leases could not be listed. Without the right to list Leases of all namespaces
/// the check is left out, and said so.
pub(crate) async fn refuse_other_leader(client: Client, candidate: &Candidate, clock: &dyn Clock) -> Result<(), Error> {
    let params = ListParams::default().fields(&format!("metadata.name={}", candidate.name));
    let leases = match Api::<Lease>::all(client).list(&params).await {
        Ok(leases) => leases,
        Err(kube::Error::Api(status)) if status.code == 403 => {
            warn!(error = status.message, "cannot look for other leaders; make sure that no Karpenter runs");
            return Ok(());
        }
        Err(error) => return Err(Error::Api(error)),
    };
    let now_ms = clock.now().0;
    for lease in leases {
        let namespace = lease.metadata.namespace.unwrap_or_default();
        let Some(spec) = lease.spec.filter(|_| namespace != candidate.namespace) else { continue };
        if let Some(holder) = live_holder(&spec, now_ms) {
            return Err(Error::OtherLeader {
                lease: format!("{namespace}/{}", candidate.name),
                holder: holder.to_owned(),
            });
        }
    }
    Ok(())
}

/// Who holds a Lease, if it was renewed within its duration. Here the clocks of both machines have to do.
fn live_holder(spec: &LeaseSpec, now_ms: i64) -> Option<&str> {
    let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())?;
    let renewed_at_ms = spec.renew_time.as_ref()?.0.as_millisecond();
    let duration_ms = i64::from(spec.lease_duration_seconds?) * 1000;
    (now_ms < renewed_at_ms.saturating_add(duration_ms)).then_some(holder)
}

/// A Lease that is ours until it is released or lost.
#[derive(Debug)]
pub(crate) struct Leadership {
    candidate: Candidate,
    api: Api<Lease>,
    clock: Arc<dyn Clock>,
    /// The Lease as we wrote it last.
    held: Lease,
    /// When the last successful write began.
    renewed_at: Instant,
    /// Open while the Lease is ours.
    fence: Fence,
    beat: Beat,
}

/// What an election works with.
#[derive(Debug)]
pub(crate) struct Means {
    /// The time to write into the Lease.
    pub clock: Arc<dyn Clock>,
    /// Is opened while the Lease is ours.
    pub fence: Fence,
    /// Tells that the election goes on, with [`BOUND`].
    pub beat: Beat,
}

impl Leadership {
    /// Waits until the Lease is ours. `None` if `stop` is cancelled before.
    pub(crate) async fn acquire(
        client: Client,
        candidate: Candidate,
        means: Means,
        stop: &CancellationToken,
    ) -> Option<Self> {
        let Means { clock, fence, beat } = means;
        let api = Api::<Lease>::namespaced(client, &candidate.namespace);
        let mut observed = Observed { spec: None, since: Instant::now() };
        let mut told = None;
        loop {
            beat.busy();
            let began = Instant::now();
            let attempt = try_acquire(&api, &candidate, clock.as_ref(), &mut observed);
            match tokio::time::timeout(CALL_TIMEOUT, attempt).await {
                Ok(Ok(Some(held))) => {
                    info!(lease = %candidate, identity = candidate.identity, "became leader");
                    fence.open_until(began + RENEW_DEADLINE);
                    return Some(Self { candidate, api, clock, held, renewed_at: began, fence, beat });
                }
                Ok(Ok(None)) => {
                    let holder = observed.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
                    if holder != told {
                        info!(lease = %candidate, holder, "waiting for the leader to release the lease");
                        told = holder;
                    }
                }
                Ok(Err(error)) => {
                    warn!(lease = %candidate, error = cause_in_words(&error), "could not take the lease, trying again")
                }
                Err(_) => warn!(lease = %candidate, "the API server did not answer in time, trying again"),
            }
            tokio::select! {
                () = tokio::time::sleep(jittered(RETRY_PERIOD)) => {}
                () = stop.cancelled() => return None,
            }
        }
    }

    /// Renews the Lease until `stop` is cancelled, then releases it.
    ///
    /// # Errors [`Error::Lost`] if it could not be renewed in time, or if another process holds it.
    pub(crate) async fn keep(mut self, stop: CancellationToken) -> Result<(), Error> {
        loop {
            self.beat.busy();
            tokio::select! {
                () = tokio::time::sleep(RETRY_PERIOD.min(self.left())) => {}
                () = stop.cancelled() => {
                    self.release().await;
                    return Ok(());
                }
            }
            let began = Instant::now();
            match tokio::time::timeout(CALL_TIMEOUT.min(self.left()), self.renew()).await {
                Ok(Ok(true)) => {
                    self.renewed_at = began;
                    self.fence.open_until(began + RENEW_DEADLINE);
                }
                Ok(Ok(false)) => {
                    self.fence.close();
                    error!(lease = %self.candidate, "another process holds the lease");
                    return Err(Error::Lost(self.candidate.to_string()));
                }
                Ok(Err(error)) => {
                    warn!(lease = %self.candidate, error = cause_in_words(&error), "could not renew the lease")
                }
                Err(_) => warn!(lease = %self.candidate, "could not renew the lease: no answer in time"),
            }
            if self.left().is_zero() {
                self.fence.close();
                return Err(Error::Lost(self.candidate.to_string()));
            }
        }
    }

    /// For how long we may still take the Lease for ours.
    fn left(&self) -> Duration {
        RENEW_DEADLINE.saturating_sub(self.renewed_at.elapsed())
    }

    /// Says whether the Lease is still ours, and was renewed.
    async fn renew(&mut self) -> Result<bool, kube::Error> {
        match self.write().await {
            // Somebody wrote it. If it is still ours (an annotation was added), go on from what is there.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let current = self.api.get(&self.candidate.name).await?;
                let holder = current.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
                if holder != Some(self.candidate.identity.as_str()) {
                    return Ok(false);
                }
                self.held = current;
                // To have read that it is ours renews nothing.
                self.write().await.map(|()| true)
            }
            written => written.map(|()| true),
        }
    }

    async fn write(&mut self) -> Result<(), kube::Error> {
        let mut lease = self.held.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.renew_time = Some(now(self.clock.as_ref()));
        self.held = self.api.replace(&self.candidate.name, &PostParams::default(), &lease).await?;
        Ok(())
    }

    async fn release(self) {
        // Whatever of ours still runs writes nothing beside the next leader.
        self.fence.close();
        let mut lease = self.held;
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(now(self.clock.as_ref()));
        let params = PostParams::default();
        let released = self.api.replace(&self.candidate.name, &params, &lease);
        match tokio::time::timeout(CALL_TIMEOUT, released).await {
            Ok(Ok(_)) => info!(lease = %self.candidate, "released the lease"),
            Ok(Err(error)) => warn!(
                lease = %self.candidate,
                error = cause_in_words(&error),
                "could not release the lease; it will expire"
            ),
            Err(_) => warn!(lease = %self.candidate, "could not release the lease in time; it will expire"),
        }
    }
}

impl std::fmt::Display for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

async fn try_acquire(
    api: &Api<Lease>,
    candidate: &Candidate,
    clock: &dyn Clock,
    observed: &mut Observed,
) -> Result<Option<Lease>, kube::Error> {
    let current = api.get_opt(&candidate.name).await?;
    let spec = current.as_ref().and_then(|lease| lease.spec.clone());
    if spec != observed.spec {
        *observed = Observed { spec: spec.clone(), since: Instant::now() };
    }
    match evaluate(spec.as_ref(), &candidate.identity, observed.since.elapsed()) {
        Step::Wait => return Ok(None),
        Step::Acquire | Step::Renew => {}
    }
    let wanted = acquired(current.as_ref(), candidate, clock);
    let written = match &current {
        Some(_) => api.replace(&candidate.name, &PostParams::default(), &wanted).await,
        None => api.create(&PostParams::default(), &wanted).await,
    };
    match written {
        Ok(lease) => Ok(Some(lease)),
        // Another candidate was faster.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            debug!(lease = %candidate, "another candidate was faster");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The Lease as it is to be written by a new leader. The resource version of `current` makes it fail if that changed.
fn acquired(current: Option<&Lease>, candidate: &Candidate, clock: &dyn Clock) -> Lease {
    let metadata = current.map_or_else(
        || ObjectMeta {
            name: Some(candidate.name.clone()),
            namespace: Some(candidate.namespace.clone()),
            ..ObjectMeta::default()
        },
        |lease| lease.metadata.clone(),
    );
    let before = current.and_then(|lease| lease.spec.as_ref());
    let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
    let changed_hands = before.is_some_and(|spec| spec.holder_identity.as_deref() != Some(&candidate.identity));
    Lease {
        metadata,
        spec: Some(LeaseSpec {
            holder_identity: Some(candidate.identity.clone()),
            lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
            acquire_time: Some(now(clock)),
            renew_time: Some(now(clock)),
            lease_transitions: Some(transitions.saturating_add(i32::from(changed_hands))),
            ..LeaseSpec::default()
        }),
    }
}

fn now(clock: &dyn Clock) -> MicroTime {
    MicroTime(jiff::Timestamp::from_millisecond(clock.now().0).unwrap_or_default())
}

#[cfg(test)]
mod tests;
