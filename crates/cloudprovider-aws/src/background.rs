//! What the leader does beside what the controllers ask of the provider: node classes are looked at, launches are
//! finished, prices are asked for, and machines that will not last are given up.

#[cfg(test)]
mod fixture;
pub(crate) mod interruptions;
mod reservations;
pub(crate) mod zonal_shift;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use model::{DurationMs, Timestamp};
use serde_json::Value;
use tracing::{debug, info, warn};

use self::interruptions::Watch;
use self::zonal_shift::ShiftWatch;
use crate::discovery::findings::MinorVersion;
use crate::kubernetes_version::{KubernetesVersion, VersionSource};
use crate::provider::cluster::{Cluster, Failure};
use crate::provider::region::SOLD_FRESH;
use crate::provider::{Clock, Ec2CloudProvider};
use crate::reconcile::{NodeClassReconciler, Outcome};
use crate::service::Pricing;
use crate::telemetry::events::tell_of_class;

/// How often it is looked whether something is due.
const TICK: Duration = Duration::from_secs(2);
/// How often launches are finished.
const TIDY: DurationMs = DurationMs::from_seconds(10);
/// How often instance profiles are looked at that nothing may need.
const PROFILES: DurationMs = DurationMs::from_seconds(30 * 60);
/// How often it is asked what machines cost.
const PRICES: DurationMs = DurationMs::from_seconds(12 * 3600);
/// How often it is looked whether EC2 is to be asked what it sells.
const TYPES: DurationMs = DurationMs::from_seconds(10 * 60);
/// By how much of the time that its word counts it is asked before, at most: not all clusters of an account at once.
const EARLIER: i64 = 12;
/// How often it is asked which version of Kubernetes the cluster has.
const VERSION: DurationMs = DurationMs::from_seconds(5 * 60);
/// How soon something is tried again that failed.
const RETRY: DurationMs = DurationMs::from_seconds(10);

/// When each node class is looked at next, and what it asked for when it was looked at last.
#[derive(Debug, Default)]
struct Due {
    classes: BTreeMap<String, (Asked, Timestamp)>,
}

/// What tells that somebody has changed what a node class asks for: its generation, and whether it is to go. What the
/// reconciler itself writes changes neither.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    generation: i64,
    is_going: bool,
}

impl Asked {
    fn of(object: &Value) -> Self {
        Self {
            generation: object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default(),
            is_going: object.pointer("/metadata/deletionTimestamp").is_some_and(|it| !it.is_null()),
        }
    }
}

impl Due {
    /// Whether an object is to be looked at: it is time, or it has changed.
    fn is_due(&self, name: &str, asked: &Asked, now: Timestamp) -> bool {
        self.classes.get(name).is_none_or(|(seen, at)| seen != asked || *at <= now)
    }
}

/// The loop.
pub struct Background {
    /// What finishes launches.
    pub provider: Ec2CloudProvider,
    /// What looks at node classes.
    pub reconciler: NodeClassReconciler,
    /// The cluster's objects.
    pub objects: Arc<dyn Cluster>,
    /// The version of Kubernetes that the reconciler goes by.
    pub kubernetes: KubernetesVersion,
    /// Who tells the version.
    pub version_source: Box<dyn VersionSource>,
    /// What machines cost on demand; none where that is out of reach.
    pub pricing: Option<Arc<dyn Pricing>>,
    /// What watches for machines that will not last.
    pub(crate) watch: Watch,
    /// What watches for zones that traffic is shifted away from, if it is to.
    pub(crate) shifts: Option<ShiftWatch>,
    /// The time.
    pub clock: Clock,
    /// Another number in every process.
    pub seed: u64,
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Background").field("provider", &self.provider).finish_non_exhaustive()
    }
}

impl Background {
    /// Runs until `stop` is over.
    pub async fn run(self, stop: BoxFuture<'static, ()>) {
        tokio::select! {
            () = stop => {}
            () = self.work() => {}
            () = self.watch.run() => {}
            () = self.watch_shifts() => {}
        }
    }

    async fn watch_shifts(&self) {
        match &self.shifts {
            Some(shifts) => shifts.run().await,
            None => std::future::pending().await,
        }
    }

    async fn work(&self) {
        let mut due = Due::default();
        let [mut tidy_at, mut types_at, mut prices_at] = [Timestamp::default(); 3];
        let fresh = fresh(self.seed);
        let mut profiles_at = (self.clock)().saturating_add(PROFILES);
        let mut version_at = (self.clock)().saturating_add(VERSION);
        loop {
            let now = (self.clock)();
            if version_at <= now {
                self.refresh_version(&mut due).await;
                version_at = now.saturating_add(VERSION);
            }
            if let Err(error) = self.look(&mut due).await {
                warn!(%error, "could not look at node classes");
            }
            if tidy_at <= now {
                if let Err(error) = self.provider.tidy().await {
                    warn!(%error, "could not finish launches");
                }
                tidy_at = now.saturating_add(TIDY);
            }
            if types_at <= now {
                if let Err(error) = self.provider.refresh_types(fresh).await {
                    warn!(%error, "could not find out all about instance types, and those of before stand");
                }
                types_at = now.saturating_add(TYPES);
            }
            if prices_at <= now {
                if let Err(error) = self.provider.refresh_prices(self.pricing.as_deref()).await {
                    warn!(%error, "could not find out all about prices, and those of before stand for the rest");
                }
                prices_at = now.saturating_add(PRICES);
            }
            if profiles_at <= now {
                if let Err(error) = self.collect_profiles().await {
                    warn!(%error, "could not remove instance profiles");
                }
                profiles_at = now.saturating_add(PROFILES);
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// Asks for the version of Kubernetes. With another one all node classes are due: aliases mean other images then.
    async fn refresh_version(&self, due: &mut Due) {
        match self.kubernetes.refresh(&*self.version_source).await {
            Ok(None) => {}
            Ok(Some(MinorVersion(minor))) => {
                info!(kubernetes = format!("1.{minor}"), "the cluster has another version of Kubernetes");
                *due = Due::default();
            }
            Err(error) => warn!(error, "could not find out the version of Kubernetes, and that of before stands"),
        }
    }

    async fn collect_profiles(&self) -> Result<(), Failure> {
        let classes = self.objects.node_classes().await?;
        self.reconciler.collect_profiles(&classes).await
    }

    /// Looks at the node classes that are due.
    async fn look(&self, due: &mut Due) -> Result<(), Failure> {
        let classes = self.objects.node_classes().await?;
        let name =
            |object: &Value| object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let names: Vec<_> = classes.iter().map(name).collect();
        due.classes.retain(|name, _| names.contains(name));
        for (object, name) in classes.iter().zip(names) {
            let (asked, now) = (Asked::of(object), (self.clock)());
            if !due.is_due(&name, &asked, now) {
                continue;
            }
            let again_in = match self.reconciler.reconcile(&name).await {
                Ok(Outcome { again_in, events, errors }) => {
                    let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
                    let telemetry = self.provider.telemetry();
                    for told in events {
                        tell_of_class(&*telemetry.events, (&name, uid), told);
                    }
                    for error in errors {
                        warn!(node_class = name, error, "could not find out all about a node class");
                    }
                    again_in.unwrap_or(RETRY)
                }
                // Somebody else has changed it: the next look sees that.
                Err(Failure::Conflict(what)) => {
                    debug!(node_class = name, what, "a node class was changed meanwhile");
                    DurationMs::ZERO
                }
                Err(error) => {
                    warn!(node_class = name, %error, "could not look at a node class");
                    RETRY
                }
            };
            due.classes.insert(name, (asked, now.saturating_add(again_in)));
        }
        Ok(())
    }
}

/// How long EC2's word on what it sells counts in the process of that seed.
fn fresh(seed: u64) -> DurationMs {
    let most = SOLD_FRESH.0 / EARLIER;
    DurationMs(SOLD_FRESH.0 - i64::try_from(seed % most.unsigned_abs()).unwrap_or(0))
}

#[cfg(test)]
mod tests;
