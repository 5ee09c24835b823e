//! Gives a device to a request for the time being, and takes it back exactly.

use smallvec::SmallVec;

use super::counters::GroupState;
use super::{Branch, BranchIndex, ClaimPosition, Search, Walk};
use crate::capacity::Demand;
use crate::compile::attributes::Held;
use crate::compile::ids::CounterSetIndex;
use crate::faults::Fault;
use crate::inventory::view::{PoolPosition, Position};
use dra_types::compat::Gate;

/// A device given to a request.
#[derive(Debug, Clone)]
pub(crate) struct Pick {
    pub(crate) position: Position,
    pub(crate) branch: BranchIndex,
    /// What a share takes, in the order of the device's capacities; None for a device given whole.
    pub(crate) share: Option<Box<[i128]>>,
    pub(super) drew: bool,
    pub(super) groups: Vec<((PoolPosition, CounterSetIndex), Option<GroupState>)>,
}

impl Search<'_> {
    /// Takes a device tentatively. False if it cannot be had; an error only where upstream has one.
    pub(super) fn pick(&mut self, branch: BranchIndex, position: Position, must: bool) -> Result<bool, Walk> {
        self.budget.spend(1).map_err(|_| Walk::OutOfBudget)?;
        let Branch { claim, request, alternative, .. } = self.branches[branch];
        // Upstream checks in this order (`allocateDevice`), and where a check can end in an error the order decides
        // which error comes.
        let admin = alternative.admin_access;
        let shareable = self.is_shareable(position);
        if admin && !shareable && self.is_picked_by(position, claim) || !admin && self.in_use(position) {
            return Ok(false);
        }
        if self.lacks_node_operations(position) || self.counters_are_off(position) {
            return Ok(false);
        }
        // A device draws counters (KEP-4815) with its first share only, and for an administrator only by a defect of
        // releases.
        let draws = !self.entry(position).draws.is_empty()
            && self.inventory.compat.is_on(Gate::PartitionableDevices)
            && !(shareable && self.has_shares(position))
            && (!admin || self.inventory.quirks.admin_access_draws_counters);
        let mut pick = Pick { position, branch, share: None, drew: false, groups: Vec::new() };
        if draws {
            if !self.join_groups(&mut pick) || !self.draw(position) {
                self.leave_groups(&mut pick);
                return Ok(false);
            }
            pick.drew = true;
        }
        if self.untolerated(branch, position).is_some() {
            self.put_back(&mut pick);
            return Ok(false);
        }
        let mut added: SmallVec<[usize; 4]> = SmallVec::new();
        for &constraint in &alternative.constraints {
            self.budget.spend(1).map_err(|_| Walk::OutOfBudget)?;
            // A derived attribute is computed here, so its error comes only if everything before has passed.
            let value = self.held(branch, constraint, position);
            if *value == Held::Failed {
                return Err(Walk::Fault(Box::new(self.derived_fault(branch, constraint, position))));
            }
            let lists = self.lists;
            let state = self.claims[claim].constraints.get_mut(constraint);
            if let Some(state) = state.filter(|state| state.admits(&value, lists)) {
                state.add(request, &value);
                added.push(constraint);
                continue;
            }
            self.remove_from(claim, request, &added);
            self.put_back(&mut pick);
            // A request for all devices cannot leave one out: then upstream answers with an error.
            return if must { Err(Walk::Fault(Box::new(self.all_fault(branch, position)))) } else { Ok(false) };
        }
        // Capacity again, since picks of this search may have taken some since the device was first looked at.
        let fits = match self.has_capacity(branch, position, false) {
            Ok(fits) => fits,
            Err(error) => match self.capacity_fault(branch, position, error) {
                Some(fault) => return Err(Walk::Fault(Box::new(fault))),
                None => false,
            },
        };
        if !fits {
            self.remove_from(claim, request, &added);
            self.put_back(&mut pick);
            return Ok(false);
        }
        // A shared device (KEP-5075) stays open to others for what is left of its capacity; any other is taken whole.
        if shareable {
            let demand = self.demand(branch, position);
            let amounts: Box<[i128]> = match &*demand {
                Ok(Demand::Amounts(amounts)) => amounts.clone(),
                Ok(Demand::Unusable) | Err(_) => Box::default(),
            };
            let touch = self.touched.of(position);
            touch.shares += 1;
            touch.taken.resize(amounts.len(), 0);
            for (taken, amount) in touch.taken.iter_mut().zip(&amounts) {
                *taken += amount;
            }
            pick.share = Some(amounts);
        } else {
            self.touched.of(position).claims.push(claim);
        }
        self.picks.push(pick);
        Ok(true)
    }

    fn all_fault(&self, branch: BranchIndex, position: Position) -> Fault {
        Fault::AllUnderConstraint {
            claim: self.claim_name(branch),
            request: self.branches[branch].alternative.name.clone(),
            device: self.device_id(position),
        }
    }

    /// Takes back the last device of a branch's claim.
    pub(super) fn unpick(&mut self, branch: BranchIndex) {
        let Branch { claim, request, alternative, .. } = self.branches[branch];
        let Some(mut pick) = self.picks.pop() else { return };
        self.went_back = true;
        let touch = self.touched.of(pick.position);
        match &pick.share {
            Some(amounts) => {
                touch.shares -= 1;
                for (taken, amount) in touch.taken.iter_mut().zip(amounts) {
                    *taken -= amount;
                }
            }
            None => {
                touch.claims.pop();
            }
        }
        self.touched.forget_if_free(pick.position);
        self.remove_from(claim, request, &alternative.constraints);
        self.put_back(&mut pick);
    }

    fn remove_from(&mut self, claim: ClaimPosition, request: usize, constraints: &[usize]) {
        for &constraint in constraints.iter().rev() {
            if let Some(state) = self.claims[claim].constraints.get_mut(constraint) {
                state.remove(request);
            }
        }
    }

    fn put_back(&mut self, pick: &mut Pick) {
        if pick.drew {
            self.change_counters(pick.position, 1);
        }
        self.leave_groups(pick);
    }
}
