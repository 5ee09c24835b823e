//! Machines and pods as the API has them.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use api::NodeClaim;
use decode::Context;
use model::{Interner, Timestamp};
use serde_json::{Value, json};

use super::{BUDGET_PERCENT, CONSOLIDATE_AFTER, Machine, MachineKey, name};
use crate::market::Market;
use crate::trace::Workload;

/// Of all pods.
pub(super) const NAMESPACE: &str = "default";
const NODE_POOL: &str = "default";

/// A Node and its NodeClaim.
pub(super) type Decoded = (Arc<model::Node>, Arc<NodeClaim>);

pub(super) fn pod(workload: &Workload) -> Value {
    let Workload { name, milli_cpu, memory_mib, zone } = workload;
    let requests = json!({"cpu": format!("{milli_cpu}m"), "memory": format!("{memory_mib}Mi")});
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": true});
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": name, "labels": {"app": name}, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "app", "image": "app", "resources": {"requests": requests}}]},
    });
    if let Some(zone) = zone.and_then(|zone| bench::catalogues::ZONES.get(zone)) {
        pod["spec"]["nodeSelector"] = json!({api::labels::ZONE: zone});
    }
    pod
}

pub(super) fn node_pool() -> Value {
    let on_demand = json!({"key": api::labels::CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]});
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": NODE_POOL, "uid": NODE_POOL},
        "spec": {
            "template": {"spec": {"requirements": [on_demand], "nodeClassRef": class}},
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": format!("{}s", CONSOLIDATE_AFTER.as_seconds()),
                "budgets": [{"nodes": format!("{BUDGET_PERCENT}%")}],
            },
        },
    })
}

/// A machine as it is now.
pub(super) fn decoded(key: MachineKey, machine: &Machine, market: &Market, names: &mut Interner) -> Result<Decoded> {
    let (of_type, offering) = market.offering(machine.bought);
    let bench::machine::Machine { mut node, mut node_claim } =
        bench::machine::machine(&name(key), NODE_POOL, of_type, offering);
    let condition = |of: &str, reason: &str, since: Timestamp| json!({"type": of, "status": "True", "reason": reason, "message": "", "lastTransitionTime": since.to_string()});
    let mut conditions: Vec<Value> =
        ["Launched", "Registered"].iter().map(|of| condition(of, of, machine.launched_at)).collect();
    conditions.extend(machine.ready_at.map(|at| condition("Initialized", "Initialized", at)));
    if machine.is_quiet {
        conditions.push(condition("Consolidatable", "Consolidatable", machine.last_pod_event));
    }
    if machine.is_going {
        conditions.push(condition("DisruptionReason", "Underutilized", machine.last_pod_event));
        node["spec"]["taints"] = json!([{"key": api::taints::DISRUPTED, "effect": "NoSchedule"}]);
    }
    node_claim["status"]["conditions"] = conditions.into();
    node_claim["status"]["lastPodEventTime"] = machine.last_pod_event.to_string().into();
    if machine.ready_at.is_none() {
        node["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]);
        for object in [&mut node, &mut node_claim] {
            if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
                labels.remove(api::labels::INITIALIZED);
            }
        }
    }
    let context = &mut Context::new(names);
    let node = decode::node(&node, context).map_err(|error| anyhow!("{error}"))?;
    let node_claim = decode::node_claim_object(&node_claim).map_err(|error| anyhow!("{error}"))?;
    Ok((Arc::new(node), Arc::new(node_claim)))
}
