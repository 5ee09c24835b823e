//! PodGroups with `minCount` on a control plane that schedules them: the scheduler binds all of a gang or none.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use e2e::controller::Controller;
use e2e::{eventually, objects};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, DEADLINE, node_of};

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
    eventually("an event names what the gang lacks", DEADLINE, async || {
        let events = corner.events("member-0").await?;
        ensure!(events.iter().any(|event| event.contains(&reason)), "{events:#?}");
        Ok(())
    })
    .await?;
    let early = corner.node_claims().await?.len();
    ensure!(early == 0, "{early} machines for a part of the gang");

    allow(&corner, MEMBERS).await?;
    let pods = corner.bound(MEMBERS).await?;
    let nodes: BTreeSet<_> = pods.iter().filter_map(node_of).collect();
    let claims = corner.node_claims().await?.len();
    ensure!(nodes.len() == MEMBERS && claims == MEMBERS, "{} nodes, {claims} NodeClaims", nodes.len());
    controller.terminate().await.map(drop)
}
