//! Provisioning: pods that have no place get machines.
//!
//! A loop over the whole cluster: wait for a batch of pods, take a snapshot of the store, plan on a blocking thread,
//! commit. Each step is a module: `start`, `batcher`, `backlog`, `trigger`, `round`, `commit`, `report`; what others
//! plan with too is in `world`: `catalogues`, `snapshot`. The plan itself is [`scheduling::provisioning::plan`], a pure
//! function.
//!
//! As long as a pod waits, it is planned again when something changes, at the latest after [`RETRY_PERIOD`]: what was
//! refused may fit by then, and room that was planned for one pod may have been taken by another. A change that finds
//! every pod with its place on a machine under way (`places`) leads to no plan before that, unless room is kept free
//! for CapacityBuffers (`buffers`), which any pod may take.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, error};

mod backlog;
pub(crate) mod batcher;
mod bindings;
mod brake;
mod buffers;
mod commit;
mod departing;
mod isolation;
mod node_claim;
mod places;
mod planned_pods_update;
mod pod_class;
mod report;
mod round;
mod start;
mod trigger;

use crate::runtime::beats::Beat;
use crate::runtime::metrics::{ByController, seconds};
use crate::world::allocations::Allocations;
use crate::world::context::Context;
use crate::world::snapshot;
use backlog::Backlog;
use batcher::{Batcher, Trigger};
use commit::Notes;
use places::Places;
use round::{Memory, Question};

/// The controller's name in logs and metrics.
pub(crate) const NAME: &str = "provisioner";
/// After this long, pods that wait are planned again though nothing has changed that we know of.
const RETRY_PERIOD: Duration = Duration::from_secs(10);
/// Longest that the loop may be silent in the middle of a round; a step of a round is a plan, or the creation of one
/// machine.
const BOUND: Duration = Duration::from_secs(300);
/// After a failed commit the next plan waits at least this long, and up to [`RETRY_PERIOD`].
const BACKOFF_MIN: Duration = Duration::from_secs(1);

/// The provisioning loop.
#[derive(Debug)]
pub(crate) struct Provisioner {
    context: Context,
    batcher: Arc<Batcher>,
    allocations: Allocations,
    backlog: Backlog,
    report: report::Report,
    memory: Arc<Mutex<Memory>>,
    beat: Beat,
}

/// What came of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// No pod waits.
    Settled,
    /// Some pods wait: for a place that time may bring, or for a machine whose room others may take before them.
    Waiting,
    /// Part of the plan was out of date when it was to be committed.
    Stale,
    /// A call failed.
    Failed,
}

impl Provisioner {
    /// A loop that is triggered by the store's changes from now on.
    pub(crate) fn new(context: Context) -> Self {
        let batcher = Arc::new(Batcher::new(context.options.batch_idle_duration, context.options.batch_max_duration));
        trigger::subscribe(&context, &batcher);
        // Before any other controller looks at a machine: registration and hand-over go by them.
        bindings::keep_assignments(&context.store, &context.assignments);
        Self {
            report: report::Report::new(&context),
            memory: Arc::new(Mutex::new(Memory::new(context.options.ineffective_launch_delay))),
            beat: context.beats.beat(NAME, BOUND),
            context,
            batcher,
            allocations: Allocations::default(),
            backlog: Backlog::default(),
        }
    }

    /// Has pods planned anew when devices that they wait for do not count any longer.
    fn watch_held_devices(&self) {
        let (context, batcher) = (self.context.clone(), Arc::clone(&self.batcher));
        self.context.in_background("held devices", async move {
            let Context { held_devices, clock, metrics, stop, .. } = &context;
            tokio::select! {
                () = held_devices.watch(&**clock, metrics, || batcher.trigger(Trigger::Cluster)) => {}
                () = stop.cancelled() => {}
            }
        });
    }

    /// Runs until the context is stopped.
    pub(crate) async fn run(self) {
        let stop = self.context.stop.clone();
        self.context.store.wait_until_synced().await;
        self.watch_held_devices();
        let mut is_first = true;
        let mut failures = 0_u32;
        let mut retry_at = None;
        loop {
            self.beat.due_at(retry_at);
            let window_ends = tokio::select! {
                ends = self.window(is_first) => Some(ends),
                () = sleep_until(retry_at) => None,
                () = stop.cancelled() => return,
            };
            self.beat.busy();
            is_first = false;
            // What was planned within the last moments and goes its way is not planned again.
            let keeps_room = !self.context.store.read().capacity_buffers.is_empty();
            if window_ends.is_some() && retry_at.is_some() && !keeps_room {
                match places::look(&self.context.store.read(), &self.context.assignments, &self.context.plan_options())
                {
                    Places::Planned => {
                        debug!("every pending pod is planned already");
                        continue;
                    }
                    Places::NotNeeded | Places::Lacking => {}
                }
            }
            if let Some(ends) = window_ends {
                tokio::select! {
                    () = self.backlog.tried(&self.context.store, ends) => {}
                    () = stop.cancelled() => return,
                }
            }
            // Not interrupted: what is being committed is committed.
            let outcome = self.round().await;
            failures = if outcome == Outcome::Failed { failures.saturating_add(1) } else { 0 };
            retry_at = match outcome {
                Outcome::Settled => None,
                Outcome::Waiting => Some(Instant::now() + RETRY_PERIOD),
                Outcome::Stale => {
                    self.batcher.trigger(Trigger::Cluster);
                    None
                }
                Outcome::Failed => {
                    let delay = BACKOFF_MIN.saturating_mul(2_u32.saturating_pow(failures.min(10) - 1));
                    Some(Instant::now() + delay.min(RETRY_PERIOD))
                }
            };
        }
    }

    /// Waits for a window to close, and says how long it could have been open.
    async fn window(&self, is_first: bool) -> Instant {
        let Context { options, store, clock, .. } = &self.context;
        if !is_first {
            return self.batcher.wait().await;
        }
        let ends = Instant::now() + options.batch_max_duration;
        start::window(store, clock.as_ref(), options.batch_idle_duration).await;
        ends
    }

    async fn round(&self) -> Outcome {
        if !snapshot::has_work(&self.context.store.read(), &self.context.options.scheduler_names) {
            self.report.nothing_waits();
            brake::condition::write(&self.context, &BTreeMap::new()).await;
            return Outcome::Settled;
        }
        self.beat.busy();
        let epoch = self.context.store.read().epoch;
        let (node_pools, overlays) = self.context.catalogues.resolve(&self.context).await;
        let objects: Vec<_> = node_pools.iter().map(|pool| Arc::clone(&pool.object)).collect();
        self.beat.busy();
        // The cluster as it is now, after the provider was waited for.
        let planned_before = self.context.assignments.claims_by_pod();
        let state = self.allocations.settled(&self.context.store).await;
        if state.epoch != epoch {
            // The catalogues speak of other names.
            return Outcome::Stale;
        }
        let options = self.context.plan_options();
        let buffers = crate::world::buffers::asked(&state);
        let ignored: Vec<_> = state
            .unbound_pods()
            .filter(|pod| {
                snapshot::is_ours(pod, &options.scheduler_names)
                    && scheduling::snapshot::pending::is_ignored(pod, &options)
            })
            .map(Arc::clone)
            .collect();
        let going = departing::going(&state);
        let (context, memory) = (self.context.clone(), Arc::clone(&self.memory));
        let started = Instant::now();
        let planned = tokio::task::spawn_blocking(move || {
            let now = context.clock.now();
            let succession = context.successors.now(now);
            let question = Question { state, node_pools, planned: planned_before, succession, options, now };
            round::plan(&context, &mut memory.lock(), &question)
        });
        let (answer, culprits) = match planned.await {
            Ok(planned) => planned,
            Err(panic) => {
                error!(error = %panic, "a round of planning panicked; this is a defect, please report it");
                return Outcome::Failed;
            }
        };
        self.beat.busy();
        self.report.panicked(&culprits);
        let Some(round::Answer { snapshot, plan, errors, launches, left_out, in_vain, troubles }) = answer else {
            return Outcome::Failed;
        };
        self.report.in_vain(&self.context, &in_vain);
        self.report.left_out(&self.context, &left_out);
        brake::condition::write(&self.context, &troubles).await;
        self.report.unusable(&errors);
        self.report.ignored(&self.context, &ignored);
        let took = started.elapsed();
        let by_controller = ByController { controller: NAME.to_owned() };
        self.context.metrics.scheduler_scheduling_duration_seconds.get_or_create(&by_controller).observe(seconds(took));
        self.report.planned(&self.context, &snapshot, &plan, took, left_out.len());
        buffers::observe(&self.context.metrics, &snapshot, &plan);
        if self.context.options.dry_run {
            self.report.dry_run(&snapshot, &plan);
            return Outcome::Waiting;
        }
        let notes = Notes { overlays: &overlays, launches: &launches };
        let planned = commit::Planned { snapshot: &snapshot, plan: &plan, pools: &objects, notes };
        let committed = commit::commit(&self.context, &self.beat, planned).await;
        self.report.committed(&self.context, &snapshot, &plan, &committed);
        let now = self.context.clock.now();
        for machine in committed.created.keys().map(|id| &plan.machines[*id]) {
            let pods = machine.pods.iter().map(|pod| &snapshot.pods[*pod].pod.uid);
            self.context.successors.launched(machine.launch.price, pods, now);
        }
        let departing = departing::departing((&snapshot, &plan), &launches.held_back, &committed.created, going);
        self.context.departures.note(departing);
        buffers::write(&self.context, &buffers, &snapshot, &plan).await;
        if committed.failed > 0 {
            Outcome::Failed
        } else if committed.stale > 0 {
            Outcome::Stale
        } else {
            Outcome::Waiting
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
