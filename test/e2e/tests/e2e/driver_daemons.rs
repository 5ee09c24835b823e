//! A NodeOverlay that names the DaemonSets of its drivers says when none of their pods could run on its machines.

use anyhow::Result;
use e2e::objects;
use serde_json::{Value, json};

use crate::cluster::Corner;
use crate::devices::{driver, overlay, told};

const KIND: &str = "DriversCanRun";

/// A DaemonSet for nodes with these labels beside those of the corner.
fn daemon_set(corner: &str, node_selector: &Value) -> Value {
    let spec =
        objects::with(objects::pod_spec(corner, &json!({ "cpu": "50m" })), json!({ "nodeSelector": node_selector }));
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "driver", "namespace": corner },
        "spec": {
            "selector": { "matchLabels": { "app": "driver" } },
            "template": { "metadata": { "labels": { "app": "driver" } }, "spec": spec },
        },
    })
}

#[tokio::test]
async fn an_overlay_says_that_no_pod_of_its_driver_could_run_until_one_can() -> Result<()> {
    let corner = Corner::shared("driver-daemons").await?;
    let name = corner.name.as_str();
    let gpus = driver("gpu", name);
    let named = json!([{ "name": gpus, "daemonSet": { "namespace": name, "name": "driver" } }]);
    let overlay = objects::with(overlay(name), json!({ "spec": { "dynamicResources": { "drivers": named } } }));
    corner.apply([overlay]).await?;
    let message = format!("{gpus}: there is no daemonset/{name}/driver");
    told(&corner.client, name, KIND, ("False", "NoDaemonSetPod", &message)).await?;

    corner.apply([daemon_set(name, &json!({ "example.com/has-gpu": "yes" }))]).await?;
    let message = "it selects example.com/has-gpu In [yes], a label that the machines do not have";
    told(&corner.client, name, KIND, ("False", "NoDaemonSetPod", message)).await?;

    // The overlay is in effect all the time.
    told(&corner.client, name, "Ready", ("True", "Ready", "")).await?;
    corner.apply([daemon_set(name, &json!({}))]).await?;
    told(&corner.client, name, KIND, ("True", KIND, "")).await
}
