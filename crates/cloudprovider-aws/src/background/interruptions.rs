//! Machines that will not last are given up in time: their NodeClaims are deleted, so that pods move.
//!
//! Differs: `interruption-metrics`. They are not among the disrupted NodeClaims that the controller counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{NodeClaim, annotations};
use model::{DurationMs, Timestamp};
use tracing::{info, warn};

use crate::interruption::{Interruption, Kind};
use crate::provider::cluster::{Cluster, Failure};
use crate::provider::{Clock, Ec2CloudProvider};
use crate::provider_id::MachineId;
use crate::service::ec2::MachineStatus;
use crate::service::{Ec2, Error, Kind as Fault, Sqs};
use crate::telemetry::Telemetry;
use crate::telemetry::events::{self, Notice};

/// How long to wait where there was no message; the queue itself waits too.
const IDLE: Duration = Duration::from_secs(1);
/// How long to wait where the queue could not be asked.
const RETRY: Duration = Duration::from_secs(10);
/// How often EC2 is asked which machines it finds fault with, and which are in no reservation any more.
const HEALTH: Duration = Duration::from_secs(60);
/// How long checks may fail before a machine is given up.
const TOLERATED: DurationMs = DurationMs::from_seconds(120);
/// What Karpenter's metrics call a message about nothing that matters here.
const NOTHING: &str = "no_op";
/// What we call a message that cannot be read, which Karpenter only logs.
const UNREADABLE: &str = "unreadable";
/// Events that end a machine or its rest.
const EVENTS: [&str; 5] =
    ["instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"];

/// Whether a machine's pods can still be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// They can, as on any deletion. Where it is known when the machine ends, the machines that take them come first as
    /// far as time allows; that is the controller's business.
    Drained(Option<Timestamp>),
    /// The machine does not work: nobody waits for its pods.
    AtOnce,
}

/// Who listens.
pub(crate) struct Watch {
    /// What launches machines.
    pub(crate) provider: Ec2CloudProvider,
    /// EC2.
    pub(crate) ec2: Arc<dyn Ec2>,
    /// The queue of messages, if there is one.
    pub(crate) queue: Option<Arc<dyn Sqs>>,
    /// The cluster's objects.
    pub(crate) objects: Arc<dyn Cluster>,
    /// The time.
    pub(crate) clock: Clock,
}

impl Watch {
    /// Never ends.
    pub(crate) async fn run(&self) {
        tokio::join!(self.listen(), self.look());
    }

    async fn listen(&self) {
        let Some(queue) = &self.queue else { return };
        loop {
            let wait = match self.handle_messages(&**queue).await {
                Ok(0) => IDLE,
                Ok(_) => continue,
                Err(error) => {
                    warn!(%error, "could not learn of interruptions");
                    RETRY
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    async fn look(&self) {
        loop {
            match self.check_health().await {
                // Karpenter's users may not have given this right: the log would be full of it, and it is counted.
                Ok(()) | Err(Failed::Call(Error { kind: Fault::Unauthorized, .. })) => {}
                Err(error) => warn!(%error, "could not find out which machines fail their checks"),
            }
            if let Err(error) = self.check_reservations().await {
                warn!(%error, "could not find out what became of reservations");
            }
            tokio::time::sleep(HEALTH).await;
        }
    }

    /// Takes what is in the queue; gives how many messages that were. One that cannot be handled now stays.
    pub(crate) async fn handle_messages(&self, queue: &dyn Sqs) -> Result<usize, Failed> {
        let messages = queue.receive().await.map_err(|error| self.failed(error))?;
        if messages.is_empty() {
            return Ok(0);
        }
        let claims = self.claims().await?;
        let mut failed = None;
        let metrics = &self.provider.telemetry().metrics;
        for message in &messages {
            let (told_at, handled) = match Interruption::read(&message.body) {
                Ok(Some(interruption)) => {
                    metrics.received(interruption.kind.as_str());
                    (interruption.at, self.handle(&interruption, &claims).await)
                }
                Ok(None) => {
                    metrics.received(NOTHING);
                    (None, Ok(()))
                }
                // It will not become better.
                Err(error) => {
                    warn!(%error, "left out a message of the interruption queue");
                    metrics.received(UNREADABLE);
                    (None, Ok(()))
                }
            };
            match handled {
                Ok(()) => {
                    queue.delete(&message.receipt).await.map_err(|error| self.failed(error))?;
                    metrics.deleted(told_at, (self.clock)());
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(messages.len()), |error| Err(error.into()))
    }

    async fn handle(&self, interruption: &Interruption, claims: &BTreeMap<String, NodeClaim>) -> Result<(), Failure> {
        for id in &interruption.machines {
            // Machines of others are in the same queue.
            let Some(claim) = claims.get(id) else { continue };
            self.provider.interrupted(interruption.kind, claim);
            self.tell(claim, events::notice(interruption.kind));
            match interruption.kind {
                Kind::RebalanceRecommended => {
                    info!(machine = id, kind = interruption.kind.as_str(), "a machine may be interrupted soon");
                }
                Kind::SpotInterrupted
                | Kind::ReservationInterrupted
                | Kind::ScheduledChange
                | Kind::Stopped
                | Kind::Terminated => {
                    self.end(claim, interruption.kind.as_str(), Ending::Drained(interruption.due_at)).await?;
                }
            }
        }
        Ok(())
    }

    /// Gives up machines whose checks have failed for too long, or that AWS is about to take.
    pub(crate) async fn check_health(&self) -> Result<(), Failed> {
        let found = self.ec2.describe_instance_status().await.map_err(|error| self.failed(error))?;
        if found.is_empty() {
            return Ok(());
        }
        let claims = self.claims().await?;
        let now = (self.clock)();
        for status in &found {
            let Some(claim) = claims.get(&status.id) else { continue };
            if let Some((reason, ending)) = verdict(status, now) {
                if claim.metadata.deletion_timestamp.is_none() {
                    self.provider.telemetry().metrics.unhealthy(reason);
                    self.tell(claim, events::FAULTY);
                }
                self.end(claim, reason, ending).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn end(&self, claim: &NodeClaim, reason: &str, ending: Ending) -> Result<(), Failure> {
        if claim.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        info!(node_claim = claim.metadata.name, reason, "a machine will not last, giving it up");
        self.tell(claim, events::GIVEN_UP);
        let note = match ending {
            Ending::AtOnce => Some((annotations::NODECLAIM_TERMINATION_TIMESTAMP, (self.clock)())),
            Ending::Drained(ends_at) => ends_at.map(|ends_at| (annotations::INTERRUPTION_TIME, ends_at)),
        };
        if let Some((key, at)) = note {
            self.objects.annotate(claim, &[(key, at.to_string())]).await?;
        }
        self.objects.delete_claim(claim).await
    }

    /// Counts a call that failed.
    pub(super) fn failed(&self, error: Error) -> Failed {
        Failed::call(error, self.provider.telemetry())
    }

    fn tell(&self, claim: &NodeClaim, notice: Notice) {
        events::tell(&*self.provider.telemetry().events, claim, notice);
    }

    /// NodeClaims by the id of their machine.
    pub(super) async fn claims(&self) -> Result<BTreeMap<String, NodeClaim>, Failure> {
        let by_machine = |claim: NodeClaim| {
            let id = MachineId::parse(&claim.status.as_ref()?.provider_id.as_str().into())?;
            Some((id.instance, claim))
        };
        Ok(self.objects.node_claims().await?.into_iter().filter_map(by_machine).collect())
    }
}

/// Whether a machine is given up, why and how. An event that is planned leaves time.
fn verdict(status: &MachineStatus, now: Timestamp) -> Option<(&'static str, Ending)> {
    let is_late = |since: Option<Timestamp>| since.is_some_and(|since| now.since(since) >= TOLERATED);
    if is_late(status.instance_impaired_since) {
        return Some(("instance_status", Ending::AtOnce));
    }
    if is_late(status.system_impaired_since) {
        return Some(("system_status", Ending::AtOnce));
    }
    let ends = status.events.iter().filter(|event| EVENTS.contains(&event.code.as_str()));
    let first = ends.map(|event| event.not_before).min_by_key(|at| at.unwrap_or_default())?;
    Some(("event_status", Ending::Drained(first)))
}

/// Why nothing was learnt.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// AWS did not answer as it should. It is made by [`Self::call`], which counts it.
    #[error(transparent)]
    Call(Error),
    /// The cluster did not.
    #[error(transparent)]
    Cluster(#[from] Failure),
}

impl Failed {
    /// Counts a call that failed.
    pub(super) fn call(error: Error, telemetry: &Telemetry) -> Self {
        telemetry.metrics.call_failed(&error);
        Self::Call(error)
    }
}

#[cfg(test)]
mod tests;
