//! How many machines of a NodePool count against its budgets, for those who ask without a snapshot: before a command
//! begins, and before a broken machine is rebooted.
//!
//! Plans of disruption count in the same way, see [`snapshot`](crate::snapshot).

use api::conditions::node_claim as conditions;
use api::{NodeClaim, NodePool, taints};
use decode::ObjectError;
use k8s_openapi::api::core::v1::Node;
use model::Timestamp;
use scheduling::snapshot::NodeState;
use scheduling::snapshot::fleet::{FleetPool, Reason, UnderWay};

use crate::node_claim::true_condition;
use crate::node_repair::is_ready;
use crate::snapshot::fleet::pools::{self, Counts};
use crate::snapshot::fleet::under_way;

/// What has been begun with a machine that keeps it from being repaired.
pub fn begun(claim: &NodeClaim, node: &Node) -> Option<UnderWay> {
    let is_deleting = claim.metadata.deletion_timestamp.is_some() || node.metadata.deletion_timestamp.is_some();
    let of_node = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    under_way(claim, is_deleting, of_node.iter().any(|taint| taint.key == taints::DISRUPTED))
}

/// The machines of a NodePool, as its budgets count them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machines(Counts);

impl Machines {
    /// Counts one with its Node.
    pub fn add(&mut self, claim: &NodeClaim, node: &Node) {
        let is_initialized = true_condition(claim, conditions::INITIALIZED).is_some();
        let state = if is_initialized { NodeState::Initialized } else { NodeState::Registered };
        self.0.add(state, claim, begun(claim, node).as_ref(), is_ready(node));
    }

    /// How many are being disrupted, or are not ready.
    pub fn disrupted(self) -> u32 {
        self.0.disrupted()
    }

    /// How many more may be repaired now, whether or not others are ready, and by which words of the NodePool; `None`
    /// is any number. Budgets that cannot be read are reported, and allow none.
    pub fn allowed(self, pool: &NodePool, now: Timestamp) -> Result<Option<(u32, String)>, Vec<ObjectError>> {
        let mut errors = Vec::new();
        let pool: FleetPool = pools::pool(pool, self.0, now, &mut errors);
        if !pool.faults.is_empty() {
            return Err(errors);
        }
        let limit = pool.strictest(Reason::Unhealthy);
        Ok(limit.map(|limit| (limit.allowed.saturating_sub(pool.going), limit.text.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(condition: Option<&str>) -> NodeClaim {
        let conditions: Vec<Value> = condition
            .map(|type_| json!({"type": type_, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}))
            .into_iter()
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "a"},
            "spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": []},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn budgets_count_what_is_under_way_and_those_for_unhealthy_not_what_is_not_ready() {
        let pool = |budgets: Value| -> NodePool {
            serde_json::from_value(json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"},
                "spec": {
                    "disruption": {"consolidateAfter": "0s", "budgets": budgets},
                    "template": {"spec": {
                        "requirements": [], "nodeClassRef": {"group": "g", "kind": "K", "name": "n"},
                    }},
                },
            }))
            .unwrap()
        };
        let mut machines = Machines::default();
        let [node, not_ready] = ["True", "False"].map(|status| -> Node {
            serde_json::from_value(json!({"status": {"conditions": [{"type": "Ready", "status": status}]}})).unwrap()
        });
        machines.add(&claim(Some("Initialized")), &not_ready);
        machines.add(&claim(Some("Initialized")), &node);
        machines.add(&claim(Some("Rebooting")), &node);
        // Never initialized: no part of what percentages are of, and nothing is taken away while one starts.
        machines.add(&claim(None), &not_ready);
        assert_eq!(machines.disrupted(), 2);
        let allowed = |budgets: Value| machines.allowed(&pool(budgets), Timestamp::from_seconds(0));
        assert_eq!(
            allowed(json!([{"nodes": "100%"}])),
            Ok(Some((2, "100%".to_owned()))),
            "three, one is being rebooted"
        );
        assert_eq!(
            allowed(json!([{"nodes": "100%"}, {"nodes": "1", "reasons": ["Unhealthy"]}])),
            Ok(Some((0, "1".into())))
        );
        assert_eq!(allowed(json!([{"nodes": "0", "reasons": ["Drifted"]}])), Ok(None));
        assert!(allowed(json!([{"nodes": "some"}])).is_err());
    }
}
