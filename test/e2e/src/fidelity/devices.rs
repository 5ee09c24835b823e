//! Scenarios of devices: overlays say what drivers will publish, pods claim it from an empty cluster, and the real
//! kube-scheduler allocates. All must go as planned: pods as in every scenario, and each claim
//!
//! * allocated on the machine that its pod was planned on, or on one of its class's;
//! * with devices of the drivers and shapes, and with the node selector, that the planner's allocator gives such a
//!   claim there when the pods come in the order in which they came, or in some order of their classes; DaemonSets'
//!   pods, whose nodes others decide, among them. Or out of what was published when each came: a claim with
//!   alternatives that finds only some of its zone's pools does not wait for the others.

mod claims;
mod driver;
mod ec2;
mod scenario;

use anyhow::{Result, ensure};
use kube::{Client, ResourceExt};

pub use scenario::DeviceScenario;

use self::claims::{ByDriver, Judged};
use self::driver::Order;
use super::{CLASS, Outcome, is_unschedulable};
use crate::cluster::{Corner, DEADLINE, node_of};
use crate::{Controller, Gates, apply, eventually, objects};

/// The DaemonSet with claims, and the label `app` of its pods.
const AGENT: &str = "agent";

/// How the claims of scenarios came out.
#[derive(Debug, Default)]
pub struct DeviceOutcome {
    /// How their pods did; what is wrong with claims is among its faults.
    pub pods: Outcome,
    /// Claims that are allocated.
    pub claims: usize,
    /// Of these, those of scenarios that only another order of the classes explains.
    pub in_another_order: usize,
    /// Those of scenarios that only what was published at the time explains.
    pub as_published: usize,
    /// Drivers of which scenarios claim devices.
    pub drivers: usize,
    /// Drivers of which claims were given more or fewer devices than the plan says, in words: a claim with alternatives
    /// that came sooner or later than planned took another, or the planned devices are others'.
    pub other_devices: Vec<String>,
}

impl DeviceOutcome {
    /// Adds another scenario's.
    pub fn add(&mut self, other: Self) {
        self.pods.add(other.pods);
        self.claims += other.claims;
        self.in_another_order += other.in_another_order;
        self.as_published += other.as_published;
        self.drivers += other.drivers;
        self.other_devices.extend(other.other_devices);
    }
}

impl std::fmt::Display for DeviceOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { pods, claims, in_another_order, as_published, drivers, other_devices } = self;
        write!(
            f,
            "{pods}\n{claims} claims allocated, {in_another_order} of them as in another order of the classes, {as_published} \
             as of what was published when each pod came; of {} of {drivers} drivers as many devices as planned",
            drivers - other_devices.len()
        )
    }
}

impl DeviceScenario {
    /// Plays it, and says how it came out.
    ///
    /// # Errors
    /// If a pod is neither bound nor refused in time, or the cluster does not answer.
    pub async fn play(&self, client: &Client, controller: &Controller, gates: Gates) -> Result<DeviceOutcome> {
        let corner = Corner::without_node_pool(client.clone(), &self.base.name).await?;
        let order = Order::default();
        let outcome = tokio::select! {
            outcome = self.play_in(&corner, controller, gates, &order) => outcome,
            ended = driver::make_ready(client.clone(), &self.base.name, &order) => ended.map(|never| match never {}),
        };
        corner.abandon().await?;
        // Nodes that are on their way out are domains still, and a plan that counts them refuses what it would not
        // later.
        corner.emptied().await?;
        for object in self.objects.iter().filter(|object| object["metadata"]["namespace"].is_null()) {
            apply::delete(client, object).await?;
        }
        outcome
    }

    async fn play_in(
        &self,
        corner: &Corner,
        controller: &Controller,
        gates: Gates,
        order: &Order,
    ) -> Result<DeviceOutcome> {
        let admins = serde_json::json!({ "metadata": { "labels": { "resource.kubernetes.io/admin-access": "true" } } });
        corner.apply([objects::with(objects::namespace(&self.base.name), admins)]).await?;
        corner.apply(self.objects.clone()).await?;
        let before = planned_devices(controller)?;
        let mut pods = self.base.play(corner, controller).await?;
        let mut planned = planned_devices(controller)?;
        planned.retain(|driver, count| {
            *count -= before.get(driver).copied().unwrap_or(0).min(*count);
            *count > 0
        });
        if self.base.agent.is_some() {
            agents_are_settled(corner).await?;
        }
        let judged = claims::judge(corner, gates, order, &planned).await?;
        pods.wrong.extend(judged.wrong.iter().cloned());
        let Judged { claims, in_another_order, as_published, drivers, other_devices, .. } = judged;
        Ok(DeviceOutcome { pods, claims, in_another_order, as_published, drivers, other_devices })
    }
}

/// How many devices of each driver all plans so far gave to pods of machines that were launched.
fn planned_devices(controller: &Controller) -> Result<ByDriver> {
    let metrics = controller.metrics()?;
    let of_metric = metrics.lines().filter_map(|line| line.strip_prefix("dovetail_devices_planned_total{driver=\""));
    let entries = of_metric.filter_map(|rest| {
        let (driver, value) = rest.split_once("\"} ")?;
        Some((driver.to_owned(), value.parse().ok()?))
    });
    Ok(entries.collect())
}

/// Waits until each node has its daemon's pod, and the scheduler has bound it or given up on it.
async fn agents_are_settled(corner: &Corner) -> Result<()> {
    eventually("daemons are bound or wait for devices", DEADLINE, async || {
        let nodes = corner.nodes().await?.len();
        let mut agents = corner.pods().await?;
        agents.retain(|pod| !pod.labels().contains_key(CLASS));
        let settled = agents.iter().filter(|pod| node_of(pod).is_some() || is_unschedulable(pod)).count();
        ensure!(settled == nodes, "{settled} of {} pods, on {nodes} nodes", agents.len());
        Ok(())
    })
    .await
}
