//! Scenarios of devices: overlays say what drivers will publish, pods claim it from an empty cluster, and the real
//! kube-scheduler allocates. All must go as planned: pods as in every scenario, and each claim
//!
//! * allocated on the machine that its pod was planned on, or on one of its class's;
//! * with devices of the drivers and shapes, and with the node selector, that the planner's allocator gives such a
//!   claim there when the pods come in the order in which they came, or in some order of their classes; DaemonSets'
//!   pods, whose nodes others decide, among them. Or out of what was published when each came: a claim with
//!   alternatives that finds only some of its zone's pools does not wait for the others.
//!
//! Around them, quotas may keep pods out ([`quota`]), a claim may have nearly as many consumers as it can ([`crowd`]),
//! and other pods may wait for devices of a node that are to come back ([`annex`]).

mod annex;
mod claims;
mod crowd;
mod driver;
mod ec2;
mod quota;
mod scenario;

use anyhow::{Result, ensure};
use kube::{Client, ResourceExt};

pub(in crate::fidelity) use quota::kept_out;
pub use scenario::DeviceScenario;

use self::claims::{ByDriver, Judged};
use self::driver::Order;
use super::{Outcome, is_unschedulable};
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
    /// Pods that quotas kept out.
    pub kept_out: usize,
    /// Scenarios with a claim that nearly as many pods use as may.
    pub crowds: usize,
    /// Scenarios in which pods waited for devices of a node.
    pub annexes: usize,
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
        self.kept_out += other.kept_out;
        self.crowds += other.crowds;
        self.annexes += other.annexes;
    }
}

impl std::fmt::Display for DeviceOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { pods, claims, in_another_order, as_published, drivers, other_devices, .. } = self;
        write!(
            f,
            "{pods}\n{claims} claims allocated, {in_another_order} of them as in another order of the classes, {as_published} \
             as of what was published when each pod came; of {} of {drivers} drivers as many devices as planned\n\
             {} pods kept out by quotas; {} scenarios with a claim of about 256 consumers, {} with pods that waited for \
             devices of a node",
            drivers - other_devices.len(),
            self.kept_out,
            self.crowds,
            self.annexes,
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
        if let Some(annex) = &self.annex {
            annex.clear(&corner).await?;
        }
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
        if let Some(crowd) = &self.crowd {
            crowd.gather(corner).await?;
        }
        if let Some(annex) = &self.annex {
            annex.begin(corner).await?;
        }
        if let Some(quota) = &self.quota {
            quota.set(corner).await?;
        }
        let before = planned_devices(controller)?;
        let mut pods = self.base.play(corner, controller).await?;
        let mut planned = planned_devices(controller)?;
        planned.retain(|driver, count| {
            *count -= before.get(driver).copied().unwrap_or(0).min(*count);
            *count > 0
        });
        if self.base.agent.is_some() {
            self.agents_are_settled(corner).await?;
        }
        let judged = claims::judge(corner, gates, order, &planned).await?;
        pods.wrong.extend(judged.wrong.iter().cloned());
        let kept_out = kept_out(corner).await?.len();
        let expected = self.quota.as_ref().map_or(0, |quota| quota.kept_out);
        if kept_out != expected {
            let counted = quota::counted(corner).await?;
            pods.wrong.push(format!("{}: quotas kept {kept_out} pods out, not {expected}; {counted}", self.base.name));
        }
        if let Some(annex) = &self.annex {
            pods.wrong.extend(annex.end(corner).await?);
        }
        let (crowds, annexes) = (usize::from(self.crowd.is_some()), usize::from(self.annex.is_some()));
        let Judged { claims, in_another_order, as_published, drivers, other_devices, .. } = judged;
        Ok(DeviceOutcome {
            pods,
            claims,
            in_another_order,
            as_published,
            drivers,
            other_devices,
            kept_out,
            crowds,
            annexes,
        })
    }

    /// Waits until each machine has its daemon's pod, and the scheduler has bound it or given up on it.
    async fn agents_are_settled(&self, corner: &Corner) -> Result<()> {
        eventually("daemons are bound or wait for devices", DEADLINE, async || {
            let mut nodes = corner.nodes().await?;
            nodes.retain(|node| !self.annex.as_ref().is_some_and(|annex| annex.is_it(node)));
            let nodes = nodes.len();
            let mut agents = corner.pods().await?;
            agents.retain(|pod| pod.labels().get("app").is_some_and(|app| app == AGENT));
            let settled = agents.iter().filter(|pod| node_of(pod).is_some() || is_unschedulable(pod)).count();
            ensure!(settled == nodes, "{settled} of {} pods, on {nodes} nodes", agents.len());
            Ok(())
        })
        .await
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
