//! `operator_status_condition_…`: the status conditions of NodePools, NodeClaims, NodeOverlays and CapacityBuffers,
//! under the names and labels by which operators that are built on `awslabs/operatorpkg`, as Karpenter is, show those
//! of their objects.
//!
//! What is so now is read from the store whenever metrics are asked for, so a series goes with its object and no time
//! in it is stale. What changes is counted while the store is watched. That a condition is there for the first time is
//! a change, unless its object is seen for the first time: then it may be older than we are.
//!
//! Differs: `condition-metrics`. Karpenter shows the conditions of its Nodes too, which kube-state-metrics does for all
//! Nodes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use api::{CapacityBuffer, NodeClaim, NodeOverlay, NodePool};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::runtime::clock::Clock;
use crate::runtime::conditions::{find, to_timestamp};
use crate::runtime::metrics::{Histograms, Metrics, age_seconds};
use crate::world::store::{ClusterStore, Delta, State, Stored};

/// Doubling from half a second to a bit more than two hours.
const BUCKETS: [f64; 15] =
    [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0];
/// Pairs of type and reason that are told apart in counts of changes. Ours are a few dozen, but whoever may write a
/// status can make up others, and a counter never goes.
const MAX_NAMES: usize = 256;
/// Stands for what is beyond.
const OTHER: &str = "Other";

/// The condition of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionLabels {
    group: String,
    kind: String,
    namespace: String,
    name: String,
    r#type: String,
    status: String,
    reason: String,
}

/// A condition that got this status.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TransitionLabels {
    group: String,
    kind: String,
    r#type: String,
    status: String,
    reason: String,
}

/// A condition that had this status.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    group: String,
    kind: String,
    r#type: String,
    status: String,
}

/// An object of ours that has status conditions.
trait Conditioned: Resource<DynamicType = ()> {
    fn conditions(&self) -> &[Condition];
}

macro_rules! conditioned {
    ($($object:ty),*) => {$(
        impl Conditioned for $object {
            fn conditions(&self) -> &[Condition] {
                self.status.as_ref().map_or(&[], |status| &status.conditions)
            }
        }
    )*};
}

conditioned!(NodePool, NodeClaim, NodeOverlay, CapacityBuffer);

/// Shows conditions once it is told whose.
#[derive(Debug)]
pub struct StatusConditions {
    source: Arc<OnceLock<Source>>,
    transitions: Transitions,
}

impl StatusConditions {
    /// Shows nothing yet.
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let registry = metrics.registry_mut().sub_registry_with_prefix("operator_status_condition");
        let buckets: fn() -> Histogram = || Histogram::new(BUCKETS);
        let transitions = Transitions {
            count: Family::default(),
            duration_seconds: Family::new_with_constructor(buckets),
            names: Arc::default(),
        };
        registry.register(
            "transitions",
            "How often a condition of an object of that kind got that status",
            transitions.count.clone(),
        );
        registry.register(
            "transition_seconds",
            "How long a condition of an object of that kind had that status before it got another",
            transitions.duration_seconds.clone(),
        );
        let source = Arc::new(OnceLock::new());
        registry.register_collector(Box::new(Current(Arc::clone(&source))));
        Self { source, transitions }
    }

    /// Shows the conditions of the objects in the store from now on, and counts how they change.
    pub fn observe(&self, store: &Arc<ClusterStore>, clock: Arc<dyn Clock>) {
        if self.source.set(Source { store: Arc::clone(store), clock }).is_err() {
            return;
        }
        fn observe<T: Stored + Conditioned>(store: &ClusterStore, transitions: &Transitions) {
            let transitions = transitions.clone();
            store.on::<T>(move |delta, _| transitions.observe(delta));
        }
        observe::<NodePool>(store, &self.transitions);
        observe::<NodeClaim>(store, &self.transitions);
        observe::<NodeOverlay>(store, &self.transitions);
        observe::<CapacityBuffer>(store, &self.transitions);
    }
}

/// What has changed.
#[derive(Debug, Clone)]
struct Transitions {
    count: Family<TransitionLabels, Counter>,
    duration_seconds: Histograms<StatusLabels>,
    names: Arc<Mutex<BTreeSet<(String, String)>>>,
}

impl Transitions {
    fn observe<K, T: Conditioned>(&self, delta: &Delta<'_, K, T>) {
        let (Some(before), Some(after)) = (delta.before, delta.after) else { return };
        // Another object of the same name has conditions of its own.
        if before.meta().uid != after.meta().uid {
            return;
        }
        let (group, kind) = (T::group(&()).into_owned(), T::kind(&()).into_owned());
        for condition in after.conditions() {
            let was = find(before.conditions(), &condition.type_);
            if was.is_some_and(|was| was.status == condition.status) {
                continue;
            }
            let (r#type, reason) = self.names_of(condition);
            if let Some(was) = was {
                let labels = StatusLabels {
                    group: group.clone(),
                    kind: kind.clone(),
                    r#type: r#type.clone(),
                    status: was.status.clone(),
                };
                let lasted =
                    to_timestamp(&condition.last_transition_time).since(to_timestamp(&was.last_transition_time));
                self.duration_seconds.get_or_create(&labels).observe(age_seconds(lasted));
            }
            let status = condition.status.clone();
            let labels = TransitionLabels { group: group.clone(), kind: kind.clone(), r#type, status, reason };
            self.count.get_or_create(&labels).inc();
        }
    }

    /// Type and reason, unless there are too many.
    fn names_of(&self, condition: &Condition) -> (String, String) {
        let names = (condition.type_.clone(), condition.reason.clone());
        let mut known = self.names.lock();
        if known.len() >= MAX_NAMES && !known.contains(&names) {
            return (OTHER.to_owned(), OTHER.to_owned());
        }
        known.insert(names.clone());
        names
    }
}

#[derive(Debug)]
struct Source {
    store: Arc<ClusterStore>,
    clock: Arc<dyn Clock>,
}

/// What is so now.
#[derive(Debug)]
struct Current(Arc<OnceLock<Source>>);

impl Collector for Current {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(Source { store, clock }) = self.0.get() else { return Ok(()) };
        // Writers need not wait until everything is written down.
        let (state, now) = (store.snapshot(), clock.now());
        let help = "Conditions of objects; 1 for each that there is";
        let mut family = encoder.encode_descriptor("count", help, None, MetricType::Gauge)?;
        each(&state, |_, labels| ConstGauge::new(1_i64).encode(family.encode_family(labels)?))?;
        let help = "How long conditions of objects have had their status";
        let mut family = encoder.encode_descriptor("current_status_seconds", help, None, MetricType::Gauge)?;
        each(&state, |condition, labels| {
            let since = now.since(to_timestamp(&condition.last_transition_time));
            ConstGauge::new(age_seconds(since)).encode(family.encode_family(labels)?)
        })
    }
}

/// Does something for each condition of each object.
fn each(
    state: &State,
    mut encode: impl FnMut(&Condition, &ConditionLabels) -> Result<(), fmt::Error>,
) -> Result<(), fmt::Error> {
    state.node_pools.values().try_for_each(|object| each_of(&**object, &mut encode))?;
    state.node_claims.values().try_for_each(|object| each_of(&**object, &mut encode))?;
    state.node_overlays.values().try_for_each(|object| each_of(&**object, &mut encode))?;
    state.capacity_buffers.values().try_for_each(|object| each_of(&**object, &mut encode))
}

fn each_of<T: Conditioned>(
    object: &T,
    encode: &mut impl FnMut(&Condition, &ConditionLabels) -> Result<(), fmt::Error>,
) -> Result<(), fmt::Error> {
    let metadata = object.meta();
    for condition in object.conditions() {
        let labels = ConditionLabels {
            group: T::group(&()).into_owned(),
            kind: T::kind(&()).into_owned(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            r#type: condition.type_.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone(),
        };
        encode(condition, &labels)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::runtime::clock::MockClock;

    fn at(seconds: i64) -> String {
        jiff::Timestamp::from_second(seconds).unwrap().to_string()
    }

    fn condition(of: &str, status: &str, reason: &str, since: i64) -> Value {
        json!({"type": of, "status": status, "reason": reason, "message": "", "lastTransitionTime": at(since)})
    }

    fn apply(store: &ClusterStore, revision: u64, uid: &str, conditions: &[Value]) {
        store.show_node_claim(json!({
            "metadata": {"name": "general-1", "uid": uid, "resourceVersion": revision.to_string()},
            "status": {"conditions": conditions},
        }));
    }

    /// The series of conditions but for buckets, as `/metrics` shows them.
    fn series(metrics: &Metrics) -> Vec<String> {
        let text = metrics.render().unwrap();
        let ours = text.lines().filter_map(|line| line.strip_prefix("operator_status_condition_"));
        let mut series: Vec<String> =
            ours.filter(|line| !line.starts_with("transition_seconds_bucket")).map(str::to_owned).collect();
        series.sort();
        series
    }

    fn observed() -> (Metrics, Arc<ClusterStore>, Arc<MockClock>) {
        let (mut metrics, store) = (Metrics::new(), Arc::new(ClusterStore::new()));
        let clock = Arc::new(MockClock::at(Timestamp::from_seconds(1_000)));
        StatusConditions::register(&mut metrics).observe(&store, Arc::clone(&clock) as Arc<dyn Clock>);
        (metrics, store, clock)
    }

    #[test]
    fn a_condition_is_shown_with_its_age_while_its_object_is_there() {
        let (metrics, store, clock) = observed();
        apply(&store, 1, "u", &[condition("Launched", "Unknown", "AwaitingReconciliation", 990)]);
        let labels = r#"{group="karpenter.sh",kind="NodeClaim",namespace="",name="general-1",type="Launched",status="Unknown",reason="AwaitingReconciliation"}"#;
        assert_eq!(series(&metrics), [format!("count{labels} 1"), format!("current_status_seconds{labels} 10.0")]);
        clock.advance(Duration::from_millis(2500));
        assert_eq!(series(&metrics)[1], format!("current_status_seconds{labels} 12.5"));
        store.forget::<NodeClaim>(&"general-1".into());
        assert!(series(&metrics).is_empty());
    }

    #[test]
    fn changes_are_counted_with_how_long_the_last_status_was_there() {
        let (metrics, store, _) = observed();
        let initialized = |status, since| condition("Initialized", status, "R", since);
        apply(&store, 1, "u", &[condition("Launched", "Unknown", "AwaitingReconciliation", 990)]);
        let changes =
            || -> Vec<String> { series(&metrics).into_iter().filter(|line| line.starts_with("transition")).collect() };
        assert!(changes().is_empty(), "an object that is seen for the first time has not changed");
        apply(&store, 2, "u", &[condition("Launched", "Unknown", "LaunchFailed", 990), initialized("False", 995)]);
        let first = r#"transitions_total{group="karpenter.sh",kind="NodeClaim",type="Initialized",status="False",reason="R"} 1"#;
        assert_eq!(changes(), [first], "another reason is no change of status, and a new condition had none before");
        apply(&store, 3, "u", &[condition("Launched", "True", "Launched", 996), initialized("False", 995)]);
        let of = r#"{group="karpenter.sh",kind="NodeClaim",type="Launched",status="Unknown"}"#;
        let launched = r#"transitions_total{group="karpenter.sh",kind="NodeClaim",type="Launched",status="True",reason="Launched"} 1"#;
        assert_eq!(
            changes(),
            [
                format!("transition_seconds_count{of} 1"),
                format!("transition_seconds_sum{of} 6.0"),
                first.to_owned(),
                launched.to_owned()
            ]
        );
        apply(&store, 4, "other", &[condition("Launched", "False", "LaunchFailed", 999)]);
        assert_eq!(changes().len(), 4, "another object of its name");
    }

    #[test]
    fn made_up_reasons_do_not_make_series_without_end() {
        let (metrics, store, _) = observed();
        apply(&store, 1, "u", &[]);
        for index in 0..2 * MAX_NAMES as u64 {
            let status = if index % 2 == 0 { "True" } else { "False" };
            apply(&store, 2 + index, "u", &[condition("Ready", status, &format!("R{index}"), 990)]);
        }
        let counted = series(&metrics);
        let counted: Vec<&String> = counted.iter().filter(|line| line.starts_with("transitions_total")).collect();
        assert_eq!(counted.len(), MAX_NAMES + 2, "and what is beyond, true or false");
        assert!(
            counted.iter().any(|line| line.contains(r#"type="Other",status="True",reason="Other""#)),
            "{counted:?}"
        );
    }
}
