//! The NodeClaim of a static NodePool: the bare template.
//!
//! It asks for what the NodePool's requirements and labels say, for no resources and no instance types of its own; the
//! provider launches the cheapest machine that it may (Karpenter's `NodeClaimTemplate.ToNodeClaim` for static
//! NodePools).

use std::sync::Arc;

use api::labels::ProviderLabels;
use api::{NodeClaim, NodePool};
use cluster::node_pool::{Usage, node_pool as resolved};
use model::{DurationMs, Interner};

use crate::world::new_node_claim::{Error, expressions, of_node_pool};

/// One without a name. A label that is no provider's and that the requirements leave open gets a value, as on other
/// machines.
///
/// # Errors
/// The NodePool cannot be resolved, which admission refuses.
pub(crate) fn node_claim(
    node_pool: &NodePool,
    labels: &ProviderLabels,
    default_termination_grace_period: Option<DurationMs>,
) -> Result<NodeClaim, Error> {
    let mut claim = of_node_pool(node_pool, default_termination_grace_period)?;
    let mut names = Interner::new();
    let context = &mut decode::Context::with_labels(&mut names, labels);
    let pool = resolved(node_pool, Ok(()), &Usage::default(), Arc::default(), context)?;
    let mut requirements = pool.requirements;
    for key in pool.planning_only {
        requirements.remove(key);
    }
    let of_claim = claim.metadata.labels.get_or_insert_default();
    for requirement in requirements.iter_by_name(&names) {
        let key = names.key_name(requirement.key);
        if !labels.is_well_known(key)
            && let Some(value) = requirement.values.any_value(&names)
        {
            of_claim.entry(key.to_owned()).or_insert_with(|| value.to_string());
        }
    }
    claim.spec.requirements = expressions(&requirements, &names);
    Ok(claim)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_is_the_template_with_the_labels_that_are_open() {
        let pool: NodePool = serde_json::from_value(json!({
            "metadata": {"name": "fixed", "uid": "u"},
            "spec": {"replicas": 2, "template": {
                "metadata": {"labels": {"team": "web"}, "annotations": {"note": "x"}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "requirements": [
                        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b", "a"]},
                        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["x", "y"], "minValues": 2},
                        {"key": "disk", "operator": "In", "values": ["nvme", "hdd"]},
                        {"key": "old", "operator": "DoesNotExist"},
                    ],
                    "taints": [{"key": "t", "effect": "NoSchedule"}],
                    "expireAfter": "720h",
                },
            }},
        }))
        .unwrap();
        let claim = node_claim(&pool, &ProviderLabels::default(), Some(DurationMs::from_seconds(90))).unwrap();
        let claim = serde_json::to_value(claim).unwrap();
        assert_eq!(
            claim["metadata"]["labels"],
            json!({"team": "web", "disk": "hdd", "karpenter.sh/nodepool": "fixed",
                "karpenter.kwok.sh/kwoknodeclass": "default"})
        );
        assert_eq!(claim["metadata"]["annotations"]["note"], "x");
        assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], "u");
        let requires = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
        assert_eq!(
            claim["spec"],
            json!({
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [
                    requires("disk", &["hdd", "nvme"]),
                    requires("karpenter.kwok.sh/kwoknodeclass", &["default"]),
                    requires("karpenter.sh/nodepool", &["fixed"]),
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["x", "y"], "minValues": 2},
                    {"key": "old", "operator": "DoesNotExist"},
                    requires("team", &["web"]),
                    requires("topology.kubernetes.io/zone", &["a", "b"]),
                ],
                "taints": [{"key": "t", "effect": "NoSchedule"}],
                "terminationGracePeriod": "1m30s",
                "expireAfter": "720h",
            })
        );
    }
}
