//! Scenarios of devices: overlays say what drivers will publish, pods claim it from an empty cluster, and the real
//! kube-scheduler allocates. All must go as planned: pods as in every scenario, and each claim
//!
//! * allocated on the machine that its pod was planned on, or on one of its class's;
//! * with devices of the drivers and shapes, and with the node selector, that the planner's allocator gives such a claim
//!   there when the pods come in the order in which they came, or in some order of their classes; DaemonSets' pods, whose
//!   nodes others decide, among them. Or out of what was published when each came: a claim with alternatives that finds
//!   only some of its zone's pools does not wait for the others.

mod claims;
mod driver;
mod scenario;

use anyhow::{Result, ensure};
use kube::{Client, ResourceExt};

pub use scenario::DeviceScenario;

use self::claims::Judged;
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
}

impl DeviceOutcome {
    /// Adds another scenario's.
    pub fn add(&mut self, other: Self) {
        self.pods.add(other.pods);
        self.claims += other.claims;
        self.in_another_order += other.in_another_order;
        self.as_published += other.as_published;
    }
}

impl std::fmt::Display for DeviceOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { pods, claims, in_another_order, as_published } = self;
        write!(
            f,
            "{pods}\n{claims} claims allocated, {in_another_order} of them as in another order of the classes, {as_published} \
             as of what was published when each pod came"
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
        let mut pods = self.base.play(corner, controller).await?;
        if self.base.agent.is_some() {
            agents_are_settled(corner).await?;
        }
        let judged = claims::judge(corner, gates, order).await?;
        pods.wrong.extend(judged.wrong.iter().cloned());
        let Judged { claims, in_another_order, as_published, .. } = judged;
        Ok(DeviceOutcome { pods, claims, in_another_order, as_published })
    }
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
