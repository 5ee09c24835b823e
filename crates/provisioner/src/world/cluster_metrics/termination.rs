//! `operator_termination_…`: objects of ours, and Nodes, on their way out; under the names and labels of operators that
//! are built on `awslabs/operatorpkg`.

use std::fmt;
use std::sync::Arc;

use api::{CapacityBuffer, NodeClaim, NodePool};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use model::Timestamp;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::runtime::clock::Clock;
use crate::runtime::conditions::to_timestamp;
use crate::runtime::metrics::{DURATION_BUCKETS, Histograms, age_seconds};
use crate::world::store::{ClusterStore, NodeRecord, State, Stored};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    group: String,
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabels {
    group: String,
    kind: String,
    namespace: String,
    name: String,
}

/// An object of the store of which this is shown.
trait Ending: Stored {
    type Object: Resource<DynamicType = ()>;

    fn metadata(&self) -> &ObjectMeta;
}

macro_rules! ending {
    ($($object:ty),*) => {$(
        impl Ending for $object {
            type Object = Self;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }
        }
    )*};
}

ending!(NodePool, NodeClaim, CapacityBuffer);

impl Ending for NodeRecord {
    type Object = Node;

    fn metadata(&self) -> &ObjectMeta {
        &self.object.metadata
    }
}

fn deleted_at(object: &impl Ending) -> Option<Timestamp> {
    object.metadata().deletion_timestamp.as_ref().map(to_timestamp)
}

fn kind<T: Ending>() -> (String, String) {
    (T::Object::group(&()).into_owned(), T::Object::kind(&()).into_owned())
}

/// How long objects took to go.
#[derive(Debug, Clone)]
pub(super) struct Durations(Histograms<KindLabels>);

impl Durations {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let durations: fn() -> Histogram = || Histogram::new(DURATION_BUCKETS);
        let durations = Self(Family::new_with_constructor(durations));
        registry.register("duration_seconds", "Time from an object's deletion until it was gone", durations.0.clone());
        durations
    }

    pub(super) fn observe(&self, store: &ClusterStore, clock: &Arc<dyn Clock>) {
        self.observe_kind::<NodePool>(store, clock);
        self.observe_kind::<NodeClaim>(store, clock);
        self.observe_kind::<CapacityBuffer>(store, clock);
        self.observe_kind::<NodeRecord>(store, clock);
    }

    fn observe_kind<T: Ending>(&self, store: &ClusterStore, clock: &Arc<dyn Clock>) {
        let (group, kind) = kind::<T>();
        let (durations, labels, clock) = (self.0.clone(), KindLabels { group, kind }, Arc::clone(clock));
        store.on::<T>(move |delta, _| {
            if delta.after.is_none()
                && let Some(deleted_at) = delta.before.and_then(|before| deleted_at(&**before))
            {
                durations.get_or_create(&labels).observe(age_seconds(clock.now().since(deleted_at)));
            }
        });
    }
}

/// How long objects have been on their way out.
pub(super) fn encode(state: &State, now: Timestamp, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Time since the deletion of objects that are not gone yet";
    let name = "operator_termination_current_time_seconds";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    state.node_pools.values().try_for_each(|it| encode_one(&**it, now, &mut family))?;
    state.node_claims.values().try_for_each(|it| encode_one(&**it, now, &mut family))?;
    state.capacity_buffers.values().try_for_each(|it| encode_one(&**it, now, &mut family))?;
    state.nodes.values().try_for_each(|it| encode_one(&**it, now, &mut family))
}

fn encode_one<T: Ending>(object: &T, now: Timestamp, family: &mut MetricEncoder<'_>) -> fmt::Result {
    let Some(deleted_at) = deleted_at(object) else { return Ok(()) };
    let ((group, kind), metadata) = (kind::<T>(), object.metadata());
    let labels = ObjectLabels {
        group,
        kind,
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    };
    ConstGauge::new(age_seconds(now.since(deleted_at))).encode(family.encode_family(&labels)?)
}
