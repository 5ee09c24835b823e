//! What is known before the walk begins: the branches, and the devices of requests for all.

use std::sync::Arc;

use model::collections::{FastMap, FastSet};
use model::{Budget, IdSet, IdVec};

use super::{Branch, BranchIndex, ClaimPosition, Search, Touched, WalkedClaim};
use crate::allocator::Question;
use crate::allocator::constraints::ConstraintState;
use crate::compile::claims::{ClaimClass, CompiledConstraint};
use crate::compile::derived::Values;
use crate::compile::selectors::Judgement;
use crate::faults::{ClaimFault, Fault};
use crate::inventory::view::Position;
use dra_types::{Allocation, compat::Gate};

impl<'a> Search<'a> {
    pub(in crate::allocator) fn new(question: Question<'a>, budget: &'a mut Budget) -> Self {
        let Question { inventory, seen: (facts, view), claims: ids, taken } = question;
        let classes = || ids.iter().map(|claim| &inventory.claim_classes[*claim]);
        let mut claims: IdVec<ClaimPosition, WalkedClaim<'a>> = IdVec::with_capacity(ids.len());
        let mut branches = IdVec::with_capacity(classes().map(ClaimClass::alternatives).sum());
        let mut devices = 0;
        // One branch for `exactly`, one per alternative for firstAvailable (KEP-4816), in order: upstream takes the
        // first that works.
        for class in classes() {
            let claim = claims.next_id();
            let first_branch = branches.len();
            for (request, of) in class.requests.iter().enumerate() {
                for (index, alternative) in of.alternatives.iter().enumerate() {
                    let wanted = alternative.count.unwrap_or(0);
                    let harmless = IdSet::new();
                    branches.push(Branch { claim, request, index, alternative, wanted, all: None, harmless });
                    devices += if index == 0 { wanted } else { 0 };
                }
            }
            let state = |constraint: &CompiledConstraint| ConstraintState::new(*constraint, &inventory.quirks);
            let constraints = class.constraints.iter().map(state).collect();
            claims.push(WalkedClaim { class, first_branch, constraints });
        }
        // More than a claim's status can hold is refused before it is picked.
        let devices = devices.min(ids.len() * Allocation::MAX_RESULTS);
        let quirks = &inventory.quirks;
        let distinct = |class: &ClaimClass| class.constraints.iter().any(|constraint| constraint.distinct);
        // Two defects of old releases make later answers depend on choices that were undone. Skipping devices would
        // lose these.
        let remembers = quirks.distinct_forgets_devices_of_its_request && classes().any(distinct)
            || quirks.counters_are_keyed_by_pool_name && view.pools.iter().any(|pool| !pool.drawing.is_empty());
        let passes_over = !remembers;
        Self {
            inventory,
            facts,
            view,
            question,
            picks: Vec::with_capacity(devices),
            claims,
            taken,
            budget,
            branches,
            touched: Touched::with_capacity(devices),
            lists: inventory.quirks.constraints_see_lists(&inventory.compat),
            derived: Values::new(&inventory.derived, &inventory.values),
            consumable: inventory.compat.is_on(Gate::ConsumableCapacity),
            demands: FastMap::default(),
            counters: FastMap::default(),
            homes: FastMap::default(),
            groups: FastMap::default(),
            classes: None,
            looked: 0,
            went_back: false,
            passes_over,
            failed: FastSet::default(),
        }
    }

    /// Finds the devices of requests for all, and claims that want too many whatever is chosen.
    pub(in crate::allocator) fn prepare(&mut self) -> Result<(), Fault> {
        for branch in self.branches.ids() {
            if self.branches[branch].alternative.count.is_none() {
                let all = self.all_devices(branch)?;
                self.branches[branch].wanted = all.len();
                self.branches[branch].all = Some(all);
            }
        }
        for (claim, of_claim) in self.claims.iter_enumerated() {
            let least = |request: usize| {
                self.branches_of(claim, request).iter().map(|branch| self.branches[branch].wanted).min().unwrap_or(0)
            };
            let devices = (0..of_claim.class.requests.len()).map(least).fold(0usize, usize::saturating_add);
            if devices > Allocation::MAX_RESULTS {
                let error = ClaimFault::TooManyDevices { devices: devices as u64 };
                return Err(Fault::Claim { claim: Arc::clone(&of_claim.class.name), error });
            }
        }
        Ok(())
    }

    fn all_devices(&mut self, branch: BranchIndex) -> Result<Vec<Position>, Fault> {
        for pool in &self.view.pools {
            if let Some(trouble) = &pool.trouble {
                return Err(Fault::AllNeedsPool {
                    claim: self.claim_name(branch),
                    request: self.branches[branch].alternative.name.clone(),
                    pool: pool.id(self.inventory),
                    trouble: trouble.clone(),
                });
            }
        }
        let mut all = Vec::new();
        for position in self.view.devices.ids() {
            match self.judge(branch, position) {
                Judgement::No => continue,
                Judgement::Error => return Err(self.selector_fault(branch, position)),
                Judgement::Yes => {}
            }
            let statically = !self.inventory.quirks.all_leaves_out_full_devices;
            match self.has_capacity(branch, position, statically) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => match self.capacity_fault(branch, position, error) {
                    Some(fault) => return Err(fault),
                    None => continue,
                },
            }
            all.push(position);
        }
        Ok(all)
    }
}
