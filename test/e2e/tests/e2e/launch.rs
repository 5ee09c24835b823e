//! Pending pods get machines, and the scheduler puts them there.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use api::NodeClaim;
use e2e::fleet::planned_uids;
use e2e::wait::stays;
use e2e::{eventually, objects};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use std::time::Duration;

use crate::cluster::{Corner, DEADLINE, node_of};

/// A few plans long: what has not happened by then was not planned.
const QUIET: Duration = Duration::from_secs(3);

fn nodes_of(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(node_of).map(str::to_owned).collect()
}

#[tokio::test]
async fn pending_pods_get_machines_and_are_bound_there() -> Result<()> {
    let corner = Corner::shared("pending-pods").await?;
    corner.apply([objects::deployment(&corner.name, "web", 12, &json!({ "cpu": "900m", "memory": "700Mi" }))]).await?;
    let pods = corner.bound(12).await?;
    let nodes: BTreeSet<_> = corner.nodes().await?.iter().map(ResourceExt::name_any).collect();
    assert_eq!(nodes_of(&pods), nodes, "each machine has pods, and no pod is elsewhere");
    let claims = corner.with_nodes().await?;
    assert_eq!(claims.len(), nodes.len());
    let nodes_of_claims: BTreeSet<_> =
        claims.iter().filter_map(|claim| Some(claim.status.as_ref()?.node_name.clone())).collect();
    assert_eq!(nodes_of_claims, nodes);
    Ok(())
}

#[tokio::test]
async fn a_machine_becomes_ready_with_the_labels_and_conditions_of_karpenter() -> Result<()> {
    let corner = Corner::shared("machine-shape").await?;
    corner.apply([objects::pod(&corner.name, "one", &json!({ "cpu": "1" }))]).await?;
    corner.bound(1).await?;
    eventually("the NodeClaim is ready and its node initialized", DEADLINE, async || {
        let claims = corner.node_claims().await?;
        let [claim] = claims.as_slice() else { anyhow::bail!("{} NodeClaims", claims.len()) };
        let status = claim.status.as_ref().context("no status")?;
        let is_true: BTreeSet<_> =
            status.conditions.iter().filter(|c| c.status == "True").map(|c| c.type_.as_str()).collect();
        for wanted in ["Launched", "Registered", "Initialized", "Ready"] {
            ensure!(is_true.contains(wanted), "{wanted} is not true: {:?}", status.conditions);
        }
        ensure!(
            claim.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == "karpenter.sh/termination"),
            "finalizer"
        );
        let nodes = corner.nodes().await?;
        let [node] = nodes.as_slice() else { anyhow::bail!("{} nodes", nodes.len()) };
        for label in ["karpenter.sh/registered", "karpenter.sh/initialized"] {
            ensure!(node.labels().get(label).is_some_and(|value| value == "true"), "{label}: {:?}", node.labels());
        }
        for label in [
            "karpenter.sh/capacity-type",
            "karpenter.sh/nodepool",
            "node.kubernetes.io/instance-type",
            "topology.kubernetes.io/zone",
            "kubernetes.io/arch",
            "kubernetes.io/os",
        ] {
            ensure!(node.labels().contains_key(label), "{label}: {:?}", node.labels());
        }
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let keys: Vec<_> = taints.iter().map(|taint| taint.key.as_str()).collect();
        ensure!(keys == [objects::TEST_KEY], "taints {keys:?}");
        ensure!(
            node.metadata
                .owner_references
                .iter()
                .flatten()
                .any(|owner| owner.kind == "NodeClaim" && owner.name == claim.name_any()),
            "owner: {:?}",
            node.metadata.owner_references
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn free_room_is_used_before_a_machine_is_added() -> Result<()> {
    let corner = Corner::shared("free-room").await?;
    let requests = json!({ "cpu": "100m", "memory": "64Mi" });
    // The first pod needs a machine on which a second of its kind has room.
    corner
        .node_pool(json!({ "spec": { "template": { "spec": { "requirements": [
        { "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"] }] } } } }))
        .await?;
    corner.apply([objects::deployment(&corner.name, "web", 1, &requests)]).await?;
    corner.bound(1).await?;
    corner.apply([objects::deployment(&corner.name, "web", 4, &requests)]).await?;
    let pods = corner.bound(4).await?;
    assert_eq!(nodes_of(&pods).len(), 1);
    stays("there is one NodeClaim", QUIET, async || {
        let claims = corner.node_claims().await?.len();
        ensure!(claims == 1, "{claims} NodeClaims");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_driver_enters_a_held_machine_first_and_the_pods_go_where_they_were_planned() -> Result<()> {
    const STARTUP: &str = "example.com/driver-is-missing";
    let corner = Corner::shared("driver-first").await?;
    corner
        .node_pool(json!({ "spec": { "template": { "spec": {
            "requirements": [{ "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"] }],
            "startupTaints": [{ "key": STARTUP, "effect": "NoSchedule" }],
        } } } }))
        .await?;
    // It tolerates the taint that it takes off in the end, and knows nothing of ours.
    let mut driver = objects::pod_spec(&corner.name, &json!({ "cpu": "50m" }));
    let tolerations = driver["tolerations"].as_array_mut().context("no tolerations")?;
    tolerations.push(json!({ "key": STARTUP, "operator": "Exists" }));
    let labels = json!({ "app": "driver" });
    corner
        .apply([json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": { "name": "driver", "namespace": corner.name },
            "spec": {
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": driver },
            },
        })])
        .await?;
    for (name, cpu) in [("large", "2"), ("small", "700m")] {
        corner.apply([objects::deployment(&corner.name, name, 4, &json!({ "cpu": cpu }))]).await?;
    }
    let nodes = eventually("a driver runs on each machine and the machine is closed again", DEADLINE, async || {
        let pods = corner.pods().await?;
        let with_driver = nodes_of(&pods);
        let claims = corner.node_claims().await?;
        // Machines of a later plan would have their startup taint for ever.
        let planned: BTreeSet<&str> = claims.iter().filter_map(planned_on).flat_map(planned_uids).collect();
        let of_plans = pods.iter().filter(|pod| pod.uid().is_some_and(|uid| planned.contains(uid.as_str()))).count();
        ensure!(of_plans == 8, "{of_plans} of 8 pods have their place");
        let nodes = corner.nodes().await?;
        ensure!(nodes.len() > 1 && nodes.len() == claims.len(), "{} nodes of {}", nodes.len(), claims.len());
        for node in &nodes {
            ensure!(with_driver.contains(&node.name_any()), "{} has no driver", node.name_any());
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
            let keys: BTreeSet<_> = taints.iter().map(|taint| taint.key.as_str()).collect();
            ensure!(keys.contains(STARTUP) && keys.contains("dovetail.sh/held"), "{}: {keys:?}", node.name_any());
        }
        Ok(nodes)
    })
    .await?;
    for node in nodes {
        let api: Api<Node> = Api::all(corner.client.clone());
        eventually("the driver takes the startup taint off", DEADLINE, async || {
            let mut node = api.get(&node.name_any()).await?;
            let taints = node.spec.as_mut().and_then(|spec| spec.taints.as_mut()).context("no taints")?;
            taints.retain(|taint| taint.key != STARTUP);
            Ok(api.replace(&node.name_any(), &PostParams::default(), &node).await.map(drop)?)
        })
        .await?;
    }
    let pods = eventually("every pod is bound", DEADLINE, async || {
        let pods = corner.pods().await?;
        let waiting = pods.iter().filter(|pod| node_of(pod).is_none()).count();
        ensure!(waiting == 0, "{waiting} of {} wait", pods.len());
        Ok(pods)
    })
    .await?;
    for claim in corner.with_nodes().await? {
        let node = claim.status.as_ref().context("no status")?.node_name.clone();
        let on_node = pods.iter().filter(|pod| node_of(pod) == Some(&node) && pod.labels()["app"] != "driver");
        let bound: BTreeSet<String> = on_node.filter_map(ResourceExt::uid).collect();
        let planned = planned_on(&claim).context("no plan")?;
        ensure!(bound == planned_uids(planned).map(str::to_owned).collect(), "{node} has {bound:?}, planned {planned}");
    }
    Ok(())
}

/// The annotation that says which pods a machine was planned for.
fn planned_on(claim: &NodeClaim) -> Option<&str> {
    claim.annotations().get(api::annotations::PLANNED_PODS).map(String::as_str)
}

/// Who has written into an object, by its managed fields.
fn writers<T: ResourceExt>(object: &T) -> BTreeSet<String> {
    object.managed_fields().iter().filter_map(|field| field.manager.clone()).collect()
}

/// The pods, all bound, that the controller has written into, which is whoever wrote the NodeClaims.
async fn patched(corner: &Corner, count: usize) -> Result<Vec<String>> {
    let pods = corner.bound(count).await?;
    let claims = corner.node_claims().await?;
    let controller: BTreeSet<String> = claims.iter().flat_map(writers).collect();
    ensure!(!controller.is_empty(), "nobody wrote {} NodeClaims", claims.len());
    let nodes: BTreeSet<_> = corner.nodes().await?.iter().map(ResourceExt::name_any).collect();
    ensure!(nodes_of(&pods) == nodes, "pods are on {:?} of {nodes:?}", nodes_of(&pods));
    ensure!(claims.len() == nodes.len(), "{} NodeClaims for {} machines", claims.len(), nodes.len());
    let patched = pods.iter().filter(|pod| !writers(*pod).is_disjoint(&controller));
    Ok(patched.map(ResourceExt::name_any).collect())
}

#[tokio::test]
async fn equal_pods_are_bound_on_their_machines_and_none_is_patched() -> Result<()> {
    const MACHINES: usize = 10;
    let corner = Corner::shared_without_node_pool("unpatched").await?;
    let four_cpus = json!({ "spec": { "template": { "spec": { "requirements": [
        { "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"] }] } } } });
    corner.apply([objects::deployment(&corner.name, "web", 30, &json!({ "cpu": "1200m" }))]).await?;
    // All in one plan: pods of a second one are nobody's when the first machines come.
    corner.tried(30).await?;
    corner.node_pool(four_cpus.clone()).await?;
    let patched_pods = patched(&corner, 30).await?;
    ensure!(patched_pods.is_empty(), "patched: {patched_pods:?}");
    let machines = corner.node_claims().await?.len();
    ensure!(machines == MACHINES, "{machines} machines");
    for pod in corner.pods().await? {
        let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
        let keys: Vec<_> = tolerations.filter_map(|toleration| toleration.key.as_deref()).collect();
        ensure!(!keys.contains(&api::taints::HELD), "{} tolerates {keys:?}", pod.name_any());
    }
    // Two sizes that could be packed otherwise: who writes into pods is seen.
    let mixed = Corner::shared_without_node_pool("patched").await?;
    for (name, cpu) in [("large", "2"), ("small", "700m")] {
        mixed.apply([objects::deployment(&mixed.name, name, 4, &json!({ "cpu": cpu }))]).await?;
    }
    mixed.tried(8).await?;
    mixed.node_pool(four_cpus).await?;
    let patched_pods = patched(&mixed, 8).await?;
    ensure!(!patched_pods.is_empty(), "none of the mixed pods was patched, so this test sees nothing");
    Ok(())
}

#[tokio::test]
async fn node_selectors_and_required_affinity_choose_the_machine() -> Result<()> {
    let corner = Corner::shared("selectors").await?;
    let small = json!({ "cpu": "100m" });
    let in_zone = |name: &str, zone: &str| {
        objects::with(
            objects::pod(&corner.name, name, &small),
            json!({ "spec": { "nodeSelector": { "topology.kubernetes.io/zone": zone } } }),
        )
    };
    let on_arm = objects::with(
        objects::pod(&corner.name, "arm", &small),
        json!({ "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                { "matchExpressions": [{ "key": "kubernetes.io/arch", "operator": "In", "values": ["nowhere"] }] },
                { "matchExpressions": [{ "key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"] },
                                       { "key": "karpenter.sh/capacity-type", "operator": "NotIn", "values": ["spot"] }] },
            ] } } } } }),
    );
    corner.apply([in_zone("a", "test-zone-a"), in_zone("b", "test-zone-b"), on_arm]).await?;
    let pods = corner.bound(3).await?;
    let nodes: BTreeMap<_, _> = corner.nodes().await?.into_iter().map(|node| (node.name_any(), node)).collect();
    let label = |pod: &str, label: &str| {
        let pod = pods.iter().find(|candidate| candidate.name_any() == pod)?;
        nodes.get(node_of(pod)?)?.labels().get(label).cloned()
    };
    assert_eq!(label("a", "topology.kubernetes.io/zone").as_deref(), Some("test-zone-a"));
    assert_eq!(label("b", "topology.kubernetes.io/zone").as_deref(), Some("test-zone-b"));
    assert_eq!(label("arm", "kubernetes.io/arch").as_deref(), Some("arm64"));
    assert_eq!(label("arm", "karpenter.sh/capacity-type").as_deref(), Some("on-demand"));
    Ok(())
}

#[tokio::test]
async fn a_nodepools_limit_is_never_passed() -> Result<()> {
    let corner = Corner::shared("limits").await?;
    corner
        .node_pool(json!({ "spec": {
        "limits": { "cpu": "8" },
        "template": { "spec": { "requirements": [
            { "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"] }] } } } }))
        .await?;
    // Three to a machine of 4, so five machines if there were no limit.
    corner.apply([objects::deployment(&corner.name, "web", 15, &json!({ "cpu": "1" }))]).await?;
    eventually("two machines hold pods", DEADLINE, async || {
        let pods = corner.pods().await?;
        let bound = nodes_of(&pods);
        ensure!(pods.len() == 15 && bound.len() == 2, "{} pods on {bound:?}", pods.len());
        Ok(())
    })
    .await?;
    stays("there are two NodeClaims", QUIET, async || {
        let claims = corner.node_claims().await?.len();
        ensure!(claims <= 2, "{claims} NodeClaims of 4 CPUs under a limit of 8");
        Ok(())
    })
    .await?;
    let pods = corner.pods().await?;
    let waiting = pods.iter().find(|pod| node_of(pod).is_none()).context("no pod waits")?;
    corner.event("it is told about the limit", &waiting.name_any(), |event| event.contains("limit")).await
}

#[tokio::test]
async fn daemonset_pods_have_room_on_new_machines() -> Result<()> {
    let corner = Corner::shared_without_node_pool("daemonsets").await?;
    let agent = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": "agent", "namespace": corner.name },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "template": {
                "metadata": { "labels": { "app": "agent" } },
                "spec": objects::with(
                    objects::pod_spec(&corner.name, &json!({ "cpu": "1500m" })),
                    // The machines open one after the other, and pods of the second may take the agent's room on the
                    // first. Its priority takes it back, as for any agent that must run everywhere.
                    json!({ "priorityClassName": "system-node-critical" }),
                ),
            },
        },
    });
    corner.apply([agent]).await?;
    // Two of these and the agent fill a machine of 4; three without the agent would too.
    corner.apply([objects::deployment(&corner.name, "web", 4, &json!({ "cpu": "1" }))]).await?;
    corner.tried(4).await?;
    corner
        .node_pool(json!({ "spec": { "template": { "spec": { "requirements": [
        { "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"] }] } } } }))
        .await?;
    let nodes = eventually("web and agent run side by side", DEADLINE, async || {
        let pods = corner.pods().await?;
        let on = |app: &str| -> Vec<String> {
            let of_app = pods.iter().filter(|pod| pod.labels().get("app").is_some_and(|label| label == app));
            of_app.filter_map(node_of).map(str::to_owned).collect()
        };
        let (web, agents) = (on("web"), on("agent"));
        ensure!(web.len() == 4, "{} web pods bound", web.len());
        let nodes: BTreeSet<_> = web.into_iter().collect();
        ensure!(agents.iter().cloned().collect::<BTreeSet<_>>() == nodes, "web on {nodes:?}, agents on {agents:?}");
        Ok(nodes)
    })
    .await?;
    assert_eq!(nodes.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_pod_with_a_scheduling_gate_gets_no_machine_until_it_is_open() -> Result<()> {
    let corner = Corner::shared("gated").await?;
    let gated = objects::with(
        objects::pod(&corner.name, "gated", &json!({ "cpu": "1" })),
        json!({ "spec": { "schedulingGates": [{ "name": "e2e.dovetail.test/hold" }] } }),
    );
    corner.apply([gated]).await?;
    stays("there is no NodeClaim", QUIET, async || {
        ensure!(corner.node_claims().await?.is_empty(), "a machine for a gated pod");
        Ok(())
    })
    .await?;
    let pods: Api<Pod> = Api::namespaced(corner.client.clone(), &corner.name);
    let open = kube::api::Patch::Merge(json!({ "spec": { "schedulingGates": [] } }));
    pods.patch("gated", &kube::api::PatchParams::default(), &open).await?;
    corner.bound(1).await.map(drop)
}
