//! Disruption: machines go that are broken or empty, have drifted, or could be fewer or cheaper, and others take their
//! place first.
//!
//! What goes is decided by [`scheduling::disruption::plan_disruption_after`], a pure function. A command of its plan is
//! proposed (`proposals`), begins (`start`), waits for its replacements (`progress`), and ends or is rolled back. All
//! that has begun is written down on the NodeClaims ([`cluster::node_claim::command`]), and every look reads it from
//! there (`view`), so the next leader goes on with it or takes it back. In which order things are written is in
//! `writes`, how in `carry_out`. See RFC 0008.
//!
//! One loop does all of this, one thing after the other: nobody reads the note of a command that is half begun but who
//! finds it so after a crash.
//!
//! Failpoints: one before each write, see [`writes::Write::failpoint`]; `disruption.after-deadline`, between the two
//! parts of a deletion whose drain is bounded; `disruption.before-hold`, before the machines are closed to which pods
//! move; `disruption.started`, `disruption.finished`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::{NodeClaim, NodePool};
use cluster::device_prices;
use cluster::node_claim::command::Note;
use cluster::node_repair::Repair;
use model::{DurationMs, NodeClaimName, NodePoolName, Pod, Timestamp, Uid};
use parking_lot::Mutex;
use scheduling::disruption::plan::{Command, TerminateFirst};
use scheduling::disruption::{self, plan_disruption_after};
use scheduling::snapshot::Snapshot;
use scheduling::snapshot::fleet::Reason;
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::runtime::beats::Beat;
use crate::runtime::failpoints;
use crate::runtime::failures::{in_words, is_conflict};
use crate::runtime::metrics::CreatedLabels;
use crate::world::claim;
use crate::world::context::Context;
use crate::world::disrupted::{Disrupted, count_unhealthy};
use crate::world::fleet_looks::FleetLooks;
use crate::world::hold;
use crate::world::planned_pods;
use crate::world::store::{Kind, State, Stored};
use crate::world::successors;
use crate::world::termination;

use carry_out::Job;
use metrics::{Approved, DecisionLabels, DisruptionMetrics};
use planning::Planned;
use progress::{Shown, Step, Why};
use proposals::{Key, Proposals};
use start::{Beginning, Begun};
use writes::Write;

mod carry_out;
pub(crate) mod metrics;
mod planning;
mod progress;
mod proposals;
mod report;
mod start;
mod view;
mod writes;

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "disruption";
/// From one plan to the next. Karpenter's own.
const POLL: Duration = Duration::from_secs(10);
/// As long as nothing changes: time alone lets budgets open and annotations run out.
const POLL_AT_REST: Duration = Duration::from_secs(60);
/// How often commands that have begun are looked at, and the least time from the taint of a node to its deletion: a pod
/// that the scheduler binds at that moment is seen then. Karpenter's own.
const TICK: Duration = Duration::from_secs(1);
/// Longest from one sign of life to the next: a plan, or the requests of one command.
const BOUND: Duration = Duration::from_secs(600);
/// Most commands that one look begins; the next look follows soon.
const MOST_BEGUN: usize = 100;

/// What may change which machines go.
const PLANNED_WITH: [Kind; 16] = [
    Kind::Pod,
    Kind::Node,
    Kind::NodeClaim,
    Kind::NodePool,
    Kind::NodeOverlay,
    Kind::NodeClass,
    Kind::DaemonSet,
    Kind::PodDisruptionBudget,
    Kind::PersistentVolumeClaim,
    Kind::PersistentVolume,
    Kind::ResourceClaim,
    Kind::ResourceSlice,
    Kind::DeviceClass,
    Kind::DeviceTaintRule,
    Kind::CapacityBuffer,
    Kind::BufferTemplate,
];

/// The controller.
#[derive(Debug)]
pub(crate) struct Disruption {
    context: Context,
    metrics: DisruptionMetrics,
    fleet: FleetLooks,
    has_changed: Arc<AtomicBool>,
    beat: Beat,
}

/// What is remembered from look to look, and may be lost.
#[derive(Debug, Default)]
struct Memory {
    proposals: Proposals,
    /// What a plan leaves for the next.
    plans: Arc<Mutex<disruption::Memory>>,
    /// When there was last a plan.
    planned_at: Option<Instant>,
    /// The NodeClaims whose machines were broken at the last look: time alone breaks a machine whose condition is
    /// tolerated for a while.
    broken: BTreeSet<NodeClaimName>,
}

impl Disruption {
    /// A controller that follows the store from now on.
    pub(crate) fn new(context: Context, metrics: DisruptionMetrics) -> Self {
        let has_changed = Arc::new(AtomicBool::new(true));
        let changed = Arc::clone(&has_changed);
        context.store.on_any_of(&PLANNED_WITH, move |_, _| changed.store(true, Ordering::Relaxed));
        successors::subscribe(&context.store, &context.successors, &context.assignments, &context.clock);
        let beat = context.beats.beat(NAME, BOUND);
        Self { context, metrics, fleet: FleetLooks::new("disruption"), has_changed, beat }
    }

    /// Runs until the context is stopped.
    pub(crate) async fn run(self) {
        let stop = self.context.stop.clone();
        self.context.store.wait_until_synced().await;
        let mut memory = Memory::default();
        let mut plan_at = Instant::now();
        while !stop.is_cancelled() {
            self.beat.busy();
            self.advance(&mut memory).await;
            if Instant::now() >= plan_at {
                plan_at = Instant::now() + self.look(&mut memory).await;
            }
            let has_commands = view::are_any(&self.context.store.read());
            let wake_at = if has_commands { Instant::now() + TICK } else { plan_at };
            self.beat.due_at(Some(wake_at));
            // Not interrupted but here: what is being written is written.
            tokio::select! {
                () = tokio::time::sleep_until(wake_at) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Carries on with what has begun.
    async fn advance(&self, memory: &mut Memory) {
        if !view::are_any(&self.context.store.read()) {
            self.context.successors.keep_only(&BTreeSet::new());
            return;
        }
        let now = self.context.clock.now();
        let state = self.context.store.snapshot();
        let commands = view::commands(&state, &self.context.assignments, now);
        let ids = commands.shown.iter().map(|shown| shown.note.id.as_str()).collect();
        self.context.successors.keep_only(&ids);
        for (name, problem) in &commands.broken {
            warn!(node_claim = %name, error = %problem, "could not read the note of a disruption command, removing the note");
            report::broken(&self.context, &state, name, &problem.to_string());
            let job = Job { note: None, looked: &state, launches: &[] };
            self.log(carry_out::all(&self.context, job, &writes::clear(name)).await, "undo");
        }
        let longest = start::longest_time_limit(self.context.options.replacement_timeout);
        let steps = commands.shown.iter().map(|shown| (shown, progress::next(shown, longest, now))).collect();
        let is_young = |shown: &Shown| self.context.successors.has_begun_lately(&shown.note.id, now);
        let steps = progress::together(steps, is_young);
        self.beat.busy();
        self.close_places(&steps, &state, &memory.proposals).await;
        for (shown, step) in steps {
            self.beat.busy();
            self.step(shown, &state, step, memory).await;
        }
    }

    /// Closes the machines to which pods go that are evicted from now on, and those of commands that have begun: these
    /// pods would find room there. So they would on machines that are about to go.
    async fn close_places(&self, steps: &[(&Shown, Step)], state: &State, proposals: &Proposals) {
        let finished = steps.iter().filter(|(_, step)| *step == Step::Finish);
        let mut places: BTreeSet<NodeClaimName> =
            finished.flat_map(|(shown, _)| self.expect_successors(shown, state)).collect();
        if places.is_empty() {
            return;
        }
        places.extend(self.context.successors.places_of_begun());
        let about_to_go = named(state, &proposals.about_to_go(self.context.clock.now())).into_iter().flatten();
        places.extend(self.context.successors.shun(about_to_go.filter(|name| !places.contains(name)).collect()));
        failpoints::hit("disruption.before-hold");
        hold::close_places(&self.context, &places).await;
    }

    async fn step(&self, shown: &Shown, state: &State, step: Step, memory: &mut Memory) {
        let job = Job { note: Some(&shown.note), looked: state, launches: &[] };
        match step {
            Step::Nothing => {}
            Step::Wait => report::waiting(&self.context, state, &shown.replacements),
            Step::Finish => self.log(self.finish(shown, job).await, "finish"),
            Step::Release => {
                self.log(carry_out::all(&self.context, job, &writes::release(shown)).await, "release");
            }
            Step::RollBack(why) => {
                let uids = shown.going.iter().filter_map(|going| state.node_claims.get(&going.name));
                memory.proposals.rolled_back(uids.map(|claim| claim::uid(claim)), self.context.clock.now());
                self.roll_back(shown, job, &why).await;
            }
        }
    }

    /// The pods that are evicted come back as others, and those are to go where these were planned: to the machines
    /// that are told.
    fn expect_successors(&self, shown: &Shown, state: &State) -> BTreeSet<NodeClaimName> {
        let of_replacements = shown.replacements.iter().flat_map(|it| {
            let claim = state.node_claims.get(&it.name);
            let planned = planned_pods::decode(claim.and_then(|claim| claim.metadata.annotations.as_ref()));
            let pods = planned.into_iter().filter_map(|uid| state.pod_by_uid(&uid).map(Arc::clone));
            // Whose successor has come already is not waited for.
            let stays = |pod: &Arc<Pod>| pod.node_name.is_some() && pod.deletion_timestamp.is_none();
            pods.filter(stays).map(|pod| (pod, it.name.clone())).collect::<Vec<_>>()
        });
        self.context.successors.expect(&shown.note.id, of_replacements, self.context.clock.now())
    }

    /// Deletes the machines that go, and lets go of the replacements.
    async fn finish(&self, shown: &Shown, job: Job<'_>) -> anyhow::Result<()> {
        for write in writes::finish(shown) {
            let claim = match &write {
                Write::Delete(name) => job.looked.node_claims.get(name),
                _ => None,
            };
            let disrupted = claim.map(|claim| disrupted(job.looked, claim, &shown.note));
            carry_out::all(&self.context, job, std::slice::from_ref(&write)).await?;
            if let (Some(claim), Some(disrupted)) = (claim, disrupted) {
                disrupted.count(&self.context.metrics);
                info!(node_claim = claim::name(claim), reason = %shown.note.reason, command = shown.note.id, "deleted disrupted nodeclaim");
                self.tell_end(job.looked, claim, &shown.note);
            }
        }
        failpoints::hit("disruption.finished");
        Ok(())
    }

    /// Tells why a NodeClaim goes, of a broken machine by what it is broken.
    fn tell_end(&self, state: &State, claim: &NodeClaim, note: &Note) {
        let context = &self.context;
        let mut nodes = claim::provider_id(claim).into_iter().flat_map(|id| state.nodes_of_machine(id));
        let policies = context.policies_of_replacement().filter(|_| note.reason == Reason::Unhealthy);
        let repair = policies
            .zip(nodes.next())
            .and_then(|(policies, node)| planning::repair(&node.object, claim, policies, context.clock.now()));
        let cause = repair.as_ref().map(Repair::cause);
        report::terminating(context, state, claim, (note.reason, cause.as_deref()));
        if let Some(repair) = repair {
            let bound = termination::drain_bound(note.drain_bounds.get(claim::name(claim)).copied(), claim);
            count_unhealthy(&context.metrics, claim, &repair, bound);
        }
    }

    async fn roll_back(&self, shown: &Shown, job: Job<'_>, why: &Why) {
        let Note { id, reason, going, replacements, .. } = &shown.note;
        warn!(command = id, %reason, error = %why, node_count = going.len(), "rolling back a disruption command");
        let result = carry_out::all(&self.context, job, &writes::roll_back(shown)).await;
        if result.is_ok() {
            self.metrics.failed(&DecisionLabels::new(*reason, going.len(), *replacements));
            for name in going {
                report::rolled_back(&self.context, job.looked, name, why);
            }
        }
        self.log(result, "roll back");
    }

    /// Plans, proposes, and begins what is due. Says how long to wait for the next plan.
    async fn look(&self, memory: &mut Memory) -> Duration {
        let context = &self.context;
        let now = context.clock.now();
        let broken = planning::broken(&context.store.read(), context.policies_of_replacement(), now);
        if broken.is_empty() && !planning::has_work(&context.store.read(), context.options.expiration, now) {
            self.metrics.at_rest();
            // What was rolled back is remembered.
            memory.proposals.update(&[], now);
            memory.broken = broken;
            return POLL;
        }
        let has_changed = self.has_changed.swap(false, Ordering::Relaxed) || broken != memory.broken;
        memory.broken = broken;
        let is_old = memory.planned_at.is_none_or(|at| at.elapsed() >= POLL_AT_REST);
        if !(has_changed || is_old || memory.proposals.are_any()) {
            return POLL;
        }
        let solved = Arc::clone(&memory.plans);
        let (pods, asked_for) = {
            let state = context.store.snapshot();
            let pods = planning::pods_on_nodes(&state);
            (pods, named(&state, &memory.proposals.to_save_money(pods, now)))
        };
        let plan = move |snapshot: &Snapshot| {
            // Taken out for the plan: what a panic leaves is not used again.
            let mut remembered = std::mem::take(&mut *solved.lock());
            let plan = plan_disruption_after(snapshot, &asked_for, &mut remembered);
            *solved.lock() = remembered;
            plan
        };
        let Some(planned) = self.fleet.look(context, plan).await else {
            self.has_changed.store(true, Ordering::Relaxed);
            return POLL;
        };
        self.beat.busy();
        memory.planned_at = Some(Instant::now());
        self.metrics.planned(&planned.found, planned.took);
        self.metrics.displaced(planned.snapshot.options.disruption.displacement_price);
        self.metrics.stranded(&device_prices::stranded(&planned.snapshot), &planned.snapshot);
        // Why others stay was found out by the plan that has asked for what goes.
        if !planned.found.is_asked_for {
            memory.proposals.searched(pods);
            report::blocked(context, &planned);
        }
        // Machines of static NodePools are only kept with their gate.
        let is_static_on = context.options.feature_gates.static_capacity;
        let commands = planned.found.commands.iter().enumerate();
        let commands: Vec<(usize, &Command)> =
            commands.filter(|(_, command)| is_static_on || command.static_pool.is_none()).collect();
        let keys: Vec<Key> = commands.iter().map(|(_, command)| key(&planned, command)).collect();
        let now = context.clock.now();
        let update = memory.proposals.update(&keys, now);
        for dropped in &update.dropped {
            self.metrics.not_confirmed(dropped.reason, dropped.going.len());
        }
        let mut begun = Begun::default();
        let mut is_any_begun = false;
        for &position in update.due.iter().take(MOST_BEGUN) {
            self.beat.busy();
            let (Some(&command), Some(key)) = (commands.get(position), keys.get(position)) else { continue };
            if self.begin(&planned, command, &mut begun).await {
                memory.proposals.begun(key);
                is_any_begun = true;
            }
        }
        match update.next {
            _ if is_any_begun => TICK,
            Some(next) => left(now, next).clamp(TICK, POLL),
            None => POLL,
        }
    }

    /// Begins a command, the plan's of that position. Says whether anything of it was written.
    async fn begin(&self, planned: &Planned, (index, command): (usize, &Command), begun: &mut Begun) -> bool {
        let context = &self.context;
        let beginning = match start::begin(context, planned, command, begun).await {
            Ok(beginning) => beginning,
            Err(why) => {
                info!(reason = %command.reason, stale = %why, "dropping a planned disruption, planning again");
                context.metrics.stale_plans.inc();
                self.has_changed.store(true, Ordering::Relaxed);
                return false;
            }
        };
        for pool in &beginning.pools {
            *begun.going.entry(pool.clone()).or_default() += command.nodes.len();
        }
        tell(planned, command, &beginning);
        context.successors.begin(&beginning.note.id, beginning.moves.clone(), context.clock.now());
        if let Err(failure) = self.write(planned, &beginning).await {
            warn!(command = beginning.note.id, error = in_words(&failure), "could not begin a disruption command");
            self.take_back(&beginning.note).await;
            return true;
        }
        let Beginning { note, pools, .. } = beginning;
        let mut labels = DecisionLabels::new(note.reason, note.going.len(), note.replacements);
        let names = || pools.iter().map(ToString::to_string);
        if let Some(why) = command.terminate_first {
            labels = labels.terminating_first();
            self.metrics.terminated_first(note.reason, names(), why);
        }
        self.metrics.began(&labels, names());
        if command.reason == Reason::Underutilized {
            let known = planned.snapshot.fleet.as_deref().map(|fleet| &fleet.pools);
            let policy = |pool: NodePoolName| Some((pool.clone(), known?.get(&pool)?.policy));
            let pools = pools.into_iter().filter_map(policy).collect();
            self.metrics.approved(&Approved { plan: &planned.found, command: index, pools });
        }
        failpoints::hit("disruption.started");
        true
    }

    async fn write(&self, planned: &Planned, beginning: &Beginning) -> anyhow::Result<()> {
        let context = &self.context;
        let Beginning { note, launches, deletion, .. } = beginning;
        let looked = context.store.snapshot();
        let job = Job { note: Some(note), looked: &looked, launches };
        carry_out::all(context, job, &writes::begin(note)).await?;
        // What came before the taint is seen now; nothing comes after it.
        start::check_deletion(context, planned, deletion, &context.store.snapshot())?;
        for write in writes::launch(note) {
            carry_out::all(context, job, std::slice::from_ref(&write)).await?;
        }
        let state = context.store.read();
        let is_launched = |claim: &&Arc<NodeClaim>| {
            let is_of_command = Note::of(claim).is_some_and(|it| it.as_ref() == Ok(note));
            is_of_command && !note.going.contains(claim::name(claim))
        };
        for claim in state.node_claims.values().filter(is_launched) {
            report::launching(context, claim, note.reason);
            let labels = CreatedLabels {
                nodepool: claim::node_pool(claim).to_owned(),
                reason: metrics::label(note.reason),
                min_values_relaxed: claim
                    .metadata
                    .annotations
                    .as_ref()
                    .and_then(|all| all.get(api::annotations::NODECLAIM_MIN_VALUES_RELAXED))
                    .map_or(api::annotations::FALSE, String::as_str)
                    .to_owned(),
            };
            context.metrics.nodeclaims_created.get_or_create(&labels).inc();
        }
        Ok(())
    }

    /// Takes back at once what was written of a command that could not begin. What is not taken back now is by the next
    /// look.
    async fn take_back(&self, note: &Note) {
        let state = self.context.store.snapshot();
        let commands = view::commands(&state, &self.context.assignments, self.context.clock.now());
        if let Some(shown) = commands.shown.iter().find(|shown| shown.note == *note) {
            let job = Job { note: Some(note), looked: &state, launches: &[] };
            self.log(carry_out::all(&self.context, job, &writes::roll_back(shown)).await, "undo");
        }
    }

    /// A failed write is tried again by the next look.
    fn log(&self, result: anyhow::Result<()>, what: &str) {
        match result {
            Ok(()) => {}
            Err(failure) if is_conflict(&failure) => {
                info!(error = in_words(&failure), "could not {what} a disruption command, looking again");
            }
            Err(failure) => error!(error = in_words(&failure), "could not {what} a disruption command"),
        }
    }
}

/// The NodeClaims with these uids, of sets of which all are there.
fn named(state: &State, sets: &[Vec<Uid>]) -> Vec<Vec<NodeClaimName>> {
    if sets.is_empty() {
        return Vec::new();
    }
    let names: BTreeMap<Uid, NodeClaimName> =
        state.node_claims.values().map(|claim| (claim::uid(claim), claim.key())).collect();
    let named = |set: &Vec<Uid>| set.iter().map(|uid| names.get(uid).cloned()).collect();
    sets.iter().filter_map(named).collect()
}

fn key(planned: &Planned, command: &Command) -> Key {
    let going = planned.going(command);
    let uids = going.iter().filter_map(|name| planned.state.node_claims.get(name)).map(|claim| claim::uid(claim));
    Key { reason: command.reason, going: uids.collect() }
}

fn left(now: Timestamp, until: Timestamp) -> Duration {
    let DurationMs(left) = until.since(now);
    Duration::from_millis(u64::try_from(left).unwrap_or_default())
}

fn tell(planned: &Planned, command: &Command, beginning: &Beginning) {
    let names = command.nodes.iter().filter_map(|node| planned.snapshot.nodes.try_get(*node));
    let nodes: Vec<&str> = names.map(|node| node.display_name()).collect();
    info!(
        command = beginning.note.id,
        reason = %command.reason,
        nodes = nodes.join(", "),
        replacement_count = beginning.launches.len(),
        pod_count = command.moves.len(),
        saving = %command.saving,
        terminate_first = command.terminate_first.map(TerminateFirst::as_str),
        "disrupting node(s)"
    );
    for (name, unhealthy) in planned.repaired(command) {
        let (condition, drain_bound) = (&unhealthy.condition, unhealthy.drain_bound.map(|bound| bound.to_string()));
        info!(node_claim = %name, condition = %condition, eligible_at = %unhealthy.since, drain_bound, "selected repair policy");
    }
}

fn disrupted(state: &State, claim: &NodeClaim, note: &Note) -> Disrupted {
    let disrupted = Disrupted::now(state, claim, &metrics::label(note.reason));
    match note.reason {
        Reason::Empty | Reason::Underutilized => {
            let pool: Option<&Arc<NodePool>> = state.node_pools.get(claim::node_pool(claim));
            let policy = pool.and_then(|pool| pool.spec.disruption.consolidation_policy.as_ref());
            let policy = policy.map_or_else(|| api::disruption::CONSOLIDATION_POLICY.to_owned(), ToString::to_string);
            disrupted.by_policy(&policy)
        }
        Reason::Unhealthy => {
            let of_policy = note.drain_bounds.get(claim::name(claim)).copied();
            disrupted.bounded(termination::drain_bound(of_policy, claim))
        }
        Reason::Drifted | Reason::Expired => disrupted,
    }
}
