//! Watches a scenario's machines and pods, and notes what is against the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use api::NodeClaim;
use api::conditions::node_claim::{INITIALIZED, INSTANCE_TERMINATING};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use serde::Deserialize;
use tokio::task::JoinSet;

use super::DisruptionOutcome;
use super::scenario::{App, Budget, State};
use crate::cluster::{Corner, node_of};
use crate::following::follow;
use crate::objects;

pub(super) const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
const NOTE: &str = "dovetail.sh/disruption-command";
/// What changed within that time may have been looked at as it was before.
const GRACE: Duration = Duration::from_secs(5);

/// What a command says of itself, on each machine that takes part.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    id: String,
    reason: String,
    node_claims: BTreeSet<String>,
    replacements: usize,
}

pub(super) struct Observer {
    seen: Arc<Mutex<Seen>>,
    _watching: JoinSet<()>,
}

impl Observer {
    /// Of a corner whose NodePool will have these budgets.
    pub(super) fn start(corner: &Corner, budgets: Vec<Budget>) -> Self {
        let seen = Arc::new(Mutex::new(Seen::new(budgets)));
        let mut watching = JoinSet::new();
        let of_corner = watcher::Config::default().labels(&format!("{}={}", objects::TEST_KEY, corner.name));
        let (claims, of_claims) = (Api::<NodeClaim>::all(corner.client.clone()), Arc::clone(&seen));
        watching.spawn(follow(claims, of_corner, move |claim, is_there| lock(&of_claims).claim(claim, is_there)));
        let (pods, of_pods) = (Api::<Pod>::namespaced(corner.client.clone(), &corner.name), Arc::clone(&seen));
        watching.spawn(follow(pods, watcher::Config::default(), move |pod, is_there| {
            lock(&of_pods).pod(&pod, is_there);
        }));
        Self { seen, _watching: watching }
    }

    /// What is to be in the cluster from now on.
    pub(super) fn expect(&self, state: &State<'_>) {
        let mut seen = lock(&self.seen);
        seen.budgets.push((Instant::now(), state.budgets.clone()));
        seen.apps.clone_from(&state.apps);
        seen.whole.clear();
        seen.last_change = Instant::now();
    }

    /// Whether every pod runs, no machine is going, and none came or went for a while.
    pub(super) fn is_at_rest(&self, quiet: Duration) -> Result<()> {
        let seen = lock(&self.seen);
        for (name, app) in &seen.apps {
            let (all, running) = (seen.pods_of(name).count(), seen.running(name));
            let (wanted, cpu) = (app.replicas, app.cpu());
            ensure!(
                seen.is_whole(name, app),
                "{running} of {all} pods of {name} run, where {wanted} that ask for {cpu} are to"
            );
        }
        let left = seen.pods.values().find(|pod| !seen.apps.contains_key(&pod.app));
        ensure!(left.is_none(), "{left:?} is there");
        for (name, claim) in &seen.claims {
            ensure!(!is_going(claim), "{name} is going");
            ensure!(is_initialized(claim), "{name} is not initialized");
            ensure!(!claim.annotations().contains_key(NOTE), "{name} takes part in a command");
        }
        let since = seen.last_change.elapsed();
        ensure!(since >= quiet, "the last change was {} s ago", since.as_secs());
        Ok(())
    }

    /// Counts where the pods are that were planned onto replacements since it was asked last.
    pub(super) fn count_places(&self) {
        lock(&self.seen).count_places();
    }

    /// From now on all may go.
    pub(super) fn abandon(&self) {
        lock(&self.seen).abandoned = true;
    }

    pub(super) fn outcome(&self) -> DisruptionOutcome {
        std::mem::take(&mut lock(&self.seen).outcome)
    }
}

#[derive(Debug)]
struct SeenPod {
    app: String,
    /// What it asks for.
    cpu: String,
    node: Option<(String, Instant)>,
    is_healthy: bool,
    is_protected: bool,
}

#[derive(Debug)]
struct Seen {
    /// What is to be there.
    apps: BTreeMap<String, App>,
    /// Those in force from a time on.
    budgets: Vec<(Instant, Vec<Budget>)>,
    /// By uid.
    pods: BTreeMap<String, SeenPod>,
    /// Of all pods that ever were, by uid.
    app_of: BTreeMap<String, String>,
    claims: BTreeMap<String, NodeClaim>,
    /// The last notes of machines, also of those that lost them.
    notes: BTreeMap<String, Note>,
    /// How many machines there were from a time on.
    machines: Vec<(Instant, usize)>,
    commands: BTreeSet<String>,
    /// Machines that a command takes away.
    begun: BTreeSet<String>,
    /// Replacements whose pods are not counted yet.
    uncounted: BTreeSet<String>,
    /// Deployments that have run with all their pods, and with no others, since they were changed. One that rolls out
    /// or is scaled down deletes pods without asking a PodDisruptionBudget.
    whole: BTreeSet<String>,
    last_change: Instant,
    abandoned: bool,
    outcome: DisruptionOutcome,
}

impl Seen {
    fn new(budgets: Vec<Budget>) -> Self {
        Self {
            apps: BTreeMap::new(),
            budgets: vec![(Instant::now(), budgets)],
            pods: BTreeMap::new(),
            app_of: BTreeMap::new(),
            claims: BTreeMap::new(),
            notes: BTreeMap::new(),
            machines: Vec::new(),
            commands: BTreeSet::new(),
            begun: BTreeSet::new(),
            uncounted: BTreeSet::new(),
            whole: BTreeSet::new(),
            last_change: Instant::now(),
            abandoned: false,
            outcome: DisruptionOutcome::default(),
        }
    }

    fn fault(&mut self, what: String) {
        if !self.abandoned {
            self.outcome.faults.push(what);
        }
    }

    fn pods_of(&self, app: &str) -> impl Iterator<Item = &SeenPod> {
        self.pods.values().filter(move |pod| pod.app == app)
    }

    fn running(&self, app: &str) -> usize {
        self.pods_of(app).filter(|pod| pod.is_healthy).count()
    }

    /// Whether just the pods of the Deployment as it is to be are there, and run.
    fn is_whole(&self, app: &str, wanted: &App) -> bool {
        self.pods_of(app).count() == wanted.replicas as usize
            && self.pods_of(app).all(|pod| pod.is_healthy && pod.cpu == wanted.cpu())
    }

    fn pod(&mut self, pod: &Pod, is_there: bool) {
        let uid = pod.uid().unwrap_or_default();
        let app = pod.labels().get("app").cloned().unwrap_or_default();
        self.app_of.insert(uid.clone(), app.clone());
        if is_there {
            let since = self.pods.get(&uid).and_then(|known| known.node.clone());
            let node = since.or_else(|| node_of(pod).map(|node| (node.to_owned(), Instant::now())));
            let is_healthy = pod.metadata.deletion_timestamp.is_none() && is_ready(pod);
            let is_protected = pod.annotations().get(DO_NOT_DISRUPT).is_some_and(|value| value == "true");
            let cpu = cpu_of(pod).unwrap_or_default().to_owned();
            self.pods.insert(uid, SeenPod { app: app.clone(), cpu, node, is_healthy, is_protected });
        } else {
            self.pods.remove(&uid);
        }
        let Some(wanted) = self.apps.get(&app) else { return };
        let (replicas, most) = (wanted.replicas as usize, wanted.max_unavailable);
        if self.is_whole(&app, wanted) {
            self.whole.insert(app.clone());
        }
        let running = self.running(&app);
        let Some(most) = most.filter(|_| self.whole.contains(&app)) else { return };
        if running + (most as usize) < replicas {
            self.whole.remove(&app);
            self.fault(format!("{running} of {replicas} pods of {app} ran, with maxUnavailable {most}"));
        }
    }

    fn claim(&mut self, claim: NodeClaim, is_there: bool) {
        let name = claim.name_any();
        let before = self.claims.get(&name).map(|known| (is_going(known), is_initialized(known)));
        if !is_there {
            self.claims.remove(&name);
            self.changed();
            return;
        }
        let note = claim.annotations().get(NOTE).and_then(|note| serde_json::from_str::<Note>(note).ok());
        let after = (is_going(&claim), is_initialized(&claim));
        self.claims.insert(name.clone(), claim);
        if before != Some(after) {
            self.changed();
        }
        if let Some(note) = note {
            self.commands.insert(note.id.clone());
            let goes = note.node_claims.contains(&name);
            let reason = note.reason.clone();
            self.notes.insert(name.clone(), note);
            self.outcome.commands = self.commands.len();
            if !goes {
                self.uncounted.insert(name.clone());
            } else if self.begun.insert(name.clone()) {
                self.changed();
                self.begins(&name, &reason);
            }
        } else if !after.0 {
            // Rolled back, or over.
            self.begun.remove(&name);
        }
        if after.0 && before.is_none_or(|(was_going, _)| !was_going) {
            self.goes(&name);
        }
    }

    fn changed(&mut self) {
        self.last_change = Instant::now();
        self.machines.push((self.last_change, self.claims.len()));
    }

    /// A command takes the machine from now on.
    fn begins(&mut self, name: &str, reason: &str) {
        let counts =
            |name: &str, claim: &NodeClaim| (self.begun.contains(name) || is_going(claim)) && !is_terminating(claim);
        let going = self.claims.iter().filter(|(name, claim)| counts(name, claim)).count();
        let recently = Instant::now().checked_sub(GRACE);
        let is_recent = |until: Option<&Instant>| until.is_none_or(|until| recently.is_none_or(|then| *until >= then));
        let next = |index: usize| self.machines.get(index + 1).map(|(from, _)| from);
        let recent = self.machines.iter().enumerate().filter(|(index, _)| is_recent(next(*index)));
        let machines = recent.map(|(_, (_, count))| *count).max().unwrap_or(0);
        let next = |index: usize| self.budgets.get(index + 1).map(|(from, _)| from);
        let in_force = self.budgets.iter().enumerate().filter(|(index, _)| is_recent(next(*index)));
        let allowed = in_force.map(|(_, (_, budgets))| Budget::allow(budgets, reason, machines)).max().unwrap_or(0);
        if going > allowed {
            self.fault(format!("{name} goes for being {reason} as {going}. of {machines}, and {allowed} may"));
        }
        let node = self.claims.get(name).and_then(|claim| Some(claim.status.as_ref()?.node_name.clone()));
        let is_on_it = |pod: &&SeenPod| {
            pod.node.as_ref().is_some_and(|(at, since)| Some(at) == node.as_ref() && since.elapsed() >= GRACE)
        };
        let protected = self.pods.values().filter(is_on_it).find(|pod| pod.is_protected && pod.is_healthy);
        if let Some(app) = protected.map(|pod| pod.app.clone()) {
            self.fault(format!("{name} goes for being {reason}, and has a pod of {app} with {DO_NOT_DISRUPT}"));
        }
    }

    /// The machine is deleted.
    fn goes(&mut self, name: &str) {
        let Some(note) = self.notes.get(name).cloned() else {
            return self.fault(format!("{name} is deleted without a command"));
        };
        if !note.node_claims.contains(name) {
            return;
        }
        self.outcome.gone += 1;
        let replaces = |(other, claim): &(&String, &NodeClaim)| {
            self.notes.get(*other).is_some_and(|it| it.id == note.id && !it.node_claims.contains(*other))
                && is_initialized(claim)
        };
        let ready = self.claims.iter().filter(replaces).count();
        if ready < note.replacements {
            let wanted = note.replacements;
            self.fault(format!("{name} is deleted when {ready} of its {wanted} replacements are initialized"));
        }
    }

    fn count_places(&mut self) {
        for name in std::mem::take(&mut self.uncounted) {
            let Some(claim) = self.claims.get(&name) else { continue };
            let node = claim.status.as_ref().map(|status| status.node_name.clone()).unwrap_or_default();
            let planned =
                claim.annotations().get(api::annotations::PLANNED_PODS).map(String::as_str).unwrap_or_default();
            let mut apps: BTreeMap<&str, usize> = BTreeMap::new();
            for app in api::annotations::planned_pods(planned)
                .filter_map(|(uid, _)| self.app_of.get(uid))
                .filter(|app| self.apps.contains_key(*app))
            {
                *apps.entry(app).or_default() += 1;
            }
            for (app, planned) in apps {
                let here = self.pods_of(app).filter(|pod| pod.node.as_ref().is_some_and(|(at, _)| *at == node)).count();
                self.outcome.planned += planned;
                self.outcome.as_planned += planned.min(here);
            }
        }
    }
}

fn cpu_of(pod: &Pod) -> Option<&str> {
    let container = pod.spec.as_ref()?.containers.first()?;
    Some(&container.resources.as_ref()?.requests.as_ref()?.get("cpu")?.0)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_going(claim: &NodeClaim) -> bool {
    claim.metadata.deletion_timestamp.is_some()
}

/// Drained, and the provider was asked to end it: budgets do not count it any more (Karpenter's
/// `BuildDisruptionBudgetMapping`).
fn is_terminating(claim: &NodeClaim) -> bool {
    has(claim, INSTANCE_TERMINATING)
}

fn is_initialized(claim: &NodeClaim) -> bool {
    has(claim, INITIALIZED)
}

fn has(claim: &NodeClaim, condition: &str) -> bool {
    let conditions = claim.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|it| it.type_ == condition && it.status == "True")
}

fn lock(mutex: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
