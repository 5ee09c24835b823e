//! The API server says nothing, and does not hang up either. The controller notices, tells, and goes on as soon as it
//! can.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::faults::audit::nothing_is_leaked;
use e2e::wait::stays;
use e2e::{Component, Controller, eventually, objects};
use serde_json::json;

use crate::cluster::{Cluster, Corner, DEADLINE};

/// For how long the API server is stopped.
const STOPPED: Duration = Duration::from_secs(120);

#[tokio::test]
async fn an_api_server_that_stands_still_for_two_minutes_is_noticed_and_forgotten() -> Result<()> {
    let cluster = Cluster::new("standstill").await?;
    let client = cluster.client().await?;
    let controller = Controller::start_ready(&cluster.controller()?).await?;
    let corner = Corner::new(client.clone(), "standstill").await?;
    let requests = json!({ "cpu": "600m" });
    corner.apply([objects::deployment(&corner.name, "web", 5, &requests)]).await?;
    corner.bound(5).await?;

    corner.apply([objects::deployment(&corner.name, "web", 12, &requests)]).await?;
    cluster.control_plane.pause(Component::Apiserver).await?;
    stays("the controller lives, and says so", STOPPED, async || {
        ensure!(controller.runs()?, "it ended:\n{}", controller.log()?);
        controller.probe("/healthz").map(drop)
    })
    .await?;
    ensure!(controller.metric("dovetail_api_timeouts_total")? > 0.0, "no call was given up");
    ensure!(controller.metric("dovetail_watch_silent_seconds")? > 75.0, "no watch is silent");
    ensure!(controller.metric("dovetail_loop_hangs")? == 0.0, "{}", controller.metrics()?);
    let ready = controller.probe("/readyz").err().context("it is ready though it hears nothing")?;
    ensure!(ready.to_string().contains("v1/pods"), "{ready}");

    cluster.control_plane.resume(Component::Apiserver).await?;
    // Kubernetes' own controllers take a while too.
    corner.bound(12).await?;
    corner.apply([objects::deployment(&corner.name, "web", 30, &requests)]).await?;
    corner.bound(30).await?;
    nothing_is_leaked(&client).await?;
    eventually("it is ready again", DEADLINE, async || controller.probe("/readyz").map(drop)).await?;
    controller.terminate().await.map(drop)
}

#[tokio::test]
async fn a_leader_that_cannot_renew_ends_and_the_next_one_waits_for_the_api_server() -> Result<()> {
    let cluster = Cluster::new("unrenewed").await?;
    let client = cluster.client().await?;
    let corner = Corner::new(client.clone(), "unrenewed").await?;
    let first = Controller::start_ready(&cluster.candidate()?.named("first")).await?;
    corner.apply([objects::pod(&corner.name, "one", &json!({ "cpu": "1" }))]).await?;
    corner.bound(1).await?;

    cluster.control_plane.pause(Component::Apiserver).await?;
    // Ten seconds after its last renewal. The Lease, which it cannot have renewed later than now, lasts for 15.
    let status = first.ended(Duration::from_secs(15)).await?;
    ensure!(status.code() == Some(1) && first.log()?.contains("leadership is lost"), "{status}:\n{}", first.log()?);
    let second = Controller::start(&cluster.candidate()?.named("second"))?;
    stays("the second waits for the API server", Duration::from_secs(25), async || {
        ensure!(second.runs()?, "it ended:\n{}", second.log()?);
        Ok(())
    })
    .await?;
    eventually("the second says why it waits", DEADLINE, async || {
        ensure!(second.log()?.contains("the API server does not answer"), "{}", second.log()?);
        Ok(())
    })
    .await?;
    second.probe("/healthz")?;

    cluster.control_plane.resume(Component::Apiserver).await?;
    let pods = ["two", "three"].map(|pod| objects::pod(&corner.name, pod, &json!({ "cpu": "1" })));
    corner.apply(pods).await?;
    corner.bound(3).await?;
    nothing_is_leaked(&client).await?;
    second.terminate().await.map(drop)
}
