//! Planning about the machines that Dovetail launched: a snapshot with its fleet, and what a pure function makes of it,
//! computed off the async threads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::NodePool;
use parking_lot::Mutex;
use scheduling::snapshot::Snapshot;
use tokio::time::Instant;
use tracing::{error, warn};

use crate::runtime::panics;
use crate::world::allocations::Allocations;
use crate::world::context::Context;
use crate::world::overlays::Outcome;
use crate::world::snapshot::{self, Before, For, Memory, Settings};
use crate::world::store::State;

/// What a function made of a snapshot, and what the snapshot was made from.
pub(crate) struct Looked<T> {
    pub(crate) state: State,
    pub(crate) snapshot: Snapshot,
    pub(crate) found: T,
    /// The NodePools that it knew.
    pub(crate) pools: Vec<Arc<NodePool>>,
    pub(crate) overlays: Arc<Outcome>,
    pub(crate) took: Duration,
}

/// Makes the snapshots of one controller. Remembers what the next snapshot can use again.
#[derive(Debug)]
pub(crate) struct FleetLooks {
    /// What is planned, for the log.
    what: &'static str,
    memory: Arc<Mutex<Memory>>,
    allocations: Allocations,
    /// Objects that the last snapshot had to do without.
    unusable: Mutex<BTreeSet<String>>,
}

impl FleetLooks {
    /// `what` is planned, in the words of the log.
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, memory: Arc::default(), allocations: Allocations::default(), unusable: Mutex::default() }
    }

    /// What `make` makes of the cluster as it is now; `None` if no snapshot could be made.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        context: &Context,
        make: impl FnOnce(&Snapshot) -> T + Send + 'static,
    ) -> Option<Looked<T>> {
        let epoch = context.store.read().epoch;
        let (node_pools, overlays) = context.catalogues.resolve(context).await;
        let pools = node_pools.iter().map(|pool| Arc::clone(&pool.object)).collect();
        // What was planned for is asked before the state is taken: see `Assignments::claims_by_pod`.
        let planned = context.assignments.claims_by_pod();
        let state = self.allocations.settled(&context.store).await;
        if state.epoch != epoch {
            // The catalogues speak of other names.
            return None;
        }
        let started = Instant::now();
        let (memory, context) = (Arc::clone(&self.memory), context.clone());
        let looking = tokio::task::spawn_blocking(move || {
            let settings = Settings {
                whom: For::Disruption,
                now: context.clock.now(),
                options: context.plan_options(),
                scheduler_config: &context.options.scheduler_config,
                labels: &context.cloud.config().labels,
                held_devices: &context.held_devices,
                repair: context.policies_of_replacement(),
            };
            let succession = context.successors.now(context.clock.now());
            let before = Before { planned: &planned, succession: &succession, left_out: BTreeSet::new() };
            let mut memory = memory.lock();
            // Taken out for the call: what a panic leaves is not used again.
            let mut remembered = std::mem::take(&mut *memory);
            let made = panics::caught(|| {
                let (snapshot, errors) = snapshot::build(&state, node_pools, before, settings, &mut remembered);
                snapshot::share_names(&context.store, &state, &snapshot);
                let found = make(&snapshot);
                (snapshot, errors, found)
            });
            if made.is_ok() {
                *memory = remembered;
            }
            (state, made)
        });
        let what = self.what;
        let (state, made) = match looking.await {
            Ok((state, Ok(made))) => (state, made),
            Ok((_, Err(panicked))) => {
                error!(error = %panicked, backtrace = panicked.backtrace, what, "planning panicked and nothing is done; this is a defect, please report it");
                return None;
            }
            Err(failure) => {
                error!(error = %failure, what, "planning failed");
                return None;
            }
        };
        let (snapshot, errors, found) = made;
        self.tell_unusable(&errors);
        Some(Looked { state, snapshot, found, pools, overlays, took: started.elapsed() })
    }

    fn tell_unusable(&self, errors: &[decode::ObjectError]) {
        let now: BTreeSet<String> = errors.iter().map(ToString::to_string).collect();
        let mut before = self.unusable.lock();
        for error in now.difference(&before) {
            warn!(error, what = self.what, "planning without this object");
        }
        *before = now;
    }
}
