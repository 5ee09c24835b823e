//! `--scheduler-config`: which constraints kube-scheduler has as defaults.
//!
//! The document is Karpenter's, not kube-scheduler's own `KubeSchedulerConfiguration`:
//!
//! ```yaml
//! podTopologySpread:
//!   defaultConstraints:
//!   - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}
//! ```
//!
//! What is given so holds for the pods of every scheduler. A kube-scheduler with several profiles may have others for
//! some of them; those are given by the profile's name, in place of the first (an addition to Karpenter's document):
//!
//! ```yaml
//! profiles:
//! - schedulerName: batch
//!   podTopologySpread: {defaultConstraints: []}
//! ```
//!
//! It is read strictly: what is not known is an error, and so is what kube-scheduler would refuse.

use std::collections::{BTreeMap, BTreeSet};

use api::names::qualified_name_error;
use model::pod::{NodeInclusionPolicy, WhenUnsatisfiable};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{Problem, Reason};
use crate::field::Field;
use crate::limits;
use crate::manifests::document;
use crate::pod::spread;

/// What we are told of kube-scheduler's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Value")]
pub struct SchedulerConfig {
    /// Constraints of pods that have none of their own, in their order.
    pub default_constraints: Vec<DefaultConstraint>,
    /// What pods of some schedulers have instead, by the scheduler's name.
    pub profiles: BTreeMap<String, Vec<DefaultConstraint>>,
}

/// A constraint without a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultConstraint {
    /// How much more pods one value may have than the least.
    pub max_skew: u32,
    /// The label of nodes.
    pub topology_key: String,
    /// What happens if it cannot be kept.
    pub when_unsatisfiable: WhenUnsatisfiable,
    /// How many values there must be before the least is not zero. As in kube-scheduler, it has no part in a constraint
    /// that is only preferred.
    pub min_domains: Option<u32>,
    /// Whether only nodes count that the pod's node selector and affinity allow.
    pub node_affinity_policy: NodeInclusionPolicy,
    /// Whether only nodes count whose taints the pod tolerates.
    pub node_taints_policy: NodeInclusionPolicy,
}

impl SchedulerConfig {
    /// Reads a document in YAML or JSON; nothing at all is no defaults.
    ///
    /// # Errors
    /// The first field that cannot be used.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        if text.len() > limits::MAX_OBJECT_BYTES {
            return Err(limits::too_large(limits::MAX_OBJECT_BYTES));
        }
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let syntax = |why| Problem { field: String::new(), reason: Reason::Invalid(why) };
        Self::try_from(document(text).map_err(syntax)?)
    }

    /// Whether pods without constraints have none.
    pub fn is_empty(&self) -> bool {
        self.default_constraints.is_empty() && self.profiles.values().all(Vec::is_empty)
    }

    /// The constraints of a scheduler's pods.
    pub fn of_scheduler(&self, name: &str) -> &[DefaultConstraint] {
        self.profiles.get(name).unwrap_or(&self.default_constraints)
    }
}

impl TryFrom<Value> for SchedulerConfig {
    type Error = Problem;

    fn try_from(value: Value) -> Result<Self, Problem> {
        limits::check(&value)?;
        let root = Field::root(&value);
        root.only(&["podTopologySpread", "profiles"])?;
        let mut profiles = BTreeMap::new();
        for profile in root.field("profiles")?.items()? {
            profile.only(&["schedulerName", "podTopologySpread"])?;
            let name = profile.field("schedulerName")?;
            if profiles.insert(name.required_str()?.to_owned(), default_constraints(&profile)?).is_some() {
                return Err(name.invalid("is the name of another profile too"));
            }
        }
        Ok(Self { default_constraints: default_constraints(&root)?, profiles })
    }
}

/// The constraints of the document, or of one of its profiles.
fn default_constraints(of: &Field<'_, '_>) -> Result<Vec<DefaultConstraint>, Problem> {
    let plugin = of.field("podTopologySpread")?;
    plugin.only(&["defaultConstraints"])?;
    let list = plugin.field("defaultConstraints")?;
    let mut seen = BTreeSet::new();
    let mut default_constraints = Vec::new();
    for item in list.items()? {
        let constraint = constraint(&item)?;
        let action = action(constraint.when_unsatisfiable);
        if !seen.insert((constraint.topology_key.clone(), action)) {
            let key = &constraint.topology_key;
            return Err(item.invalid(format!("another constraint over {key} has {action} too")));
        }
        default_constraints.push(constraint);
    }
    Ok(default_constraints)
}

fn constraint(item: &Field<'_, '_>) -> Result<DefaultConstraint, Problem> {
    if item.is_absent() {
        return Err(item.problem(Reason::Missing));
    }
    item.only(&spread::FIELDS)?;
    let key = item.field("topologyKey")?;
    let topology_key = key.required_str()?;
    if let Some(why) = qualified_name_error(topology_key) {
        return Err(key.invalid(format!("{topology_key:?}: {why}")));
    }
    let selector = item.field("labelSelector")?;
    if !selector.is_absent() {
        return Err(selector.invalid("must not be set: it is deduced from what selects the pod"));
    }
    let keys = item.field("matchLabelKeys")?;
    if !keys.strings()?.is_empty() {
        return Err(keys.invalid("must not be set: the selector is deduced from what selects the pod"));
    }
    let when_unsatisfiable = spread::when_unsatisfiable(item)?;
    let min_domains = spread::min_domains(item)?;
    Ok(DefaultConstraint {
        max_skew: spread::max_skew(item)?,
        topology_key: topology_key.to_owned(),
        when_unsatisfiable,
        min_domains: match when_unsatisfiable {
            WhenUnsatisfiable::DoNotSchedule => min_domains,
            WhenUnsatisfiable::ScheduleAnyway => None,
        },
        node_affinity_policy: spread::inclusion(&item.field("nodeAffinityPolicy")?, NodeInclusionPolicy::Honor)?,
        node_taints_policy: spread::inclusion(&item.field("nodeTaintsPolicy")?, NodeInclusionPolicy::Ignore)?,
    })
}

impl From<SchedulerConfig> for Value {
    fn from(config: SchedulerConfig) -> Self {
        let plugin = |constraints: &[DefaultConstraint]| {
            let constraints: Vec<Value> = constraints.iter().map(to_json).collect();
            json!({"defaultConstraints": constraints})
        };
        let common = plugin(&config.default_constraints);
        if config.profiles.is_empty() {
            return json!({"podTopologySpread": common});
        }
        let profile = |(name, constraints): (&String, &Vec<DefaultConstraint>)| json!({"schedulerName": name, "podTopologySpread": plugin(constraints)});
        let profiles: Vec<Value> = config.profiles.iter().map(profile).collect();
        json!({"podTopologySpread": common, "profiles": profiles})
    }
}

/// A constraint with the fields that are not their defaults.
fn to_json(constraint: &DefaultConstraint) -> Value {
    let mut fields = Map::new();
    let mut set = |field: &str, value: Value| drop(fields.insert(field.to_owned(), value));
    set("maxSkew", json!(constraint.max_skew));
    set("topologyKey", json!(constraint.topology_key));
    set("whenUnsatisfiable", json!(action(constraint.when_unsatisfiable)));
    if let Some(domains) = constraint.min_domains {
        set("minDomains", json!(domains));
    }
    if constraint.node_affinity_policy == NodeInclusionPolicy::Ignore {
        set("nodeAffinityPolicy", json!("Ignore"));
    }
    if constraint.node_taints_policy == NodeInclusionPolicy::Honor {
        set("nodeTaintsPolicy", json!("Honor"));
    }
    Value::Object(fields)
}

fn action(when: WhenUnsatisfiable) -> &'static str {
    match when {
        WhenUnsatisfiable::DoNotSchedule => "DoNotSchedule",
        WhenUnsatisfiable::ScheduleAnyway => "ScheduleAnyway",
    }
}
