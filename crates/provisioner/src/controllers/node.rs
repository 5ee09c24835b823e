//! A Node is being deleted.
//!
//! In order: its NodeClaim is deleted too; it is tainted and taken from load balancers; if the cloud takes it back, the
//! machines that take its pods are waited for ([`replacements`]); its pods leave, those of DRA
//! drivers once nobody uses their claims on it any more; its volumes are detached; its machine ends; the finalizer
//! goes. A Node whose machine is gone already skips to the end. One without NodeClaim is drained and let go.

pub(crate) mod devices_in_use;
pub(crate) mod drain;
pub(crate) mod eviction;
pub(crate) mod reboot;
pub(crate) mod replacements;
pub(crate) mod volumes;
use std::sync::Arc;
use std::time::Duration;

use api::conditions::node_claim::{
    AWAITING_CLAIM_RELEASE, AWAITING_REPLACEMENTS, AWAITING_VOLUME_DETACHMENT, CLAIMS_RELEASED, DISRUPTION_REASON,
    DRAINED, DRAINING, TERMINATION_GRACE_PERIOD_ELAPSED, VOLUMES_DETACHED,
};
use api::{NodeClaim, conditions, events, finalizers, labels, taints};
use cloudprovider::Error;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use model::{DurationMs, NodeName, Pod, ProviderId, Timestamp};
use scheduling::snapshot::pending::will_be_replaced;
use tracing::{info, warn};

use crate::controllers::node::devices_in_use::DevicesInUse;
use crate::controllers::node::drain::{Claims, needs_force};
use crate::controllers::node::eviction::{Evictions, PodKey, Request};
use crate::runtime::conditions::{ConditionSet, find, to_timestamp};
use crate::runtime::failpoints;
use crate::runtime::failures::is_not_found;
use crate::runtime::metrics::{ByNodePool, ByZone, age_seconds};
use crate::runtime::patch::{self, Lock};
use crate::runtime::queue::{self, Action, WorkQueue};
use crate::runtime::recorder::{Event, Severity, reference};
use crate::world::claim;
use crate::world::context::Context;
use crate::world::instance::{Instance, end_instance, set_condition};
use crate::world::node_facts::is_ready;
use crate::world::node_facts::provider_id;
use crate::world::node_facts::{has_taint, same_taint};
use crate::world::store::{Kind, NodeRecord, State};
use crate::world::termination;

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "node.termination";
const CONCURRENCY: usize = 100;
/// How often a drain is looked at though nothing has changed that we know of.
const POLL: Duration = Duration::from_secs(1);
/// A drain lasts at least this long, so that pods that were bound meanwhile are seen.
const MIN_DRAIN: DurationMs = DurationMs::from_seconds(5);
/// Pods of machines that end sooner go in any order.
const LEAST_LEISURE: DurationMs = DurationMs::from_seconds(3 * 60);
/// Names in a message.
const SHOWN: usize = 5;
/// Reason of evictions that no disruption command stands behind.
const FORCEFUL: &str = "Forceful Termination";

/// Drains and ends deleted Nodes until the context is stopped.
pub(crate) async fn run(context: Context, evictions: Evictions) {
    let queue = Arc::new(WorkQueue::new());
    subscribe(&context, &queue);
    context.store.wait_until_synced().await;
    for name in context.store.read().nodes.keys() {
        queue.add(name.clone());
    }
    let owner = context.owner(NAME);
    let config = queue::Config { concurrency: CONCURRENCY, ..queue::Config::default() };
    queue::run(owner, queue, config, move |name| {
        let (context, evictions) = (context.clone(), evictions.clone());
        async move { reconcile(&context, &evictions, &name).await }
    })
    .await;
}

fn subscribe(context: &Context, queue: &Arc<WorkQueue<NodeName>>) {
    fn is_leaving(state: &State, name: &NodeName) -> bool {
        state.nodes.get(name).is_some_and(|node| node.model.deletion_timestamp.is_some())
    }
    let leaving = Arc::clone(queue);
    context.store.on::<NodeRecord>(move |delta, _| {
        if delta.after.is_some_and(|node| node.model.deletion_timestamp.is_some()) {
            leaving.add(delta.key.clone());
        }
    });
    let leaving = Arc::clone(queue);
    context.store.on::<Pod>(move |delta, state| {
        let node = delta.latest().and_then(|pod| pod.node_name.as_ref());
        if let Some(node) = node.filter(|name| is_leaving(state, name)) {
            leaving.add(node.clone());
        }
    });
    let leaving = Arc::clone(queue);
    context.store.on::<NodeClaim>(move |delta, state| {
        let id = delta.latest().and_then(|it| claim::provider_id(it)).unwrap_or_default();
        let names = state.nodes_of_machine(id).map(|node| node.model.name.clone());
        names.filter(|name| is_leaving(state, name)).for_each(|name| leaving.add(name));
    });
    let leaving = Arc::clone(queue);
    context.store.on_any_of(&[Kind::VolumeAttachment], move |_, state| {
        let nodes = state.nodes.iter().filter(|(_, node)| node.model.deletion_timestamp.is_some());
        nodes.for_each(|(name, _)| leaving.add(name.clone()));
    });
}

/// The Node as it has to be while it is drained.
pub(crate) fn cordoned(node: &Node) -> Node {
    let mut node = node.clone();
    let disrupted = taints::disrupted();
    if !has_taint(&node, &disrupted) {
        let of_node = node.spec.get_or_insert_default().taints.get_or_insert_default();
        // Of another effect, by hand: ours takes its place.
        of_node.retain(|taint| !same_taint(taint, &disrupted));
        of_node.push(disrupted);
    }
    let of_node = node.metadata.labels.get_or_insert_default();
    of_node
        .entry(labels::EXCLUDE_FROM_LOAD_BALANCERS.to_owned())
        .or_insert_with(|| labels::EXCLUDE_FROM_LOAD_BALANCERS_VALUE.to_owned());
    node
}

/// How far the volumes of a drained node are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Detachment {
    /// None is attached.
    Done,
    /// Some are, and there is time.
    Awaited,
    /// Some are, and the time is over: the machine goes all the same.
    GivenUp,
}

/// Decides about volumes.
pub(crate) fn detachment(awaited: usize, deadline: Option<Timestamp>, now: Timestamp) -> Detachment {
    if awaited == 0 {
        Detachment::Done
    } else if deadline.is_some_and(|deadline| now >= deadline) {
        Detachment::GivenUp
    } else {
        Detachment::Awaited
    }
}

/// Whether the claims of the node's DRA drivers are released, as a NodeClaim says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Release {
    /// Nobody waits for one.
    Done,
    /// This one is waited for.
    Awaited(String),
    /// This one is in use, but the drain no longer waits for it.
    GivenUp(String),
}

impl From<&Claims<'_>> for Release {
    fn from(claims: &Claims<'_>) -> Self {
        match claims {
            Claims::Released => Self::Done,
            Claims::Awaited(pod, reason) => {
                Self::Awaited(format!("{reason}, driver pod {} stays until then", pod.name))
            }
            Claims::GivenUp(pod, reason) => {
                Self::GivenUp(format!("{reason}, driver pod {} goes all the same", pod.name))
            }
        }
    }
}

impl Release {
    /// Says whether anything changed. Where claims were never waited for there is nothing to say.
    pub(crate) fn write(&self, conditions: &mut ConditionSet<'_>) -> bool {
        match self {
            Self::Awaited(message) => conditions.set_unknown(CLAIMS_RELEASED, AWAITING_CLAIM_RELEASE, message),
            Self::GivenUp(message) => conditions.set_false(CLAIMS_RELEASED, TERMINATION_GRACE_PERIOD_ELAPSED, message),
            Self::Done => {
                let is_awaited =
                    conditions.get(CLAIMS_RELEASED).is_some_and(|known| known.status == conditions::UNKNOWN);
                is_awaited && conditions.set_true(CLAIMS_RELEASED)
            }
        }
    }
}

/// One deleted Node.
struct Leaving<'a> {
    context: &'a Context,
    node: Arc<Node>,
    name: &'a NodeName,
    /// Its NodeClaim, unless it has none or more than one.
    claim: Option<Arc<NodeClaim>>,
    deadline: Option<Timestamp>,
    now: Timestamp,
}

async fn reconcile(context: &Context, evictions: &Evictions, name: &NodeName) -> anyhow::Result<Action> {
    let Some(node) = context.store.read().nodes.get(name).map(|node| node.object.clone()) else {
        return Ok(Action::Done);
    };
    if node.metadata.deletion_timestamp.is_none() || !is_managed(&node, context) {
        return Ok(Action::Done);
    }
    let claim = sole_claim(context, &node);
    let of_claim = claim.as_deref().and_then(termination::deadline_of_claim);
    let deadline = of_claim.or_else(|| termination::deadline(node.metadata.annotations.as_ref()));
    let leaving = Leaving { context, node, name, claim, deadline, now: context.clock.now() };
    leaving.proceed(evictions).await
}

fn is_managed(node: &Node, context: &Context) -> bool {
    let has_finalizer = node.metadata.finalizers.iter().flatten().any(|it| it == finalizers::TERMINATION);
    let of_node = node.metadata.labels.as_ref();
    let kinds = context.cloud.node_class_kinds();
    has_finalizer
        && of_node.is_some_and(|of_node| {
            kinds.iter().any(|kind| of_node.contains_key(&labels::node_class(kind.group, kind.kind)))
        })
}

fn sole_claim(context: &Context, node: &Node) -> Option<Arc<NodeClaim>> {
    let id = provider_id(node)?;
    let state = context.store.read();
    let mut claims = state.node_claims_of_machine(id);
    match (claims.next(), claims.next()) {
        (Some(claim), None) => Some(Arc::clone(claim)),
        (None, _) | (Some(_), Some(_)) => None,
    }
}

impl Leaving<'_> {
    async fn proceed(&self, evictions: &Evictions) -> anyhow::Result<Action> {
        if let Some(node_claim) = self.claim.as_deref().filter(|node_claim| !claim::is_deleting(node_claim)) {
            claim::delete(&self.context.client, node_claim, Lock::Uid).await?;
        }
        if self.machine_is_gone().await? {
            return self.remove_finalizer().await;
        }
        if self.cordon().await? {
            // The watch brings the Node back with its taint; only then is the scheduler out of the way.
            return Ok(Action::RequeueAfter(POLL));
        }
        if self.awaits_replacements().await? {
            return Ok(Action::RequeueAfter(POLL));
        }
        if !self.drained(evictions).await? || !self.volumes_detached().await? {
            return Ok(Action::RequeueAfter(POLL));
        }
        if let (Some(node_claim), Some(id)) = (&self.claim, provider_id(&self.node)) {
            // As it is after the conditions above were written.
            let node_claim = self.context.store.read().node_claims.get(claim::name(node_claim)).cloned();
            match end_instance(self.context, node_claim.as_deref(), &ProviderId::from(id)).await? {
                Instance::Ending { ask_again_in } => return Ok(Action::RequeueAfter(ask_again_in)),
                Instance::Gone => {}
            }
        }
        self.remove_finalizer().await
    }

    /// Whether there is nothing left to drain: no kubelet runs pods there any more.
    async fn machine_is_gone(&self) -> anyhow::Result<bool> {
        let Some(id) = provider_id(&self.node).filter(|_| !is_ready(&self.node)) else { return Ok(false) };
        match self.context.cloud.get(&id.into()).await {
            Ok(_) => Ok(false),
            Err(Error::NotFound(_)) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Says whether something had to be written.
    async fn cordon(&self) -> anyhow::Result<bool> {
        let wanted = cordoned(&self.node);
        if patch::between(self.node.as_ref(), &wanted, Lock::Revision)?.is_none() {
            return Ok(false);
        }
        if let Some(deadline) = self.deadline {
            self.tell(events::TERMINATION_GRACE_PERIOD_EXPIRING, format!("All pods will be deleted by {deadline}"));
        }
        failpoints::hit("terminate.before-taint");
        patch::object(&self.nodes(), self.node.as_ref(), &wanted, Lock::Revision).await?;
        failpoints::hit("terminate.after-taint");
        info!(node = %self.name, "tainted node");
        Ok(true)
    }

    /// Whether the drain waits for machines that take the pods of one that the cloud takes back.
    async fn awaits_replacements(&self) -> anyhow::Result<bool> {
        let Some(node_claim) = self.claim.as_deref().filter(|it| !replacements::has_begun(it)) else {
            return Ok(false);
        };
        let Some(interrupted_at) = replacements::interrupted_at(node_claim) else { return Ok(false) };
        let Some(message) = self.awaited_replacements(node_claim, interrupted_at) else { return Ok(false) };
        let is_new = find(claim::conditions(node_claim), DRAINED).is_none_or(|condition| condition.message != message);
        if is_new {
            info!(node = %self.name, "{message}");
            self.set_condition(|conditions| conditions.set_unknown(DRAINED, AWAITING_REPLACEMENTS, &message)).await?;
        }
        Ok(true)
    }

    /// What is waited for and how long, in words; `None` if the drain begins. From then on new pods take the places of
    /// those that leave.
    fn awaited_replacements(&self, node_claim: &NodeClaim, interrupted_at: Timestamp) -> Option<String> {
        let state = self.context.store.read();
        let pods: Vec<_> = state.pods_on_node(self.name).filter(|pod| will_be_replaced(pod)).collect();
        if pods.is_empty() {
            return None;
        }
        let until = replacements::Bounds {
            interrupted_at,
            deadline: self.deadline,
            deleted_at: node_claim.metadata.deletion_timestamp.as_ref().map_or(self.now, to_timestamp),
            patience: self.context.options.replacement_timeout,
            drain: drain::longest(pods.iter().map(|pod| &***pod), &state.interner, self.now),
        }
        .latest();
        let places = self.context.departures.places(self.name, pods.iter().map(|pod| &pod.uid));
        let awaited = match &places {
            None => Some("waiting for a plan for its pods".to_owned()),
            Some(places) => {
                let awaited = replacements::awaited(&state, places.iter().map(|(_, place)| place));
                let names: Vec<&str> = awaited.iter().take(SHOWN).map(|name| name.as_str()).collect();
                (!names.is_empty()).then(|| format!("waiting for NodeClaims that take its pods: {}", names.join(", ")))
            }
        };
        if let Some(awaited) = awaited.filter(|_| self.now < until) {
            return Some(format!("{awaited}, until {until} at the latest"));
        }
        let moves =
            places.into_iter().flatten().filter_map(|(pod, place)| Some((state.pod_by_uid(pod)?.clone(), place)));
        self.context.successors.expect(&claim::uid(node_claim), moves, self.now);
        None
    }

    async fn drained(&self, evictions: &Evictions) -> anyhow::Result<bool> {
        if self.claim.as_deref().is_some_and(|node_claim| claim::is(node_claim, DRAINED)) {
            return Ok(true);
        }
        let (remaining, release) = self.ask_pods_to_leave(evictions);
        let since = self.draining_since().await?;
        self.set_condition(|conditions| release.write(conditions)).await?;
        if let Release::Awaited(message) = release {
            self.tell(events::AWAITING_CLAIM_RELEASE, message);
        }
        if remaining > 0 {
            let message = format!("Failed to drain node, {remaining} pods are waiting to be evicted");
            self.tell(events::FAILED_DRAINING, message);
        }
        if remaining > 0 || self.now.since(since) < MIN_DRAIN {
            return Ok(false);
        }
        self.set_condition(|conditions| conditions.set_true(DRAINED)).await?;
        let by_pool = ByNodePool { nodepool: self.node_pool() };
        self.context.metrics.nodes_drained.get_or_create(&by_pool).inc();
        info!(node = %self.name, "drained node");
        Ok(true)
    }

    /// Queues the pods whose turn it is, and says how many must leave in all, and whether claims keep some back.
    fn ask_pods_to_leave(&self, evictions: &Evictions) -> (usize, Release) {
        let state = self.context.store.read();
        let in_use = DevicesInUse::on(&state, self.name, self.now);
        let pods = state.pods_on_node(self.name).map(AsRef::as_ref);
        let mut drain = drain::decide(pods, &in_use, self.deadline, &state.interner, self.now);
        let is_in_a_hurry = self.deadline.is_some_and(|deadline| self.now > deadline.saturating_sub(LEAST_LEISURE));
        if !is_in_a_hurry {
            let must_go = |pod: &Pod| needs_force(pod, self.deadline, self.now);
            drain.next.retain(|pod| must_go(pod) || !self.context.successors.waits_for_others(pod, &state, self.now));
        }
        let conditions = self.claim.as_deref().map(claim::conditions).unwrap_or_default();
        let reason = find(conditions, DISRUPTION_REASON).filter(|it| it.status == conditions::TRUE);
        let reason = reason.map_or(FORCEFUL, |condition| condition.reason.as_str());
        for pod in &drain.next {
            let key = PodKey { name: pod.name.clone(), uid: pod.uid.clone() };
            let request = Request {
                node: self.name.clone(),
                deadline: self.deadline,
                give_up_at: None,
                reason: reason.to_owned(),
            };
            if !evictions.add(key, request) {
                warn!(node = %self.name, pod = %pod.name, "too many pods wait for their eviction, trying again later");
            }
        }
        (drain.remaining, Release::from(&drain.claims))
    }

    /// Since when the drain has been under way.
    async fn draining_since(&self) -> anyhow::Result<Timestamp> {
        let Some(node_claim) = self.claim.as_deref() else {
            return Ok(self.node.metadata.deletion_timestamp.as_ref().map_or(self.now, to_timestamp));
        };
        let since = find(claim::conditions(node_claim), DRAINED).map(|it| to_timestamp(&it.last_transition_time));
        if !replacements::has_begun(node_claim) {
            self.set_condition(|conditions| conditions.set_unknown(DRAINED, DRAINING, DRAINING)).await?;
        }
        // Since then nothing could be bound there.
        Ok(since.unwrap_or(self.now))
    }

    async fn volumes_detached(&self) -> anyhow::Result<bool> {
        let awaited = volumes::awaited(&self.context.store.read(), self.name, self.now);
        match detachment(awaited.len(), self.deadline, self.now) {
            Detachment::Done => self.set_condition(|conditions| conditions.set_true(VOLUMES_DETACHED)).await?,
            Detachment::GivenUp => {
                let reason = TERMINATION_GRACE_PERIOD_ELAPSED;
                self.set_condition(|conditions| conditions.set_false(VOLUMES_DETACHED, reason, reason)).await?;
            }
            Detachment::Awaited => {
                let reason = AWAITING_VOLUME_DETACHMENT;
                self.set_condition(|conditions| conditions.set_unknown(VOLUMES_DETACHED, reason, reason)).await?;
                let names: Vec<&str> = awaited.iter().take(SHOWN).map(AsRef::as_ref).collect();
                let message = format!("Awaiting deletion of {} VolumeAttachments, {}", awaited.len(), names.join(", "));
                self.tell(events::AWAITING_VOLUME_DETACHMENT, message);
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn set_condition(&self, change: impl FnOnce(&mut ConditionSet<'_>) -> bool) -> anyhow::Result<()> {
        let Some(node_claim) = &self.claim else { return Ok(()) };
        // The latest that we know: an earlier step of this look may have written it.
        let latest = self.context.store.read().node_claims.get(claim::name(node_claim)).cloned();
        let Some(latest) = latest.filter(|latest| latest.metadata.uid == node_claim.metadata.uid) else {
            return Ok(());
        };
        set_condition(self.context, &latest, change).await
    }

    async fn remove_finalizer(&self) -> anyhow::Result<Action> {
        failpoints::hit("terminate.before-node-finalizer");
        let mut wanted = Node::clone(&self.node);
        wanted.metadata.finalizers.get_or_insert_default().retain(|finalizer| finalizer != finalizers::TERMINATION);
        match patch::object(&self.nodes(), self.node.as_ref(), &wanted, Lock::Revision).await {
            Ok(_) => {}
            Err(error) if is_not_found(&error) => return Ok(Action::Done),
            Err(error) => return Err(error),
        }
        failpoints::hit("terminate.after-node-finalizer");
        self.observe();
        info!(node = %self.name, "deleted node");
        Ok(Action::Done)
    }

    fn observe(&self) {
        let metrics = &self.context.metrics;
        let label = |key: &str| {
            self.node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned().unwrap_or_default()
        };
        let by_zone = ByZone { nodepool: self.node_pool(), zone: label(labels::ZONE) };
        metrics.nodes_terminated.get_or_create(&by_zone).inc();
        let by_pool = ByNodePool { nodepool: self.node_pool() };
        let since = |start: Timestamp| age_seconds(self.now.since(start));
        if let Some(deleted_at) = self.node.metadata.deletion_timestamp.as_ref().map(to_timestamp) {
            metrics.nodes_termination_duration_seconds.get_or_create(&by_pool).observe(since(deleted_at));
        }
        if let Some(created_at) = self.node.metadata.creation_timestamp.as_ref().map(to_timestamp) {
            metrics.nodes_lifetime_duration_seconds.get_or_create(&by_pool).observe(since(created_at));
        }
    }

    fn node_pool(&self) -> String {
        let of_node = self.node.metadata.labels.as_ref();
        of_node.and_then(|labels| labels.get(labels::NODEPOOL)).cloned().unwrap_or_default()
    }

    fn tell(&self, reason: &'static str, message: String) {
        self.context.recorder.publish(Event::new(reference(self.node.as_ref()), Severity::Warning, reason, message));
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.context.client.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_leaving_node_takes_no_pods_and_no_traffic() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"a": "1"}},
            "spec": {"taints": [{"key": "x", "effect": "NoExecute"}]},
        }))
        .unwrap();
        let cordoned_node = cordoned(&node);
        let value = serde_json::to_value(&cordoned_node).unwrap();
        assert_eq!(
            value["spec"]["taints"],
            json!([
                {"key": "x", "effect": "NoExecute"},
                {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
            ])
        );
        assert_eq!(
            value["metadata"]["labels"],
            json!({"a": "1", "node.kubernetes.io/exclude-from-external-load-balancers": "karpenter"})
        );
        assert_eq!(cordoned(&cordoned_node), cordoned_node);
    }

    #[test]
    fn the_release_of_claims_is_told_only_where_it_was_waited_for() {
        let metadata = kube::api::ObjectMeta::default();
        let write = |conditions: &mut Vec<_>, release: &Release| {
            release.write(&mut ConditionSet::of(conditions, &metadata, &[], Timestamp::from_seconds(10)));
            let known = find(conditions, CLAIMS_RELEASED);
            known.map(|known| (known.status.clone(), known.reason.clone(), known.message.clone()))
        };
        let says = |status: &str, reason: &str, message: &str| Some((status.into(), reason.into(), message.into()));
        let (awaited, given_up) = (Release::Awaited("pod a".into()), Release::GivenUp("pod b".into()));
        let of = |steps: &[&Release]| {
            let mut conditions = Vec::new();
            steps.iter().map(|step| write(&mut conditions, step)).last().flatten()
        };
        assert_eq!(of(&[&Release::Done]), None);
        assert_eq!(of(&[&awaited]), says("Unknown", "AwaitingClaimRelease", "pod a"));
        assert_eq!(of(&[&awaited, &Release::Done]), says("True", "ClaimsReleased", ""));
        assert_eq!(of(&[&awaited, &given_up]), says("False", "TerminationGracePeriodElapsed", "pod b"));
        assert_eq!(of(&[&given_up, &Release::Done]), says("False", "TerminationGracePeriodElapsed", "pod b"));
    }

    #[test]
    fn volumes_are_waited_for_until_the_deadline() {
        let (now, later) = (Timestamp::from_seconds(10), Timestamp::from_seconds(11));
        let cases = [
            (0, None, Detachment::Done),
            (0, Some(now), Detachment::Done),
            (2, None, Detachment::Awaited),
            (2, Some(later), Detachment::Awaited),
            (2, Some(now), Detachment::GivenUp),
        ];
        for (awaited, deadline, expected) in cases {
            assert_eq!(detachment(awaited, deadline, now), expected);
        }
    }
}
