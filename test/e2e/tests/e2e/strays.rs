//! Machines that have lost their NodeClaims, and Nodes that have lost their machines.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::NodeClaim;
use e2e::{Controller, eventually, install, objects};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::cluster::{Cluster, Corner, DEADLINE, instances};

/// Younger machines may be ahead of lists and watches: a controller leaves them for its next look, two minutes later.
const GRACE_S: i64 = 30;
/// The first look is soon after a start; what was too young then is seen two minutes later.
const TWO_LOOKS: Duration = Duration::from_secs(240);

#[tokio::test]
async fn a_vanished_machine_is_seen_on_its_node_and_a_machine_without_nodeclaim_is_collected() -> Result<()> {
    let cluster = Cluster::new("strays").await?;
    let client = cluster.client().await?;
    let corner = Corner::without_node_pool(client.clone(), "strays").await?;
    let one_cpu = json!([{ "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["1"] }]);
    corner.node_pool(json!({ "spec": { "template": { "spec": { "requirements": one_cpu } } } })).await?;
    let options = cluster.controller()?.env("KWOK_READ_FAULTS", "true");
    let first = Controller::start_ready(&options).await?;
    corner.apply(["one", "two"].map(|name| objects::pod(&corner.name, name, &json!({ "cpu": "600m" })))).await?;
    corner.bound(2).await?;
    let claims = corner.with_nodes().await?;
    let [lost, orphaning] = claims.as_slice() else { anyhow::bail!("{} NodeClaims", claims.len()) };
    let node = lost.status.clone().context("no status")?.node_name;
    let (lost, orphaning) = (lost.name_any(), orphaning.name_any());

    let faults = json!({ "vanished": [{ "nodeClaim": lost }] }).to_string();
    corner
        .apply([json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "dovetail-kwok-faults", "namespace": install::INSTANCES_NAMESPACE },
            "data": { "faults.json": faults },
        })])
        .await?;
    let nodes: Api<Node> = Api::all(client.clone());
    eventually("the Node of the vanished machine is not ready", DEADLINE, async || {
        let status = nodes.get(&node).await?.status.unwrap_or_default();
        let ready = status.conditions.into_iter().flatten().find(|it| it.type_ == "Ready");
        ensure!(ready.is_some_and(|it| it.status == "Unknown"), "it is");
        Ok(())
    })
    .await?;
    first.terminate().await?;
    let api: Api<NodeClaim> = Api::all(client.clone());
    let without = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    api.patch(&orphaning, &PatchParams::default(), &without).await?;
    api.delete(&orphaning, &DeleteParams::default()).await?;

    // As a controller leaves one whose process ends before it has seen the domain's last machine end.
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": { "name": "left-over", "labels": { "karpenter.kwok.sh/domain-slice": "true" } },
        "spec": { "driver": "strays.test", "allNodes": true, "devices": [{ "name": "one" }],
            "pool": { "name": "left-over", "generation": 1, "resourceSliceCount": 1 } },
    });
    corner.apply([slice]).await?;

    eventually("the machines are older than the grace period", DEADLINE, async || {
        for record in instances(&client).await? {
            let created = record.creation_timestamp().context("a record without creation time")?.0;
            ensure!(Timestamp::now().as_second() - created.as_second() > GRACE_S, "{} is not", record.name_any());
        }
        Ok(())
    })
    .await?;
    let second = Controller::start_ready(&options.named("second")).await?;
    eventually("the slice of a domain without machines is gone", DEADLINE, async || {
        let slices: Api<ResourceSlice> = Api::all(client.clone());
        ensure!(slices.get_opt("left-over").await?.is_none(), "it is there");
        Ok(())
    })
    .await?;
    eventually("the machine without NodeClaim is gone", TWO_LOOKS, async || {
        let records = serde_json::to_string(&instances(&client).await?)?;
        ensure!(!records.contains(&orphaning), "the machine without NodeClaim is there");
        Ok(())
    })
    .await?;
    let log = second.log()?;
    let mut told = log.lines().filter(|line| line.contains("garbage collecting instance"));
    let of_claim = format!("\"node_claim\":\"{orphaning}\"");
    ensure!(told.any(|line| line.contains(&of_claim)), "{orphaning} is not in the log of the second");
    second.terminate().await.map(drop)
}
