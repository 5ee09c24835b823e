//! Static NodePools: so many machines as `replicas` says, whether pods need them or not.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{NodeClaim, NodePool};
use e2e::faults::audit::History;
use e2e::wait::stays;
use e2e::{Controller, controller, eventually, objects};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, DEADLINE, instances, node_of};

fn options(cluster: &Cluster) -> Result<controller::Options> {
    Ok(cluster.controller()?.arg("--feature-gates=StaticCapacity=true"))
}

/// Machines of one CPU, so many.
fn replicas(count: u32) -> Value {
    let one_cpu = json!([{ "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["1"] }]);
    json!({ "spec": { "replicas": count, "template": { "spec": { "requirements": one_cpu } } } })
}

async fn scale(corner: &Corner, count: u32) -> Result<()> {
    let pools: Api<NodePool> = Api::all(corner.client.clone());
    let patch = Patch::Merge(json!({ "spec": { "replicas": count } }));
    pools.patch_scale(&corner.name, &PatchParams::default(), &patch).await?;
    Ok(())
}

fn is_ready(claim: &NodeClaim) -> bool {
    let conditions = claim.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Waits until there are exactly so many machines, all ready, and the NodePool says so; gives the names of NodeClaims.
async fn settled(corner: &Corner, count: usize) -> Result<BTreeSet<String>> {
    let pools: Api<NodePool> = Api::all(corner.client.clone());
    eventually(&format!("{} has {count} machines", corner.name), DEADLINE, async || {
        let claims = corner.node_claims().await?;
        let ready = claims.iter().filter(|claim| is_ready(claim)).count();
        ensure!((claims.len(), ready) == (count, count), "{} NodeClaims, {ready} ready", claims.len());
        let going = claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_some()).count();
        ensure!(going == 0, "{going} NodeClaims are being deleted");
        let nodes = corner.nodes().await?.len();
        ensure!(nodes == count, "{nodes} Nodes");
        let scale = pools.get_scale(&corner.name).await?;
        let (wanted, has) = (scale.spec.and_then(|it| it.replicas), scale.status.map(|it| it.replicas));
        ensure!(has.and_then(|it| usize::try_from(it).ok()) == Some(count), "Scale: {wanted:?} wanted, {has:?} there");
        Ok(claims.iter().map(ResourceExt::name_any).collect())
    })
    .await
}

/// Waits until the NodePool has an event that says so.
async fn told(corner: &Corner, start: &str) -> Result<()> {
    eventually(&format!("{} is told {start}", corner.name), DEADLINE, async || {
        let events = corner.events(&corner.name).await?;
        ensure!(events.iter().any(|event| event.starts_with(start)), "{events:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_static_nodepool_follows_its_replicas_and_launches_nothing_for_pods() -> Result<()> {
    let cluster = Cluster::new("static").await?;
    let controller = Controller::start_ready(&options(&cluster)?).await?;
    let client = cluster.client().await?;
    let history = History::start(&client);
    let limits = Corner::without_node_pool(client.clone(), "static-limits").await?;
    let failing = Corner::without_node_pool(client.clone(), "static-failing").await?;
    let corner = Corner::without_node_pool(client, "static-scale").await?;
    tokio::try_join!(scales(&corner), stays_within_limits(&limits), cannot_launch(&failing, &history))?;
    let created = controller.metrics()?;
    let series = |pool: &str, count: usize| {
        format!(
            "karpenter_nodeclaims_created_total{{nodepool=\"{pool}\",reason=\"provisioned\",min_values_relaxed=\"false\"}} {count}"
        )
    };
    ensure!(created.contains(&series("static-scale", 6)) && created.contains(&series("static-limits", 4)), "{created}");
    controller.terminate().await.map(drop)
}

async fn scales(corner: &Corner) -> Result<()> {
    corner.node_pool(replicas(3)).await?;
    let first = settled(corner, 3).await?;
    let pool = corner.pool().await?;
    for claim in corner.node_claims().await? {
        let owner = claim.owner_references().first().context("no owner")?;
        ensure!(Some(&owner.uid) == pool.metadata.uid.as_ref(), "{owner:?}");
        ensure!(
            claim.annotations().get("karpenter.sh/nodepool-hash")
                == pool.annotations().get("karpenter.sh/nodepool-hash"),
            "{claim:?}"
        );
    }
    scale(corner, 5).await?;
    let all = settled(corner, 5).await?;
    ensure!(all.is_superset(&first), "{first:?} became {all:?}");

    // Three of them hold pods; one pod finds no room, and gets no machine.
    let [protected, dear, cheap] = ["protected", "dear", "cheap"];
    let large = |name: &str, annotations: Value| {
        let pod = objects::pod(&corner.name, name, &json!({ "cpu": "700m" }));
        objects::with(pod, json!({ "metadata": { "annotations": annotations } }))
    };
    let cost = |cost: &str| json!({ "controller.kubernetes.io/pod-deletion-cost": cost });
    corner.apply([large(protected, json!({ "karpenter.sh/do-not-disrupt": "true" }))]).await?;
    corner.apply([large(dear, cost("1000000000")), large(cheap, cost("-100"))]).await?;
    let pods = corner.bound(3).await?;
    let node = |name: &str| {
        let pod = pods.iter().find(|pod| pod.name_any() == name);
        pod.and_then(node_of).map(str::to_owned).with_context(|| format!("{name} is not bound"))
    };
    let (of_protected, of_dear, of_cheap) = (node(protected)?, node(dear)?, node(cheap)?);
    corner.apply([objects::pod(&corner.name, "huge", &json!({ "cpu": "30" }))]).await?;
    eventually("the pod is told that it has no place", DEADLINE, async || {
        let events = corner.events("huge").await?;
        let is_told = |event: &String| event.contains("has a fixed number of replicas and launches nothing for pods");
        ensure!(events.iter().any(is_told), "{events:#?}");
        Ok(())
    })
    .await?;
    ensure!(corner.all_node_claims().await?.len() == 5, "a machine was launched for a pod");
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(corner.client.clone(), &corner.name);
    pods.delete("huge", &DeleteParams::default()).await?;

    // Empty ones go first, then the one whose pod is the cheapest to evict.
    scale(corner, 3).await?;
    settled(corner, 3).await?;
    let nodes: BTreeSet<String> = corner.nodes().await?.iter().map(ResourceExt::name_any).collect();
    ensure!(nodes == BTreeSet::from([of_protected.clone(), of_dear.clone(), of_cheap.clone()]), "{nodes:?}");
    scale(corner, 2).await?;
    settled(corner, 2).await?;
    let nodes: BTreeSet<String> = corner.nodes().await?.iter().map(ResourceExt::name_any).collect();
    ensure!(nodes == BTreeSet::from([of_protected, of_dear]), "{nodes:?}, cheap was on {of_cheap}");

    // What is deleted by hand comes back; then all goes.
    let gone = corner.node_claims().await?.iter().map(ResourceExt::name_any).next().context("no NodeClaim")?;
    pods.delete(protected, &DeleteParams::default()).await?;
    Api::<NodeClaim>::all(corner.client.clone()).delete(&gone, &DeleteParams::default()).await?;
    let now = settled(corner, 2).await?;
    ensure!(!now.contains(&gone), "{gone} is there");
    scale(corner, 0).await?;
    corner.emptied().await
}

async fn stays_within_limits(corner: &Corner) -> Result<()> {
    corner.node_pool(objects::with(replicas(4), json!({ "spec": { "limits": { "nodes": "2" } } }))).await?;
    settled(corner, 2).await?;
    told(corner, "NodeLimitReached: NodePool wants 4 nodes and has 2").await?;
    stays("there are two machines", Duration::from_secs(3), async || {
        let claims = corner.node_claims().await?.len();
        ensure!(claims == 2, "{claims} NodeClaims");
        Ok(())
    })
    .await?;
    corner.node_pool(objects::with(replicas(4), json!({ "spec": { "limits": { "nodes": "4" } } }))).await?;
    settled(corner, 4).await.map(drop)
}

/// No instance type will do: it is tried again and again, but not all the time.
async fn cannot_launch(corner: &Corner, history: &History) -> Result<()> {
    let nowhere = json!([{ "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["nowhere"] }]);
    let pool = json!({ "spec": { "replicas": 2, "template": { "spec": { "requirements": nowhere } } } });
    corner.node_pool(pool).await?;
    let tried = || history.claims_of(&corner.name).len();
    eventually("a launch was tried again", DEADLINE, async || {
        ensure!(tried() > 2, "{} NodeClaims so far", tried());
        Ok(())
    })
    .await?;
    stays("launches are tried now and then", Duration::from_secs(4), async || {
        ensure!(tried() <= 4, "{} NodeClaims so far", tried());
        Ok(())
    })
    .await
}

/// Dies at a step and is started again.
async fn dies(cluster: &Cluster, failpoint: &str, begin: impl AsyncFnOnce() -> Result<()>) -> Result<Controller> {
    let options = options(cluster)?.arg("--disable-leader-election");
    let name = failpoint.replace(['.', '@'], "-");
    let (point, hit) = failpoint.split_once('@').context("no number")?;
    let doomed = options.clone().named(&format!("{name}-doomed"));
    let doomed = doomed.env("DOVETAIL_FAILPOINTS", &format!("{point}=abort@{hit}"));
    let doomed = Controller::start(&doomed)?;
    begin().await?;
    doomed.ended(DEADLINE).await.context("the failpoint was not hit")?;
    ensure!(doomed.log()?.contains(&format!("failpoint {point}")), "it ended otherwise:\n{}", doomed.log()?);
    Controller::start_ready(&options.named(&name)).await
}

#[tokio::test]
async fn a_controller_that_dies_between_two_machines_launches_none_twice_and_removes_none_too_many() -> Result<()> {
    const WANTED: u32 = 4;
    let cluster = Cluster::new("static-crashes").await?;
    let history = History::start(&cluster.client().await?);
    for failpoint in [
        "provision.before-create@3",
        "provision.after-create@1",
        "provision.after-create@3",
        "static-capacity.before-delete@2",
        "static-capacity.after-delete@1",
        "static-capacity.after-delete@2",
    ] {
        let name = format!("static-{}", failpoint.replace(['.', '@'], "-"));
        let corner = Corner::without_node_pool(cluster.client().await?, &name).await?;
        let is_of_deletion = failpoint.starts_with("static-capacity.");
        let start = if is_of_deletion { WANTED + 3 } else { 0 };
        corner.node_pool(replicas(start)).await?;
        if is_of_deletion {
            let controller = Controller::start_ready(&options(&cluster)?.arg("--disable-leader-election")).await?;
            settled(&corner, start as usize).await?;
            controller.terminate().await?;
        }
        let before: BTreeSet<String> = corner.node_claims().await?.iter().map(ResourceExt::name_any).collect();
        let controller =
            dies(&cluster, failpoint, async || scale(&corner, WANTED).await).await.context(name.clone())?;
        let at_death = corner.node_claims().await?;
        let (going, staying): (Vec<_>, Vec<_>) =
            at_death.iter().partition(|claim| claim.metadata.deletion_timestamp.is_some());
        let now = settled(&corner, WANTED as usize).await.context(name.clone())?;
        if is_of_deletion {
            ensure!(now.is_subset(&before), "{name}: {before:?} became {now:?}");
            ensure!(going.iter().all(|claim| !now.contains(&claim.name_any())), "{name}: {now:?}");
        } else {
            let staying: BTreeSet<String> = staying.iter().map(|claim| claim.name_any()).collect();
            ensure!(now.is_superset(&staying), "{name}: {staying:?} became {now:?}");
        }
        stays("it stays so", Duration::from_secs(2), async || {
            let claims: BTreeSet<String> = corner.node_claims().await?.iter().map(ResourceExt::name_any).collect();
            ensure!(claims == now, "{name}: {now:?} became {claims:?}");
            Ok(())
        })
        .await?;
        let machines = instances(&corner.client).await?.len();
        ensure!(machines == WANTED as usize, "{name}: {machines} machines");
        history.nothing_was_launched_twice(&corner.client).await?;
        let ever = history.claims_of(&name).len();
        ensure!(ever == start.max(WANTED) as usize, "{name}: {ever} NodeClaims ever");
        scale(&corner, 0).await?;
        corner.emptied().await?;
        controller.terminate().await?;
    }
    Ok(())
}

#[tokio::test]
async fn at_its_limit_a_static_nodepool_gives_a_drifted_or_broken_machine_up_first_where_that_is_wanted() -> Result<()>
{
    let cluster = Cluster::new("terminate-first").await?;
    let gates =
        "--feature-gates=StaticCapacity=true,NodeRepair=true,TerminateFirstDrift=true,TerminateFirstRepair=true";
    let controller = Controller::start_ready(&cluster.controller()?.arg(gates)).await?;
    let client = cluster.client().await?;
    let drifts = Corner::without_node_pool(client.clone(), "first-drifted").await?;
    let breaks = Corner::without_node_pool(client, "first-broken").await?;
    let drift = async || {
        let pools: Api<NodePool> = Api::all(drifts.client.clone());
        let metadata = json!({ "annotations": { "e2e.dovetail.test/changed": "yes" } });
        let patch = Patch::Merge(json!({ "spec": { "template": { "metadata": metadata } } }));
        pools.patch(&drifts.name, &PatchParams::default(), &patch).await.map(drop)
    };
    let broken = async || {
        let node = breaks.nodes().await?.pop().context("no Node")?.name_any();
        let nodes: Api<Node> = Api::all(breaks.client.clone());
        let now = k8s_openapi::jiff::Timestamp::now().to_string();
        let condition =
            json!({ "type": "KWOKUnhealthy", "status": "True", "reason": "Test", "lastTransitionTime": now });
        let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
        nodes.patch_status(&node, &PatchParams::default(), &patch).await?;
        anyhow::Ok(())
    };
    tokio::try_join!(goes_first(&drifts, async || Ok(drift().await?)), goes_first(&breaks, async || broken().await),)?;
    let metrics = controller.metrics()?;
    for (pool, reason) in [("first-drifted", "drifted"), ("first-broken", "unhealthy")] {
        let series = format!(
            "karpenter_voluntary_disruption_terminate_first_decisions_total{{nodepool=\"{pool}\",reason=\"{reason}\",terminate_first_reason=\"static-at-limit\"}} 1"
        );
        ensure!(metrics.contains(&series), "no {series} in {metrics}");
    }
    controller.terminate().await.map(drop)
}

/// The only machine goes while no other is launched, and then exactly one comes.
async fn goes_first(corner: &Corner, trigger: impl AsyncFn() -> Result<()>) -> Result<()> {
    let history = History::start(&corner.client);
    let limited = json!({ "spec": { "limits": { "nodes": "1" }, "disruption": { "budgets": [{ "nodes": "100%" }] } } });
    corner.node_pool(objects::with(replicas(1), limited)).await?;
    settled(corner, 1).await?;
    let claims: Api<NodeClaim> = Api::all(corner.client.clone());
    let first = corner.node_claims().await?.pop().context("no NodeClaim")?;
    corner.hold(&first).await?;
    trigger().await?;
    eventually("the machine goes", 2 * DEADLINE, async || {
        ensure!(claims.get(&first.name_any()).await?.metadata.deletion_timestamp.is_some(), "it stays");
        Ok(())
    })
    .await?;
    stays("nothing is launched beside it", Duration::from_secs(5), async || {
        let all = corner.node_claims().await?.len();
        ensure!(all == 1, "{all} NodeClaims");
        Ok(())
    })
    .await?;
    corner.release(&first).await?;
    let after = settled(corner, 1).await?;
    ensure!(!after.contains(&first.name_any()), "it is there");
    let ever = history.claims_of(&corner.name).len();
    ensure!(ever == 2, "{ever} NodeClaims ever");
    Ok(())
}
