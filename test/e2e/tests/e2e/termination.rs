//! Machines go in order: taint, drain, instance, Node, NodeClaim.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use api::NodeClaim;
use e2e::wait::stays;
use e2e::{apply, eventually, objects};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use model::Timestamp;
use serde_json::json;

use crate::cluster::{Corner, DEADLINE, instances, node_of, shared};

/// Whether the provider still has an instance for a NodeClaim of that name.
async fn has_instance(corner: &Corner, claim: &str) -> Result<bool> {
    let instances = instances(&corner.client).await?;
    Ok(instances.iter().any(|instance| serde_json::to_string(instance).is_ok_and(|text| text.contains(claim))))
}

#[tokio::test]
async fn a_deleted_nodeclaim_is_drained_and_its_pods_get_another_machine() -> Result<()> {
    let corner = Corner::shared("replaced").await?;
    corner.apply([objects::deployment(&corner.name, "web", 3, &json!({ "cpu": "500m" }))]).await?;
    corner.bound(3).await?;
    let before: BTreeSet<_> = corner.node_claims().await?.iter().map(ResourceExt::name_any).collect();
    corner.delete_claims().await?;
    eventually("the pods run on other machines and the old are gone", DEADLINE, async || {
        let claims: BTreeSet<_> = corner.node_claims().await?.iter().map(ResourceExt::name_any).collect();
        ensure!(claims.is_disjoint(&before), "old {before:?}, now {claims:?}");
        let bound = corner.pods().await?.iter().filter(|pod| node_of(pod).is_some()).count();
        ensure!(bound == 3, "{bound} of 3 bound");
        Ok(())
    })
    .await?;
    for claim in &before {
        ensure!(!has_instance(&corner, claim).await?, "the instance of {claim} is left");
    }
    Ok(())
}

#[tokio::test]
async fn a_deleted_node_takes_its_nodeclaim_and_instance_with_it() -> Result<()> {
    let corner = Corner::shared("node-deleted").await?;
    corner.apply([objects::pod(&corner.name, "one", &json!({ "cpu": "1" }))]).await?;
    corner.bound(1).await?;
    let claim = corner.node_claims().await?.first().context("no NodeClaim")?.name_any();
    let node = corner.nodes().await?.first().context("no node")?.name_any();
    Api::<Node>::all(corner.client.clone()).delete(&node, &DeleteParams::default()).await?;
    corner.emptied().await?;
    ensure!(!has_instance(&corner, &claim).await?, "the instance of {claim} is left");
    Ok(())
}

#[tokio::test]
async fn a_deleted_nodepool_takes_its_machines_with_it_without_a_warning() -> Result<()> {
    let corner = Corner::shared("pool-deleted").await?;
    corner.apply([objects::pod(&corner.name, "one", &json!({ "cpu": "1" }))]).await?;
    corner.bound(1).await?;
    apply::delete(&corner.client, &objects::node_pool(&corner.name)).await?;
    corner.emptied().await?;
    let log = shared().await?.controller.log()?;
    // That the pod has no place any more is another matter, and true.
    let is_warning = |line: &&str| {
        line.contains("\"WARN\"") && line.contains("pool-deleted") && !line.contains("could not schedule pod")
    };
    let warnings: Vec<_> = log.lines().filter(is_warning).collect();
    ensure!(warnings.is_empty(), "{warnings:#?}");
    // Values, not how Rust shows them.
    let is_odd = |line: &&str| line.contains("Some(") || line.contains("Name(\\\"");
    let odd: Vec<_> = log.lines().filter(is_odd).collect();
    ensure!(odd.is_empty(), "{odd:#?}");
    Ok(())
}

#[tokio::test]
async fn a_machine_goes_with_its_nodeclaim_though_the_status_was_made_to_name_another() -> Result<()> {
    let corner = Corner::shared("overwritten").await?;
    let pinned = |name: &str| objects::pod(&corner.name, name, &json!({ "cpu": "900m" }));
    let cpu = json!([{ "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["1", "2"] }]);
    corner.node_pool(json!({ "spec": { "template": { "spec": { "requirements": cpu } } } })).await?;
    corner.apply([pinned("one"), pinned("two"), pinned("three")]).await?;
    corner.bound(3).await?;
    let claims = corner.node_claims().await?;
    let [overwritten, other, ..] = claims.as_slice() else { anyhow::bail!("{} NodeClaims", claims.len()) };
    let (overwritten, other) = (overwritten.name_any(), other.name_any());
    let api: Api<NodeClaim> = Api::all(corner.client.clone());
    let id_of =
        async |name: &str| -> Result<String> { Ok(api.get(name).await?.status.context("no status")?.provider_id) };
    // The end of the first must neither leave its machine, nor take the other's.
    let patch = json!({ "status": { "providerID": id_of(&other).await? } });
    api.patch_status(&overwritten, &PatchParams::default(), &Patch::Merge(patch)).await?;
    api.delete(&overwritten, &DeleteParams::default()).await?;
    eventually("the NodeClaim and its own machine are gone", DEADLINE, async || {
        ensure!(api.get_opt(&overwritten).await?.is_none(), "the NodeClaim is there");
        ensure!(!has_instance(&corner, &overwritten).await?, "its machine is there");
        Ok(())
    })
    .await?;
    ensure!(has_instance(&corner, &other).await?, "the machine of {other} is gone");
    ensure!(api.get(&other).await?.metadata.deletion_timestamp.is_none(), "{other} is being deleted");
    Ok(())
}

#[tokio::test]
async fn past_its_grace_period_a_nodeclaim_does_not_wait_for_budgets() -> Result<()> {
    let corner = Corner::shared("past-grace").await?;
    corner.node_pool(json!({ "spec": { "template": { "spec": { "terminationGracePeriod": "10s" } } } })).await?;
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": { "name": "one", "namespace": corner.name },
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "one" } } },
    });
    corner.apply([budget, objects::pod(&corner.name, "one", &json!({ "cpu": "500m" }))]).await?;
    corner.bound(1).await?;
    corner.delete_claims().await?;
    corner.emptied().await?;
    ensure!(corner.pods().await?.is_empty(), "the pod is there");
    Ok(())
}

#[tokio::test]
async fn a_pod_disruption_budget_holds_the_drain_until_it_allows() -> Result<()> {
    let corner = Corner::shared("budgets").await?;
    corner
        .apply([
            json!({
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": { "name": "web", "namespace": corner.name },
                "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "web" } } },
            }),
            objects::deployment(&corner.name, "web", 1, &json!({ "cpu": "500m" })),
        ])
        .await?;
    let pod = corner.bound(1).await?.remove(0);
    corner.delete_claims().await?;
    eventually("the node has the disruption taint", DEADLINE, async || {
        let nodes = corner.nodes().await?;
        let tainted = nodes.iter().any(|node| {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
            taints.iter().any(|taint| taint.key == "karpenter.sh/disrupted" && taint.effect == "NoSchedule")
        });
        ensure!(tainted, "no taint");
        Ok(())
    })
    .await?;
    stays("the protected pod runs", Duration::from_secs(3), async || {
        let pods = corner.pods().await?;
        let same = pods.iter().find(|other| other.uid() == pod.uid()).context("the pod is gone")?;
        ensure!(same.metadata.deletion_timestamp.is_none(), "the pod is being deleted");
        Ok(())
    })
    .await?;
    corner
        .apply([json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": { "name": "web", "namespace": corner.name },
            "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": "web" } } },
        })])
        .await?;
    eventually("the pod was moved", DEADLINE, async || {
        let pods = corner.pods().await?;
        ensure!(pods.iter().all(|other| other.uid() != pod.uid() && node_of(other).is_some()), "not yet");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn do_not_disrupt_holds_the_drain_until_the_termination_grace_period_ends() -> Result<()> {
    let corner = Corner::shared("do-not-disrupt").await?;
    corner.node_pool(json!({ "spec": { "template": { "spec": { "terminationGracePeriod": "15s" } } } })).await?;
    let pod = objects::with(
        objects::pod(&corner.name, "precious", &json!({ "cpu": "500m" })),
        json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } }),
    );
    corner.apply([pod]).await?;
    corner.bound(1).await?;
    corner.delete_claims().await?;
    let deadline = eventually("the deadline is on the NodeClaim", DEADLINE, async || {
        let claims = corner.node_claims().await?;
        let [claim] = claims.as_slice() else { anyhow::bail!("{} NodeClaims", claims.len()) };
        let stamp = claim.annotations().get("karpenter.sh/nodeclaim-termination-timestamp").context("no annotation")?;
        let at = u64::try_from(Timestamp::parse(stamp)?.0)?;
        Ok(SystemTime::UNIX_EPOCH + Duration::from_millis(at))
    })
    .await?;
    stays("the pod runs until then", Duration::from_secs(4), async || {
        let is_there = corner.pods().await?.iter().any(|pod| pod.metadata.deletion_timestamp.is_none());
        ensure!(is_there || SystemTime::now() >= deadline, "the pod is gone");
        Ok(())
    })
    .await?;
    corner.emptied().await?;
    ensure!(corner.pods().await?.is_empty(), "the pod outlived its machine");
    Ok(())
}

#[tokio::test]
async fn a_foreign_finalizer_is_respected() -> Result<()> {
    let corner = Corner::shared("finalizers").await?;
    corner.apply([objects::pod(&corner.name, "one", &json!({ "cpu": "1" }))]).await?;
    corner.bound(1).await?;
    let api: Api<NodeClaim> = Api::all(corner.client.clone());
    let claim = corner.node_claims().await?.remove(0);
    let mut finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
    finalizers.push("testing/finalizer".to_owned());
    let add = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    api.patch(&claim.name_any(), &PatchParams::default(), &add).await?;
    Api::<Pod>::namespaced(corner.client.clone(), &corner.name).delete("one", &DeleteParams::default()).await?;
    corner.delete_claims().await?;
    eventually("only the foreign finalizer is left", DEADLINE, async || {
        let claim = api.get(&claim.name_any()).await?;
        ensure!(claim.finalizers() == ["testing/finalizer"], "{:?}", claim.finalizers());
        Ok(())
    })
    .await?;
    let remove = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    api.patch(&claim.name_any(), &PatchParams::default(), &remove).await?;
    corner.emptied().await
}
