//! A machine is rebooted because its Node is broken (Karpenter 1.15's `nodeclaim.reboot`).
//!
//! In order: a taint keeps new pods away; its pods are asked to leave, never by force, and those that stay ride the
//! reboot; the provider is asked; once the Node shows another boot it is opened, and once it is ready the reboot is
//! over. Then it is initialized like a new one. What fails takes the machine away.
//!
//! `controllers/node_repair` asks for reboots, by condition `Rebooting` of the NodeClaim. All that is to be known after
//! a restart is on the NodeClaim, so one that a Karpenter has begun is brought to its end too. [`decision`] says what
//! comes next.
//!
//! Failpoints, in order: `reboot.before-fence`, `reboot.before-boot-id`, `reboot.before-provider`,
//! `reboot.after-provider`, `reboot.before-issued`, `reboot.before-open`, `reboot.before-success`,
//! `reboot.after-success`; `reboot.before-failure`.

use std::sync::Arc;
use std::time::Duration;

use api::conditions::node_claim::{
    DISRUPTION_REASON, INITIALIZED, REBOOT_FAILED, REBOOT_ISSUED, REBOOT_SUCCEEDED, REBOOTING,
};
use api::{NodeClaim, annotations, events, labels, taints};
use cloudprovider::Error;
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use model::{DurationMs, NodeClaimName, NodeName, Timestamp};
use tracing::{debug, info, warn};

use super::devices_in_use::DevicesInUse;
use super::drain;
use super::eviction::{Evictions, PodKey, Request};
use crate::runtime::failpoints;
use crate::runtime::failures::{self, in_words};
use crate::runtime::metrics::{ByResult, age_seconds};
use crate::runtime::patch::{self, Lock};
use crate::runtime::queue::{self, Action, WorkQueue};
use crate::runtime::recorder::{Event, Severity, reference};
use crate::world::claim;
use crate::world::context::Context;
use crate::world::disrupted::Disrupted;
use crate::world::instance::set_condition;
use crate::world::node_facts::has_taint;
use crate::world::store::{NodeRecord, Revision};
use crate::world::termination;

use decision::{Failure, Step};

mod decision;

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "nodeclaim.reboot";
/// How often a drain is looked at though nothing has changed that we know of.
const POLL_DRAIN: Duration = Duration::from_secs(1);
/// How often a machine is looked at that is to come back.
const POLL: Duration = Duration::from_secs(15);
/// Reason of evictions, for the pods' events.
const UNHEALTHY: &str = "Unhealthy";
/// Why, as metrics have it.
const REASON: &str = "unhealthy";
/// Annotations that mean something only while a machine is being rebooted.
const OF_REBOOT: [&str; 3] =
    [annotations::REBOOT_PRE_BOOT_ID, annotations::REBOOT_TERMINATION_GRACE_PERIOD, annotations::REBOOT_ISSUED_AT];

/// Carries reboots out until the context is stopped.
pub(crate) async fn run(context: Context, evictions: Evictions) {
    let queue = Arc::new(WorkQueue::new());
    let changed = Arc::clone(&queue);
    context.store.on::<NodeClaim>(move |delta, _| {
        if delta.after.is_some_and(|after| is_ours(after)) {
            changed.add(delta.key.clone());
        }
    });
    let changed = Arc::clone(&queue);
    context.store.on::<NodeRecord>(move |delta, state| {
        let id = delta.latest().and_then(|node| node.model.provider_id.as_deref()).unwrap_or_default();
        let rebooting = state.node_claims_of_machine(id).filter(|node_claim| claim::is(node_claim, REBOOTING));
        rebooting.for_each(|node_claim| changed.add(claim::name(node_claim).into()));
    });
    context.store.wait_until_synced().await;
    for (name, node_claim) in context.store.read().node_claims.iter() {
        if is_ours(node_claim) {
            queue.add(name.clone());
        }
    }
    let owner = context.owner(NAME);
    queue::run(owner, queue, queue::Config::default(), move |name| {
        let (context, evictions) = (context.clone(), evictions.clone());
        async move {
            match reconcile(&context, &evictions, &name).await {
                Err(failure) if failures::is_not_found(&failure) => Ok(Action::Done),
                result => result,
            }
        }
    })
    .await;
}

/// Whether there may be anything to do about a NodeClaim.
fn is_ours(node_claim: &NodeClaim) -> bool {
    claim::is(node_claim, REBOOTING) || decision::has_leftovers(node_claim)
}

/// One machine that is being rebooted.
struct Reboot<'a> {
    context: &'a Context,
    claim: Arc<NodeClaim>,
    node: Option<Arc<Node>>,
    now: Timestamp,
}

async fn reconcile(context: &Context, evictions: &Evictions, name: &NodeClaimName) -> anyhow::Result<Action> {
    let found = {
        let state = context.store.read();
        state.node_claims.get(name).map(|found| {
            let mut nodes = state.nodes_of_machine(claim::provider_id(found).unwrap_or_default());
            (Arc::clone(found), nodes.next().map(|node| Arc::clone(&node.object)))
        })
    };
    let Some((node_claim, node)) = found.filter(|(it, _)| claim::is_managed(it, context.cloud.node_class_kinds()))
    else {
        return Ok(Action::Done);
    };
    let reboot = Reboot { context, claim: node_claim, node, now: context.clock.now() };
    reboot.proceed(evictions).await
}

impl Reboot<'_> {
    async fn proceed(&self, evictions: &Evictions) -> anyhow::Result<Action> {
        let remaining = self.drainable(None);
        match decision::decide(&self.claim, self.node.as_deref(), remaining, self.now) {
            Step::Nothing => Ok(Action::Done),
            Step::Tidy => self.tidy().await,
            Step::AwaitNode(until) | Step::AwaitBoot(until) | Step::AwaitReady(until) => Ok(self.again(until, POLL)),
            Step::Settle(until) => Ok(self.again(until, POLL_DRAIN)),
            Step::Fence => {
                failpoints::hit("reboot.before-fence");
                self.change_node(fenced).await
            }
            Step::Drain(until) => {
                self.drainable(Some((evictions, until)));
                Ok(until.map_or(Action::RequeueAfter(POLL_DRAIN), |until| self.again(until, POLL_DRAIN)))
            }
            Step::NoteBoot(boot_id) => {
                failpoints::hit("reboot.before-boot-id");
                let now = self.now.to_string();
                self.annotate(|notes| {
                    notes.insert(annotations::REBOOT_PRE_BOOT_ID.to_owned(), boot_id);
                    notes.insert(annotations::REBOOT_ISSUED_AT.to_owned(), now);
                })
                .await
            }
            Step::Issue(operation_id) => self.issue(&operation_id).await,
            Step::NoteIssued => self.note_issued().await,
            Step::LiftFence => {
                failpoints::hit("reboot.before-open");
                let action = self.change_node(opened).await?;
                let message = "New boot observed, the Node is waited for to become ready";
                self.tell(Severity::Normal, events::REBOOT_OBSERVED, message);
                Ok(action)
            }
            Step::Succeed => self.succeed().await,
            Step::Fail(failure, because) => self.fail(failure, because).await,
            Step::Refuse(problem) => self.refuse(&problem).await,
        }
    }

    fn again(&self, until: Timestamp, poll: Duration) -> Action {
        let left = u64::try_from(until.since(self.now).0).unwrap_or_default();
        Action::RequeueAfter(Duration::from_millis(left).min(poll))
    }

    /// How many pods a drain would wait for; those whose turn it is are asked to leave, if that is wanted.
    fn drainable(&self, ask: Option<(&Evictions, Option<Timestamp>)>) -> usize {
        let Some(name) = self.node.as_deref().and_then(|node| node.metadata.name.as_deref()).map(NodeName::from) else {
            return 0;
        };
        let state = self.context.store.read();
        let in_use = DevicesInUse::on(&state, &name, self.now);
        let pods = state.pods_on_node(&name).map(AsRef::as_ref);
        // Without a deadline nobody goes by force.
        let drain = drain::decide(pods, &in_use, None, &state.interner, self.now);
        if let Some((evictions, give_up_at)) = ask {
            for pod in &drain.next {
                let key = PodKey { name: pod.name.clone(), uid: pod.uid.clone() };
                let reason = UNHEALTHY.to_owned();
                let request = Request { node: name.clone(), deadline: None, give_up_at, reason };
                if !evictions.add(key, request) {
                    warn!(node = %name, pod = %pod.name, "too many pods wait for their eviction, trying again later");
                }
            }
        }
        drain.remaining
    }

    async fn change_node(&self, change: impl Fn(&Node) -> Node) -> anyhow::Result<Action> {
        if let Some(node) = &self.node {
            patch::retried(&Api::<Node>::all(self.context.client.clone()), node, change).await?;
        }
        // The watch brings the Node back, and with it the next step.
        Ok(Action::RequeueAfter(POLL_DRAIN))
    }

    async fn annotate(
        &self,
        change: impl FnOnce(&mut std::collections::BTreeMap<String, String>),
    ) -> anyhow::Result<Action> {
        let mut wanted = NodeClaim::clone(&self.claim);
        change(wanted.metadata.annotations.get_or_insert_default());
        self.write(&wanted).await?;
        Ok(Action::RequeueAfter(Duration::ZERO))
    }

    async fn write(&self, wanted: &NodeClaim) -> anyhow::Result<Option<NodeClaim>> {
        let api: Api<NodeClaim> = Api::all(self.context.client.clone());
        let answer = patch::object(&api, &*self.claim, wanted, Lock::Revision).await?;
        if let Some(answer) = &answer {
            self.context.store.apply(answer.clone(), Revision::of(&answer.metadata));
        }
        Ok(answer)
    }

    async fn issue(&self, operation_id: &str) -> anyhow::Result<Action> {
        failpoints::hit("reboot.before-provider");
        let answer = self.context.cloud.reboot(&self.claim, operation_id).await;
        failpoints::hit("reboot.after-provider");
        match answer {
            Ok(()) => {
                info!(node_claim = claim::name(&self.claim), operation_id, "the provider accepted the reboot");
                self.note_issued().await
            }
            Err(Error::RebootNotImplemented(why) | Error::RebootFailed(why) | Error::NotFound(why)) => {
                warn!(node_claim = claim::name(&self.claim), error = why, "the provider refused the reboot");
                self.fail(Failure::Provider, "the provider refuses it").await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The Node first: as long as it has the label, pods may think that it is as before.
    async fn note_issued(&self) -> anyhow::Result<Action> {
        let without_label = |node: &Node| {
            let mut node = node.clone();
            node.metadata.labels.get_or_insert_default().remove(labels::INITIALIZED);
            node
        };
        self.change_node(without_label).await?;
        failpoints::hit("reboot.before-issued");
        let message = crate::runtime::conditions::find(claim::conditions(&self.claim), REBOOTING)
            .map(|condition| condition.message.clone())
            .unwrap_or_default();
        set_condition(self.context, &self.claim, |conditions| {
            let is_new = conditions.set_true_because(REBOOTING, REBOOT_ISSUED, &message);
            conditions.set_unknown(INITIALIZED, REBOOTING, "The machine is being rebooted") || is_new
        })
        .await?;
        Ok(Action::RequeueAfter(POLL))
    }

    async fn succeed(&self) -> anyhow::Result<Action> {
        failpoints::hit("reboot.before-success");
        let message = "The machine has booted again and its Node is ready";
        self.end(REBOOT_SUCCEEDED, message).await?;
        if let Some(issued_at) = decision::issued_at(&self.claim) {
            let recovery = age_seconds(self.now.since(issued_at));
            self.context.metrics.nodes_reboot_recovery_duration_seconds.observe(recovery);
        }
        self.count("succeeded");
        info!(node_claim = claim::name(&self.claim), outcome = REBOOT_SUCCEEDED, "reboot reached terminal outcome");
        Ok(Action::Done)
    }

    async fn refuse(&self, problem: &str) -> anyhow::Result<Action> {
        self.end(REBOOT_FAILED, problem).await?;
        self.change_node(opened).await?;
        self.count("invalid_request");
        self.tell(Severity::Warning, events::REBOOT_FAILED, &format!("The machine is not rebooted: {problem}"));
        warn!(
            node_claim = claim::name(&self.claim),
            error = problem,
            outcome = REBOOT_FAILED,
            "reboot reached terminal outcome"
        );
        Ok(Action::Done)
    }

    /// The conditions first: what is left over of annotations means nothing then.
    async fn end(&self, reason: &str, message: &str) -> anyhow::Result<()> {
        set_condition(self.context, &self.claim, |conditions| {
            let is_new = conditions.set_false(REBOOTING, reason, message);
            conditions.clear(DISRUPTION_REASON) || is_new
        })
        .await?;
        failpoints::hit("reboot.after-success");
        let latest = self.context.store.read().node_claims.get(claim::name(&self.claim)).cloned();
        let Some(latest) = latest.filter(|latest| claim::uid(latest) == claim::uid(&self.claim)) else { return Ok(()) };
        let ended = Reboot { context: self.context, claim: latest, node: None, now: self.now };
        // What is not taken away now is when the NodeClaim is looked at again; that the reboot is over is told now.
        if let Err(error) = ended.tidy().await {
            debug!(
                node_claim = claim::name(&self.claim),
                error = in_words(&error),
                "could not remove the annotations of a reboot"
            );
        }
        Ok(())
    }

    async fn tidy(&self) -> anyhow::Result<Action> {
        self.annotate(|notes| notes.retain(|key, _| !OF_REBOOT.contains(&key.as_str()))).await?;
        Ok(Action::Done)
    }

    /// The machine goes, and is drained no longer than it would have been for the reboot.
    async fn fail(&self, failure: Failure, because: &'static str) -> anyhow::Result<Action> {
        let bound = decision::bound(&self.claim).ok().flatten();
        let disrupted = Disrupted::now(&self.context.store.read(), &self.claim, REASON).bounded(bound);
        let bounded = match bound {
            Some(bound) => self.write(&termination::tightened(&self.claim, self.now.saturating_add(bound))).await?,
            None => None,
        };
        failpoints::hit("reboot.before-failure");
        let latest = bounded.as_ref().unwrap_or(&self.claim);
        claim::delete(&self.context.client, latest, Lock::Revision).await?;
        self.count(failure.as_str());
        disrupted.count(&self.context.metrics);
        self.tell(
            Severity::Warning,
            events::REBOOT_FAILED,
            &format!("Replacing the node, its reboot failed: {because}"),
        );
        warn!(
            node_claim = claim::name(&self.claim),
            outcome = failure.as_str(),
            error = because,
            "reboot failed, replacing node"
        );
        Ok(Action::Done)
    }

    fn count(&self, result: &str) {
        let by_result = ByResult { result: result.to_owned() };
        let metrics = &self.context.metrics;
        metrics.nodes_reboots.get_or_create(&by_result).inc();
        let lasted = decision::requested_at(&self.claim).map_or(DurationMs::ZERO, |since| self.now.since(since));
        metrics.nodes_reboot_duration_seconds.get_or_create(&by_result).observe(age_seconds(lasted));
    }

    fn tell(&self, severity: Severity, reason: &'static str, message: &str) {
        let request = decision::requested_at(&self.claim).unwrap_or_default();
        let event = Event::new(reference(&*self.claim), severity, reason, message);
        self.context.recorder.publish(event.with_dedupe(request.to_string()));
    }
}

/// The Node as it has to be until it has booted again.
fn fenced(node: &Node) -> Node {
    let mut node = node.clone();
    if !has_taint(&node, &taints::rebooting()) {
        node.spec.get_or_insert_default().taints.get_or_insert_default().push(taints::rebooting());
    }
    node
}

/// The Node without what [`fenced`] gives it.
fn opened(node: &Node) -> Node {
    let mut node = node.clone();
    if let Some(of_node) = node.spec.as_mut().and_then(|spec| spec.taints.as_mut()) {
        of_node.retain(|taint| !crate::world::node_facts::same_taint(taint, &taints::rebooting()));
    }
    node
}
