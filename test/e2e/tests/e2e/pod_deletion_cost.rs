//! Deletion costs of pods (feature gate PodDeletionCostManagement).

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{Controller, client, eventually, install, objects};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, node_of};

const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SETTINGS: &[&str] = &["settings.featureGates.podDeletionCostManagement=true"];
/// The controller looks once a minute.
const DEADLINE: Duration = Duration::from_secs(180);

/// The cost of each pod by its node.
async fn costs(corner: &Corner) -> Result<BTreeMap<String, Option<String>>> {
    let pods = corner.pods().await?.into_iter();
    let of_pod = |pod: Pod| {
        let node = node_of(&pod).context("a pod is not bound")?.to_owned();
        Ok((node, pod.annotations().get(COST).cloned()))
    };
    pods.map(of_pod).collect()
}

#[tokio::test]
async fn a_replica_set_that_is_scaled_down_deletes_the_pod_of_the_node_that_would_go_first() -> Result<()> {
    let cluster = Cluster::new("pod-deletion-cost").await?;
    cluster.more_rights(SETTINGS).await?;
    let options = cluster.controller()?.arg("--feature-gates=PodDeletionCostManagement=true");
    let controller = Controller::start_ready(&options).await?;
    let corner = Corner::without_node_pool(cluster.client().await?, "deletion-cost").await?;
    let one_cpu = json!([{ "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["1"] }]);
    let disruption = json!({ "consolidateAfter": "0s", "budgets": [{ "nodes": "2" }] });
    corner
        .node_pool(json!({ "spec": { "disruption": disruption, "template": { "spec": { "requirements": one_cpu } } } }))
        .await?;
    corner.apply([objects::deployment(&corner.name, "web", 3, &json!({ "cpu": "600m" }))]).await?;
    corner.bound(3).await?;
    // All cost the same, so the names of the nodes decide; the budget leaves out the last.
    let nodes: Vec<String> = costs(&corner).await?.into_keys().collect();
    ensure!(nodes.len() == 3, "{nodes:?}");
    let users: Api<Pod> = Api::namespaced(corner.client.clone(), &corner.name);
    for pod in corner.pods().await? {
        let patch = json!({ "metadata": { "annotations": { COST: "1000" } } });
        users.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    eventually("the pods have the ranks of their nodes", DEADLINE, async || {
        let costs = costs(&corner).await?;
        let by_rank: Vec<Option<&str>> = nodes.iter().map(|node| costs.get(node)?.as_deref()).collect();
        ensure!(by_rank == [Some("-2"), Some("-1"), None], "{costs:?}");
        Ok(())
    })
    .await?;
    may_write_this_annotation_and_no_other(&cluster, &corner).await?;
    let written = controller.metric("karpenter_pod_deletion_cost_pod_annotation_writes_total{result=\"updated\"}")?;
    ensure!(written >= 3.0, "{written} writes were counted");

    let deployments: Api<Deployment> = Api::namespaced(corner.client.clone(), &corner.name);
    let scaled = Patch::Merge(json!({ "spec": { "replicas": 2 } }));
    deployments.patch("web", &PatchParams::default(), &scaled).await?;
    eventually("the pod of the first node is gone", DEADLINE, async || {
        let left: Vec<String> = costs(&corner).await?.into_keys().collect();
        ensure!(left == nodes[1..], "{left:?} of {nodes:?}");
        Ok(())
    })
    .await?;
    corner.abandon().await?;
    controller.terminate().await.map(drop)
}

/// What the chart's admission policy lets the controller do to a pod.
async fn may_write_this_annotation_and_no_other(cluster: &Cluster, corner: &Corner) -> Result<()> {
    let kubeconfig = cluster.control_plane.kubeconfig_of(install::RELEASE)?;
    let pods: Api<Pod> = Api::namespaced(client::client(kubeconfig).await?, &corner.name);
    let pod = corner.pods().await?.pop().context("no pod")?.name_any();
    let patched = async |annotations: Value| {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        pods.patch(&pod, &PatchParams::default(), &patch).await
    };
    for annotations in [json!({ "other": "x" }), json!({ COST: "5", "karpenter.sh/do-not-disrupt": "true" })] {
        let answer = patched(annotations.clone()).await.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(answer.contains("may not change the metadata of pods"), "{annotations}: {answer:?}");
    }
    let before = corner.pods().await?.pop().context("no pod")?;
    let cost = before.annotations().get(COST);
    patched(json!({ COST: "7" })).await?;
    patched(json!({ COST: cost })).await?;
    Ok(())
}
