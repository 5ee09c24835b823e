//! What Nodes have, and what the pods on them ask for.
//!
//! Differs: `limits-series`. What they are limited to is not read, so there are no sums of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use api::conditions::node_claim::INITIALIZED;
use api::labels::{ARCH, CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL, OS, ProviderLabels, REGION, WINDOWS_BUILD, ZONE};
use api::resources;
use model::{NodeName, Pod, Quantity, ResourceVec, Timestamp};
use parking_lot::Mutex;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::runtime::conditions::to_timestamp;
use crate::runtime::metrics::age_seconds;
use crate::world::claim;
use crate::world::store::{NodeRecord, State};

/// The labels that Nodes of every cloud have, which are labels of their series.
const WELL_KNOWN: [&str; 7] = [ARCH, CAPACITY_TYPE, INSTANCE_TYPE, OS, REGION, WINDOWS_BUILD, ZONE];

/// What the pods of a Node ask for.
#[derive(Debug, Clone, Default)]
pub(super) struct Requests {
    /// All but DaemonSets'.
    pods: ResourceVec,
    /// DaemonSets'.
    daemons: ResourceVec,
}

/// Sums that were made, with the pods that they are of.
#[derive(Debug, Default)]
pub(super) struct Sums {
    known: Mutex<(u64, BTreeMap<NodeName, Sum>)>,
}

type Sum = (Arc<Vec<Arc<Pod>>>, Arc<Requests>);

impl Sums {
    /// The sums of all Nodes with pods. Only those are made anew whose pods have changed.
    pub(super) fn of(&self, state: &State) -> BTreeMap<NodeName, Arc<Requests>> {
        let mut known = self.known.lock();
        let (epoch, sums) = &mut *known;
        // Numbers of resources mean something else in another epoch.
        if *epoch != state.epoch {
            (*epoch, *sums) = (state.epoch, BTreeMap::new());
        }
        sums.retain(|name, _| state.nodes.get(name).is_some());
        for name in state.nodes.keys() {
            let Some(pods) = state.bound_pods.shared(name) else {
                sums.remove(name);
                continue;
            };
            if !sums.get(name).is_some_and(|(of, _)| Arc::ptr_eq(of, pods)) {
                sums.insert(name.clone(), (Arc::clone(pods), Arc::new(sum(pods))));
            }
        }
        sums.iter().map(|(name, (_, requests))| (name.clone(), Arc::clone(requests))).collect()
    }
}

fn sum(pods: &[Arc<Pod>]) -> Requests {
    let mut requests = Requests::default();
    for pod in pods.iter().filter(|pod| !pod.phase.is_terminal()) {
        let sum = if pod.is_daemon { &mut requests.daemons } else { &mut requests.pods };
        sum.saturating_add_assign(&pod.shape.requests);
    }
    requests
}

/// By resource, in its unit.
type Amounts = BTreeMap<String, f64>;

fn amounts(requests: &ResourceVec, state: &State) -> Amounts {
    let amount = |(resource, _)| {
        let name = state.interner.resource_name(resource).to_owned();
        (name, number(requests.quantity(resource)))
    };
    requests.iter().map(amount).collect()
}

fn number(quantity: Quantity) -> f64 {
    quantity.to_nano() as f64 / 1e9
}

fn listed(record: &NodeRecord, of: impl Fn(&k8s_openapi::api::core::v1::NodeStatus) -> Listed<'_>) -> Amounts {
    let list = record.object.status.as_ref().and_then(of);
    let parsed = list.into_iter().flatten().filter_map(|(name, amount)| {
        // What is no quantity was told of when the Node was read.
        Some((name.clone(), number(Quantity::parse(&amount.0).ok()?)))
    });
    parsed.collect()
}

type Listed<'s> = Option<&'s BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>;

fn allocatable(record: &NodeRecord) -> Amounts {
    listed(record, |status| status.allocatable.as_ref())
}

/// `cluster_utilization_percent`: what pods ask for, of what all Nodes of ours have for them.
pub(super) fn encode_cluster(
    sums: &BTreeMap<NodeName, Arc<Requests>>,
    state: &State,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let (mut has, mut asked) = (Amounts::new(), Amounts::new());
    for (name, record) in state.nodes.iter() {
        for (resource, amount) in allocatable(record) {
            *has.entry(resource).or_default() += amount;
        }
        let Some(requests) = sums.get(name) else { continue };
        for part in [&requests.pods, &requests.daemons] {
            for (resource, amount) in amounts(part, state) {
                *asked.entry(resource).or_default() += amount;
            }
        }
    }
    let help = "What the pods on all Nodes ask for, in percent of what these have for pods";
    let mut family =
        encoder.encode_descriptor("karpenter_cluster_utilization_percent", help, None, MetricType::Gauge)?;
    for (resource, has) in has.into_iter().filter(|(_, has)| *has > 0.0) {
        let percent = asked.get(&resource).copied().unwrap_or_default() / has * 100.0;
        let labels = [("resource_type", resource.as_str())];
        ConstGauge::new(percent).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// What is shown of each Node.
struct Shown<'s> {
    record: &'s NodeRecord,
    requests: Arc<Requests>,
    labels: Vec<(String, String)>,
}

/// The series of each Node.
pub(super) fn encode_each(
    sums: &BTreeMap<NodeName, Arc<Requests>>,
    state: &State,
    (provider, now): (&ProviderLabels, Timestamp),
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let keys = keys(provider);
    let shown: Vec<Shown<'_>> = state
        .nodes
        .iter()
        .map(|(name, record)| Shown {
            record,
            requests: sums.get(name).cloned().unwrap_or_default(),
            labels: labels_of(record, state, &keys),
        })
        .collect();
    let mut family = |name: &str, help: &str, amounts: &dyn Fn(&Shown<'_>) -> Amounts| -> fmt::Result {
        let name = format!("karpenter_nodes_{name}");
        let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
        for node in &shown {
            for (resource, amount) in amounts(node) {
                let mut labels = vec![("resource_type".to_owned(), resource)];
                labels.extend(node.labels.iter().cloned());
                ConstGauge::new(amount).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    };
    family("allocatable", "What Nodes have for pods", &|node| allocatable(node.record))?;
    let help = "What the pods on Nodes ask for, but for DaemonSets'";
    family("total_pod_requests", help, &|node| amounts(&node.requests.pods, state))?;
    let help = "What the pods of DaemonSets on Nodes ask for";
    family("total_daemon_requests", help, &|node| amounts(&node.requests.daemons, state))?;
    let help = "What Nodes have and keep for themselves";
    family("system_overhead", help, &|node| overhead(node.record))?;
    let help = "Age of Nodes";
    let name = "karpenter_nodes_current_lifetime_seconds";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for node in &shown {
        let created_at = node.record.object.metadata.creation_timestamp.as_ref().map(to_timestamp);
        let age = created_at.map_or(0.0, |created_at| age_seconds(now.since(created_at)));
        ConstGauge::new(age).encode(family.encode_family(&node.labels)?)?;
    }
    Ok(())
}

fn overhead(record: &NodeRecord) -> Amounts {
    let for_pods = allocatable(record);
    let mut kept = listed(record, |status| status.capacity.as_ref());
    kept.retain(|resource, _| *resource != resources::PODS);
    for (resource, amount) in &mut kept {
        *amount -= for_pods.get(resource).copied().unwrap_or_default();
    }
    kept
}

/// The labels of Nodes that are labels of their series, and their names there: the part behind the slash, in
/// Prometheus' spelling.
fn keys(provider: &ProviderLabels) -> Vec<(String, String)> {
    let of_provider = provider.well_known.iter().map(String::as_str);
    let all: BTreeSet<&str> = WELL_KNOWN.into_iter().chain(of_provider).collect();
    let name = |key: &str| {
        let (_, last) = key.rsplit_once('/')?;
        Some((key.to_owned(), last.to_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), "_")))
    };
    all.into_iter().filter_map(name).collect()
}

fn labels_of(record: &NodeRecord, state: &State, keys: &[(String, String)]) -> Vec<(String, String)> {
    let metadata = &record.object.metadata;
    let label = |key: &str| metadata.labels.as_ref().and_then(|it| it.get(key)).cloned().unwrap_or_default();
    let claim = state.node_claims_of_machine(record.model.provider_id.as_deref().unwrap_or_default()).next();
    let phase = match claim {
        _ if metadata.deletion_timestamp.is_some() => "Terminating",
        Some(claim) if !claim::is(claim, INITIALIZED) => "Pending",
        Some(_) | None => "Running",
    };
    let own = [
        ("node_name", record.model.name.to_string()),
        ("nodepool", label(NODEPOOL)),
        ("phase", phase.to_owned()),
        ("managed", claim.is_some().to_string()),
    ];
    let of_machine = keys.iter().map(|(key, name)| (name.clone(), label(key)));
    own.map(|(name, value)| (name.to_owned(), value)).into_iter().chain(of_machine).collect()
}
