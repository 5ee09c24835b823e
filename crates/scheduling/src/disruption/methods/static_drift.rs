//! Machines of static NodePools that are broken, have drifted, or are past their time and expire the graceful way: each
//! is replaced by one from the bare template, as many at once as budgets and `limits.nodes` let (Karpenter's
//! StaticDrift and repair).
//!
//! Where there is no room for one more, a machine goes first if its gate lets it: at the limit any, and where all that
//! could be launched comes from full reservations one that gives a place in these back.
//!
//! No pod decides what takes their place, so nothing is simulated: the pods go where the scheduler finds room once
//! their machine is drained. Commands are of one machine each, so one whose replacement does not come holds up no
//! other.
//!
//! Differs: `static-drift-order`. Those that drifted first go first; Karpenter takes them as its maps have them.

use std::cmp::Reverse;

use model::{NodePoolName, PriceNanoUsdPerHour};

use super::Outcome;
use crate::disruption::budgets::Allowances;
use crate::disruption::candidates::{Candidates, Context};
use crate::disruption::plan::{Command, TerminateFirst};
use crate::disruption::reason::NodeReason;
use crate::disruption::simulation::reserved_offering;
use crate::snapshot::fleet::{FleetNode, Reason, ReplicasHold};

pub(crate) fn commands(context: &Context<'_>, candidates: &Candidates, allowances: &mut Allowances<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    for (name, pool) in &context.fleet.pools {
        let Some(replicas) = pool.replicas else { continue };
        let is_of_pool = |machine: &&FleetNode| context.pool_of(machine).is_some_and(|(of, _)| of == name);
        let of_pool = context.fleet.nodes.iter().filter(is_of_pool);
        let mut machines: Vec<_> =
            of_pool.filter_map(|machine: &FleetNode| Some((machine, context.outdated(machine)?))).collect();
        machines.sort_by_key(|(machine, (reason, since))| {
            let score = machine.unhealthy.as_ref().filter(|_| *reason == Reason::Unhealthy).map(|it| it.score);
            (Reverse(score), *since, context.display_name(machine.node))
        });
        let has_full_reservations = launches_from_full_reservations(context, name);
        let mut taken = 0;
        for (machine, (reason, _)) in machines {
            let of_replicas = |hold| NodeReason::Replicas { reason, node_pool: name.clone(), hold };
            let of_budget = |limit| NodeReason::Budget { reason, node_pool: name.clone(), limit };
            let why = candidates.block_of_replica(context, machine, reason).map(NodeReason::Blocked);
            let hold = match replicas.hold(taken) {
                Some(ReplicasHold::Surplus) => Some(ReplicasHold::Surplus),
                _ if has_full_reservations => Some(ReplicasHold::ReservationsFull),
                hold => hold,
            };
            let terminate_first = hold.and_then(|hold| terminate_first(context, machine, reason, hold));
            let why = why.or_else(|| hold.filter(|_| terminate_first.is_none()).map(of_replicas));
            // Last, for a budget is taken where there is one; one that was never initialized needs none.
            let why = match why {
                None if context.is_initialized(machine) => allowances.take(name, reason).err().map(of_budget),
                why => why,
            };
            if let Some(why) = why {
                outcome.stays.insert(machine.node, why);
                continue;
            }
            taken += i64::from(terminate_first.is_none());
            outcome.commands.push(Command {
                reason,
                nodes: vec![machine.node],
                replacements: Vec::new(),
                static_pool: Some(name.clone()),
                terminate_first,
                moves: Vec::new(),
                // It costs what the one before did, as far as anybody knows.
                saving: PriceNanoUsdPerHour::ZERO,
                eviction_cost: machine.eviction_cost(),
            });
        }
    }
    outcome
}

/// Why a machine goes before its like is launched, if it may.
fn terminate_first(
    context: &Context<'_>,
    machine: &FleetNode,
    reason: Reason,
    hold: ReplicasHold,
) -> Option<TerminateFirst> {
    if !context.snapshot.options.disruption.may_terminate_first(reason) {
        return None;
    }
    match hold {
        // It goes without a replacement.
        ReplicasHold::Surplus => None,
        ReplicasHold::NodeLimit(_) => Some(TerminateFirst::StaticAtLimit),
        ReplicasHold::ReservationsFull => {
            let (offering, _) = reserved_offering(context.snapshot, machine)?;
            offering.available.then_some(TerminateFirst::NoReservedCapacity)
        }
    }
}

/// Whether a NodePool could launch machines from reservations only, and none of these has room.
fn launches_from_full_reservations(context: &Context<'_>, name: &NodePoolName) -> bool {
    let names = &context.snapshot.interner;
    let Some(pool) = context.snapshot.node_pools.iter().find(|pool| pool.name == *name) else { return false };
    let mut offerings = pool
        .catalogue
        .offerings
        .iter()
        .filter(|offering| pool.requirements.intersects(&offering.requirements, names).is_ok())
        .peekable();
    offerings.peek().is_some() && offerings.all(|offering| offering.reservation.is_some() && !offering.launchable())
}
