//! Devices of EC2's machines other than GPUs beside adapters: Neuron devices, GPUs that share no root with an adapter,
//! slices of GPUs.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use e2e::ec2::TRN2;
use e2e::objects;
use serde_json::{Value, json};

use super::{ON_DEMAND, World, allocated, pod_with_devices, requiring};
use crate::cluster::node_of;

const GPU: &str = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'";
const SLICE: &str = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'";
const EFA: &str = "device.driver == 'dra.net'";
const NEURON: &str = "device.driver == 'neuron.aws.com'";

/// The template of claims that [`pod_with_devices`] names, and a class for each request: its name, what selects its
/// devices, how many.
fn claims(namespace: &str, requests: &[(&str, &str, u32)], same: Option<&str>) -> Vec<Value> {
    let class = |(name, expression, _): &(&str, &str, u32)| {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": { "name": name },
            "spec": { "selectors": [{ "cel": { "expression": expression } }] },
        })
    };
    let request = |(name, _, count): &(&str, &str, u32)| json!({ "name": name, "exactly": { "deviceClassName": name, "count": count } });
    let constraints: Vec<Value> = same.map(|attribute| json!({ "matchAttribute": attribute })).into_iter().collect();
    let devices = json!({ "requests": requests.iter().map(request).collect::<Vec<_>>(), "constraints": constraints });
    let template = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": { "name": "aligned", "namespace": namespace }, "spec": { "spec": { "devices": devices } },
    });
    requests.iter().map(class).chain([template]).collect()
}

/// So many devices of a driver for each of so many pods.
fn each(pods: usize, driver: &str, devices: usize) -> Vec<BTreeMap<String, usize>> {
    vec![BTreeMap::from([(driver.to_owned(), devices)]); pods]
}

#[tokio::test]
async fn pods_that_want_neuron_devices_of_one_group_share_a_machine_with_trainium() -> Result<()> {
    let world = World::new("aws-neuron").await?;
    world.ec2.sell(&[TRN2]);
    let controller = world.controller().await?;
    let corner = &world.corner;
    let group = "resource.aws.com/devicegroup4_id";
    corner.apply(claims(&corner.name, &[("neurons", NEURON, 4)], Some(group))).await?;
    corner.apply(["a", "b", "c", "d"].map(|name| pod_with_devices(&corner.name, name))).await?;
    corner.tried(4).await?;
    world.node_pool(requiring(&[ON_DEMAND])).await?;
    let pods = corner.bound(4).await?;
    let machines = world.machines().await?;
    let [machine] = &machines[..] else { anyhow::bail!("{machines:#?}") };
    ensure!(machine.instance_type == TRN2, "{machine:#?}");
    ensure!(pods.iter().all(|pod| node_of(pod) == Some(machine.id.as_str())), "a pod is elsewhere");
    let allocated = allocated(corner).await?;
    ensure!(allocated == each(4, "neuron.aws.com", 4), "{allocated:?}");
    controller.ensure_no_panic()
}

#[tokio::test]
async fn an_l4_comes_with_the_cheapest_g6_and_never_on_one_root_with_an_adapter() -> Result<()> {
    let world = World::new("aws-g6").await?;
    world.ec2.sell(&["g6.xlarge", "g6.8xlarge"]);
    let controller = world.controller().await?;
    let corner = &world.corner;
    corner.apply(claims(&corner.name, &[("gpu", GPU, 1)], None)).await?;
    corner.apply([pod_with_devices(&corner.name, "alone")]).await?;
    let family: (&str, &[&str]) = ("karpenter.k8s.aws/instance-family", &["g6"]);
    world.node_pool(requiring(&[ON_DEMAND, family])).await?;
    corner.bound(1).await?;
    let machines = world.machines().await?;
    let types: Vec<_> = machines.iter().map(|machine| machine.instance_type.as_str()).collect();
    ensure!(types == ["g6.xlarge"], "{types:?}");
    let root = Some("resource.kubernetes.io/pcieRoot");
    let aligned = claims(&corner.name, &[("gpu", GPU, 1), ("efa", EFA, 1)], root);
    let named = |object: Value| match object["kind"].as_str() {
        Some("ResourceClaimTemplate") => objects::with(object, json!({ "metadata": { "name": "on-one-root" } })),
        _ => object,
    };
    corner.apply(aligned.into_iter().map(named)).await?;
    let claim = json!([{ "name": "devices", "resourceClaimTemplateName": "on-one-root" }]);
    let pod = objects::with(pod_with_devices(&corner.name, "beside"), json!({ "spec": { "resourceClaims": claim } }));
    corner.apply([pod]).await?;
    corner
        .event("its GPU and adapter would be below different roots", "beside", |event| {
            event.contains("matchAttribute resource.kubernetes.io/pcieRoot: no value is shared by as many devices")
        })
        .await?;
    ensure!(world.ec2.cloud.launched() == 1, "{:#?}", world.ec2.cloud.alive());
    controller.ensure_no_panic()
}

#[tokio::test]
async fn seven_pods_share_a_gpu_where_the_node_class_says_that_the_driver_cuts_it() -> Result<()> {
    let world = World::new("aws-slices").await?;
    world.ec2.sell(&["p5.4xlarge"]);
    world.node_class(json!({ "metadata": { "annotations": { "dovetail.sh/nvidia-mig": "dynamic" } } })).await?;
    let controller = world.controller().await?;
    let corner = &world.corner;
    let smallest = format!("{SLICE} && device.attributes['gpu.nvidia.com'].profile == '1g.10gb'");
    corner.apply(claims(&corner.name, &[("slice", &smallest, 1)], None)).await?;
    corner.apply((0..7).map(|index| pod_with_devices(&corner.name, &format!("notebook-{index}")))).await?;
    corner.tried(7).await?;
    world.node_pool(requiring(&[ON_DEMAND])).await?;
    corner.bound(7).await?;
    let machines = world.machines().await?;
    let types: Vec<_> = machines.iter().map(|machine| machine.instance_type.as_str()).collect();
    ensure!(types == ["p5.4xlarge"], "{types:?}");
    let allocated = allocated(corner).await?;
    ensure!(allocated == each(7, "gpu.nvidia.com", 1), "{allocated:?}");
    controller.ensure_no_panic()
}
