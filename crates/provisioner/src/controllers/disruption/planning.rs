//! A plan of disruption, and when one is worth making.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::NodeClaim;
use api::conditions::node_claim as conditions;
use cloudprovider::{RepairAction, RepairPolicies};
use cluster::node_claim::command::has_note;
use cluster::node_claim::expiration;
use cluster::node_repair::{self, Diagnosis, Repair};
use k8s_openapi::api::core::v1::Node;
use model::{NodeClaimName, Timestamp};
use scheduling::disruption::plan::DisruptionPlan;
use scheduling::snapshot::expiration::{Expiration, ExpirationRules};
use scheduling::snapshot::pending::is_of_workload;

use crate::world::claim;
use crate::world::fleet_looks::Looked;
use crate::world::node_facts;
use crate::world::store::{State, Stored};

/// A plan, and what it was made from.
pub(crate) type Planned = Looked<DisruptionPlan>;

/// The NodeClaims whose machines are to be replaced now because they are broken, whatever may keep them.
pub(crate) fn broken(state: &State, policies: Option<&Arc<RepairPolicies>>, now: Timestamp) -> BTreeSet<NodeClaimName> {
    let Some(policies) = policies else { return BTreeSet::new() };
    let unhealthy = state.nodes.values().filter(|record| node_repair::is_unhealthy(&record.object, policies));
    let claims = unhealthy.flat_map(|record| {
        let id = node_facts::provider_id(&record.object);
        id.into_iter().flat_map(|id| state.node_claims_of_machine(id)).map(move |claim| (record, claim))
    });
    let broken = claims.filter(|(record, claim)| {
        !claim::is_deleting(claim) && !has_note(claim) && repair(&record.object, claim, policies, now).is_some()
    });
    broken.map(|(_, claim)| claim.key()).collect()
}

/// How a machine is broken that is to be replaced for that now.
pub(crate) fn repair<'p>(
    node: &Node,
    claim: &NodeClaim,
    policies: &'p RepairPolicies,
    now: Timestamp,
) -> Option<Repair<'p>> {
    match node_repair::diagnose(node, Some(claim), policies, now) {
        Diagnosis::Broken(repair) => Some(repair).filter(|repair| repair.action == RepairAction::ReplaceNode),
        Diagnosis::Healthy | Diagnosis::Tolerated(_) => None,
    }
}

/// How many pods there are on Nodes, those of DaemonSets apart. One on its way out counts as long as it is there: it
/// moves nowhere, but takes room for which others would get a machine launched.
pub(crate) fn pods_on_nodes(state: &State) -> usize {
    state.pods.values().filter(|pod| pod.node_name.is_some() && is_of_workload(pod)).count()
}

/// Whether any machine could go for what its NodeClaim says of itself.
pub(crate) fn has_work(state: &State, rules: ExpirationRules, now: Timestamp) -> bool {
    state.node_claims.values().any(|claim| is_eligible(state, claim, rules, now))
}

/// Whether a NodeClaim says that it could go.
pub(crate) fn is_eligible(state: &State, claim: &NodeClaim, rules: ExpirationRules, now: Timestamp) -> bool {
    if claim::is_deleting(claim) || has_note(claim) {
        return false;
    }
    let is_expired = || {
        let pool = state.node_pools.get(claim::node_pool(claim)).map(AsRef::as_ref);
        matches!(expiration::decide(claim, pool, rules, now), Ok(Some(Expiration::Graceful { .. })))
    };
    claim::is(claim, conditions::DRIFTED) || claim::is(claim, conditions::CONSOLIDATABLE) || is_expired()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::world::store::ClusterStore;
    use crate::world::store::test_objects::{controlled_by, merge};

    fn pod(store: &ClusterStore, name: &str, owner: &str, change: &Value) {
        let mut pod = json!({
            "metadata": {"name": name, "ownerReferences": controlled_by(owner, "o")},
            "spec": {"nodeName": "n"}, "status": {"phase": "Running"},
        });
        merge(&mut pod, change.clone());
        store.show_pod(pod);
    }

    #[test]
    fn pods_count_until_they_are_gone_from_their_nodes() {
        let store = ClusterStore::new();
        let change = json!({});
        pod(&store, "runs", "ReplicaSet", &change);
        let leaves = json!({"metadata": {"deletionTimestamp": "2026-11-25T21:00:00Z"}});
        pod(&store, "leaves", "ReplicaSet", &leaves);
        pod(&store, "daemon", "DaemonSet", &change);
        pod(&store, "done", "Job", &json!({"status": {"phase": "Succeeded"}}));
        pod(&store, "waits", "ReplicaSet", &json!({"spec": {"nodeName": null}}));
        assert_eq!(pods_on_nodes(&store.read()), 2);
    }
}
