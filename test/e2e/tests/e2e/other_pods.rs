//! Pods that are not kube-scheduler's usual ones: those that want no machine of a NodePool, and those of other
//! schedulers.

use anyhow::{Context, Result, ensure};
use e2e::controller::Controller;
use e2e::{eventually, objects};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, DEADLINE, node_of, shared};

const IGNORED: &str = "karpenter_scheduler_ignored_pods_count";
const UNSCHEDULABLE: &str = "karpenter_scheduler_unschedulable_pods_count";
const HELD: &str = "dovetail.sh/held";

/// As the charts of Karpenter and Dovetail keep their own pods off machines that these launch.
#[tokio::test]
async fn a_pod_that_opts_out_of_node_pools_counts_as_ignored_and_nothing_is_told_of_it() -> Result<()> {
    let cluster = Cluster::new("opted-out").await?;
    let corner = Corner::new(cluster.client().await?, "opted-out").await?;
    let controller = Controller::start_ready(&cluster.controller()?).await?;
    let requests = json!({ "cpu": "1" });
    let opt_out = json!({ "spec": { "affinity": { "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
            { "matchExpressions": [{ "key": "karpenter.sh/nodepool", "operator": "DoesNotExist" }] }] } } } } });
    let pods = [
        objects::with(objects::pod(&corner.name, "opted-out", &requests), opt_out),
        objects::pod(&corner.name, "planned", &requests),
        objects::pod(&corner.name, "too-large", &json!({ "cpu": "10000" })),
    ];
    corner.apply(pods).await?;
    eventually("the pod that is like others is bound", DEADLINE, async || {
        let pods = corner.pods().await?;
        let planned = pods.iter().find(|pod| pod.name_any() == "planned").context("no pod")?;
        node_of(planned).map(drop).context("it waits")
    })
    .await?;
    eventually("each pod is counted as what it is", DEADLINE, async || {
        let (ignored, unschedulable) = (controller.metric(IGNORED)?, controller.metric(UNSCHEDULABLE)?);
        ensure!(ignored == 1.0 && unschedulable == 1.0, "{ignored} ignored, {unschedulable} unschedulable");
        Ok(())
    })
    .await?;
    corner.event("no machine holds it", "too-large", |event| event.contains("Failed to schedule pod")).await?;
    // Both were refused by one plan, so an event of the other would have come with it.
    let events = corner.events("opted-out").await?;
    ensure!(!events.iter().any(|message| message.contains("Failed to schedule pod")), "{events:?}");
    let log = controller.log()?;
    let about_it =
        log.lines().filter(|line| line.contains("could not schedule pod") && line.contains("opted-out/opted-out"));
    assert_eq!(about_it.count(), 0, "{log}");
    Ok(())
}

/// The test is the scheduler: it says that it found no place, and binds the pod once there is one.
#[tokio::test]
async fn a_pod_of_another_scheduler_gets_a_machine_and_is_let_in() -> Result<()> {
    let corner = Corner::shared("other-scheduler").await?;
    let pod = objects::with(
        objects::pod(&corner.name, "batch", &json!({ "cpu": "1" })),
        json!({ "spec": { "schedulerName": "batch" } }),
    );
    corner.apply([pod]).await?;
    let pods = Api::<Pod>::namespaced(corner.client.clone(), &corner.name);
    let unschedulable = json!({ "status": { "conditions": [
        { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node" }] } });
    pods.patch_status("batch", &PatchParams::default(), &Patch::Strategic(&unschedulable)).await?;
    eventually("the pod may enter the machine that was launched for it", DEADLINE, async || {
        let nodes = corner.nodes().await?;
        ensure!(!nodes.is_empty(), "no machine");
        let pod = pods.get("batch").await?;
        let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref());
        let is_ours = |key: &Option<String>| key.as_deref() == Some(HELD);
        ensure!(tolerations.into_iter().flatten().any(|toleration| is_ours(&toleration.key)), "no toleration yet");
        Ok(())
    })
    .await?;
    let nodes = corner.nodes().await?;
    let node = nodes.first().context("no machine")?.name_any();
    let binding = json!({ "apiVersion": "v1", "kind": "Binding",
        "metadata": { "name": "batch", "namespace": corner.name },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node } });
    let _: Value = pods.create_subresource("binding", "batch", &PostParams::default(), &binding).await?;
    eventually("the machine is open", DEADLINE, async || {
        let nodes = corner.nodes().await?;
        let taints = nodes.first().and_then(|node| node.spec.as_ref()?.taints.as_ref());
        ensure!(!taints.into_iter().flatten().any(|taint| taint.key == HELD), "it is held");
        Ok(())
    })
    .await?;
    eventually("it was opened because its pod has come, and not for want of it", DEADLINE, async || {
        let log = shared().await?.controller.log()?;
        let of_node = format!("\"node\":\"{node}\"");
        let told = log.lines().find(|line| line.contains("\"opened node\"") && line.contains(&of_node));
        let told = told.context("the log does not tell")?;
        ensure!(told.contains("\"outcome\":\"handed_over\""), "{told}");
        Ok(())
    })
    .await
}
