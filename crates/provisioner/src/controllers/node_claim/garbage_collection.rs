//! Machines, NodeClaims and Nodes that have lost each other.
//!
//! Every two minutes the provider lists its machines, and three kinds of strays are looked for. A list may lag, so it
//! only raises a suspicion; the machine itself, or the API server itself, must confirm it before anything is deleted.
//!
//! * A launched NodeClaim whose machine is gone is deleted, unless its Node is ready.
//! * A machine that was launched for a NodeClaim that does not exist is deleted, if it is older than a grace period.
//!   Only machines with a launch token are ours to delete; a NodeClaim that cannot be decoded exists.
//! * A Node of a NodePool without NodeClaim and machine is deleted; nothing else would remove it.
//!
//! Differs: `machines-without-claim`, `nodes-without-claim`, `claims-without-machine`. Karpenter core leaves the second
//! to its providers and has no answer to the third; and it waits for the first until the NodeClaim has registered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::{NodeClaim, finalizers, labels};
use cloudprovider::{Error, Instance, InstanceState, NodeClassKind};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Preconditions};
use model::{DurationMs, NodeName, ProviderId, Timestamp};
use tracing::{info, warn};

use crate::runtime::beats::Beat;
use crate::runtime::conditions::{find, to_timestamp};
use crate::runtime::controller_loop::{Looks, Rhythm};
use crate::world::claim;
use crate::world::context::Context;
use crate::world::node_facts::is_ready;
use crate::world::node_facts::provider_id;
use crate::world::store::{Kind, State};

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "nodeclaim.garbagecollection";
/// The bound is that of the look at one suspect.
const RHYTHM: Rhythm = Rhythm {
    first: Duration::from_secs(10),
    period: Duration::from_mins(2),
    collect: Duration::ZERO,
    bound: Duration::from_secs(300),
};
/// How old a machine or a launch must be before it can be a stray: lists and watches may be that much behind.
const GRACE: DurationMs = DurationMs::from_seconds(30);

/// NodeClaims per page of a list.
const PAGE_SIZE: u32 = 500;

/// What may have to be deleted, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Suspects {
    /// NodeClaims whose machine is not on the list.
    pub claims: Vec<String>,
    /// Machines whose NodeClaim we do not know.
    pub machines: Vec<ProviderId>,
    /// Nodes of NodePools without a NodeClaim.
    pub nodes: Vec<NodeName>,
}

/// What the cluster has, as far as strays are concerned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cluster<'a> {
    /// All NodeClaims.
    pub claims: &'a [&'a NodeClaim],
    /// Names of NodeClaims that cannot be decoded.
    pub undecodable_claims: &'a BTreeSet<String>,
    /// All Nodes.
    pub nodes: &'a [&'a Node],
    /// Whose NodeClaims and Nodes are ours.
    pub node_classes: &'a [NodeClassKind],
}

/// Compares the provider's list with the cluster.
pub(crate) fn decide(cluster: Cluster<'_>, listed: &[Instance], now: Timestamp) -> Suspects {
    let listed_ids: BTreeSet<&str> = listed.iter().map(|instance| instance.provider_id.as_str()).collect();
    let nodes = by_provider_id(cluster.nodes);
    let is_old = |since: Timestamp| now.since(since) >= GRACE;
    let claims = cluster.claims.iter().filter(|node_claim| {
        let Some(id) = claim::provider_id(node_claim) else { return false };
        let launched = find(claim::conditions(node_claim), api::conditions::node_claim::LAUNCHED)
            .map_or_else(|| claim::created_at(node_claim), |launched| to_timestamp(&launched.last_transition_time));
        claim::is_launched(node_claim)
            && claim::is_managed(node_claim, cluster.node_classes)
            && !claim::is_deleting(node_claim)
            && !listed_ids.contains(id)
            && is_old(launched)
            && !nodes.get(id).is_some_and(|node| is_ready(node))
    });
    let uids: BTreeSet<&str> = cluster.claims.iter().filter_map(|it| it.metadata.uid.as_deref()).collect();
    let ids: BTreeSet<&str> = cluster.claims.iter().filter_map(|it| claim::provider_id(it)).collect();
    let machines = listed.iter().filter(|instance| {
        let known = instance.token.as_ref().is_none_or(|token| uids.contains(token.as_str()));
        let undecodable =
            instance.claim_name.as_ref().is_some_and(|name| cluster.undecodable_claims.contains(name.as_str()));
        !known
            && !undecodable
            && !ids.contains(instance.provider_id.as_str())
            && instance.state == InstanceState::Running
            && is_old(instance.created_at)
    });
    let phantoms = cluster.nodes.iter().filter(|node| {
        let id = provider_id(node);
        is_ours(node, cluster.node_classes)
            && node.metadata.deletion_timestamp.is_none()
            && !is_ready(node)
            && id.is_some_and(|id| !ids.contains(id) && !listed_ids.contains(id))
            && is_old(node.metadata.creation_timestamp.as_ref().map(to_timestamp).unwrap_or_default())
            && cluster.undecodable_claims.is_empty()
    });
    Suspects {
        claims: claims.map(|it| claim::name(it).to_owned()).collect(),
        machines: machines.map(|it| it.provider_id.clone()).collect(),
        nodes: phantoms.filter_map(|it| it.metadata.name.as_deref().map(NodeName::from)).collect(),
    }
}

fn by_provider_id<'a>(nodes: &[&'a Node]) -> BTreeMap<&'a str, &'a Node> {
    nodes.iter().filter_map(|node| Some((provider_id(node)?, *node))).collect()
}

/// Whether the Node was a NodeClaim's of this provider.
fn is_ours(node: &Node, node_classes: &[NodeClassKind]) -> bool {
    let Some(of_node) = &node.metadata.labels else { return false };
    let has_finalizer = node.metadata.finalizers.iter().flatten().any(|it| it == finalizers::TERMINATION);
    has_finalizer && node_classes.iter().any(|kind| of_node.contains_key(&labels::node_class(kind.group, kind.kind)))
}

/// Looks for strays until the context is stopped.
pub(crate) async fn run(context: Context) {
    context.store.wait_until_synced().await;
    let mut looks = Looks::new(NAME, RHYTHM, &context.beats, &context.stop);
    while looks.next().await {
        if let Err(error) = collect(&context, looks.beat()).await {
            warn!(error = format!("{error:#}"), "could not list what to garbage collect");
        }
    }
}

async fn collect(context: &Context, beat: &Beat) -> anyhow::Result<()> {
    let listed = context.cloud.list().await?;
    // The list first, then the cluster: a machine on the list has a NodeClaim that we have known for longer.
    let suspects = suspects(&context.store.read(), &listed, context);
    let mut strays: Vec<Stray<'_>> = Vec::new();
    for name in &suspects.claims {
        strays.push((format!("nodeclaim {name}"), collect_claim(context, name).boxed()));
    }
    for id in &suspects.machines {
        let Some(instance) = listed.iter().find(|instance| instance.provider_id == *id) else { continue };
        strays.push((format!("instance {id}"), collect_machine(context, instance).boxed()));
    }
    for name in &suspects.nodes {
        strays.push((format!("node {name}"), collect_node(context, name).boxed()));
    }
    collect_each(strays, beat).await;
    Ok(())
}

/// What it is, and how it is collected.
type Stray<'a> = (String, BoxFuture<'a, anyhow::Result<()>>);

/// Collects one after another. One that cannot be collected keeps none of the others.
async fn collect_each(strays: Vec<Stray<'_>>, beat: &Beat) {
    for (stray, collecting) in strays {
        beat.busy();
        if let Err(error) = collecting.await {
            warn!(stray, error = format!("{error:#}"), "could not garbage collect, trying again later");
        }
    }
}

fn suspects(state: &State, listed: &[Instance], context: &Context) -> Suspects {
    let claims: Vec<&NodeClaim> = state.node_claims.values().map(AsRef::as_ref).collect();
    let nodes: Vec<&Node> = state.nodes.values().map(|node| node.object.as_ref()).collect();
    let undecodable_claims =
        state.undecodable.keys().filter(|(kind, _)| *kind == Kind::NodeClaim).map(|(_, name)| name.clone()).collect();
    let cluster = Cluster {
        claims: &claims,
        undecodable_claims: &undecodable_claims,
        nodes: &nodes,
        node_classes: context.cloud.node_class_kinds(),
    };
    decide(cluster, listed, context.clock.now())
}

async fn is_gone(context: &Context, id: &ProviderId) -> anyhow::Result<bool> {
    match context.cloud.get(id).await {
        Ok(_) => Ok(false),
        Err(Error::NotFound(_)) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

async fn collect_claim(context: &Context, name: &str) -> anyhow::Result<()> {
    let Some(node_claim) = context.store.read().node_claims.get(name).cloned() else { return Ok(()) };
    let Some(id) = claim::provider_id(&node_claim).map(ProviderId::from) else { return Ok(()) };
    if is_gone(context, &id).await? {
        info!(node_claim = name, provider_id = %id, "garbage collecting nodeclaim with no cloudprovider representation");
        super::disrupt(context, &node_claim, "garbage_collected").await?;
    }
    Ok(())
}

async fn collect_machine(context: &Context, instance: &Instance) -> anyhow::Result<()> {
    if is_claimed(&context.client, instance).await? {
        return Ok(());
    }
    info!(
        provider_id = %instance.provider_id,
        node_claim = instance.claim_name.as_deref(),
        "garbage collecting instance without nodeclaim"
    );
    Error::ignore_not_found(context.cloud.delete(&instance.provider_id).await)?;
    Ok(())
}

/// Whether the NodeClaim exists that a machine was launched for. The API server has the last word: our watch may be
/// behind.
async fn is_claimed(client: &Client, instance: &Instance) -> anyhow::Result<bool> {
    let claims: Api<NodeClaim> = Api::all(client.clone());
    let is_it = |metadata: &ObjectMeta| metadata.uid.is_some() && metadata.uid.as_deref() == instance.token.as_deref();
    if let Some(name) = &instance.claim_name {
        let claim = claims.get_metadata_opt(name.as_str()).await?;
        return Ok(claim.is_some_and(|claim| is_it(&claim.metadata)));
    }
    // A machine that has lost its NodeClaim's name: any may be it.
    let mut params = ListParams::default().limit(PAGE_SIZE);
    loop {
        let page = claims.list_metadata(&params).await?;
        if page.items.iter().any(|claim| is_it(&claim.metadata)) {
            return Ok(true);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(false),
        }
    }
}

async fn collect_node(context: &Context, name: &NodeName) -> anyhow::Result<()> {
    let Some(node) = context.store.read().nodes.get(name).map(|node| node.object.clone()) else { return Ok(()) };
    let Some(id) = provider_id(&node).map(ProviderId::from) else { return Ok(()) };
    if !is_gone(context, &id).await? {
        return Ok(());
    }
    info!(node = %name, provider_id = %id, "garbage collecting node without nodeclaim and instance");
    let preconditions = Preconditions { uid: node.metadata.uid.clone(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match Api::<Node>::all(context.client.clone()).delete(name.as_str(), &params).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => Ok(result.map(|_| ())?),
    }
}

#[cfg(test)]
mod tests;
