//! What a plan and its commit tell: log lines, events on pods, metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::{annotations, events};
use model::{NamespacedName, Pod, Uid};
use parking_lot::Mutex;
use scheduling::plan::reason::{Note, NoteKind, Reason, ToldNote};
use scheduling::plan::{Machine, Plan, Refusal, Verdict};
use scheduling::snapshot::{NodeState, PodId, Snapshot};
use tracing::{debug, error, info, warn};

use super::NAME;
use super::commit::Committed;
use crate::options::PreferencePolicy;
use crate::runtime::metrics::{ByController, ByDriver, ByReason, CreatedLabels, Metrics, age_seconds, seconds};
use crate::runtime::recorder::{Event, Severity, pod_reference};
use crate::world::context::Context;

mod devices;
mod left_out;

/// Names in a log line.
const SHOWN: usize = 5;
/// Pods that have been decided about, of those remembered for the decision metric.
const REMEMBERED_PODS: usize = 100_000;
/// Classes of pods of which a note was logged.
const REMEMBERED_NOTES: usize = 1_000;

/// Tells about plans. Remembers what has been said.
#[derive(Debug)]
pub(super) struct Report {
    metrics: Arc<Metrics>,
    decided: Mutex<BTreeSet<Uid>>,
    /// Pods of the last plan's refusals, and the kind of reasons.
    refused: Mutex<BTreeMap<Uid, Arc<str>>>,
    /// Pods that were left out of the last plan, and the kind of reason.
    left_out: Mutex<BTreeMap<Uid, &'static str>>,
    noted: Mutex<BTreeSet<(NamespacedName, NoteKind)>>,
    unusable: Mutex<BTreeSet<String>>,
    /// Pods that the last plan was not asked about.
    ignored: Mutex<BTreeSet<Uid>>,
    /// What the last plan of a dry run would have created.
    dry_run: Mutex<Vec<String>>,
}

impl Report {
    pub(super) fn new(context: &Context) -> Self {
        Self {
            metrics: Arc::clone(&context.metrics),
            decided: Mutex::default(),
            refused: Mutex::default(),
            left_out: Mutex::default(),
            noted: Mutex::default(),
            unusable: Mutex::default(),
            ignored: Mutex::default(),
            dry_run: Mutex::default(),
        }
    }

    pub(super) fn nothing_waits(&self) {
        self.depth(0, 0);
        self.ignored.lock().clear();
        self.ignored_pods(0);
        self.nothing_left_out();
        self.device_refusals(&[]);
        self.decided.lock().clear();
        self.refused.lock().clear();
    }

    /// Objects that a plan had to do without. Each is told once, and again when it comes back after it was gone.
    pub(super) fn unusable(&self, errors: &[decode::ObjectError]) {
        let now: BTreeSet<String> = errors.iter().map(ToString::to_string).collect();
        let mut before = self.unusable.lock();
        for error in now.difference(&before) {
            warn!(error, "planning without this object");
        }
        *before = now;
    }

    /// Pods that were left out because the user wants them left to others.
    pub(super) fn ignored(&self, context: &Context, pods: &[Arc<Pod>]) {
        for pod in pods {
            let message = "Failed to schedule pod, it has resource claims, and --ignore-dra-requests leaves such pods to \
                           others";
            let event = Event::new(pod_reference(pod), Severity::Warning, events::FAILED_SCHEDULING, message);
            context.recorder.publish(event.with_dedupe("resource claims ignored"));
        }
        let uids: BTreeSet<Uid> = pods.iter().map(|pod| pod.uid.clone()).collect();
        let mut before = self.ignored.lock();
        let new = uids.difference(&before).count();
        if new > 0 {
            info!(pod_count = new, "leaving pod(s) with resource claims to others");
        }
        *before = uids;
    }

    /// A plan was made.
    pub(super) fn planned(&self, context: &Context, snapshot: &Snapshot, plan: &Plan, took: Duration, left_out: usize) {
        let opted_out = plan.refusals.iter().filter(|refusal| refusal.verdict == Verdict::OptedOut).count();
        self.depth(snapshot.pods.len() + left_out - opted_out, plan.refusals.len() + left_out - opted_out);
        self.ignored_pods(opted_out);
        self.devices(snapshot, plan, took);
        if snapshot.pods.is_empty() {
            return;
        }
        let refused: BTreeSet<PodId> = plan.refusals.iter().map(|refusal| refusal.pod).collect();
        let (without, placed): (Vec<PodId>, Vec<PodId>) = snapshot.pods.ids().partition(|pod| refused.contains(pod));
        let uids = |pods: &[PodId]| pods.iter().map(|&pod| snapshot.pods[pod].pod.uid.clone()).collect::<Vec<_>>();
        context.cluster_metrics.placed(&uids(&placed), snapshot.now);
        context.cluster_metrics.refused(&uids(&without));
        // Pods without a place are planned again and again; that is worth a line only once.
        if self.observe_decisions(snapshot) > 0 {
            let pods = names(snapshot, snapshot.pods.ids());
            info!(pod_count = snapshot.pods.len(), pods, duration = ?took, "found provisionable pod(s)");
        } else {
            debug!(pod_count = snapshot.pods.len(), duration = ?took, "planned the same pod(s) again");
        }
        self.refusals(context, snapshot, plan);
        // Whoever wants preferences to be ignored needs not be told that they are.
        match context.options.preference_policy {
            PreferencePolicy::Respect => self.notes(plan),
            PreferencePolicy::Ignore => {}
        }
    }

    /// What a plan took for devices, and which pods have no place for want of them.
    fn devices(&self, snapshot: &Snapshot, plan: &Plan, took: Duration) {
        if snapshot.devices.is_some() {
            self.metrics.device_plan_duration_seconds.observe(seconds(took));
            self.metrics.device_plan_steps.inc_by(plan.device_steps);
        }
        self.device_refusals(&plan.refusals);
        // A driver without templates is gone, not at zero.
        self.metrics.device_templates.clear();
        for (driver, types) in devices::templates(snapshot) {
            self.metrics.device_templates.get_or_create(&ByDriver { driver: driver.to_string() }).set(types);
        }
    }

    fn device_refusals(&self, refusals: &[Refusal]) {
        for reason in devices::REASONS {
            let pods = refusals.iter().filter(|refusal| devices::reason(refusal) == Some(reason)).count();
            let by_reason = ByReason { reason: reason.to_owned() };
            self.metrics.device_refusals.get_or_create(&by_reason).set(i64::try_from(pods).unwrap_or(i64::MAX));
        }
    }

    fn depth(&self, waiting: usize, refused: usize) {
        let by_controller = ByController { controller: NAME.to_owned() };
        let gauge = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.metrics.scheduler_queue_depth.get_or_create(&by_controller).set(gauge(waiting));
        self.metrics.scheduler_unschedulable_pods_count.get_or_create(&by_controller).set(gauge(refused));
    }

    /// Pods of the plan that want no machine of ours, and those that it was not asked about.
    fn ignored_pods(&self, opted_out: usize) {
        let ignored = opted_out + self.ignored.lock().len();
        self.metrics.ignored_pods.set_left_to_others(i64::try_from(ignored).unwrap_or(i64::MAX));
    }

    /// Observes the time from a pod's creation to the first plan it was in. Says of how many pods this is the first.
    fn observe_decisions(&self, snapshot: &Snapshot) -> usize {
        let mut first = 0;
        let mut decided = self.decided.lock();
        if decided.len() > REMEMBERED_PODS {
            decided.clear();
        }
        for pending in snapshot.pods.iter().filter(|pending| pending.pod.node_name.is_none()) {
            if decided.insert(pending.pod.uid.clone()) {
                let waited = snapshot.now.since(pending.pod.created_at);
                self.metrics.pods_scheduling_decision_duration_seconds.observe(age_seconds(waited));
                first += 1;
            }
        }
        first
    }

    /// An event for each pod, and a log line for each kind of reason that some pod did not have before. The numbers in
    /// a reason change with every node that comes or goes; that alone is no news.
    fn refusals(&self, context: &Context, snapshot: &Snapshot, plan: &Plan) {
        let mut before = std::mem::take(&mut *self.refused.lock());
        let mut now = BTreeMap::new();
        // Pods of one class share their reasons, so each is put into words once.
        let mut told: BTreeMap<(*const Reason, &'static str), Refused> = BTreeMap::new();
        // Who opts out of our machines misses none: nothing is told of it, as in Karpenter.
        for refusal in plan.refusals.iter().filter(|refusal| refusal.verdict != Verdict::OptedOut) {
            let verdict = verdict(refusal.verdict);
            let refused = told
                .entry((refusal.reasons.as_ptr(), verdict))
                .or_insert_with(|| Refused::new(snapshot, refusal, verdict));
            let pod = &snapshot.pods[refusal.pod].pod;
            let message = format!("Failed to schedule pod, {}", refused.sentence);
            let event = Event::new(pod_reference(pod), Severity::Warning, events::FAILED_SCHEDULING, message);
            context.recorder.publish(event.with_dedupe(&*refused.essence));
            if before.remove(&pod.uid).as_ref() != Some(&refused.essence) {
                refused.new.push(refusal.pod);
            }
            now.insert(pod.uid.clone(), Arc::clone(&refused.essence));
        }
        for refused in told.into_values().filter(|refused| !refused.new.is_empty()) {
            let pods = names(snapshot, refused.new.iter().copied());
            error!(pod_count = refused.new.len(), pods, reason = refused.sentence, "could not schedule pod");
        }
        *self.refused.lock() = now;
    }

    fn notes(&self, plan: &Plan) {
        let mut noted = self.noted.lock();
        if noted.len() > REMEMBERED_NOTES {
            noted.clear();
        }
        let new = plan.notes.iter().filter(|note| noted.insert((note.example.clone(), note.kind)));
        for told in ToldNote::of(new) {
            let Note { example, pods, kind } = told.note;
            info!(pod = %example, pod_count = pods, shape_count = told.classes, "not kept: {}", kind.construct());
        }
    }

    /// What would have been created; once, as long as it stays the same.
    pub(super) fn dry_run(&self, snapshot: &Snapshot, plan: &Plan) {
        let machines: Vec<String> = plan.machines.iter().map(|machine| describe(snapshot, machine)).collect();
        let mut before = self.dry_run.lock();
        if *before == machines {
            return;
        }
        for machine in &machines {
            info!("would create nodeclaim {machine}");
        }
        let unschedulable = plan.refusals.len();
        let (price, lower_bound) = (plan.price, plan.lower_bound);
        info!(node_claim_count = machines.len(), %price, %lower_bound, unschedulable_count = unschedulable, "dry run: nothing was written");
        *before = machines;
    }

    /// A plan was committed.
    pub(super) fn committed(&self, context: &Context, snapshot: &Snapshot, plan: &Plan, committed: &Committed) {
        if !committed.created.is_empty() {
            let pods: usize = committed.created.keys().map(|&id| plan.machines[id].pods.len()).sum();
            let (price, lower_bound) = (plan.price, plan.lower_bound);
            self.metrics.plan_price_dollars_per_hour.set(price.dollars());
            self.metrics.plan_lower_bound_dollars_per_hour.set(lower_bound.dollars());
            let virtual_pods: u32 = plan.buffers.iter().map(|room| room.on_new()).sum();
            info!(node_claim_count = committed.created.len(), pod_count = pods, virtual_pod_count = virtual_pods, %price, %lower_bound, "computed new nodeclaim(s) to fit pod(s)");
        }
        for (&id, claim) in &committed.created {
            let machine = &plan.machines[id];
            self.created(snapshot, machine, claim);
            for (driver, count) in &machine.devices {
                let by_driver = ByDriver { driver: driver.to_string() };
                self.metrics.devices_planned.get_or_create(&by_driver).inc_by(u64::from(*count));
            }
            for &pod in &machine.pods {
                nominated(context, snapshot, pod, &format!("nodeclaim/{claim}"));
            }
        }
        self.existing(context, snapshot, plan);
    }

    fn created(&self, snapshot: &Snapshot, machine: &Machine, claim: &str) {
        let pool = &snapshot.node_pools[machine.node_pool];
        let types: Vec<&str> =
            machine.instance_types.iter().map(|&id| pool.catalogue.types[id].name.as_str()).collect();
        info!(
            node_pool = %pool.name,
            node_claim = claim,
            requests = %machine.requests.display(&snapshot.interner),
            instance_types = some_of(&types),
            price = %machine.launch.price,
            "created nodeclaim"
        );
        let relaxed = if machine.min_values_relaxed { annotations::TRUE } else { annotations::FALSE };
        let labels = CreatedLabels {
            nodepool: pool.name.to_string(),
            reason: "provisioned".to_owned(),
            min_values_relaxed: relaxed.to_owned(),
        };
        self.metrics.nodeclaims_created.get_or_create(&labels).inc();
    }

    fn existing(&self, context: &Context, snapshot: &Snapshot, plan: &Plan) {
        let (mut unready, mut pods) = (0, 0);
        for placement in &plan.existing {
            let node = &snapshot.nodes[placement.node];
            let mut target = Vec::new();
            target.extend(node.node_claim.as_ref().map(|claim| format!("nodeclaim/{claim}")));
            target.extend(node.name.as_ref().map(|name| format!("node/{name}")));
            let target = target.join(", ");
            if node.state != NodeState::Initialized {
                unready += 1;
                pods += placement.pods.len();
            }
            for &pod in &placement.pods {
                nominated(context, snapshot, pod, &target);
            }
        }
        if unready > 0 {
            info!(node_count = unready, pod_count = pods, "computed unready node(s) will fit pod(s)");
        }
    }
}

fn nominated(context: &Context, snapshot: &Snapshot, pod: PodId, target: &str) {
    let pod = &snapshot.pods[pod].pod;
    let message = format!("Pod should schedule on: {target}");
    context.recorder.publish(Event::new(pod_reference(pod), Severity::Normal, events::NOMINATED, message));
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::DoesNotFit => "does not fit",
        Verdict::Unsupported => "is not supported yet",
        Verdict::Waits => "waits for something else",
        Verdict::OptedOut => "is left to other nodes",
        Verdict::OutOfBudget => "was not decided within the budget",
    }
}

/// Pods that were refused alike.
struct Refused {
    /// The reasons in full.
    sentence: String,
    /// The reasons without numbers.
    essence: Arc<str>,
    /// Pods of which this is news.
    new: Vec<PodId>,
}

impl Refused {
    fn new(snapshot: &Snapshot, refusal: &Refusal, verdict: &str) -> Self {
        let sentence = |reason: &Reason| {
            let message = reason.message(&snapshot.interner);
            reason.object().map_or_else(|| message.clone(), |object| format!("{object}: {message}"))
        };
        let essence = |reason: &Reason| format!("{} {}", reason.code(), reason.object().unwrap_or_default());
        // An event is cut at its end, and NodePools that are not for the pod say least about it.
        let (other_pools, telling): (Vec<_>, Vec<_>) =
            refusal.reasons.iter().partition(|reason| matches!(reason, Reason::NodePoolTaint { .. }));
        let in_order = || telling.iter().chain(&other_pools).copied();
        let join = |part: &dyn Fn(&Reason) -> String| in_order().map(part).collect::<Vec<_>>().join("; ");
        Self {
            sentence: format!("it {verdict}: {}", join(&sentence)),
            essence: format!("{verdict}: {}", join(&essence)).into(),
            new: Vec::new(),
        }
    }
}

/// A planned machine in one line.
fn describe(snapshot: &Snapshot, machine: &Machine) -> String {
    let pool = &snapshot.node_pools[machine.node_pool];
    let launch = &machine.launch;
    format!(
        "of nodepool {}: {} in {}, {}, {}, for {}",
        pool.name,
        pool.catalogue.types[launch.instance_type].name,
        snapshot.interner.value_name(launch.zone),
        launch.capacity_type,
        launch.price,
        names(snapshot, machine.pods.iter().copied()),
    )
}

/// The first few pods by name.
fn names(snapshot: &Snapshot, pods: impl IntoIterator<Item = PodId>) -> String {
    let mut names: Vec<String> = pods.into_iter().map(|pod| snapshot.pods[pod].pod.name.to_string()).collect();
    names.sort();
    some_of(&names)
}

/// The first few, and how many others there are.
fn some_of<T: AsRef<str>>(all: &[T]) -> String {
    let mut text = all.iter().take(SHOWN).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    if all.len() > SHOWN {
        text.push_str(&format!(" and {} other(s)", all.len() - SHOWN));
    }
    text
}
