//! What the controller serves over HTTP.

use anyhow::{Result, ensure};
use e2e::{Controller, eventually, objects};
use kube::Client;
use serde_json::json;

use crate::cluster::{Cluster, Corner, DEADLINE, shared};

#[tokio::test]
async fn the_metrics_that_karpenters_suites_sample_are_there() -> Result<()> {
    let corner = Corner::shared("metrics").await?;
    corner.apply([objects::pod(&corner.name, "one", &json!({ "cpu": "1" }))]).await?;
    corner.bound(1).await?;
    let controller = &shared().await?.controller;
    // The Go names too: the suites know no other.
    for name in ["process_resident_memory_bytes", "process_cpu_seconds_total", "go_gc_heap_live_bytes"] {
        ensure!(controller.metric(name)? > 0.0, "{name} is zero or missing");
    }
    eventually("launches are counted by NodePool", DEADLINE, async || {
        let counted = controller.metrics()?.lines().any(|line| {
            line.starts_with("karpenter_nodeclaims_created_total{")
                && line.contains("nodepool=\"metrics\"")
                && !line.ends_with(" 0")
        });
        ensure!(counted, "{}", controller.metrics()?);
        Ok(())
    })
    .await?;
    eventually("it is ready", DEADLINE, async || controller.probe("/readyz").map(drop)).await
}

#[tokio::test]
async fn secure_metrics_are_for_those_who_may_get_them() -> Result<()> {
    let arguments = ["--user", "reader:reads", "--user", "stranger:knows-nothing"];
    let cluster = Cluster::with_arguments("secure-metrics", &arguments).await?;
    cluster.more_rights(&["metrics.secure=true"]).await?;
    let reader = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "reader" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "karpenter-metrics-reader" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader" }],
    });
    e2e::apply::apply_one(&cluster.client().await?, reader).await?;
    let controller = Controller::start_ready(&cluster.controller()?.env("SECURE_METRICS", "true")).await?;
    let read = async |token: Option<&str>| -> Result<String> {
        let mut config = kube::Config::new(format!("https://127.0.0.1:{}", controller.metrics_port()).parse()?);
        config.accept_invalid_certs = true;
        config.auth_info.token = token.map(|token| token.to_owned().into());
        let request = http::Request::get("/metrics").body(Vec::new())?;
        Ok(Client::try_from(config)?.request_text(request).await?)
    };
    let refused =
        async |token: Option<&str>| read(token).await.err().map(|error| error.to_string()).unwrap_or_default();
    eventually("the reader reads", DEADLINE, async || {
        let text = read(Some("reads")).await?;
        ensure!(text.contains("karpenter_build_info"), "{text}");
        Ok(())
    })
    .await?;
    for (token, code) in [(None, "401"), (Some("nobodys"), "401"), (Some("knows-nothing"), "403")] {
        let answer = refused(token).await;
        ensure!(answer.contains(code), "{token:?}: {answer}");
    }
    ensure!(controller.metrics().is_err(), "metrics in plain text");
    controller.terminate().await.map(drop)
}
