//! Machines of static NodePools that have drifted, or are past their time and expire the graceful way: each is replaced
//! by one from the bare template, as many at once as budgets and `limits.nodes` let (Karpenter's StaticDrift).
//!
//! No pod decides what takes their place, so nothing is simulated: the pods go where the scheduler finds room once
//! their machine is drained. Commands are of one machine each, so one whose replacement does not come holds up no
//! other.
//!
//! Differs: `static-drift-order`. Those that drifted first go first; Karpenter takes them as its maps have them.

use model::PriceNanoUsdPerHour;

use super::Outcome;
use crate::disruption::budgets::Allowances;
use crate::disruption::candidates::{Candidates, Context};
use crate::disruption::plan::Command;
use crate::disruption::reason::NodeReason;
use crate::snapshot::fleet::FleetNode;

pub(crate) fn commands(context: &Context<'_>, candidates: &Candidates, allowances: &mut Allowances<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    for (name, pool) in &context.fleet.pools {
        let Some(replicas) = pool.replicas else { continue };
        let is_of_pool = |machine: &&FleetNode| context.pool_of(machine).is_some_and(|(of, _)| of == name);
        let of_pool = context.fleet.nodes.iter().filter(is_of_pool);
        let mut machines: Vec<_> =
            of_pool.filter_map(|machine: &FleetNode| Some((machine, context.outdated(machine)?))).collect();
        machines.sort_by_key(|(machine, (_, since))| (*since, context.display_name(machine.node)));
        let mut taken = 0;
        for (machine, (reason, _)) in machines {
            let of_replicas = |hold| NodeReason::Replicas { reason, node_pool: name.clone(), hold };
            let of_budget = |limit| NodeReason::Budget { reason, node_pool: name.clone(), limit };
            let why = candidates.block_of_replica(context, machine, reason).map(NodeReason::Blocked);
            let why = why.or_else(|| replicas.hold(taken).map(of_replicas));
            // Last, for a budget is taken where there is one.
            if let Some(why) = why.or_else(|| allowances.take(name, reason).err().map(of_budget)) {
                outcome.stays.insert(machine.node, why);
                continue;
            }
            taken += 1;
            outcome.commands.push(Command {
                reason,
                nodes: vec![machine.node],
                replacements: Vec::new(),
                static_pool: Some(name.clone()),
                moves: Vec::new(),
                // It costs what the one before did, as far as anybody knows.
                saving: PriceNanoUsdPerHour::ZERO,
                eviction_cost: machine.eviction_cost(),
            });
        }
    }
    outcome
}
