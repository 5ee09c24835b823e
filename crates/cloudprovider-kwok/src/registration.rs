//! The loop that lets machines come up: records become Nodes.
//!
//! It follows the records by a watch and can be stopped at any point: everything it needs is in the records. Races with
//! [`cloudprovider::CloudProvider::delete`], which first marks the record, then deletes the Node, then the record:
//!
//! * A Node is created only for a record that is `Booting`, and the record is marked `Running` afterwards over the
//!   version that was read. If that fails because the record was marked for its end or is gone, the Node is deleted
//!   again.
//! * A crash between both leaves a Node of a record that is still `Booting`; creating it again finds it there.
//! * A Node whose record is gone is what a vanished machine leaves behind: its kubelet stops, and if it never
//!   registered it is deleted.
//!
//! When the loop starts, it also writes records for kwok machines that Karpenter launched, so that a cluster can
//! switch.

use crate::names;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use api::{DynamicResources, NodeClaim, labels};
use cloudprovider::{CapacityType, CloudProvider};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::runtime::watcher::ExponentialBackoff;
use kube::runtime::{WatchStreamExt, watcher};
use model::{DurationMs, NodeName, PriceNanoUsdPerHour, ProviderId, Timestamp, Uid};
use serde_json::json;

use crate::KwokCloudProvider;
use crate::cluster::{Cause, Failure, readable};
use crate::csi_node::csi_node;
use crate::drivers::Drivers;
use crate::faults::{Faults, Target};
use crate::node::{Kubelet, to_node};
use crate::record::{NodeTemplate, Record, SELECTOR, State, node_name_of};

/// How many Nodes are made at once.
const AT_ONCE: usize = 16;

/// How often faults are looked at, if they are read at all.
const FAULTS_PERIOD: Duration = Duration::from_secs(1);

/// The longest time without looking whether there is anything to do.
const IDLE_PERIOD: Duration = Duration::from_secs(60);

/// When the API server ends a watch, in seconds.
const WATCH_S: u32 = 25;

/// After the first failure, doubling up to the longest.
const FIRST_RETRY: DurationMs = DurationMs::from_seconds(1);
const LAST_RETRY: DurationMs = DurationMs::from_seconds(30);

/// How long a failed watch waits. kube's default goes up to half a minute, which machines would wait for their Nodes
/// after the API server was away for that long.
fn retry_delays() -> ExponentialBackoff {
    let delays = backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(500))
        .with_max_delay(Duration::from_secs(5))
        .with_jitter()
        .without_max_times();
    delays.into()
}

impl KwokCloudProvider {
    /// Turns records into Nodes until `shutdown` is over. One such loop is to run at a time.
    pub async fn run(&self, shutdown: impl Future<Output = ()> + Send) {
        // A watch that is silent for longer than this is dead; the next one goes on where it ended.
        let config = watcher::Config::default().labels(SELECTOR).timeout(WATCH_S);
        let mut events = pin!(watcher(self.inner.cluster.config_maps.clone(), config).backoff(retry_delays()));
        let mut shutdown = pin!(shutdown);
        let mut registration = Registration::new(self.clone());
        loop {
            let wait = registration.wait();
            tokio::select! {
                biased;
                () = &mut shutdown => return,
                event = events.next() => {
                    let mut next = Some(event);
                    // All that is there already, so that its Nodes are made at once.
                    while let Some(event) = next {
                        match event {
                            Some(Ok(event)) => registration.observe(event),
                            Some(Err(error)) => tracing::warn!(%error, "watch of instances failed, trying again"),
                            None => return,
                        }
                        next = events.next().now_or_never();
                    }
                }
                () = tokio::time::sleep(wait) => {}
            }
            if registration.is_synced {
                registration.pass().await;
            }
        }
    }
}

/// When a failed step is tried again.
#[derive(Debug, Clone, Copy)]
struct Retry {
    at: Timestamp,
    delay: DurationMs,
}

/// What the loop knows.
struct Registration {
    provider: KwokCloudProvider,
    records: BTreeMap<NodeName, Record>,
    /// Records of a list that is under way.
    listing: BTreeMap<NodeName, Record>,
    is_synced: bool,
    /// Whether Nodes from before the start have been looked at.
    has_looked_back: bool,
    /// Nodes whose record is gone.
    orphans: BTreeSet<NodeName>,
    retries: BTreeMap<NodeName, Retry>,
    /// Of everything that concerns no single record.
    retry: Option<Retry>,
    drivers: Drivers,
}

impl Registration {
    fn new(provider: KwokCloudProvider) -> Self {
        Self {
            provider,
            records: BTreeMap::new(),
            listing: BTreeMap::new(),
            is_synced: false,
            has_looked_back: false,
            orphans: BTreeSet::new(),
            retries: BTreeMap::new(),
            retry: None,
            drivers: Drivers::default(),
        }
    }

    fn observe(&mut self, event: watcher::Event<ConfigMap>) {
        match event {
            watcher::Event::Init => self.listing.clear(),
            watcher::Event::InitApply(config_map) => {
                self.listing.extend(readable(&config_map).map(|record| (record.node_name.clone(), record)));
            }
            watcher::Event::InitDone => {
                let before = std::mem::replace(&mut self.records, std::mem::take(&mut self.listing));
                self.orphans.extend(before.into_keys().filter(|name| !self.records.contains_key(name)));
                self.is_synced = true;
            }
            watcher::Event::Apply(config_map) => {
                self.records.extend(readable(&config_map).map(|record| (record.node_name.clone(), record)));
            }
            watcher::Event::Delete(config_map) => {
                if let Some(record) = readable(&config_map) {
                    self.records.remove(&record.node_name);
                    self.retries.remove(&record.node_name);
                    self.orphans.insert(record.node_name);
                }
            }
        }
    }

    /// How long nothing is to be done unless something is observed.
    fn wait(&self) -> Duration {
        if !self.is_synced {
            return IDLE_PERIOD;
        }
        let longest = if self.provider.reads_faults() { FAULTS_PERIOD } else { IDLE_PERIOD };
        let now = self.provider.now();
        let due = self.records.values().filter(|record| record.state == State::Booting).map(|record| self.due(record));
        let next = due.chain(self.retry.map(|retry| retry.at)).chain(self.drivers.due()).filter(|at| *at > now).min();
        next.map_or(longest, |at| {
            let milliseconds = u64::try_from(at.since(now).0).unwrap_or(0);
            Duration::from_millis(milliseconds).min(longest)
        })
    }

    /// When a record's Node is to be made.
    fn due(&self, record: &Record) -> Timestamp {
        let retry = self.retries.get(&record.node_name).map(|retry| retry.at);
        retry.map_or(record.register_at, |retry| retry.max(record.register_at))
    }

    /// Does everything that is to be done now. Nothing that fails keeps the rest from being done.
    async fn pass(&mut self) {
        let now = self.provider.now();
        let faults = match self.provider.faults().await {
            Ok(faults) => faults,
            Err(failure) => {
                tracing::warn!(error = %failure, "could not read the faults to inject, trying again");
                self.retry = Some(next_retry(self.retry, now));
                return;
            }
        };
        if self.retry.is_none_or(|retry| retry.at <= now) {
            match self.tidy(&faults).await {
                Ok(()) => self.retry = None,
                Err(failure) => {
                    tracing::warn!(error = %failure, "could not update fake machines, trying again");
                    self.retry = Some(next_retry(self.retry, now));
                }
            }
        }
        self.register_due(&faults, now).await;
        self.drivers.pass(self.records.values(), &self.provider.inner.cluster, &faults, now).await;
    }

    /// Everything but making Nodes.
    async fn tidy(&mut self, faults: &Faults) -> Result<(), Failure> {
        if !self.has_looked_back {
            self.look_back().await?;
            self.has_looked_back = true;
        }
        self.let_vanish(faults).await?;
        let mut failed = None;
        for name in std::mem::take(&mut self.orphans) {
            if self.records.contains_key(&name) {
                continue;
            }
            if let Err(failure) = self.strand(&name).await {
                failed = Some(failure);
                self.orphans.insert(name);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Makes the Nodes whose time has come.
    async fn register_due(&mut self, faults: &Faults, now: Timestamp) {
        let due: Vec<Record> = self
            .records
            .values()
            .filter(|record| record.state == State::Booting && self.due(record) <= now)
            .filter(|record| !Target::any(&faults.never_registers, &record.machine()))
            .cloned()
            .collect();
        let provider = &self.provider;
        let results: Vec<_> = futures::stream::iter(due)
            .map(|record| async move {
                let result = provider.register(&record, faults).await;
                (record.node_name, result)
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        for (name, result) in results {
            match result {
                Ok(Registered::Running) => {
                    self.retries.remove(&name);
                    // The watch tells the rest.
                    if let Some(record) = self.records.get_mut(&name) {
                        record.state = State::Running;
                    }
                }
                Ok(Registered::Gone) => {
                    self.retries.remove(&name);
                    self.records.remove(&name);
                }
                Err(failure) => {
                    tracing::warn!(node = %name, error = %failure, "a fake machine could not register, trying again");
                    let retry = next_retry(self.retries.get(&name).copied(), now);
                    self.retries.insert(name, retry);
                }
            }
        }
    }

    /// Takes machines away that a fault hits.
    async fn let_vanish(&self, faults: &Faults) -> Result<(), Failure> {
        for record in self.records.values() {
            if Target::any(&faults.vanished, &record.machine()) {
                tracing::info!(node = %record.node_name, "a fake machine vanishes");
                self.provider.inner.cluster.delete_record(&record.node_name).await?;
            }
        }
        Ok(())
    }

    /// What becomes of a Node whose machine is gone.
    async fn strand(&self, name: &NodeName) -> Result<(), Failure> {
        let cluster = &self.provider.inner.cluster;
        let Some(node) = cluster.node(name).await? else { return Ok(()) };
        let ours = provider_id(&node).is_some_and(|id| node_name_of(&id) == Some(name));
        if !ours || node.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        if label(&node, labels::REGISTERED) != Some(labels::TRUE) {
            tracing::info!(node = %name, "deleting an unregistered Node whose machine is gone");
            return cluster.delete_node(name, node.metadata.uid.as_deref()).await.map(drop);
        }
        tracing::info!(node = %name, "the machine of a Node is gone, stopping its kubelet");
        cluster.patch_node(name, &json!({"metadata": {"annotations": {(names::KWOK_NODE): null}}})).await?;
        let condition = json!({
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "the machine is gone",
            "lastTransitionTime": self.provider.now().to_string(),
        });
        cluster.patch_node_status(name, &json!({"status": {"conditions": [condition]}})).await.map(drop)
    }

    /// Looks at the Nodes from before the start: those of ours without a record are orphans, and machines that
    /// Karpenter launched get a record.
    async fn look_back(&mut self) -> Result<(), Failure> {
        let cluster = &self.provider.inner.cluster;
        self.drivers.look_back(cluster).await?;
        let selector = format!("{}={}", names::KWOK_NODE, names::KWOK_NODE_FAKE);
        let mut foreign = Vec::new();
        for node in cluster.nodes(&selector).await? {
            let Some(id) = provider_id(&node) else { continue };
            let Some(name) = node_name_of(&id).filter(|name| node.metadata.name.as_deref() == Some(name)) else {
                continue;
            };
            let name = NodeName::from(name);
            if self.records.contains_key(&name) {
                continue;
            }
            let annotations = node.metadata.annotations.as_ref();
            if let Some(record) = annotations.and_then(|annotations| annotations.get(names::KWOK_INSTANCE_RECORD)) {
                // Another provider may keep its records elsewhere.
                if record.split_once('/').is_some_and(|(namespace, _)| namespace == cluster.namespace) {
                    self.orphans.insert(name);
                }
            } else if node.metadata.deletion_timestamp.is_none() {
                foreign.push((id, node));
            }
        }
        if foreign.is_empty() {
            return Ok(());
        }
        let claims: BTreeMap<ProviderId, NodeClaim> = cluster
            .node_claims()
            .await?
            .into_iter()
            .filter_map(|claim| Some((ProviderId::from(claim.status.as_ref()?.provider_id.as_str()), claim)))
            .collect();
        for (id, node) in foreign {
            let Some(claim) = claims.get(&id) else { continue };
            match adopted(&self.provider, &node, claim) {
                Some(record) => match cluster.create_record(&record).await {
                    Ok(_) => tracing::info!(node = %record.node_name, "adopted a fake machine"),
                    Err(Failure { cause: Cause::AlreadyExists, .. }) => {}
                    Err(failure) => return Err(failure),
                },
                None => tracing::warn!(provider_id = %id, "not adopting a Node that lacks labels of a fake machine"),
            }
        }
        Ok(())
    }
}

fn next_retry(earlier: Option<Retry>, now: Timestamp) -> Retry {
    let delay = earlier.map_or(FIRST_RETRY, |earlier| DurationMs(earlier.delay.0 * 2).min(LAST_RETRY));
    Retry { at: now.saturating_add(delay), delay }
}

fn provider_id(node: &Node) -> Option<ProviderId> {
    node.spec.as_ref()?.provider_id.as_deref().map(ProviderId::from)
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// How a registration ended.
enum Registered {
    /// The Node is there.
    Running,
    /// The machine's end was asked for meanwhile.
    Gone,
}

impl KwokCloudProvider {
    /// Makes a record's Node and marks the record.
    async fn register(&self, record: &Record, faults: &Faults) -> Result<Registered, Failure> {
        let cluster = &self.inner.cluster;
        let name = &record.node_name;
        let dead = Target::any(&faults.never_ready, &record.machine());
        let node = to_node(record, &cluster.namespace, if dead { Kubelet::Absent } else { Kubelet::Kwok });
        let created = match cluster.create_node(&node).await {
            Ok(node) => node,
            // From before a crash, unless it is somebody else's.
            Err(Failure { cause: Cause::AlreadyExists, .. }) => {
                let exists = cluster.node(name).await?;
                let exists = exists.ok_or_else(|| Failure::other(format!("create Node {name}"), "it came and went"))?;
                if provider_id(&exists) != Some(record.provider_id()) {
                    return Err(Failure::other(format!("create Node {name}"), "there is another Node of this name"));
                }
                exists
            }
            Err(failure) => return Err(failure),
        };
        let instance_type = self.inner.types.iter().find(|it| it.name == record.instance_type);
        let limits = instance_type.map(|it| &it.volume_attachment_limits);
        if let Some(csi_node) = limits.and_then(|limits| csi_node(&created, limits)) {
            cluster.create_csi_node(&csi_node).await?;
        }
        let running = Record { state: State::Running, ..record.clone() };
        match cluster.replace_record(&running).await {
            Ok(()) => return Ok(Registered::Running),
            Err(Failure { cause: Cause::Conflict | Cause::NotFound, .. }) => {}
            Err(failure) => return Err(failure),
        }
        match cluster.record(name).await? {
            Some(record) if record.state == State::Booting => {
                Err(Failure::other(format!("register Node {name}"), "its record has changed"))
            }
            Some(record) if record.state == State::Running => Ok(Registered::Running),
            Some(_) | None => {
                cluster.delete_node(name, created.metadata.uid.as_deref()).await?;
                Ok(Registered::Gone)
            }
        }
    }
}

/// The record of a machine that has a Node and a NodeClaim already.
fn adopted(provider: &KwokCloudProvider, node: &Node, claim: &NodeClaim) -> Option<Record> {
    let known = &provider.config().labels;
    let all = node.metadata.labels.clone().unwrap_or_default();
    let status = node.status.as_ref()?;
    let amounts = |list: &Option<BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>| {
        list.iter().flatten().map(|(key, amount)| (key.clone(), api::QuantityString(amount.0.clone()))).collect()
    };
    let created_at =
        node.metadata.creation_timestamp.as_ref().map_or(provider.now(), |time| Timestamp(time.0.as_millisecond()));
    let price = all.get(names::NODE_VIEWER_PRICE).and_then(|price| PriceNanoUsdPerHour::parse_rounded(price).ok());
    Some(Record {
        node_name: NodeName::from(node.metadata.name.as_deref()?),
        token: Uid::from(claim.metadata.uid.as_deref()?),
        claim_name: claim.metadata.name.as_deref()?.into(),
        instance_type: all.get(labels::INSTANCE_TYPE)?.as_str().into(),
        zone: all.get(labels::ZONE)?.clone(),
        capacity_type: CapacityType::parse(all.get(labels::CAPACITY_TYPE)?)?,
        price: price.unwrap_or_default(),
        created_at,
        register_at: created_at,
        state: State::Running,
        node: NodeTemplate {
            provider_labels: all
                .iter()
                .filter(|(key, _)| known.is_well_known(key) && *key != labels::NODEPOOL)
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            labels: all,
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            capacity: amounts(&status.capacity),
            allocatable: amounts(&status.allocatable),
        },
        devices: DynamicResources::default(),
        resource_version: None,
    })
}

#[cfg(test)]
mod tests;
