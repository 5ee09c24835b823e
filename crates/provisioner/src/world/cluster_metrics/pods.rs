//! How long pods take until they are bound and started.
//!
//! A pod has started when it is ready for the first time. Times of pods that waited when we began are counted from
//! their creation too, and those of pods that had started by then are not counted.

use std::collections::BTreeMap;
use std::fmt;

use model::pod::PodPhase;
use model::{NamespacedName, Pod, Timestamp, Uid};
use parking_lot::Mutex;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::runtime::metrics::{ByDevices, DURATION_BUCKETS, Histograms, age_seconds};
use crate::world::store::Delta;

/// Pods of which each gauge has a series at most; the first by name.
pub(super) const MOST: usize = 2_000;

/// A pod that has not started.
#[derive(Debug, Clone)]
struct Pending {
    name: NamespacedName,
    created_at: Timestamp,
    seen_at: Timestamp,
    is_bound: bool,
    /// `true` or `false`.
    has_devices: &'static str,
    /// Whether any plan has been made that it was in.
    is_decided: bool,
    /// When a plan had a place for it first.
    placed_at: Option<Timestamp>,
}

/// The pods that have not started, and how long those took that have.
#[derive(Debug)]
pub(super) struct Waiting {
    pods: Mutex<BTreeMap<Uid, Pending>>,
    startup_duration_seconds: Histogram,
    provisioning_bound_duration_seconds: Histograms<ByDevices>,
    provisioning_startup_duration_seconds: Histogram,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PodLabels {
    name: String,
    namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PodDeviceLabels {
    name: String,
    namespace: String,
    dynamic_resources: &'static str,
}

fn is_started(pod: &Pod) -> bool {
    pod.phase == PodPhase::Running && !pod.is_unready
}

impl Waiting {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let durations: fn() -> Histogram = || Histogram::new(DURATION_BUCKETS);
        let waiting = Self {
            pods: Mutex::default(),
            startup_duration_seconds: durations(),
            provisioning_bound_duration_seconds: Family::new_with_constructor(durations),
            provisioning_startup_duration_seconds: durations(),
        };
        registry.register(
            "startup_duration_seconds",
            "Time from a pod's creation until it was ready",
            waiting.startup_duration_seconds.clone(),
        );
        registry.register(
            "provisioning_bound_duration_seconds",
            "Time from the first plan that had a place for a pod until it was bound",
            waiting.provisioning_bound_duration_seconds.clone(),
        );
        registry.register(
            "provisioning_startup_duration_seconds",
            "Time from the first plan that had a place for a pod until it was ready",
            waiting.provisioning_startup_duration_seconds.clone(),
        );
        waiting
    }

    /// A pod is there.
    pub(super) fn seen(&self, pod: &Pod, now: Timestamp) {
        if pod.phase.is_terminal() || is_started(pod) {
            return;
        }
        let pending = Pending {
            name: pod.name.clone(),
            created_at: pod.created_at,
            seen_at: now,
            is_bound: pod.node_name.is_some(),
            has_devices: if pod.shape.resource_claims.is_empty() { "false" } else { "true" },
            is_decided: false,
            placed_at: None,
        };
        self.pods.lock().entry(pod.uid.clone()).or_insert(pending);
    }

    /// A pod has changed.
    pub(super) fn changed(&self, delta: &Delta<'_, NamespacedName, Pod>, now: Timestamp) {
        if let Some(before) = delta.before.filter(|before| delta.after.is_none_or(|after| after.uid != before.uid)) {
            self.pods.lock().remove(&before.uid);
        }
        let Some(pod) = delta.after else { return };
        // A pod that was ready once has started, whatever became of it.
        if delta.before.is_none_or(|before| before.uid != pod.uid) {
            self.seen(pod, now);
        }
        let mut pods = self.pods.lock();
        let Some(pending) = pods.get_mut(&pod.uid) else { return };
        if pod.node_name.is_some() && !pending.is_bound {
            pending.is_bound = true;
            if let Some(placed_at) = pending.placed_at {
                let labels = ByDevices { dynamic_resources: pending.has_devices.to_owned() };
                let waited = age_seconds(now.since(placed_at));
                self.provisioning_bound_duration_seconds.get_or_create(&labels).observe(waited);
            }
        }
        if is_started(pod) {
            self.startup_duration_seconds.observe(age_seconds(now.since(pending.created_at)));
            if let Some(placed_at) = pending.placed_at {
                self.provisioning_startup_duration_seconds.observe(age_seconds(now.since(placed_at)));
            }
        }
        if is_started(pod) || pod.phase.is_terminal() {
            pods.remove(&pod.uid);
        }
    }

    /// A plan was made for pods; with a time, it had a place for them.
    pub(super) fn decided<'u>(&self, uids: impl IntoIterator<Item = &'u Uid>, placed_at: Option<Timestamp>) {
        let mut pods = self.pods.lock();
        for uid in uids {
            if let Some(pending) = pods.get_mut(uid) {
                pending.is_decided = true;
                pending.placed_at = pending.placed_at.or(placed_at);
            }
        }
    }

    /// Series of the pods that wait now.
    pub(super) fn encode(&self, now: Timestamp, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut pods: Vec<Pending> = self.pods.lock().values().cloned().collect();
        pods.sort_by(|a, b| a.name.cmp(&b.name));
        let unbound = |pod: &Pending| (!pod.is_bound).then_some(pod.created_at);
        let started = |pod: &Pending| Some(pod.created_at);
        let placed_unbound = |pod: &Pending| pod.placed_at.filter(|_| !pod.is_bound);
        let placed = |pod: &Pending| pod.placed_at;
        let undecided = |pod: &Pending| (!pod.is_bound && !pod.is_decided).then_some(pod.seen_at);
        let list = Shown { pods: &pods, now };
        let plain =
            |pod: &Pending| PodLabels { name: pod.name.name.to_string(), namespace: pod.name.namespace.to_string() };
        let with_devices = |pod: &Pending| PodDeviceLabels {
            name: pod.name.name.to_string(),
            namespace: pod.name.namespace.to_string(),
            dynamic_resources: pod.has_devices,
        };
        list.series(
            ("karpenter_pods_unbound_time_seconds", "Age of pods that are not bound"),
            encoder,
            unbound,
            with_devices,
        )?;
        list.series(
            ("karpenter_pods_unstarted_time_seconds", "Age of pods that have not been ready"),
            encoder,
            started,
            plain,
        )?;
        let help = "Time since a plan had a place for pods that are not bound";
        list.series(("karpenter_pods_provisioning_unbound_time_seconds", help), encoder, placed_unbound, with_devices)?;
        let help = "Time since a plan had a place for pods that have not been ready";
        list.series(("karpenter_pods_provisioning_unstarted_time_seconds", help), encoder, placed, plain)?;
        let help = "Time since pods were seen first that no plan has been made for";
        list.series(("karpenter_pods_provisioning_scheduling_undecided_time_seconds", help), encoder, undecided, plain)
    }
}

/// Pods of which those are shown that have a time.
struct Shown<'p> {
    pods: &'p [Pending],
    now: Timestamp,
}

impl Shown<'_> {
    fn of(&self, since: impl Fn(&Pending) -> Option<Timestamp>) -> impl Iterator<Item = (&Pending, f64)> {
        let times = self.pods.iter().filter_map(move |pod| Some((pod, since(pod)?)));
        times.map(|(pod, since)| (pod, age_seconds(self.now.since(since)))).take(MOST)
    }

    /// One series for each of them, with the labels that are made of it.
    fn series<L: EncodeLabelSet>(
        &self,
        (name, help): (&str, &str),
        encoder: &mut DescriptorEncoder<'_>,
        since: impl Fn(&Pending) -> Option<Timestamp>,
        labels: impl Fn(&Pending) -> L,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (pod, seconds) in self.of(since) {
            ConstGauge::new(seconds).encode(family.encode_family(&labels(pod))?)?;
        }
        Ok(())
    }
}
