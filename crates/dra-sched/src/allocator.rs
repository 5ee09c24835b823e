//! Upstream's answer for one view: the first complete assignment in its order, found without walking what cannot hold
//! one.
//!
//! *Problem.* Claims, requests and their alternatives in order; each wants a number of devices, or all that match;
//! devices in order. Find the lexicographically first assignment under use, capacity, counters, taints and constraints.
//!
//! *Algorithm.* Upstream's depth-first walk ([`search`]), which skips a subtree only if that provably holds neither a
//! solution nor an error: equal devices ([`symmetry`]), counting ([`counting`]), failures seen before. Where upstream
//! may answer with an error, [`errors`] finds out how far counting may go.
//!
//! *Complexity.* Without contention: the devices before the chosen ones. Where at most one rule couples the requests,
//! polynomial, with possible errors too (the bound is in [`errors`]). In the worst case exponential in the number of
//! distinct devices; the step budget bounds it, and running out is an answer of its own.

mod constraints;
mod counting;
mod errors;
pub(crate) mod report;
mod result;
mod search;
mod symmetry;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use model::Budget;

use crate::compile::ids::ClaimClassId;
use crate::faults::Fault;
use crate::inventory::Inventory;
use crate::inventory::view::View;
use crate::ledger::{ClusterLedger, Taken, Usage};
use crate::verdict::{Progress, Refusal, Verdict};
use dra_types::{Allocation, NodeFacts};

/// The result of a search, before it is written as upstream writes it.
#[derive(Debug)]
pub(crate) enum Outcome {
    Found(Found),
    Refused(Refusal),
    OutOfBudget,
}

/// Which parts of an assignment the caller needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The allocations.
    Allocations,
    /// Also what it takes and where it can be used.
    Usage,
}

/// An assignment; by default that of no claims.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) allocations: Vec<Allocation>,
    pub(crate) score: u32,
    /// What it takes, devices of the machine itself and of the cluster; empty if nobody needs it.
    pub(crate) usage: Usage,
    /// Whether a claim, by position, can only be used on this machine; empty if nobody needs it.
    pub(crate) pinned: Vec<bool>,
}

/// Allocates claims for one pod on an existing node, as kube-scheduler would, without taking anything.
///
/// The budget is in steps: tentative choices of a device, counting tests, propagations of a constraint's value.
pub fn allocate(
    inventory: &Inventory,
    node: &NodeFacts,
    claims: &[ClaimClassId],
    ledger: &ClusterLedger,
    budget: &mut Budget,
) -> Verdict {
    let brought = ledger.brought_to(inventory, node);
    let view = match brought.and_then(|brought| View::of_node(inventory, node, &brought, ledger.pool_order())) {
        Ok(view) => view,
        Err(fault) => return Verdict::Refused(Refusal::Fault(fault)),
    };
    let before = budget.remaining();
    let question = Question { inventory, seen: (node, &view), claims, taken: Taken { cluster: ledger, own: None } };
    match question.search(Need::Allocations, budget) {
        Outcome::Found(found) => Verdict::Allocated { allocations: found.allocations, score: found.score },
        Outcome::Refused(refusal) => Verdict::Refused(refusal),
        Outcome::OutOfBudget => Verdict::OutOfBudget(Progress { steps: before.saturating_sub(budget.remaining()) }),
    }
}

/// A question: can these claims be served together, given what a node sees and what is taken of it?
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) inventory: &'a Inventory,
    /// The node, and what it sees.
    pub(crate) seen: (&'a NodeFacts, &'a Arc<View>),
    pub(crate) claims: &'a [ClaimClassId],
    pub(crate) taken: Taken<'a>,
}

impl Question<'_> {
    pub(crate) fn search(self, need: Need, budget: &mut Budget) -> Outcome {
        for class in self.claims.iter().map(|claim| &self.inventory.claim_classes[*claim]) {
            if let Some(fault) = &class.fault {
                let fault = Fault::Claim { claim: class.name.clone(), error: fault.clone() };
                return Outcome::Refused(Refusal::Fault(fault));
            }
        }
        search::run(self, need, budget)
    }
}
