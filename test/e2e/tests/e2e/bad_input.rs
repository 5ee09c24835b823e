//! Bad input gets an error that names object, field and reason; everything else goes on.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};
use api::NodePool;
use e2e::{Controller, binary, eventually, objects};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, DEADLINE};

/// Runs `dovetail` and gives its exit code and all that it wrote.
fn dovetail(arguments: &[&str], input: &str) -> Result<(i32, String)> {
    let mut process = Command::new(binary::with_failpoints()?)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = process.stdin.take().context("no standard input")?;
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let Output { status, stdout, stderr } = process.wait_with_output()?;
    // It may end without reading all of it.
    let _ = writer.join();
    let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    Ok((status.code().with_context(|| format!("killed: {status}\n{text}"))?, text))
}

fn yaml(objects: &[Value]) -> String {
    objects.iter().map(|object| format!("---\n{object}\n")).collect()
}

fn pod(name: &str, changes: Value) -> Value {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "containers": [{ "name": "main", "image": "x", "resources": { "requests": { "cpu": "1" } } }] },
    });
    objects::with(pod, changes)
}

async fn condition(corner: &Corner, condition: &str) -> Result<(String, String, String)> {
    let pool: NodePool = corner.pool().await?;
    let conditions = pool.status.unwrap_or_default().conditions;
    let found =
        conditions.into_iter().find(|other| other.type_ == condition).with_context(|| format!("no {condition}"))?;
    Ok((found.status, found.reason, found.message))
}

#[tokio::test]
async fn a_nodepool_without_its_class_says_so_and_the_others_work_on() -> Result<()> {
    let broken = Corner::shared("no-class").await?;
    broken.node_pool(json!({ "spec": { "template": { "spec": { "nodeClassRef": { "name": "missing" } } } } })).await?;
    broken.apply([objects::pod(&broken.name, "one", &json!({ "cpu": "1" }))]).await?;
    eventually("the NodePool says which class is missing", DEADLINE, async || {
        let (status, reason, message) = condition(&broken, "NodeClassReady").await?;
        ensure!(status == "False" && reason == "NodeClassNotFound", "{status} {reason} {message}");
        let (status, _, message) = condition(&broken, "Ready").await?;
        ensure!(status == "False", "Ready is {status}: {message}");
        Ok(())
    })
    .await?;
    let working = Corner::shared("with-class").await?;
    working.apply([objects::pod(&working.name, "one", &json!({ "cpu": "1" }))]).await?;
    working.bound(1).await?;
    ensure!(broken.node_claims().await?.is_empty(), "a machine for a NodePool without a class");
    // And when the class is named right, the pod gets its machine.
    broken.node_pool(json!({})).await?;
    broken.bound(1).await.map(drop)
}

#[tokio::test]
async fn a_nodepool_that_only_runtime_validation_can_refuse_names_the_field() -> Result<()> {
    let corner = Corner::shared("bad-pool").await?;
    // One key and effect twice, in two lists that the schema looks at separately.
    let taint = json!({ "key": "example.org/twice", "effect": "NoSchedule" });
    corner
        .node_pool(json!({ "spec": { "template": { "spec": { "taints": [taint], "startupTaints": [taint] } } } }))
        .await?;
    eventually("the NodePool says what is wrong", DEADLINE, async || {
        let (status, reason, message) = condition(&corner, "ValidationSucceeded").await?;
        ensure!(status == "False" && reason == "NodePoolValidationFailed", "{status} {reason} {message}");
        ensure!(message.contains("example.org/twice"), "{message}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_selector_that_nothing_satisfies_is_named_in_an_event() -> Result<()> {
    let corner = Corner::shared("no-such-label").await?;
    let lost = objects::with(
        objects::pod(&corner.name, "lost", &json!({ "cpu": "1" })),
        json!({ "spec": { "nodeSelector": { "example.org/colour": "octarine" } } }),
    );
    corner.apply([lost, objects::pod(&corner.name, "found", &json!({ "cpu": "1" }))]).await?;
    // kube-scheduler's own events have that reason too, but know no NodePool.
    let is_ours = |event: &str| event.starts_with("FailedScheduling") && event.contains("example.org/colour");
    corner.event("it names the label", "lost", is_ours).await?;
    eventually("the other pod is bound", DEADLINE, async || {
        let pods = corner.pods().await?;
        ensure!(pods.iter().any(|pod| crate::cluster::node_of(pod).is_some()), "not yet");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_pod_that_waits_for_a_volume_is_told_so_and_gets_no_machine() -> Result<()> {
    let corner = Corner::shared("waits").await?;
    let volume = objects::with(
        objects::pod(&corner.name, "volume", &json!({ "cpu": "1" })),
        json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "nowhere" } }] } }),
    );
    corner.apply([volume]).await?;
    let waits = "it waits for something else: PersistentVolumeClaim waits/nowhere does not exist";
    corner.event("it names the volume", "volume", |event| event.contains(waits)).await?;
    ensure!(corner.node_claims().await?.is_empty(), "a machine for a pod without its volume");
    Ok(())
}

#[tokio::test]
async fn an_object_as_big_as_the_server_takes_stops_nothing() -> Result<()> {
    let corner = Corner::shared("big-object").await?;
    let big = objects::with(
        objects::pod(&corner.name, "big", &json!({ "cpu": "1" })),
        json!({ "spec": { "containers": [{ "name": "main", "image": "x",
            "resources": { "requests": { "cpu": "1" } },
            "env": [{ "name": "BIG", "value": "x".repeat(1_300_000) }] }] } }),
    );
    // Applied without the client's own copy of it, which would not fit.
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::namespaced(corner.client.clone(), &corner.name);
    pods.create(&kube::api::PostParams::default(), &serde_json::from_value(big)?).await?;
    corner.apply([objects::pod(&corner.name, "small", &json!({ "cpu": "1" }))]).await?;
    corner.bound(2).await.map(drop)
}

#[tokio::test]
async fn a_catalogue_that_does_not_parse_ends_the_controller_with_the_place() -> Result<()> {
    let cluster = Cluster::new("bad-catalogue").await?;
    let path = cluster.control_plane.folder().join("catalogue.json");
    std::fs::write(&path, "[{\"name\": \"m\", \"offerings\": [{\"Price\": \"cheap\"}]}]")?;
    let options = cluster.controller()?.env("INSTANCE_TYPES_FILE_PATH", &path.to_string_lossy());
    let controller = Controller::start(&options)?;
    let status = controller.ended(DEADLINE).await?;
    let log = controller.log()?;
    ensure!(status.code() == Some(1), "it ended with {status}:\n{log}");
    ensure!(log.contains("catalogue.json"), "the file is not named:\n{log}");
    Ok(())
}

#[tokio::test]
async fn a_bad_option_is_a_usage_error_that_names_it() -> Result<()> {
    for (arguments, named) in [
        (["run", "--batch-idle-duration", "soon"], "batch-idle-duration"),
        (["run", "--feature-gates", "NodeOverlay"], "feature-gates"),
        (["run", "--preference-policy", "Sometimes"], "preference-policy"),
        (
            ["run", "--scheduler-config", "podTopologySpread: {defaultConstraints: [{}]}"],
            "defaultConstraints[0].topologyKey",
        ),
    ] {
        let (code, text) = dovetail(&arguments, "")?;
        ensure!(code == 2 && text.contains(named), "{arguments:?}: exit {code}: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn offline_a_bad_object_is_named_with_its_field_and_the_others_are_planned() -> Result<()> {
    let operator = json!({ "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "a", "operator": "Near", "values": ["b"] }] }] } } } } });
    let negative = json!({ "spec": { "containers": [{ "name": "main", "image": "x", "resources": { "requests": { "cpu": "-1" } } }] } });
    let nonsense = json!({ "spec": { "containers": [{ "name": "main", "image": "x", "resources": { "requests": { "cpu": "much" } } }] } });
    for (bad, words) in [(operator, ["bad", "Near"]), (negative, ["bad", "cpu"]), (nonsense, ["bad", "much"])] {
        let (code, text) =
            dovetail(&["plan", "-f", "-", "-o", "json"], &yaml(&[pod("bad", bad), pod("good", json!({}))]))?;
        ensure!(matches!(code, 1 | 3), "exit {code}: {text}");
        ensure!(words.iter().all(|word| text.contains(word)), "exit {code}: {text}");
        let planned = text.contains("\"pods\"") && text.contains("\"default/good\"");
        ensure!(planned, "the good pod is not planned: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn offline_an_object_of_five_megabytes_ends_in_a_plan_or_an_error_that_names_it() -> Result<()> {
    let huge = pod("huge", json!({ "metadata": { "annotations": { "note": "x".repeat(5 << 20) } } }));
    let (code, text) = dovetail(&["plan", "-f", "-"], &yaml(&[huge, pod("good", json!({}))]))?;
    match code {
        0 => ensure!(text.contains("huge") && text.contains("good"), "{}", text.chars().take(2000).collect::<String>()),
        1 | 3 => ensure!(text.contains("huge"), "{}", text.chars().take(2000).collect::<String>()),
        _ => bail!("exit {code}: {}", text.chars().take(2000).collect::<String>()),
    }
    Ok(())
}
