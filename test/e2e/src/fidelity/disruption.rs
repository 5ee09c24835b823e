//! Scenarios of disruption: a fleet stands, its pods and its NodePool change, and machines go and are replaced until
//! nothing is left to do. Everything that happens meanwhile is watched, by rules that are written down here once more
//! and share nothing with the controller's ([`observer`]):
//!
//! * no more machines go at a time than the NodePool's budgets allow for the reason;
//! * none goes whose pods are not to be disrupted, and no PodDisruptionBudget is hurt;
//! * none is deleted but by a command that says so, and before all its replacements are initialized.
//!
//! In the end every pod runs, no machine is marked, and a plan of the cluster as it is then has no command left. In a
//! third of the scenarios the controller is killed in the middle, and started again.

mod observer;
mod scenario;

use std::cell::Cell;
use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::{Client, ResourceExt};
use serde_json::Value;

pub use scenario::DisruptionScenario;

use self::observer::Observer;
use crate::cluster::{Cluster, Corner};
use crate::controller::Supervisor;
use crate::eventually;

/// For a step: machines that go one by one take a while.
const SETTLES_WITHIN: Duration = Duration::from_secs(300);
/// Nothing has come or gone for so long: more than a proposal waits before it is looked at again.
const QUIET: Duration = Duration::from_secs(20);
/// How long a plan that still wants something is not made again.
const BETWEEN_PLANS: Duration = Duration::from_secs(5);

/// How scenarios came out.
#[derive(Debug, Default)]
pub struct DisruptionOutcome {
    /// What was against the rules.
    pub faults: Vec<String>,
    /// Commands that were begun.
    pub commands: usize,
    /// Machines that went by commands.
    pub gone: usize,
    /// Pods that had a place on a replacement by the plan, and those that came there or had one of their workload come.
    pub planned: usize,
    /// See [`Self::planned`].
    pub as_planned: usize,
    /// Times that the controller was killed.
    pub kills: usize,
}

impl DisruptionOutcome {
    /// Adds another scenario's.
    pub fn add(&mut self, other: Self) {
        self.faults.extend(other.faults);
        self.commands += other.commands;
        self.gone += other.gone;
        self.planned += other.planned;
        self.as_planned += other.as_planned;
        self.kills += other.kills;
    }
}

impl fmt::Display for DisruptionOutcome {
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commands, gone, planned, as_planned, kills, .. } = self;
        let share = 100.0 * *as_planned as f64 / (*planned).max(1) as f64;
        write!(
            f,
            "{commands} commands took {gone} machines away; {as_planned} of {planned} pods came to the replacement \
             that was planned for them ({share:.1} %); the controller was killed {kills} times"
        )
    }
}

/// What scenarios share.
pub struct Stage<'a> {
    /// Where they are played.
    pub cluster: &'a Cluster,
    /// A client with all rights.
    pub client: &'a Client,
    /// The controller, which is started again when it is killed.
    pub controller: &'a Supervisor,
}

impl DisruptionScenario {
    /// Plays it in a corner of its own.
    ///
    /// # Errors
    /// If the fleet does not come to rest, with what it waited for; or the cluster does not answer.
    pub async fn play(&self, stage: &Stage<'_>) -> Result<DisruptionOutcome> {
        let corner = Corner::without_node_pool(stage.client.clone(), &self.name).await?;
        let observer = Observer::start(&corner, self.budgets());
        let played = self.play_out(stage, &corner, &observer).await;
        observer.abandon();
        corner.abandon().await.context("clean up")?;
        let mut outcome = observer.outcome();
        match played {
            Ok(kills) => outcome.kills = kills,
            Err(error) => outcome.faults.push(format!("{error:#}")),
        }
        corner.emptied().await.context("clean up")?;
        Ok(outcome)
    }

    async fn play_out(&self, stage: &Stage<'_>, corner: &Corner, observer: &Observer) -> Result<usize> {
        let mut state = self.begin();
        observer.expect(&state);
        corner.apply(state.objects()).await?;
        self.settles("the fleet", stage, corner, observer).await?;
        let mut kills = 0;
        for (number, step) in (1..).zip(&self.steps) {
            let removed = state.take(step);
            observer.expect(&state);
            corner.apply(state.objects()).await?;
            for object in removed {
                crate::apply::delete(&corner.client, &object).await?;
            }
            if let Some(after) = self.kill.filter(|kill| kill.step == number).map(|kill| kill.after) {
                tokio::time::sleep(after).await;
                stage.controller.kill().await?;
                kills += 1;
            }
            self.settles(&format!("step {number}, {step},"), stage, corner, observer).await?;
        }
        Ok(kills)
    }

    /// Waits until nothing happens any more and nothing is left to do.
    async fn settles(&self, what: &str, stage: &Stage<'_>, corner: &Corner, observer: &Observer) -> Result<()> {
        let planned_at: Cell<Option<Instant>> = Cell::new(None);
        eventually(&format!("{what} comes to rest"), SETTLES_WITHIN, async || {
            observer.is_at_rest(QUIET)?;
            let is_due = planned_at.get().is_none_or(|at| at.elapsed() >= BETWEEN_PLANS);
            ensure!(is_due, "the last plan had commands");
            for node in corner.nodes().await? {
                ensure!(!is_marked(&node), "{} is tainted", node.name_any());
            }
            planned_at.set(Some(Instant::now()));
            let left = commands_left(stage.cluster, corner).await?;
            ensure!(left.is_empty(), "a plan would {}", left.join(" and "));
            observer.is_at_rest(QUIET)
        })
        .await?;
        observer.count_places();
        Ok(())
    }
}

fn is_marked(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.into_iter().any(|taint| taint.key == "karpenter.sh/disrupted")
}

/// What `dovetail plan --disruption` would do to the corner's machines.
async fn commands_left(cluster: &Cluster, corner: &Corner) -> Result<Vec<String>> {
    let binary = cluster.controller()?.binary;
    let kubeconfig = cluster.control_plane.kubeconfig().to_owned();
    let plan = tokio::task::spawn_blocking(move || plan(binary, kubeconfig)).await??;
    let nodes: Vec<String> = corner.nodes().await?.iter().map(ResourceExt::name_any).collect();
    let commands = plan.get("commands").and_then(Value::as_array).context("a plan without commands")?;
    let of_corner = commands.iter().filter(|command| {
        let going = command.get("nodes").and_then(Value::as_array);
        going.into_iter().flatten().filter_map(Value::as_str).any(|name| nodes.iter().any(|node| node == name))
    });
    Ok(of_corner.map(|command| format!("take {} away for being {}", command["nodes"], command["reason"])).collect())
}

/// A plan of the cluster as it is.
fn plan(binary: PathBuf, kubeconfig: PathBuf) -> Result<Value> {
    let snapshot = Command::new(&binary).arg("snapshot").env("KUBECONFIG", kubeconfig).output()?;
    ensure!(snapshot.status.success(), "dovetail snapshot: {}", String::from_utf8_lossy(&snapshot.stderr).trim());
    let scratch = crate::scratch::Scratch::new("fidelity-plan")?;
    let file = scratch.path().join("cluster.jsonl");
    std::fs::write(&file, snapshot.stdout)?;
    let plan = Command::new(&binary).args(["plan", "--disruption", "-o", "json", "-f"]).arg(&file).output()?;
    ensure!(plan.status.success(), "dovetail plan: {}", String::from_utf8_lossy(&plan.stderr).trim());
    serde_json::from_slice(&plan.stdout).context("read the plan")
}
