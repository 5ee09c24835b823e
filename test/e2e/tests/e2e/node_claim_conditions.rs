//! What NodeClaims say of themselves: when a pod last came or went, whether they may be consolidated, whether they have
//! drifted; and that they expire.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::NodeClaim;
use e2e::wait::stays;
use e2e::{Controller, eventually, objects};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, DEADLINE, node_of, shared};

/// Longer than the ten seconds within which only one event is written down, so that the next one is.
const QUIET_S: i64 = 11;

fn quiet() -> Value {
    json!({ "spec": { "disruption": { "consolidateAfter": format!("{QUIET_S}s") } } })
}

async fn the_claim(corner: &Corner) -> Result<NodeClaim> {
    let mut claims = corner.node_claims().await?;
    ensure!(claims.len() == 1, "{} NodeClaims", claims.len());
    claims.pop().context("no NodeClaim")
}

fn condition<'a>(claim: &'a NodeClaim, type_: &str) -> Option<&'a Condition> {
    claim.status.as_ref()?.conditions.iter().find(|it| it.type_ == type_)
}

fn last_event(claim: &NodeClaim) -> Result<&Time> {
    claim.status.as_ref().and_then(|status| status.last_pod_event_time.as_ref()).context("no lastPodEventTime")
}

/// Since when it is consolidatable, once that counts from an event after `event`.
async fn consolidatable_after(corner: &Corner, event: Option<&Time>) -> Result<(Time, Time)> {
    eventually("the machine is consolidatable", DEADLINE, async || {
        let claim = the_claim(corner).await?;
        let last = last_event(&claim)?.clone();
        ensure!(event.is_none_or(|event| last.0 > event.0), "the last event is still that of {last:?}");
        let found = condition(&claim, "Consolidatable").context("not consolidatable")?;
        ensure!(found.status == "True", "{found:?}");
        let since = found.last_transition_time.clone();
        // An earlier one is that of the event before, which is about to go. The API keeps whole seconds.
        let waited_s = since.0.as_second() - last.0.as_second();
        ensure!(waited_s >= QUIET_S, "since {since:?}, {waited_s} s after the last event");
        Ok((last, since))
    })
    .await
}

#[tokio::test]
async fn a_machine_is_consolidatable_once_no_pod_has_come_or_gone_for_as_long_as_its_pool_says() -> Result<()> {
    let corner = Corner::shared_without_node_pool("quiet").await?;
    corner.node_pool(quiet()).await?;
    let requests = json!({ "cpu": "100m" });
    corner.apply([objects::pod(&corner.name, "one", &requests), objects::pod(&corner.name, "two", &requests)]).await?;
    corner.bound(2).await?;
    let (came, _) = consolidatable_after(&corner, None).await?;

    Api::<Pod>::namespaced(corner.client.clone(), &corner.name).delete("two", &DeleteParams::default()).await?;
    let (gone, _) = consolidatable_after(&corner, Some(&came)).await?;

    corner.apply([objects::pod(&corner.name, "three", &requests)]).await?;
    consolidatable_after(&corner, Some(&gone)).await?;

    corner.node_pool(json!({ "spec": { "disruption": { "consolidateAfter": "Never" } } })).await?;
    eventually("a pool that consolidates nothing has no consolidatable machine", DEADLINE, async || {
        let claim = the_claim(&corner).await?;
        ensure!(condition(&claim, "Consolidatable").is_none(), "it is there");
        Ok(())
    })
    .await?;
    corner.abandon().await
}

#[tokio::test]
async fn what_was_bound_while_no_controller_ran_counts_and_a_restart_does_not() -> Result<()> {
    let cluster = Cluster::new("quiet-restart").await?;
    let client = cluster.client().await?;
    let controller = Controller::start_ready(&cluster.controller()?).await?;
    let corner = Corner::without_node_pool(client, "quiet-restart").await?;
    corner.node_pool(quiet()).await?;
    let requests = json!({ "cpu": "100m" });
    // Room for a second one of its size.
    corner.apply([objects::pod(&corner.name, "one", &requests)]).await?;
    corner.bound(1).await?;
    let (came, since) = consolidatable_after(&corner, None).await?;
    controller.terminate().await?;

    let controller = Controller::start_ready(&cluster.controller()?).await?;
    stays("a restart is no event", Duration::from_secs(5), async || {
        let claim = the_claim(&corner).await?;
        ensure!(last_event(&claim)? == &came, "{:?}, before {came:?}", last_event(&claim)?);
        let found = condition(&claim, "Consolidatable").context("not consolidatable")?;
        ensure!(found.last_transition_time == since, "since {:?}, before {since:?}", found.last_transition_time);
        Ok(())
    })
    .await?;
    controller.terminate().await?;

    corner.apply([objects::pod(&corner.name, "two", &requests)]).await?;
    corner.bound(2).await?;
    let controller = Controller::start_ready(&cluster.controller()?).await?;
    consolidatable_after(&corner, Some(&came)).await?;
    controller.terminate().await.map(drop)
}

/// Waits until the one NodeClaim has drifted for that reason, or has not.
async fn drifted(corner: &Corner, expected: Option<&str>) -> Result<String> {
    eventually(&format!("drift is {expected:?}"), DEADLINE, async || {
        let claim = the_claim(corner).await?;
        let found = condition(&claim, "Drifted");
        let reason = found.map(|it| it.reason.as_str());
        ensure!(reason == expected, "{found:?}");
        ensure!(found.is_none_or(|it| it.status == "True"), "{found:?}");
        Ok(found.map(|it| it.message.clone()).unwrap_or_default())
    })
    .await
}

#[tokio::test]
async fn a_machine_drifts_when_its_pool_changes_and_is_as_before_when_the_pool_is() -> Result<()> {
    let corner = Corner::shared("drift").await?;
    corner.apply([objects::pod(&corner.name, "one", &json!({ "cpu": "100m" }))]).await?;
    corner.bound(1).await?;
    let claim = the_claim(&corner).await?;
    let zone = claim.labels().get("topology.kubernetes.io/zone").context("no zone")?.clone();
    let hash = claim.annotations().get("karpenter.sh/nodepool-hash").cloned();

    corner.node_pool(json!({ "spec": { "template": { "metadata": { "annotations": { "team": "a" } } } } })).await?;
    drifted(&corner, Some("NodePoolDrifted")).await?;
    ensure!(the_claim(&corner).await?.annotations().get("karpenter.sh/nodepool-hash") == hash.as_ref(), "stamped anew");
    corner.node_pool(json!({})).await?;
    drifted(&corner, None).await?;

    let elsewhere = json!([{ "key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": [zone] }]);
    corner.node_pool(json!({ "spec": { "template": { "spec": { "requirements": elsewhere } } } })).await?;
    let message = drifted(&corner, Some("RequirementsDrifted")).await?;
    ensure!(message.contains("topology.kubernetes.io/zone") && message.contains(&zone), "{message}");
    // What is no part of the template.
    corner.node_pool(json!({ "spec": { "weight": 7, "limits": { "cpu": "100" } } })).await?;
    drifted(&corner, None).await?;
    corner.abandon().await
}

#[tokio::test]
async fn a_hash_of_an_earlier_version_is_made_anew_and_nothing_drifts() -> Result<()> {
    let corner = Corner::shared("hash-version").await?;
    corner.apply([objects::pod(&corner.name, "one", &json!({ "cpu": "100m" }))]).await?;
    corner.bound(1).await?;
    let name = the_claim(&corner).await?.name_any();
    let old = json!({ "metadata": { "annotations": {
        "karpenter.sh/nodepool-hash": "1", "karpenter.sh/nodepool-hash-version": "v2",
    } } });
    let old = Patch::Merge(old);
    Api::<NodeClaim>::all(corner.client.clone()).patch(&name, &PatchParams::default(), &old).await?;
    let pools: Api<api::NodePool> = Api::all(corner.client.clone());
    pools.patch(&corner.name, &PatchParams::default(), &old).await?;
    eventually("pool and claim have the present hash", DEADLINE, async || {
        let pool = corner.pool().await?;
        let claim = the_claim(&corner).await?;
        for annotations in [pool.annotations(), claim.annotations()] {
            let version = annotations.get("karpenter.sh/nodepool-hash-version").map(String::as_str);
            ensure!(version == Some("v3"), "{annotations:?}");
        }
        let hash = |of: &std::collections::BTreeMap<String, String>| of.get("karpenter.sh/nodepool-hash").cloned();
        ensure!(hash(pool.annotations()) == hash(claim.annotations()), "two hashes");
        Ok(())
    })
    .await?;
    stays("the claim has not drifted", Duration::from_secs(2), async || {
        let claim = the_claim(&corner).await?;
        ensure!(condition(&claim, "Drifted").is_none(), "{:?}", condition(&claim, "Drifted"));
        Ok(())
    })
    .await?;
    corner.abandon().await
}

#[tokio::test]
async fn an_expired_machine_goes_and_its_pods_get_another() -> Result<()> {
    let corner = Corner::shared_without_node_pool("expired").await?;
    let expire_after = |age: &str| json!({ "spec": { "template": { "spec": { "expireAfter": age } } } });
    corner.node_pool(expire_after("15s")).await?;
    corner.apply([objects::deployment(&corner.name, "web", 1, &json!({ "cpu": "100m" }))]).await?;
    corner.bound(1).await?;
    let first: BTreeSet<_> = corner.node_claims().await?.iter().map(ResourceExt::name_any).collect();
    ensure!(!first.is_empty(), "no NodeClaim");
    // Those to come stay.
    corner.node_pool(expire_after("Never")).await?;
    eventually("the pod runs on a machine that does not expire", 2 * DEADLINE, async || {
        let claims = corner.node_claims().await?;
        let old: Vec<_> =
            claims.iter().filter(|it| it.spec.expire_after.0 != "Never").map(ResourceExt::name_any).collect();
        ensure!(old.is_empty(), "{old:?} are there");
        let pods = corner.pods().await?;
        ensure!(pods.len() == 1 && pods.iter().all(|pod| node_of(pod).is_some()), "not bound");
        Ok(())
    })
    .await?;
    for name in &first {
        eventually("the end of the machine is told", DEADLINE, async || {
            let events = corner.events(name).await?;
            ensure!(
                events.iter().any(|it| it.starts_with("DisruptionTerminating: ") && it.contains("15s")),
                "{events:?}"
            );
            Ok(())
        })
        .await?;
    }
    let metrics = shared().await?.controller.metrics()?;
    let counted = |metric: &str| {
        metrics.lines().any(|line| {
            line.starts_with(&format!("{metric}{{"))
                && line.contains("reason=\"expired\"")
                && line.contains("nodepool=\"expired\"")
                && line.contains("termination_mode=\"graceful\"")
        })
    };
    ensure!(counted("karpenter_nodeclaims_disrupted_total"), "{metrics}");
    ensure!(counted("karpenter_pods_disruption_initiated_total"), "{metrics}");
    corner.abandon().await
}
