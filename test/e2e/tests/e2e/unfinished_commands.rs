//! A Karpenter that was stopped in the middle of its work is taken over from: nothing waits for it.

use anyhow::{Context, Result, ensure};
use api::NodeClaim;
use e2e::{Controller, eventually};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, DEADLINE};
use crate::switching::run_by_karpenter;

const DISRUPTED: &str = "default-abc0";
const REBOOTING: &str = "default-abc1";
const OLD: &str = "default-abc2";

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-02T00:00:00Z" })
}

/// Adds conditions to a NodeClaim's, or puts them in the place of those of their types.
async fn set_conditions(claims: &Api<NodeClaim>, name: &str, set: &[Value]) -> Result<()> {
    let known = claims.get(name).await?.status.context("no status")?.conditions;
    let mut all: Vec<Value> = known.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    all.retain(|known| set.iter().all(|new| new["type"] != known["type"]));
    all.extend(set.iter().cloned());
    let patch = Patch::Merge(json!({ "status": { "conditions": all } }));
    claims.patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// One machine marked for disruption, one in the middle of a reboot, and one that was deleted and whose Node is so old
/// that it lacks the label of its node class.
async fn in_the_middle(client: &Client) -> Result<()> {
    let (claims, nodes): (Api<NodeClaim>, Api<Node>) = (Api::all(client.clone()), Api::all(client.clone()));
    let taint = async |node: &str, key: &str| -> Result<()> {
        let patch = json!({ "spec": { "taints": [{ "key": key, "effect": "NoSchedule" }] } });
        nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    };
    taint(DISRUPTED, "karpenter.sh/disrupted").await?;
    set_conditions(&claims, DISRUPTED, &[condition("DisruptionReason", "True", "Underutilized")]).await?;

    taint(REBOOTING, "karpenter.sh/rebooting").await?;
    let reboot = [
        condition("DisruptionReason", "True", "Unhealthy"),
        condition("Rebooting", "True", "RebootIssued"),
        condition("Initialized", "Unknown", "Rebooting"),
    ];
    set_conditions(&claims, REBOOTING, &reboot).await?;
    let annotations = json!({
        "karpenter.sh/reboot-pre-boot-id": "a", "karpenter.sh/reboot-termination-grace-period": "10m",
    });
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    claims.patch(REBOOTING, &PatchParams::default(), &patch).await?;
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "karpenter.sh/initialized": null } } }));
    nodes.patch(REBOOTING, &PatchParams::default(), &patch).await?;

    let patch = Patch::Merge(json!({ "metadata": { "labels": { "karpenter.kwok.sh/kwoknodeclass": null } } }));
    nodes.patch(OLD, &PatchParams::default(), &patch).await?;
    claims.delete(OLD, &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test]
async fn machines_of_unfinished_commands_take_pods_again_and_old_nodes_can_go() -> Result<()> {
    let cluster = Cluster::new("unfinished-commands").await?;
    let client = cluster.client().await?;
    run_by_karpenter(&client).await?;
    in_the_middle(&client).await?;
    let controller = Controller::start_ready(&cluster.controller()?).await?;

    let (claims, nodes): (Api<NodeClaim>, Api<Node>) = (Api::all(client.clone()), Api::all(client.clone()));
    for name in [DISRUPTED, REBOOTING] {
        eventually(&format!("{name} takes pods again"), DEADLINE, async || {
            let node = nodes.get(name).await?;
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
            ensure!(taints.is_empty(), "{taints:?}");
            ensure!(node.labels().get("karpenter.sh/initialized").is_some_and(|it| it == "true"), "not initialized");
            let claim = claims.get(name).await?;
            ensure!(claim.metadata.deletion_timestamp.is_none(), "it is being deleted");
            let begun = claim.annotations().keys().find(|key| key.starts_with("karpenter.sh/reboot"));
            ensure!(begun.is_none(), "{begun:?}");
            let conditions = claim.status.context("no status")?.conditions;
            let kinds: Vec<&str> = conditions.iter().map(|it| it.type_.as_str()).collect();
            ensure!(!kinds.contains(&"DisruptionReason"), "{kinds:?}");
            // The reboot was brought to its end: the Node is of another boot than the one that was written down.
            let reboots = conditions.iter().any(|it| it.type_ == "Rebooting" && it.status != "False");
            ensure!(!reboots && kinds.contains(&"Rebooting") == (name == REBOOTING), "{conditions:?}");
            ensure!(conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True"), "{conditions:?}");
            Ok(())
        })
        .await?;
    }
    eventually("the machine that was on its way out is gone", DEADLINE, async || {
        ensure!(claims.get_opt(OLD).await?.is_none() && nodes.get_opt(OLD).await?.is_none(), "it is there");
        Ok(())
    })
    .await?;
    // Both have free room, and nowhere else may these pods go.
    let corner = Corner::existing(client, "default");
    let before = corner.pods().await?.len();
    for name in [DISRUPTED, REBOOTING] {
        let requests = json!({ "requests": { "cpu": "200m" } });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": format!("on-{name}"), "namespace": "default" },
            "spec": {
                "nodeSelector": { "kubernetes.io/hostname": name },
                "containers": [{ "name": "main", "image": "x", "resources": requests }],
            },
        });
        corner.apply([pod]).await?;
    }
    corner.bound(before + 2).await?;
    controller.terminate().await.map(drop)
}
