//! A NodeClaim is being deleted.

use std::sync::Arc;
use std::time::Duration;

use api::conditions::node_claim::INSTANCE_TERMINATING;
use api::{NodeClaim, annotations, events, finalizers, labels};
use cloudprovider::Error;
use k8s_openapi::api::core::v1::Node;
use kube::Resource;
use kube::api::{Api, DeleteParams, Preconditions};
use model::{NodeName, ProviderId, Timestamp};
use tracing::{info, warn};

use crate::runtime::conditions::to_timestamp;
use crate::runtime::failpoints;
use crate::runtime::failures::is_not_found;
use crate::runtime::metrics::{ByNodePool, TerminatedLabels, age_seconds};
use crate::runtime::patch::{self, Lock};
use crate::runtime::queue::Action;
use crate::runtime::recorder::{Event, Severity, reference};
use crate::world::claim;
use crate::world::context::Context;
use crate::world::instance::{Instance, end_instance};
use crate::world::node_facts;
use crate::world::pace::INSTANCE_POLL;
use crate::world::store::Revision;
use crate::world::termination;

/// The next step of a NodeClaim's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Our finalizer is not on it: nothing to do.
    Nothing,
    /// Write down when draining ends at the latest.
    SetDeadline(Timestamp),
    /// Delete these Nodes, and wait until they are gone; none is to be deleted if all are already on their way.
    DeleteNodes(Vec<NodeName>),
    /// Ask the provider to end the machine, again and again until it is gone: the one that was launched with the
    /// NodeClaim's token, else the one that the status names.
    EndInstance(Option<ProviderId>),
}

/// What comes next, given the Nodes with the machine's provider id.
pub(crate) fn decide(node_claim: &NodeClaim, nodes: &[&Node]) -> Step {
    let Some(deleted_at) = node_claim.metadata.deletion_timestamp.as_ref().map(to_timestamp) else {
        return Step::Nothing;
    };
    if !claim::has_finalizer(node_claim) {
        return Step::Nothing;
    }
    if let Some(deadline) = termination::due(node_claim, deleted_at)
        && termination::deadline(node_claim.metadata.annotations.as_ref()).is_none()
    {
        return Step::SetDeadline(deadline);
    }
    // A Node that never registered is not ours to delete, unless the write of its registration was all that was lost.
    let ours: Vec<&&Node> =
        nodes.iter().filter(|node| claim::is_registered(node_claim) || node_facts::is_registered(node)).collect();
    if !ours.is_empty() {
        let living = ours.iter().filter(|node| node.metadata.deletion_timestamp.is_none());
        return Step::DeleteNodes(living.filter_map(|it| it.metadata.name.as_deref().map(NodeName::from)).collect());
    }
    Step::EndInstance(claim::provider_id(node_claim).map(ProviderId::from))
}

/// Carries out the next steps.
///
/// # Errors
/// Those of the API server and the provider.
pub(crate) async fn reconcile(context: &Context, node_claim: &NodeClaim) -> anyhow::Result<Action> {
    let nodes = nodes_of(context, node_claim, claim::provider_id(node_claim).unwrap_or_default());
    let seen: Vec<&Node> = nodes.iter().map(AsRef::as_ref).collect();
    match decide(node_claim, &seen) {
        Step::Nothing => Ok(Action::Done),
        // The answer comes back through the watch, and with it the next step.
        Step::SetDeadline(deadline) => set_deadline(context, node_claim, deadline).await.map(|()| Action::Done),
        Step::DeleteNodes(names) => {
            delete_nodes(context, &nodes, &names).await?;
            Ok(Action::RequeueAfter(Duration::from_secs(30)))
        }
        Step::EndInstance(named) => end_own_instance(context, node_claim, named).await,
    }
}

/// The Nodes of a machine, but for those that belong to another NodeClaim: a status can name any machine.
fn nodes_of(context: &Context, node_claim: &NodeClaim, id: &str) -> Vec<Arc<Node>> {
    let state = context.store.read();
    let of_machine = state.nodes_of_machine(id).map(|node| Arc::clone(&node.object));
    of_machine.filter(|node| !is_of_another(node_claim, node)).collect()
}

/// Whether a Node is owned by NodeClaims, and not by this one.
fn is_of_another(node_claim: &NodeClaim, node: &Node) -> bool {
    let owners = node.metadata.owner_references.iter().flatten();
    let mut owners = owners.filter(|owner| owner.kind == NodeClaim::kind(&())).peekable();
    owners.peek().is_some() && owners.all(|owner| Some(&owner.uid) != node_claim.metadata.uid.as_ref())
}

async fn delete_nodes(context: &Context, nodes: &[Arc<Node>], names: &[NodeName]) -> anyhow::Result<()> {
    failpoints::hit("terminate.before-node-deletion");
    for node in nodes.iter().filter(|node| names.iter().any(|it| node.metadata.name.as_deref() == Some(it))) {
        delete_node(context, node).await?;
    }
    Ok(())
}

/// Ends the machine of a NodeClaim whose Nodes are gone, and lets the NodeClaim go once the machine is.
///
/// Differs: `end-by-token`. Karpenter ends the machine that the status names.
/// The token of the launch knows better than the status, which may be missing after a crash, or was written over: a
/// machine that it does not name would live on, and one that it should not name would end.
async fn end_own_instance(
    context: &Context,
    node_claim: &NodeClaim,
    named: Option<ProviderId>,
) -> anyhow::Result<Action> {
    let token = claim::uid(node_claim);
    let own = match context.cloud.find(&token).await {
        Ok(instance) => Some(instance.provider_id),
        Err(Error::NotFound(_)) => match &named {
            Some(named) => untaken(context, node_claim, named).await?,
            // A machine that the provider does not show yet is an orphan later, and collected.
            None => None,
        },
        Err(error) => return Err(error.into()),
    };
    let Some(own) = own else { return remove_finalizer(context, node_claim).await };
    if named.as_ref() != Some(&own) {
        // Nobody has looked for its Nodes yet. They are drained first, as those of any other machine.
        let mut nodes = nodes_of(context, node_claim, &own);
        nodes.retain(|node| node_facts::is_registered(node));
        if !nodes.is_empty() {
            info!(node_claim = claim::name(node_claim), provider_id = %own, "deleting a machine that the nodeclaim's status does not name");
            nodes.retain(|node| node.metadata.deletion_timestamp.is_none());
            let names: Vec<NodeName> =
                nodes.iter().filter_map(|it| it.metadata.name.as_deref().map(NodeName::from)).collect();
            delete_nodes(context, &nodes, &names).await?;
            // No index leads from these Nodes to the NodeClaim.
            return Ok(Action::RequeueAfter(INSTANCE_POLL));
        }
    }
    match end_instance(context, Some(node_claim), &own).await? {
        Instance::Ending { ask_again_in } => Ok(Action::RequeueAfter(ask_again_in)),
        Instance::Gone => remove_finalizer(context, node_claim).await,
    }
}

/// The machine that a status names, unless it is gone or was launched for another NodeClaim. One without a token is of
/// an autoscaler that ran here before.
async fn untaken(context: &Context, node_claim: &NodeClaim, named: &ProviderId) -> anyhow::Result<Option<ProviderId>> {
    match context.cloud.get(named).await {
        Ok(instance) if instance.token.as_ref().is_none_or(|token| *token == claim::uid(node_claim)) => {
            Ok(Some(instance.provider_id))
        }
        Ok(_) => {
            let node_claim = claim::name(node_claim);
            warn!(node_claim, provider_id = %named, "leaving a machine alone that belongs to another nodeclaim");
            Ok(None)
        }
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn set_deadline(context: &Context, node_claim: &NodeClaim, deadline: Timestamp) -> anyhow::Result<()> {
    let mut wanted = node_claim.clone();
    let text = deadline.to_string();
    let message = format!("All pods will be deleted by {text}");
    let written = wanted.metadata.annotations.get_or_insert_default();
    written.insert(annotations::NODECLAIM_TERMINATION_TIMESTAMP.to_owned(), text);
    let event =
        Event::new(reference(node_claim), Severity::Warning, events::TERMINATION_GRACE_PERIOD_EXPIRING, message);
    context.recorder.publish(event);
    let claims: Api<NodeClaim> = Api::all(context.client.clone());
    if let Some(answer) = patch::object(&claims, node_claim, &wanted, Lock::Revision).await? {
        let revision = Revision::of(&answer.metadata);
        context.store.apply(answer, revision);
    }
    Ok(())
}

async fn delete_node(context: &Context, node: &Node) -> anyhow::Result<()> {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let preconditions = Preconditions { uid: node.metadata.uid.clone(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match Api::<Node>::all(context.client.clone()).delete(name, &params).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => Ok(result.map(|_| ())?),
    }
}

async fn remove_finalizer(context: &Context, node_claim: &NodeClaim) -> anyhow::Result<Action> {
    failpoints::hit("terminate.before-claim-finalizer");
    let mut wanted = node_claim.clone();
    wanted.metadata.finalizers.get_or_insert_default().retain(|finalizer| finalizer != finalizers::TERMINATION);
    let claims: Api<NodeClaim> = Api::all(context.client.clone());
    match patch::object(&claims, node_claim, &wanted, Lock::Revision).await {
        Ok(_) => {}
        Err(error) if is_not_found(&error) => return Ok(Action::Done),
        Err(error) => return Err(error),
    }
    observe(context, node_claim);
    info!(
        node_claim = claim::name(node_claim),
        provider_id = claim::provider_id(node_claim).unwrap_or_default(),
        "deleted nodeclaim"
    );
    Ok(Action::Done)
}

fn observe(context: &Context, node_claim: &NodeClaim) {
    let nodepool = claim::node_pool(node_claim).to_owned();
    let label = |key| claim::label(node_claim, key).to_owned();
    let labels = TerminatedLabels {
        nodepool: nodepool.clone(),
        capacity_type: label(labels::CAPACITY_TYPE),
        zone: label(labels::ZONE),
    };
    context.metrics.nodeclaims_terminated.get_or_create(&labels).inc();
    let now = context.clock.now();
    let since = |start: Timestamp| age_seconds(now.since(start));
    let by_pool = ByNodePool { nodepool };
    if let Some(deleted_at) = node_claim.metadata.deletion_timestamp.as_ref().map(to_timestamp) {
        context.metrics.nodeclaims_termination_duration_seconds.get_or_create(&by_pool).observe(since(deleted_at));
    }
    let terminating = crate::runtime::conditions::find(claim::conditions(node_claim), INSTANCE_TERMINATING);
    if let Some(asked_at) = terminating.map(|condition| to_timestamp(&condition.last_transition_time)) {
        context
            .metrics
            .nodeclaims_instance_termination_duration_seconds
            .get_or_create(&by_pool)
            .observe(since(asked_at));
    }
    if node_claim.spec.termination_grace_period.as_ref().is_some_and(|period| period.parse().is_err()) {
        warn!(node_claim = claim::name(node_claim), "terminationGracePeriod is not a duration, ignoring it");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(metadata: Value, spec: Value, status: Value) -> NodeClaim {
        let mut object = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "a", "finalizers": ["karpenter.sh/termination"], "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": []},
        });
        for (part, extra) in [("metadata", metadata), ("spec", spec), ("status", status)] {
            for (key, value) in extra.as_object().unwrap() {
                object[part][key] = value.clone();
            }
        }
        serde_json::from_value(object).unwrap()
    }

    fn registered() -> Value {
        let condition = |type_: &str| json!({"type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        json!({"providerID": "p", "conditions": [condition("Launched"), condition("Registered")]})
    }

    fn node(name: &str, metadata: Value) -> Node {
        let mut node = json!({"metadata": metadata});
        node["metadata"]["name"] = name.into();
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn the_deadline_comes_first_then_the_nodes_then_the_machine() {
        let none = || json!({});
        let period = || json!({"terminationGracePeriod": "1h"});
        let stamped = json!({"annotations": {"karpenter.sh/nodeclaim-termination-timestamp": "2026-01-01T01:00:00Z"}});
        let due = Timestamp::parse("2026-01-01T01:00:00Z").unwrap();
        assert_eq!(decide(&claim(none(), period(), registered()), &[]), Step::SetDeadline(due));
        let node_claim = claim(stamped, period(), registered());
        let living = node("n1", none());
        let leaving = node("n2", json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
        assert_eq!(decide(&node_claim, &[&living, &leaving]), Step::DeleteNodes(vec!["n1".into()]));
        assert_eq!(decide(&node_claim, &[&leaving]), Step::DeleteNodes(vec![]));
        assert_eq!(decide(&node_claim, &[]), Step::EndInstance(Some("p".into())));
    }

    #[test]
    fn a_node_that_never_registered_is_left_alone() {
        let node_claim = claim(json!({}), json!({}), json!({"providerID": "p"}));
        assert_eq!(decide(&node_claim, &[&node("n", json!({}))]), Step::EndInstance(Some("p".into())));
        let registered = node("n", json!({"labels": {"karpenter.sh/registered": "true"}}));
        assert_eq!(decide(&node_claim, &[&registered]), Step::DeleteNodes(vec!["n".into()]));
    }

    #[test]
    fn a_machine_that_the_status_does_not_name_is_looked_up_by_its_token() {
        assert_eq!(decide(&claim(json!({}), json!({}), json!({})), &[]), Step::EndInstance(None));
    }

    #[test]
    fn only_deleted_claims_with_our_finalizer_are_touched() {
        let alive = claim(json!({"deletionTimestamp": null}), json!({}), registered());
        let foreign = claim(json!({"finalizers": ["other"]}), json!({}), registered());
        assert_eq!((decide(&alive, &[]), decide(&foreign, &[])), (Step::Nothing, Step::Nothing));
    }

    #[test]
    fn the_deadline_is_known_before_it_is_written() {
        let node_claim = claim(json!({}), json!({"terminationGracePeriod": "30s"}), registered());
        assert_eq!(
            termination::deadline_of_claim(&node_claim),
            Some(Timestamp::parse("2026-01-01T00:00:30Z").unwrap())
        );
        assert_eq!(termination::deadline_of_claim(&claim(json!({}), json!({}), registered())), None);
    }
}
