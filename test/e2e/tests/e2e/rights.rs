//! The chart and the binary agree: on options, and on rights.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::{binary, client, eventually, install, objects};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{Corner, DEADLINE, shared};

/// Options that only the chart's users have; the binary reads them from the environment alone.
const NOT_OPTIONS: [&str; 2] = ["POD_NAME", "POD_NAMESPACE"];

#[test]
fn every_environment_variable_of_the_chart_is_an_option_of_the_binary() -> Result<()> {
    let output = Command::new(binary::with_failpoints()?).args(["run", "--help"]).output()?;
    let help = String::from_utf8(output.stdout)?;
    let known: BTreeSet<&str> =
        help.split("[env:").skip(1).filter_map(|rest| rest.trim_start().split(['=', ']']).next()).collect();
    ensure!(known.len() > 10, "only {known:?}");
    for settings in [&[], install::AWS] {
        let objects = install::render("charts/dovetail", settings)?;
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").context("no Deployment")?;
        let variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().context("no env")?;
        let given: BTreeSet<&str> = variables.iter().filter_map(|variable| variable["name"].as_str()).collect();
        let unknown: Vec<_> = given.difference(&known).filter(|name| !NOT_OPTIONS.contains(name)).collect();
        ensure!(unknown.is_empty(), "the chart sets {unknown:?}, which `dovetail run --help` does not know");
    }
    Ok(())
}

#[tokio::test]
async fn the_right_to_patch_the_status_of_pods_is_only_good_for_a_nomination() -> Result<()> {
    let corner = Corner::shared("status-rights").await?;
    let pod = objects::with(
        objects::pod(&corner.name, "patched", &json!({ "cpu": "1" })),
        json!({ "spec": { "schedulerName": "nobody" } }),
    );
    corner.apply([pod]).await?;
    let kubeconfig = shared().await?.cluster.control_plane.kubeconfig_of(install::RELEASE)?;
    let pods: Api<Pod> = Api::namespaced(client::client(kubeconfig).await?, &corner.name);
    let patched = async |patch: Value| -> Result<Pod> {
        Ok(pods.patch_status("patched", &PatchParams::default(), &Patch::Merge(patch)).await?)
    };
    let denied = async |patch: Value| -> Result<()> {
        let answer = patched(patch.clone()).await.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(answer.contains("the controller may"), "{patch}: {answer:?}");
        Ok(())
    };
    let tries = std::cell::Cell::new(0);
    eventually("the policy is in force", DEADLINE, async || {
        tries.set(tries.get() + 1);
        denied(json!({ "status": { "message": format!("try {}", tries.get()) } })).await
    })
    .await?;
    denied(json!({ "status": { "podIP": "10.0.0.1", "podIPs": [{ "ip": "10.0.0.1" }] } })).await?;
    denied(json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } })).await?;
    denied(json!({ "status": { "phase": "Failed", "nominatedNodeName": "somewhere" } })).await?;
    denied(json!({ "metadata": { "labels": { "a": "b" } } })).await?;
    let nominated = patched(json!({ "status": { "nominatedNodeName": "somewhere" } })).await?;
    let nominated = nominated.status.and_then(|status| status.nominated_node_name);
    ensure!(nominated.as_deref() == Some("somewhere"), "{nominated:?}");
    Ok(())
}

#[tokio::test]
async fn the_right_to_patch_pods_is_only_good_for_the_toleration_of_a_held_machine() -> Result<()> {
    let corner = Corner::shared("rights").await?;
    let pod = objects::with(
        objects::pod(&corner.name, "patched", &json!({ "cpu": "1" })),
        json!({ "spec": { "schedulerName": "nobody" } }),
    );
    corner.apply([pod]).await?;
    let kubeconfig = shared().await?.cluster.control_plane.kubeconfig_of(install::RELEASE)?;
    let pods: Api<Pod> = Api::namespaced(client::client(kubeconfig).await?, &corner.name);
    let patched = async |patch: Value| -> Result<Pod> {
        let patch = Patch::<()>::Json(serde_json::from_value(patch)?);
        Ok(pods.patch("patched", &PatchParams::default(), &patch).await?)
    };
    let toleration = |key: &str| {
        let value = json!({ "key": key, "operator": "Equal", "value": "a", "effect": "NoSchedule" });
        json!([{ "op": "add", "path": "/spec/tolerations/-", "value": value }])
    };
    let denied = async |patch: Value| -> Result<()> {
        let answer = patched(patch.clone()).await.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(answer.contains("the controller may"), "{patch}: {answer:?}");
        Ok(())
    };
    // The API server takes a moment to learn of the policy; until then each try must change something.
    let tries = std::cell::Cell::new(0);
    eventually("the policy is in force", DEADLINE, async || {
        tries.set(tries.get() + 1);
        denied(toleration(&format!("try-{}", tries.get()))).await
    })
    .await?;
    denied(json!([{ "op": "replace", "path": "/spec/containers/0/image", "value": "other" }])).await?;
    denied(json!([{ "op": "add", "path": "/metadata/labels/a", "value": "b" }])).await?;
    denied(json!([{ "op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1 }])).await?;
    let tolerations = patched(toleration("dovetail.sh/held")).await?.spec.and_then(|spec| spec.tolerations);
    ensure!(tolerations.iter().flatten().any(|it| it.key.as_deref() == Some("dovetail.sh/held")), "{tolerations:?}");
    Ok(())
}
