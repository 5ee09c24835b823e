//! Pods that ask for no spread, where kube-scheduler is configured to spread them all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use e2e::controller::{self, Controller};
use e2e::fleet::planned_uids;
use e2e::{eventually, objects};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, DEADLINE, node_of, scheduled};

const ZONE: &str = "topology.kubernetes.io/zone";
const ZONES: [&str; 2] = ["test-zone-a", "test-zone-b"];
const PLANNED_PODS: &str = "dovetail.sh/planned-pods";
/// A machine holds four of these.
const REQUESTS: &str = "900m";

fn constraint() -> Value {
    json!({ "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule" })
}

fn scheduler_config() -> String {
    json!({ "podTopologySpread": { "defaultConstraints": [constraint()] } }).to_string()
}

/// A cluster whose scheduler spreads pods over zones, and machines of one size in two of them.
async fn spreading(name: &str) -> Result<(Cluster, Corner)> {
    let cluster = Cluster::with_arguments(name, &["--default-spread", &constraint().to_string()]).await?;
    cluster.more_rights(&["settings.schedulerConfig=podTopologySpread: null"]).await?;
    let corner = Corner::without_node_pool(cluster.client().await?, name).await?;
    let requirements = json!([
        { "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-4x-amd64-linux"] },
        { "key": ZONE, "operator": "In", "values": ZONES },
    ]);
    corner.node_pool(json!({ "spec": { "template": { "spec": { "requirements": requirements } } } })).await?;
    Ok((cluster, corner))
}

/// How many of the pods whose names start like this are in each zone.
async fn by_zone(corner: &Corner, start: &str) -> Result<BTreeMap<String, usize>> {
    let nodes = corner.nodes().await?;
    let zone_of: BTreeMap<_, _> =
        nodes.iter().filter_map(|node| Some((node.name_any(), node.labels().get(ZONE)?.clone()))).collect();
    let mut counts = BTreeMap::new();
    for pod in corner.pods().await?.iter().filter(|pod| pod.name_any().starts_with(start)) {
        let node = node_of(pod).with_context(|| format!("{} is not bound", pod.name_any()))?;
        *counts.entry(zone_of.get(node).context("no such node")?.clone()).or_default() += 1;
    }
    Ok(counts)
}

fn evenly(count: usize) -> BTreeMap<String, usize> {
    ZONES.map(|zone| (zone.to_owned(), count)).into()
}

fn waits_for(pod: &Pod) -> Option<&str> {
    scheduled(pod)?.message.as_deref()
}

/// Until kube-scheduler has given up on every pod that waits: so a controller that starts then plans all of them at
/// once, however slowly they were made.
async fn given_up(corner: &Corner, waiting: usize) -> Result<()> {
    eventually("kube-scheduler has given up on all pods", DEADLINE, async || {
        let pods = corner.pods().await?;
        let without: Vec<_> = pods.iter().filter(|pod| node_of(pod).is_none()).collect();
        let given_up = without.iter().filter(|pod| waits_for(pod).is_some()).count();
        ensure!(without.len() == waiting && given_up == waiting, "{given_up} of {} pods", without.len());
        Ok(())
    })
    .await
}

/// Runs the binary with an administrator's rights; gives its standard output.
fn dovetail(options: &controller::Options, cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(&options.binary);
    command.args(arguments).env("KUBECONFIG", cluster.control_plane.kubeconfig()).stdin(Stdio::null());
    let output = command.output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(matches!(output.status.code(), Some(0 | 3)), "{arguments:?} ended with {}: {told}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// The pods of each machine.
type Machines = BTreeSet<BTreeSet<String>>;

fn planned(plan: &str) -> Result<Machines> {
    let plan: Value = serde_json::from_str(plan)?;
    let claims = plan["nodeClaims"].as_array().context("no nodeClaims")?;
    let pods = |claim: &Value| {
        let pods = claim["pods"].as_array().into_iter().flatten().filter_map(Value::as_str);
        pods.filter_map(|pod| Some(pod.split_once('/')?.1.to_owned())).collect()
    };
    Ok(claims.iter().map(pods).collect())
}

#[tokio::test]
async fn a_deployment_without_constraints_is_spread_over_the_machines_that_were_planned_for_it() -> Result<()> {
    let (cluster, corner) = spreading("default-spread").await?;
    let options = cluster.controller()?.env("SCHEDULER_CONFIG", &scheduler_config());
    // Nothing is planned for a NodePool that no controller has looked at.
    let controller = Controller::start_ready(&options).await?;
    corner.ready().await?;
    controller.terminate().await?;

    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "till", "namespace": corner.name },
        "spec": { "selector": { "team": "till" }, "ports": [{ "port": 80 }] },
    });
    let till = |index: usize| {
        let labels = json!({ "metadata": { "labels": { "team": "till" } } });
        objects::with(objects::pod(&corner.name, &format!("till-{index}"), &json!({ "cpu": "100m" })), labels)
    };
    let web = objects::deployment(&corner.name, "web", 6, &json!({ "cpu": REQUESTS }));
    corner.apply([service, web, till(0), till(1)]).await?;
    given_up(&corner, 8).await?;

    let path = |name: &str| cluster.control_plane.folder().join(name).display().to_string();
    let (file, scheduler, nothing) = (path("cluster.jsonl"), path("defaults.json"), path("nothing.yaml"));
    std::fs::write(&scheduler, scheduler_config())?;
    std::fs::write(&nothing, "")?;
    dovetail(&options, &cluster, &["snapshot", "--scheduler-config", &scheduler, "-o", &file])?;
    let plan = planned(&dovetail(&options, &cluster, &["plan", "-f", &file, "--check", "-o", "json"])?)?;
    let without = ["plan", "-f", &file, "-o", "json", "--scheduler-config", &nothing];
    let without = planned(&dovetail(&options, &cluster, &without)?)?;
    ensure!(plan.len() == 2 && plan != without, "with defaults {plan:?}, without {without:?}");

    let controller = Controller::start_ready(&options).await?;
    let pods = corner.bound(8).await?;
    ensure!(by_zone(&corner, "web-").await? == evenly(3), "{:?}", by_zone(&corner, "web-").await?);
    ensure!(by_zone(&corner, "till-").await? == evenly(1), "{:?}", by_zone(&corner, "till-").await?);

    let name_of: BTreeMap<_, _> = pods.iter().filter_map(|pod| Some((pod.uid()?, pod.name_any()))).collect();
    let (mut promised, mut is) = (Machines::new(), Machines::new());
    for claim in corner.with_nodes().await? {
        let node = claim.status.as_ref().map(|status| status.node_name.clone()).context("no status")?;
        let noted = claim.annotations().get(PLANNED_PODS).context("no planned pods")?;
        promised.insert(planned_uids(noted).filter_map(|uid| name_of.get(uid).cloned()).collect());
        is.insert(pods.iter().filter(|pod| node_of(pod) == Some(&node)).map(ResourceExt::name_any).collect());
    }
    assert_eq!(promised, plan, "the controller plans what the snapshot's plan is");
    assert_eq!(is, plan, "pods are where they were planned");

    // What the leader was told is told to whoever asks, without a file.
    eventually("the controller has written down how it plans", DEADLINE, async || {
        let text = dovetail(&options, &cluster, &["snapshot"])?;
        let header: Value = serde_json::from_str(text.lines().next().context("it is empty")?)?;
        ensure!(
            header["schedulerConfig"]["podTopologySpread"]["defaultConstraints"] == json!([constraint()]),
            "{header}"
        );
        let kinds: BTreeSet<String> = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok()?["kind"].as_str().map(str::to_owned))
            .collect();
        ensure!(kinds.contains("Service") && kinds.contains("ReplicaSet"), "{kinds:?}");
        Ok(())
    })
    .await?;
    controller.terminate().await.map(drop)
}

#[tokio::test]
async fn pods_that_were_planned_without_the_defaults_wait_until_the_controller_is_told_of_them() -> Result<()> {
    let (cluster, corner) = spreading("default-spread-untold").await?;
    let told = cluster.controller()?.env("SCHEDULER_CONFIG", &scheduler_config()).named("told");
    // A controller plans nothing for a NodePool that none has looked at.
    let controller = Controller::start_ready(&told).await?;
    corner.ready().await?;
    controller.terminate().await?;
    // A machine in each zone, so that kube-scheduler has two domains to compare, and no room on either.
    corner.apply([objects::deployment(&corner.name, "first", 8, &json!({ "cpu": REQUESTS }))]).await?;
    given_up(&corner, 8).await?;
    let controller = Controller::start_ready(&told).await?;
    corner.bound(8).await?;
    ensure!(corner.nodes().await?.len() == 2, "{} nodes for two full machines", corner.nodes().await?.len());
    ensure!(by_zone(&corner, "first-").await? == evenly(4), "{:?}", by_zone(&corner, "first-").await?);
    controller.terminate().await?;

    corner.apply([objects::deployment(&corner.name, "second", 4, &json!({ "cpu": REQUESTS }))]).await?;
    given_up(&corner, 4).await?;
    let untold = Controller::start_ready(&cluster.controller()?.named("untold")).await?;
    eventually("kube-scheduler leaves some waiting beside a machine with room", DEADLINE, async || {
        let pods = corner.pods().await?;
        let reasons: Vec<_> = pods.iter().filter(|pod| node_of(pod).is_none()).filter_map(waits_for).collect();
        let closed = reasons.iter().any(|reason| reason.contains("didn't match pod topology spread constraints"));
        ensure!(closed, "{reasons:?}");
        Ok(())
    })
    .await?;
    untold.terminate().await?;

    let _controller = Controller::start_ready(&told.named("told-again")).await?;
    corner.bound(12).await?;
    ensure!(by_zone(&corner, "second-").await? == evenly(2), "{:?}", by_zone(&corner, "second-").await?);
    Ok(())
}
