//! Machines of EC2 over their life: how they are paid, when they are given up, and with whose rights they run.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use cloudprovider_aws::labels;
use cloudprovider_aws::service::Iam as _;
use cloudprovider_aws::service::ec2::PlacementGroup;
use e2e::{Controller, eventually, objects};
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::{MINUTES, ON_DEMAND, World, requiring};
use crate::cluster::{DEADLINE, node_of};

const M5: (&str, &[&str]) = (api::labels::INSTANCE_TYPE, &["m5.large"]);

#[tokio::test]
async fn a_reservation_is_used_first_and_what_it_cannot_hold_is_launched_on_demand() -> Result<()> {
    const RESERVATION: &str = "cr-0123456789abcdef0";
    let world = World::new("aws-reserved").await?;
    world.ec2.reserve(RESERVATION, ("m5.large", "us-east-1b"), 1);
    let by_tag = json!([{ "tags": { "cluster": e2e::ec2::CLUSTER } }]);
    world.node_class(json!({ "spec": { "capacityReservationSelectorTerms": by_tag } })).await?;
    let controller = world.controller().await?;
    let corner = &world.corner;
    // A machine each.
    corner.apply([objects::deployment(&corner.name, "web", 3, &json!({ "cpu": "1500m" }))]).await?;
    corner.tried(3).await?;
    let paid: (&str, &[&str]) = (api::labels::CAPACITY_TYPE, &["reserved", "on-demand"]);
    world.node_pool(requiring(&[paid, M5])).await?;
    corner.bound(3).await?;
    let machines = world.machines().await?;
    ensure!(machines.len() == 3 && machines.iter().all(|it| !it.is_spot), "{machines:#?}");
    let reserved: Vec<_> = machines.iter().filter(|it| it.capacity_reservation_id.is_some()).collect();
    let [reserved] = reserved[..] else { anyhow::bail!("{machines:#?}") };
    ensure!(reserved.capacity_reservation_id.as_deref() == Some(RESERVATION), "{reserved:#?}");
    ensure!(reserved.zone == "us-east-1b", "{reserved:#?}");
    let claims = corner.node_claims().await?;
    let paid = |claim: &api::NodeClaim| claim.labels().get(api::labels::CAPACITY_TYPE).cloned().unwrap_or_default();
    let mut how: Vec<_> = claims.iter().map(paid).collect();
    how.sort();
    ensure!(how == ["on-demand", "on-demand", "reserved"], "{how:?}");
    controller.ensure_no_panic()
}

#[tokio::test]
async fn pods_that_are_spread_over_partitions_get_a_machine_in_each() -> Result<()> {
    let world = World::new("aws-partitions").await?;
    let group = PlacementGroup {
        id: "pg-1".to_owned(),
        name: "apart".to_owned(),
        strategy: "partition".to_owned(),
        partitions: Some(3),
    };
    world.ec2.cloud.add_placement_group(group, Default::default());
    world.node_class(json!({ "spec": { "placementGroupSelector": { "name": "apart" } } })).await?;
    let controller = world.controller().await?;
    let corner = &world.corner;
    let spread = json!([{
        "maxSkew": 1, "topologyKey": labels::PLACEMENT_GROUP_PARTITION, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": "web" } },
    }]);
    let template =
        json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "topologySpreadConstraints": spread } });
    let deployment = objects::deployment(&corner.name, "web", 3, &json!({ "cpu": "100m" }));
    corner.apply([objects::with(deployment, json!({ "spec": { "template": template } }))]).await?;
    corner.tried(3).await?;
    world.node_pool(requiring(&[ON_DEMAND, M5])).await?;
    corner.bound(3).await?;
    let machines = world.machines().await?;
    let partitions: BTreeSet<_> = machines.iter().filter_map(|machine| machine.partition).collect();
    ensure!(partitions == BTreeSet::from([1, 2, 3]) && machines.len() == 3, "{machines:#?}");
    for node in corner.nodes().await? {
        let machine = machines.iter().find(|machine| machine.id == node.name_any()).context("no machine")?;
        let label = node.labels().get(labels::PLACEMENT_GROUP_PARTITION);
        ensure!(label == machine.partition.map(|it| it.to_string()).as_ref(), "{machine:#?} {label:?}");
    }
    controller.ensure_no_panic()
}

#[tokio::test]
async fn a_machine_takes_as_many_pods_as_an_expression_says() -> Result<()> {
    let world = World::new("aws-expressions").await?;
    let kubelet = json!({ "maxPods": "vcpus * 2", "kubeReserved": { "cpu": "vcpus * 50" } });
    world.node_class(json!({ "spec": { "kubelet": kubelet } })).await?;
    let options = world.ec2.controller(world.cluster.controller()?).env("AWS_FEATURE_GATES", "NodeClassCEL=true");
    let controller = Controller::start_ready(&options).await?;
    let corner = &world.corner;
    corner.apply([objects::deployment(&corner.name, "small", 8, &json!({ "cpu": "10m" }))]).await?;
    corner.tried(8).await?;
    world.node_pool(requiring(&[ON_DEMAND, M5])).await?;
    let pods = corner.bound(8).await?;
    let machines = world.machines().await?;
    // Two processors each.
    ensure!(machines.len() == 2, "{machines:#?}");
    for machine in &machines {
        let on_it = pods.iter().filter(|pod| node_of(pod) == Some(machine.id.as_str())).count();
        ensure!(on_it == 4, "{on_it} pods are on {}", machine.id);
        let told = world.ec2.cloud.user_data(&machine.id).context("it was told nothing")?;
        ensure!(told.contains("cpu: 100m"), "{told}");
    }
    controller.ensure_no_panic()
}

#[tokio::test]
async fn pods_that_fit_on_one_machine_move_there_and_the_other_ends() -> Result<()> {
    let world = World::new("aws-consolidation").await?;
    let controller = world.controller().await?;
    let corner = &world.corner;
    // One of each on a machine; two of the smaller fit together, two of the larger do not.
    let sizes = [("larger", "1000m"), ("smaller", "900m")];
    let deployments = sizes.map(|(name, cpu)| objects::deployment(&corner.name, name, 2, &json!({ "cpu": cpu })));
    corner.apply(deployments.clone()).await?;
    corner.tried(4).await?;
    let disruption =
        json!({ "spec": { "disruption": { "consolidateAfter": "0s", "budgets": [{ "nodes": "100%" }] } } });
    world.node_pool(objects::with(requiring(&[ON_DEMAND, M5]), disruption)).await?;
    corner.bound(4).await?;
    let before = world.machines().await?;
    ensure!(before.len() == 2, "{before:#?}");
    let [larger, _] = deployments;
    corner.apply([objects::with(larger, json!({ "spec": { "replicas": 0 } }))]).await?;
    eventually("one of the two machines is left, and nothing was launched", MINUTES, async || {
        let alive = world.ec2.cloud.alive();
        ensure!(alive.len() == 1 && world.ec2.cloud.launched() == 2, "{alive:#?}");
        // Its NodeClaim is there a moment longer than the machine.
        world.machines().await.map(drop)
    })
    .await?;
    let pods = corner.bound(2).await?;
    let left = &world.machines().await?[0];
    ensure!(before.iter().any(|machine| machine.id == left.id), "{left:#?}");
    ensure!(pods.iter().all(|pod| node_of(pod) == Some(left.id.as_str())), "a pod is elsewhere");
    controller.ensure_no_panic()
}

#[tokio::test]
async fn machines_of_another_role_replace_those_of_the_old_one_whose_profile_stays_as_it_was() -> Result<()> {
    let world = World::new("aws-profile").await?;
    let controller = world.controller().await?;
    let corner = &world.corner;
    let budgets = json!({ "spec": { "disruption": { "budgets": [{ "nodes": "100%" }] } } });
    world.node_pool(objects::with(requiring(&[ON_DEMAND, M5]), budgets)).await?;
    corner.apply([objects::deployment(&corner.name, "web", 1, &json!({ "cpu": "1" }))]).await?;
    corner.bound(1).await?;
    let (before, profile) = (world.machines().await?, profile(&world).await?);
    world.ec2.cloud.make_role("nodes-2");
    let kind = node_class_kind();
    let classes: Api<DynamicObject> = Api::all_with(corner.client.clone(), &kind);
    let role = Patch::Merge(json!({ "spec": { "role": "nodes-2" } }));
    classes.patch(&corner.name, &PatchParams::default(), &role).await?;
    let old: BTreeSet<_> = before.iter().map(|machine| machine.id.clone()).collect();
    eventually("the machine is replaced", MINUTES, async || {
        let alive = world.ec2.cloud.alive();
        ensure!(alive.len() == 1 && alive.iter().all(|machine| !old.contains(&machine.id)), "{alive:#?}");
        Ok(())
    })
    .await?;
    corner.bound(1).await?;
    let role = async |name: &str| anyhow::Ok(world.ec2.cloud.get_instance_profile(name).await?.role);
    let now = self::profile(&world).await?;
    ensure!(now != profile, "{now}");
    ensure!(role(&now).await?.as_deref() == Some("nodes-2"), "{now} has another role");
    ensure!(role(&profile).await?.as_deref() == Some("nodes"), "the role of {profile} was changed");
    eventually("the new NodeClaim names the new profile", DEADLINE, async || {
        let claims = corner.node_claims().await?;
        let named =
            |claim: &api::NodeClaim| claim.annotations().get(cloudprovider_aws::names::INSTANCE_PROFILE).cloned();
        let named: Vec<_> = claims.iter().map(named).collect();
        ensure!(named == [Some(now.clone())], "{named:?}");
        Ok(())
    })
    .await?;
    controller.ensure_no_panic()
}

fn node_class_kind() -> ApiResource {
    use cloudprovider_aws::names;
    ApiResource {
        group: names::GROUP.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{}/v1", names::GROUP),
        kind: names::NODE_CLASS_KIND.to_owned(),
        plural: "ec2nodeclasses".to_owned(),
    }
}

/// The instance profile that the node class tells of.
async fn profile(world: &World) -> Result<String> {
    let classes: Api<DynamicObject> = Api::all_with(world.corner.client.clone(), &node_class_kind());
    let class = classes.get(&world.corner.name).await?;
    let profile = class.data.pointer("/status/instanceProfile").and_then(Value::as_str);
    profile.map(str::to_owned).context("the status tells no instance profile")
}
