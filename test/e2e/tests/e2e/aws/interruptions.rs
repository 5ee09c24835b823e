//! Machines that EC2 takes back: what takes their place comes first, as long as time allows.

use anyhow::{Context, Result, ensure};
use api::NodeClaim;
use api::conditions::node_claim::{AWAITING_REPLACEMENTS, DRAINED, INITIALIZED};
use e2e::{eventually, objects};
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::{World, requiring};
use crate::cluster::{DEADLINE, node_of};

/// A spot machine with a pod, and a controller.
async fn world_with_a_pod(name: &str, pod: Value) -> Result<(World, e2e::Controller, Pod)> {
    let world = World::new(name).await?;
    let controller = world.controller().await?;
    let corner = &world.corner;
    let spot: (&str, &[&str]) = (api::labels::CAPACITY_TYPE, &["spot"]);
    world.node_pool(requiring(&[spot, (api::labels::INSTANCE_TYPE, &["m5.large", "c5.large"])])).await?;
    let template = json!({ "spec": { "template": { "spec": pod } } });
    corner.apply([objects::with(objects::deployment(name, "web", 1, &json!({ "cpu": "1" })), template)]).await?;
    let pod = corner.bound(1).await?.pop().context("no pod")?;
    Ok((world, controller, pod))
}

fn condition<'c>(claim: &'c NodeClaim, kind: &str) -> Option<&'c Condition> {
    claim.status.as_ref()?.conditions.iter().find(|it| it.type_ == kind)
}

/// The NodeClaim of the machine that is taken back, and the other.
async fn both(world: &World, taken: &str) -> Result<(NodeClaim, NodeClaim)> {
    let claims = world.corner.node_claims().await?;
    let is_taken = |claim: &NodeClaim| claim.status.as_ref().is_some_and(|it| it.provider_id.ends_with(taken));
    let (taken, mut others): (Vec<_>, Vec<_>) = claims.into_iter().partition(is_taken);
    ensure!(others.len() == 1, "{} others", others.len());
    Ok((taken.into_iter().next().context("it is gone")?, others.remove(0)))
}

#[tokio::test]
async fn a_pod_stays_on_a_spot_machine_until_its_replacement_is_initialized() -> Result<()> {
    let (world, mut first, pod) =
        world_with_a_pod("aws-replaced", json!({ "terminationGracePeriodSeconds": 1 })).await?;
    let corner = &world.corner;
    let taken = node_of(&pod).context("it is not bound")?.to_owned();
    // What is launched comes late.
    world.ec2.front.hold("ec2:CreateFleet");
    world.ec2.cloud.reclaim(&taken);
    let waits = async || {
        let (going, replacement) = both(&world, &taken).await?;
        let drained = condition(&going, DRAINED).context("nothing is said of the drain")?;
        ensure!(drained.reason == AWAITING_REPLACEMENTS, "{drained:?}");
        ensure!(drained.message.contains(&replacement.name_any()), "{drained:?}");
        Ok(())
    };
    eventually("the drain waits for the new machine", DEADLINE, waits).await?;
    let node = corner.nodes().await?.into_iter().find(|node| node.name_any() == taken).context("the node is gone")?;
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    ensure!(taints.iter().any(|taint| taint.key == "karpenter.sh/disrupted"), "{taints:?}");
    // Whoever leads next goes on with it.
    first.kill()?;
    let second = world.controller().await?;
    eventually("the next controller waits too", DEADLINE, async || {
        ensure!(second.log()?.contains("that take its pods"), "it does not say so");
        Ok(())
    })
    .await?;
    let still = corner.pods().await?;
    let is_there = |it: &Pod| it.uid() == pod.uid() && it.metadata.deletion_timestamp.is_none();
    ensure!(still.len() == 1 && is_there(&still[0]), "{still:#?}");
    world.ec2.front.release();
    let moved = eventually("the pod runs elsewhere", DEADLINE, async || {
        let pods = corner.pods().await?;
        let elsewhere = pods.iter().find(|it| node_of(it).is_some_and(|node| node != taken) && pods.len() == 1);
        elsewhere.cloned().context("it does not")
    })
    .await?;
    let claims = corner.node_claims().await?;
    let node = node_of(&moved).context("it is not bound")?;
    let of_node = |claim: &&NodeClaim| claim.status.as_ref().is_some_and(|it| it.node_name == node);
    let replacement = claims.iter().find(of_node).context("no NodeClaim")?;
    let initialized = condition(replacement, INITIALIZED).context("it is not initialized")?;
    let evicted_at = evicted_at(&world, &pod).await?;
    ensure!(initialized.last_transition_time.0 <= evicted_at, "{initialized:?} {evicted_at}");
    second.ensure_no_panic()
}

/// When an event says that a pod was evicted.
async fn evicted_at(world: &World, pod: &Pod) -> Result<k8s_openapi::jiff::Timestamp> {
    let events: Api<Event> = Api::namespaced(world.corner.client.clone(), &world.corner.name);
    eventually("an event tells of the eviction", DEADLINE, async || {
        let events = events.list(&Default::default()).await?.items;
        let is_it = |event: &&Event| {
            event.reason.as_deref() == Some(api::events::EVICTED) && event.involved_object.uid == pod.uid()
        };
        let event = events.iter().find(is_it).context("there is none")?;
        let times = [event.event_time.as_ref().map(|at| at.0), event.first_timestamp.as_ref().map(|at| at.0)];
        times.into_iter().flatten().next().context("it has no time")
    })
    .await
}

#[tokio::test]
async fn a_pod_that_needs_more_time_than_is_left_does_not_wait_for_a_replacement() -> Result<()> {
    let pod = json!({ "terminationGracePeriodSeconds": 600 });
    let (world, controller, pod) = world_with_a_pod("aws-no-time", pod).await?;
    let corner = &world.corner;
    let taken = node_of(&pod).context("it is not bound")?.to_owned();
    world.ec2.front.hold("ec2:CreateFleet");
    world.ec2.cloud.reclaim(&taken);
    evicted_at(&world, &pod).await?;
    let claims = corner.node_claims().await?;
    let provider_ids = claims.iter().filter_map(|claim| Some(claim.status.as_ref()?.provider_id.as_str()));
    let launched: Vec<_> = provider_ids.filter(|id| !id.is_empty() && !id.ends_with(&taken)).collect();
    ensure!(launched.is_empty(), "the replacement came first: {launched:?}");
    world.ec2.front.release();
    eventually("the pod runs elsewhere", DEADLINE, async || {
        let pods = corner.pods().await?;
        let is_elsewhere = |it: &Pod| node_of(it).is_some_and(|node| node != taken);
        ensure!(pods.iter().any(is_elsewhere), "{:?}", pods.iter().map(node_of).collect::<Vec<_>>());
        Ok(())
    })
    .await?;
    controller.ensure_no_panic()
}
