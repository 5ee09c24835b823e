//! Machines against NodeClaims: those that are there, and all that ever were.

use cloudprovider_kwok::names;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};
use api::{NodeClaim, labels};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tokio::task::JoinSet;

use crate::cluster::{DEADLINE, INSTANCES, instances};
use crate::following::follow;
use crate::{eventually, install};

/// Each NodeClaim has one instance and one Node, and there are no others of either.
///
/// # Errors
/// What is too much or too little.
pub async fn ensure_nothing_leaked(client: &Client) -> Result<()> {
    let claims: Vec<NodeClaim> = Api::all(client.clone()).list(&ListParams::default()).await?.items;
    let by_provider_id: BTreeMap<String, String> = claims
        .iter()
        .filter_map(|claim| Some((claim.status.as_ref()?.provider_id.clone(), claim.name_any())))
        .collect();
    ensure!(by_provider_id.len() == claims.len(), "{} NodeClaims have {} machines", claims.len(), by_provider_id.len());
    let nodes: Vec<Node> = Api::all(client.clone()).list(&ListParams::default()).await?.items;
    let of_nodes: BTreeSet<_> = nodes.iter().filter_map(|node| node.spec.as_ref()?.provider_id.clone()).collect();
    ensure!(of_nodes.len() == nodes.len(), "two Nodes of one machine");
    ensure!(of_nodes.iter().eq(by_provider_id.keys()), "Nodes of {of_nodes:?}, NodeClaims of {by_provider_id:?}");
    let records = instances(client).await?;
    ensure!(
        records.len() == claims.len(),
        "{} instances for {} NodeClaims: {:?}",
        records.len(),
        claims.len(),
        records.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    );
    Ok(())
}

/// Waits until [`ensure_nothing_leaked`] holds.
///
/// # Errors
/// If it does not in time.
pub async fn nothing_is_leaked(client: &Client) -> Result<()> {
    eventually("every NodeClaim has its machine and there are no others", DEADLINE, async || {
        ensure_nothing_leaked(client).await
    })
    .await
}

/// Remembers every NodeClaim and every machine that there ever was, since one that came and went leaves nothing to
/// count.
#[derive(Debug)]
pub struct History {
    seen: Arc<Mutex<Seen>>,
    _watching: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Seen {
    /// By UID, as they were when they were seen first.
    claims: BTreeMap<String, NodeClaim>,
    /// By the UID of the NodeClaim that they were launched for: UIDs of the provider's records.
    machines: BTreeMap<String, BTreeSet<String>>,
}

impl History {
    /// From now on.
    #[must_use]
    pub fn start(client: &Client) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let mut watching = JoinSet::new();
        let of_task = Arc::clone(&seen);
        watching.spawn(follow(Api::all(client.clone()), watcher::Config::default(), move |claim: NodeClaim, _| {
            lock(&of_task).claims.entry(claim.uid().unwrap_or_default()).or_insert(claim);
        }));
        let of_task = Arc::clone(&seen);
        let of_instances = watcher::Config::default().labels(INSTANCES);
        let records: Api<ConfigMap> = Api::namespaced(client.clone(), install::INSTANCES_NAMESPACE);
        watching.spawn(follow(records, of_instances, move |record, _| {
            let token = record.labels().get(names::KWOK_INSTANCE_TOKEN).cloned().unwrap_or_default();
            lock(&of_task).machines.entry(token).or_default().insert(record.uid().unwrap_or_default());
        }));
        Self { seen, _watching: watching }
    }

    /// All NodeClaims that a NodePool ever had, as they were when they were seen first.
    #[must_use]
    pub fn claims_of(&self, node_pool: &str) -> Vec<NodeClaim> {
        let seen = lock(&self.seen);
        let is_of_pool = |claim: &&NodeClaim| claim.labels().get(labels::NODEPOOL).is_some_and(|it| it == node_pool);
        seen.claims.values().filter(is_of_pool).cloned().collect()
    }

    /// No NodeClaim ever had two machines, one after the other either.
    ///
    /// # Errors
    /// Which had.
    pub async fn nothing_was_launched_twice(&self, client: &Client) -> Result<()> {
        self.has_caught_up(client).await?;
        let seen = lock(&self.seen);
        let twice: Vec<_> = seen.machines.iter().filter(|(_, records)| records.len() > 1).collect();
        ensure!(twice.is_empty(), "launched more than once: {twice:?}");
        Ok(())
    }

    /// Waits until all that is there now was seen.
    ///
    /// # Errors
    /// If it is not in time.
    pub async fn has_caught_up(&self, client: &Client) -> Result<()> {
        eventually("the history has caught up", DEADLINE, async || {
            let there: Vec<NodeClaim> = Api::all(client.clone()).list(&ListParams::default()).await?.items;
            let records = instances(client).await?;
            let seen = lock(&self.seen);
            let missing = there.iter().filter(|claim| !seen.claims.contains_key(&claim.uid().unwrap_or_default()));
            ensure!(missing.count() == 0, "a NodeClaim is missing");
            let uids: BTreeSet<&String> = seen.machines.values().flatten().collect();
            ensure!(
                records.iter().all(|record| uids.contains(&record.uid().unwrap_or_default())),
                "a machine is missing"
            );
            Ok(())
        })
        .await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
