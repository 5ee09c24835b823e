//! The controller dies at a step of launch, hand-over or termination, and another goes on where it stopped.
//!
//! What was begun is finished and not begun anew: the NodeClaims that were there at the death are there in the end,
//! each with the one machine that was launched for it, and there are as many of them as there would have been without
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::audit::{History, nothing_is_leaked};
use crate::cluster::{Cluster, Corner, DEADLINE, node_of};
use crate::{Controller, controller, eventually, install, objects};

const SIGABRT: i32 = 6;
/// Pods that need a machine each, so that each step is taken more than five times.
const LARGE: u32 = 6;
/// Pods that fit beside one of those. One that took a large one's place would leave it without, so they are handed
/// over.
const SMALL: u32 = 6;
/// The one step that is taken only where pods are not given tolerations.
const NOMINATION: &str = "hand-over.before-nomination";
/// How failpoints of what happens after NodeClaims are deleted begin.
const TERMINATION: &str = "terminate.";
/// How failpoints begin that launches and terminations do not reach: their own tests die there.
const OF_OTHERS: [&str; 5] = ["devices.", "disruption.", "reboot.", "repair.", "static-capacity."];
/// Longer than a Lease that nobody renews lasts.
const TAKE_OVER: Duration = DEADLINE;

/// Who goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Successor {
    /// That controller, started again; nobody is elected.
    Restart,
    /// One that waited until the dead one's Lease ran out.
    Standby,
}

/// A death.
#[derive(Clone, Debug)]
pub struct Crash {
    /// At which step.
    pub failpoint: String,
    /// The how manieth time that it is reached.
    pub hit: u32,
    /// Who goes on.
    pub successor: Successor,
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.successor {
            Successor::Restart => "restarted",
            Successor::Standby => "with a standby",
        };
        write!(f, "{}@{}, {by}", self.failpoint, self.hit)
    }
}

impl Crash {
    fn is_of_termination(&self) -> bool {
        self.failpoint.starts_with(TERMINATION)
    }

    /// None where they are evicted: whether they then get a machine before the large ones are evicted is chance.
    fn small(&self) -> u32 {
        if self.is_of_termination() { 0 } else { SMALL }
    }

    fn pods(&self) -> usize {
        (LARGE + self.small()) as usize
    }
}

/// The names in `failpoints::hit("…")` all over the sources, so that none is forgotten, but for those that have
/// tests of their own.
///
/// # Errors
/// If the sources cannot be read.
pub fn failpoints() -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    collect(&go_programs::repository().join("crates"), &mut names)?;
    names.retain(|name| OF_OTHERS.iter().all(|start| !name.starts_with(start)));
    Ok(names)
}

fn collect(folder: &Path, names: &mut BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, names)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            let calls = text.split("failpoints::hit(\"").skip(1);
            names.extend(calls.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        }
    }
    Ok(())
}

/// A cluster in which controllers die, one after the other.
pub struct Stage {
    cluster: Cluster,
    client: Client,
    history: History,
}

impl Stage {
    /// Boots it.
    ///
    /// # Errors
    /// If it does not come up.
    pub async fn new(name: &str) -> Result<Self> {
        let cluster = Cluster::new(name).await?;
        let client = cluster.client().await?;
        let history = History::start(&client);
        Ok(Self { cluster, client, history })
    }

    /// Plays one death, and leaves nothing behind.
    ///
    /// # Errors
    /// If the controller did not die there, or the next one did not finish, or began anew, what was begun.
    pub async fn survives(&self, crash: &Crash) -> Result<()> {
        let name = format!("{}-{}", name_of(&crash.failpoint), crash.hit);
        let name = match crash.successor {
            Successor::Restart => name,
            Successor::Standby => format!("{name}-standby"),
        };
        let corner = Corner::without_node_pool(self.client.clone(), &name).await?;
        let options = self.options(crash, &name)?;
        let (doomed, standby) = self.start(crash, &options).await?;
        corner.apply(workload(&name, LARGE, crash.small())).await?;
        // A plan for some small pods and no large ones would need one machine more.
        corner.tried(crash.pods()).await?;
        corner.node_pool(two_cpus()).await?;
        if crash.is_of_termination() {
            corner.bound(crash.pods()).await?;
            corner.delete_claims().await?;
        }
        let status = doomed.ended(DEADLINE).await.context("the failpoint was not hit")?;
        if status.signal() != Some(SIGABRT) || !doomed.log()?.contains(&format!("failpoint {}", crash.failpoint)) {
            bail!("it did not end by its failpoint, but with {status}:\n{}", doomed.log()?);
        }
        let at_death = self.machines(&corner).await?;

        let next = match standby {
            Some(standby) => standby,
            None => Controller::start_ready(&options).await?,
        };
        if crash.is_of_termination() {
            self.are_replaced(&corner).await?;
        }
        self.all_are_bound(crash, &corner).await?;
        nothing_is_leaked(&self.client).await?;
        self.history.nothing_was_launched_twice(&self.client).await?;
        if !crash.is_of_termination() {
            self.are_adopted(&corner, &at_death).await?;
        }

        corner.apply(workload(&name, 0, 0)).await?;
        corner.cleared().await?;
        nothing_is_leaked(&self.client).await?;
        next.terminate().await.map(drop)
    }

    /// The controller that will die, and the one that waits for it, if there is one.
    async fn start(&self, crash: &Crash, options: &controller::Options) -> Result<(Controller, Option<Controller>)> {
        let doomed = options.clone().named(&format!("{}-doomed", options.name));
        let doomed = doomed.env("DOVETAIL_FAILPOINTS", &format!("{}=abort@{}", crash.failpoint, crash.hit));
        let doomed = Controller::start(&doomed)?;
        if crash.successor == Successor::Restart {
            return Ok((doomed, None));
        }
        eventually("it leads", TAKE_OVER, async || {
            ensure!(holder(&self.client).await?.is_some(), "nobody does");
            Ok(())
        })
        .await?;
        Ok((doomed, Some(Controller::start(options)?)))
    }

    async fn all_are_bound(&self, crash: &Crash, corner: &Corner) -> Result<()> {
        let deadline = match crash.successor {
            Successor::Restart => DEADLINE,
            Successor::Standby => TAKE_OVER + DEADLINE,
        };
        eventually("the successor has bound all pods", deadline, async || {
            let pods = corner.pods().await?;
            let bound = pods.iter().filter(|pod| node_of(pod).is_some()).count();
            ensure!(pods.len() == crash.pods() && bound == pods.len(), "{bound} of {} pods are bound", pods.len());
            Ok(())
        })
        .await
    }

    fn options(&self, crash: &Crash, name: &str) -> Result<controller::Options> {
        let options = match crash.successor {
            // No Lease: a dead holder's would have to run out each time.
            Successor::Restart => self.cluster.controller()?,
            Successor::Standby => self.cluster.candidate()?,
        };
        Ok(options
            .named(name)
            .env("BATCH_IDLE_DURATION", "100ms")
            .env("HAND_OVER", if crash.failpoint == NOMINATION { "nominate" } else { "tolerate" }))
    }

    /// Of each NodeClaim, by UID: its machine, if it says which it has.
    async fn machines(&self, corner: &Corner) -> Result<BTreeMap<String, Option<String>>> {
        let claims = corner.node_claims().await?.into_iter();
        let machine = |claim: &api::NodeClaim| {
            let id = claim.status.as_ref().map(|status| status.provider_id.clone());
            id.filter(|id| !id.is_empty())
        };
        Ok(claims.map(|claim| (claim.uid().unwrap_or_default(), machine(&claim))).collect())
    }

    /// The NodeClaims of the death are there with their machines, and with the rest of the plan, and nothing more.
    async fn are_adopted(&self, corner: &Corner, at_death: &BTreeMap<String, Option<String>>) -> Result<()> {
        let now = self.machines(corner).await?;
        for (claim, machine) in at_death {
            let kept = now.get(claim).with_context(|| format!("NodeClaim {claim} of the dead one is gone"))?;
            ensure!(machine.is_none() || machine == kept, "NodeClaim {claim} had {machine:?} and has {kept:?}");
        }
        let (now, ever) = (now.len(), self.history.claims_of(&corner.name).len());
        let planned = LARGE as usize;
        // A nomination is a wish: while machines open one after the other, a pod may take another one's place, which is
        // then planned again.
        let is_exact = now == planned || corner.name.starts_with(&name_of(NOMINATION)) && now > planned;
        ensure!(
            is_exact && ever == now,
            "{now} NodeClaims, {ever} ever, for {planned} pods that need one each; {} at the death",
            at_death.len()
        );
        Ok(())
    }

    /// Waits until each deleted NodeClaim is gone and has one in its place: until then their pods may still be bound
    /// there.
    async fn are_replaced(&self, corner: &Corner) -> Result<()> {
        let (each, both) = (LARGE as usize, 2 * LARGE as usize);
        eventually("NodeClaims are replaced", DEADLINE, async || {
            let (now, ever) = (self.machines(corner).await?.len(), self.history.claims_of(&corner.name).len());
            ensure!(now == each && ever == both, "{now} NodeClaims and {ever} ever; {each} were to be replaced");
            Ok(())
        })
        .await
    }
}

/// As a part of an object's name.
fn name_of(failpoint: &str) -> String {
    failpoint.replace(['.', '_'], "-")
}

/// A NodePool of one size of machine.
fn two_cpus() -> Value {
    let size = json!([{ "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["2"] }]);
    json!({ "spec": { "template": { "spec": { "requirements": size } } } })
}

fn workload(test: &str, large: u32, small: u32) -> [Value; 2] {
    [
        objects::deployment(test, "large", large, &json!({ "cpu": "1200m" })),
        objects::deployment(test, "small", small, &json!({ "cpu": "400m" })),
    ]
}

/// Who leads, if anybody does.
///
/// # Errors
/// If the API server does not say.
pub async fn holder(client: &Client) -> Result<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), install::NAMESPACE);
    let named = ListParams::default().fields("metadata.name=karpenter-leader-election");
    let lease = leases.list(&named).await?.items.pop();
    Ok(lease.and_then(|lease| lease.spec?.holder_identity).filter(|holder| !holder.is_empty()))
}
