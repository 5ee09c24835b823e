//! API server and etcd die while machines are launched and removed. Nothing is leaked, launched twice or lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::NodeClaim;
use e2e::{Component, Controller, controller, eventually, objects};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::cluster::{Cluster, Corner, DEADLINE, instances};

/// Each NodeClaim has one instance and one Node, and there are no others of either.
pub async fn ensure_nothing_leaked(client: &Client) -> Result<()> {
    let claims: Vec<NodeClaim> = Api::all(client.clone()).list(&ListParams::default()).await?.items;
    let by_provider_id: BTreeMap<String, String> = claims
        .iter()
        .filter_map(|claim| Some((claim.status.as_ref()?.provider_id.clone(), claim.name_any())))
        .collect();
    ensure!(by_provider_id.len() == claims.len(), "{} NodeClaims have {} machines", claims.len(), by_provider_id.len());
    let nodes: Vec<Node> = Api::all(client.clone()).list(&ListParams::default()).await?.items;
    let of_nodes: BTreeSet<_> = nodes.iter().filter_map(|node| node.spec.as_ref()?.provider_id.clone()).collect();
    ensure!(of_nodes.len() == nodes.len(), "two Nodes of one machine");
    ensure!(of_nodes.iter().eq(by_provider_id.keys()), "Nodes of {of_nodes:?}, NodeClaims of {by_provider_id:?}");
    let records = instances(client).await?;
    ensure!(
        records.len() == claims.len(),
        "{} instances for {} NodeClaims: {:?}",
        records.len(),
        claims.len(),
        records.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    );
    Ok(())
}

pub async fn nothing_is_leaked(client: &Client) -> Result<()> {
    eventually("every NodeClaim has its machine and there are no others", DEADLINE, async || {
        ensure_nothing_leaked(client).await
    })
    .await
}

/// Runs the controller, and starts it again when it ends, as Kubernetes does: losing its Lease ends it.
fn supervise(options: controller::Options) -> tokio::task::JoinHandle<Result<()>> {
    tokio::spawn(async move {
        loop {
            Controller::start(&options)?.ended(Duration::MAX).await?;
        }
    })
}

async fn survives(component: Component) -> Result<()> {
    let name = format!("{component}-dies");
    let cluster = Cluster::new(&name).await?;
    let client = cluster.client().await?;
    let supervisor = supervise(cluster.controller()?);
    let corner = Corner::new(client.clone(), &name).await?;
    let requests = json!({ "cpu": "600m" });
    corner.apply([objects::deployment(&name, "web", 20, &requests)]).await?;
    eventually("a machine is on its way", DEADLINE, async || {
        let claims = corner.node_claims().await?;
        claims.first().map(drop).context("no NodeClaim yet")
    })
    .await?;
    cluster.control_plane.kill(component).await?;
    cluster.control_plane.start(component).await?;
    corner.bound(20).await?;
    nothing_is_leaked(&client).await?;

    // And while they are removed.
    corner.delete_claims().await?;
    cluster.control_plane.kill(component).await?;
    cluster.control_plane.start(component).await?;
    corner.bound(20).await?;
    nothing_is_leaked(&client).await?;
    corner.apply([objects::deployment(&name, "web", 0, &requests)]).await?;
    corner.cleared().await?;
    nothing_is_leaked(&client).await?;
    supervisor.abort();
    Ok(())
}

#[tokio::test]
async fn a_killed_api_server_loses_no_pod_and_leaks_no_machine() -> Result<()> {
    survives(Component::Apiserver).await
}

#[tokio::test]
async fn a_killed_etcd_loses_no_pod_and_leaks_no_machine() -> Result<()> {
    survives(Component::Etcd).await
}
