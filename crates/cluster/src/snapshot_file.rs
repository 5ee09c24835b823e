//! Snapshot files: everything that the planner saw, one JSON object a line, readable by every command that reads
//! manifests.
//!
//! The first line is a header: format version, time, options, gates, the server's version, a seed. Then come the
//! objects, each reduced to the fields that planning reads ([`prune`]), then the instance types of each NodePool with
//! every offering, those that have run out included. Environment variables, arguments and commands of containers are
//! never written. Names can be hidden as well ([`hide_names`]).
//!
//! Types that several NodePools share are written once, with the pools' names.

mod hide;
mod prune;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cloudprovider::InstanceType;
use dra_types::{Compat, Gate, Gates, KubernetesMinor};
use model::{DurationMs, InstanceTypeName, PriceNanoUsdPerHour, Timestamp};
use scheduling::snapshot::eviction::DeletionCosts;
use scheduling::snapshot::expiration::{ExpirationPolicy, ExpirationRules};
use scheduling::snapshot::{
    DisruptionOptions, MinValuesPolicy, Options, PreferencePolicy, PrioritizedListPolicy, ReservedCapacityMode,
    SchedulerNames, UnsupportedStorage,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use decode::manifests::object_ref;
use decode::scheduler_config::SchedulerConfig;
use decode::{ObjectError, Problem, Reason};

pub use hide::hide_names;
pub use prune::{KINDS, SnapshotKind, prune};

/// The group of the lines that are no Kubernetes objects.
pub const GROUP: &str = "snapshot.dovetail.sh";
/// The kind of the header.
pub const HEADER: &str = "SnapshotHeader";
/// The kind of a line with an instance type.
pub const INSTANCE_TYPE: &str = "SnapshotInstanceType";
/// The format that this program writes, and the only one it reads.
pub const SCHEMA_VERSION: u32 = 1;

const API_VERSION: &str = "snapshot.dovetail.sh/v1";

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// When the snapshot was taken.
    pub time: Timestamp,
    /// The version of the program that wrote it.
    pub dovetail_version: String,
    /// The API server's version.
    #[serde(default)]
    pub server_version: String,
    /// What random choices start from.
    #[serde(default)]
    pub seed: u64,
    /// Options that change a plan.
    #[serde(default)]
    pub options: HeaderOptions,
    /// The controller's feature gates, by name.
    #[serde(default)]
    pub feature_gates: BTreeMap<String, bool>,
    /// The server's feature gates that decide about devices, by name; those that are not told have the release's
    /// default.
    #[serde(default)]
    pub kubernetes_feature_gates: BTreeMap<String, bool>,
    /// What the controller is told of the scheduler's configuration.
    #[serde(default, skip_serializing_if = "SchedulerConfig::is_empty")]
    pub scheduler_config: SchedulerConfig,
    /// Whether names were replaced.
    #[serde(default)]
    pub names_hidden: bool,
}

/// The feature gate with which the controller writes deletion costs of pods.
const POD_DELETION_COST_MANAGEMENT: &str = "PodDeletionCostManagement";
/// The gates that let machines go before what replaces them is launched.
const TERMINATE_FIRST_DRIFT: &str = "TerminateFirstDrift";
const TERMINATE_FIRST_REPAIR: &str = "TerminateFirstRepair";

/// The planner's options as a file has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeaderOptions {
    /// `Strict` or `BestEffort`.
    pub min_values_policy: MinValuesPolicyName,
    /// `Respect` or `Ignore`.
    pub preference_policy: PreferencePolicyName,
    /// What keeping a preference may cost, for each pod and point of weight.
    pub preference_price_nano_usd_per_hour: PriceNanoUsdPerHour,
    /// `order` or `price`.
    pub prioritized_list_policy: PrioritizedListPolicyName,
    /// What a node costs besides its machine.
    pub node_price_nano_usd_per_hour: PriceNanoUsdPerHour,
    /// Most instance types of one NodeClaim.
    pub max_instance_types: usize,
    /// Steps that the search for contended room may take.
    pub search_steps: u64,
    /// Steps that the allocation of devices may take.
    pub device_steps: u64,
    /// Whether pods with resource claims are left to others.
    pub ignore_dra_requests: bool,
    /// What the eviction of a pod costs.
    pub eviction_price_nano_usd: i64,
    /// How long a saving counts.
    pub consolidation_horizon: DurationMs,
    /// How long pods with devices take to start anew.
    pub device_restart: DurationMs,
    /// What pods that were moved have cost lately, each.
    pub displacement_price_nano_usd_per_hour: PriceNanoUsdPerHour,
    /// Whether spot machines may be replaced by spot machines.
    pub spot_to_spot_consolidation: bool,
    /// What becomes of machines that are past their time: `Forceful` or `Graceful`.
    pub expiration_policy: ExpirationPolicyName,
    /// How long they are replaced the graceful way.
    pub graceful_expiration_timeout: DurationMs,
    /// The schedulers whose pods are planned; all if it is not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_names: Option<BTreeSet<String>>,
    /// Provisioners and drivers that the cloud cannot serve.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub unsupported_provisioners: BTreeSet<String>,
    /// Labels of volumes that mean nothing in the cloud.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub unsupported_topology_keys: BTreeSet<String>,
}

/// What becomes of machines that are past their time, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExpirationPolicyName {
    /// [`ExpirationPolicy::Forceful`].
    Forceful,
    /// [`ExpirationPolicy::Graceful`].
    Graceful,
}

/// A policy for preferences by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PreferencePolicyName {
    /// [`PreferencePolicy::Respect`].
    Respect,
    /// [`PreferencePolicy::Ignore`].
    Ignore,
}

/// A policy for claims with alternatives by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrioritizedListPolicyName {
    /// [`PrioritizedListPolicy::Order`].
    Order,
    /// [`PrioritizedListPolicy::Price`].
    Price,
}

/// A `minValues` policy by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MinValuesPolicyName {
    /// [`MinValuesPolicy::Strict`].
    Strict,
    /// [`MinValuesPolicy::BestEffort`].
    BestEffort,
}

impl From<&Options> for HeaderOptions {
    fn from(options: &Options) -> Self {
        Self {
            min_values_policy: match options.min_values {
                MinValuesPolicy::Strict => MinValuesPolicyName::Strict,
                MinValuesPolicy::BestEffort => MinValuesPolicyName::BestEffort,
            },
            preference_policy: match options.preference_policy {
                PreferencePolicy::Respect => PreferencePolicyName::Respect,
                PreferencePolicy::Ignore => PreferencePolicyName::Ignore,
            },
            preference_price_nano_usd_per_hour: options.preference_price,
            prioritized_list_policy: match options.prioritized_list_policy {
                PrioritizedListPolicy::Order => PrioritizedListPolicyName::Order,
                PrioritizedListPolicy::Price => PrioritizedListPolicyName::Price,
            },
            node_price_nano_usd_per_hour: options.node_price,
            max_instance_types: options.max_instance_types,
            search_steps: options.search_steps,
            device_steps: options.device_steps,
            ignore_dra_requests: options.ignore_dra_requests,
            eviction_price_nano_usd: options.disruption.eviction_price_nano_usd,
            consolidation_horizon: options.disruption.consolidation_horizon,
            device_restart: options.disruption.device_restart,
            displacement_price_nano_usd_per_hour: options.disruption.displacement_price,
            spot_to_spot_consolidation: options.disruption.spot_to_spot_consolidation,
            expiration_policy: match options.disruption.expiration.policy {
                ExpirationPolicy::Forceful => ExpirationPolicyName::Forceful,
                ExpirationPolicy::Graceful => ExpirationPolicyName::Graceful,
            },
            graceful_expiration_timeout: options.disruption.expiration.graceful_for,
            scheduler_names: match &options.scheduler_names {
                SchedulerNames::All => None,
                SchedulerNames::Only(names) => Some(strings(names)),
            },
            unsupported_provisioners: strings(&options.unsupported_storage.provisioners),
            unsupported_topology_keys: strings(&options.unsupported_storage.topology_keys),
        }
    }
}

fn strings(names: &BTreeSet<Arc<str>>) -> BTreeSet<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn shared(names: &BTreeSet<String>) -> BTreeSet<Arc<str>> {
    names.iter().map(|name| Arc::from(name.as_str())).collect()
}

impl Default for HeaderOptions {
    fn default() -> Self {
        Self::from(&Options::default())
    }
}

impl Header {
    /// The release of the server; `None` if it is not told or knows no `resource.k8s.io/v1`.
    pub fn kubernetes(&self) -> Option<KubernetesMinor> {
        let version = self.server_version.strip_prefix('v').unwrap_or(&self.server_version);
        let minor: String = version.split('.').nth(1)?.chars().take_while(char::is_ascii_digit).collect();
        KubernetesMinor::from_minor(minor.parse().ok()?)
    }

    /// How a cluster like the server's allocates devices; `None` as for [`Self::kubernetes`]. Gates that this program
    /// does not know are passed over: a newer one may have written them.
    pub fn compat(&self) -> Option<Compat> {
        let kubernetes = self.kubernetes()?;
        let told =
            self.kubernetes_feature_gates.iter().filter_map(|(name, on)| Some((name.parse::<Gate>().ok()?, *on)));
        let gates = told.fold(Gates::defaults(kubernetes), |gates, (gate, on)| gates.with(gate, on));
        Some(Compat::with_gates(kubernetes, gates))
    }

    /// What [`Self::kubernetes_feature_gates`] says of these.
    pub fn gates_by_name(compat: &Compat) -> BTreeMap<String, bool> {
        let known = Gate::ALL.iter().filter(|gate| gate.known_since() <= compat.kubernetes.minor());
        known.map(|gate| (gate.name().to_owned(), compat.is_on(*gate))).collect()
    }

    /// Whether a feature gate of the controller is on that is off where nobody says anything.
    pub(crate) fn is_on(&self, gate: &str) -> bool {
        self.feature_gates.get(gate).copied().unwrap_or_default()
    }

    /// The planner's options.
    pub fn options(&self) -> Options {
        Options {
            min_values: match self.options.min_values_policy {
                MinValuesPolicyName::Strict => MinValuesPolicy::Strict,
                MinValuesPolicyName::BestEffort => MinValuesPolicy::BestEffort,
            },
            preference_policy: match self.options.preference_policy {
                PreferencePolicyName::Respect => PreferencePolicy::Respect,
                PreferencePolicyName::Ignore => PreferencePolicy::Ignore,
            },
            preference_price: self.options.preference_price_nano_usd_per_hour,
            prioritized_list_policy: match self.options.prioritized_list_policy {
                PrioritizedListPolicyName::Order => PrioritizedListPolicy::Order,
                PrioritizedListPolicyName::Price => PrioritizedListPolicy::Price,
            },
            node_price: self.options.node_price_nano_usd_per_hour,
            max_instance_types: self.options.max_instance_types,
            search_steps: self.options.search_steps,
            device_steps: self.options.device_steps,
            ignore_dra_requests: self.options.ignore_dra_requests,
            scheduler_names: match &self.options.scheduler_names {
                None => SchedulerNames::All,
                Some(names) => SchedulerNames::Only(shared(names)),
            },
            disruption: DisruptionOptions {
                eviction_price_nano_usd: self.options.eviction_price_nano_usd,
                consolidation_horizon: self.options.consolidation_horizon,
                device_restart: self.options.device_restart,
                displacement_price: self.options.displacement_price_nano_usd_per_hour,
                spot_to_spot_consolidation: self.options.spot_to_spot_consolidation,
                terminate_first_drift: self.is_on(TERMINATE_FIRST_DRIFT),
                terminate_first_repair: self.is_on(TERMINATE_FIRST_REPAIR),
                deletion_costs: match self.is_on(POD_DELETION_COST_MANAGEMENT) {
                    true => DeletionCosts::Ours,
                    false => DeletionCosts::OfUsers,
                },
                expiration: ExpirationRules {
                    policy: match self.options.expiration_policy {
                        ExpirationPolicyName::Forceful => ExpirationPolicy::Forceful,
                        ExpirationPolicyName::Graceful => ExpirationPolicy::Graceful,
                    },
                    graceful_for: self.options.graceful_expiration_timeout,
                },
            },
            // What the controller provisions by.
            reserved_capacity: ReservedCapacityMode::Fallback,
            unsupported_storage: UnsupportedStorage {
                provisioners: shared(&self.options.unsupported_provisioners),
                topology_keys: shared(&self.options.unsupported_topology_keys),
            },
        }
    }

    /// The header's line.
    pub fn to_line(&self) -> Value {
        line(HEADER, json!(self))
    }
}

/// Reads a header.
///
/// # Errors
/// If it is of another format.
pub fn header(object: &Value) -> Result<Header, ObjectError> {
    let version = object.get("schemaVersion").and_then(Value::as_u64).unwrap_or_default();
    if version != u64::from(SCHEMA_VERSION) {
        let why = format!("version {version} of the format is not known, only {SCHEMA_VERSION}");
        return Err(error(object, HEADER, "schemaVersion", why));
    }
    Header::deserialize(object).map_err(|why| error(object, HEADER, "", why.to_string()))
}

/// One instance type and the NodePools that can launch it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InstanceTypeLine {
    pub(crate) node_pools: Vec<String>,
    pub(crate) instance_type: InstanceType,
}

/// Reads an instance type's line.
pub(crate) fn instance_type(object: &Value) -> Result<InstanceTypeLine, ObjectError> {
    InstanceTypeLine::deserialize(object).map_err(|why| error(object, INSTANCE_TYPE, "", why.to_string()))
}

/// The lines of the instance types of all NodePools, by type name; types that pools share once.
pub fn instance_type_lines<'a>(
    node_pools: impl IntoIterator<Item = (&'a str, &'a [Arc<InstanceType>])>,
) -> impl Iterator<Item = Value> {
    let mut lines: BTreeMap<InstanceTypeName, Vec<InstanceTypeLine>> = BTreeMap::new();
    for (pool, types) in node_pools {
        for instance_type in types {
            let variants = lines.entry(instance_type.name.clone()).or_default();
            match variants.iter_mut().find(|line| line.instance_type == **instance_type) {
                Some(line) => line.node_pools.push(pool.to_owned()),
                None => variants.push(InstanceTypeLine {
                    node_pools: vec![pool.to_owned()],
                    instance_type: (**instance_type).clone(),
                }),
            }
        }
    }
    lines.into_values().flatten().map(|entry| line(INSTANCE_TYPE, json!(entry)))
}

fn line(kind: &str, mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.insert("apiVersion".to_owned(), json!(API_VERSION));
        fields.insert("kind".to_owned(), json!(kind));
    }
    object
}

fn error(object: &Value, kind: &str, field: &str, why: String) -> ObjectError {
    ObjectError {
        object: object_ref(object, kind),
        problem: Problem { field: field.to_owned(), reason: Reason::Invalid(why) },
    }
}
