//! Upstream's answer for one view: the first complete assignment in its order, found without walking what cannot hold
//! one.
//!
//! *Problem.* Claims, requests and their alternatives in order; each wants a number of devices, or all that match;
//! devices in order. Find the lexicographically first assignment under use, capacity, counters, taints and constraints.
//!
//! *Algorithm.* Upstream's depth-first walk ([`search`]), which skips a subtree only if that provably holds neither a
//! solution nor an error: equal devices ([`symmetry`]), counting ([`counting`]), failures seen before.
//!
//! *Complexity.* Without contention: the devices before the chosen ones. In the worst case exponential in the number of
//! distinct devices; the step budget bounds it, and running out is an answer of its own.

mod constraints;
mod counting;
pub(crate) mod report;
mod result;
mod scene;
mod search;
mod symmetry;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use model::Budget;

use crate::claims::Request;
use crate::inventory::{ClaimClassId, Inventory};
use crate::ledger::{ClusterLedger, Taken, Usage};
use crate::verdict::{Fault, Progress, Refusal, Verdict};
use crate::view::View;
use dra_types::{Allocation, NodeFacts, RequestKind};

pub(crate) use scene::Scene;

/// What a search found, before it is written as upstream writes it.
#[derive(Debug)]
pub(crate) enum Outcome {
    Found(Found),
    Refused(Refusal),
    OutOfBudget,
}

/// What a caller needs of an assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The allocations.
    Allocations,
    /// What it takes and where it can be used, too.
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

impl Inventory {
    /// Allocates claims for one pod on an existing node, as kube-scheduler would, without taking anything.
    ///
    /// The budget is in steps: tentative choices of a device, counting tests, propagations of a constraint's value.
    pub fn allocate(
        &self,
        node: &NodeFacts,
        claims: &[ClaimClassId],
        ledger: &ClusterLedger,
        budget: &mut Budget,
    ) -> Verdict {
        let view =
            self.brought_to(node, ledger).and_then(|brought| self.view_of_node(node, &brought, ledger.pool_order()));
        let view = match view {
            Ok(view) => view,
            Err(fault) => return Verdict::Refused(Refusal::Fault(fault)),
        };
        let before = budget.remaining();
        match self.search((node, &view), claims, Taken { cluster: ledger, own: None }, Need::Allocations, budget) {
            Outcome::Found(found) => Verdict::Allocated { allocations: found.allocations, score: found.score },
            Outcome::Refused(refusal) => Verdict::Refused(refusal),
            Outcome::OutOfBudget => Verdict::OutOfBudget(Progress { steps: before.saturating_sub(budget.remaining()) }),
        }
    }

    pub(crate) fn search(
        &self,
        seen: (&NodeFacts, &Arc<View>),
        claims: &[ClaimClassId],
        taken: Taken<'_>,
        need: Need,
        budget: &mut Budget,
    ) -> Outcome {
        for class in claims.iter().map(|claim| &self.claim_classes[*claim]) {
            if let Some(fault) = &class.fault {
                let fault = Fault::Claim { claim: class.name.clone(), error: fault.clone() };
                return Outcome::Refused(Refusal::Fault(fault));
            }
        }
        search::run(self, seen, claims, taken, need, budget)
    }

    /// Whether claims of a class may take more where there is more: by a better alternative, or by asking for all.
    pub fn takes_more_of_more(&self, class: ClaimClassId) -> bool {
        let is_for_all = |request: &Request| request.alternatives.iter().any(|alternative| alternative.count.is_none());
        self.has_alternatives(class) || self.claim_classes[class].requests.iter().any(is_for_all)
    }

    /// Whether a claim class has firstAvailable requests, so that the packer can ask for better alternatives.
    pub fn has_alternatives(&self, class: ClaimClassId) -> bool {
        let requests = &self.claim_classes[class].spec.requests;
        requests.iter().any(|request| matches!(request.kind, RequestKind::FirstAvailable(_)))
    }
}
