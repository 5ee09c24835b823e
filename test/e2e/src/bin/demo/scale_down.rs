//! The shop closes for the night: most of its pods go, and what that leaves over goes by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::NodeClaim;
use e2e::fleet::{Fleet, Machine, dollars};
use e2e::{apply, eventually};
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::devices::dovetail;
use super::stage::Stage;
use super::{NAMESPACE, NODE_POOL, pods_wanted, scaled};

/// What is left of the Deployments at night.
const NIGHT: [(&str, u32); 4] = [("web", 6), ("api", 2), ("cache", 1), ("worker", 1)];
/// For rounds of commands: each waits for fifteen seconds, and for its replacements.
const TIMEOUT: Duration = Duration::from_secs(180);

/// What the shop came down to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Summary {
    pods: usize,
    wanted: usize,
    machines: (usize, usize),
    price: (i64, i64),
    is_settled: bool,
}

impl Summary {
    /// Whether all pods run and nothing more would go.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_settled && self.pods == self.wanted
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { pods, wanted, machines: (before, after), price: (dear, cheap), is_settled } = self;
        let end = if *is_settled { "" } else { ", and more would go" };
        write!(
            f,
            "scale-down: {pods} of {wanted} pods run; {before} machines for ${}/h became {after} for ${}/h, ${}/h saved{end}",
            dollars(*dear),
            dollars(*cheap),
            dollars(dear - cheap),
        )
    }
}

/// Scales the example down, waits until nothing more goes, and shows what went, why and what it saves.
pub(crate) async fn show(stage: &Stage<'_>, example: &[Value]) -> Result<Summary> {
    let Stage { screen, client, .. } = stage;
    let mut night = example.to_vec();
    for (name, replicas) in NIGHT {
        night = scaled(&night, name, replicas)?;
    }
    let wanted = pods_wanted(&night);
    screen.heading(&format!("the shop closes: kubectl scale deployment web --replicas=6 and so on, {wanted} pods"));
    let before = stage.fleet(NAMESPACE, NODE_POOL).await?;
    all_may_go(client).await?;
    apply::apply(client, night).await?;
    let started = Instant::now();
    let plan = screen.step("wait until nothing more goes", settled(stage, wanted)).await;
    let after = stage.fleet(NAMESPACE, NODE_POOL).await?;
    screen.note(&format!("after {:.0} s", started.elapsed().as_secs_f64()));
    let removed = removed(client, &before, &after).await?;
    screen.removed(&removed);
    let known: BTreeSet<String> = before.machine_names();
    screen.machines(&after, &known);
    match &plan {
        Ok(plan) => {
            screen.heading("dovetail snapshot | dovetail plan --disruption -f -: why the rest stays");
            screen.text(plan);
        }
        Err(why) => screen.note(&format!("{why:#}")),
    }
    Ok(Summary {
        pods: after.bound(),
        wanted,
        machines: (before.claims(), after.claims()),
        price: (before.price_nano_usd_per_hour(), after.price_nano_usd_per_hour()),
        is_settled: plan.is_ok(),
    })
}

/// The default budget is a tenth of the nodes at a time; nobody wants to watch that.
async fn all_may_go(client: &Client) -> Result<()> {
    let change = json!({ "spec": { "disruption": { "budgets": [{ "nodes": "100%" }] } } });
    let pools = Api::<api::NodePool>::all(client.clone());
    pools.patch(NODE_POOL, &PatchParams::default(), &Patch::Merge(&change)).await?;
    Ok(())
}

/// Waits until all pods run, no command is under way and a plan of the cluster as it is has none. Gives that plan.
async fn settled(stage: &Stage<'_>, wanted: usize) -> Result<String> {
    let Stage { client, options, .. } = stage;
    eventually("nothing more goes", TIMEOUT, async || {
        let fleet = stage.fleet(NAMESPACE, NODE_POOL).await?;
        ensure!(fleet.is_settled(wanted), "{} of {wanted} pods are bound", fleet.bound());
        ensure!(!is_under_way(client).await?, "a command is under way");
        let snapshot = dovetail(options, &["snapshot"], None)?;
        let plan =
            |output: &str| dovetail(options, &["plan", "--disruption", "-f", "-", "-o", output], Some(&snapshot));
        let told: Value = serde_json::from_str(&plan("json")?).context("a plan of disruption")?;
        let commands = told["commands"].as_array().map_or(0, Vec::len);
        ensure!(commands == 0, "{commands} commands are left");
        let soon = told["nodes"].as_array().into_iter().flatten().any(|node| node["reason"]["code"] == "NotQuiet");
        ensure!(!soon, "a machine has not been quiet for long enough");
        plan("table")
    })
    .await
}

/// Whether machines are to go, or are going.
pub(crate) async fn is_under_way(client: &Client) -> Result<bool> {
    let claims = Api::<NodeClaim>::all(client.clone()).list(&ListParams::default()).await?;
    let is_busy = |claim: &NodeClaim| {
        let annotations = claim.metadata.annotations.as_ref();
        let has_note = annotations.is_some_and(|it| it.contains_key(api::annotations::DISRUPTION_COMMAND));
        has_note || claim.metadata.deletion_timestamp.is_some()
    };
    Ok(claims.iter().any(is_busy))
}

/// A machine that went, and why.
pub(crate) struct Removed {
    pub(crate) machine: Machine,
    pub(crate) why: String,
}

/// The machines that are there no more, with the reasons that events gave.
pub(crate) async fn removed(client: &Client, before: &Fleet, after: &Fleet) -> Result<Vec<Removed>> {
    let events = Api::<Event>::all(client.clone()).list(&ListParams::default()).await?;
    let why: BTreeMap<String, String> = events
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some(api::events::DISRUPTION_TERMINATING))
        .filter_map(|event| {
            let message = event.message?;
            let (_, why) = message.rsplit_once(": ")?;
            Some((event.involved_object.name?, why.to_owned()))
        })
        .collect();
    let left = after.machine_names();
    let gone = before.machines().into_iter().filter(|machine| !left.contains(&machine.name));
    Ok(gone
        .map(|machine| Removed { why: why.get(&machine.name).cloned().unwrap_or_else(|| "-".to_owned()), machine })
        .collect())
}
