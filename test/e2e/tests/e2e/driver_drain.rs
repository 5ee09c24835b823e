//! A DRA driver's pods leave a draining node after the consumers of its claims, though they do not tolerate the taint.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::NodeClaim;
use e2e::wait::stays;
use e2e::{eventually, objects};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Corner, DEADLINE, node_of};
use crate::devices::{classes, condition, driver, overlay, pod};

const CONSUMER: &str = "train";
const FINALIZER: &str = "testing/finalizer";

/// A DaemonSet on the machines of a corner, which mounts these directories of the kubelet.
fn daemon_set(corner: &str, name: &str, directories: &[String]) -> Value {
    let volume = |(index, directory): (usize, &String)| {
        let path = format!("/var/lib/kubelet/{directory}");
        json!({ "name": format!("v{index}"), "hostPath": { "path": path, "type": "DirectoryOrCreate" } })
    };
    let volumes: Vec<Value> = directories.iter().enumerate().map(volume).collect();
    let spec = objects::with(objects::pod_spec(corner, &json!({ "cpu": "50m" })), json!({ "volumes": volumes }));
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name, "namespace": corner },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": spec },
        },
    })
}

/// A machine with a driver's pod, another DaemonSet's, and a critical pod that uses a device and must not be disrupted:
/// by tiers alone it would be the last to leave.
async fn running(corner: &Corner) -> Result<()> {
    let name = corner.name.as_str();
    corner.apply([overlay(name)]).await?;
    corner.apply(classes(name)).await?;
    let plugin = format!("plugins/{}", driver("gpu", name));
    corner.apply([daemon_set(name, "driver", &["plugins_registry".to_owned(), plugin])]).await?;
    corner.apply([daemon_set(name, "logs", &["pods".to_owned()])]).await?;
    let consumer = objects::with(
        pod(name, CONSUMER, "one"),
        json!({
            "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } },
            "spec": { "priorityClassName": "system-cluster-critical" },
        }),
    );
    corner.apply([consumer]).await?;
    corner.bound(3).await.map(drop)
}

/// Keeps the NodeClaim to be read when all else of it is gone, and deletes it.
async fn delete_but_keep_to_read(corner: &Corner) -> Result<(Api<NodeClaim>, String)> {
    let api: Api<NodeClaim> = Api::all(corner.client.clone());
    let claim = corner.node_claims().await?.pop().context("no NodeClaim")?;
    let mut finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
    finalizers.push(FINALIZER.to_owned());
    let add = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    api.patch(&claim.name_any(), &PatchParams::default(), &add).await?;
    corner.delete_claims().await?;
    Ok((api, claim.name_any()))
}

/// Waits until nothing is left but the NodeClaim, gives its condition, and lets it go.
async fn in_the_end(api: &Api<NodeClaim>, name: &str) -> Result<(String, String, String)> {
    let found = eventually("only the NodeClaim is left", DEADLINE, async || {
        let claim = api.get(name).await?;
        ensure!(claim.finalizers() == [FINALIZER], "{:?}", claim.finalizers());
        let (status, reason, message) = condition(&claim, "ClaimsReleased").context("no condition")?;
        Ok((status.to_owned(), reason.to_owned(), message.to_owned()))
    })
    .await?;
    let remove = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    api.patch(name, &PatchParams::default(), &remove).await?;
    // Another plan may have a machine for the consumer by now: nobody knows that it will not come back.
    eventually("the NodeClaim is gone", DEADLINE, async || {
        ensure!(api.get_opt(name).await?.is_none(), "it is there");
        Ok(())
    })
    .await?;
    Ok(found)
}

fn of<'p>(pods: &'p [Pod], app: &str) -> Option<&'p Pod> {
    pods.iter().find(|pod| pod.labels().get("app").is_some_and(|it| it == app) || pod.name_any() == app)
}

#[tokio::test]
async fn a_drivers_pod_stays_until_the_last_consumer_of_its_claims_has_gone() -> Result<()> {
    let corner = Corner::shared("driver-drain").await?;
    running(&corner).await?;
    let node = node_of(&corner.pods().await?[0]).context("not bound")?.to_owned();
    let (api, claim) = delete_but_keep_to_read(&corner).await?;
    eventually("the NodeClaim says what it waits for", DEADLINE, async || {
        let found = api.get(&claim).await?;
        let (status, reason, message) = condition(&found, "ClaimsReleased").context("no condition")?;
        ensure!((status, reason) == ("Unknown", "AwaitingClaimRelease"), "{status} {reason}");
        let names_claim = message.starts_with(&format!("ResourceClaim {}/{CONSUMER}-devices-", corner.name));
        let names_consumer = message.contains(&format!("is in use by pod {}/{CONSUMER}, ", corner.name));
        let names_driver = message.contains(&format!("driver pod {}/driver-", corner.name));
        ensure!(names_claim && names_consumer && names_driver, "{message}");
        let events = corner.events(&node).await?;
        ensure!(events.contains(&format!("AwaitingClaimRelease: {message}")), "{events:#?}");
        let pods = corner.pods().await?;
        ensure!(of(&pods, "logs").is_none(), "its own tier waits for the driver's pod");
        Ok(())
    })
    .await?;
    stays("driver and consumer are there", Duration::from_secs(3), async || {
        let pods = corner.pods().await?;
        for app in ["driver", CONSUMER] {
            let pod = of(&pods, app).with_context(|| format!("{app} is gone"))?;
            ensure!(pod.metadata.deletion_timestamp.is_none(), "{app} is being deleted");
        }
        Ok(())
    })
    .await?;
    let pods: Api<Pod> = Api::namespaced(corner.client.clone(), &corner.name);
    let allow = json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": null } } });
    pods.patch(CONSUMER, &PatchParams::default(), &Patch::Merge(allow)).await?;
    let (status, reason, _) = in_the_end(&api, &claim).await?;
    ensure!((status.as_str(), reason.as_str()) == ("True", "ClaimsReleased"), "{status} {reason}");
    Ok(())
}

#[tokio::test]
async fn a_drivers_pod_goes_with_the_termination_grace_period_whoever_needs_it() -> Result<()> {
    let corner = Corner::shared_without_node_pool("driver-grace").await?;
    corner.node_pool(json!({ "spec": { "template": { "spec": { "terminationGracePeriod": "12s" } } } })).await?;
    running(&corner).await?;
    let (api, claim) = delete_but_keep_to_read(&corner).await?;
    let (status, reason, message) = in_the_end(&api, &claim).await?;
    ensure!((status.as_str(), reason.as_str()) == ("False", "TerminationGracePeriodElapsed"), "{status} {reason}");
    let names_consumer = message.contains(&format!("is in use by pod {}/{CONSUMER}, ", corner.name));
    ensure!(names_consumer, "{message}");
    Ok(())
}
