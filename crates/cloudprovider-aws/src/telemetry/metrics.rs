//! What is counted and measured, by the names and labels of karpenter-provider-aws 1.15.
//!
//! Differs: `launch-failures-once`. Karpenter counts an error of a fleet once for each NodeClaim of the batch.

use std::time::Duration;

use model::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::service::Error;

/// In seconds: from a message's time until it is handled.
const QUEUE_BUCKETS: [f64; 12] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0];
/// In seconds: how long launches wait for others of their kind.
const WINDOW_BUCKETS: [f64; 8] = [0.035, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0];
/// Machines that one request asks for.
const SIZE_BUCKETS: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
/// The only kind of calls that wait for others.
const CREATE_FLEET: &str = "create_fleet";

type Labels<const N: usize> = [(&'static str, String); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Histograms = Family<Labels<1>, Histogram, fn() -> Histogram>;

/// Clones are the same metrics.
#[derive(Debug, Clone)]
pub struct Metrics {
    received_messages: Counters<1>,
    deleted_messages: Counter,
    message_queue_duration: Histogram,
    unhealthy: Counters<1>,
    launch_failures: Counters<4>,
    termination_failures: Counters<2>,
    batch_time: Histograms,
    batch_size: Histograms,
    user_data: Family<Labels<1>, Gauge>,
    failed_calls: Counters<2>,
    incomplete_types: Family<Labels<1>, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            received_messages: Family::default(),
            deleted_messages: Counter::default(),
            message_queue_duration: Histogram::new(QUEUE_BUCKETS),
            unhealthy: Family::default(),
            launch_failures: Family::default(),
            termination_failures: Family::default(),
            batch_time: Family::new_with_constructor(|| Histogram::new(WINDOW_BUCKETS)),
            batch_size: Family::new_with_constructor(|| Histogram::new(SIZE_BUCKETS)),
            user_data: Family::default(),
            failed_calls: Family::default(),
            incomplete_types: Family::default(),
        }
    }
}

/// What could not be launched: where, how, and why by EC2's code.
#[derive(Debug)]
pub(crate) struct LaunchFailure<'a> {
    pub(crate) zone: &'a str,
    pub(crate) zone_id: &'a str,
    pub(crate) capacity_type: &'a str,
    pub(crate) reason: &'a str,
}

impl Metrics {
    /// Metrics that a registry shows, whose prefix is Karpenter's.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self {
            received_messages,
            deleted_messages,
            message_queue_duration,
            unhealthy,
            launch_failures,
            termination_failures,
            batch_time,
            batch_size,
            user_data,
            failed_calls: _,
            incomplete_types: _,
        } = metrics.clone();
        // Counters get `_total` when written.
        registry.register(
            "interruption_received_messages",
            "Messages of the interruption queue, by what they are about",
            received_messages,
        );
        registry.register(
            "interruption_deleted_messages",
            "Messages of the interruption queue that were dealt with",
            deleted_messages,
        );
        registry.register(
            "interruption_message_queue_duration_seconds",
            "Time from what a message is about until it was dealt with",
            message_queue_duration,
        );
        registry.register(
            "interruption_instance_status_unhealthy",
            "Instances that were given up because EC2 finds fault with them",
            unhealthy,
        );
        registry.register(
            "cloudprovider_instance_launch_failures",
            "Errors in answers to requests for fleets",
            launch_failures,
        );
        registry.register(
            "cloudprovider_instance_termination_failures",
            "Instances that could not be ended",
            termination_failures,
        );
        registry.register(
            "cloudprovider_batcher_batch_time_seconds",
            "How long launches waited for others of their kind",
            batch_time,
        );
        registry.register("cloudprovider_batcher_batch_size", "Instances that one request asks for", batch_size);
        registry.register(
            "ec2nodeclasses_userdata_bytes",
            "Size of the user data of a node class' instances",
            user_data,
        );
        metrics
    }

    /// Shows what Karpenter does not measure, in a registry whose prefix is ours.
    pub fn register_own(&self, registry: &mut Registry) {
        registry.register(
            "ec2_failed_calls",
            "Calls of AWS that failed and that no condition of a node class tells of",
            self.failed_calls.clone(),
        );
        registry.register(
            "ec2_incomplete_instance_types",
            "1 for each instance type of which EC2's record lacks something",
            self.incomplete_types.clone(),
        );
    }

    /// A message of the interruption queue was read.
    pub(crate) fn received(&self, message_type: &str) {
        self.received_messages.get_or_create(&[("message_type", message_type.to_owned())]).inc();
    }

    /// A message that tells of that time has left the queue.
    pub(crate) fn deleted(&self, told_at: Option<Timestamp>, now: Timestamp) {
        self.deleted_messages.inc();
        if let Some(at) = told_at {
            self.message_queue_duration.observe(now.since(at).0.max(0) as f64 / 1000.0);
        }
    }

    /// An instance was given up because EC2 finds fault with it.
    pub(crate) fn unhealthy(&self, category: &str) {
        self.unhealthy.get_or_create(&[("category", category.to_owned())]).inc();
    }

    /// An answer to a request for a fleet has an error.
    pub(crate) fn launch_failed(&self, failure: &LaunchFailure<'_>) {
        let LaunchFailure { zone, zone_id, capacity_type, reason } = *failure;
        let labels = [("zone", zone), ("zone_id", zone_id), ("capacity_type", capacity_type), ("reason", reason)];
        self.launch_failures.get_or_create(&labels.map(|(key, value)| (key, value.to_owned()))).inc();
    }

    /// An instance could not be ended.
    pub(crate) fn termination_failed(&self, zone: &str, zone_id: &str) {
        self.termination_failures.get_or_create(&[("zone", zone.to_owned()), ("zone_id", zone_id.to_owned())]).inc();
    }

    /// Launches have waited for others for so long, and became requests of such sizes.
    pub(crate) fn batched(&self, sizes: impl Iterator<Item = usize>, waited: Duration) {
        let labels = [("batcher", CREATE_FLEET.to_owned())];
        self.batch_time.get_or_create(&labels).observe(waited.as_secs_f64());
        let of_size = self.batch_size.get_or_create(&labels);
        sizes.for_each(|size| of_size.observe(size as f64));
    }

    /// The largest user data of a node class has so many bytes.
    pub(crate) fn user_data(&self, node_class: &str, bytes: usize) {
        let gauge = self.user_data.get_or_create(&[("nodeclass", node_class.to_owned())]).clone();
        gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// There is no such node class any more.
    pub(crate) fn forget_class(&self, node_class: &str) {
        self.user_data.remove(&[("nodeclass", node_class.to_owned())]);
    }

    /// A call failed that no node class depends on alone.
    pub(crate) fn call_failed(&self, error: &Error) {
        let code = error.code.as_deref().unwrap_or_default();
        self.failed_calls.get_or_create(&[("call", error.call.to_owned()), ("code", code.to_owned())]).inc();
    }

    /// These are the types of which EC2's records lack something.
    pub(crate) fn incomplete_types<'a>(&self, names: impl Iterator<Item = &'a str>) {
        self.incomplete_types.clear();
        for name in names {
            self.incomplete_types.get_or_create(&[("instance_type", name.to_owned())]).set(1);
        }
    }
}
