//! Scenarios of devices: overlays say what drivers will publish, pods claim it from an empty cluster, and the real
//! kube-scheduler allocates. All must go as planned: pods as in every scenario, and each claim
//!
//! * allocated on the machine that its pod was planned on, or on one of its class's;
//! * with devices of the drivers and shapes, and with the node selector, that the planner's allocator gives such a claim
//!   there when the pods come in the order in which they came, or in some order of their classes.

mod claims;
mod driver;
mod scenario;

use anyhow::Result;
use kube::Client;

pub use scenario::DeviceScenario;

use self::driver::Order;
use super::Outcome;
use crate::cluster::Corner;
use crate::{Controller, Gates, apply, objects};

/// How the claims of scenarios came out.
#[derive(Debug, Default)]
pub struct DeviceOutcome {
    /// How their pods did; what is wrong with claims is among its faults.
    pub pods: Outcome,
    /// Claims that are allocated.
    pub claims: usize,
    /// Of these, those that another order of the classes gives.
    pub in_another_order: usize,
}

impl DeviceOutcome {
    /// Adds another scenario's.
    pub fn add(&mut self, other: Self) {
        self.pods.add(other.pods);
        self.claims += other.claims;
        self.in_another_order += other.in_another_order;
    }
}

impl std::fmt::Display for DeviceOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { pods, claims, in_another_order } = self;
        write!(f, "{pods}\n{claims} claims allocated, {in_another_order} of them as in another order of the classes")
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
        let judged = claims::judge(corner, gates, order).await?;
        pods.wrong.extend(judged.wrong);
        Ok(DeviceOutcome { pods, claims: judged.claims, in_another_order: judged.in_another_order })
    }
}
