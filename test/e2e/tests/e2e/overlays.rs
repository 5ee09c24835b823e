//! NodeOverlays decide what is launched, and say whether they are in effect.

use anyhow::{Context, Result, ensure};
use api::NodeOverlay;
use e2e::{eventually, objects};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Corner, DEADLINE};

/// An overlay for one test's NodePool.
fn overlay(corner: &Corner, name: &str, requirements: &[Value], spec: Value) -> Value {
    let own = json!({ "key": api::labels::NODEPOOL, "operator": "In", "values": [corner.name] });
    let requirements: Vec<_> = std::iter::once(own).chain(requirements.iter().cloned()).collect();
    let object = json!({
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": { "name": name },
        "spec": { "requirements": requirements },
    });
    objects::with(object, json!({ "spec": spec }))
}

/// Waits until condition Ready has that status and reason; gives its message.
async fn ready(corner: &Corner, name: &str, status: &str) -> Result<String> {
    let api: Api<NodeOverlay> = Api::all(corner.client.clone());
    eventually(&format!("{name} is Ready={status}"), DEADLINE, async || {
        let conditions = api.get(name).await?.status.unwrap_or_default().conditions;
        let validation = conditions.iter().find(|it| it.type_ == "ValidationSucceeded").context("no condition")?;
        let ready = conditions.iter().find(|it| it.type_ == "Ready").context("not Ready")?;
        ensure!(ready.status == status && validation.status == status, "{conditions:?}");
        Ok(format!("{}: {}", validation.reason, validation.message))
    })
    .await
}

#[tokio::test]
async fn the_types_of_a_nodeclaim_are_ordered_by_the_prices_that_an_overlay_sets() -> Result<()> {
    let corner = Corner::shared("overlay-price").await?;
    // Of all types the dearest way to have one CPU, were it not for the overlay.
    let family = json!({ "key": "karpenter.kwok.sh/instance-family", "operator": "In", "values": ["m"] });
    let size = json!({ "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["64"] });
    let spec = json!({ "price": "0.000001" });
    corner.apply([overlay(&corner, "overlay-price", &[family, size], spec)]).await?;
    ready(&corner, "overlay-price", "True").await?;
    corner.apply([objects::pod(&corner.name, "one", &json!({ "cpu": "1" }))]).await?;
    corner.bound(1).await?;
    let claims = corner.node_claims().await?;
    let [claim] = claims.as_slice() else { anyhow::bail!("{} NodeClaims", claims.len()) };
    let types = claim.spec.requirements.iter().find(|it| it.key == api::labels::INSTANCE_TYPE).context("no types")?;
    let first = types.values.first().context("no type")?;
    ensure!(first.starts_with("m-64x"), "{:?}", types.values);
    ensure!(claim.annotations().contains_key(api::annotations::PRICE_OVERLAY_APPLIED), "{:?}", claim.annotations());
    ensure!(!claim.annotations().contains_key(api::annotations::CAPACITY_OVERLAY_APPLIED), "it changes no capacity");
    Ok(())
}

#[tokio::test]
async fn of_two_overlays_that_set_the_same_price_the_later_one_names_the_other() -> Result<()> {
    let corner = Corner::shared("overlay-conflict").await?;
    for name in ["overlay-conflict-a", "overlay-conflict-b"] {
        corner.apply([overlay(&corner, name, &[], json!({ "priceAdjustment": "-10%" }))]).await?;
    }
    ready(&corner, "overlay-conflict-b", "True").await?;
    let message = ready(&corner, "overlay-conflict-a", "False").await?;
    ensure!(
        message.starts_with("Conflict: conflict with another overlay: nodeoverlay/overlay-conflict-b of equal weight"),
        "{message}"
    );
    // With a weight of its own it has its place again.
    let spec = json!({ "priceAdjustment": "-10%", "weight": 5 });
    corner.apply([overlay(&corner, "overlay-conflict-a", &[], spec)]).await?;
    ready(&corner, "overlay-conflict-a", "True").await.map(drop)
}

#[tokio::test]
async fn a_resource_that_an_overlay_promises_is_planned_with() -> Result<()> {
    let corner = Corner::shared("overlay-capacity").await?;
    corner
        .apply([overlay(&corner, "overlay-capacity", &[], json!({ "capacity": { "example.com/dongle": "2" } }))])
        .await?;
    ready(&corner, "overlay-capacity", "True").await?;
    let requests = json!({ "cpu": "100m", "example.com/dongle": "1" });
    let mut pod = objects::pod(&corner.name, "with-dongle", &requests);
    pod["spec"]["containers"][0]["resources"]["limits"] = json!({ "example.com/dongle": "1" });
    corner.apply([pod]).await?;
    eventually("a machine is launched for it", DEADLINE, async || {
        let claims = corner.node_claims().await?;
        let [claim] = claims.as_slice() else { anyhow::bail!("{} NodeClaims", claims.len()) };
        ensure!(
            claim.annotations().contains_key(api::annotations::CAPACITY_OVERLAY_APPLIED),
            "{:?}",
            claim.annotations()
        );
        ensure!(claim.spec.resources.requests.contains_key("example.com/dongle"), "{:?}", claim.spec.resources);
        Ok(())
    })
    .await
}
