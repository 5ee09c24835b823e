//! One watch per kind that keeps the store up to date.
//!
//! Each object is decoded and pruned before it is stored. One that cannot be decoded is noted in
//! [`State::undecodable`](super::State), logged, and told to its pod; the watch goes on. Errors of the API server are
//! retried for ever with backoff; a new list removes what is gone.

mod listing;
mod objects;
mod source;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::labels::ProviderLabels;
use api::{CapacityBuffer, NodeClaim, NodeOverlay, NodePool, events};
use cloudprovider::NodeClassKind;
use decode::api_resources;
use decode::capacity_buffer::{BufferTemplate, TemplateKey, TemplateKind, buffer_template};
use decode::limit_range::LimitRange;
use decode::pod_selectors::{PodSelector, SelectorKey, SelectorKind, pod_selector};
use decode::priority_class::PriorityClass;
use dra_types::KubernetesMinor;
use k8s_openapi::api::core::v1 as core;
use kube::Client;
use kube::api::DynamicObject;
use model::Pod;
use model::quota::ResourceQuota;
use model::volume::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use model::workload::{DaemonSet, PodDisruptionBudget};
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::listing::{Listing, RetryDelay};
pub use self::objects::node_record;
use self::objects::{note_daemon_set, note_devices, pod_group, volume_attachment};
use self::source::{Source, api_resource, device_source, from_json, resource, resource_in};
use super::follow::{Failure, Follower, Seen};
use super::object::{
    CsiNode, Namespace, NodeClass, NodeClassKey, NodeRecord, PodGroupRecord, Stored, VolumeAttachment,
};
use super::raw::RawObject;
use super::rebuild::Feed;
use super::{ClusterStore, Kind};
use crate::runtime::beats::Beats;
use crate::runtime::failures::cause_in_words;
use crate::runtime::jitter::jittered;
use crate::runtime::metrics::{ByKind, Metrics};
use crate::runtime::recorder::{Event, Recorder, Severity};
use crate::runtime::supervision::Supervision;

/// How long until a kind that is not served is asked for again: its CRD may come, or the API server's next release.
const NOT_SERVED_DELAY: Duration = Duration::from_secs(30);
/// Longest that a watch may take from one thing seen to the next, a failure being one: more than any of its calls may
/// take.
const BOUND: Duration = Duration::from_secs(150);
/// Pods that have ended hold nothing and tell nothing; the API server need not send them.
const LIVE_PODS: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Everything a watch needs besides its kind.
#[derive(Clone)]
pub struct Watches {
    /// Where from.
    pub client: Client,
    /// Where to.
    pub feed: Arc<Feed>,
    /// Told about pods that cannot be read.
    pub recorder: Recorder,
    /// Counts objects that cannot be read.
    pub metrics: Arc<Metrics>,
    /// Whether CapacityBuffers, and what they may name, are watched.
    pub buffers: bool,
    /// Whether Services and controllers of pods are watched, for the selectors of default spread constraints.
    pub pod_selectors: bool,
    /// The provider's aliases of label keys.
    pub labels: Arc<ProviderLabels>,
    /// Where each watch tells that it lives.
    pub beats: Arc<Beats>,
    /// Where a watch is told that ended though it should not.
    pub supervision: Supervision,
    /// Ends all watches.
    pub stop: CancellationToken,
}

impl Watches {
    /// Starts a watch for every kind; `node_classes` are the provider's.
    pub fn start(&self, node_classes: &[NodeClassKind]) -> JoinSet<()> {
        let mut started = JoinSet::new();
        let tasks = &mut started;
        let pods = Source::<Pod>::new(resource(&api_resources::POD), from_json(decode::pod), RawObject::name);
        self.follow(tasks, Source { fields: Some(LIVE_PODS), note: note_devices, ..pods });
        self.follow(
            tasks,
            Source::<NodeRecord>::new(resource(&api_resources::NODE), node_record, |raw| (&*raw.name().name).into()),
        );
        self.follow(
            tasks,
            Source::<NodeClaim>::new(
                resource(&api_resources::NODE_CLAIM),
                |raw, _| decode::node_claim_object(&raw.json).map_err(|error| error.to_string()),
                |raw| (&*raw.name().name).into(),
            ),
        );
        self.follow(
            tasks,
            Source::<NodePool>::new(
                resource(&api_resources::NODE_POOL),
                |raw, _| decode::node_pool_object(&raw.json).map_err(|error| error.to_string()),
                |raw| (&*raw.name().name).into(),
            ),
        );
        let overlays = Source::<NodeOverlay>::new(
            resource(&api_resources::NODE_OVERLAY),
            |raw, _| decode::node_overlay_object(&raw.json).map_err(|error| error.to_string()),
            |raw| (&*raw.name().name).into(),
        );
        self.follow(tasks, Source { optional: true, ..overlays });
        self.start_node_classes(node_classes, tasks);
        self.start_workloads(tasks);
        self.start_storage(tasks);
        self.start_buffers(tasks);
        self.start_pod_selectors(tasks);
        self.start_devices(tasks);
        started
    }

    fn start_node_classes(&self, kinds: &[NodeClassKind], tasks: &mut JoinSet<()>) {
        let pending = Arc::new(AtomicUsize::new(kinds.len()));
        for kind in kinds {
            let (group, name) = (kind.group, kind.kind);
            let key = move |raw: &RawObject| {
                NodeClassKey(api::NodeClassReference {
                    group: group.to_owned(),
                    kind: name.to_owned(),
                    name: raw.name().name.to_string(),
                })
            };
            let source = Source::<NodeClass>::new(
                api_resource(group, kind.version, name, kind.plural),
                move |raw, _| {
                    let object = DynamicObject::deserialize(&raw.json).map_err(|error| error.to_string())?;
                    Ok(NodeClass { key: key(raw), generation: object.metadata.generation.unwrap_or(0), object })
                },
                key,
            );
            self.follow(
                tasks,
                Source {
                    owns: Box::new(move |key: &NodeClassKey| key.0.group == group && key.0.kind == name),
                    pending: Arc::clone(&pending),
                    is_alone: kinds.len() == 1,
                    optional: true,
                    ..source
                },
            );
        }
    }

    fn start_workloads(&self, tasks: &mut JoinSet<()>) {
        self.follow(
            tasks,
            Source::<Namespace>::new(
                resource(&api_resources::NAMESPACE),
                |raw, context| {
                    let (name, labels) = decode::namespace(&raw.json, context).map_err(|error| error.to_string())?;
                    Ok(Namespace { name, labels })
                },
                |raw| raw.name().name,
            ),
        );
        let daemon_sets = Source::<DaemonSet>::new(
            resource(&api_resources::DAEMON_SET),
            from_json(decode::daemon_set),
            RawObject::name,
        );
        self.follow(tasks, Source { note: note_daemon_set, ..daemon_sets });
        self.follow(
            tasks,
            Source::<PodDisruptionBudget>::new(
                resource(&api_resources::POD_DISRUPTION_BUDGET),
                from_json(decode::pod_disruption_budget),
                RawObject::name,
            ),
        );
        self.follow(
            tasks,
            Source::<PriorityClass>::new(
                resource(&api_resources::PRIORITY_CLASS),
                |raw, _| decode::priority_class(&raw.json).map_err(|error| error.to_string()),
                |raw| raw.name().name,
            ),
        );
        self.follow(
            tasks,
            Source::<LimitRange>::new(
                resource(&api_resources::LIMIT_RANGE),
                |raw, _| decode::limit_range(&raw.json).map_err(|error| error.to_string()),
                RawObject::name,
            ),
        );
        self.follow(
            tasks,
            Source::<ResourceQuota>::new(
                resource(&api_resources::RESOURCE_QUOTA),
                |raw, _| decode::resource_quota(&raw.json).map_err(|error| error.to_string()),
                RawObject::name,
            ),
        );
        let pending = Arc::new(AtomicUsize::new(api_resources::POD_GROUP.versions.len()));
        for &version in api_resources::POD_GROUP.versions {
            let source = Source::<PodGroupRecord>::new(
                resource_in(version, &api_resources::POD_GROUP),
                |raw, context| pod_group(raw, context).map_err(|error| error.to_string()),
                RawObject::name,
            );
            let pending = Arc::clone(&pending);
            self.follow(tasks, Source { optional: true, pending, is_alone: false, ..source });
        }
    }

    fn start_storage(&self, tasks: &mut JoinSet<()>) {
        self.follow(
            tasks,
            Source::<PersistentVolumeClaim>::new(
                resource(&api_resources::PERSISTENT_VOLUME_CLAIM),
                |raw, _| decode::persistent_volume_claim(&raw.json).map_err(|error| error.to_string()),
                RawObject::name,
            ),
        );
        self.follow(
            tasks,
            Source::<PersistentVolume>::new(
                resource(&api_resources::PERSISTENT_VOLUME),
                from_json(decode::persistent_volume),
                |raw| raw.name().name,
            ),
        );
        self.follow(
            tasks,
            Source::<StorageClass>::new(
                resource(&api_resources::STORAGE_CLASS),
                from_json(decode::storage_class),
                |raw| raw.name().name,
            ),
        );
        self.follow(
            tasks,
            Source::<CsiNode>::new(
                resource(&api_resources::CSI_NODE),
                |raw, _| {
                    let (name, drivers) = decode::csi_node(&raw.json).map_err(|error| error.to_string())?;
                    Ok(CsiNode { name, drivers })
                },
                |raw| (&*raw.name().name).into(),
            ),
        );
        self.follow(
            tasks,
            Source::<VolumeAttachment>::new(
                resource(&api_resources::VOLUME_ATTACHMENT),
                |raw, _| volume_attachment(raw),
                |raw| raw.name().name,
            ),
        );
    }

    /// Watches buffers and what they may name; if nobody wants them, there are none.
    fn start_buffers(&self, tasks: &mut JoinSet<()>) {
        if !self.buffers {
            for kind in [Kind::CapacityBuffer, Kind::BufferTemplate] {
                self.feed.with(|store| store.mark_synced(kind));
            }
            return;
        }
        let buffers = Source::<CapacityBuffer>::new(
            resource(&api_resources::CAPACITY_BUFFER),
            |raw, _| decode::capacity_buffer_object(&raw.json).map_err(|error| error.to_string()),
            RawObject::name,
        );
        self.follow(tasks, Source { optional: true, ..buffers });
        let pending = Arc::new(AtomicUsize::new(TemplateKind::ALL.len()));
        for kind in TemplateKind::ALL {
            let source = Source::<BufferTemplate>::new(
                resource(kind.resource()),
                move |raw, context| buffer_template(&raw.json, kind, context).map_err(|error| error.to_string()),
                move |raw| TemplateKey { kind, name: raw.name() },
            );
            self.follow(
                tasks,
                Source {
                    owns: Box::new(move |key: &TemplateKey| key.kind == kind),
                    pending: Arc::clone(&pending),
                    is_alone: false,
                    ..source
                },
            );
        }
    }

    /// Watches what selects pods; if nobody wants to know, nothing does.
    fn start_pod_selectors(&self, tasks: &mut JoinSet<()>) {
        if !self.pod_selectors {
            self.feed.with(|store| store.mark_synced(Kind::PodSelector));
            return;
        }
        let pending = Arc::new(AtomicUsize::new(SelectorKind::OF_SCHEDULER.len()));
        for kind in SelectorKind::OF_SCHEDULER {
            let source = Source::<PodSelector>::new(
                resource(kind.resource()),
                move |raw, context| pod_selector(&raw.json, kind, context).map_err(|error| error.to_string()),
                move |raw| SelectorKey { kind, name: raw.name() },
            );
            self.follow(
                tasks,
                Source {
                    owns: Box::new(move |key: &SelectorKey| key.kind == kind),
                    pending: Arc::clone(&pending),
                    is_alone: false,
                    ..source
                },
            );
        }
    }

    /// Watches what decides about devices, as far as the API server serves it. First it has to say which release it is.
    fn start_devices(&self, tasks: &mut JoinSet<()>) {
        let release = CancellationToken::new();
        let noting = self.clone().note_release(release.clone());
        tasks.spawn(self.supervision.endless("release of the API server", self.stop.clone(), noting));
        let name = |raw: &RawObject| raw.name().name;
        let classes = resource(&api_resources::DEVICE_CLASS);
        let classes = device_source(classes, decode::devices::device_class, name);
        let slices = resource(&api_resources::RESOURCE_SLICE);
        let slices = device_source(slices, decode::devices::resource_slice, name);
        let claims = resource(&api_resources::RESOURCE_CLAIM);
        let claims = device_source(claims, decode::devices::resource_claim, RawObject::name);
        let templates = resource(&api_resources::RESOURCE_CLAIM_TEMPLATE);
        let templates = device_source(templates, decode::devices::resource_claim_template, RawObject::name);
        self.follow_after(&release, tasks, classes);
        self.follow_after(&release, tasks, slices);
        self.follow_after(&release, tasks, claims);
        self.follow_after(&release, tasks, templates);
        // Which version has the rules depends on the release; a server that serves both gives the same objects twice.
        let pending = Arc::new(AtomicUsize::new(api_resources::DEVICE_TAINT_RULE.versions.len()));
        for &version in api_resources::DEVICE_TAINT_RULE.versions {
            let rules = resource_in(version, &api_resources::DEVICE_TAINT_RULE);
            let source = device_source(rules, decode::devices::device_taint_rule, name);
            let source = Source { pending: Arc::clone(&pending), is_alone: false, ..source };
            self.follow_after(&release, tasks, source);
        }
    }

    /// Notes of which release the API server is, and lets those go on who wait for that.
    async fn note_release(self, known: CancellationToken) {
        let mut delays = RetryDelay::default();
        loop {
            match self.client.apiserver_version().await {
                Ok(version) => {
                    let compat = match kubernetes_minor(&version.minor) {
                        Some(minor) => Some(super::gates::compat(&self.client, minor).await),
                        None => None,
                    };
                    self.feed.with(|store| store.note_kubernetes(compat));
                    known.cancel();
                    return self.stop.cancelled().await;
                }
                Err(error) => {
                    debug!(error = cause_in_words(&error), "could not read the API server's version, trying again")
                }
            }
            tokio::select! {
                () = tokio::time::sleep(jittered(delays.next())) => {}
                () = self.stop.cancelled() => return,
            }
        }
    }

    /// Starts the watch of a kind, in a task of its own.
    fn follow<T: Stored>(&self, tasks: &mut JoinSet<()>, source: Source<T>) {
        let name = source.name();
        self.spawn(tasks, name.clone(), self.clone().watch(name, source));
    }

    /// Starts it when `start` is cancelled.
    fn follow_after<T: Stored>(&self, start: &CancellationToken, tasks: &mut JoinSet<()>, source: Source<T>) {
        let (start, stop, name) = (start.clone(), self.stop.clone(), source.name());
        let watching = self.clone().watch(name.clone(), source);
        self.spawn(tasks, name, async move {
            tokio::select! {
                () = start.cancelled() => {}
                () = stop.cancelled() => return,
            }
            watching.await;
        });
    }

    fn spawn(&self, tasks: &mut JoinSet<()>, name: String, watching: impl Future<Output = ()> + Send + 'static) {
        tasks.spawn(self.supervision.endless(format!("watch of {name}"), self.stop.clone(), watching));
    }

    async fn watch<T: Stored>(self, name: String, source: Source<T>) {
        let mut follower = Follower::new(self.client.clone(), source.resource.clone(), source.fields);
        let (mut delays, mut listing) = (RetryDelay::default(), Listing::<T>::default());
        let (beat, line) = (self.beats.beat(format!("watch of {name}"), BOUND), self.beats.line(name));
        loop {
            beat.busy();
            let seen = tokio::select! {
                seen = follower.next() => seen,
                () = self.stop.cancelled() => return,
            };
            let failure = match seen {
                Ok(seen) => {
                    // A list that was only begun is no success.
                    if !matches!(seen, Seen::ListBegan) {
                        delays = RetryDelay::default();
                        line.heard();
                    }
                    self.handle(seen, &source, &mut listing);
                    continue;
                }
                Err(failure) => failure,
            };
            let delay = match self.failed(&failure, &source, &mut listing) {
                true => {
                    line.heard();
                    NOT_SERVED_DELAY
                }
                false => delays.next(),
            };
            tokio::select! {
                () = tokio::time::sleep(jittered(delay)) => {}
                () = self.stop.cancelled() => return,
            }
        }
    }

    fn handle<T: Stored>(&self, seen: Seen, source: &Source<T>, listing: &mut Listing<T>) {
        match seen {
            Seen::ListBegan => self.feed.with(|store| listing.begin(store, source)),
            Seen::Listed(raw) => {
                let raw = raw.of_type(&source.resource);
                self.apply(&raw, source);
                let key = (source.key)(&raw);
                // A hundred thousand keys of their own would take many megabytes.
                let stored = self.feed.with(|store| T::table(&store.read()).stored_key(&key).cloned());
                listing.seen.insert(stored.unwrap_or(key));
            }
            Seen::Unreadable(raw, problem) => {
                let key = (source.key)(&raw);
                let error = format!("{} {}: {problem}", source.resource.kind, raw.name());
                listing.seen.insert(key.clone());
                self.reject::<T>(&raw, &key, error);
            }
            Seen::ListEnded => {
                self.feed.with(|store| listing.end(store, source));
                self.count_undecodable(T::KIND);
                self.listed(source, listing);
            }
            Seen::Applied(raw) => self.apply(&raw, source),
            Seen::Deleted(raw) => {
                self.feed.with(|store| store.delete::<T>(&(source.key)(&raw), &raw.uid()));
                self.count_undecodable(T::KIND);
            }
            Seen::Heard => {}
        }
    }

    /// Says whether the kind is one that need not be served, and is not.
    fn failed<T: Stored>(&self, failure: &Failure, source: &Source<T>, listing: &mut Listing<T>) -> bool {
        let not_served = matches!(failure, Failure::List(kube::Error::Api(status)) if status.code == 404);
        let kind = &source.resource.kind;
        if matches!(failure, Failure::Expired(_)) {
            debug!(kind, error = %failure, "watch expired, listing again");
        } else if not_served && source.optional {
            debug!(kind, "the API server does not serve this kind yet");
            self.listed(source, listing);
        } else {
            let cause = std::error::Error::source(failure).map(cause_in_words);
            warn!(kind, error = %failure, cause, "watch failed, trying again");
        }
        not_served && source.optional
    }

    fn listed<T: Stored>(&self, source: &Source<T>, listing: &mut Listing<T>) {
        if !std::mem::replace(&mut listing.listed, true) && source.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.feed.with(|store| store.mark_synced(T::KIND));
        }
    }

    fn apply<T: Stored>(&self, raw: &RawObject, source: &Source<T>) {
        let decoded = self.feed.with(|store| {
            let revision = raw.revision();
            // The answer to a write of ours was stored before, and a new list brings mostly what is known.
            if store.has::<T>(&(source.key)(raw), &revision) {
                return Ok(false);
            }
            (source.note)(store, raw);
            store.apply_with(revision, |interner| {
                (source.decode)(raw, &mut decode::Context::with_labels(interner, &self.labels))
            })
        });
        if let Err(error) = decoded {
            self.reject::<T>(raw, &(source.key)(raw), error);
        }
    }

    fn reject<T: Stored>(&self, raw: &RawObject, key: &T::Key, error: String) {
        let entry = (T::KIND, key.to_string());
        let known = self.feed.with(|store| store.read().undecodable.get(&entry).is_some_and(|known| *known == error));
        if !known {
            warn!(kind = %T::KIND, object = %key, error, "cannot use this object");
            if T::KIND == Kind::Pod {
                let regarding = core::ObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: raw.metadata.name.clone(),
                    namespace: raw.metadata.namespace.clone(),
                    uid: raw.metadata.uid.clone(),
                    ..core::ObjectReference::default()
                };
                let message = format!("Failed to schedule pod, {error}");
                let event = Event::new(regarding, Severity::Warning, events::FAILED_SCHEDULING, message);
                self.recorder.publish(event.with_dedupe(&error));
            }
        }
        self.feed.with(|store| store.reject::<T>(key, error));
        self.count_undecodable(T::KIND);
    }

    fn count_undecodable(&self, kind: Kind) {
        let count = |store: &ClusterStore| store.read().undecodable.keys().filter(|(other, _)| *other == kind).count();
        let count = self.feed.with(count);
        let gauge = self.metrics.undecodable_objects.get_or_create(&ByKind { kind: kind.as_str().to_owned() });
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        if kind == Kind::Pod {
            self.metrics.ignored_pods.set_unreadable(gauge.get());
        }
    }
}

fn kubernetes_minor(minor: &str) -> Option<KubernetesMinor> {
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    KubernetesMinor::from_minor(digits.parse().ok()?)
}

#[cfg(test)]
mod tests;
