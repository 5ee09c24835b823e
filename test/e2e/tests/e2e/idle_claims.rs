//! A claim that is allocated and that nobody uses does not keep its pod from a machine: kube-scheduler takes the
//! allocation back once there is a node that refuses the pod for nothing else.

use anyhow::{Context, Result, ensure};
use e2e::apply;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::cluster::{Corner, node_of};
use crate::devices::{classes, driver, overlay, pod};
use crate::driver_rollout::{node, slice};

const CLAIM: &str = "held";

/// The pool of the device that the claim has, and for whom it is reserved.
async fn held(claims: &Api<ResourceClaim>) -> Result<(Option<String>, Vec<String>)> {
    let status = claims.get(CLAIM).await?.status.unwrap_or_default();
    let results = status.allocation.and_then(|allocation| allocation.devices?.results).unwrap_or_default();
    let consumers = status.reserved_for.unwrap_or_default().into_iter().map(|consumer| consumer.name);
    Ok((results.into_iter().next().map(|result| result.pool), consumers.collect()))
}

#[tokio::test]
async fn a_pod_gets_a_machine_though_its_claim_is_allocated_where_it_has_no_room() -> Result<()> {
    let corner = Corner::shared_without_node_pool("idle-claims").await?;
    let name = corner.name.as_str();
    corner.apply([overlay(name)]).await?;
    corner.apply(classes(name)).await?;
    let request = json!({ "name": "gpus", "exactly": { "deviceClassName": format!("gpu-{name}") } });
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": { "name": CLAIM, "namespace": name, "finalizers": ["resource.kubernetes.io/delete-protection"] },
        "spec": { "devices": { "requests": [request] } },
    });
    corner.apply([node(name, 1), slice(name), claim]).await?;
    // As kube-scheduler leaves a claim whose pod it could not bind in the end.
    let result = json!({ "request": "gpus", "driver": driver("gpu", name), "pool": name, "device": "gpu-0" });
    let here = json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [name] }] });
    let allocation = json!({ "devices": { "results": [result] }, "nodeSelector": { "nodeSelectorTerms": [here] },
        "allocationTimestamp": "2026-01-01T00:00:00Z" });
    let claims: Api<ResourceClaim> = Api::namespaced(corner.client.clone(), name);
    let status = Patch::Merge(json!({ "status": { "allocation": allocation } }));
    claims.patch_status(CLAIM, &PatchParams::default(), &status).await?;

    let mut waits = pod(name, "waits", "none");
    waits["spec"]["resourceClaims"] = json!([{ "name": "devices", "resourceClaimName": CLAIM }]);
    waits["spec"]["containers"][0]["resources"]["requests"] = json!({ "cpu": "2" });
    corner.apply([waits]).await?;
    corner.tried(1).await?;
    ensure!(held(&claims).await? == (Some(name.to_owned()), Vec::new()), "{:?}", held(&claims).await?);

    corner.node_pool(json!({})).await?;
    let pods = corner.bound(1).await?;
    let machine = node_of(&pods[0]).context("it is bound")?.to_owned();
    ensure!(machine != name, "the node has no room for it");
    ensure!(corner.node_claims().await?.len() == 1, "one machine is enough");
    let (pool, consumers) = held(&claims).await?;
    ensure!(pool.as_ref().is_some_and(|pool| pool != name), "its device is still the node's: {pool:?}");
    ensure!(consumers == ["waits"], "{consumers:?}");
    apply::delete(&corner.client, &node(name, 1)).await?;
    apply::delete(&corner.client, &slice(name)).await
}
