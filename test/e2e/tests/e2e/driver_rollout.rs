//! A DRA driver that is replaced takes its devices away and brings them back: pods wait for them, and no machines are
//! launched.

use anyhow::{Context, Result, ensure};
use e2e::{Controller, apply, eventually};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, DEADLINE, node_of};
use crate::devices::{classes, condition, driver, faults, overlay, pod};

/// A node that is nobody's machine, with so many CPUs.
pub(crate) fn node(corner: &str, cpus: u32) -> Value {
    let size = json!({ "cpu": cpus.to_string(), "memory": "32Gi", "pods": "110" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": corner,
            "annotations": { "kwok.x-k8s.io/node": "fake" },
            "labels": { e2e::objects::TEST_KEY: corner, "kubernetes.io/hostname": corner },
        },
        "status": { "capacity": size, "allocatable": size },
    })
}

/// What the driver publishes on it.
pub(crate) fn slice(corner: &str) -> Value {
    let device = |index: u32| json!({ "name": format!("gpu-{index}"), "attributes": { "model": { "string": "x1" } } });
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": { "name": corner },
        "spec": {
            "driver": driver("gpu", corner), "nodeName": corner,
            "pool": { "name": corner, "generation": 1, "resourceSliceCount": 1 },
            "devices": [device(0), device(1)],
        },
    })
}

#[tokio::test]
async fn pods_wait_for_the_devices_of_a_driver_that_is_replaced_and_get_no_machines() -> Result<()> {
    let corner = Corner::shared("driver-rollout").await?;
    let name = corner.name.as_str();
    corner.apply([overlay(name)]).await?;
    corner.apply(classes(name)).await?;
    corner.apply([node(name, 16), slice(name), pod(name, "before", "one")]).await?;
    corner.bound(1).await?;

    apply::delete(&corner.client, &slice(name)).await?;
    corner.apply([pod(name, "meanwhile", "one")]).await?;
    // The plan that has told of the last pod has looked at this one too.
    corner.tried(2).await?;
    let claims = corner.node_claims().await?;
    ensure!(claims.is_empty(), "a machine was launched while the driver was away: {claims:#?}");

    corner.apply([slice(name)]).await?;
    let pods = corner.bound(2).await?;
    ensure!(pods.iter().all(|pod| node_of(pod) == Some(name)), "not all are where the devices are: {pods:#?}");
    apply::delete(&corner.client, &node(name, 16)).await?;
    apply::delete(&corner.client, &slice(name)).await
}

/// Deletes what a driver has published, and gives it.
async fn withdraw(client: &Client, driver: &str) -> Result<Vec<ResourceSlice>> {
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let of_driver = slices.list(&ListParams::default().fields(&format!("spec.driver={driver}"))).await?.items;
    ensure!(!of_driver.is_empty(), "{driver} has published nothing");
    for slice in &of_driver {
        slices.delete(&slice.name_any(), &DeleteParams::default()).await?;
    }
    Ok(of_driver)
}

/// Publishes anew what a driver had taken away.
async fn publish(client: &Client, published: Vec<ResourceSlice>) -> Result<()> {
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    for mut slice in published {
        slice.metadata = ObjectMeta { name: slice.metadata.name, ..ObjectMeta::default() };
        slices.create(&PostParams::default(), &slice).await?;
    }
    Ok(())
}

/// Waits until the one machine says that of its devices, and notes that driver as lost or none.
async fn says(corner: &Corner, expected: (&str, &str), lost: Option<&str>) -> Result<()> {
    eventually(&format!("the machine says {expected:?}, lost {lost:?}"), DEADLINE, async || {
        let claims = corner.node_claims().await?;
        let claim = claims.first().context("no NodeClaim")?;
        let (status, reason, message) = condition(claim, "DevicesPublished").context("no condition")?;
        ensure!((status, reason) == expected, "{status} {reason} {message}");
        ensure!(claim.annotations().get(api::annotations::LOST_DRA_DRIVERS).map(String::as_str) == lost);
        ensure!(lost.is_none() || status == "True" || message.contains(lost.unwrap_or_default()), "{message}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_machine_says_that_its_driver_is_replaced_and_after_a_crash_which_had_taken_devices_away() -> Result<()> {
    let cluster = Cluster::new("driver-crash").await?;
    let corner = Corner::new(cluster.client().await?, "driver-crash").await?;
    let name = corner.name.as_str();
    // No pod claims devices of this driver, so that nothing but the note tells of it.
    let nic = driver("nic", name);
    corner.apply([overlay(name), faults(json!([]))]).await?;
    corner.apply(classes(name)).await?;
    corner.apply([pod(name, "one", "one")]).await?;
    let options = cluster.controller()?.arg("--disable-leader-election").env("KWOK_READ_FAULTS", "true");
    let doomed = options.clone().named("doomed").env("DOVETAIL_FAILPOINTS", "devices.after-note=abort@1");
    let doomed = Controller::start_ready(&doomed).await?;
    corner.bound(1).await?;
    says(&corner, ("True", "DevicesPublished"), None).await?;

    withdraw(&corner.client, &nic).await?;
    doomed.ended(DEADLINE).await.context("the failpoint was not hit")?;
    says(&corner, ("True", "DevicesPublished"), Some(&nic)).await?;

    // The next controller holds nothing, since it has not seen what was there.
    corner.apply([faults(json!([{ "driver": nic, "publishes": "never" }]))]).await?;
    let controller = Controller::start_ready(&options.named("next")).await?;
    says(&corner, ("False", "Withdrawn"), Some(&nic)).await?;
    corner.apply([faults(json!([]))]).await?;
    says(&corner, ("True", "DevicesPublished"), None).await?;

    // It has seen them come back, and holds them when they go again.
    let published = withdraw(&corner.client, &nic).await?;
    says(&corner, ("Unknown", "Upgrading"), Some(&nic)).await?;
    publish(&corner.client, published).await?;
    says(&corner, ("True", "DevicesPublished"), None).await?;
    controller.terminate().await.map(drop)
}
