//! API server and etcd die while machines are launched and removed. Nothing is leaked, launched twice or lost.

use anyhow::{Context, Result};
use e2e::controller::Supervisor;
use e2e::faults::audit::nothing_is_leaked;
use e2e::{Component, eventually, objects};
use serde_json::json;

use crate::cluster::{Cluster, Corner, DEADLINE};

async fn survives(component: Component) -> Result<()> {
    let name = format!("{component}-dies");
    let cluster = Cluster::new(&name).await?;
    let client = cluster.client().await?;
    // Losing its Lease ends it.
    let supervisor = Supervisor::start(cluster.candidate()?);
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
    supervisor.stop().await.map(drop)
}

#[tokio::test]
async fn a_killed_api_server_loses_no_pod_and_leaks_no_machine() -> Result<()> {
    survives(Component::Apiserver).await
}

#[tokio::test]
async fn a_killed_etcd_loses_no_pod_and_leaks_no_machine() -> Result<()> {
    survives(Component::Etcd).await
}
