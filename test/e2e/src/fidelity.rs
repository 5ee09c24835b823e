//! What was planned is what happens: seeded random scenarios go from plan to machines to the real kube-scheduler.
//!
//! The controller writes onto each NodeClaim which pods it was planned for. In the end each machine must hold exactly
//! those pods, or pods of their classes; there must be no second plan, and no machine without pods; and a pod that the
//! plan refused must wait still, when all machines are open and kube-scheduler has tried it there ([`Outcome`]).
//!
//! A scenario may have machines with pods before: they are launched in a first step that is not judged, the NodePool is
//! closed by its limits, some of its pods are being resized, the pods in question come and take what room the scheduler
//! finds; what is left waits, and is planned at once when the limits are lifted.

mod devices;
mod disruption;
mod outcome;
mod reading;
mod resizes;
mod scenario;
mod volumes;

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

pub use devices::{DeviceOutcome, DeviceScenario};
pub use disruption::{DisruptionOutcome, DisruptionScenario, Stage};
pub use outcome::Outcome;
pub use scenario::{Scenario, surroundings};
pub use volumes::{Provisioner, catalogue, storage};

use self::reading::{FirstNotes, Reading};
use crate::cluster::{Cluster, Corner, DEADLINE, node_of, scheduled};
use crate::{Controller, apply, controller, eventually, objects};

/// The label that tells classes of pods apart.
const CLASS: &str = "class";

/// How values of the label `app` begin for pods that are there before.
const BEFORE: &str = "old-";

/// How long nothing must happen for all to be over: kube-scheduler of the test plane leaves a pod that it has a reason
/// to try again for two seconds at most.
const QUIET: Duration = Duration::from_secs(3);

/// What the controller logs when it has created NodeClaims.
const LAUNCHED: &str = "computed new nodeclaim(s)";

/// Makes a cluster ready for scenarios, and says how to run the controller there.
///
/// # Errors
/// If the server refuses an object, or the catalogue cannot be written.
pub async fn prepare(cluster: &Cluster, client: &Client) -> Result<controller::Options> {
    apply::apply(client, surroundings()).await?;
    apply::apply(client, storage()).await?;
    let types = cluster.control_plane.folder().join("instance-types.json");
    std::fs::write(&types, catalogue()?)?;
    // Pods that come while machines do are another plan's; here there is to be one.
    let options = cluster.controller()?.env("BATCH_IDLE_DURATION", "1s");
    Ok(options.env("INSTANCE_TYPES_FILE_PATH", &types.to_string_lossy()))
}

impl Scenario {
    /// Plays it in a corner of its own, and says how it came out.
    ///
    /// # Errors
    /// If a pod that was planned is not bound in time, with all that are not where they were planned; or the cluster
    /// does not answer.
    pub async fn play(&self, corner: &Corner, controller: &Controller) -> Result<Outcome> {
        let played = self.play_out(corner, controller).await;
        let Err(error) = played else { return played };
        let displaced = match Reading::read(corner, &[], None, &FirstNotes::default()).await {
            Ok(reading) => reading.displaced().join("\n  "),
            Err(error) => format!("what there is cannot be read: {error:#}"),
        };
        Err(error.context(format!("{}; not where they were planned:\n  {displaced}\n", self.name)))
    }

    async fn play_out(&self, corner: &Corner, controller: &Controller) -> Result<Outcome> {
        corner.apply(self.agent.clone()).await?;
        self.run_before(corner).await?;
        for resized in &self.resizes {
            resized.play(corner).await?;
        }
        corner.apply(self.volumes.clone()).await?;
        volumes::are_bound(corner).await?;
        let before: Vec<String> = corner.all_node_claims().await?.iter().map(ResourceExt::name_any).collect();
        self.create(corner, &self.pods).await?;
        eventually("the scheduler has bound or given up on every pod", DEADLINE, async || {
            let pods = self.judged(corner).await?;
            let kept_out = devices::kept_out(corner).await?;
            let is_settled =
                |pod: &&Pod| node_of(pod).is_some() || is_unschedulable(pod) || kept_out.contains_key(&pod.name_any());
            let settled = pods.iter().filter(is_settled).count();
            ensure!(settled == self.pods.len(), "{settled} of {}", self.pods.len());
            Ok(())
        })
        .await?;
        let pods = self.judged(corner).await?;
        let waiting: Vec<String> =
            pods.iter().filter(|pod| node_of(pod).is_none()).filter_map(ResourceExt::uid).collect();
        let plans = launches(controller)?;
        if self.node_pools.len() > 1 {
            self.are_planned_in_vain(corner).await?;
        }
        corner.apply(self.node_pools.clone()).await?;
        let notes = FirstNotes::default();
        let read = async || Reading::read(corner, &before, Some(&waiting), &notes).await;
        eventually("every pod is bound or refused", DEADLINE, async || {
            let reading = read().await?;
            let open: Vec<&str> = reading.open().map(|pod| &*pod.name).collect();
            ensure!(open.is_empty(), "{open:?} of {} wait", reading.pods.len());
            Ok(())
        })
        .await?;
        if read().await?.pods.iter().any(|pod| pod.node.is_none()) {
            self.is_over(corner).await?;
        }
        let mut outcome = read().await?.judge();
        volumes::abandon(corner).await?;
        let plans = launches(controller)? - plans;
        // Of pods that a plan ran out of budget for, each may be planned once others are there.
        if plans > 1 + outcome.undecided.len() {
            outcome.stray.push(format!("{}: NodeClaims were created in {plans} rounds", self.name));
        }
        Ok(outcome)
    }

    /// Waits until every machine is open and kube-scheduler has had the time to try whoever waits once more.
    async fn is_over(&self, corner: &Corner) -> Result<()> {
        eventually("all machines are open", 2 * DEADLINE, async || {
            let held = corner.nodes().await?.iter().filter(|node| is_held(node)).count();
            ensure!(held == 0, "{held} are held");
            Ok(())
        })
        .await?;
        let bound = async || anyhow::Ok(self.judged(corner).await?.iter().filter(|pod| node_of(pod).is_some()).count());
        let (seen, since) = (Cell::new(bound().await?), Cell::new(Instant::now()));
        eventually("no pod is bound any more", DEADLINE, async || {
            let now = bound().await?;
            if seen.replace(now) != now {
                since.set(Instant::now());
            }
            let quiet = since.get().elapsed();
            ensure!(quiet >= QUIET, "the last was {} ms ago", quiet.as_millis());
            Ok(())
        })
        .await
    }

    /// Machines that are there already: pods are placed, and every other one goes again.
    async fn run_before(&self, corner: &Corner) -> Result<()> {
        if self.before.is_empty() {
            return Ok(());
        }
        self.create(corner, &self.before).await?;
        corner.apply(self.node_pools.clone()).await?;
        self.are_bound_before(corner, self.before.len()).await?;
        let closed = self
            .node_pools
            .iter()
            .map(|pool| objects::with(pool.clone(), json!({ "spec": { "limits": { "nodes": "0" } } })));
        corner.apply(closed).await?;
        let api: Api<Pod> = Api::namespaced(corner.client.clone(), &corner.name);
        for pod in self.before.iter().step_by(2) {
            let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            api.delete(name, &DeleteParams::default()).await?;
        }
        self.are_bound_before(corner, self.before.len() / 2).await
    }

    /// Waits until there are so many of the pods that are there before, each bound.
    async fn are_bound_before(&self, corner: &Corner, count: usize) -> Result<()> {
        eventually(&format!("{count} pods of {} are bound before", self.name), DEADLINE, async || {
            let mut pods = corner.pods().await?;
            pods.retain(|pod| pod.labels().get("app").is_some_and(|app| app.starts_with(BEFORE)));
            let waiting = pods.iter().filter(|pod| node_of(pod).is_none()).count();
            ensure!(pods.len() == count && waiting == 0, "{} pods, {waiting} of them wait", pods.len());
            // A machine that is closed still would take whoever comes first once it opens.
            let closed = corner.nodes().await?.iter().filter(|node| is_held(node)).count();
            ensure!(closed == 0, "{closed} machines are closed still");
            Ok(())
        })
        .await
    }

    /// Waits until every pod that waits was planned while nothing can be launched: a plan that is due would see some of
    /// the NodePools as they are to be, and others as they were.
    async fn are_planned_in_vain(&self, corner: &Corner) -> Result<()> {
        eventually(&format!("what waits of {} is planned in vain", self.name), DEADLINE, async || {
            let planned = reading::planned_in_vain(corner).await?;
            let mut pods = self.judged(corner).await?;
            pods.retain(|pod| node_of(pod).is_none() && !planned.contains(&pod.name_any()));
            ensure!(pods.is_empty(), "{} were not, of them {}", pods.len(), pods[0].name_any());
            Ok(())
        })
        .await
    }

    async fn create(&self, corner: &Corner, pods: &[Value]) -> Result<()> {
        let api: Api<Pod> = Api::namespaced(corner.client.clone(), &self.name);
        stream::iter(pods)
            .map(|pod| async {
                let pod = serde_json::from_value(pod.clone())?;
                anyhow::Ok(api.create(&PostParams::default(), &pod).await.map(drop)?)
            })
            .buffer_unordered(16)
            .try_collect()
            .await
    }

    /// The pods in question: not the agents', nor those that were there before.
    pub async fn judged(&self, corner: &Corner) -> Result<Vec<Pod>> {
        Ok(corner.pods().await?.into_iter().filter(|pod| pod.labels().contains_key(CLASS)).collect())
    }
}

/// In how many rounds NodeClaims have been created so far.
fn launches(controller: &Controller) -> Result<usize> {
    Ok(controller.log()?.lines().filter(|line| line.contains(LAUNCHED)).count())
}

fn is_held(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == api::taints::HELD)
}

/// Whether kube-scheduler has found no place for a pod. Of a group 1.37 may say so by an error of what comes after.
fn is_unschedulable(pod: &Pod) -> bool {
    scheduled(pod).is_some_and(|condition| match condition.reason.as_deref() {
        Some("Unschedulable") => true,
        Some("SchedulerError") => condition.message.as_deref().is_some_and(|it| it.contains("PodGroupPostFilter")),
        _ => false,
    })
}
