//! Of two controllers one acts, and the other takes over.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::fault_proxy::{Fault, FaultProxy, Point, Rule, Verb};
use e2e::faults::audit::{History, nothing_is_leaked};
use e2e::faults::crashes::holder;
use e2e::wait::stays;
use e2e::{Controller, apply, eventually, objects};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::cluster::{Cluster, Corner, DEADLINE};

/// A Lease that its holder leaves as it is lasts for 15 s.
const SOONER_THAN_BY_EXPIRY: Duration = Duration::from_secs(12);
const LEASE: &str = "karpenter-leader-election";

async fn held(client: &Client) -> Result<String> {
    eventually("somebody leads", DEADLINE, async || holder(client).await?.context("nobody")).await
}

#[tokio::test]
async fn the_second_controller_waits_and_takes_over_when_the_first_stops_or_dies() -> Result<()> {
    let cluster = Cluster::new("leaders").await?;
    let client = cluster.client().await?;
    let corner = Corner::new(client.clone(), "leaders").await?;
    let of_pod = cluster.candidate()?.named("first").env("POD_NAME", "karpenter-5d4f-x7k2p");
    let first = Controller::start_ready(&of_pod).await?;
    let leader = held(&client).await?;
    ensure!(leader.starts_with("karpenter-5d4f-x7k2p_"), "the holder {leader} does not start with its pod's name");

    let mut second = Controller::start(&cluster.candidate()?.named("second"))?;
    stays("the first leads", Duration::from_secs(4), async || {
        ensure!(holder(&client).await?.as_deref() == Some(leader.as_str()), "another leader");
        Ok(())
    })
    .await?;
    ensure!(second.runs()?, "the second ended:\n{}", second.log()?);

    // An orderly stop hands over: nobody waits until the Lease has run out.
    let status = first.terminate().await?;
    ensure!(status.success(), "the first ended with {status}:\n{}", first.log()?);
    ensure!(holder(&client).await?.as_deref() != Some(leader.as_str()), "the first has not released the Lease");
    let next = eventually("the second leads", SOONER_THAN_BY_EXPIRY, async || {
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
    let third = Controller::start(&cluster.candidate()?.named("third"))?;
    second.kill()?;
    eventually("the third leads", DEADLINE, async || {
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

/// Creations of NodeClaims happen and the leader never hears of it; then it cannot renew its Lease either.
#[tokio::test]
async fn a_leader_whose_call_hangs_gives_up_and_the_next_one_finishes_its_plan() -> Result<()> {
    const PODS: u32 = 4;
    let cluster = Cluster::new("hung-leader").await?;
    let client = cluster.client().await?;
    let history = History::start(&client);
    let proxy = FaultProxy::start(&cluster.control_plane, 1).await?;
    let corner = Corner::without_node_pool(client.clone(), "hung-leader").await?;
    let size = json!([{ "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["2"] }]);
    corner.node_pool(json!({ "spec": { "template": { "spec": { "requirements": size } } } })).await?;
    let mut options = cluster.candidate()?.named("first");
    options.kubeconfig = proxy.kubeconfig(&options.kubeconfig)?;
    let first = Controller::start_ready(&options).await?;
    let leader = held(&client).await?;
    let second = Controller::start(&cluster.candidate()?.named("second"))?;

    let never_heard =
        Rule::new(Fault::Hold(Point::Answer)).verbs(&[Verb::Create]).path("/apis/karpenter.sh/v1/nodeclaims");
    proxy.rules([never_heard.clone()]);
    corner.apply([objects::deployment(&corner.name, "web", PODS, &json!({ "cpu": "1500m" }))]).await?;
    eventually("a creation has no answer", DEADLINE, async || {
        ensure!(proxy.struck().contains_key("held after the effect"), "none is under way");
        Ok(())
    })
    .await?;
    let refusal = Fault::Refuse { code: 500, retry_after: None, point: Point::Request };
    proxy.rules([never_heard, Rule::new(refusal).verbs(&[Verb::Update]).path("/leases")]);
    let status = first.ended(DEADLINE).await?;
    ensure!(status.code() == Some(1), "the first ended with {status}:\n{}", first.log()?);
    eventually("the second leads", DEADLINE, async || {
        let now = holder(&client).await?.context("nobody")?;
        ensure!(now != leader, "still the first");
        Ok(())
    })
    .await?;
    corner.bound(PODS as usize).await?;
    nothing_is_leaked(&client).await?;
    history.nothing_was_launched_twice(&client).await?;
    let ever = history.claims_of(&corner.name);
    ensure!(ever.len() == PODS as usize, "{} NodeClaims for {PODS} pods that need one each", ever.len());
    second.terminate().await.map(drop)
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
    let refused = Controller::start(&cluster.candidate()?.named("refused"))?;
    let status = refused.ended(DEADLINE).await?;
    let log = refused.log()?;
    ensure!(status.code() == Some(1), "it ended with {status}:\n{log}");
    ensure!(log.contains("karpenter-7d9_1234") && log.contains("karpenter/karpenter-leader-election"), "{log}");
    let told = Controller::start_ready(&cluster.candidate()?.named("told").arg("--allow-other-leader")).await?;
    told.terminate().await.map(drop)
}
