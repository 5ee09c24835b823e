//! Pods that are being deleted and will be gone before a machine could be there: what only they hold of devices is
//! worth waiting for.
//!
//! How long a machine takes is learned for each NodePool from its NodeClaims that have come up: the median of the time
//! from their creation until they were initialized. Until one has, and on nodes of no NodePool, [`DEFAULT`] counts;
//! what was learned counts within [`BOUNDS`]. A pod whose time is over by as much is not waited for any longer:
//! something keeps it (a finalizer, a kubelet that does not answer), and nobody knows for how long.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::conditions::node_claim::INITIALIZED;
use api::{NodeClaim, labels};
use model::{DurationMs, IdVec, Pod, Timestamp, Uid};
use scheduling::snapshot::{Excluded, Node, NodeId};

use super::Cluster;
use crate::node_claim::{label, timestamp, true_since};

/// What a machine takes where nothing was learned.
const DEFAULT: DurationMs = DurationMs::from_seconds(120);

/// The least and the most that a machine is taken to need, whatever was learned: fake machines come up at once, and one
/// that took an hour says nothing of the next.
const BOUNDS: (DurationMs, DurationMs) = (DurationMs::from_seconds(30), DurationMs::from_seconds(600));

/// The pods that end soon, in the order of nodes.
pub(super) fn ending(cluster: &Cluster, nodes: &IdVec<NodeId, Arc<Node>>) -> Vec<Uid> {
    let mut ending = Vec::new();
    let mut learned = None;
    for node in nodes.iter().filter(|node| node.excluded != Some(Excluded::Deleting)) {
        for pod in node.pods.iter().filter(|pod| pod.node_name.is_some()) {
            let Some(deadline) = pod.deletion_timestamp else { continue };
            let learned = learned.get_or_insert_with(|| launch_times(&cluster.node_claims));
            let of_pool = node.node_pool.as_ref().and_then(|pool| learned.get(pool.as_str()));
            if is_soon(cluster.now, deadline, of_pool.copied().unwrap_or(DEFAULT)) && holds_devices(pod) {
                ending.push(pod.uid.clone());
            }
        }
    }
    ending
}

/// Whether a pod that has to be gone by the deadline (`metadata.deletionTimestamp`) is likely to be so in that time,
/// and is not overdue by more.
fn is_soon(now: Timestamp, deadline: Timestamp, launch_time: DurationMs) -> bool {
    deadline <= now.saturating_add(launch_time) && now <= deadline.saturating_add(launch_time)
}

fn holds_devices(pod: &Pod) -> bool {
    !pod.shape.resource_claims.is_empty() || !pod.resource_claim_names.is_empty()
}

/// By NodePool: how long its machines take.
fn launch_times(node_claims: &[Arc<NodeClaim>]) -> BTreeMap<&str, DurationMs> {
    let mut times: BTreeMap<&str, Vec<DurationMs>> = BTreeMap::new();
    for claim in node_claims {
        let created_at = claim.metadata.creation_timestamp.as_ref().map(timestamp);
        if let (Some(created_at), Some(initialized_at)) = (created_at, true_since(claim, INITIALIZED)) {
            times.entry(label(claim, labels::NODEPOOL)).or_default().push(initialized_at.since(created_at));
        }
    }
    let median = |mut times: Vec<DurationMs>| {
        times.sort_unstable();
        times.get(times.len() / 2).map_or(DEFAULT, |time| (*time).clamp(BOUNDS.0, BOUNDS.1))
    };
    times.into_iter().map(|(pool, times)| (pool, median(times))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(pool: &str, seconds: Option<i64>) -> Arc<NodeClaim> {
        let initialized = seconds.map(|seconds| {
            let time = format!("2026-01-01T00:{:02}:{:02}Z", seconds / 60, seconds % 60);
            json!({"type": "Initialized", "status": "True", "reason": "Initialized", "message": "",
                "lastTransitionTime": time})
        });
        let spec = json!({"requirements": [], "nodeClassRef": {"group": "g", "kind": "K", "name": "c"}});
        let object = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "spec": spec,
            "metadata": {"name": "c", "labels": {"karpenter.sh/nodepool": pool},
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"conditions": initialized.into_iter().collect::<Vec<_>>()}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn the_time_of_a_launch_is_the_median_of_its_node_pool_within_bounds() {
        let seconds = [
            ("slow", Some(200)),
            ("slow", Some(300)),
            ("slow", Some(3000)),
            ("fast", Some(1)),
            ("stuck", Some(3599)),
            ("new", None),
        ];
        let claims: Vec<_> = seconds.map(|(pool, seconds)| claim(pool, seconds)).into();
        let expected = [("fast", 30), ("slow", 300), ("stuck", 600)];
        let expected = expected.map(|(pool, seconds)| (pool, DurationMs::from_seconds(seconds)));
        assert_eq!(launch_times(&claims), expected.into());
    }

    #[test]
    fn a_pod_ends_soon_if_its_time_is_over_before_a_machine_is_there_and_not_long_ago() {
        let now = Timestamp::from_seconds(1_000_000);
        let launch_time = DurationMs::from_seconds(100);
        for (seconds, expected) in [(-101, false), (-100, true), (0, true), (100, true), (101, false)] {
            let deadline = now.saturating_add(DurationMs::from_seconds(seconds));
            assert_eq!(is_soon(now, deadline, launch_time), expected, "{seconds}");
        }
    }
}
