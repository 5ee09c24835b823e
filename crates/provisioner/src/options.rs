//! What the user asked for: flags and environment variables, checked once.
//!
//! Flags and variables have Karpenter's names and defaults, so that its chart values carry over. [`RawOptions`] is what
//! clap reads; [`Options`] is what the program works with, and every value in it is valid.
//!
//! Differs: `default-options`, `unknown-options`. The gate NodeOverlay is on, and `--ignore-dra-requests` is false.
//! Options of Karpenter that mean nothing here (`--karpenter-service`, `--memory-limit`, `--log-output-paths`,
//! `--disable-controller-warmup` …) are accepted and ignored, and said so once at start.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, Args};
use decode::scheduler_config::SchedulerConfig;
use model::{DurationMs, PriceNanoUsdPerHour};
use scheduling::snapshot::expiration::{ExpirationPolicy, ExpirationRules};
pub use scheduling::snapshot::{MinValuesPolicy, PreferencePolicy, PrioritizedListPolicy, SchedulerNames};

mod feature_gates;
mod parse;

pub use feature_gates::FeatureGates;
pub use parse::go_bool;
use parse::go_duration;
pub use parse::price;

/// A value that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--{flag}: {value:?} {reason}")]
pub struct Error {
    /// The flag's name.
    pub flag: &'static str,
    /// What was given.
    pub value: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Flags of `dovetail run`, as given.
#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags are what these are")]
pub struct RawOptions {
    /// Port of /metrics
    #[arg(long, env = "METRICS_PORT", default_value_t = 8080, help_heading = "Serving")]
    pub metrics_port: u16,
    /// Leave the series of single nodes and pods out of the metrics
    #[arg(long, env = "DISABLE_CLUSTER_STATE_OBSERVABILITY", default_value_t = false, value_parser = go_bool,
          action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true,
          help_heading = "Serving")]
    pub disable_cluster_state_observability: bool,
    /// Serve metrics by TLS, and only to whom the API server lets get /metrics (TokenReview, SubjectAccessReview)
    #[arg(long, env = "SECURE_METRICS", default_value_t = false, value_parser = go_bool,
          action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true,
          help_heading = "Serving")]
    pub secure_metrics: bool,
    /// Folder with tls.crt and tls.key for --secure-metrics [default: a new self-signed certificate at each start]
    #[arg(long, env = "METRICS_TLS_FOLDER", help_heading = "Serving")]
    pub metrics_tls_folder: Option<std::path::PathBuf>,
    /// Port of /healthz and /readyz
    #[arg(long, env = "HEALTH_PROBE_PORT", default_value_t = 8081, help_heading = "Serving")]
    pub health_probe_port: u16,

    /// Calls per second to the API server, on average
    #[arg(long, env = "KUBE_CLIENT_QPS", default_value_t = 200, help_heading = "API server")]
    pub kube_client_qps: u32,
    /// Calls to the API server that may be made in a burst
    #[arg(long, env = "KUBE_CLIENT_BURST", default_value_t = 300, help_heading = "API server")]
    pub kube_client_burst: u32,

    /// Run without a Lease; for a single replica only
    #[arg(long, env = "DISABLE_LEADER_ELECTION", default_value_t = false, value_parser = go_bool,
          action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true,
          help_heading = "Leader election")]
    pub disable_leader_election: bool,
    /// Name of the Lease
    #[arg(
        long,
        env = "LEADER_ELECTION_NAME",
        default_value = "karpenter-leader-election",
        help_heading = "Leader election"
    )]
    pub leader_election_name: String,
    /// Namespace of the Lease [default: the pod's own, else kube-system]
    #[arg(long, env = "LEADER_ELECTION_NAMESPACE", help_heading = "Leader election")]
    pub leader_election_namespace: Option<String>,
    /// Start even if a Lease of that name is held in another namespace, for instance by a Karpenter that still runs
    #[arg(long, env = "ALLOW_OTHER_LEADER", default_value_t = false, value_parser = go_bool,
          action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true,
          help_heading = "Leader election")]
    pub allow_other_leader: bool,

    /// Longest time to collect pending pods before a plan is made
    #[arg(long, env = "BATCH_MAX_DURATION", default_value = "10s", value_parser = go_duration, help_heading = "Planning")]
    pub batch_max_duration: DurationMs,
    /// Make a plan once no new pod has come for this long
    #[arg(long, env = "BATCH_IDLE_DURATION", default_value = "1s", value_parser = go_duration, help_heading = "Planning")]
    pub batch_idle_duration: DurationMs,
    /// How long pods wait for another machine after one was launched that could not take them; three times as long
    /// after each further one in a row
    #[arg(long, env = "INEFFECTIVE_LAUNCH_DELAY", default_value = "20s", value_parser = go_duration, help_heading = "Planning")]
    pub ineffective_launch_delay: DurationMs,
    /// Which preferences of pods the plan keeps: Respect keeps those that cost nothing, or no more than
    /// --preference-price; Ignore leaves them to kube-scheduler
    #[arg(long, env = "PREFERENCE_POLICY", default_value = "Respect", help_heading = "Planning")]
    pub preference_policy: String,
    /// What keeping a preference may cost, in dollars per hour for each pod and each point of its weight (1 to 100)
    #[arg(long, env = "PREFERENCE_PRICE", default_value = "0", value_parser = price, value_name = "USD", help_heading = "Planning")]
    pub preference_price: PriceNanoUsdPerHour,
    /// What the eviction of a pod costs, in dollars: consolidation only goes on with what saves more within
    /// --consolidation-horizon than its evictions cost. 0 is Karpenter's rule, that any saving pays
    #[arg(long, env = "EVICTION_PRICE", default_value = "0.021", value_parser = price, value_name = "USD", help_heading = "Planning")]
    pub eviction_price: PriceNanoUsdPerHour,
    /// How long a saving of consolidation counts against --eviction-price
    #[arg(long, env = "CONSOLIDATION_HORIZON", default_value = "1h", value_parser = go_duration, help_heading = "Planning")]
    pub consolidation_horizon: DurationMs,
    /// How long pods with devices take to start anew elsewhere: consolidation counts their machine's price for that
    /// time as a cost beside --eviction-price
    #[arg(long, env = "DEVICE_RESTART_TIME", default_value = "5m", value_parser = go_duration, help_heading = "Planning")]
    pub device_restart_time: DurationMs,
    /// How to choose between the alternatives (firstAvailable) of a claim: order takes the first that any machine
    /// gives, price the cheapest machine that gives any
    #[arg(long, env = "PRIORITIZED_LIST_POLICY", default_value = "order", help_heading = "Planning")]
    pub prioritized_list_policy: String,
    /// What a node costs besides its machine (licences, addresses, agents), in dollars per hour; a higher price makes
    /// fewer, larger machines
    #[arg(long, env = "NODE_PRICE", default_value = "0", value_parser = price, value_name = "USD", help_heading = "Planning")]
    pub node_price: PriceNanoUsdPerHour,
    /// What happens when minValues cannot be met: Strict or BestEffort
    #[arg(long, env = "MIN_VALUES_POLICY", default_value = "Strict", help_heading = "Planning")]
    pub min_values_policy: String,
    /// Ignore pods with resource claims, and do not count DaemonSets with claims as overhead
    #[arg(long, env = "IGNORE_DRA_REQUESTS", default_value_t = false, value_parser = go_bool,
          action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true,
          help_heading = "Planning")]
    pub ignore_dra_requests: bool,
    /// How long a machine's DRA drivers may take to publish the devices that templates describe, before the machine is
    /// planned without them
    #[arg(long, env = "DRA_PUBLISH_TIMEOUT", default_value = "15m", value_parser = go_duration, help_heading = "Planning")]
    pub dra_publish_timeout: DurationMs,
    /// How long the last complete devices of a node count after its driver took them away: while drivers are rolled
    /// out, pods wait for these devices and get no other machines
    #[arg(long, env = "DRA_HOLD_TIMEOUT", default_value = "5m", value_parser = go_duration, help_heading = "Planning")]
    pub dra_hold_timeout: DurationMs,
    /// What becomes of machines older than their expireAfter: Forceful deletes them, Graceful replaces them first
    #[arg(long, env = "EXPIRATION_POLICY", default_value = "Forceful", help_heading = "Planning")]
    pub expiration_policy: String,
    /// How long it is tried to replace machines the graceful way before they are deleted
    #[arg(long, env = "GRACEFUL_EXPIRATION_TIMEOUT", default_value = "24h", value_parser = go_duration,
          help_heading = "Planning")]
    pub graceful_expiration_timeout: DurationMs,
    /// How long the replacements of nodes that are disrupted may take until they are ready; after that the nodes stay
    #[arg(long, env = "REPLACEMENT_TIMEOUT", default_value = "10m", value_parser = go_duration, help_heading = "Planning")]
    pub replacement_timeout: DurationMs,
    /// What becomes of devices that machines publish and no template describes: off, propose (an event), or apply (a
    /// generated NodeOverlay below all others)
    #[arg(long, env = "LEARN_DEVICES", default_value = "off", help_heading = "Planning")]
    pub learn_devices: String,
    /// Milli-CPU that the process may use; sizes its worker pools
    #[arg(long, env = "CPU_REQUESTS", default_value_t = 1000, help_heading = "Planning")]
    pub cpu_requests: u32,
    /// Feature gates, such as NodeRepair=true,NodeOverlay=false
    #[arg(long, env = "FEATURE_GATES", default_value = "", help_heading = "Planning")]
    pub feature_gates: String,
    /// With NodeRepair: delete broken nodes at once, as Karpenter did before 1.15, without budgets, reboots or
    /// do-not-repair
    #[arg(long, env = "LEGACY_NODE_REPAIR", default_value_t = false, value_parser = go_bool,
          action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true,
          help_heading = "Planning")]
    pub legacy_node_repair: bool,
    /// What kube-scheduler is told of pods without spread constraints, as YAML or JSON:
    /// {podTopologySpread: {defaultConstraints: [...]}}
    #[arg(
        long,
        env = "SCHEDULER_CONFIG",
        default_value = "",
        hide_default_value = true,
        value_name = "DOCUMENT",
        help_heading = "Planning"
    )]
    pub scheduler_config: String,
    /// Names of the schedulers whose pods get machines, such as default-scheduler,batch; kube-scheduler's rules apply
    /// to all [default: all schedulers]
    #[arg(
        long,
        env = "SCHEDULER_NAMES",
        default_value = "",
        hide_default_value = true,
        value_name = "NAMES",
        help_heading = "Planning"
    )]
    pub scheduler_names: String,
    /// Plan and log, but write nothing to the cluster or the cloud
    #[arg(long, env = "DRY_RUN", default_value_t = false, value_parser = go_bool,
          action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true,
          help_heading = "Planning")]
    pub dry_run: bool,

    /// How planned pods get onto their machines
    #[arg(
        long,
        env = "HAND_OVER",
        default_value = "tolerate",
        value_enum,
        ignore_case = true,
        help_heading = "Hand-over"
    )]
    pub hand_over: HandOverMode,
    /// Longest time that a ready machine stays reserved for its planned pods; up to five times as long while they keep
    /// coming
    #[arg(long, env = "HAND_OVER_MAX_HOLD", default_value = "60s", value_parser = go_duration, help_heading = "Hand-over")]
    pub hand_over_max_hold: DurationMs,
    /// How long a machine's taints must not have changed before pods are nominated
    #[arg(long, env = "HAND_OVER_QUIET", default_value = "60ms", value_parser = go_duration, help_heading = "Hand-over")]
    pub hand_over_quiet: DurationMs,
    /// How many machines may be opened at once
    #[arg(long, env = "HAND_OVER_BATCH", default_value_t = 50, help_heading = "Hand-over")]
    pub hand_over_batch: u32,
    /// How often a pod may be nominated, or given a toleration
    #[arg(long, env = "HAND_OVER_PATCHES_PER_POD", default_value_t = 3, help_heading = "Hand-over")]
    pub hand_over_patches_per_pod: u32,

    /// Log level: debug, info, warn or error; or a filter such as info,provisioner::store=debug
    #[arg(long, env = "LOG_LEVEL", default_value = "info", help_heading = "Logs")]
    pub log_level: String,
    /// Log format: json or text
    #[arg(long, env = "LOG_FORMAT", default_value = "json", help_heading = "Logs")]
    pub log_format: String,

    #[command(flatten)]
    ignored: IgnoredOptions,
}

/// Options of Karpenter that have no meaning here.
#[derive(Debug, Clone, Default, Args)]
struct IgnoredOptions {
    #[arg(long, env = "KARPENTER_SERVICE", hide = true)]
    karpenter_service: Option<String>,
    #[arg(long, env = "ENABLE_PROFILING", num_args = 0..=1, default_missing_value = "true", require_equals = true, hide = true)]
    enable_profiling: Option<String>,
    #[arg(long, env = "DISABLE_CONTROLLER_WARMUP", num_args = 0..=1, default_missing_value = "true", require_equals = true, hide = true)]
    disable_controller_warmup: Option<String>,
    #[arg(long, env = "MEMORY_LIMIT", hide = true)]
    memory_limit: Option<String>,
    #[arg(long, env = "LOG_OUTPUT_PATHS", hide = true)]
    log_output_paths: Option<String>,
    #[arg(long, env = "LOG_ERROR_OUTPUT_PATHS", hide = true)]
    log_error_output_paths: Option<String>,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// How planned pods get onto their machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum HandOverMode {
    /// New machines have a taint, which only their planned pods get a toleration of
    Tolerate,
    /// New machines have a taint; planned pods are nominated right before it is taken off
    Nominate,
    /// New machines have no such taint; kube-scheduler alone decides
    #[value(alias = "false")]
    Off,
}

impl HandOverMode {
    /// As the option has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tolerate => "tolerate",
            Self::Nominate => "nominate",
            Self::Off => "off",
        }
    }
}

/// What becomes of devices that no template describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LearnDevices {
    /// Nothing.
    Off,
    /// They are told of.
    Propose,
    /// NodeOverlays are generated.
    Apply,
}

/// Whether and how planned pods are handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOverOptions {
    /// By which means.
    pub mode: HandOverMode,
    /// Longest time that a machine is held back once nothing else keeps pods away and no planned pods come.
    pub max_hold: Duration,
    /// How long no taint may have changed before pods are nominated.
    pub quiet: Duration,
    /// Most machines opened together.
    pub batch: usize,
    /// Most nominations of one pod.
    pub patches_per_pod: u32,
}

/// Leader election, if it is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElectionOptions {
    /// Name of the Lease.
    pub name: String,
    /// Its namespace, if the user gave one.
    pub namespace: Option<String>,
    /// Whether to start beside a Lease of that name that is held in another namespace.
    pub allow_other_leader: bool,
}

/// What the user asked for, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are documented on the flags of the same names in `RawOptions`")]
pub struct Options {
    pub metrics_port: u16,
    pub disable_cluster_state_observability: bool,
    pub secure_metrics: bool,
    pub metrics_tls_folder: Option<std::path::PathBuf>,
    pub health_probe_port: u16,
    pub kube_client_qps: u32,
    pub kube_client_burst: u32,
    pub leader_election: Option<LeaderElectionOptions>,
    pub batch_max_duration: Duration,
    pub batch_idle_duration: Duration,
    pub ineffective_launch_delay: DurationMs,
    pub preference_policy: PreferencePolicy,
    pub preference_price: PriceNanoUsdPerHour,
    /// What an eviction costs, in nano-dollars.
    pub eviction_price: PriceNanoUsdPerHour,
    pub consolidation_horizon: DurationMs,
    pub device_restart_time: DurationMs,
    pub prioritized_list_policy: PrioritizedListPolicy,
    pub node_price: PriceNanoUsdPerHour,
    pub min_values_policy: MinValuesPolicy,
    pub ignore_dra_requests: bool,
    pub dra_publish_timeout: DurationMs,
    /// How long lost devices count.
    pub dra_hold_timeout: DurationMs,
    /// `--expiration-policy` and `--graceful-expiration-timeout`.
    pub expiration: ExpirationRules,
    pub replacement_timeout: DurationMs,
    pub learn_devices: LearnDevices,
    /// Worker threads for planning: the processors that were asked for, rounded up.
    pub planner_threads: usize,
    pub feature_gates: FeatureGates,
    pub legacy_node_repair: bool,
    pub scheduler_config: SchedulerConfig,
    pub scheduler_names: SchedulerNames,
    pub dry_run: bool,
    pub hand_over: HandOverOptions,
    pub log_level: String,
    pub log_format: LogFormat,
    /// Flags that were given and mean nothing here.
    pub ignored: Vec<&'static str>,
}

impl RawOptions {
    /// Checks every value.
    ///
    /// # Errors
    /// The first value that cannot be used.
    pub fn check(self) -> Result<Options, Error> {
        let leader_election = (!self.disable_leader_election).then(|| LeaderElectionOptions {
            name: self.leader_election_name.clone(),
            namespace: self.leader_election_namespace.clone().filter(|namespace| !namespace.is_empty()),
            allow_other_leader: self.allow_other_leader,
        });
        positive("kube-client-qps", self.kube_client_qps)?;
        positive("kube-client-burst", self.kube_client_burst)?;
        positive("hand-over-batch", self.hand_over_batch)?;
        positive("cpu-requests", self.cpu_requests)?;
        if self.leader_election_name.is_empty() {
            return Err(invalid("leader-election-name", "", "must not be empty"));
        }
        let batch_max_duration = duration("batch-max-duration", self.batch_max_duration)?;
        let batch_idle_duration = duration("batch-idle-duration", self.batch_idle_duration)?;
        if batch_idle_duration > batch_max_duration {
            return Err(invalid(
                "batch-idle-duration",
                &format!("{batch_idle_duration:?}"),
                &format!("must not be longer than --batch-max-duration, {batch_max_duration:?}"),
            ));
        }
        Ok(Options {
            metrics_port: self.metrics_port,
            disable_cluster_state_observability: self.disable_cluster_state_observability,
            secure_metrics: self.secure_metrics,
            metrics_tls_folder: self.metrics_tls_folder.filter(|path| !path.as_os_str().is_empty()),
            health_probe_port: self.health_probe_port,
            kube_client_qps: self.kube_client_qps,
            kube_client_burst: self.kube_client_burst,
            leader_election,
            batch_max_duration,
            batch_idle_duration,
            ineffective_launch_delay: self.ineffective_launch_delay,
            preference_policy: match self.preference_policy.as_str() {
                "Respect" => PreferencePolicy::Respect,
                "Ignore" => PreferencePolicy::Ignore,
                other => return Err(invalid("preference-policy", other, "must be Respect or Ignore")),
            },
            preference_price: self.preference_price,
            eviction_price: self.eviction_price,
            consolidation_horizon: self.consolidation_horizon,
            device_restart_time: self.device_restart_time,
            prioritized_list_policy: match self.prioritized_list_policy.as_str() {
                "order" => PrioritizedListPolicy::Order,
                "price" => PrioritizedListPolicy::Price,
                other => return Err(invalid("prioritized-list-policy", other, "must be order or price")),
            },
            node_price: self.node_price,
            min_values_policy: match self.min_values_policy.as_str() {
                "Strict" => MinValuesPolicy::Strict,
                "BestEffort" => MinValuesPolicy::BestEffort,
                other => return Err(invalid("min-values-policy", other, "must be Strict or BestEffort")),
            },
            ignore_dra_requests: self.ignore_dra_requests,
            dra_publish_timeout: self.dra_publish_timeout,
            dra_hold_timeout: self.dra_hold_timeout,
            expiration: ExpirationRules {
                policy: ExpirationPolicy::parse(&self.expiration_policy).ok_or_else(|| {
                    invalid("expiration-policy", &self.expiration_policy, "must be Forceful or Graceful")
                })?,
                graceful_for: DurationMs(milliseconds(
                    "graceful-expiration-timeout",
                    self.graceful_expiration_timeout,
                )?),
            },
            replacement_timeout: DurationMs(milliseconds("replacement-timeout", self.replacement_timeout)?),
            learn_devices: match self.learn_devices.as_str() {
                "off" => LearnDevices::Off,
                "propose" => LearnDevices::Propose,
                "apply" => LearnDevices::Apply,
                other => return Err(invalid("learn-devices", other, "must be off, propose or apply")),
            },
            planner_threads: usize::try_from(self.cpu_requests.div_ceil(1000)).unwrap_or(1),
            feature_gates: FeatureGates::parse(&self.feature_gates)?,
            legacy_node_repair: self.legacy_node_repair,
            scheduler_config: scheduler_config(&self.scheduler_config)?,
            scheduler_names: scheduler_names(&self.scheduler_names)?,
            dry_run: self.dry_run,
            hand_over: HandOverOptions {
                mode: self.hand_over,
                max_hold: duration("hand-over-max-hold", self.hand_over_max_hold)?,
                quiet: duration("hand-over-quiet", self.hand_over_quiet)?,
                batch: usize::try_from(self.hand_over_batch).unwrap_or(1),
                patches_per_pod: self.hand_over_patches_per_pod,
            },
            log_format: match self.log_format.as_str() {
                "json" => LogFormat::Json,
                "text" => LogFormat::Text,
                other => return Err(invalid("log-format", other, "must be json or text")),
            },
            log_level: self.log_level,
            ignored: self.ignored.given(),
        })
    }
}

impl IgnoredOptions {
    fn given(&self) -> Vec<&'static str> {
        [
            ("karpenter-service", &self.karpenter_service),
            ("enable-profiling", &self.enable_profiling),
            ("disable-controller-warmup", &self.disable_controller_warmup),
            ("memory-limit", &self.memory_limit),
            ("log-output-paths", &self.log_output_paths),
            ("log-error-output-paths", &self.log_error_output_paths),
        ]
        .into_iter()
        // What is off asks for nothing.
        .filter(|(_, value)| value.as_ref().is_some_and(|value| !value.is_empty() && value != "false"))
        .map(|(flag, _)| flag)
        .collect()
    }
}

fn invalid(flag: &'static str, value: &str, reason: &str) -> Error {
    Error { flag, value: value.to_owned(), reason: reason.to_owned() }
}

/// Names the field, and not the whole document, as what cannot be used.
fn scheduler_config(text: &str) -> Result<SchedulerConfig, Error> {
    SchedulerConfig::parse(text).map_err(|problem| {
        let field = if problem.field.is_empty() { "the document" } else { &problem.field };
        invalid("scheduler-config", field, &problem.reason.to_string())
    })
}

/// Names between commas; none at all are all.
fn scheduler_names(text: &str) -> Result<SchedulerNames, Error> {
    if text.trim().is_empty() {
        return Ok(SchedulerNames::All);
    }
    let names: BTreeSet<Arc<str>> = text.split(',').map(|name| Arc::from(name.trim())).collect();
    if names.contains("") {
        return Err(invalid("scheduler-names", text, "has an empty name"));
    }
    Ok(SchedulerNames::Only(names))
}

fn positive(flag: &'static str, value: u32) -> Result<(), Error> {
    if value == 0 { Err(invalid(flag, "0", "must be above zero")) } else { Ok(()) }
}

/// A span that is not negative.
fn milliseconds(flag: &'static str, value: DurationMs) -> Result<i64, Error> {
    duration(flag, value).map(|_| value.0)
}

fn duration(flag: &'static str, value: DurationMs) -> Result<Duration, Error> {
    u64::try_from(value.0)
        .map(Duration::from_millis)
        .map_err(|_| invalid(flag, &value.to_string(), "must not be negative"))
}

#[cfg(test)]
mod tests;
