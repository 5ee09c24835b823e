//! A cluster that Karpenter 1.15 runs is taken over as it stands: nothing is launched, deleted or called drifted.
//!
//! The objects are what Karpenter's controllers and its kwok provider write: finalizers, owner references, hashes,
//! conditions and labels.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::wait::stays;
use e2e::{Controller, apply, eventually, objects};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, DEADLINE};

/// Karpenter's hash, version v3, of the template below.
const HASH: &str = "12745407319442031341";
const MACHINES: usize = 3;

fn node_pool() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {
            "name": "default",
            "annotations": { "karpenter.sh/nodepool-hash": HASH, "karpenter.sh/nodepool-hash-version": "v3" },
        },
        "spec": {
            "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
                "requirements": [{ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] }],
                "expireAfter": "720h",
            } },
            // The machines are to be there when the test looks.
            "disruption": { "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s", "budgets": [{ "nodes": "0" }] },
        },
    })
}

fn node_claim(name: &str, pool_uid: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "generateName": "default-",
            "finalizers": ["karpenter.sh/termination"],
            "annotations": {
                "karpenter.sh/nodeclaim-min-values-relaxed": "false",
                "karpenter.sh/nodepool-hash": HASH,
                "karpenter.sh/nodepool-hash-version": "v3",
            },
            "labels": labels(),
            "ownerReferences": [{
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "default", "uid": pool_uid, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "expireAfter": "720h",
            "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
            "requirements": [
                { "key": "karpenter.sh/nodepool", "operator": "In", "values": ["default"] },
                { "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] },
                { "key": "karpenter.kwok.sh/kwoknodeclass", "operator": "In", "values": ["default"] },
                { "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c-2x-amd64-linux", "c-4x-amd64-linux"] },
                { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand", "spot"] },
            ],
            "resources": { "requests": { "cpu": "1", "memory": "512Mi", "pods": "1" } },
        },
    })
}

/// What the machine was resolved to, on NodeClaim and Node.
fn labels() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([
        ("karpenter.kwok.sh/instance-cpu", "2"),
        ("karpenter.kwok.sh/instance-family", "c"),
        ("karpenter.kwok.sh/instance-memory", "4294967296"),
        ("karpenter.kwok.sh/instance-size", "2x"),
        ("karpenter.kwok.sh/kwoknodeclass", "default"),
        ("karpenter.sh/capacity-type", "spot"),
        ("karpenter.sh/nodepool", "default"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", "linux"),
        ("node.kubernetes.io/instance-type", "c-2x-amd64-linux"),
        ("topology.kubernetes.io/zone", "test-zone-a"),
    ])
}

fn claim_status(name: &str) -> Value {
    let time = "2026-01-01T00:00:00Z";
    let condition = |name: &str| json!({ "type": name, "status": "True", "reason": name, "message": "", "lastTransitionTime": time, "observedGeneration": 1 });
    let conditions = ["Launched", "Registered", "Initialized", "Ready"].map(condition);
    json!({ "status": {
        "nodeName": name,
        "providerID": format!("kwok://{name}"),
        "capacity": { "cpu": "2", "memory": "4Gi", "ephemeral-storage": "20Gi", "pods": "32" },
        "allocatable": { "cpu": "1900m", "memory": "4086Mi", "ephemeral-storage": "20Gi", "pods": "32" },
        "lastPodEventTime": time,
        "conditions": conditions,
    } })
}

fn node(name: &str, claim_uid: &str) -> Value {
    let mut labels: BTreeMap<&str, &str> = labels();
    labels.extend([
        ("karpenter.sh/registered", "true"),
        ("karpenter.sh/initialized", "true"),
        ("kubernetes.io/hostname", name),
        ("kwok-partition", "a"),
        ("type", "kwok"),
    ]);
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {
                "kwok.x-k8s.io/node": "fake",
                "karpenter.sh/nodeclaim-min-values-relaxed": "false",
                "karpenter.sh/nodepool-hash": HASH,
                "karpenter.sh/nodepool-hash-version": "v3",
            },
            "finalizers": ["karpenter.sh/termination"],
            "ownerReferences": [{
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": name, "uid": claim_uid, "blockOwnerDeletion": true,
            }],
        },
        "spec": { "providerID": format!("kwok://{name}") },
        // Karpenter's kwok provider gives a machine what its NodeClaim asks for.
        "status": {
            "capacity": { "cpu": "1", "memory": "512Mi", "pods": "1", "ephemeral-storage": "20Gi" },
            "allocatable": { "cpu": "1900m", "memory": "4086Mi", "pods": "32", "ephemeral-storage": "20Gi" },
        },
    })
}

fn running_pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeName": node,
            "containers": [{ "name": "main", "image": "x", "resources": { "requests": { "cpu": "1", "memory": "512Mi" } } }],
        },
    })
}

/// Leaves a cluster as Karpenter does when it is scaled to zero.
pub(crate) async fn run_by_karpenter(client: &Client) -> Result<()> {
    let pool = apply::apply_one(client, node_pool()).await?;
    let claims: Api<DynamicObject> = Api::all_with(client.clone(), &resource("NodeClaim"));
    let nodes: Api<Node> = Api::all(client.clone());
    for index in 0..MACHINES {
        let name = format!("default-abc{index}");
        let claim = node_claim(&name, &pool.uid().context("a NodePool without a uid")?);
        let claim = claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
        claims.patch_status(&name, &PatchParams::default(), &Patch::Merge(claim_status(&name))).await?;
        let node = node(&name, &claim.uid().context("a NodeClaim without a uid")?);
        nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        apply::apply_one(client, running_pod(&name, &name)).await?;
    }
    eventually("the controller manager is done with the nodes", DEADLINE, async || {
        let settled = nodes.list(&ListParams::default()).await?.into_iter().filter(is_settled).count();
        ensure!(settled == MACHINES, "{settled} of {MACHINES}");
        Ok(())
    })
    .await
}

/// Ready, without a taint, and with the old spellings of the labels that the controller manager adds.
fn is_settled(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        && taints.is_empty()
        && node.labels().contains_key("beta.kubernetes.io/arch")
}

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("karpenter.sh", "v1", kind))
}

/// What must not change, by object.
async fn state(client: &Client) -> Result<BTreeMap<String, Value>> {
    let mut state = BTreeMap::new();
    for (resource, fields) in [
        (resource("NodeClaim"), &["/metadata/labels", "/metadata/annotations", "/metadata/finalizers", "/spec"][..]),
        (resource("NodePool"), &["/metadata/annotations", "/spec"]),
        (ApiResource::erase::<Node>(&()), &["/metadata/labels", "/metadata/finalizers", "/spec"]),
    ] {
        for object in Api::<DynamicObject>::all_with(client.clone(), &resource).list(&ListParams::default()).await? {
            ensure!(
                object.metadata.deletion_timestamp.is_none(),
                "{} {} is being deleted",
                resource.kind,
                object.name_any()
            );
            let name = format!("{} {}", resource.kind, object.name_any());
            let whole = serde_json::to_value(&object)?;
            let kept = fields
                .iter()
                .map(|field| ((*field).to_owned(), whole.pointer(field).cloned().unwrap_or_default()))
                .collect();
            state.insert(name, Value::Object(kept));
        }
    }
    Ok(state)
}

#[tokio::test]
async fn a_cluster_of_karpenters_is_adopted_without_a_change() -> Result<()> {
    let cluster = Cluster::new("switching").await?;
    let client = cluster.client().await?;
    run_by_karpenter(&client).await?;
    let before = state(&client).await?;
    ensure!(before.len() == 2 * MACHINES + 1, "{before:#?}");

    let controller = Controller::start_ready(&cluster.controller()?).await?;
    stays("every object is as Karpenter left it", Duration::from_secs(12), async || {
        let now = state(&client).await?;
        ensure!(now == before, "{}", difference(&before, &now));
        Ok(())
    })
    .await?;
    for claim in Api::<api::NodeClaim>::all(client.clone()).list(&ListParams::default()).await? {
        let conditions = claim.status.clone().unwrap_or_default().conditions;
        ensure!(
            conditions.iter().all(|condition| condition.type_ != "Drifted"),
            "{}: {conditions:?}",
            claim.name_any()
        );
        ensure!(
            conditions.iter().filter(|condition| condition.status == "True").count() >= 4,
            "{}: {conditions:?}",
            claim.name_any()
        );
    }
    let pools = Api::<api::NodePool>::all(client.clone());
    eventually("the NodePool counts what it adopted", DEADLINE, async || {
        let status = pools.get("default").await?.status.context("no status")?;
        ensure!(status.nodes == Some(3), "{:?} nodes", status.nodes);
        Ok(())
    })
    .await?;

    // New pods use the machines' free room, then a machine of our own joins the pool.
    let corner = Corner::existing(client.clone(), "default");
    let pod = |name: &str, cpu: &str| {
        objects::with(
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" } }),
            json!({ "spec": { "containers": [{ "name": "main", "image": "x", "resources": { "requests": { "cpu": cpu } } }] } }),
        )
    };
    corner.apply([pod("small", "200m")]).await?;
    corner.bound(MACHINES + 1).await?;
    ensure!(corner.node_claims().await?.len() == MACHINES, "a machine was launched although there was room");
    corner.apply([pod("large", "1800m")]).await?;
    corner.bound(MACHINES + 2).await?;
    ensure!(corner.node_claims().await?.len() == MACHINES + 1, "one machine was to be launched");

    // An adopted machine can be removed like any other.
    Api::<api::NodeClaim>::all(client.clone()).delete("default-abc0", &kube::api::DeleteParams::default()).await?;
    eventually("the adopted machine is gone", DEADLINE, async || {
        let claims = corner.node_claims().await?;
        ensure!(claims.iter().all(|claim| claim.name_any() != "default-abc0"), "not yet");
        Ok(())
    })
    .await?;
    controller.terminate().await.map(drop)
}

fn difference(before: &BTreeMap<String, Value>, now: &BTreeMap<String, Value>) -> String {
    let names: std::collections::BTreeSet<_> = before.keys().chain(now.keys()).collect();
    names
        .into_iter()
        .filter(|name| before.get(*name) != now.get(*name))
        .map(|name| {
            format!(
                "{name}:\nbefore {:#}\nnow {:#}\n",
                before.get(name).unwrap_or(&Value::Null),
                now.get(name).unwrap_or(&Value::Null)
            )
        })
        .collect()
}
