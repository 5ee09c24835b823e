//! Short names for what is read from a NodeClaim again and again.

use std::sync::Arc;

use api::{NodeClaim, conditions, labels};
use cloudprovider::NodeClassKind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use kube::api::{Api, DeleteParams, Preconditions};
use model::{Timestamp, Uid};

use crate::runtime::conditions as set;
use crate::runtime::patch::Lock;
use crate::world::store::{NodeRecord, State};

/// The conditions, none if there is no status yet.
pub(crate) fn conditions(claim: &NodeClaim) -> &[Condition] {
    claim.status.as_ref().map_or(&[], |status| status.conditions.as_slice())
}

/// Whether a condition is true.
pub(crate) fn is(claim: &NodeClaim, condition_type: &str) -> bool {
    set::is_true(conditions(claim), condition_type)
}

/// Whether the provider has said that the machine exists.
pub(crate) fn is_launched(claim: &NodeClaim) -> bool {
    is(claim, conditions::node_claim::LAUNCHED)
}

/// Whether the machine's Node was found.
pub(crate) fn is_registered(claim: &NodeClaim) -> bool {
    is(claim, conditions::node_claim::REGISTERED)
}

/// When its Node was found; `None` before that.
pub(crate) fn registered_at(claim: &NodeClaim) -> Option<Timestamp> {
    let registered = set::find(conditions(claim), conditions::node_claim::REGISTERED);
    let registered = registered.filter(|condition| condition.status == conditions::TRUE);
    registered.map(|condition| set::to_timestamp(&condition.last_transition_time))
}

/// What the provider calls the machine; absent before the launch.
pub(crate) fn provider_id(claim: &NodeClaim) -> Option<&str> {
    claim.status.as_ref().map(|status| status.provider_id.as_str()).filter(|id| !id.is_empty())
}

/// The Node of the machine, once it is there.
pub(crate) fn node<'s>(state: &'s State, claim: &NodeClaim) -> Option<&'s Arc<NodeRecord>> {
    state.nodes_of_machine(provider_id(claim)?).next()
}

/// The object's uid.
pub(crate) fn uid(claim: &NodeClaim) -> Uid {
    claim.metadata.uid.as_deref().unwrap_or_default().into()
}

/// The object's name.
pub(crate) fn name(claim: &NodeClaim) -> &str {
    claim.metadata.name.as_deref().unwrap_or_default()
}

/// A label of the NodeClaim; empty where it is missing.
pub(crate) fn label<'a>(claim: &'a NodeClaim, key: &str) -> &'a str {
    claim.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map_or("", String::as_str)
}

/// The NodePool that the NodeClaim came from; empty for one that a user wrote.
pub(crate) fn node_pool(claim: &NodeClaim) -> &str {
    label(claim, labels::NODEPOOL)
}

/// Whether this program's provider is the one to launch it.
pub(crate) fn is_managed(claim: &NodeClaim, kinds: &[NodeClassKind]) -> bool {
    let class = &claim.spec.node_class_ref;
    kinds.iter().any(|kind| kind.group == class.group && kind.kind == class.kind)
}

/// When the object was created.
pub(crate) fn created_at(claim: &NodeClaim) -> Timestamp {
    claim.metadata.creation_timestamp.as_ref().map(set::to_timestamp).unwrap_or_default()
}

/// Whether the object is being deleted.
pub(crate) fn is_deleting(claim: &NodeClaim) -> bool {
    claim.metadata.deletion_timestamp.is_some()
}

/// Whether our finalizer is on it.
pub(crate) fn has_finalizer(claim: &NodeClaim) -> bool {
    claim.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == api::finalizers::TERMINATION)
}

/// Deletes this NodeClaim and no other of its name. What it is then, while it has finalizers; one that is gone already
/// is fine.
///
/// # Errors
/// Those of the API server; with [`Lock::Revision`] a conflict if it is no longer what was read.
pub(crate) async fn delete(client: &Client, claim: &NodeClaim, lock: Lock) -> kube::Result<Option<NodeClaim>> {
    let resource_version = match lock {
        Lock::Uid => None,
        Lock::Revision => claim.metadata.resource_version.clone(),
    };
    let preconditions = Preconditions { uid: claim.metadata.uid.clone(), resource_version };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let claims: Api<NodeClaim> = Api::all(client.clone());
    match claims.delete(name(claim), &params).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        result => Ok(result?.left()),
    }
}
