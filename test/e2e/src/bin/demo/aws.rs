//! Machines of EC2: GPUs, network adapters and Neuron devices from an empty cluster, a reservation that is used first,
//! types that EC2 has run out of, spot machines that are taken back, a new image, and pods that go.
//!
//! EC2 is in memory, and its machines become Nodes by what they are told at boot; the controller is the same binary.

use std::collections::BTreeSet;
use std::slice;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cloudprovider::{CapacityType, OfferingKey};
use cloudprovider_aws::catalogue::zones_of;
use cloudprovider_aws::memory::REGION;
use cloudprovider_aws::service::ec2::Machine;
use e2e::ec2::{Ec2, Sold};
use e2e::fleet::Fleet;
use e2e::{apply, eventually};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::claims::Claims;
use super::devices::{self, Example, Summary};
use super::scale_down::{is_under_way, removed};
use super::stage::Stage;
use super::{BIND_TIMEOUT, Places, places, pods_wanted, scaled};

/// The cluster's name in EC2, and the value of the tag that the examples select by.
const CLUSTER: &str = "demo";
const DEVICE_CLASSES: &str = "examples/eks-devices/cluster/deviceclasses.yaml";
/// Folders of `examples/`.
const ACCELERATED: &str = "eks-demo/accelerated";
const WEB: &str = "eks-demo/web";
/// The one machine that is reserved.
const RESERVED: (&str, &str) = ("p4d.24xlarge", "us-east-1b");
/// What EC2 has none of: all zones, or but for one.
const SOLD_OUT: [(&str, Option<&str>); 2] = [("g6.xlarge", None), ("p5.48xlarge", Some("us-east-1c"))];
/// The image that comes in the middle.
const NEW_IMAGE: &str = "ami-new";
/// How many pods of the web server are left in the end.
const NIGHT: u32 = 2;
/// A machine is taken back after two minutes; its pods are elsewhere long before.
const INTERRUPTION_TIMEOUT: Duration = Duration::from_secs(120);
/// Images are asked for once a minute, machines are compared with them as often, and each command waits.
const ROLL_OUT_TIMEOUT: Duration = Duration::from_secs(400);

/// An EC2 with everything that its region sells, of which some has run out.
pub(crate) async fn begin(client: &Client) -> Result<Ec2> {
    let ec2 = Ec2::of_cluster(client.clone(), CLUSTER, Sold::All).await?;
    ec2.discount_spot();
    ec2.reserve("cr-0a1b2c3d4e5f60718", RESERVED, 1);
    for (name, but) in SOLD_OUT {
        for zone in zones_of(name, REGION).into_iter().filter(|zone| but != Some(zone)) {
            let capacity_type = CapacityType::OnDemand;
            let offering = OfferingKey { instance_type: name.into(), zone, capacity_type, reservation_id: None };
            ec2.cloud.set_stock(&offering, Some(0));
        }
    }
    Ok(ec2)
}

/// Shows all of it, and where it was.
pub(crate) async fn show(stage: &Stage<'_>, ec2: &Ec2) -> Result<(Summary, Places)> {
    let (accelerated, web) = (Example::read(ACCELERATED)?, Example::read(WEB)?);
    with_devices(stage, &accelerated).await?;
    let shop = Shop { stage, ec2, example: &web };
    shop.grow().await?;
    shop.lose_a_spot_machine().await?;
    shop.roll_out_an_image().await?;
    shop.shrink().await?;

    stage.screen.heading("What there is in the end");
    let examples = [accelerated, web];
    let mut fleets = Vec::new();
    for example in &examples {
        fleets.push(stage.fleet(&example.namespace, &example.node_pool).await?);
    }
    let namespaces: Vec<&str> = examples.iter().map(|example| &*example.namespace).collect();
    let claims = Claims::read(stage.client, &namespaces).await?;
    stage.screen.machines_with_devices(&fleets, &claims);
    let pods = pods_wanted(examples[0].objects()) + pods_wanted(&scaled(examples[1].objects(), "web", NIGHT)?);
    let summary = Summary::of(&fleets, pods, &claims.rows()).with_instances(ec2.cloud.alive().len());
    Ok((summary, places(&examples)))
}

/// Pods with claims, on a cluster without machines.
async fn with_devices(stage: &Stage<'_>, example: &Example) -> Result<()> {
    let Stage { screen, client, .. } = *stage;
    let wanted = pods_wanted(example.objects());
    screen.heading(&format!("kubectl apply -f examples/{ACCELERATED}: {wanted} pods with claims, no node"));
    let (instance_type, zone) = RESERVED;
    screen.note(&format!("one {instance_type} is reserved in {zone}"));
    for (name, but) in SOLD_OUT {
        let where_else = but.map(|zone| format!(" but in {zone}")).unwrap_or_default();
        screen.note(&format!("EC2 has no {name}{where_else}"));
    }
    apply::apply(client, apply::read(&go_programs::repository().join(DEVICE_CLASSES))?).await?;
    let fleets = devices::deploy(stage, slice::from_ref(example), BIND_TIMEOUT).await?;
    let claims = Claims::read(client, &[&example.namespace]).await?;
    screen.machines_with_devices(&fleets, &claims);
    screen.heading("The claims, as kube-scheduler allocated them");
    screen.claims(&claims.rows());
    Ok(())
}

/// A web server that may run on spot machines.
struct Shop<'a> {
    stage: &'a Stage<'a>,
    ec2: &'a Ec2,
    example: &'a Example,
}

impl Shop<'_> {
    async fn grow(&self) -> Result<()> {
        let screen = self.stage.screen;
        let wanted = pods_wanted(self.example.objects());
        screen.heading(&format!("kubectl apply -f examples/{WEB}: {wanted} pods that may run on spot machines"));
        for fleet in devices::deploy(self.stage, slice::from_ref(self.example), BIND_TIMEOUT).await? {
            screen.machines(&fleet, &BTreeSet::new());
        }
        Ok(())
    }

    async fn lose_a_spot_machine(&self) -> Result<()> {
        let screen = self.stage.screen;
        let before = self.fleet().await?;
        let taken = self.machines().into_iter().find(|machine| machine.is_spot).context("no spot machine runs")?;
        let Machine { id, instance_type, zone, .. } = &taken;
        screen.heading(&format!("EC2 takes {id} back in two minutes, a spot {instance_type} in {zone}"));
        self.ec2.cloud.reclaim(id);
        let wanted = pods_wanted(self.example.objects());
        self.until("its pods run elsewhere", INTERRUPTION_TIMEOUT, wanted, |machines| {
            ensure!(machines.iter().all(|machine| machine.id != taken.id), "{} is there", taken.id);
            Ok(())
        })
        .await?;
        screen.machines(&self.fleet().await?, &before.machine_names());
        Ok(())
    }

    async fn roll_out_an_image(&self) -> Result<()> {
        let screen = self.stage.screen;
        let before = self.fleet().await?;
        screen.heading(&format!("a new image, {NEW_IMAGE}: machines with the old one are replaced first, then go"));
        // Machines with devices have it too, and no budget: training goes on.
        self.ec2.add_image(NEW_IMAGE, "x86_64");
        let wanted = pods_wanted(self.example.objects());
        self.until("all machines have it", ROLL_OUT_TIMEOUT, wanted, |machines| {
            let old = machines.iter().filter(|machine| machine.image_id != NEW_IMAGE).count();
            ensure!(old == 0, "{old} machines have the old image");
            Ok(())
        })
        .await?;
        let after = self.fleet().await?;
        screen.removed(&removed(self.stage.client, &before, &after).await?);
        screen.machines(&after, &before.machine_names());
        Ok(())
    }

    async fn shrink(&self) -> Result<()> {
        let screen = self.stage.screen;
        let before = self.fleet().await?;
        screen.heading(&format!("kubectl scale deployment web --replicas={NIGHT}: what is left needs one machine"));
        let disruption = json!({ "spec": { "disruption": { "consolidateAfter": "0s" } } });
        let pools = Api::<api::NodePool>::all(self.stage.client.clone());
        pools.patch(&self.example.node_pool, &PatchParams::default(), &Patch::Merge(&disruption)).await?;
        let night = scaled(self.example.objects(), "web", NIGHT)?;
        let deployments = night.into_iter().filter(|object| object["kind"] == "Deployment");
        apply::apply(self.stage.client, deployments).await?;
        self.until("one machine is left", ROLL_OUT_TIMEOUT, NIGHT as usize, |machines| {
            ensure!(machines.len() == 1, "{} machines are there", machines.len());
            Ok(())
        })
        .await?;
        let after = self.fleet().await?;
        screen.removed(&removed(self.stage.client, &before, &after).await?);
        Ok(())
    }

    async fn fleet(&self) -> Result<Fleet> {
        self.stage.fleet(&self.example.namespace, &self.example.node_pool).await
    }

    /// Those of EC2 that the NodePool's tag is on.
    fn machines(&self) -> Vec<Machine> {
        let mut machines = self.ec2.cloud.alive();
        machines.retain(|machine| machine.tags.get(api::labels::NODEPOOL) == Some(&self.example.node_pool));
        machines
    }

    /// Waits until EC2's machines are as they should be, nothing more is under way, and so many pods run.
    async fn until(
        &self,
        what: &str,
        timeout: Duration,
        pods: usize,
        is_so: impl Fn(&[Machine]) -> Result<()>,
    ) -> Result<()> {
        let started = Instant::now();
        let settled = eventually(what, timeout, async || {
            is_so(&self.machines())?;
            let fleet = self.fleet().await?;
            ensure!(fleet.is_settled(pods), "{} of {pods} pods are bound", fleet.bound());
            ensure!(!is_under_way(self.stage.client).await?, "machines are still to go");
            ensure!(fleet.ready_nodes() == fleet.claims(), "not all machines are ready");
            Ok(())
        });
        self.stage.screen.step(&format!("wait until {what}"), settled).await?;
        self.stage.screen.note(&format!("after {:.0} s", started.elapsed().as_secs_f64()));
        Ok(())
    }
}
