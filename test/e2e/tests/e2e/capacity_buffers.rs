//! Room that CapacityBuffers keep free: machines for nobody, which any pod may take.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use api::CapacityBuffer;
use e2e::controller::Controller;
use e2e::{eventually, objects};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, DEADLINE, node_of};

const BUFFER: &str = "spare";
/// One of these fills a machine of one CPU.
const REQUESTS: &str = "800m";
const REPLICAS: usize = 2;

fn pod_template(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": { "name": BUFFER, "namespace": namespace },
        "template": {
            "metadata": { "labels": { "app": "web" } },
            "spec": objects::pod_spec(namespace, &json!({ "cpu": REQUESTS })),
        },
    })
}

fn buffer(namespace: &str) -> Value {
    json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": { "name": BUFFER, "namespace": namespace },
        "spec": { "podTemplateRef": { "name": BUFFER }, "replicas": REPLICAS },
    })
}

/// Waits until there are so many machines, all ready, and the buffer says that its room is there.
async fn settled(corner: &Corner, buffers: &Api<CapacityBuffer>, machines: usize) -> Result<BTreeSet<String>> {
    eventually(&format!("{machines} machines are ready, and the buffer says so"), DEADLINE, async || {
        let claims = corner.node_claims().await?;
        ensure!(claims.len() == machines, "{} NodeClaims", claims.len());
        for claim in &claims {
            let conditions = claim.status.iter().flat_map(|status| &status.conditions);
            let is_ready = conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True");
            ensure!(is_ready, "NodeClaim {} is not ready", claim.name_any());
        }
        let status = buffers.get(BUFFER).await?.status.context("no status")?;
        let said: BTreeSet<String> =
            status.conditions.iter().map(|it| format!("{} {} {}", it.type_, it.status, it.reason)).collect();
        ensure!(said.contains("ReadyForProvisioning True Resolved"), "{said:?}");
        ensure!(said.contains("Provisioning True FitsExistingCapacity"), "{said:?}");
        ensure!(status.replicas == i32::try_from(REPLICAS).ok(), "{:?} replicas", status.replicas);
        Ok(corner.nodes().await?.iter().map(ResourceExt::name_any).collect())
    })
    .await
}

#[tokio::test]
async fn a_buffer_gets_machines_that_pods_take_and_then_others() -> Result<()> {
    let cluster = Cluster::new("buffers").await?;
    let client = cluster.client().await?;
    let corner = Corner::without_node_pool(client.clone(), "buffers").await?;
    let one_cpu = json!([{ "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["1"] }]);
    corner.node_pool(json!({ "spec": { "template": { "spec": { "requirements": one_cpu } } } })).await?;
    cluster.more_rights(&["settings.featureGates.capacityBuffer=true"]).await?;
    let options = cluster.controller()?.arg("--feature-gates=CapacityBuffer=true");
    let controller = Controller::start_ready(&options).await?;
    let buffers = Api::<CapacityBuffer>::namespaced(client, &corner.name);

    corner.apply([pod_template(&corner.name), buffer(&corner.name)]).await?;
    let spare = settled(&corner, &buffers, REPLICAS).await?;
    ensure!(corner.pods().await?.is_empty(), "virtual pods are in the planner's memory only");
    let series = format!(
        "dovetail_capacity_buffer_pods{{namespace=\"{}\",name=\"{BUFFER}\",state=\"existing\"}} 2",
        corner.name
    );
    let condition = format!(
        "operator_status_condition_count{{group=\"autoscaling.x-k8s.io\",kind=\"CapacityBuffer\",namespace=\"{}\",\
         name=\"{BUFFER}\",type=\"Provisioning\",status=\"True\",reason=\"FitsExistingCapacity\"}} 1",
        corner.name
    );
    let launched = "operator_status_condition_transitions_total{group=\"karpenter.sh\",kind=\"NodeClaim\",\
                    type=\"Launched\",status=\"True\",reason=\"Launched\"} 2";
    // What metrics tell of objects is what the controller's watches have brought.
    eventually("metrics tell of it", DEADLINE, async || {
        let metrics = controller.metrics()?;
        for shown in [&*series, &*condition, launched] {
            ensure!(metrics.contains(shown), "{shown} is not shown");
        }
        Ok(())
    })
    .await?;

    corner.apply([objects::deployment(&corner.name, "web", 2, &json!({ "cpu": REQUESTS }))]).await?;
    let pods = corner.bound(2).await?;
    let taken: BTreeSet<String> = pods.iter().filter_map(node_of).map(str::to_owned).collect();
    ensure!(taken == spare, "pods are on {taken:?}, the room was on {spare:?}");
    let all = settled(&corner, &buffers, 2 * REPLICAS).await?;
    ensure!(all.is_superset(&spare) && all.len() == 2 * REPLICAS, "machines follow: {all:?}");
    controller.terminate().await.map(drop)
}
