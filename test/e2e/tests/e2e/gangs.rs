//! PodGroups on a control plane that schedules them: the scheduler binds all of a gang or none, and the pods of a group
//! with a topology constraint in one domain.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use e2e::controller::Controller;
use e2e::objects;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, node_of};

const GANG: &str = "gang";
const MEMBERS: usize = 3;

fn pod_group(namespace: &str) -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": { "name": GANG, "namespace": namespace },
        "spec": { "schedulingPolicy": { "gang": { "minCount": MEMBERS } } },
    })
}

fn member(namespace: &str, index: usize) -> Value {
    let pod = objects::pod(namespace, &format!("member-{index}"), &json!({ "cpu": "800m" }));
    objects::with(pod, json!({ "spec": { "schedulingGroup": { "podGroupName": GANG } } }))
}

/// A machine for each pod, and so many machines at most.
async fn allow(corner: &Corner, machines: usize) -> Result<()> {
    let one_cpu = json!([{ "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["1"] }]);
    let spec =
        json!({ "limits": { "nodes": machines.to_string() }, "template": { "spec": { "requirements": one_cpu } } });
    corner.node_pool(json!({ "spec": spec })).await
}

#[tokio::test]
async fn a_gang_gets_machines_for_all_its_pods_or_none() -> Result<()> {
    let cluster = Cluster::with_all_gates("gangs").await?;
    let corner = Corner::without_node_pool(cluster.client().await?, "gangs").await?;
    let controller = Controller::start_ready(&cluster.controller()?).await?;
    allow(&corner, MEMBERS - 1).await?;
    corner.apply([pod_group(&corner.name)]).await?;
    corner.apply((0..MEMBERS).map(|index| member(&corner.name, index))).await?;
    let reason = format!("needs {MEMBERS} pods at once, and {} of the {MEMBERS} that wait", MEMBERS - 1);
    corner.event("it names what the gang lacks", "member-0", |event| event.contains(&reason)).await?;
    let early = corner.node_claims().await?.len();
    ensure!(early == 0, "{early} machines for a part of the gang");

    allow(&corner, MEMBERS).await?;
    let pods = corner.bound(MEMBERS).await?;
    let nodes: BTreeSet<_> = pods.iter().filter_map(node_of).collect();
    let claims = corner.node_claims().await?.len();
    ensure!(nodes.len() == MEMBERS && claims == MEMBERS, "{} nodes, {claims} NodeClaims", nodes.len());
    controller.terminate().await.map(drop)
}

/// A pool in a zone whose machines have so many CPUs, and so many machines at most.
async fn allow_in(corner: &Corner, zone: &str, cpus: &str, machines: usize) -> Result<()> {
    let requirements = json!([
        { "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": [cpus] },
        { "key": api::labels::ZONE, "operator": "In", "values": [zone] },
    ]);
    let spec = json!({ "limits": { "nodes": machines.to_string() }, "template": { "spec": { "requirements": requirements } } });
    let name = format!("{}-{zone}", corner.name);
    let pool = objects::with(objects::node_pool(&corner.name), json!({ "metadata": { "name": name }, "spec": spec }));
    corner.apply([pool]).await
}

#[tokio::test]
async fn a_group_with_a_topology_constraint_gets_machines_in_one_zone() -> Result<()> {
    let cluster = Cluster::with_all_gates("gangs-topology").await?;
    let corner = Corner::without_node_pool(cluster.client().await?, "gangs-topology").await?;
    let controller = Controller::start_ready(&cluster.controller()?).await?;
    // The cheaper zone has no room for all of them.
    allow_in(&corner, "test-zone-a", "1", MEMBERS - 1).await?;
    allow_in(&corner, "test-zone-b", "2", MEMBERS).await?;
    let constraints = json!({ "spec": { "schedulingConstraints": { "topology": [{ "key": api::labels::ZONE }] } } });
    corner.apply([objects::with(pod_group(&corner.name), constraints)]).await?;
    corner.apply((0..MEMBERS).map(|index| member(&corner.name, index))).await?;
    let pods = corner.bound(MEMBERS).await?;
    let nodes = corner.nodes().await?;
    let zone_of = |node: &str| {
        let node = nodes.iter().find(|it| it.name_any() == node)?;
        node.labels().get(api::labels::ZONE).cloned()
    };
    let zones: Vec<_> = pods.iter().map(|pod| node_of(pod).and_then(zone_of)).collect();
    ensure!(zones.iter().all(|zone| zone.as_deref() == Some("test-zone-b")), "{zones:?}");
    let claims = corner.all_node_claims().await?.len();
    ensure!(claims == nodes.len(), "{claims} NodeClaims, {} nodes", nodes.len());
    controller.terminate().await.map(drop)
}
