//! When a plan is made, what is kept of it, and what of it a person hears.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::controller::Controller;
use e2e::fleet::planned_uids;
use e2e::{apply, eventually, objects};
use kube::ResourceExt;
use serde_json::json;

use crate::cluster::{Cluster, Corner, DEADLINE, node_of};

const PLANS: &str = "karpenter_scheduler_scheduling_duration_seconds_count";
const PLANNED_PODS: &str = "dovetail.sh/planned-pods";
/// Plans that are made whatever happens, one in this time.
const RETRY: Duration = Duration::from_secs(10);

#[tokio::test]
async fn machines_that_come_up_one_after_the_other_ask_for_no_plan() -> Result<()> {
    let cluster = Cluster::new("planning-rounds").await?;
    let corner = Corner::new(cluster.client().await?, "planning-rounds").await?;
    let slow = objects::with(objects::node_class("slow"), json!({ "spec": { "nodeRegistrationDelay": "4s" } }));
    apply::apply_one(&corner.client, slow).await?;
    // One machine for each pod, and a machine registers every few moments: launches are spread over the names.
    let one_cpu = json!([{ "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["1"] }]);
    corner
        .node_pool(json!({ "spec": { "template": { "spec": {
            "requirements": one_cpu,
            "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "slow" } } } } }))
        .await?;
    let controller = Controller::start_ready(&cluster.controller()?).await?;
    let requests = json!({ "cpu": "800m" });
    corner.apply([objects::deployment(&corner.name, "early", 6, &requests)]).await?;
    eventually("the first NodeClaims exist", DEADLINE, async || {
        let claims = corner.node_claims().await?.len();
        ensure!(claims == 6, "{claims} NodeClaims");
        Ok(())
    })
    .await?;
    corner.apply([objects::deployment(&corner.name, "late", 6, &requests)]).await?;
    eventually("all NodeClaims exist", DEADLINE, async || {
        let claims = corner.node_claims().await?.len();
        ensure!(claims == 12, "{claims} NodeClaims");
        Ok(())
    })
    .await?;
    let (before, started) = (controller.metric(PLANS)?, Instant::now());
    corner.bound(12).await?;
    eventually("all machines are initialized", DEADLINE, async || {
        let claims = corner.node_claims().await?;
        let ready = claims.iter().filter(|claim| {
            let conditions = claim.status.iter().flat_map(|status| &status.conditions);
            conditions.into_iter().any(|condition| condition.type_ == "Initialized" && condition.status == "True")
        });
        let ready = ready.count();
        ensure!(ready == 12, "{ready} are");
        Ok(())
    })
    .await?;
    let (plans, took) = (controller.metric(PLANS)? - before, started.elapsed());
    println!("{plans} plans in {took:?} while 12 machines came up");
    // The plan under way when the last NodeClaim appeared, and the retries.
    let allowed = 1.0 + (took.as_secs_f64() / RETRY.as_secs_f64()).floor();
    ensure!(plans <= allowed, "{plans} plans in {took:?}, {allowed} expected at most");
    Ok(())
}

#[tokio::test]
async fn pods_that_a_later_plan_puts_on_a_machine_under_way_are_noted_on_its_nodeclaim() -> Result<()> {
    let cluster = Cluster::new("planned-later").await?;
    let corner = Corner::new(cluster.client().await?, "planned-later").await?;
    let slow = objects::with(objects::node_class("slow"), json!({ "spec": { "nodeRegistrationDelay": "10m" } }));
    apply::apply_one(&corner.client, slow).await?;
    let four_cpus = json!([{ "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"] }]);
    corner
        .node_pool(json!({ "spec": { "template": { "spec": {
            "requirements": four_cpus,
            "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "slow" } } } } }))
        .await?;
    let _controller = Controller::start_ready(&cluster.controller()?).await?;
    let noted = async || -> Result<BTreeSet<String>> {
        let claims = corner.node_claims().await?;
        let [claim] = claims.as_slice() else { anyhow::bail!("{} NodeClaims", claims.len()) };
        let value = claim.annotations().get(PLANNED_PODS).context("no annotation")?;
        Ok(planned_uids(value).map(str::to_owned).collect())
    };
    let uids =
        async || -> Result<BTreeSet<String>> { Ok(corner.pods().await?.iter().filter_map(ResourceExt::uid).collect()) };
    corner.apply([objects::deployment(&corner.name, "first", 1, &json!({ "cpu": "1" }))]).await?;
    // Before a machine is launched nobody knows what room it has for others.
    eventually("the first pod is noted, and its machine launched", DEADLINE, async || {
        ensure!(noted().await? == uids().await?, "not noted");
        let claims = corner.node_claims().await?;
        let launched = claims.iter().all(|claim| claim.status.as_ref().is_some_and(|it| !it.provider_id.is_empty()));
        ensure!(launched, "not launched");
        Ok(())
    })
    .await?;
    corner.apply([objects::deployment(&corner.name, "second", 2, &json!({ "cpu": "1" }))]).await?;
    // The machine does not come up for as long as this lasts.
    eventually("the later pods are noted too", DEADLINE, async || {
        let (noted, uids) = (noted().await?, uids().await?);
        ensure!(uids.len() == 3 && noted == uids, "{noted:?} noted of {uids:?}");
        Ok(())
    })
    .await?;
    ensure!(corner.nodes().await?.is_empty(), "the machine is up");
    Ok(())
}

#[tokio::test]
async fn a_pod_that_selects_an_old_label_key_gets_a_machine_that_carries_it() -> Result<()> {
    let corner = Corner::shared("old-label").await?;
    let selecting = |name: &str, key: &str, value: &str| {
        objects::with(
            objects::pod(&corner.name, name, &json!({ "cpu": "100m" })),
            json!({ "spec": { "nodeSelector": { key: value } } }),
        )
    };
    let served = selecting("served", "beta.kubernetes.io/arch", "arm64");
    let lost = selecting("lost", "failure-domain.beta.kubernetes.io/zone", "test-zone-a");
    corner.apply([served, lost]).await?;
    eventually("the pod is bound to a machine of that architecture", DEADLINE, async || {
        let pods = corner.pods().await?;
        let pod = pods.iter().find(|pod| pod.name_any() == "served").context("no pod")?;
        let nodes: BTreeMap<_, _> = corner.nodes().await?.into_iter().map(|node| (node.name_any(), node)).collect();
        let node = nodes.get(node_of(pod).context("it is not bound")?).context("no such node")?;
        ensure!(node.labels().get("kubernetes.io/arch").is_some_and(|arch| arch == "arm64"), "{:?}", node.labels());
        ensure!(
            node.labels().get("beta.kubernetes.io/arch").is_some_and(|arch| arch == "arm64"),
            "{:?}",
            node.labels()
        );
        Ok(())
    })
    .await?;
    let is_ours = |event: &str| event.starts_with("FailedScheduling") && event.contains("will not have that label");
    corner.event("why it gets none", "lost", is_ours).await?;
    let claims = corner.node_claims().await?;
    ensure!(claims.len() == 1, "{} NodeClaims", claims.len());
    Ok(())
}

#[tokio::test]
async fn a_nodepool_whose_requirements_exclude_every_instance_type_is_told_so() -> Result<()> {
    let corner = Corner::shared("no-types").await?;
    let nowhere = json!([{ "key": "kubernetes.io/arch", "operator": "In", "values": ["s390x"] }]);
    corner.node_pool(json!({ "spec": { "template": { "spec": { "requirements": nowhere } } } })).await?;
    corner.apply([objects::pod(&corner.name, "waits", &json!({ "cpu": "100m" }))]).await?;
    let is_it = |event: &str| event.starts_with("NoCompatibleInstanceTypes: the requirements exclude all 144");
    corner.event("it has no types", &corner.name, is_it).await
}
