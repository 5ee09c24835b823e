//! One watch per kind that keeps the store up to date.
//!
//! Each object is decoded and pruned before it is stored. One that cannot be decoded is noted in
//! [`State::undecodable`](super::State), logged, and told to its pod; the watch goes on. Errors of the API server are
//! retried for ever with backoff; a new list removes what is gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::labels::ProviderLabels;
use api::{CapacityBuffer, NodeClaim, NodeOverlay, NodePool, events, groups};
use cloudprovider::NodeClassKind;
use decode::capacity_buffer::{BufferTemplate, TemplateKey, TemplateKind, buffer_template};
use decode::default_spread::{PodSelector, SelectorKey, SelectorKind, pod_selector};
use decode::devices::Admitted;
use decode::limit_range::{LimitRange, TemplateResources};
use decode::priority_class::PriorityClass;
use dra_sched::KubernetesMinor;
use k8s_openapi::api::core::v1 as core;
use kube::api::{ApiResource, DynamicObject};
use kube::{Client, core::GroupVersionKind};
use model::Pod;
use model::quota::ResourceQuota;
use model::volume::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use model::workload::{DaemonSet, PodDisruptionBudget};
use serde::Deserialize;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::follow::{Failure, Follower, Seen};
use super::object::{
    CsiNode, Namespace, NodeClass, NodeClassKey, NodeRecord, PodGroupRecord, Stored, VolumeAttachment,
};
use super::raw::RawObject;
use super::rebuild::Feed;
use super::{ClusterStore, Kind};
use crate::beats::Beats;
use crate::jitter::jittered;
use crate::metrics::{ByKind, Metrics};
use crate::recorder::{Event, Recorder, Severity};
use crate::supervision::Supervision;

/// How long until a kind that is not served is asked for again: its CRD may come, or the API server's next release.
const NOT_SERVED_DELAY: Duration = Duration::from_secs(30);
/// Longest that a watch may take from one thing seen to the next, a failure being one: more than any of its calls may take.
const BOUND: Duration = Duration::from_secs(150);
/// The group of claims and slices.
const RESOURCE: &str = "resource.k8s.io";
/// Versions that DeviceTaintRules are served in.
const TAINT_RULE_VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1alpha3"];
/// Versions that PodGroups may be served in.
const POD_GROUP_VERSIONS: [&str; 4] = ["v1", "v1beta1", "v1alpha3", "v1alpha2"];
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

type Decode<T> = Box<dyn Fn(&RawObject, &mut decode::Context<'_>) -> Result<T, String> + Send>;
type KeyOf<T> = Box<dyn Fn(&RawObject) -> <T as Stored>::Key + Send>;
type Owns<T> = Box<dyn Fn(&<T as Stored>::Key) -> bool + Send>;

/// Where a kind is found, and how one of its objects is read.
struct Source<T: Stored> {
    resource: ApiResource,
    fields: Option<&'static str>,
    decode: Decode<T>,
    key: KeyOf<T>,
    /// Which rows of the kind's table come from here.
    owns: Owns<T>,
    /// How many lists the kind's table is filled by, of those not read yet.
    pending: Arc<AtomicUsize>,
    /// Whether no other list fills the table.
    is_alone: bool,
    /// Whether the API server may not serve the kind at all.
    optional: bool,
    /// What else is noted of an object, before it is stored.
    note: fn(&ClusterStore, &RawObject),
}

impl<T: Stored> Source<T> {
    fn new(
        resource: ApiResource,
        decode: impl Fn(&RawObject, &mut decode::Context<'_>) -> Result<T, String> + Send + 'static,
        key: impl Fn(&RawObject) -> T::Key + Send + 'static,
    ) -> Self {
        Self {
            resource,
            fields: None,
            decode: Box::new(decode),
            key: Box::new(key),
            owns: Box::new(|_| true),
            pending: Arc::new(AtomicUsize::new(1)),
            is_alone: true,
            optional: false,
            note: |_, _| {},
        }
    }

    /// `apps/v1/daemonsets`.
    fn name(&self) -> String {
        format!("{}/{}", self.resource.api_version, self.resource.plural)
    }
}

impl Watches {
    /// Starts a watch for every kind; `node_classes` are the provider's.
    pub fn start(&self, node_classes: &[NodeClassKind]) -> JoinSet<()> {
        let mut started = JoinSet::new();
        let tasks = &mut started;
        let pods = Source::<Pod>::new(resource("", "v1", "Pod", "pods"), from_json(decode::pod), RawObject::name);
        self.follow(tasks, Source { fields: Some(LIVE_PODS), note: note_devices, ..pods });
        self.follow(
            tasks,
            Source::<NodeRecord>::new(resource("", "v1", "Node", "nodes"), node_record, |raw| {
                (&*raw.name().name).into()
            }),
        );
        self.follow(
            tasks,
            Source::<NodeClaim>::new(
                resource(groups::KARPENTER, "v1", "NodeClaim", "nodeclaims"),
                |raw, _| decode::node_claim_object(&raw.json).map_err(|error| error.to_string()),
                |raw| (&*raw.name().name).into(),
            ),
        );
        self.follow(
            tasks,
            Source::<NodePool>::new(
                resource(groups::KARPENTER, "v1", "NodePool", "nodepools"),
                |raw, _| decode::node_pool_object(&raw.json).map_err(|error| error.to_string()),
                |raw| (&*raw.name().name).into(),
            ),
        );
        let overlays = Source::<NodeOverlay>::new(
            resource(groups::KARPENTER, "v1alpha1", "NodeOverlay", "nodeoverlays"),
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
                resource(group, kind.version, name, kind.plural),
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
                resource("", "v1", "Namespace", "namespaces"),
                |raw, context| {
                    let (name, labels) = decode::namespace(&raw.json, context).map_err(|error| error.to_string())?;
                    Ok(Namespace { name, labels })
                },
                |raw| raw.name().name,
            ),
        );
        let daemon_sets = Source::<DaemonSet>::new(
            resource("apps", "v1", "DaemonSet", "daemonsets"),
            from_json(decode::daemon_set),
            RawObject::name,
        );
        self.follow(tasks, Source { note: note_daemon_set, ..daemon_sets });
        self.follow(
            tasks,
            Source::<PodDisruptionBudget>::new(
                resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
                from_json(decode::pod_disruption_budget),
                RawObject::name,
            ),
        );
        self.follow(
            tasks,
            Source::<PriorityClass>::new(
                resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses"),
                |raw, _| decode::priority_class(&raw.json).map_err(|error| error.to_string()),
                |raw| raw.name().name,
            ),
        );
        self.follow(
            tasks,
            Source::<LimitRange>::new(
                resource("", "v1", "LimitRange", "limitranges"),
                |raw, _| decode::limit_range(&raw.json).map_err(|error| error.to_string()),
                RawObject::name,
            ),
        );
        self.follow(
            tasks,
            Source::<ResourceQuota>::new(
                resource("", "v1", "ResourceQuota", "resourcequotas"),
                |raw, _| decode::resource_quota(&raw.json).map_err(|error| error.to_string()),
                RawObject::name,
            ),
        );
        let pending = Arc::new(AtomicUsize::new(POD_GROUP_VERSIONS.len()));
        for version in POD_GROUP_VERSIONS {
            let source = Source::<PodGroupRecord>::new(
                resource("scheduling.k8s.io", version, "PodGroup", "podgroups"),
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
                resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
                |raw, _| decode::persistent_volume_claim(&raw.json).map_err(|error| error.to_string()),
                RawObject::name,
            ),
        );
        self.follow(
            tasks,
            Source::<PersistentVolume>::new(
                resource("", "v1", "PersistentVolume", "persistentvolumes"),
                from_json(decode::persistent_volume),
                |raw| raw.name().name,
            ),
        );
        self.follow(
            tasks,
            Source::<StorageClass>::new(
                resource("storage.k8s.io", "v1", "StorageClass", "storageclasses"),
                from_json(decode::storage_class),
                |raw| raw.name().name,
            ),
        );
        self.follow(
            tasks,
            Source::<CsiNode>::new(
                resource("storage.k8s.io", "v1", "CSINode", "csinodes"),
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
                resource("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments"),
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
            resource(groups::AUTOSCALING_X_K8S, "v1beta1", "CapacityBuffer", "capacitybuffers"),
            |raw, _| decode::capacity_buffer_object(&raw.json).map_err(|error| error.to_string()),
            RawObject::name,
        );
        self.follow(tasks, Source { optional: true, ..buffers });
        let pending = Arc::new(AtomicUsize::new(TemplateKind::ALL.len()));
        for kind in TemplateKind::ALL {
            let source = Source::<BufferTemplate>::new(
                resource(kind.group(), "v1", kind.as_str(), kind.plural()),
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
                resource(kind.group(), "v1", kind.as_str(), kind.plural()),
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
        let cluster_scoped = |kind, plural| resource(RESOURCE, "v1", kind, plural);
        let name = |raw: &RawObject| raw.name().name;
        let classes = cluster_scoped("DeviceClass", "deviceclasses");
        let classes = device_source(classes, decode::devices::device_class, name);
        let slices = cluster_scoped("ResourceSlice", "resourceslices");
        let slices = device_source(slices, decode::devices::resource_slice, name);
        let claims = resource(RESOURCE, "v1", "ResourceClaim", "resourceclaims");
        let claims = device_source(claims, decode::devices::resource_claim, RawObject::name);
        let templates = resource(RESOURCE, "v1", "ResourceClaimTemplate", "resourceclaimtemplates");
        let templates = device_source(templates, decode::devices::resource_claim_template, RawObject::name);
        self.follow_after(&release, tasks, classes);
        self.follow_after(&release, tasks, slices);
        self.follow_after(&release, tasks, claims);
        self.follow_after(&release, tasks, templates);
        // Which version has the rules depends on the release; a server that serves both gives the same objects twice.
        let pending = Arc::new(AtomicUsize::new(TAINT_RULE_VERSIONS.len()));
        for version in TAINT_RULE_VERSIONS {
            let rules = resource(RESOURCE, version, "DeviceTaintRule", "devicetaintrules");
            let source = device_source(rules, |json, _| decode::devices::device_taint_rule(json), name);
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
                Err(error) => debug!(%error, "the API server does not tell its version yet"),
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
            let cause = std::error::Error::source(failure).map(ToString::to_string);
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

/// How long a failed watch waits: from half a second, doubling, to five. kube's own goes up to half a minute, which is
/// how long a pod would wait after the API server was away for that long.
#[derive(Debug, Clone, Copy)]
struct RetryDelay {
    next: Duration,
}

impl RetryDelay {
    const MIN: Duration = Duration::from_millis(500);
    const MAX: Duration = Duration::from_secs(5);

    fn next(&mut self) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(Self::MAX);
        delay
    }
}

impl Default for RetryDelay {
    fn default() -> Self {
        Self { next: Self::MIN }
    }
}

/// What a list has shown so far, to find what is gone.
struct Listing<T: Stored> {
    /// Keys that were in the store when the list began. What is stored later was created later, and the list need not
    /// have it.
    before: BTreeSet<T::Key>,
    seen: BTreeSet<T::Key>,
    /// Whether a list was ever completed.
    listed: bool,
}

impl<T: Stored> Default for Listing<T> {
    fn default() -> Self {
        Self { before: BTreeSet::new(), seen: BTreeSet::new(), listed: false }
    }
}

impl<T: Stored> Listing<T> {
    fn begin(&mut self, store: &ClusterStore, source: &Source<T>) {
        self.seen.clear();
        self.before = T::table(&store.read()).keys().filter(|key| (source.owns)(key)).cloned().collect();
    }

    /// Removes what was there and is not in the list.
    fn end(&mut self, store: &ClusterStore, source: &Source<T>) {
        let (before, seen) = (std::mem::take(&mut self.before), std::mem::take(&mut self.seen));
        for gone in before.iter().filter(|key| !seen.contains(key)) {
            store.forget::<T>(gone);
        }
        // A kind that several lists fill keeps its bad objects until they are seen again.
        if source.is_alone {
            let seen: BTreeSet<String> = seen.iter().map(ToString::to_string).collect();
            store.retain_undecodable(T::KIND, |key| seen.contains(key));
        }
    }
}

/// What devices read of a pod. A pod that cannot be read is told when it is stored.
fn note_devices(store: &ClusterStore, raw: &RawObject) {
    // Most pods want none, and there may be many.
    let devices = match decode::devices::may_want_devices(&raw.json) {
        true => decode::devices::pod_devices(&raw.json).ok().flatten(),
        false => None,
    };
    store.note_devices(&raw.uid(), devices);
}

/// What devices read of the pods that a DaemonSet will make, and what admission may add to their requests.
fn note_daemon_set(store: &ClusterStore, raw: &RawObject) {
    store.note_template_resources(&raw.uid(), TemplateResources::of_daemon_set(&raw.json));
    store.note_devices(&raw.uid(), decode::devices::daemon_set_devices(&raw.json).ok().flatten());
}

fn kubernetes_minor(minor: &str) -> Option<KubernetesMinor> {
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    KubernetesMinor::from_minor(digits.parse().ok()?)
}

/// A kind of `resource.k8s.io`, which old API servers do not serve.
fn device_source<T: Stored>(
    resource: ApiResource,
    decode: impl Fn(&Value, Admitted<'_>) -> Result<T, decode::ObjectError> + Send + 'static,
    key: impl Fn(&RawObject) -> T::Key + Send + 'static,
) -> Source<T> {
    let from_json = move |raw: &RawObject, _: &mut decode::Context<'_>| {
        decode(&raw.json, Admitted::ByServer).map_err(|error| error.to_string())
    };
    Source { optional: true, ..Source::new(resource, from_json, key) }
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// A decoder of whole objects as one of raw objects.
fn from_json<T>(
    decode: impl Fn(&Value, &mut decode::Context<'_>) -> Result<T, decode::ObjectError> + Send + 'static,
) -> impl Fn(&RawObject, &mut decode::Context<'_>) -> Result<T, String> + Send + 'static {
    move |raw, context| decode(&raw.json, context).map_err(|error| error.to_string())
}

/// Reads a Node in both forms.
pub fn node_record(raw: &RawObject, context: &mut decode::Context<'_>) -> Result<NodeRecord, String> {
    let model = decode::node(&raw.json, context).map_err(|error| error.to_string())?;
    let mut object = core::Node::deserialize(&raw.json).map_err(|error| format!("Node {}: {error}", model.name))?;
    if let Some(status) = &mut object.status {
        status.images = None;
        status.volumes_in_use = None;
    }
    Ok(NodeRecord { model: Arc::new(model), object: Arc::new(object) })
}

fn pod_group(raw: &RawObject, context: &mut decode::Context<'_>) -> Result<PodGroupRecord, decode::ObjectError> {
    let claims = decode::devices::pod_group_claims(&raw.json)?;
    Ok(PodGroupRecord { model: Arc::new(decode::pod_group(&raw.json, context)?), claims: Arc::new(claims) })
}

fn volume_attachment(raw: &RawObject) -> Result<VolumeAttachment, String> {
    let text = |pointer: &str| raw.json.pointer(pointer).and_then(Value::as_str);
    let name = raw.name().name;
    let node_name =
        text("/spec/nodeName").ok_or_else(|| format!("VolumeAttachment {name}: spec.nodeName: is missing"))?;
    Ok(VolumeAttachment {
        node_name: node_name.into(),
        persistent_volume: text("/spec/source/persistentVolumeName").map(Arc::from),
        attached: raw.json.pointer("/status/attached").and_then(Value::as_bool).unwrap_or(false),
        name,
    })
}
