//! One plan of disruption, from the store to what is proposed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::{NodeClaim, NodePool, conditions::node_claim as conditions};
use cluster::node_claim::command::has_note;
use cluster::node_claim::expiration;
use model::Timestamp;
use parking_lot::Mutex;
use scheduling::disruption::plan::DisruptionPlan;
use scheduling::disruption::plan_disruption;
use scheduling::snapshot::Snapshot;
use scheduling::snapshot::expiration::{Expiration, ExpirationRules};
use tokio::time::Instant;
use tracing::{error, warn};

use crate::runtime::panics;
use crate::world::allocations::Allocations;
use crate::world::claim;
use crate::world::context::Context;
use crate::world::overlays::Outcome;
use crate::world::plan_options::plan_options;
use crate::world::snapshot::{self, Before, For, Memory, Settings};
use crate::world::store::State;

/// A plan, and what it was made from.
pub(crate) struct Planned {
    pub(crate) state: State,
    pub(crate) snapshot: Snapshot,
    pub(crate) plan: DisruptionPlan,
    /// The NodePools that it knew.
    pub(crate) pools: Vec<Arc<NodePool>>,
    pub(crate) overlays: Arc<Outcome>,
    pub(crate) took: Duration,
}

/// Makes plans. Remembers what is left of the last snapshot.
#[derive(Debug, Default)]
pub(crate) struct Planning {
    memory: Arc<Mutex<Memory>>,
    allocations: Allocations,
    /// Objects that the last plan had to do without.
    unusable: Mutex<BTreeSet<String>>,
}

/// Whether any machine could go for what its NodeClaim says of itself.
pub(crate) fn has_work(state: &State, rules: ExpirationRules, now: Timestamp) -> bool {
    state.node_claims.values().any(|claim| is_eligible(state, claim, rules, now))
}

/// Whether a NodeClaim says that it could go.
pub(crate) fn is_eligible(state: &State, claim: &NodeClaim, rules: ExpirationRules, now: Timestamp) -> bool {
    if claim::is_deleting(claim) || has_note(claim) {
        return false;
    }
    let is_expired = || {
        let pool = state.node_pools.get(claim::node_pool(claim)).map(AsRef::as_ref);
        matches!(expiration::decide(claim, pool, rules, now), Ok(Some(Expiration::Graceful { .. })))
    };
    claim::is(claim, conditions::DRIFTED) || claim::is(claim, conditions::CONSOLIDATABLE) || is_expired()
}

impl Planning {
    /// Plans; `None` if that was not possible now.
    pub(crate) async fn plan(&self, context: &Context) -> Option<Planned> {
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
        let planning = tokio::task::spawn_blocking(move || {
            let settings = Settings {
                whom: For::Disruption,
                now: context.clock.now(),
                options: plan_options(&context.options, context.cloud.config()),
                scheduler_config: &context.options.scheduler_config,
                labels: &context.cloud.config().labels,
            };
            let succession = context.successors.now(context.clock.now());
            let before = Before { planned: &planned, succession: &succession, left_out: BTreeSet::new() };
            let mut memory = memory.lock();
            // Taken out for the call: what a panic leaves is not used again.
            let mut remembered = std::mem::take(&mut *memory);
            let planned = panics::caught(|| {
                let (snapshot, errors) = snapshot::build(&state, node_pools, before, settings, &mut remembered);
                snapshot::share_names(&context.store, &state, &snapshot);
                let plan = plan_disruption(&snapshot);
                (snapshot, errors, plan)
            });
            if planned.is_ok() {
                *memory = remembered;
            }
            (state, planned)
        });
        let (state, planned) = match planning.await {
            Ok((state, Ok(planned))) => (state, planned),
            Ok((_, Err(panicked))) => {
                error!(error = %panicked, backtrace = panicked.backtrace, "planning of disruption panicked and nothing is disrupted; this is a defect, please report it");
                return None;
            }
            Err(failure) => {
                error!(error = %failure, "planning of disruption failed");
                return None;
            }
        };
        let (snapshot, errors, plan) = planned;
        self.tell_unusable(&errors);
        Some(Planned { state, snapshot, plan, pools, overlays, took: started.elapsed() })
    }

    fn tell_unusable(&self, errors: &[decode::ObjectError]) {
        let now: BTreeSet<String> = errors.iter().map(ToString::to_string).collect();
        let mut before = self.unusable.lock();
        for error in now.difference(&before) {
            warn!(error, "planning disruption without this object");
        }
        *before = now;
    }
}
