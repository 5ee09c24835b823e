//! What the offline commands say of a live cluster is what the controller then does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use e2e::controller::{self, Controller};
use e2e::faults::audit::History;
use e2e::fleet::planned_uids;
use e2e::{eventually, objects};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, DEADLINE, node_of};

const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
const PLANNED_PODS: &str = "dovetail.sh/planned-pods";

/// Runs the binary with an administrator's rights; gives its exit code and output.
fn dovetail(binary: &Path, kubeconfig: &Path, arguments: &[&str]) -> Result<(i32, String)> {
    let output = Command::new(binary)
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("run {}", binary.display()))?;
    let code = output.status.code().context("it was killed")?;
    ensure!(code == 0 || code == 3, "{arguments:?} ended with {code}: {}", String::from_utf8_lossy(&output.stderr));
    Ok((code, String::from_utf8(output.stdout)?))
}

/// Machines as sets: which pods, and which instance types may be launched.
type Machines = BTreeSet<(BTreeSet<String>, BTreeSet<String>)>;

fn planned(plan: &Value) -> Machines {
    let texts =
        |value: &Value| value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    plan["nodeClaims"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|it| (texts(&it["pods"]), texts(&it["instanceTypes"])))
        .collect()
}

#[tokio::test]
async fn the_plan_of_a_snapshot_is_what_the_controller_does() -> Result<()> {
    let cluster = Cluster::new("snapshot").await?;
    let client = cluster.client().await?;
    let corner = Corner::without_node_pool(client.clone(), "snapshot").await?;
    let small = json!([{"key": INSTANCE_TYPE, "operator": "In", "values": ["c-4x-amd64-linux", "s-4x-amd64-linux"]}]);
    let options: controller::Options = cluster.controller()?;

    // A first machine, with room for one more pod, so that the plan has both kinds of places.
    let controller = Controller::start_ready(&options).await?;
    corner.apply([objects::deployment(&corner.name, "first", 3, &json!({ "cpu": "900m" }))]).await?;
    corner.tried(3).await?;
    corner.node_pool(json!({ "spec": { "template": { "spec": { "requirements": small } } } })).await?;
    corner.bound(3).await?;
    eventually("the first machine is open", DEADLINE, async || {
        let nodes = corner.nodes().await?;
        let taints = nodes.iter().flat_map(|node| node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()));
        let keys: Vec<_> = taints.map(|taint| taint.key.as_str()).collect();
        ensure!(keys == [objects::TEST_KEY], "taints {keys:?}");
        Ok(())
    })
    .await?;
    let first = corner.node_claims().await?.iter().map(ResourceExt::name_any).collect::<BTreeSet<_>>();
    controller.terminate().await?;

    corner.apply([objects::deployment(&corner.name, "second", 11, &json!({ "cpu": "900m" }))]).await?;
    let waiting = eventually("kube-scheduler has given up on the pods without room", DEADLINE, async || {
        let pods = corner.pods().await?;
        let is_waiting = |pod: &&k8s_openapi::api::core::v1::Pod| node_of(pod).is_none();
        let given_up = pods.iter().filter(is_waiting).filter(|pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
            conditions.iter().any(|condition| condition.reason.as_deref() == Some("Unschedulable"))
        });
        let (waiting, given_up) = (pods.iter().filter(is_waiting).count(), given_up.count());
        ensure!(pods.len() == 14 && waiting == 10 && given_up == waiting, "{} pods, {waiting} wait", pods.len());
        Ok(pods.iter().filter(is_waiting).map(ResourceExt::name_any).collect::<Vec<_>>())
    })
    .await?;

    let run = |arguments: &[&str]| dovetail(&options.binary, cluster.control_plane.kubeconfig(), arguments);
    let folder = cluster.control_plane.folder().to_owned();
    let path = |name: &str| folder.join(name).display().to_string();
    let (open, hidden) = (path("snapshot.jsonl"), path("hidden.jsonl"));
    run(&["snapshot", "-o", &open])?;
    run(&["snapshot", "--hash-names", "-o", &hidden])?;
    let plan: Value = serde_json::from_str(&run(&["plan", "-f", &open, "-o", "json"])?.1)?;
    let plan_of_hidden: Value = serde_json::from_str(&run(&["plan", "-f", &hidden, "-o", "json"])?.1)?;
    let planned = planned(&plan);
    ensure!(planned.len() >= 3, "{plan}");
    assert_eq!(plan["cost"], plan_of_hidden["cost"]);
    ensure!(!std::fs::read_to_string(&hidden)?.contains("second"), "names show");

    let pod = format!("{}/{}", corner.name, waiting.first().context("a pod waits")?);
    let of_cluster = run(&["explain", "pod", &pod])?;
    let of_file = run(&["explain", "pod", &pod, "-f", &open])?;
    assert_eq!(of_cluster, of_file);
    ensure!(of_file.1.starts_with(&format!("Pod {pod} goes on a new machine, snapshot-")), "{}", of_file.1);

    // Later plans may note more pods on a NodeClaim, where equal ones have exchanged their places.
    let history = History::start(&client);
    let _controller = Controller::start_ready(&options).await?;
    corner.bound(14).await?;
    history.has_caught_up(&client).await?;
    let names: BTreeMap<String, String> = corner
        .pods()
        .await?
        .iter()
        .map(|pod| (pod.uid().unwrap_or_default(), format!("{}/{}", corner.name, pod.name_any())))
        .collect();
    let created: Machines = history
        .claims_of(&corner.name)
        .iter()
        .filter(|claim| !first.contains(&claim.name_any()))
        .map(|claim| {
            let uids = claim.annotations().get(PLANNED_PODS).cloned().unwrap_or_default();
            let pods = planned_uids(&uids).filter_map(|uid| names.get(uid).cloned()).collect();
            let types = claim.spec.requirements.iter().filter(|it| it.key == INSTANCE_TYPE);
            (pods, types.flat_map(|it| it.values.iter().cloned()).collect())
        })
        .collect();
    assert_eq!(created, planned);
    Ok(())
}

/// The availability of an instance type's spot offerings in a snapshot file.
fn availability(text: &str, instance_type: &str) -> Vec<bool> {
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter(|line| line["instanceType"]["name"] == instance_type)
        .flat_map(|line| line["instanceType"]["offerings"].as_array().cloned().unwrap_or_default())
        .filter(|offering| offering["capacityType"] == "spot")
        .filter_map(|offering| offering["available"].as_bool())
        .collect()
}

#[tokio::test]
async fn what_the_controller_found_out_and_was_told_is_in_the_snapshot() -> Result<()> {
    let cluster = Cluster::new("snapshot-state").await?;
    let corner = Corner::new(cluster.client().await?, "snapshot-state").await?;
    let two = json!([
        {"key": INSTANCE_TYPE, "operator": "In", "values": ["c-4x-amd64-linux", "m-4x-amd64-linux"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
    ]);
    corner.node_pool(json!({ "spec": { "template": { "spec": { "requirements": two } } } })).await?;
    let faults = json!({ "noCapacity": [{ "instanceType": "c-4x-amd64-linux" }] }).to_string();
    corner
        .apply([json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "dovetail-kwok-faults", "namespace": e2e::install::INSTANCES_NAMESPACE },
            "data": { "faults.json": faults } })])
        .await?;
    let options = cluster
        .controller()?
        .env("KWOK_READ_FAULTS", "true")
        .env("FEATURE_GATES", "NodeRepair=true")
        .env("MIN_VALUES_POLICY", "BestEffort");
    let controller = Controller::start_ready(&options).await?;
    corner.apply([objects::deployment(&corner.name, "first", 3, &json!({ "cpu": "1" }))]).await?;
    corner.bound(3).await?;
    let run = |arguments: &[&str]| dovetail(&options.binary, cluster.control_plane.kubeconfig(), arguments);
    let text = eventually("the snapshot says what has run out", DEADLINE, async || {
        let text = run(&["snapshot"])?.1;
        let (dear, cheap) = (availability(&text, "m-4x-amd64-linux"), availability(&text, "c-4x-amd64-linux"));
        ensure!(!cheap.is_empty() && cheap.iter().all(|available| !available), "cheap: {cheap:?}");
        ensure!(!dear.is_empty() && dear.iter().all(|available| *available), "dear: {dear:?}");
        Ok(text)
    })
    .await?;
    let header: Value = serde_json::from_str(text.lines().next().context("no header")?)?;
    assert_eq!(header["options"]["minValuesPolicy"], "BestEffort");
    assert_eq!(header["featureGates"]["NodeRepair"], true);
    assert_eq!(header["featureGates"]["ReservedCapacity"], true);
    controller.terminate().await?;

    // Nobody acts on these; the plan is what the controller would have done with what it knew.
    corner.apply([objects::deployment(&corner.name, "second", 4, &json!({ "cpu": "1" }))]).await?;
    let path = cluster.control_plane.folder().join("snapshot.jsonl").display().to_string();
    eventually("the plan avoids what has run out", DEADLINE, async || {
        run(&["snapshot", "-o", &path])?;
        let plan: Value = serde_json::from_str(&run(&["plan", "-f", &path, "-o", "json"])?.1)?;
        let machines = plan["nodeClaims"].as_array().cloned().unwrap_or_default();
        ensure!(!machines.is_empty(), "{plan}");
        for machine in &machines {
            ensure!(machine["launch"]["instanceType"] == "m-4x-amd64-linux", "{plan}");
        }
        Ok(())
    })
    .await
}
