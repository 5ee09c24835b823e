//! The provisioning planner: which pods go where, and which machines to create for the rest.
//!
//! 1. `simulation::compile`: the snapshot becomes a problem. Pods of one shape become a class (`classes`); each usable
//!    NodePool gets a table of its offerings with daemon overhead subtracted (`pools`, `daemons`, `fit_index`); label
//!    requirements become bitsets of offerings and of nodes (`affinity`).
//! 2. `simulation::placing`: classes are placed by priority and size, on existing nodes first, then by price
//!    (`choose`); `simulation::packing` journals what is taken, and where room is contended, `backtracking` searches.
//! 3. `orders`: a plan in the plain order and, if it costs more than its bound (`bound`, which also gives the dual
//!    price of each class), plans in other orders. The best plan is kept.
//! 4. `passes`, a list (`PASSES`): each changes the request and calls the passes after it; the last one calls the
//!    orders. `buffers` adds pods for the room that is to be kept free; `attachments` makes volumes a
//!    resource; `group_domains` plans for each domain that a PodGroup could be in; `gangs` without the PodGroups that
//!    did not get the places they need; `preferences` once more with preferences as requirements, which are kept where
//!    they cost nothing; `colocation` with pods that share a host as one.
//! 5. `assemble`, `launch`: open machines become NodeClaims; `explain` gives reasons for what has no place, and says
//!    afterwards, for one pod of a finished plan, which rule decided where it goes.
//!
//! Work grows with classes × (nodes + machines) and classes × offerings / 64, not with pods.

mod assemble;
mod device_costs;
mod launch;
pub(crate) mod orders;
pub(crate) mod passes;

#[cfg(test)]
pub(crate) mod tests;

pub use crate::explain::placed::why_placed;
use crate::plan::Plan;
use crate::provisioning::orders::Planning;
use crate::provisioning::passes::{Orders, Pass, Rest};
use crate::provisioning::passes::{
    attachments::Attachments, buffers::Buffers, colocation::Colocation, gangs::Gangs, group_domains::GroupDomains,
    preferences::Preferences,
};
pub use crate::simulation::compile::bare::{Obstacle, bare_room, obstacle};
use crate::simulation::compile::request::Request;
use crate::snapshot::Snapshot;

/// The passes from the outermost to the innermost, each with why it is there.
const PASSES: &[&dyn Pass] = &[
    // First, so that virtual pods are pods to everything else.
    &Buffers,
    // Before those that plan several times: which volumes are limited is the same for all their plans.
    &Attachments,
    // Before gangs, since what a gang needs has to be in the domain.
    &GroupDomains,
    // Before preferences: no preference is given up, or paid for, because of pods that only wait for the others.
    &Gangs,
    // Before colocation, which leaves preferences of its groups alone.
    &Preferences,
    // Last, because it goes by what the orders say a copy is worth.
    &Colocation,
];

/// The passes that also apply to Karpenter's order of packing; preferences of pods do not count there.
const PASSES_FOR_KARPENTER: &[&dyn Pass] = &[&Buffers, &Attachments, &GroupDomains, &Gangs];

/// Plans every pending pod of the snapshot. Never fails: what can't be placed is refused with reasons, and what can't
/// be decided within `Options::search_steps` is refused as undecided.
pub fn plan(snapshot: &Snapshot) -> Plan {
    plan_with(PASSES, orders::plan_in_best_order, snapshot, &mut Planning::default())
}

/// Plans in Karpenter's order of packing and by what pods require alone, to compare with.
pub fn plan_in_karpenters_order(snapshot: &Snapshot) -> Plan {
    plan_with(PASSES_FOR_KARPENTER, orders::plan_in_karpenters_order, snapshot, &mut Planning::default())
}

fn plan_with(passes: &[&'static dyn Pass], orders: Orders, snapshot: &Snapshot, planning: &mut Planning) -> Plan {
    let plan = Rest::new(passes, orders, planning).plan(&Request::of(snapshot));
    plan.expect("only plans that are compared with others are given up")
}
