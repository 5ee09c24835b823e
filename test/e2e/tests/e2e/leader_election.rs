//! Of two controllers one acts, and the other takes over.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::wait::stays;
use e2e::{Controller, apply, eventually, install, objects};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::cluster::{Cluster, Corner};

const LEASE: &str = "karpenter-leader-election";

async fn holder(client: &Client) -> Result<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), install::NAMESPACE);
    let spec = leases.get(LEASE).await?.spec.context("a Lease without a spec")?;
    Ok(spec.holder_identity.filter(|holder| !holder.is_empty()))
}

async fn held(client: &Client) -> Result<String> {
    eventually("somebody leads", Duration::from_secs(40), async || holder(client).await?.context("nobody")).await
}

#[tokio::test]
async fn the_second_controller_waits_and_takes_over_when_the_first_stops_or_dies() -> Result<()> {
    let cluster = Cluster::new("leaders").await?;
    let client = cluster.client().await?;
    let corner = Corner::new(client.clone(), "leaders").await?;
    let of_pod = cluster.controller()?.named("first").env("POD_NAME", "karpenter-5d4f-x7k2p");
    let first = Controller::start_ready(&of_pod).await?;
    let leader = held(&client).await?;
    ensure!(leader.starts_with("karpenter-5d4f-x7k2p_"), "the holder {leader} does not start with its pod's name");

    let mut second = Controller::start(&cluster.controller()?.named("second"))?;
    stays("the first leads", Duration::from_secs(4), async || {
        ensure!(holder(&client).await?.as_deref() == Some(leader.as_str()), "another leader");
        Ok(())
    })
    .await?;
    ensure!(second.runs()?, "the second ended:\n{}", second.log()?);

    // An orderly stop hands over much sooner than the lease would run out.
    let status = first.terminate().await?;
    ensure!(status.success(), "the first ended with {status}:\n{}", first.log()?);
    let next = eventually("the second leads", Duration::from_secs(8), async || {
        let now = holder(&client).await?.context("nobody")?;
        ensure!(now != leader, "still the first");
        Ok(now)
    })
    .await?;
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    ensure!(next.starts_with(&format!("{hostname}_")), "the holder {next} does not start with {hostname}_");
    corner.apply([objects::pod(&corner.name, "one", &json!({ "cpu": "1" }))]).await?;
    corner.bound(1).await?;

    // A death is noticed when the lease has run out.
    let third = Controller::start(&cluster.controller()?.named("third"))?;
    second.kill()?;
    eventually("the third leads", Duration::from_secs(60), async || {
        let now = holder(&client).await?.context("nobody")?;
        ensure!(now != next, "still the second");
        Ok(())
    })
    .await?;
    corner.apply([objects::pod(&corner.name, "two", &json!({ "cpu": "1" }))]).await?;
    corner.bound(2).await?;
    let claims: BTreeSet<_> = corner.node_claims().await?.iter().map(ResourceExt::name_any).collect();
    ensure!(claims.len() <= 2, "{claims:?}");
    third.terminate().await.map(drop)
}

#[tokio::test]
async fn it_does_not_start_beside_a_leader_in_another_namespace_unless_told() -> Result<()> {
    let cluster = Cluster::new("other-leader").await?;
    let client = cluster.client().await?;
    apply::apply_one(&client, objects::namespace("karpenter")).await?;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": LEASE, "namespace": "karpenter" },
        "spec": {
            "holderIdentity": "karpenter-7d9_1234",
            "leaseDurationSeconds": 3600,
            "acquireTime": "2100-01-01T00:00:00.000000Z",
            "renewTime": "2100-01-01T00:00:00.000000Z",
        },
    });
    apply::apply_one(&client, lease).await?;
    let refused = Controller::start(&cluster.controller()?.named("refused"))?;
    let status = refused.ended(Duration::from_secs(30)).await?;
    let log = refused.log()?;
    ensure!(status.code() == Some(1), "it ended with {status}:\n{log}");
    ensure!(log.contains("karpenter-7d9_1234") && log.contains("karpenter/karpenter-leader-election"), "{log}");
    let told = Controller::start_ready(&cluster.controller()?.named("told").arg("--allow-other-leader")).await?;
    told.terminate().await.map(drop)
}
