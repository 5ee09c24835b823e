//! A DRA driver that is replaced takes its devices away and brings them back: pods wait for them, and no machines are
//! launched.

use anyhow::{Result, ensure};
use e2e::apply;
use serde_json::{Value, json};

use crate::cluster::{Corner, node_of};
use crate::devices::{classes, driver, overlay, pod};

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
