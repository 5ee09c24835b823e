//! NodeClaims that a person writes, without a NodePool.

use anyhow::{Context, Result, ensure};
use api::NodeClaim;
use e2e::{eventually, objects};
use k8s_openapi::api::core::v1::Node;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::cluster::{Corner, DEADLINE, shared};

#[tokio::test]
async fn a_nodeclaim_of_a_persons_own_gets_a_machine_with_a_value_for_every_label_that_it_asks_for() -> Result<()> {
    let name = "standalone";
    let corner = Corner::without_node_pool(shared().await?.cluster.client().await?, name).await?;
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": { "name": name, "labels": { objects::TEST_KEY: name } },
        "spec": {
            "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": objects::NODE_CLASS },
            "requirements": [
                { "key": "example.com/team", "operator": "In", "values": ["red", "blue"] },
                { "key": "example.com/tier", "operator": "Exists" },
                { "key": "example.com/rank", "operator": "Gt", "values": ["6"] },
                { "key": "example.com/none", "operator": "DoesNotExist" },
                { "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a", "test-zone-b"] },
            ],
            "resources": { "requests": { "cpu": "1" } },
        },
    });
    corner.apply([claim]).await?;
    let claims: Api<NodeClaim> = Api::all(corner.client.clone());
    eventually("the NodeClaim is ready, and its Node has the labels", DEADLINE, async || {
        let claim = claims.get(name).await?;
        let status = claim.status.clone().context("no status")?;
        ensure!(
            status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True"),
            "{:?}",
            status.conditions
        );
        let node = Api::<Node>::all(corner.client.clone()).get(&status.node_name).await?;
        for labels in [claim.labels(), node.labels()] {
            for (key, value) in [("team", "blue"), ("tier", "0"), ("rank", "7")] {
                let key = format!("example.com/{key}");
                ensure!(labels.get(&key).is_some_and(|it| it == value), "{key}: {labels:?}");
            }
            ensure!(!labels.contains_key("example.com/none"), "{labels:?}");
        }
        Ok(())
    })
    .await?;
    claims.delete(name, &DeleteParams::default()).await?;
    corner.emptied().await
}
