//! A NodeClaim's way from a wish to a node: launch, registration, initialization; and what ends those that do not get
//! there.
//!
//! Each step is a decision in a module of its own, a pure function of objects and time. This module carries decisions
//! out: it calls the provider and writes patches, each with a precondition, so that a stale look is repeated and never
//! wins.
//!
//! Nothing leaks: the finalizer is written before the first launch, and the launch's token is the NodeClaim's uid. So
//! whatever step a crash hits, the next look at the NodeClaim gets the same machine again, or removes it.
//!
//! Failpoints, in order: `launch.before-create`, `launch.after-create`, `launch.before-status`,
//! `launch.after-status`, `registration.before-node`, `registration.after-node`, `initialization.after-node`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::conditions::node_claim::{
    DEVICES_PUBLISHED, DRA_DRIVER_POOLS_NOT_PUBLISHED, INITIALIZED, LAUNCHED, READY_DEPENDS_ON, REBOOTING, REGISTERED,
    REGISTRATION_HOOK_PENDING,
};
use api::{NodeClaim, NodeClaimStatus, annotations, conditions, events, finalizers, labels, taints};
use cloudprovider::{CreateRequest, Instance};
use dra_types::{NodeScope, ResourceSlice};
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use model::{DurationMs, NodeClaimName, Timestamp, Uid};
use parking_lot::Mutex;
use tracing::{error, info};

use crate::options::HandOverMode;
use crate::runtime::conditions::{ConditionSet, differ_in_reasons_only};
use crate::runtime::failpoints;
use crate::runtime::failures;
use crate::runtime::metrics::ByZone;
use crate::runtime::patch::{self, Lock};
use crate::runtime::queue::{self, Action, WorkQueue};
use crate::runtime::recorder::{Event, Severity, pod_reference, reference};
use crate::world::context::Context;
use crate::world::disrupted::Disrupted;
use crate::world::registration_health::{Outcome, RegistrationHealth};
use crate::world::store::{Kind, NodeRecord, Revision};
use crate::world::{claim, machine_devices, node_facts, overlays};
use initialization::Initialization;
use launch::Launch;
use liveness::{Liveness, Timeout};
use registration::{Hold, Registration};

mod await_devices;
pub(crate) mod consistency;
pub(crate) mod disruption_conditions;
pub(crate) mod expiration;
pub(crate) mod garbage_collection;
pub(crate) mod initialization;
pub(crate) mod launch;
pub(crate) mod leftovers;
pub(crate) mod liveness;
pub(crate) mod registration;
pub(crate) mod termination;

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "nodeclaim.lifecycle";
/// How many launches may be under way at the same time.
const CONCURRENCY: usize = 200;
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// A NodeClaim that is not registered yet is looked at this often though nothing has changed that we know of.
const RESYNC: Duration = Duration::from_secs(30);
/// A status that differs only in why a launched machine is not ready yet is written after this time: mostly there is
/// more to say by then, and every write costs the API server.
const EXPLAIN_AFTER: DurationMs = DurationMs::from_seconds(5);

/// The controller of NodeClaims.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    context: Context,
    health: Arc<RegistrationHealth>,
    /// Launched machines by their NodeClaim's uid, until the status says so too: saves calls while its write fails.
    launched: Mutex<BTreeMap<Uid, Instance>>,
    /// Since when a status is there that only explains more, by the NodeClaim's uid.
    unexplained: Mutex<BTreeMap<Uid, Timestamp>>,
}

/// Runs the controller until the context is stopped.
pub(crate) async fn run(context: Context, health: Arc<RegistrationHealth>) {
    let queue = Arc::new(WorkQueue::new());
    subscribe(&context, &queue);
    context.store.wait_until_synced().await;
    for name in context.store.read().node_claims.keys() {
        queue.add(name.clone());
    }
    let owner = context.owner(NAME);
    let lifecycle = Arc::new(Lifecycle { context, health, launched: Mutex::default(), unexplained: Mutex::default() });
    let config = queue::Config { concurrency: CONCURRENCY, backoff_min: BACKOFF_MIN, backoff_max: BACKOFF_MAX };
    queue::run(owner, queue, config, move |name| {
        let lifecycle = Arc::clone(&lifecycle);
        async move { lifecycle.reconcile(&name).await }
    })
    .await;
}

fn subscribe(context: &Context, queue: &Arc<WorkQueue<NodeClaimName>>) {
    let changed = Arc::clone(queue);
    context.store.on::<NodeClaim>(move |delta, _| changed.add(delta.key.clone()));
    let changed = Arc::clone(queue);
    context.store.on::<NodeRecord>(move |delta, state| {
        for node in delta.before.into_iter().chain(delta.after) {
            let provider_id = node.model.provider_id.as_deref().unwrap_or_default();
            state.node_claims_by_provider_id.get(provider_id).for_each(|name| changed.add(name.clone()));
        }
    });
    let changed = Arc::clone(queue);
    context.store.on_any_of(&[Kind::ResourceSlice], move |_, state| {
        let waits = |claim: &NodeClaim| !claim::is(claim, DEVICES_PUBLISHED) && machine_devices::are_expected(claim);
        state.node_claims.iter().filter(|(_, claim)| waits(claim)).for_each(|(name, _)| changed.add(name.clone()));
    });
    let changed = Arc::clone(queue);
    context.store.on::<ResourceSlice>(move |delta, state| {
        for slice in delta.before.into_iter().chain(delta.after) {
            let Some(NodeScope::Node(node)) = &slice.node_scope else { continue };
            let Some(node) = state.nodes.get(node) else { continue };
            let provider_id = node.model.provider_id.as_deref().unwrap_or_default();
            state.node_claims_by_provider_id.get(provider_id).for_each(|name| changed.add(name.clone()));
        }
    });
}

/// The status under way: what was read, and what shall be written.
struct Draft {
    read: Arc<NodeClaim>,
    wanted: NodeClaim,
    now: Timestamp,
}

impl Draft {
    fn new(read: Arc<NodeClaim>, now: Timestamp) -> Self {
        Self { wanted: NodeClaim::clone(&read), read, now }
    }

    fn conditions(&mut self) -> ConditionSet<'_> {
        let status = self.wanted.status.get_or_insert_default();
        ConditionSet::of(&mut status.conditions, &self.wanted.metadata, &READY_DEPENDS_ON, self.now)
    }

    /// Whether nothing is new but why conditions are unknown.
    fn only_explains(&self) -> bool {
        let rest = |claim: &NodeClaim| claim.status.clone().map(|it| NodeClaimStatus { conditions: Vec::new(), ..it });
        differ_in_reasons_only(claim::conditions(&self.read), claim::conditions(&self.wanted))
            && rest(&self.read) == rest(&self.wanted)
    }
}

/// Whether the steps after this one may be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Next,
    /// The NodeClaim is being deleted.
    End,
}

impl Lifecycle {
    async fn reconcile(&self, name: &NodeClaimName) -> anyhow::Result<Action> {
        let context = &self.context;
        let Some(node_claim) = context.store.read().node_claims.get(name).map(Arc::clone) else {
            context.assignments.forget_claim(name);
            return Ok(Action::Done);
        };
        if !claim::is_managed(&node_claim, context.cloud.node_class_kinds()) {
            return Ok(Action::Done);
        }
        self.tidy_nodes(&node_claim).await?;
        if claim::is_deleting(&node_claim) {
            self.launched.lock().remove(&claim::uid(&node_claim));
            self.unexplained.lock().remove(&claim::uid(&node_claim));
            return termination::reconcile(context, &node_claim).await;
        }
        let node_claim = self.ensure_finalizer(node_claim).await?;
        let mut draft = Draft::new(node_claim, context.clock.now());
        let read = Arc::clone(&draft.read);
        leftovers::clear(&read, &mut draft.conditions());
        let mut failure = None;
        if self.launch(&mut draft, &mut failure).await? == Step::End {
            return Ok(Action::Done);
        }
        self.register(&mut draft).await?;
        let devices_until = self.initialize(&mut draft).await?;
        let held_until = self.hold_devices(&mut draft).await?;
        let explain_at = self.explain_at(&draft);
        if explain_at.is_none() {
            self.write_status(&mut draft).await?;
        }
        if let Some(failure) = failure {
            // Counts as a failure of the queue: later and later, and the time-out has its say on the way.
            if self.live(&draft.wanted).await? == Action::Done {
                return Ok(Action::Done);
            }
            return Err(failure);
        }
        let action = self.live(&draft.wanted).await?;
        let times = devices_until.into_iter().chain(held_until).chain(explain_at);
        Ok(times.map(|time| self.again_at(time)).fold(action, Action::sooner))
    }

    /// When to write a status that has nothing new but why a launched machine is not ready yet; `None` is at once.
    fn explain_at(&self, draft: &Draft) -> Option<Timestamp> {
        let uid = claim::uid(&draft.read);
        let mut unexplained = self.unexplained.lock();
        if !claim::is_launched(&draft.read) || !draft.only_explains() {
            unexplained.remove(&uid);
            return None;
        }
        let at = unexplained.entry(uid.clone()).or_insert(draft.now).saturating_add(EXPLAIN_AFTER);
        if at <= draft.now {
            unexplained.remove(&uid);
        }
        Some(at).filter(|at| *at > draft.now)
    }

    /// Looks again at that time, or when things are looked at anyway.
    fn again_at(&self, deadline: Timestamp) -> Action {
        let left = Duration::from_millis(u64::try_from(deadline.since(self.context.clock.now()).0).unwrap_or_default());
        Action::RequeueAfter(left.min(RESYNC))
    }

    async fn ensure_finalizer(&self, node_claim: Arc<NodeClaim>) -> anyhow::Result<Arc<NodeClaim>> {
        let missing_label = registration::missing_class_label(&node_claim);
        if claim::has_finalizer(&node_claim) && missing_label.is_empty() {
            return Ok(node_claim);
        }
        let mut wanted = NodeClaim::clone(&node_claim);
        wanted.metadata.labels.get_or_insert_default().extend(missing_label);
        if !claim::has_finalizer(&node_claim) {
            wanted.metadata.finalizers.get_or_insert_default().push(finalizers::TERMINATION.to_owned());
        }
        let written = patch::object(&self.claims(), &*node_claim, &wanted, Lock::Revision).await?;
        Ok(self.keep(written).unwrap_or(node_claim))
    }

    /// Gives the machine's registered Node what it lacks, and takes from it what nobody else will; see [`leftovers`].
    async fn tidy_nodes(&self, node_claim: &NodeClaim) -> anyhow::Result<()> {
        let Some(id) = claim::provider_id(node_claim) else { return Ok(()) };
        let untidy: Vec<Arc<Node>> = {
            let state = self.context.store.read();
            let of_machine = state.nodes_of_machine(id).map(|node| &node.object);
            of_machine.filter(|node| leftovers::is_untidy(node_claim, node)).cloned().collect()
        };
        for node in untidy {
            let tidied = |node: &Node| leftovers::tidied(node_claim, node);
            match patch::retried(&Api::<Node>::all(self.context.client.clone()), &node, tidied).await {
                Err(failure) if failures::is_not_found(&failure) => continue,
                result => drop(result?),
            }
            info!(
                node_claim = claim::name(node_claim),
                node = node.metadata.name.as_deref().unwrap_or_default(),
                "removed what an earlier controller left on a node"
            );
        }
        Ok(())
    }

    /// Gets the machine, unless the status says that it is there.
    async fn launch(&self, draft: &mut Draft, failure: &mut Option<anyhow::Error>) -> anyhow::Result<Step> {
        let launched = crate::runtime::conditions::find(claim::conditions(&draft.wanted), LAUNCHED);
        if launched.is_some_and(|condition| condition.status != conditions::UNKNOWN) {
            self.launched.lock().remove(&claim::uid(&draft.read));
            return Ok(Step::Next);
        }
        let uid = claim::uid(&draft.read);
        let known = self.launched.lock().get(&uid).cloned();
        let answer = match known {
            Some(instance) => Ok(instance),
            None => {
                let corrected = overlays::corrected(&self.context, claim::node_pool(&draft.read)).await;
                let instance_types = corrected.as_ref().map(|corrected| &*corrected.types);
                let request = CreateRequest { claim: &draft.read, token: &uid, instance_types };
                failpoints::hit("launch.before-create");
                let answer = self.context.cloud.create(request).await;
                failpoints::hit("launch.after-create");
                answer
            }
        };
        match launch::decide(answer) {
            Launch::Launched(instance) => {
                self.launched.lock().insert(uid, (*instance).clone());
                self.launched(draft, &instance).await?;
            }
            Launch::Retry { reason, message } => {
                draft.conditions().set_unknown(LAUNCHED, &reason, &message);
                *failure = Some(anyhow::anyhow!("launching nodeclaim, {message}"));
            }
            Launch::GiveUp { event, metric, message } => {
                self.give_up(&draft.read, event, metric, &message).await?;
                return Ok(Step::End);
            }
        }
        Ok(Step::Next)
    }

    async fn launched(&self, draft: &mut Draft, instance: &Instance) -> anyhow::Result<()> {
        let rules = &self.context.cloud.config().labels;
        let (of_machine, of_instance) = launch::metadata(&draft.read, instance, rules);
        let mut wanted = NodeClaim::clone(&draft.read);
        wanted.metadata.labels.get_or_insert_default().extend(of_machine);
        wanted.metadata.annotations.get_or_insert_default().extend(of_instance);
        if let Some(devices) = self.described(&wanted).await.as_ref().and_then(machine_devices::annotation) {
            wanted.metadata.annotations.get_or_insert_default().insert(annotations::DEVICES.to_owned(), devices);
        }
        if let Some(written) = self.keep(patch::object(&self.claims(), &*draft.read, &wanted, Lock::Uid).await?) {
            *draft = Draft::new(written, draft.now);
        }
        launch::record(draft.wanted.status.get_or_insert_default(), instance);
        draft.conditions().set_true(LAUNCHED);
        // Written before the Node is looked for: this is what a restart needs most.
        failpoints::hit("launch.before-status");
        self.write_status(draft).await?;
        failpoints::hit("launch.after-status");
        Ok(())
    }

    async fn give_up(
        &self,
        node_claim: &NodeClaim,
        reason: &'static str,
        metric: &'static str,
        message: &str,
    ) -> anyhow::Result<()> {
        let name = claim::name(node_claim);
        error!(node_claim = name, reason, error = message, "failed launching nodeclaim");
        let text = format!("NodeClaim {name} event: {message}");
        self.context.recorder.publish(Event::new(reference(node_claim), Severity::Warning, reason, text));
        if reason == events::INSUFFICIENT_CAPACITY_ERROR {
            let text = format!("NodeClaim {name} nominated for this pod failed to launch: {message}");
            let state = self.context.store.read();
            for uid in self.context.assignments.pods_of(name).iter() {
                if let Some(pod) = state.pod_by_uid(uid).filter(|pod| pod.node_name.is_none()) {
                    let event = Event::new(pod_reference(pod), Severity::Warning, reason, text.clone());
                    self.context.recorder.publish(event);
                }
            }
        }
        disrupt(&self.context, node_claim, metric).await
    }

    /// Makes the machine's Node the NodeClaim's, once there is one.
    async fn register(&self, draft: &mut Draft) -> anyhow::Result<()> {
        let Some(provider_id) = claim::provider_id(&draft.wanted).filter(|_| claim::is_launched(&draft.wanted)) else {
            return Ok(());
        };
        if claim::is_registered(&draft.wanted) {
            return Ok(());
        }
        let context = &self.context;
        let nodes: Vec<Arc<Node>> = {
            let state = context.store.read();
            state.nodes_of_machine(provider_id).map(|node| Arc::clone(&node.object)).collect()
        };
        let name = claim::name(&draft.read);
        let hold =
            if context.options.hand_over.mode != HandOverMode::Off && !context.assignments.pods_of(name).is_empty() {
                Hold::UntilHandedOver
            } else {
                Hold::No
            };
        let seen: Vec<&Node> = nodes.iter().map(AsRef::as_ref).collect();
        let decision = registration::decide(&seen);
        if let Some((reason, message)) = decision.waiting_for() {
            match &decision {
                Registration::MultipleNodesFound => draft.conditions().set_false(REGISTERED, reason, message),
                Registration::NodeNotFound | Registration::Register { .. } => {
                    draft.conditions().set_unknown(REGISTERED, reason, message)
                }
            };
        }
        if let (Registration::Register { taint_missing }, [before]) = (decision, seen.as_slice()) {
            if taint_missing {
                self.tell_taint_missing(&draft.read, before);
            }
            if before.metadata.deletion_timestamp.is_some() {
                let message = "Node is being deleted";
                draft.conditions().set_unknown(REGISTERED, REGISTRATION_HOOK_PENDING, message);
                return Ok(());
            }
            failpoints::hit("registration.before-node");
            // Kubelet and node controller write to new nodes all the time.
            let registered = |node: &Node| registration::registered(&draft.wanted, node, hold);
            patch::retried(&Api::<Node>::all(context.client.clone()), before, registered).await?;
            failpoints::hit("registration.after-node");
            draft.conditions().set_true(REGISTERED);
            let name = before.metadata.name.clone().unwrap_or_default();
            draft.wanted.status.get_or_insert_default().node_name = name;
        }
        Ok(())
    }

    fn tell_taint_missing(&self, node_claim: &NodeClaim, node: &Node) {
        let message = format!(
            "Missing {} taint which prevents registration related race conditions on Karpenter-managed nodes",
            taints::UNREGISTERED
        );
        error!(node_claim = claim::name(node_claim), node = node.metadata.name, "{message}");
        let event = Event::new(reference(node_claim), Severity::Warning, events::UNREGISTERED_TAINT_MISSING, message);
        self.context.recorder.publish(event);
    }

    /// Makes a registered machine one that pods can use, once it has all it should. Says until when devices are
    /// awaited.
    async fn initialize(&self, draft: &mut Draft) -> anyhow::Result<Option<Timestamp>> {
        if !claim::is_registered(&draft.wanted) || claim::is(&draft.wanted, INITIALIZED) {
            return Ok(None);
        }
        // Until the machine is back, what its Node shows is of before the reboot.
        if claim::is(&draft.wanted, REBOOTING) {
            return Ok(None);
        }
        let provider_id = claim::provider_id(&draft.wanted).unwrap_or_default();
        let node = {
            let state = self.context.store.read();
            let mut nodes = state.nodes_of_machine(provider_id);
            nodes.next().map(|node| Arc::clone(&node.object))
        };
        // What the watch has not shown yet of a registration just written is not there for this look; the next one sees
        // it.
        let node = node.filter(|node| node_facts::is_registered(node));
        let awaited = self.await_devices(draft, node.as_deref()).await;
        let until = awaited.as_ref().map(|(_, until)| *until);
        let devices =
            awaited.map(|(message, _)| Initialization::Waiting { reason: DRA_DRIVER_POOLS_NOT_PUBLISHED, message });
        let decided = match initialization::decide(&draft.wanted, node.as_deref()) {
            Initialization::Initialized => devices.unwrap_or(Initialization::Initialized),
            // Without its devices nobody can enter, so they are what is waited for.
            Initialization::Held { taint } => devices.unwrap_or_else(|| initialization::still_exists(&taint)),
            waiting @ Initialization::Waiting { .. } => waiting,
        };
        match decided {
            Initialization::Held { .. } => {}
            Initialization::Waiting { reason, message } => {
                draft.conditions().set_unknown(INITIALIZED, reason, &message);
            }
            Initialization::Initialized => {
                if let Some(before) = node.filter(|node| !node_facts::has_label(node, labels::INITIALIZED)) {
                    let mut wanted = Node::clone(&before);
                    let of_node = wanted.metadata.labels.get_or_insert_default();
                    of_node.insert(labels::INITIALIZED.to_owned(), labels::TRUE.to_owned());
                    patch::object(&Api::<Node>::all(self.context.client.clone()), &before, &wanted, Lock::Uid).await?;
                }
                failpoints::hit("initialization.after-node");
                draft.conditions().set_true(INITIALIZED);
            }
        }
        Ok(until)
    }

    /// Deletes a NodeClaim whose time is over, or says when to look again.
    async fn live(&self, node_claim: &NodeClaim) -> anyhow::Result<Action> {
        let now = self.context.clock.now();
        match liveness::decide(node_claim, self.context.cloud.config().launch_timeout, now) {
            Liveness::Registered => Ok(Action::Done),
            Liveness::Until(deadline) => Ok(self.again_at(deadline)),
            Liveness::Expired(timeout) => {
                info!(node_claim = claim::name(node_claim), timeout = timeout.as_str(), "deleting nodeclaim");
                let outcome = match timeout {
                    Timeout::Registration => Outcome::Failed {
                        reason: conditions::node_pool::REGISTRATION_FAILED.to_owned(),
                        message: "Failed to register node".to_owned(),
                    },
                    Timeout::Launch => {
                        let launched = crate::runtime::conditions::find(claim::conditions(node_claim), LAUNCHED);
                        Outcome::Failed {
                            reason: launched.map(|condition| condition.reason.clone()).unwrap_or_default(),
                            message: launched.map(|condition| condition.message.clone()).unwrap_or_default(),
                        }
                    }
                };
                disrupt(&self.context, node_claim, timeout.as_str()).await?;
                self.record_health(node_claim, outcome);
                Ok(Action::Done)
            }
        }
    }

    fn record_health(&self, node_claim: &NodeClaim, outcome: Outcome) {
        let state = self.context.store.read();
        let pool = state.node_pools.get(claim::node_pool(node_claim));
        if let Some(uid) = pool.and_then(|pool| pool.metadata.uid.as_deref()) {
            self.health.record(&uid.into(), outcome);
        }
    }

    /// Writes the status as far as it has come, and tells what is new in it.
    async fn write_status(&self, draft: &mut Draft) -> anyhow::Result<()> {
        let written = patch::status(&self.claims(), &*draft.read, &draft.wanted, Lock::Revision).await?;
        if let Some(written) = self.keep(written) {
            self.tell_progress(&draft.read, &written);
            *draft = Draft::new(written, draft.now);
        }
        Ok(())
    }

    fn tell_progress(&self, before: &NodeClaim, after: &NodeClaim) {
        let became = |condition| !claim::is(before, condition) && claim::is(after, condition);
        let name = claim::name(after);
        if became(LAUNCHED) {
            let allocatable = after.status.as_ref().map(|status| &status.allocatable);
            info!(
                node_claim = name,
                provider_id = claim::provider_id(after).unwrap_or_default(),
                instance_type = claim::label(after, labels::INSTANCE_TYPE),
                zone = claim::label(after, labels::ZONE),
                capacity_type = claim::label(after, labels::CAPACITY_TYPE),
                allocatable = serde_json::to_string(&allocatable).unwrap_or_default(),
                "launched nodeclaim"
            );
        }
        if became(REGISTERED) {
            let node = after.status.as_ref().map_or("", |status| status.node_name.as_str());
            info!(node_claim = name, node, "registered nodeclaim");
            let labels = ByZone {
                nodepool: claim::node_pool(after).to_owned(),
                zone: claim::label(after, labels::ZONE).to_owned(),
            };
            self.context.metrics.nodes_created.get_or_create(&labels).inc();
            self.record_health(after, Outcome::Registered);
        }
        if became(INITIALIZED) {
            info!(node_claim = name, "initialized nodeclaim");
        }
    }

    /// Puts an answer of the API server into the store, so that our next look sees it.
    fn keep(&self, answer: Option<NodeClaim>) -> Option<Arc<NodeClaim>> {
        let answer = Arc::new(answer?);
        self.context.store.apply_shared(Arc::clone(&answer), Revision::of(&answer.metadata));
        Some(answer)
    }

    fn claims(&self) -> Api<NodeClaim> {
        Api::all(self.context.client.clone())
    }
}

/// Deletes this NodeClaim because of what became of it, and counts it as disrupted.
///
/// # Errors
/// Those of the API server.
pub(crate) async fn disrupt(context: &Context, node_claim: &NodeClaim, reason: &'static str) -> anyhow::Result<()> {
    let disrupted = Disrupted::now(&context.store.read(), node_claim, reason);
    claim::delete(&context.client, node_claim, Lock::Uid).await?;
    disrupted.count(&context.metrics);
    Ok(())
}
