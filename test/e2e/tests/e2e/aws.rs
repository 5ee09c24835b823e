//! The provider for EC2 with everything around it: a real control plane, the controller as a process, EC2 in memory
//! with machines that become Nodes by what they are told at boot.

mod capacity;
mod devices;
mod interruptions;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cloudprovider::{CapacityType, OfferingKey};
use cloudprovider_aws::service::ec2::Machine;
use e2e::ec2::{self, Ec2};
use e2e::{Controller, Platform, apply, eventually, install, objects};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Corner, DEADLINE, node_of};

/// What is looked at once a minute is seen within this.
const MINUTES: Duration = Duration::from_secs(300);

/// A control plane with EC2 beside it, and no controller.
struct World {
    cluster: Cluster,
    ec2: Ec2,
    corner: Corner,
}

impl World {
    /// With a node class and, to come, a NodePool of the name.
    async fn new(name: &str) -> Result<Self> {
        let cluster = Cluster::with_rights(name, Platform::default(), &[], install::AWS).await?;
        let client = cluster.client().await?;
        let ec2 = Ec2::start(client.clone()).await?;
        apply::apply_one(&client, ec2::node_class(name)).await?;
        let corner = Corner::without_node_pool(client, name).await?;
        Ok(Self { cluster, ec2, corner })
    }

    /// Changes the node class.
    async fn node_class(&self, changes: Value) -> Result<()> {
        let class = objects::with(ec2::node_class(&self.corner.name), changes);
        apply::apply_one(&self.corner.client, class).await.map(drop)
    }

    async fn controller(&self) -> Result<Controller> {
        Controller::start_ready(&self.ec2.controller(self.cluster.controller()?)).await
    }

    /// The NodePool with changes.
    async fn node_pool(&self, changes: Value) -> Result<()> {
        let name = &self.corner.name;
        apply::apply_one(&self.corner.client, objects::with(ec2::node_pool(name, name), changes)).await.map(drop)
    }

    /// The machines by the ids that NodeClaims give; each NodeClaim has one, and each machine a NodeClaim.
    async fn machines(&self) -> Result<Vec<Machine>> {
        let claims = self.corner.with_nodes().await?;
        let named: BTreeSet<_> = claims
            .iter()
            .filter_map(|claim| Some(claim.status.as_ref()?.provider_id.rsplit_once('/')?.1.to_owned()))
            .collect();
        let alive = self.ec2.cloud.alive();
        let ids: BTreeSet<_> = alive.iter().map(|machine| machine.id.clone()).collect();
        ensure!(named == ids && claims.len() == ids.len(), "NodeClaims name {named:?}, and there are {ids:?}");
        Ok(alive)
    }
}

/// A requirement of a NodePool, as changes to it.
fn requiring(requirements: &[(&str, &[&str])]) -> Value {
    let requirement = |(key, values): &(&str, &[&str])| json!({ "key": key, "operator": "In", "values": values });
    let requirements: Vec<_> = requirements.iter().map(requirement).collect();
    json!({ "spec": { "template": { "spec": { "requirements": requirements } } } })
}

const ON_DEMAND: (&str, &[&str]) = (api::labels::CAPACITY_TYPE, &["on-demand"]);

/// Two GPUs and an adapter below one PCIe root.
fn claim_template(namespace: &str) -> Vec<Value> {
    let class = |name: &str, expression: &str| {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": name },
            "spec": { "selectors": [{ "cel": { "expression": expression } }] },
        })
    };
    let request = |name: &str, device_class: &str, count: u32| {
        let exactly = json!({ "deviceClassName": device_class, "count": count });
        json!({ "name": name, "exactly": exactly })
    };
    vec![
        class("gpu", "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"),
        class("efa", "device.driver == 'dra.net' && device.attributes['dra.net'].rdma"),
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": { "name": "aligned", "namespace": namespace },
            "spec": { "spec": { "devices": {
                "requests": [request("gpus", "gpu", 2), request("efa", "efa", 1)],
                "constraints": [
                    { "requests": ["gpus", "efa"], "matchAttribute": "resource.kubernetes.io/pcieRoot" }],
            } } },
        }),
    ]
}

fn pod_with_devices(namespace: &str, name: &str) -> Value {
    let spec = json!({
        "resourceClaims": [{ "name": "devices", "resourceClaimTemplateName": "aligned" }],
        "containers": [{
            "name": "main", "image": "example.org/main",
            "resources": { "requests": { "cpu": "1" }, "claims": [{ "name": "devices" }] },
        }],
    });
    objects::with(objects::pod(namespace, name, &json!({})), json!({ "spec": spec }))
}

/// Of each claim, the number of devices by driver.
async fn allocated(corner: &Corner) -> Result<Vec<BTreeMap<String, usize>>> {
    let kind = ApiResource {
        group: "resource.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "resource.k8s.io/v1".to_owned(),
        kind: "ResourceClaim".to_owned(),
        plural: "resourceclaims".to_owned(),
    };
    let claims: Api<DynamicObject> = Api::namespaced_with(corner.client.clone(), &corner.name, &kind);
    let drivers = |claim: DynamicObject| {
        let results = claim.data["status"]["allocation"]["devices"]["results"].as_array().cloned().unwrap_or_default();
        results.iter().filter_map(|it| it["driver"].as_str()).fold(BTreeMap::new(), |mut counts, driver| {
            *counts.entry(driver.to_owned()).or_default() += 1;
            counts
        })
    };
    Ok(claims.list(&Default::default()).await?.items.into_iter().map(drivers).collect())
}

#[tokio::test]
async fn pods_that_claim_gpus_beside_an_adapter_get_a_machine_of_ec2_from_an_empty_cluster() -> Result<()> {
    let world = World::new("aws-devices").await?;
    let controller = world.controller().await?;
    let corner = &world.corner;
    corner.apply(claim_template(&corner.name)).await?;
    corner.apply(["a", "b"].map(|name| pod_with_devices(&corner.name, name))).await?;
    corner.tried(2).await?;
    world.node_pool(requiring(&[ON_DEMAND])).await?;
    let pods = corner.bound(2).await?;
    let machines = world.machines().await?;
    let [machine] = &machines[..] else { anyhow::bail!("{machines:#?}") };
    ensure!(machine.instance_type == "p4d.24xlarge", "{}", machine.instance_type);
    ensure!(machine.efa_count == 4, "{} adapters are attached", machine.efa_count);
    ensure!(pods.iter().all(|pod| node_of(pod) == Some(machine.id.as_str())), "a pod is elsewhere");
    let devices = BTreeMap::from([("dra.net".to_owned(), 1), ("gpu.nvidia.com".to_owned(), 2)]);
    let allocated = allocated(corner).await?;
    ensure!(allocated == [devices.clone(), devices], "{allocated:?}");
    eventually("the machine has the tags that name its NodeClaim and Node", DEADLINE, async || {
        let machine = world.ec2.cloud.alive().into_iter().next().context("no machine")?;
        let claim = corner.node_claims().await?.into_iter().next().context("no NodeClaim")?;
        let tag = |key: &str| machine.tags.get(key).map(String::as_str);
        ensure!(tag("karpenter.sh/nodeclaim") == Some(&claim.name_any()), "{:?}", machine.tags);
        ensure!(tag("Name") == Some(&machine.id), "{:?}", machine.tags);
        Ok(())
    })
    .await?;
    corner.delete_claims().await?;
    eventually("the machine has ended, and no launch is written down any more", DEADLINE, async || {
        ensure!(world.ec2.cloud.alive().iter().all(|it| it.id != machine.id), "it is alive");
        Ok(())
    })
    .await?;
    controller.ensure_no_panic()
}

#[tokio::test]
async fn where_a_zone_has_no_machines_left_another_one_serves_and_that_is_written_down() -> Result<()> {
    let world = World::new("aws-stock").await?;
    let out = |zone: &str| OfferingKey {
        instance_type: "m5.large".into(),
        zone: zone.to_owned(),
        capacity_type: CapacityType::OnDemand,
        reservation_id: None,
    };
    for zone in ["us-east-1a", "us-east-1b"] {
        world.ec2.cloud.set_stock(&out(zone), Some(0));
    }
    let controller = world.controller().await?;
    let corner = &world.corner;
    world.node_pool(requiring(&[ON_DEMAND, (api::labels::INSTANCE_TYPE, &["m5.large"])])).await?;
    corner.apply([objects::deployment(&corner.name, "web", 3, &json!({ "cpu": "1" }))]).await?;
    corner.bound(3).await?;
    let zones: BTreeSet<_> = world.machines().await?.into_iter().map(|machine| machine.zone).collect();
    ensure!(zones == BTreeSet::from(["us-east-1c".to_owned()]), "{zones:?}");
    let records: Api<ConfigMap> = Api::namespaced(corner.client.clone(), install::EC2_RECORDS_NAMESPACE);
    eventually("what could not be had is written down, and the launches are closed", DEADLINE, async || {
        let all = records.list(&Default::default()).await?.items;
        let text = |name: &str| {
            let found = all.iter().find(|it| it.name_any() == name)?;
            found.data.as_ref()?.get("document").cloned()
        };
        let stock = text("dovetail-ec2-stock-outs").context("no record of stock-outs")?;
        ensure!(stock.contains("us-east-1a") && stock.contains("us-east-1b"), "{stock}");
        let open = all.iter().map(ResourceExt::name_any).filter(|it| it.starts_with("dovetail-ec2-launch-"));
        let open: Vec<_> = open.collect();
        ensure!(open.is_empty(), "{open:?}");
        Ok(())
    })
    .await?;
    controller.ensure_no_panic()
}

#[tokio::test]
async fn a_controller_that_is_killed_in_the_middle_of_a_fleet_leaves_each_claim_its_one_machine() -> Result<()> {
    let world = World::new("aws-killed").await?;
    let mut first = world.controller().await?;
    let corner = &world.corner;
    world.ec2.front.hold("ec2:CreateFleet");
    // A machine each.
    let requests = json!({ "cpu": "1500m" });
    corner.apply([objects::deployment(&corner.name, "web", 4, &requests)]).await?;
    corner.tried(4).await?;
    world.node_pool(requiring(&[ON_DEMAND, (api::labels::INSTANCE_TYPE, &["m5.large"])])).await?;
    eventually("EC2 has launched machines of which the controller does not know", DEADLINE, async || {
        ensure!(world.ec2.cloud.launched() > 0, "no machine");
        Ok(())
    })
    .await?;
    let named = corner.node_claims().await?;
    let named = named.iter().filter(|it| it.status.as_ref().is_some_and(|status| !status.provider_id.is_empty()));
    ensure!(named.count() == 0, "the controller knows of a machine");
    first.kill()?;
    world.ec2.front.release();
    let second = world.controller().await?;
    corner.bound(4).await?;
    ensure!(world.machines().await?.len() == 4 && world.ec2.cloud.launched() == 4, "{:#?}", world.ec2.cloud.alive());
    second.ensure_no_panic()
}

#[tokio::test]
async fn a_new_image_replaces_machines_and_pods_move() -> Result<()> {
    const NEW: &str = "ami-new";
    let world = World::new("aws-drift").await?;
    let controller = world.controller().await?;
    let corner = &world.corner;
    let budgets = json!({ "spec": { "disruption": { "budgets": [{ "nodes": "100%" }] } } });
    let amd64 = requiring(&[ON_DEMAND, (api::labels::INSTANCE_TYPE, &["m5.large"])]);
    world.node_pool(objects::with(amd64, budgets)).await?;
    corner.apply([objects::deployment(&corner.name, "web", 1, &json!({ "cpu": "1" }))]).await?;
    corner.bound(1).await?;
    let before = world.machines().await?;
    ensure!(before.iter().all(|machine| machine.image_id == "ami-amd64"), "{before:?}");
    world.ec2.add_image(NEW, "x86_64");
    eventually("only machines with the new image are left", MINUTES, async || {
        let machines = world.ec2.cloud.alive();
        ensure!(machines.len() == 1 && machines.iter().all(|machine| machine.image_id == NEW), "{machines:?}");
        Ok(())
    })
    .await?;
    corner.bound(1).await?;
    controller.ensure_no_panic()
}

#[tokio::test]
async fn pods_leave_a_spot_machine_before_it_is_taken_back() -> Result<()> {
    let world = World::new("aws-spot").await?;
    let controller = world.controller().await?;
    let corner = &world.corner;
    let spot: (&str, &[&str]) = (api::labels::CAPACITY_TYPE, &["spot"]);
    world.node_pool(requiring(&[spot, (api::labels::INSTANCE_TYPE, &["m5.large", "c5.large"])])).await?;
    corner.apply([objects::deployment(&corner.name, "web", 1, &json!({ "cpu": "1" }))]).await?;
    corner.bound(1).await?;
    let before = world.machines().await?;
    let [taken] = &before[..] else { anyhow::bail!("{before:#?}") };
    ensure!(taken.is_spot, "{taken:#?}");
    world.ec2.cloud.send("not JSON");
    world.ec2.cloud.reclaim(&taken.id);
    eventually("the pod runs elsewhere, and the machine has ended", DEADLINE, async || {
        let pods = corner.pods().await?;
        let is_elsewhere = |pod| node_of(pod).is_some_and(|node| node != taken.id);
        ensure!(pods.len() == 1 && pods.iter().all(is_elsewhere), "{:?}", pods.iter().map(node_of).collect::<Vec<_>>());
        let alive = world.ec2.cloud.alive();
        ensure!(alive.iter().all(|machine| machine.id != taken.id), "it is alive");
        let is_same_pool = |it: &Machine| (&it.instance_type, &it.zone) == (&taken.instance_type, &taken.zone);
        ensure!(!alive.iter().any(is_same_pool), "it was launched where the other was taken back");
        Ok(())
    })
    .await?;
    ensure!(controller.log()?.contains("left out a message of the interruption queue"), "nothing is said of bad JSON");
    controller.ensure_no_panic()
}
