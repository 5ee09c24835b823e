//! `minValues` of a NodePool, from its requirement to a machine that runs pods.

use anyhow::{Context, Result, ensure};
use api::{NodeClaim, annotations, labels};
use cloudprovider_kwok::names;
use e2e::controller::Controller;
use e2e::{eventually, objects};
use kube::ResourceExt;
use serde_json::json;

use crate::cluster::{Cluster, Corner, DEADLINE};

fn min_values(claim: &NodeClaim, key: &str) -> Option<i64> {
    claim.spec.requirements.iter().find(|requirement| requirement.key == key)?.min_values
}

/// Karpenter's annotation and the lowered numbers: without these the API server refuses the claim (four of two types),
/// and the provider the launch (three of one family).
#[tokio::test]
async fn a_claim_with_relaxed_min_values_is_created_and_launched() -> Result<()> {
    let cluster = Cluster::new("min-values").await?;
    let corner = Corner::new(cluster.client().await?, "min-values").await?;
    let types = ["c-1x-amd64-linux", "c-2x-amd64-linux", "c-4x-amd64-linux", "c-8x-amd64-linux"];
    let requirements = json!([
        { "key": labels::INSTANCE_TYPE, "operator": "In", "values": types, "minValues": 4 },
        { "key": names::KWOK_INSTANCE_FAMILY, "operator": "Exists", "minValues": 3 },
    ]);
    corner.node_pool(json!({ "spec": { "template": { "spec": { "requirements": requirements } } } })).await?;
    let options = cluster.controller()?.env("MIN_VALUES_POLICY", "BestEffort");
    let controller = Controller::start_ready(&options).await?;
    corner.apply([objects::deployment(&corner.name, "large", 1, &json!({ "cpu": "3" }))]).await?;
    corner.bound(1).await.with_context(|| controller.log().unwrap_or_default())?;
    let claims = corner.node_claims().await?;
    let [claim] = claims.as_slice() else { anyhow::bail!("{} NodeClaims", claims.len()) };
    assert_eq!(min_values(claim, labels::INSTANCE_TYPE), Some(2));
    assert_eq!(min_values(claim, names::KWOK_INSTANCE_FAMILY), Some(1));
    let relaxed = claim.annotations().get(annotations::NODECLAIM_MIN_VALUES_RELAXED);
    assert_eq!(relaxed.map(String::as_str), Some(annotations::TRUE));
    Ok(())
}

/// The sixty cheapest types have five numbers of CPUs between them.
#[tokio::test]
async fn min_values_that_only_all_types_together_have_are_launched() -> Result<()> {
    let corner = Corner::shared("min-values-of-all").await?;
    let requirements = json!([{ "key": names::KWOK_INSTANCE_CPU, "operator": "Exists", "minValues": 9 }]);
    corner.node_pool(json!({ "spec": { "template": { "spec": { "requirements": requirements } } } })).await?;
    corner.apply([objects::deployment(&corner.name, "small", 1, &json!({ "cpu": "500m" }))]).await?;
    corner.bound(1).await?;
    eventually("the machine is the cheapest of all", DEADLINE, async || {
        let nodes = corner.nodes().await?;
        let node = nodes.first().context("no node")?;
        let instance_type = node.labels().get(labels::INSTANCE_TYPE).context("no type")?;
        ensure!(instance_type.starts_with("c-1x"), "{instance_type}");
        Ok(())
    })
    .await?;
    let claims = corner.node_claims().await?;
    let claim = claims.first().context("no NodeClaim")?;
    assert_eq!(min_values(claim, names::KWOK_INSTANCE_CPU), Some(9));
    let relaxed = claim.annotations().get(annotations::NODECLAIM_MIN_VALUES_RELAXED);
    assert_eq!(relaxed.map(String::as_str), Some(annotations::FALSE));
    Ok(())
}
