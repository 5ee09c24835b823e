//! What `/metrics` shows. Names and labels are Karpenter's; what only we have begins with `dovetail_`.
//!
//! Differs: `histograms`. Karpenter's summaries are histograms here, because quantiles of several replicas or restarts
//! cannot be added up.
//!
//! Differs: `build-info`, `scheduler-series`. There is no Go here, and no series for each plan.

use std::fmt;
use std::sync::OnceLock;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

mod format;
mod ignored_pods;
mod process;

pub(crate) use format::Format;
pub(crate) use ignored_pods::IgnoredPods;

/// Karpenter's buckets for durations, in seconds.
pub(crate) const DURATION_BUCKETS: [f64; 19] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 150.0, 300.0, 450.0, 600.0,
];
/// Doubling from one second to a bit more than half an hour.
const TERMINATION_BUCKETS: [f64; 12] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0];
/// Doubling from ten seconds to a bit more than twenty minutes.
const REBOOT_BUCKETS: [f64; 8] = [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0];
const MINUTE: f64 = 60.0;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;
const LIFETIME_BUCKETS: [f64; 15] = [
    15.0 * MINUTE,
    30.0 * MINUTE,
    45.0 * MINUTE,
    HOUR,
    2.0 * HOUR,
    4.0 * HOUR,
    6.0 * HOUR,
    8.0 * HOUR,
    12.0 * HOUR,
    DAY,
    2.0 * DAY,
    3.0 * DAY,
    5.0 * DAY,
    15.0 * DAY,
    30.0 * DAY,
];

/// A gauge of amounts that are no whole numbers.
pub(crate) type FloatGauge = Gauge<f64, std::sync::atomic::AtomicU64>;
pub(crate) type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

macro_rules! label_sets {
    ($($(#[$meta:meta])* $name:ident { $($field:ident),* })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
        pub struct $name {
            $(pub $field: String,)*
        }
    )*};
}

label_sets! {
    /// A CapacityBuffer, and where its room is.
    BufferLabels { namespace, name, state }
    /// By controller.
    ByController { controller }
    /// By whether a pod has resource claims: `true` or `false`.
    ByDevices { dynamic_resources }
    /// By NodePool.
    ByNodePool { nodepool }
    /// By NodePool and resource.
    ByResource { nodepool, resource_type }
    /// By NodePool and zone.
    ByZone { nodepool, zone }
    /// A created NodeClaim.
    CreatedLabels { nodepool, reason, min_values_relaxed }
    /// A removed NodeClaim.
    TerminatedLabels { nodepool, capacity_type, zone }
    /// A NodeClaim that we decided to remove.
    DisruptedLabels { reason, nodepool, capacity_type, consolidation_policy, termination_mode }
    /// A NodeClaim that we decided to remove because its Node is broken.
    UnhealthyLabels { condition, nodepool, capacity_type, image_id, termination_mode }
    /// By result.
    ByResult { result }
    /// A call to the cloud provider.
    CallLabels { controller, method, provider }
    /// A failed call to the cloud provider.
    CallErrorLabels { controller, method, provider, error, nodepool }
    /// A request to the API server.
    RequestLabels { verb, resource, code }
    /// A request to the API server whose deadline passed.
    TimeoutLabels { verb, resource, phase }
    /// By HTTP status code.
    ByCode { code }
    /// By DRA driver.
    ByDriver { driver }
    /// By reason.
    ByReason { reason }
    /// By kind.
    ByKind { kind }
    /// By loop.
    ByLoop { r#loop }
    /// By watch.
    ByWatch { watch }
    /// By outcome.
    ByOutcome { outcome }
    /// A pod and its node.
    PodOnNode { namespace, pod, node }
}

/// All metrics of the controller, named as they are served; their help texts are in `new`.
pub struct Metrics {
    registry: Registry,
    /// What the provider shows, once there is one.
    of_provider: OnceLock<Registry>,

    pub scheduler_scheduling_duration_seconds: Histograms<ByController>,
    pub scheduler_queue_depth: Family<ByController, Gauge>,
    pub ignored_pods: IgnoredPods,
    pub scheduler_unschedulable_pods_count: Family<ByController, Gauge>,
    pub pods_scheduling_decision_duration_seconds: Histogram,
    pub pods_bound_duration_seconds: Histograms<ByDevices>,

    pub nodepools_limit: Family<ByResource, FloatGauge>,
    pub nodepools_usage: Family<ByResource, FloatGauge>,
    pub nodepools_cost: Family<ByNodePool, FloatGauge>,
    pub nodepools_cost_tracker_errors: Family<ByNodePool, Counter>,

    pub nodeclaims_created: Family<CreatedLabels, Counter>,
    pub nodeclaims_terminated: Family<TerminatedLabels, Counter>,
    pub nodeclaims_disrupted: Family<DisruptedLabels, Counter>,
    pub nodeclaims_unhealthy_disrupted: Family<UnhealthyLabels, Counter>,
    pub nodeclaims_instance_termination_duration_seconds: Histograms<ByNodePool>,
    pub nodeclaims_termination_duration_seconds: Histograms<ByNodePool>,

    pub nodes_created: Family<ByZone, Counter>,
    pub nodes_terminated: Family<ByZone, Counter>,
    pub nodes_termination_duration_seconds: Histograms<ByNodePool>,
    pub nodes_drained: Family<ByNodePool, Counter>,
    pub nodes_lifetime_duration_seconds: Histograms<ByNodePool>,
    pub nodes_reboots: Family<ByResult, Counter>,
    pub nodes_reboot_duration_seconds: Histograms<ByResult>,
    pub nodes_reboot_recovery_duration_seconds: Histogram,

    pub pods_disruption_initiated: Family<DisruptedLabels, Counter>,
    pub pods_eviction_requests: Family<ByCode, Counter>,
    pub pods_drained: Family<ByReason, Counter>,

    pub cluster_state_node_count: Gauge,
    pub cluster_state_synced: Gauge,
    pub cluster_state_unsynced_time_seconds: FloatGauge,

    pub cloudprovider_duration_seconds: Histograms<CallLabels>,
    pub cloudprovider_errors: Family<CallErrorLabels, Counter>,

    /// Requests to the API server; `client::requests` says how they are named.
    pub api_requests: Family<RequestLabels, Counter>,
    /// Requests whose deadline passed, by what was waited for; `client::deadlines`.
    pub api_timeouts: Family<TimeoutLabels, Counter>,
    /// Whether a loop hangs, and for how long nothing was heard on a watch; `beats`.
    pub loop_hangs: Family<ByLoop, Gauge>,
    pub watch_silent_seconds: Family<ByWatch, FloatGauge>,
    /// Objects that the API server has and that could not be decoded.
    pub undecodable_objects: Family<ByKind, Gauge>,
    /// Parts of plans that were dropped because the cluster had changed.
    pub stale_plans: Counter,
    /// Machines that did not take in the pods that they were launched for.
    pub ineffective_launches: Family<ByNodePool, Counter>,
    /// Pods for which nothing is launched because launches were in vain, and pods that the planner panics with.
    pub braked_pods: Gauge,
    pub set_aside_pods: Gauge,
    /// How often the planner panicked.
    pub planner_panics: Counter,
    /// Pods on nodes that cannot be read.
    pub unreadable_pods: Family<PodOnNode, Gauge>,
    /// What the machines of the last plan cost that launched any, and what no plan for the same pods can cost less
    /// than.
    pub plan_price_dollars_per_hour: FloatGauge,
    pub plan_lower_bound_dollars_per_hour: FloatGauge,
    /// Pods that room is kept for, by where it is.
    pub capacity_buffer_pods: Family<BufferLabels, Gauge>,
    /// Tolerations given to pods, so that they may enter their planned machines, by outcome.
    pub hand_over_tolerations: Family<ByOutcome, Counter>,
    /// Nominations of pods to planned machines, by outcome.
    pub hand_over_nominations: Family<ByOutcome, Counter>,
    /// Machines opened to the scheduler, by how it was decided.
    pub hand_over_machines: Family<ByOutcome, Counter>,
    /// Machines whose DRA drivers published late, or something else than templates said, by reason.
    pub device_mismatches: Family<ByReason, Counter>,
    /// Drivers on nodes that publish nothing complete at the moment, and whose last devices count.
    pub held_device_drivers: Gauge,
    /// Plans in which pods or daemons want devices, and the steps that allocating these took.
    pub device_plan_duration_seconds: Histogram,
    pub device_plan_steps: Counter,
    /// Pods that the last plan found no place for because of devices.
    pub device_refusals: Family<ByReason, Gauge>,
    /// Instance types whose devices templates described in the last plan.
    pub device_templates: Family<ByDriver, Gauge>,
    /// Devices that pods were planned to get on launched machines, and devices of machines that came as described.
    pub devices_planned: Family<ByDriver, Counter>,
    pub devices_published: Family<ByDriver, Counter>,
    /// Events that were not written because too many were waiting.
    pub dropped_events: Counter,
}

impl Metrics {
    /// All metrics at zero.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let durations: fn() -> Histogram = || Histogram::new(DURATION_BUCKETS);
        let terminations: fn() -> Histogram = || Histogram::new(TERMINATION_BUCKETS);
        let reboots: fn() -> Histogram = || Histogram::new(REBOOT_BUCKETS);
        let lifetimes: fn() -> Histogram = || Histogram::new(LIFETIME_BUCKETS);
        let mut metrics = Self {
            scheduler_scheduling_duration_seconds: Family::new_with_constructor(durations),
            scheduler_queue_depth: Family::default(),
            ignored_pods: IgnoredPods::default(),
            scheduler_unschedulable_pods_count: Family::default(),
            pods_scheduling_decision_duration_seconds: durations(),
            pods_bound_duration_seconds: Family::new_with_constructor(durations),
            nodepools_limit: Family::default(),
            nodepools_usage: Family::default(),
            nodepools_cost: Family::default(),
            nodepools_cost_tracker_errors: Family::default(),
            nodeclaims_created: Family::default(),
            nodeclaims_terminated: Family::default(),
            nodeclaims_disrupted: Family::default(),
            nodeclaims_unhealthy_disrupted: Family::default(),
            nodeclaims_instance_termination_duration_seconds: Family::new_with_constructor(terminations),
            nodeclaims_termination_duration_seconds: Family::new_with_constructor(terminations),
            nodes_created: Family::default(),
            nodes_terminated: Family::default(),
            nodes_termination_duration_seconds: Family::new_with_constructor(terminations),
            nodes_drained: Family::default(),
            nodes_lifetime_duration_seconds: Family::new_with_constructor(lifetimes),
            nodes_reboots: Family::default(),
            nodes_reboot_duration_seconds: Family::new_with_constructor(reboots),
            nodes_reboot_recovery_duration_seconds: reboots(),
            pods_disruption_initiated: Family::default(),
            pods_eviction_requests: Family::default(),
            pods_drained: Family::default(),
            cluster_state_node_count: Gauge::default(),
            cluster_state_synced: Gauge::default(),
            cluster_state_unsynced_time_seconds: Gauge::default(),
            cloudprovider_duration_seconds: Family::new_with_constructor(durations),
            cloudprovider_errors: Family::default(),
            api_requests: Family::default(),
            api_timeouts: Family::default(),
            loop_hangs: Family::default(),
            watch_silent_seconds: Family::default(),
            undecodable_objects: Family::default(),
            stale_plans: Counter::default(),
            ineffective_launches: Family::default(),
            braked_pods: Gauge::default(),
            set_aside_pods: Gauge::default(),
            planner_panics: Counter::default(),
            unreadable_pods: Family::default(),
            plan_price_dollars_per_hour: FloatGauge::default(),
            plan_lower_bound_dollars_per_hour: FloatGauge::default(),
            capacity_buffer_pods: Family::default(),
            hand_over_tolerations: Family::default(),
            hand_over_nominations: Family::default(),
            hand_over_machines: Family::default(),
            device_mismatches: Family::default(),
            held_device_drivers: Gauge::default(),
            device_plan_duration_seconds: durations(),
            device_plan_steps: Counter::default(),
            device_refusals: Family::default(),
            device_templates: Family::default(),
            devices_planned: Family::default(),
            devices_published: Family::default(),
            dropped_events: Counter::default(),
            registry: Registry::default(),
            of_provider: OnceLock::new(),
        };
        metrics.register_karpenter(registry.sub_registry_with_prefix("karpenter"));
        metrics.register_own(registry.sub_registry_with_prefix("dovetail"));
        registry.register_collector(Box::new(process::Process::new()));
        metrics.registry = registry;
        metrics
    }

    /// Where a room that `runtime` does not know adds what it shows.
    pub(crate) fn registry_mut(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// Adds what the provider shows of itself. There is one, which is made after these are served; another one is left
    /// out.
    pub(crate) fn set_provider(&self, registry: Registry) {
        drop(self.of_provider.set(registry));
    }

    /// Everything, as OpenMetrics.
    ///
    /// # Errors
    /// Only if a metric's own encoding fails.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode_registry(&mut text, &self.registry)?;
        if let Some(registry) = self.of_provider.get() {
            text::encode_registry(&mut text, registry)?;
        }
        text::encode_eof(&mut text)?;
        Ok(text)
    }

    /// Everything in that format.
    ///
    /// # Errors
    /// Only if a metric's own encoding fails.
    pub fn render_as(&self, format: Format) -> Result<String, fmt::Error> {
        let text = self.render()?;
        Ok(match format {
            Format::OpenMetrics => text,
            Format::Prometheus => format::prometheus(&text),
        })
    }

    /// Gives each of Karpenter's families a series.
    #[cfg(test)]
    pub(crate) fn touch(&self) {
        macro_rules! touch {
            ($($field:ident,)*) => {
                $(drop(self.$field.get_or_create(&Default::default()));)*
            };
        }
        touch! {
            scheduler_scheduling_duration_seconds, scheduler_queue_depth, scheduler_unschedulable_pods_count,
            pods_bound_duration_seconds, nodepools_limit, nodepools_usage, nodepools_cost,
            nodepools_cost_tracker_errors, nodeclaims_created, nodeclaims_terminated, nodeclaims_disrupted,
            nodeclaims_unhealthy_disrupted, nodeclaims_instance_termination_duration_seconds,
            nodeclaims_termination_duration_seconds, nodes_created, nodes_terminated,
            nodes_termination_duration_seconds, nodes_drained, nodes_lifetime_duration_seconds, nodes_reboots,
            nodes_reboot_duration_seconds, pods_disruption_initiated, pods_eviction_requests, pods_drained,
            cloudprovider_duration_seconds, cloudprovider_errors,
        }
    }

    // Counters get `_total` when written, info gets `_info`; `_seconds` is part of the names registered here.
    fn register_karpenter(&self, registry: &mut Registry) {
        macro_rules! register {
            ($($field:ident: $help:literal,)*) => {
                $(registry.register(stringify!($field), $help, self.$field.clone());)*
            };
        }
        register! {
            scheduler_scheduling_duration_seconds: "Duration of one plan",
            scheduler_queue_depth: "Pods that wait to be planned",
            scheduler_unschedulable_pods_count: "Pods that were unschedulable in the last plan",
            pods_scheduling_decision_duration_seconds: "Time from first sight of a pod to the first decision about it",
            pods_bound_duration_seconds: "Time from a pod's creation until it was bound",
            nodepools_limit: "Limit of a NodePool",
            nodepools_usage: "What a NodePool's machines add up to",
            nodepools_cost_tracker_errors: "Machines of a NodePool whose price is not known, each time they were added up",
            nodeclaims_created: "NodeClaims created",
            nodeclaims_terminated: "NodeClaims whose machine is gone",
            nodeclaims_disrupted: "NodeClaims that were deleted by the controller",
            nodeclaims_unhealthy_disrupted: "NodeClaims that were deleted because their Node is broken",
            nodeclaims_instance_termination_duration_seconds: "Time from asking the provider until the machine was gone",
            nodeclaims_termination_duration_seconds: "Time from the deletion of a NodeClaim until it was gone",
            nodes_created: "Nodes that registered",
            nodes_terminated: "Nodes that were removed",
            nodes_termination_duration_seconds: "Time from the deletion of a Node until it was gone",
            nodes_drained: "Nodes that were drained",
            nodes_lifetime_duration_seconds: "Age of Nodes when they were removed",
            nodes_reboots: "Reboots of broken Nodes that are over, by how they ended",
            nodes_reboot_duration_seconds: "Time from the request of a reboot until it was over",
            nodes_reboot_recovery_duration_seconds: "Time from asking the provider for a reboot until the Node was back",
            pods_disruption_initiated: "Pods that have to move because their NodeClaim was deleted by the controller",
            pods_eviction_requests: "Answers to eviction requests",
            pods_drained: "Pods that left a drained node",
            cluster_state_node_count: "Nodes in the cluster",
            cluster_state_synced: "1 once every kind has been listed",
            cluster_state_unsynced_time_seconds: "How long the first lists have taken so far; 0 once they are there",
            cloudprovider_duration_seconds: "Duration of calls to the cloud provider",
            cloudprovider_errors: "Failed calls to the cloud provider",
        }
        registry.register(
            "scheduler_ignored_pods_count",
            "Pods that are not planned: they cannot be read, or are to be left to other nodes",
            self.ignored_pods.gauge.clone(),
        );
        // A gauge of that name, in spite of the ending of counters.
        registry.register(
            "nodepools_cost_total",
            "What a NodePool's machines cost, in dollars per hour",
            self.nodepools_cost.clone(),
        );
        registry.register(
            "build",
            "What is running",
            Info::new([("version", env!("CARGO_PKG_VERSION")), ("arch", std::env::consts::ARCH)]),
        );
    }

    fn register_own(&self, registry: &mut Registry) {
        macro_rules! register {
            ($($field:ident: $help:literal,)*) => {
                $(registry.register(stringify!($field), $help, self.$field.clone());)*
            };
        }
        register! {
            api_requests: "Answers of the API server to requests",
            api_timeouts: "Requests to the API server that were given up because their deadline passed",
            loop_hangs: "1 while a loop of the controller is due and silent for longer than its bound",
            watch_silent_seconds: "Time since the API server last said something on a watch",
            undecodable_objects: "Objects that could not be decoded",
            ineffective_launches: "Machines that did not take in the pods they were launched for",
            braked_pods: "Pods for which nothing is launched for a while because launches were in vain",
            set_aside_pods: "Pods that are not planned because the planner panics with them",
            planner_panics: "Classes of pods that made the planner panic, each time one was found",
            unreadable_pods: "Pods on nodes that cannot be read, whose nodes count as full",
            stale_plans: "Parts of plans that were dropped because the cluster had changed",
            plan_price_dollars_per_hour: "Price of the machines of the last plan that launched any",
            plan_lower_bound_dollars_per_hour: "No plan for the same pods costs less",
            capacity_buffer_pods: "Pods that capacity buffers keep room for, in the last plan",
            hand_over_tolerations: "Tolerations given to pods for their planned machines",
            hand_over_nominations: "Nominations of pods to planned machines",
            hand_over_machines: "Machines opened to the scheduler",
            device_mismatches: "Machines whose devices came late or are not as described",
            held_device_drivers: "Drivers on nodes that are being replaced, whose last devices count",
            device_plan_duration_seconds: "Duration of plans in which devices are wanted",
            device_plan_steps: "Steps that the allocation of devices took",
            device_refusals: "Pods that were unschedulable in the last plan because of devices",
            device_templates: "Instance types whose devices templates describe",
            devices_planned: "Devices that pods were planned to get on machines launched for them",
            devices_published: "Devices that drivers were expected to publish on machines where they have published",
            dropped_events: "Events that were not written because too many were waiting",
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Seconds, for a histogram.
pub(crate) fn seconds(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64()
}

/// How long something lasted by two clocks that may differ, in seconds, for a metric: what seems to lie ahead is new.
pub(crate) fn age_seconds(span: model::DurationMs) -> f64 {
    span.0.max(0) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_provider_shows_comes_before_the_end() {
        let metrics = Metrics::new();
        let mut registry = Registry::default();
        let counter: Counter = Counter::default();
        registry.register("karpenter_of_provider", "Something of the provider", counter.clone());
        metrics.set_provider(registry);
        counter.inc();
        let text = metrics.render().unwrap();
        assert!(text.contains("\nkarpenter_of_provider_total 1\n"), "{text}");
        assert_eq!((text.matches("# EOF").count(), text.ends_with("# EOF\n")), (1, true));
    }

    #[test]
    fn names_and_labels_are_karpenters() {
        let metrics = Metrics::new();
        metrics
            .nodeclaims_created
            .get_or_create(&CreatedLabels {
                nodepool: "default".into(),
                reason: "provisioned".into(),
                min_values_relaxed: "false".into(),
            })
            .inc();
        metrics
            .cloudprovider_duration_seconds
            .get_or_create(&CallLabels {
                controller: "nodeclaim.lifecycle".into(),
                method: "Create".into(),
                provider: "kwok".into(),
            })
            .observe(0.3);
        let text = metrics.render().unwrap();
        for line in [
            r#"karpenter_nodeclaims_created_total{nodepool="default",reason="provisioned",min_values_relaxed="false"} 1"#,
            r#"karpenter_cloudprovider_duration_seconds_bucket{le="0.25",controller="nodeclaim.lifecycle",method="Create",provider="kwok"} 0"#,
            r#"karpenter_cloudprovider_duration_seconds_bucket{le="0.5",controller="nodeclaim.lifecycle",method="Create",provider="kwok"} 1"#,
            "karpenter_cluster_state_synced 0",
            "dovetail_stale_plans_total 0",
            "dovetail_device_plan_steps_total 0",
            "dovetail_device_plan_duration_seconds_count 0",
        ] {
            assert!(text.lines().any(|other| other == line), "no line {line} in\n{text}");
        }
        assert!(text.contains("karpenter_build_info{version="));
        let error = CallErrorLabels {
            controller: "nodeclaim.lifecycle".into(),
            method: "Create".into(),
            provider: "kwok".into(),
            error: "unknown".into(),
            nodepool: "default".into(),
        };
        metrics.cloudprovider_errors.get_or_create(&error).inc();
        metrics.pods_bound_duration_seconds.get_or_create(&ByDevices { dynamic_resources: "true".into() }).observe(1.0);
        let text = metrics.render_as(Format::Prometheus).unwrap();
        for line in [
            r#"karpenter_cloudprovider_errors_total{controller="nodeclaim.lifecycle",method="Create",provider="kwok",error="unknown",nodepool="default"} 1"#,
            r#"karpenter_pods_bound_duration_seconds_count{dynamic_resources="true"} 1"#,
            "# TYPE karpenter_cloudprovider_errors_total counter",
            "# TYPE karpenter_build_info gauge",
            "# TYPE process_cpu_seconds_total counter",
        ] {
            assert!(text.lines().any(|other| other == line), "no line {line} in\n{text}");
        }
        let known = ["counter", "gauge", "histogram", "summary", "untyped"];
        let mut types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        assert!(types.all(|(_, kind)| known.contains(&kind)), "{text}");
        assert!(text.contains("\nprocess_resident_memory_bytes "));
    }
}
