//! Broken Nodes: replaced or rebooted as their provider's policies say, within budgets, and not if too many are.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::NodeClaim;
use e2e::wait::stays;
use e2e::{Controller, controller, eventually, objects};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, node_of};

/// A finding counts once it has lasted for the toleration, half a minute, and a drain follows.
const DEADLINE: Duration = Duration::from_secs(120);
/// What kwok's policies replace a Node for, and reboot it for.
const UNHEALTHY: &str = "KWOKUnhealthy";
const REBOOT: &str = "KWOKRebootRequired";

fn options(cluster: &Cluster) -> Result<controller::Options> {
    Ok(cluster.controller()?.arg("--feature-gates=NodeRepair=true"))
}

/// Machines that hold one of its pods each, in a NodePool with those budgets.
async fn fleet(corner: &Corner, pods: u32, budgets: Value) -> Result<()> {
    let one_cpu = json!([{ "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["1"] }]);
    let disruption = json!({ "consolidateAfter": "Never", "budgets": budgets });
    let template = json!({ "spec": { "requirements": one_cpu } });
    corner.node_pool(json!({ "spec": { "disruption": disruption, "template": template } })).await?;
    corner.apply([objects::deployment(&corner.name, "app", pods, &json!({ "cpu": "700m" }))]).await?;
    corner.bound(pods as usize).await?;
    eventually("all machines are initialized", DEADLINE, async || {
        for claim in corner.node_claims().await? {
            ensure!(status(&claim, "Initialized") == Some("True"), "{} is not", claim.name_any());
        }
        Ok(())
    })
    .await
}

fn status<'c>(claim: &'c NodeClaim, type_: &str) -> Option<&'c str> {
    let mut conditions = claim.status.iter().flat_map(|status| &status.conditions);
    conditions.find(|it| it.type_ == type_).map(|it| it.status.as_str())
}

fn initialized_at(claim: &NodeClaim) -> Option<i64> {
    let conditions = claim.status.iter().flat_map(|status| &status.conditions);
    let initialized = conditions.into_iter().find(|it| it.type_ == "Initialized" && it.status == "True");
    initialized.map(|it| it.last_transition_time.0.as_second())
}

/// Sets a condition of the Node.
async fn set(corner: &Corner, node: &str, type_: &str, status: &str) -> Result<()> {
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let condition = json!({ "type": type_, "status": status, "reason": "Test", "lastTransitionTime": now });
    let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
    let nodes: Api<Node> = Api::all(corner.client.clone());
    nodes.patch_status(node, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn node_names(corner: &Corner) -> Result<Vec<String>> {
    let mut names: Vec<String> = corner.nodes().await?.iter().map(ResourceExt::name_any).collect();
    names.sort();
    Ok(names)
}

/// The only NodeClaim of a Node.
async fn claim_of(corner: &Corner, node: &str) -> Result<NodeClaim> {
    let mut claims = corner.node_claims().await?.into_iter();
    let is_it = |claim: &NodeClaim| claim.status.as_ref().is_some_and(|status| status.node_name == node);
    claims.find(is_it).with_context(|| format!("no NodeClaim of {node}"))
}

async fn replaced(corner: &Corner, node: &str, pods: usize) -> Result<()> {
    let nodes: Api<Node> = Api::all(corner.client.clone());
    eventually(&format!("{node} is replaced"), DEADLINE, async || {
        ensure!(nodes.get_opt(node).await?.is_none(), "it is there");
        Ok(())
    })
    .await?;
    corner.bound(pods).await.map(drop)
}

#[tokio::test]
async fn a_broken_node_is_replaced_unless_too_many_are_or_a_budget_or_an_annotation_says_no() -> Result<()> {
    let cluster = Cluster::new("repair").await?;
    let controller = Controller::start_ready(&options(&cluster)?).await?;
    let client = cluster.client().await?;
    let one = Corner::without_node_pool(client.clone(), "repair-one").await?;
    let many = Corner::without_node_pool(client.clone(), "repair-many").await?;
    let kept = Corner::without_node_pool(client.clone(), "repair-kept").await?;
    tokio::try_join!(one_of_five(&one), two_of_five(&many), kept_by_budget_and_annotation(&kept))?;
    let metrics = controller.metrics()?;
    let series = "karpenter_nodeclaims_unhealthy_disrupted_total{condition=\"KWOKUnhealthy\",nodepool=\"repair-one\"";
    ensure!(metrics.contains(series), "{metrics}");
    controller.terminate().await.map(drop)
}

async fn one_of_five(corner: &Corner) -> Result<()> {
    fleet(corner, 5, json!([{ "nodes": "100%" }])).await?;
    let node = node_names(corner).await?.swap_remove(2);
    // What protects a node from disruption does not keep it broken.
    let nodes: Api<Node> = Api::all(corner.client.clone());
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } }));
    nodes.patch(&node, &PatchParams::default(), &patch).await?;
    let claim = claim_of(corner, &node).await?;
    corner.hold(&claim).await?;
    set(corner, &node, UNHEALTHY, "True").await?;
    let deleted_at = eventually("its NodeClaim goes, with the drain that the policy bounds", DEADLINE, async || {
        let claims: Api<NodeClaim> = Api::all(corner.client.clone());
        let claim = claims.get(&claim.name_any()).await?;
        let deleted = claim.metadata.deletion_timestamp.as_ref().context("it is not deleted")?;
        let text = claim.annotations().get("karpenter.sh/nodeclaim-termination-timestamp").context("no deadline")?;
        let deadline: k8s_openapi::jiff::Timestamp = text.parse()?;
        let bound_s = deadline.as_second() - deleted.0.as_second();
        ensure!((40..=46).contains(&bound_s), "{bound_s} s");
        Ok(deleted.0.as_second())
    })
    .await?;
    let claims = corner.node_claims().await?;
    let ready = claims.iter().filter_map(initialized_at).filter(|at| *at <= deleted_at).count();
    ensure!(claims.len() == 6 && ready == 6, "{} NodeClaims, {ready} were ready when it went", claims.len());
    corner.release(&claim).await?;
    replaced(corner, &node, 5).await?;
    corner.event("why is told", &node, |event| event.contains("KWOKUnhealthy=True")).await
}

async fn two_of_five(corner: &Corner) -> Result<()> {
    fleet(corner, 5, json!([{ "nodes": "100%" }])).await?;
    let before = node_names(corner).await?;
    for node in &before[..2] {
        set(corner, node, UNHEALTHY, "True").await?;
    }
    corner.event("too many are broken", &corner.name, |event| event.contains("NodeRepairBlocked")).await?;
    stays("no machine goes", Duration::from_secs(10), async || {
        let claims = corner.node_claims().await?;
        ensure!(claims.iter().all(|claim| claim.metadata.deletion_timestamp.is_none()), "one does");
        Ok(())
    })
    .await?;
    set(corner, &before[0], UNHEALTHY, "False").await?;
    replaced(corner, &before[1], 5).await?;
    ensure!(node_names(corner).await?.contains(&before[0]), "the one that has recovered is gone");
    Ok(())
}

async fn kept_by_budget_and_annotation(corner: &Corner) -> Result<()> {
    fleet(corner, 1, json!([{ "nodes": "0", "reasons": ["Unhealthy"] }])).await?;
    let node = node_names(corner).await?.swap_remove(0);
    let nodes: Api<Node> = Api::all(corner.client.clone());
    let annotate = async |value: Value| {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "karpenter.sh/do-not-repair": value } } }));
        nodes.patch(&node, &PatchParams::default(), &patch).await
    };
    annotate(json!("true")).await?;
    set(corner, &node, UNHEALTHY, "True").await?;
    corner.event("the annotation is named", &node, |event| event.contains("do-not-repair")).await?;
    annotate(Value::Null).await?;
    stays("the budget keeps it", Duration::from_secs(12), async || {
        let claim = claim_of(corner, &node).await?;
        ensure!(claim.metadata.deletion_timestamp.is_none(), "it goes");
        Ok(())
    })
    .await?;
    corner.node_pool(json!({ "spec": { "disruption": { "budgets": [{ "nodes": "100%" }] } } })).await?;
    replaced(corner, &node, 1).await
}

fn boot_id(node: &Node) -> &str {
    node.status.as_ref().and_then(|status| status.node_info.as_ref()).map_or("", |info| &info.boot_id)
}

/// Waits until the machine of that Node has booted again after that boot, and is initialized; gives the new boot.
async fn rebooted(corner: &Corner, node: &str, before: &str) -> Result<String> {
    let nodes: Api<Node> = Api::all(corner.client.clone());
    eventually(&format!("{node} has booted again"), DEADLINE, async || {
        let object = nodes.get(node).await?;
        ensure!(boot_id(&object) != before, "it is of boot {before}");
        let taints = object.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        ensure!(taints.iter().all(|taint| taint.key != "karpenter.sh/rebooting"), "{taints:?}");
        let claim = claim_of(corner, node).await?;
        ensure!(status(&claim, "Rebooting") == Some("False"), "Rebooting is {:?}", status(&claim, "Rebooting"));
        ensure!(status(&claim, "Initialized") == Some("True"), "it is not initialized");
        ensure!(status(&claim, "DisruptionReason").is_none(), "it is being disrupted");
        let left = claim.annotations().keys().find(|key| key.starts_with("karpenter.sh/reboot"));
        ensure!(left.is_none(), "{left:?}");
        Ok(boot_id(&object).to_owned())
    })
    .await
}

#[tokio::test]
async fn a_node_is_rebooted_in_its_place_and_replaced_when_that_has_not_helped_twice() -> Result<()> {
    let cluster = Cluster::new("reboot").await?;
    let mut controller = Controller::start_ready(&options(&cluster)?).await?;
    let corner = Corner::without_node_pool(cluster.client().await?, "reboot").await?;
    fleet(&corner, 1, json!([{ "nodes": "100%" }])).await?;
    // It rides the reboot: nobody may evict it.
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "app", "namespace": corner.name },
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "app" } } },
    });
    corner.apply([budget]).await?;
    let pod = corner.pods().await?.pop().context("no pod")?;
    let node = node_of(&pod).context("not bound")?.to_owned();
    let claim = claim_of(&corner, &node).await?;
    let nodes: Api<Node> = Api::all(corner.client.clone());
    let mut boot = boot_id(&nodes.get(&node).await?).to_owned();
    set(&corner, &node, REBOOT, "True").await?;
    for count in 1..=2 {
        boot = rebooted(&corner, &node, &boot).await.with_context(|| format!("reboot {count}"))?;
        let now = corner.pods().await?;
        ensure!(now.len() == 1 && now[0].uid() == pod.uid(), "the pod was replaced");
        ensure!(claim_of(&corner, &node).await?.uid() == claim.uid(), "the machine was replaced");
        let of_node = nodes.get(&node).await?;
        ensure!(of_node.labels().get("karpenter.sh/initialized").is_some_and(|it| it == "true"), "no label");
        if count == 1 {
            // How often it was rebooted is remembered.
            controller.terminate().await?;
            controller = Controller::start_ready(&options(&cluster)?).await?;
        }
    }
    let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        Api::namespaced(corner.client.clone(), &corner.name);
    budgets.delete("app", &DeleteParams::default()).await?;
    replaced(&corner, &node, 1).await?;
    let metrics = controller.metrics()?;
    ensure!(metrics.contains("karpenter_nodes_reboots_total{result=\"succeeded\"} 1"), "{metrics}");
    controller.terminate().await.map(drop)
}

/// How a machine is repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Replace,
    /// By the rules of Karpenter before 1.15.
    Legacy,
    Reboot,
}

/// The steps of a repair that no other disruption takes, and in which way they are reached.
const STEPS: [(Way, &str); 16] = [
    (Way::Replace, "disruption.before-deletion"),
    (Way::Replace, "disruption.after-deadline"),
    (Way::Legacy, "repair.before-deadline"),
    (Way::Legacy, "repair.before-delete"),
    (Way::Legacy, "repair.after-delete"),
    (Way::Reboot, "repair.before-note"),
    (Way::Reboot, "repair.before-request"),
    (Way::Reboot, "repair.after-request"),
    (Way::Reboot, "reboot.before-fence"),
    (Way::Reboot, "reboot.before-boot-id"),
    (Way::Reboot, "reboot.before-provider"),
    (Way::Reboot, "reboot.after-provider"),
    (Way::Reboot, "reboot.before-issued"),
    (Way::Reboot, "reboot.before-open"),
    (Way::Reboot, "reboot.before-success"),
    (Way::Reboot, "reboot.after-success"),
];
/// Most of it is waiting, so some clusters side by side.
const CLUSTERS: usize = 3;

#[tokio::test]
async fn a_crash_at_any_step_of_a_repair_leaves_it_to_the_next() -> Result<()> {
    let parts = STEPS.chunks(STEPS.len().div_ceil(CLUSTERS)).enumerate();
    try_join_all(parts.map(async |(index, steps)| {
        let cluster = Cluster::new(&format!("repair-crashes-{index}")).await?;
        for (way, failpoint) in steps {
            survives(&cluster, *way, failpoint).await.with_context(|| (*failpoint).to_owned())?;
        }
        anyhow::Ok(())
    }))
    .await
    .map(drop)
}

async fn survives(cluster: &Cluster, way: Way, failpoint: &str) -> Result<()> {
    let client = cluster.client().await?;
    let corner = Corner::without_node_pool(client.clone(), &failpoint.replace('.', "-")).await?;
    let mut alone = options(cluster)?.arg("--disable-leader-election");
    let condition = match way {
        Way::Replace => UNHEALTHY,
        Way::Legacy => {
            alone = alone.arg("--legacy-node-repair");
            UNHEALTHY
        }
        Way::Reboot => REBOOT,
    };
    let dying = alone.clone().env("DOVETAIL_FAILPOINTS", &format!("{failpoint}=abort"));
    let controller = Controller::start_ready(&dying).await?;
    fleet(&corner, 1, json!([{ "nodes": "100%" }])).await?;
    let node = node_names(&corner).await?.swap_remove(0);
    let nodes: Api<Node> = Api::all(client);
    let boot = boot_id(&nodes.get(&node).await?).to_owned();
    set(&corner, &node, condition, "True").await?;
    controller.ended(DEADLINE).await?;

    let controller = Controller::start_ready(&alone).await?;
    match way {
        Way::Replace | Way::Legacy => replaced(&corner, &node, 1).await?,
        Way::Reboot => {
            let now = rebooted(&corner, &node, &boot).await?;
            set(&corner, &node, condition, "False").await?;
            ensure!(boot_id(&nodes.get(&node).await?) == now, "it was rebooted twice");
            corner.bound(1).await?;
        }
    }
    corner.abandon().await?;
    controller.terminate().await.map(drop)
}
