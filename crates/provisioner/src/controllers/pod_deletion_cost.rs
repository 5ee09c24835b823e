//! Tells ReplicaSets which of their pods to delete first when they are scaled down: those on nodes that are being
//! removed or could be removed soon (feature gate PodDeletionCostManagement, Karpenter 1.15's
//! `pkg/controllers/pod/deletioncost`).
//!
//! [`deletion_order`] ranks the nodes, `wanted` says which annotations to change. With the gate the annotation
//! `controller.kubernetes.io/pod-deletion-cost` belongs to the controller: values that users wrote are removed, and it
//! changes no eviction's cost. When the gate is turned off the last values stay on the pods, as with Karpenter.

mod wanted;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::annotations::POD_DELETION_COST;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use scheduling::disruption::deletion_order::deletion_order;
use serde_json::json;
use tracing::{debug, info};

use crate::runtime::controller_loop::{Looks, Rhythm};
use crate::runtime::failures::{in_words, is_conflict, is_not_found};
use crate::runtime::metrics::{ByNodePool, ByResult, Metrics};
use crate::world::context::Context;
use crate::world::fleet_looks::{FleetLooks, Looked};
use crate::world::store::Kind;

use wanted::{OfNode, wanted};

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "pod.deletioncost";
/// Karpenter's interval.
const RHYTHM: Rhythm = Rhythm {
    first: Duration::from_secs(60),
    period: Duration::from_secs(60),
    collect: Duration::ZERO,
    bound: Duration::from_secs(600),
};
/// Requests at the same time.
const PARALLEL_WRITES: usize = 10;
/// What may change the order of nodes.
const LOOKED_AT: [Kind; 7] = [
    Kind::Pod,
    Kind::Node,
    Kind::NodeClaim,
    Kind::NodePool,
    Kind::PodDisruptionBudget,
    Kind::CapacityBuffer,
    Kind::NodeOverlay,
];

/// Its metrics, by Karpenter's names.
#[derive(Debug, Clone)]
pub(crate) struct DeletionCostMetrics {
    pending: Family<ByNodePool, Gauge>,
    writes: Family<ByResult, Counter>,
}

impl DeletionCostMetrics {
    /// Registers them.
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let this = Self { pending: Family::default(), writes: Family::default() };
        let of_cost = metrics.registry_mut().sub_registry_with_prefix("karpenter_pod_deletion_cost");
        of_cost.register(
            "nodes_with_pending_annotation_writes",
            "Nodes with pods whose pod-deletion-cost annotation is not written yet",
            this.pending.clone(),
        );
        of_cost.register(
            "pod_annotation_writes",
            "Pods whose pod-deletion-cost annotation was to be written, by result",
            this.writes.clone(),
        );
        this
    }

    /// Counts pods by what became of them.
    pub(crate) fn count(&self, result: &str, pods: usize) {
        let labels = ByResult { result: result.to_owned() };
        self.writes.get_or_create(&labels).inc_by(u64::try_from(pods).unwrap_or(u64::MAX));
    }

    /// Shows the nodes that wait for writes, given by the names of their NodePools.
    pub(crate) fn waiting<'n>(&self, node_pools: impl IntoIterator<Item = &'n String>) {
        self.pending.clear();
        for nodepool in node_pools {
            self.pending.get_or_create(&ByNodePool { nodepool: nodepool.clone() }).inc();
        }
    }
}

/// Runs until the context is stopped.
pub(crate) async fn run(context: Context, metrics: DeletionCostMetrics) {
    let has_changed = Arc::new(AtomicBool::new(true));
    let changed = Arc::clone(&has_changed);
    context.store.on_any_of(&LOOKED_AT, move |_, _| changed.store(true, Ordering::Relaxed));
    context.store.wait_until_synced().await;
    let fleet = FleetLooks::new("deletion costs of pods");
    let mut looks = Looks::new(NAME, RHYTHM, &context.beats, &context.stop);
    while looks.next().await {
        if !has_changed.swap(false, Ordering::Relaxed) {
            continue;
        }
        let Some(looked) = fleet.look(&context, deletion_order).await else {
            has_changed.store(true, Ordering::Relaxed);
            continue;
        };
        looks.beat().busy();
        let Looked { state, snapshot, found: order, .. } = looked;
        let wanted = wanted(&state, &snapshot, &order);
        drop((state, snapshot));
        let (now, later) = (pools(&wanted.now), pools(&wanted.later));
        metrics.waiting(now.iter().chain(&later));
        metrics.count("skipped_unchanged", wanted.unchanged);
        let failed = write(&context, &metrics, wanted.now).await;
        metrics.waiting(&later);
        // The next look writes the rest even if nothing changes until then.
        if failed > 0 || !later.is_empty() {
            has_changed.store(true, Ordering::Relaxed);
        }
    }
}

/// The NodePool of each node.
fn pools(nodes: &[OfNode]) -> Vec<String> {
    nodes.iter().map(|of_node| of_node.node_pool.clone()).collect()
}

/// Writes annotations; gives the number of requests that failed and have to be repeated.
async fn write(context: &Context, metrics: &DeletionCostMetrics, nodes: Vec<OfNode>) -> usize {
    let of_nodes = nodes.len();
    let of_pods = |of_node: OfNode| of_node.pods.into_iter().map(move |pod| (pod, of_node.cost));
    let writes: Vec<(Arc<model::Pod>, Option<i32>)> = nodes.into_iter().flat_map(of_pods).collect();
    let writing = writes.into_iter().map(|(pod, cost)| {
        let api: Api<Pod> = Api::namespaced(context.client.clone(), &pod.name.namespace);
        async move { (annotate(&api, &pod, cost).await, pod) }
    });
    let mut answers = futures::stream::iter(writing).buffer_unordered(PARALLEL_WRITES);
    let (mut updated, mut failed) = (0, 0);
    while let Some((answer, pod)) = answers.next().await {
        let result = match answer {
            Ok(()) => {
                updated += 1;
                "updated"
            }
            Err(failure) if is_not_found(&failure) => "skipped_notfound",
            Err(failure) if is_conflict(&failure) => "skipped_conflict",
            Err(failure) => {
                failed += 1;
                debug!(pod = %pod.name, error = in_words(&failure), "could not write the deletion cost of a pod");
                "error"
            }
        };
        metrics.count(result, 1);
    }
    if updated > 0 {
        info!(pod_count = updated, node_count = of_nodes, "wrote deletion costs of pods");
    }
    failed
}

/// Sets the annotation, or removes it.
async fn annotate(api: &Api<Pod>, pod: &model::Pod, cost: Option<i32>) -> anyhow::Result<()> {
    let value = cost.map(|cost| cost.to_string());
    // With the uid, so that the patch does not change a later pod of the same name.
    let patch = json!({"metadata": {"uid": &*pod.uid, "annotations": {POD_DELETION_COST: value}}});
    api.patch_metadata(&pod.name.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}
